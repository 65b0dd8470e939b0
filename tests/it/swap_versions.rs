//! Which version an attempt gets: the loop in this process, and versions that change under it.

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

/// A version of the guest `scripted` that differs from others by its digest alone.
fn version(tag: &str, settings: &sandbox::Settings) -> Sandbox {
    let bytes = std::fs::read(guest("scripted")).unwrap();
    Sandbox::load_bytes(&variant(&bytes, tag), settings).unwrap()
}

fn deployed(number: u64, sandbox: &Sandbox) -> Version {
    Version {
        sandbox: sandbox.clone(),
        origin: Origin::Deploy(number),
    }
}

fn of(dead: &DeadLetter) -> (&str, &str) {
    let header = |name| dead.header(name).unwrap();
    (
        header("x-dead-letter-detail"),
        header("x-dead-letter-handler"),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn an_attempt_ends_on_the_version_it_began_with_and_the_next_ones_get_the_new_one() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let reusing = sandbox::Settings {
        concurrency: 2,
        reuse: 1_000,
        // One attempt lasts as long as the test takes.
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
    eventually("it runs", || async { running.in_flight.get() == 1 }).await;

    assert!(versions.switch(deployed(1, &new)));
    assert!(
        !versions.switch(deployed(2, &new)),
        "the same again is no swap"
    );
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
    // Two slots at most: each instance of the new version has counted from one.
    let counts: Vec<u32> = after
        .iter()
        .map(|dead| of(dead).0.parse().unwrap())
        .collect();
    let firsts = counts.iter().filter(|count| **count == 1).count();
    assert!((1..=2).contains(&firsts), "{counts:?}");
    assert!(counts.iter().all(|count| *count <= 10), "{counts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canary_gets_its_share_and_every_retry_of_it() {
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
    // What the dead letter names is the version of the last attempt; that the other two were of
    // the same one follows from how it is picked.
    let dead = DeadLetter::all(&raw, "orders:dead").await;
    assert_eq!(dead.len(), 300);
    for dead in &dead {
        let id = dead.header("x-dead-letter-source-id").unwrap();
        let wanted = if share.has(id) { &new } else { &old };
        assert_eq!(
            dead.header("x-dead-letter-handler"),
            Some(&**wanted.digest())
        );
    }
    assert!(ids.iter().any(|id| share.has(id)));
    assert!(ids.iter().any(|id| !share.has(id)));
}

#[tokio::test]
async fn a_lineup_changes_only_as_it_was_meant() {
    let plain = sandbox::Settings {
        concurrency: 1,
        ..sandbox::Settings::default()
    };
    let (a, b, c) = (
        version("a", &plain),
        version("b", &plain),
        version("c", &plain),
    );
    let versions = Versions::new(a.clone(), Origin::File);
    let mut changes = versions.changes();
    let current = || versions.digest();
    assert!(
        !versions.roll_back(a.digest()),
        "there is nothing to go back to"
    );
    assert!(versions.switch(deployed(1, &b)));
    assert!(
        !versions.roll_back(a.digest()),
        "that is not what runs any more"
    );
    assert!(versions.roll_back(b.digest()));
    assert_eq!(current(), *a.digest());
    assert!(versions.roll_back(a.digest()), "a way back and forth");
    assert_eq!(current(), *b.digest());

    assert!(
        !versions.try_out(deployed(1, &b), Share::ALL),
        "it runs already"
    );
    assert!(versions.try_out(deployed(2, &c), Share::ALL));
    assert_eq!(versions.pick("1-1").digest(), c.digest());
    assert_eq!(current(), *b.digest());
    assert!(!versions.promote(a.digest()), "that is not the canary");
    assert!(!versions.drop_canary(a.digest()));
    assert!(versions.promote(c.digest()));
    assert_eq!(current(), *c.digest());
    assert!(versions.lineup().canary.is_none());
    assert_eq!(
        versions.lineup().previous.as_ref().unwrap().digest(),
        b.digest()
    );

    assert!(versions.try_out(deployed(3, &a), Share::ALL));
    assert!(
        versions.switch(deployed(4, &c)),
        "the trial of the other one is over"
    );
    assert!(versions.lineup().canary.is_none());
    assert_eq!(versions.lineup().swaps, 4);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert!(!versions.switch(deployed(4, &c)));
    assert!(!changes.has_changed().unwrap());
}
