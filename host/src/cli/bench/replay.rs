//! `hostler bench --replay N`: the speed of the real replay, over a dead-letter stream of its own.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use super::measure::{Costs, Measured, publish_copies};
use super::{BUILD, median, rounded, seconds, spread};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::cli::session::ask_at;
use crate::config::{ByteSize, Redis, Value};
use crate::dead_letter::{DeadLetters, Filter, ReplayOptions};
use crate::delivery::message::Headers;
use crate::delivery::policy::{Reason, Rejection};
use crate::publish::{Destination, Outgoing, Publisher};
use crate::redis::connection::{Connector, Link};
use crate::redis::usage;
use crate::telemetry::wall_clock_ms;
use crate::wire::dead_letter::{Context, stream_fields};
use crate::wire::stream;

/// The load of a measurement.
pub(super) struct Load {
    pub(super) entries: NonZeroU64,
    pub(super) body: Bytes,
    pub(super) rounds: NonZeroU32,
}

/// The shape of `--json`. Medians of the rounds.
#[derive(Debug, Serialize)]
struct ReplayReport<'a> {
    version: &'a str,
    build: &'a str,
    entries: u64,
    body_bytes: u64,
    replays_per_second: f64,
    /// Of each round, in their order.
    rounds: Vec<f64>,
    host_cpu_seconds: f64,
    redis_cpu_seconds: f64,
}

pub(super) fn run(redis: &Redis, load: &Load, json: bool) -> Result<Exit, Failure> {
    let rounds = ask_at(redis, "bench", async |session| {
        let link = session.link("bench");
        let progress = Progress::of(u64::from(load.rounds.get()), "measurements");
        let mut rounds = Vec::new();
        for _ in 0..load.rounds.get() {
            rounds.push(measure(&session.connector, &link, load).await?);
            progress.advance(1);
        }
        progress.finish();
        Ok(rounds)
    })?;
    let middle = |value: &dyn Fn(&Measured) -> Duration| {
        median(rounds.iter().map(|r| value(r).as_secs_f64()).collect())
    };
    let per_second =
        |round: &Measured| rounded(load.entries.get() as f64 / round.elapsed.as_secs_f64());
    let each: Vec<f64> = rounds.iter().map(per_second).collect();
    let report = ReplayReport {
        version: env!("CARGO_PKG_VERSION"),
        build: BUILD,
        entries: load.entries.get(),
        body_bytes: load.body.len() as u64,
        replays_per_second: median(each.clone()),
        rounds: each,
        host_cpu_seconds: middle(&|r| r.host_cpu),
        redis_cpu_seconds: middle(&|r| r.redis_cpu),
    };
    output::either(json, &report, text)
}

async fn measure(connector: &Connector, link: &Link, load: &Load) -> Result<Measured, Failure> {
    // One slot, as a queue and its dead letters should have.
    let source = format!("hostler:bench:{{{:08x}}}", fastrand::u32(..));
    let dead = format!("{source}:dead");
    let measured = async {
        fill(connector, &source, &dead, load).await?;
        replay(connector, link, &dead, load.entries.get()).await
    };
    let measured: Result<Measured, Failure> = measured.await;
    let removed = usage::remove(link, &[source, dead]).await;
    let measured = measured?;
    removed?;
    Ok(measured)
}

/// Dead letters as a host writes them.
async fn fill(connector: &Connector, source: &str, dead: &str, load: &Load) -> Result<(), Failure> {
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
        log: None,
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
) -> Result<Measured, Failure> {
    let letters = DeadLetters::new(connector, dead);
    let costs = Costs::begin(link).await?;
    let replayed = letters
        .replay_all(Filter::default(), ReplayOptions::default())
        .await?;
    let elapsed = costs.elapsed();
    let measured = costs.end(link, elapsed).await?;
    if replayed.replayed != entries {
        let what = format!("only {} of {entries} were replayed", replayed.replayed);
        return Err(Failure::new(Exit::Bug, what));
    }
    Ok(measured)
}

fn text(report: &ReplayReport<'_>) -> String {
    let rows = [
        ["replayed/s", &format!("{:.0}", report.replays_per_second)],
        ["  of the rounds", &spread(&report.rounds)],
        ["CPU of hostler", &seconds(report.host_cpu_seconds)],
        ["CPU of Redis", &seconds(report.redis_cpu_seconds)],
    ];
    format!(
        "{} dead letters of {}, {} rounds, {} build\n\n{}",
        report.entries,
        ByteSize(report.body_bytes).show(),
        report.rounds.len(),
        report.build,
        output::table(rows.map(|row| row.map(str::to_owned)))
    )
}
