//! The problems of a configuration, all of them at once.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// The source of a value. The order is the precedence: the greatest wins.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Source {
    /// It was not set.
    Default,
    /// A policy in Redis: for one queue, or for all queues that match a pattern.
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
    /// The same file, at this line.
    pub(super) fn at(mut self, at: Option<usize>) -> Self {
        if let (Self::File { line, .. }, Some(at)) = (&mut self, at) {
            *line = at;
        }
        self
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

/// One problem, or one warning.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Problem {
    /// Its place, if it has one.
    pub source: Option<Source>,
    /// Its kind.
    #[serde(rename = "what")]
    pub kind: ProblemKind,
    /// A hint, if there is one.
    pub hint: Option<String>,
}

/// The text.
impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The text.
impl Serialize for ProblemKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The kind of a problem.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ProblemKind {
    /// The file cannot be read.
    #[error("cannot read {}: {reason}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        reason: String,
    },
    /// The file is not TOML.
    #[error("{message}")]
    Syntax {
        /// The error of the parser.
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
        /// The reason, without a secret.
        what: String,
    },
    /// Settings that contradict each other, or a missing one.
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

    pub(super) fn unknown(
        source: impl Into<Option<Source>>,
        what: &'static str,
        name: String,
    ) -> Self {
        Self::new(source, ProblemKind::Unknown { what, name })
    }

    pub(crate) fn hint(mut self, hint: impl Into<Option<String>>) -> Self {
        self.hint = hint.into();
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.source, &self.kind) {
            // The name of a flag or a variable names the setting.
            (
                Some(source @ (Source::Flag(_) | Source::Variable(_))),
                ProblemKind::Value { what, .. },
            ) => write!(f, "{source}: {what}"),
            (Some(source), kind) => write!(f, "{source}: {kind}"),
            (None, kind) => kind.fmt(f),
        }
    }
}

/// A configuration that cannot be used, with every problem.
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
