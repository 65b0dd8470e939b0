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
//! `delivery` and `wire` (the crate `hostler-core`) are pure. `redis` (`hostler-redis`) is the Redis client, and `publish`
//! (`hostler-publish`) is all that a producer needs. `components` (`hostler-components`) makes components out of bytes.
//! Only `redis` and the rooms that stand on it know the client; only `sandbox`, `compiler`, the links of `grants` and
//! `components` know wasmtime; only `cli` prints. `host` assembles: from a [`config`] to a running host. A test checks
//! these walls.

pub mod admin;
mod calls;
pub mod cli;
mod clock;
pub mod compiler;
pub mod config;
pub mod dead_letter;
#[cfg(test)]
mod docs;
pub mod embedded;
pub mod file_watch;
pub mod grants;
pub mod host;
pub mod key_values;
pub mod outgoing;
pub mod policies;
pub mod policy_change;
pub mod queue;
pub mod registry;
pub mod regular_file;
pub mod rollout;
pub mod runtime;
pub mod sandbox;
pub mod schedule;
#[cfg(test)]
mod scripts;
pub mod telemetry;
mod tls;
pub mod trial;
pub mod ui;
pub mod values;
pub mod workbench;

pub use hostler_core::{delivery, wire};
pub use hostler_publish as publish;
pub use hostler_redis as redis;
