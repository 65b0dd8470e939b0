//! Versions of the handler: how a new one is found, verified, tried on a share of the messages, put in
//! place for new attempts, and taken back.
//!
//! - [`versions`]: which versions there are, and which one an attempt gets.
//! - [`swap`]: from a new version that shows up to the switch. [`verify`]: every check before it.
//! - [`canary`], [`breaker`]: pure rules: when a new version is kept or given up, when a queue stops.
//! - [`request`]: what asks for another version. [`handler_file`]: the file as a source of them.
//! - [`store`]: versions that are stored beside the queue. [`follower`]: this host follows them.

pub mod breaker;
pub mod canary;
pub mod follower;
pub mod handler_file;
mod refusal_log;
pub mod request;
pub mod store;
pub mod swap;
pub mod verify;
mod verify_queue;
pub mod versions;
