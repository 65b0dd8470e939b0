//! Simple lists: at-most-once, like `BRPOP`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::delivery::message::Headers;
use hostler::queue::Guarantee;
use hostler::queue::kind::QueueOptions;
use hostler::queue::simple_list::SimpleListOptions;
use hostler::runtime::{Exit, UntilEmpty};
use hostler::wire::frame;
use hostler::wire::list::Framing;
use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;
use serde_json::json;

use crate::queue::once_scene::{LONG, Scene, bodies, settings, value};

const KEY: &str = "jobs";

fn options() -> QueueOptions {
    QueueOptions::SimpleList(SimpleListOptions::new(KEY))
}

async fn push(scene: &Scene, values: &[&[u8]]) {
    for value in values {
        scene.push(KEY, value).await;
    }
}

fn host(scene: &Scene) -> HostOptions {
    let options = HostOptions::new(&scene.server).flag("list", KEY);
    options.without("stream").without("group")
}

#[tokio::test]
async fn values_are_taken_from_the_right_and_kept_nowhere() {
    let scene = Scene::new().await;
    let queue = scene.open(options()).await;
    assert_eq!(queue.guarantee(), Guarantee::AtMostOnce);
    push(&scene, &[b"a", &value("m1", "b"), b"c"]).await;
    let claims = queue.fetch(2, Duration::ZERO).await.unwrap();
    assert_eq!(bodies(&claims), ["a", "b"]);
    assert_eq!(&*claims[1].message.id, "m1");
    assert_eq!(&*claims[0].message.queue, KEY);
    // One value is left, in one key.
    assert_eq!(scene.raw.number("LLEN jobs").await, 1);
    assert_eq!(scene.keys().await, 1);
    assert_eq!(queue.observe().await.unwrap().unwrap().unread, 1);
    assert!(queue.backlog().await.unwrap().unread);
    assert_eq!(bodies(&queue.fetch(9, LONG).await.unwrap()), ["c"]);
    assert!(queue.fetch(9, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(scene.keys().await, 0);
}

#[tokio::test]
async fn values_are_decoded_by_the_framing() {
    for (framing, bodies_expected) in [
        (Framing::Auto, ["hi", r#"{"headers":{},"payload":"x"}"#]),
        (Framing::Json, ["hi", "x"]),
    ] {
        let scene = Scene::new().await;
        let list = SimpleListOptions {
            framing,
            ..SimpleListOptions::new(KEY)
        };
        let queue = scene.open(QueueOptions::SimpleList(list)).await;
        let envelope = br#"{"headers":{},"payload":"x"}"#;
        push(&scene, &[&value("m", "hi"), envelope, b"no frame"]).await;
        let claims = queue.fetch(3, LONG).await.unwrap();
        assert_eq!(bodies(&claims[..2]), bodies_expected);
        // A malformed value is handed out with its defect.
        assert_eq!(claims[2].defect.is_some(), framing == Framing::Json);
    }
}

#[tokio::test]
async fn a_waiting_fetch_wakes_for_a_value_and_a_stop_and_takes_nothing_afterwards() {
    let scene = Scene::new().await;
    let queue = scene.open(options()).await;
    let fetch = || {
        let queue = Arc::clone(&queue);
        tokio::spawn(async move { queue.fetch(5, LONG).await })
    };
    let begun = Instant::now();
    let waiting = fetch();
    scene.blocked(1).await;
    push(&scene, &[b"a"]).await;
    assert_eq!(bodies(&waiting.await.unwrap().unwrap()), ["a"]);
    let waiting = fetch();
    scene.blocked(1).await;
    queue.stop_taking();
    queue.interrupt().await.unwrap();
    assert!(waiting.await.unwrap().unwrap().is_empty());
    push(&scene, &[b"b"]).await;
    assert!(queue.fetch(5, LONG).await.unwrap().is_empty());
    assert!(begun.elapsed() < LONG);
    assert_eq!(scene.raw.number("LLEN jobs").await, 1);
}

#[tokio::test]
async fn large_values_are_taken_a_few_at_a_time() {
    let scene = Scene::new().await;
    let queue = scene.open(options()).await;
    let large = vec![b'x'; 1 << 20];
    push(&scene, &[&large[..]; 40]).await;
    // The host does not know the size of the values yet.
    let first = queue.fetch(40, Duration::ZERO).await.unwrap().len();
    assert!(first <= 16, "{first}");
    let mut left = 40 - first;
    while left > 0 {
        let next = queue.fetch(40, Duration::ZERO).await.unwrap().len();
        assert!((1..=4).contains(&next), "{next}");
        left -= next;
    }
    // Small values come in large batches again.
    push(&scene, &[&b"x"[..]; 500]).await;
    let mut most = 0;
    for _ in 0..200 {
        let next = queue.fetch(40, Duration::ZERO).await.unwrap().len();
        most = most.max(next);
        if next == 0 {
            break;
        }
    }
    assert!(most > 16, "{most}");
}

#[tokio::test(flavor = "multi_thread")]
async fn competing_hosts_run_each_value_once() {
    let scene = Scene::new().await;
    for n in 0..900 {
        let id = n.to_string();
        push(&scene, &[&value(&id, "ack")]).await;
    }
    let script = Arc::new(Script::default());
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let mut settings = settings(4);
        settings.until_empty = Some(UntilEmpty { timeout: None });
        hosts.push(Host::on(scene.open(options()).await, settings, &script));
    }
    let mut acked = 0;
    for host in hosts {
        let metrics = Arc::clone(&host.metrics);
        assert_eq!(host.ended().await, Exit::Drained);
        acked += metrics.summary().acked;
    }
    assert_eq!(acked, 900);
    let starts = script.starts();
    let mut ids: Vec<u32> = starts.iter().map(|(id, _)| id.parse().unwrap()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (0..900).collect::<Vec<_>>());
    assert_eq!(scene.keys().await, 0);
}

#[tokio::test]
async fn outcomes_other_than_ack_are_counted_and_logged_at_a_limited_rate() {
    let scene = Scene::new().await;
    let headers = Headers::new(vec![("x-retry-count".into(), "7".into())]);
    let retried = frame::encode(&headers, b"echo").unwrap();
    let script: [&[u8]; 6] = [b"ack", b"nack", b"nack:50", b"drop:why", b"trap", &retried];
    push(&scene, &script).await;
    for _ in 0..200 {
        push(&scene, &[b"nack"]).await;
    }
    let host = host(&scene).admin().ready().await;
    eventually("all are handled", async || {
        host.metric("hostler_attempts_total{outcome=\"nack-requeue\"}") == 202
            && host.metric("hostler_attempts_total{outcome=\"drop\"}") == 2
            && host.metric("hostler_faults_total{kind=\"trap\"}") == 1
    })
    .await;
    let lost = |outcome| {
        host.metric(&format!(
            "hostler_outcomes_not_honoured_total{{outcome=\"{outcome}\"}}"
        ))
    };
    eventually("those that are lost are counted", async || {
        (lost("nack-requeue"), lost("drop"), lost("fault")) == (202, 2, 1)
    })
    .await;
    let ended = host.drained().await;
    let summary = ended.json();
    for (name, value) in [
        ("acked", json!(1)),
        ("discarded", json!(205)),
        ("requeued", json!(0)),
        ("dead_lettered", json!({})),
    ] {
        assert_eq!(summary[name], value, "{name}");
    }
    let serving = ended.log.iter().find(|line| line.message() == "serving");
    let guarantee = serving.unwrap().text("guarantee").unwrap();
    assert!(
        guarantee.starts_with("at most once: nack-requeue, drop and faults cannot be honoured")
    );
    let log = ended.log.iter();
    let losses = log.filter(|line| line.message() == "lost: this queue takes nothing back");
    let losses: Vec<_> = losses.collect();
    assert!((1..100).contains(&losses.len()), "{}", losses.len());
    assert!(losses[0].number("others").is_some() && losses[0].text("reason").is_some());
    // The list of queues.
    assert_eq!(scene.keys().await, 1);
}

#[tokio::test]
async fn a_handler_sees_a_delivery_limit_of_one() {
    let scene = Scene::new().await;
    push(&scene, &[b"echo"]).await;
    let ended = host(&scene).flag("log-level", "debug").finish().await;
    let mut log = ended.log.iter();
    let answered = log.find(|line| line.message() == "the handler answered");
    let outcome = answered.unwrap().text("outcome").unwrap();
    assert!(outcome.contains("attempt=1 max=1"), "{outcome}");
}

/// Quick values, and then slow ones with the ids `s0`, `s1`, ...
async fn quick_then_slow(scene: &Scene, quick: usize, slow: usize, body: &str) {
    for _ in 0..quick {
        push(scene, &[b"ack"]).await;
    }
    for n in 0..slow {
        push(scene, &[&value(&format!("s{n}"), body)]).await;
    }
}

/// Values that could not run within the deadline of the drain are back on the list, in their
/// order.
#[tokio::test]
async fn a_drained_host_handles_the_values_that_it_started_and_gives_back_the_others() {
    let scene = Scene::new().await;
    quick_then_slow(&scene, 1_000, 200, "sleep:1000").await;
    let host = host(&scene).flags("concurrency=4 drain-timeout=20s");
    let host = host.ready().await;
    eventually("a slow one has started", async || {
        host.witness().starts("s0") > 0
    })
    .await;
    let ended = host.drained().await;
    let attempts = ended.json()["attempts"].as_i64().unwrap();
    // No value is lost: each was handled, or is there.
    assert_eq!(ended.json()["acked"], attempts);
    let left = scene.list(KEY).await;
    assert_eq!(attempts + left.len() as i64, 1_200);
    let slow: Vec<Vec<u8>> = (0..200)
        .filter(|n| ended.witness().starts(&format!("s{n}")) == 0)
        .map(|n| value(&format!("s{n}"), "sleep:1000"))
        .collect();
    let left: Vec<_> = left.into_iter().rev().collect();
    assert_eq!(left, slow);
}

#[tokio::test]
async fn a_host_that_becomes_slow_gives_back_values_that_it_has_not_started() {
    let scene = Scene::new().await;
    quick_then_slow(&scene, 1_000, 30, "sleep:600000").await;
    let options = host(&scene).flags("concurrency=2 timeout=1h");
    let host = options.ready().await;
    host.starts(1_002).await;
    // Two run, and two have a place each.
    eventually("the others are back", async || {
        scene.raw.number("LLEN jobs").await >= 26
    })
    .await;
    let other = options.ready().await;
    other.starts(2).await;
    host.kill().await;
    other.kill().await;
}

/// A user who may not write to the list loses nothing either: a value that cannot go back runs.
#[tokio::test]
async fn what_the_list_refuses_to_take_back_runs_before_the_host_stops() {
    let scene = Scene::new().await;
    quick_then_slow(&scene, 1_000, 20, "sleep:100").await;
    scene.raw.ask("ACL SETUSER default -rpush").await;
    let host = host(&scene).flag("concurrency", "2").ready().await;
    eventually("a slow one has started", async || {
        host.witness().starts("s0") > 0
    })
    .await;
    let ended = host.drained().await;
    let attempts = ended.json()["attempts"].as_i64().unwrap();
    assert_eq!(ended.json()["acked"], attempts);
    assert_eq!(attempts + scene.raw.number("LLEN jobs").await, 1_020);
}

#[tokio::test]
async fn a_killed_host_loses_the_values_that_it_took_and_none_runs_twice() {
    let scene = Scene::new().await;
    for n in 0..200 {
        let id = format!("m{n}");
        push(&scene, &[&value(&id, "sleep:20")]).await;
    }
    let victim = host(&scene).flag("concurrency", "4").ready().await;
    victim.starts(20).await;
    let victim = victim.kill().await;
    let left = scene.raw.number("LLEN jobs").await;
    let heir = host(&scene).finish().await;
    assert_eq!(heir.json()["attempts"], left);
    let witness = Witness::of_all(&[victim, heir]);
    for n in 0..200 {
        assert!(witness.starts(&format!("m{n}")) <= 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn handlers_continue_while_the_server_is_away_and_serving_resumes() {
    let mut scene = Scene::new().await;
    let script = Arc::new(Script::default());
    push(&scene, &[&value("first", "sleep:500")]).await;
    let host = Host::on(scene.open(options()).await, settings(2), &script);
    eventually("it starts", async || script.starts_of("first") == 1).await;
    scene.server.kill();
    eventually("the host is not ready", async || !host.health.is_ready()).await;
    // The handler ends without the server.
    eventually("it ends", async || host.metrics.summary().acked == 1).await;
    scene.server.restart();
    scene.reconnect().await;
    push(&scene, &[&value("second", "ack")]).await;
    eventually("it is handled", async || host.metrics.summary().acked == 2).await;
    assert_eq!(host.drain().await, Exit::Drained);
}

#[tokio::test]
async fn a_read_only_server_fails_the_probe() {
    let scene = Scene::new().await;
    let queue = scene.open(options()).await;
    push(&scene, &[b"a"]).await;
    queue.probe().await.unwrap();
    assert_eq!(scene.raw.number("LLEN jobs").await, 1);
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = queue.probe().await.unwrap_err();
    assert_eq!(error.code(), "READONLY");
    scene.raw.ask("REPLICAOF NO ONE").await;
    queue.probe().await.unwrap();
}

#[tokio::test]
async fn a_start_that_cannot_work_is_refused_with_a_remedy() {
    let scene = Scene::new().await;
    scene.raw.ask("XADD jobs * a b").await;
    let ended = host(&scene).end().await;
    ended.expect_code(64);
    let stderr = ended.stderr();
    assert!(stderr.contains("needs a list"), "{stderr}");
    scene.delete(KEY).await;
    let user = "ACL SETUSER poor on >pw ~jobs -@all +@connection +info +type +acl|whoami +acl|dryrun +rpop";
    scene.raw.ask(user).await;
    let url = format!("{}?user=poor&pass=pw", scene.server.url());
    let ended = host(&scene).flag("redis", &url).end().await;
    ended.expect_code(64);
    let stderr = ended.stderr();
    assert!(stderr.contains("+llen +lmpop +blmpop"), "{stderr}");
    for (flag, text) in [
        ("dead-letter", "jobs:dead"),
        ("max-deliveries", "3"),
        ("backoff-first", "1s"),
    ] {
        let ended = host(&scene).flag(flag, text).end().await;
        ended.expect_code(64);
        let stderr = ended.stderr();
        for part in ["forgets a message when it hands it out", "`reliable`"] {
            assert!(stderr.contains(part), "{stderr}");
        }
    }
}

#[tokio::test]
async fn inspect_reports_the_length_of_a_simple_list() {
    let scene = Scene::new().await;
    push(&scene, &[b"a", b"b"]).await;
    let url = scene.server.url();
    let words = ["inspect", "--redis", &url, "--list", KEY];
    let text = command::run(words).ok().stdout;
    assert!(text.contains("jobs (2 entries)"), "{text}");
    let report = command::run(words.iter().chain(&["--json"])).ok().json();
    for (name, value) in [
        ("length", json!(2)),
        ("lag", json!(2)),
        ("pending", json!(0)),
        ("consumers", json!([])),
    ] {
        assert_eq!(report[name], value, "{name}");
    }
    let ended = command::run(words.iter().chain(&["--dead-letter", "jobs:dead"]));
    assert!(ended.stderr.contains("cannot be honoured"), "{ended:?}");
}
