//! Pure: how messages look in Redis. Stream fields, frames, envelopes, dead-letter records.
//!
//! - [`stream`]: a stream entry's fields.
//! - [`list`]: a list's or channel's value: [`frame`], [`envelope`] or raw.
//! - [`codec`]: what a body must parse as.
//! - [`decoded`]: what reading yields.
//! - [`delayed`]: what waits for its time beside a queue.
//! - [`keys`]: the names of the keys that belong to a queue.
//! - [`dead_letter`]: what a dead letter looks like, and which headers the host owns.
//! - [`death`]: the header `x-death`.
//! - [`line`]: a message as one line of JSON, for export and publish.

use bytes::Bytes;

pub mod codec;
pub mod dead_letter;
pub mod death;
pub mod decoded;
pub mod delayed;
pub mod entry_id;
pub mod envelope;
pub mod frame;
pub mod keys;
pub mod line;
pub mod list;
pub mod stream;

/// A message as it stands in Redis, byte for byte: what copies are made of. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Raw {
    /// A stream entry's fields, in order.
    Fields(Vec<(Bytes, Bytes)>),
    /// A list's or channel's value.
    Value(Bytes),
}
