//! What is fuzzed, and how: see [`bodies`], and `components` for the sandbox.

pub mod bodies;
#[cfg(feature = "sandbox")]
pub mod components;

#[path = "../../../host/src/delivery/mod.rs"]
pub mod delivery;
#[path = "../../../host/src/wire/mod.rs"]
pub mod wire;

#[cfg(feature = "sandbox")]
#[path = "../../../host/src/regular_file.rs"]
pub mod regular_file;

#[cfg(feature = "sandbox")]
#[path = "../../harness/guests.rs"]
pub mod guests;
#[cfg(feature = "sandbox")]
#[path = "../../../host/src/sandbox/mod.rs"]
pub mod sandbox;

/// What the bodies call the crate: some of its rooms.
pub mod hostler {
    #[cfg(feature = "sandbox")]
    pub use crate::sandbox;
    pub use crate::{delivery, wire};
}
