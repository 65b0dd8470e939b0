//! A server that dies, hangs, or starts.

use std::time::Duration;

use hostler::telemetry::health::Cause;
use hostler_tests::redis::{RedisOptions, RedisServer, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::away_scene::{GROUP, How, KEY, MIXED, Scene};

/// Restart the server beside what the test watches: it blocks until the server answers.
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
async fn killed_and_restarted_with_its_data() {
    let options = RedisOptions::default()
        .appendonly()
        .set("appendfsync", "always");
    let mut scene = Scene::with(options).await;
    let host = scene.host(&How::min_idle(Duration::from_secs(3))).await;
    let load = scene.load(MIXED, 280).await;
    host.has_started(40).await;
    scene.server.kill();
    host.is_not_ready(Cause::RedisAway, "redis at").await;
    // What runs goes on, and ends.
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
    assert!(host.reconnects() >= 2);
    assert_eq!(host.metrics.groups_recreated.get(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_restarted_without_its_data() {
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
    eventually("nothing of before is held", async || {
        host.metrics.held.get() == 0
    })
    .await;
    // What had started acks; the rest went with the data, and is counted.
    let acked = host.metrics.summary().acked;
    let lost = host.metrics.trimmed_pending.get();
    assert_eq!(acked + lost, host.metrics.queue_wait_seconds.count());
    assert!(acked >= 16, "{acked}");
    let load = scene.load(MIXED, 70).await;
    eventually("what comes afterwards is settled", async || {
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
async fn one_that_hangs_is_given_up_and_found_again() {
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
async fn one_that_loads_its_data_is_waited_for() {
    // Each key takes 10 ms to load, and the server looks at its clients in between.
    let options = RedisOptions::default()
        .set("key-load-delay", "10000")
        .set("loading-process-events-interval-bytes", "1024");
    let mut scene = Scene::with(options).await;
    let host = scene.host(&How::default()).await;
    for n in 0..150 {
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
    load.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_is_told_to_stop_while_its_server_is_away_does_so_in_time() {
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
    // Whatever it had not finished is handed back: due now, owned by no host.
    for pending in scene.raw.pending(KEY, GROUP).await {
        assert_eq!(pending.consumer, "hostler:parked", "{pending:?}");
    }
}
