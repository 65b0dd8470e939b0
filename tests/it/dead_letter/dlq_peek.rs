//! Peeking at dead letters: exact counts, the newest entries, no change. On streams and on reliable
//! lists.

use bytes::Bytes;
use hostler::dead_letter::{Error, Peek};
use hostler::delivery::policy::Reason;
use hostler::wire::stream::{MissingBody, Options};

use crate::dead_letter::dlq_scene::{Kind, Letter, Scene, on_both};
use crate::scene::DEAD;

on_both! {
    the_whole_queue_is_counted_and_the_newest_entries_are_shown
    the_json_has_the_documented_shape
    a_key_of_another_type_is_an_error_and_a_missing_key_is_empty
}

async fn the_whole_queue_is_counted_and_the_newest_entries_are_shown(kind: Kind) {
    let scene = Scene::new(kind).await;
    let reasons = [Reason::Dropped, Reason::MaxDeliveries];
    for n in 0..2500_usize {
        scene.letter(&n.to_string(), reasons[n % 2]).await;
    }
    let last = Letter {
        headers: &[("X-Tenant", "7")],
        source_id: Some("7-1"),
        ..Letter::of(Reason::Timeout)
    };
    scene.die("last", last).await;
    let before = scene.dump().await;

    let dead = scene.letters();
    let peek = dead.peek(40).await.unwrap();
    assert_eq!(peek.total, 2501);
    let counted = peek.by_reason.iter().map(|(r, n)| (r.as_str(), *n));
    let counted: Vec<_> = counted.collect();
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
    assert_eq!(newest.source.as_deref(), Some(scene.key()));
    assert_eq!(newest.source_id.as_deref(), Some("7-1"));
    assert_eq!(newest.handler.as_deref(), Some("sha256:abc"));
    let group = (kind == Kind::Stream).then_some("workers");
    assert_eq!(newest.group.as_deref(), group);
    assert_eq!(newest.headers.find_str("x-tenant"), Some("7"));
    assert_eq!(newest.history().records().len(), 1);
    assert!(newest.died_ms() > 1_600_000_000_000);

    for (limit, shown) in [(0, 0), (1, 1), (10_000, 2501)] {
        let peek = dead.peek(limit).await.unwrap();
        assert_eq!((peek.total, peek.entries.len()), (2501, shown));
    }
    assert_eq!(scene.dump().await, before);
}

async fn the_json_has_the_documented_shape(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.letter("{}", Reason::Dropped).await;
    let peek = scene.letters().peek(5).await.unwrap();
    let json = serde_json::to_value(&peek).unwrap();
    assert_eq!(json["total"], 1);
    assert_eq!(json["by_reason"], serde_json::json!({"dropped": 1}));
    let entry = json["entries"][0].as_object().unwrap();
    let fields = "id reason detail attempts source source_id handler headers body body_base64";
    for field in fields.split(' ') {
        assert!(!entry[field].is_null(), "{field}");
    }
}

async fn a_key_of_another_type_is_an_error_and_a_missing_key_is_empty(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    assert_eq!(scene.letters().peek(1).await.unwrap(), Peek::default());
    assert!(!scene.exists(dead).await);
    scene.obstruct(dead).await;
    let error = scene.letters().peek(1).await.unwrap_err();
    assert!(matches!(&error, Error::NoStream(key) if key == dead));
    let text = format!("`{dead}` is neither a stream nor a list");
    assert!(error.to_string().contains(&text), "{error}");
}

/// Scripts count the entries of a stream; the bodies stay in Redis.
#[tokio::test]
async fn large_entries_of_a_stream_are_counted_in_short_scripts() {
    let scene = Scene::new(Kind::Stream).await;
    for _ in 0..40 {
        let body = vec![b'x'; 1 << 20];
        scene.letter_of(body, Reason::Trap, &[], 0).await;
    }
    scene.raw.ask("CONFIG RESETSTAT").await;
    let peek = scene.letters().peek(1).await.unwrap();
    assert_eq!((peek.total, peek.by_reason["trap"]), (40, 40));
    // Each script stops after some megabytes.
    assert!(scene.calls("evalsha").await >= 3);
    assert!(scene.raw.info("stats", "total_net_output_bytes:").await < 5 << 20);
}

#[tokio::test]
async fn entries_of_any_shape_are_counted_and_shown() {
    let scene = Scene::new(Kind::Stream).await;
    let reason = "h:x-dead-letter-reason";
    let entries: [&[(&str, &[u8])]; 7] = [
        &[("id", b"1"), ("amount", b"5")],
        &[("a", b"\xff\xfe"), ("h:X-Dead-Letter-Reason", b"malformed")],
        &[("_payload", b"\0\xff"), (reason, b"\xff\n")],
        &[("_payload", b""), (reason, b"")],
        &[("_payload", b""), (reason, &[b'r'; 100_000])],
        &[("_payload", b""), (reason, b"first"), (reason, b"second")],
        &[
            ("_payload", b""),
            ("h:x-dead-letter-attempts", b"-1"),
            ("h:x-death", b"[[["),
        ],
    ];
    for fields in entries {
        let bytes = |(name, value): &(&str, &[u8])| {
            let name = Bytes::copy_from_slice(name.as_bytes());
            (name, Bytes::copy_from_slice(value))
        };
        let fields: Vec<_> = fields.iter().map(bytes).collect();
        scene.add(DEAD, "*", &fields).await;
    }
    let dead = scene.letters();
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
        let counted = peek.by_reason.get(reason);
        assert_eq!(counted, Some(&count), "{reason}: {:?}", peek.by_reason);
    }
    let oldest = peek.entries.last().unwrap();
    assert_eq!(oldest.body, r#"{"id":"1","amount":"5"}"#);
    let malformed = &peek.entries[5];
    assert!(malformed.defect.is_some() && malformed.fields.len() == 2);
    assert_eq!(peek.entries[0].attempts, None);

    // As strict as the host that reads the queue.
    let strict = dead.reading(Options {
        missing_body: MissingBody::Malformed,
        ..Options::default()
    });
    let peek = strict.peek(100).await.unwrap();
    assert!(peek.entries.last().unwrap().defect.is_some());
}

#[tokio::test]
async fn at_most_a_hundred_reasons_are_told_apart() {
    let scene = Scene::new(Kind::Stream).await;
    for n in 0..250 {
        let reason = format!("reason-{n:03}");
        let headers = [("x-dead-letter-reason", &*reason)];
        scene.put(DEAD, "", &headers).await;
    }
    let peek = scene.letters().peek(0).await.unwrap();
    assert_eq!((peek.total, peek.by_reason.len()), (250, 101));
    assert_eq!(peek.by_reason["other"], 150);
}
