//! A server that dies, hangs, or is just starting.

use std::time::{Duration, Instant};

use hostler::telemetry::health::Cause;
use hostler_tests::redis::{RedisOptions, RedisServer, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::redis::away_scene::{GROUP, How, KEY, MIXED, RECOVERY, Scene};

/// Restart the server in a task of its own: a restart blocks until the server answers.
async fn restarted(mut server: RedisServer) -> RedisServer {
    tokio::task::spawn_blocking(move || {
        server.restart();
        server
    })
    .await
    .unwrap()
}

fn signal(server: &RedisServer, signal: Signal) {
    let pid = i32::try_from(server.pid()).unwrap();
    kill(Pid::from_raw(pid), signal).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_with_its_data_loses_no_message() {
    let options = RedisOptions::default()
        .appendonly()
        .set("appendfsync", "always");
    let mut scene = Scene::with(options).await;
    let host = scene.host(&How::min_idle(Duration::from_secs(3))).await;
    let load = scene.load(MIXED, 280).await;
    host.has_started(40).await;
    scene.server.kill();
    host.is_not_ready(Cause::RedisAway, "redis at").await;
    eventually("no handler runs", async || {
        host.metrics.in_flight.get() == 0
    })
    .await;
    let errors = host.errors("connection");
    eventually("it is tried again", async || {
        host.errors("connection") > errors
    })
    .await;
    scene.server.restart();
    host.recovers().await;
    scene.reconnect().await;
    load.settles(&scene, &host).await;
    // The one that fetches has no part in that.
    eventually("both connections are back", async || host.reconnects() >= 2).await;
    assert_eq!(host.metrics.groups_recreated.get(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_restarted_without_its_data_gets_a_new_group() {
    let mut scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    scene.load(&["sleep:200"], 64).await;
    host.has_started(16).await;
    scene.server.kill();
    host.is_not_ready(Cause::RedisAway, "redis at").await;
    scene.server.restart();
    host.recovers().await;
    scene.reconnect().await;
    eventually("the stream is made again", async || {
        host.metrics.groups_recreated.get() == 1
    })
    .await;
    eventually("no old message is held", async || {
        host.metrics.held.get() == 0
    })
    .await;
    // The started messages are acknowledged. The others are lost with the data, and counted.
    let acked = host.metrics.summary().acked;
    let lost = host.metrics.trimmed_pending.get();
    assert_eq!(
        acked + lost,
        host.metrics.queue_wait_seconds.durations().count()
    );
    assert!(acked >= 16, "{acked}");
    let load = scene.load(MIXED, 70).await;
    eventually("the later messages are settled", async || {
        host.metrics.summary().acked == acked + load.acks()
    })
    .await;
    eventually("nothing is pending", async || {
        scene.raw.pending(KEY, GROUP).await.is_empty()
    })
    .await;
    load.is_dead_lettered_once(&scene).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_recovers_from_a_hanging_server() {
    let scene = Scene::new().await;
    let how = How {
        deadline: Duration::from_millis(500),
        ..How::min_idle(Duration::from_secs(4))
    };
    let host = scene.host(&how).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(40).await;
    signal(&scene.server, Signal::SIGSTOP);
    host.is_not_ready(Cause::RedisAway, "did not answer").await;
    let errors = host.errors("deadline");
    eventually("it is tried again", async || {
        host.errors("deadline") > errors
    })
    .await;
    signal(&scene.server, Signal::SIGCONT);
    host.recovers().await;
    load.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_waits_for_a_server_that_loads_its_data() {
    // Each key takes 10 ms to load, and the server looks at its clients in between.
    let options = RedisOptions::default()
        .set("key-load-delay", "10000")
        .set("loading-process-events-interval-bytes", "1024");
    let mut scene = Scene::with(options).await;
    let host = scene.host(&How::default()).await;
    for n in 0..400 {
        let filler = "x".repeat(1024);
        scene.raw.ask(&format!("SET filler:{n} {filler}")).await;
    }
    let load = scene
        .load(&["sleep:400", "sleep:400,ack", "drop"], 48)
        .await;
    host.has_started(16).await;
    scene.raw.ask("SAVE").await;
    scene.server.kill();
    scene.server = {
        let server = restarted(scene.server);
        let (server, ()) = tokio::join!(server, host.is_not_ready(Cause::RedisAway, "LOADING"));
        server
    };
    host.recovers().await;
    scene.reconnect().await;
    assert!(host.errors("LOADING") > 0);
    // The acknowledgements between the save and the kill are lost with the data.
    load.settles_at_least_once(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_stops_in_time_while_its_server_is_away() {
    let mut scene = Scene::with(RedisOptions::default().appendonly()).await;
    let host = scene.host(&How::default()).await;
    scene.load(&["sleep:50"], 40).await;
    host.has_started(16).await;
    scene.server.kill();
    host.is_not_ready(Cause::RedisAway, "redis at").await;
    let stopping = tokio::spawn(host.drains());
    scene.server.restart();
    stopping.await.unwrap();
    scene.reconnect().await;
    // It has handed back its unfinished messages: they are due now, and no host owns them.
    for pending in scene.raw.pending(KEY, GROUP).await {
        assert_eq!(pending.consumer, "hostler:parked", "{pending:?}");
    }
}

/// It compares times: alone.
mod measured {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_host_recovers_soon_after_its_server_is_back() {
        let mut scene = Scene::new().await;
        let host = scene.host(&How::default()).await;
        scene.server.kill();
        host.is_not_ready(Cause::RedisAway, "redis at").await;
        scene.server.restart();
        let begun = Instant::now();
        host.recovers().await;
        let took = begun.elapsed();
        assert!(took < RECOVERY, "{took:?}");
        host.drains().await;
    }
}
