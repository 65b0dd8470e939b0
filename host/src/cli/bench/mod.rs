//! `hostler bench`: the speed of the real loop, with the sandbox and with a native no-op.
//!
//! - [`measure`]: one measurement of the loop, through a queue that [`through`] opens, with the
//!   stopwatch of [`timed`].
//! - [`in_process`]: a component alone, without Redis.
//! - [`replay`]: the replay of dead letters.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;
use tokio::runtime::Handle;

use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Benched, Flags, checked};
use crate::cli::progress::Progress;
use crate::cli::session::{Session, block_on, connected, start_logging};
use crate::cli::text::{parse, size};
use crate::cli::{Variables, output};
use crate::config::{ByteSize, Value};
use crate::host::{Threads, component};
use crate::runtime::native::NoOp;
use crate::runtime::sandboxed::Sandboxed;
use crate::sandbox::{Sandbox, World};

mod in_process;
mod measure;
mod replay;
mod through;
mod timed;

use measure::{Bench, Load, Measured};
use through::Through;
use timed::percentile;

/// How many messages an instance serves with `--mode reuse`.
const REUSE: u32 = 10_000;

const BUILD: &str = if cfg!(debug_assertions) {
    "debug"
} else {
    "release"
};

/// Measure the loop with a handler, against a native no-op (the floor) and a plain Redis client
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Fills a stream of its own (or a --list, a --channel), serves it by the real loop
with the floor and with the handler in turn, and removes it. Each round also
measures \"bare\": a plain loop of the Redis client that reads a stream and
acknowledges it, and does nothing else. The order changes from round to round;
the figures are medians of the rounds. Then messages are sent at a steady rate,
to measure the time from sending to the answer. Use a release build, on a
machine that does nothing else.

With --in-process, no Redis is needed: this process compiles the component,
starts it from the cache, and calls it in fresh and in reused instances.

Examples:
  hostler bench --in-process handler.wasm --body-file order.json --json
  hostler bench --redis embedded --handler ack.wasm
  hostler bench --redis redis://localhost --handler ack.wasm --mode reuse \\
    --body 1KiB --repeat 5 --json
  hostler bench --redis redis://localhost --handler ack.wasm \\
    --list --reliable --recovery
  hostler bench --redis redis://localhost --handler ack.wasm --channel
  hostler bench --redis redis://localhost --handler ack.wasm --retention acked
  hostler bench --redis embedded --replay 50000")]
pub(super) struct Args {
    /// Measure this component alone, without Redis
    #[arg(long, value_name = "FILE.wasm", conflicts_with_all = ["mode", "rate"])]
    in_process: Option<PathBuf>,

    /// The messages of a round; with --in-process, the most
    #[arg(long, value_name = "N", default_value = "100000", value_parser = parse::<NonZeroU64>)]
    messages: NonZeroU64,

    #[command(flatten)]
    through: through::Flags,

    /// The size of each body
    #[arg(long, value_name = "SIZE", default_value = "100B", value_parser = parse::<ByteSize>)]
    body: ByteSize,

    /// A file that holds the body, instead of its size
    #[arg(long, value_name = "FILE", conflicts_with = "body")]
    body_file: Option<PathBuf>,

    /// A fresh instance for every message, one for ten thousand, or one for every batch
    #[arg(long, value_enum, default_value_t)]
    mode: Mode,

    /// The number of rounds
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse::<NonZeroU32>)]
    repeat: NonZeroU32,

    /// The rate of the steady part, in messages per second; 0 = leave it out
    #[arg(long, value_name = "N", default_value = "1000")]
    rate: u32,

    /// Measure the replay of this many dead letters instead, without a handler
    #[arg(
        long,
        value_name = "N",
        value_parser = parse::<NonZeroU64>,
        conflicts_with_all = ["in_process", "messages", "mode", "rate"]
    )]
    replay: Option<NonZeroU64>,

    /// Print one line of JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Benched>,
}

/// How instances are used.
#[derive(Clone, Copy, Debug, Default, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    /// A fresh instance for every message
    #[default]
    Fresh,
    /// One instance for ten thousand messages
    Reuse,
    /// A fresh instance for every batch; for a handler of batches
    Batch,
}

/// The shape of `--json`.
#[derive(Debug, Serialize)]
struct LoopReport<'a> {
    version: &'a str,
    build: &'a str,
    queue: Through,
    messages: u64,
    body_bytes: u64,
    concurrency: usize,
    mode: Mode,
    handler: &'a str,
    rounds: usize,
    /// The least that a consumer of a stream can do.
    bare: Figures,
    floor: Figures,
    sandbox: Figures,
    /// Messages per second, sandbox to floor, of the medians.
    ratio: f64,
    /// The same, sandbox to bare.
    ratio_to_bare: f64,
}

/// Medians of the rounds.
#[derive(Clone, Debug, Serialize)]
struct Figures {
    messages_per_second: f64,
    /// Of each round, in their order.
    rounds: Vec<f64>,
    call_p50_us: Option<f64>,
    call_p99_us: Option<f64>,
    latency_p50_us: Option<f64>,
    latency_p99_us: Option<f64>,
    latency_p999_us: Option<f64>,
    host_cpu_seconds: f64,
    redis_cpu_seconds: f64,
    peak_memory_bytes: u64,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let collected = args.flags.collect(variables);
    let body = match &args.body_file {
        Some(file) => std::fs::read(file)
            .map_err(|error| Failure::io(format!("cannot read {}", file.display()), &error))?,
        None => vec![b'x'; args.body.as_usize()],
    };
    let body = Bytes::from(body);
    start_logging();
    if cfg!(debug_assertions) {
        let hint = "build with `cargo build --release`";
        output::warning("this is a debug build: its figures mean little", Some(hint));
    }
    if let Some(file) = args.in_process {
        let plan = in_process::Plan {
            file,
            body,
            calls: args.messages.get(),
            rounds: args.repeat.get(),
            batch: collected.batch_size(),
        };
        let report = block_on(in_process::measure(&plan, &collected.sandbox()?))?;
        return output::either(args.json, &report, in_process::text);
    }
    if let Some(entries) = args.replay {
        let redis = checked(collected.redis())?;
        let load = replay::Load {
            entries,
            body,
            rounds: args.repeat,
        };
        return replay::run(&redis, &load, args.json);
    }
    let mut config = checked(collected.bench())?;
    config.sandbox.reuse = match args.mode {
        Mode::Fresh | Mode::Batch => 1,
        Mode::Reuse => REUSE,
    };
    let sandbox = component::load(&config.handler.file, &config.sandbox)?;
    let batching = matches!(args.mode, Mode::Batch).then_some(config.batching);
    if batching.is_some() && sandbox.describe().world != World::Batch {
        let what = format!(
            "{} takes one message at a time",
            config.handler.file.display()
        );
        let hint = "build it against the world `batch`, or measure another `--mode`";
        return Err(Failure::new(Exit::Component, what).hint(hint));
    }
    let load = Load {
        through: args.through.through(),
        retention: args.through.retention(),
        messages: args.messages.get(),
        body,
        concurrency: config.sandbox.concurrency,
        prefetch: config.prefetch.get() as usize,
        rate: args.rate,
        batching,
    };
    let rounds = args.repeat.get();
    let [bare, floor, sandboxed] = Threads::start()?.run(async |attempts| {
        connected(&config.redis, "bench", async |session| {
            measure(session, &load, &sandbox, rounds, attempts).await
        })
        .await
    })?;
    let report = LoopReport {
        version: env!("CARGO_PKG_VERSION"),
        build: BUILD,
        queue: load.through,
        messages: load.messages,
        body_bytes: load.body.len() as u64,
        concurrency: load.concurrency,
        mode: args.mode,
        handler: sandbox.digest(),
        rounds: rounds as usize,
        ratio: ratio(&sandboxed, &floor),
        ratio_to_bare: ratio(&sandboxed, &bare),
        bare,
        floor,
        sandbox: sandboxed,
    };
    output::either(args.json, &report, text)
}

async fn measure(
    session: &Session,
    load: &Load,
    sandbox: &Sandbox,
    rounds: u32,
    attempts: &Handle,
) -> Result<[Figures; 3], Failure> {
    let bench = Bench {
        connector: &session.connector,
        load,
        attempts,
    };
    let handler = || {
        let handler = Sandboxed::new(sandbox.clone());
        match load.batching {
            Some(batching) => handler.gathering(batching),
            None => handler,
        }
    };
    let progress = Progress::of(u64::from(rounds) * 3, "measurements");
    let mut measured = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..rounds {
        for turn in 0..3 {
            // A later one finds a warmer machine: so they take turns.
            let what = ((round + turn) % 3) as usize;
            measured[what].push(match what {
                0 => bench.bare().await?,
                1 => bench.measure(NoOp::default).await?,
                _ => bench.measure(handler).await?,
            });
            progress.advance(1);
        }
    }
    progress.finish();
    Ok(measured.map(|rounds| figures(load, rounds)))
}

fn ratio(one: &Figures, other: &Figures) -> f64 {
    (one.messages_per_second / other.messages_per_second * 1e3).round() / 1e3
}

fn figures(load: &Load, rounds: Vec<Measured>) -> Figures {
    let per_second: Vec<f64> = rounds
        .iter()
        .map(|r| rounded(load.messages as f64 / r.elapsed.as_secs_f64()))
        .collect();
    let middle = |value: &dyn Fn(&Measured) -> f64| median(rounds.iter().map(value).collect());
    let peak = middle(&|r| r.peak_memory as f64) as u64;
    let (host_cpu_seconds, redis_cpu_seconds) = (
        middle(&|r| r.host_cpu.as_secs_f64()),
        middle(&|r| r.redis_cpu.as_secs_f64()),
    );
    let (mut calls, mut journeys) = (Vec::new(), Vec::new());
    for mut round in rounds {
        calls.append(&mut round.calls);
        journeys.append(&mut round.journeys);
    }
    let us = |values: &mut [Duration], share| {
        let value = percentile(values, share)?;
        Some(rounded(value.as_secs_f64() * 1e6))
    };
    Figures {
        messages_per_second: median(per_second.clone()),
        rounds: per_second,
        call_p50_us: us(&mut calls, 0.5),
        call_p99_us: us(&mut calls, 0.99),
        latency_p50_us: us(&mut journeys, 0.5),
        latency_p99_us: us(&mut journeys, 0.99),
        latency_p999_us: us(&mut journeys, 0.999),
        host_cpu_seconds,
        redis_cpu_seconds,
        peak_memory_bytes: peak,
    }
}

/// One decimal: more would be noise.
fn rounded(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n if n.is_multiple_of(2) => (values[n / 2 - 1] + values[n / 2]) / 2.0,
        n => values[n / 2],
    }
}

fn text(report: &LoopReport<'_>) -> String {
    let all = [&report.bare, &report.floor, &report.sandbox];
    let row = |name: &str, show: &dyn Fn(&Figures) -> String| {
        let [bare, floor, sandbox] = all.map(show);
        [name.to_owned(), bare, floor, sandbox]
    };
    let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} us"));
    let rows = [
        ["", "bare", "floor", "sandbox"].map(str::to_owned),
        row("messages/s", &|f| format!("{:.0}", f.messages_per_second)),
        row("  of the rounds", &|f| spread(&f.rounds)),
        row("call p50", &|f| us(f.call_p50_us)),
        row("call p99", &|f| us(f.call_p99_us)),
        row("latency p50", &|f| us(f.latency_p50_us)),
        row("latency p99", &|f| us(f.latency_p99_us)),
        row("latency p99.9", &|f| us(f.latency_p999_us)),
        row("CPU of the host", &|f| seconds(f.host_cpu_seconds)),
        row("CPU of Redis", &|f| seconds(f.redis_cpu_seconds)),
        row("peak memory", &|f| size(f.peak_memory_bytes)),
    ];
    format!(
        "{} messages of {}, concurrency {}, {}, {} rounds, {} build, through a {}\n\n{}\n\nratio to the floor  {:.2}\nratio to bare       {:.2}",
        report.messages,
        ByteSize(report.body_bytes).show(),
        report.concurrency,
        match report.mode {
            Mode::Fresh => "a fresh instance each",
            Mode::Reuse => "instances reused",
            Mode::Batch => "a fresh instance for every batch",
        },
        report.rounds,
        report.build,
        report.queue.name(),
        output::table(rows),
        report.ratio,
        report.ratio_to_bare
    )
}

/// The least and the most of the rounds.
fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    format!("{least:.0} to {most:.0}")
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_or_between_both_middles() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(vec![]), 0.0);
    }
}
