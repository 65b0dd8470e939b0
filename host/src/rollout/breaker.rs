//! The breaker: when a handler that faults on everything stops its queue, before it fills the
//! dead-letter queue.
//!
//! It opens when, within a window of time, a share of all attempts faulted, and those of so many
//! different messages: a few poisonous ones that come back time and again open nothing. An attempt
//! that made no instance is none, and is not counted.
//!
//! A handler that hangs ends few attempts within any window: those that ran out of time are also
//! counted by their number ([`Late`]).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxBuildHasher;

use crate::delivery::ledger::Time;
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::{FaultKind, Outcome};

/// The window moves in steps of this share of it.
const STEPS: u32 = 10;

/// When it opens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// Over how long attempts are counted.
    pub window: Duration,
    /// How many different messages must have faulted within it.
    pub min: usize,
    /// Which share of the attempts must have faulted, from 0 to 1.
    pub rate: f64,
    /// How long an attempt may take.
    pub timeout: Duration,
}

/// What happens when it opens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnBreak {
    /// The queue stops.
    #[default]
    Stop,
    /// The version before takes over, if there is one; else the queue stops.
    Rollback,
}

/// What opened it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Broken {
    /// Attempts within the window, or the last ones.
    pub attempts: u64,
    /// Those that faulted.
    pub faults: u64,
}

/// Counts the attempts of one version: see the module.
#[derive(Debug)]
pub struct Breaker {
    rule: Rule,
    steps: VecDeque<Step>,
    /// Messages that faulted, and when they last did; at most as many as are needed.
    faulted: HashMap<DeliveryId, Time, FxBuildHasher>,
    late: Late,
}

/// The last attempts, as many as messages must have faulted, for a handler that hangs: it opens the
/// breaker when the same share of them ran out of time. However few run at once, that takes no longer
/// than they would one after the other, twice over; what took longer was no hang of the handler, but a
/// queue with little to do. Retries of a few messages are most of what a slot sees then: a tenth of
/// so many must differ, and [`FEW`] at least.
#[derive(Debug, Default)]
struct Late {
    /// When each ended; with the message, if it ran out of time.
    ends: VecDeque<(Time, Option<DeliveryId>)>,
    late: usize,
}

/// Fewer different messages open nothing, unless the rule says so.
const FEW: usize = 5;

#[derive(Debug)]
struct Step {
    since: Time,
    attempts: u64,
    faults: u64,
}

impl Breaker {
    /// One that has seen nothing yet.
    pub fn new(rule: Rule) -> Self {
        Self {
            rule,
            steps: VecDeque::new(),
            faulted: HashMap::default(),
            late: Late::default(),
        }
    }

    /// Forget everything: another version runs.
    pub fn reset(&mut self) {
        self.steps.clear();
        self.faulted.clear();
        self.late = Late::default();
    }

    /// An attempt at this message has ended. `id` is the same for all attempts at it. Says whether that opens it; it has forgotten
    /// everything then.
    pub fn count(&mut self, now: Time, id: DeliveryId, outcome: &Outcome) -> Option<Broken> {
        let within = self.count_within(now, id, outcome);
        let broken = self.late.count(&self.rule, now, id, outcome).or(within);
        if broken.is_some() {
            self.reset();
        }
        broken
    }

    fn count_within(&mut self, now: Time, id: DeliveryId, outcome: &Outcome) -> Option<Broken> {
        self.turn(now);
        let faulted = matches!(outcome, Outcome::Fault(_));
        if let Some(step) = self.steps.back_mut() {
            step.attempts += 1;
            step.faults += u64::from(faulted);
        }
        if !faulted {
            return None;
        }
        if self.faulted.len() < self.rule.min || self.faulted.contains_key(&id) {
            self.faulted.insert(id, now);
        }
        if self.faulted.len() < self.rule.min {
            return None;
        }
        let (attempts, faults) = self.steps.iter().fold((0, 0), |(attempts, faults), step| {
            (attempts + step.attempts, faults + step.faults)
        });
        self.rule.opens_at(attempts, faults)
    }

    /// Forget what is older than the window.
    fn turn(&mut self, now: Time) {
        let length = self.rule.window / STEPS;
        let current = self.steps.back().map(|step| step.since);
        if current.is_some_and(|since| now.saturating_sub(since) < length) {
            return;
        }
        let window = self.rule.window;
        let is_over = |since: Time| now.saturating_sub(since) >= window;
        while self.steps.front().is_some_and(|step| is_over(step.since)) {
            self.steps.pop_front();
        }
        self.faulted.retain(|_, at| !is_over(*at));
        self.steps.push_back(Step {
            since: now,
            attempts: 0,
            faults: 0,
        });
    }
}

impl Rule {
    fn opens_at(&self, attempts: u64, faults: u64) -> Option<Broken> {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let rate = faults as f64 / attempts as f64;
        (rate >= self.rate).then_some(Broken { attempts, faults })
    }
}

impl Late {
    fn count(
        &mut self,
        rule: &Rule,
        now: Time,
        id: DeliveryId,
        outcome: &Outcome,
    ) -> Option<Broken> {
        let is_late = matches!(
            outcome,
            Outcome::Fault(fault)
                if matches!(fault.kind, FaultKind::WallTimeout | FaultKind::CpuTimeout)
        );
        self.ends.push_back((now, is_late.then_some(id)));
        self.late += usize::from(is_late);
        if self.ends.len() > rule.min
            && let Some((_, Some(_))) = self.ends.pop_front()
        {
            self.late -= 1;
        }
        if !is_late || self.ends.len() < rule.min {
            return None;
        }
        let broken = rule.opens_at(self.ends.len() as u64, self.late as u64)?;
        let since = self.ends.front().map_or(now, |(at, _)| *at);
        let min = u32::try_from(rule.min).unwrap_or(u32::MAX);
        if now.saturating_sub(since) > rule.timeout.saturating_mul(min).saturating_mul(2) {
            return None;
        }
        let mut messages: Vec<DeliveryId> = self.ends.iter().filter_map(|(_, id)| *id).collect();
        messages.sort_unstable();
        messages.dedup();
        let few = (rule.min / 10).max(FEW.min(rule.min));
        (messages.len() >= few).then_some(broken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::outcome::{Fault, FaultKind};

    const RULE: Rule = Rule {
        window: Duration::from_secs(10),
        min: 20,
        rate: 0.95,
        timeout: Duration::from_secs(5),
    };

    fn fault() -> Outcome {
        Outcome::Fault(Fault::new(FaultKind::Trap, "unreachable"))
    }

    fn id(n: usize) -> DeliveryId {
        DeliveryId(n as u128)
    }

    #[test]
    fn one_that_faults_on_everything_opens_it_at_the_minimum() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..RULE.min - 1 {
            assert_eq!(
                breaker.count(Time::from_millis(n as u64), id(n), &fault()),
                None
            );
        }
        let broken = breaker.count(Time::from_millis(50), id(99), &fault());
        let (attempts, faults) = (20, 20);
        assert_eq!(broken, Some(Broken { attempts, faults }));
        // It begins anew.
        assert_eq!(
            breaker.count(Time::from_millis(51), id(100), &fault()),
            None
        );
    }

    #[test]
    fn a_few_poisonous_messages_never_do() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            let now = Time::from_micros(n as u64);
            assert_eq!(breaker.count(now, id(n % (RULE.min - 1)), &fault()), None);
        }
    }

    #[test]
    fn what_is_long_ago_does_not_count() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            // Nineteen in eleven seconds, whichever eleven.
            let now = RULE.window.mul_f64(1.1) / 19 * n as u32;
            assert_eq!(breaker.count(now, id(n), &fault()), None, "{n}");
        }
    }

    #[test]
    fn it_stays_small() {
        let rule = Rule { rate: 1.1, ..RULE };
        let mut breaker = Breaker::new(rule);
        for n in 0..100_000 {
            breaker.count(Time::from_millis(n as u64), id(n), &fault());
            assert!(breaker.faulted.len() <= rule.min);
            assert!(breaker.steps.len() <= STEPS as usize + 1);
            assert!(breaker.late.ends.len() <= rule.min);
        }
    }

    /// Attempts that all run out of time, in so many slots, at messages that have so many attempts
    /// each: how many until it opens, if it does.
    fn hang(rule: Rule, slots: usize, cap: usize, timeouts: usize) -> Option<usize> {
        let mut breaker = Breaker::new(rule);
        (0..timeouts).find(|n| {
            let (slot, turn) = (n % slots, n / slots);
            // A little later than it should be.
            let now = (rule.timeout * turn as u32).mul_f64(1.2) + Time::from_millis(*n as u64 % 7);
            breaker
                .count(now, id(turn / cap * slots + slot), &timeout())
                .is_some()
        })
    }

    fn timeout() -> Outcome {
        Outcome::Fault(Fault::new(FaultKind::WallTimeout, "no answer"))
    }

    #[test]
    fn one_that_hangs_opens_it_however_few_run_at_once() {
        let rule = Rule { min: 50, ..RULE };
        for slots in [1, 2, 5, 16, 49, 50, 64, 1_000] {
            for cap in [1, 2, 5, 10] {
                let opened = hang(rule, slots, cap, 500);
                assert_eq!(opened, Some(rule.min - 1), "{slots} slots, cap {cap}");
            }
        }
        let slow = Rule {
            timeout: Duration::from_secs(86_400),
            min: 10_000,
            ..RULE
        };
        assert_eq!(hang(slow, 1, 3, 20_000), Some(slow.min - 1));
    }

    #[test]
    fn a_few_messages_that_hang_never_do() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            let now = RULE.timeout / 16 * n as u32;
            assert_eq!(breaker.count(now, id(n % (FEW - 1)), &timeout()), None);
        }
    }

    #[test]
    fn hangs_among_what_works_or_over_a_long_time_never_do() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            let outcome = if n % 10 == 0 { Outcome::Ack } else { timeout() };
            let now = RULE.timeout / 4 * n as u32;
            assert_eq!(breaker.count(now, id(n), &outcome), None);
        }
        let mut breaker = Breaker::new(RULE);
        for n in 0..1_000 {
            let now = RULE.timeout.mul_f64(2.2) * n as u32;
            assert_eq!(breaker.count(now, id(n), &timeout()), None);
        }
    }

    #[test]
    fn one_that_begins_to_hang_opens_it_whatever_it_did_before() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..100_000 {
            breaker.count(Time::from_micros(n as u64), id(n), &Outcome::Ack);
        }
        let hung = (1..100).find(|n| {
            let now = Time::from_secs(5) * (*n as u32).div_ceil(16);
            breaker.count(now, id(100_000 + n), &timeout()).is_some()
        });
        // One in twenty of the last ones may still be a good one.
        assert_eq!(hung, Some(RULE.min - 1));
    }

    proptest! {
        /// Whatever opens it was as bad as the rule says, over the window and one step.
        #[test]
        fn it_opens_only_for_a_reason(
            ends in prop::collection::vec((0_u64..400, 0_usize..60, prop::bool::weighted(0.9)), 1..400),
        ) {
            let mut breaker = Breaker::new(RULE);
            let mut now = Time::ZERO;
            let mut since = 0;
            let mut seen: Vec<(Time, usize, bool)> = Vec::new();
            for (gap, message, faults) in ends {
                now += Time::from_millis(gap);
                seen.push((now, message, faults));
                let outcome = if faults { fault() } else { Outcome::Ack };
                if breaker.count(now, id(message), &outcome).is_some() {
                    let oldest = now.saturating_sub(RULE.window + RULE.window / STEPS);
                    let recent: Vec<_> =
                        seen[since..].iter().filter(|(at, ..)| *at >= oldest).collect();
                    let mut bad: Vec<_> = recent.iter().filter(|end| end.2).map(|end| end.1).collect();
                    bad.sort_unstable();
                    bad.dedup();
                    prop_assert!(bad.len() >= RULE.min);
                    since = seen.len();
                }
            }
        }

        /// Below the rate it never opens.
        #[test]
        fn one_that_works_now_and_then_is_left_alone(gap in 0_u64..200) {
            let mut breaker = Breaker::new(RULE);
            for n in 0..2_000 {
                let outcome = if n % 10 == 0 { Outcome::Ack } else { fault() };
                let now = Time::from_millis(gap * n as u64);
                prop_assert_eq!(breaker.count(now, id(n), &outcome), None);
            }
        }
    }
}
