//! Compiled code: made here, and loaded from nowhere else.

use wasmtime::Engine;
use wasmtime::component::Component;

use super::error::LoadError;
use super::log::printable;

/// A compiled component. Only [`compile`] makes one.
pub(super) struct Artifact(Vec<u8>);

/// Compile a component.
pub(super) fn compile(engine: &Engine, bytes: &[u8]) -> Result<Artifact, LoadError> {
    engine
        .precompile_component(bytes)
        .map(Artifact)
        .map_err(|error| LoadError::Invalid {
            detail: printable(&format!("{error:#}")),
        })
}

impl Artifact {
    /// Make it ready to run on an engine with the same compiler settings.
    #[expect(
        unsafe_code,
        reason = "wasmtime runs what it deserializes, so this is the one place that may"
    )]
    pub(super) fn load(&self, engine: &Engine) -> wasmtime::Result<Component> {
        // SAFETY: the bytes come from `Engine::precompile_component` in this process, and
        // nothing can have changed them since: the field is private, and nothing here does.
        unsafe { Component::deserialize(engine, &self.0) }
    }
}
