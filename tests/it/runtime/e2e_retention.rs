//! Retention of a stream, and entries that were trimmed while they were pending.

use hostler_tests::redis::eventually;
use serde_json::json;

use crate::runtime::e2e_scene::Scene;

const TRIMMED: &str = "hostler_retention_trimmed_total";
const LOST: &str = "hostler_trimmed_pending_total";

#[tokio::test]
async fn no_entry_is_trimmed_by_default() {
    let mut scene = Scene::new().await;
    scene.publish_all("ack", 500).await;
    scene.host().finish().await;
    assert_eq!(scene.raw.number("XLEN orders").await, 500);
}

#[tokio::test]
async fn acked_trims_behind_the_slowest_group() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("ack", 300).await;
    scene.raw.ask("XGROUP CREATE orders slow 0").await;
    let host = scene
        .host()
        .flag("retention", "acked")
        .admin()
        .ready()
        .await;
    host.starts(300).await;
    // The other group reads half of it, and holds one of those for longer.
    let slow = scene.host().flags("group=slow concurrency=1");
    scene
        .raw
        .ask("XREADGROUP GROUP slow somebody COUNT 150 STREAMS orders >")
        .await;
    for id in ids[..150].iter().filter(|id| **id != ids[100]) {
        scene.raw.ask(&format!("XACK orders slow {id}")).await;
    }
    eventually(
        "entries that both groups have done are trimmed",
        async || scene.raw.number("XLEN orders").await == 200,
    )
    .await;
    eventually("it is counted", async || host.metric(TRIMMED) == 100).await;
    let oldest = scene.raw.entries("orders").await.remove(0).0;
    assert_eq!(oldest, ids[100], "pending entries are kept");
    scene
        .raw
        .ask(&format!("XACK orders slow {}", ids[100]))
        .await;
    eventually("the entries behind it are trimmed", async || {
        scene.raw.number("XLEN orders").await == 150
    })
    .await;
    slow.finish().await;
    eventually("all is trimmed", async || {
        scene.raw.number("XLEN orders").await == 0
    })
    .await;
    eventually("it is counted", async || host.metric(TRIMMED) == 300).await;
    assert_eq!(host.metric(LOST), 0);
    // An empty stream is still the queue.
    let late = scene.publish("ack").await;
    eventually("it goes on", async || host.witness().starts(&late) == 1).await;
    host.drained().await;
}

#[tokio::test]
async fn maxlen_trims_only_entries_that_are_done() {
    let mut scene = Scene::new().await;
    let host = scene
        .host()
        .flag("retention", "maxlen:100")
        .admin()
        .ready()
        .await;
    let pinned = scene.publish("nack:3600000").await;
    scene.publish_all("ack", 899).await;
    host.starts(900).await;
    host.logs("the queue is longer than its retention says")
        .await;
    assert_eq!(
        scene.raw.number("XLEN orders").await,
        900,
        "pending entries are kept"
    );
    scene
        .raw
        .ask(&format!("XACK orders workers {pinned}"))
        .await;
    // Approximate: whole nodes of 100 entries.
    eventually("it is trimmed", async || {
        (100..=200).contains(&scene.raw.number("XLEN orders").await)
    })
    .await;
    host.logs_times("the queue is longer than its retention says", 1)
        .await;
    let left = scene.raw.number("XLEN orders").await;
    eventually("it is counted", async || {
        i64::try_from(host.metric(TRIMMED)).unwrap() == 900 - left
    })
    .await;
    assert_eq!(host.metric(LOST), 0);
    host.drained().await;
}

#[tokio::test]
async fn entries_trimmed_while_they_are_pending_are_logged_and_counted() {
    let mut scene = Scene::new().await;
    let options = scene.host().cap(3).flags("min-idle=3s timeout=1m").admin();
    // Held by a host that is gone, parked, and running.
    let orphan = scene.publish("ack").await;
    scene.raw.ask("XGROUP CREATE orders workers 0").await;
    scene
        .raw
        .ask("XREADGROUP GROUP workers gone COUNT 1 STREAMS orders >")
        .await;
    let parked = scene.publish("nack:6000,ack").await;
    let nacks = scene.publish("sleep:6000+nack:0,ack").await;
    let delays = scene.publish("sleep:6000+nack:10,ack").await;
    let drops = scene.publish("sleep:6000+drop:gone").await;
    let acks = scene.publish("sleep:6000").await;
    scene.raw.ask(&format!("XDEL orders {orphan}")).await;
    let host = options.ready().await;
    host.starts(5).await;
    eventually("one is parked", async || {
        scene.look().await.parked.len() == 1
    })
    .await;
    scene.raw.ask("XTRIM orders MAXLEN 0").await;
    scene.emptied().await;
    eventually("all are counted", async || host.metric(LOST) == 5).await;
    let ended = host.drained().await;
    let witness = ended.witness();
    assert_eq!(witness.starts(&orphan), 0);
    for id in [&parked, &nacks, &delays, &drops, &acks] {
        assert_eq!(witness.attempts(id), [1], "{id}");
    }
    let logged: usize = ended
        .log
        .iter()
        .filter(|line| line.message().starts_with("lost to trimming"))
        .map(|line| {
            line.number("entries")
                .map_or(1, |n| usize::try_from(n).unwrap())
        })
        .sum();
    // Lost are the orphan, the parked message, and the three messages whose settlement found no
    // entry. The metric counts all five. Lines of one kind are at least a second apart.
    assert!((2..=5).contains(&logged), "{logged}: {}", ended.stderr());
    assert_eq!(ended.json()["acked"], 1);
    assert_eq!(ended.json()["dead_lettered"], json!({}));
}

#[tokio::test]
async fn retention_that_is_far_behind_goes_on_at_once_and_says_so() {
    for retention in ["acked", "maxlen:1000"] {
        let scene = Scene::new().await;
        scene
            .raw
            .ask("XGROUP CREATE orders workers 0 MKSTREAM")
            .await;
        let add = "for _ = 1, 20000 do redis.call('XADD', KEYS[1], '*', '_payload', 'x') end";
        for _ in 0..15 {
            let words = ["EVAL", add, "1", "orders"].map(str::as_bytes);
            scene.raw.ask_words(&words).await;
        }
        // All of them are acknowledged.
        scene.raw.ask("XGROUP SETID orders workers $").await;
        let host = scene.host().flag("retention", retention).admin();
        let host = host.ready().await;
        // By one go in five seconds this takes two and a half minutes.
        eventually("all is trimmed", async || {
            scene.raw.number("XLEN orders").await <= 1100
        })
        .await;
        host.logs("housekeeping has more to do than one go may")
            .await;
        let unfinished = r#"hostler_housekeeping_unfinished_total{sweep="retention"}"#;
        assert!(host.metric(unfinished) > 0);
        host.drained().await;
    }
}
