//! Handlers of batches: a poison message costs the other messages of its batch no attempt.

use std::collections::BTreeMap;

use fastrand::Rng;
use hostler::delivery::batch::starts_max;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, HostOptions};
use hostler_tests::witness::Witness;

use crate::runtime::e2e_crash::{expire, supervised};
use crate::runtime::e2e_scene::Scene;

fn batching(scene: &Scene, size: usize) -> HostOptions {
    scene
        .host()
        .flag("handler", &guest("batch").display().to_string())
        .flag("batch-size", &size.to_string())
        .flag("concurrency", "1")
}

/// The sizes of the calls, in order.
fn calls(ended: &Ended) -> Vec<usize> {
    let sizes = ended.log.iter().filter_map(|line| {
        let size = line.text("line")?.strip_prefix("batch ")?;
        size.parse().ok()
    });
    sizes.collect()
}

/// The attempts of a message. Splits repeat an attempt, a bounded number of times.
fn distinct(witness: &Witness, id: &str, batch: usize) -> Vec<u32> {
    let mut attempts = witness.attempts(id).to_vec();
    for attempt in attempts.clone() {
        let starts = attempts.iter().filter(|other| **other == attempt).count();
        assert!(
            starts <= starts_max(batch) as usize,
            "{id} started {starts} times for attempt {attempt}"
        );
    }
    attempts.dedup();
    attempts
}

#[tokio::test]
async fn a_poison_message_fails_without_its_neighbours() {
    for poison in ["trap", "miss"] {
        let mut scene = Scene::new().await;
        let mut honest = scene.publish_all("ack", 10).await;
        let culprit = scene.publish(poison).await;
        honest.extend(scene.publish_all("ack", 5).await);
        let host = batching(&scene, 16).cap(2).until_empty();
        let ended = host.finish().await;
        let (look, witness) = scene.check(std::slice::from_ref(&ended)).await;
        assert_eq!(calls(&ended)[0], 16, "they go together");
        for id in &honest {
            assert_eq!(distinct(&witness, id, 16), [1], "{id} is a neighbour");
            assert!(look.dead_letters_of(id).is_empty());
        }
        assert_eq!(distinct(&witness, &culprit, 16), [1, 2]);
        // The batch of its first attempt was halved four times. It ran by itself the second time.
        assert_eq!(witness.starts(&culprit), 5 + 1);
        let dead = look.dead_letters_of(&culprit)[0];
        assert_eq!(dead.reason(), "max-deliveries");
        assert_eq!(dead.header("x-dead-letter-attempts"), Some("2"));
        let kind = match poison {
            "trap" => "trap",
            _ => "bad-outcome",
        };
        let summary = ended.json();
        assert_eq!(summary["attempts"], 15 + 2);
        assert_eq!(summary["acked"], 15);
        assert_eq!(summary["faults"], serde_json::json!({ kind: 2 }));
        // The log names the digest at each split.
        let split = |line: &&hostler_tests::host::Line| {
            line.message().starts_with("a batch ")
                && line
                    .text("handler")
                    .is_some_and(|d| d.starts_with("sha256:"))
        };
        assert_eq!(ended.count(split), 4);
    }
}

/// The attempts of a message with this body at a cap of 3, and the reason of its dead letter.
fn expected(body: &str) -> (&'static [u32], Option<&'static str>) {
    match body {
        "ack" => (&[1], None),
        "nack:0,ack" => (&[1, 2], None),
        "nack,trap,ack" => (&[1, 2, 3], None),
        "drop" => (&[1], Some("dropped")),
        _ => (&[1, 2, 3], Some("max-deliveries")),
    }
}

#[tokio::test]
async fn attempts_are_counted_rightly_for_any_batch_and_any_outcomes() {
    let bodies = [
        "ack",
        "ack",
        "ack",
        "nack:0,ack",
        "nack,trap,ack",
        "drop",
        "trap",
        "miss",
        "exit:1",
        "nack:0",
    ];
    let seed = fastrand::u64(..);
    let mut rng = Rng::with_seed(seed);
    for size in [1, 2, 7, 16] {
        let mut scene = Scene::new().await;
        let mut published = BTreeMap::new();
        for _ in 0..60 {
            let body = bodies[rng.usize(..bodies.len())];
            published.insert(scene.publish(body).await, body);
        }
        let host = batching(&scene, size)
            .flag("concurrency", &rng.usize(1..=3).to_string())
            .flag("backoff-first", "5ms")
            .flag("attempt-accounting", ["lazy", "exact"][rng.usize(..2)])
            .cap(3)
            .until_empty();
        let ended = host.finish().await;
        let (look, witness) = scene.check(std::slice::from_ref(&ended)).await;
        assert!(calls(&ended).iter().all(|call| *call <= size));
        for (id, body) in published {
            let (attempts, dead) = expected(body);
            let what = format!("{id} ({body}), batches of {size}, seed {seed}");
            assert_eq!(distinct(&witness, &id, size), attempts, "{what}");
            let letters = look.dead_letters_of(&id);
            let reasons: Vec<&str> = letters.iter().map(|dead| dead.reason()).collect();
            assert_eq!(reasons, dead.into_iter().collect::<Vec<_>>(), "{what}");
            for letter in letters {
                let count = attempts.len().to_string();
                let found = letter.header("x-dead-letter-attempts");
                assert_eq!(found, Some(&*count), "{what}");
            }
        }
    }
}

#[tokio::test]
async fn a_message_that_kills_its_host_dead_letters_no_neighbour() {
    for point in ["start", "verdict"] {
        let mut scene = Scene::new().await;
        let mut honest = scene.publish_all("ack", 4).await;
        let abort = [("x-hostler-test-abort", point)];
        let killer = scene.publish_with("ack", &abort).await;
        honest.extend(scene.publish_all("ack", 4).await);
        let host = batching(&scene, 8).cap(4).until_empty();
        let all = supervised(&scene.raw, &host).await;
        assert_eq!(all.len() - 1, 4, "each charge kills, and there are four");
        let (look, witness) = scene.check(&all).await;
        assert_eq!(look.dead_letters_of(&killer)[0].reason(), "max-deliveries");
        for id in &honest {
            assert!(look.dead_letters_of(id).is_empty(), "{id} is innocent");
            assert!((1..=4).contains(&witness.starts(id)), "{id}");
        }
        assert!(look.is_empty());
    }
}

#[tokio::test]
async fn a_single_message_does_not_wait_for_a_full_batch() {
    let mut scene = Scene::new().await;
    let host = batching(&scene, 1000)
        .flag("batch-wait", "50ms")
        .ready()
        .await;
    for n in 1..=3 {
        scene.publish("ack").await;
        host.starts(n).await;
    }
    scene.emptied().await;
    let ended = host.drained().await;
    assert_eq!(calls(&ended), [1, 1, 1]);
}

#[tokio::test]
async fn a_batch_that_dies_with_its_host_costs_each_message_one_attempt() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("sleep:20000", 8).await;
    let host = batching(&scene, 8).cap(2).ready().await;
    host.starts(1).await;
    let killed = host.kill().await;
    expire(&scene.raw).await;
    // Each has one attempt left and is a suspect: it runs by itself, and times out.
    let next = batching(&scene, 8)
        .cap(2)
        .flag("timeout", "1s")
        .until_empty();
    let ended = next.finish().await;
    assert_eq!(calls(&ended), [1; 8]);
    let all = [killed, ended];
    let (look, witness) = scene.check(&all).await;
    for id in &ids {
        let dead = look.dead_letters_of(id)[0];
        assert_eq!(dead.header("x-dead-letter-attempts"), Some("2"), "{id}");
        // The guest sleeps in the first message of a batch, before it starts the others.
        assert_eq!(witness.attempts(id).last(), Some(&2), "{id}");
    }
}
