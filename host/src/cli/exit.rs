//! How the process ends. Exit codes are a public interface.

use std::fmt;
use std::process::ExitCode;

use crate::config::{self, Problem};
use crate::dead_letter;
use crate::host::{self, Ended, StopSignal};
use crate::policies;
use crate::policy_change::Refusal;
use crate::publish::{self, CancelError};
use crate::queue::startup::StartError;
use crate::redis::{Class, Error as RedisError};
use crate::telemetry::otlp;
use crate::workbench;

macro_rules! exits {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        /// The exit codes of hostler, as in `sysexits.h` where that defines one.
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        #[repr(u8)]
        pub enum Exit {
            $(#[doc = $meaning] $name = $code,)*
        }

        impl Exit {
            /// Every code with its meaning.
            pub const ALL: &[(Self, &str)] = &[$((Self::$name, $meaning)),*];
        }
    };
}

exits! {
    Ok = 0, "done; invoke, publish --wait: ack";
    Failed = 1, "test, demo: failed; trace, cancel: nothing found; dlq debug: it differs";
    CannotTell = 2, "dlq debug: the recording does not tell";
    NackRequeue = 10, "invoke: nack-requeue";
    Drop = 11, "invoke, publish --wait: drop";
    Fault = 12, "invoke: fault; publish --wait: given up for another reason than a drop";
    Usage = 64, "usage or configuration; a file is not there";
    Component = 65, "the component cannot be run; deploy --wait: a host refused it";
    Unavailable = 69, "Redis does not answer; deploy --wait: no host takes deploys";
    Bug = 70, "a bug of hostler";
    Io = 74, "a file could not be read or written";
    TimedOut = 75, "the time is over: for draining, deploy --wait or publish --wait";
    Interrupted = 130, "a second Ctrl-C";
    Terminated = 143, "a second SIGTERM";
}

/// The exit codes, for `--help`.
pub(super) fn table() -> String {
    let row = |(exit, meaning): &(Exit, &str)| format!("\n  {:>3}  {meaning}", *exit as u8);
    format!(
        "Exit codes:{}",
        Exit::ALL.iter().map(row).collect::<String>()
    )
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

    /// A file or a stream of this process could not be read or written. A missing file is a wrong name.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let exit = match error.kind() {
            std::io::ErrorKind::NotFound => Exit::Usage,
            _ => Exit::Io,
        };
        Self::new(exit, format_args!("{what}: {error}"))
    }
}

impl From<config::Error> for Failure {
    fn from(error: config::Error) -> Self {
        let text = |problem: Problem| (problem.to_string(), problem.hint);
        let mut details: Vec<_> = error.problems.into_iter().map(text).collect();
        if details.len() == 1
            && let Some((what, hint)) = details.pop()
        {
            return Self {
                hint,
                ..Self::new(Exit::Usage, what)
            };
        }
        let what = format!("the configuration has {} problems", details.len());
        Self {
            details,
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

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Self {
        let exit = match error.class() {
            Class::Reconnect | Class::Retry => Exit::Unavailable,
            Class::Missing | Class::Configuration => Exit::Usage,
        };
        Self {
            hint: error.hint(),
            ..Self::new(exit, error)
        }
    }
}

impl From<CancelError> for Failure {
    fn from(error: CancelError) -> Self {
        match error {
            CancelError::Redis(error) => error.into(),
            CancelError::Groups(_) => Self::new(Exit::Usage, error).hint("name it with `--group`"),
            error => Self::new(Exit::Usage, error),
        }
    }
}

impl From<policies::Error> for Failure {
    fn from(error: policies::Error) -> Self {
        match error {
            policies::Error::Redis(error) => error.into(),
            error => Self {
                hint: error.hint(),
                ..Self::new(Exit::Usage, error)
            },
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Wrong { what, hint } => Self {
                hint,
                ..Self::new(Exit::Usage, what)
            },
            Refusal::Settings(error) => error.into(),
            Refusal::Policies(error) => error.into(),
        }
    }
}

impl From<dead_letter::Error> for Failure {
    fn from(error: dead_letter::Error) -> Self {
        match error {
            dead_letter::Error::Redis(error) => error.into(),
            error @ dead_letter::Error::Served { .. } => Self::new(Exit::Usage, error).hint(
                "name the key of a dead-letter queue; `--even-if-served` goes on nevertheless",
            ),
            error => Self::new(Exit::Usage, error),
        }
    }
}

impl From<otlp::Error> for Failure {
    fn from(error: otlp::Error) -> Self {
        let exit = match &error {
            otlp::Error::Tls(_) => Exit::Usage,
            otlp::Error::Thread(_) => Exit::Io,
        };
        Self::new(exit, error)
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

impl From<publish::WaitError> for Failure {
    fn from(error: publish::WaitError) -> Self {
        use publish::WaitError;
        match error {
            WaitError::Publish(error) => error.into(),
            WaitError::Redis(error) => error.into(),
            error @ WaitError::TimedOut { .. } => Self::new(Exit::TimedOut, error)
                .hint("it stays in its queue, and may be handled later"),
            error @ WaitError::NoAnswers(_) => Self::new(Exit::Usage, error)
                .hint("publish to a stream, or give `--reliable` if hosts read the list so"),
            error => Self::new(Exit::Usage, error),
        }
    }
}

impl From<workbench::Error> for Failure {
    fn from(error: workbench::Error) -> Self {
        use workbench::Error;
        let what = error.to_string();
        match error {
            Error::Host(error) => error.into(),
            Error::Redis(error) => error.into(),
            Error::DeadLetters(error) => error.into(),
            Error::Publish(_) => Self::new(Exit::Unavailable, what),
            Error::File { source, .. } => Self {
                what,
                ..Self::io("", &source)
            },
            Error::Usage { details, hint, .. } => Self {
                details: details.into_iter().map(|problem| (problem, None)).collect(),
                hint,
                ..Self::new(Exit::Usage, what)
            },
            Error::Handler { hint, .. } => Self::new(Exit::Component, what).hint(hint),
            Error::Step(_) => Self::new(Exit::Failed, what),
            Error::Bug(_) => Self::new(Exit::Bug, what),
        }
    }
}
