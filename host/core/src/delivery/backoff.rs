//! How long something that failed waits before it is tried again.

use std::time::Duration;

/// Exponential backoff with jitter: `first * factor^(attempt - 1)`, at most `max`, plus or minus
/// `jitter` of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The wait after the first attempt.
    pub first: Duration,
    /// By how much each further wait is longer; at least 1.
    pub factor: f64,
    /// The longest wait, before jitter.
    pub max: Duration,
    /// The share of the wait that is random, `0.0..=1.0`.
    pub jitter: f64,
}

// The fields are set once from checked configuration: no NaN, so equality is total.
impl Eq for Backoff {}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(100),
            factor: 2.0,
            max: Duration::from_secs(30),
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// Waits that double from `first` up to `max`, without jitter.
    pub const fn doubling(first: Duration, max: Duration) -> Self {
        Self {
            first,
            factor: 2.0,
            max,
            jitter: 0.0,
        }
    }

    /// The wait after attempt `attempt` (1-based), with a random number in `0.0..1.0`.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        if self.first.is_zero() {
            // Zero times infinity is not a number.
            return Duration::ZERO;
        }
        let exponent = f64::from(attempt.saturating_sub(1).min(64));
        let base =
            (self.first.as_secs_f64() * self.factor.powf(exponent)).min(self.max.as_secs_f64());
        let swing = 1.0 + self.jitter * (2.0 * random - 1.0);
        // The value overflows a duration: wait as long as possible.
        Duration::try_from_secs_f64((base * swing).max(0.0)).unwrap_or(Duration::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        /// Any backoff that a configuration can express.
        fn any_backoff()(
            first in prop_oneof![Just(0), 0..100_000_000_u64],
            factor in prop_oneof![Just(1.0), 1.0..10.0, 1.0..1e9],
            max in 0..10_000_000_000_u64,
            jitter in prop_oneof![Just(0.0), 0.0..=1.0, Just(1.0)],
        ) -> Backoff {
            Backoff {
                first: Duration::from_millis(first),
                factor,
                max: Duration::from_millis(max),
                jitter,
            }
        }
    }

    /// Rounding of floating-point seconds.
    const SLACK: f64 = 1e-6;

    proptest! {
        #[test]
        fn the_wait_stays_within_its_jitter(
            backoff in any_backoff(),
            attempt in prop_oneof![1..100_u32, any::<u32>()],
            random in 0.0..1.0_f64,
        ) {
            let plain = Backoff { jitter: 0.0, ..backoff }.delay(attempt, random).as_secs_f64();
            let wait = backoff.delay(attempt, random).as_secs_f64();
            prop_assert!(plain <= backoff.max.as_secs_f64() * (1.0 + SLACK) + SLACK);
            let (least, most) = (1.0 - backoff.jitter, 1.0 + backoff.jitter);
            prop_assert!(wait >= plain * least * (1.0 - SLACK) - SLACK, "{wait} < {plain}");
            prop_assert!(wait <= plain * most * (1.0 + SLACK) + SLACK, "{wait} > {plain}");
        }

        #[test]
        fn later_attempts_wait_no_shorter(
            backoff in any_backoff(),
            attempt in 1..200_u32,
            random in 0.0..1.0_f64,
        ) {
            let (this, next) = (backoff.delay(attempt, random), backoff.delay(attempt + 1, random));
            prop_assert!(this <= next, "{this:?} then {next:?}");
        }

        #[test]
        fn the_first_wait_is_the_one_that_was_set(backoff in any_backoff()) {
            let first = Backoff { jitter: 0.0, ..backoff }.delay(1, 0.5).as_secs_f64();
            let set = backoff.first.min(backoff.max).as_secs_f64();
            prop_assert!((first - set).abs() <= SLACK * (1.0 + set), "{first} is not {set}");
        }

        #[test]
        fn no_wait_at_first_is_no_wait_at_all(backoff in any_backoff(), attempt in any::<u32>()) {
            let none = Backoff { first: Duration::ZERO, ..backoff };
            prop_assert_eq!(none.delay(attempt, 0.999), Duration::ZERO);
        }
    }

    #[test]
    fn the_longest_of_all_is_no_panic() {
        let endless = Backoff {
            first: Duration::MAX,
            factor: 2.0,
            max: Duration::MAX,
            jitter: 1.0,
        };
        assert!(endless.delay(u32::MAX, 0.999) >= Duration::from_secs(u32::MAX.into()));
    }
}
