//! How the process ends. Exit codes are a public interface.

use std::fmt;
use std::process::ExitCode;

use crate::config::{self, Problem};
use crate::dead_letter;
use crate::host::{self, Ended, StopSignal};
use crate::publish;
use crate::redis::startup::StartError;
use crate::redis::{self, Class};

/// The exit codes of hostler, as in `sysexits.h` where that defines one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Exit {
    /// The command did its work.
    Ok = 0,
    /// `test`: the handler did not do what a case expects.
    Failed = 1,
    /// `invoke`: the handler answered `nack-requeue`.
    NackRequeue = 10,
    /// `invoke`: the handler answered `drop`.
    Drop = 11,
    /// `invoke`: the handler did not answer.
    Fault = 12,
    /// The command line or the configuration is wrong, or the queue is not what it must be.
    Usage = 64,
    /// The component cannot be run.
    Component = 65,
    /// Redis did not answer at the start, or during a command that runs once.
    Unavailable = 69,
    /// A bug of hostler.
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
        (Self::Unavailable, "Redis does not answer"),
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

impl From<StopSignal> for Exit {
    fn from(signal: StopSignal) -> Self {
        match signal {
            StopSignal::Interrupt => Self::Interrupted,
            StopSignal::Terminate => Self::Terminated,
        }
    }
}

impl From<Ended> for Exit {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Done => Self::Ok,
            Ended::TimedOut => Self::TimedOut,
            Ended::Forced(signal) => signal.into(),
        }
    }
}

/// Why a command failed: printed once, at the end.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// What is wrong: one line, a fragment.
    pub what: String,
    /// The problems, if there are several: each with its own hint.
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

    /// Add what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// A file or a stream of this process could not be read or written.
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

impl From<host::Error> for Failure {
    fn from(error: host::Error) -> Self {
        let exit = match error.class() {
            host::Class::Usage => Exit::Usage,
            host::Class::Component => Exit::Component,
            host::Class::Unavailable => Exit::Unavailable,
            host::Class::System => Exit::Io,
            host::Class::Bug => Exit::Bug,
        };
        Self {
            hint: error.hint(),
            ..Self::new(exit, error)
        }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        host::Error::from(error).into()
    }
}

impl From<redis::Error> for Failure {
    fn from(error: redis::Error) -> Self {
        match error.class() {
            Class::Reconnect | Class::Retry => Self::new(Exit::Unavailable, error)
                .hint("start Redis, correct the URL, or try again later"),
            Class::Missing => {
                Self::new(Exit::Usage, error).hint("is the name right? has a host ever run on it?")
            }
            Class::Configuration => Self::new(Exit::Usage, error),
        }
    }
}

impl From<dead_letter::Error> for Failure {
    fn from(error: dead_letter::Error) -> Self {
        match error {
            dead_letter::Error::Redis(error) => error.into(),
            error => Self::new(Exit::Usage, error),
        }
    }
}

impl From<publish::Error> for Failure {
    fn from(error: publish::Error) -> Self {
        match error {
            publish::Error::Redis(error) => error.into(),
            error => Self::new(Exit::Usage, error),
        }
    }
}
