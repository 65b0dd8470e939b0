//! The table of a `hostler test`: messages, and the expected outcome of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::Deserialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::invoke::ATTEMPTS_FROM_1;
use crate::cli::message;
use crate::config::Value;
use crate::delivery::message::{Headers, Message};
use crate::delivery::outcome::Outcome;

/// The largest table: it is a few pages of text.
const FILE_MAX: u64 = 16 << 20;

/// The table in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    case: Vec<CaseToml>,
}

/// A case in its file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseToml {
    name: Option<String>,
    body: Option<String>,
    body_base64: Option<String>,
    body_file: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    id: Option<String>,
    queue: Option<String>,
    attempt: Option<u32>,
    #[serde(default)]
    max_attempts: u32,
    #[serde(default)]
    enqueued_ms: u64,
    outcome: OutcomeName,
    delay: Option<String>,
    reason: Option<String>,
    fault: Option<String>,
    #[serde(default)]
    log: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum OutcomeName {
    Ack,
    NackRequeue,
    Drop,
    Fault,
}

/// A message and its expected outcome.
#[derive(Debug)]
pub(super) struct Case {
    /// Its name; `case 3` if it has none.
    pub(super) name: String,
    /// The message.
    pub(super) message: Message,
    /// The number of the attempt, as the handler sees it.
    pub(super) attempt: u32,
    /// The most attempts, as the handler sees it.
    pub(super) max_attempts: u32,
    expected: Expected,
    /// Each must be part of a line that the handler writes.
    log: Vec<String>,
}

#[derive(Debug)]
enum Expected {
    Ack,
    /// With this delay, if it is given.
    NackRequeue(Option<Duration>),
    /// With this reason, if it is given.
    Drop(Option<String>),
    /// Of this kind, if it is given.
    Fault(Option<String>),
}

/// Read a table. Paths in it are relative to its folder.
pub(super) fn read(path: &Path) -> Result<Vec<Case>, Failure> {
    let wrong =
        |what: String| Failure::new(Exit::Usage, format_args!("{}: {what}", path.display()));
    let text = message::read(path, FILE_MAX)?;
    let text = str::from_utf8(&text).map_err(|error| wrong(error.to_string()))?;
    let table: Table =
        toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end().to_owned()))?;
    if table.case.is_empty() {
        return Err(wrong("it has no [[case]]".to_owned()));
    }
    let beside = path.parent().unwrap_or(Path::new(""));
    let mut cases = Vec::with_capacity(table.case.len());
    let mut problems = Vec::new();
    for (number, written) in (1..).zip(table.case) {
        let name = match &written.name {
            Some(name) => format!("case `{name}`"),
            None => format!("case {number}"),
        };
        match written.case(beside, number) {
            Ok(case) => cases.push(case),
            Err(problem) => problems.push((format!("{name}: {problem}"), None)),
        }
    }
    if problems.is_empty() {
        return Ok(cases);
    }
    Err(Failure {
        details: problems,
        ..wrong("some cases cannot be read".to_owned())
    })
}

impl CaseToml {
    fn case(self, beside: &Path, number: usize) -> Result<Case, String> {
        let only = |field: &str, given: bool, word: OutcomeName| match given && self.outcome != word
        {
            true => Err(format!("`{field}` does not go with this outcome")),
            false => Ok(()),
        };
        only("delay", self.delay.is_some(), OutcomeName::NackRequeue)?;
        only("reason", self.reason.is_some(), OutcomeName::Drop)?;
        only("fault", self.fault.is_some(), OutcomeName::Fault)?;
        let body = match (self.body, self.body_base64, self.body_file) {
            (None, None, None) => Bytes::new(),
            (Some(text), None, None) => text.into(),
            (None, Some(text), None) => BASE64_STANDARD
                .decode(text)
                .map_err(|error| format!("`body_base64`: {error}"))?
                .into(),
            (None, None, Some(file)) => message::read(&beside.join(file), message::BODY_MAX)
                .map_err(|failure| failure.what)?,
            _ => return Err("more than one body".to_owned()),
        };
        if self.attempt == Some(0) {
            return Err(format!("`attempt`: {ATTEMPTS_FROM_1}"));
        }
        let expected = match self.outcome {
            OutcomeName::Ack => Expected::Ack,
            OutcomeName::NackRequeue => {
                let delay = self.delay.map(|delay| Duration::parse(&delay));
                let delay = delay.transpose();
                Expected::NackRequeue(delay.map_err(|error| format!("`delay`: {}", error.what))?)
            }
            OutcomeName::Drop => Expected::Drop(self.reason),
            OutcomeName::Fault => Expected::Fault(self.fault),
        };
        let mut headers = Headers::default();
        for (name, value) in self.headers {
            headers.push(name, value);
        }
        Ok(Case {
            name: self.name.unwrap_or_else(|| format!("case {number}")),
            message: Message {
                id: self.id.unwrap_or_else(|| "0-1".to_owned()).into(),
                queue: self.queue.unwrap_or_else(|| "test".to_owned()).into(),
                body,
                headers,
                enqueued_ms: self.enqueued_ms,
            },
            attempt: self.attempt.unwrap_or(1),
            max_attempts: self.max_attempts,
            expected,
            log: self.log,
        })
    }
}

impl Case {
    /// The difference to this outcome and these lines of log; `None` = as expected.
    pub(super) fn objection(&self, outcome: &Outcome, lines: &[String]) -> Option<String> {
        let as_expected = match (&self.expected, outcome) {
            (Expected::Ack, Outcome::Ack) => true,
            (Expected::NackRequeue(delay), Outcome::NackRequeue(got)) => {
                delay.is_none() || delay == got
            }
            (Expected::Drop(reason), Outcome::Drop(got)) => reason.is_none() || reason == got,
            (Expected::Fault(kind), Outcome::Fault(got)) => {
                kind.as_deref().is_none_or(|kind| kind == got.kind.label())
            }
            _ => false,
        };
        if !as_expected {
            return Some(format!("expected {}", self.expected));
        }
        let missing = |text: &&String| !lines.iter().any(|line| line.contains(text.as_str()));
        let missing = self.log.iter().find(missing)?;
        Some(format!("expected a log line with `{missing}`"))
    }
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ack => write!(f, "ack"),
            Self::NackRequeue(None) => write!(f, "nack-requeue"),
            Self::NackRequeue(Some(delay)) => write!(f, "nack-requeue after {}", delay.show()),
            Self::Drop(None) => write!(f, "drop"),
            Self::Drop(Some(reason)) => write!(f, "drop: {reason}"),
            Self::Fault(None) => write!(f, "fault"),
            Self::Fault(Some(kind)) => write!(f, "fault ({kind})"),
        }
    }
}
