//! Messages that wait until they are due.

use std::time::Duration;

use bytes::Bytes;

use super::destination::{Channel, Destination, List};
use super::error::Error;
use hostler_core::delivery::message::Headers;
use hostler_core::delivery::millis::millis_up;
use hostler_core::wire::list::{self, Codec};
use hostler_core::wire::{delayed, keys, stream};

/// A message to hold until it is due.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Later {
    /// The sorted set of delayed messages of its queue.
    pub key: String,
    /// How long from now on.
    pub delay_ms: u64,
    /// Its member of the set.
    pub member: Bytes,
}

impl Later {
    /// Hold this member for the queue of this key.
    pub(crate) fn new(key: &str, delay: Duration, member: Bytes) -> Self {
        Self {
            key: keys::delayed(key),
            delay_ms: millis_up(delay).max(1),
            member,
        }
    }
}

impl Destination {
    /// The write that holds a message until it is due. The token distinguishes equal messages.
    pub fn write_later(
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
