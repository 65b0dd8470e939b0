//! A server that answers, but refuses. The host counts and shows each refusal, and recovers soon after
//! the cause has ended.

use std::time::Duration;

use hostler::telemetry::health::Cause;
use hostler_tests::redis::eventually;

use crate::redis::away_scene::{DEAD, GROUP, How, KEY, MIXED, MIXED_HERE, Scene, Watched};

/// From `begin` to `end` Redis refuses every write with this code. The host notices, and recovers
/// without a repeated start.
async fn every_write_is_refused(begin: &[&str], code: &str, end: &str) -> (Scene, Watched) {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(40).await;
    for command in begin {
        scene.raw.ask(command).await;
    }
    host.is_not_ready(Cause::RedisAway, code).await;
    scene.raw.ask(end).await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert!(host.errors(code) > 0);
    (scene, host)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_recovers_when_its_replica_is_a_primary_again() {
    // Its primary does not exist, so the replica keeps its data.
    let begin = ["REPLICAOF 127.0.0.1 1"];
    let (_scene, host) = every_write_is_refused(&begin, "READONLY", "REPLICAOF NO ONE").await;
    // The name may lead to another server by now, so the host has connected anew.
    assert!(host.reconnects() > 0);
    assert_eq!(host.metrics.groups_recreated.get(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_recovers_from_a_replica_that_serves_no_stale_data() {
    let begin = [
        "CONFIG SET replica-serve-stale-data no",
        // Or it would answer READONLY.
        "CONFIG SET replica-read-only no",
        "REPLICAOF 127.0.0.1 1",
    ];
    let (_scene, host) = every_write_is_refused(&begin, "MASTERDOWN", "REPLICAOF NO ONE").await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_recovers_from_a_primary_without_enough_replicas() {
    let begin = ["CONFIG SET min-replicas-to-write 1"];
    let end = "CONFIG SET min-replicas-to-write 0";
    let (_scene, host) = every_write_is_refused(&begin, "NOREPLICAS", end).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn scripts_that_redis_forgets_are_loaded_again_under_load() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 420).await;
    for n in 0..8 {
        host.has_started(20 * n).await;
        scene.raw.ask("SCRIPT FLUSH").await;
    }
    load.settles_without_a_repeat(&scene, &host).await;
    assert!(host.errors("NOSCRIPT") > 0);
    // Nothing else has happened.
    assert_eq!(host.reconnects(), 0);
    assert!(host.health.is_ready());
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_memory_acknowledgements_go_on_and_dead_letters_wait() {
    let scene = Scene::new().await;
    let join = format!("XGROUP CREATE {KEY} {GROUP} 0 MKSTREAM");
    scene.raw.ask(&join).await;
    let load = scene.load(MIXED_HERE, 60).await;
    scene.out_of_memory(true).await;
    // A host can start without memory, and do all that needs none.
    let host = Watched::starting(&scene.server.url(), &How::default()).await;
    host.is_not_ready(Cause::DeadLettersRefused, "OOM").await;
    eventually("all others are acknowledged", async || {
        host.metrics.summary().acked == load.acks()
    })
    .await;
    assert!(!scene.exists(DEAD).await);
    host.has_started(load.starts_of_all()).await;
    let refused = host.metrics.settlements_refused.get();
    let starts = host.script.starts().len();
    eventually("it is tried again", async || {
        host.metrics.settlements_refused.get() > refused
    })
    .await;
    // The handler is not run again meanwhile.
    assert_eq!(host.script.starts().len(), starts);
    scene.out_of_memory(false).await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert_eq!(host.reconnects(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_reconnects_when_its_clients_are_killed_under_load() {
    let scene = Scene::new().await;
    let host = scene.host(&How::min_idle(Duration::from_secs(3))).await;
    let load = scene.load(MIXED, 420).await;
    for n in 0..5 {
        let reconnects = host.reconnects();
        host.has_started(40 * n).await;
        scene.raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
        // Both connections, unless the other was just being opened.
        eventually("it has connected anew", async || {
            host.reconnects() > reconnects
        })
        .await;
        host.recovers().await;
    }
    load.settles(&scene, &host).await;
    assert!(host.errors("connection") >= 5);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_pause_is_no_failure() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(20).await;
    scene.raw.ask("CLIENT PAUSE 800 ALL").await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert_eq!(host.all_errors(), 0);
    assert_eq!(host.reconnects(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_recovers_from_a_pause_longer_than_its_deadline() {
    let scene = Scene::new().await;
    let how = How {
        deadline: Duration::from_millis(500),
        ..How::min_idle(Duration::from_secs(8))
    };
    let host = scene.host(&how).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(20).await;
    // Longer than it takes to see it, also on a busy machine.
    scene.raw.ask("CLIENT PAUSE 5000 ALL").await;
    host.is_not_ready(Cause::RedisAway, "did not answer").await;
    // The test's own connection is paused as well.
    scene.raw.ask("PING").await;
    host.recovers().await;
    load.settles(&scene, &host).await;
    assert!(host.errors("deadline") > 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_not_ready_while_a_right_is_missing() {
    let scene = Scene::with_user("").await;
    let host = Watched::start(&scene.user_url(), &How::min_idle(Duration::from_secs(6))).await;
    let mut all = scene.load(&[], 0).await;
    // A command of each request: fetch, acknowledge, every script, orphans, and one in scripts.
    let rights = [
        ("xreadgroup", "xreadgroup"),
        ("xack", "xack"),
        ("evalsha", "evalsha"),
        ("xinfo", "xinfo"),
        // Redis does not say which one a script lacks.
        ("xclaim", "script"),
    ];
    for (right, said) in rights {
        let load = scene.load(MIXED, 70).await;
        all.messages.extend(load.messages);
        scene.rights(&format!("-{right}")).await;
        let refused = host.errors("NOPERM");
        host.is_not_ready(Cause::RedisConfiguration, said).await;
        // It is not ready for as long as the cause lasts, although other requests succeed.
        eventually("it is tried again", || async {
            assert!(!host.health.is_ready(), "ready without {right}");
            host.errors("NOPERM") > refused + 3
        })
        .await;
        let more = scene.load(MIXED, 14).await;
        all.messages.extend(more.messages);
        scene.rights(&format!("+{right}")).await;
        host.recovers().await;
    }
    all.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_right_to_the_dead_letter_key_only_dead_letters_wait() {
    let scene = Scene::with_user("").await;
    let host = Watched::start(&scene.user_url(), &How::default()).await;
    scene.rights("resetkeys ~orders ~{orders}*").await;
    let load = scene.load(MIXED, 70).await;
    host.is_not_ready(Cause::DeadLettersRefused, "NOPERM").await;
    eventually("the others are acknowledged", async || {
        host.metrics.summary().acked == load.acks()
    })
    .await;
    assert!(!scene.exists(DEAD).await);
    scene.rights("~*").await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_not_ready_while_its_password_is_wrong() {
    let scene = Scene::with_user("").await;
    let host = Watched::start(&scene.user_url(), &How::default()).await;
    let load = scene.load(MIXED, 70).await;
    host.has_started(10).await;
    scene.rights("resetpass >other").await;
    scene.raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
    host.is_not_ready(Cause::RedisConfiguration, "WRONGPASS")
        .await;
    for impediment in host.health.impediments() {
        assert!(!impediment.detail.contains("secret"), "{impediment:?}");
    }
    scene.rights(">secret").await;
    host.recovers().await;
    load.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_not_ready_while_its_key_has_another_type() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    scene.raw.ask(&format!("RENAME {KEY} kept")).await;
    scene.obstruct(KEY).await;
    host.is_not_ready(Cause::RedisConfiguration, "WRONGTYPE")
        .await;
    scene.delete(KEY).await;
    scene.raw.ask(&format!("RENAME kept {KEY}")).await;
    host.recovers().await;
    let load = scene.load(MIXED, 70).await;
    load.settles_without_a_repeat(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_only_one_request_needs_stops_only_that_one() {
    for key in ["{orders}:delayed", "{orders}:parked:workers"] {
        let scene = Scene::new().await;
        let host = scene.host(&How::default()).await;
        scene.obstruct(key).await;
        host.is_not_ready(Cause::RedisConfiguration, key).await;
        host.is_not_ready(Cause::RedisConfiguration, "taking delayed messages")
            .await;
        // It never stops reading and settling: nothing waits for another probe.
        let refused = host.errors("WRONGTYPE");
        let load = scene.load(&["ack", "drop", "sleep:20"], 90).await;
        load.settles_without_a_repeat(&scene, &host).await;
        eventually("it is tried again", || async {
            assert!(!host.health.is_ready(), "ready without {key}");
            host.errors("WRONGTYPE") > refused + 3
        })
        .await;
        let more = scene.load(MIXED_HERE, 12).await;
        scene.delete(key).await;
        host.recovers().await;
        // The other key was in order all the time, and so is this one now.
        let later = scene.load(&["nack:30,ack"], 5).await;
        let mut all = load;
        all.messages.extend(more.messages);
        all.messages.extend(later.messages);
        all.settles(&scene, &host).await;
        host.drains().await;
    }
}
