//! Every reason for which a message of a reliable list dies, routes, cycles, and a dead-letter queue
//! that takes nothing more: with hosts in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::Headers;
use hostler::delivery::policy::{DeadLetterRules, Reason, Reasons};
use hostler::queue::Queue;
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::stream::{DeadLetterQueue, OnFull};
use hostler::runtime::{Exit, Settings, wall_clock_ms};
use hostler::telemetry::metrics::Metrics;
use hostler::wire::codec::BodyCodec;
use hostler::wire::frame;
use hostler::wire::list::Framing;
use hostler_tests::host::HostOptions;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};
use serde_json::json;

use crate::dlq_scene::{policy, settings};
use crate::list_scene::{DEAD, KEY, framed};
use crate::queue_scene::connector;

struct Scene {
    server: RedisServer,
    raw: RawRedis,
    script: Arc<Script>,
}

/// A dead letter.
struct Dead {
    headers: Headers,
    body: String,
}

impl Dead {
    fn header(&self, name: &str) -> &str {
        self.headers.find_str(name).unwrap_or("")
    }

    fn reason(&self) -> &str {
        self.header("x-dead-letter-reason")
    }

    fn attempts(&self) -> &str {
        self.header("x-dead-letter-attempts")
    }

    fn detail(&self) -> &str {
        self.header("x-dead-letter-detail")
    }
}

impl Scene {
    async fn new() -> Self {
        Self::on(RedisServer::start()).await
    }

    async fn on(server: RedisServer) -> Self {
        let raw = server.raw().await;
        Self {
            server,
            raw,
            script: Arc::default(),
        }
    }

    async fn start(&self, options: ListOptions, settings: Settings) -> Host {
        let queue = ListQueue::open(connector(&self.server.url()), options).await;
        Host::on(Arc::new(queue.unwrap()), settings, &self.script)
    }

    /// Run a host until its queue is empty.
    async fn serve(&self, options: ListOptions, settings: Settings) -> Arc<Metrics> {
        let host = self.start(options, settings).await;
        let metrics = Arc::clone(&host.metrics);
        assert_eq!(host.ended().await, Exit::Drained);
        metrics
    }

    async fn push(&self, key: &str, value: &[u8]) {
        self.raw.ask_words(&[b"LPUSH", key.as_bytes(), value]).await;
    }

    /// Push a framed value with these headers.
    async fn put(&self, key: &str, body: &str, headers: &[(&str, &str)]) {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned().into(), (*value).to_owned().into()));
        let value = frame::encode(&Headers::new(headers.collect()), body.as_bytes());
        self.push(key, &value.unwrap()).await;
    }

    /// Dead letters, oldest first.
    async fn dead(&self, key: &str) -> Vec<Dead> {
        let values = self.raw.ask(&format!("LRANGE {key} 0 -1")).await;
        let values: Vec<Vec<u8>> = redis::from_redis_value(values).unwrap();
        let dead = |value: &Vec<u8>| {
            let (headers, body) = framed(value);
            let body = String::from_utf8_lossy(&body).into_owned();
            Dead { headers, body }
        };
        values.iter().rev().map(dead).collect()
    }

    async fn only_dead(&self) -> Dead {
        let mut dead = self.dead(DEAD).await;
        assert_eq!(dead.len(), 1);
        dead.remove(0)
    }

    async fn length(&self, key: &str) -> i64 {
        self.raw.number(&format!("LLEN {key}")).await
    }
}

fn queue(key: &str, dead: &str) -> ListOptions {
    ListOptions {
        dead_letter: Some(DeadLetterQueue::new(dead)),
        ..ListOptions::new(key)
    }
}

fn jobs() -> ListOptions {
    queue(KEY, DEAD)
}

fn three() -> Settings {
    settings(policy(Some(3)))
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_by_its_header_at_the_claim() {
    let scene = Scene::new().await;
    scene.put(KEY, "ack", &[("x-expires-at", "1000")]).await;
    scene.serve(jobs(), three()).await;
    let dead = scene.only_dead().await;
    assert_eq!((dead.reason(), dead.attempts()), ("expired", "0"));
    assert!(scene.script.starts().is_empty());
    assert_eq!(dead.header("x-expires-at"), "", "it cannot expire again");
    let death = dead.header("x-death");
    assert!(death.contains("\"original-expiration\":1000"), "{death}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_when_its_delay_is_due() {
    let scene = Scene::new().await;
    let soon = (wall_clock_ms() + 400).to_string();
    scene
        .put(KEY, "nack:600,ack", &[("x-expires-at", &soon)])
        .await;
    scene.serve(jobs(), three()).await;
    let dead = scene.only_dead().await;
    assert_eq!((dead.reason(), dead.attempts()), ("expired", "1"));
    assert_eq!(scene.script.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_in_the_buffer_of_a_busy_host() {
    let scene = Scene::new().await;
    let mut settings = three();
    settings.ledger.concurrency = 1;
    let options = ListOptions {
        ttl: Some(Duration::from_secs(1)),
        ..jobs()
    };
    // Fast ones first, so that the host claims ahead; what it has claimed waits behind a slow one,
    // longer than it may.
    for _ in 0..200 {
        scene.push(KEY, b"ack").await;
    }
    scene.push(KEY, b"sleep:2500").await;
    for _ in 0..20 {
        scene.push(KEY, b"ack,late").await;
    }
    let metrics = scene.serve(options, settings).await;
    let dead = scene.dead(DEAD).await;
    let summary = metrics.summary();
    assert_eq!(summary.acked + dead.len() as u64, 221);
    let late = dead.iter().filter(|dead| dead.body == "ack,late");
    assert!(late.count() > 0);
    for dead in &dead {
        assert_eq!((dead.reason(), dead.attempts()), ("expired", "0"));
        assert_ne!(dead.body, "sleep:2500", "what runs is let run");
    }
}

/// A value does not say how old it is: its time begins with the first claim, and stays.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_to_live_goes_on_through_requeues() {
    let scene = Scene::new().await;
    let options = ListOptions {
        ttl: Some(Duration::from_millis(700)),
        ..jobs()
    };
    scene.push(KEY, b"nack:300").await;
    scene.serve(options, settings(policy(Some(50)))).await;
    let dead = scene.only_dead().await;
    assert_eq!(dead.reason(), "expired", "{}", dead.attempts());
    let attempts: u32 = dead.attempts().parse().unwrap();
    assert!((1..=3).contains(&attempts), "{attempts}");
    assert!(dead.header("x-death").contains("original-expiration"));
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize_malformed_and_decode_failed_never_run() {
    let scene = Scene::new().await;
    let mut settings = three();
    settings.gate.payload_max = 10;
    settings.gate.codec = Some(BodyCodec::Utf8);
    settings.gate.required = vec!["x-tenant".to_owned()];
    let tenant = [("X-Tenant", "7")];
    scene.put(KEY, "ack", &tenant).await;
    scene.put(KEY, "ack,ack,ack", &tenant).await;
    scene.put(KEY, "ack", &[]).await;
    let bytes = Headers::new(vec![("x-tenant".into(), "7".into())]);
    scene
        .push(KEY, &frame::encode(&bytes, b"a\xff").unwrap())
        .await;
    // No frame, although the list has only frames: it is kept whole.
    scene.push(KEY, b"{\"no\":\"frame\"}").await;
    let options = ListOptions {
        framing: Framing::Frame,
        ..jobs()
    };
    let metrics = scene.serve(options, settings).await;
    let summary = metrics.summary();
    assert_eq!((summary.attempts, summary.acked), (1, 1));
    let dead = scene.dead(DEAD).await;
    let whole = |dead: &Dead| (dead.body.clone(), dead.reason().to_owned());
    let mut seen: Vec<_> = dead.iter().map(whole).collect();
    seen.sort();
    let expected = [
        ("ack", "malformed"),
        ("ack,ack,ack", "oversize"),
        ("a\u{fffd}", "decode-failed"),
        ("{\"no\":\"frame\"}", "malformed"),
    ];
    let expected = expected.map(|(body, reason)| (body.to_owned(), reason.to_owned()));
    assert_eq!(seen, expected);
    assert!(dead.iter().all(|dead| dead.attempts() == "0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_beyond_the_length() {
    let scene = Scene::new().await;
    for n in 0..500 {
        scene.put(KEY, &n.to_string(), &[]).await;
    }
    let options = || ListOptions {
        max_length: Some(100),
        ..jobs()
    };
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let target = connector(&scene.server.url());
        hosts.push(ListQueue::open(target, options()).await.unwrap());
    }
    // What is pending is not counted, and not touched.
    assert_eq!(hosts[0].fetch(40, Duration::ZERO).await.unwrap().len(), 40);
    let cut = futures_util::future::join_all(hosts.iter().map(Queue::maintain)).await;
    let cut: u64 = cut.into_iter().map(|done| done.unwrap().overflowed).sum();
    assert_eq!(cut, 360, "several hosts cut no more than is over");
    assert_eq!(scene.length(KEY).await, 100);
    assert_eq!(hosts[0].backlog().await.unwrap().pending, 40);
    let dead = scene.dead(DEAD).await;
    assert_eq!((dead[0].reason(), dead[0].attempts()), ("maxlen", "0"));
    assert!(
        dead[0]
            .detail()
            .contains("more than 100 messages were unread")
    );
    let mut bodies: Vec<u32> = dead.iter().map(|dead| dead.body.parse().unwrap()).collect();
    bodies.sort_unstable();
    assert!(
        bodies.into_iter().eq(40..400),
        "the oldest, the newest are kept"
    );

    // Where none can be written they stay in the list, in their order.
    scene.raw.ask(&format!("DEL {DEAD}")).await;
    scene.raw.ask(&format!("SET {DEAD} x")).await;
    for n in 500..510 {
        scene.put(KEY, &n.to_string(), &[]).await;
    }
    let done = hosts[0].maintain().await.unwrap();
    assert_eq!((done.overflowed, done.overflows), (0, false));
    let why = done.dead_letters_refused.unwrap();
    assert!(why.contains("WRONGTYPE"), "{why}");
    assert_eq!(scene.length(KEY).await, 110);
    let oldest = scene.raw.ask(&format!("LINDEX {KEY} -1")).await;
    let oldest: Vec<u8> = redis::from_redis_value(oldest).unwrap();
    assert_eq!(framed(&oldest).1, "400");

    scene.raw.ask(&format!("DEL {DEAD}")).await;
    let done = hosts[0].maintain().await.unwrap();
    assert_eq!((done.overflowed, done.dead_letters_refused), (10, None));
    assert_eq!(scene.length(KEY).await, 100);
    assert_eq!(scene.length(DEAD).await, 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_host_cuts_the_list_and_counts_it() {
    let scene = Scene::new().await;
    for _ in 0..400 {
        scene.push(KEY, b"ack").await;
    }
    let options = ListOptions {
        max_length: Some(20),
        ..jobs()
    };
    let mut settings = three();
    settings.ledger.concurrency = 1;
    settings.ledger.prefetch_max = 2;
    let metrics = scene.serve(options, settings).await;
    let summary = metrics.summary();
    let dead = summary.dead_lettered.get("maxlen").copied().unwrap_or(0);
    assert_eq!(summary.acked + dead, 400);
    assert_eq!(scene.length(DEAD).await as u64, dead);
}

/// What only a component can do: faults that are dead-lettered at once.
#[tokio::test(flavor = "multi_thread")]
async fn faults_that_are_not_tried_again() {
    let scene = Scene::new().await;
    for body in ["trap", "sleep:60000", "grow:100000000", "drop:no", "nack:0"] {
        scene.push(KEY, body.as_bytes()).await;
    }
    let ended = HostOptions::new(&scene.server)
        .without("stream")
        .without("group")
        .flag("list", KEY)
        .flag("reliable", "true")
        .flag("dead-letter", DEAD)
        .flag("max-deliveries", "2")
        .flag("on-fault", "dead-letter")
        .flag("timeout", "1s")
        .flag("cpu", "1s")
        .flag("memory", "16MiB")
        .until_empty()
        .end()
        .await;
    ended.expect_code(0);
    assert_eq!(
        ended.json()["dead_lettered"],
        json!({"trap": 1, "timeout": 1, "memory-limit": 1, "dropped": 1, "max-deliveries": 1})
    );
    for dead in scene.dead(DEAD).await {
        let (expected, attempts) = match &*dead.body {
            "trap" => ("trap", "1"),
            "sleep:60000" => ("timeout", "1"),
            "drop:no" => ("dropped", "1"),
            "nack:0" => ("max-deliveries", "2"),
            _ => ("memory-limit", "1"),
        };
        assert_eq!((dead.reason(), dead.attempts()), (expected, attempts));
        assert!(dead.header("x-dead-letter-handler").starts_with("sha256:"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_goes_its_way_and_trimming_is_counted() {
    let scene = Scene::new().await;
    let mut options = jobs();
    if let Some(dead) = &mut options.dead_letter {
        dead.max_len = Some(5);
        dead.routes.by_reason = BTreeMap::from([(Reason::Dropped, "unwanted".to_owned())]);
    }
    let mut rules = three();
    rules.ledger.policy.dead_letters.discarded = Reasons::new([Reason::Expired]);
    for _ in 0..30 {
        scene.push(KEY, b"drop").await;
    }
    scene.push(KEY, b"nack:1").await;
    scene.put(KEY, "ack", &[("x-expires-at", "1")]).await;
    rules.until_empty = None;
    let host = scene.start(options, rules).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("all are settled", || async {
        let summary = metrics.summary();
        summary.dead_lettered.values().sum::<u64>() + summary.discarded == 32
    })
    .await;
    // Counted when the house is kept.
    eventually("the trimming is counted", || async {
        metrics.dead_letters_trimmed.get() == 25
    })
    .await;
    host.drain().await;
    let unwanted = scene.dead("unwanted").await;
    assert_eq!(unwanted.len(), 5, "exactly");
    assert!(unwanted.iter().all(|dead| dead.reason() == "dropped"));
    let dead = scene.only_dead().await;
    assert_eq!((dead.reason(), dead.attempts()), ("max-deliveries", "3"));
    let summary = metrics.summary();
    assert_eq!(
        (summary.discarded, summary.dead_lettered["dropped"]),
        (1, 30)
    );
}

/// Everything dies unseen: a message goes round as fast as it can.
fn unseen() -> Settings {
    let mut settings = three();
    settings.gate.required = vec!["x-nobody-has-it".to_owned()];
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn cycles_of_two_three_and_one_end() {
    let scene = Scene::new().await;
    scene.push("a", b"x").await;
    scene.serve(queue("a", "b"), unseen()).await;
    scene.serve(queue("b", "a"), unseen()).await;
    assert_eq!(scene.raw.number("EXISTS a").await, 0, "not back again");
    let ended = scene.dead("{b}:cycle").await;
    let death = ended[0].header("x-death");
    assert!(death.contains("\"queue\":\"a\"") && death.contains("\"queue\":\"b\""));

    scene.push("a", b"x").await;
    scene.serve(queue("a", "b"), unseen()).await;
    scene.serve(queue("b", "c"), unseen()).await;
    let mut last = queue("c", "a");
    if let Some(dead) = &mut last.dead_letter {
        dead.routes.cycle = Some("rounds".to_owned());
    }
    scene.serve(last, unseen()).await;
    assert_eq!(scene.length("rounds").await, 1);

    let mut own = queue("self", DEAD);
    if let Some(dead) = &mut own.dead_letter {
        dead.routes.by_reason = BTreeMap::from([(Reason::Malformed, "self".to_owned())]);
    }
    scene.push("self", b"x").await;
    let host = scene
        .start(
            own,
            Settings {
                until_empty: None,
                ..unseen()
            },
        )
        .await;
    let metrics = Arc::clone(&host.metrics);
    eventually("the cycle is counted", || async {
        metrics.cycles.get() == 1
    })
    .await;
    host.drain().await;
    assert_eq!(scene.length("self").await, 0);
    assert_eq!(scene.length("{self}:cycle").await, 1);
}

/// A history over hops with rejections, requeues and replays.
#[tokio::test(flavor = "multi_thread")]
async fn with_a_rejection_or_a_replay_in_between_it_goes_on() {
    let scene = Scene::new().await;
    scene.push("a", b"nack:1,drop").await;
    for _ in 0..3 {
        scene.serve(queue("a", "b"), three()).await;
        scene.serve(queue("b", "a"), unseen()).await;
    }
    assert_eq!(scene.raw.number("EXISTS {a}:cycle {b}:cycle").await, 0);
    let back = scene.dead("a").await.remove(0);
    let death: serde_json::Value = serde_json::from_str(back.header("x-death")).unwrap();
    assert_eq!(death.as_array().unwrap().len(), 2);
    for (record, queue, reason) in [(&death[0], "b", "malformed"), (&death[1], "a", "dropped")] {
        assert_eq!(
            (&record["queue"], &record["reason"]),
            (&json!(queue), &json!(reason))
        );
        assert_eq!(record["count"], 3);
        assert!(record["first-time"].as_u64() < record["last-time"].as_u64());
    }
    let first = ["queue", "reason"].map(|part| back.header(&format!("x-first-death-{part}")));
    let last = ["queue", "reason"].map(|part| back.header(&format!("x-last-death-{part}")));
    assert_eq!((first, last), (["a", "dropped"], ["b", "malformed"]));

    // It died in b unseen; a replay to b is no cycle, and counts on.
    scene.serve(queue("a", "b"), unseen()).await;
    assert_eq!(scene.length("{a}:cycle").await, 1, "without one it ends");
    let letters =
        hostler::dead_letter::DeadLetters::new(&connector(&scene.server.url()), "{a}:cycle");
    let replayed = letters.replay_all(Default::default(), Default::default());
    assert_eq!(replayed.await.unwrap().replayed, 1);
    scene.serve(queue("a", "b"), unseen()).await;
    let again = scene.dead("b").await.remove(0);
    assert_eq!(again.header("x-replayed"), "1");
    assert_eq!(again.header("x-first-death-reason"), "dropped");
    let death: serde_json::Value = serde_json::from_str(again.header("x-death")).unwrap();
    assert_eq!(
        (&death[0]["queue"], &death[0]["count"]),
        (&json!("a"), &json!(2))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_history_is_survived_and_counted() {
    let scene = Scene::new().await;
    let huge = format!(
        "[{}]",
        vec![r#"{"queue":"q","reason":"r"}"#; 5000].join(",")
    );
    let half = r#"[{"queue":"q","reason":"r"},7]"#;
    let many: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"queue":"q{n}","reason":"r","unrejected":true}}"#))
        .collect();
    let many = format!("[{}]", many.join(","));
    for death in ["", "[[", "\u{0}", "{\"queue\":\"q\"}", &huge, half, &many] {
        scene.put(KEY, "drop", &[("x-death", death)]).await;
    }
    let host = scene
        .start(
            jobs(),
            Settings {
                until_empty: None,
                ..three()
            },
        )
        .await;
    let metrics = Arc::clone(&host.metrics);
    eventually("they are counted", || async {
        metrics.histories_damaged.get() == 6
    })
    .await;
    host.drain().await;
    let dead = scene.dead(DEAD).await;
    assert_eq!(dead.len(), 7);
    for dead in dead {
        let death: Vec<serde_json::Value> = serde_json::from_str(dead.header("x-death")).unwrap();
        assert_eq!(death[0]["queue"], KEY);
        assert!(death.len() <= 32 && dead.header("x-death").len() <= 48 * 1024);
    }
    let text = metrics.render(&hostler::telemetry::health::Health::default());
    assert!(text.contains("hostler_histories_damaged_total 6"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_dead_letter_queue_stops_the_list_until_there_is_room() {
    let scene = Scene::new().await;
    scene.push(DEAD, b"in the way").await;
    scene.push(KEY, b"drop").await;
    for _ in 0..1000 {
        scene.push(KEY, b"sleep:5").await;
    }
    let options = ListOptions {
        dead_letter: Some(DeadLetterQueue {
            max_len: Some(1),
            on_full: OnFull::Stop,
            ..DeadLetterQueue::new(DEAD)
        }),
        ..jobs()
    };
    let mut rules = three();
    rules.ledger.concurrency = 4;
    rules.ledger.prefetch_max = 16;
    rules.ledger.policy.dead_letters = DeadLetterRules {
        stop_when_refused: true,
        ..DeadLetterRules::default()
    };
    let host = scene.start(options, rules).await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    eventually("it was refused three times", || async {
        metrics.settlements_refused.get() >= 3
    })
    .await;
    let why = format!("{:?}", health.impediments());
    assert!(why.contains("dead-letter queue is full"), "{why}");
    eventually("it was refused again", || async {
        metrics.settlements_refused.get() >= 5
    })
    .await;
    let acked = metrics.summary().acked;
    assert!(acked < 100, "it goes on reading: {acked}");
    let dropped = scene.script.starts()[0].0.clone();
    assert_eq!(scene.script.starts_of(&dropped), 1, "no handler runs again");

    scene.raw.ask(&format!("DEL {DEAD}")).await;
    assert_eq!(host.ended().await, Exit::Drained);
    assert_eq!(metrics.summary().acked, 1000);
    assert_eq!(metrics.summary().dead_lettered["dropped"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_cannot_be_written_keeps_the_message_and_runs_nothing_again() {
    let scene = Scene::new().await;
    scene.push(KEY, b"drop").await;
    scene.raw.ask(&format!("SET {DEAD} x")).await;
    let host = scene
        .start(
            jobs(),
            Settings {
                until_empty: None,
                ..three()
            },
        )
        .await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    eventually("it was refused three times", || async {
        metrics.settlements_refused.get() >= 3
    })
    .await;
    let why = format!("{:?}", health.impediments());
    assert!(why.contains("WRONGTYPE"), "{why}");
    assert_eq!(scene.script.starts().len(), 1);
    // Others are handled meanwhile.
    scene.push(KEY, b"ack").await;
    eventually("another one is handled", || async {
        metrics.summary().acked == 1
    })
    .await;
    scene.raw.ask(&format!("DEL {DEAD}")).await;
    eventually("it is ready again", || async {
        health.impediments().is_empty()
    })
    .await;
    assert_eq!(host.drain().await, Exit::Drained);
    assert_eq!(scene.script.starts().len(), 2);
    assert_eq!(scene.only_dead().await.reason(), "dropped");
}

/// A server with all slots: its scripts refuse keys of two of them.
#[tokio::test(flavor = "multi_thread")]
async fn across_slots_it_is_copied_before_it_is_removed() {
    let server = RedisOptions::default()
        .tcp()
        .set("cluster-enabled", "yes")
        .set("slowlog-log-slower-than", "0")
        .set("slowlog-max-len", "10000");
    let scene = Scene::on(server.start()).await;
    scene.raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the cluster is up", || async {
        scene
            .raw
            .text("CLUSTER INFO")
            .await
            .contains("cluster_state:ok")
    })
    .await;
    let mut options = jobs();
    if let Some(dead) = &mut options.dead_letter {
        dead.max_len = Some(3);
    }
    for body in ["drop", "ack", "nack:1", "drop", "drop"] {
        scene.push(KEY, body.as_bytes()).await;
    }
    let metrics = scene.serve(options, three()).await;
    let summary = metrics.summary();
    assert_eq!((summary.acked, summary.dead_lettered["dropped"]), (1, 3));
    assert_eq!(scene.length(DEAD).await, 3, "bounded as well");
    let log = format!("{:?}", scene.raw.ask("SLOWLOG GET -1").await);
    // The newest comes first: behind the last copy stands a removal.
    let copy = log.find("LPUSH").unwrap();
    let removal = log.find("EVALSHA").unwrap();
    assert!(removal < copy, "{}", &log[..copy.min(4000)]);

    // The same in front of a target that takes nothing.
    scene.raw.ask(&format!("DEL {DEAD}")).await;
    scene.raw.ask(&format!("SET {DEAD} x")).await;
    scene.push(KEY, b"drop").await;
    let host = scene.start(jobs(), three()).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("it was refused", || async {
        metrics.settlements_refused.get() >= 2
    })
    .await;
    scene.raw.ask(&format!("DEL {DEAD}")).await;
    assert_eq!(host.ended().await, Exit::Drained);
    assert_eq!(scene.only_dead().await.reason(), "dropped");
}
