//! `hostler dlq export`: whole entries as lines of JSON.

use super::filter::{Letters, Which};
use super::{Batches, with_letters};
use crate::cli::progress::Progress;
use crate::cli::{Exit, Failure, Flags, Reach, Variables, output};
use crate::dead_letter::Entry;

/// Print entries as lines of JSON; `hostler publish --lines --json` reads them back
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line is {\"id\",\"reason\",\"body\",\"headers\":[[name,value],...]}. An entry that
is not a body with headers is {\"id\",\"reason\",\"fields\":[[name,value],...]}.
Bytes that are not UTF-8 are {\"base64\":\"...\"}. Nothing is changed.
Entries that are no dead letters are left out (--any-entry).

Examples:
  hostler dlq export --redis redis://localhost orders:dead > dead.jsonl
  hostler dlq export --redis redis://localhost orders:dead --reason trap \\
    | jq -r .body
  hostler publish --redis redis://localhost --stream orders:dead \\
    --lines --json < dead.jsonl")]
pub(super) struct Args {
    #[command(flatten)]
    letters: Letters,

    #[command(flatten)]
    which: Which,

    /// The most entries
    #[arg(long, value_name = "N", help_heading = "Which entries")]
    limit: Option<u64>,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let key = args.letters.key(&args.flags, &variables)?;
    with_letters(&key, args.flags, variables, async |letters| {
        let letters = args.which.of(letters);
        let progress = Progress::counting("exported");
        let scan = letters.scan(args.which.filter()).await?;
        let mut batches = Batches::new(scan, args.limit);
        let mut is_empty = true;
        while let Some(entries) = batches.next().await? {
            is_empty &= entries.is_empty();
            output::json_lines(entries.iter().map(Entry::line))?;
            progress.advance(entries.len() as u64);
        }
        progress.finish();
        Which::warn_of_others(&key, batches.others());
        if is_empty {
            args.which.warn_of_unknown_reasons();
        }
        Ok(Exit::Ok)
    })
}
