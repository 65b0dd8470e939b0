//! The harness of the tests.

pub mod inprocess;
pub mod redis;
pub mod guests;
pub mod guests;
pub mod inprocess;
pub mod proxy;
pub mod redis;
pub mod rig;
