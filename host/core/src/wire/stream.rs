//! A stream entry's fields: the body in one field, each header in a field `h:<name>`.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;

use crate::delivery::message::Headers;
pub use crate::wire::decoded::{Decoded, Malformed};

/// The default field for the body.
pub const BODY_FIELD: &str = "_payload";

/// The prefix of a header's field.
pub const HEADER_PREFIX: &[u8] = b"h:";

/// The most bytes of a field's name that a detail shows.
const SHOWN_NAME_MAX: usize = 64;

/// How entries are read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// The field that holds the body; by default [`BODY_FIELD`].
    pub body_field: Bytes,
    /// The meaning of an entry without that field.
    pub missing_body: MissingBody,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            body_field: Bytes::from_static(BODY_FIELD.as_bytes()),
            missing_body: MissingBody::default(),
        }
    }
}

/// The meaning of an entry without a body field.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MissingBody {
    /// The fields are the body, as a JSON object of strings, in order and without headers.
    #[default]
    Json,
    /// The entry is malformed.
    Malformed,
}

/// Read an entry. This never fails: any fields give a message, perhaps a defective one.
///
/// The headers `redis-delivery-count` and `redis-idle-ms` are not read from the entry: only the
/// host may set them on a delivery. Bodies and headers share the memory of `fields`.
pub fn decode(
    queue: &Arc<str>,
    entry_id: &str,
    enqueued_ms: u64,
    fields: &[(Bytes, Bytes)],
    options: &Options,
) -> Decoded {
    let mut bodies = fields.iter();
    let body = match bodies.find(|(name, _)| *name == options.body_field) {
        Some((_, body)) => Ok(body.clone()),
        None => match options.missing_body {
            MissingBody::Json => json_body(fields).map(Bytes::from),
            MissingBody::Malformed => Err(Malformed::new(format!(
                "the entry has no field `{}`",
                shown(&options.body_field)
            ))),
        },
    };
    Decoded::new(queue, entry_id, enqueued_ms, headers(fields), body)
}

/// The fields of a new entry: the body, then the headers in their order.
pub fn encode(body: Bytes, headers: &Headers, body_field: &Bytes) -> Vec<(Bytes, Bytes)> {
    let mut fields = Vec::with_capacity(1 + headers.len());
    fields.push((body_field.clone(), body));
    fields.extend(
        headers
            .iter()
            .map(|(name, value)| header_field(name, value.clone())),
    );
    fields
}

/// The field of one header.
pub fn header_field(name: &[u8], value: Bytes) -> (Bytes, Bytes) {
    ([HEADER_PREFIX, name].concat().into(), value)
}

/// The name of the header in a field of this name. Returns `None` if the field is not a header.
pub fn header_name(field: &[u8]) -> Option<&[u8]> {
    field.strip_prefix(HEADER_PREFIX)
}

/// The headers of an entry, in their order.
pub fn headers(fields: &[(Bytes, Bytes)]) -> Headers {
    Headers::new(
        fields
            .iter()
            .filter(|(name, _)| header_name(name).is_some())
            .map(|(name, value)| (name.slice(HEADER_PREFIX.len()..), value.clone()))
            .collect(),
    )
}

/// The fields as a JSON object of strings, in order and without headers.
fn json_body(fields: &[(Bytes, Bytes)]) -> Result<String, Malformed> {
    let is_own =
        |(name, _): &&(Bytes, Bytes)| header_name(name).is_none() && name != super::journal::FIELD;
    let own = || fields.iter().filter(is_own);
    let mut names: Vec<&[u8]> = own().map(|(name, _)| name.as_ref()).collect();
    names.sort_unstable();
    if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Malformed::new(format!(
            "the entry has no body field, and its field `{}` is repeated",
            shown(pair[0])
        )));
    }
    let text = |name: &[u8], bytes, part| {
        std::str::from_utf8(bytes).map_err(|_| {
            Malformed::new(format!(
                "the entry has no body field, and the {part} of its field `{}` is not UTF-8",
                shown(name)
            ))
        })
    };
    let mut json = String::from("{");
    for (name, value) in own() {
        if json.len() > 1 {
            json.push(',');
        }
        push_json(&mut json, text(name, name, "name")?);
        json.push(':');
        push_json(&mut json, text(name, value, "value")?);
    }
    json.push('}');
    Ok(json)
}

/// Append a JSON string.
pub(super) fn push_json(json: &mut String, text: &str) {
    json.push_str(&serde_json::Value::from(text).to_string());
}

/// A field's name for people: bytes that are not UTF-8 are replaced, a long name is cut, and
/// control characters are escaped.
fn shown(name: &[u8]) -> String {
    let cut = &name[..name.len().min(SHOWN_NAME_MAX)];
    let text: Cow<'_, str> = String::from_utf8_lossy(cut);
    let dots = if cut.len() < name.len() { "..." } else { "" };
    format!("{}{dots}", text.escape_debug())
}

#[cfg(test)]
mod tests;
