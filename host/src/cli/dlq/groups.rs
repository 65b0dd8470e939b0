//! `hostler dlq groups`: dead letters by their causes.

use super::filter::{Letters, Which};
use super::{rows_with_lines, with_letters};
use crate::cli::text::{count, one_line, time_to_seconds, wrapped};
use crate::cli::{Common, Exit, Failure, Reach, Variables, output};
use crate::dead_letter::{Group, Groups};

/// Columns of the terminal that the text of a cause is made for, without its indent.
const WIDTH: usize = 78;
/// How much of a cause is shown, in lines.
const SIGNATURE_LINES: usize = 3;

/// Show how many messages died for each cause
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A cause is a fault with the line that the handler wrote last and the functions
in which it was, or a reason with the text of the handler. Numbers, ids and
quoted values count as equal. --signature takes the id of a cause, here and in
`replay`, `purge` and `export`.

Examples:
  hostler dlq groups --redis redis://localhost orders:dead
  hostler dlq groups --redis redis://localhost orders:dead --json \\
    | jq '.groups[0].signature'
  hostler dlq replay --redis redis://localhost orders:dead \\
    --signature 1f3a90c2b5d7e846")]
pub(super) struct Args {
    #[command(flatten)]
    letters: Letters,

    #[command(flatten)]
    which: Which,

    /// The most causes to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    limit: usize,

    #[command(flatten)]
    common: Common<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let key = args.letters.key(&args.common.flags, &variables)?;
    let mut found = with_letters(&key, args.common.flags, variables, async |letters| {
        Ok(letters.groups(args.which.filter()).await?)
    })?;
    if found.total == 0 {
        args.which.warn_of_unknown_reasons();
    }
    let causes = found.groups.len();
    let left = found.groups.iter().skip(args.limit);
    found.others += left.map(|group| group.count).sum::<u64>();
    found.groups.truncate(args.limit);
    output::either(args.common.json, &found, |found| text(&key, found, causes))
}

fn text(key: &str, found: &Groups, causes: usize) -> String {
    if found.total == 0 {
        return format!("{key} has no such dead letters");
    }
    let mut text = format!(
        "{key}: {}, {}\n\n",
        count(found.total, "dead letter"),
        count(causes as u64, "cause")
    );
    let titles = ["signature", "count", "first", "last", "newest", "died for"];
    let row = |group: &Group| {
        let reasons: Vec<&str> = group.reasons.keys().map(String::as_str).collect();
        [
            group.id.clone(),
            group.count.to_string(),
            time_to_seconds(group.first_ms),
            time_to_seconds(group.last_ms),
            group.newest.clone(),
            one_line(&reasons.join(", ")),
        ]
    };
    let below = |group: &Group| wrapped(&group.signature, WIDTH, SIGNATURE_LINES);
    text.push_str(&rows_with_lines(titles, &found.groups, row, below));
    if found.others > 0 {
        text.push_str(&format!("\n\nother causes: {}", found.others));
    }
    text
}
