//! `hostler bench --replay N`: the speed of the real replay, over a dead-letter stream of its own.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::measure::{Costs, Measured, publish_copies};
use super::{BUILD, median, rounded};
use crate::dead_letter::{DeadLetters, Filter, ReplayOptions};
use crate::delivery::message::Headers;
use crate::delivery::policy::{Reason, Rejection};
use crate::publish::{Destination, Outgoing, Publisher};
use crate::redis::connection::{Connector, Link};
use crate::redis::usage;
use crate::telemetry::wall_clock_ms;
use crate::wire::dead_letter::{Context, stream_fields};
use crate::wire::stream;
use crate::workbench::Error;

/// The load of a measurement.
#[derive(Debug)]
pub struct ReplayLoad {
    /// The dead letters of a round.
    pub entries: NonZeroU64,
    /// The body of each.
    pub body: Bytes,
    /// The rounds.
    pub rounds: NonZeroU32,
}

/// The shape of `--replay --json`. Medians of the rounds.
#[derive(Debug, Serialize)]
pub struct ReplayReport {
    /// The version of hostler.
    pub version: &'static str,
    /// `debug` or `release`.
    pub build: &'static str,
    /// The dead letters of a round.
    pub entries: u64,
    /// Of each dead letter.
    pub body_bytes: u64,
    /// The rate.
    pub replays_per_second: f64,
    /// Of each round, in their order.
    pub rounds: Vec<f64>,
    /// CPU time of this process.
    pub host_cpu_seconds: f64,
    /// CPU time of the server.
    pub redis_cpu_seconds: f64,
}

/// Measure the replay of dead letters, over a dead-letter stream of its own. Calls `advance` after each round.
///
/// # Errors
/// Redis fails.
pub async fn measure_replay(
    connector: &Connector,
    load: &ReplayLoad,
    advance: impl Fn(),
) -> Result<ReplayReport, Error> {
    let link = connector.link("bench");
    let mut rounds = Vec::new();
    for _ in 0..load.rounds.get() {
        rounds.push(measure(connector, &link, load).await?);
        advance();
    }
    let middle = |value: &dyn Fn(&Measured) -> Duration| {
        median(rounds.iter().map(|r| value(r).as_secs_f64()).collect())
    };
    let per_second =
        |round: &Measured| rounded(load.entries.get() as f64 / round.elapsed.as_secs_f64());
    let each: Vec<f64> = rounds.iter().map(per_second).collect();
    Ok(ReplayReport {
        version: env!("CARGO_PKG_VERSION"),
        build: BUILD,
        entries: load.entries.get(),
        body_bytes: load.body.len() as u64,
        replays_per_second: median(each.clone()),
        rounds: each,
        host_cpu_seconds: middle(&|r| r.host_cpu),
        redis_cpu_seconds: middle(&|r| r.redis_cpu),
    })
}

async fn measure(connector: &Connector, link: &Link, load: &ReplayLoad) -> Result<Measured, Error> {
    // One slot, as a queue and its dead letters should have.
    let source = format!("hostler:bench:{{{:08x}}}", fastrand::u32(..));
    let dead = format!("{source}:dead");
    let measured = async {
        fill(connector, &source, &dead, load).await?;
        replay(connector, link, &dead, load.entries.get()).await
    };
    let measured: Result<Measured, Error> = measured.await;
    let removed = usage::remove(link, &[source, dead]).await;
    let measured = measured?;
    removed?;
    Ok(measured)
}

/// Dead letters as a host writes them.
async fn fill(
    connector: &Connector,
    source: &str,
    dead: &str,
    load: &ReplayLoad,
) -> Result<(), Error> {
    let body = load.body.clone();
    let original = [(
        Bytes::from_static(stream::BODY_FIELD.as_bytes()),
        body.clone(),
    )];
    let rejection = Rejection {
        reason: Reason::MaxDeliveries,
        detail: "wall-timeout: longer than 5s".to_owned(),
        attempts: 5,
        handled: true,
    };
    let context = Context {
        source,
        source_id: "1700000000000-0",
        group: Some("bench"),
        rejection: &rejection,
        handler: "sha256:0000000000000000000000000000000000000000000000000000000000000000",
        evidence: None,
        now_ms: wall_clock_ms(),
        expires_at_ms: None,
    };
    let (fields, _) = stream_fields(&original, &Headers::default(), &context);
    let letter = Outgoing {
        headers: stream::headers(&fields),
        ..Outgoing::new(body)
    };
    let publisher = Publisher::new(connector, Destination::stream(dead));
    publish_copies(&publisher, letter, load.entries.get()).await
}

async fn replay(
    connector: &Connector,
    link: &Link,
    dead: &str,
    entries: u64,
) -> Result<Measured, Error> {
    let letters = DeadLetters::new(connector, dead);
    let costs = Costs::begin(link).await?;
    let replayed = letters
        .replay_all(Filter::default(), ReplayOptions::default())
        .await?;
    let elapsed = costs.elapsed();
    let measured = costs.end(link, elapsed).await?;
    if replayed.replayed != entries {
        let what = format!("only {} of {entries} were replayed", replayed.replayed);
        return Err(Error::bug(what));
    }
    Ok(measured)
}
