//! `hostler bench`: the speed of the real loop, with the sandbox and with a native no-op.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use bytes::Bytes;
use clap::ValueEnum;
use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Benched, Flags, checked};
use crate::cli::progress::Progress;
use crate::cli::session::{ask_at, block_on, connected, start_logging};
use crate::cli::text::{parse, size};
use crate::cli::{Variables, output};
use crate::config::{ByteSize, Value};
use crate::host::{Threads, component};
use crate::queue::stream::Retention;
use crate::sandbox::World;
use crate::workbench::bench::{
    BUILD, CallFigures, ComponentReport, Figures, Load, Plan, REUSE, ReplayLoad, ReplayReport,
    Through, measure_component, measure_loop, measure_replay,
};

/// Measure the loop with a handler, against a native no-op (the floor)
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Fills a stream of its own (or a --list, a --channel), serves it by the real loop
with the floor and with the handler in turn, and removes it. The order changes
from round to round; the figures are medians of the rounds. Then messages are
sent at a steady rate, to measure the time from sending to the answer. Use a
release build, on a machine that does nothing else.

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
    through: ThroughFlags,

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

/// The flags that name one.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
struct ThroughFlags {
    /// Measure a list instead of a stream: a simple list, unless --reliable
    #[arg(long, conflicts_with_all = ["in_process", "replay"])]
    list: bool,

    /// With --list: a reliable list
    #[arg(long, requires = "list")]
    reliable: bool,

    /// With --list --reliable: record every claim in a recovery set
    #[arg(long, requires = "reliable")]
    recovery: bool,

    /// Measure a channel instead of a stream
    ///
    /// Messages are published as fast as they are handled, at most 4096 ahead.
    #[arg(long, conflicts_with_all = ["list", "in_process", "replay"])]
    channel: bool,

    /// The retention of the stream: keep, acked, or maxlen:N
    #[arg(
        long,
        value_name = "RULE",
        default_value = "keep",
        value_parser = parse::<Retention>,
        conflicts_with_all = ["list", "channel", "in_process", "replay"]
    )]
    retention: Retention,
}

impl ThroughFlags {
    fn through(self) -> Through {
        match self {
            Self { channel: true, .. } => Through::Channel,
            Self { recovery: true, .. } => Through::RecoveredList,
            Self { reliable: true, .. } => Through::ReliableList,
            Self { list: true, .. } => Through::List,
            _ => Through::Stream,
        }
    }
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
    floor: Figures,
    sandbox: Figures,
    /// Messages per second, sandbox to floor, of the medians.
    ratio: f64,
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
        let plan = Plan {
            file,
            body,
            calls: args.messages.get(),
            rounds: args.repeat.get(),
            batch: collected.batch_size(),
        };
        let settings = collected.sandbox()?;
        let report = block_on(async { Ok(measure_component(&plan, &settings).await?) })?;
        return output::either(args.json, &report, component_text);
    }
    if let Some(entries) = args.replay {
        let redis = checked(collected.redis())?;
        let load = ReplayLoad {
            entries,
            body,
            rounds: args.repeat,
        };
        let progress = Progress::of(u64::from(args.repeat.get()), "measurements");
        let report = ask_at(&redis, "bench", async |session| {
            Ok(measure_replay(&session.connector, &load, || progress.advance(1)).await?)
        })?;
        progress.finish();
        return output::either(args.json, &report, replay_text);
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
        retention: args.through.retention,
        messages: args.messages.get(),
        body,
        concurrency: config.sandbox.concurrency,
        prefetch: config.prefetch.get() as usize,
        rate: args.rate,
        batching,
    };
    let rounds = args.repeat.get();
    let progress = Progress::of(u64::from(rounds) * 2, "measurements");
    let [floor, sandboxed] = Threads::start()?.run(async |attempts| {
        connected(&config.redis, "bench", async |session| {
            let (connector, advance) = (&session.connector, || progress.advance(1));
            Ok(measure_loop(connector, &load, &sandbox, rounds, attempts, advance).await?)
        })
        .await
    })?;
    progress.finish();
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
        floor,
        sandbox: sandboxed,
    };
    output::either(args.json, &report, text)
}

fn ratio(one: &Figures, other: &Figures) -> f64 {
    (one.messages_per_second / other.messages_per_second * 1e3).round() / 1e3
}

fn text(report: &LoopReport<'_>) -> String {
    let row = |name: &str, show: &dyn Fn(&Figures) -> String| {
        [name.to_owned(), show(&report.floor), show(&report.sandbox)]
    };
    let us = |us: Option<f64>| us.map_or_else(|| "-".to_owned(), |us| format!("{us:.1} us"));
    let rows = [
        ["", "floor", "sandbox"].map(str::to_owned),
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
        "{} messages of {}, concurrency {}, {}, {} rounds, {} build, through a {}\n\n{}\n\nratio to the floor  {:.2}",
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
        report.ratio
    )
}

fn component_text(report: &ComponentReport) -> String {
    let row = |name: &str, figures: &CallFigures| {
        [
            name.to_owned(),
            format!("{:.1} us", figures.p50_us),
            format!("{:.1} us", figures.p99_us),
            format!("{:.0}", figures.messages_per_second),
        ]
    };
    let others = [
        ("a reused instance", &report.reuse),
        ("a batch", &report.batch),
    ];
    let others = others.into_iter();
    let others = others.filter_map(|(name, figures)| Some(row(name, figures.as_ref()?)));
    let modes = [
        ["message in", "p50", "p99", "messages/s"].map(str::to_owned),
        row("a fresh instance", &report.fresh),
    ];
    let modes = modes.into_iter().chain(others);
    let facts = [
        ("handler", report.interface.clone()),
        ("digest", report.handler.clone()),
        ("size", size(report.size_bytes)),
        ("compile", format!("{:.1} ms", report.compile_ms)),
        ("cached start", format!("{:.1} ms", report.cached_start_ms)),
        ("first call", format!("{:.1} us", report.first_call_us)),
        ("memory", size(report.memory_bytes as u64)),
        ("outcome", report.outcome.to_owned()),
    ];
    format!(
        "{}\n\n{}\n\none slot on one core, bodies of {} bytes, {} rounds, {} build",
        output::table(facts.map(|(name, value)| [name.to_owned(), value])),
        output::table(modes),
        report.body_bytes,
        report.rounds,
        report.build
    )
}

fn replay_text(report: &ReplayReport) -> String {
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

/// The least and the most of the rounds.
fn spread(rounds: &[f64]) -> String {
    let least = rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let most = rounds.iter().copied().fold(0.0, f64::max);
    format!("{least:.0} to {most:.0}")
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.2} s")
}
