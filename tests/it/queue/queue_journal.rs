//! The journal of a delivery, as its scripts keep it.

use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::journal::{Content, Record};
use hostler::queue::Queue;
use hostler::queue::journal::{Rules, Written};
use hostler::queue::stream::StreamOptions;
use hostler::wire::journal::encode;

use crate::queue::queue_scene::{Scene, options};
use crate::scene::orphaned;

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
