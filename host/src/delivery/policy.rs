//! What the host decides: `decide(outcome, attempt, policy) -> disposition`.

use std::fmt;
use std::time::Duration;

use crate::delivery::attempt::Allowance;
use crate::delivery::backoff::Backoff;
use crate::delivery::declared::declared;
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
    /// Take it off the queue: it is given up, and nothing keeps it.
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

declared! {
    /// Why a message is in the dead-letter queue.
    #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
    pub enum Reason (/// The label on the wire, in metrics and in logs.
                     label -> &'static str) {
        /// The handler answered `drop`.
        Dropped = "dropped",
        /// The message failed `max_deliveries` times.
        MaxDeliveries = "max-deliveries",
        /// The handler faulted, with `on_fault = "dead-letter"`.
        Trap = "trap",
        /// The attempt ran out of time, with `on_fault = "dead-letter"`.
        Timeout = "timeout",
        /// The attempt ran out of memory, with `on_fault = "dead-letter"`.
        MemoryLimit = "memory-limit",
        /// The entry is not a message, or a required header is missing.
        Malformed = "malformed",
        /// The body does not parse as the `codec` of the queue.
        DecodeFailed = "decode-failed",
        /// The body is larger than `max_payload`.
        Oversize = "oversize",
        /// The time to live ended before a handler started.
        Expired = "expired",
        /// The queue held more than `queue.max_length` unread messages, and this was the oldest.
        MaxLen = "maxlen",
    }
}

impl Reason {
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

/// Some of the reasons.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reasons(u16);

impl Reasons {
    /// These.
    pub fn new(reasons: impl IntoIterator<Item = Reason>) -> Self {
        let bits = reasons.into_iter().map(Self::bit);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether this one is among them.
    pub fn contains(self, reason: Reason) -> bool {
        self.0 & Self::bit(reason) != 0
    }

    const fn bit(reason: Reason) -> u16 {
        1 << reason as u16
    }
}

/// What the operator wants of dead letters, beyond where they go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeadLetterRules {
    /// What dies for these reasons is discarded, counted.
    pub discarded: Reasons,
    /// While a dead letter cannot be written, nothing more is read from the queue.
    pub stop_when_refused: bool,
}

/// What to do when a message has failed as often as it may.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnCap {
    /// Move it to the dead-letter queue.
    #[default]
    DeadLetter,
    /// Discard it, counted.
    Discard,
}

/// What a fault means.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnFault {
    /// A failed attempt like any other: requeue after the backoff, until the cap.
    #[default]
    Requeue,
    /// Dead-letter at once, with the fault as the reason.
    DeadLetter,
}

/// The rules that the operator wrote.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// How often a message may start (`max_deliveries`), and how starts are counted.
    pub allowance: Allowance,
    /// What happens at the cap.
    pub on_cap: OnCap,
    /// What a fault means.
    pub on_fault: OnFault,
    /// Whether there is somewhere to put a dead letter; without it what is given up is discarded.
    pub has_dead_letter: bool,
    /// What else is wanted of dead letters.
    pub dead_letters: DeadLetterRules,
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
    /// What is left of these rules on a queue that forgets what it hands out (at most once): a
    /// message that is not acknowledged is lost, for the reason that ended it.
    #[must_use]
    pub fn at_most_once(self) -> Self {
        Self {
            allowance: Allowance {
                cap: None,
                at_most_once: true,
                ..self.allowance
            },
            on_cap: OnCap::Discard,
            on_fault: OnFault::DeadLetter,
            has_dead_letter: false,
            ..self
        }
    }

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

    /// Whether what is given up for this reason is lost although nobody said that it may be: there
    /// is no dead-letter queue, and no route, no cap, no handler and no header of the message that
    /// says so.
    pub fn is_lost(&self, reason: Reason) -> bool {
        let is_said = matches!(
            reason,
            Reason::Dropped | Reason::MaxDeliveries | Reason::Expired
        );
        !self.has_dead_letter && !is_said && !self.dead_letters.discarded.contains(reason)
    }

    fn again(
        &self,
        delay: Option<Duration>,
        attempt: u32,
        jitter: f64,
        detail: impl FnOnce() -> String,
    ) -> Disposition {
        if self.allowance.at_most_once {
            return self.give_up(Reason::MaxDeliveries, detail(), attempt);
        }
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

    /// What becomes of a message that is given up.
    pub(in crate::delivery) fn dead_letter(&self, rejection: Rejection) -> Disposition {
        let is_discarded = self.dead_letters.discarded.contains(rejection.reason);
        if self.has_dead_letter && !is_discarded {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::attempt::Accounting;
    use crate::delivery::outcome::Fault;

    const SECOND: Duration = Duration::from_secs(1);

    fn outcomes() -> Vec<Outcome> {
        let long = "x".repeat(3 * DETAIL_MAX);
        let mut outcomes = vec![
            Outcome::Ack,
            Outcome::NackRequeue(None),
            Outcome::NackRequeue(Some(Duration::ZERO)),
            Outcome::NackRequeue(Some(SECOND)),
            Outcome::NackRequeue(Some(Duration::MAX)),
            Outcome::Drop(None),
            Outcome::Drop(Some(long.clone())),
        ];
        let faults = FaultKind::ALL.map(|kind| Outcome::Fault(Fault::new(kind, long.clone())));
        outcomes.extend(faults);
        outcomes
    }

    fn policies() -> Vec<Policy> {
        let caps = [None, Some(0), Some(1), Some(2), Some(5), Some(u32::MAX)];
        let mut policies = Vec::new();
        for cap in caps {
            for accounting in [Accounting::Lazy, Accounting::Exact] {
                for on_cap in [OnCap::DeadLetter, OnCap::Discard] {
                    for on_fault in [OnFault::Requeue, OnFault::DeadLetter] {
                        for has_dead_letter in [false, true] {
                            policies.push(Policy {
                                allowance: Allowance {
                                    cap,
                                    accounting,
                                    at_most_once: false,
                                },
                                on_cap,
                                on_fault,
                                has_dead_letter,
                                dead_letters: DeadLetterRules::default(),
                                backoff: Backoff::default(),
                            });
                        }
                    }
                }
            }
        }
        policies
    }

    /// What every disposition of a message that was not acknowledged keeps.
    fn check(disposition: &Disposition, policy: &Policy, attempts: u32, handled: bool) {
        let rejection = match disposition {
            Disposition::Acknowledge => panic!("acknowledged without an ack"),
            Disposition::Requeue { delay } => {
                assert!(policy.allowance.cap.is_none_or(|cap| attempts < cap));
                assert!(*delay <= DELAY_MAX);
                return;
            }
            Disposition::DeadLetter(rejection) => {
                assert!(policy.has_dead_letter, "nowhere to put it");
                rejection
            }
            Disposition::Discard(rejection) => {
                let at_cap = rejection.reason == Reason::MaxDeliveries;
                assert!(!policy.has_dead_letter || (at_cap && policy.on_cap == OnCap::Discard));
                rejection
            }
        };
        assert!(rejection.detail.len() <= DETAIL_MAX);
        assert_eq!((rejection.attempts, rejection.handled), (attempts, handled));
        if rejection.reason == Reason::MaxDeliveries && handled {
            assert!(policy.allowance.cap.is_some_and(|cap| attempts >= cap));
        }
    }

    #[test]
    fn every_decision_keeps_the_rules() {
        for policy in policies() {
            for outcome in outcomes() {
                for attempt in [1, 2, 3, 5, 6, u32::MAX] {
                    for jitter in [0.0, 0.5, 0.999] {
                        let disposition = decide(&outcome, attempt, &policy, jitter);
                        if outcome == Outcome::Ack {
                            assert_eq!(disposition, Disposition::Acknowledge);
                        } else {
                            check(&disposition, &policy, attempt, true);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn without_a_start_left_nothing_is_requeued() {
        for policy in policies() {
            let Some(cap) = policy.allowance.cap else {
                continue;
            };
            let disposition = policy.exhausted(cap, "x".repeat(3 * DETAIL_MAX));
            assert!(!matches!(disposition, Disposition::Requeue { .. }));
            check(&disposition, &policy, cap, false);
        }
    }

    #[test]
    fn what_the_gate_turns_away_is_never_discarded_by_the_cap() {
        for policy in policies() {
            for reason in Reason::ALL {
                let disposition = policy.turn_away(reason, String::new(), 0);
                match disposition {
                    Disposition::DeadLetter(r) => assert!(policy.has_dead_letter && !r.handled),
                    Disposition::Discard(r) => assert!(!policy.has_dead_letter && !r.handled),
                    other => panic!("{other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_reason_that_is_routed_to_discard_is_discarded_and_no_other() {
        for discarded in Reason::ALL {
            for mut policy in policies().into_iter().filter(|p| p.has_dead_letter) {
                policy.dead_letters.discarded = Reasons::new([discarded]);
                for reason in Reason::ALL {
                    let disposition = policy.turn_away(reason, String::new(), 0);
                    let is_discarded = matches!(disposition, Disposition::Discard(_));
                    assert_eq!(is_discarded, reason == discarded);
                }
                let dropped = decide(&Outcome::Drop(None), 1, &policy, 0.5);
                let is_discarded = matches!(dropped, Disposition::Discard(_));
                assert_eq!(is_discarded, discarded == Reason::Dropped);
            }
        }
    }

    #[test]
    fn what_is_lost_unsaid_is_told_from_what_is_lost_on_purpose() {
        for mut policy in policies() {
            let is_nowhere = !policy.has_dead_letter;
            for reason in [Reason::Oversize, Reason::Malformed] {
                assert_eq!(policy.is_lost(reason), is_nowhere);
            }
            for reason in [Reason::Dropped, Reason::MaxDeliveries, Reason::Expired] {
                assert!(!policy.is_lost(reason));
            }
            policy.dead_letters.discarded = Reasons::new([Reason::Oversize]);
            assert!(!policy.is_lost(Reason::Oversize));
            assert_eq!(policy.is_lost(Reason::Malformed), is_nowhere);
        }
    }

    #[test]
    fn a_failure_below_the_cap_comes_again_and_the_handlers_delay_wins() {
        for policy in policies() {
            if policy.allowance.cap.is_some_and(|cap| cap < 2) {
                continue;
            }
            let decided = |delay| decide(&Outcome::NackRequeue(delay), 1, &policy, 0.5);
            for (asked, given) in [
                (Some(Duration::ZERO), Duration::ZERO),
                (Some(SECOND), SECOND),
                (Some(Duration::MAX), DELAY_MAX),
                (None, policy.backoff.delay(1, 0.5)),
            ] {
                assert_eq!(decided(asked), Disposition::Requeue { delay: given });
            }
        }
    }

    #[test]
    fn what_cannot_go_back_is_lost_for_the_reason_that_ended_it() {
        for policy in policies() {
            let policy = policy.at_most_once();
            assert_eq!(policy.allowance.starts_max(), 1);
            for outcome in outcomes() {
                let reason = match &outcome {
                    Outcome::Ack => None,
                    Outcome::Drop(_) => Some(Reason::Dropped),
                    Outcome::NackRequeue(_) => Some(Reason::MaxDeliveries),
                    Outcome::Fault(fault) => Some(reason_of(fault.kind)),
                };
                match (decide(&outcome, 1, &policy, 0.5), reason) {
                    (Disposition::Acknowledge, None) => {}
                    (Disposition::Discard(rejection), Some(reason)) => {
                        assert_eq!(rejection.reason, reason);
                        assert!(rejection.handled);
                    }
                    other => panic!("{outcome:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_fault_is_a_failure_or_the_end() {
        for policy in policies() {
            for kind in FaultKind::ALL {
                let fault = Outcome::Fault(Fault::new(kind, "why"));
                let disposition = decide(&fault, 1, &policy, 0.5);
                let rejection = match (&disposition, policy.on_fault) {
                    (Disposition::Requeue { .. }, OnFault::Requeue) => continue,
                    (Disposition::DeadLetter(r) | Disposition::Discard(r), _) => r,
                    other => panic!("{other:?}"),
                };
                assert!(rejection.detail.contains(kind.label()), "{rejection:?}");
                let at_once = policy.on_fault == OnFault::DeadLetter;
                assert_eq!(rejection.reason == Reason::MaxDeliveries, !at_once);
            }
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        for max in 0..12 {
            let mut text = "aä€😀bc".to_owned();
            truncate_utf8(&mut text, max);
            assert!(text.len() <= max && "aä€😀bc".starts_with(&text));
        }
    }
}
