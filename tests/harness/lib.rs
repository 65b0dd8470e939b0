//! The harness of the tests.

pub mod guests;
pub mod inprocess;
pub mod redis;
pub mod rig;
