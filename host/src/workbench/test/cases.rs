//! The table of a `hostler test`: messages, and the expected outcome of each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value as Json;

use super::answers::{Exchange, ExchangeToml};
use super::content::Content;
use super::published::{self, Published, PublishedToml};
use super::remembered::{self, ValueToml};
use super::replied::{Reply, ReplyToml};
use super::written::{self, Written, WrittenToml};
use crate::delivery::message::Message;
use crate::sandbox::Report;
use crate::values::{Value, schema};
use crate::workbench::attempt::{ATTEMPTS_FROM_1, Verdict};
use crate::workbench::{Error, effects, message};

/// The largest table: it is a few pages of text.
const FILE_MAX: u64 = 16 << 20;

/// The table in its file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Table {
    /// One message, and the expected outcome.
    #[serde(default)]
    #[schemars(length(min = 1))]
    case: Vec<CaseToml>,
}

/// A message, and the expected outcome.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct CaseToml {
    /// A name for people.
    name: Option<String>,
    /// It is the next attempt at the message of the case before, and finds what that one has recorded. It has no message.
    #[serde(default)]
    continues: bool,
    /// The body of the message, as text. Without a body it is empty.
    body: Option<String>,
    /// The body of the message, in Base64.
    body_base64: Option<String>,
    /// A file with the body of the message, beside the table.
    body_file: Option<PathBuf>,
    /// The headers of the message.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// The id of the message: `0-1` if not given.
    id: Option<String>,
    /// The queue of the message: `test` if not given.
    queue: Option<String>,
    /// The number of the attempt: 1 if not given.
    #[schemars(range(min = 1))]
    attempt: Option<u32>,
    /// The most attempts; 0 = no cap.
    #[serde(default)]
    max_attempts: u32,
    /// When the message was enqueued, in milliseconds since 1970.
    #[serde(default)]
    enqueued_ms: u64,
    /// The expected outcome.
    outcome: OutcomeName,
    /// The expected delay of a nack-requeue, such as `200ms`.
    delay: Option<String>,
    /// Whether the handler must hold the message, so that the attempt is not charged.
    held: Option<bool>,
    /// The expected reason of a drop.
    reason: Option<String>,
    /// The expected kind of a fault, such as `trap`.
    fault: Option<String>,
    /// The values of keys before the attempt.
    #[serde(default, rename = "key-value")]
    key_value: BTreeMap<String, String>,
    /// The values that earlier attempts have remembered.
    #[serde(default)]
    journal: Vec<ValueToml>,
    /// The values that must be remembered after the attempt, in any order. An empty array is none.
    remembered: Option<Vec<ValueToml>>,
    /// The messages that an ack must publish, in this order. An empty array is none.
    published: Option<Vec<PublishedToml>>,
    /// The keys that an ack must set and delete, in any order. An empty array is none.
    written: Option<Vec<WrittenToml>>,
    /// The reply that an ack must write.
    reply: Option<ReplyToml>,
    /// Each text must be part of a line that the handler writes.
    #[serde(default)]
    log: Vec<String>,
    /// The requests that the handler must send, and their answers.
    #[serde(default)]
    http: Vec<ExchangeToml>,
}

#[derive(Clone, Copy, Debug, Deserialize, Eq, JsonSchema, PartialEq)]
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
    /// The number of the attempt, as the handler sees it, if it is given.
    pub(super) attempt: Option<u32>,
    /// The most attempts, as the handler sees it.
    pub(super) max_attempts: u32,
    /// The values of keys before the attempt.
    pub(super) key_value: BTreeMap<String, String>,
    /// It is the next attempt at the message of the case before.
    pub(super) continues: bool,
    /// The values that earlier attempts have remembered.
    pub(super) journal: Vec<(String, Bytes)>,
    /// The expected outcome; and its delay, its reason or its kind of fault, if that is given.
    outcome: OutcomeName,
    delay: Option<Duration>,
    held: Option<bool>,
    reason: Option<String>,
    fault: Option<String>,
    /// What it must publish, if that is given.
    published: Option<Vec<Published>>,
    /// What must be remembered, if that is given.
    remembered: Option<BTreeMap<String, Content>>,
    /// What it must set and delete, if that is given.
    written: Option<BTreeMap<String, Written>>,
    /// What it must reply, if that is given.
    reply: Option<Reply>,
    /// Each must be part of a line that the handler writes.
    log: Vec<String>,
    /// The requests that the handler must send, and their answers.
    pub(super) http: Vec<Exchange>,
}

/// The JSON Schema of a table.
pub fn table_schema() -> Json {
    schema::of_document::<Table>(
        "cases.toml",
        "Messages and the expected outcome of each, for `hostler test`.",
    )
}

/// Read a table. Paths in it are relative to its folder.
pub(super) fn read(path: &Path) -> Result<Vec<Case>, Error> {
    let named = |what: &str| format!("{}: {what}", path.display());
    let wrong = |what: &str| Error::usage(named(what));
    let text = message::read(path, FILE_MAX)?;
    let text = str::from_utf8(&text).map_err(|error| wrong(&error.to_string()))?;
    let table: Table = toml::from_str(text).map_err(|error| wrong(error.to_string().trim_end()))?;
    if table.case.is_empty() {
        return Err(wrong("it has no [[case]]"));
    }
    let beside = path.parent().unwrap_or(Path::new(""));
    let mut cases = Vec::with_capacity(table.case.len());
    let mut problems = Vec::new();
    for (number, written) in (1..).zip(table.case) {
        let name = match &written.name {
            Some(name) => format!("case `{name}`"),
            None => format!("case {number}"),
        };
        match written.case(beside, number, cases.last()) {
            Ok(case) => cases.push(case),
            Err(problem) => problems.push(format!("{name}: {problem}")),
        }
    }
    if problems.is_empty() {
        return Ok(cases);
    }
    Err(Error::Usage {
        what: named("some cases cannot be read"),
        details: problems,
        hint: None,
    })
}

impl CaseToml {
    /// `before`: the case before, if there is one.
    fn case(self, beside: &Path, number: usize, before: Option<&Case>) -> Result<Case, String> {
        let only = |field: &str, given: bool, word: OutcomeName| match given && self.outcome != word
        {
            true => Err(format!("`{field}` does not go with this outcome")),
            false => Ok(()),
        };
        only("delay", self.delay.is_some(), OutcomeName::NackRequeue)?;
        only("reason", self.reason.is_some(), OutcomeName::Drop)?;
        only("fault", self.fault.is_some(), OutcomeName::Fault)?;
        let publishes = self.published.as_ref().is_some_and(|all| !all.is_empty());
        only("published", publishes, OutcomeName::Ack)?;
        let writes = self.written.as_ref().is_some_and(|all| !all.is_empty());
        only("written", writes, OutcomeName::Ack)?;
        let reply = self.reply.map(ReplyToml::read).transpose();
        let reply = reply.map_err(|why| format!("`reply`: {why}"))?;
        only(
            "reply",
            reply.as_ref().is_some_and(Reply::is_some),
            OutcomeName::Ack,
        )?;
        let body = message::table_body(beside, self.body, self.body_base64, self.body_file)?;
        let published = self.published.map(|all| {
            let read = |(number, one): (usize, PublishedToml)| {
                let one = one.read(beside);
                one.map_err(|problem| format!("published message {number}: {problem}"))
            };
            (1..).zip(all).map(read).collect::<Result<_, _>>()
        });
        let written = self.written.map(|all| {
            let read = |one: WrittenToml| one.read().map_err(|why| format!("`written`: {why}"));
            all.into_iter().map(read).collect::<Result<_, _>>()
        });
        if self.attempt == Some(0) {
            return Err(format!("`attempt`: {ATTEMPTS_FROM_1}"));
        }
        let is_given = body.is_some() || self.id.is_some() || self.queue.is_some();
        let is_given = is_given || !self.headers.is_empty() || self.enqueued_ms != 0;
        let given = Message {
            id: self.id.unwrap_or_else(|| "0-1".to_owned()).into(),
            queue: self.queue.unwrap_or_else(|| "test".to_owned()).into(),
            body: body.unwrap_or_default(),
            headers: message::headers(self.headers),
            enqueued_ms: self.enqueued_ms,
        };
        let message = match (self.continues, before) {
            (false, _) => given,
            (true, Some(before)) if !is_given => before.message.clone(),
            (true, Some(_)) => return Err("`continues` does not go with a message".to_owned()),
            (true, None) => return Err("`continues`: there is no case before".to_owned()),
        };
        let value = |one: ValueToml| one.read().map_err(|why| format!("`journal`: {why}"));
        let journal = self.journal.into_iter().map(value);
        let journal = journal.map(|one| one.map(|(name, content)| (name, content.bytes())));
        let remembered = self.remembered.map(|all| {
            let value = |one: ValueToml| one.read().map_err(|why| format!("`remembered`: {why}"));
            all.into_iter().map(value).collect::<Result<_, _>>()
        });
        let delay = self.delay.map(|delay| Duration::parse(&delay)).transpose();
        let http = self.http.into_iter().map(ExchangeToml::exchange);
        let http: Result<_, _> = http.collect();
        let http = http.map_err(|why| format!("`http`: {why}"))?;
        Ok(Case {
            name: self.name.unwrap_or_else(|| format!("case {number}")),
            message,
            attempt: self.attempt,
            max_attempts: self.max_attempts,
            outcome: self.outcome,
            delay: delay.map_err(|error| format!("`delay`: {}", error.what))?,
            held: self.held,
            reason: self.reason,
            fault: self.fault,
            key_value: self.key_value,
            continues: self.continues,
            journal: journal.collect::<Result<_, _>>()?,
            remembered: remembered.transpose()?,
            published: published.transpose()?,
            written: written.transpose()?,
            reply,
            log: self.log,
            http,
        })
    }
}

impl Case {
    /// The expected outcome. What is not given may be anything.
    fn expected(&self) -> Verdict<'_> {
        Verdict {
            outcome: match self.outcome {
                OutcomeName::Ack => "ack",
                OutcomeName::NackRequeue => "nack-requeue",
                OutcomeName::Drop => "drop",
                OutcomeName::Fault => "fault",
            },
            delay: self.delay,
            hold: None,
            reason: self.reason.as_deref(),
            fault: self.fault.as_deref(),
        }
    }

    /// The difference to this report and these lines of log; `None` = as expected.
    ///
    /// Every key in Redis begins with `prefix`. `values`: those that are remembered now.
    pub(super) fn objection(
        &self,
        report: &Report,
        prefix: &str,
        lines: &[String],
        values: &BTreeMap<String, Bytes>,
    ) -> Option<String> {
        let (expected, got) = (self.expected(), Verdict::new(&report.outcome));
        let as_expected = expected.outcome == got.outcome
            && (expected.delay.is_none() || expected.delay == got.delay)
            && (expected.reason.is_none() || expected.reason == got.reason)
            && (expected.fault.is_none() || expected.fault == got.fault);
        if !as_expected {
            return Some(format!("expected {expected}"));
        }
        let is_held = matches!(report.hold, Some(Ok(_)));
        match self.held.filter(|held| *held != is_held) {
            Some(true) => return Some("expected a hold".to_owned()),
            Some(false) => return Some("expected no hold".to_owned()),
            None => {}
        }
        let published = self.published.as_ref();
        let objection =
            published.and_then(|all| published::objection(all, effects::publications(report)));
        let written = self.written.as_ref();
        let of_keys = |all| written::objection(all, &effects::written(report, prefix));
        let objection = objection.or_else(|| written.and_then(of_keys));
        let remembered = self.remembered.as_ref();
        let of_values = |all| remembered::objection(all, values);
        let objection = objection.or_else(|| remembered.and_then(of_values));
        let reply = self.reply.as_ref();
        let of_reply = |reply: &Reply| reply.objection(effects::reply(report));
        let objection = objection.or_else(|| reply.and_then(of_reply));
        if objection.is_some() {
            return objection;
        }
        let missing = |text: &&String| !lines.iter().any(|line| line.contains(text.as_str()));
        let missing = self.log.iter().find(missing)?;
        Some(format!("expected a log line with `{missing}`"))
    }
}
