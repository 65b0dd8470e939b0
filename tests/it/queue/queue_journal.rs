//! The journal of a delivery, as its scripts keep it.

use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::journal::{Content, Record};
use hostler::queue::Queue;
use hostler::queue::journal::{Rules, Written};
use hostler::queue::list::ListOptions;
use hostler::queue::stream::StreamOptions;
use hostler::wire::journal::encode;

use crate::queue::list_scene::{self, KEY, token};
use crate::queue::queue_scene::{Scene, options};
use crate::scene::{orphaned, park, requeue, settled};

fn journaled() -> StreamOptions {
    StreamOptions {
        journal: Some(Rules {
            bytes: 1 << 20,
            keep: Duration::from_secs(60),
        }),
        ..options()
    }
}

fn record(content: Content) -> Bytes {
    let record = Record {
        name: "charge".to_owned(),
        rule: "api".to_owned(),
        nth: 1,
        key: "k".to_owned(),
        at_ms: 1,
        content,
    };
    encode(&record, 0).unwrap()
}

fn value(text: &'static str) -> Bytes {
    record(Content::Value(Bytes::from_static(text.as_bytes())))
}

#[tokio::test]
async fn an_intent_of_two_attempts_goes_with_an_answer_only() {
    let scene = Scene::new().await;
    let first = scene.host_with(journaled()).await;
    let second = scene.host_with(journaled()).await;
    let claim = scene.read(&first, &["x"]).await.remove(0);
    let intent = record(Content::Intent);
    // A request whose answer was lost is repeated: that is the same attempt.
    let write = async || first.intend(&claim, 1, &intent, false).await.unwrap();
    assert_eq!(write().await, Written::Done);
    assert_eq!(write().await, Written::Known(intent.clone()));
    let answer = first.answer(&claim, 1, &intent, None).await;
    assert_eq!(answer.unwrap(), Written::Done);

    assert_eq!(
        first.intend(&claim, 2, &intent, false).await.unwrap(),
        Written::Done
    );
    scene.give("dead", claim.id, 1, 60_000).await;
    let taken = orphaned(&second, 1).await.remove(0);
    let again = second.intend(&taken, 2, &intent, true).await;
    assert_eq!(again.unwrap(), Written::Known(intent.clone()));
    // Neither attempt knows what the request of the other has done.
    for (host, claim) in [(&first, &claim), (&second, &taken)] {
        let removed = host.answer(claim, 2, &intent, None).await;
        assert_eq!(removed.unwrap(), Written::Shared);
    }
    let late = first.answer(&claim, 2, &intent, Some(&value("one"))).await;
    assert_eq!(late.unwrap(), Written::Done);
    let other = second.answer(&taken, 2, &intent, Some(&value("two"))).await;
    assert_eq!(other.unwrap(), Written::Known(value("one")));
    let known = second.intend(&taken, 2, &intent, true).await;
    assert_eq!(known.unwrap(), Written::Known(value("one")));
}

#[tokio::test]
async fn a_list_removes_the_journals_of_messages_that_are_gone() {
    let scene = list_scene::Scene::new().await;
    let host = scene
        .host_with(ListOptions {
            journal: Some(Rules {
                bytes: 1 << 20,
                keep: Duration::ZERO,
            }),
            ..list_scene::options()
        })
        .await;
    let claims = scene.claim(&host, &["held", "back", "later", "gone"]).await;
    for claim in &claims {
        let wrote = host.intend(claim, 1, &record(Content::Intent), false).await;
        assert_eq!(wrote.unwrap(), Written::Done);
    }
    let later = Duration::from_secs(60);
    settled(&host, &claims[1], 1, requeue(1)).await;
    settled(&host, &claims[2], 1, park(1, later)).await;
    // By hand.
    let processing = list_scene::processing(host.instance());
    let entry = list_scene::entry(&claims[3]);
    scene
        .raw
        .ask_words(&[b"LREM", processing.as_bytes(), b"1", &entry])
        .await;
    let journals = async || {
        let keys = scene.raw.ask("KEYS {jobs}:journal:*").await;
        let mut keys: Vec<String> = redis::from_redis_value(keys).unwrap();
        keys.sort();
        keys
    };
    let of = |some: &[usize]| {
        let key = |at: &usize| format!("{{jobs}}:journal::{}", token(&claims[*at]));
        let mut keys: Vec<String> = some.iter().map(key).collect();
        keys.sort();
        keys
    };
    assert_eq!(journals().await, of(&[0, 1, 2, 3]));
    // Too many values to look at: nothing shows whose journals are left.
    scene.fill("RPUSH", KEY, 10_000).await;
    assert!(host.maintain().await.unwrap().journals_stay);
    assert_eq!(journals().await, of(&[0, 1, 2, 3]));
    scene.raw.ask(&format!("LREM {KEY} 0 x")).await;
    assert!(!host.maintain().await.unwrap().journals_stay);
    assert_eq!(journals().await, of(&[0, 1, 2]));
    for key in [KEY, list_scene::RETRY, list_scene::DELAYED, &processing] {
        scene.delete(key).await;
    }
    host.maintain().await.unwrap();
    assert!(journals().await.is_empty());
    assert!(!scene.exists("{jobs}:journals:").await);
}
