//! Duplicates: after a handler's ack, another message with the same id is acknowledged without a run.

use hostler::delivery::message::Headers;
use hostler::wire::frame;
use hostler_tests::checker::DeadLetter;
use hostler_tests::command;
use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::skew::Skewed;

use crate::scene::{self, Kind, on_both};

type Scene = scene::Scene<()>;

on_both! {
    a_duplicate_is_acknowledged_without_a_run
    a_duplicate_that_was_handled_since_the_claim_does_not_start
    only_an_ack_of_the_handler_is_remembered
    of_two_duplicates_that_run_at_once_one_has_effects
    a_full_memory_of_ids_says_so_and_loses_nothing
    acks_that_only_mark_pass_without_memory
    an_id_is_forgotten_after_the_window
    an_id_stays_known_when_the_clock_of_the_server_is_set_back
    marks_of_a_clock_that_was_ahead_go_after_a_window
}

fn host(scene: &Scene, kind: Kind) -> HostOptions {
    let options = HostOptions::new(&scene.server)
        .flags("dead-letter=orders:dead max-deliveries=2 backoff-first=5ms")
        .flags("dedup-window=1h dedup-key=order");
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true recovery-zset=orders:claims"),
    }
}

/// Publish a message about an order, whose handler does this.
async fn publish(scene: &Scene, kind: Kind, order: &str, body: &str) {
    match kind {
        Kind::Stream => {
            let words: [&[u8]; 7] = [
                b"XADD",
                b"orders",
                b"*",
                b"_payload",
                body.as_bytes(),
                b"h:order",
                order.as_bytes(),
            ];
            scene.raw.ask_words(&words).await;
        }
        Kind::List => {
            let mut headers = Headers::default();
            headers.push("order", order.to_owned());
            scene
                .push("orders", &frame::encode(&headers, body.as_bytes()).unwrap())
                .await;
        }
    }
}

async fn a_duplicate_is_acknowledged_without_a_run(kind: Kind) {
    let scene = Scene::new().await;
    for (order, body) in [("1", "ack"), ("2", "ack")] {
        publish(&scene, kind, order, body).await;
    }
    let first = host(&scene, kind).finish().await;
    assert_eq!(first.json()["attempts"], 2);
    // Another host, and messages without the header, which are never duplicates.
    for order in ["1", "3", "2", "1"] {
        publish(&scene, kind, order, "ack").await;
    }
    let plain: &[u8] = b"ack";
    for _ in 0..2 {
        match kind {
            Kind::Stream => drop(scene.raw.add("orders", "ack").await),
            Kind::List => scene.push("orders", plain).await,
        }
    }
    let host = host(&scene, kind).admin().ready().await;
    eventually("all are acknowledged", async || {
        host.metric("hostler_duplicates_total") == 3 && host.witness().total() == 3
    })
    .await;
    assert_eq!(host.drain().await.expect_code(0).json()["attempts"], 3);
}

/// A message may wait for its start long after duplicates of it were looked for.
async fn a_duplicate_that_was_handled_since_the_claim_does_not_start(kind: Kind) {
    let scene = Scene::new().await;
    let first = host(&scene, kind).flags("concurrency=1 timeout=1h").admin();
    let first = first.ready().await;
    publish(&scene, kind, "1", "nack:2000,ack").await;
    first.starts(1).await;
    publish(&scene, kind, "2", "sleep:8000").await;
    first.starts(2).await;
    eventually("it waits here for its second start", async || {
        first.metric("hostler_held") == 2
    })
    .await;
    let second = host(&scene, kind).ready().await;
    publish(&scene, kind, "1", "ack").await;
    second.starts(1).await;
    eventually("the first host finds it out", async || {
        first.metric("hostler_duplicates_total") == 1
    })
    .await;
    assert_eq!(first.drain().await.expect_code(0).json()["attempts"], 2);
    assert_eq!(second.drain().await.expect_code(0).json()["attempts"], 1);
}

async fn only_an_ack_of_the_handler_is_remembered(kind: Kind) {
    let scene = Scene::new().await;
    for body in ["drop:no", "nack", "trap"] {
        publish(&scene, kind, "1", body).await;
    }
    let ended = host(&scene, kind).finish().await;
    assert_eq!(ended.json()["attempts"], 1 + 2 + 2);
    // A dead letter runs when it is replayed.
    publish(&scene, kind, "1", "ack").await;
    publish(&scene, kind, "1", "ack").await;
    let ended = host(&scene, kind).flag("concurrency", "1").finish().await;
    assert_eq!(ended.json()["attempts"], 1);
}

async fn of_two_duplicates_that_run_at_once_one_has_effects(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind)
        .flag("handler", &guest("publishing").display().to_string())
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .admin();
    let host = options.ready().await;
    for _ in 0..4 {
        publish(&scene, kind, "1", "sleep:500+publish:invoices:x").await;
    }
    eventually("three are found", async || {
        host.metric("hostler_duplicates_total") == 3 && host.metric("hostler_published_total") > 0
    })
    .await;
    assert_eq!(DeadLetter::all(&scene.raw, "invoices").await.len(), 1);
    // Publishes that did not happen are not counted.
    assert_eq!(host.metric("hostler_published_total"), 1);
    assert_eq!(host.metric("hostler_effects_void_total"), 0);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn groups_of_one_stream_remember_apart() {
    let scene = Scene::new().await;
    publish(&scene, Kind::Stream, "1", "ack").await;
    for group in ["workers", "others"] {
        let options = host(&scene, Kind::Stream).flag("group", group);
        assert_eq!(options.finish().await.json()["attempts"], 1, "{group}");
    }
}

async fn a_full_memory_of_ids_says_so_and_loses_nothing(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind).flags("dedup-max-ids=3 concurrency=1");
    for order in 0..8 {
        publish(&scene, kind, &order.to_string(), "ack").await;
    }
    let host = options.clone().admin().ready().await;
    host.logs(
        "`dedup.max_ids` is reached: these messages are handled, and their duplicates will be, too",
    )
    .await;
    host.starts(8).await;
    assert_eq!(host.drain().await.expect_code(0).json()["acked"], 8);
    for order in 0..8 {
        publish(&scene, kind, &order.to_string(), "ack").await;
    }
    assert_eq!(options.finish().await.json()["attempts"], 5);
}

async fn acks_that_only_mark_pass_without_memory(kind: Kind) {
    let scene = Scene::new().await;
    let host = host(&scene, kind).ready().await;
    publish(&scene, kind, "1", "sleep:300").await;
    host.starts(1).await;
    scene.out_of_memory(true).await;
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], 1);
    scene.out_of_memory(false).await;
    publish(&scene, kind, "1", "ack").await;
    let ended = self::host(&scene, kind).finish().await;
    assert_eq!(ended.json()["attempts"], 0);
}

async fn an_id_is_forgotten_after_the_window(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind).flag("dedup-window", "5s");
    publish(&scene, kind, "1", "ack").await;
    publish(&scene, kind, "1", "ack").await;
    let ended = options.clone().flag("concurrency", "1").finish().await;
    assert_eq!(ended.json()["attempts"], 1);
    let marks = match kind {
        Kind::Stream => "KEYS {orders}:done:workers:*",
        Kind::List => "KEYS {orders}:done::*",
    };
    let some: Vec<String> = redis::from_redis_value(scene.raw.ask(marks).await).unwrap();
    assert_eq!(some.len(), 1);
    eventually("the marks are gone", async || {
        let left: Vec<String> = redis::from_redis_value(scene.raw.ask(marks).await).unwrap();
        left.is_empty()
    })
    .await;
    publish(&scene, kind, "1", "ack").await;
    assert_eq!(options.finish().await.json()["attempts"], 1);
}

async fn an_id_stays_known_when_the_clock_of_the_server_is_set_back(kind: Kind) {
    let skewed = Skewed::new();
    let scene = Scene::with(skewed.server()).await;
    publish(&scene, kind, "1", "ack").await;
    let ended = host(&scene, kind).finish().await;
    assert_eq!(ended.json()["attempts"], 1);
    // By a half of the window, and by all of it.
    for minutes in [-30, -60] {
        skewed.set(minutes * 60);
        publish(&scene, kind, "1", "ack").await;
        let ended = host(&scene, kind).finish().await;
        assert_eq!(ended.json()["attempts"], 0, "{minutes} min");
    }
}

/// A mark of a clock that is a day ahead would stay for a day, and is not among the ids that are counted.
async fn marks_of_a_clock_that_was_ahead_go_after_a_window(kind: Kind) {
    let skewed = Skewed::new();
    let scene = Scene::with(skewed.server()).await;
    skewed.set(24 * 3600);
    let host = host(&scene, kind).ready().await;
    publish(&scene, kind, "1", "ack").await;
    host.starts(1).await;
    skewed.set(0);
    let marks = match kind {
        Kind::Stream => "KEYS {orders}:done:workers:*",
        Kind::List => "KEYS {orders}:done::*",
    };
    eventually("the marks count from now", async || {
        let all: Vec<String> = redis::from_redis_value(scene.raw.ask(marks).await).unwrap();
        let [only] = &all[..] else {
            return false;
        };
        let lives: u64 =
            redis::from_redis_value(scene.raw.ask(&format!("TTL {only}")).await).unwrap();
        (3600..5400).contains(&lives)
    })
    .await;
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn queues_that_cannot_find_duplicates_refuse_to_look() {
    let scene = Scene::new().await;
    let simple = HostOptions::new(&scene.server)
        .without("stream")
        .without("group");
    let reliable = simple
        .clone()
        .flags("list=orders reliable=true dedup-window=1h");
    let ended = reliable.end().await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("needs `dedup.key` on a list"),
        "{}",
        ended.stderr()
    );
    let ended = simple
        .flags("list=orders dedup-window=1h dedup-key=order")
        .end()
        .await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("dedup.window"),
        "{}",
        ended.stderr()
    );
}

#[tokio::test]
async fn a_replay_runs_a_handled_message_again_only_if_told() {
    let scene = Scene::new().await;
    let options = host(&scene, Kind::Stream);
    for body in ["drop:no", "ack"] {
        publish(&scene, Kind::Stream, "1", body).await;
        options.finish().await;
    }
    for (flag, attempts) in [(None, 0), (Some("--again"), 1)] {
        if attempts > 0 {
            // The replayed copy was acknowledged unrun: another one died meanwhile.
            publish(&scene, Kind::Stream, "2", "drop:no").await;
            publish(&scene, Kind::Stream, "2", "ack").await;
            options.clone().flag("concurrency", "1").finish().await;
        }
        let url = scene.url();
        let mut words = vec!["dlq", "replay", "--redis", &url, "orders:dead"];
        words.extend(flag);
        command::run(&words).ok();
        let ended = options
            .clone()
            .without("dead-letter")
            .without("max-deliveries")
            .finish()
            .await;
        assert_eq!(ended.json()["attempts"], attempts, "{flag:?}");
    }
}
