//! The version of each attempt, while versions change: the loop runs in this process.

use std::sync::Arc;
use std::time::Duration;

use hostler::rollout::canary::Share;
use hostler::rollout::versions::{Origin, Version, Versions};
use hostler::runtime::sandboxed::Sandboxed;
use hostler::runtime::{Exit, Settings};
use hostler::sandbox::{self, Sandbox};
use hostler_tests::checker::DeadLetter;
use hostler_tests::guests::{guest, variant};
use hostler_tests::inprocess::Host;
use hostler_tests::redis::{RedisServer, eventually};

use crate::scene::{running, stream_options, until_empty};

/// A version of the guest `scripted` that differs from others only in its digest.
fn version(tag: &str, settings: &sandbox::Settings) -> Sandbox {
    let bytes = std::fs::read(guest("scripted")).unwrap();
    Sandbox::load_bytes(&variant(&bytes, tag), settings).unwrap()
}

fn deployed(number: u64, sandbox: &Sandbox) -> Version {
    Version::new(sandbox.clone(), Origin::Deploy(number))
}

fn of(dead: &DeadLetter) -> (&str, &str) {
    let header = |name| dead.header(name).unwrap();
    (
        header("x-dead-letter-detail"),
        header("x-dead-letter-handler"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_ends_on_its_first_version_and_later_attempts_use_the_new_one() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let reusing = sandbox::Settings {
        concurrency: 2,
        reuse: 1_000,
        // One attempt runs during the whole test.
        limits: sandbox::Limits {
            wall: Duration::from_secs(120),
            ..sandbox::Limits::default()
        },
        ..sandbox::Settings::default()
    };
    let (old, new) = (version("old", &reusing), version("new", &reusing));
    let versions = Arc::new(Versions::new(old.clone(), Origin::File));
    let mut rules = until_empty(running(None));
    rules.ledger.concurrency = 2;
    rules.until_empty = None;
    for _ in 0..10 {
        raw.add("orders", "count").await;
    }
    raw.add("orders", "wait-cancelled+drop:in flight").await;
    let handler = Arc::new(Sandboxed::of(Arc::clone(&versions)));
    let host = Host::start(&server.url(), stream_options(), rules, &handler).await;
    let running = host.metrics.clone();
    eventually("all but one are done", || async {
        raw.number("XLEN orders:dead").await == 10
    })
    .await;
    eventually("one runs", || async { running.in_flight.get() == 1 }).await;

    assert!(versions.switch(deployed(1, &new)));
    let is_new = versions.switch(deployed(2, &new));
    assert!(!is_new, "the same version again is not a swap");
    for _ in 0..10 {
        raw.add("orders", "count").await;
    }
    eventually("the new ones are done", || async {
        raw.number("XLEN orders:dead").await == 20
    })
    .await;
    assert!(running.render(&host.health).contains(&**new.digest()));
    let metrics = Arc::clone(&host.metrics);
    assert_eq!(host.drain().await, Exit::Drained);
    assert_eq!(metrics.summary().swaps, 1);

    let dead = DeadLetter::all(&raw, "orders:dead").await;
    assert_eq!(dead.len(), 21);
    let (before, after) = dead.split_at(10);
    assert!(before.iter().all(|dead| of(dead).1 == &**old.digest()));
    let (detail, digest) = of(&after[10]);
    assert_eq!((detail, digest), ("in flight", &**old.digest()));
    let after = &after[..10];
    assert!(after.iter().all(|dead| of(dead).1 == &**new.digest()));
    // At most two slots: each instance of the new version counts from one.
    let counts = after.iter().map(|dead| of(dead).0.parse().unwrap());
    let counts: Vec<u32> = counts.collect();
    let firsts = counts.iter().filter(|count| **count == 1).count();
    assert!((1..=2).contains(&firsts), "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 10), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_gets_its_share_of_messages_and_all_their_retries() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let plain = sandbox::Settings::default();
    let (old, new) = (version("old", &plain), version("new", &plain));
    let versions = Arc::new(Versions::new(old.clone(), Origin::File));
    let share = Share::from_basis_points(3_000).unwrap();
    assert!(versions.try_out(deployed(1, &new), share));
    assert!(!versions.try_out(deployed(2, &new), share));
    let mut ids = Vec::new();
    for _ in 0..300 {
        ids.push(raw.add("orders", "nack").await);
    }
    let handler = Arc::new(Sandboxed::of(Arc::clone(&versions)));
    let rules: Settings = until_empty(running(Some(3)));
    let host = Host::start(&server.url(), stream_options(), rules, &handler).await;
    assert_eq!(host.ended().await, Exit::Drained);
    // The dead letter names the version of the last attempt. The message id decides the version, so
    // the other two attempts had the same one.
    let dead = DeadLetter::all(&raw, "orders:dead").await;
    assert_eq!(dead.len(), 300);
    for dead in &dead {
        let id = dead.header("x-dead-letter-source-id").unwrap();
        let wanted = if share.has(id) { &new } else { &old };
        let handler = dead.header("x-dead-letter-handler");
        assert_eq!(handler, Some(&**wanted.digest()));
    }
    assert!(ids.iter().any(|id| share.has(id)));
    assert!(ids.iter().any(|id| !share.has(id)));
}

#[tokio::test]
async fn outdated_changes_of_the_active_versions_are_ignored() {
    let plain = sandbox::Settings {
        concurrency: 1,
        ..sandbox::Settings::default()
    };
    let [a, b, c] = ["a", "b", "c"].map(|tag| version(tag, &plain));
    let versions = Versions::new(a.clone(), Origin::File);
    let mut changes = versions.changes();
    let current = || versions.digest();
    let has_previous = versions.roll_back(a.digest());
    assert!(!has_previous, "there is no previous version");
    assert!(versions.switch(deployed(1, &b)));
    assert!(!versions.roll_back(a.digest()), "`a` does not run any more");
    assert!(versions.roll_back(b.digest()));
    assert_eq!(current(), *a.digest());
    assert!(versions.roll_back(a.digest()), "back to `b`");
    assert_eq!(current(), *b.digest());

    let is_new = versions.try_out(deployed(1, &b), Share::ALL);
    assert!(!is_new, "`b` runs already");
    assert!(versions.try_out(deployed(2, &c), Share::ALL));
    assert_eq!(versions.pick("1-1").digest(), c.digest());
    assert_eq!(current(), *b.digest());
    assert!(!versions.promote(a.digest()), "`a` is not the canary");
    assert!(!versions.drop_canary(a.digest()));
    assert!(versions.promote(c.digest()));
    assert_eq!(current(), *c.digest());
    assert!(versions.active().canary.is_none());
    let previous = versions.active().previous.clone();
    assert_eq!(previous.unwrap().digest(), b.digest());

    assert!(versions.try_out(deployed(3, &a), Share::ALL));
    let ends_canary = versions.switch(deployed(4, &c));
    assert!(ends_canary, "the switch ends the canary `a`");
    assert!(versions.active().canary.is_none());
    assert_eq!(versions.active().swaps, 4);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert!(!versions.switch(deployed(4, &c)));
    assert!(!changes.has_changed().unwrap());
}
