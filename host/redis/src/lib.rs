//! The Redis client of hostler: connections to a server, to a cluster and to a primary behind Sentinels, scripts, and
//! replies.
//!
//! A [`connection::Connector`] makes [`connection::Link`]s, which send commands within a deadline and
//! connect again by themselves. A [`script::Script`] is a value, which the room that calls it declares.

pub mod connection;
pub mod error;
pub mod hint;
pub mod names;
pub mod reply;
pub mod script;
pub mod scripts;
mod server_time;
pub mod target;
mod topology;
pub mod usage;
pub mod walk;

pub use error::{Class, Error};
pub use server_time::{ServerTime, machine_ms, server_ms};
