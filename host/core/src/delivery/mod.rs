//! The pure core: messages, outcomes of attempts, and the decisions of the host.
//!
//! This room has no async code, I/O, clock or randomness. Time and jitter come in as arguments, effects
//! go out as values. Read [`policy::decide`] first.
//!
//! - [`message`]: a message and its headers.
//! - [`attempt`]: which start comes next, what must be recorded before it, what runs isolated.
//! - [`millis`]: durations in whole milliseconds.
//! - [`outcome`]: the result of an attempt, faults included.
//! - [`batch`]: the outcomes of a batch, whose halves run again if it faults.
//! - [`policy`]: [`policy::decide`], which turns an outcome into a disposition.
//! - [`backoff`]: how long something that failed waits.
//! - [`effect`]: what an attempt publishes and writes with its acknowledgement.
//! - [`flow`]: how many messages may start in a time.
//! - [`hold`]: messages that come again later, uncharged.
//! - [`journal`]: the recorded answers to calls of a message.
//! - [`key_value`]: the keys of a handler.
//! - [`death`]: the history that a dead letter carries, and cycles.
//! - [`reply`]: what producers that wait learn, and handlers answer.
//! - [`evidence`]: the log, the calls and the recording of an attempt, for its dead letter. [`recording`]: every answer of
//!   the host to it. [`quoted`]: bytes in JSON.
//! - [`signature`]: what failures of one cause have in common.
//! - [`text`]: bounded and printable texts.
//! - [`trace`]: the trace that a message belongs to.
//! - [`ledger`]: every delivery this host holds, from claim to settlement.

pub mod attempt;
pub mod backoff;
pub mod batch;
pub mod death;
pub mod declared;
pub mod effect;
pub mod evidence;
pub mod flow;
pub mod hold;
pub mod journal;
pub mod key_value;
pub mod ledger;
pub mod message;
pub mod millis;
pub mod outcome;
pub mod policy;
pub mod quoted;
pub mod recording;
pub mod reply;
pub(crate) mod rules;
pub mod signature;
pub mod text;
pub mod trace;
