//! Keys of handlers: they are read at once, and written with the acknowledgement, or not at all.

use hostler_tests::guests::guest;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, eventually};

use crate::outgoing::effects_publish::{details, publish};
use crate::redis::security_user::{docs, documented_user};
use crate::scene::{self, Kind, on_both};

type Scene = scene::Scene<()>;

on_both! {
    keys_change_with_the_ack_only
    an_attempt_sees_its_own_writes
    a_mistake_is_an_error_of_its_own_call
    every_refused_write_leaves_no_other_write_behind
    a_key_of_another_type_fails_its_message_and_stops_no_other
    a_host_that_lost_its_delivery_writes_nothing
}

pub(crate) const PREFIX: &str = "{orders}:kv:";

pub(crate) fn host(scene: &Scene, kind: Kind) -> HostOptions {
    let options = HostOptions::new(&scene.server)
        .flag("handler", &guest("keyed").display().to_string())
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag("grant-key-value", &format!(r#"{{"prefix":"{PREFIX}"}}"#))
        .flags("dead-letter=orders:dead max-deliveries=3 backoff-first=5ms");
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true recovery-zset=orders:claims"),
    }
}

/// Run hosts until these messages are handled: each has an id, and says what its handler does.
async fn run(scene: &Scene, kind: Kind, options: HostOptions, messages: &[(&str, &str)]) -> u64 {
    for (id, body) in messages {
        publish(scene, kind, id, body).await;
    }
    options.finish().await.json()["acked"].as_u64().unwrap()
}

pub(crate) async fn value(scene: &Scene, key: &str) -> Option<String> {
    let value = scene.raw.ask(&format!("GET {PREFIX}{key}")).await;
    redis::from_redis_value(value).unwrap()
}

async fn keys_change_with_the_ack_only(kind: Kind) {
    let scene = Scene::new().await;
    for key in ["old", "kept"] {
        scene.obstruct(&format!("{PREFIX}{key}")).await;
    }
    let messages = [
        (
            "ack",
            "set:a=1+set:b=2+lasting:60000:c=3+delete:old+set:a=4+publish:invoices:x",
        ),
        ("nack", "set:nack=1+delete:kept+nack"),
        ("later", "set:one=1+nack,set:two=2"),
        ("drop", "set:drop=1+delete:kept+drop:no"),
        ("trap", "set:trap=1+trap"),
        ("slow", "set:slow=1+sleep:60000"),
    ];
    let options = host(&scene, kind).flag("timeout", "2s");
    assert_eq!(run(&scene, kind, options, &messages).await, 2);
    for (key, wanted) in [
        ("a", "4"),
        ("b", "2"),
        ("c", "3"),
        ("two", "2"),
        ("kept", "x"),
    ] {
        assert_eq!(value(&scene, key).await.as_deref(), Some(wanted), "{key}");
    }
    for key in ["old", "nack", "one", "drop", "trap", "slow"] {
        assert_eq!(value(&scene, key).await, None, "{key}");
    }
    let left = async |key| scene.raw.number(&format!("PTTL {PREFIX}{key}")).await;
    assert!((1..=60_000).contains(&left("c").await));
    assert_eq!(left("a").await, -1);
    assert_eq!(scene.raw.number("XLEN invoices").await, 1);
}

async fn an_attempt_sees_its_own_writes(kind: Kind) {
    let scene = Scene::new().await;
    scene.obstruct(&format!("{PREFIX}old")).await;
    let messages = [(
        "m",
        "find:old=x+find:a+set:a=1+find:a=1+set:a=2+find:a=2+delete:a+find:a+delete:old+find:old+set:b=3",
    )];
    assert_eq!(run(&scene, kind, host(&scene, kind), &messages).await, 1);
    assert_eq!(value(&scene, "b").await.as_deref(), Some("3"));
    assert!(!scene.exists(&format!("{PREFIX}a")).await);
}

async fn a_mistake_is_an_error_of_its_own_call(kind: Kind) {
    let scene = Scene::new().await;
    scene.raw.ask(&format!("LPUSH {PREFIX}list x")).await;
    scene
        .raw
        .ask(&format!("SET {PREFIX}large {}", "x".repeat(101)))
        .await;
    scene.raw.ask(&format!("SET {PREFIX}text x")).await;
    scene.raw.ask("SET outside x").await;
    let cases = [
        ("empty get", "empty:get", "the key is empty"),
        ("empty set", "empty:set", "the key is empty"),
        ("empty delete", "empty:delete", "the key is empty"),
        ("empty add", "empty:increment", "the key is empty"),
        ("long", "long:1025", "longer than 1024 bytes"),
        ("too large", "large:101:a", "more than 100 bytes"),
        ("too large to read", "get:large", "more than 100 bytes"),
        ("no value", "get:list", "something else than a value"),
        ("no number", "increment:text:1", "not an integer"),
        (
            "no string",
            "increment:list:1",
            "something else than a value",
        ),
        (
            "written",
            "set:n=1+increment:n:1",
            "this attempt has written the key",
        ),
        (
            "deleted",
            "delete:n+increment:n:1",
            "this attempt has written the key",
        ),
        ("no time", "lasting:0:a=1", "time to live is 0"),
        (
            "long time",
            "lasting:9999999999999:a=1",
            "longer than 100 years",
        ),
        (
            "count",
            "set-each:11:k",
            "10 messages at most, written keys included",
        ),
        ("calls", "get-each:21:a", "asked the store 20 times"),
        // Every key lies below the prefix.
        (
            "escape",
            "find:../outside+find:{x}outside+get:outside",
            "none",
        ),
    ];
    let mut messages: Vec<(&str, &str)> = cases.iter().map(|(id, body, _)| (*id, *body)).collect();
    messages.push((
        "goes on",
        "quiet:empty:set+long:1024+large:100:full+quiet:increment:n:2",
    ));
    let grant = format!(r#"{{"prefix":"{PREFIX}","value_max":"100B"}}"#);
    let options = host(&scene, kind)
        .flag("grant-key-value", &grant)
        .flags("publish-max-messages=10 limit-requests=20");
    assert_eq!(run(&scene, kind, options, &messages).await, 1);
    let details = details(&scene, kind).await;
    for (id, _, said) in cases {
        assert!(details[id].contains(said), "{id}: {}", details[id]);
    }
    assert_eq!(value(&scene, &"k".repeat(1024)).await.as_deref(), Some("v"));
    assert_eq!(value(&scene, "n").await.as_deref(), Some("2"));
    assert_eq!(value(&scene, "k0").await, None);
}

/// Writes to these keys, in an order.
const EACH: [&str; 4] = [
    "{orders}:kv:a",
    "{orders}:kv:b",
    "{orders}:kv:c",
    "invoices",
];
const EACH_BODY: &str = "set:a=1+lasting:60000:b=2+delete:c+publish:invoices:x";

async fn nothing_is_written(scene: &Scene, key: &str) {
    for other in ["a", "b"].map(|name| format!("{PREFIX}{name}")) {
        assert!(
            other == key || !scene.exists(&other).await,
            "{key}: {other}"
        );
    }
    assert!(scene.exists("{orders}:kv:c").await, "{key}");
    assert!(
        key == "invoices" || !scene.exists("invoices").await,
        "{key}"
    );
}

/// The k-th of n writes fails, for every k, by a missing right.
async fn every_refused_write_leaves_no_other_write_behind(kind: Kind) {
    let scene = Scene::with_user("").await;
    let options = host(&scene, kind).flag("redis", &scene.user_url());
    let host = options.admin().ready().await;
    for (place, key) in EACH.into_iter().enumerate() {
        scene.obstruct("{orders}:kv:c").await;
        // Everything but this key.
        let others = EACH.iter().filter(|other| *other != &key);
        let others: Vec<String> = others.map(|key| format!("~{key}")).collect();
        let own = "~orders* ~{orders}:[^k]*";
        let rule = format!("resetkeys {own} {}", others.join(" "));
        scene.rights(&rule).await;
        publish(&scene, kind, key, EACH_BODY).await;
        let refused = || host.metric("hostler_settlements_refused_total");
        let before = refused();
        eventually("it is refused twice", async || refused() >= before + 2).await;
        nothing_is_written(&scene, key).await;
        scene.rights("allkeys").await;
        eventually("it is written", async || {
            host.metric("hostler_keys_written_total") == 3 * (place as u64 + 1)
        })
        .await;
        assert_eq!(value(&scene, "a").await.as_deref(), Some("1"));
        assert_eq!(value(&scene, "c").await, None);
        for key in EACH {
            scene.delete(key).await;
        }
    }
    assert_eq!(host.drain().await.expect_code(0).json()["acked"], 4);
}

/// The k-th of n writes fails, for every k, by the type of its key.
async fn a_key_of_another_type_fails_its_message_and_stops_no_other(kind: Kind) {
    let scene = Scene::new().await;
    let host = host(&scene, kind).admin().ready().await;
    for key in EACH {
        scene.obstruct("{orders}:kv:c").await;
        scene.delete(key).await;
        scene.raw.ask(&format!("HSET {key} a b")).await;
        publish(&scene, kind, key, EACH_BODY).await;
        let next = format!("after {key}");
        publish(&scene, kind, &next, "set:next=1").await;
        eventually("it is given up, and the next one writes", async || {
            details(&scene, kind).await.contains_key(key) && value(&scene, "next").await.is_some()
        })
        .await;
        let detail = &details(&scene, kind).await[key];
        let said = format!("its effects do not fit: {key} is a hash, and a ");
        assert!(detail.starts_with(&said), "{detail}");
        nothing_is_written(&scene, key).await;
        for key in EACH.into_iter().chain(["{orders}:kv:next"]) {
            scene.delete(key).await;
        }
    }
    assert_eq!(host.metric("hostler_settlements_refused_total"), 0);
    assert_eq!(host.drain().await.expect_code(0).json()["acked"], 4);
}

/// A host stands still until another one has taken its message over and acknowledged it.
async fn a_host_that_lost_its_delivery_writes_nothing(kind: Kind) {
    let scene = Scene::new().await;
    let options = host(&scene, kind).flags("min-idle=2s timeout=1m").admin();
    let first = options.ready().await;
    publish(&scene, kind, "m", "set:early=1+sleep:3000+set:a=1").await;
    first.starts(1).await;
    first.pause().await;
    let second = options.ready().await;
    second.starts(1).await;
    eventually("the second one has written", async || {
        value(&scene, "a").await.is_some()
    })
    .await;
    for key in ["a", "early"] {
        scene.delete(&format!("{PREFIX}{key}")).await;
    }
    first.resume();
    eventually("the first one has lost it", async || {
        first.metric("hostler_effects_void_total") == 1
    })
    .await;
    assert_eq!(value(&scene, "a").await, None);
    assert_eq!(first.metric("hostler_keys_written_total"), 0);
    assert_eq!(second.metric("hostler_keys_written_total"), 2);
    first.drain().await;
    second.drain().await;
}

/// Numbers are added at once: an attempt that fails has added, too.
#[tokio::test]
async fn an_increment_happens_at_once() {
    let scene = Scene::new().await;
    let messages = [
        ("m", "quiet:increment:n:2+nack,quiet:increment:n:5+set:a=1"),
        ("said", "increment:m:-3"),
    ];
    let options = host(&scene, Kind::Stream);
    assert_eq!(run(&scene, Kind::Stream, options, &messages).await, 1);
    assert_eq!(value(&scene, "n").await.as_deref(), Some("7"));
    assert_eq!(details(&scene, Kind::Stream).await["said"], "-3");
}

/// A server that is full keeps message and writes; and one that does not answer ends no other attempt.
#[tokio::test]
async fn a_full_server_keeps_message_and_writes() {
    let scene = Scene::new().await;
    let host = host(&scene, Kind::Stream).flag("timeout", "1m").admin();
    let host = host.ready().await;
    let body = "sleep:3000+set:a=1+delete:b";
    publish(&scene, Kind::Stream, "m", body).await;
    host.starts(1).await;
    scene.out_of_memory(true).await;
    eventually("it is refused", async || {
        host.metric("hostler_settlements_refused_total") >= 2
    })
    .await;
    assert_eq!(value(&scene, "a").await, None);
    scene.out_of_memory(false).await;
    eventually("it is written", async || value(&scene, "a").await.is_some()).await;
    assert_eq!(host.drain().await.expect_code(0).json()["attempts"], 1);
}

#[tokio::test]
async fn a_wrong_grant_is_refused_at_the_start() {
    let scene = Scene::with_user("-incrby").await;
    let with = |prefix: &str| {
        let grant = format!(r#"{{"prefix":"{prefix}"}}"#);
        host(&scene, Kind::Stream).flag("grant-key-value", &grant)
    };
    let simple = with("{orders}:kv:").without("stream").without("group");
    let simple = simple.without("dead-letter").without("max-deliveries");
    for (options, code, said) in [
        (with("orders:kv:"), 64, "write `prefix = \"{orders}:kv:\"`"),
        (with("{orders}:kv"), 64, "is not below `{orders}:kv:`"),
        (with("{jobs}:kv:"), 64, "is not below `{orders}:kv:`"),
        (with("{orders}:delayed:"), 64, "is not below `{orders}:kv:`"),
        (
            simple.without("backoff-first").flag("list", "orders"),
            64,
            "`grant.key-value`",
        ),
        (
            host(&scene, Kind::Stream).flag("redis", &scene.user_url()),
            64,
            "incrby",
        ),
        // Without the grant, the component is refused.
        (
            host(&scene, Kind::Stream).without("grant-key-value"),
            65,
            "[grant.key-value]\nprefix = \"{orders}:kv:\"",
        ),
    ] {
        let ended = options.end().await;
        assert!(ended.stderr().contains(said), "{said}: {}", ended.stderr());
        ended.expect_code(code);
    }
}

#[tokio::test]
async fn the_documented_rights_are_enough() {
    const MORE: &str = "(+get +strlen +set +del +incrby ~{orders}:kv:*)";
    let words: Vec<String> = docs().split_whitespace().map(str::to_owned).collect();
    assert!(words.join(" ").contains(MORE));
    let user = format!("{} {MORE}", documented_user("hostler-orders"));
    // The component imports the publisher as well: its stream needs keys.
    let user = user.replace(" ~orders ", " ~orders ~invoices ~{invoices}:delayed ");
    let scene = Scene::with(RedisOptions::default().user(&user)).await;
    let url = format!("{}?user=hostler-orders&pass=change-me", scene.url());
    let grant = format!(r#"{{"prefix":"{PREFIX}","commit":"checked"}}"#);
    let options = host(&scene, Kind::Stream)
        .flag("redis", &url)
        .flag("grant-key-value", &grant);
    let messages = [("m", "find:a+set:a=1+delete:b+quiet:increment:n:1")];
    assert_eq!(run(&scene, Kind::Stream, options, &messages).await, 1);
    assert_eq!(value(&scene, "a").await.as_deref(), Some("1"));
    assert_eq!(value(&scene, "n").await.as_deref(), Some("1"));
}
