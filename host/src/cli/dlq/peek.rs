//! `hostler dlq peek`: how many died for which reason, and the newest.

use super::{failed, shown, with};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, output};
use crate::dead_letter::{Entry, Peek};

/// Show how many messages died for which reason, and the newest of them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler dlq peek --redis redis://localhost orders:dead
  hostler dlq peek --redis redis://localhost orders:dead --limit 100 --json | jq .by_reason")]
pub(super) struct Args {
    /// The dead-letter key
    key: String,

    /// How many entries are shown
    #[arg(long, value_name = "N", default_value_t = 10)]
    limit: usize,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let found = with(&args.key, args.flags, variables, async |letters| {
        letters.peek(args.limit).await.map_err(failed)
    })?;
    if args.json {
        output::json(&found)?;
    } else {
        output::line(&text(&args.key, &found))?;
    }
    Ok(Exit::Ok)
}

fn text(key: &str, found: &Peek) -> String {
    if found.total == 0 {
        return format!("{key} is empty");
    }
    let mut text = format!("{key}: {} dead letters\n\n", found.total);
    let mut reasons: Vec<_> = found.by_reason.iter().collect();
    reasons.sort_by(|a, b| b.1.cmp(a.1).then(a.0.cmp(b.0)));
    let most = reasons.first().map_or(1, |(_, count)| **count).max(1);
    let rows = reasons.iter().map(|(reason, count)| {
        let bar = "#".repeat(usize::try_from((**count * 40).div_ceil(most)).unwrap_or(40));
        [(*reason).clone(), count.to_string(), bar]
    });
    text.push_str(&output::table(rows));
    if !found.entries.is_empty() {
        let head = ["id", "reason", "attempts", "source", "detail", "body"].map(str::to_owned);
        let rows = found.entries.iter().map(row);
        text.push_str("\n\n");
        text.push_str(&output::table(std::iter::once(head).chain(rows)));
    }
    text
}

fn row(entry: &Entry) -> [String; 6] {
    let or_dash = |text: &Option<String>| shown(text.as_deref().unwrap_or("-"));
    let source = match (&entry.source, &entry.source_id) {
        (Some(source), Some(id)) => shown(&format!("{source} {id}")),
        (source, _) => or_dash(source),
    };
    let body = match (&entry.defect, std::str::from_utf8(&entry.body)) {
        (Some(defect), _) => format!("({})", shown(defect)),
        (None, Ok(text)) => shown(text),
        (None, Err(_)) => format!("({} bytes)", entry.body.len()),
    };
    [
        entry.id.clone(),
        or_dash(&entry.reason),
        entry
            .attempts
            .map_or_else(|| "-".to_owned(), |n| n.to_string()),
        source,
        or_dash(&entry.detail),
        body,
    ]
}
