//! The formats of messages in Redis: stream fields, frames, envelopes, dead-letter records. This
//! module is pure: it does no I/O.
//!
//! - [`stream`]: a stream entry's fields; [`entry_id`]: its id.
//! - [`list`]: a list's or channel's value: [`frame`], [`envelope`] or raw.
//! - [`codec`]: the codecs that bodies must parse as.
//! - [`decoded`]: the result of reading.
//! - [`delayed`]: delayed messages of a queue.
//! - [`keys`]: the names of the keys that belong to a queue.
//! - [`dead_letter`]: the content of a dead letter, and the headers that the host owns.
//! - [`death`]: the header `x-death`.
//! - [`held`]: how often a message was held.
//! - [`journal`]: a record of a journal.
//! - [`line`]: a message as one line of JSON, for export and publish.
//! - [`reply`]: an answer in the inbox of a producer that waits.

use bytes::Bytes;

pub mod codec;
pub mod dead_letter;
pub mod death;
pub mod decoded;
pub mod delayed;
pub mod entry_id;
pub mod envelope;
pub mod frame;
pub mod held;
pub mod journal;
pub mod keys;
pub mod line;
pub mod list;
pub mod parts;
pub mod reply;
pub mod stream;

/// A message as it is in Redis, byte for byte. Copies are made from it. It is cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Raw {
    /// A stream entry's fields, in order.
    Fields(Vec<(Bytes, Bytes)>),
    /// A list's or channel's value.
    Value(Bytes),
}
