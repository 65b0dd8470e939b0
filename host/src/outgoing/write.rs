//! What the script that acknowledges writes: the messages that are published, and values.

use bytes::Bytes;

use crate::delivery::key_value::{Seen, Written};
use crate::delivery::message::Headers;
use crate::publish::{Destination, Error, Later};
use crate::wire::{list, stream};

/// A write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Write {
    /// Append an entry to a stream.
    Append {
        key: String,
        fields: Vec<(Bytes, Bytes)>,
    },
    /// Push a value to the left of a list.
    Push { key: String, value: Bytes },
    /// Send a value to the subscribers of a channel.
    Announce {
        channel: String,
        sharded: bool,
        value: Bytes,
    },
    /// Hold a message until it is due.
    Later(Later),
    /// Write it later, by way of an outbox that may hold `max` entries.
    Outbox {
        key: String,
        max: u64,
        write: Box<Self>,
    },
    /// Set or delete a value.
    Value { key: String, written: Written },
    /// Answer to a producer that waits ([`crate::wire::reply::pack`]). `is_reply`: a handler has acknowledged the message;
    /// `is_small`: it has no value of the handler.
    Answer {
        packed: Bytes,
        is_reply: bool,
        is_small: bool,
    },
    /// Write nothing at all unless the key still has this value.
    Expect { key: String, seen: Seen },
}

impl Write {
    /// The write that publishes a message at once.
    pub(crate) fn now(to: &Destination, headers: &Headers, body: &Bytes) -> Result<Self, Error> {
        Ok(match to {
            Destination::Stream(to) => Self::Append {
                key: to.key.clone(),
                fields: stream::encode(body.clone(), headers, &to.body_field),
            },
            Destination::List(to) => Self::Push {
                key: to.key.clone(),
                value: list::encode(headers, body, to.codec)?,
            },
            Destination::Channel(to) => Self::Announce {
                channel: to.name.clone(),
                sharded: to.sharded,
                value: list::encode(headers, body, to.codec)?,
            },
        })
    }

    /// The key that it writes or reads; a channel has no key.
    pub(crate) fn key(&self) -> Option<&str> {
        match self {
            Self::Append { key, .. }
            | Self::Push { key, .. }
            | Self::Outbox { key, .. }
            | Self::Value { key, .. }
            | Self::Expect { key, .. } => Some(key),
            Self::Later(later) => Some(&later.key),
            // An inbox is in the slot of the queue, and is not among the keys of a call.
            Self::Announce { .. } | Self::Answer { .. } => None,
        }
    }

    /// Its bytes.
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Append { fields, .. } => fields.iter().map(|(n, v)| n.len() + v.len()).sum(),
            Self::Push { value, .. } | Self::Announce { value, .. } => value.len(),
            Self::Later(later) => later.member.len(),
            Self::Answer { packed, .. } => packed.len(),
            Self::Outbox { write, .. } => write.size(),
            Self::Value { key, written } => {
                key.len() + written.value.as_ref().map_or(0, Bytes::len)
            }
            // The script reads a value and hashes it.
            Self::Expect { key, seen } => key.len() + seen.value.as_ref().map_or(0, |(n, _)| *n),
        }
    }

    /// Whether it takes memory worth mentioning. An answer without a value takes less than the message that goes: a full
    /// server is drained.
    pub(crate) fn grows(&self) -> bool {
        !matches!(
            self,
            Self::Expect { .. } | Self::Answer { is_small: true, .. }
        )
    }
}
