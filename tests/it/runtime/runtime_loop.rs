//! The loop with a native handler, on streams and on reliable lists: the fate of each message.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;
use hostler::delivery::outcome::Outcome;
use hostler::queue::kind::QueueOptions;
use hostler::queue::list::ListOptions;
use hostler::queue::stream::StreamOptions;
use hostler::runtime::{Batching, Call, Exit, Handler, Report, Settings};
use hostler::telemetry::metrics::Metrics;
use hostler::wire::list::Framing;
use hostler_tests::inprocess::Host;
use hostler_tests::redis::eventually;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::queue::list_scene;
use crate::scene::{running, stream_options, until_empty};

on_both! {
    each_outcome_has_its_end
    a_message_that_dies_with_its_host_starts_at_most_max_deliveries_times
    neighbours_of_a_message_that_kills_its_host_are_not_dead_lettered
    a_handler_that_runs_longer_than_a_lease_keeps_its_message
}

/// Short, so that tests of dead hosts end soon. Live hosts renew three times in it.
pub(crate) const MIN_IDLE: Duration = Duration::from_millis(1_500);

/// A host that soon finds orphans.
pub(crate) fn quick(cap: Option<u32>) -> Settings {
    let mut settings = running(cap);
    settings.ledger.min_idle = MIN_IDLE;
    settings.ledger.orphan_scan = Duration::from_millis(50);
    settings
}

/// Each way to serve a queue of this kind, with this length of a lease.
fn ways(kind: Kind, min_idle: Duration) -> Vec<QueueOptions> {
    let list = |options| ListOptions {
        min_idle,
        ..options
    };
    let raw = ListOptions {
        framing: Framing::Raw,
        ..list_scene::options()
    };
    match kind {
        Kind::Stream => vec![QueueOptions::Stream(StreamOptions {
            min_idle,
            ..stream_options()
        })],
        Kind::List => [list_scene::options(), list_scene::recovering(), raw]
            .map(|options| QueueOptions::List(list(options)))
            .into(),
    }
}

impl Scene {
    /// Start a host in this process.
    async fn run(&self, options: &QueueOptions, settings: Settings) -> Host {
        let queue = options.clone().open(self.connector()).await.unwrap();
        Host::on(queue, settings, &self.script)
    }

    /// Start a host and wait until it ends because the queue is empty.
    async fn finish(&self, options: &QueueOptions, settings: Settings) -> Arc<Metrics> {
        let host = self.run(options, until_empty(settings)).await;
        let metrics = Arc::clone(&host.metrics);
        assert_eq!(host.ended().await, Exit::Drained);
        metrics
    }

    async fn has_started(&self, times: usize) {
        eventually(&format!("{times} starts"), async || {
            self.script.starts().len() == times
        })
        .await;
    }
}

async fn each_outcome_has_its_end(kind: Kind) {
    for options in ways(kind, Duration::from_secs(30)) {
        let scene = Scene::new(kind).await;
        for _ in 0..100 {
            for body in ["nack,ack", "nack:30,nack:0,ack", "drop", "nack", "ack"] {
                scene.send(body).await;
            }
        }
        let summary = scene.finish(&options, running(Some(3))).await.summary();
        assert_eq!(summary.acked, 300);
        assert_eq!(summary.dead_lettered["dropped"], 100);
        assert_eq!(summary.dead_lettered["max-deliveries"], 100);
        assert_eq!(scene.script.starts().len(), 100 * (2 + 3 + 1 + 3 + 1));
        // Nothing is left but the dead letters, and the log of a stream.
        match kind {
            Kind::Stream => assert!(scene.raw.pending("orders", "workers").await.is_empty()),
            Kind::List => assert_eq!(scene.keys().await, 1),
        }
        let dead = scene.dead().await;
        assert_eq!(dead.len(), 200);
        for dead in dead {
            let expected = match &*dead.body {
                "drop" => ("dropped", "1"),
                _ => ("max-deliveries", "3"),
            };
            assert_eq!((dead.reason(), dead.attempts()), expected);
        }
    }
}

async fn a_message_that_dies_with_its_host_starts_at_most_max_deliveries_times(kind: Kind) {
    let options = ways(kind, MIN_IDLE);
    let caps = options
        .iter()
        .flat_map(|way| [1, 2, 3].map(|cap| (way, cap)));
    // At the same time: each waits for leases that end.
    join_all(caps.map(|(way, cap)| dies_with_its_hosts(kind, way, cap))).await;
}

async fn dies_with_its_hosts(kind: Kind, options: &QueueOptions, cap: u32) {
    let scene = Scene::new(kind).await;
    scene.send("sleep:100000").await;
    for starts in 1..=cap as usize {
        let host = scene.run(options, quick(Some(cap))).await;
        scene.has_started(starts).await;
        host.crash();
    }
    let metrics = scene.finish(options, quick(Some(cap))).await;
    let starts = scene.script.starts();
    let attempts = starts.iter().map(|(_, attempt)| *attempt);
    assert!(attempts.eq(1..=cap), "{starts:?}");
    assert_eq!(metrics.summary().dead_lettered["max-deliveries"], 1);
    let dead = scene.only_dead().await;
    assert_eq!(dead.body, "sleep:100000");
    assert_eq!(dead.attempts(), cap.to_string());
    assert_eq!(dead.header("x-hostler-crashes"), "");
}

async fn neighbours_of_a_message_that_kills_its_host_are_not_dead_lettered(kind: Kind) {
    let scene = Scene::new(kind).await;
    let options = &ways(kind, MIN_IDLE)[usize::from(kind == Kind::List)];
    let start = async || scene.run(options, quick(Some(3))).await;
    scene.send("sleep:100000").await;
    for _ in 0..5 {
        scene.send("sleep:100000,ack").await;
    }
    // All six start, and die with their host.
    let host = start().await;
    scene.has_started(6).await;
    host.crash();
    // The killer starts again. The others have one charge, and acknowledge beside it.
    let host = start().await;
    scene.has_started(12).await;
    eventually("the others are acknowledged", async || {
        host.metrics.summary().acked == 5
    })
    .await;
    host.crash();
    let host = start().await;
    scene.has_started(13).await;
    assert_eq!(host.metrics.isolated_runs.get(), 1, "it runs by itself");
    host.crash();
    scene.finish(options, quick(Some(3))).await;
    assert_eq!(scene.script.starts().len(), 13);
    assert_eq!(scene.only_dead().await.body, "sleep:100000");
}

async fn a_handler_that_runs_longer_than_a_lease_keeps_its_message(kind: Kind) {
    let options = ways(kind, MIN_IDLE);
    join_all(options.iter().map(|way| keeps_its_message(kind, way))).await;
}

async fn keeps_its_message(kind: Kind, options: &QueueOptions) {
    let scene = Scene::new(kind).await;
    for _ in 0..2 {
        scene.send("sleep:6000").await;
    }
    let all = || scene.finish(options, quick(Some(3)));
    let (one, two) = tokio::join!(all(), all());
    assert_eq!(one.summary().acked + two.summary().acked, 2);
    assert_eq!(scene.script.starts().len(), 2);
    assert_eq!(scene.length(scene.dead_key()).await, 0);
    if kind == Kind::List {
        assert_eq!(scene.keys().await, 0);
    }
}

/// A handler whose slot keeps something from message to message, until it idles.
#[derive(Debug, Default)]
struct Keeper {
    idled: AtomicUsize,
}

impl Handler for Keeper {
    type Slot = bool;

    fn slot(&self) -> bool {
        false
    }

    async fn run<'a>(&'a self, slot: &'a mut bool, call: Call<'a>) -> Report {
        *slot = true;
        Report::new(Outcome::Ack, self.digest(), call.began.elapsed())
    }

    fn idle_timeout(&self, slot: &bool) -> Option<Duration> {
        slot.then_some(Duration::from_millis(20))
    }

    fn on_idle(&self, slot: &mut bool) {
        assert!(std::mem::take(slot), "a slot idles once");
        self.idled.fetch_add(1, Ordering::Relaxed);
    }

    fn digest(&self) -> Arc<str> {
        Arc::from("keeper")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_without_messages_idles_once() {
    let scene = Scene::new(Kind::Stream).await;
    let keeper = Arc::new(Keeper::default());
    let idled = || keeper.idled.load(Ordering::Relaxed);
    let host = Host::start(&scene.url(), stream_options(), running(None), &keeper).await;
    for served in 1..=3 {
        scene.send("ack").await;
        eventually("the slot idles", async || idled() >= served).await;
    }
    assert_eq!(host.metrics.summary().acked, 3);
    assert_eq!(host.drain().await, Exit::Drained);
    assert_eq!(idled(), 3);
}

/// A handler that notes on which threads it runs: at the begin and at the end of a call, and when its slot idles.
#[derive(Debug, Default)]
struct Whereabouts {
    threads: Mutex<Vec<Option<String>>>,
    batching: Option<Batching>,
}

const SLOTS: &str = "slots";

impl Whereabouts {
    fn note(&self) {
        let name = std::thread::current().name().map(str::to_owned);
        self.threads.lock().unwrap().push(name);
    }
}

impl Handler for Whereabouts {
    type Slot = ();

    fn slot(&self) {}

    async fn run<'a>(&'a self, _slot: &'a mut (), call: Call<'a>) -> Report {
        self.note();
        if &*call.message.body == b"slow" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        self.note();
        Report::new(Outcome::Ack, self.digest(), call.began.elapsed())
    }

    fn batching(&self) -> Option<Batching> {
        self.batching
    }

    fn idle_timeout(&self, _slot: &()) -> Option<Duration> {
        Some(Duration::from_millis(1))
    }

    fn on_idle(&self, _slot: &mut ()) {
        self.note();
    }

    fn digest(&self) -> Arc<str> {
        Arc::from("whereabouts")
    }
}

#[tokio::test]
async fn no_handler_runs_on_the_thread_of_the_loop() {
    let slots = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name(SLOTS)
        .enable_all()
        .build()
        .unwrap();
    let batching = Batching {
        size: 2,
        wait: Duration::from_millis(1),
        bytes: 1000,
    };
    for batching in [None, Some(batching)] {
        let scene = Scene::new(Kind::Stream).await;
        let options = QueueOptions::Stream(stream_options());
        let queue = options.open(scene.connector()).await.unwrap();
        let handler = Arc::new(Whereabouts {
            batching,
            ..Whereabouts::default()
        });
        let host = Host::with_slots(queue, running(None), &handler, slots.handle());
        let mut sent = 0;
        // Alone, and several at a time.
        for count in [1, 1, 1, 8] {
            for body in ["brief", "slow"].iter().cycle().skip(sent).take(count) {
                scene.send(body).await;
                sent += 1;
            }
            eventually("the messages are acknowledged", async || {
                host.metrics.summary().acked == sent as u64
            })
            .await;
        }
        assert_eq!(host.drain().await, Exit::Drained);
        let threads = handler.threads.lock().unwrap();
        assert!(threads.len() > 2 * sent, "each call, and idle slots");
        let elsewhere = threads.iter().find(|name| name.as_deref() != Some(SLOTS));
        assert_eq!(elsewhere, None);
    }
    slots.shutdown_background();
}
