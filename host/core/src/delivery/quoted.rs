//! Bytes in JSON: as text where they are UTF-8, else as `{"base64":"..."}`.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Text, or bytes as `{"base64":"..."}`.
#[derive(Clone, Debug)]
pub struct Text(pub Bytes);

/// Bytes in Base64.
#[derive(Debug)]
pub struct Base64(pub Bytes);

/// Bytes as a [`Text`].
pub mod as_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{Bytes, Text};

    /// Write them.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        Text(bytes.clone()).serialize(serializer)
    }

    /// Read them.
    ///
    /// # Errors
    /// It is neither text, nor an object with `base64`.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        Text::deserialize(deserializer).map(|text| text.0)
    }
}

/// Names with values, in order.
#[derive(Clone, Debug)]
pub struct Pairs(pub Vec<(Bytes, Bytes)>);

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.collect_map([("base64", STANDARD.encode(&self.0))]),
        }
    }
}

impl Serialize for Pairs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let texts = |(n, v): &(Bytes, Bytes)| (Text(n.clone()), Text(v.clone()));
        serializer.collect_seq(self.0.iter().map(texts))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = STANDARD.decode(text);
        bytes
            .map(|bytes| Self(bytes.into()))
            .map_err(|_| D::Error::custom("not base64"))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "text, or an object with `base64`")]
        enum Shape {
            Text(String),
            Bytes(HashMap<String, Base64>),
        }
        match Shape::deserialize(deserializer)? {
            Shape::Text(text) => Ok(Self(text.into())),
            Shape::Bytes(mut map) if map.len() == 1 => match map.remove("base64") {
                Some(Base64(bytes)) => Ok(Self(bytes)),
                None => Err(D::Error::custom("an object without `base64`")),
            },
            Shape::Bytes(_) => Err(D::Error::custom("an object with more than `base64`")),
        }
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Pairs;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array of [name, value] pairs, or an object")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = seq.next_element::<(Text, Text)>()? {
                    pairs.push((name.0, value.0));
                }
                Ok(Pairs(pairs))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Pairs, A::Error> {
                let mut pairs = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, Text>()? {
                    pairs.push((name.into(), value.0));
                }
                Ok(Pairs(pairs))
            }
        }

        deserializer.deserialize_any(Either)
    }
}
