//! The harness of the tests.

pub mod inprocess;
pub mod redis;
pub mod guests;
pub mod rig;
