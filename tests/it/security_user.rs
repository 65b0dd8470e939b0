//! The Redis user of `docs/security.md` suffices for a host, and for nothing worse.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hostler::queue::Queue;
use hostler::queue::kind::QueueOptions;
use hostler::queue::list::{ListOptions, ListQueue, Recovery};
use hostler::queue::pubsub::PubSubOptions;
use hostler::queue::simple_list::SimpleListOptions;
use hostler::queue::stream::DeadLetterQueue;
use hostler::runtime::{Exit, Settings};
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};

use crate::loop_stream::{options, settings};
use crate::once_scene;
use crate::queue_scene::connector;

pub(crate) fn docs() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    std::fs::read_to_string(docs).unwrap()
}

/// The rules of the user of this name, as the documentation has them.
pub(crate) fn documented_user(name: &str) -> String {
    let text = docs();
    let begin = format!("```acl\nuser {name} ");
    let (_, rest) = text.split_once(&begin).unwrap();
    let (rules, _) = rest.split_once("\n```").unwrap();
    format!("{name} {rules}")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_user_can_serve_and_do_nothing_worse() {
    let server = RedisOptions::default()
        .user(&documented_user("hostler-orders"))
        .start();
    let raw = server.raw().await;
    for body in ["ack", "nack,ack", "nack:5,ack", "drop", "nack"] {
        raw.add("orders", body).await;
    }
    // What a dead host left.
    raw.ask("XGROUP CREATE orders workers 0").await;
    raw.ask("XREADGROUP GROUP workers dead COUNT 2 STREAMS orders >")
        .await;

    let url = confined_url(&server, "hostler-orders");
    let mut options = options();
    options.min_idle = Duration::from_millis(200);
    options.retention = hostler::queue::stream::Retention::Acked;
    let mut settings = settings(Some(3));
    settings.ledger.min_idle = options.min_idle;
    let script = Arc::new(Script::default());
    let host = Host::start(&url, options, settings, &script).await;
    let metrics = Arc::clone(&host.metrics);
    assert_eq!(host.ended().await, Exit::Drained);
    let summary = metrics.summary();
    assert_eq!(summary.acked, 3);
    assert_eq!(summary.dead_lettered["dropped"], 1);
    assert_eq!(summary.dead_lettered["max-deliveries"], 1);
    assert_eq!(summary.orphans_recovered, 2);
    let text = metrics.render(&hostler::telemetry::health::Health::default());
    assert!(!text.contains("code=\"NOPERM\"} 1"), "{text}");

    let worse = [
        "DEL orders",
        "XGROUP DESTROY orders workers",
        "XADD other * a b",
    ];
    can_do_nothing_worse(&url, &worse).await;
}

pub(crate) fn confined_url(server: &RedisServer, user: &str) -> String {
    format!("{}?user={user}&pass=change-me", server.url())
}

async fn can_do_nothing_worse(url: &str, these: &[&str]) {
    let confined = RawRedis::open(url).await.unwrap();
    let always = [
        "KEYS *",
        "FLUSHALL",
        "CONFIG GET *",
        "GET other",
        "PUBLISH news x",
        "SCRIPT FLUSH",
        "CLIENT LIST",
        "ACL LIST",
    ];
    for worse in always.iter().chain(these) {
        let refused = confined.try_ask(worse).await.unwrap_err();
        assert!(refused.to_string().contains("NoPerm"), "{worse}: {refused}");
    }
}

/// A host of this queue, if it lacks nothing.
async fn host(url: &str, options: QueueOptions, settings: Settings, script: &Arc<Script>) -> Host {
    options.check(&connector(url)).await.unwrap();
    let queue = options.open(connector(url)).await.unwrap();
    Host::on(queue, settings, script)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_user_of_a_reliable_list_can_serve_it_and_do_nothing_worse() {
    let user = documented_user("hostler-jobs");
    let server = RedisOptions::default().user(&user).start();
    let raw = server.raw().await;
    let options = ListOptions {
        min_idle: Duration::from_millis(200),
        recovery: Some(Recovery {
            key: "jobs:claims".to_owned(),
            ttl: Some(Duration::from_secs(60)),
        }),
        dead_letter: Some(DeadLetterQueue {
            key: "jobs:dead".to_owned(),
            ..options().dead_letter.unwrap()
        }),
        ..ListOptions::new("jobs")
    };
    for body in ["ack", "nack,ack", "nack:5,ack", "drop", "nack"] {
        raw.ask_words(&[b"LPUSH", b"jobs", body.as_bytes()]).await;
    }
    // What a dead host left.
    let dead = ListQueue::open(connector(&server.url()), options.clone());
    let left = dead.await.unwrap().fetch(2, Duration::ZERO).await.unwrap();
    assert_eq!(left.len(), 2);

    let url = confined_url(&server, "hostler-jobs");
    let mut settings = settings(Some(3));
    settings.ledger.min_idle = options.min_idle;
    let script = Arc::new(Script::default());
    let host = host(&url, QueueOptions::List(options), settings, &script).await;
    let metrics = Arc::clone(&host.metrics);
    assert_eq!(host.ended().await, Exit::Drained);
    let summary = metrics.summary();
    assert_eq!(summary.acked, 3);
    assert_eq!(summary.dead_lettered["dropped"], 1);
    assert_eq!(summary.dead_lettered["max-deliveries"], 1);
    assert_eq!(summary.orphans_recovered, 2);
    let text = metrics.render(&hostler::telemetry::health::Health::default());
    assert!(!text.contains("code=\"NOPERM\"} 1"), "{text}");
    let worse = [
        "DEL jobs",
        "DEL {jobs}:instances",
        "LPUSH other x",
        "RENAME jobs other",
    ];
    can_do_nothing_worse(&url, &worse).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_users_of_queues_at_most_once_can_serve_them_and_do_nothing_worse() {
    let server = RedisOptions::default()
        .user(&documented_user("hostler-lines"))
        .user(&documented_user("hostler-news"))
        .start();
    let raw = server.raw().await;
    for _ in 0..3 {
        raw.ask("LPUSH lines ack").await;
    }
    let url = confined_url(&server, "hostler-lines");
    let script = Arc::new(Script::default());
    let options = QueueOptions::SimpleList(SimpleListOptions::new("lines"));
    let one = host(&url, options, settings(None), &script).await;
    let metrics = Arc::clone(&one.metrics);
    assert_eq!(one.ended().await, Exit::Drained);
    assert_eq!(metrics.summary().acked, 3);
    can_do_nothing_worse(&url, &["DEL lines", "LPUSH lines x", "RPOP other 0"]).await;

    let url = confined_url(&server, "hostler-news");
    let options = QueueOptions::PubSub(PubSubOptions::new("news"));
    let other = host(&url, options, once_scene::settings(2), &script).await;
    raw.ask("PUBLISH news ack").await;
    eventually("it is handled", async || other.metrics.summary().acked == 1).await;
    assert_eq!(other.drain().await, Exit::Drained);
    can_do_nothing_worse(&url, &["SUBSCRIBE other", "LPUSH lines x"]).await;
}
