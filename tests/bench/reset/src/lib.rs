//! A prototype of resetting an instance in place: `docs/decisions/0019-resetting-an-instance-in-place.md`.
//!
//! [`instrument`] rewrites a component so that its one core module marks each part of its memory that is written,
//! and restores these parts, and its globals, after each call. [`run`] makes engines and stores as the host does.
//! [`measure`] compares an instance that is reset with a fresh one and with a reused one. [`check`] proves on a
//! given component that nothing of a call remains.

// The merge is the host's own source, and its unit tests need what the host has. Those of this crate are in `tests`.
#![cfg(not(test))]

pub mod check;
pub mod instrument;
pub mod measure;
pub mod run;
mod sandbox;

/// The component as the host compiles it: with its core modules merged, if they can be.
pub fn merged(component: Vec<u8>) -> Vec<u8> {
    sandbox::compile::merged(&component).unwrap_or(component)
}
