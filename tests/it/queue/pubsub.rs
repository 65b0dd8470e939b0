//! Pub/Sub: at-most-once.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::kind::QueueOptions;
use hostler::queue::pubsub::{Buffer, OnOverflow, PubSubOptions, Subscription};
use hostler::queue::startup::StartError;
use hostler::queue::{Guarantee, Queue};
use hostler::runtime::Exit;
use hostler::wire::list::Framing;
use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{RedisOptions, eventually};

use crate::queue::once_scene::{LONG, Scene, bodies, settings, value};
use crate::scene::connector;

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

/// Publish; returns the number of receivers.
async fn publish(scene: &Scene, value: &[u8]) -> i64 {
    let words = [b"PUBLISH".as_slice(), CHANNEL.as_bytes(), value];
    redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap()
}

/// The number of messages in the buffer of a host.
async fn buffered(queue: &Arc<dyn Queue>) -> u64 {
    queue.observe().await.unwrap().unwrap().unread
}

fn host(scene: &Scene) -> HostOptions {
    let options = HostOptions::new(&scene.server).flag("channel", CHANNEL);
    options.without("stream").without("group")
}

/// The host does not start, and says why.
async fn refused(options: &HostOptions, reason: &str) {
    let ended = options.end().await;
    ended.expect_code(64);
    let stderr = ended.stderr();
    assert!(stderr.contains(reason), "{stderr}");
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
        let message = &claims[0].message;
        assert_eq!(&*message.queue, channel);
        assert_eq!((&*message.id, &message.body[..]), ("m1", &b"hi"[..]));
        assert_eq!(&claims[1].message.body[..], b"\xffraw");
        // The server stores nothing.
        assert_eq!(scene.keys().await, 0);
        drop(queue);
    }
    eventually("no subscription is left", async || {
        publish(&scene, b"x").await == 0
    })
    .await;
}

#[tokio::test]
async fn values_are_decoded_by_the_framing() {
    let scene = Scene::new().await;
    let options = PubSubOptions {
        framing: Framing::Json,
        ..options()
    };
    let queue = subscribe(&scene, options).await;
    let envelope = br#"{"headers":{"x-message-id":"m1"},"payload":"hi"}"#;
    publish(&scene, envelope).await;
    publish(&scene, b"neither").await;
    eventually("both are here", async || buffered(&queue).await == 2).await;
    let claims = queue.fetch(2, LONG).await.unwrap();
    assert_eq!(bodies(&claims), ["hi", ""]);
    assert_eq!(&*claims[0].message.id, "m1");
    assert!(claims[1].defect.is_some());
}

#[tokio::test]
async fn a_full_buffer_drops_messages_by_the_overflow_rule_and_counts_them() {
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

mod measured {
    use super::*;

    #[tokio::test]
    async fn a_slow_handler_costs_messages_but_no_memory() {
        let scene = Scene::new().await;
        let flags = "concurrency=1 timeout=100s drain-timeout=10ms buffer-memory=1MiB";
        let host = host(&scene).admin().flags(flags).ready().await;
        publish(&scene, b"sleep:60000").await;
        host.starts(1).await;
        let memory = || {
            let status = std::fs::read_to_string(format!("/proc/{}/status", host.pid())).unwrap();
            let line = status.lines().find(|line| line.starts_with("VmRSS:"));
            let kib = line.unwrap().split_whitespace().nth(1).unwrap();
            kib.parse::<u64>().unwrap() / 1024
        };
        let before = memory();
        // 150 MiB; the buffer has room for 1 MiB.
        let large = vec![b'x'; 10 << 10];
        let sent = 15_000;
        for _ in 0..sent {
            assert_eq!(publish(&scene, &large).await, 1);
        }
        eventually("the dropped messages are counted", async || {
            host.metric("hostler_buffer_dropped_total") > sent - 110
        })
        .await;
        let dropped = host.metric("hostler_buffer_dropped_total");
        assert!((sent - 110..=sent - 90).contains(&dropped), "{dropped}");
        let grown = memory().saturating_sub(before);
        assert!(grown < 50, "{grown} MiB more");
        // The server never closed the subscription.
        assert_eq!(host.metric("hostler_subscription_gaps_total"), 0);
        host.logs("the buffer is full: messages were dropped").await;
        host.kill().await;
    }
}

#[tokio::test]
async fn a_broken_subscription_is_restored_and_its_gap_is_counted() {
    let scene = Scene::new().await;
    let queue = subscribe(&scene, options()).await;
    let opened = queue.contact().connections_opened;
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
    assert_eq!(queue.contact().connections_opened, opened + 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_is_not_ready_while_its_server_is_away_and_subscribes_again_afterwards() {
    let mut scene = Scene::new().await;
    let script = Arc::new(Script::default());
    let queue = subscribe(&scene, options()).await;
    let host = Host::on(queue, settings(1), &script);
    eventually("it is ready", async || host.health.is_ready()).await;
    publish(&scene, &value("first", "sleep:300")).await;
    eventually("it starts", async || script.starts_of("first") == 1).await;
    scene.server.kill();
    eventually("the host is not ready", async || !host.health.is_ready()).await;
    eventually("the handler ends", async || {
        host.metrics.summary().acked == 1
    })
    .await;
    scene.server.restart();
    scene.reconnect().await;
    eventually("the host subscribes again", async || {
        publish(&scene, &value("second", "ack")).await == 1
    })
    .await;
    eventually("it is handled", async || host.metrics.summary().acked == 2).await;
    eventually("it is ready", async || host.health.is_ready()).await;
    assert_eq!(host.metrics.subscription_gaps.get(), 1);
    assert!(host.metrics.subscription_gap_seconds.get() > 0.0);
    let text = host.metrics.render(&host.health);
    let documented = "\nhostler_subscription_gap_seconds_total ";
    assert!(text.contains(documented), "{text}");
    assert_eq!(host.drain().await, Exit::Drained);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_host_handles_its_buffer_and_takes_no_new_messages() {
    let scene = Scene::new().await;
    let script = Arc::new(Script::default());
    let queue = subscribe(&scene, options()).await;
    let host = Host::on(Arc::clone(&queue), settings(1), &script);
    for n in 0..30 {
        let id = n.to_string();
        publish(&scene, &value(&id, "sleep:20")).await;
    }
    // Of 31 messages one may be on its way, to the buffer or from there to the slot: so the first 30 are here.
    publish(&scene, &value("last", "ack")).await;
    eventually("30 are here", async || {
        script.starts().len() as u64 + buffered(&queue).await >= 30
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
async fn a_drain_past_its_deadline_logs_the_loss() {
    let scene = Scene::new().await;
    let options = host(&scene).flags("timeout=100s drain-timeout=50ms");
    let host = options.ready().await;
    publish(&scene, b"sleep:60000").await;
    host.starts(1).await;
    let ended = host.drain().await;
    ended.expect_code(75);
    let loss = "the drain deadline has passed; what is unfinished is lost";
    assert_eq!(ended.count(|line| line.message() == loss), 1);
}

#[tokio::test]
async fn the_guest_sees_the_channel_and_outcomes_other_than_ack_are_counted() {
    let scene = Scene::new().await;
    let options = host(&scene).without("channel").admin();
    let options = options.flags("pattern=news.* log-level=debug");
    let host = options.ready().await;
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
    let ended = host.drained().await;
    let mut outcomes = ended.log.iter().filter_map(|line| line.text("outcome"));
    assert!(outcomes.any(|outcome| outcome.contains("news.sport")));
    let serving = ended.log.iter().find(|line| line.message() == "serving");
    let guarantee = serving.unwrap().text("guarantee").unwrap();
    assert!(guarantee.starts_with("at most once"), "{guarantee}");
}

#[tokio::test]
async fn a_server_without_sharded_channels_is_refused_with_a_reason() {
    let server = RedisOptions::default().words("rename-command", &["SSUBSCRIBE", ""]);
    let scene = Scene::with(server).await;
    let options = PubSubOptions {
        subscription: Subscription::Sharded,
        ..options()
    };
    let opened = QueueOptions::PubSub(options).open(scene.connector()).await;
    let error = opened.unwrap_err();
    let command = "SSUBSCRIBE";
    let is_named = matches!(error, StartError::Unknown(ref named) if named == command);
    assert!(is_named, "{error}");
    let options = host(&scene).without("channel");
    refused(
        &options.flag("sharded-channel", CHANNEL),
        "sharded channels",
    )
    .await;
}

#[tokio::test]
async fn settings_that_a_channel_does_not_support_are_refused_with_a_reason() {
    let scene = Scene::new().await;
    for (flag, text, reason) in [
        ("dead-letter", "news:dead", "forgets a message"),
        ("max-deliveries", "3", "forgets a message"),
        ("min-idle", "3s", "forgets a message"),
        ("until-empty", "true", "a channel holds no messages"),
    ] {
        refused(&host(&scene).flag(flag, text), reason).await;
    }
    let url = scene.url();
    let ended = command::run(["inspect", "--redis", &url, "--pattern", "news.*"]);
    assert_eq!(ended.code, 64);
    assert!(
        ended.stderr.contains("a channel holds nothing"),
        "{ended:?}"
    );
    let list = host(&scene).without("channel").flags("list=jobs buffer=5");
    refused(&list, "the messages of a channel").await;
    // A missing right is named like in an ACL.
    let poor = "ACL SETUSER poor on >pw resetchannels ~* +@all";
    scene.raw.ask(poor).await;
    let url = format!("{url}?user=poor&pass=pw");
    refused(&host(&scene).flag("redis", &url), "&news").await;
}

#[tokio::test]
async fn the_subscription_uses_the_password_too() {
    let scene = Scene::with(RedisOptions::default().user("bob on >s3cret ~* &* +@all")).await;
    let url = format!("{}?user=bob&pass=s3cret", scene.url());
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
