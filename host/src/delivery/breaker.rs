//! The breaker: when a handler that faults on everything stops its queue, before it fills the
//! dead-letter queue.
//!
//! It opens when, within a window of time, a share of all attempts faulted, and those of so many
//! different messages: a few poisonous ones that come back time and again open nothing. An attempt
//! that made no instance is none, and is not counted.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxBuildHasher;

use crate::delivery::ledger::Time;
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::Outcome;

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
    /// Attempts within the window.
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
}

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
        }
    }

    /// Forget everything: another version runs.
    pub fn reset(&mut self) {
        self.steps.clear();
        self.faulted.clear();
    }

    /// An attempt at this message has ended. Says whether that opens it; it has forgotten
    /// everything then.
    pub fn count(&mut self, now: Time, id: DeliveryId, outcome: &Outcome) -> Option<Broken> {
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
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let rate = faults as f64 / attempts as f64;
        if rate < self.rule.rate {
            return None;
        }
        self.reset();
        Some(Broken { attempts, faults })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::outcome::{Fault, FaultKind};

    const RULE: Rule = Rule {
        window: Duration::from_secs(10),
        min: 20,
        rate: 0.95,
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
        }
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
