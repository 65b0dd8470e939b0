//! The reasons to refuse a file as a handler.

use std::io;
use std::time::Duration;

use super::grants::{Import, Need};
use crate::delivery::outcome::Fault;
use crate::delivery::text::{DETAIL_MAX, printable, truncate_utf8};

/// The interfaces that a component may export, for error messages.
const EXPECTED: &str = "hostler:handler/message-handler@1 or hostler:handler/batch-handler@1, or of other hosts \
     fermyon:spin/inbound-redis, fermyon:spin-sqs@2 or wasmcloud:messaging/handler@0.2, or of programs wasi:cli/run@0.2";

/// Bytes of a name from a component.
const NAME_MAX: usize = 256;

/// A file was refused as a handler. The messages do not name the file: the caller adds it.
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

    /// The file is not WebAssembly.
    #[error(
        "is not WebAssembly: it starts with {found}; a component starts with `00 61 73 6d 0d 00 01 00`"
    )]
    NotWasm {
        /// The first bytes, for people.
        found: String,
    },

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

    /// The component is not valid, or uses a feature that this host does not have.
    #[error("is not a valid component: {detail}")]
    Invalid {
        /// The validator's message.
        detail: String,
    },

    /// Compiling takes too long.
    #[error(
        "did not compile within {limit:?} (limit `compile_time`); raise the limit, or make the \
         component smaller"
    )]
    CompileTime {
        /// The time limit.
        limit: Duration,
    },

    /// Compiling takes too much memory.
    #[error(
        "takes more than {limit} bytes of memory to compile (limit `compile_memory`); raise the \
         limit, or make the component smaller"
    )]
    CompileMemory {
        /// Bytes of address space for the compiler.
        limit: u64,
    },

    /// The compiled code is too large for the size of the component.
    #[error("compiles to more than {limit} bytes of code; make its functions smaller")]
    CodeTooLarge {
        /// Bytes of code for a component of this size.
        limit: u64,
    },

    /// The compiler crashed.
    #[error("can't be compiled: the compiler ended with {detail}")]
    CompilerCrashed {
        /// The exit status and the last line of stderr.
        detail: String,
    },

    /// The compiler panicked.
    #[error(
        "can't be compiled: the compiler failed: {detail}; the component uses something that this version of \
         wasmtime does not handle: build it without that, or with other tools"
    )]
    CompilerPanicked {
        /// The message of the panic.
        detail: String,
    },

    /// The process that made a trial instance crashed.
    #[error("can't be tried: the process that made an instance ended with {detail}")]
    TrialCrashed {
        /// The exit status and the last line of stderr.
        detail: String,
    },

    /// The component does not export a handler interface.
    #[error(
        "exports no handler: found {}, expected {}; build it against hostler's WIT, world `handler` or `batch`",
        list(.found), EXPECTED
    )]
    NoHandler {
        /// The exports.
        found: Vec<String>,
    },

    /// A program cannot be run as the settings say.
    #[error("is a program, and {detail}")]
    Program {
        /// The setting, and what to do.
        detail: String,
    },

    /// The component exports a handler interface of another major version.
    #[error(
        "exports {found}, expected {expected}; rebuild it against that version, or use the host it was made for"
    )]
    OtherVersion {
        /// The handler interface it exports.
        found: String,
        /// The same one, in the version that this host has.
        expected: String,
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

    /// The component exports more than one handler interface.
    #[error("exports more than one handler: {}; export exactly one", list(.found))]
    Ambiguous {
        /// The handler interfaces it exports.
        found: Vec<String>,
    },

    /// The handler's function has another type than its name promises.
    #[error(
        "exports {export} with another type than this host's: {detail}; rebuild it against {host}'s WIT"
    )]
    WrongType {
        /// The function.
        export: String,
        /// The difference.
        detail: String,
        /// Whose interface it is.
        host: &'static str,
    },

    /// The component imports interfaces that it is not granted.
    #[error("imports interfaces that it is not granted: {}{}", list(.imports), remedy(.imports))]
    NotGranted {
        /// The imports without a grant.
        imports: Vec<Import>,
    },

    /// The handler takes batches, and its grants belong to single messages.
    #[error("takes batches, but {detail}")]
    Batch {
        /// What belongs to a single message, and the remedy.
        detail: String,
    },

    /// An import has another type on this host.
    #[error("imports an interface of another type: {detail}; rebuild it against hostler's WIT")]
    WrongImport {
        /// The difference.
        detail: String,
    },

    /// An instance needs more than the limits allow.
    #[error("needs {needs} {what}, the limit is {limit} (limit `{setting}`)")]
    NeedsMore {
        /// The resource, with its unit.
        what: &'static str,
        /// The amount that an instance needs at its start.
        needs: u64,
        /// The amount that is allowed.
        limit: u64,
        /// The name of the limit.
        setting: &'static str,
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

    /// An instance needs too much memory of the host beside its memories and tables.
    #[error("an instance is too large: {detail}")]
    InstanceTooLarge {
        /// wasmtime's message.
        detail: String,
    },

    /// No instance could be made within the limits.
    #[error("does not start: {0}")]
    Start(Fault),

    /// The sandbox could not be made on this machine.
    #[error("can't be run here: {detail}")]
    Engine {
        /// The cause.
        detail: String,
    },
}

/// wasmtime's message, for people: bounded, and with control characters escaped, because a component
/// chooses parts of it.
pub(super) fn describe(error: &wasmtime::Error) -> String {
    let mut text = printable(&format!("{error:#}"));
    truncate_utf8(&mut text, DETAIL_MAX);
    text
}

/// A name from a component, for people: bounded and escaped.
pub(super) fn display_name(name: &str) -> String {
    let mut text = printable(name);
    truncate_utf8(&mut text, NAME_MAX);
    text
}

/// What grants these imports, in a queue's file.
pub(super) fn toml(imports: &[Import]) -> String {
    let mut tables: Vec<&str> = imports.iter().filter_map(Import::toml).collect();
    tables.dedup();
    tables.join("\n\n")
}

fn remedy(imports: &[Import]) -> String {
    let cannot = |import: &Import| import.need == Need::Unknown;
    if imports.iter().any(cannot) {
        return "; build it without the imports that this host does not have".to_owned();
    }
    format!("; write in the file of the queue:\n\n{}\n", toml(imports))
}

fn list<T: ToString>(items: &[T]) -> String {
    if items.is_empty() {
        return "nothing".to_owned();
    }
    // A component may have thousands of exports.
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
