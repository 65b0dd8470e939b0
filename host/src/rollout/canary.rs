//! A canary: a new version that serves a share of the messages, until its faults and requeues,
//! beside those of the version that serves the rest, say whether it is kept.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use rustc_hash::FxBuildHasher;

use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::Outcome;

/// A share of all messages, in hundredths of a percent.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Share(u32);

impl Share {
    /// All of them.
    pub const ALL: Self = Self(10_000);
    /// None of them.
    pub const NONE: Self = Self(0);

    /// A share of so many hundredths of a percent; `None` if that is more than all.
    pub fn from_basis_points(points: u32) -> Option<Self> {
        (points <= Self::ALL.0).then_some(Self(points))
    }

    /// Whether the message with this id belongs to the share. The same on every host and for every
    /// attempt; a larger share holds all of a smaller one.
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

/// FNV-1a, and the finalizer of MurmurHash3: ids that are alike end far apart.
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

/// When a canary is kept, and when not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// How long it serves its share at least before it is kept.
    pub window: Duration,
    /// How many messages must have been tried on it, and on the other version, before anything is
    /// decided.
    pub min: u64,
    /// By how much its share of faults, of requeues, or of both together may exceed the other
    /// version's, from 0 to 1.
    pub max_excess: f64,
}

/// How the messages of one version fared.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    /// All of them.
    pub messages: u64,
    /// Those with an attempt that faulted.
    pub faults: u64,
    /// Those with an attempt that asked for another one, and none that faulted.
    pub nacks: u64,
}

/// How bad an attempt was for its version.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Mark {
    Fine,
    Nack,
    Fault,
}

/// What one version came to during a trial. Each message counts once, by the worst of its attempts:
/// one that comes back a thousand times a second weighs as much as any other.
#[derive(Debug, Default)]
pub struct Side {
    tally: Tally,
    /// The messages seen last, and those before them: what is forgotten has not been seen for
    /// [`KNOWN_MAX`] others.
    known: HashMap<DeliveryId, Mark, FxBuildHasher>,
    known_before: HashMap<DeliveryId, Mark, FxBuildHasher>,
}

/// So many messages are remembered at least, and twice as many at most.
const KNOWN_MAX: usize = 32_768;

impl Side {
    /// An attempt at this message has ended. `id` is the same for all attempts at it.
    pub fn count(&mut self, id: DeliveryId, outcome: &Outcome) {
        let mark = match outcome {
            Outcome::Fault(_) => Mark::Fault,
            Outcome::NackRequeue(_) => Mark::Nack,
            Outcome::Ack | Outcome::Drop(_) => Mark::Fine,
        };
        let known = self.known.get(&id).copied();
        let known = known.or_else(|| self.known_before.remove(&id));
        let worst = known.map_or(mark, |known| known.max(mark));
        match known {
            Some(known) => {
                if let Some(count) = self.tally.of(known) {
                    *count -= 1;
                }
            }
            None => self.tally.messages += 1,
        }
        if let Some(count) = self.tally.of(worst) {
            *count += 1;
        }
        self.known.insert(id, worst);
        if self.known.len() >= KNOWN_MAX {
            self.known_before = std::mem::take(&mut self.known);
        }
    }

    /// What it came to.
    pub fn tally(&self) -> Tally {
        self.tally
    }
}

impl Tally {
    fn of(&mut self, mark: Mark) -> Option<&mut u64> {
        match mark {
            Mark::Fine => None,
            Mark::Nack => Some(&mut self.nacks),
            Mark::Fault => Some(&mut self.faults),
        }
    }

    fn rate(&self, count: u64) -> f64 {
        if self.messages == 0 {
            return 0.0;
        }
        // Far below 2^52.
        #[expect(clippy::cast_precision_loss, reason = "a count of messages")]
        let rate = count as f64 / self.messages as f64;
        rate
    }

    /// The share that faulted.
    pub fn fault_rate(&self) -> f64 {
        self.rate(self.faults)
    }

    /// The share that wanted another attempt.
    pub fn nack_rate(&self) -> f64 {
        self.rate(self.nacks)
    }

    fn failure_rate(&self) -> f64 {
        self.rate(self.faults + self.nacks)
    }

    /// The variance of its rate of failures, by chance.
    fn variance(&self) -> f64 {
        let rate = self.failure_rate();
        rate * (1.0 - rate) * self.rate(1)
    }

    /// How far the difference of two rates of failures may be from the truth, by chance: two standard
    /// deviations.
    fn noise_beside(&self, other: &Self) -> f64 {
        2.0 * (self.variance() + other.variance()).sqrt()
    }

    /// By how much this one fails more often than another: the worst of faults, requeues, and both.
    pub fn excess_over(&self, other: &Self) -> f64 {
        let faults = self.fault_rate() - other.fault_rate();
        let nacks = self.nack_rate() - other.nack_rate();
        let both = self.failure_rate() - other.failure_rate();
        faults.max(nacks).max(both)
    }
}

/// What is to be done about a canary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// It goes on as it is.
    Wait,
    /// It serves everything from now on.
    Promote,
    /// It serves nothing from now on.
    RollBack,
}

/// What these counts mean after so long. A canary that fails too often is given up as soon as
/// there are enough messages on both sides to say so, and chance alone hardly explains it; at the
/// end of the window the counts are taken as they are.
pub fn decide(rule: &Rule, age: Duration, canary: &Tally, current: &Tally) -> Decision {
    let excess = canary.excess_over(current);
    let is_over = age >= rule.window;
    if canary.messages.min(current.messages) < rule.min {
        Decision::Wait
    } else if is_over && excess <= rule.max_excess {
        Decision::Promote
    } else if is_over || excess - canary.noise_beside(current) > rule.max_excess {
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

    const RULE: Rule = Rule {
        window: Duration::from_secs(60),
        min: 100,
        max_excess: 0.05,
    };

    fn tally() -> impl Strategy<Value = Tally> {
        (0_u64..5_000, 0_u64..5_000, 0_u64..5_000).prop_map(|(faults, nacks, rest)| Tally {
            messages: faults + nacks + rest,
            faults,
            nacks,
        })
    }

    #[test]
    fn a_share_is_what_it_says_whatever_the_ids_look_like() {
        let share = Share::from_basis_points(1_000).unwrap();
        let stream = |i: u64| format!("{}-{}", 1_700_000_000_000 + i / 7, i % 7);
        let token = |i: u64| format!("{:032x}", i);
        for id in [&stream as &dyn Fn(u64) -> String, &token] {
            let within = (0..20_000).filter(|i| share.has(&id(*i))).count();
            assert!((1_800..2_200).contains(&within), "{within}");
        }
    }

    #[test]
    fn who_fails_always_goes_as_soon_as_there_are_enough() {
        let good = Tally {
            messages: 900,
            ..Tally::default()
        };
        let mut bad = Tally {
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
    fn one_poisonous_message_decides_nothing() {
        for outcome in [Outcome::NackRequeue(Some(Duration::ZERO)), fault()] {
            let (mut canary, mut current) = (Side::default(), Side::default());
            for n in 0..1_000 {
                current.count(id(n), &Outcome::Ack);
            }
            for n in 0..99 {
                canary.count(id(n), &Outcome::Ack);
                for _ in 0..1_000 {
                    canary.count(id(1_000), &outcome);
                }
            }
            let (canary, current) = (canary.tally(), current.tally());
            assert_eq!((canary.messages, canary.faults + canary.nacks), (100, 1));
            let early = decide(&RULE, Duration::ZERO, &canary, &current);
            assert_eq!(early, Decision::Wait);
            let late = decide(&RULE, RULE.window, &canary, &current);
            assert_eq!(late, Decision::Promote);
        }
    }

    #[test]
    fn poison_of_the_version_that_serves_hides_nothing() {
        let (mut canary, mut current) = (Side::default(), Side::default());
        for n in 0..200 {
            current.count(id(n), &Outcome::Ack);
            canary.count(id(n), &fault());
        }
        for _ in 0..100_000 {
            current.count(id(7), &fault());
        }
        let decision = decide(&RULE, Duration::ZERO, &canary.tally(), &current.tally());
        assert_eq!(decision, Decision::RollBack);
    }

    #[test]
    fn a_message_counts_by_its_worst_attempt() {
        let mut side = Side::default();
        let nack = Outcome::NackRequeue(None);
        for outcome in [&nack, &fault(), &nack, &Outcome::Ack] {
            side.count(id(1), outcome);
        }
        side.count(id(2), &nack);
        side.count(id(3), &Outcome::Drop(None));
        let (messages, faults, nacks) = (3, 1, 1);
        let tally = Tally {
            messages,
            faults,
            nacks,
        };
        assert_eq!(side.tally(), tally);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_comes_back_often_is_not_forgotten() {
        let mut side = Side::default();
        let all = 10 * KNOWN_MAX as u64;
        for n in 1..=all {
            side.count(id(n), &Outcome::Ack);
            if n % 1_000 == 0 {
                side.count(id(0), &fault());
            }
            assert!(side.known.len() + side.known_before.len() <= 2 * KNOWN_MAX);
        }
        assert_eq!(side.tally().messages, all + 1);
        assert_eq!(side.tally().faults, 1);
    }

    #[test]
    fn faults_are_not_made_good_by_fewer_requeues() {
        let current = Tally {
            messages: 1_000,
            faults: 0,
            nacks: 100,
        };
        let canary = Tally {
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
        fn none_and_all_are_none_and_all(id in ".{0,40}") {
            prop_assert!(!Share::from_basis_points(0).unwrap().has(&id));
            prop_assert!(Share::ALL.has(&id));
        }

        #[test]
        fn a_larger_share_holds_the_smaller(id in ".{0,40}", a in 0_u32..=10_000, b in 0_u32..=10_000) {
            let share = |points| Share::from_basis_points(points).unwrap();
            prop_assert!(!share(a.min(b)).has(&id) || share(a.max(b)).has(&id));
        }

        #[test]
        fn nothing_is_decided_too_early(canary in tally(), current in tally(), secs in 0_u64..120) {
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
        fn one_that_is_no_worse_is_never_rolled_back(
            canary in tally(), current in tally(), secs in 0_u64..120,
        ) {
            if decide(&RULE, Duration::from_secs(secs), &canary, &current) == Decision::RollBack {
                prop_assert!(canary.excess_over(&current) > RULE.max_excess);
                prop_assert!(canary.messages.min(current.messages) >= RULE.min);
            }
        }

        #[test]
        fn one_that_fails_far_more_often_goes_before_the_window_is_over(
            canary in tally(), current in tally(),
        ) {
            // Two standard deviations of a hundred messages beside a hundred are less at most.
            let far = canary.excess_over(&current) > RULE.max_excess + 0.15;
            if far && canary.messages.min(current.messages) >= RULE.min {
                let decision = decide(&RULE, Duration::ZERO, &canary, &current);
                prop_assert_eq!(decision, Decision::RollBack);
            }
        }

        /// However often each message comes back, and in whatever order.
        #[test]
        fn a_side_counts_messages_and_no_attempts(
            ends in prop::collection::vec((0_u64..40, 0_u8..3), 0..400),
        ) {
            let mut side = Side::default();
            let mut worst = std::collections::BTreeMap::new();
            for (message, mark) in ends {
                let outcome = match mark {
                    0 => Outcome::Ack,
                    1 => Outcome::NackRequeue(None),
                    _ => fault(),
                };
                side.count(id(message), &outcome);
                let before = worst.entry(message).or_insert(0);
                *before = mark.max(*before);
            }
            let of = |wanted: u8| worst.values().filter(|mark| **mark == wanted).count() as u64;
            let tally = Tally {
                messages: worst.len() as u64,
                faults: of(2),
                nacks: of(1),
            };
            prop_assert_eq!(side.tally(), tally);
        }

        #[test]
        fn failing_more_never_helps(canary in tally(), current in tally(), secs in 0_u64..120) {
            let age = Duration::from_secs(secs);
            let worse = Tally {
                messages: canary.messages + 1,
                faults: canary.faults + 1,
                ..canary
            };
            if decide(&RULE, age, &canary, &current) == Decision::RollBack {
                prop_assert_eq!(decide(&RULE, age, &worse, &current), Decision::RollBack);
            }
        }

        #[test]
        fn a_decision_comes_once_there_are_enough_and_the_window_is_over(
            canary in tally(), current in tally(),
        ) {
            let decision = decide(&RULE, RULE.window, &canary, &current);
            let few = canary.messages.min(current.messages) < RULE.min;
            prop_assert_eq!(decision == Decision::Wait, few);
        }
    }
}
