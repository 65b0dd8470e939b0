//! What publishing a message writes, by a command or by the script that acknowledges. And what
//! else that script writes.

use std::time::Duration;

use bytes::Bytes;

use super::destination::{Channel, Destination, List};
use super::error::Error;
use crate::delivery::effect::Outlet;
use crate::delivery::key_value::{Seen, Written};
use crate::delivery::message::Headers;
use crate::delivery::millis::millis_up;
use crate::wire::list::{self, Codec};
use crate::wire::{delayed, keys, stream};

/// A write.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::queue) enum Write {
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
    /// Write it later, by way of an outbox that may hold so many.
    Outbox {
        key: String,
        max: u64,
        write: Box<Self>,
    },
    /// Set or delete a value.
    Value { key: String, written: Written },
    /// Write nothing at all unless the key still has this value.
    Expect { key: String, seen: Seen },
}

/// A message to hold until it is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(in crate::queue) struct Later {
    /// The sorted set of delayed messages of its queue.
    pub(in crate::queue) key: String,
    pub(in crate::queue) delay_ms: u64,
    /// Its member of the set.
    pub(in crate::queue) member: Bytes,
}

impl Later {
    /// Hold this member for the queue of this key.
    pub(in crate::queue) fn new(key: &str, delay: Duration, member: Bytes) -> Self {
        Self {
            key: keys::delayed(key),
            delay_ms: millis_up(delay).max(1),
            member,
        }
    }
}

impl Write {
    /// The key that it writes or reads; a channel is none.
    pub(in crate::queue) fn key(&self) -> Option<&str> {
        match self {
            Self::Append { key, .. }
            | Self::Push { key, .. }
            | Self::Outbox { key, .. }
            | Self::Value { key, .. }
            | Self::Expect { key, .. } => Some(key),
            Self::Later(later) => Some(&later.key),
            Self::Announce { .. } => None,
        }
    }

    /// Its bytes.
    pub(in crate::queue) fn size(&self) -> usize {
        match self {
            Self::Append { fields, .. } => fields.iter().map(|(n, v)| n.len() + v.len()).sum(),
            Self::Push { value, .. } | Self::Announce { value, .. } => value.len(),
            Self::Later(later) => later.member.len(),
            Self::Outbox { write, .. } => write.size(),
            Self::Value { key, written } => {
                key.len() + written.value.as_ref().map_or(0, Bytes::len)
            }
            // The script reads a value and hashes it.
            Self::Expect { key, seen } => key.len() + seen.value.as_ref().map_or(0, |(n, _)| *n),
        }
    }

    /// Whether it changes something.
    pub(in crate::queue) fn changes(&self) -> bool {
        !matches!(self, Self::Expect { .. })
    }
}

impl Destination {
    /// Whether its messages carry headers, and so ids.
    pub(in crate::queue) fn takes_headers(&self) -> bool {
        match self {
            Self::Stream(_) => true,
            Self::List(List { codec, .. }) | Self::Channel(Channel { codec, .. }) => {
                *codec != Codec::Raw
            }
        }
    }

    /// Which messages a handler may publish here.
    pub fn outlet(&self) -> Outlet {
        Outlet {
            takes_delays: self.takes_delays().is_ok(),
            takes_headers: self.takes_headers(),
        }
    }

    /// The write that publishes a message at once.
    pub(in crate::queue) fn write_now(
        &self,
        headers: &Headers,
        body: &Bytes,
    ) -> Result<Write, Error> {
        Ok(match self {
            Self::Stream(to) => Write::Append {
                key: to.key.clone(),
                fields: stream::encode(body.clone(), headers, &to.body_field),
            },
            Self::List(to) => Write::Push {
                key: to.key.clone(),
                value: list::encode(headers, body, to.codec)?,
            },
            Self::Channel(to) => Write::Announce {
                channel: to.name.clone(),
                sharded: to.sharded,
                value: list::encode(headers, body, to.codec)?,
            },
        })
    }

    /// The write that holds a message until it is due. The token distinguishes equal messages.
    pub(in crate::queue) fn write_later(
        &self,
        headers: &Headers,
        body: &Bytes,
        delay: Duration,
        token: [u8; delayed::TOKEN_LEN],
    ) -> Result<Later, Error> {
        self.takes_delays()?;
        let (key, member) = match self {
            Self::Stream(to) => {
                let fields = stream::encode(body.clone(), headers, &to.body_field);
                (&to.key, delayed::fields(token, &fields)?)
            }
            Self::List(List { key, codec, .. })
            | Self::Channel(Channel {
                name: key, codec, ..
            }) => {
                // A delayed message carries its id, so a raw value is framed: hosts know that, also on a
                // list of raw values.
                let codec = match codec {
                    Codec::Raw => Codec::Frame,
                    Codec::Frame | Codec::Json => *codec,
                };
                (
                    key,
                    delayed::value(token, &list::encode(headers, body, codec)?),
                )
            }
        };
        Ok(Later::new(key, delay, member))
    }
}
