//! The proxy of the tests: each fault that it can cause.

use std::time::Duration;

use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{PATIENCE, RawRedis, RedisOptions, RedisServer, eventually};
use redis::Value;
use tokio::time::timeout;

/// The time in which an event must not happen.
const A_WHILE: Duration = Duration::from_millis(50);

async fn through(proxy: &Proxy) -> RawRedis {
    RawRedis::open(&proxy.url()).await.unwrap()
}

#[tokio::test]
async fn the_proxy_passes_all_bytes() {
    let server = RedisOptions::default().tcp().start();
    let body = vec![b'x'; 1 << 20];
    for proxy in [
        Proxy::to_socket(&server.socket(), 1).unwrap(),
        Proxy::to_port(server.port(), 1).await.unwrap(),
    ] {
        let redis = through(&proxy).await;
        redis.ask_words(&[b"SET", b"k", &body]).await;
        assert_eq!(redis.ask("GET k").await, Value::BulkString(body.clone()));
        through(&proxy).await.ask("PING").await;
        assert_eq!(proxy.connections(), 2);
        assert!(proxy.bytes_passed() > 2 << 20);
    }
}

#[tokio::test]
async fn small_and_delayed_pieces_arrive_whole() {
    let server = RedisServer::start();
    let proxy = Proxy::to_socket(&server.socket(), 7).unwrap();
    proxy.pieces(7);
    proxy.delay(Duration::from_micros(10), Duration::from_micros(20));
    let redis = through(&proxy).await;
    let body: Vec<u8> = (0..500_u32).map(|n| n.to_le_bytes()[0]).collect();
    redis.ask_words(&[b"SET", b"k", &body]).await;
    assert_eq!(redis.ask("GET k").await, Value::BulkString(body));
}

#[tokio::test]
async fn a_cut_ends_connections_and_new_ones_are_served_unless_refused() {
    let server = RedisServer::start();
    let proxy = Proxy::to_socket(&server.socket(), 1).unwrap();
    let redis = through(&proxy).await;
    redis.ask("PING").await;
    proxy.cut();
    let reply = timeout(PATIENCE, redis.try_ask("PING")).await;
    let error = reply.unwrap().unwrap_err();
    let is_cut = error.is_connection_dropped() || error.is_io_error();
    assert!(is_cut, "{error}");
    through(&proxy).await.ask("PING").await;

    proxy.refuse(true);
    let opened = timeout(PATIENCE, RawRedis::open(&proxy.url())).await;
    assert!(opened.unwrap().is_err());
    proxy.refuse(false);
    through(&proxy).await.ask("PING").await;
}

#[tokio::test]
async fn a_pause_holds_all_bytes_back_and_loses_none() {
    let server = RedisServer::start();
    let proxy = Proxy::to_socket(&server.socket(), 1).unwrap();
    let redis = through(&proxy).await;
    redis.ask("PING").await;
    proxy.pause();
    let asked = redis.ask("INCR n");
    tokio::pin!(asked);
    assert!(timeout(A_WHILE, &mut asked).await.is_err());
    assert_eq!(server.raw().await.ask("EXISTS n").await, Value::Int(0));
    proxy.resume();
    assert_eq!(timeout(PATIENCE, asked).await.unwrap(), Value::Int(1));

    // A cut also ends a paused connection.
    proxy.pause();
    let asked = redis.try_ask("INCR n");
    tokio::pin!(asked);
    assert!(timeout(A_WHILE, &mut asked).await.is_err());
    proxy.cut();
    assert!(timeout(PATIENCE, asked).await.unwrap().is_err());
}

#[tokio::test]
async fn a_command_on_a_stalled_connection_arrives_late_although_its_client_is_gone() {
    let server = RedisServer::start();
    let direct = server.raw().await;
    let proxy = Proxy::to_socket(&server.socket(), 1).unwrap();
    let redis = through(&proxy).await;
    redis.ask("PING").await;
    proxy.stall();
    {
        let asked = redis.ask("INCR n");
        tokio::pin!(asked);
        assert!(timeout(A_WHILE, &mut asked).await.is_err());
    }
    drop(redis);
    through(&proxy).await.ask("SET m 1").await;
    assert_eq!(direct.ask("EXISTS n").await, Value::Int(0));
    proxy.release();
    eventually("the command arrives", async || {
        direct.ask("EXISTS n").await == Value::Int(1)
    })
    .await;
}

#[tokio::test]
async fn a_cut_reply_is_lost_but_the_request_was_carried_out() {
    let server = RedisServer::start();
    let direct = server.raw().await;
    let proxy = Proxy::to_socket(&server.socket(), 1).unwrap();
    for bytes in 0..4 {
        let redis = through(&proxy).await;
        // Neither an earlier nor a different request triggers the cut.
        redis.ask("INCR other").await;
        proxy.cut_reply("INCR", bytes);
        redis.ask("PING").await;
        let reply = timeout(PATIENCE, redis.try_ask("INCR n")).await.unwrap();
        assert!(reply.is_err(), "after {bytes} of its 4 bytes: {reply:?}");
        assert_eq!(proxy.replies_cut(), bytes + 1);
        let carried_out = i64::try_from(bytes).unwrap() + 1;
        assert_eq!(direct.number("GET n").await, carried_out);
    }
    // Only one reply is cut.
    through(&proxy).await.ask("INCR n").await;
}

#[tokio::test]
async fn a_needle_that_spans_two_reads_is_found() {
    let server = RedisServer::start();
    let behind = Proxy::to_socket(&server.socket(), 1).unwrap();
    // The proxy in front passes one byte at a time.
    let socket = behind.url().strip_prefix("unix://").unwrap().to_owned();
    let front = Proxy::to_socket(socket.as_ref(), 1).unwrap();
    front.pieces(1);
    front.delay(Duration::from_micros(100), Duration::ZERO);
    let redis = through(&front).await;
    redis.ask("PING").await;
    behind.cut_reply("INCR\r\n$1\r\nn", 0);
    let reply = timeout(PATIENCE, redis.try_ask("INCR n")).await;
    assert!(reply.unwrap().is_err());
    assert_eq!(behind.replies_cut(), 1);
}
