//! What an attempt produced: the handler's word, or a fault.

use std::fmt;
use std::time::Duration;

/// What one attempt produced.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// The handler is done with the message.
    Ack,
    /// The handler wants it again: after this delay, or after the queue's backoff.
    NackRequeue(Option<Duration>),
    /// The handler never wants it again; its reason is for people.
    Drop(Option<String>),
    /// The handler did not answer.
    Fault(Fault),
}

/// Why an attempt ended without an answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// What kind of fault: a bounded label for metrics.
    pub kind: FaultKind,
    /// Text for people: bounded, and never a payload.
    pub detail: String,
}

impl Fault {
    /// A fault with its text for people, cut at 1 KiB.
    pub fn new(kind: FaultKind, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        crate::delivery::policy::truncate_utf8(&mut detail, crate::delivery::policy::DETAIL_MAX);
        Self { kind, detail }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.label(), self.detail)
    }
}

/// The fault taxonomy. Exhaustive on purpose: a new kind must be decided about.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FaultKind {
    /// The guest trapped: unreachable code, out-of-bounds access, an aborting panic, ...
    Trap,
    /// The guest's stack overflowed.
    StackOverflow,
    /// The guest used more CPU time than it may.
    CpuTimeout,
    /// The attempt took longer than it may, waiting included.
    WallTimeout,
    /// The guest wanted more linear memory or tables than it may have.
    MemoryLimit,
    /// The guest's answer or its transfer was larger than it may be.
    OutputLimit,
    /// The guest called `exit`.
    GuestExit,
    /// The guest's answer was not one (a batch of the wrong length, an outcome that is too long).
    BadOutcome,
    /// The host panicked while it ran the guest.
    HostPanic,
    /// No instance could be made. Never an attempt: it stops the queue.
    Instantiation,
}

impl FaultKind {
    /// Every kind, for tables and metrics.
    pub const ALL: [Self; 10] = [
        Self::Trap,
        Self::StackOverflow,
        Self::CpuTimeout,
        Self::WallTimeout,
        Self::MemoryLimit,
        Self::OutputLimit,
        Self::GuestExit,
        Self::BadOutcome,
        Self::HostPanic,
        Self::Instantiation,
    ];

    /// The label in metrics, logs, details and summaries.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Trap => "trap",
            Self::StackOverflow => "stack-overflow",
            Self::CpuTimeout => "cpu-timeout",
            Self::WallTimeout => "wall-timeout",
            Self::MemoryLimit => "memory-limit",
            Self::OutputLimit => "output-limit",
            Self::GuestExit => "guest-exit",
            Self::BadOutcome => "bad-outcome",
            Self::HostPanic => "host-panic",
            Self::Instantiation => "instantiation",
        }
    }
}
