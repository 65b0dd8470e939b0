//! An import that makes the host panic on purpose: only in builds for the tests of that.

use wasmtime::component::Linker;

use crate::sandbox::grants::FAULT_POINT;
use crate::sandbox::host::Host;

#[expect(clippy::panic, reason = "that is what it is for")]
pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{FAULT_POINT}@1.0.0"))?
        .func_wrap("panic", |_, ()| -> wasmtime::Result<()> {
            panic!("a fault point was asked to panic")
        })
}
