//! Why the work of a command failed.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::dead_letter;
use crate::host;
use crate::publish;
use crate::queue::startup::StartError;
use crate::redis::Error as RedisError;

/// Why the work of a command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The component, the queue or a thread.
    #[error(transparent)]
    Host(#[from] host::Error),
    /// Redis.
    #[error(transparent)]
    Redis(#[from] RedisError),
    /// Not all messages were published.
    #[error(transparent)]
    Publish(#[from] publish::Incomplete),
    /// Dead letters.
    #[error(transparent)]
    DeadLetters(#[from] dead_letter::Error),
    /// A file could not be read or written.
    #[error("cannot {action} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The user asked for something that does not exist, or wrote it wrong.
    #[error("{what}")]
    Usage {
        /// What is wrong.
        what: String,
        /// The problems, if there are several.
        details: Vec<String>,
        /// What to do.
        hint: Option<String>,
    },
    /// The handler cannot be used for this.
    #[error("{what}")]
    Handler {
        /// What is wrong.
        what: String,
        /// What to do.
        hint: &'static str,
    },
    /// A step of a demo did not do what it shows.
    #[error("{0}")]
    Step(String),
    /// A bug of hostler.
    #[error("{0}")]
    Bug(String),
}

impl Error {
    pub(super) fn usage(what: impl fmt::Display) -> Self {
        Self::Usage {
            what: what.to_string(),
            details: Vec::new(),
            hint: None,
        }
    }

    pub(super) fn usage_with(what: impl fmt::Display, hint: impl Into<String>) -> Self {
        Self::Usage {
            what: what.to_string(),
            details: Vec::new(),
            hint: Some(hint.into()),
        }
    }

    pub(super) fn handler(what: impl fmt::Display, hint: &'static str) -> Self {
        let what = what.to_string();
        Self::Handler { what, hint }
    }

    pub(super) fn bug(what: impl fmt::Display) -> Self {
        Self::Bug(what.to_string())
    }

    /// A file that cannot be read.
    pub(super) fn unread(path: &Path) -> impl Fn(io::Error) -> Self {
        Self::file("read", path)
    }

    /// A file that cannot be written.
    pub(super) fn unwritten(path: &Path) -> impl Fn(io::Error) -> Self {
        Self::file("write", path)
    }

    fn file(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::File {
            action,
            path: path.clone(),
            source,
        }
    }
}

impl From<StartError> for Error {
    fn from(error: StartError) -> Self {
        Self::Host(error.into())
    }
}
