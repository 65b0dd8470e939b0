//! The reliable list: what claims, waiting and acknowledgements do to its keys.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::queue::list::ListQueue;
use hostler::queue::{Backlog, Origin, Queue, Reply};

use crate::list_scene::{
    CLAIMS, DELAYED, KEY, Scene, entry, options, record, recovering, settle, token,
};
use crate::queue_scene::{connector, is_refused, park};
use hostler_tests::redis::eventually;

#[tokio::test]
async fn a_claim_moves_values_to_the_processing_list_and_records_them() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let other = scene.recovering().await;
    assert_ne!(host.instance(), other.instance());
    scene.push(&[b"a", b"same", b"same", b"d"]).await;

    let claims = host.fetch(3, Duration::ZERO).await.unwrap();
    let bodies: Vec<_> = claims.iter().map(|c| &c.message.body[..]).collect();
    assert_eq!(bodies, [&b"a"[..], b"same", b"same"]);
    let ids: HashSet<_> = claims.iter().map(|c| c.id).collect();
    assert_eq!(ids.len(), 3);
    assert!(claims.iter().all(|c| c.origin == Origin::Fresh));
    assert_eq!(&*claims[0].message.id, token(&claims[0]));
    assert_eq!(&*claims[0].message.queue, KEY);
    let mut held = scene.processing(&host).await;
    held.reverse();
    assert_eq!(held, claims.iter().map(entry).collect::<Vec<_>>());
    for claim in &claims {
        let member = [host.instance().as_bytes(), &claim.id.0.to_be_bytes()].concat();
        let words = [b"ZSCORE", CLAIMS.as_bytes(), &member];
        let score: f64 = redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap();
        assert!((scene.now_ms().await as f64 - score).abs() < 20_000.0);
    }

    assert_eq!(other.fetch(9, Duration::ZERO).await.unwrap().len(), 1);
    assert!(other.fetch(9, Duration::ZERO).await.unwrap().is_empty());
    assert!(
        host.fetch(0, Duration::from_secs(9))
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test]
async fn an_acknowledged_entry_leaves_and_its_twin_stays() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let host = scene.host_with(options).await;
        let claims = scene.claim(&host, &["same", "same", "same"]).await;
        assert_eq!(record(&host, &claims[1], 1, 2).await, Reply::Done);
        host.acknowledge(&claims[1..2]).await.unwrap();
        let held = scene.processing(&host).await;
        assert_eq!(held, [entry(&claims[2]), entry(&claims[0])]);
        assert_eq!(scene.mark(&host, &claims[1]).await, None);
        // Again, after a lost reply.
        host.acknowledge(&claims).await.unwrap();
        assert_eq!(scene.raw.number(&format!("EXISTS {CLAIMS} {KEY}")).await, 0);
        assert_eq!(host.backlog().await.unwrap(), Backlog::default());
        host.leave().await.unwrap();
        assert!(scene.raw.number("DBSIZE").await == 0);
    }
}

#[tokio::test]
async fn a_thousand_values_and_large_ones_are_claimed_in_bounded_batches() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let numbers: Vec<String> = (0..1500).map(|n| n.to_string()).collect();
    let values: Vec<&[u8]> = numbers.iter().map(|n| n.as_bytes()).collect();
    scene.push(&values).await;
    let mut claimed = Vec::new();
    while claimed.len() < values.len() {
        let claims = host.fetch(1024, Duration::ZERO).await.unwrap();
        assert!(!claims.is_empty());
        claimed.extend(claims.into_iter().map(Arc::new));
    }
    let bodies: Vec<_> = claimed.iter().map(|c| c.message.body.to_vec()).collect();
    assert_eq!(bodies, values);
    assert_eq!(host.renew(&claimed).await.unwrap(), vec![Reply::Done; 1500]);
    host.acknowledge(&claimed).await.unwrap();

    // A script stops after 4 MiB.
    let large = vec![b'x'; 1 << 20];
    scene.push(&[&large[..]; 9]).await;
    let first = host.fetch(9, Duration::ZERO).await.unwrap();
    assert!((4..9).contains(&first.len()), "{}", first.len());
    assert_eq!(scene.list(KEY).await.len(), 9 - first.len());
}

#[tokio::test]
async fn a_waiting_fetch_wakes_for_a_value_and_for_an_interruption() {
    let scene = Scene::new().await;
    let host = Arc::new(scene.host().await);
    let long = Duration::from_secs(15);
    let waiting = |host: &Arc<ListQueue>| {
        let host = Arc::clone(host);
        tokio::spawn(async move { host.fetch(5, long).await })
    };
    let begun = Instant::now();
    let fetch = waiting(&host);
    blocked(&scene).await;
    scene.push(&[b"a"]).await;
    assert_eq!(fetch.await.unwrap().unwrap().len(), 1);
    let fetch = waiting(&host);
    blocked(&scene).await;
    host.interrupt().await.unwrap();
    assert!(fetch.await.unwrap().unwrap().is_empty());
    assert!(begun.elapsed() < long);

    // A waiter that claims nothing leaves the value where it is, and the others wake.
    let fetches = [waiting(&host), {
        let other = Arc::new(scene.host().await);
        waiting(&other)
    }];
    eventually("two wait", || async { clients_blocked(&scene).await == 2 }).await;
    scene.push(&[b"b", b"c"]).await;
    let mut all = 0;
    for fetch in fetches {
        all += fetch.await.unwrap().unwrap().len();
        if all == 2 {
            break;
        }
    }
    assert_eq!(all, 2);
}

async fn blocked(scene: &Scene) {
    eventually("the fetch waits", || async {
        clients_blocked(scene).await == 1
    })
    .await;
}

async fn clients_blocked(scene: &Scene) -> usize {
    let info = scene.raw.text("INFO clients").await;
    let line = info.lines().find(|l| l.starts_with("blocked_clients:"));
    line.unwrap()
        .trim_start_matches("blocked_clients:")
        .trim()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn where_waiting_is_refused_a_host_polls() {
    let scene = Scene::new().await;
    scene
        .raw
        .ask("ACL SETUSER poor on >pw ~* +@all -blmove")
        .await;
    let url = scene.server.url().replace("unix://", "unix:");
    let url = format!("{url}?user=poor&pass=pw").replace("unix:", "unix://");
    let host = Arc::new(ListQueue::open(connector(&url), options()).await.unwrap());
    let fetch = tokio::spawn({
        let host = Arc::clone(&host);
        async move { host.fetch(5, Duration::from_secs(15)).await }
    });
    eventually("it was refused", || async {
        scene
            .raw
            .text("INFO commandstats")
            .await
            .contains("cmdstat_blmove:calls=0")
    })
    .await;
    scene.push(&[b"a"]).await;
    assert_eq!(fetch.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_server_that_takes_no_writes_fails_the_probe() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    host.probe().await.unwrap();
    let keys = scene.raw.number("DBSIZE").await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = host.probe().await.unwrap_err();
    assert_eq!(error.code(), "READONLY");
    scene.raw.ask("REPLICAOF NO ONE").await;
    host.probe().await.unwrap();
    assert_eq!(scene.raw.number("DBSIZE").await, keys);
}

#[tokio::test]
async fn a_key_of_another_type_costs_nothing() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    scene.push(&[b"a", b"b"]).await;
    for key in [
        CLAIMS.to_owned(),
        format!("{{jobs}}:processing:{}", host.instance()),
    ] {
        scene.raw.ask(&format!("SET {key} x")).await;
        let error = host.fetch(9, Duration::ZERO).await.unwrap_err();
        assert!(error.to_string().contains("WRONGTYPE"), "{error}");
        assert_eq!(scene.list(KEY).await.len(), 2);
        scene.raw.ask(&format!("DEL {key}")).await;
    }
    let claims = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    scene.raw.ask(&format!("SET {DELAYED} x")).await;
    let later = Duration::from_secs(9);
    assert!(is_refused(
        &settle(&host, &claims[0], 1, park(1, later)).await
    ));
    assert_eq!(scene.processing(&host).await.len(), 2);
    scene.raw.ask(&format!("DEL {DELAYED}")).await;
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, later)).await,
        Reply::Done
    );
}
