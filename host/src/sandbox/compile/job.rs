//! What parent and child say to each other.
//!
//! The parent writes a line of JSON, the [`Job`], then its input, and closes the pipe. The child answers
//! with one byte for the kind ([`Answer`]), eight bytes for a length, and a text. Before its answer it
//! may send a note.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::sandbox::grants::Values;
use crate::sandbox::limits::Limits;
use crate::sandbox::settings::{Allocation, Settings};

/// Bytes of a job: more than a configuration file with values, all escaped.
pub(super) const JOB_MAX: u64 = 16 << 20;

/// Bytes of an error text, in an answer or on stderr.
pub(super) const ERROR_TEXT_MAX: u64 = 64 << 10;

/// Bytes of an error text that are shown.
pub(super) const ERROR_TEXT_SHOWN: usize = 1 << 10;

/// What the child does.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Task {
    /// Compile the component of the input.
    Compile,
    /// Run the start of the component of the input, and answer with a component that begins after it.
    Snapshot,
    /// Load the code of the input, make one instance, and measure both.
    Try,
    /// Report what the kernel lets this process do: for tests.
    #[cfg(feature = "fault-points")]
    Probe,
}

/// A task, with its settings and limits.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Job {
    pub(super) task: Task,
    /// The process id of the parent.
    pub(super) parent: i32,
    /// Seconds of CPU time of all threads.
    pub(super) cpu_seconds: u64,
    /// Work at a low priority.
    #[serde(default)]
    pub(super) background: bool,
    #[serde(default)]
    on_demand: bool,
    /// The values of `wasi:config`, for a trial only.
    #[serde(default)]
    pub(super) config: Option<Values>,
    #[serde(default)]
    pub(super) limits: Limits,
}

impl Job {
    pub(super) fn new(task: Task, settings: &Settings, allocation: Allocation, cores: u64) -> Self {
        let limits = &settings.limits;
        Self {
            task,
            parent: nix::unistd::getpid().as_raw(),
            // The deadline of the parent comes first; this ends a child whose parent is stopped.
            cpu_seconds: limits
                .compile_time
                .as_secs()
                .saturating_add(1)
                .saturating_mul(cores),
            background: settings.background,
            on_demand: allocation == Allocation::OnDemand,
            config: match task {
                Task::Try => settings.grants.config.clone(),
                _ => None,
            },
            limits: limits.clone(),
        }
    }

    pub(super) fn allocation(&self) -> Allocation {
        match self.on_demand {
            true => Allocation::OnDemand,
            false => Allocation::Auto,
        }
    }
}

/// The kind of an answer, or a note before it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// The text is the code.
    Code = b'c' as isize,
    /// The component is invalid; the text is the reason.
    Invalid = b'i' as isize,
    /// The memory limit was reached; the text is empty.
    Memory = b'm' as isize,
    /// The engine could not be made; the text is the reason.
    Engine = b'e' as isize,
    /// The compiler panicked; the text is its message.
    Panicked = b'p' as isize,
    /// The text is a [`Verdict`], as JSON.
    Verdict = b'v' as isize,
    /// The text is the number of instructions of the start, in 8 bytes, and a component that begins after it.
    Snapshot = b's' as isize,
    /// The child made no snapshot. The text is a [`WithoutSnapshot`], as JSON.
    WithoutSnapshot = b'w' as isize,
    /// A note: the rights of the process could not be taken away; the text is the reason.
    Unconfined = b'u' as isize,
}

impl Answer {
    pub(super) fn from_byte(byte: u8) -> Option<Self> {
        [
            Self::Code,
            Self::Invalid,
            Self::Memory,
            Self::Engine,
            Self::Panicked,
            Self::Verdict,
            Self::Snapshot,
            Self::WithoutSnapshot,
            Self::Unconfined,
        ]
        .into_iter()
        .find(|answer| *answer as u8 == byte)
    }

    pub(super) fn write(self, output: &mut impl Write, text: &[u8]) -> io::Result<()> {
        output.write_all(&[self as u8])?;
        output.write_all(&(text.len() as u64).to_be_bytes())?;
        output.write_all(text)?;
        output.flush()
    }
}

/// What a component takes. Memory is in bytes.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Taken {
    /// To load its code.
    pub(super) loaded: u64,
    /// An instance, beside its linear memories and tables.
    pub(super) memory: u64,
    pub(super) files: u64,
    pub(super) mappings: u64,
}

/// The result of a trial.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Verdict {
    /// An instance was made, and takes no more than the bounds.
    Good(Taken),
    /// It takes more; the text says of what.
    TooLarge(String),
    /// No instance could be made.
    Fails {
        /// The host panicked.
        panicked: bool,
        detail: String,
    },
    /// There is no room for an instance pool.
    NoPool(String),
    /// No instance was tried, for a reason that the parent finds too.
    Untried(String),
}

/// The reason why a child made no snapshot.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WithoutSnapshot {
    /// The start is short.
    Short,
    /// The text says what prevents it.
    Refused(String),
}
