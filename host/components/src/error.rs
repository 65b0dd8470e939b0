//! The reasons to refuse bytes as a component, and texts about components.

use hostler_core::delivery::text::{DETAIL_MAX, printable, truncate_utf8};

/// Bytes of a name from a component.
const NAME_MAX: usize = 256;

/// These bytes are no handler. The messages do not name the file: the caller adds it.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The file is not WebAssembly: its first bytes, for people.
    #[error(
        "is not WebAssembly: it starts with {0}; a component starts with `00 61 73 6d 0d 00 01 00`"
    )]
    NotWasm(String),

    /// The file is a core module.
    #[error(
        "is a core WebAssembly module, and no program: it does not export `_start`; build a program, or build \
         for wasm32-wasip2, or wrap it with `wasm-tools component new`"
    )]
    CoreModule,

    /// The file is code that wasmtime has compiled.
    #[error(
        "is precompiled code (.cwasm), which is never loaded; use the .wasm file that it was made from"
    )]
    Precompiled,

    /// The file ends too early.
    #[error(
        "is truncated: a section ends at byte {section_end}, the file ends at byte {size}; copy it again"
    )]
    Truncated {
        /// The offset at which the truncated section should end.
        section_end: u64,
        /// Bytes of the file.
        size: u64,
    },

    /// The handler is asynchronous.
    #[error(
        "is for {interface}, whose function is `async`: this host calls a handler synchronously, and has no WASI \
         0.3; {remedy}"
    )]
    Async {
        /// The interface.
        interface: String,
        /// The same world without `async`.
        remedy: &'static str,
    },

    /// The component declares more than any handler needs.
    #[error("has {found} {what}, the limit is {limit}; build it with fewer")]
    TooMany {
        /// The things, in the plural.
        what: &'static str,
        /// Their number.
        found: u64,
        /// The number that is allowed.
        limit: u64,
    },
}

/// wasmtime's message, for people: bounded, and with control characters escaped, because a component
/// chooses parts of it.
pub fn describe(error: &wasmtime::Error) -> String {
    let mut text = printable(&format!("{error:#}"));
    truncate_utf8(&mut text, DETAIL_MAX);
    text
}

/// A name from a component, for people: bounded and escaped.
pub fn display_name(name: &str) -> String {
    let mut text = printable(name);
    truncate_utf8(&mut text, NAME_MAX);
    text
}
