//! What a call costs in this process, without any queue, and what each setting of the engine makes
//! of it. `docs/performance.md` says how to run this, and what came of it.
//!
//! One slot on one thread. Every figure is the time of one message, making its instance included.
//!
//! `HOSTLER_BENCH_HANDLER` names the file of another handler to measure beside ours, and
//! `HOSTLER_BENCH_BODY` a body that it acknowledges.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main};
use hostler::delivery::message::Message;
use hostler::delivery::outcome::Outcome;
use hostler::delivery::trace::Traced;
use hostler::sandbox::{Allocation, Call, Cancelled, LogSink, Sandbox, Settings, Slot, Variation};
use hostler_tests::guests::{batch_handler, guest, handler};
use hostler_tests::rig::message;
use tokio::runtime::Runtime;

/// A name for it, the component, and the body that it gets.
struct Guest {
    name: String,
    component: Vec<u8>,
    body: Bytes,
}

fn of(name: &str, component: Vec<u8>) -> Guest {
    Guest {
        name: name.to_owned(),
        component,
        body: Bytes::from_static(b"x"),
    }
}

fn file(path: impl AsRef<std::path::Path>) -> Vec<u8> {
    std::fs::read(path.as_ref()).expect("the component can be read")
}

/// Handlers that acknowledge, and differ in what an instance of theirs takes.
fn guests() -> Vec<Guest> {
    let image = "x".repeat(4 << 20);
    let mut guests = vec![
        // Rust, with its standard library.
        of("least", file(guest("ack"))),
        // As interpreters are: much memory that is there from the start, little of it changed.
        of(
            "image of 4 MiB",
            handler(
                &format!(
                    r#"(memory $memory 80) (data (memory $memory) (i32.const 65536) "{image}")"#
                ),
                "(i32.store (i32.const 1048576) (i32.const 1)) i32.const 0",
            ),
        ),
        of(
            "writes 1 MiB",
            handler(
                "(memory $memory 32)",
                "(memory.fill (i32.const 65536) (i32.const 1) (i32.const 1048576)) i32.const 0",
            ),
        ),
    ];
    if let Some(path) = std::env::var_os("HOSTLER_BENCH_HANDLER") {
        let body = std::env::var("HOSTLER_BENCH_BODY").unwrap_or_default();
        guests.push(Guest {
            body: body.into(),
            ..of("yours", file(path))
        });
    }
    guests
}

/// As hosts do it, and one thing at a time done otherwise.
fn engines() -> Vec<(&'static str, Settings)> {
    let usual = Settings {
        concurrency: 1,
        ..Settings::default()
    };
    let other = |variation| Settings {
        variation: Some(variation),
        ..usual.clone()
    };
    vec![
        ("as hosts do it", usual.clone()),
        (
            "no pool",
            Settings {
                allocation: Allocation::OnDemand,
                ..usual.clone()
            },
        ),
        ("no PAGEMAP_SCAN", other(Variation::NoPagemapScan)),
        ("nothing resident", other(Variation::NothingResident)),
        ("no copy-on-write", other(Variation::NoCopyOnWrite)),
        ("no epochs", other(Variation::NoEpochs)),
    ]
}

/// Calls of one slot.
struct Calls {
    runtime: Runtime,
    sandbox: Sandbox,
    slot: Slot,
    message: Message,
    /// Messages of a call.
    batch: usize,
    cancelled: Arc<Cancelled>,
}

impl Calls {
    fn new(guest: &Guest, settings: &Settings, batch: usize) -> Self {
        let sandbox = Sandbox::load_bytes(&guest.component, settings).expect("it loads");
        let calls = Self {
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build()
                .expect("a runtime"),
            slot: sandbox.slot(),
            sandbox,
            message: Message {
                body: guest.body.clone(),
                ..message("")
            },
            batch,
            cancelled: Arc::default(),
        };
        let pools = settings.allocation == Allocation::Auto;
        assert_eq!(calls.sandbox.describe().pooling, pools, "{}", guest.name);
        calls
    }

    /// So many calls: what a message takes of each.
    fn time(&mut self, calls: u64) -> Duration {
        // No subscriber: what guests write is limited, counted and dropped.
        let call = Call {
            message: &self.message,
            attempt: 1,
            max_attempts: 0,
            cancelled: &self.cancelled,
            logs: &LogSink::Tracing,
            trace: Traced::default(),
            began: Instant::now(),
        };
        let mut batch = vec![call; self.batch];
        let (sandbox, slot) = (&self.sandbox, &mut self.slot);
        let took = self.runtime.block_on(async {
            let began = Instant::now();
            for _ in 0..calls {
                let now = Instant::now();
                batch.iter_mut().for_each(|call| call.began = now);
                let answer = sandbox.call_batch(slot, &batch).await.answer;
                let is_right = matches!(&answer, Ok(all) if all.len() == batch.len()
                    && all.iter().all(|one| *one == Outcome::Ack));
                assert!(is_right, "not acknowledged: {answer:?}");
            }
            began.elapsed()
        });
        took / u32::try_from(self.batch).expect("a batch is small")
    }
}

fn measure(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, mut calls: Calls) {
    group.bench_function(name, |bencher| bencher.iter_custom(|n| calls.time(n)));
}

fn group<'a>(criterion: &'a mut Criterion, name: &str) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(3));
    group
}

/// A fresh instance for every message.
fn fresh(criterion: &mut Criterion) {
    for guest in guests() {
        let mut group = group(criterion, &format!("fresh instance, {}", guest.name));
        for (name, settings) in engines() {
            measure(&mut group, name, Calls::new(&guest, &settings, 1));
        }
        group.finish();
    }
}

/// One instance for ten thousand messages.
fn reuse(criterion: &mut Criterion) {
    for guest in guests() {
        let mut group = group(criterion, &format!("reused instance, {}", guest.name));
        for (name, settings) in engines() {
            // How memory comes and goes matters only to an instance that is made.
            if settings
                .variation
                .is_none_or(|it| it == Variation::NoEpochs)
            {
                let settings = Settings {
                    reuse: 10_000,
                    ..settings
                };
                measure(&mut group, name, Calls::new(&guest, &settings, 1));
            }
        }
        group.finish();
    }
}

/// A fresh instance for every batch: what each of its messages takes.
fn batch(criterion: &mut Criterion) {
    // The list of outcomes: as many as there are messages, and an `ack` is all zeros.
    let acknowledges = batch_handler(
        "(memory $memory 16)",
        "(i32.store (i32.const 16) (i32.const 524288))
         (i32.store (i32.const 20) (local.get 1))
         i32.const 16",
    );
    let guest = of("batch", acknowledges);
    let mut group = group(criterion, "message of a batch");
    let (_, settings) = engines().swap_remove(0);
    for size in [1, 16, 256] {
        let calls = Calls::new(&guest, &settings, size);
        measure(&mut group, &format!("batches of {size}"), calls);
    }
    group.finish();
}

/// A million turns of a loop: what looking at the epoch in each of them costs.
fn computing(criterion: &mut Criterion) {
    let turns = handler(
        "",
        "(local $left i32) (local $sum i32)
         (local.set $left (i32.const 1000000))
         (loop $again
            (local.set $sum
                (i32.mul (i32.xor (local.get $sum) (local.get $left)) (i32.const 16777619)))
            (br_if $again
                (local.tee $left (i32.sub (local.get $left) (i32.const 1)))))
         (i32.store (i32.const 512) (local.get $sum))
         i32.const 0",
    );
    let guest = of("computes", turns);
    let mut group = group(criterion, "a million turns of a loop");
    for (name, settings) in engines() {
        if settings.allocation == Allocation::Auto
            && settings
                .variation
                .is_none_or(|it| it == Variation::NoEpochs)
        {
            measure(&mut group, name, Calls::new(&guest, &settings, 1));
        }
    }
    group.finish();
}

criterion_group!(benches, fresh, reuse, batch, computing);
criterion_main!(benches);
