//! The stream queue on a good day: what each operation does to the group.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::delivery::message::{REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use hostler::delivery::policy::Reason;
use hostler::queue::stream::{GroupStart, PARKED_CONSUMER, StreamOptions};
use hostler::queue::{Backlog, Origin, Queue, Record, Reply, Settlement, Step};
use hostler::wire::Raw;
use hostler_tests::redis::eventually;

use crate::queue_scene::{
    DEAD, GROUP, KEY, MIN_IDLE, PARKED, Scene, body, dead_letter, field, holds_nothing, options,
    orphans, park, settle, text,
};

#[tokio::test]
async fn fetch_hands_out_each_message_once_in_order() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let other = scene.host().await;
    assert_ne!(host.consumer(), other.consumer());
    let before = scene.raw.add(KEY, "a").await;
    scene.raw.ask("XADD orders * id 1 amount 5").await;
    scene
        .raw
        .ask("XADD orders * _payload b h:x-retry-count 3 h:X-Message-Id m-7")
        .await;

    let claims = host.fetch(10, Duration::ZERO).await.unwrap();
    assert_eq!(claims.len(), 3);
    assert_eq!(text(claims[0].id), before);
    assert_eq!(body(&claims[0]).as_ref(), b"a");
    assert_eq!(&*claims[0].message.id, before.as_str());
    assert_eq!(&*claims[0].message.queue, KEY);
    let ms: u64 = before.split_once('-').unwrap().0.parse().unwrap();
    assert_eq!(claims[0].message.enqueued_ms, ms);
    assert!(
        claims
            .iter()
            .all(|c| c.native == 1 && c.origin == Origin::Fresh)
    );
    assert_eq!(body(&claims[1]).as_ref(), br#"{"id":"1","amount":"5"}"#);
    assert_eq!(claims[2].header, 3);
    assert_eq!(&*claims[2].message.id, "m-7");
    let Raw::Fields(fields) = &claims[2].raw else {
        panic!("a stream's raw form is fields")
    };
    assert_eq!(fields.len(), 3);
    assert!(other.fetch(10, Duration::ZERO).await.unwrap().is_empty());
    assert!(
        host.fetch(0, Duration::from_secs(9))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn resp3_reads_the_same() {
    let scene = Scene::new().await;
    let url = format!("{}?protocol=resp3", scene.server.url());
    let host =
        hostler::queue::stream::StreamQueue::open(crate::queue_scene::connector(&url), options())
            .await
            .unwrap();
    let claims = scene.read(&host, &["a", "b"]).await;
    assert_eq!(body(&claims[1]).as_ref(), b"b");
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Done
    );
    assert_eq!(host.take_due(9).await.unwrap().claims.len(), 1);
    scene.age(&host, claims[1].id, 1).await;
    assert_eq!(orphans(&host, 9).await.claims.len(), 1);
    assert_eq!(
        settle(&host, &claims[1], 1, dead_letter()).await,
        Reply::Done
    );
    host.acknowledge(&claims).await.unwrap();
    let backlog = host.backlog().await.unwrap();
    assert_eq!(backlog, Backlog::default());
    host.maintain().await.unwrap();
    host.leave().await.unwrap();
}

#[tokio::test]
async fn a_waiting_fetch_wakes_for_a_message_and_for_an_interruption() {
    let scene = Scene::new().await;
    let host = Arc::new(scene.host().await);
    let long = Duration::from_secs(15);

    let waiting = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.fetch(5, long).await }
    });
    blocked(&scene, 1).await;
    scene.raw.add(KEY, "a").await;
    assert_eq!(waiting.await.unwrap().unwrap().len(), 1);

    let begun = Instant::now();
    let waiting = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.fetch(5, long).await }
    });
    blocked(&scene, 1).await;
    host.interrupt().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_empty());

    // Before a fetch, it makes the next one not wait; and only that one.
    host.interrupt().await.unwrap();
    assert!(host.fetch(5, long).await.unwrap().is_empty());
    assert!(begun.elapsed() < long);
    let short = Duration::from_millis(80);
    let begun = Instant::now();
    assert!(host.fetch(5, short).await.unwrap().is_empty());
    assert!(begun.elapsed() >= short);
}

/// Wait until the server has this many blocked clients.
async fn blocked(scene: &Scene, clients: usize) {
    let line = format!("blocked_clients:{clients}\r\n");
    eventually("a client is blocked", || async {
        scene.raw.text("INFO clients").await.contains(&line)
    })
    .await;
}

#[tokio::test]
async fn a_new_group_begins_where_it_is_told() {
    let scene = Scene::new().await;
    scene.raw.add(KEY, "old").await;
    let late = scene
        .host_with(StreamOptions {
            group: "late".into(),
            start: GroupStart::End,
            ..options()
        })
        .await;
    let all = scene.host().await;
    assert!(late.fetch(9, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(all.fetch(9, Duration::ZERO).await.unwrap().len(), 1);
    // Where the group exists, its place stays.
    let again = scene.host().await;
    assert!(again.fetch(9, Duration::ZERO).await.unwrap().is_empty());
}

#[tokio::test]
async fn acknowledged_is_gone_whoever_holds_it() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let bodies: Vec<String> = (0..2500).map(|i| i.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let claims = scene.read(&one, &bodies).await;
    assert_eq!(one.backlog().await.unwrap().pending, 2500);
    two.acknowledge(&claims).await.unwrap();
    one.acknowledge(&claims).await.unwrap();
    one.acknowledge(&[]).await.unwrap();
    assert_eq!(one.backlog().await.unwrap(), Backlog::default());
    assert_eq!(scene.raw.number("XLEN orders").await, 2500);
}

#[tokio::test]
async fn a_start_is_recorded_for_its_owner_and_count_only() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a", "b", "c", "d"]).await;
    let record = |i: usize, expect, write| Record {
        claim: Arc::clone(&claims[i]),
        expect,
        write,
    };
    let records = [record(0, 1, 2), record(1, 2, 3), record(2, 1, 2)];
    scene
        .raw
        .ask(&format!("XACK orders g {}", text(claims[2].id)))
        .await;
    let replies = one.record(&records).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Stolen, Reply::Gone]);
    assert_eq!(scene.held(claims[0].id).await.unwrap().1, 2);
    assert_eq!(scene.held(claims[1].id).await.unwrap().1, 1);
    // A repeat after a lost reply.
    assert_eq!(one.record(&records[..1]).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.held(claims[0].id).await.unwrap().1, 2);
    // A recorded start is 2 where it is the last, whatever it was: also 0 of a handed-back one.
    scene.give(one.consumer(), claims[3].id, 0, 0).await;
    assert_eq!(one.record(&[record(3, 0, 2)]).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.held(claims[3].id).await.unwrap().1, 2);
    // Not the owner.
    assert_eq!(
        two.record(&[record(0, 2, 3)]).await.unwrap(),
        [Reply::Stolen]
    );
    assert_eq!(
        scene.held(claims[0].id).await.unwrap(),
        (one.consumer().to_owned(), 2)
    );
}

#[tokio::test]
async fn recording_and_renewing_thousands_answers_each_in_its_place() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let bodies = vec!["x"; 3000];
    let claims = scene.read(&host, &bodies).await;
    let gone: Vec<_> = claims.iter().step_by(7).cloned().collect();
    host.acknowledge(&gone).await.unwrap();
    let expected: Vec<Reply> = (0..claims.len())
        .map(|i| if i % 7 == 0 { Reply::Gone } else { Reply::Done })
        .collect();
    assert_eq!(host.renew(&claims).await.unwrap(), expected);
    let records: Vec<Record> = claims
        .iter()
        .map(|claim| Record {
            claim: Arc::clone(claim),
            expect: 1,
            write: 2,
        })
        .collect();
    assert_eq!(host.record(&records).await.unwrap(), expected);
    assert_eq!(host.record(&[]).await.unwrap(), []);
    assert_eq!(host.renew(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn renewal_keeps_the_count_and_steals_nothing() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a", "b"]).await;
    scene.age(&one, claims[0].id, 3).await;
    scene.give(two.consumer(), claims[1].id, 1, 7000).await;
    let replies = one.renew(&claims).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Stolen]);
    let pending = scene.raw.pending(KEY, GROUP).await;
    assert_eq!(
        (pending[0].count, &*pending[0].consumer),
        (3, one.consumer())
    );
    assert!(pending[0].idle_ms < 5000);
    assert_eq!(pending[1].consumer, two.consumer());
    assert!(pending[1].idle_ms >= 7000);
}

#[tokio::test]
async fn parked_until_due_then_taken_with_its_count() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["now", "later", "back"]).await;
    let count_two = Record {
        claim: Arc::clone(&claims[0]),
        expect: 1,
        write: 2,
    };
    one.record(&[count_two]).await.unwrap();
    let settlement = |i: usize, count, step| Settlement {
        claim: Arc::clone(&claims[i]),
        count,
        step,
    };
    let settlements = [
        settlement(0, 2, park(2, Duration::ZERO)),
        settlement(1, 1, park(1, Duration::from_secs(40))),
        // Handed back: never started.
        settlement(2, 1, park(0, Duration::ZERO)),
    ];
    let done = [Reply::Done, Reply::Done, Reply::Done];
    assert_eq!(one.settle(&settlements).await.unwrap(), done);
    // A repeat after a lost reply.
    assert_eq!(one.settle(&settlements).await.unwrap(), done);
    let parked = |count| Some((PARKED_CONSUMER.to_owned(), count));
    assert_eq!(scene.held(claims[0].id).await, parked(2));
    assert_eq!(scene.held(claims[2].id).await, parked(0));
    assert_eq!(scene.raw.number(&format!("ZCARD {PARKED}")).await, 3);

    // Any host takes what is due.
    let first = two.take_due(1).await.unwrap();
    assert_eq!(first.claims.len(), 1);
    assert_eq!(first.next_due, Some(Duration::ZERO));
    let rest = two.take_due(9).await.unwrap();
    assert_eq!(rest.claims.len(), 1);
    let wait = rest.next_due.unwrap();
    assert!(
        wait > Duration::from_secs(30) && wait <= Duration::from_secs(40),
        "{wait:?}"
    );
    let mut taken: Vec<_> = first.claims.into_iter().chain(rest.claims).collect();
    taken.sort_by_key(|claim| claim.id);
    assert_eq!((taken[0].id, taken[0].native), (claims[0].id, 2));
    assert_eq!((taken[1].id, taken[1].native), (claims[2].id, 0));
    assert_eq!(body(&taken[0]).as_ref(), b"now");
    assert!(taken.iter().all(|c| c.origin == Origin::Returned));
    assert!(
        taken[0]
            .message
            .headers
            .find(REDIS_DELIVERY_COUNT)
            .is_none()
    );
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((two.consumer().to_owned(), 2))
    );
    // A park whose delivery somebody took meanwhile.
    assert_eq!(
        one.settle(&settlements[..1]).await.unwrap(),
        [Reply::Stolen]
    );
}

#[tokio::test]
async fn a_due_time_without_its_delivery_goes() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene
        .read(&host, &["acked late", "taken over", "trimmed"])
        .await;
    for claim in &claims {
        settle(&host, claim, 1, park(1, Duration::ZERO)).await;
    }
    host.acknowledge(&claims[..1]).await.unwrap();
    scene.give("somebody", claims[1].id, 1, 0).await;
    scene
        .raw
        .ask(&format!("XDEL orders {}", text(claims[2].id)))
        .await;
    let taken = host.take_due(9).await.unwrap();
    assert!(taken.claims.is_empty());
    assert_eq!((taken.trimmed, taken.next_due), (1, None));
    assert_eq!(scene.raw.number(&format!("ZCARD {PARKED}")).await, 0);
    assert_eq!(
        scene.held(claims[1].id).await,
        Some(("somebody".to_owned(), 1))
    );
    assert_eq!(host.backlog().await.unwrap().pending, 1);
}

#[tokio::test]
async fn parked_without_a_due_time_is_due_now() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b", "c"]).await;
    for claim in &claims {
        settle(&host, claim, 1, park(1, Duration::from_secs(60))).await;
    }
    scene
        .raw
        .ask(&format!("ZREM {PARKED} {}", text(claims[1].id)))
        .await;
    let taken = orphans(&host, 9).await;
    assert_eq!(taken.claims.len(), 1);
    assert_eq!(taken.claims[0].id, claims[1].id);
    assert_eq!(taken.claims[0].origin, Origin::Returned);
    assert_eq!(taken.claims[0].native, 1);
    assert!(orphans(&host, 9).await.claims.is_empty());
    // All of them, in bounded bites, whatever one scan may take.
    scene.raw.ask(&format!("DEL {PARKED}")).await;
    assert_eq!(orphans(&host, 1).await.claims.len(), 1);
    assert_eq!(orphans(&host, 1).await.claims.len(), 1);
    assert!(orphans(&host, 1).await.claims.is_empty());
}

#[tokio::test]
async fn the_sweep_of_parked_deliveries_reaches_every_page() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &vec!["x"; 2300]).await;
    let settlements: Vec<Settlement> = claims
        .iter()
        .map(|claim| Settlement {
            claim: Arc::clone(claim),
            count: 1,
            step: park(1, Duration::from_secs(60)),
        })
        .collect();
    host.settle(&settlements).await.unwrap();
    scene
        .raw
        .ask(&format!("ZREM {PARKED} {}", text(claims[2299].id)))
        .await;
    let mut scans = 0;
    loop {
        scans += 1;
        let taken = orphans(&host, 9).await;
        if !taken.claims.is_empty() {
            assert_eq!(taken.claims[0].id, claims[2299].id);
            break;
        }
        assert!(scans < 12, "not found in {scans} scans");
    }
}

#[tokio::test]
async fn orphans_of_others_are_claimed_with_their_count() {
    let scene = Scene::new().await;
    let (dead, host) = (scene.host().await, scene.host().await);
    let claims = scene.read(&dead, &["a", "b", "young", "parked"]).await;
    settle(&dead, &claims[3], 1, park(1, Duration::from_secs(60))).await;
    scene.age(&dead, claims[0].id, 1).await;
    scene.age(&dead, claims[1].id, 3).await;
    scene.give(PARKED_CONSUMER, claims[3].id, 1, 90_000).await;
    let own = scene.read(&host, &["own"]).await;
    scene.age(&host, own[0].id, 1).await;

    let holds = |id: &_| *id == own[0].id;
    let taken = host.take_orphans(9, &holds).await.unwrap();
    assert_eq!(taken.claims.len(), 2);
    assert_eq!((taken.trimmed, taken.next_due), (0, None));
    for (claim, (old, count)) in taken.claims.iter().zip([(&claims[0], 1), (&claims[1], 3)]) {
        assert_eq!((claim.id, claim.native), (old.id, count));
        let Origin::Orphan { idle } = claim.origin else {
            panic!("{:?}", claim.origin)
        };
        assert!(idle >= Duration::from_secs(60));
        let headers = &claim.message.headers;
        assert_eq!(
            headers.find_number(REDIS_DELIVERY_COUNT),
            Some(u64::from(count))
        );
        assert!(headers.find_number(REDIS_IDLE_MS).unwrap() >= 60_000);
        assert_eq!(claim.raw, old.raw);
        assert_eq!(
            scene.held(claim.id).await,
            Some((host.consumer().to_owned(), count))
        );
    }
    assert!(
        host.take_orphans(9, &holds)
            .await
            .unwrap()
            .claims
            .is_empty()
    );
}

#[tokio::test]
async fn orphans_are_bounded_and_no_dead_consumer_waits_for_ever() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let mut left = 0;
    for _ in 0..40 {
        let dead = scene.host().await;
        for claim in scene.read(&dead, &["a", "b"]).await {
            scene.age(&dead, claim.id, 1).await;
            left += 1;
        }
    }
    assert!(
        host.take_orphans(0, &holds_nothing)
            .await
            .unwrap()
            .claims
            .is_empty()
    );
    while left > 0 {
        let taken = orphans(&host, 3).await.claims.len();
        assert!(taken > 0 && taken <= 3, "{taken} with {left} left");
        left -= taken;
    }
}

#[tokio::test]
async fn a_reply_lost_on_its_way_is_found_again() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["held", "lost", "young"]).await;
    let half = u64::try_from(MIN_IDLE.as_millis()).unwrap() / 2;
    scene
        .give(host.consumer(), claims[0].id, 1, half + 500)
        .await;
    scene
        .give(host.consumer(), claims[1].id, 1, half + 500)
        .await;
    let holds = |id: &_| *id == claims[0].id;
    let taken = host.take_orphans(9, &holds).await.unwrap();
    assert_eq!(taken.claims.len(), 1);
    assert_eq!(
        (taken.claims[0].id, taken.claims[0].native),
        (claims[1].id, 1)
    );
    assert!(matches!(taken.claims[0].origin, Origin::Orphan { .. }));
    assert_eq!(body(&taken.claims[0]).as_ref(), b"lost");
    assert!(
        host.take_orphans(9, &holds)
            .await
            .unwrap()
            .claims
            .is_empty()
    );
}

#[tokio::test]
async fn what_was_renewed_since_it_was_listed_is_not_adopted() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["young", "old"]).await;
    scene.give(host.consumer(), claims[1].id, 1, 9000).await;
    let script = hostler::redis::script::Script::Adopt.source();
    let (young, old) = (text(claims[0].id), text(claims[1].id));
    let words = [
        "EVAL",
        script,
        "1",
        KEY,
        GROUP,
        host.consumer(),
        "8000",
        "100000",
        &young,
        &old,
    ];
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    let reply = scene.raw.ask_words(&words).await;
    let reply = format!("{reply:?}");
    assert!(reply.contains(&old) && !reply.contains(&young), "{reply}");
}

#[tokio::test]
async fn own_lost_deliveries_behind_a_thousand_held_ones_are_found() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &vec!["x"; 1100]).await;
    for claim in &claims {
        scene.age(&host, claim.id, 1).await;
    }
    let lost = claims[1090].id;
    let holds = |id: &_| *id != lost;
    let first = host.take_orphans(9, &holds).await.unwrap();
    let second = host.take_orphans(9, &holds).await.unwrap();
    assert_eq!(first.claims.len() + second.claims.len(), 1);
}

#[tokio::test]
async fn a_suspect_left_on_drain_is_an_orphan_at_once() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a"]).await;
    scene.give(one.consumer(), claims[0].id, 3, 0).await;
    // Its start was recorded and never came: the record is taken back.
    for _ in 0..2 {
        let reply = settle(&one, &claims[0], 3, Step::Leave { keep: 2 }).await;
        assert_eq!(reply, Reply::Done);
    }
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((one.consumer().to_owned(), 2))
    );
    one.leave().await.unwrap();
    let taken = orphans(&two, 9).await;
    assert_eq!(
        (taken.claims[0].id, taken.claims[0].native),
        (claims[0].id, 2)
    );
}

#[tokio::test]
async fn a_dead_letter_is_the_original_and_why() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    scene
        .raw
        .ask_words(&[
            b"XADD",
            b"orders",
            b"*",
            b"_payload",
            b"\x00\xff body",
            b"h:Trace",
            b"\xfe",
            b"odd",
            b"1",
            b"odd",
            b"2",
        ])
        .await;
    let claim = Arc::new(host.fetch(1, Duration::ZERO).await.unwrap().remove(0));
    assert_eq!(settle(&host, &claim, 1, dead_letter()).await, Reply::Done);
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
    let dead = scene.raw.entries(DEAD).await;
    assert_eq!(dead.len(), 1);
    let fields = &dead[0].1;
    assert_eq!(field(fields, "_payload"), Some(&b"\x00\xff body"[..]));
    assert_eq!(field(fields, "h:Trace"), Some(&b"\xfe"[..]));
    let odd: Vec<_> = fields
        .chunks(2)
        .filter(|p| p[0] == b"odd")
        .map(|p| &p[1])
        .collect();
    assert_eq!(odd, [&b"1".to_vec(), &b"2".to_vec()]);
    let id = text(claim.id);
    for (name, value) in [
        ("h:x-dead-letter-reason", Reason::Dropped.label()),
        ("h:x-dead-letter-source", KEY),
        ("h:x-dead-letter-source-id", &id),
        ("h:x-dead-letter-group", GROUP),
        ("h:x-dead-letter-handler", "sha256:aa"),
        ("h:x-dead-letter-attempts", "1"),
    ] {
        assert_eq!(field(fields, name), Some(value.as_bytes()), "{name}");
    }
    // A repeat after a lost reply makes no second copy.
    assert_eq!(settle(&host, &claim, 1, dead_letter()).await, Reply::Gone);
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 1);
}

#[tokio::test]
async fn an_entry_with_more_fields_than_lua_can_pass_is_dead_lettered() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let names: Vec<String> = (0..20_000).map(|i| format!("f{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*"];
    for name in &names {
        words.extend([name.as_bytes(), b"v"]);
    }
    scene.raw.ask_words(&words).await;
    let wide = Arc::new(host.fetch(1, Duration::ZERO).await.unwrap().remove(0));
    assert_eq!(settle(&host, &wide, 2, dead_letter()).await, Reply::Stolen);
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 0);
    assert_eq!(settle(&host, &wide, 1, dead_letter()).await, Reply::Done);
    assert_eq!(settle(&host, &wide, 1, dead_letter()).await, Reply::Gone);
    let dead = scene.raw.entries(DEAD).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(field(&dead[0].1, "f19999"), Some(&b"v"[..]));
    assert_eq!(
        field(&dead[0].1, "h:x-dead-letter-reason"),
        Some(&b"dropped"[..])
    );
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
}

#[tokio::test]
async fn the_widest_entry_that_a_script_carries_passes() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    // With the host's own headers just below the bound, and just above it.
    for count in [3400, 3480, 3490, 3500] {
        let names: Vec<String> = (0..count).map(|i| format!("f{i}")).collect();
        let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*"];
        for name in &names {
            words.extend([name.as_bytes(), b"v"]);
        }
        scene.raw.ask_words(&words).await;
        let claim = Arc::new(host.fetch(1, Duration::ZERO).await.unwrap().remove(0));
        assert_eq!(
            settle(&host, &claim, 1, dead_letter()).await,
            Reply::Done,
            "{count}"
        );
    }
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 4);
}

#[tokio::test]
async fn two_groups_never_see_each_other() {
    let scene = Scene::new().await;
    let one = scene.host().await;
    let two = scene
        .host_with(StreamOptions {
            group: "other".into(),
            ..options()
        })
        .await;
    let first = scene.read(&one, &["a", "b", "c"]).await;
    let second: Vec<_> = two.fetch(9, Duration::ZERO).await.unwrap();
    assert_eq!(second.len(), 3);
    let record = Record {
        claim: Arc::clone(&first[0]),
        expect: 1,
        write: 2,
    };
    one.record(&[record]).await.unwrap();
    settle(&one, &first[0], 2, park(2, Duration::ZERO)).await;
    settle(&one, &first[1], 1, dead_letter()).await;
    one.acknowledge(&first[2..]).await.unwrap();
    assert!(two.take_due(9).await.unwrap().claims.is_empty());
    let pending = scene.raw.pending(KEY, "other").await;
    assert_eq!(pending.len(), 3);
    assert!(
        pending
            .iter()
            .all(|p| p.count == 1 && p.consumer == two.consumer())
    );
    assert!(two.fetch(9, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(one.take_due(9).await.unwrap().claims.len(), 1);
}

#[tokio::test]
async fn the_backlog_says_what_waits() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.add(KEY, "b").await;
    let both = Backlog {
        unread: true,
        pending: 1,
    };
    assert_eq!(host.backlog().await.unwrap(), both);
    // A deleted entry is not unread, whatever `lag` says.
    scene.raw.ask("XTRIM orders MAXLEN 0").await;
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
}
