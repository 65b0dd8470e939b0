//! A slow link to Redis, and large messages on it. On streams and on reliable lists.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::Queue;
use hostler::queue::kind::QueueOptions;
use hostler::runtime::Settings;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::queue::list_scene;
use crate::scene::{
    self, DEAD, KEY, Kind, connector, dead_letter, fetch, on_both, orphaned, park, requeue,
    running, settled, stream_options,
};

on_both! {
    messages_of_a_slow_link_start_once
    a_large_message_is_settled_over_a_slow_link
    a_body_that_does_not_change_is_not_sent
}

/// The deadline of each command. The link needs several times as long for all messages.
const DEADLINE: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Slow;

type Scene = scene::Scene<Slow>;

impl Scene {
    /// Publish bodies. Returns the key of the queue.
    async fn publish(&self, kind: Kind, bodies: &[String]) {
        for body in bodies {
            match kind {
                Kind::Stream => drop(self.raw.add(KEY, body).await),
                Kind::List => self.push(list_scene::KEY, body.as_bytes()).await,
            }
        }
    }

    async fn open(&self, kind: Kind, url: &str) -> Arc<dyn Queue> {
        let connector = connector(url).with_deadline(DEADLINE);
        options(kind).open(connector).await.unwrap()
    }

    /// How many dead letters there are.
    async fn dead(&self, kind: Kind) -> i64 {
        self.raw
            .number(match kind {
                Kind::Stream => "XLEN orders:dead",
                Kind::List => "LLEN jobs:dead",
            })
            .await
    }

    /// The text in all dead letters.
    async fn dead_text(&self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Stream => {
                let entries = self.raw.entries(DEAD).await;
                entries.into_iter().flat_map(|(_, f)| f.concat()).collect()
            }
            Kind::List => self.list(list_scene::DEAD).await.concat(),
        }
    }
}

fn options(kind: Kind) -> QueueOptions {
    match kind {
        Kind::Stream => QueueOptions::Stream(stream_options()),
        Kind::List => QueueOptions::List(list_scene::recovering()),
    }
}

fn settings(cap: u32) -> Settings {
    let mut settings = running(Some(cap));
    settings.ledger.concurrency = 16;
    settings
}

/// A body of this many bytes, whose handler takes these steps.
fn body(steps: &str, size: usize) -> String {
    format!("{steps},{}", "x".repeat(size))
}

async fn messages_of_a_slow_link_start_once(kind: Kind) {
    const MESSAGES: usize = 20;
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    // The first attempt fails: under a cap of 2, a lost one would make a dead letter.
    let bodies = vec![body("nack:0,ack", 40_000); MESSAGES];
    scene.publish(kind, &bodies).await;
    let queue = scene.open(kind, &proxy.url()).await;
    // 800 KB: six seconds there, and on a list as long for those that come again.
    proxy.throttle(130_000);
    let script = Arc::new(Script::default());
    let host = Host::on(queue, settings(2), &script);
    eventually("each has run twice", async || {
        script.starts().len() >= 2 * MESSAGES
    })
    .await;
    eventually("all are acknowledged", async || {
        host.metrics.summary().acked == MESSAGES as u64
    })
    .await;
    proxy.throttle(0);
    host.drain().await;
    let mut starts = script.starts();
    starts.sort();
    starts.dedup();
    assert_eq!(starts.len(), 2 * MESSAGES, "{starts:?}");
    assert!(starts.iter().all(|(_, attempt)| *attempt <= 2));
    assert_eq!(scene.dead(kind).await, 0);
}

async fn a_large_message_is_settled_over_a_slow_link(kind: Kind) {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    scene.publish(kind, &[body("drop", 600_000)]).await;
    let queue = scene.open(kind, &proxy.url()).await;
    proxy.throttle(100_000);
    let script = Arc::new(Script::default());
    let host = Host::on(queue, settings(1), &script);
    eventually("it is dead-lettered", async || {
        host.metrics.summary().dead_lettered.get("dropped") == Some(&1)
    })
    .await;
    proxy.throttle(0);
    host.drain().await;
    assert_eq!(script.starts().len(), 1);
    assert_eq!(scene.dead(kind).await, 1);
}

/// Every step takes the body from where it stands in Redis.
async fn a_body_that_does_not_change_is_not_sent(kind: Kind) {
    const SIZE: usize = 1 << 20;
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    let host = scene.open(kind, &proxy.url()).await;
    let steps = [
        Some(dead_letter()),
        Some(requeue(1)),
        Some(park(1, Duration::from_secs(9))),
        None,
    ];
    for step in steps {
        scene.publish(kind, &[body("ack", SIZE)]).await;
        let claims = fetch(&*host, 9).await;
        assert_eq!(claims.len(), 1);
        let before = proxy.bytes_passed();
        match &step {
            Some(step) => settled(&*host, &claims[0], 1, step.clone()).await,
            None => host.acknowledge(&claims).await.unwrap(),
        }
        let sent = proxy.bytes_passed() - before;
        assert!(sent < 10_000, "{sent} bytes for {step:?}");
        if step == Some(requeue(1)) {
            // It comes again, with its body; and goes.
            let mut again = fetch(&*host, 9).await;
            again.extend(scene::shared(host.take_due(9).await.unwrap().claims));
            assert_eq!(again.len(), 1);
            assert_eq!(again[0].message.body.len(), SIZE + 4);
            host.acknowledge(&again).await.unwrap();
        }
    }
    let dead = scene.dead_text(kind).await;
    assert_eq!(dead.iter().filter(|byte| **byte == b'x').count() / SIZE, 1);
}

#[tokio::test]
async fn an_heir_does_not_send_the_values_that_it_takes_over() {
    for options in list_scene::both() {
        let scene = list_scene::Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
        let dead = scene.host_with(options.clone()).await;
        let size = 1 << 20;
        scene.claim_all(&dead, &[&body("ack", size), "small"]).await;
        scene.age(&dead).await;
        scene.age_claims().await;
        let heir = QueueOptions::List(options).open(connector(&proxy.url()));
        let heir = heir.await.unwrap();
        let before = proxy.bytes_passed();
        let mut taken = Vec::new();
        eventually("both are taken over", async || {
            taken.extend(orphaned(&*heir, 9).await);
            taken.len() == 2
        })
        .await;
        // Once here, and not back.
        let passed = proxy.bytes_passed() - before;
        assert!(passed < size as u64 * 3 / 2, "{passed}");
        assert_eq!(taken[0].message.body.len(), size + 4);
        assert!(taken.iter().all(|c| c.message.headers.retry_count() == 1));
        assert_eq!(heir.renew(&taken).await.unwrap().len(), 2);
        heir.acknowledge(&taken).await.unwrap();
        assert!(scene.processing(&dead).await.is_empty());
        let backlog = heir.backlog().await.unwrap();
        assert_eq!((backlog.unread, backlog.pending), (false, 0));
    }
}
