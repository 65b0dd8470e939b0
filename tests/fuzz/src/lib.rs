//! What is fuzzed, and how: see [`bodies`], and `components` for the sandbox.

pub mod bodies;
#[cfg(feature = "sandbox")]
pub mod components;

#[cfg(feature = "sandbox")]
#[path = "../../harness/guests.rs"]
pub mod guests;
#[cfg(feature = "sandbox")]
pub use hostler;
