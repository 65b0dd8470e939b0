//! Everything that is wrong with a configuration, told at once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where a value comes from. The order is the precedence: what is greater wins.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// A policy in Redis: of one queue, or for all that a pattern names.
    Policy(Arc<str>),
    /// A line of the configuration file.
    File {
        /// The file.
        path: Arc<Path>,
        /// The line, 1-based.
        line: usize,
    },
    /// A variable of the environment.
    Variable(String),
    /// A flag of the command.
    Flag(String),
}

impl Source {
    /// Whether somebody set it.
    pub fn is_explicit(&self) -> bool {
        *self != Self::Default
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Policy(target) => write!(f, "policy:{target}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Variable(name) => f.write_str(name),
            Self::Flag(flag) => f.write_str(flag),
        }
    }
}

/// One thing that is wrong, or looks wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
    /// Where it stands, if it stands somewhere.
    pub source: Option<Source>,
    /// What it is.
    pub kind: ProblemKind,
    /// What to do about it, if that is known.
    pub hint: Option<String>,
}

/// What is wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProblemKind {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// The file is no TOML.
    #[error("{message}")]
    Syntax {
        /// What the parser said.
        message: String,
    },
    /// No setting has this name.
    #[error("unknown {what} `{name}`")]
    Unknown {
        /// A key or a variable.
        what: &'static str,
        /// The name as it was written.
        name: String,
    },
    /// The value cannot be used.
    #[error("`{key}`: {what}")]
    Value {
        /// The setting.
        key: &'static str,
        /// Why not, without a secret.
        what: String,
    },
    /// Settings that do not go together, or one that is missing.
    #[error("{0}")]
    Conflict(String),
}

impl Problem {
    pub(crate) fn new(source: impl Into<Option<Source>>, kind: ProblemKind) -> Self {
        Self {
            source: source.into(),
            kind,
            hint: None,
        }
    }

    pub(crate) fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.source, &self.kind) {
            // The name of a flag or a variable says which setting is meant.
            (
                Some(source @ (Source::Flag(_) | Source::Variable(_))),
                ProblemKind::Value { what, .. },
            ) => write!(f, "{source}: {what}"),
            (Some(source), kind) => write!(f, "{source}: {kind}"),
            (None, kind) => kind.fmt(f),
        }
    }
}

/// A configuration that cannot be used: every problem, in the order of the settings.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Error {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl std::error::Error for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            problem.fmt(f)?;
        }
        Ok(())
    }
}
