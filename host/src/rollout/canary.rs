//! A canary: a new version that serves a share of the messages. Its faults and requeues are compared
//! with those of the current version, and it is promoted or rejected.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use rustc_hash::FxBuildHasher;

use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::Outcome;

/// A share of all messages, in basis points (hundredths of a percent).
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Share(u32);

impl Share {
    /// All messages.
    pub const ALL: Self = Self(10_000);

    /// A share in basis points; `None` if it is more than 10,000.
    pub fn from_basis_points(points: u32) -> Option<Self> {
        (points <= Self::ALL.0).then_some(Self(points))
    }

    /// Whether the message with this id belongs to the share. The answer is the same on every host and
    /// for every attempt, and a larger share contains a smaller one.
    pub fn has(self, id: &str) -> bool {
        let place = mix(id.as_bytes()) % u64::from(Self::ALL.0);
        place < u64::from(self.0)
    }

    /// As a number from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Self::ALL.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 100.0)
    }
}

/// FNV-1a with the finalizer of MurmurHash3, which spreads similar ids.
fn mix(bytes: &[u8]) -> u64 {
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

/// The condition to promote or reject a canary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CanaryRule {
    /// The least time before the canary is promoted.
    pub window: Duration,
    /// The least number of messages, on the canary and on the current version, for a decision.
    pub min: u64,
    /// The most by which the canary's rate of faults, of requeues, or of both may exceed the current
    /// version's, from 0 to 1.
    pub max_excess: f64,
}

/// The messages of one version, counted by result.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MessageCounts {
    /// All messages.
    pub messages: u64,
    /// Messages with an attempt that faulted.
    pub faults: u64,
    /// Messages with a requeue and without a fault.
    pub nacks: u64,
}

/// The result of an attempt, the best first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Severity {
    Fine,
    Nack,
    Fault,
}

/// Counts the messages of one version during a trial. Each message counts once, by its worst attempt,
/// so that frequent retries do not outweigh other messages.
#[derive(Debug, Default)]
pub struct MessageCounter {
    counts: MessageCounts,
    /// The latest messages, and the ones before. A message is forgotten after [`KNOWN_MAX`] others.
    known: HashMap<DeliveryId, Severity, FxBuildHasher>,
    known_before: HashMap<DeliveryId, Severity, FxBuildHasher>,
}

/// The least number of messages that are remembered; the most is twice as many.
const KNOWN_MAX: usize = 32_768;

impl MessageCounter {
    /// Count an attempt of a message; all attempts of a message have the same `id`.
    pub fn count(&mut self, id: DeliveryId, outcome: &Outcome) {
        let mark = match outcome {
            Outcome::Fault(_) => Severity::Fault,
            Outcome::NackRequeue(_) => Severity::Nack,
            Outcome::Ack | Outcome::Drop(_) => Severity::Fine,
        };
        let known = self.known.get(&id).copied();
        let known = known.or_else(|| self.known_before.remove(&id));
        let worst = known.map_or(mark, |known| known.max(mark));
        match known {
            Some(known) => {
                if let Some(count) = self.counts.of(known) {
                    *count -= 1;
                }
            }
            None => self.counts.messages += 1,
        }
        if let Some(count) = self.counts.of(worst) {
            *count += 1;
        }
        self.known.insert(id, worst);
        if self.known.len() >= KNOWN_MAX {
            self.known_before = std::mem::take(&mut self.known);
        }
    }

    /// The counts.
    pub fn counts(&self) -> MessageCounts {
        self.counts
    }
}

impl MessageCounts {
    fn of(&mut self, mark: Severity) -> Option<&mut u64> {
        match mark {
            Severity::Fine => None,
            Severity::Nack => Some(&mut self.nacks),
            Severity::Fault => Some(&mut self.faults),
        }
    }

    fn rate(&self, count: u64) -> f64 {
        if self.messages == 0 {
            return 0.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let rate = count as f64 / self.messages as f64;
        rate
    }

    /// The share of messages that faulted.
    pub fn fault_rate(&self) -> f64 {
        self.rate(self.faults)
    }

    /// The share of messages that were requeued.
    pub fn nack_rate(&self) -> f64 {
        self.rate(self.nacks)
    }

    fn failure_rate(&self) -> f64 {
        self.rate(self.faults + self.nacks)
    }

    /// The variance of the failure rate.
    fn variance(&self) -> f64 {
        let rate = self.failure_rate();
        rate * (1.0 - rate) * self.rate(1)
    }

    /// Two standard deviations of the difference between two failure rates.
    fn noise_with(&self, other: &Self) -> f64 {
        2.0 * (self.variance() + other.variance()).sqrt()
    }

    /// The excess of this failure rate over another: the largest of faults, requeues and both.
    pub fn excess_over(&self, other: &Self) -> f64 {
        let faults = self.fault_rate() - other.fault_rate();
        let nacks = self.nack_rate() - other.nack_rate();
        let both = self.failure_rate() - other.failure_rate();
        faults.max(nacks).max(both)
    }
}

/// The decision about a canary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The trial continues.
    Wait,
    /// The canary becomes the current version.
    Promote,
    /// The canary is dropped.
    RollBack,
}

/// Decide about a canary of this age. During the window, a canary is rejected when both versions have
/// enough messages and the excess is larger than the limit and the noise. At the end of the window,
/// only the limit counts.
pub fn decide(
    rule: &CanaryRule,
    age: Duration,
    canary: &MessageCounts,
    current: &MessageCounts,
) -> Decision {
    let excess = canary.excess_over(current);
    let is_over = age >= rule.window;
    if canary.messages.min(current.messages) < rule.min {
        Decision::Wait
    } else if is_over && excess <= rule.max_excess {
        Decision::Promote
    } else if is_over || excess - canary.noise_with(current) > rule.max_excess {
        Decision::RollBack
    } else {
        Decision::Wait
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::outcome::{Fault, FaultKind};

    const RULE: CanaryRule = CanaryRule {
        window: Duration::from_secs(60),
        min: 100,
        max_excess: 0.05,
    };

    fn counts() -> impl Strategy<Value = MessageCounts> {
        (0_u64..5_000, 0_u64..5_000, 0_u64..5_000).prop_map(|(faults, nacks, rest)| MessageCounts {
            messages: faults + nacks + rest,
            faults,
            nacks,
        })
    }

    #[test]
    fn a_share_is_accurate_for_any_kind_of_id() {
        let share = Share::from_basis_points(1_000).unwrap();
        let stream = |i: u64| format!("{}-{}", 1_700_000_000_000 + i / 7, i % 7);
        let token = |i: u64| format!("{:032x}", i);
        for id in [&stream as &dyn Fn(u64) -> String, &token] {
            let within = (0..20_000).filter(|i| share.has(&id(*i))).count();
            assert!((1_800..2_200).contains(&within), "{within}");
        }
    }

    #[test]
    fn a_canary_that_always_fails_is_rejected_at_the_minimum() {
        let good = MessageCounts {
            messages: 900,
            ..MessageCounts::default()
        };
        let mut bad = MessageCounts {
            messages: 99,
            faults: 99,
            nacks: 0,
        };
        assert_eq!(decide(&RULE, Duration::ZERO, &bad, &good), Decision::Wait);
        bad.messages += 1;
        bad.faults += 1;
        assert_eq!(
            decide(&RULE, Duration::ZERO, &bad, &good),
            Decision::RollBack
        );
    }

    fn id(n: u64) -> DeliveryId {
        DeliveryId(n.into())
    }

    fn fault() -> Outcome {
        Outcome::Fault(Fault::new(FaultKind::Trap, "unreachable"))
    }

    #[test]
    fn one_poisonous_message_does_not_decide() {
        for outcome in [Outcome::NackRequeue(Some(Duration::ZERO)), fault()] {
            let (mut canary, mut current) = (MessageCounter::default(), MessageCounter::default());
            for n in 0..1_000 {
                current.count(id(n), &Outcome::Ack);
            }
            for n in 0..99 {
                canary.count(id(n), &Outcome::Ack);
                for _ in 0..1_000 {
                    canary.count(id(1_000), &outcome);
                }
            }
            let (canary, current) = (canary.counts(), current.counts());
            assert_eq!((canary.messages, canary.faults + canary.nacks), (100, 1));
            let early = decide(&RULE, Duration::ZERO, &canary, &current);
            assert_eq!(early, Decision::Wait);
            let late = decide(&RULE, RULE.window, &canary, &current);
            assert_eq!(late, Decision::Promote);
        }
    }

    #[test]
    fn a_poisonous_message_of_the_current_version_hides_no_fault_of_the_canary() {
        let (mut canary, mut current) = (MessageCounter::default(), MessageCounter::default());
        for n in 0..200 {
            current.count(id(n), &Outcome::Ack);
            canary.count(id(n), &fault());
        }
        for _ in 0..100_000 {
            current.count(id(7), &fault());
        }
        let decision = decide(&RULE, Duration::ZERO, &canary.counts(), &current.counts());
        assert_eq!(decision, Decision::RollBack);
    }

    #[test]
    fn a_message_counts_by_its_worst_attempt() {
        let mut counter = MessageCounter::default();
        let nack = Outcome::NackRequeue(None);
        for outcome in [&nack, &fault(), &nack, &Outcome::Ack] {
            counter.count(id(1), outcome);
        }
        counter.count(id(2), &nack);
        counter.count(id(3), &Outcome::Drop(None));
        let (messages, faults, nacks) = (3, 1, 1);
        let expected = MessageCounts {
            messages,
            faults,
            nacks,
        };
        assert_eq!(counter.counts(), expected);
    }

    #[test]
    fn memory_is_bounded_and_frequent_messages_are_not_forgotten() {
        let mut counter = MessageCounter::default();
        let all = 10 * KNOWN_MAX as u64;
        for n in 1..=all {
            counter.count(id(n), &Outcome::Ack);
            if n % 1_000 == 0 {
                counter.count(id(0), &fault());
            }
            assert!(counter.known.len() + counter.known_before.len() <= 2 * KNOWN_MAX);
        }
        assert_eq!(counter.counts().messages, all + 1);
        assert_eq!(counter.counts().faults, 1);
    }

    #[test]
    fn fewer_requeues_do_not_compensate_faults() {
        let current = MessageCounts {
            messages: 1_000,
            faults: 0,
            nacks: 100,
        };
        let canary = MessageCounts {
            messages: 1_000,
            faults: 100,
            nacks: 0,
        };
        assert_eq!(
            decide(&RULE, RULE.window, &canary, &current),
            Decision::RollBack
        );
    }

    proptest! {
        #[test]
        fn the_share_of_all_has_every_id_and_the_share_of_none_has_no_id(id in ".{0,40}") {
            prop_assert!(!Share::from_basis_points(0).unwrap().has(&id));
            prop_assert!(Share::ALL.has(&id));
        }

        #[test]
        fn a_larger_share_contains_a_smaller_one(id in ".{0,40}", a in 0_u32..=10_000, b in 0_u32..=10_000) {
            let share = |points| Share::from_basis_points(points).unwrap();
            prop_assert!(!share(a.min(b)).has(&id) || share(a.max(b)).has(&id));
        }

        #[test]
        fn no_decision_is_too_early(canary in counts(), current in counts(), secs in 0_u64..120) {
            let age = Duration::from_secs(secs);
            let decision = decide(&RULE, age, &canary, &current);
            if canary.messages.min(current.messages) < RULE.min {
                prop_assert_eq!(decision, Decision::Wait);
            }
            if decision == Decision::Promote {
                prop_assert!(age >= RULE.window);
            }
        }

        #[test]
        fn a_canary_that_is_not_worse_is_never_rejected(
            canary in counts(), current in counts(), secs in 0_u64..120,
        ) {
            if decide(&RULE, Duration::from_secs(secs), &canary, &current) == Decision::RollBack {
                prop_assert!(canary.excess_over(&current) > RULE.max_excess);
                prop_assert!(canary.messages.min(current.messages) >= RULE.min);
            }
        }

        #[test]
        fn a_canary_that_fails_far_more_often_is_rejected_before_the_window_ends(
            canary in counts(), current in counts(),
        ) {
            // Twice the standard deviation for a hundred messages each is less than this.
            let far = canary.excess_over(&current) > RULE.max_excess + 0.15;
            if far && canary.messages.min(current.messages) >= RULE.min {
                let decision = decide(&RULE, Duration::ZERO, &canary, &current);
                prop_assert_eq!(decision, Decision::RollBack);
            }
        }

        #[test]
        fn the_counter_counts_messages_not_attempts(
            ends in prop::collection::vec((0_u64..40, 0_u8..3), 0..400),
        ) {
            let mut counter = MessageCounter::default();
            let mut worst = std::collections::BTreeMap::new();
            for (message, mark) in ends {
                let outcome = match mark {
                    0 => Outcome::Ack,
                    1 => Outcome::NackRequeue(None),
                    _ => fault(),
                };
                counter.count(id(message), &outcome);
                let before = worst.entry(message).or_insert(0);
                *before = mark.max(*before);
            }
            let of = |mark: u8| worst.values().filter(|worst| **worst == mark).count() as u64;
            let expected = MessageCounts {
                messages: worst.len() as u64,
                faults: of(2),
                nacks: of(1),
            };
            prop_assert_eq!(counter.counts(), expected);
        }

        #[test]
        fn a_message_that_faults_instead_never_helps(
            canary in counts(), current in counts(), secs in 0_u64..120,
        ) {
            prop_assume!(canary.faults + canary.nacks < canary.messages);
            let age = Duration::from_secs(secs);
            // One message more would make the rate of requeues smaller.
            let worse = MessageCounts {
                faults: canary.faults + 1,
                ..canary
            };
            prop_assert!(worse.excess_over(&current) >= canary.excess_over(&current));
            if decide(&RULE, age, &canary, &current) == Decision::RollBack {
                prop_assert_ne!(decide(&RULE, age, &worse, &current), Decision::Promote);
            }
        }

        #[test]
        fn with_enough_messages_the_end_of_the_window_decides(
            canary in counts(), current in counts(),
        ) {
            let decision = decide(&RULE, RULE.window, &canary, &current);
            let few = canary.messages.min(current.messages) < RULE.min;
            prop_assert_eq!(decision == Decision::Wait, few);
        }
    }
}
