//! Makes a component of a WASIp1 module that exports `_start`: the module as `rewrite` makes it, and the adapter of
//! WASIp1.

mod rewrite;

use std::borrow::Cow;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME, WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use rewrite::rewritten;
pub use rewrite::{EXIT, MEMORY};

/// The imports that `rewrite` adds, in WIT.
const WIT: &str = "package hostler:program@1.0.0;
interface exit { exit: func(code: u32); }
interface memory { pages: func() -> u32; }
world program { import exit; import memory; }";

/// Whether these bytes are a core module that exports `_start`.
pub fn is_program(bytes: &[u8]) -> bool {
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
pub fn component_of(bytes: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    if !Parser::is_core_wasm(bytes) {
        return Ok(Cow::Borrowed(bytes));
    }
    let module = rewritten(bytes).map_err(|error| error.to_string())?;
    around(module).map(Cow::Owned)
}

/// A component around a module that is rewritten.
fn around(mut module: Vec<u8>) -> Result<Vec<u8>, String> {
    // The errors of these crates are chains.
    let shown = |error| format!("{error:#}");
    let mut resolve = Resolve::default();
    let package = resolve.push_source("program.wit", WIT).map_err(shown)?;
    let world = resolve.select_world(&[package], None).map_err(shown)?;
    embed_component_metadata(&mut module, &resolve, world, StringEncoding::UTF8).map_err(shown)?;
    ComponentEncoder::default()
        .module(&module)
        .and_then(|encoder| {
            encoder.adapter(
                WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME,
                WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER,
            )
        })
        .and_then(|encoder| encoder.validate(true).encode())
        .map_err(shown)
}
