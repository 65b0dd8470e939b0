//! The built binary on a reliable list.

use std::time::Duration;

use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;
use serde_json::json;

use crate::list_scene::{CLAIMS, DEAD, KEY, Scene, framed};

fn host(scene: &Scene) -> HostOptions {
    HostOptions::new(&scene.server)
        .without("stream")
        .without("group")
        .flag("list", KEY)
        .flag("reliable", "true")
        .flag("dead-letter", DEAD)
        .flag("max-deliveries", "3")
        .flag("backoff-first", "5ms")
}

fn recovering(scene: &Scene) -> HostOptions {
    host(scene).flag("recovery-zset", CLAIMS)
}

#[tokio::test]
async fn a_plain_list_is_handled_dead_lettered_and_left_empty() {
    for with_set in [false, true] {
        let scene = Scene::new().await;
        scene
            .push(&[
                b"ack",
                b"nack,ack",
                b"nack",
                b"drop:no such customer",
                b"trap",
            ])
            .await;
        let options = if with_set {
            recovering(&scene)
        } else {
            host(&scene)
        };
        let ended = options.until_empty().end().await;
        ended.expect_code(0);
        let summary = ended.json();
        assert_eq!(summary["attempts"], 1 + 2 + 3 + 1 + 3);
        assert_eq!(summary["acked"], 2);
        assert_eq!(
            summary["dead_lettered"],
            json!({"dropped": 1, "max-deliveries": 2})
        );
        assert_eq!(scene.raw.number("DBSIZE").await, 1);
        let dead = scene.list(DEAD).await;
        let dropped = dead
            .iter()
            .map(|value| framed(value))
            .find(|(headers, _)| headers.find_str("x-dead-letter-reason") == Some("dropped"));
        let (headers, payload) = dropped.unwrap();
        assert_eq!(payload, "drop:no such customer");
        assert_eq!(
            headers.find_str("x-dead-letter-detail"),
            Some("no such customer")
        );
    }
}

#[tokio::test]
async fn a_killed_host_of_three_loses_nothing_and_each_orphan_runs_again_once() {
    let scene = Scene::new().await;
    let mut ids = Vec::new();
    for n in 0..1_200 {
        let id = format!("m{n}");
        let headers = hostler::delivery::message::Headers::new(vec![(
            "x-message-id".into(),
            id.clone().into(),
        )]);
        let value = hostler::wire::frame::encode(&headers, b"sleep:50").unwrap();
        scene.push(&[&value]).await;
        ids.push(id);
    }
    let options = |n: u32| {
        recovering(&scene)
            .flag("consumer", &format!("h{n}"))
            .flag("concurrency", "4")
            .flag("min-idle", "4s")
            .flag("orphan-scan", "50ms")
    };
    // Three hosts under load, and two more that sweep.
    let victim = options(0).ready().await;
    let mut others = Vec::new();
    for n in 1..5 {
        others.push(options(n).ready().await);
    }
    victim.starts(8).await;
    let instance = victim.consumer();
    let victim = victim.kill().await;
    // Long before anybody may take it.
    let left = format!("LLEN {{jobs}}:processing:{instance}");
    let orphans = scene.raw.number(&left).await;
    assert!(orphans >= 1);
    eventually("all is done", async || {
        let mut left = 0;
        for key in ["LLEN jobs", "ZCARD jobs:claims", "ZCARD {jobs}:delayed"] {
            left += scene.raw.number(key).await;
        }
        left == 0
    })
    .await;
    let mut ended = vec![victim];
    let mut recovered = 0;
    for host in others {
        let host = host.drain().await;
        host.expect_code(0);
        recovered += host.json()["orphans_recovered"].as_i64().unwrap();
        ended.push(host);
    }
    // Each orphan was taken once, by one of four sweepers.
    assert_eq!(recovered, orphans);
    let witness = Witness::of_all(&ended);
    let mut again = 0;
    for id in &ids {
        let starts = witness.starts(id);
        assert!((1..=2).contains(&starts), "{id}: {starts}");
        again += i64::from(starts == 2);
    }
    assert!(again <= orphans, "{again} {orphans}");
    assert!(scene.list(DEAD).await.is_empty());
}

#[tokio::test]
async fn the_id_stays_with_a_message_from_its_first_start_to_its_dead_letter() {
    for flags in [&[][..], &[("framing", "raw")], &[("codec", "json")]] {
        let scene = Scene::new().await;
        // At once, later, later again, and away. Both are equal, and stay apart.
        let body = "nack:0,nack:30,nack:1,drop";
        let value = match flags {
            [("codec", _)] => format!(r#"{{"headers":{{}},"payload":"{body}"}}"#),
            _ => body.to_owned(),
        };
        scene.push(&[value.as_bytes(), value.as_bytes()]).await;
        let mut options = recovering(&scene).flag("max-deliveries", "9");
        for (name, text) in flags {
            options = options.flag(name, text);
        }
        let ended = options.until_empty().end().await;
        ended.expect_code(0);
        let starts: Vec<_> = ended.log.iter().filter_map(|line| line.start()).collect();
        assert_eq!(starts.len(), 8);
        let mut ids: Vec<&str> = starts.iter().map(|(id, _)| *id).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), 2);
        for id in ids {
            let attempts: Vec<u32> = starts
                .iter()
                .filter(|(i, _)| *i == id)
                .map(|s| s.1)
                .collect();
            assert_eq!(attempts, [1, 2, 3, 4]);
        }
        let mut dead: Vec<String> = Vec::new();
        for letter in scene.list(DEAD).await {
            let value = letter.into();
            let (headers, payload) = hostler::wire::frame::decode(&value)
                .or_else(|| hostler::wire::envelope::decode(&value))
                .unwrap();
            assert_eq!(payload, body);
            dead.push(headers.find_str("x-message-id").unwrap().to_owned());
        }
        dead.sort_unstable();
        let mut ids: Vec<_> = starts.iter().map(|(id, _)| (*id).to_owned()).collect();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(dead, ids);
    }
}

#[tokio::test]
async fn a_message_that_kills_its_host_starts_as_often_as_it_may() {
    for cap in [1_u32, 2] {
        let scene = Scene::new().await;
        scene.push(&[b"sleep:100000"]).await;
        let options = recovering(&scene)
            .flag("max-deliveries", &cap.to_string())
            .flag("timeout", "200s")
            .flag("cpu", "1s")
            .flag("min-idle", "300ms")
            .flag("orphan-scan", "50ms");
        for _ in 0..cap {
            let host = options.start();
            host.starts(1).await;
            host.kill().await;
        }
        let ended = options.until_empty().end().await;
        ended.expect_code(0);
        assert_eq!(ended.json()["attempts"], 0);
        let (headers, _) = framed(&scene.list(DEAD).await[0]);
        let attempts = cap.to_string();
        assert_eq!(headers.find_str("x-dead-letter-attempts"), Some(&*attempts));
    }
}

#[tokio::test]
async fn what_is_inspected() {
    let scene = Scene::new().await;
    scene.push(&[b"sleep:60000", b"a", b"b"]).await;
    let host = recovering(&scene)
        .flag("concurrency", "1")
        .flag("prefetch", "1")
        .flag("timeout", "70s")
        .flag("drain-timeout", "10ms")
        .ready()
        .await;
    host.starts(1).await;
    let url = scene.server.url();
    let mut words = vec!["inspect", "--redis", &url, "--list", KEY, "--reliable"];
    words.extend(["--recovery-zset", CLAIMS, "--dead-letter", DEAD]);
    let text = command::run(&words).ok().stdout;
    assert!(text.contains("jobs"), "{text}");
    words.extend([
        "--dead-letter-routes",
        "timeout=slow",
        "--dead-letter-max-len",
        "4",
    ]);
    scene.raw.ask("LPUSH slow 1 2 3").await;
    let text = command::run(&words).ok().stdout;
    for row in [
        "0 of 4 in jobs:dead (0 % full)",
        "3 of 4 in slow (75 % full)",
        "0 of 4 in {jobs}:cycle (0 % full)",
    ] {
        assert!(text.contains(row), "{row} in\n{text}");
    }
    words.push("--json");
    let report = command::run(&words).ok().json();
    assert_eq!(
        report["dead_letter_targets"][1],
        json!({"key": "slow", "length": 3, "max_len": 4})
    );
    assert_eq!(report["key"], KEY);
    assert!(report["group"].is_null());
    let held = report["pending"].as_u64().unwrap();
    assert_eq!(report["length"].as_u64().unwrap() + held, 3);
    assert!(held >= 1 && report["dead_letters"] == 0 && report["delayed"] == 0);
    assert!(report["oldest_pending_ms"].as_u64().unwrap() < 60_000);
    assert_eq!(report["consumers"][0]["name"], host.consumer());
    assert_eq!(report["consumers"][0]["pending"], held);
    host.kill().await;
}

#[tokio::test]
async fn a_drained_host_returns_what_it_did_not_start() {
    let scene = Scene::new().await;
    scene.push(&[b"sleep:300", b"x", b"y", b"z"]).await;
    let host = host(&scene).flag("concurrency", "1").ready().await;
    host.starts(1).await;
    let ended = host.drain().await;
    ended.expect_code(0);
    let left = scene.list(KEY).await;
    let mut expected = vec![b"z".to_vec(), b"y".to_vec(), b"x".to_vec()];
    expected.truncate(left.len());
    assert_eq!(left, expected);
    assert_eq!(
        ended.json()["attempts"].as_u64().unwrap() + left.len() as u64,
        4
    );
    tokio::time::timeout(
        Duration::from_secs(20),
        self::host(&scene).until_empty().end(),
    )
    .await
    .unwrap()
    .expect_code(0);
}

#[tokio::test]
async fn what_does_not_fit_is_refused_with_a_remedy() {
    let scene = Scene::new().await;
    scene.raw.ask("XADD jobs * a b").await;
    let ended = host(&scene).end().await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("needs a list"),
        "{}",
        ended.stderr()
    );
    scene.raw.ask("DEL jobs").await;
    scene.raw.ask(&format!("SET {CLAIMS} x")).await;
    let ended = recovering(&scene).end().await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("the recovery set needs a zset"),
        "{}",
        ended.stderr()
    );
    let ended = host(&scene).flag("recovery-ttl", "1s").end().await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("recovery_zset"),
        "{}",
        ended.stderr()
    );
}
