//! Imports that bring the host down on purpose: only in builds for the tests of that.

use wasmtime::component::Linker;

use super::host::Host;

/// The interface's name, without its version.
pub(super) const INTERFACE: &str = "hostler:fault-points/host";

pub(super) fn add_to_linker(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    let mut instance = linker.instance(&format!("{INTERFACE}@1.0.0"))?;
    instance.func_wrap("abort", |_, ()| -> wasmtime::Result<()> {
        std::process::abort()
    })?;
    instance.func_wrap("panic", |_, ()| -> wasmtime::Result<()> {
        std::panic::panic_any("a fault point was asked to panic")
    })
}
