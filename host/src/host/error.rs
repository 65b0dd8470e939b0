//! Why a host does not start.

use std::io;
use std::path::{Path, PathBuf};

use crate::admin;
use crate::embedded;
use crate::queue::startup::StartError;
use crate::redis::target::TargetError;
use crate::rollout::verify::Refusal;
use crate::sandbox::LoadError;

/// Why a host does not start. The text says what is wrong; [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Redis cannot be reached, or the queue is not what it must be.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The embedded server did not start.
    #[error(transparent)]
    Embedded(#[from] embedded::Error),
    /// The embedded server has an address that cannot be used.
    #[error(transparent)]
    EmbeddedUrl(TargetError),
    /// The admin server cannot listen.
    #[error(transparent)]
    Admin(#[from] admin::Error),
    /// A grant cannot be given: a file that it names cannot be read.
    #[error("the grants cannot be given: {0}")]
    Grants(String),
    /// A schedule cannot be written: its body cannot be read.
    #[error("the schedules cannot be written: {0}")]
    Schedule(String),
    /// The handler's file cannot be read.
    #[error("{} {what}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// The handler's file cannot be run as a handler.
    #[error("{} {what}", path.display())]
    Component {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The handler's file is not the version that is pinned.
    #[error("{} is {found}, but `handler_digest` accepts only {pinned}", path.display())]
    Digest {
        /// The file.
        path: PathBuf,
        /// Its digest.
        found: String,
        /// The digest that is accepted.
        pinned: String,
    },
    /// The handler failed a self-test of the configuration.
    #[error("{}: {refusal}", path.display())]
    SelfTest {
        /// The file.
        path: PathBuf,
        /// Which test, and how.
        refusal: Refusal,
    },
    /// The process may not open as many descriptors as it may need.
    #[error(
        "this process may open {allowed} files and sockets, and may need {needed}: {concurrency} attempts \
         (`concurrency`) hold {each} each at most, and the rules of `[[grant.http]]` {connections} connections"
    )]
    Descriptors {
        /// The attempts that run at a time.
        concurrency: usize,
        /// What each holds at most.
        each: usize,
        /// The connections of all rules.
        connections: usize,
        /// What the process needs at most.
        needed: u64,
        /// What the process may open.
        allowed: u64,
    },
    /// The system refused something that the process needs.
    #[error("{what}: {source}")]
    System {
        /// What failed.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
}

/// Whose mistake an [`Error`] is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// The command line or the configuration is wrong, or the queue is not what it must be.
    Usage,
    /// The component cannot be run.
    Component,
    /// Redis does not answer.
    Unavailable,
    /// A file or another resource of this machine cannot be used.
    System,
    /// A bug of hostler.
    Bug,
}

impl Error {
    /// Whose mistake it is.
    pub fn class(&self) -> Class {
        match self {
            Self::Start(error) if error.may_pass() => Class::Unavailable,
            Self::Start(_)
            | Self::Admin(_)
            | Self::Grants(_)
            | Self::Schedule(_)
            | Self::Unreadable { .. } => Class::Usage,
            Self::Embedded(_) => Class::Unavailable,
            Self::EmbeddedUrl(_) => Class::Bug,
            Self::Component { .. } | Self::Digest { .. } | Self::SelfTest { .. } => {
                Class::Component
            }
            Self::Descriptors { .. } | Self::System { .. } => Class::System,
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Start(error) => return error.hint(),
            Self::Embedded(error) => return error.hint(),
            Self::Component { hint, .. } => return hint.clone(),
            Self::Admin(_) => "give another `--admin`",
            Self::Digest { .. } => "deploy that version, or change the pin",
            Self::SelfTest { .. } => "correct the handler, or its `[[selftest]]`",
            Self::Descriptors { .. } => {
                "raise the limit (`ulimit -n`, `LimitNOFILE=`), or lower `concurrency` or `limit.handles`"
            }
            Self::EmbeddedUrl(_)
            | Self::Grants(_)
            | Self::Schedule(_)
            | Self::Unreadable { .. }
            | Self::System { .. } => return None,
        };
        Some(hint.to_owned())
    }

    /// The system refused this.
    pub(super) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |source| Self::System { what, source }
    }

    /// The file at `path` is not loaded.
    pub(super) fn load(path: &Path, error: &LoadError) -> Self {
        let (path, text) = (path.to_owned(), error.to_string());
        match error {
            // It can be read, and is a directory, a pipe or a device.
            LoadError::Read(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory
                ) => {}
            LoadError::Read(_) => return Self::Unreadable { path, what: text },
            _ => {}
        }
        // The text of a load error ends in `; remedy`, where there is one.
        let (what, hint) = match text.rsplit_once("; ") {
            Some((what, remedy)) => (what.to_owned(), Some(remedy.to_owned())),
            None => (text, None),
        };
        Self::Component { path, what, hint }
    }
}
