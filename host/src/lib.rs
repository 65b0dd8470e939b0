//! hostler hosts message handlers compiled to WebAssembly.
//!
//! One host process per queue reads messages from Redis, hands each one to a sandboxed component,
//! and does what the handler says: `ack`, `nack-requeue` or `drop`.
//!
//! # The way of one message
//!
//! ```text
//! claim -> decode -> gate -> sandbox -> outcome -> decide -> disposition -> settle
//! ```
//!
//! | step | where it lives |
//! |---|---|
//! | claim | [`queue::Queue::fetch`], [`queue::Queue::take_due`], [`queue::Queue::take_orphans`] |
//! | decode | [`wire`] (called by the queue kind that read it) |
//! | gate | [`runtime::gate`]: what no handler may see, or has no start left |
//! | sandbox | [`sandbox`], called by a slot of [`runtime::executor`] |
//! | outcome | [`delivery::outcome::Outcome`] |
//! | decide | [`delivery::policy::decide`] |
//! | disposition | [`delivery::policy::Disposition`] |
//! | settle | [`queue::Queue::acknowledge`], [`queue::Queue::settle`] |
//!
//! Between the steps stands one owner of state, [`delivery::ledger::Ledger`]: which deliveries
//! this host holds, and what happens next to each. [`runtime`] is the loop around it.
//!
//! # Rooms
//!
//! `delivery` and `wire` are pure; only `redis` and the rooms that stand on it know the Redis client;
//! only `sandbox`, `compiler`, the links of `grants` and the crate of the tool chain know wasmtime; only
//! `cli` prints. `host` assembles: from a [`config`] to a running host. A test checks these walls.

pub mod admin;
pub mod cli;
mod clock;
pub mod compiler;
pub mod config;
pub mod dead_letter;
#[cfg(test)]
mod docs;
pub mod file_watch;
pub mod grants;
pub mod host;
mod names;
pub mod policies;
pub mod policy_change;
pub mod publish;
pub mod queue;
pub mod redis;
pub mod registry;
pub mod regular_file;
pub mod rollout;
pub mod runtime;
pub mod sandbox;
mod sync;
pub mod telemetry;
mod tls;
pub mod trial;
pub mod ui;
pub mod values;

pub use hostler_core::{delivery, wire};
