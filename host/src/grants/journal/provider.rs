//! Where the records of one message are kept.

use std::fmt;

use async_trait::async_trait;
use bytes::Bytes;

use crate::delivery::journal::{Book, Stored};

/// What became of a record that was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wrote {
    /// It is written, or removed.
    Done,
    /// There is this one in its place.
    Known(Stored),
    /// The intent stays: another attempt has made the call as well.
    Shared,
    /// There is no record any more: the message has left its queue, or another host has removed it.
    Gone,
}

/// Why nothing is written. The texts are for the guest.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Refused {
    /// The journal has no room for it.
    #[error("{0}")]
    Full(String),
    /// Another host has the message by now.
    #[error("another host has the message by now")]
    Lost,
    /// The journal cannot be reached, or refuses.
    #[error("{0}")]
    Unavailable(String),
    /// The call to be recorded cannot be made: nothing has changed.
    #[error("{0}")]
    Failed(String),
    /// An earlier attempt may have made the call.
    #[error("an earlier attempt sent this request; its answer is not known")]
    Unknown,
}

/// A sum that is to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Increment<'a> {
    /// The number of the record.
    pub number: u32,
    /// The record, without the sum.
    pub record: &'a Bytes,
    /// The key in Redis, in the slot of the queue.
    pub key: &'a str,
    /// How much to add.
    pub delta: i64,
}

/// The journal of one message. A call that cannot be carried out now is tried again; the caller has a deadline.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// The journal, as it is now.
    async fn read(&self) -> Result<Book, Refused>;

    /// The time of the server, in epoch milliseconds.
    fn now_ms(&self) -> u64;

    /// Write the intent of this number, or find the record that has the number. `is_shared`: it is the intent of an earlier
    /// attempt, whose call is made again; from now on it is not removed.
    async fn intend(&self, number: u32, intent: &Bytes, is_shared: bool) -> Result<Wrote, Refused>;

    /// Whether it can add to keys.
    fn adds(&self) -> bool {
        true
    }

    /// Add to the number of a key, and record the sum, both or nothing; or find the record that has the number.
    async fn increment(&self, increment: Increment<'_>) -> Result<Wrote, Refused>;

    /// Write the answer in the place of an intent; `None` = remove the intent. It ends by itself after a while, if the journal
    /// cannot be reached.
    async fn answer(
        &self,
        number: u32,
        intent: &Bytes,
        answer: Option<&Bytes>,
    ) -> Result<Wrote, Refused>;
}
