//! How often memory is allocated for a message, from the read of its entry to its acknowledgement.
//!
//! A program of its own, because it counts every allocation of the process. The handler is a native no-op:
//! what a component costs is measured by `hostler bench`.

use std::alloc::System;
use std::sync::Arc;

use hostler::delivery::policy::Policy;
use hostler::queue::publish::{Destination, Outgoing, Publisher};
use hostler::queue::stream::StreamOptions;
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler::runtime::Settings;
use hostler::runtime::native::NoOp;
use hostler_tests::inprocess::Host;
use hostler_tests::redis::{RedisServer, eventually};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Handled before anything is counted: meanwhile buffers grow to their size.
const FIRST: u64 = 5_000;
const MESSAGES: u64 = 20_000;
/// The most for a message: its fields, its id, its claim and its ticket. What a request needs is shared by its
/// messages. What the host had read ahead at the first look is counted before its acknowledgement.
const MOST: f64 = 4.5;

#[tokio::test]
async fn a_message_needs_few_allocations() {
    let redis = RedisServer::start();
    let target = Target::parse(&redis.url(), PasswordSource::Url, TlsFiles::default()).unwrap();
    let connector = Connector::new(target, "test");
    let publisher = Publisher::new(&connector, Destination::stream("orders"));
    let batch = vec![Outgoing::new(vec![b'x'; 100]); 1_000];
    for _ in 0..(FIRST + MESSAGES) / 1_000 {
        publisher.publish_all(&batch).await.unwrap();
    }
    let (handler, options) = (
        Arc::new(NoOp::default()),
        StreamOptions::new("orders", "workers"),
    );
    let settings = Settings::new(Policy::default());
    let host = Host::start(&redis.url(), options, settings, &handler).await;
    let (before, first) = counted(&host, FIRST).await;
    let (after, all) = counted(&host, FIRST + MESSAGES).await;
    host.drain().await;
    let each = (after - before) as f64 / (all - first) as f64;
    println!("{each:.3} allocations for a message");
    assert!(each <= MOST, "{each:.2} allocations for a message");
    // The counter counts: a message has an id and a body.
    assert!(each >= 2.0, "{each:.2} allocations for a message");
}

/// How much was allocated when at least so many messages were acknowledged, and how many were.
async fn counted(host: &Host, messages: u64) -> (usize, u64) {
    let mut acked = 0;
    eventually("they are acknowledged", async || {
        acked = host.metrics.summary().acked;
        acked >= messages
    })
    .await;
    let stats = COUNTED.stats();
    (stats.allocations + stats.reallocations, acked)
}
