//! What is refused at start, and what is warned about.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::stream::{Retention, StreamOptions, StreamQueue};
use hostler::queue::{Backlog, Queue, Record, Reply, Step};
use hostler::redis::startup::{StartError, StartWarning, check};
use hostler_tests::redis::RedisOptions;

use crate::queue_scene::{
    DEAD, KEY, PARKED, Scene, connector, dead_letter, options, orphans, park, settle,
};

/// The commands that a user for streams needs, at the least: with `retention`, and the two of `ACL`
/// that let the check at start name what is missing.
const COMMANDS: [&str; 27] = [
    "+info",
    "+time",
    "+script|load",
    "+evalsha",
    "+type",
    "+exists",
    "+xreadgroup",
    "+xack",
    "+xpending",
    "+xclaim",
    "+xrange",
    "+xadd",
    "+xlen",
    "+xtrim",
    "+xgroup|create",
    "+xgroup|delconsumer",
    "+xinfo|groups",
    "+xinfo|consumers",
    "+xinfo|stream",
    "+zadd",
    "+zrem",
    "+zscore",
    "+zcard",
    "+zrange",
    "+zrangebyscore",
    "+acl|whoami",
    "+acl|dryrun",
];
const KEYS: [&str; 6] = [
    "~orders",
    "~orders:dead",
    "~{orders}:parked:*",
    "~{orders}:fences:g",
    "~{orders}:delayed",
    "~{orders}:cycle",
];
const FENCES: &str = "{orders}:fences:g";
const DELAYED: &str = "{orders}:delayed";
const CYCLE: &str = "{orders}:cycle";

async fn check_default(scene: &Scene) -> Result<Vec<StartWarning>, StartError> {
    check(&connector(&scene.server.url()), &options()).await
}

#[tokio::test]
async fn a_good_server_passes_with_its_warnings() {
    let scene = Scene::new().await;
    let warnings = check_default(&scene).await.unwrap();
    assert_eq!(warnings, [StartWarning::NoAppendOnlyFile]);
    scene
        .raw
        .ask("CONFIG SET maxmemory-policy allkeys-lru")
        .await;
    scene.raw.ask("CONFIG SET appendonly yes").await;
    let policy = "allkeys-lru".to_owned();
    for more in ["", "?protocol=resp3"] {
        let url = format!("{}{more}", scene.server.url());
        let warnings = check(&connector(&url), &options()).await.unwrap();
        assert_eq!(
            warnings,
            [StartWarning::Evicts {
                policy: policy.clone()
            }]
        );
    }
    // Nothing was made by looking.
    assert_eq!(scene.raw.number("DBSIZE").await, 0);
    // Where everything is there already, it passes as well.
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    settle(&host, &claims[0], 1, dead_letter()).await;
    settle(&host, &claims[1], 1, park(1, Duration::ZERO)).await;
    check_default(&scene).await.unwrap();
}

#[tokio::test]
async fn keys_of_the_wrong_type_are_named() {
    let scene = Scene::new().await;
    for name in [KEY, DEAD, PARKED, DELAYED] {
        scene.raw.ask(&format!("SADD {name} x")).await;
        let error = check_default(&scene).await.unwrap_err();
        let StartError::WrongType { key, found, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((key.as_str(), found.as_str()), (name, "set"));
        if name == KEY {
            let error = StreamQueue::open(connector(&scene.server.url()), options())
                .await
                .unwrap_err();
            assert!(matches!(error, StartError::WrongType { .. }), "{error:?}");
        }
        scene.raw.ask(&format!("DEL {name}")).await;
    }
}

#[tokio::test]
async fn the_dead_letter_key_is_not_the_source() {
    let scene = Scene::new().await;
    let mut same = options();
    same.dead_letter.as_mut().unwrap().key = KEY.to_owned();
    let error = check(&connector(&scene.server.url()), &same)
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::KeyIsSource { .. }), "{error:?}");
}

#[tokio::test]
async fn a_replica_is_refused_with_the_name_of_its_primary() {
    let scene = Scene::new().await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = check_default(&scene).await.unwrap_err();
    assert!(matches!(error, StartError::Replica { .. }), "{error:?}");
    assert!(error.to_string().contains("127.0.0.1:1"), "{error}");
}

async fn with_user(commands: &[&str], keys: &[&str]) -> (Scene, String) {
    let rules = format!("bob on >secret {} {}", keys.join(" "), commands.join(" "));
    let scene = Scene::with(RedisOptions::default().user(&rules)).await;
    let url = format!("{}?user=bob&pass=secret", scene.server.url());
    (scene, url)
}

#[tokio::test]
async fn the_least_privileged_user_passes_and_every_right_it_lacks_is_named() {
    let (scene, url) = with_user(&COMMANDS, &KEYS).await;
    let all = StreamOptions {
        retention: Retention::Acked,
        ..options()
    };
    check(&connector(&url), &all).await.unwrap();
    let mut named = 0;
    for rule in COMMANDS {
        if rule.starts_with("+acl") {
            continue;
        }
        let without = rule.replacen('+', "-", 1);
        scene.raw.ask(&format!("ACL SETUSER bob {without}")).await;
        let error = check(&connector(&url), &all).await.unwrap_err();
        let StartError::MissingRights { user, rules } = &error else {
            panic!("without {rule}: {error:?}")
        };
        assert_eq!(user, "bob");
        if rule == "+xinfo" {
            assert_eq!(
                rules,
                &["+xinfo|groups", "+xinfo|consumers", "+xinfo|stream"]
            );
        } else {
            assert_eq!(rules, &[rule], "{error}");
        }
        assert!(error.to_string().contains("ACL SETUSER bob"), "{error}");
        scene.raw.ask(&format!("ACL SETUSER bob {rule}")).await;
        named += 1;
    }
    assert_eq!(named, COMMANDS.len() - 2);
    for (lacking, name) in [
        (0, KEY),
        (1, DEAD),
        (2, PARKED),
        (3, FENCES),
        (4, DELAYED),
        (5, CYCLE),
    ] {
        let mut rules: Vec<&str> = KEYS.to_vec();
        rules.remove(lacking);
        scene
            .raw
            .ask(&format!("ACL SETUSER bob resetkeys {}", rules.join(" ")))
            .await;
        let error = check(&connector(&url), &all).await.unwrap_err();
        let StartError::MissingRights { rules, .. } = &error else {
            panic!("without {name}: {error:?}")
        };
        assert_eq!(rules, &[format!("~{name}")]);
    }
}

#[tokio::test]
async fn a_user_that_may_not_ask_about_its_rights_starts() {
    let commands: Vec<&str> = COMMANDS
        .into_iter()
        .filter(|c| !c.starts_with("+acl"))
        .collect();
    let (_scene, url) = with_user(&commands, &KEYS).await;
    check(&connector(&url), &options()).await.unwrap();
}

#[tokio::test]
async fn everything_works_for_the_least_privileged_user() {
    let (scene, url) = with_user(&COMMANDS, &KEYS).await;
    let all = StreamOptions {
        retention: Retention::Acked,
        ..options()
    };
    let host = StreamQueue::open(connector(&url), all.clone())
        .await
        .unwrap();
    let other = StreamQueue::open(connector(&url), all).await.unwrap();
    let claims = scene.read(&host, &["a", "b", "c", "d", "e"]).await;
    let record = Record {
        claim: Arc::clone(&claims[0]),
        expect: 1,
        write: 2,
    };
    assert_eq!(host.record(&[record]).await.unwrap(), [Reply::Done]);
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    for (claim, count, step) in [
        (0, 2, dead_letter()),
        (1, 1, park(1, Duration::ZERO)),
        (2, 1, Step::Discard),
        (3, 1, Step::Leave { keep: 1 }),
    ] {
        assert_eq!(
            settle(&host, &claims[claim], count, step).await,
            Reply::Done
        );
    }
    assert_eq!(other.take_due(9).await.unwrap().claims.len(), 1);
    assert_eq!(orphans(&other, 9).await.claims.len(), 1);
    scene.age(&host, claims[4].id, 1).await;
    assert_eq!(orphans(&host, 9).await.claims.len(), 1);
    other.acknowledge(&claims).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 5);
    scene.raw.ask("XGROUP DESTROY orders g").await;
    host.repair(&[]).await.unwrap();
    host.interrupt().await.unwrap();
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
    host.leave().await.unwrap();
}

#[tokio::test]
async fn a_cluster_wants_keys_that_can_share_a_slot() {
    let scene = Scene::with(RedisOptions::default().tcp().set("cluster-enabled", "yes")).await;
    scene.raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    hostler_tests::redis::eventually("the cluster is up", || async {
        scene
            .raw
            .text("CLUSTER INFO")
            .await
            .contains("cluster_state:ok")
    })
    .await;
    let connector = connector(&scene.server.url());
    let broken = StreamOptions::new("a}b", "g");
    let error = check(&connector, &broken).await.unwrap_err();
    assert!(matches!(error, StartError::BrokenTag { .. }), "{error:?}");
    check(&connector, &options()).await.unwrap();
    // A dead-letter key in another slot: copied, then acknowledged.
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    assert_eq!(
        settle(&host, &claims[0], 2, dead_letter()).await,
        Reply::Stolen
    );
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Done
    );
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Gone
    );
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 1);
    assert_eq!(
        settle(&host, &claims[1], 1, park(1, Duration::ZERO)).await,
        Reply::Done
    );
    assert_eq!(host.take_due(9).await.unwrap().claims.len(), 1);
}
