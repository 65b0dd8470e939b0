//! Messages with a delay, from the publisher to the handler, on streams and reliable lists.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use hostler::publish::{Codec, Destination, Error, List, Outgoing, Publisher, Receipt, Stream};
use hostler::queue::Queue;
use hostler::queue::list::ListOptions;
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::wire::list::Framing;
use hostler::wire::{delayed, frame};
use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};
use hostler_tests::witness::Witness;

use crate::queue::list_scene;
use crate::queue::queue_scene::Scene;
use crate::redis::security_user;
use crate::scene::{connector, fetch};

const STREAM_LATER: &str = "{orders}:delayed";
/// Longer than any test: a message with this delay never becomes due by itself.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn publisher(server: &RedisServer, to: impl Into<Destination>) -> Publisher {
    Publisher::new(&connector(&server.url()), to)
}

/// Publish a message with a delay; returns its id and its due time.
async fn later(publisher: &Publisher, message: Outgoing, delay: Duration) -> (String, u64) {
    match publisher.publish(&message.delay(delay)).await.unwrap() {
        Receipt::Scheduled { id, due_ms } => (id, due_ms),
        other => panic!("not scheduled: {other:?}"),
    }
}

/// The server's clock, in ms.
async fn now_ms(raw: &RawRedis) -> u64 {
    let time: Vec<u64> = redis::from_redis_value(raw.ask("TIME").await).unwrap();
    time[0] * 1000 + time[1] / 1000
}

/// Make all delayed messages due, in their order.
async fn make_due(raw: &RawRedis, set: &str) {
    let members: Vec<Vec<u8>> =
        redis::from_redis_value(raw.ask(&format!("ZRANGE {set} 0 -1")).await).unwrap();
    for (n, member) in members.iter().enumerate() {
        let score = (n + 1).to_string();
        raw.ask_words(&[b"ZADD", set.as_bytes(), score.as_bytes(), member])
            .await;
    }
}

#[tokio::test]
async fn a_delayed_stream_message_reaches_every_group_when_it_is_due_and_not_before() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let mut hosts = Vec::new();
    for group in ["workers", "auditors"] {
        hosts.push(HostOptions::new(&server).flag("group", group).ready().await);
    }
    let publisher = publisher(&server, Stream::new("orders"));
    let before = now_ms(&raw).await;
    let (id, due_ms) = later(&publisher, Outgoing::new("ack"), Duration::from_secs(4)).await;
    assert!(due_ms >= before + 4000);
    assert_eq!(raw.number("XLEN orders").await, 0);
    eventually("both groups have handled it", async || {
        hosts.iter().all(|host| host.witness().starts(&id) > 0)
    })
    .await;
    // The id of an entry is the time when it was appended.
    let entries = raw.entries("orders").await;
    let at: u64 = entries[0].0.split_once('-').unwrap().0.parse().unwrap();
    assert!(at >= due_ms, "{} ms early", due_ms - at);
    assert_eq!(entries.len(), 1);
    assert_eq!(raw.number("EXISTS {orders}:delayed").await, 0);
    for host in hosts {
        let ended = host.drained().await;
        assert_eq!(ended.json()["acked"], 1);
        assert_eq!(ended.witness().starts(&id), 1);
    }
}

#[tokio::test]
async fn inspect_shows_delayed_messages_and_an_until_empty_host_waits_for_them() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    raw.ask("XGROUP CREATE orders workers 0 MKSTREAM").await;
    let publisher = publisher(&server, Stream::new("orders"));
    let (far, _) = later(&publisher, Outgoing::new("ack"), FOR_EVER).await;
    let (near, _) = later(&publisher, Outgoing::new("ack"), FOR_EVER / 2).await;
    let url = server.url();
    let group = ["--stream", "orders", "--group", "workers"];
    let inspect = [&["inspect", "--redis", &url, "--json"], &group[..]].concat();
    let report = command::run(inspect).ok().json();
    assert_eq!(report["delayed"], 2);
    let next = report["next_due_ms"].as_u64().unwrap();
    assert!((1..=1_800_000).contains(&next), "{next}");

    let host = HostOptions::new(&server).until_empty().ready().await;
    raw.add("orders", "ack").await;
    eventually("it handles the stream", async || {
        host.witness().total() == 1
    })
    .await;
    // The host has checked its backlog again several times: otherwise it would have ended.
    let checks = async || raw.info("commandstats", "cmdstat_zcard:calls=").await;
    let seen = checks().await;
    eventually("the host checks again", async || checks().await >= seen + 3).await;
    assert_eq!(raw.number(&format!("ZCARD {STREAM_LATER}")).await, 2);
    make_due(&raw, STREAM_LATER).await;
    let ended = host.ended().await;
    ended.expect_code(0);
    let witness = ended.witness();
    assert_eq!([&far, &near].map(|id| witness.starts(id)), [1, 1]);
    assert_eq!(witness.total(), 3);
}

#[tokio::test]
async fn many_hosts_append_each_due_message_once_in_order_and_in_bounded_steps() {
    let scene = Scene::new().await;
    let to_orders = publisher(&scene.server, Stream::new("orders"));
    let messages: Vec<_> = (0..450)
        .map(|n| Outgoing::new(n.to_string()).delay(FOR_EVER))
        .collect();
    to_orders.publish_all(&messages).await.unwrap();
    // All are due at the same time: the order of publishing decides.
    let members: Vec<Vec<u8>> =
        redis::from_redis_value(scene.raw.ask(&format!("ZRANGE {STREAM_LATER} 0 -1")).await)
            .unwrap();
    for member in &members {
        let words = [b"ZADD", STREAM_LATER.as_bytes(), b"1", member];
        scene.raw.ask_words(&words).await;
    }
    let host = scene.host().await;
    let taken = host.take_due(10).await.unwrap();
    assert!(taken.claims.is_empty());
    assert_eq!(taken.next_due, Some(Duration::ZERO));
    assert_eq!(scene.length("orders").await, 100);

    let hosts: Vec<StreamQueue> = [scene.host().await, scene.host().await, host].into();
    let runs = hosts
        .iter()
        .map(|host| async { while host.take_due(10).await.unwrap().next_due.is_some() {} });
    futures_util::future::join_all(runs).await;
    let entries = scene.raw.entries("orders").await;
    let bodies = entries.into_iter().map(|(_, mut fields)| fields.remove(1));
    assert!(bodies.eq((0..450).map(|n| n.to_string().into_bytes())));
    assert!(!scene.exists(STREAM_LATER).await);
}

#[tokio::test]
async fn a_delayed_message_arrives_byte_for_byte_with_its_id() {
    let scene = Scene::new().await;
    let to = publisher(&scene.server, Stream::new("orders").body_field("data"));
    let odd = Outgoing::new(&b"\0\xff\r\n body"[..])
        .header("X-Tenant", "7")
        .header("X-Tenant", &b"\xfe"[..]);
    let (id, _) = later(&to, odd.clone(), FOR_EVER).await;
    assert_eq!(id.len(), 32);
    let own = odd.header("x-message-id", "own");
    assert_eq!(later(&to, own, FOR_EVER).await.0, "own");
    let fields = vec![(Bytes::from_static(b"\xff"), Bytes::new())];
    let as_it_is = Outgoing {
        fields: Some(fields),
        ..Outgoing::default()
    };
    later(&to, as_it_is, FOR_EVER).await;
    make_due(&scene.raw, STREAM_LATER).await;
    scene.host().await.take_due(1).await.unwrap();
    let entries = scene.raw.entries("orders").await;
    let expected: [&[u8]; 8] = [
        b"data",
        b"\0\xff\r\n body",
        b"h:X-Tenant",
        b"7",
        b"h:X-Tenant",
        b"\xfe",
        b"h:x-message-id",
        id.as_bytes(),
    ];
    assert_eq!(entries[0].1, expected);
    assert_eq!(entries[1].1[7], b"own");
    assert_eq!(entries[2].1[..3], [&b"\xff"[..], b"", b"h:x-message-id"]);
}

#[tokio::test]
async fn a_malformed_delayed_message_does_not_block_the_messages_behind_it() {
    let scene = Scene::new().await;
    let to = publisher(&scene.server, Stream::new("orders"));
    later(&to, Outgoing::new("good"), FOR_EVER).await;
    make_due(&scene.raw, STREAM_LATER).await;
    let token = [0; delayed::TOKEN_LEN];
    let lies: [&[u8]; 7] = [
        b"",
        b"\0\0\0\0",
        b"\0\0\0\x01",
        b"\0\0\0\x01\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\0\0\0\0",
        b"\0\0\0\x01\0\0\0\x01a\0\0\0\x02b",
        b"\0\0\0\x01\0\0\0\x01a\0\0\0\x01b and more",
    ];
    for lie in lies {
        let member = [&token[..], lie].concat();
        let words = [b"ZADD", STREAM_LATER.as_bytes(), b"0", &member];
        scene.raw.ask_words(&words).await;
    }
    scene.raw.ask(&format!("ZADD {STREAM_LATER} 0 short")).await;
    scene.host().await.take_due(1).await.unwrap();
    let entries = scene.raw.entries("orders").await;
    assert_eq!(entries.len(), lies.len() + 2);
    let (good, others) = entries.split_last().unwrap();
    assert_eq!(good.1[1], b"good");
    assert!(others.iter().all(|(_, fields)| fields[0] == b"_payload"));
    let bodies: HashSet<_> = others.iter().map(|(_, fields)| fields[1].clone()).collect();
    assert!(bodies.contains(&b"short"[..]));
    assert!(bodies.contains(&[&token[..], lies[6]].concat()));
}

#[tokio::test]
async fn a_full_server_refuses_new_delayed_messages_and_delivers_stored_ones() {
    let scene = Scene::new().await;
    let to = publisher(&scene.server, Stream::new("orders"));
    later(&to, Outgoing::new("held"), FOR_EVER).await;
    make_due(&scene.raw, STREAM_LATER).await;
    let host = scene.host().await;
    scene.out_of_memory(true).await;
    let refused = to.publish(&Outgoing::new("more").delay(FOR_EVER)).await;
    assert!(refused.unwrap_err().to_string().contains("OOM"));
    host.take_due(1).await.unwrap();
    assert_eq!(fetch(&host, 1).await[0].message.body, "held");
}

#[tokio::test]
async fn a_message_that_expires_before_it_is_due_is_dead_lettered_without_a_run() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let message = Outgoing::new("ack").expires_in(Duration::from_millis(30));
    let to = publisher(&server, Stream::new("orders"));
    later(&to, message, Duration::from_millis(20)).await;
    let first = format!("ZRANGE {STREAM_LATER} 0 0 WITHSCORES");
    eventually("its time has passed", async || {
        let due: Vec<(Vec<u8>, u64)> = redis::from_redis_value(raw.ask(&first).await).unwrap();
        now_ms(&raw).await > due[0].1 + 50
    })
    .await;
    let ended = HostOptions::new(&server).dead_letter().finish().await;
    assert_eq!(ended.json()["dead_lettered"]["expired"], 1);
    assert_eq!(ended.witness().total(), 0);
}

#[tokio::test]
async fn a_reliable_list_delivers_delayed_messages_in_every_framing() {
    for (codec, framing) in [
        (Codec::Frame, Framing::Auto),
        (Codec::Frame, Framing::Frame),
        (Codec::Raw, Framing::Raw),
        (Codec::Raw, Framing::Auto),
        (Codec::Json, Framing::Json),
    ] {
        let scene = list_scene::Scene::new().await;
        let to = publisher(&scene.server, List::new("jobs").codec(codec).reliable());
        let (id, _) = later(&to, Outgoing::new("body"), FOR_EVER).await;
        assert_eq!(scene.raw.number("EXISTS jobs").await, 0);
        let host = scene
            .host_with(ListOptions {
                framing,
                ..list_scene::options()
            })
            .await;
        assert!(host.take_due(9).await.unwrap().claims.is_empty());
        make_due(&scene.raw, list_scene::DELAYED).await;
        let claims = host.take_due(9).await.unwrap().claims;
        assert_eq!(claims.len(), 1, "{codec:?}, {framing:?}");
        let message = &claims[0].message;
        assert_eq!((&*message.id, &message.body[..]), (&*id, &b"body"[..]));
        assert_eq!(claims[0].defect, None);
        // The delay is not an attempt.
        assert_eq!((claims[0].header, claims[0].native), (0, 1));
    }
}

#[tokio::test]
async fn hosts_of_a_reliable_list_handle_each_delayed_message_once_within_its_delivery_limit() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let to = publisher(&server, List::new("jobs").reliable());
    let list = "list=jobs reliable=true dead-letter=jobs:dead max-deliveries=1";
    let options = HostOptions::new(&server).flags(list);
    let options = options.without("stream").without("group");
    let hosts = [options.ready().await, options.ready().await];
    let mut ids = Vec::new();
    for n in 0..20 {
        let body = if n % 2 == 0 { "ack" } else { "nack" };
        let (id, _) = later(&to, Outgoing::new(body), Duration::from_millis(300)).await;
        ids.push(id);
    }
    eventually("all are handled", async || {
        Witness::so_far(&hosts).total() == 20 && raw.number("LLEN jobs:dead").await == 10
    })
    .await;
    let mut ended = Vec::new();
    for host in hosts {
        ended.push(host.drain().await);
    }
    let witness = Witness::of_all(&ended);
    for id in &ids {
        assert_eq!(witness.attempts(id), [1]);
    }
    let dead: Vec<Vec<u8>> =
        redis::from_redis_value(raw.ask("LRANGE jobs:dead 0 -1").await).unwrap();
    for value in dead {
        let (headers, _) = frame::decode(&value.into()).unwrap();
        let id = headers.find_str("x-message-id").unwrap();
        assert!(ids.iter().any(|known| known == id));
    }
    assert_eq!(raw.number("EXISTS {jobs}:delayed").await, 0);
}

#[tokio::test]
async fn a_delay_is_refused_for_destinations_that_cannot_hold_it() {
    let server = RedisServer::start();
    let minute = Duration::from_secs(60);
    let refused: [(Destination, &str); 4] = [
        (List::new("jobs").into(), "reliable"),
        (
            List::new("jobs").reliable().ttl(minute).into(),
            "not be deleted with it",
        ),
        (Stream::new("orders").max_len(10).into(), "does not trim"),
        (Destination::channel("news"), "keeps nothing"),
    ];
    for (to, why) in refused {
        let message = Outgoing::new("x").delay(minute);
        let published = publisher(&server, to).publish(&message).await;
        let error = published.unwrap_err();
        assert!(matches!(error, Error::Delay { .. }), "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }
    let many = vec![(Bytes::from_static(b"n"), Bytes::new()); delayed::FIELDS_MAX];
    let many = Outgoing {
        fields: Some(many),
        ..Outgoing::default()
    };
    let to = publisher(&server, Stream::new("orders"));
    let error = to.publish(&many.delay(minute)).await.unwrap_err();
    assert!(matches!(error, Error::Unwritable(_)), "{error}");
    assert_eq!(server.raw().await.number("DBSIZE").await, 0);
}

#[tokio::test]
async fn publishing_continues_without_duplicates_after_the_server_forgot_its_scripts() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let to = publisher(&server, List::new("jobs").ttl(FOR_EVER));
    for round in 1..4 {
        raw.ask("SCRIPT FLUSH").await;
        let messages = vec![Outgoing::new("x"); 100];
        let receipts = to.publish_all(&messages).await.unwrap();
        assert_eq!(receipts.last(), Some(&Receipt::Length(round * 100)));
    }
}

#[tokio::test]
async fn users_with_the_documented_rights_publish_and_serve_delayed_messages() {
    let rights = "+evalsha +script|load +time +zadd +zscore";
    assert!(security_user::docs().replace('\n', " ").contains(rights));
    let producer = format!("producer on >p resetkeys ~{{orders}}:delayed -@all {rights}");
    let server = RedisOptions::default()
        .user(&producer)
        .user(&security_user::documented_user("hostler-orders"))
        .start();
    let as_user = |user: &str, pass: &str| format!("{}?user={user}&pass={pass}", server.url());
    let to = Publisher::new(&connector(&as_user("producer", "p")), Stream::new("orders"));
    later(&to, Outgoing::new("mine"), Duration::from_millis(1)).await;
    let options = StreamOptions::new("orders", "workers");
    let host = connector(&as_user("hostler-orders", "change-me"));
    let queue = StreamQueue::open(host, options).await.unwrap();
    let mut claims = Vec::new();
    eventually("it is due", async || {
        queue.take_due(1).await.unwrap();
        claims.extend(fetch(&queue, 1).await);
        !claims.is_empty()
    })
    .await;
    assert_eq!(claims[0].message.body, "mine");
}
