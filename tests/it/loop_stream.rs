//! The loop on a stream, with a native handler: what happens to messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hostler::delivery::attempt::Allowance;
use hostler::delivery::backoff::Backoff;
use hostler::delivery::outcome::Outcome;
use hostler::delivery::policy::{OnCap, OnFault, Policy};
use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use hostler::queue::stream::StreamOptions;
use hostler::runtime::{Call, Exit, Handler, Report, Settings, UntilEmpty};
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{PATIENCE, RedisServer};

pub(crate) fn settings(cap: Option<u32>) -> Settings {
    let policy = Policy {
        allowance: Allowance {
            cap,
            ..Allowance::default()
        },
        on_cap: OnCap::DeadLetter,
        on_fault: OnFault::Requeue,
        has_dead_letter: true,
        dead_letters: hostler::delivery::policy::DeadLetterRules::default(),
        backoff: Backoff {
            first: Duration::from_millis(5),
            ..Backoff::default()
        },
    };
    Settings {
        until_empty: Some(UntilEmpty {
            timeout: Some(Duration::from_secs(20)),
        }),
        ..Settings::new(policy)
    }
}

pub(crate) fn options() -> StreamOptions {
    StreamOptions {
        dead_letter: Some(DeadLetterQueue {
            key: "orders:dead".to_owned(),
            max_len: Some(100_000),
            on_full: OnFull::DropOldest,
            routes: hostler::queue::dead_letter_queue::Routes::default(),
        }),
        ..StreamOptions::new("orders", "workers")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_outcome_ends_as_it_should() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    for i in 0..500 {
        let body = match i % 5 {
            0 => "nack,ack",
            1 => "nack:30,nack:0,ack",
            2 => "drop",
            3 => "nack",
            _ => "ack",
        };
        raw.add("orders", body).await;
    }
    let script = Arc::new(Script::default());
    let host = Host::start(&server.url(), options(), settings(Some(3)), &script).await;
    let metrics = Arc::clone(&host.metrics);
    assert_eq!(host.ended().await, Exit::Drained);
    let summary = metrics.summary();
    assert_eq!(summary.acked, 300);
    assert_eq!(summary.dead_lettered["dropped"], 100);
    assert_eq!(summary.dead_lettered["max-deliveries"], 100);
    assert_eq!(script.starts().len(), 100 * (2 + 3 + 1 + 3 + 1));
    assert_eq!(raw.number("XLEN orders:dead").await, 200);
    assert!(raw.pending("orders", "workers").await.is_empty());
}

/// Keeps something from message to message, for a while.
#[derive(Debug, Default)]
struct Keeper {
    rests: AtomicUsize,
}

impl Handler for Keeper {
    type Slot = bool;

    fn slot(&self) -> bool {
        false
    }

    async fn run<'a>(&'a self, slot: &'a mut bool, _: Call<'a>) -> Report {
        *slot = true;
        Report {
            outcome: Outcome::Ack,
            digest: self.digest(),
            log_bytes_dropped: 0,
        }
    }

    fn patience(&self, slot: &bool) -> Option<Duration> {
        slot.then_some(Duration::from_millis(20))
    }

    fn rest(&self, slot: &mut bool) {
        assert!(std::mem::take(slot), "a slot rests once");
        self.rests.fetch_add(1, Ordering::Relaxed);
    }

    fn digest(&self) -> Arc<str> {
        Arc::from("keeper")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_without_messages_rests() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let keeper = Arc::new(Keeper::default());
    let settings = Settings {
        until_empty: None,
        ..settings(None)
    };
    let host = Host::start(&server.url(), options(), settings, &keeper).await;
    for served in 1..=3 {
        raw.add("orders", "ack").await;
        let deadline = Instant::now() + PATIENCE;
        while keeper.rests.load(Ordering::Relaxed) < served {
            assert!(Instant::now() < deadline, "it never rests");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    assert_eq!(host.metrics.summary().acked, 3);
    assert_eq!(host.drain().await, Exit::Drained);
    assert_eq!(keeper.rests.load(Ordering::Relaxed), 3);
}
