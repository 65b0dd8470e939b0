//! Limits with a key beside many other keys: what a key that is used up costs the others. Times are those of the server: from
//! the entry of a message to the answer to its producer.
//!
//! `HOSTLER_KEYS=1000000` is the full size.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hostler_tests::guests::guest;
use hostler_tests::host::Host;
use hostler_tests::redis::eventually;
use serde_json::json;

use crate::runtime::e2e_scene::Scene;

const INBOX: &str = "{orders}:replies:sample";

/// A scene, and its host with one limit, by tenant.
async fn limited(rate: &str) -> (Scene, Host) {
    let scene = Scene::new().await;
    let limits = json!([{"name": "tenants", "rate": rate, "burst": 1, "by": "header:tenant"}]);
    let host = scene
        .host()
        .flag("handler", &guest("ack").display().to_string())
        .flag("flow-limit", &limits.to_string())
        .flag("reply-keep", "1h")
        .flag("reuse", "1000")
        .admin()
        .ready()
        .await;
    (scene, host)
}

fn add(pipeline: &mut redis::Pipeline, tenant: &str, is_sample: bool) {
    let command = pipeline.cmd("XADD").arg("orders").arg("*");
    command
        .arg("_payload")
        .arg("ack")
        .arg("h:tenant")
        .arg(tenant);
    if is_sample {
        command.arg("h:x-reply-to").arg("sample");
    }
    command.ignore();
}

/// The milliseconds of an id.
fn at(id: &str) -> u64 {
    id.split('-').next().unwrap().parse().unwrap()
}

/// The message that an answer is about.
fn about(fields: &[Vec<u8>]) -> String {
    let mut pairs = fields.chunks_exact(2);
    let id = pairs.find(|pair| pair[0] == b"id");
    String::from_utf8(id.unwrap()[1].clone()).unwrap()
}

/// How long the sampled messages took that were published at this time or later: the 50th and the 99th of a hundred, ms.
async fn took(scene: &Scene, since: u64) -> (u64, u64) {
    let answers = scene.raw.entries(INBOX).await;
    let mut took: Vec<u64> = Vec::new();
    for (answer, fields) in &answers {
        let published = at(&about(fields));
        if published >= since {
            took.push(at(answer) - published);
        }
    }
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

/// Publish messages at a steady rate, each of another tenant, and with `busy` as many of one tenant as one in twenty.
async fn many_keys(keys: usize, busy: bool) -> (u64, u64) {
    const BURST: usize = 20;
    const EVERY: Duration = Duration::from_millis(10);
    let (scene, host) = limited("1/s").await;
    let begin = Instant::now();
    for burst in 0..keys / BURST {
        let mut pipeline = redis::pipe();
        for number in 0..BURST {
            add(&mut pipeline, &format!("t{burst}-{number}"), number == 0);
        }
        if busy {
            add(&mut pipeline, "busy", false);
        }
        scene.raw.run(&pipeline).await;
        let due = EVERY * u32::try_from(burst).unwrap();
        tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
    }
    let samples = i64::try_from(keys / BURST).unwrap();
    let length = format!("XLEN {INBOX}");
    eventually("all samples are answered", async || {
        scene.raw.number(&length).await >= samples
    })
    .await;
    if busy {
        let parked = scene.raw.number("ZCARD {orders}:parked:workers").await;
        assert!(parked > samples / 2, "{parked}");
    }
    drop(host);
    took(&scene, 0).await
}

#[tokio::test(flavor = "multi_thread")]
async fn one_closed_key_leaves_the_latency_of_the_others_as_it_was() {
    let keys = std::env::var("HOSTLER_KEYS").ok();
    let keys = keys.map_or(20_000, |keys| keys.parse().unwrap());
    let mut found = BTreeMap::new();
    for _ in 0..3 {
        for busy in [false, true] {
            found
                .entry(busy)
                .or_insert_with(Vec::new)
                .push(many_keys(keys, busy).await);
        }
    }
    println!(
        "{keys} keys, p50 and p99 in ms; false = alone, true = beside a closed key: {found:?}"
    );
    let least = |busy: bool| found[&busy].iter().map(|(_, p99)| *p99).min().unwrap();
    // Whole milliseconds.
    assert!(least(true) <= least(false) * 11 / 10 + 1, "{found:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_floods_the_queue_is_parked_and_a_small_one_goes_on() {
    const FLOOD: usize = 100_000;
    let (scene, host) = limited("100/s").await;
    let flood = async {
        for _ in 0..FLOOD / 1_000 {
            let mut pipeline = redis::pipe();
            for _ in 0..1_000 {
                add(&mut pipeline, "large", false);
            }
            scene.raw.run(&pipeline).await;
        }
    };
    let begin = Instant::now();
    let mut parked = None;
    let small = async {
        for number in 0_u32.. {
            let mut pipeline = redis::pipe();
            add(&mut pipeline, "small", true);
            scene.raw.run(&pipeline).await;
            let waiting = scene.raw.number("ZCARD {orders}:parked:workers").await;
            let started = u64::try_from(waiting).unwrap()
                + host
                    .metric("hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"}");
            if parked.is_none() && started >= FLOOD as u64 {
                parked = Some((begin.elapsed(), number));
            }
            if parked.is_some_and(|(_, at)| number >= at + 100) {
                return number;
            }
            let due = Duration::from_millis(100) * number;
            tokio::time::sleep(due.saturating_sub(begin.elapsed())).await;
        }
        0
    };
    let ((), sent) = tokio::join!(flood, small);
    let length = format!("XLEN {INBOX}");
    eventually("all of the small one are answered", async || {
        scene.raw.number(&length).await > i64::from(sent)
    })
    .await;
    let (flooded, first) = parked.unwrap();
    let first = usize::try_from(first).unwrap();
    let answers = scene.raw.entries(INBOX).await;
    let since = at(&about(&answers[first.min(answers.len() - 1)].1));
    let (all, after) = (took(&scene, 0).await, took(&scene, since).await);
    println!(
        "{FLOOD} messages parked after {flooded:?}; the small tenant, p50 and p99 in ms: {all:?}, once they are parked: {after:?}"
    );
    assert!(after.0 < 100, "{after:?}");
}
