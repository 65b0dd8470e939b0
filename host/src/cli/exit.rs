//! How the process ends: exit codes are an interface.

use std::fmt;
use std::process::ExitCode;

use crate::config;
use crate::config::Problem;

/// The exit codes of hostler, after `sysexits.h` where that has a word for it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// It did what it was asked.
    Ok = 0,
    /// `test`: the handler did not do what a case expects.
    Failed = 1,
    /// `invoke`: the handler wants the message again.
    NackRequeue = 10,
    /// `invoke`: the handler never wants the message again.
    Drop = 11,
    /// `invoke`: the handler did not answer.
    Fault = 12,
    /// The command line or the configuration is wrong, or the queue is not what it must be.
    Usage = 64,
    /// The component cannot be run.
    Component = 65,
    /// Redis was not there at the start, or went away during a command that does one thing.
    Unavailable = 69,
    /// A mistake of hostler's own.
    Bug = 70,
    /// A file or a stream of this process could not be read or written.
    Io = 74,
    /// The time for draining, or for `--until-empty`, was over.
    TimedOut = 75,
    /// A second Ctrl-C.
    Interrupted = 130,
    /// A second SIGTERM.
    Terminated = 143,
}

impl Exit {
    /// Every code with what it means, for the documentation.
    pub const ALL: [(Self, &'static str); 13] = [
        (Self::Ok, "done; invoke: ack"),
        (Self::Failed, "test: a case failed"),
        (Self::NackRequeue, "invoke: nack-requeue"),
        (Self::Drop, "invoke: drop"),
        (Self::Fault, "invoke: fault"),
        (Self::Usage, "usage or configuration"),
        (Self::Component, "the component cannot be run"),
        (Self::Unavailable, "Redis is not there"),
        (Self::Bug, "a bug of hostler"),
        (Self::Io, "a file could not be read or written"),
        (Self::TimedOut, "the time for draining was over"),
        (Self::Interrupted, "a second Ctrl-C"),
        (Self::Terminated, "a second SIGTERM"),
    ];
}

/// The codes as `--help` shows them.
pub(super) fn table() -> String {
    let rows = Exit::ALL.map(|(exit, meaning)| format!("  {:>3}  {meaning}", exit as u8));
    format!("Exit codes:\n{}", rows.join("\n"))
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command did not do what it was asked: told once, in the end.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong: one line, a fragment.
    pub what: String,
    /// More than one thing is wrong: each with its own hint.
    pub details: Vec<(String, Option<String>)>,
    /// What to do.
    pub hint: Option<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(exit: Exit, what: impl fmt::Display) -> Self {
        Self {
            exit,
            what: what.to_string(),
            details: Vec::new(),
            hint: None,
        }
    }

    /// With what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Reading or writing something of this process failed.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Self::new(Exit::Io, format_args!("{what}: {error}"))
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        let mut problems = error.problems;
        if problems.len() == 1
            && let Some(Problem { hint, .. }) = problems.last()
        {
            let hint = hint.clone();
            let what = problems.remove(0).to_string();
            return Self {
                hint,
                ..Self::new(Exit::Usage, what)
            };
        }
        let what = format!("the configuration has {} problems", problems.len());
        let details = problems.into_iter().map(|p| (p.to_string(), p.hint));
        Self {
            details: details.collect(),
            ..Self::new(Exit::Usage, what)
        }
    }
}
