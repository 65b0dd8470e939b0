//! A handler on trial: one attempt at a dead letter, in the sandbox and within its limits. It writes nothing.

use std::sync::Arc;
use std::time::Duration;

use crate::config::Trying;
use crate::dead_letter::{DeadLetters, Entry};
use crate::delivery::evidence::Evidence;
use crate::delivery::outcome::Outcome;
use crate::delivery::trace::Traced;
use crate::grants::journal::memory::Memory;
use crate::grants::journal::session::{Counts, Session};
use crate::sandbox::{Call, Capture, LogSink, Sandbox};
use crate::telemetry::wall_clock_ms;
use crate::wire::stream::Decoded;

/// A handler that is tried.
#[derive(Clone, Debug)]
pub struct Candidate {
    sandbox: Sandbox,
    /// The most bytes of a body.
    max_payload: usize,
    /// `max_deliveries`, as guests see it; 0 = no cap.
    max_attempts: u32,
}

/// What a handler says to a dead letter.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// `ack`, `nack-requeue`, `drop`, `fault`; the reason of a message that no handler sees, such as `malformed` or
    /// `oversize`.
    pub word: &'static str,
    /// The kind of fault.
    pub fault: Option<&'static str>,
    /// Why.
    pub detail: Option<String>,
    /// How long the attempt took; `None` = no handler ran.
    pub duration: Option<Duration>,
    /// Its evidence, if it did not ack.
    pub evidence: Option<Arc<Evidence>>,
}

impl Candidate {
    /// This handler, with these limits.
    pub fn new(sandbox: Sandbox, settings: &Trying) -> Self {
        Self {
            sandbox,
            max_payload: settings.max_payload.as_usize(),
            max_attempts: settings.max_attempts,
        }
    }

    /// The digest of the handler.
    pub fn digest(&self) -> &Arc<str> {
        self.sandbox.digest()
    }

    /// One attempt, the first, at the message as a replay would write it: to this queue, or to the one that it died
    /// in.
    pub fn call(
        &self,
        letters: &DeadLetters,
        entry: &Entry,
        to: Option<&str>,
    ) -> impl Future<Output = Verdict> + Send + use<> {
        let Decoded {
            message, defect, ..
        } = letters.replayed(entry, to, wall_clock_ms());
        let candidate = self.clone();
        // Recorded calls are not made. A call that is recorded now goes with the trial.
        let journal = Session::new(Arc::new(Memory::new(entry.records())), &Counts::default());
        async move {
            if let Some(defect) = defect {
                return Verdict::unrun(defect.reason.label(), defect.detail);
            }
            let (size, allowed) = (message.body.len(), candidate.max_payload);
            if size > allowed {
                let detail = format!("the body has {size} bytes, {allowed} are allowed");
                return Verdict::unrun("oversize", detail);
            }
            let call = Call {
                message: &message,
                attempt: 1,
                max_attempts: candidate.max_attempts,
                cancelled: &Arc::default(),
                // The report has the end of it; `hostler invoke` shows all.
                logs: &LogSink::Capture(Capture::default()),
                trace: Traced::default(),
                began: std::time::Instant::now(),
                journal: Some(&journal),
                room: candidate.sandbox.room(),
            };
            let sandbox = &candidate.sandbox;
            let report = sandbox.call(&mut sandbox.slot(), call).await;
            journal.settled().await;
            Verdict {
                duration: Some(report.duration),
                evidence: report.evidence,
                ..Verdict::of(report.outcome)
            }
        }
    }
}

impl Verdict {
    fn unrun(word: &'static str, detail: String) -> Self {
        Self {
            word,
            detail: Some(detail),
            ..Self::default()
        }
    }

    fn of(outcome: Outcome) -> Self {
        let (word, fault, detail) = match outcome {
            Outcome::Ack => ("ack", None, None),
            Outcome::NackRequeue(_) => ("nack-requeue", None, None),
            Outcome::Drop(reason) => ("drop", None, reason),
            Outcome::Fault(fault) => ("fault", Some(fault.kind.label()), Some(fault.detail)),
        };
        Self {
            word,
            fault,
            detail,
            ..Self::default()
        }
    }

    /// The lines of the end of its log.
    pub fn lines(&self) -> impl Iterator<Item = &str> {
        let log = self.evidence.iter().filter_map(|kept| kept.log.as_deref());
        log.flat_map(str::lines)
    }

    /// The word, and the kind of fault if it is one.
    pub fn name(&self) -> String {
        match self.fault {
            Some(kind) => format!("{} ({kind})", self.word),
            None => self.word.to_owned(),
        }
    }
}
