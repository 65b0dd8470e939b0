//! The harness of the tests.

pub mod inprocess;
pub mod redis;
