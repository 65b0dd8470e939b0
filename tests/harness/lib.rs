//! The harness of the tests.

pub mod guests;
pub mod inprocess;
pub mod proxy;
pub mod redis;
pub mod rig;
