//! A look into a dead-letter queue: exact counts, the newest entries, nothing changed.

use bytes::Bytes;
use hostler::dead_letter::{DeadLetters, Error};
use hostler::delivery::policy::{Reason, Rejection};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::wire::dead_letter::{Context, stream_fields};
use hostler::wire::stream::{self, MissingBody, Options};
use hostler_tests::redis::{RawRedis, RedisServer};
use redis::Value;

const DEAD: &str = "orders:dead";

fn dead_letters(server: &RedisServer, key: &str) -> DeadLetters {
    let target = Target::parse(&server.url(), PasswordSource::Url, TlsFiles::default()).unwrap();
    DeadLetters::new(&Connector::new(target, "test"), key)
}

/// What a host writes for a message with this body that died for this reason.
fn letter(body: impl Into<Bytes>, reason: Reason) -> Vec<(Bytes, Bytes)> {
    let raw = [
        (Bytes::from_static(b"_payload"), body.into()),
        (Bytes::from_static(b"h:X-Tenant"), Bytes::from_static(b"7")),
    ];
    let rejection = Rejection {
        reason,
        detail: "no such customer".to_owned(),
        attempts: 3,
        handled: true,
    };
    let context = Context {
        source: "orders",
        source_id: "7-1",
        group: Some("workers"),
        rejection: &rejection,
        handler: "sha256:abc",
        now_ms: 1000,
        expires_at_ms: None,
    };
    stream_fields(&raw, &stream::headers(&raw), &context)
}

async fn add(redis: &RawRedis, fields: &[(Bytes, Bytes)]) {
    let mut words: Vec<&[u8]> = vec![b"XADD", DEAD.as_bytes(), b"*"];
    words.extend(
        fields
            .iter()
            .flat_map(|(name, value)| [&name[..], &value[..]]),
    );
    redis.ask_words(&words).await;
}

fn pairs(fields: &[(&str, &[u8])]) -> Vec<(Bytes, Bytes)> {
    fields
        .iter()
        .map(|(name, value)| {
            let name = Bytes::copy_from_slice(name.as_bytes());
            (name, Bytes::copy_from_slice(value))
        })
        .collect()
}

#[tokio::test]
async fn the_whole_queue_is_counted_and_the_newest_are_shown() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let reasons = [Reason::Dropped, Reason::MaxDeliveries, Reason::Timeout];
    for n in 0..2500_usize {
        add(&redis, &letter(n.to_string(), reasons[n % 2])).await;
    }
    add(&redis, &letter("last", reasons[2])).await;
    let before = redis.ask(&format!("XINFO STREAM {DEAD}")).await;

    let dead = dead_letters(&server, DEAD);
    let peek = dead.peek(40).await.unwrap();
    assert_eq!(peek.total, 2501);
    let counted: Vec<_> = peek
        .by_reason
        .iter()
        .map(|(r, n)| (r.as_str(), *n))
        .collect();
    assert_eq!(
        counted,
        [("dropped", 1250), ("max-deliveries", 1250), ("timeout", 1)]
    );
    let bodies: Vec<_> = peek.entries.iter().map(|e| e.body.clone()).collect();
    let expected: Vec<_> = std::iter::once(Bytes::from_static(b"last"))
        .chain((2461..2500).rev().map(|n| n.to_string().into()))
        .collect();
    assert_eq!(bodies, expected);
    let newest = &peek.entries[0];
    assert_eq!(newest.reason.as_deref(), Some("timeout"));
    assert_eq!(newest.detail.as_deref(), Some("no such customer"));
    assert_eq!(newest.attempts, Some(3));
    assert_eq!(newest.source.as_deref(), Some("orders"));
    assert_eq!(newest.source_id.as_deref(), Some("7-1"));
    assert_eq!(newest.handler.as_deref(), Some("sha256:abc"));
    assert_eq!(newest.group.as_deref(), Some("workers"));
    assert_eq!(newest.headers.find_str("x-tenant"), Some("7"));
    assert_eq!(newest.history().records().len(), 1);
    assert!(newest.died_ms() > 1_600_000_000_000);

    let none = dead.peek(0).await.unwrap();
    assert_eq!((none.total, none.entries.len()), (2501, 0));
    assert_eq!(dead.peek(1).await.unwrap().entries.len(), 1);
    assert_eq!(dead.peek(10_000).await.unwrap().entries.len(), 2501);
    assert_eq!(redis.ask(&format!("XINFO STREAM {DEAD}")).await, before);
}

#[tokio::test]
async fn large_letters_are_counted_in_short_stretches() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for _ in 0..40 {
        add(&redis, &letter(vec![b'x'; 1 << 20], Reason::Trap)).await;
    }
    redis.ask("CONFIG RESETSTAT").await;
    let peek = dead_letters(&server, DEAD).peek(1).await.unwrap();
    assert_eq!((peek.total, peek.by_reason["trap"]), (40, 40));
    // The script is called again after some megabytes; the bodies stay where they are.
    let stats = redis.text("INFO stats commandstats").await;
    let number = |name: &str| -> u64 {
        let line = stats
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap();
        line.split([',', '\r']).next().unwrap().parse().unwrap()
    };
    assert!(number("cmdstat_evalsha:calls=") >= 3);
    assert!(number("total_net_output_bytes:") < 5 << 20);
}

#[tokio::test]
async fn whatever_is_in_it_is_survived() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for fields in [
        pairs(&[("id", b"1"), ("amount", b"5")]),
        pairs(&[("a", b"\xff\xfe"), ("h:X-Dead-Letter-Reason", b"malformed")]),
        pairs(&[
            ("_payload", b"\0\xff"),
            ("h:x-dead-letter-reason", b"\xff\n"),
        ]),
        pairs(&[("_payload", b""), ("h:x-dead-letter-reason", b"")]),
        pairs(&[
            ("_payload", b""),
            ("h:x-dead-letter-reason", &[b'r'; 100_000]),
        ]),
        pairs(&[
            ("_payload", b""),
            ("h:x-dead-letter-reason", b"first"),
            ("h:x-dead-letter-reason", b"second"),
        ]),
        pairs(&[
            ("_payload", b""),
            ("h:x-dead-letter-attempts", b"-1"),
            ("h:x-death", b"[[["),
        ]),
    ] {
        add(&redis, &fields).await;
    }
    let dead = dead_letters(&server, DEAD);
    let peek = dead.peek(100).await.unwrap();
    assert_eq!((peek.total, peek.entries.len()), (7, 7));
    let long = "r".repeat(64);
    for (reason, count) in [
        ("unknown", 3),
        ("malformed", 1),
        ("\u{fffd}\\n", 1),
        (long.as_str(), 1),
        ("first", 1),
    ] {
        assert_eq!(
            peek.by_reason.get(reason),
            Some(&count),
            "{reason}: {:?}",
            peek.by_reason
        );
    }
    let oldest = peek.entries.last().unwrap();
    assert_eq!(oldest.body, r#"{"id":"1","amount":"5"}"#);
    let malformed = &peek.entries[5];
    assert!(malformed.defect.is_some() && malformed.fields.len() == 2);
    assert_eq!(peek.entries[0].attempts, None);

    // As strict as the queue in front.
    let strict = dead.reading(Options {
        missing_body: MissingBody::Malformed,
        ..Options::default()
    });
    let peek = strict.peek(100).await.unwrap();
    assert!(peek.entries.last().unwrap().defect.is_some());
}

#[tokio::test]
async fn reasons_without_end_are_bounded() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for n in 0..250 {
        let reason = format!("reason-{n:03}");
        add(
            &redis,
            &pairs(&[
                ("_payload", b""),
                ("h:x-dead-letter-reason", reason.as_bytes()),
            ]),
        )
        .await;
    }
    let peek = dead_letters(&server, DEAD).peek(0).await.unwrap();
    assert_eq!((peek.total, peek.by_reason.len()), (250, 101));
    assert_eq!(peek.by_reason["other"], 150);
}

#[tokio::test]
async fn what_is_no_queue_is_named_and_what_is_missing_is_empty() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    redis.ask("SET text x").await;
    let error = dead_letters(&server, "text").peek(1).await.unwrap_err();
    assert!(
        matches!(&error, Error::NoStream { key } if key == "text"),
        "{error:?}"
    );
    assert!(error.to_string().contains("`text` is no stream"), "{error}");
    let peek = dead_letters(&server, "missing").peek(1).await.unwrap();
    assert_eq!(peek, hostler::dead_letter::Peek::default());
    assert_eq!(redis.ask("EXISTS missing").await, Value::Int(0));
}

#[tokio::test]
async fn the_json_has_the_documented_shape() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    add(&redis, &letter("{}", Reason::Dropped)).await;
    let peek = dead_letters(&server, DEAD).peek(5).await.unwrap();
    let json = serde_json::to_value(&peek).unwrap();
    assert_eq!(json["total"], 1);
    assert_eq!(json["by_reason"], serde_json::json!({"dropped": 1}));
    let entry = json["entries"][0].as_object().unwrap();
    for key in [
        "id",
        "reason",
        "detail",
        "attempts",
        "source",
        "source_id",
        "handler",
        "headers",
        "body",
        "body_base64",
    ] {
        assert!(!entry[key].is_null(), "{key}");
    }
}
