//! The Redis users of `docs/security.md` have the rights that they need, and no dangerous ones.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::policy::Reason;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::kind::QueueOptions;
use hostler::queue::list::{ListOptions, Recovery};
use hostler::queue::pubsub::PubSubOptions;
use hostler::queue::simple_list::SimpleListOptions;
use hostler::queue::stream::{Retention, StreamOptions};
use hostler::runtime::{Exit, Settings};
use hostler_tests::command::{Ended, run};
use hostler_tests::inprocess::{Host, Script};
pub(crate) use hostler_tests::redis::documented_user;
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};

use crate::dead_letter::dlq_scene::{self, Kind, on_both};
use crate::queue::once_scene;
use crate::scene::connector;
use crate::scene::{running, until_empty};

on_both! {
    the_documented_user_can_serve_and_nothing_else
    the_documented_user_can_replay_dead_letters_and_nothing_else
}

pub(crate) fn docs() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/security.md");
    std::fs::read_to_string(docs).unwrap()
}

fn settings(cap: Option<u32>) -> Settings {
    until_empty(running(cap))
}

/// A queue with all features of its kind.
fn served(kind: Kind) -> QueueOptions {
    let min_idle = Duration::from_secs(2);
    match kind {
        Kind::Stream => QueueOptions::Stream(StreamOptions {
            min_idle,
            retention: Retention::Acked,
            dead_letter: Some(DeadLetterQueue::new("orders:dead")),
            ..StreamOptions::new("orders", "workers")
        }),
        Kind::List => QueueOptions::List(ListOptions {
            min_idle,
            recovery: Some(Recovery {
                key: "jobs:claims".to_owned(),
                ttl: Some(Duration::from_secs(60)),
            }),
            dead_letter: Some(DeadLetterQueue::new("jobs:dead")),
            ..ListOptions::new("jobs")
        }),
    }
}

async fn the_documented_user_can_serve_and_nothing_else(kind: Kind) {
    let stream = [
        "DEL orders",
        "XGROUP DESTROY orders workers",
        "XADD other * a b",
    ];
    let list = [
        "DEL jobs",
        "DEL {jobs}:instances",
        "LPUSH other x",
        "RENAME jobs other",
    ];
    let (name, worse) = match kind {
        Kind::Stream => ("hostler-orders", &stream[..]),
        Kind::List => ("hostler-jobs", &list[..]),
    };
    let options = RedisOptions::default().user(&documented_user(name));
    let scene = dlq_scene::Scene::with(kind, options).await;
    for body in ["ack", "nack,ack", "nack:5,ack", "drop", "nack"] {
        scene.send(body).await;
    }
    // Messages of a dead host.
    let dead = served(kind).open(connector(&scene.server.url())).await;
    let left = dead.unwrap().fetch(2, Duration::ZERO).await.unwrap();
    assert_eq!(left.len(), 2);

    let url = confined_url(&scene.server, name);
    let mut settings = settings(Some(3));
    settings.ledger.min_idle = Duration::from_secs(2);
    let host = host(&url, served(kind), settings, &scene.script).await;
    let metrics = Arc::clone(&host.metrics);
    assert_eq!(host.ended().await, Exit::Drained);
    let summary = metrics.summary();
    assert_eq!(summary.acked, 3);
    assert_eq!(summary.dead_lettered["dropped"], 1);
    assert_eq!(summary.dead_lettered["max-deliveries"], 1);
    assert_eq!(summary.orphans_recovered, 2);
    let text = metrics.render(&hostler::telemetry::health::Health::default());
    assert!(!text.contains("code=\"NOPERM\"} 1"), "{text}");
    can_do_nothing_worse(&url, worse).await;
}

/// Within a slot and across slots, in one script and in several steps.
async fn the_documented_user_can_replay_dead_letters_and_nothing_else(kind: Kind) {
    let name = match kind {
        Kind::Stream => "hostler-orders-dlq",
        Kind::List => "hostler-jobs-dlq",
    };
    for is_across in [false, true] {
        let options = RedisOptions::default().user(&documented_user(name));
        let scene = match is_across {
            false => dlq_scene::Scene::with(kind, options).await,
            true => dlq_scene::Scene::across_slots(kind, options).await,
        };
        let (key, dead) = (scene.key(), scene.dead_key());
        let url = confined_url(&scene.server, name);
        if kind == Kind::Stream {
            let create = "XGROUP CREATE orders workers 0 MKSTREAM";
            scene.raw.ask(create).await;
            // Too many fields for one script.
            let names: Vec<String> = (0..5000).map(|n| format!("h:x-{n}")).collect();
            let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "v")).collect();
            scene.letter_of("wide", Reason::Trap, &headers, 0).await;
        }
        let mut ids = Vec::new();
        for n in 0..6 {
            ids.push(scene.letter(&n.to_string(), Reason::Trap).await);
        }
        let before = scene.length(dead).await;
        let dlq = |command: &str, more: &[&str]| -> Ended {
            let first = ["dlq", command, "--redis", &url, dead];
            run(first.iter().chain(more)).ok()
        };
        assert_eq!(dlq("peek", &["--json"]).json()["total"], before);
        assert_eq!(dlq("show", &[&ids[0], "--json"]).json()["body"], "0");
        assert_eq!(dlq("export", &[]).stdout.lines().count() as u64, before);
        let one = dlq("replay", &["--id", &ids[5], "--json"]);
        assert_eq!(one.json()["replayed"], 1);
        let purged = dlq("purge", &["--id", &ids[4], "--yes", "--json"]);
        assert_eq!(purged.json()["purged"], 1);
        let all = dlq("replay", &["--json"]).json();
        assert_eq!(all["replayed"], before - 2, "{all}");
        assert_eq!(scene.length(dead).await, 0);
        assert_eq!(scene.length(key).await, before - 1);
        if kind == Kind::List {
            // A message of a list with raw values returns to the list beside it.
            let headers = [
                ("x-dead-letter-reason", "trap"),
                ("x-dead-letter-source", key),
                ("x-dead-letter-framing", "raw"),
            ];
            scene.put(dead, "raw", &headers).await;
            assert_eq!(dlq("replay", &["--json"]).json()["replayed"], 1);
            assert_eq!(scene.length("{jobs}:retry").await, 1);
        }
        // Redis logs refused commands: the user tried none.
        let refused: Vec<redis::Value> =
            redis::from_redis_value(scene.raw.ask("ACL LOG").await).unwrap();
        assert!(refused.is_empty(), "{refused:?}");

        let worse = match kind {
            Kind::Stream => &[
                "DEL orders",
                "DEL orders:dead",
                "XTRIM orders:dead MAXLEN 0",
                "XRANGE orders - +",
                "XDEL orders 1-1",
                "XREADGROUP GROUP workers me STREAMS orders >",
                "XADD other * a b",
                "SET orders x",
            ][..],
            Kind::List => &[
                "DEL jobs",
                "DEL jobs:dead",
                "LTRIM jobs:dead 1 0",
                "LRANGE jobs 0 -1",
                "LREM jobs 1 x",
                "LPUSH jobs:dead x",
                "LPUSH other x",
                "SET jobs x",
            ][..],
        };
        can_do_nothing_worse(&url, worse).await;
    }
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

/// Start a host of this queue, after a check of its rights.
async fn host(url: &str, options: QueueOptions, settings: Settings, script: &Arc<Script>) -> Host {
    options.check(&connector(url)).await.unwrap();
    let queue = options.open(connector(url)).await.unwrap();
    Host::on(queue, settings, script)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_users_of_at_most_once_queues_can_serve_and_nothing_else() {
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
