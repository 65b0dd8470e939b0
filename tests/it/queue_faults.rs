//! Every script with its faults: wrong type, not owner, twice in a row, out of memory, no right,
//! trimmed entry, count mismatch, forgotten scripts, group or stream gone.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use hostler::queue::stream::{PARKED_CONSUMER, StreamOptions, StreamQueue};
use hostler::queue::{Backlog, Claim, Class, Error, Queue, Record, Reply, Settlement, Step};
use hostler_tests::redis::RedisOptions;

use crate::queue_scene::{
    DEAD, GROUP, KEY, PARKED, Scene, connector, dead_letter, holds_nothing, is_refused, options,
    orphans, park, settle, text,
};

fn every_step() -> [Step; 4] {
    [
        park(1, Duration::ZERO),
        Step::Leave { keep: 1 },
        dead_letter(),
        Step::Discard,
    ]
}

fn record(claim: &Arc<Claim>, expect: u32, write: u32) -> Record {
    Record {
        claim: Arc::clone(claim),
        expect,
        write,
    }
}

#[tokio::test]
async fn no_settlement_of_what_somebody_else_owns() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a"]).await;
    scene.give(two.consumer(), claims[0].id, 1, 0).await;
    for step in every_step() {
        assert_eq!(
            settle(&one, &claims[0], 1, step.clone()).await,
            Reply::Stolen,
            "{step:?}"
        );
    }
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((two.consumer().to_owned(), 1))
    );
    assert_eq!(
        scene.raw.number(&format!("EXISTS {DEAD} {PARKED}")).await,
        0
    );
}

#[tokio::test]
async fn no_settlement_with_another_count() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.give(host.consumer(), claims[0].id, 2, 0).await;
    for step in every_step() {
        assert_eq!(
            settle(&host, &claims[0], 3, step.clone()).await,
            Reply::Stolen,
            "{step:?}"
        );
    }
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((host.consumer().to_owned(), 2))
    );
    assert_eq!(
        scene.raw.number(&format!("EXISTS {DEAD} {PARKED}")).await,
        0
    );
}

#[tokio::test]
async fn nothing_happens_to_what_is_settled() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    assert_eq!(
        settle(&host, &claims[0], 1, Step::Discard).await,
        Reply::Done
    );
    for step in every_step() {
        assert_eq!(
            settle(&host, &claims[0], 1, step.clone()).await,
            Reply::Gone,
            "{step:?}"
        );
    }
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Gone]);
    assert_eq!(
        host.record(&[record(&claims[0], 1, 2)]).await.unwrap(),
        [Reply::Gone]
    );
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
    assert_eq!(
        scene.raw.number(&format!("EXISTS {DEAD} {PARKED}")).await,
        0
    );
}

#[tokio::test]
async fn trimmed_while_pending_is_said_by_everything() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let dead = scene.host().await;
    let claims = scene
        .read(&host, &["renew", "record", "park", "leave"])
        .await;
    let theirs = scene.read(&dead, &["orphan"]).await;
    let lost = scene.read(&host, &["lost on its way", "parked"]).await;
    settle(&host, &lost[1], 1, park(1, Duration::from_secs(60))).await;
    scene.raw.ask(&format!("DEL {PARKED}")).await;
    scene.age(&dead, theirs[0].id, 1).await;
    scene.age(&host, lost[0].id, 1).await;
    scene.raw.ask("XTRIM orders MAXLEN 0").await;

    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Trimmed]);
    assert_eq!(
        host.record(&[record(&claims[1], 1, 2)]).await.unwrap(),
        [Reply::Trimmed]
    );
    assert_eq!(
        settle(&host, &claims[2], 1, park(1, Duration::ZERO)).await,
        Reply::Trimmed
    );
    assert_eq!(
        settle(&host, &claims[3], 1, Step::Leave { keep: 1 }).await,
        Reply::Trimmed
    );
    let held = [claims[0].id, claims[1].id, claims[2].id, claims[3].id];
    let taken = host.take_orphans(9, &|id| held.contains(id)).await.unwrap();
    assert_eq!((taken.claims.len(), taken.trimmed), (0, 3));
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
    assert_eq!(scene.raw.number(&format!("EXISTS {PARKED}")).await, 0);
    // Said once: now they are gone.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Gone]);
}

#[tokio::test]
async fn a_trimmed_entry_is_still_dead_lettered_from_what_the_host_holds() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.ask("XTRIM orders MAXLEN 0").await;
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Done
    );
    assert_eq!(scene.raw.entries(DEAD).await.len(), 1);
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
}

#[tokio::test]
async fn keys_of_the_wrong_type_leave_the_delivery_as_it_was() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.ask(&format!("SET {DEAD} x")).await;
    scene.raw.ask(&format!("SET {PARKED} x")).await;
    for step in [dead_letter(), park(1, Duration::ZERO)] {
        let reply = settle(&host, &claims[0], 1, step).await;
        let Reply::Refused(why) = reply else {
            panic!("{reply:?}")
        };
        assert!(why.contains("WRONGTYPE"), "{why}");
        assert_eq!(
            scene.held(claims[0].id).await,
            Some((host.consumer().to_owned(), 1))
        );
    }
    let error = host.take_due(9).await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration, "{error}");
    // Parked already, and its record is of the wrong type: it stays parked.
    scene.give(PARKED_CONSUMER, claims[0].id, 1, 0).await;
    assert!(host.take_orphans(9, &holds_nothing).await.is_err());
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((PARKED_CONSUMER.to_owned(), 1))
    );
    scene.raw.ask(&format!("DEL {PARKED} {DEAD}")).await;
    assert_eq!(orphans(&host, 9).await.claims.len(), 1);
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Done
    );
}

#[tokio::test]
async fn a_stream_that_became_something_else_is_a_configuration_error() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.ask("SET orders x").await;
    let class = |error: Error| {
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        error.class()
    };
    let expected = Class::Configuration;
    assert_eq!(
        class(host.fetch(1, Duration::ZERO).await.unwrap_err()),
        expected
    );
    assert_eq!(
        class(host.acknowledge(&claims).await.unwrap_err()),
        expected
    );
    assert_eq!(class(host.renew(&claims).await.unwrap_err()), expected);
    assert_eq!(
        class(host.record(&[record(&claims[0], 1, 2)]).await.unwrap_err()),
        expected
    );
    assert_eq!(
        class(host.take_orphans(1, &holds_nothing).await.unwrap_err()),
        expected
    );
    assert_eq!(class(host.backlog().await.unwrap_err()), expected);
    assert_eq!(class(host.maintain().await.unwrap_err()), expected);
    assert_eq!(class(host.leave().await.unwrap_err()), expected);
    assert_eq!(class(host.repair(&[]).await.unwrap_err()), expected);
    for step in every_step() {
        assert!(is_refused(&settle(&host, &claims[0], 1, step).await));
    }
}

#[tokio::test]
async fn out_of_memory_leaves_the_delivery_pending_and_acks_pass() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b", "c", "d"]).await;
    scene.raw.ask("CONFIG SET maxmemory 1").await;
    for step in [dead_letter(), park(1, Duration::ZERO)] {
        let reply = settle(&host, &claims[0], 1, step).await;
        let Reply::Refused(why) = reply else {
            panic!("{reply:?}")
        };
        assert!(why.contains("OOM"), "{why}");
        assert_eq!(
            scene.held(claims[0].id).await,
            Some((host.consumer().to_owned(), 1))
        );
    }
    assert_eq!(
        scene.raw.number(&format!("EXISTS {DEAD} {PARKED}")).await,
        0
    );
    // What needs no memory goes on.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    assert_eq!(
        host.record(&[record(&claims[0], 1, 2)]).await.unwrap(),
        [Reply::Done]
    );
    assert_eq!(
        settle(&host, &claims[1], 1, Step::Discard).await,
        Reply::Done
    );
    assert_eq!(
        settle(&host, &claims[2], 1, Step::Leave { keep: 1 }).await,
        Reply::Done
    );
    host.acknowledge(&claims[3..]).await.unwrap();
    host.maintain().await.unwrap();
    scene.raw.ask("CONFIG SET maxmemory 0").await;
    assert_eq!(
        settle(&host, &claims[0], 2, dead_letter()).await,
        Reply::Done
    );
}

#[tokio::test]
async fn a_batch_that_memory_cuts_short_is_all_or_nothing_for_each() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b", "c"]).await;
    scene.raw.ask("CONFIG SET maxmemory 1").await;
    let settlements: Vec<Settlement> = [dead_letter(), park(1, Duration::ZERO), Step::Discard]
        .into_iter()
        .zip(&claims)
        .map(|(step, claim)| Settlement {
            claim: Arc::clone(claim),
            count: 1,
            step,
        })
        .collect();
    let replies = host.settle(&settlements).await.unwrap();
    assert!(
        is_refused(&replies[0]) && is_refused(&replies[1]),
        "{replies:?}"
    );
    assert_eq!(replies[2], Reply::Done);
    scene.raw.ask("CONFIG SET maxmemory 0").await;
    let replies = host.settle(&settlements).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Done, Reply::Gone]);
}

#[tokio::test]
async fn without_a_right_the_delivery_is_as_it_was() {
    let scene =
        Scene::with(RedisOptions::default().user("bob on >secret ~orders ~{orders}* +@all")).await;
    let url = format!("{}?user=bob&pass=secret", scene.server.url());
    let host = StreamQueue::open(connector(&url), options()).await.unwrap();
    let claims = scene.read(&host, &["a"]).await;
    // No right on the dead-letter key.
    let reply = settle(&host, &claims[0], 1, dead_letter()).await;
    assert!(is_refused(&reply), "{reply:?}");
    // No right to a command inside the scripts.
    scene.raw.ask("ACL SETUSER bob ~* -xadd -zadd").await;
    for step in [dead_letter(), park(1, Duration::ZERO)] {
        let reply = settle(&host, &claims[0], 1, step).await;
        assert!(is_refused(&reply), "{reply:?}");
    }
    // No right to take it off: no copy either, or every try would leave one.
    scene.raw.ask("ACL SETUSER bob +xadd +zadd -xack").await;
    let reply = settle(&host, &claims[0], 1, dead_letter()).await;
    assert!(is_refused(&reply), "{reply:?}");
    assert_eq!(scene.raw.number(&format!("EXISTS {DEAD}")).await, 0);
    scene.raw.ask("ACL SETUSER bob +xack -xclaim").await;
    let reply = settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await;
    assert!(is_refused(&reply), "{reply:?}");
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((host.consumer().to_owned(), 1))
    );
    let error = host.renew(&claims).await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration, "{error}");
    scene.raw.ask("ACL SETUSER bob +xclaim").await;
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Done
    );
}

#[tokio::test]
async fn a_full_dead_letter_queue_stops_or_drops_the_oldest() {
    let scene = Scene::new().await;
    let bounded = |on_full| StreamOptions {
        dead_letter: Some(DeadLetterQueue {
            key: DEAD.to_owned(),
            max_len: Some(100),
            on_full,
            routes: hostler::queue::dead_letter_queue::Routes::default(),
        }),
        ..options()
    };
    let stop = scene.host_with(bounded(OnFull::Stop)).await;
    let claims = scene.read(&stop, &vec!["x"; 301]).await;
    let settlements: Vec<Settlement> = claims
        .iter()
        .map(|claim| Settlement {
            claim: Arc::clone(claim),
            count: 1,
            step: dead_letter(),
        })
        .collect();
    let replies = stop.settle(&settlements).await.unwrap();
    assert!(replies[..100].iter().all(|r| *r == Reply::Done));
    assert!(replies[100..].iter().all(is_refused));
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 100);
    assert_eq!(stop.backlog().await.unwrap().pending, 201);

    let drop = scene.host_with(bounded(OnFull::DropOldest)).await;
    for claim in &claims[100..] {
        scene.give(drop.consumer(), claim.id, 1, 0).await;
    }
    let replies = drop.settle(&settlements[100..]).await.unwrap();
    assert!(replies.iter().all(|r| *r == Reply::Done));
    let left = scene.raw.number(&format!("XLEN {DEAD}")).await;
    assert!((100..301).contains(&left), "{left}");
    let maintenance = drop.maintain().await.unwrap();
    assert_eq!(
        i64::try_from(maintenance.dead_letters_dropped).unwrap(),
        301 - left
    );
    assert_eq!(drop.maintain().await.unwrap().dead_letters_dropped, 0);
    assert_eq!(drop.backlog().await.unwrap(), Backlog::default());
}

#[tokio::test]
async fn without_a_dead_letter_key_nothing_is_dead_lettered() {
    let scene = Scene::new().await;
    let host = scene
        .host_with(StreamOptions {
            dead_letter: None,
            ..options()
        })
        .await;
    let claims = scene.read(&host, &["a"]).await;
    assert!(is_refused(
        &settle(&host, &claims[0], 1, dead_letter()).await
    ));
    assert!(scene.held(claims[0].id).await.is_some());
}

#[tokio::test]
async fn forgotten_scripts_are_loaded_again() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &vec!["x"; 250]).await;
    for _ in 0..2 {
        scene.raw.ask("SCRIPT FLUSH").await;
        let replies = host.renew(&claims).await.unwrap();
        assert!(replies.iter().all(|reply| *reply == Reply::Done));
        scene.raw.ask("SCRIPT FLUSH").await;
        assert!(host.take_due(9).await.unwrap().claims.is_empty());
    }
    scene.raw.ask("SCRIPT FLUSH").await;
    let settlements: Vec<Settlement> = claims
        .iter()
        .map(|claim| Settlement {
            claim: Arc::clone(claim),
            count: 1,
            step: dead_letter(),
        })
        .collect();
    let replies = host.settle(&settlements).await.unwrap();
    assert!(replies.iter().all(|reply| *reply == Reply::Done));
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 250);
}

#[tokio::test]
async fn a_missing_group_or_stream_is_said_by_everything() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    for command in [
        format!("XGROUP DESTROY {KEY} {GROUP}"),
        format!("DEL {KEY}"),
    ] {
        scene.raw.ask(&command).await;
        let missing = |error: Error| {
            assert_eq!(error.class(), Class::Missing, "{command}: {error:?}");
        };
        missing(host.fetch(1, Duration::ZERO).await.unwrap_err());
        missing(host.renew(&claims).await.unwrap_err());
        missing(host.record(&[record(&claims[0], 1, 2)]).await.unwrap_err());
        missing(host.take_orphans(1, &holds_nothing).await.unwrap_err());
        missing(host.backlog().await.unwrap_err());
        missing(host.maintain().await.unwrap_err());
        missing(host.leave().await.unwrap_err());
        for step in every_step() {
            let settlement = Settlement {
                claim: Arc::clone(&claims[0]),
                count: 1,
                step,
            };
            missing(host.settle(&[settlement]).await.unwrap_err());
        }
        host.acknowledge(&claims).await.unwrap();
    }
    assert_eq!(
        scene
            .raw
            .number(&format!("EXISTS {DEAD} {PARKED} {KEY}"))
            .await,
        0
    );
}

#[tokio::test]
async fn a_due_delivery_waits_for_its_group() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await;
    scene
        .raw
        .ask(&format!("XGROUP DESTROY {KEY} {GROUP}"))
        .await;
    let error = host.take_due(9).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let id = text(claims[0].id);
    assert_ne!(
        scene.raw.ask(&format!("ZSCORE {PARKED} {id}")).await,
        redis::Value::Nil
    );
}
