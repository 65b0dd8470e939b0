//! Errors of publishing.

use std::fmt;
use std::time::Duration;

use super::receipt::Receipt;
use hostler_core::wire::{delayed, frame, list};
use hostler_redis::Error as RedisError;

/// The longest delay of a message that is published.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// The longest time to live of a list.
pub const TTL_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 60 * 60);

/// Why a message was not published, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be written in the destination's codec: nothing was sent.
    #[error("the message cannot be written: {0}")]
    Message(#[from] list::Error),
    /// It is the fields of a stream entry, and the destination is not a stream: nothing was sent.
    #[error("the message is the fields of a stream entry: only a stream can hold it")]
    Fields,
    /// A message there cannot have a delay, for this reason; and what to do. Nothing was sent.
    #[error("the message cannot have a delay: {0}")]
    Delay(&'static str),
    /// Its delay is longer than [`DELAY_MAX`]: nothing was sent.
    #[error("the delay is longer than {}", humantime::format_duration(DELAY_MAX))]
    DelayTooLong,
    /// The time to live of the list is longer than [`TTL_MAX`]: nothing was sent.
    #[error("the time to live of the list is longer than 100 years")]
    TtlTooLong,
    /// The destination is no longer configured: nothing was sent.
    #[error("the destination is not granted any more: put it back into `grant.publish`")]
    NoOutlet,
    /// It would expire before it is due: nothing was sent.
    #[error("the message would expire before it is due: let it live longer than its delay")]
    NeverHandled,
    /// It cannot be written for later: nothing was sent.
    #[error("the message cannot be delayed: {0}")]
    Unwritable(#[from] delayed::Error),
    /// Redis refused it, or its answer was lost.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

impl From<frame::Error> for Error {
    fn from(error: frame::Error) -> Self {
        Self::Message(error.into())
    }
}

/// Some messages were published, and some were not or may not have been.
#[derive(Debug, thiserror::Error)]
pub struct Incomplete {
    /// The receipts of the messages before the first failure, in order.
    pub receipts: Vec<Receipt>,
    /// How many messages behind the first failure were published: they were in the same round trip,
    /// and Redis refused only some of it.
    pub taken_behind: usize,
    /// How many messages were sent without an answer: they may have been published or not.
    pub in_doubt: usize,
    /// The first failure.
    #[source]
    pub error: Error,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "published {}, then: {}", self.receipts.len(), self.error)?;
        if self.taken_behind > 0 {
            write!(f, "; {} behind it were published", self.taken_behind)?;
        }
        if self.in_doubt > 0 {
            write!(f, "; {} may have been published or not", self.in_doubt)?;
        }
        Ok(())
    }
}
