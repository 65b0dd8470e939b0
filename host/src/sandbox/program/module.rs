//! Makes a component of a WASIp1 module that exports `_start`.
//!
//! The module's `proc_exit` becomes an import of its own: the adapter of WASIp1 passes on only whether the
//! code is 0.

use std::borrow::Cow;
use std::convert::Infallible;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasm_encoder_of_wit::reencode::{self, Reencode, utils};
use wasm_encoder_of_wit::{ImportSection, Module};
use wasmparser::{Import, Imports, Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The import that ends a program with any code, without its version.
pub(in crate::sandbox) const EXIT: &str = "hostler:program/exit";

/// The import as the module names it, and its function.
const EXIT_VERSIONED: &str = "hostler:program/exit@1.0.0";
const EXIT_FUNCTION: &str = "exit";

/// The import in WIT.
const WIT: &str = "package hostler:program@1.0.0;
interface exit { exit: func(code: u32); }
world program { import exit; }";

/// Whether these bytes are a core module that exports `_start`.
pub(in crate::sandbox) fn is_program(bytes: &[u8]) -> bool {
    let mut payloads = Parser::new(0).parse_all(bytes).map_while(Result::ok);
    payloads.any(|payload| match payload {
        Payload::ExportSection(exports) => exports
            .into_iter()
            .map_while(Result::ok)
            .any(|export| export.name == "_start"),
        _ => false,
    })
}

/// The component of these bytes: themselves, or one around a program.
///
/// # Errors
/// The module is not valid, or imports something that no WASIp1 program has; the text says what.
pub(in crate::sandbox) fn component_of(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !Parser::is_core_wasm(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let mut renamed = Module::new();
    WithExit
        .parse_core_module(&mut renamed, Parser::new(0), bytes)
        .map_err(|error| error.to_string())?;
    around(renamed.finish()).map(Cow::Owned)
}

/// A component around a module whose `proc_exit` is renamed.
fn around(mut renamed: Vec<u8>) -> Result<Vec<u8>, String> {
    // The errors of these crates are chains.
    let shown = |error| format!("{error:#}");
    let mut resolve = Resolve::default();
    let package = resolve.push_source("program.wit", WIT).map_err(shown)?;
    let world = resolve.select_world(&[package], None).map_err(shown)?;
    embed_component_metadata(&mut renamed, &resolve, world, StringEncoding::UTF8).map_err(shown)?;
    ComponentEncoder::default()
        .module(&renamed)
        .and_then(|encoder| {
            encoder.adapter(
                WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
                WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
            )
        })
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(shown)
}

/// Copies a module, and renames its import of `proc_exit`.
struct WithExit;

impl Reencode for WithExit {
    type Error = Infallible;

    fn parse_imports(
        &mut self,
        section: &mut ImportSection,
        imports: Imports<'_>,
    ) -> Result<(), reencode::Error<Infallible>> {
        match imports {
            Imports::Single(at, import)
                if import.module == WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME
                    && import.name == "proc_exit" =>
            {
                let import = Import {
                    module: EXIT_VERSIONED,
                    name: EXIT_FUNCTION,
                    ..import
                };
                utils::parse_imports(self, section, Imports::Single(at, import))
            }
            other => utils::parse_imports(self, section, other),
        }
    }
}
