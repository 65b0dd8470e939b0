//! The room with the Redis client: connections, scripts, replies, rights, and the server's clock.
//!
//! A [`connection::Connector`] makes [`connection::Link`]s, which send commands within a deadline and
//! connect again by themselves. A [`script::Script`] is a value, which the room that calls it declares.

pub(crate) mod bare;
pub mod connection;
pub(crate) mod error;
mod hint;
pub(crate) mod interruption;
pub(crate) mod reply;
pub(crate) mod rights;
pub mod script;
mod server_time;
pub mod startup;
pub mod target;
mod topology;
pub mod usage;

pub use error::{Class, Error};
pub(crate) use script::scripts;
pub use server_time::ServerTime;
pub(crate) use server_time::{machine_ms, server_ms};
