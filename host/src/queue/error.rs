//! What can go wrong with Redis.

use std::time::Duration;

/// An operation on the queue failed as a whole; nothing is known about what it did.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection, or it broke, or a reply could not be read.
    #[error("redis at {target}: {detail}")]
    Connection {
        /// Host and port or socket path: never credentials.
        target: String,
        /// What happened.
        detail: String,
    },
    /// No answer within the deadline of the command.
    #[error("redis at {target} did not answer {command} within {}", humantime::format_duration(*.after))]
    Deadline {
        /// Host and port or socket path.
        target: String,
        /// The command.
        command: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// Redis answered with an error that stands for its state: it may pass
    /// (`LOADING`, `READONLY`, `MASTERDOWN`, `OOM`, `BUSY`, ...).
    #[error("redis refused {command}: {code} {detail}")]
    Unavailable {
        /// The command.
        command: &'static str,
        /// The error code: a bounded word.
        code: String,
        /// What Redis said, bounded.
        detail: String,
    },
    /// The stream or its group is gone.
    #[error("the stream `{key}` or its group `{group}` does not exist (anymore)")]
    Missing {
        /// The stream.
        key: String,
        /// The group.
        group: String,
    },
    /// A user without a right, a key of the wrong type, an option Redis does not know: somebody
    /// must change something.
    #[error("redis refused {command}: {code} {detail}")]
    Configuration {
        /// The command.
        command: &'static str,
        /// The error code: a bounded word.
        code: String,
        /// What Redis said, bounded.
        detail: String,
    },
    /// A reply of a shape that we do not know.
    #[error("redis answered {command} in a shape we do not know: {detail}")]
    Reply {
        /// The command.
        command: &'static str,
        /// What was found.
        detail: String,
    },
}

/// What a caller can do about an [`Error`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Class {
    /// The connection is gone: connect again, then ask again.
    Reconnect,
    /// Redis may change its mind: ask again after a while.
    Retry,
    /// The stream or group is gone: [`super::Queue::repair`].
    Missing,
    /// Somebody must change something; keep asking, slowly, and say so.
    Configuration,
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Connection { .. } | Self::Deadline { .. } => Class::Reconnect,
            Self::Unavailable { .. } => Class::Retry,
            Self::Missing { .. } => Class::Missing,
            Self::Configuration { .. } | Self::Reply { .. } => Class::Configuration,
        }
    }
}
