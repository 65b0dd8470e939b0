//! How hostler reads and writes the values of lists and channels.

use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::message::Headers;
use crate::wire::decoded::{Decoded, Malformed};
use crate::wire::{envelope, frame};

/// How values are read.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Framing {
    /// A frame, if the value is one; else the value is the payload.
    ///
    /// A raw payload that happens to be a valid frame is read as a frame. The shortest of such
    /// values begin with four zero bytes.
    #[default]
    Auto,
    /// A frame. Every other value is malformed.
    Frame,
    /// The value is the payload. Such values carry no headers.
    Raw,
    /// An envelope or a frame. Every other value is malformed.
    Json,
}

/// How values are written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Codec {
    /// The lossless binary frame.
    #[default]
    Frame,
    /// The readable envelope.
    Json,
    /// Only the payload. Headers are an error.
    Raw,
}

impl Framing {
    /// How hostler writes the values that this framing reads. A raw value becomes a frame when it
    /// must carry headers. It then lives in the side list, never in the queue.
    pub const fn codec(self) -> Codec {
        match self {
            Self::Auto | Self::Frame | Self::Raw => Codec::Frame,
            Self::Json => Codec::Json,
        }
    }
}

/// Why a value cannot be written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Error {
    /// The value does not fit into a frame or an envelope.
    #[error(transparent)]
    Frame(#[from] frame::Error),
    /// A raw value has no place for these headers (their number), or any.
    #[error("a raw value cannot carry its {0} headers")]
    Headers(usize),
}

/// Read a value. This never fails: any value gives a message, perhaps a defective one.
pub fn decode(
    queue: &Arc<str>,
    token: &str,
    enqueued_ms: u64,
    value: &Bytes,
    framing: Framing,
) -> Decoded {
    let (headers, body) = match parts(value, framing) {
        Some((headers, body)) => (headers, Ok(body)),
        None => (
            Headers::default(),
            Err(Malformed::new(match framing {
                Framing::Json => "the value is neither a JSON envelope nor a frame",
                Framing::Auto | Framing::Frame | Framing::Raw => "the value is not a frame",
            })),
        ),
    };
    Decoded::new(queue, token, enqueued_ms, headers, body)
}

/// The headers and payload of a value. Returns `None` if the value is malformed.
pub fn parts(value: &Bytes, framing: Framing) -> Option<(Headers, Bytes)> {
    match framing {
        Framing::Auto => frame::decode(value).or_else(|| Some((Headers::default(), value.clone()))),
        Framing::Frame => frame::decode(value),
        Framing::Raw => Some((Headers::default(), value.clone())),
        Framing::Json => envelope::decode(value).or_else(|| frame::decode(value)),
    }
}

/// Write a value.
pub fn encode(headers: &Headers, payload: &Bytes, codec: Codec) -> Result<Bytes, Error> {
    match codec {
        Codec::Frame => Ok(frame::encode(headers, payload)?),
        Codec::Json => Ok(envelope::encode(headers, payload)?),
        Codec::Raw if headers.is_empty() => Ok(payload.clone()),
        Codec::Raw => Err(Error::Headers(headers.len())),
    }
}

#[cfg(test)]
mod tests;
