//! The room with the Redis client: connections, scripts, replies, rights, the server's clock, and the
//! embedded server.
//!
//! A [`connection::Connector`] makes [`connection::Link`]s, which send commands within a deadline and
//! connect again by themselves. Scripts are files (`lua/*.lua`) that state their KEYS, ARGV, reply and
//! atomicity; their shared parts are files of `lua/parts`. Rust never builds script text.

pub mod connection;
pub(crate) mod copy;
pub mod embedded;
pub(crate) mod error;
mod hint;
pub(crate) mod interruption;
pub(crate) mod reply;
pub(crate) mod rights;
pub mod script;
pub(crate) mod script_reply;
mod scripts;
mod server_time;
pub mod startup;
pub mod target;
mod topology;
pub mod usage;
pub(crate) mod values;

pub use error::{Class, Error};
pub use server_time::ServerTime;
pub(crate) use server_time::{machine_ms, server_ms};
