//! What the host decides: `decide(outcome, attempt, policy) -> disposition`.

use std::fmt;
use std::time::Duration;

use crate::delivery::attempt::Allowance;
use crate::delivery::backoff::Backoff;
use crate::delivery::outcome::{FaultKind, Outcome};

/// The longest detail of a dead letter or a fault, in bytes.
pub const DETAIL_MAX: usize = 1024;

/// The longest delay that a handler may ask for; longer ones are clamped.
pub const DELAY_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// What the host does about a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Disposition {
    /// Take it off the queue: it is done.
    Acknowledge,
    /// Deliver it again after this delay; zero = at once, on this host.
    Requeue {
        /// How long it waits, at most [`DELAY_MAX`].
        delay: Duration,
    },
    /// Move it to the dead-letter queue.
    DeadLetter(Rejection),
    /// Take it off the queue: it is given up, as the operator or the handler said.
    Discard(Rejection),
}

/// Why a message is given up.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rejection {
    /// The reason: a bounded label.
    pub reason: Reason,
    /// Text for people, at most [`DETAIL_MAX`] bytes.
    pub detail: String,
    /// Starts charged to the message in all.
    pub attempts: u32,
    /// Whether a handler was started and rejected it in this delivery (a cycle is only broken by
    /// such a rejection).
    pub handled: bool,
}

/// Why a message is in the dead-letter queue.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// The handler said drop.
    Dropped,
    /// It failed as often as it may.
    MaxDeliveries,
    /// A fault, where faults are dead-lettered at once.
    Trap,
    /// It ran out of time, where faults are dead-lettered at once.
    Timeout,
    /// It ran out of memory, where faults are dead-lettered at once.
    MemoryLimit,
    /// Its frame or a required field is missing.
    Malformed,
    /// Its body does not parse as the codec that the queue declares.
    DecodeFailed,
    /// It is larger than the queue allows.
    Oversize,
    /// Its time to live passed before it was handled.
    Expired,
    /// The queue was over its length limit, and this was the oldest.
    MaxLen,
}

impl Reason {
    /// Every reason, for tables and metrics.
    pub const ALL: [Self; 10] = [
        Self::Dropped,
        Self::MaxDeliveries,
        Self::Trap,
        Self::Timeout,
        Self::MemoryLimit,
        Self::Malformed,
        Self::DecodeFailed,
        Self::Oversize,
        Self::Expired,
        Self::MaxLen,
    ];

    /// The word on the wire, in metrics and in logs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Dropped => "dropped",
            Self::MaxDeliveries => "max-deliveries",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
            Self::MemoryLimit => "memory-limit",
            Self::Malformed => "malformed",
            Self::DecodeFailed => "decode-failed",
            Self::Oversize => "oversize",
            Self::Expired => "expired",
            Self::MaxLen => "maxlen",
        }
    }

    /// The reason that this word names.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.label() == label)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// What to do when a message has failed as often as it may.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnCap {
    /// Move it to the dead-letter queue.
    DeadLetter,
    /// Discard it, counted.
    Discard,
}

/// What a fault means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OnFault {
    /// A failed attempt like any other: requeue after the backoff, until the cap.
    Requeue,
    /// Dead-letter at once, with the fault as the reason.
    DeadLetter,
}

/// The rules that the operator wrote.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// How often a message may start (`max_deliveries`), and how starts are counted.
    pub allowance: Allowance,
    /// What happens at the cap.
    pub on_cap: OnCap,
    /// What a fault means.
    pub on_fault: OnFault,
    /// Whether there is somewhere to put a dead letter; without it a drop discards.
    pub has_dead_letter: bool,
    /// How long a failed message waits if its handler does not say.
    pub backoff: Backoff,
}

/// What to do about an outcome. `jitter` is a random number in `0.0..1.0`.
///
/// The one page that everybody reads first: nothing else decides a message's fate.
pub fn decide(outcome: &Outcome, attempt: u32, policy: &Policy, jitter: f64) -> Disposition {
    match outcome {
        Outcome::Ack => Disposition::Acknowledge,
        Outcome::Drop(reason) => {
            policy.give_up(Reason::Dropped, reason.clone().unwrap_or_default(), attempt)
        }
        Outcome::NackRequeue(delay) => {
            policy.again(*delay, attempt, jitter, || "nack-requeue".to_owned())
        }
        Outcome::Fault(fault) => match policy.on_fault {
            OnFault::Requeue => policy.again(None, attempt, jitter, || fault.to_string()),
            OnFault::DeadLetter => {
                policy.give_up(reason_of(fault.kind), fault.to_string(), attempt)
            }
        },
    }
}

impl Policy {
    /// A message that has no start left, found before any handler ran: its hosts died, or its
    /// header said so.
    pub fn exhausted(&self, attempts: u32, detail: String) -> Disposition {
        let rejection = Rejection::new(Reason::MaxDeliveries, detail, attempts, false);
        match self.on_cap {
            OnCap::Discard => Disposition::Discard(rejection),
            OnCap::DeadLetter => self.dead_letter(rejection),
        }
    }

    /// A message that the gate turns away: no handler runs for it this time.
    pub fn turn_away(&self, reason: Reason, detail: String, attempts: u32) -> Disposition {
        self.dead_letter(Rejection::new(reason, detail, attempts, false))
    }

    fn again(
        &self,
        delay: Option<Duration>,
        attempt: u32,
        jitter: f64,
        detail: impl FnOnce() -> String,
    ) -> Disposition {
        if self.allowance.cap.is_some_and(|cap| attempt >= cap) {
            let rejection = Rejection::new(Reason::MaxDeliveries, detail(), attempt, true);
            return match self.on_cap {
                OnCap::Discard => Disposition::Discard(rejection),
                OnCap::DeadLetter => self.dead_letter(rejection),
            };
        }
        let delay = delay.unwrap_or_else(|| self.backoff.delay(attempt, jitter));
        Disposition::Requeue {
            delay: delay.min(DELAY_MAX),
        }
    }

    fn give_up(&self, reason: Reason, detail: String, attempt: u32) -> Disposition {
        self.dead_letter(Rejection::new(reason, detail, attempt, true))
    }

    fn dead_letter(&self, rejection: Rejection) -> Disposition {
        if self.has_dead_letter {
            Disposition::DeadLetter(rejection)
        } else {
            Disposition::Discard(rejection)
        }
    }
}

impl Rejection {
    fn new(reason: Reason, mut detail: String, attempts: u32, handled: bool) -> Self {
        truncate_utf8(&mut detail, DETAIL_MAX);
        Self {
            reason,
            detail,
            attempts,
            handled,
        }
    }
}

/// The dead-letter reason of a fault that is not retried. What has no reason of its own counts as
/// `trap`, with the kind in the detail.
fn reason_of(kind: FaultKind) -> Reason {
    match kind {
        FaultKind::CpuTimeout | FaultKind::WallTimeout => Reason::Timeout,
        FaultKind::MemoryLimit => Reason::MemoryLimit,
        FaultKind::Trap
        | FaultKind::StackOverflow
        | FaultKind::OutputLimit
        | FaultKind::GuestExit
        | FaultKind::BadOutcome
        | FaultKind::HostPanic
        | FaultKind::Instantiation => Reason::Trap,
    }
}

/// Cut a text at a character boundary, so that it has at most `max` bytes.
pub fn truncate_utf8(text: &mut String, max: usize) {
    if text.len() > max {
        let end = (0..=max).rev().find(|&i| text.is_char_boundary(i));
        text.truncate(end.unwrap_or(0));
    }
}
