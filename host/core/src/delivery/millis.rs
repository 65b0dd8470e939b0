//! Durations in whole milliseconds, as Redis and logs take them.

use std::time::Duration;

/// Rounded down; more than 64 bits are the greatest number.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Rounded up: never less than the duration.
pub fn millis_up(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}
