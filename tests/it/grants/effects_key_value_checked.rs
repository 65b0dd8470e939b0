//! `commit = "checked"`: a message whose values have changed since it read them runs again.

use std::collections::BTreeMap;

use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, eventually};
use hostler_tests::witness::Witness;
use nix::sys::signal::Signal;

use crate::grants::effects_key_value::{PREFIX, host, value};
use crate::outgoing::effects_publish::{details, publish};
use crate::scene::{self, Kind, on_both};

type Scene = scene::Scene<()>;

on_both! {
    no_update_is_lost_whichever_host_dies
    a_changed_value_voids_the_attempt_and_its_message_runs_again
}

fn checked(scene: &Scene, kind: Kind) -> HostOptions {
    let grant = format!(r#"{{"prefix":"{PREFIX}","commit":"checked"}}"#);
    host(scene, kind).flag("grant-key-value", &grant)
}

/// Three hosts add to the same numbers, by `get` and `set`; some of them are killed, and the server is
/// restarted with its data.
async fn no_update_is_lost_whichever_host_dies(kind: Kind) {
    const MESSAGES: usize = 240;
    const KEYS: usize = 4;
    const KILLS: usize = 3;
    let options = RedisOptions::default()
        .appendonly()
        .set("appendfsync", "always");
    let mut scene = Scene::with(options).await;
    let options = checked(&scene, kind)
        .flags("min-idle=1s concurrency=4 wait-redis=20s")
        .without("max-deliveries");
    let serving = options.clone().admin();
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(serving.ready().await);
    }
    let (mut killed, mut reruns) = (Vec::new(), 0);
    for number in 0..MESSAGES {
        // Some fail after they have written, and some publish as well.
        let first = match number % 6 {
            0 => "set:wrong=1+nack:5,",
            1 => "set:wrong=1+trap;",
            _ => "",
        };
        let body = format!("add:n{}+publish:invoices:{number}", number % KEYS);
        let body = format!(
            "{first}{}{body}",
            if number % 3 == 0 { "sleep:5+" } else { "" }
        );
        publish(&scene, kind, &number.to_string(), &body).await;
        if number % (MESSAGES / KILLS) == MESSAGES / KILLS / 2 {
            let dying = hosts.remove(0);
            reruns += dying.metric("hostler_reruns_total");
            killed.push(dying.kill().await);
            if killed.len() == 2 {
                scene.server.kill();
                scene.server.restart();
                scene.reconnect().await;
            }
            hosts.push(serving.ready().await);
        }
    }
    for host in hosts {
        reruns += host.metric("hostler_reruns_total");
        host.kill().await;
    }
    options.until_empty().end().await.expect_code(0);
    // No message was given up: each of them counts.
    assert!(
        !scene.exists("orders:dead").await,
        "{:?}",
        details(&scene, kind).await
    );
    let mut counted = BTreeMap::new();
    for key in 0..KEYS {
        counted.insert(key, value(&scene, &format!("n{key}")).await);
    }
    let wanted = (MESSAGES / KEYS).to_string();
    let wanted = (0..KEYS).map(|key| (key, Some(wanted.clone()))).collect();
    assert_eq!(counted, wanted);
    assert_eq!(value(&scene, "wrong").await, None);
    let invoices = scene.raw.number("XLEN invoices").await;
    assert_eq!(invoices, MESSAGES as i64);
    // The numbers were contended, or this shows nothing.
    assert!(reruns > 0);
}

/// Another client changes a value between the read and the acknowledgement.
async fn a_changed_value_voids_the_attempt_and_its_message_runs_again(kind: Kind) {
    let scene = Scene::new().await;
    // With one attempt, a charge for the rerun would end the message.
    let options = checked(&scene, kind).flags("max-deliveries=1 timeout=1m");
    let options = options.admin();
    let host = options.ready().await;
    scene.raw.ask(&format!("SET {PREFIX}n 5")).await;
    publish(&scene, kind, "m", "add:n+sleep:2500+publish:invoices:x").await;
    host.starts(1).await;
    eventually("it has read", async || scene.calls("get").await > 0).await;
    scene.raw.ask(&format!("SET {PREFIX}n 41")).await;
    eventually("it is handled", async || {
        host.metric("hostler_published_total") == 1
    })
    .await;
    assert_eq!(value(&scene, "n").await.as_deref(), Some("42"));
    assert_eq!(host.metric("hostler_reruns_total"), 1);
    assert_eq!(host.metric("hostler_effects_void_total"), 0);
    assert_eq!(scene.raw.number("XLEN invoices").await, 1);
    let ended = host.drain().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(
        (&summary["acked"], &summary["attempts"]),
        (&1.into(), &2.into())
    );
    assert!(!scene.exists("orders:dead").await);
}

/// A value of a list without an id, whose attempt is void while its host stops or is paused: a message that has started
/// once keeps its id, and with it its idempotency key.
async fn a_rerun_keeps_its_id(stops: bool) {
    let scene = Scene::new().await;
    let options = checked(&scene, Kind::List).flags("max-deliveries=1 timeout=1m");
    let host = options.ready().await;
    scene.raw.ask(&format!("SET {PREFIX}n 5")).await;
    scene.push("orders", b"add:n+sleep:5000").await;
    host.starts(1).await;
    eventually("it has read", async || scene.calls("get").await > 0).await;
    let heir = if stops {
        host.signal(Signal::SIGTERM);
        host.logs("draining").await;
        scene.raw.ask(&format!("SET {PREFIX}n 41")).await;
        let first = host.ended().await;
        first.expect_code(0);
        vec![first, options.until_empty().end().await]
    } else {
        scene
            .raw
            .ask("HSET {orders}:policy queue.paused true")
            .await;
        host.logs("paused: what has not started goes back").await;
        scene.raw.ask(&format!("SET {PREFIX}n 41")).await;
        eventually("it is back", async || {
            scene.raw.number("LLEN orders").await == 1
        })
        .await;
        scene.raw.ask("DEL {orders}:policy").await;
        host.starts(2).await;
        vec![host.drain().await]
    };
    assert_eq!(value(&scene, "n").await.as_deref(), Some("42"));
    let witness = Witness::of_all(&heir);
    assert_eq!(witness.total(), 2);
    assert_eq!(witness.repeated().len(), 1, "both have one id: {witness:?}");
}

#[tokio::test]
async fn a_rerun_that_goes_back_to_a_list_in_a_drain_keeps_its_id() {
    a_rerun_keeps_its_id(true).await;
}

#[tokio::test]
async fn a_rerun_that_goes_back_to_a_list_in_a_pause_keeps_its_id() {
    a_rerun_keeps_its_id(false).await;
}

/// A key that is there, is deleted, expires or holds something else counts as changed as well. A key that an attempt
/// has incremented itself does not.
#[tokio::test]
async fn every_kind_of_change_counts_but_the_attempts_own() {
    let scene = Scene::new().await;
    let host = checked(&scene, Kind::Stream).admin().ready().await;
    let reruns = || host.metric("hostler_reruns_total");
    for (place, (before, change, after)) in [
        ("DEL {k}", "SET {k} 1", "2"),
        ("SET {k} 1", "DEL {k}", "1"),
        ("SET {k} 1 PX 600000", "PEXPIRE {k} 1", "1"),
        ("SET {k} 1", "APPEND {k} 0", "11"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("{PREFIX}n");
        scene.raw.ask(&before.replace("{k}", &key)).await;
        let gets = scene.calls("type").await;
        let id = place.to_string();
        publish(&scene, Kind::Stream, &id, "add:n+sleep:1500").await;
        eventually("it has read", async || scene.calls("type").await > gets).await;
        scene.raw.ask(&change.replace("{k}", &key)).await;
        eventually("it ran again", async || reruns() == place as u64 + 1).await;
        eventually("it is handled", async || {
            host.metric("hostler_keys_written_total") == place as u64 + 1
        })
        .await;
        assert_eq!(value(&scene, "n").await.as_deref(), Some(after), "{change}");
    }
    let body = "find:m+quiet:increment:m:5+find:n=11+set:last=1";
    publish(&scene, Kind::Stream, "own", body).await;
    eventually("it is handled", async || {
        value(&scene, "last").await.is_some()
    })
    .await;
    assert_eq!(
        (reruns(), value(&scene, "m").await.as_deref()),
        (4, Some("5"))
    );
    host.drain().await.expect_code(0);
}

/// Without the check, one of two updates is lost: this is what it is for.
#[tokio::test]
async fn without_the_check_the_last_acknowledgement_wins() {
    let scene = Scene::new().await;
    let options = host(&scene, Kind::Stream).flags("concurrency=2 timeout=1m");
    for id in ["a", "b"] {
        publish(&scene, Kind::Stream, id, "add:n+sleep:3000").await;
    }
    assert_eq!(options.finish().await.json()["acked"], 2);
    assert_eq!(value(&scene, "n").await.as_deref(), Some("1"));
}

/// The two drafts of `wasi:keyvalue` behind the same grant.
#[tokio::test]
async fn both_drafts_of_wasi_keyvalue_use_the_granted_keys() {
    let scene = Scene::new().await;
    let options = host(&scene, Kind::Stream)
        .without("grant-publish")
        .flag("handler", &guest("standard-keys").display().to_string())
        .admin();
    for key in 0..30 {
        scene
            .raw
            .ask(&format!("SET {{orders}}:kv:x:other{key} 1"))
            .await;
        scene.raw.ask(&format!("SET outside{key} 1")).await;
    }
    scene.raw.ask("SADD {orders}:kv:set 1").await;
    let prefix = "{orders}:kv:mine*:";
    let grant = format!(r#"{{"prefix":"{prefix}"}}"#);
    let options = options.flag("grant-key-value", &grant);
    let mut cases: Vec<(String, String, &str)> = Vec::new();
    for draft in ["one", "two"] {
        let mut case = |id: &str, body: &str, said: &'static str| {
            let body = body.replace("D:", &format!("{draft}:"));
            cases.push((format!("{draft} {id}"), body, said));
        };
        case("bucket", "D:open:other", "NoSuchStore");
        case("own", "D:set:own=1+D:get:own", "1");
        case("missing", "D:get:own", "none");
        case("set", "D:set:a=1+D:sets:b=2|c=3+D:open:default", "");
        case(
            "many",
            "D:gets:a|x|b",
            if draft == "one" {
                "a=1 none b=2"
            } else {
                "a=1 x=none b=2"
            },
        );
        case("has", "D:set:new=1+D:delete:a+D:has:a", "false");
        case("listed", "D:keys", "a b c");
        case("own keys", "D:set:z=1+D:deletes:a|b+D:keys", "c z");
        case("sum", "D:raise:n:5+D:increment:n:2", "7");
        case(
            "written",
            "D:set:n=1+D:raise:n:1",
            "this attempt has written the key",
        );
        case("deleted", "D:deletes:a|b|c|n", "");
        case("nothing", "D:keys", "");
    }
    for (id, body, said) in [
        ("cas", "two:swap:s=1", ""),
        ("added", "two:add:s+two:add:s", ""),
        ("swapped", "two:get:s", "3"),
        (
            "cas of own",
            "two:set:s=1+two:swap:s=2",
            "this attempt has written the key",
        ),
        (
            "cursor",
            "two:bad-cursor",
            "the cursor is not one of this store",
        ),
        (
            "negative",
            "two:raise:m:-5+one:increment:m:1",
            "the sum is negative",
        ),
    ] {
        cases.push((id.to_owned(), body.to_owned(), said));
    }
    let host = options.ready().await;
    let settled = || {
        let metrics = host.metrics();
        let all = metrics.lines();
        let settled = all.filter(|line| line.starts_with("hostler_dispositions_total{"));
        settled
            .filter_map(|line| line.rsplit(' ').next()?.parse::<usize>().ok())
            .sum::<usize>()
    };
    for (place, (id, body, _)) in cases.iter().enumerate() {
        publish(&scene, Kind::Stream, id, body).await;
        eventually("it is settled", async || settled() > place).await;
    }
    host.drain().await.expect_code(0);
    let details = details(&scene, Kind::Stream).await;
    for (id, body, said) in &cases {
        match details.get(id) {
            Some(detail) if said.is_empty() => assert_eq!(detail, "", "{id}: {body}"),
            Some(detail) => assert!(detail.contains(said), "{id}: {body}: {detail}"),
            None => assert_eq!(*said, "", "{id}: {body}: acknowledged"),
        }
    }
    let left = scene.raw.text(&format!("GET {prefix}s")).await;
    assert_eq!(left, "3");
}

/// Compare-and-swap adds exactly as often as it is called, from several hosts at once.
#[tokio::test]
async fn compare_and_swap_loses_nothing_between_hosts() {
    let scene = Scene::new().await;
    let options = host(&scene, Kind::Stream)
        .without("grant-publish")
        .flag("handler", &guest("standard-keys").display().to_string())
        // An attempt that times out adds again.
        .flag("timeout", "5m");
    let hosts = [options.ready().await, options.ready().await];
    for number in 0..40 {
        let body = "two:add:n+two:add:n";
        publish(&scene, Kind::Stream, &number.to_string(), body).await;
    }
    eventually("all have added", async || {
        value(&scene, "n").await.as_deref() == Some("80")
    })
    .await;
    for host in hosts {
        host.drain().await.expect_code(0);
    }
    assert_eq!(value(&scene, "n").await.as_deref(), Some("80"));
}
