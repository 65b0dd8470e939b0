//! The pure core: what a message is, what an attempt made of it, and what the host decides.
//!
//! No async, no I/O, no clock, no randomness: time and jitter come in as arguments, effects go out
//! as values. `decide` is the page to read first.
//!
//! - [`message`]: a message and its headers.
//! - [`attempt`]: which start comes next, what must be recorded before it, who runs alone.
//! - [`outcome`]: what an attempt produced, faults included.
//! - [`batch`]: what becomes of a batch: one outcome for each message, or its halves run again.
//! - [`policy`]: [`policy::decide`], the one place that turns an outcome into a disposition.
//! - [`backoff`]: how long a failed message waits.
//! - [`breaker`]: when a handler that faults on everything stops its queue.
//! - [`canary`]: which messages try a new version, and whether it is kept.
//! - [`death`]: the history that a dead letter carries, and cycles.
//! - [`trace`]: the trace that a message belongs to.
//! - [`ledger`]: every delivery this host holds, from claim to settlement.

pub mod attempt;
pub mod backoff;
pub mod batch;
pub mod death;
pub(crate) mod declared;
pub mod ledger;
pub mod message;
pub mod outcome;
pub mod policy;
pub(crate) mod rules;
pub mod trace;
