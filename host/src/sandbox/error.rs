//! The reasons to refuse a file as a handler.

use std::io;
use std::time::Duration;

use hostler_components::Refusal;

use crate::delivery::outcome::Fault;
use crate::grants::{Import, Need};

/// The interfaces that a component may export, for error messages.
const EXPECTED: &str = "hostler:handler/message-handler@1 or hostler:handler/batch-handler@1, or of other hosts \
     fermyon:spin/inbound-redis, fermyon:spin-sqs@2 or wasmcloud:messaging/handler@0.2, or of programs wasi:cli/run@0.2";

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

    /// It is no component that this host takes.
    #[error(transparent)]
    Refused(#[from] Refusal),

    /// The component is not valid, or uses a feature that this host does not have: the message of the validator.
    #[error("is not a valid component: {0}")]
    Invalid(String),

    /// Compiling takes longer than this.
    #[error(
        "did not compile within {0:?} (limit `compile_time`); raise the limit, or make the \
         component smaller"
    )]
    CompileTime(Duration),

    /// Compiling takes more than this number of bytes of address space.
    #[error(
        "takes more than {0} bytes of memory to compile (limit `compile_memory`); raise the \
         limit, or make the component smaller"
    )]
    CompileMemory(u64),

    /// The compiled code has more bytes than a component of this size may have.
    #[error("compiles to more than {0} bytes of code; make its functions smaller")]
    CodeTooLarge(u64),

    /// The compiler crashed: the exit status and the last line of stderr.
    #[error("can't be compiled: the compiler ended with {0}")]
    CompilerCrashed(String),

    /// The compiler panicked, with this message.
    #[error(
        "can't be compiled: the compiler failed: {0}; the component uses something that this version of \
         wasmtime does not handle: build it without that, or with other tools"
    )]
    CompilerPanicked(String),

    /// The process that made a trial instance crashed: the exit status and the last line of stderr.
    #[error("can't be tried: the process that made an instance ended with {0}")]
    TrialCrashed(String),

    /// The component exports these, and no handler interface.
    #[error(
        "exports no handler: found {}, expected {}; build it against hostler's WIT, world `handler` or `batch`",
        list(.0), EXPECTED
    )]
    NoHandler(Vec<String>),

    /// The component holds messages, or answers to their producers, by this interface, and its queue keeps none.
    #[error(
        "imports {0}, and this queue is at most once: serve a stream or a list with `reliable = true`"
    )]
    Holds(String),

    /// A program cannot be run as the settings say: the setting, and what to do.
    #[error("is a program, and {0}")]
    Program(String),

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

    /// The component exports more than one handler interface: these.
    #[error("exports more than one handler: {}; export exactly one", list(.0))]
    Ambiguous(Vec<String>),

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

    /// The component imports these interfaces, which it is not granted.
    #[error("imports interfaces that it is not granted: {}{}", list(.0), remedy(.0))]
    NotGranted(Vec<Import>),

    /// The handler takes batches, and a grant belongs to single messages: which one, and the remedy.
    #[error("takes batches, but {0}")]
    Batch(String),

    /// An import has another type on this host: the difference.
    #[error("imports an interface of another type: {0}; rebuild it against hostler's WIT")]
    WrongImport(String),

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

    /// An instance needs too much memory of the host beside its memories and tables: the message of wasmtime.
    #[error("an instance is too large: {0}")]
    InstanceTooLarge(String),

    /// No instance could be made within the limits.
    #[error("does not start: {0}")]
    Start(Fault),

    /// The sandbox could not be made on this machine, for this cause.
    #[error("can't be run here: {0}")]
    Engine(String),
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
