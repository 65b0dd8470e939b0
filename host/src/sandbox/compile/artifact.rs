//! Compiled code, and the one way to make it ready to run.

use std::ops::Range;

use wasmtime::Engine;
use wasmtime::component::Component;

/// Code that this hostler's compiler made. [`super::artifact`] is the only source of it.
pub(in crate::sandbox) struct Artifact {
    bytes: Vec<u8>,
    code: Range<usize>,
}

impl Artifact {
    /// What a compiler of this very program has answered: here, or in a child of ours, over a
    /// pipe; or what such a one answered once and the cache has kept, whose digest was checked in
    /// these same bytes.
    pub(super) fn new(bytes: Vec<u8>, code: Range<usize>) -> Option<Self> {
        bytes.get(code.clone())?;
        Some(Self { bytes, code })
    }

    /// The code.
    pub(super) fn code(&self) -> &[u8] {
        &self.bytes[self.code.clone()]
    }

    /// Make it ready to run on an engine with the same compiler settings.
    #[expect(
        unsafe_code,
        reason = "wasmtime runs what it deserializes, so this is the one place that may"
    )]
    pub(in crate::sandbox) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes come from `Engine::precompile_component` of this very program, see
        // `new`, and are private memory since they were checked: no file is mapped, and the
        // fields are private and never written again.
        unsafe { Component::deserialize(engine, self.code()) }
    }
}
