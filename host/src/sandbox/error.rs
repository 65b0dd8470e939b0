//! Why a file is not run as a handler.

use std::io;
use std::time::Duration;

use super::grants::Import;
use crate::delivery::outcome::Fault;
use crate::delivery::text::{DETAIL_MAX, printable, truncate_utf8};

/// What a component must export, for people: one of these.
const WANTED: &str = "hostler:handler/message-handler@1 or hostler:handler/batch-handler@1";

/// Bytes of a name that a component gives to something of its own.
const NAME_MAX: usize = 256;

/// Why a file is not run as a handler: what was found, what was wanted, what to do.
///
/// The messages do not name the file: the caller knows it.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file can't be read.
    #[error("can't be read: {0}")]
    Read(#[from] io::Error),

    /// The file is larger than allowed.
    #[error(
        "is {size} bytes, more than the limit of {limit} bytes for a component (limit `component`)"
    )]
    FileTooLarge {
        /// Bytes of the file.
        size: u64,
        /// Bytes allowed.
        limit: u64,
    },

    /// The file is no WebAssembly.
    #[error(
        "is not WebAssembly: it starts with {found}, a component with `00 61 73 6d 0d 00 01 00`"
    )]
    NotWasm {
        /// How the file starts, for people.
        found: String,
    },

    /// The file is a core module.
    #[error(
        "is a core WebAssembly module, not a component; build for wasm32-wasip2, or wrap it with \
         `wasm-tools component new`"
    )]
    CoreModule,

    /// The file is code that wasmtime has compiled already.
    #[error("is precompiled code (.cwasm), which is never loaded; give the .wasm it was made from")]
    Precompiled,

    /// The file ends too early.
    #[error(
        "is truncated: a section ends at byte {wanted}, the file at byte {size}; copy it again"
    )]
    Truncated {
        /// Where the section that is cut off would end.
        wanted: u64,
        /// Bytes of the file.
        size: u64,
    },

    /// The file is no valid component, or uses what this host does not offer.
    #[error("is not a valid component: {detail}")]
    Invalid {
        /// What the validator says.
        detail: String,
    },

    /// Compiling takes too long.
    #[error(
        "did not compile within {limit:?} (limit `compile_time`); raise the limit, or make it \
         smaller"
    )]
    CompileTime {
        /// How long it may take.
        limit: Duration,
    },

    /// Compiling takes too much memory.
    #[error(
        "takes more than {limit} bytes of memory to compile (limit `compile_memory`); raise the \
         limit, or make it smaller"
    )]
    CompileMemory {
        /// Bytes of address space that the compiler may have.
        limit: u64,
    },

    /// Its compiled code is far larger than a component of its size makes.
    #[error("compiles to more than {limit} bytes of code; make its functions smaller")]
    CodeTooLarge {
        /// Bytes of code that a component of this size may have.
        limit: u64,
    },

    /// The compiler did not survive it.
    #[error("can't be compiled: the compiler ended with {detail}")]
    CompilerCrashed {
        /// How it ended, and its last words.
        detail: String,
    },

    /// The component exports no interface of a handler.
    #[error(
        "exports no handler: found {}, wanted {}; build it against hostler's WIT, world `handler` or `batch`",
        list(.found), WANTED
    )]
    NoHandler {
        /// What it exports.
        found: Vec<String>,
    },

    /// The component exports a handler of another major version only.
    #[error(
        "exports {}, wanted {}; rebuild it against this host's WIT, or use the host it was made for",
        list(.found), WANTED
    )]
    OtherVersion {
        /// The handler interfaces it exports.
        found: Vec<String>,
    },

    /// The component exports more than one handler.
    #[error("exports more than one handler: {}; export exactly one", list(.found))]
    Ambiguous {
        /// The handler interfaces it exports.
        found: Vec<String>,
    },

    /// The component's export has not the type that its name promises.
    #[error(
        "exports {export} with another type than this host's: {detail}; rebuild it against hostler's WIT"
    )]
    WrongType {
        /// The function.
        export: String,
        /// What differs.
        detail: String,
    },

    /// The component imports what it may not have.
    #[error("imports what it is not granted: {}", list(.imports))]
    NotGranted {
        /// Every such import.
        imports: Vec<Import>,
    },

    /// An import is there, but not as the component wants it.
    #[error(
        "imports what this host has in another form: {detail}; rebuild it against hostler's WIT"
    )]
    WrongImport {
        /// What differs.
        detail: String,
    },

    /// One instance needs more than the limits allow.
    #[error("needs {needs} {what}, the limit is {limit} (limit `{setting}`)")]
    NeedsMore {
        /// Of what, with its unit.
        what: &'static str,
        /// What an instance needs at its start.
        needs: u64,
        /// What the limits allow.
        limit: u64,
        /// The limit to raise.
        setting: &'static str,
    },

    /// An instance of it takes more of the host beside its memories and tables than any may.
    #[error("an instance takes more than any may: {detail}")]
    TooMuch {
        /// What, in wasmtime's words.
        detail: String,
    },

    /// No instance could be made of it within the limits.
    #[error("does not start: {0}")]
    Start(Fault),

    /// The sandbox itself could not be made on this machine.
    #[error("can't be run here: {detail}")]
    Engine {
        /// What failed.
        detail: String,
    },
}

/// What wasmtime says about a component, for people. The component chooses some of the words: they are
/// harmless, and bounded.
pub(super) fn said(error: &wasmtime::Error) -> String {
    let mut text = printable(&format!("{error:#}"));
    truncate_utf8(&mut text, DETAIL_MAX);
    text
}

/// A name of the component's choice, for people.
pub(super) fn named(name: &str) -> String {
    let mut text = printable(name);
    truncate_utf8(&mut text, NAME_MAX);
    text
}

fn list<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return "nothing".to_owned();
    }
    // A component may have thousands of exports: the message stays readable.
    const SHOWN: usize = 16;
    let mut text = items
        .iter()
        .take(SHOWN)
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ");
    if items.len() > SHOWN {
        text.push_str(&format!(" and {} more", items.len() - SHOWN));
    }
    text
}
