//! Outboxes: messages that handlers publish to another slot arrive exactly once, and in order, whichever host
//! relays them.

use std::collections::BTreeSet;

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::outgoing::scripts;
use hostler::redis::script::Script;
use hostler::wire::frame;
use hostler_tests::checker::DeadLetter;
use hostler_tests::command;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, HostOptions};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::redis::security_user::{confined_url, documented_user};
use crate::scene::{self, Kind, on_both};

pub(crate) type Scene = scene::Scene<()>;

on_both! {
    every_kind_of_destination_gets_what_was_acknowledged
    follow_ups_are_exactly_one_per_message_whoever_relays_and_dies
    a_refused_head_blocks_its_destination_only
    a_full_outbox_refuses_acks_before_the_first_write
    the_rights_of_outboxes_are_asked_at_the_start
}

/// The destinations of the tests: all in other slots than `orders`.
const GRANTS: &str = r#"{"invoices":"stream:invoices","jobs":{"to":"list:jobs","reliable":true},
    "raw":{"to":"list:raw","codec":"raw"},"news":{"to":"channel:news","sharded":true},
    "all":"channel:all","near":"stream:{orders}:near"}"#;

pub(crate) fn host(scene: &Scene, kind: Kind) -> HostOptions {
    let options = HostOptions::new(&scene.server)
        .flag("handler", &guest("publishing").display().to_string())
        .flag("grant-publish", GRANTS)
        .flags(
            "publish-outbox=always dead-letter={orders}:dead max-deliveries=3 backoff-first=5ms",
        );
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true recovery-zset={orders}:claims"),
    }
}

/// Publish a message with this id, whose handler does this.
pub(crate) async fn publish(scene: &Scene, kind: Kind, id: &str, body: &str) {
    match kind {
        Kind::Stream => {
            let words: [&[u8]; 7] = [
                b"XADD",
                b"orders",
                b"*",
                b"_payload",
                body.as_bytes(),
                b"h:x-message-id",
                id.as_bytes(),
            ];
            scene.raw.ask_words(&words).await;
        }
        Kind::List => {
            let mut headers = Headers::default();
            headers.push("x-message-id", id.to_owned());
            let value = frame::encode(&headers, body.as_bytes()).unwrap();
            scene.push("orders", &value).await;
        }
    }
}

/// The bodies in a stream, in order.
pub(crate) async fn bodies(raw: &hostler_tests::redis::RawRedis, stream: &str) -> Vec<String> {
    let all = DeadLetter::all(raw, stream).await;
    let body = |entry: &DeadLetter| entry.field(b"_payload").map(<[u8]>::to_vec);
    let bodies = all.iter().filter_map(body);
    bodies
        .map(|body| String::from_utf8(body).unwrap())
        .collect()
}

pub(crate) fn outbox(to: &str) -> String {
    format!("{{orders}}:outbox:{to}")
}

pub(crate) async fn waiting(scene: &Scene, to: &str) -> i64 {
    scene.raw.number(&format!("XLEN {}", outbox(to))).await
}

async fn length(scene: &Scene, key: &str) -> i64 {
    let kind = scene.raw.text(&format!("TYPE {key}")).await;
    let count = match &*kind {
        "stream" => "XLEN",
        "list" => "LLEN",
        "zset" => "ZCARD",
        _ => return 0,
    };
    scene.raw.number(&format!("{count} {key}")).await
}

async fn every_kind_of_destination_gets_what_was_acknowledged(kind: Kind) {
    let scene = Scene::new().await;
    let mut news = redis::Client::open(scene.url())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    news.subscribe("all").await.unwrap();
    // A sharded channel has subscribers of its own; this library has no word for them.
    let (sender, mut pushes) = tokio::sync::broadcast::channel(16);
    let config = redis::AsyncConnectionConfig::new().set_push_sender(sender);
    let client = redis::Client::open(format!("{}?protocol=resp3", scene.url())).unwrap();
    let mut subscriber = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .unwrap();
    redis::cmd("SSUBSCRIBE")
        .arg("news")
        .exec_async(&mut subscriber)
        .await
        .unwrap();

    let all = "publish:invoices:a+publish:invoices:b+publish:jobs:j+publish:raw:r+publish:news:n\
               +publish:all:c+publish:near:d+later:invoices:600000:l+later:jobs:1:k";
    let before = scene.now_ms().await;
    for (id, body) in [
        ("ack", all),
        ("nack", "publish:invoices:no+nack"),
        ("trap", "publish:jobs:no+trap"),
    ] {
        publish(&scene, kind, id, body).await;
    }
    let ended = host(&scene, kind).finish().await;
    assert_eq!(ended.json()["acked"], 1);
    assert_eq!(bodies(&scene.raw, "invoices").await, ["a", "b"]);
    assert_eq!(bodies(&scene.raw, "{orders}:near").await, ["d"]);
    assert_eq!(scene.list("raw").await, [b"r"]);
    assert_eq!(length(&scene, "jobs").await, 1);
    // The delay counts from the acknowledgement.
    let due = "ZRANGE {invoices}:delayed 0 0 WITHSCORES";
    let due: Vec<(Bytes, f64)> = redis::from_redis_value(scene.raw.ask(due).await)
        .map(|pairs: Vec<(Vec<u8>, f64)>| pairs.into_iter().map(|(m, s)| (m.into(), s)).collect())
        .unwrap();
    let least = before as f64 + 600_000.0;
    assert!((least..least + 60_000.0).contains(&due[0].1), "{due:?}");
    assert_eq!(length(&scene, "{jobs}:delayed").await, 1);
    let message = futures_util::StreamExt::next(&mut news.on_message()).await;
    let (_, body) =
        frame::decode(&Bytes::from(message.unwrap().get_payload_bytes().to_vec())).unwrap();
    assert_eq!(body, "c");
    loop {
        let push = pushes.recv().await.unwrap();
        if push.kind == redis::PushKind::SMessage {
            break;
        }
    }
    // A destination in the same slot, and a plain channel, need no outbox.
    let mut outboxes: Vec<String> =
        redis::from_redis_value(scene.raw.ask("SMEMBERS {orders}:outboxes").await).unwrap();
    outboxes.sort();
    assert_eq!(
        outboxes,
        ["channel:news", "list:jobs", "list:raw", "stream:invoices"]
    );
    for to in outboxes {
        assert_eq!(waiting(&scene, &to).await, 0, "{to}");
    }

    // A follow-up is the same as without an outbox.
    let invoices = DeadLetter::all(&scene.raw, "invoices").await;
    let source = match kind {
        Kind::Stream => "orders/workers/ack",
        Kind::List => "orders/ack",
    };
    assert_eq!(
        invoices[1].header("x-message-id"),
        Some(&*format!("{source}#2"))
    );
    assert_eq!(invoices[1].header("x-correlation-id"), Some("ack"));
}

/// Messages that publish to two slots, while hosts are killed and stand still, replies are lost, and the
/// server is restarted.
async fn follow_ups_are_exactly_one_per_message_whoever_relays_and_dies(kind: Kind) {
    const MESSAGES: usize = 300;
    const KILLS: usize = 3;
    let options = RedisOptions::default()
        .appendonly()
        .set("appendfsync", "always");
    let mut scene = Scene::with(options).await;
    let options =
        host(&scene, kind).flags("min-idle=1s max-deliveries=30 concurrency=8 wait-redis=20s");
    let mut hosts = vec![
        options.ready().await,
        options.ready().await,
        options.ready().await,
    ];
    let mut ended: Vec<Ended> = Vec::new();
    for number in 0..MESSAGES {
        let body = format!(
            "sleep:{}+publish:invoices:{number}+publish:raw:{number}",
            number % 10
        );
        publish(&scene, kind, &number.to_string(), &body).await;
        if number % (MESSAGES / KILLS) == MESSAGES / KILLS / 2 {
            // One stands still somewhere, while the others go on.
            hosts[1].pause().await;
            ended.push(hosts.remove(0).kill().await);
            hosts.push(options.ready().await);
            if ended.len() == 2 {
                scene.server.kill();
                scene.server.restart();
                scene.reconnect().await;
            }
            hosts[0].resume();
        }
    }
    ended.push(options.finish().await);
    for host in hosts {
        ended.push(host.drain().await);
    }
    let expected: BTreeSet<String> = (0..MESSAGES).map(|n| n.to_string()).collect();
    let invoices = bodies(&scene.raw, "invoices").await;
    let raw = scene.list("raw").await.into_iter();
    let raw: Vec<String> = raw.map(|value| String::from_utf8(value).unwrap()).collect();
    for published in [invoices, raw] {
        assert_eq!(published.len(), MESSAGES);
        assert_eq!(
            published.into_iter().collect::<BTreeSet<String>>(),
            expected
        );
    }
    for to in ["stream:invoices", "list:raw"] {
        assert_eq!(waiting(&scene, to).await, 0);
    }
    assert_eq!(length(&scene, "{orders}:dead").await, 0);
}

async fn a_refused_head_blocks_its_destination_only(kind: Kind) {
    let scene = Scene::with_user("").await;
    let options = host(&scene, kind)
        .flag("redis", &scene.user_url())
        .flag("concurrency", "1")
        .admin();
    let host = options.ready().await;
    scene.obstruct("invoices").await;
    for number in 0..3 {
        let body = format!("publish:invoices:{number}+publish:raw:{number}");
        publish(&scene, kind, &number.to_string(), &body).await;
    }
    let refusals = || host.metric("hostler_outbox_refusals_total");
    let three = || host.metric("hostler_outbox_relayed_total") == 3;
    eventually("the other one has all", async || three()).await;
    eventually("it is refused twice", async || refusals() >= 2).await;
    assert_eq!(waiting(&scene, "stream:invoices").await, 3);
    assert_eq!(host.metric("hostler_outbox_blocked"), 1);
    // It is said once, however often it is tried.
    let said = "cannot relay what was published";
    host.logs(said).await;
    assert_eq!(host.count(|line| line.message().starts_with(said)), 1);
    // The queue goes on: nothing of it is refused.
    assert_eq!(host.metric("hostler_settlements_refused_total"), 0);

    let inspect = |json: &str| {
        let queue = match kind {
            Kind::Stream => &["--stream", "orders", "--group", "workers"][..],
            Kind::List => &["--list", "orders", "--reliable"],
        };
        let url = scene.url();
        let words = [&["inspect", "--redis", &url], queue, &[json]].concat();
        command::run(words.into_iter().filter(|word| !word.is_empty())).ok()
    };
    let shown = inspect("--json").json();
    let waits = shown["outboxes"].as_array().unwrap().iter();
    let waits: Vec<_> = waits.filter(|outbox| outbox["length"] != 0).collect();
    assert_eq!(waits.len(), 1, "{shown}");
    assert_eq!(waits[0]["to"], "stream:invoices");
    assert_eq!(waits[0]["length"], 3);
    assert!(waits[0]["oldest_ms"].as_u64().is_some());
    let text = inspect("").stdout;
    assert!(
        text.contains("3 to stream:invoices (the oldest for"),
        "{text}"
    );
    eventually("the gauges show it", async || {
        host.metric("hostler_outbox_messages") == 3
    })
    .await;

    // Entries that are left stay, and are reported. An empty queue is not empty as long as it waits.
    let ended = host.drained().await;
    let left = |ended: &Ended| {
        let said = ended.log.iter();
        let said = said.filter(|line| line.message().starts_with("left in outboxes"));
        said.filter_map(|line| line.number("messages"))
            .collect::<Vec<_>>()
    };
    assert_eq!(left(&ended), [3]);
    let other = options.flag(
        "grant-publish",
        r#"{"raw":{"to":"list:raw","codec":"raw"}}"#,
    );
    let until_empty = other.clone().until_empty();
    let ended = until_empty.flag("until-empty-timeout", "1s").end().await;
    assert_eq!(left(ended.expect_code(75)), [3]);
    assert_eq!(waiting(&scene, "stream:invoices").await, 3);

    // A missing right, and no memory, are the same. A host without work relays what is left, also if its
    // configuration names the destination no more.
    scene.delete("invoices").await;
    scene
        .rights("resetkeys ~orders* ~{orders}:* ~raw ~{raw}:* ~{invoices}:*")
        .await;
    let host = other.ready().await;
    host.logs("an outbox holds messages").await;
    host.logs(said).await;
    scene.out_of_memory(true).await;
    scene.rights("allkeys").await;
    eventually("it is refused for another reason", async || {
        host.metric("hostler_outbox_refusals_total") >= 3
    })
    .await;
    assert!(!scene.exists("invoices").await);
    scene.out_of_memory(false).await;
    eventually("all is relayed", async || {
        waiting(&scene, "stream:invoices").await == 0
    })
    .await;
    assert_eq!(bodies(&scene.raw, "invoices").await, ["0", "1", "2"]);
    host.drained().await;
}

async fn a_full_outbox_refuses_acks_before_the_first_write(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind)
        .flags("publish-outbox-max=2 concurrency=1")
        .admin();
    let host = options.ready().await;
    scene.obstruct("invoices").await;
    let body = |n| format!("publish:raw:{n}+publish:near:{n}+publish:invoices:{n}");
    for number in 0..5 {
        publish(&scene, kind, &number.to_string(), &body(number)).await;
    }
    let refused = || host.metric("hostler_settlements_refused_total");
    eventually("an ack is refused twice", async || refused() >= 2).await;
    assert!(
        host.get("/ready").1.contains("OUTBOXFULL"),
        "{:?}",
        host.get("/ready")
    );
    assert_eq!(waiting(&scene, "stream:invoices").await, 2);
    // At most one more may have started before the first refusal came.
    host.starts(3).await;
    let before = refused();
    eventually("it is refused again", async || refused() > before).await;
    let starts = host.witness().total();
    assert!(starts <= 4, "nothing else starts: {starts}");
    eventually("the others are relayed", async || {
        scene.list("raw").await.len() == 2
    })
    .await;
    // Nothing of the refused ones is written.
    assert_eq!(bodies(&scene.raw, "{orders}:near").await, ["0", "1"]);
    scene.delete("invoices").await;
    eventually("all is relayed", async || {
        bodies(&scene.raw, "invoices").await.len() == 5
    })
    .await;
    let five = ["0", "1", "2", "3", "4"];
    assert_eq!(bodies(&scene.raw, "invoices").await, five);
    assert_eq!(bodies(&scene.raw, "{orders}:near").await, five);
    host.drained().await;
}

async fn the_rights_of_outboxes_are_asked_at_the_start(kind: Kind) {
    // The user of the documentation, and what it says about outboxes.
    let user = match kind {
        Kind::Stream => documented_user("hostler-orders"),
        Kind::List => documented_user("hostler-jobs").replace("jobs", "orders"),
    };
    let name = "hostler-orders";
    let more = "~invoices ~{invoices}:delayed ~{invoices}:from +xadd +sadd +xlen +xrange +xtrim +hget +hset";
    let options = RedisOptions::default().user(&format!("{user} {more}"));
    let scene = Scene::with(options).await;
    let options = host(&scene, kind)
        .flag("redis", &confined_url(&scene.server, name))
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag("dead-letter", "orders:dead");
    publish(&scene, kind, "m", "publish:invoices:x+later:invoices:1:y").await;
    options.finish().await;
    assert_eq!(bodies(&scene.raw, "invoices").await, ["x"]);
    for (rules, missing) in [
        ("-xtrim", "+xtrim"),
        ("+xtrim -hset", "+hset"),
        (
            "+hset resetkeys ~orders* ~{orders}:* ~invoices ~{invoices}:delayed",
            "~{invoices}:from",
        ),
    ] {
        scene.raw.ask(&format!("ACL SETUSER {name} {rules}")).await;
        let ended = options.end().await;
        assert_ne!(ended.code(), Some(0));
        let said = ended.stderr();
        assert!(
            said.contains("lacks rights") && said.contains(missing),
            "{said}"
        );
    }
}

/// A host reads a run, and stands still. Others relay it and more, and remove it. Then it writes what it has
/// read.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_that_wakes_late_writes_nothing_twice() {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    let digest = redis::Script::new(scripts::RELAY.source())
        .get_hash()
        .to_owned();
    let first = host(&scene, Kind::Stream).flag("redis", &proxy.url());
    let first = first.flag("min-idle", "2s").ready().await;
    proxy.pause_at(digest.clone());
    for number in 0..5 {
        let body = format!("publish:invoices:{number}");
        publish(&scene, Kind::Stream, &number.to_string(), &body).await;
    }
    eventually("its write is on the way", async || proxy.is_paused()).await;
    assert!(!scene.exists("invoices").await);
    let second = host(&scene, Kind::Stream).flag("min-idle", "2s");
    let second = second.ready().await;
    for number in 5..10 {
        let body = format!("publish:invoices:{number}");
        publish(&scene, Kind::Stream, &number.to_string(), &body).await;
    }
    eventually("the other one has relayed all", async || {
        scene.exists("invoices").await
            && bodies(&scene.raw, "invoices").await.len() == 10
            && waiting(&scene, "stream:invoices").await == 0
    })
    .await;
    let before = scene.calls("evalsha").await;
    proxy.resume();
    eventually("the late write arrives", async || {
        scene.calls("evalsha").await > before + 3
    })
    .await;
    first.drained().await;
    second.drained().await;
    let arrived = bodies(&scene.raw, "invoices").await;
    let unique: BTreeSet<&String> = arrived.iter().collect();
    assert_eq!((arrived.len(), unique.len()), (10, 10), "{arrived:?}");
}

/// The answer to a write is lost, and the answer to a removal.
#[tokio::test(flavor = "multi_thread")]
async fn a_lost_answer_relays_nothing_twice_and_keeps_the_order() {
    let scene = Scene::new().await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    let digest =
        |script: &'static Script| redis::Script::new(script.source()).get_hash().to_owned();
    let (relay, trim) = (digest(&scripts::RELAY), digest(&scripts::OUTBOX_TRIM));
    let options = host(&scene, Kind::Stream).flags("concurrency=1 min-idle=2s");
    let host = options.flag("redis", &proxy.url()).ready().await;
    for (round, needle) in [relay.as_str(), &trim, &relay].iter().enumerate() {
        proxy.cut_reply(*needle, 0);
        for number in 0..4 {
            let number = 4 * round + number;
            let body = format!("publish:invoices:{number}");
            publish(&scene, Kind::Stream, &number.to_string(), &body).await;
        }
        eventually("a reply is lost", async || {
            proxy.replies_cut() == round as u64 + 1
        })
        .await;
        eventually("all is relayed", async || {
            bodies(&scene.raw, "invoices").await.len() >= 4 * (round + 1)
                && waiting(&scene, "stream:invoices").await == 0
        })
        .await;
    }
    host.drained().await;
    let expected: Vec<String> = (0..12).map(|n| n.to_string()).collect();
    assert_eq!(bodies(&scene.raw, "invoices").await, expected);
}

/// An entry of another form, and what an operator can do about it.
#[tokio::test(flavor = "multi_thread")]
async fn an_entry_that_cannot_be_read_is_named_and_can_be_deleted() {
    let scene = Scene::new().await;
    scene
        .raw
        .ask("SADD {orders}:outboxes stream:invoices")
        .await;
    let add = |fields: &str| format!("XADD {} * {fields}", outbox("stream:invoices"));
    scene.raw.ask(&add("write append _payload 1")).await;
    let odd = scene.raw.text(&add("some thing")).await;
    scene.raw.ask(&add("write append _payload 2")).await;
    let host = HostOptions::new(&scene.server).ready().await;
    host.logs("cannot relay what was published").await;
    assert_eq!(bodies(&scene.raw, "invoices").await, ["1"]);
    let said = host.count(|line| line.text("refusal").is_some_and(|why| why.contains(&odd)));
    assert_eq!(said, 1);
    let delete = format!("XDEL {} {odd}", outbox("stream:invoices"));
    scene.raw.ask(&delete).await;
    eventually("it goes on", async || {
        bodies(&scene.raw, "invoices").await.len() == 2
    })
    .await;
    host.drained().await;
}

/// An outbox is lost, and the clock of its server goes back: the destination has a mark above what comes then.
#[tokio::test(flavor = "multi_thread")]
async fn an_outbox_that_begins_again_with_lower_ids_loses_nothing() {
    let scene = Scene::new().await;
    let host = host(&scene, Kind::Stream).ready().await;
    let key = outbox("stream:invoices");
    let again = "redis.call('DEL', KEYS[1]) for i = 1, #ARGV, 2 do redis.call('XADD', KEYS[1], ARGV[i], 'write', \
                 'append', '_payload', ARGV[i + 1]) end return 0";
    let mut expected = Vec::new();
    // Below the mark; and on both sides of it.
    for entries in [&["1-1", "1-2"][..], &["1-5", "1-6", "*"]] {
        expected.push(format!("before {}", entries[0]));
        let body = format!("publish:invoices:{}", expected[expected.len() - 1]);
        publish(&scene, Kind::Stream, entries[0], &body).await;
        eventually("it is relayed", async || {
            scene.exists("invoices").await && bodies(&scene.raw, "invoices").await == expected
        })
        .await;
        let mut words = vec!["EVAL", again, "1", &key];
        words.extend(entries.iter().flat_map(|id| [*id, *id]));
        let words: Vec<&[u8]> = words.into_iter().map(str::as_bytes).collect();
        scene.raw.ask_words(&words).await;
        expected.extend(entries.iter().map(|id| (*id).to_owned()));
        eventually("all is relayed", async || {
            bodies(&scene.raw, "invoices").await == expected
                && waiting(&scene, "stream:invoices").await == 0
        })
        .await;
    }
    let ended = host.drained().await;
    let said = ended.log.iter();
    let said = said.filter(|line| line.message().starts_with("the outbox lost entries"));
    assert_eq!(said.count(), 2);
}

/// A host that needs no outbox finds one that another host began after it, and left.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_outboxes_relays_what_others_leave() {
    let scene = Scene::new().await;
    let other = host(&scene, Kind::Stream)
        .flag("group", "readers")
        .flag("grant-publish", r#"{"near":"stream:{orders}:near"}"#);
    let other = other.ready().await;
    assert!(!scene.exists("{orders}:outboxes").await);
    let host = host(&scene, Kind::Stream).ready().await;
    scene.obstruct("invoices").await;
    publish(&scene, Kind::Stream, "m", "publish:invoices:x").await;
    eventually("it is in the outbox", async || {
        waiting(&scene, "stream:invoices").await == 1
    })
    .await;
    host.kill().await;
    scene.delete("invoices").await;
    eventually("the other one relays it", async || {
        scene.exists("invoices").await && waiting(&scene, "stream:invoices").await == 0
    })
    .await;
    assert_eq!(bodies(&scene.raw, "invoices").await, ["x"]);
    other.drained().await;
}

/// Entries that others add while a host drains are theirs.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_ends_while_others_fill_the_outbox() {
    let scene = Scene::new().await;
    // A drain that waits for them takes longer than the patience of this test.
    let host = host(&scene, Kind::Stream).flag("drain-timeout", "10m");
    let host = host.ready().await;
    let key = outbox("stream:invoices");
    let fill = "while redis.call('XLEN', KEYS[1]) < 1000 do \
                redis.call('XADD', KEYS[1], '*', 'write', 'append', '_payload', 'x') end return 0";
    let words = ["EVAL", fill, "1", &key].map(str::as_bytes);
    let filling = async {
        loop {
            scene.raw.ask_words(&words).await;
        }
    };
    tokio::select! {
        () = filling => {}
        ended = host.drained() => drop(ended),
    }
    assert!(waiting(&scene, "stream:invoices").await > 0);
}

/// A host relays a bounded number of outboxes at a time: one that is empty makes room for the next one.
#[tokio::test(flavor = "multi_thread")]
async fn more_outboxes_than_a_host_relays_at_once_are_relayed_one_after_the_other() {
    let scene = Scene::new().await;
    // Nothing can be relayed, until all that a host may relay at once waits: keys of another type are in the way.
    let fill = "for i = 1, 1010 do \
                redis.call('SET', KEYS[3] .. i, 'x') \
                redis.call('SADD', KEYS[1], 'stream:{orders}:s' .. i) \
                redis.call('XADD', KEYS[2] .. i, '*', 'write', 'append', '_payload', 'x') end";
    let outboxes = outbox("stream:{orders}:s");
    let keys = ["{orders}:outboxes", &outboxes, "{orders}:s"];
    let words = ["EVAL", fill, "3", keys[0], keys[1], keys[2]].map(str::as_bytes);
    scene.raw.ask_words(&words).await;
    let host = host(&scene, Kind::Stream).ready().await;
    host.logs("this host relays 1000 outboxes, and no more")
        .await;
    let clear = "for i = 1, 1010 do redis.call('DEL', KEYS[1] .. i) end";
    let words = ["EVAL", clear, "1", keys[2]].map(str::as_bytes);
    scene.raw.ask_words(&words).await;
    let count =
        "local n = 0 for i = 1, 1010 do n = n + redis.call('XLEN', KEYS[1] .. i) end return n";
    let all = ["EVAL", count, "1", "{orders}:s"].map(str::as_bytes);
    eventually("each is relayed", async || {
        let relayed = scene.raw.ask_words(&all).await;
        relayed == redis::Value::Int(1010)
    })
    .await;
    host.drained().await;
}
