//! `hostler dlq`: look at dead letters, and bring them back.
//!
//! - [`peek`], [`groups`], [`show`]: read only.
//! - [`replay`], [`purge`], [`export`]: move, delete, copy out.
//! - [`debug`]: runs a dead attempt again.
//! - [`bisect`]: does it with each stored version.
//! - [`filter`]: the flags that choose entries.
//! - [`trial`]: the verdicts of another handler on them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::cli::text::one_line;
use crate::cli::{Exit, Failure, Flags, Reach, Variables, ask, commands, output};
use crate::dead_letter::peek::OTHER;
use crate::dead_letter::{DeadLetters, Entry, Scan};

mod bisect;
mod debug;
mod export;
mod filter;
mod groups;
mod letter;
mod peek;
mod purge;
mod replay;
pub(in crate::cli) mod show;
mod trial;

/// Look at dead letters, and bring messages back from them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

commands! {
    Peek: peek,
    Groups: groups,
    Show: show,
    Debug: debug,
    Bisect: bisect,
    Replay: replay,
    Purge: purge,
    Export: export,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    args.command.run(variables)
}

/// Work on the dead-letter queue with this key.
fn with_letters<T>(
    key: &str,
    flags: Flags<Reach>,
    variables: Variables,
    work: impl AsyncFnOnce(DeadLetters) -> Result<T, Failure>,
) -> Result<T, Failure> {
    ask(flags, variables, "dlq", async |session| {
        work(DeadLetters::new(&session.connector, key)).await
    })
}

/// Reads the entries of a scan in batches, up to a limit.
struct Batches<'a> {
    scan: Scan<'a>,
    left: u64,
}

impl<'a> Batches<'a> {
    fn new(scan: Scan<'a>, limit: Option<u64>) -> Self {
        let left = limit.unwrap_or(u64::MAX);
        Self { scan, left }
    }

    /// How many entries were left so far because they are no dead letters.
    fn others(&self) -> u64 {
        self.scan.others()
    }

    /// The next batch, which may be empty; `None` = the scan or the limit has ended.
    async fn next(&mut self) -> Result<Option<Vec<Entry>>, Failure> {
        if self.left == 0 {
            return Ok(None);
        }
        let mut entries = self.scan.next().await?;
        if let Some(entries) = &mut entries {
            entries.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            self.left -= entries.len() as u64;
        }
        Ok(entries)
    }
}

/// How the lines below a row begin.
const INDENT: &str = "  ";

/// A table with titles in which lines of its own follow each row.
fn rows_with_lines<const N: usize, T>(
    titles: [&str; N],
    items: &[T],
    row: impl Fn(&T) -> [String; N],
    below: impl Fn(&T) -> Vec<String>,
) -> String {
    let table = output::titled(titles, items.iter().map(row));
    let mut rows = table.lines();
    let mut lines: Vec<String> = rows.next().map(str::to_owned).into_iter().collect();
    for (row, item) in rows.zip(items) {
        lines.push(row.to_owned());
        lines.extend(below(item).iter().map(|line| format!("{INDENT}{line}")));
    }
    lines.join("\n")
}

/// A line of the log of an attempt, as it is shown.
fn log_line(line: &str) -> String {
    format!("  | {}", one_line(line))
}

/// How many different reasons are counted one by one; hostler itself writes ten.
const REASONS_MAX: usize = 100;

/// Something for each reason of dead letters.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct ByReason<T>(BTreeMap<String, T>);

impl<T: Default> ByReason<T> {
    fn of(&mut self, entry: &Entry, key: &str) -> &mut T {
        let reason = one_line(entry.reason_in(key));
        let is_room = self.0.len() < REASONS_MAX || self.0.contains_key(&reason);
        let reason = if is_room { reason } else { OTHER.to_owned() };
        self.0.entry(reason).or_default()
    }
}
