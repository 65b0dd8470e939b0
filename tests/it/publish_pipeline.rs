//! Publishing: what arrives, how it is bounded, what a failure says.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::StreamExt as _;
use hostler::delivery::message::Headers;
use hostler::publish::{
    BATCH_BYTES, BATCH_MESSAGES, Channel, Destination, Error, List, Outgoing, Publisher, Receipt,
    Stream,
};
use hostler::queue::{Class, Error as RedisError};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::wire::list::{self, Codec, Framing};
use hostler_tests::redis::{RedisOptions, RedisServer};
use redis::Value;

fn publisher(server: &RedisServer, destination: impl Into<Destination>) -> Publisher {
    let target = Target::parse(&server.url(), PasswordSource::Url, TlsFiles::default()).unwrap();
    Publisher::new(&Connector::new(target, "test"), destination)
}

fn odd() -> Outgoing {
    Outgoing::new(&b"\0\xff\r\n body"[..])
        .header("X-Tenant", "7")
        .header("X-Tenant", &b"\xfe"[..])
        .header("", "empty name")
}

#[tokio::test]
async fn a_message_arrives_in_a_stream_byte_for_byte() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let publisher = publisher(&server, Destination::stream("orders"));
    let Receipt::Entry(id) = publisher.publish(&odd()).await.unwrap() else {
        panic!("a stream gives ids");
    };
    let entries = redis.entries("orders").await;
    let expected: [&[u8]; 8] = [
        b"_payload",
        b"\0\xff\r\n body",
        b"h:X-Tenant",
        b"7",
        b"h:X-Tenant",
        b"\xfe",
        b"h:",
        b"empty name",
    ];
    assert_eq!(entries, [(id, expected.map(<[u8]>::to_vec).to_vec())]);
}

#[tokio::test]
async fn another_body_field_is_used() {
    let server = RedisServer::start();
    let destination = Stream::new("orders").body_field("data");
    publisher(&server, destination)
        .publish(&Outgoing::new("x"))
        .await
        .unwrap();
    let entries = server.raw().await.entries("orders").await;
    assert_eq!(entries[0].1, [b"data".to_vec(), b"x".to_vec()]);
}

#[tokio::test]
async fn thousands_go_in_one_round_trip_and_keep_their_order() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let publisher = publisher(&server, Destination::stream("orders"));
    let messages: Vec<_> = (0..10_000).map(|n| Outgoing::new(n.to_string())).collect();
    let receipts = publisher.publish_all(&messages).await.unwrap();

    let entries = redis.entries("orders").await;
    let bodies: Vec<_> = entries
        .iter()
        .map(|(_, fields)| fields[1].clone())
        .collect();
    assert_eq!(
        bodies,
        (0..10_000)
            .map(|n| n.to_string().into_bytes())
            .collect::<Vec<_>>()
    );
    let ids: Vec<_> = entries
        .into_iter()
        .map(|(id, _)| Receipt::Entry(id))
        .collect();
    assert_eq!(receipts, ids);

    // The server has read from its clients about once per batch, not once per message.
    let stats = redis.text("INFO stats").await;
    let reads: u64 = stats
        .lines()
        .find_map(|line| line.strip_prefix("total_reads_processed:"))
        .unwrap()
        .parse()
        .unwrap();
    assert!(reads < 1_000, "{reads} reads for 10,000 messages");
}

#[tokio::test]
async fn a_batch_sends_itself_when_it_is_full() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let publisher = publisher(&server, Destination::stream("orders"));
    let mut batch = publisher.batch();
    for _ in 1..BATCH_MESSAGES {
        assert!(batch.push(Outgoing::new("x")).await.unwrap().is_empty());
    }
    assert_eq!(redis.number("XLEN orders").await, 0);
    let full = batch.push(Outgoing::new("x")).await.unwrap();
    assert_eq!(full.len(), BATCH_MESSAGES);

    // By size as well.
    assert!(batch.push(Outgoing::new("x")).await.unwrap().is_empty());
    let receipts = batch
        .push(Outgoing::new(vec![b'x'; BATCH_BYTES]))
        .await
        .unwrap();
    assert_eq!(receipts.len(), 2);
    assert!(batch.is_empty());

    batch.push(Outgoing::new("x")).await.unwrap();
    assert_eq!(batch.len(), 1);
    assert_eq!(batch.flush().await.unwrap().len(), 1);
    assert!(batch.flush().await.unwrap().is_empty());
    let expected = i64::try_from(BATCH_MESSAGES).unwrap() + 3;
    assert_eq!(redis.number("XLEN orders").await, expected);
}

#[tokio::test]
async fn max_len_trims_the_stream_approximately() {
    let server = RedisServer::start();
    let destination = Stream::new("orders").max_len(1000);
    let publisher = publisher(&server, destination);
    publisher
        .publish_all(&vec![Outgoing::new("x"); 5000])
        .await
        .unwrap();
    let length = server.raw().await.number("XLEN orders").await;
    assert!((1000..1200).contains(&length), "{length}");
}

#[tokio::test]
async fn lists_take_each_codec_and_consumers_see_the_order() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for (codec, framing) in [(Codec::Frame, Framing::Frame), (Codec::Json, Framing::Json)] {
        let key = format!("jobs:{codec:?}");
        let publisher = publisher(&server, List::new(&key).codec(codec));
        let receipts = publisher
            .publish_all(&[odd(), Outgoing::new("second")])
            .await
            .unwrap();
        assert_eq!(receipts, [Receipt::Length(1), Receipt::Length(2)]);
        for message in [odd(), Outgoing::new("second")] {
            let Value::BulkString(value) = redis.ask(&format!("RPOP {key}")).await else {
                panic!("a value");
            };
            let read = list::decode(&key.as_str().into(), "t", 0, &value.into(), framing);
            assert_eq!(read.defect, None);
            assert_eq!(read.message.body, message.body);
            assert_eq!(read.message.headers, message.headers);
        }
    }

    let publisher = publisher(&server, List::new("raw").codec(Codec::Raw));
    publisher.publish(&Outgoing::new("as it is")).await.unwrap();
    assert_eq!(redis.text("RPOP raw").await, "as it is");
    let refused = publisher.publish(&odd()).await.unwrap_err();
    assert!(matches!(
        refused,
        Error::Message(list::Error::Headers { count: 3 })
    ));
    assert_eq!(redis.number("EXISTS raw").await, 0);
}

#[tokio::test]
async fn channels_say_how_many_listened() {
    let server = RedisServer::start();
    let lonely = publisher(&server, Destination::channel("news"));
    assert_eq!(lonely.publish(&odd()).await.unwrap(), Receipt::Receivers(0));

    let client = redis::Client::open(server.url()).unwrap();
    let mut listener = client.get_async_pubsub().await.unwrap();
    listener.subscribe("news").await.unwrap();
    let subscribed = publisher(&server, Destination::channel("news"));
    assert_eq!(
        subscribed.publish(&odd()).await.unwrap(),
        Receipt::Receivers(1)
    );
    let value: Vec<u8> = listener
        .on_message()
        .next()
        .await
        .unwrap()
        .get_payload()
        .unwrap();
    let read = list::decode(&"news".into(), "1", 0, &value.into(), Framing::Frame);
    assert_eq!(
        (read.message.body, read.message.headers),
        (odd().body, odd().headers)
    );

    let sharded = Channel::new("news").codec(Codec::Raw).sharded();
    let nobody = publisher(&server, sharded)
        .publish(&Outgoing::new("x"))
        .await
        .unwrap();
    assert_eq!(nobody, Receipt::Receivers(0), "SPUBLISH is another world");
}

#[tokio::test]
async fn a_refusal_names_its_cause_and_says_what_was_published() {
    let server = RedisOptions::default().maxmemory("8mb").start();
    let redis = server.raw().await;
    redis.ask("SET wrong x").await;
    let publisher = publisher(&server, Destination::stream("orders"));
    let messages = vec![Outgoing::new(vec![b'x'; 10_000]); 3000];
    let incomplete = publisher.publish_all(&messages).await.unwrap_err();
    assert!(
        matches!(&incomplete.error, Error::Redis(error) if error.class() == Class::Retry),
        "{incomplete}"
    );
    assert!(incomplete.to_string().contains("OOM"), "{incomplete}");
    assert_eq!(incomplete.in_doubt, 0, "every message was answered");
    let there: HashSet<_> = redis
        .entries("orders")
        .await
        .into_iter()
        .map(|(id, _)| id)
        .collect();
    assert!(!incomplete.receipts.is_empty());
    for receipt in &incomplete.receipts {
        assert!(there.contains(&receipt.to_string()), "{receipt}");
    }
    assert_eq!(
        there.len(),
        incomplete.receipts.len() + incomplete.taken_behind
    );

    redis.ask("DEL orders").await;
    let wrong = self::publisher(&server, Destination::stream("wrong"));
    let error = wrong.publish(&Outgoing::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn a_message_that_cannot_be_written_stops_before_anything_of_its_batch_is_sent() {
    let server = RedisServer::start();
    let publisher = publisher(&server, Destination::list("jobs"));
    let bad = Outgoing {
        body: Bytes::new(),
        headers: Headers::new(vec![(Bytes::from_static(b"\xff"), Bytes::new())]),
        ..Outgoing::default()
    };
    let incomplete = publisher.publish_all(&[odd(), bad]).await.unwrap_err();
    assert!(
        matches!(incomplete.error, Error::Message(_)),
        "{incomplete}"
    );
    assert_eq!((incomplete.receipts, incomplete.in_doubt), (Vec::new(), 0));
    assert_eq!(server.raw().await.number("EXISTS jobs").await, 0);
}

#[tokio::test]
async fn a_broken_connection_is_opened_again_by_the_next_use() {
    let mut server = RedisServer::start();
    let publisher = publisher(&server, Destination::stream("orders"));
    publisher.publish(&Outgoing::new("x")).await.unwrap();
    server.kill();
    let incomplete = publisher
        .publish_all(&vec![Outgoing::new("x"); 3])
        .await
        .unwrap_err();
    let Error::Redis(error) = &incomplete.error else {
        panic!("{incomplete}");
    };
    assert_eq!(error.class(), Class::Reconnect);
    assert!(matches!(error, RedisError::Connection { .. }), "{error}");
    assert_eq!((incomplete.receipts.len(), incomplete.in_doubt), (0, 3));
    server.restart();
    publisher.publish(&Outgoing::new("x")).await.unwrap();
}
