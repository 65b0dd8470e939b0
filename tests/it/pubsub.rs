//! Pub/Sub: at most once.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::kind::QueueOptions;
use hostler::queue::pubsub::{Buffer, OnOverflow, PubSubOptions, Subscription};
use hostler::queue::{Guarantee, Queue};
use hostler::redis::startup::StartError;
use hostler::runtime::Exit;
use hostler::wire::list::Framing;
use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RedisOptions, eventually};

use crate::once_scene::{LONG, Scene, bodies, settings, value};
use crate::queue_scene::connector;

const CHANNEL: &str = "news";

fn options() -> PubSubOptions {
    PubSubOptions::new(CHANNEL)
}

fn buffer(messages: usize, on_overflow: OnOverflow) -> PubSubOptions {
    PubSubOptions {
        buffer: Buffer {
            messages,
            on_overflow,
            ..Buffer::default()
        },
        ..options()
    }
}

async fn subscribe(scene: &Scene, options: PubSubOptions) -> Arc<dyn Queue> {
    scene.open(QueueOptions::PubSub(options)).await
}

/// Publish; says how many listened.
async fn publish(scene: &Scene, value: &[u8]) -> i64 {
    let words = [b"PUBLISH".as_slice(), CHANNEL.as_bytes(), value];
    redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap()
}

/// How many messages wait in a host.
async fn buffered(queue: &Arc<dyn Queue>) -> u64 {
    queue.observe().await.unwrap().unwrap().unread
}

fn host(scene: &Scene) -> HostOptions {
    HostOptions::new(&scene.server)
        .without("stream")
        .without("group")
        .flag("channel", CHANNEL)
}

#[tokio::test]
async fn every_kind_of_subscription_names_the_channel_as_the_queue() {
    let scene = Scene::new().await;
    for (subscription, name, publish, channel) in [
        (Subscription::Channel, "news", "PUBLISH", "news"),
        (Subscription::Pattern, "news.*", "PUBLISH", "news.sport"),
        (Subscription::Sharded, "news", "SPUBLISH", "news"),
    ] {
        let options = PubSubOptions {
            subscription,
            ..PubSubOptions::new(name)
        };
        let queue = subscribe(&scene, options).await;
        assert_eq!(queue.guarantee(), Guarantee::AtMostOnce);
        let framed = value("m1", "hi");
        for value in [&framed[..], b"\xffraw"] {
            let words = [publish.as_bytes(), channel.as_bytes(), value];
            scene.raw.ask_words(&words).await;
        }
        let mut claims = queue.fetch(1, LONG).await.unwrap();
        claims.extend(queue.fetch(1, LONG).await.unwrap());
        assert_eq!(&*claims[0].message.queue, channel);
        assert_eq!(
            (&*claims[0].message.id, &claims[0].message.body[..]),
            ("m1", &b"hi"[..])
        );
        assert_eq!(&claims[1].message.body[..], b"\xffraw");
        // Nothing is kept anywhere.
        assert_eq!(scene.raw.number("DBSIZE").await, 0);
        drop(queue);
    }
    eventually("nobody is subscribed anymore", async || {
        publish(&scene, b"x").await == 0
    })
    .await;
}

#[tokio::test]
async fn values_are_read_as_the_framing_says() {
    let scene = Scene::new().await;
    let options = PubSubOptions {
        framing: Framing::Json,
        ..options()
    };
    let queue = subscribe(&scene, options).await;
    publish(
        &scene,
        br#"{"headers":{"x-message-id":"m1"},"payload":"hi"}"#,
    )
    .await;
    publish(&scene, b"neither").await;
    eventually("both are here", async || buffered(&queue).await == 2).await;
    let claims = queue.fetch(2, LONG).await.unwrap();
    assert_eq!(bodies(&claims), ["hi", ""]);
    assert_eq!(&*claims[0].message.id, "m1");
    assert!(claims[1].defect.is_some());
}

#[tokio::test]
async fn what_finds_no_room_is_dropped_by_the_rule_and_counted() {
    for (rule, expected) in [
        (OnOverflow::DropNewest, ["0", "1", "2", "3", "4"]),
        (OnOverflow::DropOldest, ["7", "8", "9", "10", "11"]),
    ] {
        let scene = Scene::new().await;
        let queue = subscribe(&scene, buffer(5, rule)).await;
        for n in 0..12 {
            assert_eq!(publish(&scene, n.to_string().as_bytes()).await, 1);
        }
        eventually("all have come", async || {
            queue.contact().buffer_dropped == 7
        })
        .await;
        assert_eq!(bodies(&queue.fetch(100, LONG).await.unwrap()), expected);
        publish(&scene, b"again").await;
        assert_eq!(bodies(&queue.fetch(100, LONG).await.unwrap()), ["again"]);
    }
}

#[tokio::test]
async fn a_slow_handler_costs_messages_and_no_memory() {
    let scene = Scene::new().await;
    let host = host(&scene)
        .admin()
        .flag("concurrency", "1")
        .flag("timeout", "100s")
        .flag("drain-timeout", "10ms")
        .flag("buffer-memory", "1MiB")
        .ready()
        .await;
    publish(&scene, b"sleep:60000").await;
    host.starts(1).await;
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmRSS:"));
        let kib = line.unwrap().split_whitespace().nth(1).unwrap();
        kib.parse::<u64>().unwrap() / 1024
    };
    let before = memory();
    // 150 MiB, of which 1 MiB finds room.
    let large = vec![b'x'; 10 << 10];
    let sent = 15_000;
    for _ in 0..sent {
        assert_eq!(publish(&scene, &large).await, 1);
    }
    eventually("all that found no room is counted", async || {
        host.metric("hostler_buffer_dropped_total") > sent - 110
    })
    .await;
    let dropped = host.metric("hostler_buffer_dropped_total");
    assert!((sent - 110..=sent - 90).contains(&dropped), "{dropped}");
    let grown = memory().saturating_sub(before);
    assert!(grown < 50, "{grown} MiB more");
    // The server had nobody to cut off.
    assert_eq!(host.metric("hostler_subscription_gaps_total"), 0);
    host.logs("the buffer is full: messages were dropped").await;
    host.kill().await;
}

#[tokio::test]
async fn a_broken_connection_is_subscribed_again_and_the_gap_is_counted() {
    let scene = Scene::new().await;
    let queue = subscribe(&scene, options()).await;
    assert_eq!(queue.contact().connections_opened, 1);
    for gaps in 1..=3 {
        scene.raw.ask("CLIENT KILL TYPE pubsub").await;
        eventually("it is subscribed again", async || {
            queue.contact().gaps == gaps && publish(&scene, b"here").await == 1
        })
        .await;
        assert_eq!(bodies(&queue.fetch(1, LONG).await.unwrap()), ["here"]);
        queue.probe().await.unwrap();
    }
    assert!(queue.contact().gap > Duration::ZERO);
    assert_eq!(queue.contact().connections_opened, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_says_that_its_server_is_gone_and_listens_when_it_is_back() {
    let mut scene = Scene::new().await;
    let script = Arc::new(Script::default());
    let queue = subscribe(&scene, options()).await;
    let host = Host::on(queue, settings(1), &script);
    eventually("it is ready", async || host.health.is_ready()).await;
    publish(&scene, &value("first", "sleep:300")).await;
    eventually("it starts", async || script.starts_of("first") == 1).await;
    scene.server.kill();
    eventually("it is noticed", async || !host.health.is_ready()).await;
    eventually("what runs ends", async || host.metrics.summary().acked == 1).await;
    scene.server.restart();
    scene.raw = scene.server.raw().await;
    eventually("somebody listens", async || {
        publish(&scene, &value("second", "ack")).await == 1
    })
    .await;
    eventually("it is handled", async || host.metrics.summary().acked == 2).await;
    eventually("it is ready", async || host.health.is_ready()).await;
    assert_eq!(host.metrics.subscription_gaps.get(), 1);
    assert!(host.metrics.subscription_gap_seconds.get() > 0.0);
    // As the documentation has it.
    let text = host.metrics.render(&host.health);
    assert!(
        text.contains("\nhostler_subscription_gap_seconds_total "),
        "{text}"
    );
    assert_eq!(host.drain().await, Exit::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_runs_its_buffer_and_takes_nothing_more() {
    let scene = Scene::new().await;
    let script = Arc::new(Script::default());
    let queue = subscribe(&scene, options()).await;
    let host = Host::on(Arc::clone(&queue), settings(1), &script);
    for n in 0..30 {
        let id = n.to_string();
        publish(&scene, &value(&id, "sleep:20")).await;
    }
    eventually("all are here", async || {
        let here = script.starts().len() as u64 + buffered(&queue).await;
        // What the host holds beyond its one slot and its next message.
        here + 2 >= 30
    })
    .await;
    let metrics = Arc::clone(&host.metrics);
    let draining = tokio::spawn(host.drain());
    eventually("it unsubscribes", async || {
        scene.raw.number("PUBLISH news late").await == 0
    })
    .await;
    assert_eq!(draining.await.unwrap(), Exit::Drained);
    assert_eq!(metrics.summary().acked as usize, script.starts().len());
    for n in 0..30 {
        assert_eq!(script.starts_of(&n.to_string()), 1, "{n}");
    }
}

#[tokio::test]
async fn a_drain_that_takes_too_long_says_what_is_lost() {
    let scene = Scene::new().await;
    let host = host(&scene)
        .flag("timeout", "100s")
        .flag("drain-timeout", "50ms")
        .ready()
        .await;
    publish(&scene, b"sleep:60000").await;
    host.starts(1).await;
    let ended = host.drain().await;
    ended.expect_code(75);
    let told = "the drain deadline has passed; what is unfinished is lost";
    assert_eq!(ended.count(|line| line.message() == told), 1);
}

#[tokio::test]
async fn the_channel_reaches_the_guest_and_what_is_not_acked_is_counted() {
    let scene = Scene::new().await;
    let host = host(&scene)
        .without("channel")
        .flag("pattern", "news.*")
        .flag("log-level", "debug")
        .admin()
        .ready()
        .await;
    for body in ["echo", "nack", "trap", "ack"] {
        scene.raw.ask(&format!("PUBLISH news.sport {body}")).await;
    }
    eventually("all are handled", async || {
        let lost = |outcome| {
            host.metric(&format!(
                "hostler_outcomes_not_honoured_total{{outcome=\"{outcome}\"}}"
            ))
        };
        (lost("drop"), lost("nack-requeue"), lost("fault")) == (1, 1, 1)
            && host.metric("hostler_attempts_total{outcome=\"ack\"}") == 1
    })
    .await;
    let ended = host.drain().await;
    ended.expect_code(0);
    let answers = ended.log.iter().filter_map(|line| line.text("outcome"));
    assert!(
        answers
            .into_iter()
            .any(|outcome| outcome.contains("news.sport"))
    );
    let serving = ended.log.iter().find(|line| line.message() == "serving");
    let guarantee = serving.unwrap().text("guarantee").unwrap();
    assert!(guarantee.starts_with("at most once"), "{guarantee}");
}

#[tokio::test]
async fn a_server_without_sharded_channels_is_named() {
    let server = RedisOptions::default().words("rename-command", &["SSUBSCRIBE", ""]);
    let scene = Scene::with(server).await;
    let options = PubSubOptions {
        subscription: Subscription::Sharded,
        ..options()
    };
    let refused = QueueOptions::PubSub(options)
        .open(connector(&scene.server.url()))
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            StartError::Unknown {
                command: "SSUBSCRIBE"
            }
        ),
        "{refused}"
    );
    let ended = host(&scene)
        .without("channel")
        .flag("sharded-channel", CHANNEL)
        .end()
        .await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("sharded channels"),
        "{}",
        ended.stderr()
    );
}

#[tokio::test]
async fn what_a_channel_cannot_do_is_refused_with_a_reason() {
    let scene = Scene::new().await;
    for (flag, text, reason) in [
        ("dead-letter", "news:dead", "forgets a message"),
        ("max-deliveries", "3", "forgets a message"),
        ("min-idle", "3s", "forgets a message"),
        ("until-empty", "true", "a channel holds nothing"),
    ] {
        let ended = host(&scene).flag(flag, text).end().await;
        ended.expect_code(64);
        assert!(ended.stderr().contains(reason), "{}", ended.stderr());
    }
    let url = scene.server.url();
    let ended = command::run(["inspect", "--redis", &url, "--pattern", "news.*"]);
    assert_eq!(ended.code, 64);
    assert!(
        ended.stderr.contains("a channel holds nothing"),
        "{}",
        ended.stderr
    );
    let ended = host(&scene)
        .without("channel")
        .flag("list", "jobs")
        .flag("buffer", "5")
        .end()
        .await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("published to a channel"),
        "{}",
        ended.stderr()
    );
    // The right that is missing is named as an ACL names it.
    scene
        .raw
        .ask("ACL SETUSER poor on >pw resetchannels ~* +@all")
        .await;
    let url = format!("{url}?user=poor&pass=pw");
    let ended = host(&scene).flag("redis", &url).end().await;
    ended.expect_code(64);
    assert!(ended.stderr().contains("&news"), "{}", ended.stderr());
}

#[tokio::test]
async fn a_password_is_used_for_the_subscription_as_well() {
    let scene = Scene::with(RedisOptions::default().user("bob on >s3cret ~* &* +@all")).await;
    let url = format!("{}?user=bob&pass=s3cret", scene.server.url());
    let open = |url: String| async move {
        let options = QueueOptions::PubSub(options());
        options.open(connector(&url)).await
    };
    let queue = open(url.clone()).await.unwrap();
    assert_eq!(publish(&scene, b"hi").await, 1);
    assert_eq!(queue.fetch(1, LONG).await.unwrap().len(), 1);
    let refused = open(url.replace("s3cret", "wr0ng")).await.unwrap_err();
    let text = format!("{refused} {refused:?}");
    assert!(!text.contains("wr0ng"), "{text}");
}
