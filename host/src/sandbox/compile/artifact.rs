//! Compiled code. Only this file makes it ready to run.

use std::ops::Range;

use wasmtime::Engine;
use wasmtime::component::Component;

/// Code that this version of hostler compiled.
pub(in crate::sandbox) struct Artifact {
    bytes: Vec<u8>,
    code: Range<usize>,
}

impl Artifact {
    /// Code in `bytes[code]`, or `None` if the range is too long. The code must come from a compiler of
    /// this program: in this process, from a child over a pipe, or from the cache, after the digest of
    /// these bytes was checked.
    pub(super) fn new(bytes: Vec<u8>, code: Range<usize>) -> Option<Self> {
        bytes.get(code.clone())?;
        Some(Self { bytes, code })
    }

    /// [`Artifact::new`] for `bytes` that are only code.
    pub(super) fn whole(bytes: Vec<u8>) -> Self {
        let code = 0..bytes.len();
        Self { bytes, code }
    }

    /// The code.
    pub(super) fn code(&self) -> &[u8] {
        &self.bytes[self.code.clone()]
    }

    /// Load the code into an engine with the same compiler settings.
    #[expect(
        unsafe_code,
        reason = "wasmtime runs the code that it deserializes, so only this function does it"
    )]
    pub(in crate::sandbox) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes come from `Engine::precompile_component` of this program, see `new`.
        // They have been in private memory since they were checked: no file is mapped, and the
        // private fields are never written again.
        unsafe { Component::deserialize(engine, self.code()) }
    }
}
