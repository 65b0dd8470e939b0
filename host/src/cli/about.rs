//! What `--version` says.

use crate::sandbox::{WASMTIME_VERSION, WIT_PACKAGE};

/// `-V`.
pub(super) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// `--version`: hostler, the wasmtime that runs the guests, the WIT that they are built against.
pub(super) fn long() -> String {
    format!("{SHORT}\nwasmtime {WASMTIME_VERSION}\nwit {WIT_PACKAGE}")
}
