//! The reliable list: raw values and readable envelopes.

use std::sync::Arc;
use std::time::Duration;

use hostler::dead_letter::{DeadLetters, Filter, ReplayOptions};
use hostler::queue::list::ListOptions;
use hostler::queue::{Origin, Queue, Reply};
use hostler::wire::list::Framing;

use crate::list_scene::{DEAD, KEY, RETRY, Scene, framed, options, orphans, settle, value};
use crate::queue_scene::{connector, dead_letter, park};

#[tokio::test]
async fn raw_values_stay_raw_and_their_requeues_go_first() {
    let scene = Scene::new().await;
    let raw = |options: ListOptions| ListOptions {
        framing: Framing::Raw,
        ..options
    };
    let host = scene.host_with(raw(options())).await;
    // It looks like a frame, and is none.
    let odd: &[u8] = b"\0\0\0\0odd";
    scene.push(&[odd, b"b", b"c"]).await;
    let claims: Vec<_> = host.fetch(3, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    assert_eq!(claims[0].message.body, odd);
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Done
    );
    assert_eq!(
        settle(&host, &claims[1], 1, park(0, Duration::ZERO)).await,
        Reply::Done
    );
    assert_eq!(scene.list(KEY).await, [b"b".to_vec()]);
    assert_eq!(scene.list(RETRY).await.len(), 1);

    let again: Vec<_> = host.fetch(9, Duration::ZERO).await.unwrap();
    let again: Vec<_> = again.into_iter().map(Arc::new).collect();
    assert_eq!(again.len(), 2);
    assert_eq!(again[0].message.body, odd);
    assert_eq!((again[0].origin, again[0].header), (Origin::Returned, 1));
    assert_eq!(again[0].message.id, claims[0].message.id);
    assert_eq!(again[1].message.body, "b");
    // Handed back, each goes where it came from.
    for claim in &again {
        let keep = claim.native.min(claim.header);
        assert_eq!(
            settle(&host, claim, 1, park(keep, Duration::ZERO)).await,
            Reply::Done
        );
    }
    assert_eq!(scene.list(KEY).await, [b"b".to_vec()]);
    assert_eq!(scene.list(RETRY).await, [value(&again[0]).to_vec()]);

    // What a dead host left carries its count, framed, and is still read as it was.
    let heir = scene.host_with(raw(options())).await;
    scene.age(&host).await;
    let taken = orphans(&heir, 9).await;
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].message.body, "c");
    assert_eq!(taken[0].message.headers.retry_count(), 1);
    scene.age(&heir).await;
    let third = scene.host_with(raw(options())).await;
    let taken = orphans(&third, 9).await;
    assert_eq!(taken[0].message.body, "c");
    assert_eq!(
        settle(&third, &taken[0], 1, dead_letter()).await,
        Reply::Done
    );
    let (_, payload) = framed(&scene.list(DEAD).await[0]);
    assert_eq!(payload, "c");
}

#[tokio::test]
async fn envelopes_are_answered_with_envelopes() {
    let scene = Scene::new().await;
    let host = scene
        .host_with(ListOptions {
            framing: Framing::Json,
            ..options()
        })
        .await;
    let envelope = br#"{"headers":{"tenant":"7"},"payload":"{\"id\":1}"}"#;
    scene.push(&[envelope, b"neither"]).await;
    let claims: Vec<_> = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    assert_eq!(claims[0].message.body, r#"{"id":1}"#);
    assert!(claims[1].defect.is_some());
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Done
    );
    let list = scene.list(KEY).await;
    let json: serde_json::Value = serde_json::from_slice(&list[0]).unwrap();
    assert_eq!(json["payload"], r#"{"id":1}"#);
    assert_eq!(json["headers"]["tenant"], "7");
    assert_eq!(json["headers"]["x-retry-count"], "1");
    assert_eq!(
        settle(&host, &claims[1], 1, dead_letter()).await,
        Reply::Done
    );
    let dead: serde_json::Value = serde_json::from_slice(&scene.list(DEAD).await[0]).unwrap();
    assert_eq!(dead["payload"], "neither");
}

/// What was raw has its headers beside its own list only: in any other list it is what was published.
#[tokio::test]
async fn dead_letters_of_raw_values_arrive_elsewhere_as_they_were_published() {
    let raw = || ListOptions {
        framing: Framing::Raw,
        ..options()
    };
    // It looks like a frame, and is none.
    let odd: &[u8] = b"\0\0\0\0odd";
    for (to, arrives_at, is_home) in [
        (Some("elsewhere"), "elsewhere", false),
        (Some(KEY), RETRY, true),
        (Some(RETRY), RETRY, true),
        (None, RETRY, true),
    ] {
        let scene = Scene::new().await;
        let host = scene.host_with(raw()).await;
        scene.push(&[odd]).await;
        let claim = Arc::new(host.fetch(1, Duration::ZERO).await.unwrap().remove(0));
        assert_eq!(settle(&host, &claim, 1, dead_letter()).await, Reply::Done);
        let letters = DeadLetters::new(&connector(&scene.server.url()), DEAD);
        let options = ReplayOptions {
            to: to.map(str::to_owned),
            ..ReplayOptions::default()
        };
        // A handler on trial is given what would arrive.
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
        let again = host.fetch(9, Duration::ZERO).await.unwrap();
        assert_eq!(again[0].message.body, odd);
        assert_eq!(again[0].message.id, claim.message.id);
        assert_eq!(again[0].message.headers.find_str("x-replayed"), Some("1"));
    }
}
