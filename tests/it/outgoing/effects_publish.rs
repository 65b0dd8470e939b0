//! What handlers publish: it happens with the acknowledgement, or not at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::wire::frame;
use hostler_tests::checker::DeadLetter;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, HostOptions};
use hostler_tests::redis::{RedisOptions, eventually};

use crate::scene::{self, Kind, on_both};

pub(crate) type Scene = scene::Scene<()>;

on_both! {
    only_an_ack_publishes
    a_mistake_is_an_error_of_its_own_call
    every_refused_write_leaves_no_other_write_behind
    a_key_of_another_type_fails_its_message_and_stops_no_other
    a_write_that_fails_behind_another_one_repeats_none_whichever_host_goes_on
    an_attempt_that_publishes_elsewhere_leaves_nothing_out
    a_full_server_keeps_message_and_effects
    a_host_that_lost_its_delivery_publishes_nothing
    follow_ups_are_exactly_one_per_message_whichever_host_dies
    a_drain_publishes_what_was_acknowledged
}

/// The destinations of the tests.
const GRANTS: &str = r#"{"invoices":"stream:invoices","jobs":{"to":"list:jobs","reliable":true},
    "news":"channel:news","raw":{"to":"list:raw","codec":"raw"},"again":"stream:orders"}"#;

pub(crate) fn host(scene: &Scene, kind: Kind) -> HostOptions {
    let options = HostOptions::new(&scene.server)
        .flag("handler", &guest("publishing").display().to_string())
        .flag("grant-publish", GRANTS)
        .flags("dead-letter=orders:dead max-deliveries=3 backoff-first=5ms");
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flag(
                "grant-publish",
                &GRANTS.replace("stream:orders", "list:orders"),
            )
            .flags("list=orders reliable=true recovery-zset=orders:claims"),
    }
}

/// Publish a message with this id, whose handler does this.
pub(crate) async fn publish(scene: &Scene, kind: Kind, id: &str, body: &str) {
    publish_with(scene, kind, body, &[("x-message-id", id)]).await;
}

async fn publish_with(scene: &Scene, kind: Kind, body: &str, headers: &[(&str, &str)]) {
    match kind {
        Kind::Stream => {
            let names = headers.iter().map(|(name, _)| format!("h:{name}"));
            let names: Vec<String> = names.collect();
            let mut words: Vec<&[u8]> =
                vec![b"XADD", b"orders", b"*", b"_payload", body.as_bytes()];
            for (name, (_, value)) in names.iter().zip(headers) {
                words.extend([name.as_bytes(), value.as_bytes()]);
            }
            scene.raw.ask_words(&words).await;
        }
        Kind::List => {
            let mut all = Headers::default();
            for (name, value) in headers {
                all.push(name.to_string(), value.to_string());
            }
            let value = frame::encode(&all, body.as_bytes()).unwrap();
            scene.push("orders", &value).await;
        }
    }
}

/// The bodies in a stream, in order.
pub(crate) async fn bodies(scene: &Scene, stream: &str) -> Vec<String> {
    let all = DeadLetter::all(&scene.raw, stream).await;
    let body = |entry: &DeadLetter| entry.field(b"_payload").map(<[u8]>::to_vec);
    let bodies = all.iter().filter_map(body);
    bodies
        .map(|body| String::from_utf8(body).unwrap())
        .collect()
}

/// The details of the dead letters, by the ids of their messages.
pub(crate) async fn details(scene: &Scene, kind: Kind) -> BTreeMap<String, String> {
    let detail = |find: &dyn Fn(&str) -> Option<String>| {
        (
            find("x-message-id").unwrap(),
            find("x-dead-letter-detail").unwrap_or_default(),
        )
    };
    match kind {
        Kind::Stream => DeadLetter::all(&scene.raw, "orders:dead")
            .await
            .iter()
            .map(|dead| detail(&|name| dead.header(name).map(str::to_owned)))
            .collect(),
        Kind::List => scene
            .list("orders:dead")
            .await
            .into_iter()
            .map(|value| {
                let (headers, _) = frame::decode(&Bytes::from(value)).unwrap();
                detail(&|name| headers.find_str(name).map(str::to_owned))
            })
            .collect(),
    }
}

async fn only_an_ack_publishes(kind: Kind) {
    let scene = Scene::new().await;
    let mut news = redis::Client::open(scene.url())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    news.subscribe("news").await.unwrap();
    for (id, body) in [
        (
            "ack",
            "publish:invoices:a1+publish:invoices:a2+publish:jobs:j+publish:raw:r+publish:news:n",
        ),
        ("nack", "publish:invoices:nack+nack"),
        ("later", "publish:invoices:one+nack,publish:invoices:two"),
        ("drop", "publish:invoices:drop+drop:no"),
        ("trap", "publish:invoices:trap+trap"),
        ("slow", "publish:invoices:slow+sleep:60000"),
        ("none", "ack"),
    ] {
        publish(&scene, kind, id, body).await;
    }
    let ended = host(&scene, kind).flag("timeout", "2s").finish().await;
    assert_eq!(ended.json()["acked"], 3);
    let published: BTreeSet<String> = bodies(&scene, "invoices").await.into_iter().collect();
    let wanted = ["a1", "a2", "two"].map(str::to_owned);
    assert_eq!(published, BTreeSet::from(wanted));
    assert_eq!(scene.list("raw").await, [b"r"]);
    assert_eq!(details(&scene, kind).await.len(), 4);

    // A follow-up has an id of its own, starts anew, and names its source.
    let source = match kind {
        Kind::Stream => "orders/workers/ack",
        Kind::List => "orders/ack",
    };
    let invoices = DeadLetter::all(&scene.raw, "invoices").await;
    let second = invoices
        .iter()
        .find(|i| i.field(b"_payload") == Some(b"a2"));
    let second = second.unwrap();
    assert_eq!(second.header("x-message-id"), Some(&*format!("{source}#2")));
    assert_eq!(second.header("x-correlation-id"), Some("ack"));
    assert_eq!(second.header("x-hops"), Some("1"));
    assert_eq!(second.header("x-retry-count"), None);
    let jobs = scene.list("jobs").await;
    let (headers, body) = frame::decode(&Bytes::from(jobs[0].clone())).unwrap();
    assert_eq!((jobs.len(), &body[..]), (1, &b"j"[..]));
    assert_eq!(
        headers.find_str("x-message-id"),
        Some(&*format!("{source}#3"))
    );
    let message = futures_util::StreamExt::next(&mut news.on_message()).await;
    let (_, body) =
        frame::decode(&Bytes::from(message.unwrap().get_payload_bytes().to_vec())).unwrap();
    assert_eq!(body, "n");
}

async fn a_mistake_is_an_error_of_its_own_call(kind: Kind) {
    let scene = Scene::new().await;
    for (id, body) in [
        ("name", "publish:invoice:x"),
        ("reserved", "header:invoices:x-retry-count=3"),
        ("raw", "header:raw:tenant=a"),
        ("delay", "later:news:1000:x"),
        ("long", "later:invoices:99999999999:x"),
        ("bytes", "publish:invoices:kept+big:invoices:5000"),
        ("count", "publish-each:11:invoices:x"),
        ("goes on", "try:publish:invoice:x+publish:invoices:went on"),
    ] {
        publish(&scene, kind, id, body).await;
    }
    let options = host(&scene, kind).flags("publish-max-bytes=4KiB publish-max-messages=10");
    let ended = options.finish().await;
    assert_eq!(ended.json()["acked"], 1);
    assert_eq!(bodies(&scene, "invoices").await, ["went on"]);
    let details = details(&scene, kind).await;
    for (id, said) in [
        (
            "name",
            "no destination has this name; granted: again, invoices, jobs, news, raw",
        ),
        ("reserved", "the host sets the header `x-retry-count`"),
        ("raw", "they have no headers"),
        ("delay", "cannot have a delay"),
        ("long", "longer than 366 days"),
        ("bytes", "4096 bytes at most"),
        ("count", "10 messages at most"),
    ] {
        assert!(details[id].contains(said), "{id}: {}", details[id]);
    }
}

/// Writes to a key of each type, in the order of the calls.
const EACH: [&str; 4] = ["a", "b", "c", "{d}:delayed"];
const EACH_GRANTS: &str =
    r#"{"a":"stream:a","b":"list:b","c":"stream:c","d":{"to":"list:d","reliable":true}}"#;
const EACH_BODY: &str = "publish:a:x+publish:b:x+publish:c:x+later:d:1:x";

/// The k-th of n writes fails, for every k, by a missing right.
async fn every_refused_write_leaves_no_other_write_behind(kind: Kind) {
    let scene = Scene::with_user("").await;
    let options = host(&scene, kind)
        .flag("grant-publish", EACH_GRANTS)
        .flag("redis", &scene.user_url());
    let host = options.admin().ready().await;
    for (place, key) in EACH.into_iter().enumerate() {
        // Everything but this key.
        let others = EACH.iter().filter(|other| *other != &key);
        let others: Vec<String> = others.map(|key| format!("~{key}")).collect();
        let rule = format!("resetkeys ~orders* ~{{orders}}:* {}", others.join(" "));
        scene.rights(&rule).await;
        publish(&scene, kind, key, EACH_BODY).await;
        let refused = || host.metric("hostler_settlements_refused_total");
        let before = refused();
        eventually("it is refused twice", async || refused() >= before + 2).await;
        for other in EACH.into_iter().filter(|other| other != &key) {
            assert!(
                !scene.exists(other).await,
                "{key} is refused, {other} is written"
            );
        }
        // While effects are refused, nothing else starts.
        let starts = 2 * place + 1;
        host.starts(starts).await;
        publish(&scene, kind, "next", "ack").await;
        let before = refused();
        eventually("it is refused again", async || refused() > before).await;
        assert_eq!(host.witness().total(), starts, "{key}");
        scene.rights("allkeys").await;
        eventually("it is published", async || {
            host.metric("hostler_published_total") == 4 * (place as u64 + 1)
        })
        .await;
        eventually("the next one runs", async || {
            host.witness().total() == starts + 1
        })
        .await;
        for key in EACH {
            assert_eq!(length(&scene, key).await, 1, "{key}");
            scene.delete(key).await;
        }
    }
    assert_eq!(host.drain().await.expect_code(0).json()["acked"], 8);
}

/// The k-th of n writes fails, for every k, by the type of its key.
async fn a_key_of_another_type_fails_its_message_and_stops_no_other(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind).flag("grant-publish", EACH_GRANTS);
    let host = options.admin().ready().await;
    for key in EACH {
        scene.obstruct(key).await;
        publish(&scene, kind, key, EACH_BODY).await;
        let next = format!("after {key}");
        publish(&scene, kind, &next, "ack").await;
        // The log may be behind Redis.
        eventually("it is given up, and the next one runs", async || {
            let witness = host.witness();
            details(&scene, kind).await.contains_key(key)
                && witness.starts(&next) == 1
                && witness.starts(key) >= 3
        })
        .await;
        assert_eq!(host.witness().attempts(key), [1, 2, 3]);
        let detail = &details(&scene, kind).await[key];
        let said = format!("its effects do not fit: {key} is a string, and a ");
        assert!(detail.starts_with(&said), "{detail}");
        for other in EACH.into_iter().filter(|other| other != &key) {
            assert!(!scene.exists(other).await, "{key}: {other} is written");
        }
        scene.delete(key).await;
    }
    assert_eq!(host.metric("hostler_settlements_refused_total"), 0);
    assert_eq!(host.metric("hostler_published_total"), 0);
    assert_eq!(host.drain().await.expect_code(0).json()["acked"], 4);
}

/// A stream that can take no more entries: its last id is the greatest there is.
async fn exhaust(scene: &Scene, stream: &str) {
    let greatest = u64::MAX;
    let add = format!("XADD {stream} {greatest}-{greatest} name value");
    scene.raw.ask(&add).await;
}

/// No script can ask for this cause before it writes.
async fn a_write_that_fails_behind_another_one_repeats_none_whichever_host_goes_on(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind)
        .flag(
            "grant-publish",
            r#"{"a":"stream:a","b":"stream:b","c":"stream:c"}"#,
        )
        .flags("min-idle=300ms orphan-scan=50ms")
        .admin();
    exhaust(&scene, "b").await;
    publish(&scene, kind, "m", "publish:a:1+publish:b:2+publish:c:3").await;
    let refusals = async |host: &hostler_tests::host::Host, times: u64| {
        let refused = || host.metric("hostler_settlements_refused_total");
        eventually("it is refused again", async || refused() >= times).await;
    };
    let first = options.ready().await;
    refusals(&first, 3).await;
    assert_eq!(
        (length(&scene, "a").await, length(&scene, "c").await),
        (1, 0)
    );
    first.kill().await;
    // Another attempt on another host goes on where the first one was.
    let second = options.ready().await;
    refusals(&second, 2).await;
    assert_eq!(
        (length(&scene, "a").await, length(&scene, "c").await),
        (1, 0)
    );
    scene.delete("b").await;
    eventually("the rest is published", async || {
        length(&scene, "c").await == 1
    })
    .await;
    assert_eq!(
        (length(&scene, "a").await, length(&scene, "b").await),
        (1, 1)
    );
    publish(&scene, kind, "n", "publish:a:1+publish:b:2+publish:c:3").await;
    eventually("the next one is whole", async || {
        length(&scene, "c").await == 2
    })
    .await;
    assert_eq!(
        (length(&scene, "a").await, length(&scene, "b").await),
        (2, 2)
    );
    assert_eq!(second.drained().await.json()["acked"], 2);
    assert!(
        !scene
            .exists(&format!(
                "{{orders}}:written:{}",
                match kind {
                    Kind::Stream => "workers",
                    Kind::List => "",
                }
            ))
            .await
    );
}

/// The next host has another configuration: the writes of the first one elsewhere do not count as its
/// own.
async fn an_attempt_that_publishes_elsewhere_leaves_nothing_out(kind: Kind) {
    let scene = Scene::new().await;
    let host = |to: &str| {
        let granted = format!(r#"{{"a":"stream:{to}","b":"stream:b"}}"#);
        let host = host(&scene, kind).flag("grant-publish", &granted);
        host.flags("min-idle=300ms orphan-scan=50ms").admin()
    };
    exhaust(&scene, "b").await;
    publish(&scene, kind, "m", "publish:a:1+publish:b:2").await;
    let first = host("a").ready().await;
    eventually("the first one is written", async || {
        length(&scene, "a").await == 1
    })
    .await;
    first.kill().await;
    let second = host("d").ready().await;
    eventually("the other one is written", async || {
        length(&scene, "d").await == 1
    })
    .await;
    scene.delete("b").await;
    eventually("the rest is published", async || {
        length(&scene, "b").await == 1
    })
    .await;
    second.drained().await;
    assert_eq!(
        (length(&scene, "a").await, length(&scene, "d").await),
        (1, 1)
    );
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

async fn a_full_server_keeps_message_and_effects(kind: Kind) {
    let scene = Scene::new().await;
    let host = host(&scene, kind).flag("timeout", "1m").admin();
    let host = host.ready().await;
    publish(
        &scene,
        kind,
        "m",
        "sleep:3000+publish:invoices:a+publish:jobs:b",
    )
    .await;
    host.starts(1).await;
    scene.out_of_memory(true).await;
    eventually("it is refused", async || {
        host.metric("hostler_settlements_refused_total") >= 2
    })
    .await;
    assert!(!scene.exists("invoices").await && !scene.exists("jobs").await);
    scene.out_of_memory(false).await;
    eventually("both are published", async || {
        length(&scene, "invoices").await == 1 && length(&scene, "jobs").await == 1
    })
    .await;
    let ended = host.drain().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(
        (&summary["attempts"], &summary["acked"]),
        (&1.into(), &1.into())
    );
}

/// A host stands still until another one has taken its message over and acknowledged it. Its own late
/// ack has no effects.
async fn a_host_that_lost_its_delivery_publishes_nothing(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind).flags("min-idle=2s timeout=1m").admin();
    let first = options.ready().await;
    publish(&scene, kind, "m", "sleep:3000+publish:invoices:x").await;
    first.starts(1).await;
    first.pause().await;
    let second = options.ready().await;
    second.starts(1).await;
    eventually("the second one has published", async || {
        length(&scene, "invoices").await == 1
    })
    .await;
    first.resume();
    eventually("the first one has lost it", async || {
        first.metric("hostler_effects_void_total") == 1
    })
    .await;
    assert_eq!(first.metric("hostler_published_total"), 0);
    assert_eq!(second.metric("hostler_published_total"), 1);
    assert_eq!(bodies(&scene, "invoices").await, ["x"]);
    let ended = [first.drain().await, second.drain().await];
    assert_eq!(ended[0].json()["acked"], 0);
    assert!(
        ended[0]
            .stderr()
            .contains("what the attempt published and wrote is void")
    );
}

async fn a_drain_publishes_what_was_acknowledged(kind: Kind) {
    let scene = Scene::new().await;
    let host = host(&scene, kind).ready().await;
    for number in 0..20 {
        let body = format!("sleep:200+publish:invoices:{number}");
        publish(&scene, kind, &number.to_string(), &body).await;
    }
    host.starts(4).await;
    let ended = host.drain().await;
    let acked = ended.expect_code(0).json()["acked"].as_u64().unwrap();
    assert!((4..=20).contains(&acked));
    assert_eq!(bodies(&scene, "invoices").await.len() as u64, acked);
}

async fn follow_ups_are_exactly_one_per_message_whichever_host_dies(kind: Kind) {
    each_message_has_its_follow_ups(kind, 400, host).await;
}

/// `messages` messages that publish to a stream and a list, while hosts are killed and the server is
/// restarted.
pub(crate) async fn each_message_has_its_follow_ups(
    kind: Kind,
    messages: usize,
    host: fn(&Scene, Kind) -> HostOptions,
) {
    const KILLS: usize = 4;
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
    for number in 0..messages {
        let body = format!(
            "sleep:{}+publish:invoices:{number}+publish:raw:{number}{}",
            number % 20,
            if number % 5 == 0 { "+nack:5,ack" } else { "" },
        );
        // Its second attempt publishes as well.
        let body = body.replace(
            ",ack",
            &format!(",publish:invoices:{number}+publish:raw:{number}"),
        );
        publish(&scene, kind, &number.to_string(), &body).await;
        if number % (messages / KILLS) == messages / KILLS / 2 {
            ended.push(hosts.remove(0).kill().await);
            if ended.len() == 2 {
                scene.server.kill();
                scene.server.restart();
                scene.reconnect().await;
            }
            hosts.push(options.ready().await);
        }
    }
    for host in hosts {
        host.kill().await;
    }
    ended.push(options.until_empty().end().await);
    ended.last().unwrap().expect_code(0);
    let wanted: BTreeMap<String, usize> = (0..messages).map(|n| (n.to_string(), 1)).collect();
    let mut invoices = BTreeMap::new();
    for body in bodies(&scene, "invoices").await {
        *invoices.entry(body).or_insert(0) += 1;
    }
    let mut raw = BTreeMap::new();
    for value in scene.list("raw").await {
        *raw.entry(String::from_utf8(value).unwrap()).or_insert(0) += 1;
    }
    assert_eq!(invoices, wanted);
    assert_eq!(raw, wanted);
    assert!(!scene.exists("orders:dead").await);
}

#[tokio::test]
async fn a_handler_that_publishes_to_its_own_queue_ends() {
    let scene = Scene::new().await;
    // It publishes its own body, until it may not.
    publish(&scene, Kind::Stream, "m", "again:again").await;
    let options = host(&scene, Kind::Stream).flag("publish-max-hops", "10");
    let ended = options.finish().await;
    assert_eq!(ended.json()["acked"], 10);
    let details = details(&scene, Kind::Stream).await;
    assert_eq!(details.len(), 1);
    let (id, detail) = details.first_key_value().unwrap();
    assert!(detail.contains("through 10 handlers"), "{detail}");
    assert!(id.len() < 1024 && id.starts_with("orders/workers/"), "{id}");
}

#[tokio::test]
async fn handlers_that_publish_several_messages_to_their_own_queue_end() {
    let scene = Scene::new().await;
    // Each message publishes three like itself. A producer cannot raise the number.
    let body = "again:again+again:again+again:again";
    let forged = [("x-follow-ups-left", "1000000")];
    publish_with(&scene, Kind::Stream, body, &forged).await;
    let options = host(&scene, Kind::Stream).flag("publish-max-follow-ups", "100");
    let ended = options.finish().await;
    // 100 messages: 3, and 32 from each of them; 3, and 9 from each; 3, and 2 from each.
    assert_eq!(ended.json()["acked"], 1 + 3 + 9);
    let details = details(&scene, Kind::Stream).await;
    assert_eq!(details.len(), 27);
    let said = "at most 100 messages may follow from one message, through all handlers, and 2 are left for this one";
    assert!(
        details.values().all(|detail| detail.contains(said)),
        "{details:?}"
    );
}

#[tokio::test]
async fn a_queue_without_acknowledgements_publishes_after_the_verdict() {
    let scene = Scene::with_user("").await;
    let options = HostOptions::new(&scene.server)
        .flag("redis", &scene.user_url())
        .without("stream")
        .without("group")
        .flag("list", "orders")
        .flag("handler", &guest("publishing").display().to_string())
        .flag(
            "grant-publish",
            &GRANTS.replace("stream:orders", "list:orders"),
        )
        .flag("drain-timeout", "3s")
        .admin();
    let host = options.ready().await;
    scene
        .push("orders", b"publish:invoices:a+publish:raw:b")
        .await;
    scene.push("orders", b"publish:invoices:c+nack").await;
    eventually("it is published", async || {
        host.metric("hostler_published_total") == 2 && length(&scene, "raw").await == 1
    })
    .await;
    // One that does not fit is lost, and the next one is published.
    scene.delete("invoices").await;
    scene.obstruct("invoices").await;
    scene.push("orders", b"publish:invoices:d").await;
    scene.push("orders", b"publish:raw:e").await;
    eventually("the next one is published", async || {
        length(&scene, "raw").await == 2
    })
    .await;
    assert_eq!(host.metric("hostler_settlements_refused_total"), 0);
    // One that is refused behind others repeats none of them.
    scene.delete("invoices").await;
    exhaust(&scene, "invoices").await;
    scene
        .push("orders", b"publish:raw:b+publish:invoices:d")
        .await;
    let refused = || host.metric("hostler_settlements_refused_total");
    eventually("it is refused several times", async || refused() >= 3).await;
    assert_eq!(length(&scene, "raw").await, 3);
    scene.delete("invoices").await;
    eventually("it is published", async || {
        length(&scene, "invoices").await == 1
    })
    .await;
    assert_eq!(length(&scene, "raw").await, 3);
    // A refused one waits, and is lost when the host ends.
    let before = refused();
    scene.rights("resetkeys ~orders* ~{orders}:*").await;
    scene.push("orders", b"publish:raw:f").await;
    eventually("it is refused", async || refused() > before).await;
    let ended = host.drain().await;
    assert_eq!(ended.code(), Some(75));
}

#[tokio::test]
async fn destinations_of_the_queue_itself_are_refused_at_the_start() {
    let scene = Scene::new().await;
    for (grants, said) in [
        (
            r#"{"a":"stream:orders:dead"}"#,
            "is a dead-letter queue of this queue",
        ),
        (
            r#"{"a":"stream:{orders}:parked:workers"}"#,
            "is a key that hostler itself keeps",
        ),
        (r#"{"a":"orders"}"#, "has no kind"),
        (
            r#"{"a":"list:orders"}"#,
            "`orders` cannot be a stream and a list",
        ),
        (
            r#"{"a":"stream:x","b":"list:x"}"#,
            "`x` cannot be a stream and a list",
        ),
    ] {
        let options = host(&scene, Kind::Stream).flag("grant-publish", grants);
        let ended = options.end().await;
        ended.expect_code(64);
        assert!(ended.stderr().contains(said), "{}", ended.stderr());
    }
    // A destination that holds something else.
    scene.obstruct("invoices").await;
    let ended = host(&scene, Kind::Stream).end().await;
    ended.expect_code(64);
    assert!(
        ended.stderr().contains("`invoices` holds a string"),
        "{}",
        ended.stderr()
    );
    // Without the grant, the component is refused.
    let ended = host(&scene, Kind::Stream)
        .without("grant-publish")
        .end()
        .await;
    ended.expect_code(65);
    assert!(ended.stderr().contains("publish"), "{}", ended.stderr());
}

#[tokio::test]
async fn a_delayed_follow_up_comes_when_it_is_due() {
    let scene = Scene::new().await;
    publish(&scene, Kind::Stream, "m", "later:again:300:ack").await;
    let ended = host(&scene, Kind::Stream).finish().await;
    assert_eq!(ended.json()["acked"], 2);
    let entries = DeadLetter::all(&scene.raw, "orders").await;
    assert_eq!(
        entries[1].header("x-message-id"),
        Some("orders/workers/m#1")
    );
    let at = |entry: &DeadLetter| -> u64 { entry.id.split('-').next().unwrap().parse().unwrap() };
    assert!(Duration::from_millis(at(&entries[1]) - at(&entries[0])) >= Duration::from_millis(300));
}

/// The channel would get the message again with every try, if it were sent before Redis is asked.
#[tokio::test]
async fn a_full_server_sends_nothing_to_channels() {
    let scene = Scene::new().await;
    let mut news = redis::Client::open(scene.url())
        .unwrap()
        .get_async_pubsub()
        .await
        .unwrap();
    news.subscribe("news").await.unwrap();
    let host = host(&scene, Kind::Stream).flag("timeout", "1m").admin();
    let host = host.ready().await;
    let body = "sleep:3000+publish:news:n+publish:invoices:a";
    publish(&scene, Kind::Stream, "m", body).await;
    host.starts(1).await;
    scene.out_of_memory(true).await;
    eventually("it is refused", async || {
        host.metric("hostler_settlements_refused_total") >= 3
    })
    .await;
    scene.out_of_memory(false).await;
    eventually("it is published", async || {
        length(&scene, "invoices").await == 1
    })
    .await;
    scene.raw.ask("PUBLISH news last").await;
    let mut got = Vec::new();
    let mut messages = news.on_message();
    while got.last().is_none_or(|last: &Vec<u8>| last != b"last") {
        let message = futures_util::StreamExt::next(&mut messages).await.unwrap();
        got.push(message.get_payload_bytes().to_vec());
    }
    assert_eq!(got.len(), 2, "{got:?}");
    host.drain().await.expect_code(0);
}

/// The group is made again while attempts run: each message is acknowledged there, with its effects.
#[tokio::test]
async fn a_group_that_is_made_again_voids_no_effects() {
    let scene = Scene::new().await;
    let options = host(&scene, Kind::Stream).flag("min-idle", "2s");
    let hosts = [
        options.clone().admin().ready().await,
        options.admin().ready().await,
    ];
    for number in 0..8 {
        let body = format!("sleep:700+publish:invoices:{number}");
        publish(&scene, Kind::Stream, &number.to_string(), &body).await;
    }
    eventually("all run", async || {
        hosts
            .iter()
            .map(|host| host.witness().total())
            .sum::<usize>()
            == 8
    })
    .await;
    scene.raw.ask("XGROUP DESTROY orders workers").await;
    eventually("all are published", async || {
        let published: BTreeSet<String> = bodies(&scene, "invoices").await.into_iter().collect();
        published.len() == 8
    })
    .await;
    for host in hosts {
        host.drain().await.expect_code(0);
    }
}
