//! An import that makes the host panic, only in test builds.

use wasmtime::component::Linker;

use crate::grants::imports::FAULT_POINT;
use crate::sandbox::host::Host;

#[expect(clippy::panic, reason = "tests need a panic of the host")]
pub(super) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker
        .instance(&format!("{FAULT_POINT}@1.0.0"))?
        .func_wrap("panic", |_, ()| -> wasmtime::Result<()> {
            panic!("a guest called the fault point")
        })
}
