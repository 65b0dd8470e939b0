//! Handlers that were written for other hosts, and programs, on a queue of each kind: caps and dead letters, hosts that
//! are killed, and swaps from a native handler to a foreign one and back.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use hostler_tests::adapters::Adapter;
use hostler_tests::host::{Ended, HostOptions, Line};
use hostler_tests::redis::eventually;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::rollout::swap_scene::{self, component_of, digest, runs, scripted};
use crate::rollout::swap_storm::publisher;

on_both! {
    errors_and_faults_of_each_world_count_until_the_cap
    each_message_of_spin_is_acknowledged_whichever_host_dies
    each_message_of_sqs_is_handled_whichever_host_dies
    each_message_of_a_program_is_handled_whichever_host_dies
    what_wasmcloud_publishes_is_exactly_once_whichever_host_dies
}

/// The worlds of others.
const FOREIGN: &[Adapter] = &[
    Adapter::Spin,
    Adapter::Sqs,
    Adapter::Wasmcloud,
    Adapter::Run,
    Adapter::Module,
];

/// Everything that the guests import is granted, for a queue with this key.
fn granting(options: HostOptions, key: &str) -> HostOptions {
    options
        .flag("grant-config", r#"{"region":"eu"}"#)
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag(
            "grant-key-value",
            &format!(r#"{{"prefix":"{{{key}}}:kv:"}}"#),
        )
        .flag("backoff-first", "5ms")
}

fn host(scene: &Scene, adapter: Adapter) -> HostOptions {
    granting(scene.binary(), scene.key()).flag("handler", &adapter.guest().display().to_string())
}

/// The guest's lines of these hosts: the id of the message, the attempt, the line.
fn lines(ended: &[Ended]) -> Vec<(String, u64, String)> {
    let lines = ended.iter().flat_map(|ended| &ended.log);
    let guests = lines.filter(|line| line.text("target") == Some("guest"));
    let facts = |line: &Line| {
        let text = |name| line.text(name).unwrap_or_default().to_owned();
        let attempt = line.number("attempt").unwrap_or_default();
        (text("message_id"), attempt, text("line"))
    };
    guests.map(facts).collect()
}

/// What a guest does to have its message again.
fn again(adapter: Adapter) -> &'static str {
    match adapter {
        Adapter::Module => "text:seen+nack",
        // Its codes do not arrive.
        Adapter::Run => "text:seen+err:hostler: nack+fail",
        _ => "text:seen+err:no stock",
    }
}

async fn errors_and_faults_of_each_world_count_until_the_cap(kind: Kind) {
    for adapter in FOREIGN {
        let scene = Scene::new(kind).await;
        scene.send(again(*adapter)).await;
        scene.send("trap").await;
        scene.send("ack").await;
        // SQS has no bytes: such a message is never acknowledged, and never lost.
        let dead = if *adapter == Adapter::Sqs { 3 } else { 2 };
        if !adapter.is_program() {
            scene.send(b"\xff").await;
        }
        let ended = host(&scene, *adapter)
            .flag("max-deliveries", "3")
            .finish()
            .await;
        let letters = scene.dead().await;
        assert_eq!(letters.len(), dead, "{adapter:?}: {letters:?}");
        for letter in &letters {
            assert_eq!(letter.reason(), "max-deliveries", "{adapter:?}");
            assert_eq!(letter.attempts(), "3", "{adapter:?}");
        }
        let detail = |body: &str| {
            let letter = letters.iter().find(|letter| letter.body == body);
            letter.expect("it is dead").detail()
        };
        assert!(detail("trap").contains("trap"), "{adapter:?}");
        detail(again(*adapter));
        let sent = if adapter.is_program() { 3 } else { 4 };
        assert_eq!(ended.json()["acked"], sent - dead, "{adapter:?}");
        let said = lines(&[ended]);
        let attempts = said.iter().filter(|(_, _, line)| line == "seen");
        let attempts: Vec<u64> = attempts.map(|(_, attempt, _)| *attempt).collect();
        assert_eq!(attempts, [1, 2, 3], "{adapter:?}");
    }
}

/// The orders example, which needs no grant: a queue that takes nothing back allows few. An order that is charged.
const ORDER: &str = r#"{"id":"1","amount":5}"#;

/// An error and a fault are counted, and the message is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_simple_list_counts_the_errors_and_faults_of_each_world() {
    for adapter in FOREIGN {
        let scene = Scene::new(Kind::List).await;
        let bug = r#"{"id":"o-7","amount":1,"simulate":"crash"}"#;
        for body in ["no order", bug, ORDER] {
            scene.send(body).await;
        }
        let options = scene.binary().without("reliable").without("dead-letter");
        let options = options.flag("handler", &adapter.orders().display().to_string());
        let summary = options.finish().await.json();
        assert_eq!(summary["attempts"], 3, "{adapter:?}");
        assert_eq!(summary["acked"], 1, "{adapter:?}");
        assert_eq!(summary["discarded"], 2, "{adapter:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_an_error_is_a_warning_of_the_guest() {
    let scene = Scene::new(Kind::Stream).await;
    let id = scene.raw.add("orders", "err:no stock").await;
    let ended = host(&scene, Adapter::Wasmcloud)
        .flag("max-deliveries", "1")
        .finish()
        .await;
    let is_it = |line: &&Line| line.text("line") == Some("the handler failed: no stock");
    let line = ended.log.iter().find(is_it).expect("it is logged");
    assert_eq!(line.text("message_id"), Some(&*id));
    assert_eq!(line.text("stream"), Some("log"));
    assert_eq!(line.text("level"), Some("WARN"));
}

/// Many messages, numbered in their bodies, while hosts are killed; what the hosts have logged.
async fn while_hosts_die(
    scene: &Scene,
    adapter: Adapter,
    body: impl Fn(usize) -> String,
) -> Vec<Ended> {
    let mut options = host(scene, adapter).flags("min-idle=1s concurrency=4");
    if scene.kind == Kind::List {
        options = options.flag("recovery-zset", &format!("{}:claims", scene.key()));
    }
    let mut hosts = vec![options.ready().await, options.ready().await];
    let mut ended = Vec::new();
    for number in 0..MESSAGES {
        let body = format!("sleep:{}+{}", number % 20, body(number));
        scene.send(body).await;
        if number % 40 == 20 {
            ended.push(hosts.remove(0).kill().await);
            hosts.push(options.ready().await);
        }
    }
    for host in hosts {
        ended.push(host.drained().await);
    }
    // What the dead ones have left.
    ended.push(options.finish().await);
    assert!(scene.dead().await.is_empty());
    ended
}

const MESSAGES: usize = 120;

/// A line that a host had not written yet when it was killed is missing from its log: a slot each, at most.
async fn all_are_said(kind: Kind, adapter: Adapter) {
    let scene = Scene::new(kind).await;
    let ended = while_hosts_die(&scene, adapter, |number| format!("text:{number}")).await;
    let said: BTreeSet<String> = lines(&ended).into_iter().map(|(_, _, line)| line).collect();
    let missing = (0..MESSAGES).filter(|number| !said.contains(&number.to_string()));
    assert!(missing.count() <= 3 * 4, "{said:?}");
}

async fn each_message_of_spin_is_acknowledged_whichever_host_dies(kind: Kind) {
    let scene = Scene::new(kind).await;
    while_hosts_die(&scene, Adapter::Spin, |number| format!("set:{number}=x")).await;
    for number in 0..MESSAGES {
        // It is there if an attempt has acked.
        let key = format!("{{{}}}:kv:{number}", scene.key());
        assert!(scene.exists(&key).await, "{number}");
    }
}

async fn each_message_of_sqs_is_handled_whichever_host_dies(kind: Kind) {
    all_are_said(kind, Adapter::Sqs).await;
}

async fn each_message_of_a_program_is_handled_whichever_host_dies(kind: Kind) {
    all_are_said(
        kind,
        match kind {
            Kind::Stream => Adapter::Run,
            Kind::List => Adapter::Module,
        },
    )
    .await;
}

async fn what_wasmcloud_publishes_is_exactly_once_whichever_host_dies(kind: Kind) {
    let scene = Scene::new(kind).await;
    let publish = |number| format!("publish:invoices:{number}+sleep:{}", number % 7);
    while_hosts_die(&scene, Adapter::Wasmcloud, publish).await;
    let entries = scene.raw.entries("invoices").await;
    let mut published: Vec<usize> = entries
        .iter()
        .map(|(_, fields)| crate::queue::queue_scene::field(fields, "_payload").unwrap())
        .map(|body| String::from_utf8_lossy(body).parse().unwrap())
        .collect();
    published.sort_unstable();
    assert_eq!(published, (0..MESSAGES).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_spin_keeps_keys() {
    let scene = Scene::new(Kind::Stream).await;
    let options = host(&scene, Adapter::Spin).flag("max-deliveries", "1");
    let mut said = Vec::new();
    for body in [
        "set:a=1+set:b=2+keys",
        "get:a+has:c+delete:b+err:no",
        "keys+delete:b",
        "keys",
    ] {
        scene.raw.add("orders", body).await;
        // Its writes have happened when its host has ended.
        let ended = options.finish().await;
        said.extend(lines(&[ended]).into_iter().map(|(_, _, line)| line));
    }
    said.retain(|line| line != "Ok(())");
    let both = r#"Ok(["a", "b"])"#;
    // The attempt that failed has deleted nothing.
    let expected = [
        both,
        r#"Ok(Some("1"))"#,
        "Ok(false)",
        "no",
        both,
        r#"Ok(["a"])"#,
    ];
    assert_eq!(said, expected);
    assert_eq!(scene.raw.text("GET {orders}:kv:a").await, "1");
    assert!(!scene.exists("{orders}:kv:b").await);
}

/// Swaps under load, on a queue with these flags: from a native handler to one of each world, and back. This command
/// publishes.
async fn swapped_and_back(flags: &str, takes_back: bool, words: &[&'static str]) {
    let native = component_of("orders-handler");
    let scene = swap_scene::Scene::new(&native).await;
    // The code that other tests have compiled.
    let options = scene.host().without("compile-cache");
    let options = options.without("stream").without("group").flags(flags);
    let options = match takes_back {
        true => options,
        false => options.without("dead-letter").without("backoff-first"),
    };
    let host = options.ready().await;
    let (stop, publishing) = publisher(&scene, words.to_vec(), 300, 0);
    let series = r#"hostler_dispositions_total{disposition="acknowledge",reason=""}"#;
    let components = FOREIGN.iter().map(|adapter| adapter.orders());
    let components = components.map(|file| std::fs::read(file).unwrap());
    for component in components.chain([native]) {
        scene.put(&component);
        runs(&host, &component).await;
        let before = host.metric(series);
        let handles = async || host.metric(series) > before + 20;
        eventually("it handles messages", handles).await;
    }
    stop.store(true, Ordering::Relaxed);
    let published = publishing.await.unwrap();
    let dropped = || match takes_back {
        true => 0,
        false => host.metric("hostler_buffer_dropped_total"),
    };
    let all = async || host.metric(series) + dropped() >= published as u64;
    eventually("it has handled all", all).await;
    let ended = host.drained().await;
    let lines = ended.log.iter();
    let interfaces: Vec<&str> = lines
        .filter(|line| ["serving", "swapped"].contains(&line.message()))
        .filter_map(|line| line.text("interface"))
        .map(|name| name.split('@').next().unwrap_or(name))
        .collect();
    const NATIVE: &str = "hostler:handler/message-handler";
    let expected = [
        NATIVE,
        "fermyon:spin/inbound-redis",
        "fermyon:spin-sqs",
        "wasmcloud:messaging/handler",
        "wasi:cli/run",
        "wasi:cli/run",
        NATIVE,
    ];
    assert_eq!(interfaces, expected);
    let summary = ended.json();
    assert_eq!(summary["swaps"], FOREIGN.len() + 1);
    assert_eq!(summary["acked"], published);
    // No message failed, and none ran twice.
    assert_eq!(summary["attempts"], published);
    assert!(!scene.exists("orders:dead").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_handler_is_swapped_for_one_of_each_world_and_back_under_load() {
    let words = ["XADD", "orders", "*", "_payload", ORDER];
    swapped_and_back("stream=orders group=workers", true, &words).await;
}

/// The other kinds of queues.
mod long {
    use super::{ORDER, swapped_and_back};

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_of_a_list_is_swapped_for_one_of_each_world() {
        let words = ["LPUSH", "orders", ORDER];
        swapped_and_back("list=orders reliable=true", true, &words).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_of_a_simple_list_is_swapped_for_one_of_each_world() {
        swapped_and_back("list=orders", false, &["LPUSH", "orders", ORDER]).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_handler_of_a_channel_is_swapped_for_one_of_each_world() {
        swapped_and_back("channel=orders", false, &["PUBLISH", "orders", ORDER]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_handler_without_its_grant_never_replaces_the_current_one() {
    let native = scripted("native");
    let scene = swap_scene::Scene::new(&native).await;
    let host = scene.host().without("compile-cache").ready().await;
    let wasmcloud = component_of("foreign-wasmcloud");
    scene.put(&wasmcloud);
    let refused = swap_scene::refuses(&host, &wasmcloud).await;
    assert_eq!(refused["step"], "imports");
    let why = refused["reason"].as_str().unwrap_or_default();
    assert!(
        why.contains("wasmcloud:messaging/consumer@0.2.0"),
        "{refused}"
    );
    assert_eq!(swap_scene::current(&host), digest(&native));
    host.drained().await;
}
