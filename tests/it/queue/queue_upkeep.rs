//! Retention, removal of consumers, repair, and the report of `inspect`.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::inspect::{self, Report};
use hostler::queue::stream::{PARKED_CONSUMER, Retention, StreamOptions, StreamQueue};
use hostler::queue::{Backlog, Claim, Queue, Repaired, Reply, SettleAction, Sweep};
use hostler::redis::Class;

use crate::queue::queue_faults::every_step;
use crate::queue::queue_scene::{
    DEAD, FENCES, GROUP, KEY, PARKED, Scene, connector, dead_letter, due, options, park, text,
};
use crate::scene::{discard, fetch, is_empty, orphaned, record, settled, settlement};

async fn retaining(scene: &Scene, retention: Retention) -> StreamQueue {
    let options = StreamOptions {
        retention,
        ..options()
    };
    scene.host_with(options).await
}

/// A host that keeps only entries that a group still needs, and the claims of these entries.
async fn keeping_needed(ids: &[&str]) -> (Scene, StreamQueue, Vec<Arc<Claim>>) {
    let scene = Scene::new().await;
    let host = retaining(&scene, Retention::Acked).await;
    add(&scene, ids).await;
    let claims = fetch(&host, ids.len()).await;
    (scene, host, claims)
}

async fn add(scene: &Scene, ids: &[&str]) {
    for id in ids {
        scene.raw.ask(&format!("XADD {KEY} {id} _payload x")).await;
    }
}

async fn trimmed(host: &StreamQueue) -> u64 {
    host.maintain().await.unwrap().trimmed
}

async fn repaired(host: &StreamQueue, held: &[(&Arc<Claim>, u32)]) -> Repaired {
    let held: Vec<_> = (held.iter())
        .map(|(claim, count)| (Arc::clone(claim), *count))
        .collect();
    host.repair(&held).await.unwrap().repaired
}

#[tokio::test]
async fn retention_keep_trims_nothing() {
    let (scene, host, claims) = Scene::reading(&["x"; 300]).await;
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(trimmed(&host).await, 0);
    assert_eq!(scene.length(KEY).await, 300);
}

#[tokio::test]
async fn retention_acked_trims_behind_the_slowest_group() {
    let scene = Scene::new().await;
    let host = retaining(&scene, Retention::Acked).await;
    let slow = scene.host_of("slow").await;
    let claims = scene.read(&host, &["x"; 1000]).await;
    host.acknowledge(&claims).await.unwrap();
    // The slow group has read nothing.
    assert_eq!(trimmed(&host).await, 0);
    let theirs = fetch(&slow, 600).await;
    // It has read 600 entries and settled none; then it settles all but the 251st.
    assert_eq!(trimmed(&host).await, 0);
    slow.acknowledge(&theirs[..250]).await.unwrap();
    slow.acknowledge(&theirs[251..]).await.unwrap();
    assert_eq!(trimmed(&host).await, 250);
    assert_eq!(scene.length(KEY).await, 750);
    slow.acknowledge(&theirs[250..251]).await.unwrap();
    assert_eq!(trimmed(&host).await, 350);
    // The entries that it has not read are still there.
    let mut left = 400;
    while left > 0 {
        let read = fetch(&slow, 999).await.len();
        assert!(0 < read && read <= left, "{read} of {left}");
        left -= read;
    }
    assert!(fetch(&slow, 999).await.is_empty());
}

#[tokio::test]
async fn retention_acked_compares_ids_exactly_and_trims_all_when_all_is_done() {
    // Sequence numbers that a double cannot represent.
    let large = ["5-18446744073709551600", "5-18446744073709551614"];
    let larger = ["5-18446744073709551615", "6-9007199254740993", "10-1"];
    let (scene, host, claims) = keeping_needed(&[&large[..], &larger].concat()).await;
    host.acknowledge(&claims[..1]).await.unwrap();
    assert_eq!(trimmed(&host).await, 1);
    host.acknowledge(&claims[2..]).await.unwrap();
    assert_eq!(trimmed(&host).await, 0);
    host.acknowledge(&claims[1..]).await.unwrap();
    assert_eq!(trimmed(&host).await, 4);
    assert_eq!(scene.length(KEY).await, 0);
    // The group goes on.
    add(&scene, &["11-1"]).await;
    assert_eq!(fetch(&host, 9).await.len(), 1);
}

#[tokio::test]
async fn retention_acked_keeps_a_last_entry_whose_sequence_number_has_no_successor() {
    let (scene, host, claims) = keeping_needed(&["5-1", "5-18446744073709551615"]).await;
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(trimmed(&host).await, 1);
    assert_eq!(scene.length(KEY).await, 1);
    add(&scene, &["6-1"]).await;
    let claims = fetch(&host, 9).await;
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(trimmed(&host).await, 2);
}

#[tokio::test]
async fn the_greatest_entry_id_there_is_breaks_no_scan() {
    const GREATEST: &str = "18446744073709551615-18446744073709551615";
    let (scene, host, claims) = keeping_needed(&["5-1", GREATEST]).await;
    assert_eq!(claims.len(), 2);
    // Nothing can be unread behind it.
    let backlog = host.backlog().await.unwrap();
    assert_eq!((backlog.unread, backlog.pending), (false, 2));
    host.probe().await.unwrap();
    assert_eq!(report(&scene).await.pending, 2);
    let later = park(1, Duration::from_secs(60));
    settled(&host, &claims[1], 1, later).await;
    assert!(orphaned(&host, 9).await.is_empty());
    host.acknowledge(&claims).await.unwrap();
    assert!(is_empty(&host).await);
    // Every command that reads dead letters in pages.
    scene
        .raw
        .ask(&format!(
            "XADD {DEAD} {GREATEST} h:x-dead-letter-reason dropped"
        ))
        .await;
    for command in ["peek", "export", "purge --yes"] {
        let line = format!("dlq {command} --redis {} {DEAD}", scene.url());
        hostler_tests::command::run_line(&line).ok();
    }
}

#[tokio::test]
async fn retention_goes_on_in_small_scripts_and_says_where_it_stopped() {
    for (retention, keeps) in [
        (Retention::Acked, 0..=0),
        (Retention::MaxLen(500), 500..=600),
    ] {
        let scene = Scene::new().await;
        let host = retaining(&scene, retention).await;
        for _ in 0..7 {
            scene.fill("XADD", KEY, 20_000).await;
        }
        // All of them are acknowledged.
        scene
            .raw
            .ask(&format!("XGROUP SETID {KEY} {GROUP} $"))
            .await;
        let scripts = scene.calls("xtrim").await;
        let first = host.maintain().await.unwrap();
        assert!((90_000..=100_000).contains(&first.trimmed), "{first:?}");
        assert_eq!(first.unfinished, [Sweep::Retention]);
        assert!(scene.calls("xtrim").await >= scripts + 10);
        let second = host.maintain().await.unwrap();
        assert!(second.unfinished.is_empty(), "{second:?}");
        let left = scene.length(KEY).await;
        assert!(keeps.contains(&left), "{left}");
    }
}

#[tokio::test]
async fn dead_letters_over_a_lowered_bound_go_in_steps_until_it_holds() {
    let scene = Scene::new().await;
    for _ in 0..2 {
        scene.fill("XADD", DEAD, 20_000).await;
    }
    let bounded = DeadLetterQueue {
        max_len: Some(100),
        ..DeadLetterQueue::new(DEAD)
    };
    let options = StreamOptions {
        dead_letter: Some(bounded),
        ..options()
    };
    let host = scene.host_with(options).await;
    let claims = scene.read(&host, &["dead"]).await;
    settled(&host, &claims[0], 1, dead_letter()).await;
    // One script drops a bounded number.
    let mut length = scene.length(DEAD).await;
    assert!((30_000..40_000).contains(&length), "{length}");
    let mut steps = 0;
    loop {
        let done = host.maintain().await.unwrap();
        let left = scene.length(DEAD).await;
        assert!(length - left <= 10_000, "{left} of {length}");
        (length, steps) = (left, steps + 1);
        if done.unfinished.is_empty() {
            break;
        }
        assert_eq!(done.unfinished, [Sweep::DeadLetters]);
    }
    assert!(
        steps >= 3 && (100..=200).contains(&length),
        "{steps}: {length}"
    );
}

#[tokio::test]
async fn what_is_parked_next_does_not_hide_that_others_are_missing() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["first", "next"]).await;
    let later = park(3, Duration::from_secs(60));
    settled(&host, &claims[0], 1, later.clone()).await;
    delete_consumer(&scene, PARKED_CONSUMER).await;
    settled(&host, &claims[1], 1, later).await;
    host.maintain().await.unwrap();
    for claim in &claims {
        scene.assert_held(claim.id, PARKED_CONSUMER, 3).await;
    }
    assert_eq!(scene.parked().await, 2);
}

#[tokio::test]
async fn what_is_acknowledged_or_deleted_by_hand_while_it_is_parked_does_not_come_again() {
    let scene = Scene::new().await;
    let host = retaining(&scene, Retention::Acked).await;
    let claims = scene.read(&host, &["acked", "deleted", "left"]).await;
    for claim in &claims {
        settled(&host, claim, 1, park(1, Duration::ZERO)).await;
    }
    let ids = claims.iter().map(|claim| text(claim.id));
    let ids: Vec<_> = ids.collect();
    scene
        .raw
        .ask(&format!("XACK {KEY} {GROUP} {}", ids[0]))
        .await;
    scene.raw.ask(&format!("XDEL {KEY} {}", ids[1])).await;
    assert_eq!(host.backlog().await.unwrap().pending, 2);
    assert_eq!(trimmed(&host).await, 1);
    let taken = host.take_due(9).await.unwrap();
    assert_eq!((taken.claims.len(), taken.trimmed), (1, 1));
    assert_eq!(taken.claims[0].id, claims[2].id);
    host.record(&[record(&claims[2], 1, 2)]).await.unwrap();
    assert_eq!(scene.parked().await, 0);
}

#[tokio::test]
async fn retention_maxlen_trims_settled_entries_and_reports_when_others_hold_it_back() {
    let scene = Scene::new().await;
    let host = retaining(&scene, Retention::MaxLen(200)).await;
    let claims = scene.read(&host, &["x"; 1000]).await;
    // All entries are pending: none may be trimmed.
    let held = host.maintain().await.unwrap();
    assert_eq!((held.trimmed, held.held_back), (0, true));
    host.acknowledge(&claims[..500]).await.unwrap();
    let some = host.maintain().await.unwrap();
    assert!((301..=500).contains(&some.trimmed), "{some:?}");
    assert!(some.held_back);
    assert_eq!(host.renew(&claims[500..501]).await.unwrap(), [Reply::Done]);
    host.acknowledge(&claims[500..]).await.unwrap();
    let rest = host.maintain().await.unwrap();
    assert!(!rest.held_back, "{rest:?}");
    let left = scene.length(KEY).await;
    assert!((200..300).contains(&left), "{left}");
    // Unread entries within the length cause no warning.
    scene.raw.add(KEY, "unread").await;
    assert!(!host.maintain().await.unwrap().held_back);
}

#[tokio::test]
async fn a_consumer_is_deleted_when_it_leaves_with_nothing_pending() {
    let scene = Scene::new().await;
    let (dead, host) = (scene.host().await, scene.host().await);
    let claims = scene.read(&dead, &["a"]).await;
    let create = format!("XGROUP CREATECONSUMER {KEY} {GROUP} fresh");
    scene.raw.ask(&create).await;
    // No consumer has been absent for an hour.
    assert_eq!(host.maintain().await.unwrap().consumers_removed, 0);
    // A consumer with a pending delivery stays, and so does the delivery.
    dead.leave().await.unwrap();
    scene.assert_held(claims[0].id, dead.consumer(), 1).await;
    dead.acknowledge(&claims).await.unwrap();
    dead.leave().await.unwrap();
    dead.leave().await.unwrap();
    let report = report(&scene).await;
    let names: Vec<_> = report.consumers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["fresh"]);
}

#[tokio::test]
async fn an_empty_consumer_is_removed_after_an_hour_of_absence() {
    // A test cannot turn the server's clock: it calls the script like `maintain`, with 0 ms.
    let (scene, host, _) = Scene::reading(&[]).await;
    for name in ["empty", "holding"] {
        scene.raw.add(KEY, name).await;
        let read = format!("XREADGROUP GROUP {GROUP} {name} COUNT 1 STREAMS {KEY} >");
        scene.raw.ask(&read).await;
    }
    let pending = scene.pending().await;
    let first = &pending[0].id;
    for command in [
        format!("XACK {KEY} {GROUP} {first}"),
        format!("XGROUP CREATECONSUMER {KEY} {GROUP} {PARKED_CONSUMER}"),
    ] {
        scene.raw.ask(&command).await;
    }
    let script = hostler::queue::stream::scripts::CONSUMERS.source();
    for (max, only, removed) in [("100", "nobody", 0), ("0", "", 0), ("100", "", 1)] {
        let call = ["EVAL", script, "2", KEY, FENCES, GROUP, "0", max, only];
        let spared = ["hostler:epoch:", host.consumer(), PARKED_CONSUMER];
        let words: Vec<_> = call.iter().chain(&spared).map(|w| w.as_bytes()).collect();
        let answer = scene.raw.ask_words(&words).await;
        assert_eq!(answer, redis::Value::Int(removed), "{max} {only}");
    }
    let consumers = report(&scene).await.consumers;
    let names: Vec<_> = consumers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["holding", PARKED_CONSUMER]);
    assert_eq!(scene.pending().await.len(), 1);
}

#[tokio::test]
async fn a_destroyed_group_resumes_behind_the_entries_that_were_read() {
    let (scene, host, claims) = Scene::reading(&["held", "parked", "acked"]).await;
    settled(&host, &claims[1], 1, park(1, Duration::from_secs(60))).await;
    host.acknowledge(&claims[2..]).await.unwrap();
    scene.destroy_group().await;
    scene.raw.add(KEY, "new").await;
    let error = host.fetch(1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let held = [(&claims[0], 4)];
    assert_eq!(repaired(&host, &held).await, Repaired::Group);
    // A repeat after a lost reply.
    assert_eq!(repaired(&host, &held).await, Repaired::Intact);
    scene.assert_held(claims[0].id, host.consumer(), 4).await;
    scene.assert_held(claims[1].id, PARKED_CONSUMER, 1).await;
    assert_eq!(scene.held(claims[2].id).await, None);
    let new = fetch(&host, 9).await;
    assert_eq!(new.len(), 1);
    assert_eq!(new[0].message.body.as_ref(), b"new");
}

#[tokio::test]
async fn a_second_host_finds_the_group_repaired_and_restores_only_its_own_deliveries() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let first = &scene.read(&one, &["a"]).await[0];
    let second = &scene.read(&two, &["b"]).await[0];
    scene.destroy_group().await;
    assert_eq!(repaired(&two, &[(second, 1)]).await, Repaired::Group);
    assert_eq!(repaired(&one, &[(first, 1)]).await, Repaired::Intact);
    scene.assert_held(first.id, one.consumer(), 1).await;
    scene.assert_held(second.id, two.consumer(), 1).await;
    // A host does not take back a delivery that another host owns.
    assert_eq!(repaired(&one, &[(second, 1)]).await, Repaired::Intact);
    scene.assert_held(second.id, two.consumer(), 1).await;
}

/// Destroy the group and make it again, behind everything, as another program does.
async fn made_again_by_another_program(scene: &Scene) {
    scene.destroy_group().await;
    let create = format!("XGROUP CREATE {KEY} {GROUP} $");
    scene.raw.ask(&create).await;
}

#[tokio::test]
async fn nothing_is_gone_from_a_group_that_was_made_again_until_it_is_repaired() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    let held = [(&claims[0], 1)];
    for step in every_step() {
        made_again_by_another_program(&scene).await;
        let settlement = [settlement(&claims[0], 1, step)];
        let refused = [
            host.renew(&claims).await.unwrap_err(),
            host.settle(&settlement).await.unwrap_err(),
        ];
        for error in refused {
            assert_eq!(error.class(), Class::Missing, "{settlement:?}");
        }
        assert_eq!(repaired(&host, &held).await, Repaired::Intact);
        assert_eq!(host.settle(&settlement).await.unwrap(), [Reply::Done]);
    }
    assert_eq!(scene.length(DEAD).await, 1);
    // A settled delivery is gone.
    let gone = host.renew(&claims).await.unwrap();
    assert_eq!(gone, [Reply::Gone]);
}

#[tokio::test]
async fn a_due_delivery_of_an_earlier_group_is_taken_and_one_that_was_acknowledged_is_not() {
    let (scene, host, claims) = Scene::reading(&["parked", "acked"]).await;
    for claim in &claims {
        settled(&host, claim, 1, park(1, Duration::ZERO)).await;
    }
    host.acknowledge(&claims[1..]).await.unwrap();
    made_again_by_another_program(&scene).await;
    let error = host.take_due(9).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    assert_eq!(scene.parked().await, 2);
    // The deliveries that were parked are marked as missing. One host has died before it parked them.
    let other = scene.host().await;
    let taken = other.take_due(1).await.unwrap();
    assert_eq!(taken.claims[0].id, claims[0].id);
    other.maintain().await.unwrap();
    // In the same group, a record without a delivery was acknowledged late.
    settled(
        &other,
        &Arc::new(taken.claims[0].clone()),
        1,
        park(1, Duration::ZERO),
    )
    .await;
    other.acknowledge_late(&claims).await.unwrap();
    let none = other.take_due(9).await.unwrap();
    assert!(none.claims.is_empty(), "{none:?}");
    assert_eq!((none.trimmed, scene.parked().await), (0, 0));
}

#[tokio::test]
async fn no_group_trims_what_was_parked_in_an_earlier_group() {
    let scene = Scene::new().await;
    let audit = StreamOptions {
        group: "audit".to_owned(),
        retention: Retention::Acked,
        ..options()
    };
    let (host, audit) = (scene.host().await, scene.host_with(audit).await);
    let claims = scene.read(&host, &["a", "b"]).await;
    for claim in &claims {
        settled(&host, claim, 1, park(1, Duration::from_secs(60))).await;
    }
    let copies = fetch(&audit, 9).await;
    audit.acknowledge(&copies).await.unwrap();
    made_again_by_another_program(&scene).await;
    let other = scene.host().await;
    assert_eq!(trimmed(&audit).await, 0);
    other.maintain().await.unwrap();
    assert_eq!(trimmed(&audit).await, 0);
    for claim in &claims {
        scene.assert_held(claim.id, PARKED_CONSUMER, 1).await;
        let claim = std::slice::from_ref(claim);
        other.acknowledge_late(claim).await.unwrap();
    }
    assert_eq!(trimmed(&audit).await, 2);
}

/// Delete a consumer with all that is pending for it, as a cleaner does.
async fn delete_consumer(scene: &Scene, name: &str) {
    let delete = format!("XGROUP DELCONSUMER {KEY} {GROUP} {name}");
    scene.raw.ask(&delete).await;
}

#[tokio::test]
async fn what_is_parked_outlives_its_consumer_with_its_count_and_is_not_trimmed_meanwhile() {
    for mark_goes_too in [false, true] {
        let scene = Scene::new().await;
        let host = retaining(&scene, Retention::Acked).await;
        let claims = scene.read(&host, &["now", "later", "trimmed"]).await;
        host.record(&[record(&claims[0], 1, 5)]).await.unwrap();
        settled(&host, &claims[0], 5, park(5, Duration::ZERO)).await;
        settled(&host, &claims[1], 1, park(0, Duration::from_secs(60))).await;
        settled(&host, &claims[2], 1, park(1, Duration::from_secs(60))).await;
        delete_consumer(&scene, PARKED_CONSUMER).await;
        let id = text(claims[2].id);
        scene.raw.ask(&format!("XDEL {KEY} {id}")).await;
        assert!(scene.pending().await.is_empty());
        assert_eq!(host.backlog().await.unwrap().pending, 3);
        if mark_goes_too {
            let ask = format!("XINFO CONSUMERS {KEY} {GROUP}");
            let consumers = format!("{:?}", scene.raw.ask(&ask).await);
            let mark = consumers.split("hostler:epoch:").nth(1).unwrap();
            delete_consumer(&scene, &format!("hostler:epoch:{}", &mark[..8])).await;
            let error = host.take_due(9).await.unwrap_err();
            assert_eq!(error.class(), Class::Missing);
            assert_eq!(repaired(&host, &[]).await, Repaired::Intact);
        }
        let taken = host.take_due(9).await.unwrap();
        let lost = taken.trimmed;
        assert_eq!(taken.claims.len(), 1);
        assert_eq!(
            (taken.claims[0].id, taken.claims[0].native),
            (claims[0].id, 5)
        );
        assert_eq!(trimmed(&host).await, 0);
        // Housekeeping finds what is not due yet.
        host.maintain().await.unwrap();
        scene.assert_held(claims[1].id, PARKED_CONSUMER, 0).await;
        assert_eq!(scene.length(KEY).await, 2);
        // One is taken, and not started.
        assert_eq!(scene.parked().await, 2);
        assert_eq!(lost + host.take_due(9).await.unwrap().trimmed, 1);
    }
}

#[tokio::test]
async fn what_a_host_holds_outlives_its_consumer_unless_it_was_acknowledged_late() {
    let scene = Scene::new().await;
    let (host, late) = (scene.host().await, scene.host().await);
    let theirs = ["acked late", "acked while it is missing"];
    let theirs = scene.read(&late, &theirs).await;
    for claim in &theirs {
        scene.age(&late, claim.id, 1).await;
    }
    let taken = orphaned(&host, 9).await;
    let claims = scene.read(&host, &["held", "started", "trimmed"]).await;
    host.record(&[record(&claims[1], 1, 2)]).await.unwrap();
    late.acknowledge_late(&theirs[..1]).await.unwrap();
    delete_consumer(&scene, host.consumer()).await;
    late.acknowledge_late(&theirs[1..]).await.unwrap();
    let id = text(claims[2].id);
    scene.raw.ask(&format!("XDEL {KEY} {id}")).await;
    let held = [
        (Arc::clone(&taken[0]), 1),
        (Arc::clone(&taken[1]), 1),
        (Arc::clone(&claims[0]), 1),
        (Arc::clone(&claims[1]), 2),
        (Arc::clone(&claims[2]), 1),
    ];
    let gone = vec![Reply::Gone; 3];
    assert_eq!(host.renew(&claims).await.unwrap(), gone);
    let back = [
        Reply::Gone,
        Reply::Gone,
        Reply::Done,
        Reply::Done,
        Reply::Trimmed,
    ];
    assert_eq!(host.bring_back(&held).await.unwrap(), back);
    scene.assert_held(claims[0].id, host.consumer(), 1).await;
    scene.assert_held(claims[1].id, host.consumer(), 2).await;
    assert_eq!(scene.pending().await.len(), 2);
}

/// The clock of the server has jumped: by it the lease of a host has ended, and another host has the delivery.
#[tokio::test]
async fn what_another_host_took_and_settled_is_not_brought_back_unless_its_host_took_it_again() {
    let scene = Scene::new().await;
    let (host, other) = (scene.host().await, scene.host().await);
    let bodies = ["acked", "dropped", "held", "orphaned", "parked"];
    let claims = scene.read(&host, &bodies).await;
    for claim in &claims {
        scene.age(&host, claim.id, 1).await;
    }
    let taken = orphaned(&other, 9).await;
    assert_eq!(taken.len(), 5);
    other.acknowledge(&taken[..1]).await.unwrap();
    settled(&other, &taken[1], 1, discard()).await;
    scene.age(&other, taken[3].id, 1).await;
    assert_eq!(orphaned(&host, 9).await.len(), 1);
    settled(&other, &taken[4], 1, park(1, Duration::ZERO)).await;
    assert_eq!(due(&host, 9).await.len(), 1);
    delete_consumer(&scene, host.consumer()).await;
    let held: Vec<_> = claims.iter().map(|claim| (Arc::clone(claim), 1)).collect();
    let back = [
        Reply::Gone,
        Reply::Gone,
        Reply::Stolen,
        Reply::Done,
        Reply::Done,
    ];
    assert_eq!(host.bring_back(&held).await.unwrap(), back);
    assert_eq!(scene.pending().await.len(), 3);
}

/// A host has taken what was due, and dies before its start; a cleaner deletes its consumer.
#[tokio::test]
async fn what_was_taken_and_not_started_outlives_its_host_and_its_consumer() {
    let scene = Scene::new().await;
    let (host, other) = (scene.host().await, scene.host().await);
    let claims = scene.read(&host, &["taken", "started"]).await;
    for claim in &claims {
        settled(&host, claim, 1, park(1, Duration::ZERO)).await;
    }
    assert_eq!(due(&host, 9).await.len(), 2);
    host.record(&[record(&claims[1], 1, 2)]).await.unwrap();
    delete_consumer(&scene, host.consumer()).await;
    assert_eq!(scene.parked().await, 1);
    let id = text(claims[0].id);
    let score = scene.raw.text(&format!("ZSCORE {PARKED} {id}")).await;
    let (_, count) = score.split_once('.').unwrap();
    let now = scene.now_ms().await - 1;
    let add = format!("ZADD {PARKED} {now}.{count} {id}");
    scene.raw.ask(&add).await;
    let back = due(&other, 9).await;
    assert_eq!(back.len(), 1);
    assert_eq!((back[0].id, back[0].native), (claims[0].id, 1));
}

/// Else the record would bring back a delivery that is settled.
#[tokio::test]
async fn the_record_of_what_was_taken_goes_with_each_way_out_before_a_start() {
    for way in 0..5 {
        let (scene, host, claims) = Scene::reading(&["a", "b"]).await;
        for claim in &claims {
            settled(&host, claim, 1, park(1, Duration::ZERO)).await;
        }
        let taken = due(&host, 9).await;
        assert_eq!(scene.parked().await, 2);
        let step = match way {
            0 => dead_letter(),
            1 => discard(),
            2 => SettleAction::Acknowledge,
            3 => {
                host.acknowledge_late(&taken).await.unwrap();
                assert_eq!(scene.parked().await, 0);
                continue;
            }
            _ => {
                scene.obstruct(PARKED).await;
                let both = [record(&taken[0], 1, 2), record(&taken[1], 1, 2)];
                // It has written: it is not refused.
                let done = vec![Reply::Done; 2];
                assert_eq!(host.record(&both).await.unwrap(), done);
                continue;
            }
        };
        for claim in &taken {
            settled(&host, claim, 1, step.clone()).await;
        }
        assert_eq!(scene.parked().await, 0, "{step:?}");
        assert!(scene.pending().await.is_empty(), "{step:?}");
    }
}

#[tokio::test]
async fn hosts_of_one_group_find_the_same_mark_and_no_report_shows_it() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    for host in [&one, &two] {
        host.maintain().await.unwrap();
    }
    let consumers = scene
        .raw
        .ask(&format!("XINFO CONSUMERS {KEY} {GROUP}"))
        .await;
    assert_eq!(
        format!("{consumers:?}").matches("hostler:epoch:").count(),
        1
    );
    assert!(report(&scene).await.consumers.is_empty());
    // A new group has another one.
    let claims = scene.read(&one, &["a"]).await;
    scene.destroy_group().await;
    assert_eq!(repaired(&two, &[]).await, Repaired::Group);
    let error = one.renew(&claims).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    assert_eq!(repaired(&one, &[(&claims[0], 1)]).await, Repaired::Intact);
    assert_eq!(one.renew(&claims).await.unwrap(), [Reply::Done]);
}

#[tokio::test]
async fn a_deleted_stream_is_created_again_and_read_from_its_beginning() {
    let (scene, host, claims) = Scene::reading(&["held"]).await;
    scene.delete(KEY).await;
    let held = [(&claims[0], 1)];
    assert_eq!(repaired(&host, &held).await, Repaired::Stream);
    assert!(is_empty(&host).await);
    scene.raw.add(KEY, "new").await;
    assert_eq!(fetch(&host, 9).await.len(), 1);
}

#[tokio::test]
async fn a_new_stream_with_smaller_ids_is_read_from_its_beginning() {
    let (scene, host, claims) = Scene::reading(&["held"]).await;
    scene.delete(KEY).await;
    add(&scene, &["7-1"]).await;
    let held = [(&claims[0], 1)];
    assert_eq!(repaired(&host, &held).await, Repaired::Group);
    let new = fetch(&host, 9).await;
    assert_eq!(new.len(), 1);
    assert_eq!(text(new[0].id), "7-1");
    assert_eq!(host.backlog().await.unwrap().pending, 1);
}

/// A stream whose ids its producers choose, deleted and written again under a host that has read it.
#[tokio::test]
async fn another_stream_with_the_same_ids_is_read_from_its_beginning() {
    let ids: Vec<String> = (1..=15).map(|n| format!("{n}-0")).collect();
    for told in [
        "by a read that waits",
        "by fewer entries",
        "by another entry",
    ] {
        let scene = Scene::new().await;
        let is_old = scene
            .raw
            .text("INFO server")
            .await
            .contains("redis_version:7.0");
        if told == "by a read that waits" && !is_old {
            // Later servers end the read in the same way for a group and for a stream.
            continue;
        }
        for id in &ids[..10] {
            scene
                .raw
                .ask(&format!("XADD {KEY} {id} v {}", id.len()))
                .await;
        }
        let host = Arc::new(scene.host().await);
        let claims = fetch(&*host, 99).await;
        assert_eq!(claims.len(), 10);
        host.acknowledge(&claims).await.unwrap();
        host.maintain().await.unwrap();
        let count = if told == "by fewer entries" {
            // It has as many entries as the first one had read ones, and the first one had more.
            scene.raw.ask(&format!("XADD {KEY} 11-0 v 4")).await;
            host.maintain().await.unwrap();
            10
        } else {
            15
        };
        let value = |id: &str| match told {
            "by another entry" => "other".to_owned(),
            _ => id.len().to_string(),
        };
        let mut again = vec![format!("DEL {KEY}")];
        again.extend(
            ids[..count]
                .iter()
                .map(|id| format!("XADD {KEY} {id} v {}", value(id))),
        );
        if told == "by a read that waits" {
            let waiting = tokio::spawn({
                let host = Arc::clone(&host);
                async move { host.fetch(1, Duration::from_secs(60)).await }
            });
            scene.blocked(1).await;
            for command in &again {
                scene.raw.ask(command).await;
            }
            let error = waiting.await.unwrap().unwrap_err();
            assert_eq!(error.class(), Class::Missing, "{error}");
        } else {
            scene.raw.ask("MULTI").await;
            for command in &again {
                scene.raw.ask(command).await;
            }
            scene.raw.ask("EXEC").await;
        }
        assert_eq!(repaired(&host, &[]).await, Repaired::Group);
        let new = fetch(&*host, 99).await;
        assert_eq!(new.len(), count, "{told}");
        // The next group begins behind what is read of this stream, not at its beginning.
        host.acknowledge(&new).await.unwrap();
        scene.destroy_group().await;
        assert_eq!(repaired(&host, &[]).await, Repaired::Group);
        assert!(fetch(&*host, 99).await.is_empty(), "{told}");
    }
}

#[tokio::test]
async fn a_host_that_read_nothing_repairs_the_group_at_its_old_position() {
    let (scene, one, claims) = Scene::reading(&["a", "b"]).await;
    one.acknowledge(&claims).await.unwrap();
    let two = scene.host().await;
    scene.raw.add(KEY, "c").await;
    scene.destroy_group().await;
    assert_eq!(repaired(&two, &[]).await, Repaired::Group);
    assert_eq!(fetch(&two, 9).await.len(), 1);
}

#[tokio::test]
async fn a_waiting_fetch_reports_the_deletion_of_its_group_or_stream() {
    let scene = Scene::new().await;
    let host = Arc::new(scene.host().await);
    for missing in ["group", "stream"] {
        let waiting = tokio::spawn({
            let host = Arc::clone(&host);
            async move { host.fetch(1, Duration::from_secs(60)).await }
        });
        scene.blocked(1).await;
        match missing {
            "group" => scene.destroy_group().await,
            _ => scene.delete(KEY).await,
        }
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.class(), Class::Missing, "{missing}: {error}");
        host.repair(&[]).await.unwrap();
    }
}

async fn report(scene: &Scene) -> Report {
    report_at(&scene.url()).await
}

async fn report_at(url: &str) -> Report {
    let link = connector(url).link("inspect");
    let report = inspect::stream(&link, KEY, GROUP, Some(DEAD)).await;
    report.unwrap()
}

/// Redis 7.0 counts them for ever.
#[tokio::test]
async fn entries_that_were_trimmed_before_they_were_read_are_not_unread() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    host.acknowledge(&claims).await.unwrap();
    for body in ["c", "d", "e"] {
        scene.raw.add(KEY, body).await;
    }
    scene.trim_all().await;
    let empty = report(&scene).await;
    assert_eq!((empty.length, empty.lag, empty.unread), (0, Some(0), false));
    assert_eq!(host.observe().await.unwrap().unwrap().unread, 0);
    scene.raw.add(KEY, "f").await;
    assert_eq!(report(&scene).await.lag, Some(1));
}

#[tokio::test]
async fn inspect_reports_lengths_consumers_and_groups() {
    let scene = Scene::new().await;
    let link = scene.connector().link("inspect");
    let error = inspect::stream(&link, KEY, GROUP, None).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let host = scene.host().await;
    let error = inspect::stream(&link, KEY, "other", None).await;
    assert_eq!(error.unwrap_err().class(), Class::Missing);
    let empty = report(&scene).await;
    let lengths = (empty.length, empty.pending, empty.oldest_pending_ms);
    assert_eq!(lengths, (0, 0, None));
    assert!(!empty.unread && empty.consumers.is_empty() && empty.next_due_ms.is_none());

    let claims = scene.read(&host, &["a", "b", "c"]).await;
    scene.raw.add(KEY, "unread").await;
    settled(&host, &claims[0], 1, dead_letter()).await;
    settled(&host, &claims[1], 1, park(1, Duration::from_secs(50))).await;
    let fast = scene.host_of("fast").await;
    let all = fetch(&fast, 9).await;
    fast.acknowledge(&all).await.unwrap();

    let url = scene.url();
    for url in [format!("{url}?protocol=resp3"), url] {
        let report = report_at(&url).await;
        assert_eq!((report.length, report.pending, report.lag), (4, 2, Some(1)));
        assert!(report.unread && report.oldest_pending_ms.unwrap() < 60_000);
        assert_eq!((report.delayed, report.dead_letters), (1, Some(1)));
        let due = report.next_due_ms.unwrap();
        assert!(due > 20_000 && due <= 50_000, "{due}");
        let consumers = report.consumers.iter();
        let consumers: Vec<_> = consumers.map(|c| (c.name.as_str(), c.pending)).collect();
        assert_eq!(consumers, [(host.consumer(), 1), (PARKED_CONSUMER, 1)]);
        let groups: Vec<_> = (report.groups.iter())
            .map(|g| (g.name.as_str(), g.pending, g.needs_from.as_str()))
            .collect();
        let (first, last) = (text(claims[1].id), text(all[3].id));
        assert_eq!(groups, [(GROUP, 2, first.as_str()), ("fast", 0, &last)]);
    }
    let due = format!("ZADD {PARKED} 1 {}", text(claims[1].id));
    scene.raw.ask(&due).await;
    assert_eq!(report(&scene).await.next_due_ms, Some(0));
    assert!(orphaned(&host, 9).await.is_empty());
}

/// The runtime uses every kind of queue through the trait.
#[tokio::test]
async fn a_stream_queue_works_through_the_trait() {
    let scene = Scene::new().await;
    let queue: Arc<dyn Queue> = Arc::new(scene.host().await);
    assert_eq!(queue.backlog().await.unwrap(), Backlog::default());
    let shown = format!("{queue:?}");
    let expected = ["StreamQueue", KEY];
    assert!(expected.iter().all(|part| shown.contains(part)), "{shown}");
}
