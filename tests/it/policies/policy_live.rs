//! Rules that change under running hosts: by a policy, and in the configuration file.

use hostler_tests::command::run;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{RedisOptions, eventually};
use serde_json::Value;

use crate::policies::policy_scene::{File, IGNORED, held, link};
use crate::redis::security_user::{confined_url, documented_user};
use crate::runtime::e2e_scene::Scene;

#[tokio::test]
async fn a_policy_limits_deliveries_until_it_is_unset() {
    let mut scene = Scene::new().await;
    let options = scene.host().dead_letter();
    // All hosts of the queue follow the policy.
    let (host, other) = (options.ready().await, options.ready().await);
    scene.publish("nack:5").await;
    let starts = || host.witness().total() + other.witness().total();
    eventually("it is tried again and again", async || starts() > 6).await;
    scene.set(&["max_deliveries=4"]);
    for host in [&host, &other] {
        assert_eq!(held(host, 1).await, "max_deliveries=4 (policy:orders)");
    }
    scene.died(1, "reason", "max-deliveries").await;
    scene.publish("nack:5").await;
    scene.died(2, "attempts", "4").await;

    let unset = ["--queue", "orders", "max_deliveries"];
    scene.policy("unset", &unset).ok();
    for host in [&host, &other] {
        assert_eq!(held(host, 2).await, "max_deliveries=- (default)");
    }
    let before = starts();
    scene.publish("nack:5").await;
    eventually("no limit ends it", async || starts() > before + 8).await;
    assert_eq!(scene.length("orders:dead").await, 2);
}

#[tokio::test]
async fn inspect_shows_the_rules_that_hosts_go_by() {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let queue = [
        "inspect", "--redis", &url, "--stream", "orders", "--group", "workers",
    ];
    let inspect = |more: &[&str]| run(queue.iter().chain(more)).ok();
    let caps = |report: &Value| {
        let rules = report["rules"].as_array().unwrap().iter();
        let caps = rules.filter(|rule| rule["setting"] == "max_deliveries");
        let cap = |rule: &Value| (rule["value"].clone(), rule["from"].clone());
        caps.map(cap).collect::<Vec<_>>()
    };
    let cap = |cap: &str, from: &str| (Value::from(cap), Value::from(from));
    let sees = async |wanted: &[(Value, Value)], hosts: usize| {
        eventually(&format!("inspect shows {wanted:?}"), async || {
            let report = inspect(&["--json"]).json();
            let count = report["hosts"].as_array().unwrap().len();
            caps(&report) == wanted && count == hosts
        })
        .await;
    };
    let host = scene.host().cap(7).ready().await;
    sees(&[cap("7", "--max-deliveries")], 1).await;
    // Its own flags are no rules of the queue.
    let own = ["--max-deliveries", "3", "--dead-letter", "orders:other"];
    let report = inspect(&[&own[..], &["--json"]].concat()).json();
    assert_eq!(report["rules_of"], "hosts");
    assert_eq!(caps(&report), [cap("7", "--max-deliveries")]);
    assert_eq!(report["dead_letter_targets"][0]["key"], "orders:other");
    // It need not name the dead-letter queue.
    let report = inspect(&["--json"]).json();
    assert_eq!(report["dead_letter_targets"][0]["key"], "orders:dead");
    assert_eq!(report["dead_letters"], 0);

    // A policy shows when the host has applied it.
    scene.set(&["backoff.first=7s"]);
    eventually("inspect shows the policy", async || {
        let text = inspect(&[]).stdout;
        text.lines().any(|line| {
            line.split_whitespace()
                .eq(["backoff.first", "7s", "policy:orders"])
        })
    })
    .await;

    // Where hosts differ, it says which host uses which value.
    let other = scene.host().cap(9).ready().await;
    let both = [cap("7", "--max-deliveries"), cap("9", "--max-deliveries")];
    eventually("inspect shows both", async || {
        let caps = caps(&inspect(&["--json"]).json());
        caps.len() == 2 && both.iter().all(|cap| caps.contains(cap))
    })
    .await;
    let text = inspect(&[]).stdout;
    let line = [
        "max_deliveries",
        "9",
        "--max-deliveries",
        &*other.consumer(),
    ];
    assert!(
        text.lines().any(|l| l.split_whitespace().eq(line)),
        "{text}"
    );

    host.drained().await;
    other.drained().await;
    sees(&[(Value::Null, "default".into())], 0).await;
    let text = inspect(&[]).stdout;
    assert!(text.contains("no host says its rules"), "{text}");
}

#[tokio::test]
async fn a_policy_changes_dead_letter_routes_ttl_and_max_length() {
    let mut scene = Scene::new().await;
    let options = scene.host().dead_letter();
    let host = options
        .flags("concurrency=1 prefetch=1 timeout=1m")
        .ready()
        .await;
    scene.set(&[
        "dead_letter.key=orders:dead2",
        "dead_letter.routes=dropped=orders:dropped",
    ]);
    // A flag has set the key, so the key stays.
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

    // The ttl is longer than this test, and shorter than the age of the next entry.
    scene.raw.ask("DEL orders").await;
    host.logs("the stream was gone").await;
    scene.set(&["queue.ttl=10h"]);
    held(&host, 4).await;
    scene.raw.ask("XADD orders 7-1 _payload ack").await;
    // An id of the producer's own is no time.
    scene.died(3, "reason", "malformed").await;
    let detail = scene.header("orders:dead", "x-dead-letter-detail").await;
    assert!(
        detail
            .unwrap()
            .starts_with("`queue.ttl` counts from the time in the id")
    );
    scene
        .raw
        .ask("XADD orders 1600000000000-1 _payload ack")
        .await;
    scene.died(4, "reason", "expired").await;

    // While one message runs, the others are unread. It runs until the policy holds also on a busy machine.
    let slow = scene.publish("sleep:12000").await;
    host_runs(&host, &slow).await;
    scene.publish_all("ack", 40).await;
    scene.set(&["queue.max_length=5"]);
    held(&host, 5).await;
    eventually("the oldest are evicted", async || {
        let reason = scene.header("orders:dead", "x-dead-letter-reason").await;
        reason.as_deref() == Some("maxlen")
    })
    .await;
    host.drained().await;
}

async fn host_runs(host: &Host, id: &str) {
    eventually("the slow one runs", async || host.witness().starts(id) > 0).await;
}

#[tokio::test]
async fn explicit_settings_overrule_policies_and_queue_policies_overrule_patterns() {
    let mut scene = Scene::new().await;
    let file = File::of("[backoff]\nfirst = \"7ms\"\n");
    let options = scene
        .host()
        .dead_letter()
        .flag("config", file.path.to_str().unwrap())
        .flag("max-deliveries", "2")
        .variable("HOSTLER_ON_CAP", "dead-letter");
    let host = options.ready().await;
    let rules = ["backoff.factor=3", "backoff.max=9s", "backoff.first=1s"];
    let pattern = [&["--match", "ord*"], &rules[..]].concat();
    scene.policy("set", &pattern).ok();
    let changed = held(&host, 1).await;
    assert_eq!(
        changed,
        "backoff.factor=3 (policy:ord*), backoff.max=9s (policy:ord*)"
    );
    let other = ["--match", "other*", "backoff.jitter=0.5"];
    scene.policy("set", &other).ok();
    scene.set(&[
        "max_deliveries=9",
        "on_cap=discard",
        "backoff.first=2s",
        "backoff.factor=4",
    ]);
    assert_eq!(held(&host, 2).await, "backoff.factor=4 (policy:orders)");
    scene.publish("nack").await;
    scene.died(1, "attempts", "2").await;
}

#[tokio::test]
async fn a_wrong_policy_is_ignored_with_an_error_and_the_old_rules_stay() {
    let mut scene = Scene::new().await;
    let host = scene.host().admin().ready().await;
    // Valid in itself, but this host has no dead-letter key.
    scene.set(&["max_deliveries=3"]);
    host.logs(IGNORED).await;
    let status = || {
        let (code, text) = host.get("/status");
        assert_eq!(code, 200);
        serde_json::from_str::<Value>(&text).unwrap()
    };
    let limit = || {
        let status = status();
        let mut rules = status["rules"].as_array().unwrap().iter();
        let rule = rules.find(|rule| rule["setting"] == "max_deliveries");
        (
            rule.unwrap()["value"].clone(),
            rule.unwrap()["from"].clone(),
        )
    };
    let refuses = async |part: &str| {
        eventually(&format!("the status shows `{part}`"), async || {
            let status = status();
            let refused = status["refused"].as_str();
            refused.is_some_and(|refused| refused.contains(part))
        })
        .await;
    };
    refuses("dead_letter.key").await;
    assert_eq!(limit().1, "default");
    scene.set(&["dead_letter.key=orders:dead"]);
    held(&host, 1).await;
    let ours = ("3".into(), "policy:orders".into());
    eventually("the status shows the new rule", async || {
        limit() == ours && status()["refused"].is_null()
    })
    .await;

    // Wrong rules that another program has written.
    for (wrong, part) in [
        ("max_deliveries many", "many"),
        ("no_such_setting 1", "no_such_setting"),
        ("memory 1MiB", "cannot be set by a policy"),
        ("dead_letter.key orders", "the queue itself"),
    ] {
        scene.raw.ask("COPY {orders}:policy kept REPLACE").await;
        let before = host.count(|line| line.message().starts_with(IGNORED));
        let write = format!("HSET {{orders}}:policy {wrong}");
        scene.raw.ask(&write).await;
        host.logs_times(IGNORED, before + 1).await;
        refuses(part).await;
        assert_eq!(limit().0, "3");
        scene.raw.ask("COPY kept {orders}:policy REPLACE").await;
        eventually("the rules are valid again", async || {
            status()["refused"].is_null()
        })
        .await;
    }
    // The host finds a dead-letter key that holds another type.
    scene.obstruct("taken").await;
    let taken = "HSET {orders}:policy dead_letter.key taken";
    scene.raw.ask(taken).await;
    refuses("`taken`").await;
    scene.publish("nack:5").await;
    scene.has("orders:dead", 1).await;
}

#[tokio::test]
async fn a_changed_configuration_file_is_applied_after_a_write_a_rename_or_a_new_link() {
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

    // A wrong file is reported with the line of the error, and ignored.
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
    scene.died(2, "attempts", "3").await;

    // A setting that needs a restart is reported.
    file.replace(&text("max_deliveries = 4", "concurrency = 3"));
    held(&host, 3).await;
    host.logs("settings changed in the file that apply after the next start only")
        .await;

    // Like Kubernetes: a link to a directory is replaced.
    for (version, cap) in [("v1", "max_deliveries = 4"), ("v2", "max_deliveries = 5")] {
        let dir = file.beside(version);
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("orders.toml"), text(cap, "concurrency = 3")).unwrap();
    }
    link("v1", &file.beside("data"));
    link("data/orders.toml", &file.path);
    link("v2", &file.beside("data"));
    let changed = held(&host, 4).await;
    assert_eq!(changed, format!("max_deliveries=5 ({path}:1)"));
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn policies_apply_to_the_first_message_and_to_refused_settlements() {
    let mut scene = Scene::new().await;
    scene.set(&["max_deliveries=2"]);
    scene.publish("nack:5").await;
    let host = scene.host().dead_letter().ready().await;
    scene.has("orders:dead", 1).await;
    host.starts(2).await;
    assert_eq!(host.witness().total(), 2);

    // A dead letter that cannot be written waits. A new rule gives it another key.
    scene.delete("orders:dead").await;
    scene.obstruct("orders:dead").await;
    scene.publish("nack:5").await;
    host.logs("redis refuses a settlement").await;
    scene.set(&["dead_letter.routes=max-deliveries=orders:elsewhere"]);
    scene.has("orders:elsewhere", 1).await;
    host.logs("redis takes settlements again").await;
}

#[tokio::test]
async fn the_documented_user_reads_policies_and_a_user_without_the_right_serves_without_them() {
    let server = RedisOptions::default()
        .user(&documented_user("hostler-orders"))
        .user("blind on >change-me ~orders ~orders:dead ~{orders}:parked* ~{orders}:fences* ~{orders}:min-idle* ~{orders}:delayed* ~{orders}:cycle* ~{orders}:late* ~{orders}:held* ~{orders}:written* ~{orders}:acted* ~{orders}:replies* +@all")
        .start();
    let raw = server.raw().await;
    let as_user = |user: &str| {
        let options = HostOptions::at(&confined_url(&server, user));
        options.directory(server.dir()).dead_letter()
    };
    let host = as_user("hostler-orders").ready().await;
    let url = server.url();
    let set = |which: &[&str], more: &[&str]| {
        let words = [&["policy", "set", "--redis", &url], which, more].concat();
        run(words).ok();
    };
    set(&["--queue", "orders"], &["max_deliveries=2"]);
    set(&["--match", "o*"], &["backoff.first=1ms"]);
    held(&host, 1).await;
    raw.add("orders", "nack").await;
    eventually("it is dead-lettered", async || {
        raw.number("XLEN orders:dead").await == 1
    })
    .await;
    let cannot = "cannot read all policies";
    assert_eq!(host.count(|line| line.message() == cannot), 0);

    let blind = as_user("blind").ready().await;
    blind.logs(cannot).await;
    blind.drain().await.expect_code(0);
}
