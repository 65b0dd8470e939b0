//! Try a handler on dead letters, in the sandbox and within its limits. Writes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use futures_util::{StreamExt, stream};
use serde::Serialize;
use tokio::runtime::Handle;

use super::{ByReason, log_line};
use crate::cli::text::{cut, micros, short};
use crate::cli::{Exit, Failure, output};
use crate::config::Trying;
use crate::dead_letter::{DeadLetters, Entry};
use crate::host::component;
use crate::sandbox::BACKTRACE;
use crate::trial::{Candidate, Verdict};

/// How many lines of the end of a log are shown.
const LOG_LINES: usize = 3;
/// Columns of the terminal that such a line is made for.
const WIDTH: usize = 80;

/// A handler on trial.
pub(super) struct Trial<'a> {
    candidate: Candidate,
    /// How many are tried at the same time.
    concurrency: usize,
    letters: &'a DeadLetters,
    /// The queue that all entries would go to; `None` = each to the queue that it died in.
    to: Option<&'a str>,
    attempts: &'a Handle,
    json: bool,
    counts: Counts,
}

/// How often each old reason met each new verdict.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    handler: String,
    tried: u64,
    verdicts: ByReason<BTreeMap<String, u64>>,
}

/// The shape of a line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    reason: Option<&'a str>,
    verdict: &'static str,
    fault: Option<&'static str>,
    detail: Option<&'a str>,
    duration_us: Option<u64>,
    log: Vec<&'a str>,
}

impl<'a> Trial<'a> {
    /// Load the handler of this file. Blocks while it is compiled.
    pub(super) fn load(
        file: &Path,
        settings: &Trying,
        letters: &'a DeadLetters,
        to: Option<&'a str>,
        attempts: &'a Handle,
        json: bool,
    ) -> Result<Self, Failure> {
        let sandbox = component::load(file, &settings.sandbox)?;
        Ok(Self {
            counts: Counts {
                handler: sandbox.digest().to_string(),
                ..Counts::default()
            },
            candidate: Candidate::new(sandbox, settings),
            concurrency: settings.sandbox.concurrency,
            letters,
            to,
            attempts,
            json,
        })
    }

    /// Try these entries and print each verdict, in their order. Returns the entries that the handler
    /// acks.
    pub(super) async fn sift(&mut self, entries: Vec<Entry>) -> Result<Vec<Entry>, Failure> {
        let call = |entry| self.candidate.call(self.letters, entry, self.to);
        let calls: Vec<_> = entries.iter().map(call).collect();
        let attempts = self.attempts.clone();
        let mut verdicts = stream::iter(calls)
            .map(|call| attempts.spawn(call))
            .buffered(self.concurrency);
        let mut acked = Vec::new();
        for entry in entries {
            let Some(verdict) = verdicts.next().await else {
                break;
            };
            let verdict = verdict.map_err(|error| Failure::new(Exit::Bug, error))?;
            self.print(&entry, &verdict)?;
            if verdict.word == "ack" {
                acked.push(entry);
            }
        }
        Ok(acked)
    }

    fn print(&mut self, entry: &Entry, verdict: &Verdict) -> Result<(), Failure> {
        self.counts.tried += 1;
        let verdicts = self.counts.verdicts.of(entry, self.letters.key());
        *verdicts.entry(verdict.name()).or_default() += 1;
        let reason = entry.reason.as_deref();
        if self.json {
            return output::json(&Line {
                id: &entry.id,
                reason,
                verdict: verdict.word,
                fault: verdict.fault,
                detail: verdict.detail.as_deref(),
                duration_us: verdict.duration.map(micros),
                log: verdict.lines().collect(),
            });
        }
        let reason = short(entry.reason_in(self.letters.key()));
        let mut text = format!("{}  {reason} -> {}", entry.id, verdict.name());
        if let Some(detail) = &verdict.detail {
            text.push_str(&format!("  {}", short(detail)));
        }
        // The other verdicts are answers.
        if verdict.fault.is_some() {
            let said = verdict.lines().take_while(|line| *line != BACKTRACE);
            let said: Vec<&str> = said.collect();
            let last = said.iter().skip(said.len().saturating_sub(LOG_LINES));
            text.extend(last.map(|line| format!("\n{}", cut(&log_line(line), WIDTH))));
        }
        output::line(&text)
    }

    /// The counts so far.
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Counts {
    /// A table of old reasons and new verdicts.
    pub(super) fn text(&self) -> String {
        let rows = self.verdicts.0.iter().flat_map(|(reason, verdicts)| {
            let row = |(verdict, count): (&String, &u64)| {
                [reason.clone(), verdict.clone(), count.to_string()]
            };
            verdicts.iter().map(row).collect::<Vec<_>>()
        });
        let tried = format!("tried {} with {}", self.tried, self.handler);
        if self.verdicts.0.is_empty() {
            return tried;
        }
        let table = output::titled(["died for", "now", "count"], rows);
        format!("{tried}\n\n{table}")
    }
}
