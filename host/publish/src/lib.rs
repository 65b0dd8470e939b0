//! Publishing for queues of hostler from a Rust service, without the command line and without the host.
//!
//! A producer can use any Redis client (`docs/producers.md`). `hostler publish` itself uses this crate:
//! headers, delays, expiry, and thousands of messages per round trip in bounded memory.
//!
//! ```no_run
#![doc = include_str!("example.rs")]
//! ```
//!
//! A message is published at least once if the caller repeats after a failure: after an error of class
//! [`redis::Class::Reconnect`] it may be published or not. With an `x-message-id` of your own, its
//! handler can recognize a repeat.

pub mod cancel;
mod destination;
mod error;
mod inbox;
mod later;
mod outgoing;
mod publisher;
mod receipt;
pub mod scripts;

use hostler_redis::connection::Connector;
use hostler_redis::target::{PasswordSource, Target, TargetError, TlsFiles};

pub use cancel::{CancelError, Cancelled, Canceller, Verdict};
pub use destination::{Channel, Destination, List, Stream};
pub use error::{DELAY_MAX, Error, Incomplete, TTL_MAX};
pub use hostler_core::delivery::reply::{Answer, Status};
pub use hostler_core::wire::list::Codec;
pub use hostler_core::wire::parts::{part, part_of};
/// The connections that a [`Publisher`] is made of, and their errors.
pub use hostler_redis as redis;
pub use inbox::{AWAITED_MAX, Awaited, Inbox, WaitError};
pub use later::Later;
pub use outgoing::Outgoing;
pub use publisher::{BATCH_BYTES, BATCH_MESSAGES, Batch, Publisher};
pub use receipt::Receipt;

/// Why there is no publisher.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URL is wrong.
    #[error(transparent)]
    Url(#[from] TargetError),
    /// The server cannot be reached, or refuses the login.
    #[error(transparent)]
    Redis(#[from] hostler_redis::Error),
}

/// A publisher to one destination of the server at `url`: `redis://`, `rediss://` or `unix://`, as
/// for `--redis`. For certificates of your own, or a password in a file, see [`Publisher::new`].
///
/// # Errors
/// [`ConnectError`]; neither shows a password.
pub async fn connect(url: &str, to: impl Into<Destination>) -> Result<Publisher, ConnectError> {
    let target = Target::parse(url, PasswordSource::Url, TlsFiles::default())?;
    let publisher = Publisher::new(&Connector::new(target, "hostler-publish"), to);
    publisher.reach().await?;
    Ok(publisher)
}
