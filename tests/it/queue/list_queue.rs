//! The reliable list: the effect of claims, waiting and acknowledgements on its keys.

use std::collections::HashSet;
use std::time::Duration;

use hostler::queue::list::ListQueue;
use hostler::queue::{Origin, Queue, Reply};
use hostler_tests::redis::eventually;

use crate::queue::list_scene::{
    CLAIMS, DELAYED, KEY, Scene, both, entry, options, processing, token,
};
use crate::scene::{bodies, connector, fetch, is_empty, park, recorded, refused, settled, user};

#[tokio::test]
async fn a_claim_moves_values_to_the_processing_list_and_records_them() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let other = scene.recovering().await;
    assert_ne!(host.instance(), other.instance());
    scene.publish(["a", "same", "same", "d"]).await;

    let claims = fetch(&host, 3).await;
    assert_eq!(bodies(&claims), ["a", "same", "same"]);
    let ids: HashSet<_> = claims.iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(claims.iter().all(|c| c.origin == Origin::Fresh));
    assert_eq!(&*claims[0].message.id, token(&claims[0]));
    assert_eq!(&*claims[0].message.queue, KEY);
    let mut held = scene.processing(&host).await;
    held.reverse();
    assert_eq!(held, claims.iter().map(|c| entry(c)).collect::<Vec<_>>());
    for claim in &claims {
        let member = [host.instance().as_bytes(), &claim.id.0.to_be_bytes()].concat();
        let words = [b"ZSCORE", CLAIMS.as_bytes(), &member];
        let score: f64 = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
        assert!((scene.now_ms().await as f64 - score).abs() < 20_000.0);
    }

    assert_eq!(fetch(&other, 9).await.len(), 1);
    assert!(fetch(&other, 9).await.is_empty());
    let none = host.fetch(0, Duration::from_secs(9)).await;
    assert!(none.unwrap().is_empty());
}

#[tokio::test]
async fn an_acknowledgement_removes_one_of_several_equal_values() {
    for options in both() {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["same", "same", "same"]).await;
        assert_eq!(recorded(&host, &claims[1], 1, 2).await, Reply::Done);
        host.acknowledge(&claims[1..2]).await.unwrap();
        let held = scene.processing(&host).await;
        assert_eq!(held, [entry(&claims[2]), entry(&claims[0])]);
        assert_eq!(scene.mark(&host, &claims[1]).await, None);
        // Again, after a lost reply.
        host.acknowledge(&claims).await.unwrap();
        assert_eq!(scene.recorded_claims().await, 0);
        assert!(!scene.exists(KEY).await);
        assert!(is_empty(&host).await);
        host.leave().await.unwrap();
        assert_eq!(scene.keys().await, 0);
    }
}

#[tokio::test]
async fn a_thousand_values_and_large_ones_are_claimed_in_bounded_batches() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let values: Vec<String> = (0..1500).map(|n| n.to_string()).collect();
    scene.publish(&values).await;
    let mut claimed = Vec::new();
    while claimed.len() < values.len() {
        let claims = fetch(&host, 1024).await;
        assert!(!claims.is_empty());
        claimed.extend(claims);
    }
    assert_eq!(bodies(&claimed), values);
    assert_eq!(host.renew(&claimed).await.unwrap(), vec![Reply::Done; 1500]);
    host.acknowledge(&claimed).await.unwrap();

    // A script stops after some bytes, at most 4 MiB and one value.
    scene.publish(vec![vec![b'x'; 1 << 20]; 9]).await;
    let first = fetch(&host, 9).await.len();
    assert!((1..=5).contains(&first), "{first}");
    assert_eq!(scene.list(KEY).await.len(), 9 - first);
}

#[tokio::test]
async fn a_host_polls_where_it_may_not_wait() {
    let scene = Scene::with(user("-blmove")).await;
    let host = ListQueue::open(connector(&scene.user_url()), options()).await;
    let host = host.unwrap();
    let fetch = tokio::spawn(async move { host.fetch(5, Duration::from_secs(60)).await });
    eventually("waiting is refused", async || {
        let stats = scene.raw.text("INFO commandstats").await;
        stats.contains("cmdstat_blmove:calls=0")
    })
    .await;
    scene.publish(["a"]).await;
    assert_eq!(fetch.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_of_another_type_loses_no_message() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    scene.publish(["a", "b"]).await;
    for key in [CLAIMS.to_owned(), processing(host.instance())] {
        scene.obstruct(&key).await;
        let error = host.fetch(9, Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(scene.list(KEY).await.len(), 2);
        scene.delete(&key).await;
    }
    let claims = fetch(&host, 9).await;
    scene.obstruct(DELAYED).await;
    let later = Duration::from_secs(9);
    refused(&host, &claims[0], 1, park(1, later)).await;
    assert_eq!(scene.processing(&host).await.len(), 2);
    scene.delete(DELAYED).await;
    settled(&host, &claims[0], 1, park(1, later)).await;
}
