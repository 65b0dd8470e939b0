//! `hostler dlq replay`: bring messages back.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;

use super::filter::Which;
use super::trial::{Seen, Trial};
use super::{at, failed, line};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{self, Flags, Tried};
use crate::cli::progress::Progress;
use crate::cli::run::Stops;
use crate::cli::threads::Threads;
use crate::cli::{Variables, output};
use crate::dead_letter::{DeadLetters, Replay, ReplayOptions, Replayed, Scan, Skip};
use crate::telemetry::logging::{self, LogFilter, LogFormat};

/// Move dead letters back to the queues that they died in
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Moves exactly what is there when it starts, oldest first, each entry whole or not at all: it may be
interrupted, and two at a time move nothing twice. A copy starts with attempt 1 again and keeps its
headers, its id and its history. In a stream that several groups read, only the group that it died
in runs it.

With --handler, the component is first tried on the dead letters, in the sandbox and within the
limits that --timeout, --memory and so on set; nothing is written for that. --dry-run shows old
reasons against new verdicts; --only-acked replays what the handler acks, and nothing else.

Examples:
  hostler dlq replay --redis redis://localhost orders:dead --dry-run
  hostler dlq replay --redis redis://localhost orders:dead --reason timeout --rate 100/s
  hostler dlq replay --redis redis://localhost orders:dead --id 1700000000000-0 --to orders:retry
  hostler dlq replay --redis redis://localhost orders:dead --handler fixed.wasm --dry-run
  hostler dlq replay --redis redis://localhost orders:dead --handler fixed.wasm --only-acked")]
pub(super) struct Args {
    /// The dead-letter key
    key: String,

    #[command(flatten)]
    which: Which,

    /// How many are moved at most
    #[arg(long, value_name = "N", help_heading = "Which entries")]
    limit: Option<u64>,

    /// Leave what was replayed so often
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        help_heading = "Which entries"
    )]
    max_replays: u64,

    /// How many are moved in a second at most, such as 100 or 100/s
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<NonZeroU32>,

    /// Move them all to this stream instead
    #[arg(long, value_name = "KEY")]
    to: Option<String>,

    /// Say what would be moved, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Try this component on them first; with --dry-run or --only-acked
    #[arg(long, value_name = "FILE.wasm", help_heading = "Try first")]
    handler: Option<PathBuf>,

    /// Replay only what the component given with --handler acks
    #[arg(long, requires = "handler", help_heading = "Try first")]
    only_acked: bool,

    /// Print JSON; with --handler a line for each entry, and one in the end
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Tried>,
}

fn rate(text: &str) -> Result<NonZeroU32, &'static str> {
    let number = text.strip_suffix("/s").unwrap_or(text);
    number
        .parse()
        .map_err(|_| "write it as a whole number per second, such as 100 or 100/s")
}

/// The last line of `--json` with `--handler`.
#[derive(Serialize)]
struct Tested<'a> {
    #[serde(flatten)]
    seen: &'a Seen,
    /// What was replayed, or would be, with `--only-acked`.
    replay: Option<&'a Replayed>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    if args.handler.is_some() && !args.dry_run && !args.only_acked {
        let what = "`--handler` alone does not say what to replay";
        let hint =
            "give `--dry-run` to see the verdicts, or `--only-acked` to replay what is acked";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    let options = ReplayOptions {
        to: args.to.clone(),
        max_replays: args.max_replays,
        limit: args.limit,
        rate: args.rate,
        dry_run: args.dry_run,
    };
    let loaded = args.flags.clone().collect(variables).trying()?;
    flags::warn(&loaded.warnings);
    let (redis, trying) = loaded.value;
    logging::start(LogFormat::Auto, &LogFilter::default());
    let reading = trying.reading.clone();
    Threads::start()?.run(async |attempts| {
        at(&args.key, &redis, reading, async |letters| {
            let trial = args.handler.as_ref().map(|file| {
                let to = args.to.as_deref();
                Trial::load(file, trying, letters, to, attempts, args.json)
            });
            let trial = trial.transpose()?;
            let scan = letters.scan(args.which.filter()).await.map_err(failed)?;
            let mut replay = letters.replay(options);
            replay_or_try(&args, letters, scan, &mut replay, trial).await
        })
        .await
    })
}

async fn replay_or_try(
    args: &Args,
    letters: &DeadLetters,
    scan: Scan<'_>,
    replay: &mut Replay<'_>,
    mut trial: Option<Trial<'_>>,
) -> Result<Exit, Failure> {
    let exit = match &mut trial {
        Some(trial) if !args.only_acked => try_all(scan, trial, args.limit).await,
        trial => move_all(letters, scan, replay, args.limit, trial.as_mut()).await,
    };
    let report = replay.report();
    let replays = (args.only_acked || trial.is_none()).then_some(report);
    if let Some(trial) = &trial {
        if !args.json {
            let gap = if args.only_acked { "\n" } else { "" };
            output::line(&format!("{}{gap}", trial.seen().text()))?;
        }
    } else if report.replayed == 0 && report.skipped.is_empty() {
        args.which.doubt();
    }
    match (&trial, replays) {
        (Some(trial), replay) if args.json => output::json(&Tested {
            seen: trial.seen(),
            replay,
        })?,
        (_, Some(report)) => tell(report, args.json, args.max_replays)?,
        _ => {}
    }
    let exit = exit?;
    match (&report.refusal, report.skipped.get(&Skip::Refused)) {
        (Some(refusal), Some(count)) => {
            let what = format!("redis would not take {count} of them back: {refusal}");
            let hint = format!("they are still in `{}`; `--to KEY` moves them", args.key);
            Err(Failure::new(Exit::Usage, what).hint(hint))
        }
        _ => Ok(exit),
    }
}

/// Try what the scan finds, until the end, the limit or an interruption.
async fn try_all(
    mut scan: Scan<'_>,
    trial: &mut Trial<'_>,
    limit: Option<u64>,
) -> Result<Exit, Failure> {
    let mut stops = Stops::listen()?;
    let mut left = limit.unwrap_or(u64::MAX);
    while left > 0
        && let Some(mut entries) = scan.next().await.map_err(failed)?
    {
        entries.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        left -= entries.len() as u64;
        tokio::select! {
            biased;
            exit = stops.next() => return Ok(exit),
            tried = trial.sift(entries) => tried.map(drop)?,
        }
    }
    Ok(Exit::Ok)
}

/// Move what the scan finds, or what the handler on trial acks of it, until the end, the limit or
/// an interruption.
async fn move_all(
    letters: &DeadLetters,
    mut scan: Scan<'_>,
    replay: &mut Replay<'_>,
    limit: Option<u64>,
    mut trial: Option<&mut Trial<'_>>,
) -> Result<Exit, Failure> {
    let mut stops = Stops::listen()?;
    let length = letters.length().await.map_err(failed)?;
    let progress = Progress::of(length.min(limit.unwrap_or(u64::MAX)), "replayed");
    while !replay.is_done() {
        let Some(mut entries) = scan.next().await.map_err(failed)? else {
            break;
        };
        if let Some(trial) = &mut trial {
            entries = tokio::select! {
                biased;
                exit = stops.next() => {
                    progress.finish();
                    return Ok(exit);
                }
                acked = trial.sift(entries) => acked?,
            };
        }
        let mut sent = 0;
        while sent < entries.len() && !replay.is_done() {
            tokio::select! {
                biased;
                exit = stops.next() => {
                    progress.finish();
                    return Ok(exit);
                }
                () = replay.pace() => {}
            }
            let chunk = entries.len().min(sent.saturating_add(replay.chunk()));
            let before = replay.report().replayed;
            replay.send(&entries[sent..chunk]).await.map_err(failed)?;
            progress.advance(replay.report().replayed - before);
            sent = chunk;
        }
    }
    progress.finish();
    Ok(Exit::Ok)
}

fn tell(report: &Replayed, json: bool, max_replays: u64) -> Result<(), Failure> {
    if json {
        return output::json(report);
    }
    let verb = if report.dry_run {
        "would replay"
    } else {
        "replayed"
    };
    let mut text = format!("{verb} {}", report.replayed);
    let targets = report.targets.iter();
    let rows = targets.map(|(key, count)| [format!("to {}", line(key)), count.to_string()]);
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        text.push_str("\n\n");
        text.push_str(&output::table(rows));
    }
    if !report.skipped.is_empty() {
        let skipped = report.skipped.iter();
        let rows = skipped.map(|(skip, count)| {
            [
                "left".to_owned(),
                count.to_string(),
                why(*skip, max_replays),
            ]
        });
        text.push_str("\n\n");
        text.push_str(&output::table(rows));
    }
    output::line(&text)
}

fn why(skip: Skip, max_replays: u64) -> String {
    match skip {
        Skip::MaxReplays => format!(
            "replayed {max_replays} times already: correct the cause, then give a higher --max-replays"
        ),
        Skip::NoSource => "no word about where they died: give --to KEY".to_owned(),
        Skip::GroupGone => {
            "the group that they died in is gone, and others read the stream: give --to KEY"
                .to_owned()
        }
        Skip::Gone => "moved or deleted by somebody else meanwhile".to_owned(),
        Skip::Moving => {
            "being moved by another replay, or by one that was interrupted: replay them half a \
             minute later"
                .to_owned()
        }
        Skip::Refused => "refused by redis".to_owned(),
    }
}
