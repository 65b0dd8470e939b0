//! How fast are dead letters replayed? The real replay, over a dead-letter stream of its own.

use std::num::{NonZeroU32, NonZeroU64};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;

use super::measure::cpu_of_this_process;
use super::{BUILD, median, rounded};
use crate::cli::connect::{Connected, Passing, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::output;
use crate::cli::progress::Progress;
use crate::config::{ByteSize, Redis, Value};
use crate::dead_letter::{DeadLetters, Filter, ReplayOptions};
use crate::delivery::message::Headers;
use crate::delivery::policy::{Reason, Rejection};
use crate::queue::publish::{BATCH_MESSAGES, Destination, Outgoing, Publisher};
use crate::redis::connection::{Connector, Link};
use crate::redis::usage;
use crate::telemetry::wall_clock_ms;
use crate::wire::dead_letter::{Context, stream_fields};
use crate::wire::stream;

/// What is measured.
pub(super) struct Load {
    pub(super) entries: NonZeroU64,
    pub(super) body: Bytes,
    pub(super) rounds: NonZeroU32,
}

/// What one round came to.
struct Round {
    elapsed: Duration,
    host_cpu: Duration,
    redis_cpu: Duration,
}

/// The shape of `--json`. Medians of the rounds.
#[derive(Debug, Serialize)]
struct Report<'a> {
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
    let rounds = ask(async {
        let connected = Connected::new(redis, "bench").await?;
        let link = connected.connector.link("bench");
        patiently(redis.wait, async || link.reach().await).await?;
        let progress = Progress::of(u64::from(load.rounds.get()), "measurements");
        let mut rounds = Vec::new();
        for _ in 0..load.rounds.get() {
            rounds.push(measure(&connected.connector, &link, load).await?);
            progress.advance(1);
        }
        progress.finish();
        connected.close().await;
        Ok(rounds)
    })?;
    let middle = |value: &dyn Fn(&Round) -> Duration| {
        median(rounds.iter().map(|r| value(r).as_secs_f64()).collect())
    };
    let per_second =
        |round: &Round| rounded(load.entries.get() as f64 / round.elapsed.as_secs_f64());
    let each: Vec<f64> = rounds.iter().map(per_second).collect();
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        build: BUILD,
        entries: load.entries.get(),
        body_bytes: load.body.len() as u64,
        replays_per_second: median(each.clone()),
        rounds: each,
        host_cpu_seconds: middle(&|r| r.host_cpu),
        redis_cpu_seconds: middle(&|r| r.redis_cpu),
    };
    if json {
        output::json(&report)?;
    } else {
        output::line(&text(&report))?;
    }
    Ok(Exit::Ok)
}

async fn measure(connector: &Connector, link: &Link, load: &Load) -> Result<Round, Failure> {
    // One slot, as a queue and its dead letters should have.
    let source = format!("hostler:bench:{{{:08x}}}", fastrand::u32(..));
    let dead = format!("{source}:dead");
    let measured = async {
        fill(connector, &source, &dead, load).await?;
        replay(connector, link, &dead, load.entries.get()).await
    };
    let measured: Result<Round, Failure> = measured.await;
    let removed = usage::remove(link, &[source, dead]).await;
    let measured = measured?;
    removed.map_err(|error| error.failure())?;
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
        now_ms: wall_clock_ms(),
        expires_at_ms: None,
    };
    let fields = stream_fields(&original, &Headers::default(), &context);
    let letter = Outgoing {
        headers: stream::headers(&fields),
        ..Outgoing::new(body)
    };
    let publisher = Publisher::new(connector, Destination::stream(dead));
    let batch = vec![letter; BATCH_MESSAGES];
    let mut left = usize::try_from(load.entries.get()).unwrap_or(usize::MAX);
    while left > 0 {
        let now = left.min(batch.len());
        let sent = publisher.publish_all(&batch[..now]).await;
        sent.map_err(|error| Failure::new(Exit::Unavailable, error))?;
        left -= now;
    }
    Ok(())
}

async fn replay(
    connector: &Connector,
    link: &Link,
    dead: &str,
    entries: u64,
) -> Result<Round, Failure> {
    let usage = async || usage::usage(link).await.map_err(|error| error.failure());
    let letters = DeadLetters::new(connector, dead);
    let redis_before = usage().await?;
    let cpu_before = cpu_of_this_process();
    let began = Instant::now();
    let replayed = letters
        .replay_all(Filter::default(), ReplayOptions::default())
        .await
        .map_err(|error| error.failure())?;
    let elapsed = began.elapsed();
    let host_cpu = cpu_of_this_process().saturating_sub(cpu_before);
    let redis_cpu = usage().await?.cpu.saturating_sub(redis_before.cpu);
    if replayed.replayed != entries {
        let what = format!("only {} of {entries} were replayed", replayed.replayed);
        return Err(Failure::new(Exit::Bug, what));
    }
    Ok(Round {
        elapsed,
        host_cpu,
        redis_cpu,
    })
}

fn text(report: &Report<'_>) -> String {
    let least = report.rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = report.rounds.iter().copied().fold(0.0, f64::max);
    let rows = [
        ["replayed/s", &format!("{:.0}", report.replays_per_second)],
        ["  of the rounds", &format!("{least:.0} to {most:.0}")],
        [
            "CPU of hostler",
            &format!("{:.2} s", report.host_cpu_seconds),
        ],
        [
            "CPU of Redis",
            &format!("{:.2} s", report.redis_cpu_seconds),
        ],
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
