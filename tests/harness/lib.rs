//! The harness of the tests.

pub mod guests;
pub mod rig;
