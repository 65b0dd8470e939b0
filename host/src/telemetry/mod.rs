//! What an operator sees from outside: metrics, health and logs.
//!
//! - [`metrics`]: counters that cost the loop an atomic addition each, and the exit summary.
//! - [`health`]: ready or not, and why.
//! - [`versions`], [`swaps`]: which versions of the handler run, and how they do.
//! - [`logging`]: log lines on stderr, and a bound on repeated ones; `patient` never waits long for a
//!   reader of theirs.

pub mod health;
pub mod histogram;
pub mod logging;
pub mod metrics;
mod patient;
pub mod status;
pub mod swaps;
pub mod versions;

/// Epoch milliseconds by this machine's clock: for what people see of a host, never for leases, nor
/// for what expires.
pub fn wall_clock_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |elapsed| {
            u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
        })
}
