//! A server that answers, but refuses: each is survived, counted, shown, and over soon after its
//! cause.

use std::time::Duration;

use hostler::telemetry::health::Cause;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::away_scene::{DEAD, GROUP, How, KEY, MIXED, MIXED_HERE, Scene, Watched};

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_becomes_a_replica_and_a_primary_again() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(40).await;
    // Nobody is there: it keeps its data.
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    host.is_not_ready(Cause::RedisAway, "READONLY").await;
    assert!(host.errors("READONLY") > 0);
    let reconnects = host.reconnects();
    scene.raw.ask("REPLICAOF NO ONE").await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    // The name may have come to lead to another server: it is asked on a new connection.
    assert!(host.reconnects() >= reconnects.max(1));
    assert_eq!(host.metrics.groups_recreated.get(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_without_its_primary_that_serves_nothing_stale() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(40).await;
    scene
        .raw
        .ask("CONFIG SET replica-serve-stale-data no")
        .await;
    // Or it would say READONLY.
    scene.raw.ask("CONFIG SET replica-read-only no").await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    host.is_not_ready(Cause::RedisAway, "MASTERDOWN").await;
    scene.raw.ask("REPLICAOF NO ONE").await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert!(host.errors("MASTERDOWN") > 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_without_enough_replicas_refuses_every_write() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(40).await;
    scene.raw.ask("CONFIG SET min-replicas-to-write 1").await;
    host.is_not_ready(Cause::RedisAway, "NOREPLICAS").await;
    scene.raw.ask("CONFIG SET min-replicas-to-write 0").await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert!(host.errors("NOREPLICAS") > 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forgotten_scripts_under_load() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(MIXED, 420).await;
    for n in 0..8 {
        host.has_started(20 * n).await;
        scene.raw.ask("SCRIPT FLUSH").await;
    }
    load.settles_without_a_repeat(&scene, &host).await;
    assert!(host.errors("NOSCRIPT") > 0);
    // It was nothing that one could notice.
    assert_eq!(host.reconnects(), 0);
    assert!(host.health.is_ready());
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn out_of_memory() {
    let scene = Scene::new().await;
    let join = format!("XGROUP CREATE {KEY} {GROUP} 0 MKSTREAM");
    scene.raw.ask(&join).await;
    let load = scene.load(MIXED_HERE, 60).await;
    scene.raw.ask("CONFIG SET maxmemory 1").await;
    // A host can start while there is none: what needs none is done.
    let host = Watched::starting(&scene.server.url(), &How::default()).await;
    host.is_not_ready(Cause::DeadLettersRefused, "OOM").await;
    // Acknowledgements need no memory: with it full, the queue is still drained of them.
    eventually("what needs no memory is done", async || {
        host.metrics.summary().acked == load.acks()
    })
    .await;
    assert_eq!(scene.raw.number(&format!("EXISTS {DEAD}")).await, 0);
    let refused = host.metrics.settlements_refused.get();
    let starts = host.script.starts().len();
    eventually("it is tried again", async || {
        host.metrics.settlements_refused.get() > refused
    })
    .await;
    // The handler is not run again meanwhile.
    assert_eq!(host.script.starts().len(), starts);
    scene.raw.ask("CONFIG SET maxmemory 0").await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert_eq!(host.reconnects(), 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_clients_under_load() {
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
async fn a_short_pause_is_waited_for() {
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
async fn a_pause_that_is_longer_than_a_command_may_take() {
    let scene = Scene::new().await;
    let how = How {
        deadline: Duration::from_millis(500),
        ..How::min_idle(Duration::from_secs(4))
    };
    let host = scene.host(&how).await;
    let load = scene.load(MIXED, 210).await;
    host.has_started(20).await;
    scene.raw.ask("CLIENT PAUSE 2500 ALL").await;
    host.is_not_ready(Cause::RedisAway, "did not answer").await;
    // The test's own connection is paused as well.
    scene.raw.ask("PING").await;
    host.recovers().await;
    load.settles(&scene, &host).await;
    assert!(host.errors("deadline") > 0);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_revoked_and_given_back() {
    let scene = Scene::with(RedisOptions::default().user("bob on >secret ~* &* +@all")).await;
    let url = format!("{}?user=bob&pass=secret", scene.server.url());
    let host = Watched::start(&url, &How::min_idle(Duration::from_secs(6))).await;
    let mut all = scene.load(&[], 0).await;
    // A command of each errand: fetch, acknowledge, every script, orphans, and one in scripts.
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
        scene.raw.ask(&format!("ACL SETUSER bob -{right}")).await;
        let refused = host.errors("NOPERM");
        host.is_not_ready(Cause::RedisConfiguration, said).await;
        // It stays so for as long as the cause lasts, whatever else works meanwhile.
        eventually("it is tried again", || async {
            assert!(!host.health.is_ready(), "ready without {right}");
            host.errors("NOPERM") > refused + 3
        })
        .await;
        let more = scene.load(MIXED, 14).await;
        all.messages.extend(more.messages);
        scene.raw.ask(&format!("ACL SETUSER bob +{right}")).await;
        host.recovers().await;
    }
    all.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_on_the_dead_letter_key_that_is_missing_for_a_while() {
    let scene = Scene::with(RedisOptions::default().user("bob on >secret ~* &* +@all")).await;
    let url = format!("{}?user=bob&pass=secret", scene.server.url());
    let host = Watched::start(&url, &How::default()).await;
    scene
        .raw
        .ask("ACL SETUSER bob resetkeys ~orders ~{orders}*")
        .await;
    let load = scene.load(MIXED, 70).await;
    host.is_not_ready(Cause::DeadLettersRefused, "NOPERM").await;
    // Everything else goes on.
    eventually("the others are acknowledged", async || {
        host.metrics.summary().acked == load.acks()
    })
    .await;
    assert_eq!(scene.raw.number(&format!("EXISTS {DEAD}")).await, 0);
    scene.raw.ask("ACL SETUSER bob ~*").await;
    host.recovers().await;
    load.settles_without_a_repeat(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_whose_password_changes_is_away_until_it_is_changed_back() {
    let scene = Scene::with(RedisOptions::default().user("bob on >secret ~* &* +@all")).await;
    let url = format!("{}?user=bob&pass=secret", scene.server.url());
    let host = Watched::start(&url, &How::default()).await;
    let load = scene.load(MIXED, 70).await;
    host.has_started(10).await;
    scene.raw.ask("ACL SETUSER bob resetpass >other").await;
    scene.raw.ask("CLIENT KILL TYPE normal SKIPME yes").await;
    host.is_not_ready(Cause::RedisConfiguration, "WRONGPASS")
        .await;
    for impediment in host.health.impediments() {
        assert!(!impediment.detail.contains("secret"), "{impediment:?}");
    }
    scene.raw.ask("ACL SETUSER bob >secret").await;
    host.recovers().await;
    load.settles(&scene, &host).await;
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_another_type_in_the_place_of_the_stream() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    scene.raw.ask(&format!("RENAME {KEY} kept")).await;
    scene.raw.ask(&format!("SET {KEY} x")).await;
    host.is_not_ready(Cause::RedisConfiguration, "WRONGTYPE")
        .await;
    scene.raw.ask(&format!("DEL {KEY}")).await;
    scene.raw.ask(&format!("RENAME kept {KEY}")).await;
    host.recovers().await;
    let load = scene.load(MIXED, 70).await;
    load.settles_without_a_repeat(&scene, &host).await;
    host.drains().await;
}
