//! The reliable list: requeues, delays, dead letters and discards.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::{DeliveryId, Headers};
use hostler::delivery::policy::DELAY_MAX;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::{Backlog, Claim, Origin, Queue, Reply, SettleAction, Sweep};
use hostler::wire::frame;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::queue::list_scene::{
    DEAD, DELAYED, KEY, Scene, both, framed, options, processing, token,
};
use crate::scene::{
    cluster, connector, dead_letter, discard, fetch, is_refused, orphaned, park, recorded, refused,
    requeue, settle, settled,
};

#[tokio::test]
async fn a_requeue_carries_the_count_and_a_hand_back_changes_nothing() {
    for options in both() {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["a", "b", "c"]).await;
        scene.publish(["waiting"]).await;

        // "a" has run once, and goes behind the waiting one; "b" has never started, and goes
        // before it.
        settled(&host, &claims[0], 1, requeue(1)).await;
        settled(&host, &claims[1], 1, requeue(0)).await;
        settled(&host, &claims[2], 1, SettleAction::Leave { keep: 0 }).await;
        let list = scene.list(KEY).await;
        assert_eq!(list[1..], [&b"waiting"[..], b"b", b"c"]);
        let (headers, payload) = framed(&list[0]);
        assert_eq!(payload, "a");
        assert_eq!(headers.find_str("x-retry-count"), Some("1"));
        assert_eq!(headers.find_str("x-ruststream-retry-count"), Some("1"));
        assert_eq!(headers.find_str("x-message-id"), Some(&*token(&claims[0])));
        assert!(scene.processing(&host).await.is_empty());
        assert_eq!(scene.recorded_claims().await, 0);
        // Asked again after a lost reply: no second copy.
        assert_eq!(settle(&host, &claims[0], 1, requeue(1)).await, Reply::Gone);
        assert_eq!(scene.list(KEY).await.len(), 4);

        let again = fetch(&host, 9).await;
        let last = again.last().unwrap();
        let (origin, counts) = (last.origin, (last.header, last.native));
        assert_eq!((origin, counts), (Origin::Returned, (1, 0)));
        assert_eq!(last.message.id, claims[0].message.id);
    }
}

#[tokio::test]
async fn equal_payloads_are_parked_separately_and_come_back_when_due() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let other = scene.recovering().await;
    let claims = scene.claim(&host, &["same", "same", "later"]).await;
    for claim in &claims[..2] {
        settled(&host, claim, 1, park(1, Duration::from_millis(1))).await;
    }
    let hour = Duration::from_secs(3600);
    // Asked again after a lost reply.
    for _ in 0..2 {
        settled(&host, &claims[2], 1, park(1, hour)).await;
    }
    assert_eq!(scene.raw.number(&format!("ZCARD {DELAYED}")).await, 3);
    let backlog = Backlog {
        unread: false,
        pending: 3,
        outbox: 0,
    };
    assert_eq!(host.backlog().await.unwrap(), backlog);

    let mut due: Vec<Claim> = Vec::new();
    eventually("both are due", async || {
        let taken = other.take_due(1).await.unwrap();
        due.extend(taken.claims);
        due.len() == 2
    })
    .await;
    let ids: HashSet<_> = due.iter().map(|c| c.message.id.to_string()).collect();
    assert_eq!(ids, claims[..2].iter().map(|c| token(c)).collect());
    let is_same = |c: &Claim| c.header == 1 && c.message.body == "same";
    assert!(due.iter().all(is_same));
    let taken = other.take_due(9).await.unwrap();
    assert!(taken.claims.is_empty());
    let next = taken.next_due.unwrap();
    let early = hour - Duration::from_secs(60);
    assert!(next > early && next <= hour, "{next:?}");
    assert_eq!(scene.processing(&other).await.len(), 2);
    assert_eq!(scene.recorded_claims().await, 2);
}

/// No host cuts it, nor does a sorted set lose a part of its time.
#[tokio::test]
async fn a_delay_of_30_days_is_kept_to_the_millisecond() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let claims = scene.claim(&host, &["later"]).await;
    let month = DELAY_MAX;
    let at = async || scene.now_ms().await + i64::try_from(month.as_millis()).unwrap();
    let before = at().await;
    settled(&host, &claims[0], 1, park(1, month)).await;
    let after = at().await;
    let due = format!("ZRANGE {DELAYED} 0 0 WITHSCORES");
    let due: (Vec<u8>, i64) = redis::from_redis_value(scene.raw.ask(&due).await).unwrap();
    assert!(
        (before..=after).contains(&due.1),
        "{} {before} {after}",
        due.1
    );
    let next = host.take_due(9).await.unwrap().next_due.unwrap();
    assert!(
        next <= month && next > month - Duration::from_secs(60),
        "{next:?}"
    );
}

#[tokio::test]
async fn the_mark_of_a_start_goes_when_the_delivery_is_settled() {
    for options in both() {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["a", "b", "c", "d"]).await;
        for claim in &claims {
            // Asked again after a lost reply.
            for _ in 0..2 {
                assert_eq!(recorded(&host, claim, 1, 2).await, Reply::Done);
            }
            assert_eq!(scene.mark(&host, claim).await.as_deref(), Some("2"));
        }
        // A lease is confirmed without a mark.
        assert_eq!(recorded(&host, &claims[0], 2, 2).await, Reply::Done);
        let steps = [requeue(2), discard(), dead_letter()];
        for (claim, step) in claims.iter().zip(steps) {
            settled(&host, claim, 2, step).await;
        }
        host.acknowledge(&claims[3..]).await.unwrap();
        let started = format!("{{jobs}}:started:{}", host.instance());
        assert!(!scene.exists(&started).await);
    }
}

#[tokio::test]
async fn a_dead_letter_has_the_whole_message_and_the_reason() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let headers = Headers::new(vec![
        ("X-Tenant".into(), b"\xff7"[..].into()),
        ("x-retry-count".into(), "2".into()),
    ]);
    let original = frame::encode(&headers, b"a body\0\xff").unwrap();
    scene.publish([&original[..], b"plain"]).await;
    let claims = fetch(&host, 9).await;

    scene.obstruct(DEAD).await;
    refused(&host, &claims[0], 0, dead_letter()).await;
    assert_eq!(scene.processing(&host).await.len(), 2);
    scene.delete(DEAD).await;

    for claim in &claims {
        settled(&host, claim, 0, dead_letter()).await;
        assert_eq!(settle(&host, claim, 0, dead_letter()).await, Reply::Gone);
    }
    let dead = scene.list(DEAD).await;
    assert_eq!(dead.len(), 2);
    let (headers, payload) = framed(&dead[1]);
    assert_eq!(payload, &b"a body\0\xff"[..]);
    assert_eq!(&headers.find("x-tenant").unwrap()[..], b"\xff7");
    assert_eq!(headers.find("x-retry-count"), None);
    for (name, value) in [
        ("x-dead-letter-reason", "dropped"),
        ("x-dead-letter-detail", "no such product"),
        ("x-dead-letter-source", KEY),
        ("x-dead-letter-attempts", "1"),
        ("x-dead-letter-handler", "sha256:aa"),
        ("x-first-death-queue", KEY),
        ("x-message-id", &token(&claims[0])),
        ("x-dead-letter-source-id", &token(&claims[0])),
    ] {
        assert_eq!(headers.find_str(name), Some(value), "{name}");
    }
    assert!(headers.find_str("x-death").unwrap().contains("\"dropped\""));
    assert_eq!(framed(&dead[0]).1, "plain");
    assert!(scene.processing(&host).await.is_empty());
    assert_eq!(scene.recorded_claims().await, 0);
}

#[tokio::test]
async fn a_queue_can_be_drained_while_redis_has_no_memory() {
    for options in both() {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        scene.publish(["a", "b", "c", "d", "e", "f", "left"]).await;
        scene.out_of_memory(true).await;
        let full = scene.raw.try_ask("SET k v").await;
        assert!(full.unwrap_err().to_string().contains("OOM"));
        let claims = host.fetch(6, Duration::from_secs(5)).await.unwrap();
        let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
        assert_eq!(claims.len(), 6);
        assert_eq!(recorded(&host, &claims[0], 1, 2).await, Reply::Done);
        assert_eq!(host.renew(&claims).await.unwrap(), vec![Reply::Done; 6]);
        host.acknowledge(&claims[..1]).await.unwrap();
        let later = Duration::from_millis(1);
        let steps = [park(1, later), requeue(0), dead_letter(), discard()];
        for (claim, step) in claims[1..].iter().zip(steps) {
            settled(&host, claim, 1, step).await;
        }
        eventually("the parked one is due", async || {
            host.take_due(9).await.unwrap().claims.len() == 1
        })
        .await;
        scene.out_of_memory(false).await;
        scene.age(&host).await;
        scene.age_claims().await;
        scene.out_of_memory(true).await;
        let heir = scene.host_with(host.options().clone()).await;
        assert_eq!(orphaned(&heir, 9).await.len(), 2);
        // Both lists hand out the rest, without any waiting command.
        assert_eq!(fetch(&heir, 9).await.len(), 2);
        let none = heir.fetch(9, Duration::from_millis(150)).await;
        assert!(none.unwrap().is_empty());
    }
}

/// On a cluster no script reaches a dead-letter list in another slot: it is copied first. A user
/// that may not do the steps after the copy must not leave one copy for every try.
#[tokio::test]
async fn across_slots_nothing_is_copied_that_could_not_be_removed() {
    let scene = Scene::with(cluster(RedisOptions::default())).await;
    scene.take_all_slots().await;
    for (user, lacks, max_len, may) in [
        ("whole", "-debug", Some(1), true),
        ("bare", "-lrem", None, false),
        ("bound", "-ltrim", Some(1), false),
        ("free", "-ltrim", None, true),
    ] {
        let rules = format!("ACL SETUSER {user} on >pw ~* +@all {lacks}");
        scene.raw.ask(&rules).await;
        let taker = scene.host().await;
        let url = format!("redis://{user}:pw@127.0.0.1:{}", scene.server.port());
        let options = ListOptions {
            dead_letter: Some(DeadLetterQueue {
                max_len,
                ..DeadLetterQueue::new(DEAD)
            }),
            ..options()
        };
        let host = ListQueue::open(connector(&url), options).await.unwrap();
        // A value that it may not claim itself stands on its processing list.
        scene.publish(["stays"]).await;
        let value = [&[7; 16][..], b"stays"].concat();
        scene.push(&processing(host.instance()), &value).await;
        let mut held = taker.fetch(1, Duration::ZERO).await.unwrap().remove(0);
        held.id = DeliveryId(u128::from_be_bytes([7; 16]));
        let held = Arc::new(held);
        for _ in 0..3 {
            let reply = settle(&host, &held, 1, dead_letter()).await;
            let is_done = matches!(reply, Reply::Done | Reply::Gone);
            assert_eq!(
                (is_done, is_refused(&reply)),
                (may, !may),
                "{user}: {reply:?}"
            );
        }
        assert_eq!(scene.list(DEAD).await.len(), usize::from(may), "{user}");
        assert_eq!(scene.processing(&host).await.len(), usize::from(!may));
        scene.delete(DEAD).await;
    }
}

#[tokio::test]
async fn dead_letters_over_a_lowered_bound_go_in_steps_until_it_holds() {
    let scene = Scene::new().await;
    for _ in 0..2 {
        scene.fill("LPUSH", DEAD, 20_000).await;
    }
    let bounded = DeadLetterQueue {
        max_len: Some(100),
        ..DeadLetterQueue::new(DEAD)
    };
    let options = ListOptions {
        dead_letter: Some(bounded),
        ..options()
    };
    let host = scene.host_with(options).await;
    let claims = scene.claim(&host, &["dead"]).await;
    settled(&host, &claims[0], 1, dead_letter()).await;
    let length = async || scene.raw.number(&format!("LLEN {DEAD}")).await;
    assert_eq!(length().await, 39_001);
    for (left, is_unfinished) in [(29_001, true), (19_001, true), (9_001, true), (100, false)] {
        let done = host.maintain().await.unwrap();
        assert_eq!(length().await, left);
        assert_eq!(done.unfinished.contains(&Sweep::DeadLetters), is_unfinished);
    }
}
