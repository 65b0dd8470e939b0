//! `hostler dlq peek`: dead letters by reason, and the newest ones.

use super::with_letters;
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::text::{count, or_dash, short};
use crate::cli::{Variables, output};
use crate::dead_letter::{Entry, Peek};

/// Show how many messages died for each reason, and the newest ones
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler dlq peek --redis redis://localhost orders:dead
  hostler dlq peek --redis redis://localhost orders:dead --limit 100 --json \\
    | jq .by_reason")]
pub(super) struct Args {
    /// The dead-letter key
    key: String,

    /// The most entries to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let found = with_letters(&args.key, args.flags, variables, async |letters| {
        let found = letters.peek(args.limit).await?;
        if found.total == 0 && !letters.exists().await? {
            let what = format!("there is no key `{}`", args.key);
            let hint = "is the name right? until a message dies, and when the last dead letter \
                        of a list is gone, there is no key";
            return Err(Failure::new(Exit::Usage, what).hint(hint));
        }
        Ok(found)
    })?;
    output::either(args.json, &found, |found| text(&args.key, found))
}

fn text(key: &str, found: &Peek) -> String {
    if found.total == 0 {
        return format!("{key} is empty");
    }
    let mut text = format!("{key}: {}\n\n", count(found.total, "dead letter"));
    let mut reasons: Vec<_> = found.by_reason.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let most = reasons.first().map_or(1, |(_, count)| **count).max(1);
    let rows = reasons.iter().map(|(reason, count)| {
        let bar = "#".repeat(usize::try_from((**count * 40).div_ceil(most)).unwrap_or(40));
        [(*reason).clone(), count.to_string(), bar]
    });
    text.push_str(&output::table(rows));
    if !found.entries.is_empty() {
        let titles = ["id", "reason", "attempts", "source", "detail", "body"];
        text.push_str("\n\n");
        text.push_str(&output::titled(titles, found.entries.iter().map(row)));
    }
    text
}

fn row(entry: &Entry) -> [String; 6] {
    let shown = |text: &Option<String>| short(text.as_deref().unwrap_or("-"));
    let source = match (&entry.source, &entry.source_id) {
        (Some(source), Some(id)) => short(&format!("{source} {id}")),
        (source, _) => shown(source),
    };
    let body = match (&entry.defect, str::from_utf8(&entry.body)) {
        (Some(defect), _) => format!("({})", short(defect)),
        (None, Ok(text)) => short(text),
        (None, Err(_)) => format!("({} bytes)", entry.body.len()),
    };
    [
        entry.id.clone(),
        shown(&entry.reason),
        or_dash(entry.attempts),
        source,
        shown(&entry.detail),
        body,
    ]
}
