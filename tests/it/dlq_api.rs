//! The public API of dead letters, as a program uses it: a URL, a key, and what the commands do.

use hostler::dead_letter::{DeadLetters, Error, Filter, ReplayOptions};
use hostler_tests::redis::{RawRedis, RedisServer};

const DEAD: &str = "orders:dead";

async fn letter(redis: &RawRedis, body: &str, reason: &str) -> String {
    let reason_field = b"h:x-dead-letter-reason".as_slice();
    let source_field = b"h:x-dead-letter-source".as_slice();
    let mut words = vec![b"XADD".as_slice(), DEAD.as_bytes(), b"*", b"_payload"];
    words.extend([body.as_bytes(), reason_field, reason.as_bytes()]);
    words.extend([source_field, b"orders"]);
    redis::from_redis_value(redis.ask_words(&words).await).unwrap()
}

fn only(reason: &str) -> Filter {
    Filter {
        reasons: vec![reason.to_owned()],
        ..Filter::default()
    }
}

#[tokio::test]
async fn peek_show_replay_purge_and_export() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for n in 0..300 {
        letter(&redis, &n.to_string(), "timeout").await;
    }
    let trapped = letter(&redis, "bad", "trap").await;
    for body in ["a", "b"] {
        letter(&redis, body, "dropped").await;
    }
    let letters = DeadLetters::connect(&server.url(), DEAD).unwrap();

    let peek = letters.peek(1).await.unwrap();
    assert_eq!((peek.total, peek.by_reason["timeout"]), (303, 300));
    assert_eq!(peek.entries[0].body, "b");

    let shown = letters.find(&trapped).await.unwrap().unwrap();
    assert_eq!(shown.reason.as_deref(), Some("trap"));

    let mut scan = letters.scan(only("dropped")).await.unwrap();
    let mut exported = Vec::new();
    while let Some(entries) = scan.next().await.unwrap() {
        exported.extend(entries.iter().map(hostler::dead_letter::Entry::line));
    }
    assert_eq!(exported.len(), 2);
    assert!(exported[0].contains("\"body\":\"a\""), "{}", exported[0]);

    let options = ReplayOptions {
        limit: Some(290),
        rate: std::num::NonZeroU32::new(100_000),
        ..ReplayOptions::default()
    };
    let replayed = letters.replay_all(only("timeout"), options).await.unwrap();
    assert_eq!(replayed.replayed, 290);
    assert_eq!(redis.number("XLEN orders").await, 290);

    let purged = letters.purge_all(only("timeout")).await.unwrap();
    assert_eq!(purged, 10);
    assert_eq!(letters.length().await.unwrap(), 3);
}

#[tokio::test]
async fn what_is_wrong_is_said() {
    let wrong = DeadLetters::connect("http://localhost", DEAD).unwrap_err();
    assert!(matches!(wrong, Error::Url(_)), "{wrong}");
    let away = DeadLetters::connect("redis://127.0.0.1:1", DEAD).unwrap();
    assert!(matches!(away.peek(1).await, Err(Error::Redis(_))));
    let server = RedisServer::start();
    server.raw().await.ask("SET orders:dead x").await;
    let other = DeadLetters::connect(&server.url(), DEAD).unwrap();
    assert!(matches!(other.peek(1).await, Err(Error::NoStream { .. })));
}
