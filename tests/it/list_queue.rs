//! The reliable list: what each operation does to its keys.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::delivery::message::{REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::stream::{DeadLetterQueue, OnFull};
use hostler::queue::{Backlog, Claim, Origin, Queue, Reply, Settlement, Step};
use hostler::wire::frame;
use hostler::wire::list::Framing;
use hostler_tests::redis::eventually;

use crate::list_scene::{
    CLAIMS, DEAD, DELAYED, INSTANCES, KEY, RETRY, Scene, entry, framed, options, orphans, record,
    recovering, settle, token, value,
};
use crate::queue_scene::{connector, dead_letter, is_refused, park};

#[tokio::test]
async fn a_claim_moves_values_to_the_processing_list_and_records_them() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let other = scene.recovering().await;
    assert_ne!(host.instance(), other.instance());
    scene.push(&[b"a", b"same", b"same", b"d"]).await;

    let claims = host.fetch(3, Duration::ZERO).await.unwrap();
    let bodies: Vec<_> = claims.iter().map(|c| &c.message.body[..]).collect();
    assert_eq!(bodies, [&b"a"[..], b"same", b"same"]);
    let ids: HashSet<_> = claims.iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(claims.iter().all(|c| c.origin == Origin::Fresh));
    assert_eq!(&*claims[0].message.id, token(&claims[0]));
    assert_eq!(&*claims[0].message.queue, KEY);
    let mut held = scene.processing(&host).await;
    held.reverse();
    assert_eq!(held, claims.iter().map(entry).collect::<Vec<_>>());
    for claim in &claims {
        let member = [host.instance().as_bytes(), &claim.id.0.to_be_bytes()].concat();
        let words = [b"ZSCORE", CLAIMS.as_bytes(), &member];
        let score: f64 = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
        assert!((scene.now_ms().await as f64 - score).abs() < 20_000.0);
    }

    assert_eq!(other.fetch(9, Duration::ZERO).await.unwrap().len(), 1);
    assert!(other.fetch(9, Duration::ZERO).await.unwrap().is_empty());
    assert!(
        host.fetch(0, Duration::from_secs(9))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_acknowledged_entry_leaves_and_its_twin_stays() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["same", "same", "same"]).await;
        assert_eq!(record(&host, &claims[1], 1, 2).await, Reply::Done);
        host.acknowledge(&claims[1..2]).await.unwrap();
        let held = scene.processing(&host).await;
        assert_eq!(held, [entry(&claims[2]), entry(&claims[0])]);
        assert_eq!(scene.mark(&host, &claims[1]).await, None);
        // Again, after a lost reply.
        host.acknowledge(&claims).await.unwrap();
        assert_eq!(scene.raw.number(&format!("EXISTS {CLAIMS} {KEY}")).await, 0);
        assert_eq!(host.backlog().await.unwrap(), Backlog::default());
        host.leave().await.unwrap();
        assert!(scene.raw.number("DBSIZE").await == 0);
    }
}

#[tokio::test]
async fn a_thousand_values_and_large_ones_are_claimed_in_bounded_batches() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let numbers: Vec<String> = (0..1500).map(|n| n.to_string()).collect();
    let values: Vec<&[u8]> = numbers.iter().map(|n| n.as_bytes()).collect();
    scene.push(&values).await;
    let mut claimed = Vec::new();
    while claimed.len() < values.len() {
        let claims = host.fetch(1024, Duration::ZERO).await.unwrap();
        assert!(!claims.is_empty());
        claimed.extend(claims.into_iter().map(Arc::new));
    }
    let bodies: Vec<_> = claimed.iter().map(|c| c.message.body.to_vec()).collect();
    assert_eq!(bodies, values);
    assert_eq!(host.renew(&claimed).await.unwrap(), vec![Reply::Done; 1500]);
    host.acknowledge(&claimed).await.unwrap();

    // A script stops after 4 MiB.
    let large = vec![b'x'; 1 << 20];
    scene.push(&[&large[..]; 9]).await;
    let first = host.fetch(9, Duration::ZERO).await.unwrap();
    assert!((4..9).contains(&first.len()), "{}", first.len());
    assert_eq!(scene.list(KEY).await.len(), 9 - first.len());
}

#[tokio::test]
async fn a_waiting_fetch_wakes_for_a_value_and_for_an_interruption() {
    let scene = Scene::new().await;
    let host = Arc::new(scene.host().await);
    let long = Duration::from_secs(15);
    let waiting = |host: &Arc<ListQueue>| {
        let host = Arc::clone(host);
        tokio::spawn(async move { host.fetch(5, long).await })
    };
    let begun = Instant::now();
    let fetch = waiting(&host);
    blocked(&scene).await;
    scene.push(&[b"a"]).await;
    assert_eq!(fetch.await.unwrap().unwrap().len(), 1);
    let fetch = waiting(&host);
    blocked(&scene).await;
    host.interrupt().await.unwrap();
    assert!(fetch.await.unwrap().unwrap().is_empty());
    assert!(begun.elapsed() < long);

    // A waiter that claims nothing leaves the value where it is, and the others wake.
    let fetches = [waiting(&host), {
        let other = Arc::new(scene.host().await);
        waiting(&other)
    }];
    eventually("two wait", || async { clients_blocked(&scene).await == 2 }).await;
    scene.push(&[b"b", b"c"]).await;
    let mut all = 0;
    for fetch in fetches {
        all += fetch.await.unwrap().unwrap().len();
        if all == 2 {
            break;
        }
    }
    assert_eq!(all, 2);
}

async fn blocked(scene: &Scene) {
    eventually("the fetch waits", || async {
        clients_blocked(scene).await == 1
    })
    .await;
}

async fn clients_blocked(scene: &Scene) -> usize {
    let info = scene.raw.text("INFO clients").await;
    let line = info.lines().find(|l| l.starts_with("blocked_clients:"));
    line.unwrap()
        .trim_start_matches("blocked_clients:")
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn where_waiting_is_refused_a_host_polls() {
    let scene = Scene::new().await;
    scene
        .raw
        .ask("ACL SETUSER poor on >pw ~* +@all -blmove")
        .await;
    let url = scene.server.url().replace("unix://", "unix:");
    let url = format!("{url}?user=poor&pass=pw").replace("unix:", "unix://");
    let host = Arc::new(ListQueue::open(connector(&url), options()).await.unwrap());
    let fetch = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.fetch(5, Duration::from_secs(15)).await }
    });
    eventually("it was refused", || async {
        scene
            .raw
            .text("INFO commandstats")
            .await
            .contains("cmdstat_blmove:calls=0")
    })
    .await;
    scene.push(&[b"a"]).await;
    assert_eq!(fetch.await.unwrap().unwrap().len(), 1);
}

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

#[tokio::test]
async fn without_a_recovery_set_a_start_recovers_earlier_ones_of_its_name() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let stranger = scene
        .host_with(ListOptions {
            consumer: "other".to_owned(),
            ..options()
        })
        .await;
    let claims = scene
        .claim(&host, &["fresh", "started", "same", "same"])
        .await;
    let theirs = scene.claim(&stranger, &["theirs"]).await;
    // One start more than its hand-out stands for.
    assert_eq!(record(&host, &claims[1], 1, 2).await, Reply::Done);

    let heir = scene.host().await;
    assert!(orphans(&heir, 9).await.is_empty(), "they live");
    scene.age(&host).await;
    scene.age(&stranger).await;
    let mut taken = orphans(&heir, 3).await;
    assert_eq!(taken.len(), 3);
    taken.extend(orphans(&heir, 9).await);
    let seen: Vec<_> = taken
        .iter()
        .map(|c| (&c.message.body[..], c.message.headers.retry_count()))
        .collect();
    assert_eq!(
        seen,
        [
            (&b"fresh"[..], 1),
            (b"started", 2),
            (b"same", 1),
            (b"same", 1)
        ]
    );
    for (claim, old) in taken.iter().zip(&claims) {
        assert!(matches!(claim.origin, Origin::Orphan { idle } if idle >= Duration::from_secs(29)));
        let headers = &claim.message.headers;
        assert_eq!(headers.find_str("x-hostler-crashes"), Some("1"));
        assert!(
            headers.find(REDIS_IDLE_MS).is_some() && headers.find(REDIS_DELIVERY_COUNT).is_some()
        );
        assert_eq!(claim.message.id, old.message.id);
        assert_ne!(claim.id, old.id);
        assert_eq!(value(claim), &entry(claim)[16..]);
    }
    assert!(scene.processing(&host).await.is_empty());
    assert_eq!(scene.processing(&heir).await.len(), 4);
    assert_eq!(scene.processing(&stranger).await.len(), 1);
    assert!(orphans(&heir, 9).await.is_empty());

    // The paused hosts wake up: one finds out what it lost, whatever it does first.
    assert!(host.fetch(1, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(host.renew(&claims).await.unwrap(), vec![Reply::Stolen; 4]);
    assert_eq!(record(&host, &claims[0], 1, 2).await, Reply::Stolen);
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Gone
    );
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Gone
    );
    assert_eq!(stranger.renew(&theirs).await.unwrap(), [Reply::Done]);
    assert_eq!(heir.renew(&taken).await.unwrap(), vec![Reply::Done; 4]);
}

#[tokio::test]
async fn with_a_recovery_set_every_host_recovers_for_all_and_each_orphan_once() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let names: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let claims = scene.claim(&host, &names).await;
    let mut sweepers = Vec::new();
    for n in 0..4 {
        let options = ListOptions {
            consumer: format!("sweeper{n}"),
            ..recovering()
        };
        sweepers.push(Arc::new(scene.host_with(options).await));
    }
    assert!(orphans(&sweepers[0], 9).await.is_empty());
    scene.age_claims().await;
    // One that its host still renews is not taken.
    assert_eq!(host.renew(&claims[7..8]).await.unwrap(), [Reply::Done]);
    let sweeps: Vec<_> = sweepers
        .iter()
        .map(|sweeper| {
            let sweeper = Arc::clone(sweeper);
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let some = orphans(&sweeper, 7).await;
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(some);
                }
            })
        })
        .collect();
    let mut bodies = Vec::new();
    for (sweep, sweeper) in sweeps.into_iter().zip(&sweepers) {
        let taken = sweep.await.unwrap();
        assert_eq!(scene.processing(sweeper).await.len(), taken.len());
        assert_eq!(
            sweeper.renew(&taken).await.unwrap(),
            vec![Reply::Done; taken.len()]
        );
        bodies.extend(taken.iter().map(|c| c.message.body.to_vec()));
    }
    // What two sweepers met at the same time is with one of them, or still waits.
    bodies.extend(
        orphans(&sweepers[0], 99)
            .await
            .iter()
            .map(|c| c.message.body.to_vec()),
    );
    bodies.extend(
        orphans(&sweepers[0], 99)
            .await
            .iter()
            .map(|c| c.message.body.to_vec()),
    );
    bodies.sort();
    let mut expected: Vec<_> = names.iter().map(|n| n.as_bytes().to_vec()).collect();
    expected.remove(7);
    expected.sort();
    assert_eq!(bodies, expected);
    assert_eq!(scene.processing(&host).await, [entry(&claims[7])]);
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 200);
    assert_eq!(
        host.renew(&claims[6..8]).await.unwrap(),
        [Reply::Stolen, Reply::Done]
    );
}

#[tokio::test]
async fn a_recovery_set_that_is_gone_strands_nothing() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let claims = scene.claim(&host, &["a", "b"]).await;
    scene.raw.ask(&format!("DEL {CLAIMS}")).await;
    let sweeper = scene.recovering().await;
    assert!(orphans(&sweeper, 9).await.is_empty());
    // Recorded as claimed now.
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 2);
    scene.raw.ask(&format!("DEL {CLAIMS}")).await;
    // A host that lives records its own again.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 1);
    assert!(orphans(&sweeper, 9).await.is_empty());
    scene.age_claims().await;
    assert_eq!(orphans(&sweeper, 9).await.len(), 2);

    // A record that nothing belongs to goes.
    scene
        .raw
        .ask(&format!("DEL {{jobs}}:processing:{}", sweeper.instance()))
        .await;
    scene.age_claims().await;
    let third = scene.recovering().await;
    assert!(orphans(&third, 9).await.is_empty());
    assert_eq!(scene.raw.number(&format!("EXISTS {CLAIMS}")).await, 0);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_fails_the_probe() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    host.probe().await.unwrap();
    let keys = scene.raw.number("DBSIZE").await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = host.probe().await.unwrap_err();
    assert_eq!(error.code(), "READONLY");
    scene.raw.ask("REPLICAOF NO ONE").await;
    host.probe().await.unwrap();
    assert_eq!(scene.raw.number("DBSIZE").await, keys);
}

#[tokio::test]
async fn a_recovery_set_that_expires_strands_nothing() {
    let scene = Scene::new().await;
    let mut options = recovering();
    options.min_idle = Duration::from_millis(300);
    options.recovery.as_mut().unwrap().ttl = Some(Duration::from_millis(400));
    let dead = scene.host_with(options.clone()).await;
    scene.claim(&dead, &["a", "b"]).await;
    drop(dead);
    // The time to live is the server's to keep.
    eventually("the recovery set expires", async || {
        scene.raw.number(&format!("EXISTS {CLAIMS}")).await == 0
    })
    .await;
    let heir = scene.host_with(options).await;
    let mut taken = Vec::new();
    eventually("all are recovered", async || {
        taken.extend(orphans(&heir, 9).await);
        taken.len() >= 2
    })
    .await;
    let mut payloads: Vec<_> = taken.iter().map(|c| c.message.body.clone()).collect();
    payloads.sort();
    assert_eq!(payloads, ["a", "b"]);
    assert!(orphans(&heir, 9).await.is_empty());
}

#[tokio::test]
async fn the_recovery_set_lives_as_long_as_somebody_claims_or_renews() {
    let scene = Scene::new().await;
    let mut options = recovering();
    options.recovery.as_mut().unwrap().ttl = Some(Duration::from_secs(100));
    let host = scene.host_with(options).await;
    let claims = scene.claim(&host, &["a"]).await;
    for again in 0..2 {
        let ttl = scene.raw.number(&format!("PTTL {CLAIMS}")).await;
        assert!((90_000..=100_000).contains(&ttl), "{ttl}");
        scene.raw.ask(&format!("PEXPIRE {CLAIMS} 5000")).await;
        if again == 0 {
            assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
        } else {
            scene.claim(&host, &["b"]).await;
        }
    }
    let ttl = scene.raw.number(&format!("PTTL {CLAIMS}")).await;
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn raw_values_stay_raw_and_their_requeues_go_first() {
    let scene = Scene::new().await;
    let raw = |options: ListOptions| ListOptions {
        framing: Framing::Raw,
        ..options
    };
    let host = scene.host_with(raw(options())).await;
    // It looks like a frame, and is none.
    let odd: &[u8] = b"\0\0\0\0odd";
    scene.push(&[odd, b"b", b"c"]).await;
    let claims: Vec<_> = host.fetch(3, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    assert_eq!(claims[0].message.body, odd);
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Done
    );
    assert_eq!(
        settle(&host, &claims[1], 1, park(0, Duration::ZERO)).await,
        Reply::Done
    );
    assert_eq!(scene.list(KEY).await, [b"b".to_vec()]);
    assert_eq!(scene.list(RETRY).await.len(), 1);

    let again: Vec<_> = host.fetch(9, Duration::ZERO).await.unwrap();
    let again: Vec<_> = again.into_iter().map(Arc::new).collect();
    assert_eq!(again.len(), 2);
    assert_eq!(again[0].message.body, odd);
    assert_eq!((again[0].origin, again[0].header), (Origin::Returned, 1));
    assert_eq!(again[0].message.id, claims[0].message.id);
    assert_eq!(again[1].message.body, "b");
    // Handed back, each goes where it came from.
    for claim in &again {
        let keep = claim.native.min(claim.header);
        assert_eq!(
            settle(&host, claim, 1, park(keep, Duration::ZERO)).await,
            Reply::Done
        );
    }
    assert_eq!(scene.list(KEY).await, [b"b".to_vec()]);
    assert_eq!(scene.list(RETRY).await, [value(&again[0]).to_vec()]);

    // What a dead host left carries its count, framed, and is still read as it was.
    let heir = scene.host_with(raw(options())).await;
    scene.age(&host).await;
    let taken = orphans(&heir, 9).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].message.body, "c");
    assert_eq!(taken[0].message.headers.retry_count(), 1);
    scene.age(&heir).await;
    let third = scene.host_with(raw(options())).await;
    let taken = orphans(&third, 9).await;
    assert_eq!(taken[0].message.body, "c");
    assert_eq!(
        settle(&third, &taken[0], 1, dead_letter()).await,
        Reply::Done
    );
    let (_, payload) = framed(&scene.list(DEAD).await[0]);
    assert_eq!(payload, "c");
}

#[tokio::test]
async fn envelopes_are_answered_with_envelopes() {
    let scene = Scene::new().await;
    let host = scene
        .host_with(ListOptions {
            framing: Framing::Json,
            ..options()
        })
        .await;
    let envelope = br#"{"headers":{"tenant":"7"},"payload":"{\"id\":1}"}"#;
    scene.push(&[envelope, b"neither"]).await;
    let claims: Vec<_> = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    assert_eq!(claims[0].message.body, r#"{"id":1}"#);
    assert!(claims[1].defect.is_some());
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Done
    );
    let list = scene.list(KEY).await;
    let json: serde_json::Value = serde_json::from_slice(&list[0]).unwrap();
    assert_eq!(json["payload"], r#"{"id":1}"#);
    assert_eq!(json["headers"]["tenant"], "7");
    assert_eq!(json["headers"]["x-retry-count"], "1");
    assert_eq!(
        settle(&host, &claims[1], 1, dead_letter()).await,
        Reply::Done
    );
    let dead: serde_json::Value = serde_json::from_slice(&scene.list(DEAD).await[0]).unwrap();
    assert_eq!(dead["payload"], "neither");
}

#[tokio::test]
async fn a_key_of_another_type_costs_nothing() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    scene.push(&[b"a", b"b"]).await;
    for key in [
        CLAIMS.to_owned(),
        format!("{{jobs}}:processing:{}", host.instance()),
    ] {
        scene.raw.ask(&format!("SET {key} x")).await;
        let error = host.fetch(9, Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(scene.list(KEY).await.len(), 2);
        scene.raw.ask(&format!("DEL {key}")).await;
    }
    let claims = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    scene.raw.ask(&format!("SET {DELAYED} x")).await;
    let later = Duration::from_secs(9);
    assert!(is_refused(
        &settle(&host, &claims[0], 1, park(1, later)).await
    ));
    assert_eq!(scene.processing(&host).await.len(), 2);
    scene.raw.ask(&format!("DEL {DELAYED}")).await;
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, later)).await,
        Reply::Done
    );
}

#[tokio::test]
async fn what_was_taken_over_is_kept_when_another_instance_cannot_be_looked_at() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    scene.claim(&host, &["one", "two"]).await;
    let then = scene.now_ms().await - 60_000;
    let (base, _) = host.instance().rsplit_once('-').unwrap();
    for command in [
        format!("ZADD {INSTANCES} {then} {base}-00000000"),
        format!("SET {{jobs}}:processing:{base}-00000000 text"),
    ] {
        scene.raw.ask(&command).await;
    }
    scene.age(&host).await;
    let heir = scene.host().await;
    let (mut taken, mut failed) = (Vec::new(), 0);
    // Each scan begins with another instance.
    for _ in 0..4 {
        match heir.take_orphans(9, &|_| false).await {
            Ok(found) => taken.extend(found.claims),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0, "nobody is told of the other key");
    let bodies: HashSet<_> = taken.iter().map(|c| &c.message.body[..]).collect();
    assert_eq!(bodies, HashSet::from([&b"one"[..], b"two"]));
    assert_eq!(scene.processing(&heir).await.len(), taken.len());
}

#[tokio::test]
async fn instances_that_are_gone_are_forgotten() {
    let scene = Scene::new().await;
    let gone = scene.host().await;
    let holder = scene.host().await;
    scene.claim(&holder, &["a"]).await;
    for host in [&gone, &holder] {
        let instance = host.instance();
        scene
            .raw
            .ask(&format!("ZADD {INSTANCES} 1 {instance}"))
            .await;
    }
    let host = scene.host().await;
    assert_eq!(host.maintain().await.unwrap().consumers_removed, 1);
    assert_eq!(scene.raw.number(&format!("ZCARD {INSTANCES}")).await, 2);
    // One that leaves with something on its processing list stays known.
    holder.leave().await.unwrap();
    assert_eq!(scene.raw.number(&format!("ZCARD {INSTANCES}")).await, 2);
    host.leave().await.unwrap();
    assert_eq!(scene.raw.number(&format!("ZCARD {INSTANCES}")).await, 1);
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
