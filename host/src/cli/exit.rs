//! How the process ends: exit codes are an interface.

use std::fmt;
use std::process::ExitCode;

use crate::config;
use crate::config::Problem;
use crate::delivery::declared::declared;

declared! {
    /// The exit codes of hostler, after `sysexits.h` where that has a word for it.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Exit (/// The code.
                   code -> u8) {
        /// done; invoke: ack
        Ok = 0,
        /// test: a case failed
        Failed = 1,
        /// invoke: nack-requeue
        NackRequeue = 10,
        /// invoke: drop
        Drop = 11,
        /// invoke: fault
        Fault = 12,
        /// usage, configuration, or a queue of the wrong kind
        Usage = 64,
        /// the component cannot be run
        Component = 65,
        /// Redis does not answer: at the start, or during a command other than `run`
        Unavailable = 69,
        /// a bug of hostler
        Bug = 70,
        /// a file or a stream of this process cannot be read or written
        Io = 74,
        /// the time for draining, or for `--until-empty`, is over
        TimedOut = 75,
        /// a second Ctrl-C
        Interrupted = 130,
        /// a second SIGTERM
        Terminated = 143,
    }
}

/// The codes as `--help` shows them.
pub(super) fn table() -> String {
    let rows = Exit::ALL.map(|exit| format!("  {:>3}  {}", exit.code(), exit.meaning()));
    format!("Exit codes:\n{}", rows.join("\n"))
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command failed. It is printed once, at the end.
#[derive(Debug)]
pub struct Failure {
    /// The exit code.
    pub exit: Exit,
    /// The problem: one line, a fragment.
    pub what: String,
    /// Several problems, each with its own hint.
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

    /// Adds a hint.
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
