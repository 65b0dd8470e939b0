//! How often memory is allocated for a message, from the read of its entry to its acknowledgement.
//!
//! A program of its own, because it counts every allocation of the process. The handler is a native no-op:
//! `hostler bench` measures the cost of a component.

use std::alloc::System;
use std::sync::Arc;

use hostler::delivery::policy::Policy;
use hostler::queue::stream::StreamOptions;
use hostler::runtime::Settings;
use hostler::runtime::native::NoOp;
use hostler_tests::inprocess::Host;
use hostler_tests::redis::{RawRedis, RedisServer, eventually};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Handled before anything is counted: meanwhile buffers grow to their size.
const FIRST: u64 = 5_000;
const MESSAGES: u64 = 20_000;
/// The most for a message: its fields, its id, its claim and its ticket.
const FOR_A_MESSAGE: u64 = 4;
/// The most for a request, which messages share: on busy cores the same messages come in more of them.
const FOR_A_REQUEST: u64 = 60;

#[tokio::test]
async fn a_message_needs_few_allocations() {
    let redis = RedisServer::start();
    let raw = redis.raw().await;
    let (handler, options) = (
        Arc::new(NoOp::default()),
        StreamOptions::new("orders", "workers"),
    );
    let settings = Settings::new(Policy::default());
    let host = Host::start(&redis.url(), options, settings, &handler).await;
    publish(&raw, FIRST).await;
    acknowledged(&host, FIRST).await;
    let (begun, requests) = (COUNTED.stats(), raw.commands().await);
    publish(&raw, MESSAGES).await;
    acknowledged(&host, FIRST + MESSAGES).await;
    let ended = COUNTED.stats() - begun;
    // The messages were published by commands, too.
    let requests = raw.commands().await - requests - MESSAGES;
    host.drain().await;
    let all = (ended.allocations + ended.reallocations) as u64;
    println!("{all} allocations for {MESSAGES} messages in {requests} requests");
    assert!(all <= FOR_A_MESSAGE * MESSAGES + FOR_A_REQUEST * requests);
    // The counter counts: a message has an id and a body.
    assert!(all >= 2 * MESSAGES);
}

/// Publish `messages` messages by a script, which takes few allocations of this process.
async fn publish(raw: &RawRedis, messages: u64) {
    let script = "for _ = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', '_payload', ARGV[2]) end";
    let (count, body) = (messages.to_string(), "x".repeat(100));
    let words = ["EVAL", script, "1", "orders", &count, &body];
    raw.ask_words(&words.map(str::as_bytes)).await;
}

async fn acknowledged(host: &Host, messages: u64) {
    let all = async || host.metrics.summary().acked == messages;
    eventually("they are acknowledged", all).await;
}
