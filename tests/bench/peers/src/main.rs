//! A service of `ruststream-fred` whose handler does nothing: `peers URL stream|pipelined|reliable`.
//!
//! It serves the stream `orders` with the group `g`, or the list `orders`, until it gets a signal to
//! stop.

use std::error::Error;

use ruststream_fred::list::RedisList;
use ruststream_fred::stream::prelude::*;

/// The bytes of a message, which nothing decodes.
#[derive(Deserialized)]
struct Body<'a>(#[expect(dead_code, reason = "the handler does nothing")] &'a [u8]);

#[subscriber(RedisStream::new("orders").group("g"))]
async fn entry(_body: &Body<'_>) -> HandlerOutcome {
    HandlerOutcome::ack()
}

#[subscriber(RedisList::new("orders").reliable())]
async fn value(_body: &Body<'_>) -> HandlerOutcome {
    HandlerOutcome::ack()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [url, how @ ("stream" | "pipelined" | "reliable")] = words[..] else {
        return Err("usage: peers URL stream|pipelined|reliable".into());
    };
    let service = RustStream::new(AppInfo::new("orders", "0.0.0"));
    let service = service.with_broker(RedisBroker::standalone(url), |broker| match how {
        "stream" => drop(broker.include(entry)),
        "pipelined" => drop(broker.include(entry.pipeline())),
        _ => drop(broker.include(value)),
    });
    Ok(service.run().await?)
}
