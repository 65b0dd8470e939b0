//! Holds, beside a real Redis: how they are counted, and when the count goes.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::hold::Held;
use hostler::queue::stream::{PARKED_CONSUMER, StreamQueue};
use hostler::queue::{Claim, Queue, Reply, SettleAction};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::queue::queue_scene::{
    KEY, PARKED, Scene, body, connector, due, options, orphans_beside, park, text,
};
use crate::scene::{dead_letter, discard, settled, settlement, shared};

const HELD: &str = "{orders}:held:workers";

/// Hold the message of the attempt with this number, with this count, so that it is due at once.
fn hold(keep: u32, attempt: u32) -> SettleAction {
    SettleAction::Hold {
        keep,
        after: Duration::ZERO,
        attempt,
    }
}

async fn now_ms(scene: &Scene) -> u64 {
    u64::try_from(scene.now_ms().await).unwrap()
}

/// Hold a delivery `times` times, and take it back each time.
async fn held(host: &StreamQueue, claim: &Arc<Claim>, times: u32) -> Arc<Claim> {
    let mut claim = Arc::clone(claim);
    for _ in 0..times {
        let before = claim.held.count;
        let count = claim.native;
        settled(host, &claim, count, hold(count, 1)).await;
        claim = due(host, 1).await.remove(0);
        assert_eq!((claim.held.count, claim.native), (before + 1, count));
    }
    claim
}

#[tokio::test]
async fn a_hold_is_counted_beside_the_count_and_the_time_of_the_first_one_stays() {
    let (scene, host, claims) = Scene::reading(&["a", "b"]).await;
    let before = now_ms(&scene).await;
    let once = held(&host, &claims[0], 1).await;
    let first = once.held.since_ms;
    assert!((before..=now_ms(&scene).await).contains(&first));
    eventually("time goes on", async || now_ms(&scene).await > first).await;
    let twice = held(&host, &once, 1).await;
    let expected = Held {
        count: 2,
        since_ms: first,
    };
    assert_eq!(twice.held, expected);
    // A park in between counts none.
    settled(
        &host,
        &twice,
        twice.native,
        park(twice.native, Duration::ZERO),
    )
    .await;
    let parked = due(&host, 1).await.remove(0);
    assert_eq!(parked.held, expected);
    // An orphan has it, too, and one whose reply was lost.
    scene.age(&host, parked.id, 2).await;
    let own = host.take_orphans(9, &|_| false).await.unwrap().claims;
    assert_eq!(
        own.iter().map(|claim| claim.held).max_by_key(|h| h.count),
        Some(expected)
    );
    let other = scene.host().await;
    scene.age(&host, parked.id, 2).await;
    let orphans = orphans_beside(&other, 9, &[]).await;
    let orphan = orphans.iter().find(|claim| claim.id == parked.id).unwrap();
    assert_eq!((orphan.held, orphan.native), (expected, 2));
}

#[tokio::test]
async fn every_exit_forgets_the_holds() {
    let (scene, host, claims) = Scene::reading(&["a", "b", "c", "d", "e", "f"]).await;
    let mut all = Vec::new();
    for claim in &claims {
        all.push(held(&host, claim, 1).await);
    }
    host.acknowledge(&[Arc::clone(&all[0])]).await.unwrap();
    host.acknowledge_late(&[Arc::clone(&all[1])]).await.unwrap();
    for (claim, step) in all[2..]
        .iter()
        .zip([SettleAction::Acknowledge, dead_letter(), discard()])
    {
        settled(&host, claim, 1, step).await;
    }
    assert_eq!(scene.raw.number(&format!("ZCARD {HELD}")).await, 1);
    // A hold of a message that is settled by hand is found by housekeeping, and nothing else is.
    host.maintain().await.unwrap();
    assert_eq!(scene.raw.number(&format!("ZCARD {HELD}")).await, 1);
    scene
        .raw
        .ask(&format!("XACK {KEY} workers {}", text(all[5].id)))
        .await;
    host.maintain().await.unwrap();
    scene.assert_absent(&[HELD]).await;
}

#[tokio::test]
async fn a_zombie_holds_nothing() {
    let (scene, host, claims) = Scene::reading(&["a"]).await;
    let other = scene.host().await;
    scene.age(&host, claims[0].id, 1).await;
    let taken = shared(orphans_beside(&other, 1, &[]).await);
    let late = host.settle(&[settlement(&claims[0], 1, hold(1, 1))]).await;
    assert_eq!(late.unwrap(), [Reply::Stolen]);
    // Handed back unstarted, it has the count that the zombie knows: it is parked, and that is no hold.
    let after = Duration::ZERO;
    let back = SettleAction::HandBack { keep: 1, after };
    settled(&other, &taken[0], 1, back).await;
    let late = host.settle(&[settlement(&claims[0], 1, hold(1, 1))]).await;
    assert_eq!(late.unwrap(), [Reply::Done]);
    scene.assert_absent(&[HELD]).await;
    assert_eq!(due(&other, 1).await[0].held, Held::default());
}

#[tokio::test]
async fn a_set_of_another_type_refuses_holds_and_loses_nothing() {
    let (scene, host, claims) = Scene::reading(&["a", "b"]).await;
    scene.raw.ask(&format!("SET {HELD} x")).await;
    let replies = host.settle(&[settlement(&claims[0], 1, hold(1, 1))]).await;
    assert!(matches!(&replies.unwrap()[..], [Reply::Refused(_)]));
    scene.assert_held(claims[0].id, host.consumer(), 1).await;
    scene.assert_absent(&[PARKED]).await;
    // Other exits do not need it.
    settled(&host, &claims[1], 1, SettleAction::Acknowledge).await;
    scene.raw.ask(&format!("DEL {HELD}")).await;
    settled(&host, &claims[0], 1, hold(1, 1)).await;
    scene.assert_held(claims[0].id, PARKED_CONSUMER, 1).await;
}

/// The first request was carried out, or not: the repeat, which is an ordinary park, counts no hold.
#[tokio::test]
async fn a_hold_whose_answer_is_lost_is_counted_once_at_most() {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
    let host = StreamQueue::open(connector(&proxy.url()), options()).await;
    let (host, other) = (host.unwrap(), scene.host().await);
    for after in [0, 1, 3, 5, 40] {
        let claim = scene.read(&host, &["a"]).await.remove(0);
        let step = hold(1, 1);
        proxy.cut_reply("EVALSHA", after);
        let first = host.settle(&[settlement(&claim, 1, step.clone())]).await;
        proxy.cut_reply("no request contains this", 0);
        if first.is_err() {
            let again = settlement(&claim, 1, step.again(1));
            eventually("the repeat is answered", async || {
                let replies = host.settle(std::slice::from_ref(&again)).await;
                replies.is_ok_and(|replies| replies == [Reply::Done])
            })
            .await;
        }
        let back = due(&other, 1).await.remove(0);
        assert_eq!(body(&back), b"a");
        assert_eq!((back.held.count, back.native), (1, 1), "cut after {after}");
        settled(&other, &back, 1, SettleAction::Acknowledge).await;
        eventually("both connections work", async || {
            host.backlog().await.is_ok() && host.fetch(1, Duration::ZERO).await.is_ok()
        })
        .await;
    }
    assert!(proxy.replies_cut() >= 4);
    scene.assert_absent(&[HELD]).await;
}

/// The messages come back with their counts, and with their holds.
#[tokio::test]
async fn holds_outlive_their_group() {
    let (scene, host, claims) = Scene::reading(&["a", "b"]).await;
    let running = held(&host, &claims[0], 2).await;
    settled(&host, &claims[1], 1, hold(1, 1)).await;
    scene.destroy_group().await;
    let repair = host.repair(&[(Arc::clone(&running), 2)]).await.unwrap();
    assert_eq!(repair.held, [Reply::Done]);
    host.maintain().await.unwrap();
    assert_eq!(scene.raw.number(&format!("ZCARD {HELD}")).await, 2);
    let back = due(&host, 1).await.remove(0);
    assert_eq!((back.id, back.held.count), (claims[1].id, 1));
}
