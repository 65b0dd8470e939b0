//! The breaker: stops a queue whose handler faults on everything, before the dead-letter queue fills.
//!
//! The breaker opens when, within a time window, a share of all attempts faulted, on a minimum of
//! different messages. A few poisonous messages that are retried again and again do not open it.
//! Attempts that made no instance are not counted.
//!
//! A handler that hangs ends few attempts within a window. So the breaker also counts the timeouts
//! among the last attempts ([`TimeoutWindow`]).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxBuildHasher;

use crate::delivery::ledger::Time;
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::{FaultKind, Outcome};

/// The number of steps in which the window moves.
const STEPS: u32 = 10;

/// The condition to open the breaker.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerRule {
    /// The time window.
    pub window: Duration,
    /// The minimum of different messages that faulted.
    pub min: usize,
    /// The minimum share of attempts that faulted, from 0 to 1.
    pub rate: f64,
    /// The wall-clock limit of an attempt.
    pub timeout: Duration,
}

/// The action when the breaker opens.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnBreak {
    /// The queue stops.
    #[default]
    Stop,
    /// The previous version takes over; without one, the queue stops.
    Rollback,
}

/// The counts that opened the breaker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Broken {
    /// The attempts in the window.
    pub attempts: u64,
    /// The attempts that faulted.
    pub faults: u64,
}

/// Counts the attempts of one version.
#[derive(Debug)]
pub struct Breaker {
    rule: BreakerRule,
    steps: VecDeque<Step>,
    /// Messages that faulted, with the time of their last fault; at most `rule.min`.
    faulted: HashMap<DeliveryId, Time, FxBuildHasher>,
    timeouts: TimeoutWindow,
}

/// The last `rule.min` attempts, for a handler that hangs. The breaker opens when `rule.rate` of them
/// timed out, within twice the time that they need one after the other. If they took longer, the
/// queue had little to do. A slot then sees mostly retries of a few messages, so only a tenth of
/// `rule.min` must be different messages, and at least [`MESSAGES_MIN`].
#[derive(Debug, Default)]
struct TimeoutWindow {
    /// The end of each attempt; with the message, if the attempt timed out.
    ends: VecDeque<(Time, Option<DeliveryId>)>,
    count: usize,
}

/// The least number of different messages, unless `rule.min` is smaller.
const MESSAGES_MIN: usize = 5;

#[derive(Debug)]
struct Step {
    since: Time,
    attempts: u64,
    faults: u64,
}

impl Breaker {
    /// A breaker without attempts.
    pub fn new(rule: BreakerRule) -> Self {
        Self {
            rule,
            steps: VecDeque::new(),
            faulted: HashMap::default(),
            timeouts: TimeoutWindow::default(),
        }
    }

    /// Forget all attempts, because another version runs.
    pub fn reset(&mut self) {
        self.steps.clear();
        self.faulted.clear();
        self.timeouts = TimeoutWindow::default();
    }

    /// Count an attempt of a message; all attempts of a message have the same `id`. If the breaker
    /// opens, all attempts are forgotten.
    pub fn count(&mut self, now: Time, id: DeliveryId, outcome: &Outcome) -> Option<Broken> {
        let within = self.count_within(now, id, outcome);
        let broken = self.timeouts.count(&self.rule, now, id, outcome).or(within);
        if broken.is_some() {
            self.reset();
        }
        broken
    }

    fn count_within(&mut self, now: Time, id: DeliveryId, outcome: &Outcome) -> Option<Broken> {
        self.advance(now);
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

    /// Forget attempts that are older than the window.
    fn advance(&mut self, now: Time) {
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

impl BreakerRule {
    fn opens_at(&self, attempts: u64, faults: u64) -> Option<Broken> {
        #[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
        let rate = faults as f64 / attempts as f64;
        (rate >= self.rate).then_some(Broken { attempts, faults })
    }
}

impl TimeoutWindow {
    fn count(
        &mut self,
        rule: &BreakerRule,
        now: Time,
        id: DeliveryId,
        outcome: &Outcome,
    ) -> Option<Broken> {
        let is_timeout = matches!(
            outcome,
            Outcome::Fault(fault)
                if matches!(fault.kind, FaultKind::WallTimeout | FaultKind::CpuTimeout)
        );
        self.ends.push_back((now, is_timeout.then_some(id)));
        self.count += usize::from(is_timeout);
        if self.ends.len() > rule.min
            && let Some((_, Some(_))) = self.ends.pop_front()
        {
            self.count -= 1;
        }
        if !is_timeout || self.ends.len() < rule.min {
            return None;
        }
        let broken = rule.opens_at(self.ends.len() as u64, self.count as u64)?;
        let since = self.ends.front().map_or(now, |(at, _)| *at);
        let min = u32::try_from(rule.min).unwrap_or(u32::MAX);
        if now.saturating_sub(since) > rule.timeout.saturating_mul(min).saturating_mul(2) {
            return None;
        }
        let mut messages: Vec<DeliveryId> = self.ends.iter().filter_map(|(_, id)| *id).collect();
        messages.sort_unstable();
        messages.dedup();
        let few = (rule.min / 10).max(MESSAGES_MIN.min(rule.min));
        (messages.len() >= few).then_some(broken)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::delivery::outcome::{Fault, FaultKind};

    const RULE: BreakerRule = BreakerRule {
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
    fn a_handler_that_always_faults_opens_the_breaker_at_the_minimum() {
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
        // The count starts again.
        assert_eq!(
            breaker.count(Time::from_millis(51), id(100), &fault()),
            None
        );
    }

    #[test]
    fn a_few_poisonous_messages_do_not_open_the_breaker() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            let now = Time::from_micros(n as u64);
            assert_eq!(breaker.count(now, id(n % (RULE.min - 1)), &fault()), None);
        }
    }

    #[test]
    fn faults_before_the_window_do_not_count() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            // Nineteen in any eleven seconds.
            let now = RULE.window.mul_f64(1.1) / 19 * n as u32;
            assert_eq!(breaker.count(now, id(n), &fault()), None, "{n}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let rule = BreakerRule { rate: 1.1, ..RULE };
        let mut breaker = Breaker::new(rule);
        for n in 0..100_000 {
            breaker.count(Time::from_millis(n as u64), id(n), &fault());
            assert!(breaker.faulted.len() <= rule.min);
            assert!(breaker.steps.len() <= STEPS as usize + 1);
            assert!(breaker.timeouts.ends.len() <= rule.min);
        }
    }

    /// Attempts that all time out, in `slots` slots, with `cap` attempts per message. Returns the
    /// number of the attempt that opens the breaker.
    fn hang(rule: BreakerRule, slots: usize, cap: usize, timeouts: usize) -> Option<usize> {
        let mut breaker = Breaker::new(rule);
        (0..timeouts).find(|n| {
            let (slot, turn) = (n % slots, n / slots);
            // A little late.
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
    fn a_handler_that_hangs_opens_the_breaker_with_any_number_of_slots() {
        let rule = BreakerRule { min: 50, ..RULE };
        for slots in [1, 2, 5, 16, 49, 50, 64, 1_000] {
            for cap in [1, 2, 5, 10] {
                let opened = hang(rule, slots, cap, 500);
                assert_eq!(opened, Some(rule.min - 1), "{slots} slots, cap {cap}");
            }
        }
        let slow = BreakerRule {
            timeout: Duration::from_secs(86_400),
            min: 10_000,
            ..RULE
        };
        assert_eq!(hang(slow, 1, 3, 20_000), Some(slow.min - 1));
    }

    #[test]
    fn a_few_messages_that_hang_do_not_open_the_breaker() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..10_000 {
            let now = RULE.timeout / 16 * n as u32;
            assert_eq!(
                breaker.count(now, id(n % (MESSAGES_MIN - 1)), &timeout()),
                None
            );
        }
    }

    #[test]
    fn rare_timeouts_do_not_open_the_breaker() {
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
    fn a_handler_that_starts_to_hang_opens_the_breaker() {
        let mut breaker = Breaker::new(RULE);
        for n in 0..100_000 {
            breaker.count(Time::from_micros(n as u64), id(n), &Outcome::Ack);
        }
        let hung = (1..100).find(|n| {
            let now = Time::from_secs(5) * (*n as u32).div_ceil(16);
            breaker.count(now, id(100_000 + n), &timeout()).is_some()
        });
        // One in twenty of the last attempts may succeed.
        assert_eq!(hung, Some(RULE.min - 1));
    }

    proptest! {
        /// Over the window and one step.
        #[test]
        fn the_breaker_opens_only_after_faults_of_enough_messages(
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

        #[test]
        fn a_fault_rate_below_the_limit_does_not_open_the_breaker(gap in 0_u64..200) {
            let mut breaker = Breaker::new(RULE);
            for n in 0..2_000 {
                let outcome = if n % 10 == 0 { Outcome::Ack } else { fault() };
                let now = Time::from_millis(gap * n as u64);
                prop_assert_eq!(breaker.count(now, id(n), &outcome), None);
            }
        }
    }
}
