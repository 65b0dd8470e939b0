//! What is fuzzed, and how: see [`bodies`], and `components` for the sandbox.

pub mod bodies;
#[cfg(feature = "sandbox")]
pub mod components;

#[cfg(not(feature = "sandbox"))]
#[path = "../../../host/src/delivery/mod.rs"]
pub mod delivery;
#[cfg(not(feature = "sandbox"))]
#[path = "../../../host/src/wire/mod.rs"]
pub mod wire;

#[cfg(feature = "sandbox")]
#[path = "../../harness/guests.rs"]
pub mod guests;
#[cfg(feature = "sandbox")]
pub use hostler;

/// What the bodies call the crate: some of its rooms.
#[cfg(not(feature = "sandbox"))]
pub mod hostler {
    pub use crate::{delivery, wire};
}
