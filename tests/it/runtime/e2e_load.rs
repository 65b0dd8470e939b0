//! Batches, buffers, instances; and everything at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fastrand::Rng;
use hostler_tests::command;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;
use serde_json::json;

use crate::runtime::e2e_scene::Scene;

/// It counts calls: on a busy machine a host fetches less at a time.
mod measured {
    use super::*;

    #[tokio::test]
    async fn messages_are_read_and_acknowledged_in_batches() {
        let mut scene = Scene::new().await;
        let url = scene.server.url();
        let lines = "ack\n".repeat(5000);
        let to = ["publish", "--redis", &url, "--stream", "orders", "--lines"];
        let ids = command::fed(to, lines.as_bytes()).ok().stdout;
        scene.published = ids
            .lines()
            .map(|id| (id.to_owned(), "ack".to_owned()))
            .collect();
        assert_eq!(scene.published.len(), 5000);
        // All lines of the handler: by default, a second has room for fewer than this host writes.
        let host = scene.host().flag("limit-log-rate", "1GiB");
        let ended = host.finish().await;
        assert_eq!(ended.json()["acked"], 5000);
        let (_, witness) = scene.check(&[ended]).await;
        assert_eq!(witness.total(), 5000);
        for command in ["xack", "xreadgroup"] {
            let calls = scene.calls(command).await;
            assert!(calls < 2500, "{calls} calls of {command} for 5000 messages");
        }
        // The first start of a first delivery is not recorded.
        let records = scene.calls("xclaim").await;
        assert!(records < 500, "{records} records or renewals");
    }
}

#[tokio::test]
async fn a_host_with_slow_handlers_holds_few_messages() {
    let mut scene = Scene::new().await;
    scene.publish_all("sleep:150", 200).await;
    let options = scene.host().flag("concurrency", "3");
    let host = options.ready().await;
    for started in [3, 6, 9, 12, 15] {
        host.starts(started).await;
        let held = scene.raw.pending("orders", "workers").await.len();
        assert!(held <= 3 + 3, "{held} held for three slots");
    }
    host.drained().await;
}

/// A host gives back the messages that it read ahead while it was fast, when it becomes slow: it does not keep it
/// from others.
#[tokio::test]
async fn a_host_that_becomes_slow_leaves_its_work_to_an_idle_host() {
    let mut scene = Scene::new().await;
    scene.publish_all("ack", 1000).await;
    let slow = scene.publish_all("sleep:600000,ack", 12).await;
    let options = scene.host().flags("concurrency=2 timeout=1h");
    let first = options.ready().await;
    first.starts(1002).await;
    let second = options.ready().await;
    // The messages that it gets start there, and cost nothing.
    second.starts(2).await;
    let witness = Witness::so_far([&first, &second]);
    let started = slow.iter().filter(|id| witness.starts(id) > 0);
    assert_eq!(started.count(), 4);
    let reserved = 2;
    eventually("each holds what it can start", async || {
        let pending = scene.raw.pending("orders", "workers").await;
        let held = |host: &Host| {
            let consumer = host.consumer();
            pending
                .iter()
                .filter(|held| held.consumer == consumer)
                .count()
        };
        held(&first) <= 2 + reserved && held(&second) <= 2 + reserved
    })
    .await;
    let pending = scene.raw.pending("orders", "workers").await;
    let parked = pending
        .iter()
        .filter(|held| held.consumer == "hostler:parked");
    assert!(parked.map(|held| held.count).all(|count| count == 0));
    first.kill().await;
    second.kill().await;
}

/// Starts that were recorded ahead are taken back as well: a crash charges what may have started, and no other.
#[tokio::test]
async fn a_crash_of_a_host_that_became_slow_gives_up_no_message_that_started_once() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("nack:0,sleep:2000", 60).await;
    let options = scene
        .host()
        .cap(2)
        .flags("concurrency=2 timeout=1h min-idle=4s");
    let victim = options.ready().await;
    eventually("slow attempts have started", async || {
        let witness = victim.witness();
        ids.iter().filter(|id| witness.starts(id) == 2).count() >= 2
    })
    .await;
    eventually("it holds what it can start", async || {
        let pending = scene.raw.pending("orders", "workers").await;
        let consumer = victim.consumer();
        pending
            .iter()
            .filter(|held| held.consumer == consumer)
            .count()
            <= 4
    })
    .await;
    let victim = victim.kill().await;
    let before = victim.witness();
    let heir = options.flag("concurrency", "64").finish().await;
    let (look, _) = scene.check(&[victim, heir]).await;
    for id in &ids {
        let has_run = before.starts(id) == 2;
        assert!(
            has_run || look.dead_letters_of(id).is_empty(),
            "{id} is given up"
        );
    }
}

#[tokio::test]
async fn an_instance_serves_as_many_messages_as_reuse_says() {
    let scene = Scene::new().await;
    let options = scene
        .host()
        .dead_letter()
        .flag("concurrency", "1")
        .until_empty();
    for (reuse, wanted) in [("1", [1; 8]), ("4", [1, 2, 3, 4, 1, 2, 3, 4])] {
        scene.raw.ask("DEL orders orders:dead").await;
        for _ in 0..8 {
            scene.raw.add("orders", "count").await;
        }
        options.clone().flag("reuse", reuse).finish().await;
        let dead = scene.look().await.dead;
        let seen: Vec<i32> = dead
            .iter()
            .map(|dead| {
                dead.header("x-dead-letter-detail")
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        assert_eq!(seen, wanted, "reuse {reuse}");
    }
}

#[tokio::test]
async fn a_panic_in_the_host_during_a_call_is_a_fault_of_that_attempt() {
    let mut scene = Scene::new().await;
    let once = scene.publish("host-panic,ack").await;
    let innocents = scene.publish_all("sleep:50", 10).await;
    let ended = scene
        .host()
        .cap(2)
        .flag("handler", &guest("saboteur").display().to_string())
        .flag("backoff-first", "5ms")
        .finish()
        .await;
    assert_eq!(ended.json()["faults"], json!({"host-panic": 1}));
    assert_eq!(ended.json()["acked"], 11);
    let (look, witness) = scene.check(&[ended]).await;
    assert!(look.dead.is_empty());
    assert_eq!(witness.attempts(&once), [1, 2]);
    assert!(innocents.iter().all(|id| witness.attempts(id) == [1]));
}

#[tokio::test]
async fn bytes_and_headers_stay_the_same_from_publish_to_peek() {
    let scene = Scene::new().await;
    let url = scene.server.url();
    let body = b"nack:0;\x00\xff\xfe binary\r\n";
    let to = ["publish", "--redis", &url, "--stream", "orders"];
    let headers = ["--header", "X-Tenant=Acme", "--header", "empty="];
    let publish = [&to[..], &headers, &["--body-file", "-"]].concat();
    let id = command::fed(publish, body).ok().stdout.trim().to_owned();
    command::run([&to[..], &["--body", "drop:unwanted"]].concat()).ok();
    scene.host().cap(2).finish().await;
    let peek = ["dlq", "peek", "--redis", &url, "orders:dead", "--json"];
    let found = command::run(peek).ok().json();
    assert_eq!(found["total"], 2);
    assert_eq!(
        found["by_reason"],
        json!({"dropped": 1, "max-deliveries": 1})
    );
    let entries = found["entries"].as_array().unwrap();
    let capped = entries
        .iter()
        .find(|entry| entry["reason"] == "max-deliveries")
        .unwrap();
    // `nack:0;` and the bytes behind it.
    assert_eq!(capped["body_base64"], "bmFjazowOwD//iBiaW5hcnkNCg==");
    assert_eq!(capped["body"], json!(null));
    assert_eq!(capped["attempts"], 2);
    assert_eq!(capped["source"], "orders");
    assert_eq!(capped["source_id"], *id);
    assert_eq!(capped["headers"]["X-Tenant"], "Acme", "{capped}");
    assert_eq!(capped["headers"]["empty"], "");
    let limited = command::run(peek.iter().chain(&["--limit", "1"]))
        .ok()
        .json();
    assert_eq!(limited["total"], 2);
    assert_eq!(limited["entries"].as_array().unwrap().len(), 1);
    let left = scene.raw.number("XLEN orders:dead").await;
    assert_eq!(left, 2, "peek changes nothing");
}

/// Hosts that come and go.
struct Fleet {
    options: HostOptions,
    hosts: Vec<Host>,
    ended: Vec<Ended>,
}

impl Fleet {
    async fn replace(&mut self, random: &mut Rng, how: &str) {
        let host = self.hosts.swap_remove(random.usize(..self.hosts.len()));
        host.logs("ready").await;
        self.hosts.push(self.options.start());
        let ended = match how {
            "kill" => host.kill().await,
            _ => host.drain().await,
        };
        if how == "drain" {
            ended.expect_code(0);
        }
        self.ended.push(ended);
    }
}

#[tokio::test]
async fn hosts_are_killed_paused_and_drained_under_load() {
    const CAP: u32 = 8;
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut scene = Scene::new().await;
    let bodies = [
        "ack",
        "ack",
        "ack",
        "sleep:5",
        "sleep:60",
        "nack:0,ack",
        "nack:0,nack:20,ack",
        "nack:400,sleep:5",
        "drop:unwanted",
        "nack:1",
        "trap,ack",
    ];
    for _ in 0..1500 {
        scene.publish(random.choice(bodies).unwrap()).await;
    }
    let options = scene
        .host()
        .cap(CAP)
        .flags("concurrency=6 min-idle=1500ms backoff-first=5ms");
    let mut fleet = Fleet {
        hosts: vec![
            options.ready().await,
            options.ready().await,
            options.ready().await,
        ],
        options,
        ended: Vec::new(),
    };
    // At most four hosts die, so no innocent message is charged eight times.
    for how in [
        "kill", "drain", "pause", "kill", "pause", "drain", "kill", "drain",
    ] {
        for _ in 0..random.usize(0..60) {
            scene.publish(random.choice(bodies).unwrap()).await;
        }
        if how == "pause" {
            // Longer than a lease lasts.
            let paused = random.usize(..fleet.hosts.len());
            fleet.hosts[paused].pause().await;
            let until = Instant::now() + Duration::from_millis(1500 + random.u64(100..900));
            eventually("the pause is over", async || Instant::now() >= until).await;
            fleet.hosts[paused].resume();
        } else {
            fleet.replace(&mut random, how).await;
        }
    }
    scene.emptied().await;
    let Fleet {
        hosts, mut ended, ..
    } = fleet;
    for host in hosts {
        host.logs("ready").await;
        let host = host.drained().await;
        ended.push(host);
    }
    let (look, witness) = scene.check(&ended).await;
    assert!(look.parked.is_empty());
    let mut dead = BTreeMap::new();
    for (id, body) in &scene.published {
        let starts = witness.starts(id);
        assert!(
            (1..=CAP as usize).contains(&starts),
            "{id} ({body}): {starts} starts"
        );
        let letters = look.dead_letters_of(id);
        let reason = letters.first().map(|letter| letter.reason());
        let wanted = match body.as_str() {
            "drop:unwanted" => Some("dropped"),
            "nack:1" => Some("max-deliveries"),
            _ => None,
        };
        assert_eq!(reason, wanted, "{id} ({body})");
        *dead.entry(wanted).or_insert(0) += 1;
    }
    println!(
        "{} hosts, {} starts, {dead:?}",
        ended.len(),
        witness.total()
    );
}
