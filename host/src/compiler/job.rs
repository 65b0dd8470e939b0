//! What parent and child say to each other.
//!
//! The parent writes a line of JSON, the [`Job`], then its input, and closes the pipe. The child answers
//! with a line of JSON, the [`Head`], and perhaps bytes.

use hostler_components::snapshot::WithoutSnapshot;
use serde::{Deserialize, Serialize};

use crate::grants::configuration::rules::Values;
use crate::sandbox::limits::Limits;
use crate::sandbox::settings::{Allocation, Settings};

/// Bytes of a job: more than a configuration file with values, all escaped.
pub(super) const JOB_MAX: u64 = 16 << 20;

/// Bytes of the head of an answer, and of an error text on stderr.
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
    /// As in [`Settings`].
    #[serde(default)]
    pub(super) lines: bool,
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
            lines: settings.lines,
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

/// The head of an answer: a line of JSON.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Head {
    pub(super) answer: Answer,
    /// The bytes that follow.
    pub(super) bytes: u64,
    /// Why the rights of the child could not be taken away.
    pub(super) unconfined: Option<String>,
}

/// An answer. Texts are for people.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    /// The code follows.
    Code,
    /// The component is invalid, for this reason.
    Invalid(String),
    /// The memory limit was reached.
    Memory,
    /// The engine could not be made, for this reason.
    Engine(String),
    /// The compiler panicked, with this message.
    Panicked(String),
    Verdict(Verdict),
    /// A component follows that begins after the start, which has this number of instructions.
    Snapshot(u64),
    WithoutSnapshot(WithoutSnapshot),
    #[cfg(feature = "fault-points")]
    Report(String),
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
