//! The reliable list: what becomes of deliveries that are not acknowledged.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::{Backlog, Claim, Origin, Queue, Reply, Settlement, Step};
use hostler::wire::frame;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::list_scene::{
    CLAIMS, DEAD, DELAYED, KEY, Scene, framed, options, orphans, record, recovering, settle, token,
};
use crate::queue_scene::{connector, dead_letter, is_refused, park};

#[tokio::test]
async fn a_requeue_carries_the_count_and_a_hand_back_changes_nothing() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["a", "b", "c"]).await;
        scene.push(&[b"waiting"]).await;

        // "a" ran once, and goes behind what waits; "b" never started, and goes before it.
        assert_eq!(
            settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[1], 1, park(0, Duration::ZERO)).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[2], 1, Step::Leave { keep: 0 }).await,
            Reply::Done
        );
        let list = scene.list(KEY).await;
        assert_eq!(list.len(), 4);
        assert_eq!(
            &list[1..],
            [b"waiting".to_vec(), b"b".to_vec(), b"c".to_vec()]
        );
        let (headers, payload) = framed(&list[0]);
        assert_eq!(payload, "a");
        assert_eq!(headers.find_str("x-retry-count"), Some("1"));
        assert_eq!(headers.find_str("x-ruststream-retry-count"), Some("1"));
        assert_eq!(headers.find_str("x-message-id"), Some(&*token(&claims[0])));
        assert!(scene.processing(&host).await.is_empty());
        assert_eq!(scene.raw.number(&format!("EXISTS {CLAIMS}")).await, 0);
        // Asked again after a lost reply: no second copy.
        assert_eq!(
            settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
            Reply::Gone
        );
        assert_eq!(scene.list(KEY).await.len(), 4);

        let again = host.fetch(9, Duration::ZERO).await.unwrap();
        let last = again.last().unwrap();
        assert_eq!(
            (last.origin, last.header, last.native),
            (Origin::Returned, 1, 0)
        );
        assert_eq!(last.message.id, claims[0].message.id);
    }
}

#[tokio::test]
async fn equal_payloads_wait_apart_and_come_back_when_they_are_due() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let other = scene.recovering().await;
    let claims = scene.claim(&host, &["same", "same", "later"]).await;
    for claim in &claims[..2] {
        assert_eq!(
            settle(&host, claim, 1, park(1, Duration::from_millis(1))).await,
            Reply::Done
        );
    }
    let hour = Duration::from_secs(3600);
    assert_eq!(
        settle(&host, &claims[2], 1, park(1, hour)).await,
        Reply::Done
    );
    // Asked again after a lost reply.
    assert_eq!(
        settle(&host, &claims[2], 1, park(1, hour)).await,
        Reply::Done
    );
    assert_eq!(scene.raw.number(&format!("ZCARD {DELAYED}")).await, 3);
    assert_eq!(
        host.backlog().await.unwrap(),
        Backlog {
            unread: false,
            pending: 3
        }
    );

    let mut due: Vec<Claim> = Vec::new();
    eventually("both are due", async || {
        let taken = other.take_due(1).await.unwrap();
        due.extend(taken.claims);
        due.len() == 2
    })
    .await;
    let ids: HashSet<_> = due.iter().map(|c| c.message.id.to_string()).collect();
    assert_eq!(ids, claims[..2].iter().map(|c| token(c)).collect());
    assert!(
        due.iter()
            .all(|c| c.header == 1 && c.message.body == "same")
    );
    let taken = other.take_due(9).await.unwrap();
    assert!(taken.claims.is_empty());
    let next = taken.next_due.unwrap();
    assert!(
        next > hour - Duration::from_secs(60) && next <= hour,
        "{next:?}"
    );
    assert_eq!(scene.processing(&other).await.len(), 2);
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 2);
}

#[tokio::test]
async fn starts_are_marked_until_the_delivery_is_settled() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["a", "b", "c", "d"]).await;
        for claim in &claims {
            assert_eq!(record(&host, claim, 1, 2).await, Reply::Done);
            // Again, after a lost reply.
            assert_eq!(record(&host, claim, 1, 2).await, Reply::Done);
            assert_eq!(scene.mark(&host, claim).await.as_deref(), Some("2"));
        }
        // A lease is confirmed without a mark.
        assert_eq!(record(&host, &claims[0], 2, 2).await, Reply::Done);
        assert_eq!(
            settle(&host, &claims[0], 2, park(2, Duration::ZERO)).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[1], 2, Step::Discard).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[2], 2, dead_letter()).await,
            Reply::Done
        );
        host.acknowledge(&claims[3..]).await.unwrap();
        let started = format!("{{jobs}}:started:{}", host.instance());
        assert_eq!(scene.raw.number(&format!("EXISTS {started}")).await, 0);
    }
}

#[tokio::test]
async fn several_settlements_of_all_kinds_are_answered_in_their_order() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let claims = scene.claim(&host, &["a", "b", "c", "d", "e"]).await;
    host.acknowledge(&claims[1..2]).await.unwrap();
    let steps = [
        dead_letter(),
        park(1, Duration::ZERO),
        Step::Discard,
        park(1, Duration::from_secs(9)),
        Step::Leave { keep: 0 },
    ];
    let settlements: Vec<Settlement> = steps
        .into_iter()
        .zip(&claims)
        .map(|(step, claim)| Settlement {
            claim: Arc::clone(claim),
            count: 1,
            step,
        })
        .collect();
    let replies = host.settle(&settlements).await.unwrap();
    let mut expected = vec![Reply::Done; 5];
    expected[1] = Reply::Gone;
    assert_eq!(replies, expected);
}

#[tokio::test]
async fn dead_letters_go_list_to_list_whole() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let original = frame::encode(
        &hostler::delivery::message::Headers::new(vec![
            ("X-Tenant".into(), b"\xff7"[..].into()),
            ("x-retry-count".into(), "2".into()),
        ]),
        b"a body\0\xff",
    )
    .unwrap();
    scene.push(&[&original, b"plain"]).await;
    let claims: Vec<Arc<Claim>> = host
        .fetch(9, Duration::ZERO)
        .await
        .unwrap()
        .into_iter()
        .map(Arc::new)
        .collect();

    scene.raw.ask(&format!("SET {DEAD} x")).await;
    let reply = settle(&host, &claims[0], 0, dead_letter()).await;
    assert!(is_refused(&reply), "{reply:?}");
    assert_eq!(scene.processing(&host).await.len(), 2);
    scene.raw.ask(&format!("DEL {DEAD}")).await;

    for claim in &claims {
        assert_eq!(settle(&host, claim, 0, dead_letter()).await, Reply::Done);
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
    assert_eq!(scene.raw.number(&format!("EXISTS {CLAIMS}")).await, 0);
}

#[tokio::test]
async fn a_full_dead_letter_list_drops_its_oldest_or_takes_no_more() {
    let scene = Scene::new().await;
    let bounded = |on_full| ListOptions {
        dead_letter: Some(DeadLetterQueue {
            max_len: Some(2),
            on_full,
            ..DeadLetterQueue::new(DEAD)
        }),
        ..options()
    };
    let host = scene.host_with(bounded(OnFull::DropOldest)).await;
    let claims = scene.claim(&host, &["a", "b", "c"]).await;
    for claim in &claims {
        assert_eq!(settle(&host, claim, 1, dead_letter()).await, Reply::Done);
    }
    let dead = scene.list(DEAD).await;
    let bodies: Vec<_> = dead.iter().map(|v| framed(v).1).collect();
    assert_eq!(bodies, ["c", "b"]);
    assert_eq!(host.maintain().await.unwrap().dead_letters_dropped, 1);
    assert_eq!(host.maintain().await.unwrap().dead_letters_dropped, 0);

    let host = scene.host_with(bounded(OnFull::Stop)).await;
    let claims = scene.claim(&host, &["d"]).await;
    assert!(is_refused(
        &settle(&host, &claims[0], 1, dead_letter()).await
    ));
    scene.raw.ask(&format!("LPOP {DEAD}")).await;
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Done
    );
}

#[tokio::test]
async fn a_full_redis_can_be_drained() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        scene
            .push(&[b"a", b"b", b"c", b"d", b"e", b"f", b"left"])
            .await;
        scene.raw.ask("CONFIG SET maxmemory 1").await;
        let full = scene.raw.try_ask("SET k v").await;
        assert!(full.unwrap_err().to_string().contains("OOM"));
        let long = Duration::from_secs(5);
        let claims: Vec<_> = host.fetch(6, long).await.unwrap();
        let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
        assert_eq!(claims.len(), 6);
        assert_eq!(record(&host, &claims[0], 1, 2).await, Reply::Done);
        assert_eq!(host.renew(&claims).await.unwrap(), vec![Reply::Done; 6]);
        host.acknowledge(&claims[..1]).await.unwrap();
        let later = Duration::from_millis(1);
        assert_eq!(
            settle(&host, &claims[1], 1, park(1, later)).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[2], 1, park(0, Duration::ZERO)).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[3], 1, dead_letter()).await,
            Reply::Done
        );
        assert_eq!(
            settle(&host, &claims[4], 1, Step::Discard).await,
            Reply::Done
        );
        eventually("what is due is claimed", async || {
            host.take_due(9).await.unwrap().claims.len() == 1
        })
        .await;
        scene.raw.ask("CONFIG SET maxmemory 0").await;
        scene.age(&host).await;
        scene.age_claims().await;
        scene.raw.ask("CONFIG SET maxmemory 1").await;
        let heir = scene.host_with(host.options().clone()).await;
        assert_eq!(orphans(&heir, 9).await.len(), 2);
        // Both lists hand out what is left, without any waiting command.
        assert_eq!(heir.fetch(9, Duration::ZERO).await.unwrap().len(), 2);
        assert!(
            heir.fetch(9, Duration::from_millis(150))
                .await
                .unwrap()
                .is_empty()
        );
    }
}

/// On a cluster no script reaches a dead-letter list in another slot: it is copied first. A user
/// that may not do what comes behind the copy must not leave one for every try.
#[tokio::test]
async fn across_slots_nothing_is_copied_that_could_not_be_removed() {
    let options = || RedisOptions::default().tcp().set("cluster-enabled", "yes");
    let scene = Scene::with(options()).await;
    scene.raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the cluster is up", async || {
        let info = scene.raw.text("CLUSTER INFO").await;
        info.contains("cluster_state:ok")
    })
    .await;
    for (user, lacks, max_len, may) in [
        ("whole", "-debug", Some(1), true),
        ("bare", "-lrem", None, false),
        ("bound", "-ltrim", Some(1), false),
        ("free", "-ltrim", None, true),
    ] {
        scene
            .raw
            .ask(&format!("ACL SETUSER {user} on >pw ~* +@all {lacks}"))
            .await;
        let taker = scene.host().await;
        let url = format!("redis://{user}:pw@127.0.0.1:{}", scene.server.port());
        let options = ListOptions {
            dead_letter: Some(DeadLetterQueue {
                max_len,
                ..DeadLetterQueue::new(DEAD)
            }),
            ..crate::list_scene::options()
        };
        let host = ListQueue::open(connector(&url), options).await.unwrap();
        // What it may not claim itself stands on its processing list.
        scene.push(&[b"stays"]).await;
        let value = [&[7; 16][..], b"stays"].concat();
        let processing = format!("{{jobs}}:processing:{}", host.instance());
        scene
            .raw
            .ask_words(&[b"LPUSH", processing.as_bytes(), &value])
            .await;
        let mut held = taker.fetch(1, Duration::ZERO).await.unwrap().remove(0);
        held.id = hostler::delivery::message::DeliveryId(u128::from_be_bytes([7; 16]));
        let held = Arc::new(held);
        for _ in 0..3 {
            let reply = settle(&host, &held, 1, dead_letter()).await;
            if may {
                assert!(matches!(reply, Reply::Done | Reply::Gone), "{reply:?}");
            } else {
                assert!(is_refused(&reply), "{user}: {reply:?}");
            }
        }
        assert_eq!(scene.list(DEAD).await.len(), usize::from(may), "{user}");
        assert_eq!(scene.processing(&host).await.len(), usize::from(!may));
        scene.raw.ask(&format!("DEL {DEAD}")).await;
    }
}
