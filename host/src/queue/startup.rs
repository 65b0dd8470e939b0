//! What is checked before the first message: everything that would fail later, named with its
//! remedy.

use super::error::Error;

/// Why a queue cannot be served. Each says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No server, or it does not answer.
    #[error(
        "cannot reach redis: {0}; start it, correct the url, or give it time with --wait-redis"
    )]
    Unreachable(#[source] Error),
    /// Redis refuses.
    #[error("redis refuses: {0}")]
    Refused(#[source] Error),
    /// A key holds something else.
    #[error("the key `{key}` holds a {found}, not a stream: choose another key, or delete it")]
    WrongType {
        /// The key.
        key: String,
        /// What it holds.
        found: String,
    },
}

impl StartError {
    /// What an error means while starting.
    pub(super) fn from_error(error: Error, key: &str) -> Self {
        match error {
            Error::Connection { .. } | Error::Deadline { .. } => Self::Unreachable(error),
            Error::Configuration { ref code, .. } if code == "WRONGTYPE" => Self::WrongType {
                key: key.to_owned(),
                found: "value of another type".to_owned(),
            },
            error => Self::Refused(error),
        }
    }
}
