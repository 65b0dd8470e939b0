//! An import that makes the host panic on purpose: only in builds for the tests of that.

use wasmtime::component::Linker;

use super::host::Host;

/// The interface's name, without its version.
pub(super) const INTERFACE: &str = "hostler:fault-points/host";

#[expect(clippy::panic, reason = "that is what it is for")]
pub(super) fn add_to_linker(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{INTERFACE}@1.0.0"))?
        .func_wrap("panic", |_, ()| -> wasmtime::Result<()> {
            panic!("a fault point was asked to panic")
        })
}
