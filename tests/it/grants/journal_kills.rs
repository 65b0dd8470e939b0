//! Recorded calls while hosts die or stand still, while Redis is restarted or full, while a group is deleted, and while dead
//! letters move: a request is repeated only if its answer is not known. The size is that of `HOSTLER_EXACTLY_ONCE`: messages
//! for each kind of queue.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hostler::delivery::journal::Content;
use hostler::wire::journal::decode;
use hostler_tests::checker::DeadLetter;
use hostler_tests::command::run;
use hostler_tests::host::HostOptions;
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::grants::journal::{Journaled, once};
use crate::runtime::e2e_scene::Scene;
use crate::scene::{Kind, cluster, on_both};

on_both! {
    a_request_is_repeated_only_if_a_host_died_in_it
    with_fail_hosts_that_stand_still_send_each_request_at_most_once
}

/// Messages without `HOSTLER_EXACTLY_ONCE`: for each test run.
const MESSAGES: usize = 60;
/// One in this number of kills of a host also kills the server.
const KILLS_OF_THE_SERVER: usize = 4;
/// The calls of each message.
const CALLS: [&str; 3] = ["a", "b", "c"];

fn options(all: &Journaled, kind: Kind) -> HostOptions {
    // The kills count as attempts.
    let options = all.host().cap(1_000).flags("concurrency=4 wait-redis=20s");
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true"),
    }
}

/// `few` messages, or `times` times the number that `HOSTLER_EXACTLY_ONCE` names.
fn sized(few: usize, times: usize) -> usize {
    let named = std::env::var("HOSTLER_EXACTLY_ONCE").ok();
    named.map_or(few, |number| times * number.parse::<usize>().unwrap())
}

async fn publish(all: &Journaled, kind: Kind, body: &str) {
    let words: &[&str] = match kind {
        Kind::Stream => &["XADD", "orders", "*", "_payload", body],
        Kind::List => &["LPUSH", "orders", body],
    };
    let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    all.scene.raw.ask_words(&words).await;
}

/// Whether no message is left.
async fn is_settled(all: &Journaled, kind: Kind) -> bool {
    match kind {
        Kind::Stream => all.scene.look().await.is_empty(),
        Kind::List => {
            let lists = all.scene.raw.ask("KEYS {orders}:processing:*").await;
            let held: Vec<String> = redis::from_redis_value(lists).unwrap();
            let waits = [
                "LLEN orders",
                "LLEN {orders}:retry",
                "ZCARD {orders}:delayed",
            ];
            let mut left = i64::try_from(held.len()).unwrap();
            for command in waits {
                left += all.scene.raw.number(command).await;
            }
            left == 0
        }
    }
}

/// The idempotency keys of the requests whose answers are not known. No host is there.
async fn open_requests(all: &Journaled) -> Vec<String> {
    let raw = &all.scene.raw;
    eventually(
        "the server has carried out what the host has sent",
        async || raw.info("clients", "connected_clients:").await == 1,
    )
    .await;
    let keys = raw.ask("KEYS {orders}:journal:*").await;
    let keys: Vec<String> = redis::from_redis_value(keys).unwrap();
    let mut open = Vec::new();
    for key in keys {
        let fields = raw.ask(&format!("HGETALL {key}")).await;
        let fields: BTreeMap<String, Vec<u8>> = redis::from_redis_value(fields).unwrap();
        for (name, record) in fields {
            let record = name
                .parse()
                .ok()
                .map(|number| decode(number, &Bytes::from(record)).unwrap());
            let record = record.map(|stored| stored.record);
            open.extend(
                record
                    .filter(|record| record.content == Content::Intent)
                    .map(|record| record.key),
            );
        }
    }
    open
}

/// How many requests were repeated: only those that were open at as many kills, each with its key. `open`: how often each key was.
fn repeated(all: &Journaled, bodies: &[String], open: &BTreeMap<String, usize>) -> usize {
    let mut sent: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for seen in all.web.seen() {
        let key = seen.header("idempotency-key").unwrap().to_owned();
        let body = String::from_utf8(seen.body).unwrap();
        sent.entry(body).or_default().push(key);
    }
    assert!(
        sent.keys().eq(bodies.iter().collect::<BTreeSet<_>>()),
        "{sent:?}"
    );
    for (body, keys) in &sent {
        assert!(keys.iter().all(|key| *key == keys[0]), "{body}: {keys:?}");
        let (times, allowed) = (keys.len(), open.get(&keys[0]).copied().unwrap_or(0));
        assert!(
            times - 1 <= allowed,
            "{body} was sent {times} times, and open at {allowed} kills"
        );
    }
    sent.values().map(|keys| keys.len() - 1).sum()
}

/// Three requests, a trap after the second, and hosts that are killed at any step.
async fn a_request_is_repeated_only_if_a_host_died_in_it(kind: Kind) {
    let messages = sized(MESSAGES, 1);
    let server = RedisOptions::default()
        .appendonly()
        .set("appendfsync", "always");
    let mut all = Journaled::with(server, "").await;
    let options = options(&all, kind);
    for n in 0..messages {
        let [a, b, c] = CALLS.map(|call| all.send("POST", "/after/20", &format!("{n}-{call}")));
        publish(&all, kind, &format!("{a}+{b}+trap,{a}+{b}+{c}+ack")).await;
    }
    let step = (messages / 3).min(400);
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    let mut kills = 0;
    loop {
        let host = options.ready().await;
        let before = all.web.requests();
        eventually("it makes some calls", async || {
            let requests = all.web.requests();
            let may_be_done = requests >= CALLS.len() * messages;
            requests >= before + step || may_be_done && is_settled(&all, kind).await
        })
        .await;
        host.kill().await;
        kills += 1;
        for key in open_requests(&all).await {
            *open.entry(key).or_default() += 1;
        }
        if is_settled(&all, kind).await {
            break;
        }
        if kills % KILLS_OF_THE_SERVER == 0 {
            all.scene.server.kill();
            all.scene.server.restart();
            all.scene.reconnect().await;
        }
    }
    assert!(kills > 3, "it was over before hosts were killed");
    let bodies = (0..messages).flat_map(|n| CALLS.map(|call| format!("{n}-{call}")));
    let bodies: Vec<String> = bodies.collect();
    let repeated = repeated(&all, &bodies, &open);
    println!(
        "{kind:?}: {messages} messages, {kills} hosts killed, {repeated} open requests repeated"
    );
    assert_eq!(all.scene.raw.number("EXISTS orders:dead").await, 0);
    all.is_gone().await;
}

async fn with_fail_hosts_that_stand_still_send_each_request_at_most_once(kind: Kind) {
    const MESSAGES: usize = 24;
    let all = Journaled::new("unknown = \"fail\"\n").await;
    let options = options(&all, kind);
    for n in 0..MESSAGES {
        let [a, b] = ["a", "b"].map(|call| all.send("POST", "/after/30", &format!("{n}-{call}")));
        publish(&all, kind, &format!("{a}+{b}+nack:5,{a}+{b}+ack")).await;
    }
    let mut hosts = [options.ready().await, options.ready().await];
    while !is_settled(&all, kind).await {
        hosts[0].pause().await;
        let before = hosts[1].count(|line| line.start().is_some());
        // The lease of the one that stands is over when the other one has its messages.
        eventually(
            "the other host goes on with messages of this one",
            async || {
                let held = match kind {
                    Kind::Stream => {
                        let pending = all.scene.raw.pending("orders", "workers").await;
                        let consumer = hosts[0].consumer();
                        pending.iter().any(|held| held.consumer == consumer)
                    }
                    Kind::List => {
                        let instances = all.scene.raw.ask("KEYS {orders}:processing:*").await;
                        let instances: Vec<String> = redis::from_redis_value(instances).unwrap();
                        instances.len() > 1
                    }
                };
                let started = hosts[1].count(|line| line.start().is_some());
                !held && (started > before || is_settled(&all, kind).await)
            },
        )
        .await;
        hosts[0].resume();
        hosts.swap(0, 1);
    }
    for host in hosts {
        host.drained().await;
    }
    let counts = all.counts();
    assert!(counts.values().all(|times| *times == 1), "{counts:?}");
    assert!(counts.len() > MESSAGES, "{counts:?}");
    all.is_gone().await;
}

#[tokio::test]
async fn a_dead_letter_in_another_slot_keeps_its_journal_while_hosts_die() {
    const MESSAGES: usize = 12;
    let mut all = Journaled::with(cluster(RedisOptions::default()), "").await;
    all.scene.take_all_slots().await;
    let bodies: Vec<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
    for body in &bodies {
        let call = all.send("POST", "/ok", body);
        all.scene.publish(&format!("{call}+drop")).await;
    }
    let options = all.host();
    let redis = all.scene.server.url();
    let mut open: BTreeMap<String, usize> = BTreeMap::new();
    let replay = |more: &[&str]| {
        let words = ["dlq", "replay", "--redis", &redis, "orders:dead"];
        let said = run(words.iter().chain(more)).ok().stdout;
        let number = said
            .lines()
            .next()
            .and_then(|line| line.strip_prefix("replayed "));
        // One whose host died while it moved may be there twice.
        assert!(
            number.is_some_and(|n| n.parse::<usize>().unwrap() >= MESSAGES),
            "{said}"
        );
    };
    // Each replay goes from one slot to the other, and each death comes back.
    for round in 0..3 {
        if round > 0 {
            replay(&[]);
        }
        let died = async |at_least: usize| {
            DeadLetter::all(&all.scene.raw, "orders:dead").await.len() >= at_least
        };
        let host = options.ready().await;
        eventually("some have died", async || died(MESSAGES / 4).await).await;
        host.kill().await;
        for key in open_requests(&all).await {
            *open.entry(key).or_default() += 1;
        }
        let host = options.ready().await;
        eventually("all have died", async || {
            died(MESSAGES).await && all.scene.look().await.is_empty()
        })
        .await;
        host.drained().await;
        repeated(&all, &bodies, &open);
        all.is_gone().await;
    }
    replay(&["--journal", "drop"]);
    let ended = options.finish().await;
    assert!(
        ended.count(|line| line.start().is_some()) >= MESSAGES,
        "{}",
        ended.stderr()
    );
    // All are made again.
    assert!(all.counts().values().all(|times| *times > 1));
}

#[tokio::test]
async fn a_group_that_is_deleted_during_a_call_repeats_nothing() {
    let mut all = Journaled::new("").await;
    let [first, slow] = [("/ok", "first"), ("/after/1500", "slow")]
        .map(|(path, body)| all.send("POST", path, body));
    all.scene.publish(&format!("{first}+{slow}+ack")).await;
    let host = all.host().ready().await;
    eventually("the request is under way", async || {
        all.counts().contains_key("slow")
    })
    .await;
    all.scene.raw.ask("XGROUP DESTROY orders workers").await;
    host.logs("the group was gone").await;
    let next = all.send("POST", "/ok", "next");
    all.scene.publish(&format!("{next}+ack")).await;
    eventually("the next message is handled", async || {
        all.counts().contains_key("next") && all.scene.look().await.is_empty()
    })
    .await;
    host.drained().await;
    assert_eq!(all.counts(), once(&["first", "slow", "next"]));
}

#[tokio::test]
async fn a_full_server_refuses_intents_and_takes_answers() {
    let mut all = Journaled::new("").await;
    let slow = all.send("POST", "/after/4000", "slow");
    let refused = all.send("POST", "/ok", "refused");
    all.scene
        .publish(&format!("{slow}+{refused}+nack,{slow}+{refused}+ack"))
        .await;
    let host = all.host().flag("timeout", "20s").ready().await;
    eventually("the request is under way", async || {
        all.counts().contains_key("slow")
    })
    .await;
    all.scene.out_of_memory(true).await;
    let refusals = async || {
        all.scene
            .raw
            .info("errorstats", "errorstat_OOM:count=")
            .await
    };
    // The intent of the second request is tried again and again.
    eventually("the server refuses", async || refusals().await >= 20).await;
    assert_eq!(all.counts(), once(&["slow"]));
    all.scene.out_of_memory(false).await;
    all.scene.emptied().await;
    assert_eq!(all.counts(), once(&["slow", "refused"]));
    all.is_gone().await;
    host.drained().await;
}

#[tokio::test]
async fn an_increment_happens_once_for_a_message() {
    let mut scene = Scene::new().await;
    let options = scene
        .host()
        .cap(9)
        .flag(
            "handler",
            &hostler_tests::guests::guest("keyed").display().to_string(),
        )
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag(
            "grant-key-value",
            r#"{"prefix":"{orders}:kv:","journal":true}"#,
        )
        .flags("backoff-first=5ms min-idle=500ms concurrency=4 breaker=off");
    let add = "quiet:increment:sum:3+quiet:increment:sum:3+quiet:increment:other:-1";
    let messages = sized(40, 5);
    for _ in 0..messages {
        scene
            .publish(&format!("{add}+trap,{add}+nack,{add}+sleep:20+ack"))
            .await;
    }
    let sum = async |key: &str| {
        let value = scene.raw.ask(&format!("GET {{orders}}:kv:{key}")).await;
        let value: Option<String> = redis::from_redis_value(value).unwrap();
        value.map_or(0, |value| value.parse::<i64>().unwrap())
    };
    for _ in 0..2 {
        let host = options.ready().await;
        let before = sum("sum").await;
        eventually("it has added", async || {
            sum("sum").await > before || scene.look().await.is_empty()
        })
        .await;
        host.kill().await;
    }
    let host = options.ready().await;
    while !scene.look().await.is_empty() {
        let before = sum("sum").await;
        eventually("it goes on", async || {
            sum("sum").await > before || scene.look().await.is_empty()
        })
        .await;
    }
    host.drained().await;
    let messages = i64::try_from(messages).unwrap();
    assert_eq!(sum("sum").await, 6 * messages);
    assert_eq!(sum("other").await, -messages);
    let left = scene.raw.ask("KEYS *:journal*").await;
    let left: Vec<String> = redis::from_redis_value(left).unwrap();
    assert!(left.is_empty(), "{left:?}");
}

/// The script has added, and the host does not know it: the next try finds the record.
#[tokio::test]
async fn an_increment_whose_answer_is_lost_happens_once() {
    const MESSAGES: i64 = 20;
    let mut scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
    let keyed = hostler_tests::guests::guest("keyed").display().to_string();
    let add = "quiet:increment:sum:3+quiet:increment:sum:4";
    for _ in 0..MESSAGES {
        scene.publish(&format!("{add}+nack,{add}+ack")).await;
    }
    let host = HostOptions::at(&proxy.url())
        .directory(scene.server.dir())
        .cap(1_000)
        .flag("handler", &keyed)
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag(
            "grant-key-value",
            r#"{"prefix":"{orders}:kv:","journal":true}"#,
        )
        .flags("backoff-first=5ms min-idle=5s concurrency=2 breaker=off timeout=60s")
        .admin()
        .ready()
        .await;
    for after in 0.. {
        let (cut, sum) = (proxy.replies_cut(), sum_of(&scene).await);
        // Nothing of the answer arrives, or a part of it.
        proxy.cut_reply("{orders}:kv:sum", after % 5);
        let mut is_done = false;
        eventually("an answer is lost, or all are settled", async || {
            is_done = scene.look().await.is_empty();
            is_done || proxy.replies_cut() > cut
        })
        .await;
        // A call repeats its script until it is answered: the next answers arrive.
        eventually("the next one adds, or all are settled", async || {
            is_done = is_done || scene.look().await.is_empty();
            is_done || sum_of(&scene).await > sum + 4
        })
        .await;
        if is_done {
            break;
        }
    }
    host.drained().await;
    assert!(proxy.replies_cut() >= 5, "{}", proxy.replies_cut());
    assert_eq!(sum_of(&scene).await, 7 * MESSAGES);
}

async fn sum_of(scene: &Scene) -> i64 {
    let value = scene.raw.ask("GET {orders}:kv:sum").await;
    let value: Option<String> = redis::from_redis_value(value).unwrap();
    value.map_or(0, |value| value.parse().unwrap())
}
