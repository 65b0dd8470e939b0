//! The flags that choose dead letters.

use std::time::Duration;

use crate::cli::flags::{Flags, Scope};
use crate::cli::message::{Header, header};
use crate::cli::{Failure, Variables, named, output, text};
use crate::config::nearest;
use crate::dead_letter::groups::is_short_id;
use crate::dead_letter::peek::UNKNOWN;
use crate::dead_letter::{DeadLetters, Filter};
use crate::delivery::policy::Reason;
use crate::wire::dead_letter::REASON;

/// Which dead letters.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Letters {
    /// The dead-letter key
    #[arg(value_name = "KEY", required_unless_present = "queue")]
    key: Option<String>,

    /// The dead letters of this queue, instead of KEY: its hosts say where they go
    #[arg(long, value_name = "QUEUE", conflicts_with = "key")]
    queue: Option<String>,
}

impl Letters {
    /// The dead-letter key.
    pub(super) fn key<S: Scope>(
        &self,
        flags: &Flags<S>,
        variables: &Variables,
    ) -> Result<String, Failure> {
        match (&self.key, &self.queue) {
            (Some(key), _) => Ok(key.clone()),
            (None, queue) => {
                let queue = queue.as_deref().unwrap_or_default();
                named::dead_letters(flags, variables, queue)
            }
        }
    }
}

/// Flags that choose entries. An entry must match all of them.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Which entries")]
pub(super) struct Which {
    /// Only entries that died for this reason; may be repeated
    #[arg(long = "reason", value_name = "REASON", value_parser = reason)]
    reasons: Vec<String>,

    /// Only entries that died for this cause: its id, as `hostler dlq groups`
    /// shows it; may be repeated
    #[arg(long = "signature", value_name = "ID", value_parser = signature)]
    signatures: Vec<String>,

    /// Only the entry with this id in the dead-letter queue; may be repeated
    #[arg(long = "id", value_name = "ID")]
    ids: Vec<String>,

    /// Only entries that died at least this long ago, such as 1h
    #[arg(long, value_name = "DURATION", value_parser = text::parse::<Duration>)]
    older_than: Option<Duration>,

    /// Only entries with this header, `name=value`; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<Header>,

    /// Also entries that are no dead letters: without a reason, or messages
    /// that are back where they died
    #[arg(long)]
    any_entry: bool,

    /// Also if hosts, or consumers of a group, serve KEY as a queue
    #[arg(long)]
    even_if_served: bool,
}

/// Parse a reason. Others than hostler write reasons of their own, but not ones that look like a misspelt
/// one of these.
fn reason(text: &str) -> Result<String, String> {
    let known = || Reason::ALL.map(Reason::label).into_iter().chain([UNKNOWN]);
    match nearest(text, known()) {
        Some(meant) if known().all(|known| known != text) => Err(format!(
            "did you mean `{meant}`? (`--header {REASON}={text}` matches exactly that)"
        )),
        _ => Ok(text.to_owned()),
    }
}

/// Parse the id of a cause, or a signature.
fn signature(text: &str) -> Result<String, String> {
    match is_short_id(text) {
        true => Err("this id is of an earlier version: several causes could have it. `hostler dlq groups` shows the ids of now".to_owned()),
        false => Ok(text.to_owned()),
    }
}

impl Which {
    /// The dead letters, even of a queue that is served if the flags say so.
    pub(super) fn of(&self, letters: DeadLetters) -> DeadLetters {
        letters.even_if_served(self.even_if_served)
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            reasons: self.reasons.clone(),
            ids: self.ids.clone(),
            older_than: self.older_than,
            headers: self.headers.clone(),
            signatures: self.signatures.clone(),
            any_entry: self.any_entry,
        }
    }

    /// Warn of entries that were left because they are no dead letters.
    pub(super) fn warn_of_others(key: &str, others: u64) {
        if others > 0 {
            let what = match others {
                1 => format!("left one entry of `{key}` that is no dead letter"),
                n => format!("left {n} entries of `{key}` that are no dead letters"),
            };
            output::warning(&what, Some("`--any-entry` takes them as well"));
        }
    }

    /// Nothing was found: warn of reasons that hostler does not know.
    pub(super) fn warn_of_unknown_reasons(&self) {
        let is_known = |r: &String| Reason::from_label(r).is_some() || r == UNKNOWN;
        if let Some(reason) = self.reasons.iter().find(|reason| !is_known(reason)) {
            let known = Reason::ALL.map(Reason::label).join(", ");
            let what = format!("no entry died for `{reason}`");
            output::warning(&what, Some(&format!("hostler's reasons are {known}")));
        }
    }
}
