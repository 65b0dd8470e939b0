//! `hostler dlq export`: entries as lines of JSON, whole.

use super::filter::Which;
use super::{failed, with};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::progress::Progress;
use crate::cli::{Variables, output};

/// Print entries as lines of JSON that `hostler publish --lines --json` reads back whole
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Each line: {\"id\",\"reason\",\"body\",\"headers\":[[name,value],...]}, or {\"id\",\"reason\",\"fields\":[[name,value],...]}
for an entry that is no body and headers; what is not UTF-8 is {\"base64\":\"...\"}. Changes nothing.

Examples:
  hostler dlq export --redis redis://localhost orders:dead > dead.jsonl
  hostler dlq export --redis redis://localhost orders:dead --reason trap | jq -r .body
  hostler publish --redis redis://localhost --stream orders:dead --lines --json < dead.jsonl")]
pub(super) struct Args {
    /// The dead-letter key
    key: String,

    #[command(flatten)]
    which: Which,

    /// How many entries at most
    #[arg(long, value_name = "N", help_heading = "Which entries")]
    limit: Option<u64>,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let mut left = args.limit.unwrap_or(u64::MAX);
    with(&args.key, args.flags, variables, async |letters| {
        let progress = Progress::counting("exported");
        let mut scan = letters.scan(args.which.filter()).await.map_err(failed)?;
        let mut none = true;
        while left > 0
            && let Some(mut entries) = scan.next().await.map_err(failed)?
        {
            entries.truncate(usize::try_from(left).unwrap_or(usize::MAX));
            left -= entries.len() as u64;
            none &= entries.is_empty();
            let mut text = String::new();
            for entry in &entries {
                text.push_str(&entry.line());
                text.push('\n');
            }
            output::data(text.as_bytes())?;
            progress.advance(entries.len() as u64);
        }
        progress.finish();
        if none {
            args.which.doubt();
        }
        Ok(Exit::Ok)
    })
}
