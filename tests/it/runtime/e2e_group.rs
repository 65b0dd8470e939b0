//! The consumer group is destroyed while two hosts serve it.

use std::collections::BTreeSet;

use hostler_tests::checker::DeadLetter;
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;

use crate::runtime::e2e_scene::Scene;

/// The ids of the messages that are in the dead-letter queue.
async fn dead(scene: &Scene) -> BTreeSet<String> {
    let dead = DeadLetter::all(&scene.raw, "orders:dead").await;
    let source = |letter: &DeadLetter| {
        let source = letter.header("x-dead-letter-source-id");
        source.map(str::to_owned)
    };
    dead.iter().filter_map(source).collect()
}

#[tokio::test]
async fn messages_that_run_on_two_hosts_while_their_group_is_destroyed_are_not_lost() {
    let mut scene = Scene::new().await;
    let options = scene.host().dead_letter().flags("concurrency=32");
    let hosts: [Host; 2] = [options.ready().await, options.ready().await];
    let mut drops = Vec::new();
    let mut nacks = Vec::new();
    for round in 0..16 {
        // They end one after the other, before and after each host finds the group made again.
        let wait = 300 + 40 * round;
        drops.push(scene.publish(&format!("sleep:{wait}+drop")).await);
        drops.push(scene.publish(&format!("sleep:{wait}+drop")).await);
        nacks.push(scene.publish(&format!("sleep:{wait}+nack:20,ack")).await);
        nacks.push(scene.publish(&format!("sleep:{wait}+nack:0,ack")).await);
    }
    let all: Vec<&String> = drops.iter().chain(&nacks).collect();
    let starts = |id: &str| -> usize { hosts.iter().map(|h| h.witness().starts(id)).sum() };
    eventually("all run", async || all.iter().all(|id| starts(id) > 0)).await;
    for host in &hosts {
        assert!(host.witness().total() > 0, "one host runs them all");
    }
    scene.raw.ask("XGROUP DESTROY orders workers").await;
    eventually("each dropped message is dead-lettered", async || {
        let dead = dead(&scene).await;
        drops.iter().all(|id| dead.contains(id))
    })
    .await;
    eventually("each other one has run again", async || {
        nacks.iter().all(|id| starts(id) > 1)
    })
    .await;
    eventually("nothing is pending", async || {
        scene.raw.pending("orders", "workers").await.is_empty()
    })
    .await;
    for host in hosts {
        host.drain().await.expect_code(0);
    }
}

/// A cleaner deletes consumers that it takes for dead: that of a living host, and that of parked messages.
#[tokio::test]
async fn messages_that_run_or_are_parked_while_consumers_are_deleted_are_not_lost() {
    let mut scene = Scene::new().await;
    let options = scene
        .host()
        .dead_letter()
        .flags("concurrency=32 min-idle=5s timeout=1m");
    let host = options.ready().await;
    let mut parked = Vec::new();
    for _ in 0..8 {
        parked.push(scene.publish("nack:10000,ack").await);
    }
    let (mut drops, mut nacks) = (Vec::new(), Vec::new());
    for round in 0..8 {
        let wait = 3000 + 100 * round;
        drops.push(scene.publish(&format!("sleep:{wait}+drop")).await);
        nacks.push(scene.publish(&format!("sleep:{wait}+nack:20,ack")).await);
    }
    host.starts(24).await;
    eventually("those are parked", async || {
        let pending = scene.raw.pending("orders", "workers").await;
        let is_parked = |held: &&hostler_tests::redis::Pending| held.consumer == "hostler:parked";
        pending.iter().filter(is_parked).count() == 8
    })
    .await;
    for consumer in [&host.consumer(), "hostler:parked"] {
        let delete = format!("XGROUP DELCONSUMER orders workers {consumer}");
        scene.raw.ask(&delete).await;
    }
    eventually("each dropped message is dead-lettered", async || {
        let dead = dead(&scene).await;
        drops.iter().all(|id| dead.contains(id))
    })
    .await;
    eventually("each other one has run again", async || {
        let witness = host.witness();
        nacks
            .iter()
            .chain(&parked)
            .all(|id| witness.attempts(id) == [1, 2])
    })
    .await;
    eventually("nothing is pending", async || {
        scene.raw.pending("orders", "workers").await.is_empty()
    })
    .await;
    host.logs("the consumer of this host was deleted").await;
    let ended = host.drained().await;
    assert_eq!(ended.json()["acked"], 16);
}
