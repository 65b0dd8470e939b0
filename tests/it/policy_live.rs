//! Rules that change under running hosts: by a policy, and in the configuration file.

use hostler_tests::redis::{RedisOptions, eventually};

use crate::e2e_scene::Scene;
use crate::policy_scene::{File, IGNORED, held, link};
use crate::security_user::{confined_url, documented_user};

#[tokio::test]
async fn a_policy_caps_deliveries_and_taking_it_back_uncaps_them() {
    let mut scene = Scene::new().await;
    let options = scene.host().dead_letter();
    // All hosts of the queue follow.
    let (host, other) = (options.ready().await, options.ready().await);
    scene.publish("nack:5").await;
    let starts = || host.witness().total() + other.witness().total();
    eventually("it is tried again and again", async || starts() > 6).await;
    scene.set(&["max_deliveries=4"]);
    for host in [&host, &other] {
        assert_eq!(held(host, 1).await, "max_deliveries=4 (policy:orders)");
    }
    scene.has("orders:dead", 1).await;
    assert_eq!(
        scene
            .header("orders:dead", "x-dead-letter-reason")
            .await
            .as_deref(),
        Some("max-deliveries")
    );
    scene.publish("nack:5").await;
    scene.has("orders:dead", 2).await;
    let attempts = scene.header("orders:dead", "x-dead-letter-attempts").await;
    assert_eq!(attempts.as_deref(), Some("4"));

    scene
        .policy("unset", &["--queue", "orders", "max_deliveries"])
        .ok();
    for host in [&host, &other] {
        assert_eq!(held(host, 2).await, "max_deliveries=- (default)");
    }
    let before = starts();
    scene.publish("nack:5").await;
    eventually("no cap ends it", async || starts() > before + 8).await;
    assert_eq!(scene.length("orders:dead").await, 2);
}

#[tokio::test]
async fn where_dead_letters_go_how_old_and_how_many_messages_may_be() {
    let mut scene = Scene::new().await;
    let options = scene.host().dead_letter().flag("concurrency", "1");
    let host = options.flag("prefetch", "1").ready().await;
    scene.set(&[
        "dead_letter.key=orders:dead2",
        "dead_letter.routes=dropped=orders:dropped",
    ]);
    // The key was told by a flag: that one stays.
    assert_eq!(
        held(&host, 1).await,
        "dead_letter.routes=dropped=orders:dropped (policy:orders)"
    );
    scene.publish("drop").await;
    scene.has("orders:dropped", 1).await;
    scene.set(&["dead_letter.routes=timeout=orders:slow"]);
    held(&host, 2).await;
    scene.publish("drop").await;
    scene.has("orders:dead", 1).await;

    scene.set(&["on_fault=dead-letter"]);
    held(&host, 3).await;
    scene.publish("trap").await;
    scene.has("orders:dead", 2).await;

    // Longer than any of these tests may take, and less than the age of what comes next.
    scene.raw.ask("DEL orders").await;
    host.logs("the stream was gone").await;
    scene.set(&["queue.ttl=10h"]);
    held(&host, 4).await;
    scene.raw.ask("XADD orders 1000-1 _payload ack").await;
    scene.has("orders:dead", 3).await;
    let reason = scene.header("orders:dead", "x-dead-letter-reason").await;
    assert_eq!(reason.as_deref(), Some("expired"));

    // While one runs, the others are unread.
    let slow = scene.publish("sleep:3000").await;
    host_runs(&host, &slow).await;
    scene.publish_all("ack", 40).await;
    scene.set(&["queue.max_length=5"]);
    held(&host, 5).await;
    eventually("the oldest are given up", async || {
        scene
            .header("orders:dead", "x-dead-letter-reason")
            .await
            .as_deref()
            == Some("maxlen")
    })
    .await;
    let ended = host.drain().await;
    ended.expect_code(0);
}

async fn host_runs(host: &hostler_tests::host::Host, id: &str) {
    eventually("the slow one runs", async || host.witness().starts(id) > 0).await;
}

#[tokio::test]
async fn what_is_set_explicitly_overrules_a_policy_and_a_pattern_yields_to_the_queue() {
    let mut scene = Scene::new().await;
    let file = File::of("[backoff]\nfirst = \"7ms\"\n");
    let options = scene
        .host()
        .dead_letter()
        .flag("config", file.path.to_str().unwrap())
        .flag("max-deliveries", "2")
        .variable("HOSTLER_ON_CAP", "dead-letter");
    let host = options.ready().await;
    scene
        .policy(
            "set",
            &[
                "--match",
                "ord*",
                "backoff.factor=3",
                "backoff.max=9s",
                "backoff.first=1s",
            ],
        )
        .ok();
    let changed = held(&host, 1).await;
    assert_eq!(
        changed,
        "backoff.factor=3 (policy:ord*), backoff.max=9s (policy:ord*)"
    );
    scene
        .policy("set", &["--match", "other*", "backoff.jitter=0.5"])
        .ok();
    scene.set(&[
        "max_deliveries=9",
        "on_cap=discard",
        "backoff.first=2s",
        "backoff.factor=4",
    ]);
    assert_eq!(held(&host, 2).await, "backoff.factor=4 (policy:orders)");
    scene.publish("nack").await;
    scene.has("orders:dead", 1).await;
    let attempts = scene.header("orders:dead", "x-dead-letter-attempts").await;
    assert_eq!(attempts.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_wrong_policy_is_ignored_with_an_error_and_the_old_one_stays() {
    let mut scene = Scene::new().await;
    let host = scene.host().admin().ready().await;
    // Right by itself; wrong for this host, which has nowhere to put what it gives up.
    scene.set(&["max_deliveries=3"]);
    host.logs(IGNORED).await;
    let status = |host: &hostler_tests::host::Host| {
        let (code, text) = host.get("/status");
        assert_eq!(code, 200);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()
    };
    let rule = |status: &serde_json::Value, setting: &str| {
        let rules = status["rules"].as_array().unwrap().iter();
        let found = rules.clone().find(|rule| rule["setting"] == setting);
        let found = found.unwrap();
        (
            found["value"].clone(),
            found["from"].as_str().unwrap().to_owned(),
        )
    };
    eventually("it is told", async || {
        let status = status(&host);
        let refused = status["refused"].as_str();
        refused.is_some_and(|said| said.contains("dead_letter.key"))
    })
    .await;
    assert_eq!(rule(&status(&host), "max_deliveries").1, "default");
    scene.set(&["dead_letter.key=orders:dead"]);
    held(&host, 1).await;
    let ours = ("3".into(), "policy:orders".to_owned());
    eventually("it is shown", async || {
        let status = status(&host);
        rule(&status, "max_deliveries") == ours && status["refused"].is_null()
    })
    .await;

    // What somebody else writes there.
    for (wrong, part) in [
        ("max_deliveries many", "many"),
        ("no_such_setting 1", "no_such_setting"),
        ("memory 1MiB", "cannot be set by a policy"),
        ("dead_letter.key orders", "the queue itself"),
    ] {
        scene.raw.ask("COPY {orders}:policy kept REPLACE").await;
        let before = host.count(|line| line.message().starts_with(IGNORED));
        scene
            .raw
            .ask(&format!("HSET {{orders}}:policy {wrong}"))
            .await;
        host.logs_times(IGNORED, before + 1).await;
        eventually(&format!("`{part}` is told"), async || {
            let status = status(&host);
            let refused = status["refused"].as_str();
            refused.is_some_and(|said| said.contains(part))
        })
        .await;
        let shown = status(&host);
        assert_eq!(rule(&shown, "max_deliveries").0, "3");
        scene.raw.ask("COPY kept {orders}:policy REPLACE").await;
        eventually("all is right again", async || {
            status(&host)["refused"].is_null()
        })
        .await;
    }
    // A key that holds something else is found by the host.
    scene.raw.ask("SET taken x").await;
    scene
        .raw
        .ask("HSET {orders}:policy dead_letter.key taken")
        .await;
    eventually("it is told", async || {
        status(&host)["refused"]
            .as_str()
            .is_some_and(|said| said.contains("`taken`"))
    })
    .await;
    scene.publish("nack:5").await;
    scene.has("orders:dead", 1).await;
}

#[tokio::test]
async fn the_file_is_followed_however_it_is_written() {
    let mut scene = Scene::new().await;
    let text =
        |cap: &str, rest: &str| format!("{cap}\n{rest}\n[dead_letter]\nkey = \"orders:dead\"\n");
    let file = File::of(&text("", ""));
    let path = file.path.to_str().unwrap();
    let host = scene.host().flag("config", path).ready().await;
    file.write(&text("max_deliveries = 2", ""));
    let changed = held(&host, 1).await;
    assert_eq!(changed, format!("max_deliveries=2 ({path}:1)"));
    scene.publish("nack:5").await;
    scene.has("orders:dead", 1).await;
    file.replace(&text("max_deliveries = 3", ""));
    held(&host, 2).await;

    // Wrong: told with its line, and ignored.
    file.write(&text("max_deliveries = 0", ""));
    host.logs_times(IGNORED, 1).await;
    file.write("max_deliveries =\n");
    host.logs_times(IGNORED, 2).await;
    let errors = host.log();
    let errors = errors
        .iter()
        .filter(|line| line.message().starts_with(IGNORED));
    for error in errors {
        let what = error.text("what").unwrap();
        assert!(what.starts_with(&format!("{path}:1: ")), "{what}");
    }
    scene.publish("nack:5").await;
    scene.has("orders:dead", 2).await;
    let attempts = scene.header("orders:dead", "x-dead-letter-attempts").await;
    assert_eq!(attempts.as_deref(), Some("3"));

    // What cannot change under a running host is told.
    file.replace(&text("max_deliveries = 4", "concurrency = 3"));
    held(&host, 3).await;
    host.logs("changed in the file, and held after the next start only")
        .await;

    // As Kubernetes does it: a link to a directory, flipped.
    for version in ["v1", "v2"] {
        std::fs::create_dir(file.beside(version)).unwrap();
    }
    std::fs::write(
        file.beside("v1/orders.toml"),
        text("max_deliveries = 4", "concurrency = 3"),
    )
    .unwrap();
    std::fs::write(
        file.beside("v2/orders.toml"),
        text("max_deliveries = 5", "concurrency = 3"),
    )
    .unwrap();
    link("v1", &file.beside("data"));
    link("data/orders.toml", &file.path);
    link("v2", &file.beside("data"));
    let changed = held(&host, 4).await;
    assert_eq!(changed, format!("max_deliveries=5 ({path}:1)"));
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn policies_hold_from_the_first_message_on_and_what_was_refused_follows() {
    let mut scene = Scene::new().await;
    scene.set(&["max_deliveries=2"]);
    scene.publish("nack:5").await;
    let host = scene.host().dead_letter().ready().await;
    scene.has("orders:dead", 1).await;
    assert_eq!(host.witness().total(), 2);

    // A dead letter that cannot be written waits; other rules give it another way.
    scene.raw.ask("DEL orders:dead").await;
    scene.raw.ask("SET orders:dead x").await;
    scene.publish("nack:5").await;
    host.logs("redis refuses a settlement").await;
    scene.set(&["dead_letter.routes=max-deliveries=orders:elsewhere"]);
    scene.has("orders:elsewhere", 1).await;
    host.logs("redis takes settlements again").await;
}

#[tokio::test]
async fn the_documented_user_sees_policies_and_one_without_the_right_serves_without() {
    let server = RedisOptions::default()
        .user(&documented_user("hostler-orders"))
        .user("blind on >change-me ~orders ~orders:dead ~{orders}:parked* ~{orders}:fences* ~{orders}:delayed* ~{orders}:cycle* +@all")
        .start();
    let raw = server.raw().await;
    let as_user = |user: &str| {
        hostler_tests::host::HostOptions::at(&confined_url(&server, user))
            .directory(server.dir())
            .dead_letter()
    };
    let host = as_user("hostler-orders").ready().await;
    let url = server.url();
    let set = |which: &[&str], more: &[&str]| {
        let words = [&["policy", "set", "--redis", &url], which, more].concat();
        hostler_tests::command::run(words).ok();
    };
    set(&["--queue", "orders"], &["max_deliveries=2"]);
    set(&["--match", "o*"], &["backoff.first=1ms"]);
    held(&host, 1).await;
    raw.add("orders", "nack").await;
    eventually("it is capped", async || {
        raw.number("XLEN orders:dead").await == 1
    })
    .await;
    let cannot = "cannot see all policies";
    assert_eq!(host.count(|line| line.message() == cannot), 0);

    let blind = as_user("blind").ready().await;
    blind.logs(cannot).await;
    blind.drain().await.expect_code(0);
}
