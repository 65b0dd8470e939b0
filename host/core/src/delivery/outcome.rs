//! The outcome of an attempt: the handler's answer, or a fault.

use std::fmt;
use std::time::Duration;

use crate::delivery::declared::declared;
use crate::delivery::text::{DETAIL_MAX, truncate_utf8};

/// The outcome of one attempt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The handler is done with the message.
    Ack,
    /// The handler wants it again: after this delay, or after the queue's backoff.
    NackRequeue(Option<Duration>),
    /// The handler does not want it again; its reason is for people.
    Drop(Option<String>),
    /// The handler did not answer.
    Fault(Fault),
}

/// Why an attempt ended without an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// Which fault: a bounded label for metrics.
    pub kind: FaultKind,
    /// A bounded text for people. It may quote what the guest wrote to stderr; hostler itself adds
    /// nothing of a message.
    pub detail: String,
}

impl Fault {
    /// A fault with a text for people, cut at 1 KiB.
    pub fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        truncate_utf8(&mut detail, DETAIL_MAX);
        Self { kind, detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.label(), self.detail)
    }
}

declared! {
    /// Every kind of fault. Exhaustive on purpose: a new kind needs a decision.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum FaultKind (/// The label in metrics, logs, details and summaries.
                        label -> &'static str) {
        /// The handler trapped: unreachable code, an access out of bounds, a panic.
        Trap = "trap",
        /// The stack of the handler overflowed.
        StackOverflow = "stack-overflow",
        /// The handler used more CPU time than `cpu`.
        CpuTimeout = "cpu-timeout",
        /// The attempt took longer than `timeout`, waiting included.
        WallTimeout = "wall-timeout",
        /// The handler wanted more linear memory, tables or handles than it may have.
        MemoryLimit = "memory-limit",
        /// The handler passed more than `limit.transfer` to the host in one call.
        OutputLimit = "output-limit",
        /// The handler called `exit`, with any status.
        GuestExit = "guest-exit",
        /// The answer is not valid: an unknown case, text that is not UTF-8, an address outside of the
        /// memory, a wrong number of outcomes for a batch, a delay of more than 30 days, an ack while a request is
        /// unfinished.
        BadOutcome = "bad-outcome",
        /// The host panicked while it ran the handler: a bug of hostler.
        HostPanic = "host-panic",
        /// No instance could be made. This is never an attempt: it stops the queue.
        Instantiation = "instantiation",
    }
}
