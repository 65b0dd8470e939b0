//! How long a failed message waits before its next start.

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
    /// The wait after attempt `attempt` (1-based), with a random number in `0.0..1.0`.
    pub fn delay(&self, attempt: u32, random: f64) -> Duration {
        let exponent = f64::from(attempt.saturating_sub(1).min(64));
        let base =
            (self.first.as_secs_f64() * self.factor.powf(exponent)).min(self.max.as_secs_f64());
        let swing = 1.0 + self.jitter * (2.0 * random - 1.0);
        Duration::from_secs_f64((base * swing).max(0.0))
    }
}
