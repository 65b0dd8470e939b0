//! The harness of the tests.

pub mod inprocess;
pub mod proxy;
pub mod redis;
