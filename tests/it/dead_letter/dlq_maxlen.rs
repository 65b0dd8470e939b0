//! The length limit of streams: their entries stay, ids can be missing, and there are groups.

use hostler::queue::Queue;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler_tests::redis::eventually;

use crate::dead_letter::dlq_scene::{Kind, Scene, three};
use crate::scene::DEAD;

fn at_most(length: u64) -> StreamOptions {
    StreamOptions {
        max_length: Some(length),
        dead_letter: Some(DeadLetterQueue::new(DEAD)),
        ..StreamOptions::new("orders", "workers")
    }
}

async fn open(scene: &Scene, options: StreamOptions) -> StreamQueue {
    StreamQueue::open(scene.connector(), options).await.unwrap()
}

/// Housekeeping writes no dead letter: why.
async fn why_refused(queue: &StreamQueue) -> String {
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.overflows), (0, false));
    done.dead_letters_refused.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_entries_that_were_deleted_are_not_counted() {
    let scene = Scene::new(Kind::Stream).await;
    for _ in 0..500 {
        scene.send("ack").await;
    }
    // One entry deleted before it was read: Redis does not know any more how many are unread.
    let first = scene.raw.entries("orders").await[250].0.clone();
    scene.raw.ask(&format!("XDEL orders {first}")).await;
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(open(&scene, at_most(100)).await);
    }
    let cut = futures_util::future::join_all(hosts.iter().map(Queue::maintain));
    let cut: u64 = cut
        .await
        .into_iter()
        .map(|done| done.unwrap().overflowed)
        .sum();
    assert_eq!(cut, 399);
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 399);
}

/// After a failover, and after `XGROUP SETID`, Redis may say that everything is unread.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_lag_dead_letters_nothing() {
    let scene = Scene::new(Kind::Stream).await;
    for _ in 0..1000 {
        scene.send("ack").await;
    }
    let queue = open(&scene, at_most(100)).await;
    let read = "XGROUP SETID orders workers $ ENTRIESREAD 0";
    scene.raw.ask(read).await;
    for _ in 0..90 {
        scene.send("ack").await;
    }
    assert_eq!(queue.maintain().await.unwrap().overflowed, 0);
    assert!(!scene.exists(DEAD).await);
    for _ in 0..12 {
        scene.send("ack").await;
    }
    // A host whose count took long on a busy machine, and found nothing over the length, counts again later.
    let over = async || {
        let mut done = queue.maintain().await.unwrap();
        eventually("some are over the length", async || {
            if done.overflowed == 0 {
                done = queue.maintain().await.unwrap();
            }
            done.overflowed > 0
        })
        .await;
        (done.overflowed, done.overflows)
    };
    assert_eq!(over().await, (2, false));
    // A lag that is too small hides nothing.
    scene
        .raw
        .ask("XGROUP SETID orders workers 0 ENTRIESREAD 1102")
        .await;
    assert_eq!(over().await.0, 1002);
}

/// More than one script counts them: by number, and by size.
#[tokio::test(flavor = "multi_thread")]
async fn a_length_of_thousands_and_large_entries_are_counted_in_steps() {
    let scene = Scene::new(Kind::Stream).await;
    let fill = |count: usize, size: usize| {
        let add = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', '_payload', string.rep('x', ARGV[2])) end";
        let words = ["EVAL", add, "1", "orders"].map(str::to_owned);
        let mut words = words.to_vec();
        words.extend([count.to_string(), size.to_string()]);
        words
    };
    let ask = async |words: Vec<String>| {
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        scene.raw.ask_words(&words).await;
    };
    ask(fill(2600, 1)).await;
    ask(fill(20, 600_000)).await;
    let queue = open(&scene, at_most(2500)).await;
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.overflows), (120, false));
    assert_eq!(queue.maintain().await.unwrap().overflowed, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_over_the_length_stay_unread_while_redis_has_no_memory() {
    let scene = Scene::new(Kind::Stream).await;
    for _ in 0..150 {
        scene.send("ack").await;
    }
    let queue = open(&scene, at_most(20)).await;
    scene.out_of_memory(true).await;
    let why = why_refused(&queue).await;
    assert!(why.contains("OOM"), "{why}");
    scene.out_of_memory(false).await;
    let pending = scene.raw.pending("orders", "workers").await;
    assert!(pending.is_empty(), "nothing is claimed");
    assert_eq!(queue.maintain().await.unwrap().overflowed, 130);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_messages_over_the_length_are_handed_back_without_a_charge() {
    let scene = Scene::new(Kind::Stream).await;
    // They would cycle for ever, and the key where cycles end cannot be written.
    let death = r#"[{"queue":"orders:dead","reason":"malformed","unrejected":true}]"#;
    let headers = [("x-death", death)];
    let put = || scene.put("orders", "ack", &headers);
    scene.raw.ask("SET {orders}:cycle x").await;
    for _ in 0..5 {
        put().await;
    }
    let queue = open(&scene, at_most(2)).await;
    let why = why_refused(&queue).await;
    assert!(why.contains("WRONGTYPE"), "{why}");
    let parked = scene.raw.pending("orders", "workers").await;
    assert_eq!(parked.len(), 3);
    for parked in &parked {
        assert_eq!((&*parked.consumer, parked.count), ("hostler:parked", 0));
    }
    // While it is refused, each try takes one message only.
    for _ in 0..5 {
        put().await;
    }
    why_refused(&queue).await;
    assert_eq!(scene.raw.pending("orders", "workers").await.len(), 4);
    scene.raw.ask("DEL {orders}:cycle").await;
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.cycles), (4, 0));
    assert_eq!(queue.maintain().await.unwrap().cycles, 4);
    assert_eq!(scene.raw.number("XLEN {orders}:cycle").await, 4);

    scene.serve(scene.own(), three()).await;
    let starts = scene.script.starts();
    assert_eq!(starts.len(), 6);
    assert!(
        starts.iter().all(|(_, attempt)| *attempt == 1),
        "{starts:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_another_group_is_no_dead_letter_of_this_group() {
    let scene = Scene::new(Kind::Stream).await;
    for group in ["others", "others", "others", "workers"] {
        let headers = [
            ("x-only-group", group),
            ("x-dead-letter-group", group),
            ("x-replayed", "1"),
        ];
        scene.put("orders", "ack", &headers).await;
    }
    for _ in 0..4 {
        scene.send("ack").await;
    }
    let queue = open(&scene, at_most(2)).await;
    let done = queue.maintain().await.unwrap();
    assert_eq!((done.other_group, done.overflowed), (3, 3));
    assert_eq!(scene.raw.number(&format!("XLEN {DEAD}")).await, 3);
    assert!(scene.raw.pending("orders", "workers").await.is_empty());
    assert_eq!(scene.raw.number("XLEN orders").await, 8, "never trimmed");
}
