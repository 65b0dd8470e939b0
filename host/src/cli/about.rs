//! The output of `--version`.

use crate::sandbox::{WASMTIME_VERSION, WIT_PACKAGE};

/// `-V`.
pub(super) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// `--version`: the versions of hostler, of the wasmtime that runs handlers, and of their WIT.
pub(super) fn long() -> String {
    format!("{SHORT}\nwasmtime {WASMTIME_VERSION}\nwit {WIT_PACKAGE}")
}
