//! What is fuzzed, and how: see [`bodies`].

pub mod bodies;

#[path = "../../../host/src/delivery/mod.rs"]
pub mod delivery;
#[path = "../../../host/src/wire/mod.rs"]
pub mod wire;

/// What the bodies call the crate: its pure rooms.
pub mod hostler {
    pub use crate::{delivery, wire};
}
