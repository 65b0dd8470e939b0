//! Every reason for which a message dies without its handler having run, routes, cycles, and a
//! dead-letter queue that is full: with hosts in this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::policy::{DeadLetterRules, Reason, Reasons};
use hostler::queue::Queue;
use hostler::queue::stream::{DeadLetterQueue, OnFull, Routes, StreamOptions, StreamQueue};
use hostler::runtime::{Exit, Settings, wall_clock_ms};
use hostler::telemetry::health::Cause;
use hostler::telemetry::metrics::Metrics;
use hostler::wire::codec::BodyCodec;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};

use crate::dlq_scene::{policy, settings};
use crate::queue_scene::field;

const DEAD: &str = "orders:dead";

struct Scene {
    server: RedisServer,
    raw: RawRedis,
    script: Arc<Script>,
}

impl Scene {
    async fn new() -> Self {
        let server = RedisServer::start();
        let raw = server.raw().await;
        Self {
            server,
            raw,
            script: Arc::default(),
        }
    }

    /// Run a host until its queue is empty.
    async fn serve(&self, options: StreamOptions, settings: Settings) -> Arc<Metrics> {
        let host = Host::start(&self.server.url(), options, settings, &self.script).await;
        let metrics = Arc::clone(&host.metrics);
        assert_eq!(host.ended().await, Exit::Drained);
        metrics
    }

    /// Add an entry: field, value, ...
    async fn put(&self, key: &str, fields: &[&str]) {
        let mut words: Vec<&[u8]> = vec![b"XADD", key.as_bytes(), b"*"];
        words.extend(fields.iter().map(|word| word.as_bytes()));
        self.raw.ask_words(&words).await;
    }

    /// Body, reason, attempts, detail of every dead letter.
    async fn dead(&self, key: &str) -> Vec<(String, String, String, String)> {
        let entries = self.raw.entries(key).await;
        let text = |fields: &[Vec<u8>], name: &str| {
            let value = field(fields, name).unwrap_or(b"");
            String::from_utf8_lossy(value).into_owned()
        };
        entries
            .iter()
            .map(|(_, fields)| {
                (
                    text(fields, "_payload"),
                    text(fields, "h:x-dead-letter-reason"),
                    text(fields, "h:x-dead-letter-attempts"),
                    text(fields, "h:x-dead-letter-detail"),
                )
            })
            .collect()
    }

    /// The one dead letter.
    async fn only_dead(&self) -> (String, String, String, String) {
        let mut dead = self.dead(DEAD).await;
        assert_eq!(dead.len(), 1, "{dead:?}");
        dead.remove(0)
    }
}

fn queue(key: &str, dead: &str) -> StreamOptions {
    StreamOptions {
        dead_letter: Some(DeadLetterQueue::new(dead)),
        ..StreamOptions::new(key, "workers")
    }
}

fn orders() -> StreamOptions {
    queue("orders", DEAD)
}

fn three() -> Settings {
    settings(policy(Some(3)))
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_by_its_header_at_the_claim() {
    let scene = Scene::new().await;
    scene
        .put("orders", &["_payload", "ack", "h:x-expires-at", "1000"])
        .await;
    scene.serve(orders(), three()).await;
    let (_, reason, attempts, detail) = scene.only_dead().await;
    assert_eq!((reason.as_str(), attempts.as_str()), ("expired", "0"));
    assert!(detail.starts_with("expired "), "{detail}");
    assert!(scene.script.starts().is_empty());
    let (_, fields) = &scene.raw.entries(DEAD).await[0];
    assert_eq!(
        field(fields, "h:x-expires-at"),
        None,
        "it cannot expire again"
    );
    let death = String::from_utf8_lossy(field(fields, "h:x-death").unwrap()).into_owned();
    assert!(death.contains("\"original-expiration\":1000"), "{death}");
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_when_its_delay_is_due() {
    let scene = Scene::new().await;
    let soon = (wall_clock_ms() + 400).to_string();
    let fields = ["_payload", "nack:600,ack", "h:x-expires-at", &soon];
    scene.put("orders", &fields).await;
    scene.serve(orders(), three()).await;
    let (_, reason, attempts, _) = scene.only_dead().await;
    assert_eq!((reason.as_str(), attempts.as_str()), ("expired", "1"));
    assert_eq!(scene.script.starts().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_in_the_buffer_of_a_busy_host() {
    let scene = Scene::new().await;
    let mut settings = three();
    settings.ledger.concurrency = 1;
    settings.gate.ttl = Some(Duration::from_millis(300));
    // The first takes longer than the second may wait; both are claimed while they are young.
    scene.put("orders", &["_payload", "sleep:600"]).await;
    scene.put("orders", &["_payload", "ack"]).await;
    let metrics = scene.serve(orders(), settings).await;
    let (body, reason, ..) = scene.only_dead().await;
    assert_eq!((body.as_str(), reason.as_str()), ("ack", "expired"));
    assert_eq!(metrics.summary().acked, 1, "what runs is let run");
    // Its history says when, though it carried no limit of its own.
    let (_, fields) = &scene.raw.entries(DEAD).await[0];
    let source = String::from_utf8_lossy(field(fields, "h:x-dead-letter-source-id").unwrap());
    let enqueued: u64 = source.split_once('-').unwrap().0.parse().unwrap();
    let death = String::from_utf8_lossy(field(fields, "h:x-death").unwrap()).into_owned();
    let expected = format!("\"original-expiration\":{}", enqueued + 300);
    assert!(death.contains(&expected), "{death}");
}

#[tokio::test(flavor = "multi_thread")]
async fn oversize() {
    let scene = Scene::new().await;
    let mut settings = three();
    settings.gate.payload_max = 10;
    scene.put("orders", &["_payload", "ack,ack,ack"]).await;
    scene.put("orders", &["_payload", "ack,ack,nk"]).await;
    scene.serve(orders(), settings).await;
    let (body, reason, attempts, detail) = scene.only_dead().await;
    assert_eq!(body, "ack,ack,ack", "byte for byte");
    assert_eq!((reason.as_str(), attempts.as_str()), ("oversize", "0"));
    assert_eq!(detail, "the body has 11 bytes, 10 are allowed");
}

#[tokio::test(flavor = "multi_thread")]
async fn decode_failed() {
    for (codec, right, wrong) in [
        (BodyCodec::Json, "[\"ack\"]", "[\"ack\""),
        (BodyCodec::MsgPack, "\u{1}", "\u{1}ack"),
    ] {
        let scene = Scene::new().await;
        let mut settings = three();
        settings.gate.codec = Some(codec);
        scene.put("orders", &["_payload", right]).await;
        scene.put("orders", &["_payload", wrong]).await;
        let metrics = scene.serve(orders(), settings).await;
        let (body, reason, attempts, _) = scene.only_dead().await;
        assert_eq!(body, wrong);
        assert_eq!((reason.as_str(), attempts.as_str()), ("decode-failed", "0"));
        assert_eq!(scene.script.starts().len(), 1, "{codec:?}");
        assert_eq!(metrics.summary().dead_lettered["decode-failed"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_without_a_header_that_is_required() {
    let scene = Scene::new().await;
    let mut settings = three();
    settings.gate.required = vec!["x-tenant".to_owned()];
    scene.put("orders", &["_payload", "ack"]).await;
    scene
        .put("orders", &["_payload", "ack", "h:X-Tenant", "7"])
        .await;
    // And one that is no message at all: it is kept whole.
    scene.put("orders", &["a", "1", "a", "2"]).await;
    let metrics = scene.serve(orders(), settings).await;
    let dead = scene.dead(DEAD).await;
    assert_eq!(dead.len(), 2);
    assert!(dead.iter().all(|(_, reason, ..)| reason == "malformed"));
    assert_eq!(dead[0].3, "the header `x-tenant` is missing");
    let (_, fields) = &scene.raw.entries(DEAD).await[1];
    assert_eq!(fields[..4].concat(), b"a1a2");
    assert_eq!(metrics.summary().acked, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_unread_beyond_the_length() {
    let scene = Scene::new().await;
    for n in 0..400 {
        scene
            .put("orders", &["_payload", "ack", "n", &n.to_string()])
            .await;
    }
    // What is pending elsewhere is not touched, and not counted.
    scene.raw.ask("XGROUP CREATE orders workers 0").await;
    scene
        .raw
        .ask("XREADGROUP GROUP workers other COUNT 50 STREAMS orders >")
        .await;
    let options = StreamOptions {
        max_length: Some(20),
        ..orders()
    };
    let mut settings = three();
    settings.until_empty = None;
    // A handler that is busy: what is not cut off would wait.
    let host = Host::start(&scene.server.url(), options, settings, &scene.script).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("all that is unread is gone", || async {
        let summary = metrics.summary();
        let dead = summary.dead_lettered.get("maxlen").copied().unwrap_or(0);
        summary.acked + dead == 350
    })
    .await;
    host.drain().await;
    let dead = metrics.summary().dead_lettered["maxlen"];
    assert!((1..=330).contains(&dead), "{dead}");
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await as u64, dead);
    assert_eq!(scene.raw.number("XLEN orders").await, 400, "never trimmed");
    assert_eq!(scene.raw.pending("orders", "workers").await.len(), 50);
    let (_, reason, attempts, detail) = scene.dead(DEAD).await.remove(0);
    assert_eq!((reason.as_str(), attempts.as_str()), ("maxlen", "0"));
    assert!(
        detail.contains("more than 20 messages were unread"),
        "{detail}"
    );
    let numbers = |entries: Vec<hostler_tests::redis::Entry>| -> Vec<u32> {
        let number = |fields: &Vec<Vec<u8>>| {
            String::from_utf8_lossy(field(fields, "n").unwrap())
                .parse()
                .unwrap()
        };
        entries.iter().map(|(_, fields)| number(fields)).collect()
    };
    let dead = numbers(scene.raw.entries(DEAD).await);
    assert!(dead.is_sorted() && dead[0] >= 50, "{dead:?}");
    assert!(!dead.contains(&399), "the newest are kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_hosts_cut_no_more_than_is_over() {
    let scene = Scene::new().await;
    for _ in 0..500 {
        scene.put("orders", &["_payload", "ack"]).await;
    }
    // One entry deleted before it was read: Redis does not know any more how many are unread.
    let first = scene.raw.entries("orders").await[250].0.clone();
    scene.raw.ask(&format!("XDEL orders {first}")).await;
    let options = || StreamOptions {
        max_length: Some(100),
        ..orders()
    };
    let mut hosts = Vec::new();
    for _ in 0..3 {
        let target = crate::queue_scene::connector(&scene.server.url());
        let queue = StreamQueue::open(target, options());
        hosts.push(queue.await.unwrap());
    }
    let cut = futures_util::future::join_all(hosts.iter().map(Queue::maintain));
    let cut: u64 = cut
        .await
        .into_iter()
        .map(|done| done.unwrap().overflowed)
        .sum();
    assert_eq!(cut, 399);
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 399);
}

fn at_most(length: u64) -> StreamOptions {
    StreamOptions {
        max_length: Some(length),
        ..orders()
    }
}

async fn open(scene: &Scene, options: StreamOptions) -> StreamQueue {
    let target = crate::queue_scene::connector(&scene.server.url());
    StreamQueue::open(target, options).await.unwrap()
}

/// A go of housekeeping whose dead letters are refused: why.
async fn why_refused(queue: &StreamQueue) -> String {
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.overflows), (0, false));
    done.dead_letters_refused.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_the_length_stays_unread_while_its_target_takes_nothing() {
    let scene = Scene::new().await;
    for _ in 0..150 {
        scene.put("orders", &["_payload", "ack"]).await;
    }
    let queue = open(&scene, at_most(20)).await;
    let full = StreamOptions {
        dead_letter: Some(DeadLetterQueue {
            max_len: Some(1),
            on_full: OnFull::Stop,
            ..DeadLetterQueue::new("full")
        }),
        ..at_most(20)
    };
    let full = open(&scene, full).await;
    scene.put("full", &["_payload", "in the way"]).await;
    scene.raw.ask(&format!("SET {DEAD} x")).await;
    for _ in 0..3 {
        let why = why_refused(&queue).await;
        assert!(why.contains("WRONGTYPE"), "{why}");
        let why = why_refused(&full).await;
        assert!(why.contains("dead-letter queue is full"), "{why}");
    }
    scene.raw.ask(&format!("DEL {DEAD}")).await;
    scene.raw.ask("CONFIG SET maxmemory 1").await;
    let why = why_refused(&queue).await;
    assert!(why.contains("OOM"), "{why}");
    scene.raw.ask("CONFIG SET maxmemory 0").await;
    let pending = scene.raw.pending("orders", "workers").await;
    assert!(pending.is_empty(), "nothing is claimed");
    assert_eq!(scene.raw.number(&format!("EXISTS {DEAD}")).await, 0);

    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.dead_letters_refused), (130, None));
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 130);
    assert!(scene.raw.pending("orders", "workers").await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_over_the_length_and_refused_is_handed_back_uncharged() {
    let scene = Scene::new().await;
    // They would go round for ever; and the key where that ends cannot be written.
    let death = r#"[{"queue":"orders:dead","reason":"malformed","unrejected":true}]"#;
    let fields = ["_payload", "ack", "h:x-death", death];
    let put = || scene.put("orders", &fields);
    scene.raw.ask("SET {orders}:cycle x").await;
    for _ in 0..5 {
        put().await;
    }
    let queue = open(&scene, at_most(2)).await;
    let why = why_refused(&queue).await;
    assert!(why.contains("WRONGTYPE"), "{why}");
    let parked = scene.raw.pending("orders", "workers").await;
    assert_eq!(parked.len(), 3);
    for parked in &parked {
        assert_eq!((&*parked.consumer, parked.count), ("hostler:parked", 0));
    }
    // It is tried with one, as long as it is refused.
    for _ in 0..5 {
        put().await;
    }
    why_refused(&queue).await;
    assert_eq!(scene.raw.pending("orders", "workers").await.len(), 4);
    scene.raw.ask("DEL {orders}:cycle").await;
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.cycles), (4, 0));
    assert_eq!(queue.maintain().await.unwrap().cycles, 4);
    assert_eq!(scene.raw.number("XLEN {orders}:cycle").await, 4);

    scene.serve(orders(), three()).await;
    let starts = scene.script.starts();
    assert_eq!(starts.len(), 6);
    assert!(
        starts.iter().all(|(_, attempt)| *attempt == 1),
        "{starts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_not_ready_while_what_is_over_the_length_is_refused() {
    let scene = Scene::new().await;
    for _ in 0..100 {
        scene.put("orders", &["_payload", "sleep:20000"]).await;
    }
    scene.raw.ask(&format!("SET {DEAD} x")).await;
    let mut settings = three();
    settings.until_empty = None;
    settings.ledger.concurrency = 1;
    settings.ledger.prefetch_max = 2;
    let url = scene.server.url();
    let host = Host::start(&url, at_most(20), settings, &scene.script).await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    eventually("it is told", || async {
        let told = health.impediments();
        let told = told.iter().find(|i| i.cause == Cause::DeadLettersRefused);
        told.is_some_and(|told| told.detail.contains("WRONGTYPE"))
    })
    .await;
    scene.raw.ask(&format!("DEL {DEAD}")).await;
    eventually("it is ready again", || async { health.is_ready() }).await;
    let dead = metrics.summary().dead_lettered["maxlen"];
    assert!((70..=80).contains(&dead), "{dead}");
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await as u64, dead);
    let pending = scene.raw.pending("orders", "workers").await;
    assert!(pending.len() < 10, "what was refused is pending");
    assert_eq!(scene.script.starts().len(), 1, "the one that fits");
    host.crash();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_group_is_to_run_is_no_dead_letter_of_this_one() {
    let scene = Scene::new().await;
    for group in ["others", "others", "others", "workers"] {
        let fields = [
            "_payload",
            "ack",
            "h:x-only-group",
            group,
            "h:x-dead-letter-group",
            group,
            "h:x-replayed",
            "1",
        ];
        scene.put("orders", &fields).await;
    }
    for _ in 0..4 {
        scene.put("orders", &["_payload", "ack"]).await;
    }
    let queue = open(&scene, at_most(2)).await;
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.other_group, done.overflowed), (3, 3));
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 3);
    assert!(scene.raw.pending("orders", "workers").await.is_empty());
    assert_eq!(scene.raw.number("XLEN orders").await, 8, "never trimmed");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_reason_goes_its_way() {
    let scene = Scene::new().await;
    let mut options = orders();
    if let Some(dead) = &mut options.dead_letter {
        dead.max_len = Some(5);
        dead.routes.by_reason = BTreeMap::from([(Reason::Dropped, "unwanted".to_owned())]);
    }
    let mut rules = three();
    rules.ledger.policy.dead_letters.discarded = Reasons::new([Reason::Expired]);
    for _ in 0..300 {
        scene.put("orders", &["_payload", "drop"]).await;
    }
    scene.put("orders", &["_payload", "nack:1"]).await;
    scene
        .put("orders", &["_payload", "ack", "h:x-expires-at", "1"])
        .await;
    let metrics = scene.serve(options, rules).await;
    let unwanted = scene.dead("unwanted").await;
    assert!(unwanted.len() < 300, "bounded as well: {}", unwanted.len());
    assert!(unwanted.iter().all(|(_, reason, ..)| reason == "dropped"));
    let (_, reason, attempts, _) = scene.only_dead().await;
    assert_eq!(
        (reason.as_str(), attempts.as_str()),
        ("max-deliveries", "3")
    );
    let summary = metrics.summary();
    assert_eq!(
        (summary.discarded, summary.dead_lettered["dropped"]),
        (1, 300)
    );
}

/// `ttl` makes everything die unseen: a message goes round as fast as it can.
fn unseen() -> Settings {
    let mut settings = three();
    settings.gate.required = vec!["x-nobody-has-it".to_owned()];
    settings
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_two_queues_ends() {
    let scene = Scene::new().await;
    scene.put("a", &["_payload", "x"]).await;
    scene.serve(queue("a", "b"), unseen()).await;
    assert_eq!(scene.raw.number("XLEN b").await, 1);
    let metrics = scene.serve(queue("b", "a"), unseen()).await;
    assert_eq!(scene.raw.number("XLEN a").await, 1, "not back again");
    let ended = scene.raw.entries("{b}:cycle").await;
    assert_eq!(ended.len(), 1);
    let death = String::from_utf8_lossy(field(&ended[0].1, "h:x-death").unwrap()).into_owned();
    assert!(death.contains("\"queue\":\"a\"") && death.contains("\"queue\":\"b\""));
    assert_eq!(metrics.summary().dead_lettered["malformed"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_rejection_in_between_it_goes_on() {
    let scene = Scene::new().await;
    scene.put("a", &["_payload", "drop"]).await;
    for _ in 0..3 {
        scene.serve(queue("a", "b"), three()).await;
        scene.serve(queue("b", "a"), unseen()).await;
    }
    assert_eq!(scene.raw.number("EXISTS {a}:cycle {b}:cycle").await, 0);
    let back = scene.raw.entries("a").await;
    assert_eq!(back.len(), 4);
    let death = String::from_utf8_lossy(field(&back[3].1, "h:x-death").unwrap()).into_owned();
    assert!(
        death.contains("\"reason\":\"malformed\",\"count\":3"),
        "{death}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cycle_of_three_queues_and_of_one_end() {
    let scene = Scene::new().await;
    scene.put("a", &["_payload", "x"]).await;
    scene.serve(queue("a", "b"), unseen()).await;
    scene.serve(queue("b", "c"), unseen()).await;
    let mut last = queue("c", "a");
    if let Some(dead) = &mut last.dead_letter {
        dead.routes.cycle = Some("rounds".to_owned());
    }
    scene.serve(last, unseen()).await;
    assert_eq!(scene.raw.number("XLEN rounds").await, 1);
    assert_eq!(scene.raw.number("XLEN a").await, 1);

    let mut own = queue("self", DEAD);
    if let Some(dead) = &mut own.dead_letter {
        dead.routes.by_reason = BTreeMap::from([(Reason::Malformed, "self".to_owned())]);
    }
    scene.put("self", &["_payload", "x"]).await;
    scene.serve(own, unseen()).await;
    assert_eq!(scene.raw.number("XLEN self").await, 1);
    assert_eq!(scene.raw.number("XLEN {self}:cycle").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_is_no_cycle() {
    let scene = Scene::new().await;
    scene.put("orders", &["_payload", "x"]).await;
    scene.serve(orders(), unseen()).await;
    let connector = crate::queue_scene::connector(&scene.server.url());
    let letters = hostler::dead_letter::DeadLetters::new(&connector, DEAD);
    let mut scan = letters.scan(Default::default()).await.unwrap();
    let mut replay = letters.replay(Default::default());
    while let Some(entries) = scan.next().await.unwrap() {
        replay.send(&entries).await.unwrap();
    }
    assert_eq!(replay.report().replayed, 1);
    scene.serve(orders(), unseen()).await;
    let (_, fields) = &scene.raw.entries(DEAD).await[0];
    assert_eq!(field(fields, "h:x-replayed"), Some(&b"1"[..]));
    assert_eq!(scene.raw.number("EXISTS {orders}:cycle").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_dead_letter_queue_stops_the_queue_until_there_is_room() {
    let scene = Scene::new().await;
    scene.put(DEAD, &["_payload", "in the way"]).await;
    scene.put("orders", &["_payload", "drop"]).await;
    for _ in 0..1000 {
        scene.put("orders", &["_payload", "sleep:5"]).await;
    }
    let options = StreamOptions {
        dead_letter: Some(DeadLetterQueue {
            max_len: Some(1),
            on_full: OnFull::Stop,
            ..DeadLetterQueue::new(DEAD)
        }),
        ..orders()
    };
    let mut rules = three();
    rules.ledger.concurrency = 4;
    rules.ledger.prefetch_max = 16;
    rules.ledger.policy.dead_letters = DeadLetterRules {
        stop_when_refused: true,
        ..DeadLetterRules::default()
    };
    let host = Host::start(&scene.server.url(), options, rules, &scene.script).await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    let refused = |times: u64| {
        let metrics = Arc::clone(&metrics);
        move || {
            let refused = metrics.settlements_refused.get() >= times;
            async move { refused }
        }
    };
    eventually("it was refused three times", refused(3)).await;
    let why = format!("{:?}", health.impediments());
    assert!(why.contains("dead-letter queue is full"), "{why}");
    // What it held is handled; more is not read, also not while the dead letter is tried again.
    eventually("it was refused again", refused(5)).await;
    let acked = metrics.summary().acked;
    assert!(acked < 100, "it goes on reading: {acked}");
    let dropped = scene.raw.entries("orders").await[0].0.clone();
    assert_eq!(scene.script.starts_of(&dropped), 1, "no handler runs again");

    scene.raw.ask(&format!("XTRIM {DEAD} MAXLEN 0")).await;
    assert_eq!(host.ended().await, Exit::Drained);
    assert_eq!(metrics.summary().acked, 1000);
    assert_eq!(metrics.summary().dead_lettered["dropped"], 1);
}

#[test]
fn routes_that_are_left_out_go_to_the_key() {
    let queue = DeadLetterQueue {
        routes: Routes {
            by_reason: BTreeMap::from([(Reason::Trap, "traps".to_owned())]),
            ..Routes::default()
        },
        ..DeadLetterQueue::new("dead")
    };
    assert_eq!(queue.target(Reason::Trap), "traps");
    assert_eq!(queue.target(Reason::Dropped), "dead");
    assert_eq!(queue.targets("orders"), ["dead", "traps", "{orders}:cycle"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_history_is_survived_and_counted() {
    let scene = Scene::new().await;
    for death in ["", "[[", "\u{0}", "{\"queue\":\"q\"}", "[7]"] {
        let fields = ["_payload", "drop", "h:x-death", death];
        scene.put("orders", &fields).await;
    }
    let mut settings = three();
    settings.until_empty = None;
    let host = Host::start(&scene.server.url(), orders(), settings, &scene.script).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("they are counted", || async {
        metrics.histories_damaged.get() == 5
    })
    .await;
    host.drain().await;
    let dead = scene.raw.entries(DEAD).await;
    assert_eq!(dead.len(), 5);
    for (_, fields) in dead {
        let death = field(&fields, "h:x-death").unwrap();
        let death: serde_json::Value = serde_json::from_slice(death).unwrap();
        assert_eq!(death.as_array().unwrap().len(), 1);
        assert_eq!(death[0]["queue"], "orders");
    }
}

/// A server with all slots: its scripts refuse keys of two of them.
#[tokio::test(flavor = "multi_thread")]
async fn across_slots_it_is_copied_before_it_is_removed() {
    let server = RedisOptions::default()
        .tcp()
        .set("cluster-enabled", "yes")
        .set("slowlog-log-slower-than", "0")
        .set("slowlog-max-len", "10000")
        .start();
    let raw = server.raw().await;
    let scene = Scene {
        server,
        raw,
        script: Arc::default(),
    };
    scene.raw.ask("CLUSTER ADDSLOTSRANGE 0 16383").await;
    eventually("the cluster is up", || async {
        let info = scene.raw.text("CLUSTER INFO").await;
        info.contains("cluster_state:ok")
    })
    .await;
    for body in ["drop", "ack", "nack:1", "drop"] {
        scene.put("orders", &["_payload", body]).await;
    }
    let metrics = scene.serve(orders(), three()).await;
    let summary = metrics.summary();
    assert_eq!((summary.acked, summary.dead_lettered["dropped"]), (1, 2));
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 3);
    assert!(scene.raw.pending("orders", "workers").await.is_empty());
    let log = format!("{:?}", scene.raw.ask("SLOWLOG GET -1").await);
    // The newest comes first: behind the last copy stands a removal.
    let copy = log.find("XADD").unwrap();
    assert!(log.find("EVALSHA").unwrap() < copy);
}
