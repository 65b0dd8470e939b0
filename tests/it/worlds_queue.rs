//! Handlers that were written for other hosts, on a queue: caps and dead letters, hosts that are killed, and
//! swaps from a native handler to a foreign one and back.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use hostler_tests::checker::Look;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, Host, HostOptions, Line};
use hostler_tests::redis::{RedisServer, eventually};

use crate::effects_publish::bodies;
use crate::scene;
use crate::swap_scene::{self, component_of, digest, runs, scripted};
use crate::swap_storm::publisher_of;

type Scene = scene::Scene<()>;

const GUESTS: [&str; 3] = ["foreign-spin", "foreign-sqs", "foreign-wasmcloud"];

/// Everything that the guests import is granted.
fn granting(options: HostOptions) -> HostOptions {
    options
        .flag("grant-config", r#"{"region":"eu"}"#)
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag("grant-key-value", r#"{"prefix":"{orders}:kv:"}"#)
        .flags("dead-letter=orders:dead backoff-first=5ms")
}

fn host(server: &RedisServer, name: &str) -> HostOptions {
    granting(HostOptions::new(server)).flag("handler", &guest(name).display().to_string())
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

#[tokio::test(flavor = "multi_thread")]
async fn errors_and_faults_of_each_world_count_until_the_cap() {
    for name in GUESTS {
        let scene = Scene::new().await;
        let failing = scene.raw.add("orders", "say:seen+err:no stock").await;
        let trapping = scene.raw.add("orders", "trap").await;
        let binary: [&[u8]; 5] = [b"XADD", b"orders", b"*", b"_payload", b"\xff"];
        scene.raw.ask_words(&binary).await;
        scene.raw.add("orders", "ack").await;
        let ended = host(&scene.server, name)
            .flag("max-deliveries", "3")
            .finish()
            .await;
        let look = Look::at(&scene.raw).await;
        assert!(look.is_empty(), "{name}");
        for id in [&failing, &trapping] {
            let dead = look.dead_letters_of(id);
            assert_eq!(dead.len(), 1, "{name}");
            assert_eq!(dead[0].reason(), "max-deliveries", "{name}");
            assert_eq!(dead[0].header("x-dead-letter-attempts"), Some("3"));
        }
        let detail = look.dead_letters_of(&trapping)[0].header("x-dead-letter-detail");
        assert!(detail.is_some_and(|d| d.contains("trap")), "{detail:?}");
        // SQS has no bytes: such a message is never acknowledged, and never lost.
        let dead = if name == "foreign-sqs" { 3 } else { 2 };
        assert_eq!(look.dead.len(), dead, "{name}");
        assert_eq!(ended.json()["acked"], 4 - dead, "{name}");
        let said = lines(&[ended]);
        let attempts = said
            .iter()
            .filter(|(id, _, line)| *id == failing && line == "seen");
        let attempts: Vec<u64> = attempts.map(|(_, attempt, _)| *attempt).collect();
        assert_eq!(attempts, [1, 2, 3], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_text_of_an_error_is_a_warning_of_the_guest() {
    let scene = Scene::new().await;
    let id = scene.raw.add("orders", "err:no stock").await;
    let ended = host(&scene.server, "foreign-wasmcloud")
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
async fn while_hosts_die(scene: &Scene, name: &str, body: impl Fn(usize) -> String) -> Vec<Ended> {
    let options = host(&scene.server, name).flags("min-idle=300ms concurrency=4");
    let mut hosts = vec![options.ready().await, options.ready().await];
    let mut ended = Vec::new();
    for number in 0..MESSAGES {
        let body = format!("sleep:{}+{}", number % 20, body(number));
        scene.raw.add("orders", &body).await;
        if number % 40 == 20 {
            ended.push(hosts.remove(0).kill().await);
            hosts.push(options.ready().await);
        }
    }
    eventually("the queue is empty", async || {
        Look::at(&scene.raw).await.is_empty()
    })
    .await;
    for host in hosts {
        ended.push(host.drained().await);
    }
    assert!(!scene.exists("orders:dead").await);
    ended
}

const MESSAGES: usize = 120;

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_spin_is_acknowledged_whichever_host_dies() {
    let scene = Scene::new().await;
    while_hosts_die(&scene, "foreign-spin", |number| format!("set:{number}=x")).await;
    for number in 0..MESSAGES {
        // It is there if an attempt has acked.
        let key = format!("{{orders}}:kv:{number}");
        assert!(scene.exists(&key).await, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_message_of_sqs_is_handled_whichever_host_dies() {
    let scene = Scene::new().await;
    let ended = while_hosts_die(&scene, "foreign-sqs", |number| format!("say:{number}")).await;
    let said: BTreeSet<String> = lines(&ended).into_iter().map(|(_, _, line)| line).collect();
    // What a host had not written yet when it was killed is missing: a slot each, at most.
    let missing = (0..MESSAGES).filter(|number| !said.contains(&number.to_string()));
    assert!(missing.count() <= 3 * 4, "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_wasmcloud_publishes_is_exactly_once_whichever_host_dies() {
    let scene = Scene::new().await;
    let publish = |number| format!("publish:invoices:{number}+sleep:{}", number % 7);
    while_hosts_die(&scene, "foreign-wasmcloud", publish).await;
    let mut published = bodies(&scene, "invoices").await;
    published.sort_by_key(|body| body.parse::<usize>().unwrap());
    let expected: Vec<String> = (0..MESSAGES).map(|number| number.to_string()).collect();
    assert_eq!(published, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_spin_keeps_keys() {
    let scene = Scene::new().await;
    let options = host(&scene.server, "foreign-spin").flag("max-deliveries", "1");
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

/// Swaps under load: from a native handler to these guests, one after the other, and back.
async fn swapped_and_back(guests: &[&str]) {
    let native = scripted("native");
    let scene = swap_scene::Scene::new(&native).await;
    let options = granting(scene.accepting()).flag("reuse", "50");
    // The code that other tests have compiled.
    let host: Host = options.without("compile-cache").ready().await;
    let (stop, publishing) = publisher_of(&scene, "", 300, 0);
    let components = guests.iter().map(|name| component_of(name));
    for component in components.chain([native]) {
        scene.deploy(&component);
        runs(&host, &component).await;
        let series = r#"hostler_dispositions_total{disposition="acknowledge",reason=""}"#;
        let before = host.metric(series);
        let handles = async || host.metric(series) > before + 20;
        eventually("it handles messages", handles).await;
    }
    stop.store(true, Ordering::Relaxed);
    let published = publishing.await.unwrap();
    scene.emptied().await;
    let ended = host.drained().await;
    let lines = ended.log.iter();
    let interfaces: Vec<&str> = lines
        .filter(|line| ["serving", "swapped"].contains(&line.message()))
        .filter_map(|line| line.text("interface"))
        .collect();
    const NATIVE: &str = "hostler:handler/message-handler@1.1.0";
    let foreign = guests.iter().map(|name| match *name {
        "foreign-spin" => "fermyon:spin/inbound-redis",
        "foreign-sqs" => "fermyon:spin-sqs@2.0.0",
        _ => "wasmcloud:messaging/handler@0.2.0",
    });
    let expected: Vec<&str> = [NATIVE]
        .into_iter()
        .chain(foreign)
        .chain([NATIVE])
        .collect();
    assert_eq!(interfaces, expected);
    let summary = ended.json();
    assert_eq!(summary["swaps"], guests.len() + 1);
    assert_eq!(summary["acked"], published);
    // No message failed, and none ran twice.
    assert_eq!(summary["attempts"], published);
    assert!(!scene.exists("orders:dead").await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_handler_is_swapped_for_one_of_wasmcloud_and_back_under_load() {
    swapped_and_back(&["foreign-wasmcloud"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_native_handler_is_swapped_for_those_of_spin_and_back_under_load() {
    swapped_and_back(&["foreign-spin", "foreign-sqs"]).await;
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
