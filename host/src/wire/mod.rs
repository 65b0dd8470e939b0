//! Pure: how messages look in Redis. Stream fields, frames, envelopes, dead-letter records.

use bytes::Bytes;

/// A message as it stands in Redis, byte for byte: what copies are made of. Cheap to clone.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Raw {
    /// A stream entry's fields, in order.
    Fields(Vec<(Bytes, Bytes)>),
    /// A list's or channel's value.
    Value(Bytes),
}
