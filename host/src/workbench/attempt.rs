//! One attempt without a queue, and its outcome in words.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::config::Value;
use crate::delivery::message::Message;
use crate::delivery::millis::millis;
use crate::delivery::outcome::Outcome;
use crate::delivery::trace::Traced;
use crate::grants::journal::memory::Memory;
use crate::grants::journal::session::{Counts, Session};
use crate::sandbox::{Call, Capture, LogLine, LogSink, Report, Sandbox, Slot};

/// Why there is no attempt 0.
pub const ATTEMPTS_FROM_1: &str = "attempts count from 1";

/// Call the handler with a message: with the number of the attempt, and the most attempts. Also what it has logged. Attempts with
/// the same journal are attempts at one message.
pub async fn call(
    sandbox: &Sandbox,
    slot: &mut Slot,
    message: &Message,
    (attempt, max_attempts): (u32, u32),
    journal: &Arc<Memory>,
) -> (Report, Vec<LogLine>) {
    let capture = Capture::default();
    let session = Session::new(Arc::<Memory>::clone(journal), &Counts::default());
    let call = Call {
        message,
        attempt,
        max_attempts,
        cancelled: &Arc::default(),
        logs: &LogSink::Capture(capture.clone()),
        trace: Traced::default(),
        began: std::time::Instant::now(),
        journal: Some(&session),
        room: sandbox.room(),
    };
    let report = sandbox.call(slot, call).await;
    session.settled().await;
    (report, capture.take())
}

/// An outcome in words. As JSON, the delay is in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Verdict<'a> {
    /// `ack`, `nack-requeue`, `drop` or `fault`.
    pub outcome: &'static str,
    /// The delay that the handler asks for.
    #[serde(rename = "delay_ms", serialize_with = "as_millis")]
    pub delay: Option<Duration>,
    /// How long the message is held, uncharged.
    #[serde(
        rename = "hold_ms",
        serialize_with = "as_millis",
        skip_serializing_if = "Option::is_none"
    )]
    pub hold: Option<Duration>,
    /// The handler's reason, or the detail of the fault.
    pub reason: Option<&'a str>,
    /// The kind of fault.
    pub fault: Option<&'a str>,
}

fn as_millis<S: Serializer>(delay: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    delay.map(millis).serialize(serializer)
}

impl<'a> Verdict<'a> {
    /// The outcome of this report, with its hold.
    pub fn of(report: &'a Report) -> Self {
        let hold = report.hold.as_ref();
        Self {
            hold: hold.and_then(|hold| hold.as_ref().ok().copied()),
            ..Self::new(&report.outcome)
        }
    }

    /// This outcome.
    pub fn new(outcome: &'a Outcome) -> Self {
        let plain = |outcome| Self {
            outcome,
            ..Self::default()
        };
        match outcome {
            Outcome::Ack => plain("ack"),
            Outcome::NackRequeue(delay) => Self {
                delay: *delay,
                ..plain("nack-requeue")
            },
            Outcome::Drop(reason) => Self {
                reason: reason.as_deref(),
                ..plain("drop")
            },
            Outcome::Fault(fault) => Self {
                reason: Some(&fault.detail),
                fault: Some(fault.kind.label()),
                ..plain("fault")
            },
        }
    }
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        if let Some(fault) = self.fault {
            write!(f, " ({fault})")?;
        }
        if let Some(hold) = self.hold {
            write!(f, ", held for {}: not charged", hold.show())?;
        } else if let Some(delay) = self.delay {
            write!(f, " after {}", delay.show())?;
        }
        if let Some(reason) = self.reason {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
}
