//! Exactly once: many messages that publish to streams and lists, in the slot of the queue and in others,
//! set keys and count, while hosts are killed and the server is restarted. The size is that of
//! `HOSTLER_EXACTLY_ONCE`: messages for each kind of queue.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::wire::frame;
use hostler_tests::checker::DeadLetter;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, Host, HostOptions};
use hostler_tests::redis::RedisOptions;
use tokio::time::MissedTickBehavior;

use crate::scene::{self, Kind, on_both};

type Scene = scene::Scene<()>;

on_both! {
    every_acked_message_has_each_follow_up_once_whichever_process_dies
}

/// Messages without `HOSTLER_EXACTLY_ONCE`: for each test run.
const MESSAGES: usize = 750;
/// The longest time for a thousand messages on the slowest machine: a test must not hang.
const A_THOUSAND_TAKES: Duration = Duration::from_secs(300);
/// One in this number of kills of a host also kills the server.
const KILLS_OF_THE_SERVER: usize = 5;

/// The destinations: two in the slot of the queue, and two that are reached through an outbox.
const GRANTS: &str = r#"{"invoices":"stream:{orders}:invoices","jobs":{"to":"list:{orders}:jobs","reliable":true},
    "far-invoices":"stream:invoices","far-jobs":{"to":"list:jobs","reliable":true}}"#;

/// The keys: a value that a handler reads has not changed when it writes.
const KEYS: &str = r#"{"prefix":"{orders}:kv:","commit":"checked"}"#;
/// How many keys are counters: handlers read one, and set the next number.
const COUNTERS: usize = 64;

/// What the handler does with a message of this number.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    /// It publishes, and acks.
    Acked,
    /// So does its second attempt. The first one publishes as well, and ends in another way.
    AckedAfter(&'static str),
    /// It publishes, and drops the message.
    Dropped,
}

fn fate(number: usize) -> Fate {
    match number % 20 {
        3 | 9 | 16 => Fate::AckedAfter("nack:5"),
        6 | 13 => Fate::AckedAfter("trap"),
        11 | 18 => Fate::Dropped,
        _ => Fate::Acked,
    }
}

/// The body of the message: it has the instructions for the handler.
fn body(number: usize) -> String {
    let publish = |what: &str| {
        let names = ["invoices", "far-jobs", "jobs", "far-invoices"];
        let published = names.map(|name| format!("publish:{name}:{what}{number}"));
        let counter = number % COUNTERS;
        format!(
            "{}+set:{what}{number}=1+add:counter {counter}",
            published.join("+")
        )
    };
    let sleep = format!("sleep:{}", number * 7 % 60);
    let good = publish("");
    match fate(number) {
        Fate::Acked => format!("{sleep}+{good}"),
        Fate::AckedAfter(end) => format!("{}+{end},{sleep}+{good}", publish("early ")),
        Fate::Dropped => format!("{}+drop:no", publish("dropped ")),
    }
}

fn options(scene: &Scene, kind: Kind) -> HostOptions {
    let options = HostOptions::new(&scene.server)
        .flag("handler", &guest("keyed").display().to_string())
        .flag("grant-publish", GRANTS)
        .flag("grant-key-value", KEYS)
        .flags("publish-outbox=always")
        .flags(
            "dead-letter={orders}:dead min-idle=1s concurrency=8 backoff-first=5ms wait-redis=20s",
        );
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true recovery-zset={orders}:claims"),
    }
}

/// Publish all messages.
async fn publish(scene: &Scene, kind: Kind, messages: usize) {
    for first in (0..messages).step_by(500) {
        let mut pipeline = redis::pipe();
        for number in first..messages.min(first + 500) {
            match kind {
                Kind::Stream => {
                    let mut add = redis::cmd("XADD");
                    add.arg("orders").arg("*").arg("_payload").arg(body(number));
                    pipeline.add_command(add.arg("h:x-message-id").arg(number).to_owned());
                }
                Kind::List => {
                    let mut headers = Headers::default();
                    headers.push("x-message-id", number.to_string());
                    let value = frame::encode(&headers, body(number).as_bytes()).unwrap();
                    pipeline
                        .add_command(redis::cmd("LPUSH").arg("orders").arg(&value[..]).to_owned());
                }
            }
        }
        scene.raw.run(&pipeline).await;
    }
}

/// How many messages have come to an end.
async fn ended_messages(scene: &Scene, kind: Kind) -> usize {
    let dead = match kind {
        Kind::Stream => "XLEN {orders}:dead",
        Kind::List => "LLEN {orders}:dead",
    };
    let (acked, dropped) = (
        scene.raw.number("XLEN {orders}:invoices").await,
        scene.raw.number(dead).await,
    );
    usize::try_from(acked + dropped).unwrap()
}

async fn every_acked_message_has_each_follow_up_once_whichever_process_dies(kind: Kind) {
    let named = std::env::var("HOSTLER_EXACTLY_ONCE").ok();
    let messages = named.map_or(MESSAGES, |number| number.parse().unwrap());
    let server = RedisOptions::default().appendonly();
    let mut scene = Scene::with(server.set("appendfsync", "always")).await;
    let options = options(&scene, kind);
    let mut hosts: Vec<Host> = Vec::new();
    for _ in 0..3 {
        hosts.push(options.ready().await);
    }
    publish(&scene, kind, messages).await;

    // One host dies every second, and another one comes.
    let begun = Instant::now();
    let most = A_THOUSAND_TAKES * u32::try_from(messages.div_ceil(1_000)).unwrap();
    let mut seconds = tokio::time::interval(Duration::from_secs(1));
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    seconds.tick().await;
    let mut ended: Vec<Ended> = Vec::new();
    let mut restarts = 0;
    while ended_messages(&scene, kind).await < messages {
        assert!(
            begun.elapsed() < most,
            "{:?}",
            ended_messages(&scene, kind).await
        );
        seconds.tick().await;
        ended.push(hosts.remove(0).kill().await);
        if ended.len() % KILLS_OF_THE_SERVER == 2 {
            scene.server.kill();
            scene.server.restart();
            scene.reconnect().await;
            restarts += 1;
        }
        hosts.push(options.ready().await);
    }
    let took = begun.elapsed();
    let kills = ended.len();
    assert!(kills > 0, "{kind:?}: it was over before a host was killed");
    for host in hosts {
        ended.push(host.kill().await);
    }
    ended.push(options.finish().await);

    let mut starts = 0;
    for one in &ended {
        starts += one.count(|line| line.start().is_some());
    }
    println!(
        "{kind:?}: {messages} messages in {took:.1?}, {starts} starts, {kills} hosts and {restarts} servers killed"
    );
    let each = |such: &dyn Fn(Fate) -> bool| -> BTreeMap<String, usize> {
        let numbers = (0..messages).filter(|&number| such(fate(number)));
        numbers.map(|number| (number.to_string(), 1)).collect()
    };
    let acked = each(&|fate| fate != Fate::Dropped);
    for name in ["{orders}:invoices", "invoices", "{orders}:jobs", "jobs"] {
        let follow_ups = match name.ends_with("invoices") {
            true => in_stream(&scene, name).await,
            false => in_list(&scene, name).await,
        };
        let bodies = counted(follow_ups.iter().map(|(_, body)| body));
        check(name, &bodies, &acked);
        let ids = counted(follow_ups.iter().map(|(id, _)| id));
        assert_eq!(ids.len(), acked.len(), "{name}: each has an id of its own");
    }
    let (counters, written): (BTreeMap<_, _>, BTreeMap<_, _>) = keys(&scene)
        .await
        .into_iter()
        .partition(|(key, _)| key.starts_with("counter "));
    check("keys", &written, &acked);
    assert_eq!(counters.values().sum::<usize>(), acked.len());
    let dropped = each(&|fate| fate == Fate::Dropped);
    check(
        "dead letters",
        &counted(dead(&scene, kind).await.iter()),
        &dropped,
    );
}

/// Panics with the first differences: whole maps are too long to read.
fn check(name: &str, found: &BTreeMap<String, usize>, wanted: &BTreeMap<String, usize>) {
    let names = found.keys().chain(wanted.keys());
    let wrong = names.filter(|name| found.get(*name) != wanted.get(*name));
    let wrong: Vec<_> = wrong.map(|name| (name, found.get(name))).take(20).collect();
    assert!(wrong.is_empty(), "{name}, with their counts: {wrong:?}");
}

fn counted<'a>(names: impl Iterator<Item = &'a String>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name.clone()).or_insert(0) += 1;
    }
    counts
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The ids and bodies of the messages in a stream.
async fn in_stream(scene: &Scene, key: &str) -> Vec<(String, String)> {
    let all = DeadLetter::all(&scene.raw, key).await;
    let read = |entry: &DeadLetter| {
        let id = entry.header("x-message-id").unwrap().to_owned();
        (id, text(entry.field(b"_payload").unwrap()))
    };
    all.iter().map(read).collect()
}

/// The ids and bodies of the messages in a list.
async fn in_list(scene: &Scene, key: &str) -> Vec<(String, String)> {
    let read = |value: Vec<u8>| {
        let (headers, body) = frame::decode(&Bytes::from(value)).unwrap();
        (
            headers.find_str("x-message-id").unwrap().to_owned(),
            text(&body),
        )
    };
    scene.list(key).await.into_iter().map(read).collect()
}

/// The values of all keys of handlers, which are numbers.
async fn keys(scene: &Scene) -> BTreeMap<String, usize> {
    const PREFIX: &str = "{orders}:kv:";
    let names = scene.raw.ask(&format!("KEYS {PREFIX}*")).await;
    let names: Vec<String> = redis::from_redis_value(names).unwrap();
    let words: Vec<&[u8]> = std::iter::once("MGET")
        .chain(names.iter().map(|n| &**n))
        .map(str::as_bytes)
        .collect();
    let values: Vec<usize> = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
    let names = names.iter().map(|name| name[PREFIX.len()..].to_owned());
    names.zip(values).collect()
}

/// The ids of the dead letters.
async fn dead(scene: &Scene, kind: Kind) -> Vec<String> {
    match kind {
        Kind::Stream => {
            let dead = DeadLetter::all(&scene.raw, "{orders}:dead").await;
            dead.iter()
                .map(|dead| dead.header("x-message-id").unwrap().to_owned())
                .collect()
        }
        Kind::List => {
            let id = |value: Vec<u8>| {
                let (headers, _) = frame::decode(&Bytes::from(value)).unwrap();
                headers.find_str("x-message-id").unwrap().to_owned()
            };
            scene
                .list("{orders}:dead")
                .await
                .into_iter()
                .map(id)
                .collect()
        }
    }
}
