//! Each script with each fault: wrong type, other owner, other count, repeated call, no memory,
//! missing right, trimmed entry, forgotten scripts, missing group or stream.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::stream::{PARKED_CONSUMER, StreamQueue};
use hostler::queue::{Claim, Queue, Reply, SettleAction};
use hostler::redis::{Class, Error};

use crate::queue::queue_scene::{
    DEAD, KEY, PARKED, Scene, connector, dead_letter, is_refused, options, park, text,
};
use crate::scene::{
    discard, holds_nothing, is_empty, orphaned, record, recorded, refused, requeue, settle,
    settled, settlement,
};

pub(crate) fn every_step() -> [SettleAction; 4] {
    let leave = SettleAction::Leave { keep: 1 };
    [requeue(1), leave, dead_letter(), discard()]
}

/// Every step of a settlement gets this reply, and writes nothing.
async fn every_step_gets(
    expected: Reply,
    scene: &Scene,
    host: &StreamQueue,
    claim: &Arc<Claim>,
    count: u32,
) {
    for step in every_step() {
        let reply = settle(host, claim, count, step.clone()).await;
        assert_eq!(reply, expected, "{step:?}");
    }
    scene.assert_absent(&[DEAD, PARKED]).await;
}

/// The errors of all calls that read the group.
async fn every_error(host: &StreamQueue, claims: &[Arc<Claim>]) -> Vec<Error> {
    let record = record(&claims[0], 1, 2);
    vec![
        host.fetch(1, Duration::ZERO).await.unwrap_err(),
        host.renew(claims).await.unwrap_err(),
        host.record(&[record]).await.unwrap_err(),
        host.take_orphans(1, &holds_nothing).await.unwrap_err(),
        host.backlog().await.unwrap_err(),
        host.maintain().await.unwrap_err(),
        host.leave().await.unwrap_err(),
    ]
}

#[tokio::test]
async fn only_the_owner_with_the_current_count_settles() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    for (owner, recorded, count) in [(&two, 1, 1), (&one, 2, 3)] {
        let claim = &scene.read(&one, &["a"]).await[0];
        scene.give(owner.consumer(), claim.id, recorded, 0).await;
        every_step_gets(Reply::Stolen, &scene, &one, claim, count).await;
        let owner = owner.consumer();
        scene.assert_held(claim.id, owner, recorded).await;
    }
}

#[tokio::test]
async fn every_call_reports_an_entry_that_was_trimmed_while_pending() {
    let scene = Scene::new().await;
    let (host, dead) = (scene.host().await, scene.host().await);
    let bodies = ["renew", "record", "park", "leave"];
    let claims = scene.read(&host, &bodies).await;
    let theirs = scene.read(&dead, &["orphan"]).await;
    let lost = scene.read(&host, &["lost with its reply", "parked"]).await;
    settle(&host, &lost[1], 1, park(1, Duration::from_secs(60))).await;
    scene.delete(PARKED).await;
    scene.age(&dead, theirs[0].id, 1).await;
    scene.age(&host, lost[0].id, 1).await;
    scene.trim_all().await;

    let leave = SettleAction::Leave { keep: 1 };
    for reply in [
        host.renew(&claims[..1]).await.unwrap().remove(0),
        recorded(&host, &claims[1], 1, 2).await,
        settle(&host, &claims[2], 1, requeue(1)).await,
        settle(&host, &claims[3], 1, leave).await,
    ] {
        assert_eq!(reply, Reply::Trimmed);
    }
    let held = [claims[0].id, claims[1].id, claims[2].id, claims[3].id];
    let taken = host.take_orphans(9, &|id| held.contains(id)).await.unwrap();
    assert_eq!((taken.claims.len(), taken.trimmed), (0, 3));
    assert!(is_empty(&host).await);
    scene.assert_absent(&[PARKED]).await;
    // It is reported once; afterwards the delivery is gone.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Gone]);
}

#[tokio::test]
async fn a_trimmed_entry_is_told_from_others_in_one_request_whatever_their_counts() {
    for (trimmed, writes) in [
        (4, [2, 2, 2, 1, 1]),
        (0, [2, 2, 2, 1, 1]),
        (2, [2, 2, 2, 2, 2]),
    ] {
        let scene = Scene::new().await;
        let host = scene.host().await;
        let claims = scene.read(&host, &["a", "b", "c", "d", "e"]).await;
        let id = text(claims[trimmed].id);
        scene.raw.ask(&format!("XDEL {KEY} {id}")).await;
        let records = claims.iter().zip(writes);
        let records: Vec<_> = records
            .map(|(claim, write)| record(claim, 1, write))
            .collect();
        let mut expected = vec![Reply::Done; claims.len()];
        expected[trimmed] = Reply::Trimmed;
        assert_eq!(host.record(&records).await.unwrap(), expected, "{writes:?}");
        for (place, write) in writes.into_iter().enumerate() {
            if place != trimmed {
                scene
                    .assert_held(claims[place].id, host.consumer(), write)
                    .await;
            }
        }
    }
}

#[tokio::test]
async fn a_trimmed_entry_is_dead_lettered_from_the_copy_in_the_host() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    scene.trim_all().await;
    settled(&host, &claims[0], 1, dead_letter()).await;
    assert_eq!(scene.raw.entries(DEAD).await.len(), 1);
    assert!(is_empty(&host).await);
}

#[tokio::test]
async fn keys_of_the_wrong_type_leave_the_delivery_unchanged() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    scene.obstruct(DEAD).await;
    scene.obstruct(PARKED).await;
    for step in [dead_letter(), requeue(1)] {
        let why = refused(&host, &claims[0], 1, step).await;
        assert!(why.contains("WRONGTYPE"), "{why}");
        scene.assert_held(claims[0].id, host.consumer(), 1).await;
    }
    let error = host.take_due(9).await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration, "{error}");
    // The delivery is parked, and the key of due times has the wrong type: it stays parked.
    scene.give(PARKED_CONSUMER, claims[0].id, 1, 0).await;
    assert!(host.take_orphans(9, &holds_nothing).await.is_err());
    scene.assert_held(claims[0].id, PARKED_CONSUMER, 1).await;
    scene.delete(PARKED).await;
    scene.delete(DEAD).await;
    assert_eq!(orphaned(&host, 9).await.len(), 1);
    settled(&host, &claims[0], 1, dead_letter()).await;
}

#[tokio::test]
async fn a_key_that_is_no_stream_is_a_configuration_error() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    scene.obstruct(KEY).await;
    let mut errors = every_error(&host, &claims).await;
    errors.push(host.acknowledge(&claims).await.unwrap_err());
    errors.push(host.repair(&[]).await.unwrap_err());
    for error in errors {
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(error.class(), Class::Configuration, "{error}");
    }
    for step in every_step() {
        refused(&host, &claims[0], 1, step).await;
    }
}

#[tokio::test]
async fn without_memory_a_delivery_stays_pending_and_can_be_acknowledged() {
    let (scene, host, claims) = Scene::reading(&["a", "b", "c", "d"]).await;
    scene.out_of_memory(true).await;
    for step in [dead_letter(), requeue(1)] {
        let why = refused(&host, &claims[0], 1, step).await;
        assert!(why.contains("OOM"), "{why}");
        scene.assert_held(claims[0].id, host.consumer(), 1).await;
    }
    scene.assert_absent(&[DEAD, PARKED]).await;
    // Calls that need no memory succeed.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    assert_eq!(recorded(&host, &claims[0], 1, 2).await, Reply::Done);
    settled(&host, &claims[1], 1, discard()).await;
    settled(&host, &claims[2], 1, SettleAction::Leave { keep: 1 }).await;
    host.acknowledge(&claims[3..]).await.unwrap();
    host.maintain().await.unwrap();
    scene.out_of_memory(false).await;
    settled(&host, &claims[0], 2, dead_letter()).await;
}

#[tokio::test]
async fn without_memory_each_settlement_of_a_batch_is_carried_out_whole_or_refused() {
    let (scene, host, claims) = Scene::reading(&["a", "b", "c"]).await;
    scene.out_of_memory(true).await;
    let steps = [dead_letter(), requeue(1), discard()];
    let all: Vec<_> = (steps.into_iter().zip(&claims))
        .map(|(step, claim)| settlement(claim, 1, step))
        .collect();
    let replies = host.settle(&all).await.unwrap();
    assert!(replies[..2].iter().all(is_refused), "{replies:?}");
    assert_eq!(replies[2], Reply::Done);
    scene.out_of_memory(false).await;
    let replies = host.settle(&all).await.unwrap();
    assert_eq!(replies, [Reply::Done, Reply::Done, Reply::Gone]);
}

#[tokio::test]
async fn a_missing_right_leaves_the_delivery_unchanged() {
    let scene = Scene::with_user("resetkeys ~orders ~{orders}*").await;
    let url = scene.user_url();
    let host = StreamQueue::open(connector(&url), options()).await.unwrap();
    let claim = &scene.read(&host, &["a"]).await[0];
    // No right to the dead-letter key.
    refused(&host, claim, 1, dead_letter()).await;
    // No right to a command inside the scripts.
    scene.rights("~* -xadd -zadd").await;
    for step in [dead_letter(), requeue(1)] {
        refused(&host, claim, 1, step).await;
    }
    // No right to acknowledge: the script copies nothing, or each attempt would leave a copy.
    scene.rights("+xadd +zadd -xack").await;
    refused(&host, claim, 1, dead_letter()).await;
    scene.assert_absent(&[DEAD]).await;
    scene.rights("+xack -xclaim").await;
    refused(&host, claim, 1, requeue(1)).await;
    scene.assert_held(claim.id, host.consumer(), 1).await;
    let error = host.renew(std::slice::from_ref(claim)).await.unwrap_err();
    assert_eq!(error.class(), Class::Configuration, "{error}");
    scene.rights("+xclaim").await;
    settled(&host, claim, 1, dead_letter()).await;
}

#[tokio::test]
async fn a_queue_without_a_dead_letter_key_refuses_dead_letters() {
    let scene = Scene::new().await;
    let mut options = options();
    options.dead_letter = None;
    let host = scene.host_with(options).await;
    let claims = scene.read(&host, &["a"]).await;
    refused(&host, &claims[0], 1, dead_letter()).await;
    assert!(scene.held(claims[0].id).await.is_some());
}

#[tokio::test]
async fn every_call_reports_a_missing_group_or_stream() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    scene.destroy_group().await;
    for missing in ["group", "stream"] {
        let mut errors = every_error(&host, &claims).await;
        for step in every_step() {
            let settlement = settlement(&claims[0], 1, step);
            errors.push(host.settle(&[settlement]).await.unwrap_err());
        }
        for error in errors {
            assert_eq!(error.class(), Class::Missing, "{missing}: {error:?}");
        }
        host.acknowledge(&claims).await.unwrap();
        scene.delete(KEY).await;
    }
    scene.assert_absent(&[DEAD, PARKED, KEY]).await;
}

#[tokio::test]
async fn a_due_delivery_keeps_its_due_time_while_its_group_is_missing() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    settled(&host, &claims[0], 1, requeue(1)).await;
    scene.destroy_group().await;
    let error = host.take_due(9).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let score = format!("ZSCORE {PARKED} {}", text(claims[0].id));
    assert_ne!(scene.raw.ask(&score).await, redis::Value::Nil);
}
