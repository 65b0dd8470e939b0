//! The stream queue without faults: each operation, and its effect on the group.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::{REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use hostler::delivery::policy::Reason;
use hostler::queue::stream::scripts;
use hostler::queue::stream::{GroupStart, PARKED_CONSUMER, StreamOptions, StreamQueue};
use hostler::queue::{Backlog, Claim, Origin, Queue, Record, Reply, SettleAction};
use hostler::wire::Raw;
use hostler_tests::redis::eventually;

use crate::queue::queue_scene::{
    DEAD, GROUP, KEY, MIN_IDLE, PARKED, Scene, body, connector, dead_letter, due, field, options,
    orphans_beside, park, settlements, text,
};
use crate::scene::{
    bodies, fetch, is_empty, orphaned, record, repeated, requeue, settle, settled, settlement,
};

/// Without transactions, every connection that breaks behind the copy would leave one.
#[tokio::test]
async fn a_dead_letter_with_very_many_fields_is_refused_without_the_right_to_transactions() {
    for right in ["multi", "exec"] {
        let scene = Scene::with_user(&format!("-{right}")).await;
        let host = StreamQueue::open(connector(&scene.user_url()), options()).await;
        let host = host.unwrap();
        let claim = read_wide(&scene, &host, 4000).await;
        let settlement = [settlement(&claim, 1, dead_letter())];
        let replies = host.settle(&settlement).await.unwrap();
        let is_refused =
            matches!(&replies[0], Reply::Refused(why) if why.contains("multi and exec"));
        assert!(is_refused, "{replies:?}");
        assert_eq!(scene.length(DEAD).await, 0);
        scene.assert_held(claim.id, host.consumer(), 1).await;
        scene.rights(&format!("+{right}")).await;
        assert_eq!(host.settle(&settlement).await.unwrap(), [Reply::Done]);
        assert_eq!(scene.length(DEAD).await, 1);
    }
}

/// An entry with this many fields, read by the host.
pub(crate) async fn read_wide(scene: &Scene, host: &StreamQueue, fields: usize) -> Arc<Claim> {
    let names: Vec<String> = (0..fields).map(|i| format!("f{i}")).collect();
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*"];
    for name in &names {
        words.extend([name.as_bytes(), b"v"]);
    }
    scene.raw.ask_words(&words).await;
    fetch(host, 1).await.remove(0)
}

#[tokio::test]
async fn fetch_hands_out_each_message_once_in_order() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let other = scene.host().await;
    assert_ne!(host.consumer(), other.consumer());
    let before = scene.raw.add(KEY, "a").await;
    for entry in [
        "id 1 amount 5",
        "_payload b h:x-retry-count 3 h:X-Message-Id m-7",
    ] {
        scene.raw.ask(&format!("XADD orders * {entry}")).await;
    }

    let claims = fetch(&host, 10).await;
    assert_eq!(claims.len(), 3);
    assert_eq!(text(claims[0].id), before);
    assert_eq!(body(&claims[0]), b"a");
    assert_eq!(&*claims[0].message.id, before.as_str());
    assert_eq!(&*claims[0].message.queue, KEY);
    let ms: u64 = before.split_once('-').unwrap().0.parse().unwrap();
    assert_eq!(claims[0].message.enqueued_ms, ms);
    let first = |claim: &Arc<Claim>| (claim.native, claim.origin) == (1, Origin::Fresh);
    assert!(claims.iter().all(first));
    assert_eq!(body(&claims[1]), br#"{"id":"1","amount":"5"}"#);
    assert_eq!(claims[2].header, 3);
    assert_eq!(&*claims[2].message.id, "m-7");
    let Raw::Fields(fields) = &claims[2].raw else {
        panic!("a stream's raw form is fields")
    };
    assert_eq!(fields.len(), 3);
    assert!(fetch(&other, 10).await.is_empty());
    let nothing = host.fetch(0, Duration::from_secs(9)).await.unwrap();
    assert!(nothing.is_empty());
}

#[tokio::test]
async fn resp3_works_like_resp2() {
    let scene = Scene::new().await;
    let url = format!("{}?protocol=resp3", scene.url());
    let host = StreamQueue::open(connector(&url), options()).await.unwrap();
    let claims = scene.read(&host, &["a", "b"]).await;
    assert_eq!(body(&claims[1]), b"b");
    settled(&host, &claims[0], 1, requeue(1)).await;
    assert_eq!(due(&host, 9).await.len(), 1);
    scene.age(&host, claims[1].id, 1).await;
    assert_eq!(orphaned(&host, 9).await.len(), 1);
    settled(&host, &claims[1], 1, dead_letter()).await;
    host.acknowledge(&claims).await.unwrap();
    let backlog = host.backlog().await.unwrap();
    assert_eq!(backlog, Backlog::default());
    host.maintain().await.unwrap();
    host.leave().await.unwrap();
}

#[tokio::test]
async fn a_new_group_begins_at_the_configured_start() {
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
    assert!(fetch(&late, 9).await.is_empty());
    assert_eq!(fetch(&all, 9).await.len(), 1);
    // A group that exists keeps its position.
    let again = scene.host().await;
    assert!(fetch(&again, 9).await.is_empty());
}

#[tokio::test]
async fn any_host_can_acknowledge_a_delivery() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let bodies: Vec<String> = (0..2500).map(|i| i.to_string()).collect();
    let bodies: Vec<&str> = bodies.iter().map(String::as_str).collect();
    let claims = scene.read(&one, &bodies).await;
    assert_eq!(one.backlog().await.unwrap().pending, 2500);
    two.acknowledge(&claims).await.unwrap();
    one.acknowledge(&claims).await.unwrap();
    one.acknowledge(&[]).await.unwrap();
    assert!(is_empty(&one).await);
    assert_eq!(scene.raw.number("XLEN orders").await, 2500);
}

#[tokio::test]
async fn a_start_is_recorded_only_for_the_owner_with_the_expected_count() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a", "b", "c", "d"]).await;
    let record = |i: usize, expect, write| record(&claims[i], expect, write);
    let records = [record(0, 1, 2), record(1, 2, 3), record(2, 1, 2)];
    one.acknowledge(&claims[2..3]).await.unwrap();
    let replies = one.record(&records).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Stolen, Reply::Gone]);
    assert_eq!(scene.held(claims[0].id).await.unwrap().1, 2);
    assert_eq!(scene.held(claims[1].id).await.unwrap().1, 1);
    // Another host may have written the count, unless a reply was lost.
    assert_eq!(one.record(&records[..1]).await.unwrap(), [Reply::Stolen]);
    let again = [repeated(record(0, 1, 2))];
    assert_eq!(one.record(&again).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.held(claims[0].id).await.unwrap().1, 2);
    // The written count replaces any count, also the 0 of a message that was handed back.
    scene.give(one.consumer(), claims[3].id, 0, 0).await;
    assert_eq!(one.record(&[record(3, 0, 2)]).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.held(claims[3].id).await.unwrap().1, 2);
    // Another host does not own the delivery.
    let reply = two.record(&[record(0, 2, 3)]).await.unwrap();
    assert_eq!(reply, [Reply::Stolen]);
    scene.assert_held(claims[0].id, one.consumer(), 2).await;
}

#[tokio::test]
async fn replies_to_thousands_of_records_and_renewals_keep_their_order() {
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
    let records: Vec<Record> = claims.iter().map(|claim| record(claim, 1, 2)).collect();
    assert_eq!(host.record(&records).await.unwrap(), expected);
    assert_eq!(host.record(&[]).await.unwrap(), []);
    assert_eq!(host.renew(&[]).await.unwrap(), []);
}

#[tokio::test]
async fn a_renewal_keeps_the_count_and_takes_no_delivery_from_others() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a", "b"]).await;
    scene.age(&one, claims[0].id, 3).await;
    scene.give(two.consumer(), claims[1].id, 1, 7000).await;
    let replies = one.renew(&claims).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Stolen]);
    let pending = scene.pending().await;
    assert_eq!(
        (pending[0].count, &*pending[0].consumer),
        (3, one.consumer())
    );
    assert!(pending[0].idle_ms < 5000);
    assert_eq!(pending[1].consumer, two.consumer());
    assert!(pending[1].idle_ms >= 7000);
}

#[tokio::test]
async fn a_parked_delivery_is_taken_when_due_with_its_count() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["now", "later", "back"]).await;
    let count_two = record(&claims[0], 1, 2);
    one.record(&[count_two]).await.unwrap();
    let settlement = |i: usize, count, step| settlement(&claims[i], count, step);
    let settlements = [
        settlement(0, 2, requeue(2)),
        settlement(1, 1, park(1, Duration::from_secs(40))),
        // Handed back before its first start.
        settlement(2, 1, requeue(0)),
    ];
    let done = [Reply::Done, Reply::Done, Reply::Done];
    assert_eq!(one.settle(&settlements).await.unwrap(), done);
    // A repeat after a lost reply.
    assert_eq!(one.settle(&settlements).await.unwrap(), done);
    scene.assert_held(claims[0].id, PARKED_CONSUMER, 2).await;
    scene.assert_held(claims[2].id, PARKED_CONSUMER, 0).await;
    assert_eq!(scene.parked().await, 3);

    // Any host takes due deliveries.
    let first = two.take_due(1).await.unwrap();
    assert_eq!(first.claims.len(), 1);
    assert_eq!(first.next_due, Some(Duration::ZERO));
    let rest = two.take_due(9).await.unwrap();
    assert_eq!(rest.claims.len(), 1);
    let wait = rest.next_due.unwrap();
    assert!((30..=40).contains(&wait.as_secs()), "{wait:?}");
    let mut taken: Vec<_> = first.claims.into_iter().chain(rest.claims).collect();
    taken.sort_by_key(|claim| claim.id);
    assert_eq!((taken[0].id, taken[0].native), (claims[0].id, 2));
    assert_eq!((taken[1].id, taken[1].native), (claims[2].id, 0));
    assert_eq!(body(&taken[0]), b"now");
    assert!(taken.iter().all(|c| c.origin == Origin::Returned));
    let headers = &taken[0].message.headers;
    assert!(headers.find(REDIS_DELIVERY_COUNT).is_none());
    scene.assert_held(claims[0].id, two.consumer(), 2).await;
    // Another host has taken the delivery: it cannot be parked again.
    let replies = one.settle(&settlements[..1]).await.unwrap();
    assert_eq!(replies, [Reply::Stolen]);
}

#[tokio::test]
async fn a_due_time_goes_with_its_delivery_and_waits_while_another_host_has_it() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let bodies = ["acked late", "taken over", "trimmed"];
    let claims = scene.read(&host, &bodies).await;
    for claim in &claims {
        settle(&host, claim, 1, requeue(1)).await;
    }
    host.acknowledge_late(&claims[..1]).await.unwrap();
    scene.give("somebody", claims[1].id, 1, 0).await;
    let trimmed = text(claims[2].id);
    scene.raw.ask(&format!("XDEL orders {trimmed}")).await;
    let taken = host.take_due(9).await.unwrap();
    assert!(taken.claims.is_empty());
    assert_eq!(taken.trimmed, 1);
    // Its new host may not know it yet.
    let wait = taken.next_due.unwrap();
    // To the next millisecond.
    let most = 2 * MIN_IDLE + Duration::from_millis(1);
    assert!(wait > MIN_IDLE && wait <= most, "{wait:?}");
    assert_eq!(scene.parked().await, 1);
    scene.assert_held(claims[1].id, "somebody", 1).await;
    assert_eq!(host.backlog().await.unwrap().pending, 1);
    // It goes with the next start.
    scene.give("somebody", claims[1].id, 1, 60_000).await;
    assert_eq!(orphaned(&host, 9).await.len(), 1);
    assert_eq!(scene.parked().await, 1);
    host.record(&[record(&claims[1], 1, 2)]).await.unwrap();
    assert_eq!(scene.parked().await, 0);
}

/// The client of the host that watches what is due, as `CLIENT LIST` shows it.
async fn watching(scene: &Scene) -> Option<String> {
    let clients = scene.raw.text("CLIENT LIST").await;
    let mut lines = clients.lines();
    lines
        .find(|line| line.contains(":changes "))
        .map(str::to_owned)
}

#[tokio::test]
async fn what_becomes_due_before_the_server_announces_it_is_not_believed_to_be_nothing() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let nothing = async || host.take_due(9).await.unwrap().claims.is_empty();
    eventually("nothing is known to be due", async || {
        nothing().await && host.known_due().is_some()
    })
    .await;
    // It connects again after half a second at least: on a busy machine that may be too early.
    loop {
        let client = watching(&scene).await.unwrap();
        let id = client.split_once("id=").unwrap().1;
        let id = id.split(' ').next().unwrap();
        scene.raw.ask(&format!("CLIENT KILL ID {id}")).await;
        eventually("nothing is known", async || host.known_due().is_none()).await;
        for _ in 0..3 {
            assert!(nothing().await);
        }
        if watching(&scene).await.is_none() {
            break;
        }
        eventually("it watches", async || {
            nothing().await && host.known_due().is_some()
        })
        .await;
    }
    scene.raw.ask("ZADD {orders}:delayed 1 due").await;
    eventually("the server announces changes again", async || {
        let client = watching(&scene).await;
        client.is_some_and(|line| line.contains("cmd=exists"))
    })
    .await;
    assert!(host.known_due().is_none());
    assert!(nothing().await);
    assert_eq!(bodies(&fetch(&host, 1).await), ["due"]);
}

#[tokio::test]
async fn a_parked_delivery_without_a_due_time_is_due_now() {
    let (scene, host, claims) = Scene::reading(&["a", "b", "c"]).await;
    for claim in &claims {
        settle(&host, claim, 1, park(1, Duration::from_secs(60))).await;
    }
    let id = text(claims[1].id);
    scene.raw.ask(&format!("ZREM {PARKED} {id}")).await;
    let taken = orphaned(&host, 9).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].id, taken[0].native), (claims[1].id, 1));
    assert_eq!(taken[0].origin, Origin::Returned);
    assert!(orphaned(&host, 9).await.is_empty());
    // Small scans find all of them.
    scene.delete(PARKED).await;
    assert_eq!(orphaned(&host, 1).await.len(), 1);
    assert_eq!(orphaned(&host, 1).await.len(), 1);
    assert!(orphaned(&host, 1).await.is_empty());
}

#[tokio::test]
async fn the_scan_of_parked_deliveries_reaches_every_page() {
    let (scene, host, claims) = Scene::reading(&vec!["x"; 2300]).await;
    let all = settlements(&claims, &park(1, Duration::from_secs(60)));
    host.settle(&all).await.unwrap();
    let id = text(claims[2299].id);
    scene.raw.ask(&format!("ZREM {PARKED} {id}")).await;
    let mut found = Vec::new();
    for _ in 0..12 {
        found.extend(orphaned(&host, 9).await);
    }
    let found: Vec<_> = found.iter().map(|claim| claim.id).collect();
    assert_eq!(found, [claims[2299].id]);
}

#[tokio::test]
async fn orphans_of_other_hosts_are_claimed_with_their_count() {
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
        assert!(matches!(claim.origin, Origin::Orphan { idle } if idle.as_secs() >= 60));
        let header = |name| claim.message.headers.find_number(name).unwrap();
        assert_eq!(header(REDIS_DELIVERY_COUNT), u64::from(count));
        assert!(header(REDIS_IDLE_MS) >= 60_000);
        assert_eq!(claim.raw, old.raw);
        scene.assert_held(claim.id, host.consumer(), count).await;
    }
    assert!(orphans_beside(&host, 9, &[own[0].id]).await.is_empty());
}

#[tokio::test]
async fn scans_for_orphans_are_bounded_and_reach_every_dead_consumer() {
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
    assert!(orphaned(&host, 0).await.is_empty());
    while left > 0 {
        let taken = orphaned(&host, 3).await.len();
        assert!(taken > 0 && taken <= 3, "{taken} with {left} left");
        left -= taken;
    }
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_found_again() {
    let (scene, host, claims) = Scene::reading(&["held", "lost", "young"]).await;
    let half = u64::try_from(MIN_IDLE.as_millis()).unwrap() / 2;
    for claim in &claims[..2] {
        let idle = half + 500;
        scene.give(host.consumer(), claim.id, 1, idle).await;
    }
    let held = [claims[0].id];
    let taken = orphans_beside(&host, 9, &held).await;
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].id, taken[0].native), (claims[1].id, 1));
    assert!(matches!(taken[0].origin, Origin::Orphan { .. }));
    assert_eq!(body(&taken[0]), b"lost");
    assert!(orphans_beside(&host, 9, &held).await.is_empty());
}

#[tokio::test]
async fn a_delivery_that_was_renewed_after_the_scan_is_not_adopted() {
    let (scene, host, claims) = Scene::reading(&["young", "old"]).await;
    scene.give(host.consumer(), claims[1].id, 1, 9000).await;
    let script = scripts::ADOPT.source();
    let (young, old) = (text(claims[0].id), text(claims[1].id));
    let call = ["EVAL", script, "2", KEY, PARKED, GROUP, host.consumer()];
    let arguments = ["8000", "100000", "1000", &young, &old];
    let words: Vec<_> = call
        .iter()
        .chain(&arguments)
        .map(|w| w.as_bytes())
        .collect();
    let reply = format!("{:?}", scene.raw.ask_words(&words).await);
    assert!(reply.contains(&old) && !reply.contains(&young), "{reply}");
}

#[tokio::test]
async fn a_lost_delivery_behind_a_thousand_held_ones_is_found() {
    let (scene, host, claims) = Scene::reading(&vec!["x"; 1100]).await;
    for claim in &claims {
        scene.age(&host, claim.id, 1).await;
    }
    let lost = claims[1090].id;
    let mut held: Vec<_> = claims.iter().map(|claim| claim.id).collect();
    held.retain(|id| *id != lost);
    let mut found = orphans_beside(&host, 9, &held).await;
    found.extend(orphans_beside(&host, 9, &held).await);
    assert_eq!(
        found.iter().map(|claim| claim.id).collect::<Vec<_>>(),
        [lost]
    );
}

#[tokio::test]
async fn a_suspect_left_on_drain_is_an_orphan_at_once() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let claims = scene.read(&one, &["a"]).await;
    scene.give(one.consumer(), claims[0].id, 3, 0).await;
    // The host recorded a start that never happened: it takes the record back.
    for _ in 0..2 {
        settled(&one, &claims[0], 3, SettleAction::Leave { keep: 2 }).await;
    }
    scene.assert_held(claims[0].id, one.consumer(), 2).await;
    one.leave().await.unwrap();
    let taken = &orphaned(&two, 9).await[0];
    assert_eq!((taken.id, taken.native), (claims[0].id, 2));
}

#[tokio::test]
async fn a_dead_letter_is_the_original_with_the_reason() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let add: [&[u8]; 3] = [b"XADD", b"orders", b"*"];
    let entry: [&[u8]; 4] = [b"_payload", b"\x00\xff body", b"h:Trace", b"\xfe"];
    let twice: [&[u8]; 4] = [b"odd", b"1", b"odd", b"2"];
    let words = [&add[..], &entry, &twice].concat();
    scene.raw.ask_words(&words).await;
    let claim = fetch(&host, 1).await.remove(0);
    settled(&host, &claim, 1, dead_letter()).await;
    assert!(is_empty(&host).await);
    let dead = scene.raw.entries(DEAD).await;
    assert_eq!(dead.len(), 1);
    let fields = &dead[0].1;
    assert_eq!(field(fields, "_payload"), Some(&b"\x00\xff body"[..]));
    assert_eq!(field(fields, "h:Trace"), Some(&b"\xfe"[..]));
    let odd = fields.chunks(2).filter(|pair| pair[0] == b"odd");
    let odd: Vec<_> = odd.map(|pair| &pair[1][..]).collect();
    assert_eq!(odd, [b"1", b"2"]);
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
    assert_eq!(scene.length(DEAD).await, 1);
}

#[tokio::test]
async fn an_entry_with_more_fields_than_lua_can_pass_is_dead_lettered() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let wide = read_wide(&scene, &host, 20_000).await;
    assert_eq!(settle(&host, &wide, 2, dead_letter()).await, Reply::Stolen);
    assert_eq!(scene.length(DEAD).await, 0);
    settled(&host, &wide, 1, dead_letter()).await;
    assert_eq!(settle(&host, &wide, 1, dead_letter()).await, Reply::Gone);
    let dead = scene.raw.entries(DEAD).await;
    assert_eq!(dead.len(), 1);
    assert_eq!(field(&dead[0].1, "f19999"), Some(&b"v"[..]));
    let reason = field(&dead[0].1, "h:x-dead-letter-reason");
    assert_eq!(reason, Some(&b"dropped"[..]));
    assert!(is_empty(&host).await);
}

/// A transaction goes on behind an error: the copy would stand, and the next try would write another one.
#[tokio::test]
async fn a_forgotten_script_costs_a_very_wide_entry_no_second_copy() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let wide = read_wide(&scene, &host, 4000).await;
    // The script that is asked before is there, so only the one in the transaction is missing.
    scene.raw.ask("SCRIPT FLUSH").await;
    let holds = scripts::HOLDS.source().as_bytes();
    scene.raw.ask_words(&[b"SCRIPT", b"LOAD", holds]).await;
    settled(&host, &wide, 1, dead_letter()).await;
    assert_eq!(scene.length(DEAD).await, 1);
    assert!(is_empty(&host).await);
}

#[tokio::test]
async fn the_widest_entry_that_a_script_can_pass_is_dead_lettered() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    // Together with the host's headers: just below the bound, and just above it.
    for fields in [3400, 3480, 3490, 3500] {
        let claim = read_wide(&scene, &host, fields).await;
        let reply = settle(&host, &claim, 1, dead_letter()).await;
        assert_eq!(reply, Reply::Done, "{fields}");
    }
    assert_eq!(scene.length(DEAD).await, 4);
}

#[tokio::test]
async fn two_groups_do_not_affect_each_other() {
    let scene = Scene::new().await;
    let one = scene.host().await;
    let two = scene.host_of("other").await;
    let first = scene.read(&one, &["a", "b", "c"]).await;
    assert_eq!(fetch(&two, 9).await.len(), 3);
    one.record(&[record(&first[0], 1, 2)]).await.unwrap();
    settle(&one, &first[0], 2, requeue(2)).await;
    settle(&one, &first[1], 1, dead_letter()).await;
    one.acknowledge(&first[2..]).await.unwrap();
    assert!(due(&two, 9).await.is_empty());
    let pending = scene.raw.pending(KEY, "other").await;
    assert_eq!(pending.len(), 3);
    for pending in pending {
        assert_eq!((pending.count, &*pending.consumer), (1, two.consumer()));
    }
    assert!(fetch(&two, 9).await.is_empty());
    assert_eq!(due(&one, 9).await.len(), 1);
}

#[tokio::test]
async fn the_backlog_reports_unread_and_pending_entries() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    assert!(is_empty(&host).await);
    let claims = scene.read(&host, &["a"]).await;
    scene.raw.add(KEY, "b").await;
    let both = Backlog {
        unread: true,
        pending: 1,
        outbox: 0,
    };
    assert_eq!(host.backlog().await.unwrap(), both);
    // A deleted entry is not unread, although the `lag` of Redis may count it.
    scene.trim_all().await;
    host.acknowledge(&claims).await.unwrap();
    assert!(is_empty(&host).await);
}

/// Copies with the same fields share a script, which gets once what they have in common.
#[tokio::test]
async fn dead_letters_of_several_shapes_in_one_request_are_whole() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let shapes = |n: usize| match n % 4 {
        0 => vec![],
        1 => vec![("h:tenant", n.to_string())],
        // The script takes it from the entry.
        2 => vec![("note", n.to_string().repeat(5000))],
        _ => vec![("h:tenant", "7".to_owned()), ("note", String::new())],
    };
    for n in 0..90 {
        let (body, more) = (n.to_string(), shapes(n));
        let mut words: Vec<&[u8]> = vec![b"XADD", KEY.as_bytes(), b"*", b"_payload"];
        words.push(body.as_bytes());
        words.extend(more.iter().flat_map(|(n, v)| [n.as_bytes(), v.as_bytes()]));
        scene.raw.ask_words(&words).await;
    }
    let mut claims = Vec::new();
    while claims.len() < 90 {
        claims.extend(fetch(&host, 90).await);
    }
    let all: Vec<_> = claims
        .iter()
        .map(|claim| settlement(claim, 1, dead_letter()))
        .collect();
    let replies = host.settle(&all).await.unwrap();
    assert_eq!(replies, vec![Reply::Done; 90]);
    let dead = scene.raw.entries(DEAD).await;
    for n in 0..90 {
        let body = n.to_string();
        let is_it = |(_, fields): &&(String, Vec<Vec<u8>>)| fields[1] == body.as_bytes();
        let (_, fields) = dead.iter().find(is_it).unwrap();
        let mut original = vec![("_payload", body.clone())];
        original.extend(shapes(n));
        let original: Vec<&[u8]> = original
            .iter()
            .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()])
            .collect();
        assert_eq!(fields[..original.len()], original, "{n}");
        assert_eq!(fields.len(), original.len() + 2 * 13, "{n}: {fields:?}");
        let claim = claims.iter().find(|claim| claim.message.body == body);
        let id = text(claim.unwrap().id).into_bytes();
        let place = fields
            .iter()
            .position(|name| name == b"h:x-dead-letter-source-id");
        assert_eq!(fields[place.unwrap() + 1], id, "{n}");
    }
    assert!(is_empty(&host).await);
}

#[tokio::test]
async fn where_much_is_due_a_look_claims_as_much_as_several_scripts_may() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    for n in 0..450 {
        scene.raw.add(KEY, &n.to_string()).await;
    }
    let mut claims = Vec::new();
    while claims.len() < 450 {
        claims.extend(fetch(&host, 450).await);
    }
    let parked: Vec<_> = claims
        .iter()
        .map(|claim| settlement(claim, 1, park(2, Duration::ZERO)))
        .collect();
    assert_eq!(host.settle(&parked).await.unwrap(), vec![Reply::Done; 450]);
    let mut taken = Vec::new();
    for count in [100, 230, 100, 20, 0] {
        let max = if count == 230 { 230 } else { 1000 };
        let claims = host.take_due(max).await.unwrap().claims;
        assert_eq!(claims.len(), count);
        assert!(claims.iter().all(|claim| claim.native == 2));
        taken.extend(claims.into_iter().map(|claim| claim.id));
    }
    taken.sort_unstable();
    taken.dedup();
    assert_eq!(taken.len(), 450);
}

/// Redis stands still while it copies.
#[tokio::test]
async fn one_script_copies_few_large_dead_letters() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let large = "x".repeat(1 << 20);
    for _ in 0..16 {
        scene.raw.add(KEY, &large).await;
    }
    let mut claims = Vec::new();
    while claims.len() < 16 {
        claims.extend(fetch(&host, 16).await);
    }
    let before = scene.calls("evalsha").await;
    let all = settlements(&claims, &dead_letter());
    let replies = host.settle(&all).await.unwrap();
    assert_eq!(replies, vec![Reply::Done; 16]);
    assert!(scene.calls("evalsha").await - before >= 4);
    assert_eq!(scene.length(DEAD).await, 16);
}
