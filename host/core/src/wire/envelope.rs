//! The readable envelope of list and Pub/Sub values, for queues with `codec = "json"`.
//!
//! `{"headers":{"name":"text"},"payload":"text"}`. A value that is not UTF-8 is an array of byte
//! numbers. The order of headers and repeated headers are kept.

use std::fmt;

use bytes::Bytes;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::delivery::message::Headers;
use crate::wire::frame::Error;

/// Write an envelope.
pub fn encode(headers: &Headers, payload: &[u8]) -> Result<Bytes, Error> {
    if let Some(index) = headers
        .iter()
        .position(|(name, _)| std::str::from_utf8(name).is_err())
    {
        return Err(Error::Name(index));
    }
    let envelope = Written {
        headers: Pairs(headers),
        payload: Text(payload),
    };
    Ok(serde_json::to_vec(&envelope)
        .expect("text, bytes and maps with text keys are always JSON")
        .into())
}

/// Read an envelope. Returns `None` if the value is not an envelope.
///
/// This is strict on purpose. A value with other keys is a payload that looks like an envelope. If
/// it were read as an envelope, the next copy would lose these keys.
pub fn decode(value: &[u8]) -> Option<(Headers, Bytes)> {
    let read: Read = serde_json::from_slice(value).ok()?;
    Some((Headers::new(read.headers.0), read.payload.0))
}

#[derive(Serialize)]
struct Written<'a> {
    headers: Pairs<'a>,
    payload: Text<'a>,
}

struct Pairs<'a>(&'a Headers);

impl Serialize for Pairs<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let pairs = self.0.iter();
        serializer.collect_map(pairs.map(|(name, value)| (Text(name), Text(value))))
    }
}

struct Text<'a>(&'a [u8]);

impl Serialize for Text<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => self.0.serialize(serializer),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(default)]
    headers: ReadPairs,
    payload: ReadText,
}

#[derive(Default)]
struct ReadPairs(Vec<(Bytes, Bytes)>);

impl<'de> Deserialize<'de> for ReadPairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PairsVisitor;
        impl<'de> Visitor<'de> for PairsVisitor {
            type Value = ReadPairs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with text values")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<ReadPairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, ReadText>()? {
                    pairs.push((name.into(), value.0));
                }
                Ok(ReadPairs(pairs))
            }
        }
        deserializer.deserialize_map(PairsVisitor)
    }
}

struct ReadText(Bytes);

impl<'de> Deserialize<'de> for ReadText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;
        impl<'de> Visitor<'de> for TextVisitor {
            type Value = ReadText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text or an array of byte numbers")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<ReadText, E> {
                Ok(ReadText(Bytes::copy_from_slice(text.as_bytes())))
            }

            fn visit_string<E: serde::de::Error>(self, text: String) -> Result<ReadText, E> {
                Ok(ReadText(text.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<ReadText, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = seq.next_element::<u64>()? {
                    bytes.push(u8::try_from(byte).map_err(A::Error::custom)?);
                }
                Ok(ReadText(bytes.into()))
            }
        }
        deserializer.deserialize_any(TextVisitor)
    }
}

#[cfg(test)]
mod tests;
