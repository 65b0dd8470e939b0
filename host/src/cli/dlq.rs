//! `hostler dlq`: what died, and why.

use clap::Subcommand;

use crate::cli::connect::{Connected, Passing, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, flags, output};
use crate::dead_letter::{DeadLetters, Entry, Error, Peek};

/// How much of a body or a text a table shows, in characters.
const SHOWN_MAX: usize = 60;

/// Look into dead-letter queues
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Peek(PeekArgs),
}

/// Show how many messages died for which reason, and the newest of them
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler dlq peek --redis redis://localhost orders:dead
  hostler dlq peek --redis redis://localhost orders:dead --limit 100 --json | jq .by_reason")]
struct PeekArgs {
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

impl Passing for Error {
    fn may_pass(&self) -> bool {
        matches!(self, Self::Redis(error) if error.may_pass())
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Redis(error) => error.failure(),
            error => Failure::new(Exit::Usage, error),
        }
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::Peek(args) => peek(args, variables),
    }
}

fn peek(args: PeekArgs, variables: Variables) -> Result<Exit, Failure> {
    let loaded = args.flags.collect(variables).redis()?;
    flags::warn(&loaded.warnings);
    let redis = loaded.value;
    let found = ask(async {
        let connected = Connected::new(&redis, "dlq").await?;
        let letters = DeadLetters::new(&connected.connector, &*args.key);
        let found = patiently(redis.wait, async || letters.peek(args.limit).await).await;
        connected.close().await;
        found
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

/// A text that somebody else wrote: on one line, without control characters, not too long.
fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_MAX).flat_map(printable).collect();
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

fn printable(c: char) -> impl Iterator<Item = char> {
    let (plain, escaped) = if c.is_control() {
        (None, Some(c.escape_default()))
    } else {
        (Some(c), None)
    };
    plain.into_iter().chain(escaped.into_iter().flatten())
}
