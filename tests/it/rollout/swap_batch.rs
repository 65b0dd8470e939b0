//! Batches and reused instances while versions change: a call never mixes versions, and the outcome
//! of a message comes from the version that its attempt began with.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use hostler::rollout::canary::Share;
use hostler_tests::checker::DeadLetter;
use hostler_tests::guests::marked;
use hostler_tests::host::Ended;
use hostler_tests::redis::eventually;

use crate::rollout::swap_scene::{
    Scene, begins_canary, canary, component_of, digest, runs, versions,
};
use crate::rollout::swap_storm::{check, publisher_of, sayings};

/// A guest that reports this number as its version.
fn version(name: &str, number: usize) -> Vec<u8> {
    marked(&component_of(name), number)
}

/// The version that answered. The guest and the host must agree on it.
fn answered(dead: &DeadLetter, known: &BTreeMap<String, usize>) -> usize {
    let header = |name| dead.header(name).unwrap();
    let number = known[header("x-dead-letter-handler")];
    let said = header("x-dead-letter-detail");
    assert_eq!(said, format!("{number:010}"), "{}", source(dead));
    number
}

fn source(dead: &DeadLetter) -> &str {
    dead.header("x-dead-letter-source-id").unwrap()
}

/// One call of a batch handler: the ids of the messages that started, and the versions that they
/// reported.
#[derive(Debug, Default)]
struct Batch {
    size: usize,
    handler: String,
    ids: Vec<String>,
    versions: Vec<String>,
}

/// The calls of a host that runs one call at a time, in order.
fn calls(ended: &Ended) -> Vec<Batch> {
    let mut calls: Vec<Batch> = Vec::new();
    for line in &ended.log {
        let Some(text) = line.text("line") else {
            continue;
        };
        let handler = line.text("handler").unwrap();
        if let Some(size) = text.strip_prefix("batch ") {
            let size: usize = size.parse().unwrap();
            let several = (size > 1).then_some(size as u64);
            assert_eq!(line.number("batch"), several, "{line:?}");
            calls.push(Batch {
                size,
                handler: handler.to_owned(),
                ..Batch::default()
            });
            continue;
        }
        let call = calls.last_mut().unwrap();
        assert_eq!(call.handler, handler);
        if let Some((id, _)) = text.strip_prefix("start ").and_then(|t| t.split_once(' ')) {
            call.ids.push(id.to_owned());
            // The lines of a batch are logged with the id of its first message.
            assert_eq!(line.text("message_id"), Some(&*call.ids[0]));
        } else if let Some(version) = text.strip_prefix("version ") {
            call.versions.push(version.to_owned());
        }
    }
    calls
}

#[tokio::test]
async fn batches_keep_each_message_on_its_side_of_a_canary() {
    let (old, new) = (version("batch", 1), version("batch", 2));
    let known = BTreeMap::from([(digest(&old), 1), (digest(&new), 2)]);
    let scene = Scene::new(&old).await;
    let options = scene.host().cap(2);
    let options = options.flags("concurrency=1 batch-size=16 batch-wait=100ms breaker=off");
    // The canary is never decided.
    let options = options.flags("canary=40% canary-min-messages=1000000");
    let host = options.ready().await;
    scene.put(&new);
    begins_canary(&host).await;
    assert_eq!(versions(&host)["canary"]["share"], "40%");
    // Most messages report their version at once, some at their second attempt; some are poisonous.
    let body = |i: usize| match i % 10 {
        0 => "version+nack:0,version+mark",
        1 if i % 50 == 1 => "version+trap",
        _ => "version+mark",
    };
    let published = scene.publish((0..400).map(|i| body(i).to_owned()));
    scene.emptied().await;
    assert_eq!(canary(&host), *digest(&new));
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["swaps"], 0);

    let share = Share::from_basis_points(4_000).unwrap();
    let side = |id: &str| if share.has(id) { 2 } else { 1 };
    let dead = scene.dead().await;
    assert_eq!(dead.len(), published);
    let is_poison = |dead: &&DeadLetter| dead.reason() == "max-deliveries";
    let (poison, said): (Vec<_>, Vec<_>) = dead.iter().partition(is_poison);
    assert_eq!(poison.len(), 8);
    for dead in poison {
        let handler = dead.header("x-dead-letter-handler").unwrap();
        assert_eq!(known[handler], side(source(dead)));
        assert_eq!(dead.header("x-dead-letter-attempts"), Some("2"));
    }
    for dead in said {
        assert_eq!(dead.reason(), "dropped");
        assert_eq!(answered(dead, &known), side(source(dead)));
        let attempts = dead.header("x-dead-letter-attempts").unwrap();
        assert!(["1", "2"].contains(&attempts), "{attempts}");
    }
    let calls = calls(&ended);
    for call in &calls {
        let number = known[&call.handler];
        assert!(call.ids.iter().all(|id| side(id) == number), "{call:?}");
        let version = format!("{number:010}");
        assert!(call.versions.iter().all(|v| *v == version), "{call:?}");
        assert!(call.ids.len() <= call.size && call.size <= 16, "{call:?}");
    }
    for number in [1, 2] {
        let largest = calls.iter().filter(|call| known[&call.handler] == number);
        let largest = largest.map(|call| call.size).max();
        assert!(largest > Some(1), "version {number} gets batches, too");
    }
}

/// Swaps under a load of messages that report their version twice and then answer with it.
async fn swapped(name: &str, reuse: &str) {
    const SWAPS: usize = 3;
    const BODY: &str = "version+sleep:3+version+mark";
    let scene = Scene::new(&version(name, 0)).await;
    let options = scene.host().flag("reuse", reuse);
    let options = options.flags("concurrency=4 batch-size=8 batch-wait=20ms");
    let host = options.ready().await;
    // Slower than an unoptimized host on a busy machine: a backlog would only take time.
    let (stop, publishing) = publisher_of(&scene, BODY, 80, 0);
    let mut known = BTreeMap::new();
    let answers = async || scene.raw.number("XLEN orders:dead").await;
    for number in 0..=SWAPS {
        let next = version(name, number);
        known.insert(digest(&next), number);
        scene.put(&next);
        runs(&host, &next).await;
        // The new version has answered: at most 32 messages were running when it came.
        let enough = answers().await + 100;
        eventually("messages are handled", async || answers().await >= enough).await;
    }
    stop.store(true, Ordering::Relaxed);
    let published = publishing.await.unwrap();
    scene.emptied().await;
    let ended = host.drain().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(summary["swaps"], SWAPS);
    assert_eq!(summary["attempts"], published);
    // No attempt saw two versions, and each saw the version that its host logs.
    check(&sayings(&[ended]), &known);
    let dead = scene.dead().await;
    assert_eq!(dead.len(), published);
    let mut answers = vec![0; SWAPS + 1];
    for dead in &dead {
        answers[answered(dead, &known)] += 1;
    }
    assert!(answers.iter().all(|count| *count > 0), "{answers:?}");
}

#[tokio::test]
async fn a_batch_never_mixes_versions() {
    swapped("batch", "1").await;
}

#[tokio::test]
async fn a_reused_batch_instance_never_outlives_its_version() {
    swapped("batch", "500").await;
}

#[tokio::test]
async fn a_reused_instance_never_outlives_its_version() {
    swapped("scripted", "500").await;
}
