//! `hostler dlq replay`: move dead letters back.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Serialize;

use super::Batches;
use super::filter::{Letters, Which};
use super::trial::{Counts, Trial};
use crate::cli::flags::{Flags, Tried};
use crate::cli::progress::Progress;
use crate::cli::session::{connected, start_logging};
use crate::cli::text::one_line;
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::Collected;
use crate::dead_letter::{DeadLetters, Replay, ReplayOptions, Replayed, Scan, Skip};
use crate::host::{StopSignals, Threads};

/// Move dead letters back to the queues that they died in
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Moves exactly the dead letters that exist when it starts, oldest first. Each
moves whole or not at all: you may interrupt a replay, and two replays at a time
move nothing twice. A copy starts with attempt 1 and keeps its headers, its id
and its history. In a stream with several groups, only the group in which the
message died gets it.

With --handler, the component is first tried on the dead letters, in the sandbox
and within its limits (--timeout, --memory and so on); this writes nothing.
--dry-run shows old reasons and new verdicts; --only-acked replays only the
entries that the handler acks.

Examples:
  hostler dlq replay --redis redis://localhost orders:dead --dry-run
  hostler dlq replay --redis redis://localhost orders:dead --reason timeout \\
    --rate 100/s
  hostler dlq replay --redis redis://localhost orders:dead \\
    --signature 1f3a90c2b5d7e846
  hostler dlq replay --redis redis://localhost orders:dead \\
    --id 1700000000000-0 --to orders:retry
  hostler dlq replay --redis redis://localhost orders:dead \\
    --handler fixed.wasm --dry-run
  hostler dlq replay --redis redis://localhost orders:dead \\
    --handler fixed.wasm --only-acked")]
pub(super) struct Args {
    #[command(flatten)]
    letters: Letters,

    #[command(flatten)]
    which: Which,

    /// The most entries to move
    #[arg(long, value_name = "N", help_heading = "Which entries")]
    limit: Option<u64>,

    /// Leave entries that were replayed this often
    #[arg(
        long,
        value_name = "N",
        default_value_t = 3,
        help_heading = "Which entries"
    )]
    max_replays: u64,

    /// The most entries to move per second, such as 100 or 100/s
    #[arg(long, value_name = "N/s", value_parser = rate)]
    rate: Option<NonZeroU32>,

    /// Move all of them to this stream instead
    #[arg(long, value_name = "KEY")]
    to: Option<String>,

    /// Let hosts handle them although their ids were handled already
    #[arg(long)]
    again: bool,

    /// The recorded calls: keep = they are not made again, drop = all are made again
    #[arg(long, value_name = "keep|drop", value_enum, default_value_t = Journal::Keep)]
    journal: Journal,

    /// Make this call again, although it is recorded; may be given several times
    #[arg(long, value_name = "NAME")]
    forget: Vec<String>,

    /// Show what would be moved; change nothing
    #[arg(long)]
    dry_run: bool,

    /// Try this component on the entries first; with --dry-run or --only-acked
    #[arg(long, value_name = "FILE.wasm", help_heading = "Try first")]
    handler: Option<PathBuf>,

    /// Replay only the entries that the component of --handler acks
    #[arg(long, requires = "handler", help_heading = "Try first")]
    only_acked: bool,

    /// Print JSON; with --handler a line for each entry, and one at the end
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Tried>,
}

/// What becomes of recorded calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq, clap::ValueEnum)]
enum Journal {
    Keep,
    Drop,
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
    counts: &'a Counts,
    /// The replay, or the dry run of one, with `--only-acked`.
    replay: Option<&'a Replayed>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let key = args.letters.key(&args.flags, &variables)?;
    if args.handler.is_some() && !args.dry_run && !args.only_acked {
        let what = "`--handler` alone does not say what to replay";
        let hint =
            "give `--dry-run` to see the verdicts, or `--only-acked` to replay acked entries";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    if args.to.as_ref() == Some(&key) {
        let what = format!("`--to {}` is the dead-letter queue itself", key);
        let hint = "name another key, or leave `--to` out";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    let options = ReplayOptions {
        to: args.to.clone(),
        max_replays: args.max_replays,
        limit: args.limit,
        rate: args.rate,
        again: args.again,
        drops_journals: args.journal == Journal::Drop,
        forget: args.forget.clone(),
        dry_run: args.dry_run,
    };
    let (redis, trying) = args.flags.clone().load(variables, Collected::trying)?;
    start_logging();
    Threads::start()?.run(async |attempts| {
        connected(&redis, "dlq", async |session| {
            let letters = DeadLetters::new(&session.connector, &key);
            let letters = args.which.of(letters.reading(trying.reading.clone()));
            let trial = args.handler.as_ref().map(|file| {
                let to = args.to.as_deref();
                Trial::load(file, &trying, &letters, to, attempts, args.json)
            });
            let trial = trial.transpose()?;
            let scan = letters.scan(args.which.filter()).await?;
            let mut replay = letters.replay(options);
            replay_or_try(&args, &letters, scan, &mut replay, trial).await
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
        Some(trial) if !args.only_acked => try_all(args, letters, scan, trial).await,
        trial => move_all(args, letters, scan, replay, trial.as_mut()).await,
    };
    let report = replay.report();
    let replays = (args.only_acked || trial.is_none()).then_some(report);
    if let Some(trial) = &trial {
        if !args.json {
            let gap = if args.only_acked { "\n" } else { "" };
            output::line(&format!("{}{gap}", trial.counts().text()))?;
        }
    } else if report.replayed == 0 && report.skipped.is_empty() {
        args.which.warn_of_unknown_reasons();
    }
    match (&trial, replays) {
        (Some(trial), replay) if args.json => output::json(&Tested {
            counts: trial.counts(),
            replay,
        })?,
        (_, Some(report)) => {
            output::either(args.json, report, |report| text(report, args.max_replays))?;
        }
        _ => {}
    }
    let exit = exit?;
    match (&report.refusal, report.skipped.get(&Skip::Refused)) {
        (Some(refusal), Some(count)) => {
            let what = format!("redis would not take {count} of them back: {refusal}");
            let key = letters.key();
            let hint = format!("they are still in `{key}`; `--to KEY` moves them");
            Err(Failure::new(Exit::Usage, what).hint(hint))
        }
        _ => Ok(exit),
    }
}

/// Try the entries of the scan, until the end, the limit or a signal.
async fn try_all(
    args: &Args,
    letters: &DeadLetters,
    scan: Scan<'_>,
    trial: &mut Trial<'_>,
) -> Result<Exit, Failure> {
    let mut stops = StopSignals::listen()?;
    let mut batches = Batches::new(scan, args.limit);
    while let Some(entries) = batches.next().await? {
        tokio::select! {
            biased;
            signal = stops.next() => return Ok(signal.into()),
            tried = trial.sift(entries) => tried.map(drop)?,
        }
    }
    Which::warn_of_others(letters.key(), batches.others());
    Ok(Exit::Ok)
}

/// Move the entries of the scan, or those that the handler on trial acks, until the end, the limit or
/// a signal.
async fn move_all(
    args: &Args,
    letters: &DeadLetters,
    mut scan: Scan<'_>,
    replay: &mut Replay<'_>,
    mut trial: Option<&mut Trial<'_>>,
) -> Result<Exit, Failure> {
    let mut stops = StopSignals::listen()?;
    let length = letters.length().await?;
    let progress = Progress::of(length.min(args.limit.unwrap_or(u64::MAX)), "replayed");
    let mut stopped = None;
    let mut next = scan.next().await?;
    while let Some(mut entries) = next {
        let sending = async {
            if let Some(trial) = &mut trial {
                entries = tokio::select! {
                    biased;
                    signal = stops.next() => {
                        stopped = Some(signal);
                        return Ok(false);
                    }
                    acked = trial.sift(entries) => acked?,
                };
            }
            let mut rest = entries.as_slice();
            while !rest.is_empty() && !replay.is_done() {
                tokio::select! {
                    biased;
                    signal = stops.next() => {
                        stopped = Some(signal);
                        return Ok(false);
                    }
                    () = replay.pace() => {}
                }
                let (chunk, behind) = rest.split_at(replay.chunk().min(rest.len()));
                let before = replay.report().replayed;
                replay.send(chunk).await?;
                progress.advance(replay.report().replayed - before);
                rest = behind;
            }
            Ok::<_, Failure>(!replay.is_done())
        };
        // On the heap: the future of this would be large.
        next = scan.next_beside(Box::pin(sending)).await?;
    }
    if let Some(signal) = stopped {
        progress.finish();
        return Ok(signal.into());
    }
    progress.finish();
    Which::warn_of_others(letters.key(), scan.others());
    Ok(Exit::Ok)
}

fn text(report: &Replayed, max_replays: u64) -> String {
    let verb = match report.dry_run {
        true => "would replay",
        false => "replayed",
    };
    let mut parts = vec![format!("{verb} {}", report.replayed)];
    if !report.targets.is_empty() {
        let rows = report.targets.iter();
        let row =
            |(key, count): (&String, &u64)| [format!("to {}", one_line(key)), count.to_string()];
        parts.push(output::table(rows.map(row)));
    }
    if !report.skipped.is_empty() {
        let rows = report.skipped.iter().map(|(skip, count)| {
            let why = why(*skip, max_replays);
            ["left".to_owned(), count.to_string(), why]
        });
        parts.push(output::table(rows));
    }
    parts.join("\n\n")
}

fn why(skip: Skip, max_replays: u64) -> String {
    let why = match skip {
        Skip::MaxReplays => {
            let hint = "correct the cause, then give a higher --max-replays";
            return format!("replayed {max_replays} times already: {hint}");
        }
        Skip::NoSource => "the entries do not say where they died: give --to KEY",
        Skip::GroupGone => {
            "the group that they died in is gone, and other groups read the stream: give --to KEY"
        }
        Skip::Gone => "moved or deleted by another process meanwhile",
        Skip::Moving => {
            "being moved by another replay, or by one that was interrupted: replay them half a \
             minute later"
        }
        Skip::Refused => "refused by redis",
    };
    why.to_owned()
}
