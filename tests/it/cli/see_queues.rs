//! Every queue is found by its name alone: what it holds, who serves it, what stops it. And a queue is paused
//! and resumed for all its hosts. On streams and on reliable lists.

use hostler_tests::command::{hostler, run};
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, eventually};
use hostler_tests::terminal::Terminal;
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::redis::security_user::{confined_url, documented_user};

on_both! {
    a_queue_is_listed_with_what_it_holds_and_who_serves_it
    a_paused_queue_is_read_by_no_host_and_nothing_is_charged
    a_pause_holds_where_another_policy_is_wrong
    inspect_and_watch_take_the_bare_name_of_a_queue
    the_name_of_a_queue_is_enough_to_serve_it_and_to_see_its_dead_letters
    a_message_is_traced_through_its_queue_and_its_dead_letters
    the_documented_user_lists_its_queue
}

/// It compares times: alone.
mod measured {
    use std::time::{Duration, Instant};

    use super::*;

    #[tokio::test]
    async fn a_pause_is_followed_soon() {
        let scene = Scene::new(Kind::Stream).await;
        let url = scene.server.url();
        let hosts = [scene.binary().ready().await, scene.binary().ready().await];
        let begun = Instant::now();
        run(["pause", "--redis", &url, "--queue", scene.key()]).ok();
        let took = begun.elapsed();
        assert!(took < Duration::from_secs(4), "{took:?}");
        for host in hosts {
            host.drained().await;
        }
    }
}

fn queues(url: &str, more: &[&str]) -> Vec<Value> {
    let words = ["queues", "--redis", url, "--json"];
    let listed = run(words.iter().chain(more)).ok().json();
    listed.as_array().unwrap().clone()
}

async fn a_queue_is_listed_with_what_it_holds_and_who_serves_it(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    assert!(queues(&url, &[]).is_empty());
    let options = scene
        .binary()
        .flags("concurrency=1 prefetch=1 timeout=60s max-deliveries=1");
    let host = options.ready().await;
    scene.send("trap").await;
    eventually("it died", async || scene.dead().await.len() == 1).await;
    scene.send("sleep:55000").await;
    host.starts(2).await;
    scene.send("ack").await;
    scene.send("ack").await;
    let mut last = Value::Null;
    eventually("the queue is listed", async || {
        last = queues(&url, &[]).pop().unwrap_or_default();
        last["hosts"] == 1 && last["in_flight"] == 1 && last["state"] == "serving"
    })
    .await;
    assert_eq!(last["queue"], scene.key());
    let (word, group) = match kind {
        Kind::Stream => ("stream", json!("workers")),
        Kind::List => ("list", Value::Null),
    };
    assert_eq!((&last["kind"], &last["group"]), (&json!(word), &group));
    assert_eq!(
        (&last["lag"], &last["pending"]),
        (&json!(2), &json!(1)),
        "{last}"
    );
    assert_eq!(last["state"], "serving");
    assert_eq!(
        (&last["dead_letter_key"], &last["dead_letters"]),
        (&json!(scene.dead_key()), &json!(1))
    );
    let text = run(["queues", "--redis", &url, "or*"]).ok().stdout;
    assert_eq!(text.contains("serving"), kind == Kind::Stream, "{text}");
    // A host that is gone leaves its queue in the list.
    drop(host.kill().await);
    eventually("its host is gone", async || {
        let listed = queues(&url, &[scene.key()]);
        listed.len() == 1 && listed[0]["state"] == "unserved"
    })
    .await;
    let text = run(["queues", "--redis", &url]).ok().stdout;
    assert!(text.contains("no hosts"), "{text}");
}

/// Nine of ten attempts are quick: the average and the 99th percentile distinguish them from the slow ones.
#[tokio::test]
async fn how_long_attempts_take_is_listed() {
    let scene = Scene::new(Kind::Stream).await;
    let url = scene.server.url();
    let options = scene.binary().flags("concurrency=1 prefetch=1");
    let _host = options.ready().await;
    let mut last = Value::Null;
    eventually("attempts are measured", async || {
        for number in 0..20 {
            let slow = number % 10 == 0;
            scene.send(if slow { "sleep:800" } else { "ack" }).await;
        }
        last = queues(&url, &[]).pop().unwrap_or_default();
        // A window may hold few of them.
        let (average, most) = (last["run_ms"].as_f64(), last["run_p99_ms"].as_f64());
        most.is_some_and(|most| most > 400.0)
            && average.is_some_and(|average| average > 0.0 && average < 400.0)
    })
    .await;
}

/// The parts of a queue are seen together: a host serves one of them, the other one is not served now.
#[tokio::test]
async fn inspect_and_watch_take_a_pattern() {
    let scene = Scene::new(Kind::Stream).await;
    let url = scene.server.url();
    let host = HostOptions::at(&url)
        .flags("stream={orders:0}")
        .ready()
        .await;
    let other = HostOptions::at(&url)
        .flags("stream={orders:1}")
        .ready()
        .await;
    eventually("both are listed", async || {
        queues(&url, &["{orders:*}"]).len() == 2
    })
    .await;
    drop(other.kill().await);
    for part in ["{orders:0}", "{orders:1}", "{orders:1}"] {
        scene.raw.add(part, "ack").await;
    }
    host.starts(1).await;
    eventually("one of them is served", async || {
        let parts = queues(&url, &["{orders:*}"]);
        let states: Vec<_> = parts.iter().map(|part| part["state"].as_str()).collect();
        states == [Some("serving"), Some("unserved")]
    })
    .await;
    let seen = run(["inspect", "--redis", &url, "--json", "{orders:*}"])
        .ok()
        .json();
    let keys: Vec<_> = seen
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["key"])
        .collect();
    assert_eq!(keys, ["{orders:0}", "{orders:1}"]);
    assert_eq!(seen[1]["lag"], 2);
    let text = run(["inspect", "--redis", &url, "{orders:?}"]).ok().stdout;
    assert!(
        text.contains("{orders:0} (1 entries)") && text.contains("about 2"),
        "{text}"
    );
    let watch = ["watch", "--redis", &url, "--queue", "{orders:*}"];
    let lines = run(watch.iter().chain(&["--count=2"])).ok().stdout;
    for line in lines.lines() {
        assert!(line.contains("  2 queues  lag 2  pending"), "{line}");
        assert!(line.contains("{orders:1}: no hosts"), "{line}");
    }
    assert_eq!(lines.lines().count(), 2);
    let json = run(watch.iter().chain(&["--count=1", "--json"]))
        .ok()
        .json();
    assert_eq!(json["queues"].as_array().unwrap().len(), 2);
    let mut terminal = Terminal::spawn(hostler(watch));
    for part in ["{orders:*}", "no hosts", "serving", "q: quit"] {
        terminal.shows(part);
    }
    terminal.types("q");
    assert_eq!(terminal.end(), 0, "{}", terminal.text());
    // Of one queue only.
    let admin = run(watch.iter().chain(&["--admin", "9400"]));
    assert_eq!(admin.code, 64, "{admin:?}");
    let none = run(["inspect", "--redis", &url, "none*"]);
    assert!(
        none.code == 64 && none.stderr.contains("no queue `none*` is known"),
        "{none:?}"
    );
    host.drained().await;
}

async fn a_paused_queue_is_read_by_no_host_and_nothing_is_charged(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    let tell = |word: &str| {
        run([word, "--redis", &url, "--queue", scene.key(), "--json"])
            .ok()
            .json()
    };
    let options = scene
        .binary()
        .flags("max-deliveries=2 concurrency=2 timeout=60s backoff-first=1ms");
    let hosts = [options.ready().await, options.ready().await];
    scene.send("sleep:3000").await;
    eventually("it runs", async || {
        hosts.iter().any(|h| h.witness().total() == 1)
    })
    .await;
    let told = tell("pause");
    assert_eq!(told["hosts"].as_array().unwrap().len(), 2, "{told}");
    for _ in 0..20 {
        scene.send("nack,ack").await;
    }
    // The running attempt ends and is settled; nothing else starts.
    let held = match kind {
        Kind::Stream => "XLEN orders",
        Kind::List => "LLEN jobs",
    };
    let waits = i64::from(kind == Kind::Stream) + 20;
    eventually("the running one is settled", async || {
        let pending = match kind {
            Kind::Stream => scene.raw.pending("orders", "workers").await.len(),
            Kind::List => 0,
        };
        pending == 0 && scene.raw.number(held).await == waits
    })
    .await;
    let listed = queues(&url, &[]).pop().unwrap();
    assert_eq!(
        (&listed["state"], &listed["lag"]),
        (&json!("paused"), &json!(20))
    );
    let started: usize = hosts.iter().map(|h| h.witness().total()).sum();
    assert_eq!(started, 1);
    // A host that starts meanwhile waits as well, and is ready.
    let late = options.clone().admin().start();
    late.logs("ready, and paused").await;
    eventually("it is ready, and paused", async || {
        (late.metric("hostler_paused"), late.metric("hostler_ready")) == (1, 1)
    })
    .await;
    tell("resume");
    let ended = async || {
        let all = hosts.iter().chain([&late]);
        all.map(|h| h.witness().total()).sum::<usize>() == 41
    };
    eventually("all run twice, and no more", ended).await;
    eventually("all are settled", async || {
        queues(&url, &[]).pop().unwrap()["pending"] == 0
    })
    .await;
    assert!(
        scene.dead().await.is_empty(),
        "nothing was charged for the pause"
    );
    for host in hosts.into_iter().chain([late]) {
        host.drained().await;
    }
}

/// Another program writes a policy that is wrong; a pause is followed nevertheless.
async fn a_pause_holds_where_another_policy_is_wrong(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    let host = scene.binary().ready().await;
    let policy = format!("{{{}}}:policy", scene.key());
    scene
        .raw
        .ask(&format!("HSET {policy} max_deliveries 0"))
        .await;
    host.logs("wrong rules are ignored").await;
    let tell = |word: &str| {
        let told = run([word, "--redis", &url, "--queue", scene.key(), "--json"]);
        told.ok().json()
    };
    assert_eq!(tell("pause")["hosts"].as_array().unwrap().len(), 1);
    host.logs("paused").await;
    scene.send("ack").await;
    assert_eq!(tell("resume")["hosts"].as_array().unwrap().len(), 1);
    host.starts(1).await;
    host.drained().await;
}

async fn the_name_of_a_queue_is_enough_to_serve_it_and_to_see_its_dead_letters(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    let unknown = HostOptions::at(&url).without("stream").without("group");
    let named = unknown.flag("queue", scene.key());
    named.end().await.expect_code(64);
    let host = scene.binary().flags("max-deliveries=1").ready().await;
    scene.send("drop:no").await;
    eventually("it is listed", async || !queues(&url, &[]).is_empty()).await;
    eventually("it died", async || scene.dead().await.len() == 1).await;
    host.drained().await;
    let of_queue = ["--redis", &url, "--queue", scene.key(), "--json"];
    let dlq = |word: &str, more: &[&str]| {
        let words = ["dlq", word].into_iter().chain(of_queue);
        run(words.chain(more.iter().copied())).ok().json()
    };
    let peeked = dlq("peek", &[]);
    assert_eq!(peeked["by_reason"], json!({ "dropped": 1 }));
    let id = peeked["entries"][0]["id"].as_str().unwrap();
    assert_eq!(dlq("show", &[id])["reason"], "dropped");
    assert_eq!(dlq("groups", &[])["total"], 1);
    assert_eq!(dlq("replay", &[])["replayed"], 1);
    let again = named.dead_letter().flag("dead-letter", scene.dead_key());
    let ended = again.flag("max-deliveries", "1").finish().await;
    assert_eq!(ended.json()["attempts"], 1);
    assert_eq!(dlq("purge", &["--yes"])["purged"], 1);
}

#[tokio::test]
async fn queues_at_most_once_are_paused_as_well() {
    let scene = crate::queue::once_scene::Scene::new().await;
    let url = scene.server.url();
    let options = || {
        HostOptions::new(&scene.server)
            .without("stream")
            .without("group")
    };
    let list = options().flag("list", "jobs").ready().await;
    let channel = options()
        .flag("channel", "news")
        .flag("buffer", "10")
        .ready()
        .await;
    let tell = |word: &str, queue: &str| {
        let told = run([word, "--redis", &url, "--queue", queue, "--json"])
            .ok()
            .json();
        told["hosts"].as_array().unwrap().len()
    };
    for queue in ["jobs", "news"] {
        assert_eq!(tell("pause", queue), 1, "{queue}");
    }
    for _ in 0..3 {
        scene.push("jobs", b"ack").await;
        scene.raw.ask("PUBLISH news ack").await;
    }
    // A host that starts meanwhile takes nothing either.
    let late = options().flag("list", "jobs").start();
    late.logs("ready, and paused").await;
    assert_eq!(scene.raw.number("LLEN jobs").await, 3);
    assert_eq!(list.witness().total() + channel.witness().total(), 0);
    for queue in ["jobs", "news"] {
        tell("resume", queue);
    }
    channel.starts(3).await;
    eventually("the list is empty", async || {
        list.witness().total() + late.witness().total() == 3
    })
    .await;
    for host in [list, channel, late] {
        host.drained().await;
    }
}

async fn inspect_and_watch_take_the_bare_name_of_a_queue(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    let unknown = run(["inspect", "--redis", &url, "nothing"]);
    assert_eq!(unknown.code, 64);
    assert!(
        unknown.stderr.contains("no queue `nothing` is known"),
        "{unknown:?}"
    );
    let host = scene.binary().flags("max-deliveries=7").ready().await;
    eventually("it is listed", async || !queues(&url, &[]).is_empty()).await;
    let key = scene.key();
    let report = run(["inspect", "--redis", &url, key, "--json"]).ok().json();
    assert_eq!(
        (&report["key"], &report["rules_of"]),
        (&json!(key), &json!("hosts"))
    );
    let rules = report["rules"].as_array().unwrap();
    let cap = rules
        .iter()
        .find(|rule| rule["setting"] == "max_deliveries")
        .unwrap();
    assert_eq!(
        (&cap["value"], &cap["from"]),
        (&json!("7"), &json!("--max-deliveries"))
    );
    assert_eq!(report["dead_letter_targets"][0]["key"], scene.dead_key());
    let same = run(["inspect", "--redis", &url, "--queue", key, "--json"])
        .ok()
        .json();
    assert_eq!(same["rules"], report["rules"]);
    let watched = run(["watch", "--redis", &url, key, "--json", "--count", "1"])
        .ok()
        .json();
    assert_eq!(watched["key"], key);
    run(["publish", "--redis", &url, "--queue", key, "--body", "ack"]).ok();
    host.starts(1).await;
    host.drained().await;
    if kind == Kind::Stream {
        // Two groups: which one is meant?
        scene.raw.ask("DEL hostler:queues").await;
        scene.raw.ask("XGROUP CREATE orders others 0").await;
        let unclear = run(["inspect", "--redis", &url, "orders"]);
        assert_eq!(unclear.code, 64);
        assert!(unclear.stderr.contains("--group"), "{unclear:?}");
        run(["inspect", "--redis", &url, "orders", "--group", "others"]).ok();
    }
}

async fn a_message_is_traced_through_its_queue_and_its_dead_letters(kind: Kind) {
    let scene = Scene::new(kind).await;
    let url = scene.server.url();
    let options = scene
        .binary()
        .flags("max-deliveries=1 concurrency=1 prefetch=1 timeout=60s");
    let host = options.ready().await;
    let named = |id: &'static str| [("x-message-id", id)];
    scene
        .put(scene.key(), "drop:no such customer", &named("first"))
        .await;
    eventually("it died", async || scene.dead().await.len() == 1).await;
    scene
        .put(scene.key(), "nack:600000", &named("second"))
        .await;
    host.starts(2).await;
    scene.put(scene.key(), "sleep:55000", &named("third")).await;
    host.starts(3).await;
    scene.put(scene.key(), "ack", &named("fourth")).await;
    let follow_up = [("x-message-id", "fifth"), ("x-correlation-id", "fourth")];
    scene.put(scene.key(), "ack", &follow_up).await;
    eventually("it is listed", async || !queues(&url, &[]).is_empty()).await;
    let trace = |id: &str| {
        let traced = run(["trace", "--redis", &url, id, "--json"]).ok().json();
        traced["found"].as_array().unwrap().clone()
    };
    let first = trace("first").pop().unwrap();
    assert_eq!(
        (&first["state"], &first["reason"]),
        (&json!("dead"), &json!("dropped"))
    );
    assert_eq!(
        (&first["key"], &first["queue"]),
        (&json!(scene.dead_key()), &json!(scene.key()))
    );
    assert_eq!(first["history"][0], json!([scene.key(), "dropped", 1]));
    let third = trace("third").pop().unwrap();
    assert_eq!(
        (&third["state"], &third["host"]),
        (&json!("held"), &json!(host.consumer())),
        "{third}"
    );
    let fourth = trace("fourth");
    assert_eq!(fourth.len(), 2, "{fourth:?}");
    assert!(fourth.iter().all(|found| found["state"] == "unread"));
    let follows: Vec<&Value> = fourth
        .iter()
        .filter(|f| f["is_follow_up"] == true)
        .collect();
    assert_eq!(follows.len(), 1);
    assert_eq!(follows[0]["id"], "fifth");
    let text = run(["trace", "--redis", &url, "first"]).ok().stdout;
    assert!(text.contains("dropped: no such customer"), "{text}");
    let none = run(["trace", "--redis", &url, "sixth"]);
    assert_eq!(none.code, 1);
    assert_eq!(none.stdout, "sixth is in none of 1 queue\n");
    drop(host.kill().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deaths_of_a_replayed_message_are_told_once() {
    let scene = Scene::new(Kind::Stream).await;
    let url = scene.server.url();
    let host = scene.binary().flags("max-deliveries=1").ready().await;
    let named = [("x-message-id", "again")];
    scene.put(scene.key(), "drop:no", &named).await;
    eventually("it died", async || scene.dead().await.len() == 1).await;
    scene.dlq("replay", &[]).ok();
    let mut text = String::new();
    eventually("it died again", async || {
        text = run(["trace", "--redis", &url, "again"]).stdout;
        text.contains("again died in orders for dropped, 2 times")
    })
    .await;
    assert_eq!(text.matches("died in").count(), 1, "{text}");
    assert_eq!(text.matches("  entry ").count(), 2, "{text}");
    host.drained().await;
}

/// Redis logs refused commands: the user of the documentation tries none that it may not use.
async fn the_documented_user_lists_its_queue(kind: Kind) {
    let name = match kind {
        Kind::Stream => "hostler-orders",
        Kind::List => "hostler-jobs",
    };
    let options = RedisOptions::default().user(&documented_user(name));
    let scene = Scene::with(kind, options).await;
    let confined = confined_url(&scene.server, name);
    let host = scene.binary().flag("redis", &confined).ready().await;
    let url = scene.server.url();
    eventually("it is listed", async || {
        queues(&url, &[]).iter().any(|queue| queue["hosts"] == 1)
    })
    .await;
    // The host's own user may look as well.
    assert_eq!(queues(&confined, &[]).len(), 1);
    host.drained().await;
    let refused: Vec<redis::Value> =
        redis::from_redis_value(scene.raw.ask("ACL LOG").await).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
}
