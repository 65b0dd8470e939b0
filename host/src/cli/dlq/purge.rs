//! `hostler dlq purge`: delete dead letters.

use std::collections::BTreeMap;
use std::io::BufRead;

use serde::Serialize;

use super::filter::Which;
use super::{truncate, with_letters};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::progress::Progress;
use crate::cli::text::one_line;
use crate::cli::{Variables, output};
use crate::dead_letter::peek::{OTHER, UNKNOWN};
use crate::dead_letter::{DeadLetters, Entry, Scan};
use crate::host::StopSignals;

/// Delete dead letters for good; asks first, unless `--yes` is given
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deletes exactly the entries that are there when it starts, oldest first. They
cannot be brought back: `hostler dlq export` makes a copy.

Examples:
  hostler dlq purge --redis redis://localhost orders:dead --older-than 30d
  hostler dlq purge --redis redis://localhost orders:dead --reason dropped \
    --yes --json")]
pub(super) struct Args {
    /// The dead-letter key
    key: String,

    #[command(flatten)]
    which: Which,

    /// The most entries
    #[arg(long, value_name = "N", help_heading = "Which entries")]
    limit: Option<u64>,

    /// Do not ask
    #[arg(long, short)]
    yes: bool,

    /// Show what would be deleted; change nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

/// The shape of `--json`.
#[derive(Default, Serialize)]
struct Purged {
    purged: u64,
    by_reason: BTreeMap<String, u64>,
    dry_run: bool,
}

/// How many different reasons are counted one by one.
const REASONS_MAX: usize = 100;

impl Purged {
    fn count(&mut self, entries: &[Entry]) {
        for entry in entries {
            let reason = match entry.reason.as_deref() {
                None | Some("") => UNKNOWN,
                Some(reason) => reason,
            };
            let reason = one_line(reason);
            let is_known = self.by_reason.contains_key(&reason);
            let reason = match is_known || self.by_reason.len() < REASONS_MAX {
                true => reason,
                false => OTHER.to_owned(),
            };
            *self.by_reason.entry(reason).or_default() += 1;
        }
    }

    fn text(&self) -> String {
        let reasons = self.by_reason.iter();
        let rows = reasons.map(|(reason, count)| [reason.clone(), count.to_string()]);
        output::table(rows)
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let limit = args.limit.unwrap_or(u64::MAX);
    with_letters(&args.key, args.flags, variables, async |letters| {
        let scan = letters.scan(args.which.filter()).await?;
        // With `--yes` there is no need to wait for the count.
        let found = match args.yes {
            true => None,
            false => Some(count_entries(scan.clone(), limit).await?),
        };
        if let Some(found) = &found {
            if found.purged == 0 {
                args.which.warn_of_unknown_reasons();
            }
            if args.dry_run || found.purged == 0 {
                return print(found, args.json);
            }
            if !confirmed(&args.key, found)? {
                output::people("nothing was deleted\n");
                return Ok(Exit::Ok);
            }
        }
        let total = found.map_or(limit, |found| found.purged);
        let (purged, exit) = delete(letters, scan, limit, total).await?;
        if purged.purged == 0 {
            args.which.warn_of_unknown_reasons();
        }
        print(&purged, args.json)?;
        Ok(exit)
    })
}

async fn count_entries(mut scan: Scan<'_>, limit: u64) -> Result<Purged, Failure> {
    let mut found = Purged {
        dry_run: true,
        ..Purged::default()
    };
    while found.purged < limit
        && let Some(mut entries) = scan.next().await?
    {
        truncate(&mut entries, limit - found.purged);
        found.purged += entries.len() as u64;
        found.count(&entries);
    }
    Ok(found)
}

async fn delete(
    letters: &DeadLetters,
    mut scan: Scan<'_>,
    limit: u64,
    total: u64,
) -> Result<(Purged, Exit), Failure> {
    let mut stops = StopSignals::listen()?;
    let progress = match total {
        u64::MAX => Progress::counting("deleted"),
        total => Progress::of(total, "deleted"),
    };
    let mut purged = Purged::default();
    let mut seen = 0;
    while seen < limit {
        let entries = tokio::select! {
            biased;
            signal = stops.next() => {
                progress.finish();
                return Ok((purged, signal.into()));
            }
            entries = scan.next() => entries?,
        };
        let Some(mut entries) = entries else { break };
        truncate(&mut entries, limit - seen);
        seen += entries.len() as u64;
        let deleted = letters.delete(&entries).await?;
        purged.purged += deleted;
        purged.count(&entries);
        progress.advance(deleted);
    }
    progress.finish();
    Ok((purged, Exit::Ok))
}

fn print(purged: &Purged, json: bool) -> Result<Exit, Failure> {
    output::either(json, purged, |purged| {
        let verb = match purged.dry_run {
            true => "would delete",
            false => "deleted",
        };
        let text = format!("{verb} {}", purged.purged);
        match purged.by_reason.is_empty() {
            true => text,
            false => format!("{text}\n\n{}", purged.text()),
        }
    })
}

/// Ask a person.
fn confirmed(key: &str, found: &Purged) -> Result<bool, Failure> {
    let (text, count) = (found.text(), found.purged);
    output::people(&format!(
        "{key}:\n{text}\ndelete these {count} for good? [y/N] "
    ));
    let mut answer = String::new();
    let read = std::io::stdin().lock().read_line(&mut answer);
    let read = read.map_err(|error| Failure::io("cannot read stdin", &error))?;
    if read == 0 {
        output::people("\n");
        let what = "nobody answered: nothing was deleted";
        return Err(Failure::new(Exit::Usage, what).hint("give `--yes` where nobody can answer"));
    }
    let answer = answer.trim().to_lowercase();
    Ok(answer == "y" || answer == "yes")
}
