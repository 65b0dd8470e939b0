//! Publishing by the library: the stored messages, the bounds, and the errors.

use std::collections::HashSet;

use bytes::Bytes;
use futures_util::StreamExt as _;
use hostler::delivery::message::Headers;
use hostler::publish::{
    BATCH_BYTES, BATCH_MESSAGES, Channel, Destination, Error, List, Outgoing, Publisher, Receipt,
    Stream,
};
use hostler::redis::{Class, Error as RedisError};
use hostler::wire::list::{self, Codec, Framing};
use hostler_tests::redis::{RedisOptions, RedisServer};
use redis::Value;

use crate::scene::connector;

fn publisher(server: &RedisServer, destination: impl Into<Destination>) -> Publisher {
    Publisher::new(&connector(&server.url()), destination)
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
async fn the_body_field_can_be_chosen() {
    let server = RedisServer::start();
    let destination = Stream::new("orders").body_field("data");
    let publisher = publisher(&server, destination);
    publisher.publish(&Outgoing::new("x")).await.unwrap();
    let entries = server.raw().await.entries("orders").await;
    assert_eq!(entries[0].1, [b"data".to_vec(), b"x".to_vec()]);
}

#[tokio::test]
async fn thousands_of_messages_take_few_round_trips_and_keep_their_order() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    let publisher = publisher(&server, Destination::stream("orders"));
    let messages: Vec<_> = (0..10_000).map(|n| Outgoing::new(n.to_string())).collect();
    let receipts = publisher.publish_all(&messages).await.unwrap();

    let entries = redis.entries("orders").await;
    let bodies = entries.iter().map(|(_, fields)| fields[1].clone());
    assert!(bodies.eq((0..10_000).map(|n| n.to_string().into_bytes())));
    let ids = entries.into_iter().map(|(id, _)| Receipt::Entry(id));
    assert_eq!(receipts, ids.collect::<Vec<_>>());

    // The server reads about once per batch, not once per message.
    let reads = redis.info("stats", "total_reads_processed:").await;
    assert!(
        (1..1_000).contains(&reads),
        "{reads} reads for 10,000 messages"
    );
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

    // A batch is also full when its bytes reach the bound.
    assert!(batch.push(Outgoing::new("x")).await.unwrap().is_empty());
    let large = Outgoing::new(vec![b'x'; BATCH_BYTES]);
    assert_eq!(batch.push(large).await.unwrap().len(), 2);
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
    let messages = vec![Outgoing::new("x"); 5000];
    publisher.publish_all(&messages).await.unwrap();
    let length = server.raw().await.number("XLEN orders").await;
    assert!((1000..1200).contains(&length), "{length}");
}

#[tokio::test]
async fn lists_accept_each_codec_and_keep_the_order() {
    let server = RedisServer::start();
    let redis = server.raw().await;
    for (codec, framing) in [(Codec::Frame, Framing::Frame), (Codec::Json, Framing::Json)] {
        let key = format!("jobs:{codec:?}");
        let publisher = publisher(&server, List::new(&key).codec(codec));
        let messages = [odd(), Outgoing::new("second")];
        let receipts = publisher.publish_all(&messages).await.unwrap();
        assert_eq!(receipts, [Receipt::Length(1), Receipt::Length(2)]);
        for message in messages {
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
    assert!(matches!(refused, Error::Message(list::Error::Headers(3))));
    assert_eq!(redis.number("EXISTS raw").await, 0);
}

#[tokio::test]
async fn publishing_to_a_channel_returns_the_number_of_receivers() {
    let server = RedisServer::start();
    let lonely = publisher(&server, Destination::channel("news"));
    assert_eq!(lonely.publish(&odd()).await.unwrap(), Receipt::Receivers(0));

    let client = redis::Client::open(server.url()).unwrap();
    let mut listener = client.get_async_pubsub().await.unwrap();
    listener.subscribe("news").await.unwrap();
    let subscribed = publisher(&server, Destination::channel("news"));
    let receipt = subscribed.publish(&odd()).await.unwrap();
    assert_eq!(receipt, Receipt::Receivers(1));
    let heard = listener.on_message().next().await.unwrap();
    let value: Vec<u8> = heard.get_payload().unwrap();
    let read = list::decode(&"news".into(), "1", 0, &value.into(), Framing::Frame);
    let read = (read.message.body, read.message.headers);
    assert_eq!(read, (odd().body, odd().headers));

    // A sharded channel has its own subscribers.
    let sharded = Channel::new("news").codec(Codec::Raw).sharded();
    let sharded = publisher(&server, sharded);
    let receipt = sharded.publish(&Outgoing::new("x")).await.unwrap();
    assert_eq!(receipt, Receipt::Receivers(0));
}

#[tokio::test]
async fn a_refusal_names_its_cause_and_lists_the_published_messages() {
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
    let entries = redis.entries("orders").await;
    let stored: HashSet<_> = entries.into_iter().map(|(id, _)| id).collect();
    assert!(!incomplete.receipts.is_empty());
    for receipt in &incomplete.receipts {
        assert!(stored.contains(&receipt.to_string()), "{receipt}");
    }
    let published = incomplete.receipts.len() + incomplete.taken_behind;
    assert_eq!(stored.len(), published);

    redis.ask("DEL orders").await;
    let wrong = self::publisher(&server, Destination::stream("wrong"));
    let error = wrong.publish(&Outgoing::new("x")).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
}

#[tokio::test]
async fn an_unwritable_message_stops_its_batch_before_anything_is_sent() {
    let server = RedisServer::start();
    let publisher = publisher(&server, Destination::list("jobs"));
    let bad = Outgoing {
        body: Bytes::new(),
        headers: Headers::new(vec![(Bytes::from_static(b"\xff"), Bytes::new())]),
        ..Outgoing::default()
    };
    let incomplete = publisher.publish_all(&[odd(), bad]).await.unwrap_err();
    let is_named = matches!(incomplete.error, Error::Message(_));
    assert!(is_named, "{incomplete}");
    assert_eq!((incomplete.receipts, incomplete.in_doubt), (Vec::new(), 0));
    assert_eq!(server.raw().await.number("EXISTS jobs").await, 0);
}

#[tokio::test]
async fn a_broken_connection_is_reopened_by_the_next_call() {
    let mut server = RedisServer::start();
    let publisher = publisher(&server, Destination::stream("orders"));
    publisher.publish(&Outgoing::new("x")).await.unwrap();
    server.kill();
    let three = vec![Outgoing::new("x"); 3];
    let incomplete = publisher.publish_all(&three).await.unwrap_err();
    let Error::Redis(error) = &incomplete.error else {
        panic!("{incomplete}");
    };
    assert_eq!(error.class(), Class::Reconnect);
    assert!(matches!(error, RedisError::Connection { .. }), "{error}");
    assert_eq!((incomplete.receipts.len(), incomplete.in_doubt), (0, 3));
    server.restart();
    publisher.publish(&Outgoing::new("x")).await.unwrap();
}
