//! `hostler dlq show`: one entry, whole.

use serde::Serialize;

use super::{failed, line, with};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, output};
use crate::dead_letter::Entry;
use crate::delivery::death::Death;

/// Show one entry whole: why it died, its history, its headers, its body
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler dlq show --redis redis://localhost orders:dead 1700000000000-0
  hostler dlq show --redis redis://localhost orders:dead 1700000000000-0 --json | jq -r .body")]
pub(super) struct Args {
    /// The dead-letter key
    key: String,

    /// The entry's id, as `hostler dlq peek` shows it
    id: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Reach>,
}

/// The shape of `--json`: the entry as `peek` has it, and its history.
#[derive(Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    history: Vec<Record<'a>>,
}

#[derive(Serialize)]
struct Record<'a> {
    queue: &'a str,
    reason: &'a str,
    count: u64,
    first_ms: u64,
    last_ms: u64,
    original_expiration_ms: Option<u64>,
}

impl<'a> From<&'a Death> for Record<'a> {
    fn from(death: &'a Death) -> Self {
        Self {
            queue: &death.queue,
            reason: &death.reason,
            count: death.count,
            first_ms: death.first_ms,
            last_ms: death.last_ms,
            original_expiration_ms: death.original_expiration,
        }
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let found = with(&args.key, args.flags, variables, async |letters| {
        letters.find(&args.id).await.map_err(failed)
    })?;
    let Some(entry) = found else {
        let what = format!("`{}` has no entry {}", args.key, args.id);
        let hint = "it may have been replayed or purged; `hostler dlq peek` shows what is there";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    };
    let history = entry.history();
    if args.json {
        output::json(&Whole {
            entry: &entry,
            history: history.records().iter().map(Record::from).collect(),
        })?;
    } else {
        output::line(&text(&entry, history.records()))?;
    }
    Ok(Exit::Ok)
}

fn text(entry: &Entry, history: &[Death]) -> String {
    let or_dash = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), line);
    let attempts = entry.attempts.map(|n| n.to_string());
    let died = time(entry.died_ms());
    let mut facts = vec![
        ["id".to_owned(), entry.id.clone()],
        ["died".to_owned(), died],
        ["reason".to_owned(), or_dash(&entry.reason)],
        ["detail".to_owned(), or_dash(&entry.detail)],
        ["attempts".to_owned(), or_dash(&attempts)],
        ["source".to_owned(), or_dash(&entry.source)],
        ["id there".to_owned(), or_dash(&entry.source_id)],
        ["group".to_owned(), or_dash(&entry.group)],
        ["handler".to_owned(), or_dash(&entry.handler)],
    ];
    facts.retain(|[_, value]| value != "-");
    let mut text = output::table(facts);
    if !history.is_empty() {
        let head = ["died in", "for", "times", "first", "last", "would expire"].map(str::to_owned);
        let rows = history.iter().map(|death| {
            [
                line(&death.queue),
                line(&death.reason),
                death.count.to_string(),
                time(death.first_ms),
                time(death.last_ms),
                death
                    .original_expiration
                    .map_or_else(|| "-".to_owned(), time),
            ]
        });
        text.push_str("\n\n");
        text.push_str(&output::table(std::iter::once(head).chain(rows)));
    }
    if !entry.headers.is_empty() {
        let rows = entry
            .headers
            .iter()
            .map(|(name, value)| [name, value].map(|bytes| line(&String::from_utf8_lossy(bytes))));
        text.push_str("\n\n");
        text.push_str(&output::table(rows));
    }
    text.push_str("\n\n");
    match (&entry.defect, std::str::from_utf8(&entry.body)) {
        (Some(defect), _) => {
            let rows = entry.fields.iter().map(|(name, value)| {
                [name, value].map(|bytes| line(&String::from_utf8_lossy(bytes)))
            });
            text.push_str(&format!("no message: {}\n\n", line(defect)));
            text.push_str(&output::table(rows));
        }
        // Lines stay lines: it is shown whole.
        (None, Ok(body)) => {
            let lines: Vec<String> = body.split('\n').map(line).collect();
            text.push_str(&lines.join("\n"));
        }
        (None, Err(_)) => {
            let size = entry.body.len();
            let what = format!("({size} bytes that are no text: --json has them as body_base64)");
            text.push_str(&what);
        }
    }
    text
}

/// A time that people can read; a dash for one that is not known.
fn time(epoch_ms: u64) -> String {
    let since = std::time::Duration::from_millis(epoch_ms);
    match std::time::UNIX_EPOCH.checked_add(since) {
        // What humantime cannot show, nobody can have meant.
        Some(time) if epoch_ms > 0 && epoch_ms < 253_402_300_800_000 => {
            humantime::format_rfc3339_millis(time).to_string()
        }
        _ => "-".to_owned(),
    }
}
