//! The outside view of a host for operators: metrics, health and logs.
//!
//! - [`metrics`]: counters that cost the loop one atomic addition each, and the exit summary.
//! - [`health`]: ready or not, and why.
//! - [`versions`], [`swaps`]: the versions of the handler that run, and their counts.
//! - [`logging`]: log lines on stderr, and a limit for repeated ones. `patient` writes them, and never
//!   waits long for their reader.

pub mod health;
pub mod histogram;
pub mod logging;
pub mod metrics;
mod patient;
pub mod status;
pub mod swaps;
pub mod versions;

/// The time by this machine's clock, in epoch milliseconds. It is only for display: leases and expiry
/// never use it.
pub fn wall_clock_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| {
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
        })
}
