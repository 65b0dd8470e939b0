//! The evidence of an attempt that did not end in an ack: the end of its log, its calls, and its recording. Its dead
//! letter keeps it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::effect::Budget;
use super::millis::millis;
use super::trace::{StepKind, Steps};

/// The most bytes of the calls in a dead letter. The last ones are kept.
pub const CALLS_MAX: usize = 4 << 10;

/// The error of a call that had no answer when the attempt ended.
const CANCELLED: &str = "cancelled";

/// The evidence of an attempt. It may hold parts of the message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Evidence {
    /// The end of its log: whole lines.
    pub log: Option<Box<str>>,
    /// Its [`Calls`], as JSON.
    pub calls: Option<Box<str>>,
    /// Its [recording](super::recording).
    pub recording: Option<Arc<Kept>>,
}

/// A text that counts in a budget while it is in memory.
pub struct Kept {
    text: Box<str>,
    bytes: usize,
    budget: Budget,
}

impl Kept {
    /// This text, for which so many bytes of the budget were taken.
    pub fn new(text: Box<str>, bytes: usize, budget: &Budget) -> Self {
        let budget = budget.clone();
        Self {
            text,
            bytes,
            budget,
        }
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.budget.give(self.bytes);
    }
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Kept").field(&self.text.len()).finish()
    }
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Kept {}

/// The last calls of an attempt, in the order of their begins.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Calls {
    /// At most [`CALLS_MAX`] bytes, as JSON.
    pub calls: Vec<Call>,
    /// How many calls there were before those.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub before: u32,
}

/// Something that an attempt asked of the world. It has no content: no query, header, body, key or value.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Call {
    /// When it began, in milliseconds from the start of the attempt.
    pub at_ms: u64,
    /// How long it took until there was an answer, in milliseconds.
    pub ms: u64,
    /// Its name: the method of an HTTP request, `get`, `increment`, `swap`, `list`, `lookup`, `publish`.
    pub name: String,
    /// The URL without user, query and fragment; the name that was looked up; the destination; the number of keys.
    pub target: String,
    /// The status of the response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Why it failed: a word of a fixed set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The bytes of the body: of a response, those that came; of a message, those that it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The answer is one that an earlier attempt has recorded: nothing was sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replayed: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it")]
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Evidence {
    /// `None` if there is nothing to keep.
    pub fn some(self) -> Option<Self> {
        (self != Self::default()).then_some(self)
    }
}

impl Calls {
    /// The steps of an attempt that began then, and ends now.
    pub fn of(steps: &Steps, began: Instant, now: Instant) -> Self {
        let call = |step: &super::trace::Step| {
            let (name, target, status, replayed, bytes) = match &step.kind {
                StepKind::Http {
                    method,
                    url,
                    status,
                    is_replayed,
                    ..
                } => (method.clone(), url.clone(), *status, *is_replayed, None),
                StepKind::Store { operation, keys } => {
                    let target = match keys {
                        1 => "1 key".to_owned(),
                        keys => format!("{keys} keys"),
                    };
                    ((*operation).to_owned(), target, None, false, None)
                }
                StepKind::Lookup { name } => ("lookup".to_owned(), name.clone(), None, false, None),
                StepKind::Publish { to, bytes } => {
                    let bytes = Some(*bytes as u64);
                    ("publish".to_owned(), to.to_string(), None, false, bytes)
                }
            };
            let received = step.received.as_ref();
            let ended = step.ended.unwrap_or(now);
            let cancelled = step.ended.is_none().then_some(CANCELLED);
            Call {
                at_ms: millis(step.began.saturating_duration_since(began)),
                ms: millis(ended.saturating_duration_since(step.began)),
                name,
                target,
                status,
                error: step.error.or(cancelled).map(str::to_owned),
                bytes: bytes.or_else(|| received.map(|bytes| bytes.load(Ordering::Relaxed))),
                replayed,
            }
        };
        Self {
            calls: steps.kept.iter().map(call).collect(),
            before: steps.dropped,
        }
    }

    /// As JSON, at most [`CALLS_MAX`] bytes: without the first ones if need be. `None` = there was no call.
    pub fn write(mut self) -> Option<Box<str>> {
        if self.calls.is_empty() {
            return None;
        }
        let written = self
            .calls
            .iter()
            .map(|call| serde_json::to_string(call).ok());
        let written: Vec<String> = written.collect::<Option<_>>()?;
        // The names around them, a number, and a comma behind each.
        let mut size = "{\"calls\":[],\"before\":4294967295}".len();
        let fits = written.iter().rev().take_while(|text| {
            size += text.len() + 1;
            size <= CALLS_MAX
        });
        let left_out = self.calls.len() - fits.count();
        self.calls.drain(..left_out);
        let left_out = u32::try_from(left_out).unwrap_or(u32::MAX);
        self.before = self.before.saturating_add(left_out);
        serde_json::to_string(&self).ok().map(Into::into)
    }

    /// What [`Calls::write`] has written; without calls if it is anything else.
    pub fn read(text: &[u8]) -> Self {
        serde_json::from_slice(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::delivery::trace::{Step, StepLog};

    fn step(began: Instant, kind: StepKind) -> Step {
        Step {
            span_id: 1,
            kind,
            began,
            ended: Some(began + Duration::from_millis(30)),
            error: None,
            received: None,
        }
    }

    #[test]
    fn calls_are_read_as_they_were_written() {
        let began = Instant::now();
        let log = StepLog::default();
        let at = began + Duration::from_millis(12);
        log.begin(Step {
            error: Some("timeout"),
            received: Some(Arc::new(7.into())),
            ..step(
                at,
                StepKind::Http {
                    method: "POST".to_owned(),
                    url: "https://a.test/x".to_owned(),
                    host: "a.test".to_owned(),
                    port: Some(443),
                    status: Some(422),
                    is_replayed: false,
                },
            )
        });
        let keys = StepKind::Store {
            operation: "get",
            keys: 2,
        };
        log.begin(Step {
            ended: None,
            ..step(at, keys)
        });
        let text = Calls::of(&log.so_far(), began, began).write().unwrap();
        assert_eq!(
            &*text,
            r#"{"calls":[{"at_ms":12,"ms":30,"name":"POST","target":"https://a.test/x","status":422,"error":"timeout","bytes":7},{"at_ms":12,"ms":0,"name":"get","target":"2 keys","error":"cancelled"}]}"#
        );
        let read = Calls::read(text.as_bytes());
        assert_eq!(read, Calls::of(&log.so_far(), began, began));
        assert_eq!(Calls::read(b"nonsense"), Calls::default());
        assert_eq!(Calls::default().write(), None);
    }

    #[test]
    fn the_last_calls_are_kept_within_the_bound_and_the_others_are_counted() {
        let began = Instant::now();
        let log = StepLog::default();
        for number in 0..100 {
            let name = format!("{number}{}", "\u{1}".repeat(250));
            log.begin(step(began, StepKind::Lookup { name }));
        }
        let text = Calls::of(&log.so_far(), began, began).write().unwrap();
        assert!(
            text.len() <= CALLS_MAX && text.len() > CALLS_MAX / 2,
            "{}",
            text.len()
        );
        let read = Calls::read(text.as_bytes());
        assert_eq!(read.calls.len() + read.before as usize, 100);
        assert!(read.calls.last().unwrap().target.starts_with("99"));
    }
}
