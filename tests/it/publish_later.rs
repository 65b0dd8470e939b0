//! Messages with a delay, from publishing to the handler: streams and reliable lists.

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

use crate::queue_scene::connector;
use crate::{list_scene, queue_scene, security_user};

const STREAM_LATER: &str = "{orders}:delayed";
/// Longer than any test: what is due then never comes by itself.
const FOR_EVER: Duration = Duration::from_secs(3600);

fn publisher(server: &RedisServer, to: impl Into<Destination>) -> Publisher {
    Publisher::new(&connector(&server.url()), to)
}

/// Publish one that waits; returns its id and when it is due.
async fn later(publisher: &Publisher, message: Outgoing, delay: Duration) -> (String, u64) {
    match publisher.publish(&message.delay(delay)).await.unwrap() {
        Receipt::Scheduled { id, due_ms } => (id, due_ms),
        other => panic!("it waits for its time: {other:?}"),
    }
}

/// The server's clock, in ms.
async fn now_ms(raw: &RawRedis) -> u64 {
    let time: Vec<u64> = redis::from_redis_value(raw.ask("TIME").await).unwrap();
    time[0] * 1000 + time[1] / 1000
}

/// Let the clock reach everything that waits.
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
async fn a_message_of_a_stream_comes_to_every_group_when_it_is_due_and_not_before() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let mut hosts = Vec::new();
    for group in ["workers", "auditors"] {
        hosts.push(HostOptions::new(&server).flag("group", group).ready().await);
    }
    let publisher = publisher(&server, Stream::new("orders"));
    let before = now_ms(&raw).await;
    let (id, due_ms) = later(&publisher, Outgoing::new("ack"), Duration::from_millis(700)).await;
    assert!(due_ms >= before + 700);
    assert_eq!(raw.number("XLEN orders").await, 0);
    eventually("both groups have handled it", async || {
        hosts.iter().all(|host| host.witness().starts(&id) > 0)
    })
    .await;
    // An entry's id is when it was appended.
    let entries = raw.entries("orders").await;
    let at: u64 = entries[0].0.split_once('-').unwrap().0.parse().unwrap();
    assert!(at >= due_ms, "{} ms early", due_ms - at);
    assert_eq!(
        (entries.len(), raw.number("EXISTS {orders}:delayed").await),
        (1, 0)
    );
    for host in hosts {
        let ended = host.drain().await;
        ended.expect_code(0);
        assert_eq!(
            (ended.json()["acked"].as_u64(), ended.witness().starts(&id)),
            (Some(1), 1)
        );
    }
}

#[tokio::test]
async fn what_waits_is_seen_from_outside_and_keeps_a_host_that_would_end() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    raw.ask("XGROUP CREATE orders workers 0 MKSTREAM").await;
    let publisher = publisher(&server, Stream::new("orders"));
    let (far, _) = later(&publisher, Outgoing::new("ack"), FOR_EVER).await;
    let (near, _) = later(&publisher, Outgoing::new("ack"), FOR_EVER / 2).await;
    let url = server.url();
    let inspect = [
        "inspect", "--redis", &url, "--stream", "orders", "--group", "workers", "--json",
    ];
    let report = command::run(inspect).ok().json();
    assert_eq!(report["delayed"], 2);
    let next = report["next_due_ms"].as_u64().unwrap();
    assert!((1..=1_800_000).contains(&next), "{next}");

    let host = HostOptions::new(&server).until_empty().ready().await;
    raw.add("orders", "ack").await;
    eventually("it handles what is there", async || {
        host.witness().total() == 1
    })
    .await;
    // Twice as long as between two looks at the backlog: it would have ended.
    let looks = async || raw.text("INFO commandstats").await;
    let evals = |stats: &str| -> u64 {
        let line = stats.lines().find(|line| line.starts_with("cmdstat_zcard"));
        line.and_then(|line| line.split(['=', ',']).nth(1)?.parse().ok())
            .unwrap_or(0)
    };
    let seen = evals(&looks().await);
    eventually("it looks again", async || evals(&looks().await) >= seen + 3).await;
    assert_eq!(raw.number(&format!("ZCARD {STREAM_LATER}")).await, 2);
    make_due(&raw, STREAM_LATER).await;
    let ended = host.ended().await;
    ended.expect_code(0);
    let witness = ended.witness();
    assert_eq!(
        (witness.starts(&far), witness.starts(&near), witness.total()),
        (1, 1, 3)
    );
}

#[tokio::test]
async fn many_hosts_append_each_once_in_order_and_in_bounded_steps() {
    let scene = queue_scene::Scene::new().await;
    let to_orders = publisher(&scene.server, Stream::new("orders"));
    let messages: Vec<_> = (0..450)
        .map(|n| Outgoing::new(n.to_string()).delay(FOR_EVER))
        .collect();
    to_orders.publish_all(&messages).await.unwrap();
    // One moment for all, as when a backlog has come due: the order of publishing decides.
    let members: Vec<Vec<u8>> =
        redis::from_redis_value(scene.raw.ask(&format!("ZRANGE {STREAM_LATER} 0 -1")).await)
            .unwrap();
    for member in &members {
        scene
            .raw
            .ask_words(&[b"ZADD", STREAM_LATER.as_bytes(), b"1", member])
            .await;
    }
    let host = scene.host().await;
    let taken = host.take_due(10).await.unwrap();
    assert_eq!(
        (taken.claims.len(), taken.next_due),
        (0, Some(Duration::ZERO))
    );
    assert_eq!(scene.raw.number("XLEN orders").await, 100);

    let hosts: Vec<StreamQueue> = [scene.host().await, scene.host().await, host].into();
    let runs = hosts
        .iter()
        .map(|host| async { while host.take_due(10).await.unwrap().next_due.is_some() {} });
    futures_util::future::join_all(runs).await;
    let bodies: Vec<_> = scene
        .raw
        .entries("orders")
        .await
        .into_iter()
        .map(|(_, fields)| fields[1].clone())
        .collect();
    let expected: Vec<_> = (0..450).map(|n| n.to_string().into_bytes()).collect();
    assert_eq!(bodies, expected);
    assert_eq!(scene.raw.number(&format!("EXISTS {STREAM_LATER}")).await, 0);
}

#[tokio::test]
async fn it_arrives_byte_for_byte_with_an_id_that_stays() {
    let scene = queue_scene::Scene::new().await;
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
async fn what_is_no_message_blocks_nothing_behind_it() {
    let scene = queue_scene::Scene::new().await;
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
        scene
            .raw
            .ask_words(&[b"ZADD", STREAM_LATER.as_bytes(), b"0", &member])
            .await;
    }
    scene.raw.ask(&format!("ZADD {STREAM_LATER} 0 short")).await;
    scene.host().await.take_due(1).await.unwrap();
    let entries = scene.raw.entries("orders").await;
    assert_eq!(entries.len(), lies.len() + 2);
    let (good, others) = entries.split_last().unwrap();
    assert_eq!(good.1[1], b"good");
    for (_, fields) in others {
        assert_eq!(fields[0], b"_payload");
    }
    let bodies: HashSet<_> = others.iter().map(|(_, fields)| fields[1].clone()).collect();
    assert!(bodies.contains(&b"short"[..]));
    assert!(bodies.contains(&[&token[..], lies[6]].concat()));
}

#[tokio::test]
async fn a_full_server_refuses_to_hold_more_and_gives_what_it_has() {
    let scene = queue_scene::Scene::new().await;
    let to = publisher(&scene.server, Stream::new("orders"));
    later(&to, Outgoing::new("held"), FOR_EVER).await;
    make_due(&scene.raw, STREAM_LATER).await;
    let host = scene.host().await;
    scene.raw.ask("CONFIG SET maxmemory 1").await;
    let refused = to.publish(&Outgoing::new("more").delay(FOR_EVER)).await;
    assert!(refused.unwrap_err().to_string().contains("OOM"));
    host.take_due(1).await.unwrap();
    assert_eq!(
        host.fetch(1, Duration::ZERO).await.unwrap()[0].message.body,
        "held"
    );
}

#[tokio::test]
async fn what_expires_while_it_waits_is_dead_lettered_unrun() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let message = Outgoing::new("ack").expires_in(Duration::from_millis(30));
    let to = publisher(&server, Stream::new("orders"));
    later(&to, message, Duration::from_millis(20)).await;
    eventually("it is past", async || {
        let due: Vec<(Vec<u8>, u64)> = redis::from_redis_value(
            raw.ask(&format!("ZRANGE {STREAM_LATER} 0 0 WITHSCORES"))
                .await,
        )
        .unwrap();
        now_ms(&raw).await > due[0].1 + 50
    })
    .await;
    let ended = HostOptions::new(&server)
        .dead_letter()
        .until_empty()
        .end()
        .await;
    ended.expect_code(0);
    assert_eq!(ended.json()["dead_lettered"]["expired"], 1);
    assert_eq!(ended.witness().total(), 0);
}

#[tokio::test]
async fn a_reliable_list_hands_it_out_whatever_its_framing() {
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
        // Its first start is still to come: nothing was charged for the wait.
        assert_eq!((claims[0].header, claims[0].native), (0, 1));
    }
}

#[tokio::test]
async fn hosts_of_a_reliable_list_handle_it_once_within_its_cap() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let to = publisher(&server, List::new("jobs").reliable());
    let options = HostOptions::new(&server)
        .without("stream")
        .without("group")
        .flag("list", "jobs")
        .flag("reliable", "true")
        .flag("dead-letter", "jobs:dead")
        .flag("max-deliveries", "1");
    let hosts = [options.ready().await, options.ready().await];
    let mut ids = Vec::new();
    for n in 0..20 {
        let body = if n % 2 == 0 { "ack" } else { "nack" };
        ids.push(
            later(&to, Outgoing::new(body), Duration::from_millis(300))
                .await
                .0,
        );
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
        assert!(
            ids.iter()
                .any(|id| headers.find_str("x-message-id") == Some(id))
        );
    }
    assert_eq!(raw.number("EXISTS {jobs}:delayed").await, 0);
}

#[tokio::test]
async fn a_delay_is_refused_where_nobody_would_look() {
    let server = RedisServer::start();
    let minute = Duration::from_secs(60);
    let refused: [(Destination, &str); 4] = [
        (List::new("jobs").into(), "reliable"),
        (List::new("jobs").reliable().ttl(minute).into(), "lapse"),
        (Stream::new("orders").max_len(10).into(), "trimmed"),
        (Destination::channel("news"), "keeps nothing"),
    ];
    for (to, why) in refused {
        let error = publisher(&server, to)
            .publish(&Outgoing::new("x").delay(minute))
            .await
            .unwrap_err();
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
async fn a_server_that_forgets_scripts_is_told_again_and_nothing_is_twice() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let to = publisher(&server, List::new("jobs").ttl(FOR_EVER));
    for round in 1..4 {
        raw.ask("SCRIPT FLUSH").await;
        let receipts = to
            .publish_all(&vec![Outgoing::new("x"); 100])
            .await
            .unwrap();
        assert_eq!(receipts.last(), Some(&Receipt::Length(round * 100)));
    }
}

#[tokio::test]
async fn users_with_the_documented_rights_publish_and_serve_it() {
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
    let queue = StreamQueue::open(connector(&as_user("hostler-orders", "change-me")), options)
        .await
        .unwrap();
    let mut claims = Vec::new();
    eventually("it is due", async || {
        queue.take_due(1).await.unwrap();
        claims.extend(queue.fetch(1, Duration::ZERO).await.unwrap());
        !claims.is_empty()
    })
    .await;
    assert_eq!(claims[0].message.body, "mine");
}
