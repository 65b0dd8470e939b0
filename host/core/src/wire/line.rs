//! A message as one line of JSON. `dlq export` writes it, and `publish --lines --json` reads it.
//!
//! `{"body":"text","headers":[["name","value"],...]}`. Text that is not UTF-8 is an object
//! `{"base64":"..."}`. Headers may also be an object. A stream entry that is not one body followed
//! by headers has `fields` instead: an array like `headers`, with every field in order. Lines of an
//! export also have `id` and `reason`, for people and tools; reading ignores them.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::delivery::message::Headers;
use crate::delivery::quoted::{Base64, Pairs, Text};
use crate::wire::stream;

/// The content of a line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Line {
    /// A body and headers, for any kind of queue.
    Message(Bytes, Headers),
    /// The fields of a stream entry that is not a body with headers.
    Fields(Vec<(Bytes, Bytes)>),
}

/// Why a line is not a message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The line is not JSON of this shape.
    #[error("not a message in JSON: {what} at column {column}")]
    Shape {
        /// What is wrong.
        what: String,
        /// Where, in bytes, counted from 1.
        column: usize,
    },
    /// The line has no content, or two contents.
    #[error(
        "not a message: it needs exactly one of `body`, `body_base64` and `fields`, and headers only with a body"
    )]
    Parts,
    /// A stream entry cannot be empty.
    #[error("not a message: its `fields` are empty, and a stream entry has at least one field")]
    Empty,
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        let what = error.to_string();
        // The reader of many lines knows better which one it is.
        let place = format!(" at line {line} column {column}");
        Self::Shape {
            what: what.strip_suffix(&place).unwrap_or(&what).to_owned(),
            column,
        }
    }
}

/// Read a line.
///
/// # Errors
/// [`Error`], with the position.
pub fn read(line: &[u8]) -> Result<Line, Error> {
    let read: Read = serde_json::from_slice(line)?;
    let body = match (read.body, read.body_base64) {
        (Some(body), None) => Some(body.0),
        (None, Some(Base64(body))) => Some(body),
        (None, None) => None,
        (Some(_), Some(_)) => return Err(Error::Parts),
    };
    match (body, read.headers, read.fields) {
        (Some(body), headers, None) => {
            let headers = headers.map_or_else(Vec::new, |pairs| pairs.0);
            Ok(Line::Message(body, Headers::new(headers)))
        }
        (None, None, Some(Pairs(fields))) if fields.is_empty() => Err(Error::Empty),
        (None, None, Some(Pairs(fields))) => Ok(Line::Fields(fields)),
        _ => Err(Error::Parts),
    }
}

/// The line of a stream entry, without the line end. If [`stream::encode`] would write these
/// fields, the line has a body and headers; else it has fields.
pub fn write(id: &str, reason: Option<&str>, fields: &[(Bytes, Bytes)]) -> String {
    let mut line = Written {
        id,
        reason,
        ..Written::default()
    };
    match fields.split_first() {
        Some(((name, body), rest))
            if *name == stream::BODY_FIELD
                && rest.iter().all(|(n, _)| stream::header_name(n).is_some()) =>
        {
            line.body = Some(Text(body.clone()));
            line.headers = Some(Pairs(stream::headers(rest).iter().cloned().collect()));
        }
        _ => line.fields = Some(Pairs(fields.to_vec())),
    }
    serde_json::to_string(&line).expect("texts are always JSON")
}

#[derive(Default, Serialize)]
struct Written<'a> {
    id: &'a str,
    reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<Text>,
    #[serde(skip_serializing_if = "Option::is_none")]
    headers: Option<Pairs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fields: Option<Pairs>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Read {
    #[serde(default, rename = "id")]
    _id: serde::de::IgnoredAny,
    #[serde(default, rename = "reason")]
    _reason: serde::de::IgnoredAny,
    body: Option<Text>,
    body_base64: Option<Base64>,
    headers: Option<Pairs>,
    fields: Option<Pairs>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes() -> impl Strategy<Value = Bytes> {
        prop_oneof![
            any::<Vec<u8>>().prop_map(Bytes::from),
            "\\PC*".prop_map(Bytes::from),
            Just(Bytes::from_static(b"_payload")),
            "h:[a-z\"\\n]*".prop_map(Bytes::from),
        ]
    }

    proptest! {
        #[test]
        fn every_entry_reads_back_complete(
            fields in prop::collection::vec((bytes(), bytes()), 1..6)
        ) {
            let line = write("1-1", Some("dropped"), &fields);
            prop_assert!(!line.contains('\n'));
            let back = match read(line.as_bytes()).unwrap() {
                Line::Fields(fields) => fields,
                Line::Message(body, headers) => {
                    stream::encode(body, &headers, &Bytes::from_static(b"_payload"))
                }
            };
            prop_assert_eq!(back, fields);
        }

        #[test]
        fn any_line_is_read_without_a_panic(line in any::<Vec<u8>>()) {
            drop(read(&line));
        }
    }

    #[test]
    fn lines_written_by_hand_are_read() {
        let message = |body: &'static str, headers: &[(&'static str, &'static str)]| {
            let headers = headers.iter().map(|(n, v)| ((*n).into(), (*v).into()));
            Line::Message(body.into(), Headers::new(headers.collect()))
        };
        for (line, expected) in [
            (r#"{"body":"hi"}"#, message("hi", &[])),
            (r#"{"body_base64":"aGk="}"#, message("hi", &[])),
            (
                r#"{"body":"","headers":{"b":"2","a":"1"}}"#,
                message("", &[("b", "2"), ("a", "1")]),
            ),
            (
                r#"{"id":"1-1","reason":null,"body":{"base64":"aGk="},"headers":[["a","1"],["a","2"]]}"#,
                message("hi", &[("a", "1"), ("a", "2")]),
            ),
        ] {
            assert_eq!(read(line.as_bytes()).unwrap(), expected, "{line}");
        }
        for wrong in [
            "",
            "hi",
            "{}",
            r#"{"boddy":"hi"}"#,
            r#"{"body":1}"#,
            r#"{"body":"a","body_base64":"YQ=="}"#,
            r#"{"body":"a","fields":[["a","b"]]}"#,
            r#"{"fields":[["a","b"]],"headers":[]}"#,
            r#"{"fields":[]}"#,
            r#"{"fields":[["a"]]}"#,
            r#"{"body":{"base64":"?"}}"#,
            r#"{"body":{"base64":"","more":""}}"#,
        ] {
            assert!(read(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
