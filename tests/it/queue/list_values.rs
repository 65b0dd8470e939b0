//! The reliable list: raw values and readable envelopes.

use std::sync::Arc;

use hostler::dead_letter::{DeadLetters, Filter, ReplayOptions};
use hostler::queue::Origin;
use hostler::queue::list::ListOptions;
use hostler::wire::list::Framing;

use crate::queue::list_scene::{DEAD, KEY, RETRY, Scene, framed, options, value};
use crate::scene::{connector, dead_letter, fetch, orphaned, requeue, settled};

fn raw() -> ListOptions {
    ListOptions {
        framing: Framing::Raw,
        ..options()
    }
}

#[tokio::test]
async fn raw_values_stay_raw_and_their_requeues_go_first() {
    let scene = Scene::new().await;
    let host = scene.host_with(raw()).await;
    // It begins like a frame, but is a bare value.
    let odd: &[u8] = b"\0\0\0\0odd";
    scene.publish([odd, b"b", b"c"]).await;
    let claims = fetch(&host, 3).await;
    assert_eq!(claims[0].message.body, odd);
    settled(&host, &claims[0], 1, requeue(1)).await;
    settled(&host, &claims[1], 1, requeue(0)).await;
    assert_eq!(scene.list(KEY).await, [b"b".to_vec()]);
    assert_eq!(scene.list(RETRY).await.len(), 1);

    let again = fetch(&host, 9).await;
    assert_eq!(again.len(), 2);
    assert_eq!(again[0].message.body, odd);
    assert_eq!((again[0].origin, again[0].header), (Origin::Returned, 1));
    assert_eq!(again[0].message.id, claims[0].message.id);
    assert_eq!(again[1].message.body, "b");
    // Handed back, each goes where it came from.
    for claim in &again {
        let keep = claim.native.min(claim.header);
        settled(&host, claim, 1, requeue(keep)).await;
    }
    assert_eq!(scene.list(KEY).await, [b"b".to_vec()]);
    assert_eq!(scene.list(RETRY).await, [value(&again[0]).to_vec()]);

    // The value of a dead host carries its count in a frame, and is still read as it was.
    let heir = scene.host_with(raw()).await;
    scene.age(&host).await;
    let taken = orphaned(&heir, 9).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].message.body, "c");
    assert_eq!(taken[0].message.headers.retry_count(), 1);
    scene.age(&heir).await;
    let third = scene.host_with(raw()).await;
    let taken = orphaned(&third, 9).await;
    assert_eq!(taken[0].message.body, "c");
    settled(&third, &taken[0], 1, dead_letter()).await;
    let (_, payload) = framed(&scene.list(DEAD).await[0]);
    assert_eq!(payload, "c");
}

#[tokio::test]
async fn requeues_and_dead_letters_of_envelopes_are_envelopes() {
    let scene = Scene::new().await;
    let json = ListOptions {
        framing: Framing::Json,
        ..options()
    };
    let host = scene.host_with(json).await;
    let envelope = br#"{"headers":{"tenant":"7"},"payload":"{\"id\":1}"}"#;
    scene.publish([&envelope[..], b"neither"]).await;
    let claims = fetch(&host, 9).await;
    assert_eq!(claims[0].message.body, r#"{"id":1}"#);
    assert!(claims[1].defect.is_some());
    settled(&host, &claims[0], 1, requeue(1)).await;
    let list = scene.list(KEY).await;
    let json: serde_json::Value = serde_json::from_slice(&list[0]).unwrap();
    assert_eq!(json["payload"], r#"{"id":1}"#);
    assert_eq!(json["headers"]["tenant"], "7");
    assert_eq!(json["headers"]["x-retry-count"], "1");
    settled(&host, &claims[1], 1, dead_letter()).await;
    let dead: serde_json::Value = serde_json::from_slice(&scene.list(DEAD).await[0]).unwrap();
    assert_eq!(dead["payload"], "neither");
}

/// A raw value can have headers only in the retry list beside its own list. In any other list it is
/// the value that was published.
#[tokio::test]
async fn a_replayed_raw_value_arrives_in_another_list_as_it_was_published() {
    // It begins like a frame, but is a bare value.
    let odd: &[u8] = b"\0\0\0\0odd";
    for (to, arrives_at, is_home) in [
        (Some("elsewhere"), "elsewhere", false),
        (Some(KEY), RETRY, true),
        (Some(RETRY), RETRY, true),
        (None, RETRY, true),
    ] {
        let scene = Scene::new().await;
        let host = scene.host_with(raw()).await;
        scene.publish([odd]).await;
        let claim = Arc::new(fetch(&host, 1).await.remove(0));
        settled(&host, &claim, 1, dead_letter()).await;
        let letters = DeadLetters::new(&connector(&scene.url()), DEAD);
        let options = ReplayOptions {
            to: to.map(str::to_owned),
            ..ReplayOptions::default()
        };
        // A handler on trial gets the message that would arrive.
        let mut scan = letters.scan(Filter::default()).await.unwrap();
        let entry = scan.next().await.unwrap().unwrap().remove(0);
        let tried = letters.replayed(&entry, to, 1).message;
        assert_eq!(tried.body, odd);
        assert_eq!(tried.headers.find("x-replayed").is_some(), is_home);

        let report = letters
            .replay_all(Filter::default(), options)
            .await
            .unwrap();
        assert_eq!(report.targets, [(arrives_at.to_owned(), 1)].into());
        let arrived = scene.list(arrives_at).await;
        assert_eq!(arrived.len(), 1);
        if !is_home {
            assert_eq!(arrived[0], odd);
            continue;
        }
        assert_eq!(framed(&arrived[0]).1, odd);
        // And its own hosts read it whole.
        let again = fetch(&host, 9).await;
        assert_eq!(again[0].message.body, odd);
        assert_eq!(again[0].message.id, claim.message.id);
        assert_eq!(again[0].message.headers.find_str("x-replayed"), Some("1"));
    }
}
