//! `hostler dlq purge`: delete dead letters.

use serde::Serialize;

use super::filter::{Letters, Which};
use super::{Batches, ByReason, with_letters};
use crate::cli::confirm::confirm;
use crate::cli::progress::Progress;
use crate::cli::{Common, Exit, Failure, Reach, Variables, output};
use crate::dead_letter::{DeadLetters, Entry};
use crate::host::StopSignals;

/// Delete dead letters for good; asks first, unless `--yes` is given
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Deletes exactly the dead letters that are there when it starts, oldest first.
They cannot be brought back: `hostler dlq export` makes a copy. Other entries
stay (--any-entry), and a key that is a queue is refused (--even-if-served).

Examples:
  hostler dlq purge --redis redis://localhost orders:dead --older-than 30d
  hostler dlq purge --redis redis://localhost orders:dead \\
    --signature 1f3a90c2b5d7e846
  hostler dlq purge --redis redis://localhost orders:dead --reason dropped \\
    --yes --json")]
pub(super) struct Args {
    #[command(flatten)]
    letters: Letters,

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

    #[command(flatten)]
    common: Common<Reach>,
}

/// The shape of `--json`.
#[derive(Default, Serialize)]
struct Purged {
    purged: u64,
    by_reason: ByReason<u64>,
    dry_run: bool,
}

impl Purged {
    fn count_reasons(&mut self, entries: &[Entry], key: &str) {
        for entry in entries {
            *self.by_reason.of(entry, key) += 1;
        }
    }

    fn table(&self) -> String {
        let reasons = self.by_reason.0.iter();
        output::table(reasons.map(|(reason, count)| [reason.clone(), count.to_string()]))
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let key = args.letters.key(&args.common.flags, &variables)?;
    with_letters(&key, args.common.flags, variables, async |letters| {
        let letters = args.which.of(letters);
        let scan = letters.scan(args.which.filter()).await?;
        // With `--yes` there is no need to wait for the count.
        let found = match args.yes {
            true => None,
            false => Some(count(Batches::new(scan.clone(), args.limit), &key).await?),
        };
        if let Some(found) = &found {
            if found.purged == 0 {
                args.which.warn_of_unknown_reasons();
            }
            if args.dry_run || found.purged == 0 {
                return print(found, args.common.json);
            }
            if !confirmed(&key, found)? {
                output::people("nothing was deleted\n");
                return Ok(Exit::Ok);
            }
        }
        let total = found.map(|found| found.purged).or(args.limit);
        let batches = Batches::new(scan, args.limit);
        let (purged, others, exit) = delete(&letters, batches, total).await?;
        if args.yes {
            Which::warn_of_others(&key, others);
        }
        if purged.purged == 0 {
            args.which.warn_of_unknown_reasons();
        }
        print(&purged, args.common.json)?;
        Ok(exit)
    })
}

async fn count(mut batches: Batches<'_>, key: &str) -> Result<Purged, Failure> {
    let mut found = Purged {
        dry_run: true,
        ..Purged::default()
    };
    while let Some(entries) = batches.next().await? {
        found.purged += entries.len() as u64;
        found.count_reasons(&entries, key);
    }
    Which::warn_of_others(key, batches.others());
    Ok(found)
}

/// Delete until the end, the limit or a signal. Also says how many entries were left because they are no
/// dead letters.
async fn delete(
    letters: &DeadLetters,
    mut batches: Batches<'_>,
    total: Option<u64>,
) -> Result<(Purged, u64, Exit), Failure> {
    let mut stops = StopSignals::listen()?;
    let progress = match total {
        None => Progress::counting("deleted"),
        Some(total) => Progress::of(total, "deleted"),
    };
    let mut purged = Purged::default();
    let exit = loop {
        let entries = tokio::select! {
            biased;
            signal = stops.next() => break signal.into(),
            entries = batches.next() => entries?,
        };
        let Some(entries) = entries else {
            break Exit::Ok;
        };
        let deleted = letters.delete(&entries).await?;
        purged.purged += deleted;
        purged.count_reasons(&entries, letters.key());
        progress.advance(deleted);
    };
    progress.finish();
    Ok((purged, batches.others(), exit))
}

fn print(purged: &Purged, json: bool) -> Result<Exit, Failure> {
    output::either(json, purged, |purged| {
        let verb = match purged.dry_run {
            true => "would delete",
            false => "deleted",
        };
        let text = format!("{verb} {}", purged.purged);
        match purged.by_reason.0.is_empty() {
            true => text,
            false => format!("{text}\n\n{}", purged.table()),
        }
    })
}

/// Ask a person.
fn confirmed(key: &str, found: &Purged) -> Result<bool, Failure> {
    let (text, count) = (found.table(), found.purged);
    let question = format!("{key}:\n{text}\ndelete these {count} for good? [y/N] ");
    confirm(&question, "nothing was deleted")
}
