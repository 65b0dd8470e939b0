//! The built binary on a reliable list.

use hostler::delivery::message::Headers;
use hostler::wire::frame;
use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;
use serde_json::json;

use crate::queue::list_scene::{
    CLAIMS, DEAD, DELAYED, KEY, RETRY, Scene, framed, message, processing,
};

fn host(scene: &Scene) -> HostOptions {
    HostOptions::new(&scene.server)
        .without("stream")
        .without("group")
        .flag("list", KEY)
        .flag("reliable", "true")
        .flag("dead-letter", DEAD)
        .flags("max-deliveries=3 backoff-first=5ms")
}

fn recovering(scene: &Scene) -> HostOptions {
    host(scene).flag("recovery-zset", CLAIMS)
}

#[tokio::test]
async fn a_host_empties_a_list_and_dead_letters_its_failures() {
    for with_set in [false, true] {
        let scene = Scene::new().await;
        scene
            .publish(["ack", "nack,ack", "nack", "drop:no such customer", "trap"])
            .await;
        let options = if with_set {
            recovering(&scene)
        } else {
            host(&scene)
        };
        let ended = options.finish().await;
        let summary = ended.json();
        assert_eq!(summary["attempts"], 1 + 2 + 3 + 1 + 3);
        assert_eq!(summary["acked"], 2);
        assert_eq!(
            summary["dead_lettered"],
            json!({"dropped": 1, "max-deliveries": 2})
        );
        // The dead letters, and the list of queues.
        assert_eq!(scene.keys().await, 2);
        let dead = scene.list(DEAD).await;
        let mut dead = dead.iter().map(|value| framed(value));
        let is_dropped =
            |headers: &Headers| headers.find_str("x-dead-letter-reason") == Some("dropped");
        let (headers, payload) = dead.find(|(headers, _)| is_dropped(headers)).unwrap();
        assert_eq!(payload, "drop:no such customer");
        let detail = headers.find_str("x-dead-letter-detail");
        assert_eq!(detail, Some("no such customer"));
    }
}

mod measured {
    use super::*;

    #[tokio::test]
    async fn when_one_of_several_hosts_is_killed_each_of_its_messages_runs_once_more() {
        let scene = Scene::new().await;
        let mut ids = Vec::new();
        for n in 0..1_200 {
            let id = format!("m{n}");
            scene.publish([message(&id, "sleep:50")]).await;
            ids.push(id);
        }
        let options = |n: u32| {
            recovering(&scene)
                .flag("consumer", &format!("h{n}"))
                .flags("concurrency=4 min-idle=4s orphan-scan=50ms")
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
        // Long before another host may take them.
        let orphans = i64::try_from(scene.list(&processing(&instance)).await.len()).unwrap();
        assert!(orphans >= 1);
        scene.emptied().await;
        let mut ended = vec![victim];
        let mut recovered = 0;
        for host in others {
            let host = host.drained().await;
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
}

#[tokio::test]
async fn a_killed_host_with_another_name_is_recovered_without_a_setting() {
    let scene = Scene::new().await;
    scene.publish(["sleep:600000"; 3]).await;
    scene.publish(["ack"; 3]).await;
    let options = |name: &str| {
        host(&scene)
            .flag("consumer", name)
            .flags("concurrency=1 min-idle=300ms orphan-scan=50ms timeout=1000s")
    };
    // It holds all of them: nothing else is on the list.
    let pod = options("pod-1").flags("prefetch=64").ready().await;
    pod.starts(1).await;
    let instance = pod.consumer();
    pod.kill().await;
    let held = scene.list(&processing(&instance)).await.len();
    assert!(held > 0);
    let heir = options("pod-2")
        .flags("timeout=2s concurrency=4")
        .admin()
        .ready()
        .await;
    eventually("it handles them", async || {
        scene.list(&processing(&instance)).await.is_empty() && scene.list(DEAD).await.len() == 3
    })
    .await;
    eventually("the gauge says so", async || {
        heir.metric("hostler_orphans") == 0
    })
    .await;
    let ended = heir.drained().await;
    assert_eq!(ended.json()["orphans_recovered"], held);
    assert_eq!(ended.json()["acked"], 3);
    scene.emptied().await;
}

#[tokio::test]
async fn a_message_keeps_its_id_from_its_first_start_to_its_dead_letter() {
    for flags in [&[][..], &[("framing", "raw")], &[("codec", "json")]] {
        let scene = Scene::new().await;
        // Requeued at once, later, and later again, then dropped. The two values are equal.
        let body = "nack:0,nack:30,nack:1,drop";
        let value = match flags {
            [("codec", _)] => format!(r#"{{"headers":{{}},"payload":"{body}"}}"#),
            _ => body.to_owned(),
        };
        scene.publish([value.as_bytes(), value.as_bytes()]).await;
        let mut options = recovering(&scene).flag("max-deliveries", "9");
        for (name, text) in flags {
            options = options.flag(name, text);
        }
        let ended = options.finish().await;
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
            let (headers, payload) = frame::decode(&value)
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
async fn a_message_that_kills_its_host_starts_at_most_max_deliveries_times() {
    for cap in [1_u32, 2] {
        let scene = Scene::new().await;
        scene.publish(["sleep:100000"]).await;
        let options = recovering(&scene)
            .flag("max-deliveries", &cap.to_string())
            .flags("timeout=200s cpu=1s min-idle=300ms orphan-scan=50ms");
        for _ in 0..cap {
            let host = options.start();
            host.starts(1).await;
            host.kill().await;
        }
        let ended = options.finish().await;
        assert_eq!(ended.json()["attempts"], 0);
        let (headers, _) = framed(&scene.list(DEAD).await[0]);
        let attempts = cap.to_string();
        assert_eq!(headers.find_str("x-dead-letter-attempts"), Some(&*attempts));
    }
}

#[tokio::test]
async fn inspect_reports_a_list_and_its_hosts() {
    let scene = Scene::new().await;
    scene.publish(["sleep:60000", "a", "b"]).await;
    let host = recovering(&scene)
        .flags("concurrency=1 prefetch=1 timeout=70s drain-timeout=10ms")
        .ready()
        .await;
    host.starts(1).await;
    let url = scene.url();
    let mut words = vec!["inspect", "--redis", &url, "--list", KEY, "--reliable"];
    words.extend(["--recovery-zset", CLAIMS, "--dead-letter", DEAD]);
    let text = command::run(&words).ok().stdout;
    assert!(text.contains("jobs"), "{text}");
    words.push("--json");
    let report = command::run(&words).ok().json();
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
async fn a_drained_host_returns_the_messages_that_it_has_not_started() {
    let scene = Scene::new().await;
    scene.publish(["sleep:300", "x", "y", "z"]).await;
    let host = host(&scene).flag("concurrency", "1").ready().await;
    host.starts(1).await;
    let ended = host.drained().await;
    let left = scene.list(KEY).await;
    let mut expected = vec![b"z".to_vec(), b"y".to_vec(), b"x".to_vec()];
    expected.truncate(left.len());
    assert_eq!(left, expected);
    let attempts = ended.json()["attempts"].as_u64().unwrap();
    assert_eq!(attempts + left.len() as u64, 4);
    self::host(&scene).finish().await;
}

#[tokio::test]
async fn a_key_that_only_one_request_needs_stops_only_that_one() {
    tokio::join!(
        an_obstructed_key_stops_one_request("auto", DELAYED),
        an_obstructed_key_stops_one_request("auto", RETRY),
        an_obstructed_key_stops_one_request("raw", DELAYED),
        an_obstructed_key_stops_one_request("raw", RETRY),
    );
}

async fn an_obstructed_key_stops_one_request(framing: &str, key: &str) {
    let scene = Scene::new().await;
    let host = host(&scene).admin().flag("framing", framing).ready().await;
    scene.obstruct(key).await;
    host.logs("redis refuses this: it pauses alone").await;
    let (status, ready) = host.get("/ready");
    assert!(status == 503 && ready.contains(key), "{ready}");
    for _ in 0..50 {
        scene.publish(["ack"]).await;
    }
    eventually("all are acknowledged", async || {
        scene.list(KEY).await.is_empty()
            && scene.list(&processing(&host.consumer())).await.is_empty()
    })
    .await;
    assert_eq!(host.count(|line| line.message() == "redis is away"), 0);
    scene.delete(key).await;
    host.logs("redis takes this again").await;
    eventually("it is ready", async || host.get("/ready").0 == 200).await;
    scene.publish(["nack:20,ack"]).await;
    host.starts(50 + 2).await;
    let ended = host.drained().await;
    assert_eq!(ended.json()["acked"], 51);
}

#[tokio::test]
async fn a_producer_cannot_make_a_host_run_its_messages_isolated() {
    for framing in ["auto", "json"] {
        let scene = Scene::new().await;
        for n in 0..8 {
            let headers = Headers::new(vec![
                ("x-message-id".into(), format!("m{n}").into()),
                ("x-retry-count".into(), "2".into()),
                ("x-hostler-crashes".into(), "2".into()),
            ]);
            let value = frame::encode(&headers, b"sleep:50").unwrap();
            scene.publish([value]).await;
        }
        let options = host(&scene)
            .flag("framing", framing)
            .flag("max-deliveries", "9");
        let ended = options.finish().await;
        assert_eq!(ended.json()["acked"], 8);
        let isolated = ended.count(|line| line.message().starts_with("runs isolated"));
        assert_eq!(isolated, 0, "{framing}");
        // Its count of starts is still valid.
        assert_eq!(Witness::of_all([&ended]).attempts("m0"), [3]);
    }
}

#[tokio::test]
async fn settings_that_do_not_fit_are_refused_with_a_remedy() {
    let scene = Scene::new().await;
    scene.raw.ask("XADD jobs * a b").await;
    let refused = async |host: HostOptions, remedy: &str| {
        let ended = host.end().await;
        ended.expect_code(64);
        let stderr = ended.stderr();
        assert!(stderr.contains(remedy), "{stderr}");
    };
    refused(host(&scene), "needs a list").await;
    scene.delete(KEY).await;
    scene.obstruct(CLAIMS).await;
    refused(recovering(&scene), "the recovery set needs a zset").await;
    let without_set = host(&scene).flag("recovery-ttl", "1s");
    refused(without_set, "recovery_zset").await;
}
