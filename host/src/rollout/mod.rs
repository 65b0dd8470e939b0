//! Versions of the handler: finds and verifies a new version, tries it as a canary, switches new
//! attempts to it, and rolls back.
//!
//! - [`versions`]: the active versions, and the version of an attempt.
//! - [`request`]: a version request. [`handler_file`]: requests from the file.
//! - [`swap`]: carries out requests. [`verify`]: the checks before a switch.
//! - [`canary`], [`breaker`]: pure rules that promote or reject a canary, and stop a queue.
//! - [`store`]: versions stored beside the queue. [`follower`]: requests from that store.

pub mod breaker;
pub mod canary;
pub mod follower;
pub mod handler_file;
mod refusal_log;
pub mod request;
pub mod scripts;
pub mod store;
pub mod swap;
pub mod verify;
mod verify_queue;
pub mod versions;
