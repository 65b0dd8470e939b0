//! The decision about a message: `decide(outcome, attempt, policy) -> disposition`.

use std::fmt;
use std::time::Duration;

use crate::delivery::attempt::DeliveryLimit;
use crate::delivery::backoff::Backoff;
use crate::delivery::declared::declared;
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::rules::Rule;
use crate::delivery::signature;
use crate::delivery::text::{DETAIL_MAX, truncate_utf8};

/// The longest delay that a handler may ask for. An attempt that asks for a longer one is a fault.
pub const DELAY_MAX: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// What the host does with a delivery.
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
    /// Take it off the queue without a copy: it is given up.
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
    /// Whether a handler was started and rejected it in this delivery. Only such a rejection breaks a
    /// cycle.
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
        /// An operator has cancelled it. Only a route of `dead_letter.routes` keeps a copy.
        Cancelled = "cancelled",
    }
}

impl Reason {
    /// The reason with this label.
    pub fn from_label(label: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|r| r.label() == label)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// A set of reasons.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Reasons(u16);

impl Reasons {
    /// The set of these reasons.
    pub fn new(reasons: impl IntoIterator<Item = Reason>) -> Self {
        let bits = reasons.into_iter().map(Self::bit);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether the set contains this reason.
    pub fn contains(self, reason: Reason) -> bool {
        self.0 & Self::bit(reason) != 0
    }

    const fn bit(reason: Reason) -> u16 {
        1 << reason as u16
    }
}

/// The operator's rules for dead letters, except where they go.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct DeadLetterRules {
    /// Messages that die for these reasons are discarded and counted.
    pub discarded: Reasons,
    /// While a dead letter cannot be written, the host reads nothing from the queue.
    pub stop_when_refused: bool,
}

/// What to do with a message that has failed as often as it may fail.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnCap {
    /// Move it to the dead-letter queue.
    #[default]
    DeadLetter,
    /// Discard and count it.
    Discard,
}

/// What to do after a fault.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnFault {
    /// Requeue after the backoff until the cap, as after any failed attempt.
    #[default]
    Requeue,
    /// Dead-letter the message at once, with the fault as the reason.
    DeadLetter,
}

/// The operator's rules for deliveries.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Policy {
    /// How often a message may start (`max_deliveries`), and how starts are counted.
    pub limit: DeliveryLimit,
    /// What happens at the cap.
    pub on_cap: OnCap,
    /// What to do after a fault.
    pub on_fault: OnFault,
    /// Whether there is a dead-letter queue, or was one: see [`Policy::behind`]. Without one, messages that are given
    /// up are discarded.
    pub has_dead_letter: bool,
    /// Further rules for dead letters.
    pub dead_letters: DeadLetterRules,
    /// How long a failed message waits, unless its handler sets the delay.
    pub backoff: Backoff,
}

/// What to do after an outcome. `jitter` is a random number in `0.0..1.0`. `told` is what the handler wrote about its
/// failure, if it wants the message again.
///
/// Only this function decides what becomes of a message that a handler has seen.
pub fn decide(
    outcome: &Outcome,
    told: Option<&str>,
    attempt: u32,
    policy: &Policy,
    jitter: f64,
) -> Disposition {
    match outcome {
        Outcome::Ack => Disposition::Acknowledge,
        Outcome::Drop(reason) => {
            policy.give_up(Reason::Dropped, reason.clone().unwrap_or_default(), attempt)
        }
        Outcome::NackRequeue(delay) => {
            policy.again(*delay, attempt, jitter, || signature::of_nack(told))
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
    /// These rules for an at-most-once queue: unacknowledged messages are discarded, for the reason that
    /// ended them.
    #[must_use]
    pub fn at_most_once(self) -> Self {
        Self {
            limit: DeliveryLimit {
                cap: None,
                at_most_once: true,
                ..self.limit
            },
            on_cap: OnCap::Discard,
            on_fault: OnFault::DeadLetter,
            has_dead_letter: false,
            ..self
        }
    }

    /// These rules behind others, on the same host. Where the dead-letter queue was taken away, dead letters wait:
    /// no operator has said that they may be discarded.
    #[must_use]
    pub fn behind(self, before: &Self) -> Self {
        let had_one = before.has_dead_letter && Rule::TakingTheKeyDiscardsNothing.holds();
        Self {
            has_dead_letter: self.has_dead_letter || had_one,
            ..self
        }
    }

    /// A message has no start left before a handler ran: its hosts died, or its header says so.
    pub fn exhausted(&self, attempts: u32, detail: String) -> Disposition {
        self.at_cap(Rejection::new(
            Reason::MaxDeliveries,
            detail,
            attempts,
            false,
        ))
    }

    /// The values that an attempt had read changed before its acknowledgement, again and again.
    pub fn changed_too_often(&self, attempt: u32, jitter: f64) -> Disposition {
        let detail = || "the values that it read changed before each acknowledgement".to_owned();
        self.again(None, attempt, jitter, detail)
    }

    /// The effects of an attempt cannot be written, for this reason.
    pub fn unfit(&self, cause: String, attempt: u32, jitter: f64) -> Disposition {
        let detail = || format!("its effects do not fit: {cause}");
        self.again(None, attempt, jitter, detail)
    }

    /// The gate turns a message away: no handler runs for it.
    pub fn turn_away(&self, reason: Reason, detail: String, attempts: u32) -> Disposition {
        self.dead_letter(Rejection::new(reason, detail, attempts, false))
    }

    /// Whether messages that are given up for this reason are lost without permission: there is no
    /// dead-letter queue, and no route, cap, handler or header of the message allows the loss.
    pub fn is_lost(&self, reason: Reason) -> bool {
        let is_said = matches!(
            reason,
            Reason::Dropped | Reason::MaxDeliveries | Reason::Expired | Reason::Cancelled
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
        if self.limit.at_most_once {
            return self.give_up(Reason::MaxDeliveries, detail(), attempt);
        }
        if self.limit.cap.is_some_and(|cap| attempt >= cap) {
            let rejection = Rejection::new(Reason::MaxDeliveries, detail(), attempt, true);
            return self.at_cap(rejection);
        }
        let delay = delay.unwrap_or_else(|| self.backoff.delay(attempt, jitter));
        Disposition::Requeue {
            delay: delay.min(DELAY_MAX),
        }
    }

    fn give_up(&self, reason: Reason, detail: String, attempt: u32) -> Disposition {
        self.dead_letter(Rejection::new(reason, detail, attempt, true))
    }

    fn at_cap(&self, rejection: Rejection) -> Disposition {
        match self.on_cap {
            OnCap::Discard => Disposition::Discard(rejection),
            OnCap::DeadLetter => self.dead_letter(rejection),
        }
    }

    /// A message that is given up goes to the dead-letter queue, or is discarded.
    fn dead_letter(&self, rejection: Rejection) -> Disposition {
        if self.is_discarded(rejection.reason) {
            Disposition::Discard(rejection)
        } else {
            Disposition::DeadLetter(rejection)
        }
    }

    /// Whether a message that was given up for this reason, under these rules or earlier ones, gets no
    /// dead letter now.
    pub(in crate::delivery) fn discards(&self, reason: Reason) -> bool {
        let is_cap = reason == Reason::MaxDeliveries && self.on_cap == OnCap::Discard;
        is_cap || self.is_discarded(reason)
    }

    fn is_discarded(&self, reason: Reason) -> bool {
        !self.has_dead_letter || self.dead_letters.discarded.contains(reason)
    }
}

impl Rejection {
    /// A rejection of a message; `handled` as in the field.
    pub fn new(reason: Reason, mut detail: String, attempts: u32, handled: bool) -> Self {
        truncate_utf8(&mut detail, DETAIL_MAX);
        Self {
            reason,
            detail,
            attempts,
            handled,
        }
    }
}

/// The dead-letter reason of a fault that is not retried. A kind without a reason of its own counts as
/// `trap`; the detail names it.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::attempt::Accounting;
    use crate::delivery::hold::HoldLimits;
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
                                limit: DeliveryLimit {
                                    cap,
                                    accounting,
                                    at_most_once: false,
                                    holds: HoldLimits::default(),
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

    /// Checks the disposition of a message that was not acknowledged.
    fn check(disposition: &Disposition, policy: &Policy, attempts: u32, handled: bool) {
        let rejection = match disposition {
            Disposition::Acknowledge => panic!("acknowledged without an ack"),
            Disposition::Requeue { delay } => {
                assert!(policy.limit.cap.is_none_or(|cap| attempts < cap));
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
            assert!(policy.limit.cap.is_some_and(|cap| attempts >= cap));
        }
    }

    #[test]
    fn every_decision_keeps_the_rules() {
        for policy in policies() {
            for outcome in outcomes() {
                for attempt in [1, 2, 3, 5, 6, u32::MAX] {
                    for jitter in [0.0, 0.5, 0.999] {
                        let disposition = decide(&outcome, None, attempt, &policy, jitter);
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
    fn a_message_without_a_start_left_is_not_requeued() {
        for policy in policies() {
            let Some(cap) = policy.limit.cap else {
                continue;
            };
            let disposition = policy.exhausted(cap, "x".repeat(3 * DETAIL_MAX));
            assert!(!matches!(disposition, Disposition::Requeue { .. }));
            check(&disposition, &policy, cap, false);
        }
    }

    #[test]
    fn on_cap_does_not_apply_to_messages_that_the_gate_turns_away() {
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
    fn only_reasons_routed_to_discard_are_discarded() {
        for discarded in Reason::ALL {
            for mut policy in policies().into_iter().filter(|p| p.has_dead_letter) {
                policy.dead_letters.discarded = Reasons::new([discarded]);
                for reason in Reason::ALL {
                    let disposition = policy.turn_away(reason, String::new(), 0);
                    let is_discarded = matches!(disposition, Disposition::Discard(_));
                    assert_eq!(is_discarded, reason == discarded);
                }
                let dropped = decide(&Outcome::Drop(None), None, 1, &policy, 0.5);
                let is_discarded = matches!(dropped, Disposition::Discard(_));
                assert_eq!(is_discarded, discarded == Reason::Dropped);
            }
        }
    }

    #[test]
    fn losses_without_permission_differ_from_permitted_ones() {
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
    fn a_failure_below_the_cap_is_requeued_and_the_handlers_delay_wins() {
        for policy in policies() {
            if policy.limit.cap.is_some_and(|cap| cap < 2) {
                continue;
            }
            let decided = |delay| decide(&Outcome::NackRequeue(delay), None, 1, &policy, 0.5);
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
    fn a_message_that_was_asked_for_too_often_dies_with_what_its_handler_told() {
        for policy in policies() {
            for (told, detail) in [
                (Some("no stock"), "nack-requeue: stderr: no stock"),
                (None, "nack-requeue"),
            ] {
                let last = policy.limit.cap.unwrap_or(u32::MAX);
                match decide(&Outcome::NackRequeue(None), told, last, &policy, 0.5) {
                    Disposition::DeadLetter(r) | Disposition::Discard(r) => {
                        assert_eq!((r.reason, &*r.detail), (Reason::MaxDeliveries, detail));
                    }
                    other => assert_eq!(policy.limit.cap, None, "{other:?}"),
                }
            }
        }
    }

    #[test]
    fn an_at_most_once_queue_discards_for_the_reason_that_ended_the_message() {
        for policy in policies() {
            let policy = policy.at_most_once();
            assert_eq!(policy.limit.starts_max(), 1);
            for outcome in outcomes() {
                let reason = match &outcome {
                    Outcome::Ack => None,
                    Outcome::Drop(_) => Some(Reason::Dropped),
                    Outcome::NackRequeue(_) => Some(Reason::MaxDeliveries),
                    Outcome::Fault(fault) => Some(reason_of(fault.kind)),
                };
                match (decide(&outcome, None, 1, &policy, 0.5), reason) {
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
    fn a_fault_requeues_or_dead_letters() {
        for policy in policies() {
            for kind in FaultKind::ALL {
                let fault = Outcome::Fault(Fault::new(kind, "why"));
                let disposition = decide(&fault, None, 1, &policy, 0.5);
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
}
