//! The harness of the tests.

pub mod redis;
