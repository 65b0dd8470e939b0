//! The connection to the server fails: it is cut, replies are cut short, nothing arrives, or it is slow.

use std::time::Duration;

use hostler::queue::stream::scripts;
use hostler::redis::script::Script;
use hostler::telemetry::health::Cause;
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::redis::away_scene::{How, MIXED, Scene, Watched};

struct Proxied {
    scene: Scene,
    proxy: Proxy,
    host: Watched,
}

impl Proxied {
    async fn new(how: &How) -> Self {
        let scene = Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let host = Watched::start(&proxy.url(), how).await;
        Self { scene, proxy, host }
    }
}

/// The digest of a script: its requests contain it.
fn digest(script: &'static Script) -> String {
    redis::Script::new(script.source()).get_hash().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn attempts_that_run_during_a_cut_settle_after_it() {
    let Proxied { scene, proxy, host } = Proxied::new(&How::default()).await;
    let load = scene
        .load(&["sleep:300", "sleep:300", "sleep:300", "drop"], 32)
        .await;
    host.has_started(16).await;
    proxy.refuse(true);
    proxy.cut();
    host.is_not_ready(Cause::RedisAway, "redis at").await;
    eventually("the running attempts have finished", async || {
        host.metrics.in_flight.get() == 0
    })
    .await;
    assert!(!host.health.is_ready());
    proxy.refuse(false);
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    eventually("both connections are back", async || host.reconnects() >= 2).await;
    assert!(host.errors("connection") >= 1);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_cuts_under_load_lose_no_message() {
    let Proxied { scene, proxy, host } = Proxied::new(&How::min_idle(Duration::from_secs(3))).await;
    let load = scene.load(MIXED, 420).await;
    for n in 1..8 {
        host.has_started(40 * n).await;
        proxy.cut();
    }
    host.recovers().await;
    load.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_is_repeated_after_a_lost_reply() {
    let how = How::min_idle(Duration::from_secs(4));
    let Proxied { scene, proxy, host } = Proxied::new(&how).await;
    let mut all = scene.load(&[], 0).await;
    let needles = [
        ("XREADGROUP".to_owned(), "ack"),
        ("XACK".to_owned(), "ack"),
        (digest(&scripts::RECORD), "nack:0,ack"),
        (digest(&scripts::PARK), "nack:30,ack"),
        (digest(&scripts::TAKE_DUE), "nack:30,ack"),
        (digest(&scripts::DEAD_LETTER), "drop"),
    ];
    let mut cuts = 0;
    for (needle, body) in needles {
        // Nothing of the reply arrives, or only its first bytes.
        for bytes in [0, 1, 3] {
            proxy.cut_reply(needle.clone(), bytes);
            let load = scene.load(&[body], 6).await;
            all.messages.extend(load.messages);
            cuts += 1;
            let what = format!("the reply to {needle} is cut at {bytes}");
            eventually(&what, async || proxy.replies_cut() == cuts).await;
            host.recovers().await;
        }
    }
    all.settles(&scene, &host).await;
    // A claim whose reply was lost may be charged, but never costs a start: each step of a message
    // starts once at most.
    for (id, body) in &all.messages {
        let starts = host.script.starts_of(id);
        assert!(
            (1..=body.split(',').count()).contains(&starts),
            "{id} {body} {starts}"
        );
    }
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_recovers_from_a_connection_that_swallows_everything() {
    let how = How {
        deadline: Duration::from_millis(500),
        ..How::min_idle(Duration::from_secs(4))
    };
    let Proxied { scene, proxy, host } = Proxied::new(&how).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(40).await;
    proxy.pause();
    host.is_not_ready(Cause::RedisAway, "did not answer").await;
    let errors = host.errors("deadline");
    eventually("it is tried again", async || {
        host.errors("deadline") > errors
    })
    .await;
    proxy.resume();
    host.recovers().await;
    load.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_connection_is_no_failure() {
    let Proxied { scene, proxy, host } = Proxied::new(&How::default()).await;
    proxy.delay(Duration::from_millis(20), Duration::from_millis(20));
    proxy.pieces(64);
    let load = scene.load(MIXED, 70).await;
    eventually("they run", async || host.script.starts().len() >= 70).await;
    proxy.pieces(0);
    load.settles_without_a_repeat(&scene, &host).await;
    assert_eq!(host.all_errors(), 0);
    host.drains().await;
}
