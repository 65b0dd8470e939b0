//! What an operator sees from outside: metrics, health and logs.
//!
//! - [`metrics`]: counters that cost the loop an atomic addition each, and the exit summary.
//! - [`health`]: ready or not, and why.

pub mod health;
pub mod histogram;
pub mod metrics;
