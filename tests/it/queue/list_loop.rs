//! The loop on a reliable list with a native handler: drains, crashes and restarts.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::queue::list::{ListOptions, ListQueue};
use hostler::runtime::{Exit, Settings};
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RedisOptions, eventually};

use crate::queue::list_scene::{
    DEAD, INSTANCES, KEY, Scene, both, message, processing, recovering,
};
use crate::runtime::runtime_loop::{MIN_IDLE, quick};
use crate::scene::until_empty;

async fn start(
    scene: &Scene,
    options: ListOptions,
    settings: Settings,
    script: &Arc<Script>,
) -> Host {
    let options = ListOptions {
        min_idle: MIN_IDLE,
        ..options
    };
    let queue = ListQueue::open(scene.connector(), options).await.unwrap();
    Host::on(Arc::new(queue), settings, script)
}

/// Each of the numbered messages has started, and none is a dead letter.
async fn none_is_lost(scene: &Scene, script: &Script, count: usize) {
    for n in 0..count {
        assert!(script.starts_of(&n.to_string()) >= 1, "{n} was lost");
    }
    assert!(scene.list(DEAD).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_the_server_loses_no_message() {
    let durable = RedisOptions::default().appendonly();
    let mut scene = Scene::with(durable.set("appendfsync", "always")).await;
    for n in 0..300 {
        scene.publish([message(&n.to_string(), "sleep:5")]).await;
    }
    let script = Arc::new(Script::default());
    let mut settings = quick(None);
    settings.ledger.concurrency = 4;
    let host = start(&scene, recovering(), settings, &script).await;
    for starts in [30, 100] {
        eventually("it works", async || script.starts().len() >= starts).await;
        scene.server.restart();
    }
    scene.reconnect().await;
    scene.emptied().await;
    assert_eq!(host.drain().await, Exit::Drained);
    none_is_lost(&scene, &script, 300).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_hands_back_in_order_and_without_a_charge() {
    for options in both() {
        let scene = Scene::new().await;
        scene.publish(["sleep:3000"]).await;
        let rest: Vec<String> = (0..7).map(|n| format!("ack,{n}")).collect();
        scene.publish(&rest).await;
        let script = Arc::new(Script::default());
        let mut one_slot = quick(Some(2));
        one_slot.ledger.concurrency = 1;
        one_slot.ledger.prefetch_max = 5;
        let host = start(&scene, options.clone(), one_slot, &script).await;
        eventually("the first runs", async || script.starts().len() == 1).await;
        assert_eq!(host.drain().await, Exit::Drained);
        // In their order, untouched.
        let list = scene.list(KEY).await;
        assert!(
            list.iter()
                .rev()
                .eq(rest.iter().map(|body| body.as_bytes()))
        );
        assert!(!scene.exists(INSTANCES).await);
        let host = start(&scene, options, until_empty(quick(Some(2))), &script).await;
        assert_eq!(host.ended().await, Exit::Drained);
        assert!(script.starts().iter().all(|(_, attempt)| *attempt == 1));
        assert_eq!(script.starts().len(), 8);
    }
}

/// The answer to a record comes so late that another host may have had the message: its host lets go of it.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_whose_start_was_recorded_too_late_comes_again() {
    for options in both() {
        let scene = Scene::new().await;
        let slow = message("slow", "sleep:1000");
        scene
            .publish([message("again", "nack:100,ack"), slow])
            .await;
        let script = Arc::new(Script::default());
        let mut one_slot = quick(Some(9));
        one_slot.ledger.concurrency = 1;
        let options = ListOptions {
            min_idle: MIN_IDLE,
            ..options
        };
        let queue = ListQueue::open(scene.connector(), options).await.unwrap();
        let own = processing(queue.instance());
        let host = Host::on(Arc::new(queue), one_slot, &script);
        let is_again = |entry: &Vec<u8>| entry.windows(13).any(|w| w == b"x-retry-count");
        eventually("one has come again, behind the slow one", async || {
            script.starts().len() == 2 && scene.list(&own).await.iter().any(is_again)
        })
        .await;
        scene.server.pause(true);
        // The attempt ends while the lease of the other message lasts, and the record of its start waits for the answer.
        let late = Instant::now() + Duration::from_millis(1500) + MIN_IDLE;
        eventually("no lease lasts", async || Instant::now() > late).await;
        scene.server.pause(false);
        eventually("it is handled", async || host.metrics.summary().acked == 2).await;
        assert_eq!(script.starts_of("again"), 2);
        assert_eq!(host.drain().await, Exit::Drained);
        assert!(scene.list(DEAD).await.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_dies_under_load_loses_no_message() {
    let scene = Scene::new().await;
    let script = Arc::new(Script::default());
    let mut hosts = Vec::new();
    for n in 0..5 {
        let options = ListOptions {
            consumer: format!("host{n}"),
            ..recovering()
        };
        hosts.push(start(&scene, options, quick(None), &script).await);
    }
    for n in 0..600 {
        let body = ["nack:20,sleep:5", "sleep:5", "sleep:5"][n % 3];
        scene.publish([message(&n.to_string(), body)]).await;
        if n == 300 {
            hosts.remove(0).crash();
        }
    }
    let acked = || hosts.iter().map(|h| h.metrics.summary().acked).sum::<u64>();
    eventually("most are acknowledged", async || acked() > 500).await;
    scene.emptied().await;
    for host in hosts {
        assert_eq!(host.drain().await, Exit::Drained);
    }
    none_is_lost(&scene, &script, 600).await;
}
