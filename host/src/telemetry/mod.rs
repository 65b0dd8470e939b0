//! The view of an operator: metrics, health, status and logs.
//!
//! - [`metrics`]: counters that cost the loop one atomic addition each, and the exit summary.
//! - [`rules`]: what the rules of grants count.
//! - [`health`]: ready or not, and why.
//! - [`status`]: the active rules and the latest faults, for `/status`.
//! - [`versions`]: the versions of the handler that a host runs, as people see them.
//! - [`otlp`]: spans, metrics and log lines, sent to a collector.
//! - [`logging`]: log lines on stderr, and a bound on repeated ones. `bounded_stderr` never waits long for
//!   the reader of stderr.

mod bounded_stderr;
pub mod health;
pub mod histogram;
pub mod limited;
pub mod logging;
pub mod metrics;
pub mod otlp;
pub mod rules;
pub mod status;
pub mod versions;

/// Epoch milliseconds by the clock of this machine: to show to people, never for leases or expiry.
pub fn wall_clock_ms() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, crate::delivery::millis::millis)
}
