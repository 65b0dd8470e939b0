//! How many instructions the steps of a message take, counted by callgrind: the same on a busy machine as on a quiet
//! one. `make bench-quick` compares the counts with `guards.txt`; `docs/measurements/performance.md` says what they mean.
//!
//! Claims and settlements talk to a real Redis. The count has what this process does for them: building the
//! request, the client, and reading the answer.
#![expect(
    missing_docs,
    clippy::exit,
    unused_qualifications,
    reason = "the macros of gungraun make public items, name all in full, and end the process"
)]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use gungraun::{
    Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main,
};
use hostler::delivery::attempt::DeliveryLimit;
use hostler::delivery::hold::HoldRoom;
use hostler::delivery::ledger::{self, Action, Delivery, Event, Ledger};
use hostler::delivery::message::{DeliveryId, Message};
use hostler::delivery::outcome::{Fault, FaultKind, Outcome};
use hostler::delivery::policy::{Policy, Reason, Rejection, decide};
use hostler::delivery::trace::Traced;
use hostler::publish::{Destination, Outgoing, Publisher};
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::queue::{Claim, Origin, Queue, Reply, SettleAction, Settlement};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::sandbox::{Call, Cancelled, LogSink, Sandbox, Settings, Slot};
use hostler::wire::stream::{BODY_FIELD, Options, decode};
use hostler_tests::redis::RedisServer;
use hostler_tests::rig::message;
use tokio::runtime::Runtime;

/// Messages of a batch, and how many batches a benchmark has.
const BATCH: usize = 256;
const BATCHES: usize = 8;
const MESSAGES: usize = BATCH * BATCHES;
/// Calls of the sandbox in a benchmark.
const CALLS: usize = 64;

/// Everything on the thread whose instructions are counted.
fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().expect("a runtime")
}

/// A queue with messages.
struct Scene {
    runtime: Runtime,
    queue: StreamQueue,
    claims: Vec<Arc<Claim>>,
    settlements: Vec<Settlement>,
    // The last one: the queue is closed before its server ends.
    _server: RedisServer,
}

impl Scene {
    async fn fetch(queue: &StreamQueue) -> Vec<Claim> {
        let fetch = async |count| {
            queue
                .fetch(count, Duration::ZERO)
                .await
                .expect("Redis answers")
        };
        let mut claims = fetch(BATCH).await;
        // One request brings all, unless the machine is so busy that the queue asks for less at a time.
        while claims.len() < BATCH {
            claims.extend(fetch(BATCH - claims.len()).await);
        }
        claims
    }
}

/// A queue with unread messages, and one batch that was claimed: buffers have their size.
fn unread() -> Scene {
    let server = RedisServer::start();
    let runtime = runtime();
    let (queue, claims) = runtime.block_on(async {
        let target = Target::parse(&server.url(), PasswordSource::Url, TlsFiles::default());
        let connector = Connector::new(target.expect("the url is right"), "guards");
        let publisher = Publisher::new(&connector, Destination::stream("orders"));
        let message = Outgoing::new(vec![b'x'; 100]).header("kind", "order");
        for _ in 0..=BATCHES {
            let batch = vec![message.clone(); BATCH];
            publisher.publish_all(&batch).await.expect("Redis answers");
        }
        let options = StreamOptions {
            dead_letter: Some(DeadLetterQueue::new("orders:dead")),
            ..StreamOptions::new("orders", "workers")
        };
        let queue = StreamQueue::open(connector, options).await;
        let queue = queue.expect("the queue opens");
        let claims = Scene::fetch(&queue).await.into_iter().map(Arc::new);
        let claims: Vec<_> = claims.collect();
        queue.acknowledge(&claims).await.expect("Redis answers");
        (queue, claims)
    });
    Scene {
        runtime,
        queue,
        claims,
        settlements: Vec::new(),
        _server: server,
    }
}

/// The same, and all of them are claimed.
fn claimed() -> Scene {
    let mut scene = unread();
    claim_all(&mut scene);
    scene
}

/// The same, and they are to be settled so.
fn settling(action: SettleAction) -> Scene {
    let mut scene = claimed();
    let claims = scene.claims.iter();
    scene.settlements = claims
        .map(|claim| Settlement::new(Arc::clone(claim), 1, action.clone()))
        .collect();
    // The first one may learn about keys.
    settle_some(&scene, 0..1);
    scene
}

fn later() -> SettleAction {
    SettleAction::Park {
        keep: 1,
        after: Duration::from_secs(3600),
    }
}

fn dead() -> SettleAction {
    SettleAction::DeadLetter(Rejection {
        reason: Reason::Dropped,
        detail: "unknown currency".to_owned(),
        attempts: 1,
        handled: true,
    })
}

// The name of a benchmark switches the counter, also as a part of another name: one that has a closure, or an `async`
// block, would switch it off there.
#[library_benchmark(setup = unread)]
#[bench::batch()]
fn claim(mut scene: Scene) -> Scene {
    claim_all(&mut scene);
    scene
}

fn claim_all(scene: &mut Scene) {
    scene.claims = scene.runtime.block_on(async {
        let mut claims = Vec::with_capacity(MESSAGES);
        for _ in 0..BATCHES {
            claims.extend(Scene::fetch(&scene.queue).await.into_iter().map(Arc::new));
        }
        claims
    });
}

#[library_benchmark(setup = claimed)]
#[bench::batch()]
fn acknowledge(scene: Scene) -> Scene {
    acknowledge_all(&scene);
    scene
}

fn acknowledge_all(scene: &Scene) {
    scene.runtime.block_on(async {
        for batch in scene.claims.chunks(BATCH) {
            let done = scene.queue.acknowledge(batch).await;
            done.expect("Redis answers");
        }
    });
}

#[library_benchmark(setup = settling)]
#[bench::later(later())]
#[bench::dead_letter(dead())]
fn settle(scene: Scene) -> Scene {
    settle_some(&scene, 1..MESSAGES);
    scene
}

fn settle_some(scene: &Scene, which: std::ops::Range<usize>) {
    scene.runtime.block_on(async {
        for batch in scene.settlements[which].chunks(BATCH) {
            let replies = scene.queue.settle(batch).await.expect("Redis answers");
            assert!(replies.iter().all(|reply| *reply == Reply::Done));
        }
    });
}

/// The fields of an entry with a body and three headers.
fn fields() -> Vec<(Bytes, Bytes)> {
    let field = |name: &str, value: &str| {
        let bytes = |text: &str| Bytes::from(text.to_owned());
        (bytes(name), bytes(value))
    };
    vec![
        field(BODY_FIELD, &"x".repeat(100)),
        field("h:x-message-id", "o-20260101-000001"),
        field("h:x-retry-count", "1"),
        field("h:content-type", "application/json"),
    ]
}

#[library_benchmark(setup = fields)]
#[bench::entry()]
fn decode_entry(fields: Vec<(Bytes, Bytes)>) -> Vec<Message> {
    let (queue, options) = (Arc::from("orders"), Options::default());
    let mut messages = Vec::with_capacity(MESSAGES);
    for _ in 0..MESSAGES {
        let decoded = decode(&queue, "1700000000000-0", 0, black_box(&fields), &options);
        assert!(decoded.defect.is_none());
        messages.push(decoded.message);
    }
    messages
}

/// An outcome of each kind, and rules with a cap.
fn outcomes() -> (Vec<Outcome>, Policy) {
    let policy = Policy {
        limit: DeliveryLimit {
            cap: Some(5),
            ..DeliveryLimit::default()
        },
        has_dead_letter: true,
        ..Policy::default()
    };
    let outcomes = vec![
        Outcome::Ack,
        Outcome::NackRequeue(None),
        Outcome::Drop(Some("unknown currency".to_owned())),
        Outcome::Fault(Fault::new(FaultKind::Trap, "unreachable".to_owned())),
    ];
    (outcomes, policy)
}

#[library_benchmark(setup = outcomes)]
#[bench::each()]
fn decide_outcome((outcomes, policy): (Vec<Outcome>, Policy)) -> (Vec<Outcome>, Policy) {
    for _ in 0..MESSAGES / outcomes.len() {
        for (outcome, attempt) in outcomes.iter().zip([1, 2, 3, 5]) {
            black_box(decide(
                black_box(outcome),
                None,
                attempt,
                black_box(&policy),
                0.5,
            ));
        }
    }
    (outcomes, policy)
}

/// A ledger that has had a batch: its tables have their size.
fn ledger() -> Ledger<()> {
    let settings = ledger::Settings {
        policy: Policy::default(),
        paused: false,
        takes_back: true,
        concurrency: 16,
        checked_acks: false,
        batch: 1,
        prefetch_max: BATCH,
        ahead: Duration::from_millis(20),
        min_idle: Duration::from_secs(30),
        orphan_scan: Duration::from_secs(1),
        due_scan: Duration::from_millis(100),
    };
    let mut ledger = Ledger::new(Duration::ZERO, settings);
    take_through(&mut ledger, 0);
    ledger
}

/// The way of one batch through the ledger: claimed, released, run, acknowledged.
fn take_through(ledger: &mut Ledger<()>, batch: usize) {
    let now = Duration::from_millis(batch as u64);
    let ids = batch * BATCH..(batch + 1) * BATCH;
    let deliveries = ids.map(|id| Delivery {
        id: DeliveryId(id as u128),
        origin: Origin::Fresh,
        header: 0,
        native: 1,
        held: 0,
        turned_away: None,
        is_awaited: false,
        job: (),
    });
    let deliveries = deliveries.collect();
    ledger.apply(
        now,
        Event::Fetched {
            leased: now,
            deliveries,
            more: false,
        },
    );
    let mut actions = Vec::new();
    while !ledger.is_empty() {
        let mut acknowledged = Vec::new();
        ledger.poll(now, &mut actions);
        for action in actions.drain(..) {
            match action {
                Action::Release { key, .. } => ledger.apply(
                    now,
                    Event::Finished {
                        key,
                        outcome: Outcome::Ack,
                        told: None,
                        hold: None,
                        acts: false,
                        is_current: true,
                        jitter: 0.5,
                    },
                ),
                Action::Acknowledge(key) => acknowledged.push(key),
                _ => {}
            }
        }
        ledger.apply(now, Event::Acknowledged(acknowledged));
    }
}

#[library_benchmark(setup = ledger)]
#[bench::acknowledged()]
fn keep_ledger(mut ledger: Ledger<()>) -> Ledger<()> {
    for batch in 1..=BATCHES {
        take_through(&mut ledger, batch);
    }
    ledger
}

/// A handler in a pool of few slots: valgrind has no address space for the usual one.
struct Handler {
    runtime: Runtime,
    sandbox: Sandbox,
    slot: Slot,
    message: Message,
    cancelled: Arc<Cancelled>,
}

/// A handler in Rust that acknowledges, as it was built for version 1.0.0 of the interface, with instances that
/// serve `reuse` messages.
fn handler(reuse: u32) -> Handler {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus/1.0.0/ack.wasm");
    let settings = Settings {
        concurrency: 1,
        reuse,
        ..Settings::default()
    };
    let sandbox = Sandbox::load(&file, &settings).expect("the component loads");
    assert!(sandbox.describe().pooling, "there is room for a pool");
    let mut handler = Handler {
        runtime: runtime(),
        slot: sandbox.slot(),
        sandbox,
        message: message("x"),
        cancelled: Arc::default(),
    };
    call_handler(&mut handler, 2);
    handler
}

fn call_handler(handler: &mut Handler, calls: usize) {
    let call = Call {
        message: &handler.message,
        attempt: 1,
        max_attempts: 0,
        cancelled: &handler.cancelled,
        logs: &LogSink::Tracing,
        trace: Traced::default(),
        began: Instant::now(),
        journal: None,
        room: HoldRoom::default(),
    };
    let (sandbox, slot) = (&handler.sandbox, &mut handler.slot);
    handler.runtime.block_on(async {
        for _ in 0..calls {
            let report = sandbox.call(slot, call).await;
            assert_eq!(report.outcome, Outcome::Ack);
        }
    });
}

#[library_benchmark(setup = handler)]
#[bench::fresh(1)]
#[bench::reused(10_000)]
fn call(mut handler: Handler) -> Handler {
    call_handler(&mut handler, CALLS);
    handler
}

library_benchmark_group!(
    name = steps,
    benchmarks = [
        claim,
        decode_entry,
        decide_outcome,
        keep_ledger,
        acknowledge,
        settle,
        call
    ]
);

main!(
    config = LibraryBenchmarkConfig::default()
        // The tests find redis-server by it.
        .pass_through_env("PATH")
        .tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = steps
);
