//! How a record of a journal is written: how many bytes it takes, whether it is an answer, then a frame.

use std::collections::BTreeMap;

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::frame;
use crate::delivery::journal::{Content, Record, Stored};
use crate::delivery::message::Headers;

/// The field of a stream entry that holds records of its message: those of an earlier entry, which died. No handler sees it. A
/// later field counts more than one before it.
pub const FIELD: &[u8] = b"_journal";

/// Digits of the number of bytes that a record takes.
const DIGITS: usize = 8;
const INTENT: u8 = b'i';
const ANSWER: u8 = b'a';
/// What stands in front of a frame.
const HEAD: usize = DIGITS + 1;
/// Before the name of a header of a response.
const OF_RESPONSE: &[u8] = b":";

/// Write a record, which takes `reserved` bytes at least: room for its answer.
///
/// # Errors
/// It is too large for a frame.
pub fn encode(record: &Record, reserved: usize) -> Result<Bytes, frame::Error> {
    let mut headers: Vec<(Bytes, Bytes)> = Vec::new();
    let mut add = |name: &'static str, value: &str| {
        if !value.is_empty() {
            let value = Bytes::copy_from_slice(value.as_bytes());
            headers.push((Bytes::from_static(name.as_bytes()), value));
        }
    };
    add("name", &record.name);
    add("rule", &record.rule);
    add("key", &record.key);
    add("nth", &record.nth.to_string());
    add("at", &record.at_ms.to_string());
    let payload = match &record.content {
        Content::Intent => &Bytes::new(),
        Content::TooLarge(max) => {
            add("too-large", &max.to_string());
            &Bytes::new()
        }
        Content::Value(value) => {
            add("value", "1");
            value
        }
        Content::Response {
            status,
            headers: of_response,
            body,
        } => {
            add("status", &status.to_string());
            for (name, value) in of_response {
                headers.push(([OF_RESPONSE, name].concat().into(), value.clone()));
            }
            body
        }
    };
    let framed = frame::encode(&Headers::new(headers), payload)?;
    let size = (HEAD + framed.len()).max(reserved);
    let mut written = BytesMut::with_capacity(HEAD + framed.len());
    written.put_slice(format!("{size:0DIGITS$}").as_bytes());
    written.put_u8(match record.content.is_answer() {
        true => ANSWER,
        false => INTENT,
    });
    written.put_slice(&framed);
    Ok(written.freeze())
}

/// How many bytes a record takes, as it says.
pub fn size(bytes: &[u8]) -> usize {
    let digits = bytes.get(..DIGITS).and_then(|d| str::from_utf8(d).ok());
    digits.and_then(|d| d.parse().ok()).unwrap_or(bytes.len())
}

/// Read a record. `None`: it is of another form.
pub fn decode(number: u32, bytes: &Bytes) -> Option<Stored> {
    let kind = *bytes.get(DIGITS)?;
    let (headers, payload) = frame::decode(&bytes.slice(HEAD..))?;
    let text = |name: &str| {
        let value = headers.iter().find(|(n, _)| n == name.as_bytes());
        value.and_then(|(_, value)| str::from_utf8(value).ok())
    };
    let content = match kind {
        INTENT => Content::Intent,
        ANSWER => match (text("status"), text("too-large")) {
            (Some(status), _) => Content::Response {
                status: status.parse().ok()?,
                headers: headers
                    .iter()
                    .filter(|(name, _)| name.starts_with(OF_RESPONSE))
                    .map(|(name, value)| (name.slice(OF_RESPONSE.len()..), value.clone()))
                    .collect(),
                body: payload,
            },
            (None, Some(max)) => Content::TooLarge(max.parse().ok()?),
            (None, None) => Content::Value(payload),
        },
        _ => return None,
    };
    let owned = |name| text(name).unwrap_or_default().to_owned();
    let record = Record {
        name: owned("name"),
        rule: owned("rule"),
        nth: text("nth").and_then(|nth| nth.parse().ok()).unwrap_or(0),
        key: owned("key"),
        at_ms: text("at").and_then(|at| at.parse().ok()).unwrap_or(0),
        content,
    };
    Some(Stored {
        number,
        record,
        bytes: bytes.clone(),
    })
}

/// The records that an entry with these fields holds, by number.
pub fn carried(fields: &[(Bytes, Bytes)]) -> BTreeMap<u32, Bytes> {
    let texts = fields.iter().filter(|(name, _)| name == FIELD);
    texts.flat_map(|(_, text)| records(text)).collect()
}

/// The records of such a text, by number.
pub fn records(text: &Bytes) -> BTreeMap<u32, Bytes> {
    let (mut records, mut rest) = (BTreeMap::new(), text.clone());
    while rest.len() >= 8 {
        let (number, size) = (rest.get_u32(), rest.get_u32() as usize);
        if size > rest.len() {
            break;
        }
        records.insert(number, rest.split_to(size));
    }
    records
}

/// The text of such a field.
pub fn text(records: &BTreeMap<u32, Bytes>) -> Bytes {
    let mut text = BytesMut::new();
    for (number, record) in records {
        text.put_u32(*number);
        text.put_u32(u32::try_from(record.len()).unwrap_or(u32::MAX));
        text.put_slice(record);
    }
    text.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_it_was_written() {
        let pair = |name: &str, value: &'static [u8]| {
            let name = Bytes::copy_from_slice(name.as_bytes());
            (name, Bytes::from_static(value))
        };
        for content in [
            Content::Intent,
            Content::TooLarge(7),
            Content::Value(Bytes::from_static(b"\0\xff")),
            Content::Response {
                status: 201,
                headers: vec![pair("name", b"x"), pair("x", b""), pair("x", b"\xff")],
                body: Bytes::from_static(b"paid"),
            },
        ] {
            let record = Record {
                name: "POST a.test/x 12".to_owned(),
                rule: "api".to_owned(),
                nth: 2,
                key: String::new(),
                at_ms: 1_700_000_000_000,
                content,
            };
            let written = encode(&record, 0).unwrap();
            assert_eq!(size(&written), written.len());
            assert_eq!(decode(3, &written).unwrap().record, record);
            assert_eq!(size(&encode(&record, 4096).unwrap()), 4096);
        }
        for other in ["", "00000009", "00000009a", "00000009x\0\0\0\0", "junk"] {
            assert_eq!(decode(1, &Bytes::from(other)), None, "{other}");
        }
    }

    #[test]
    fn an_entry_carries_records_and_a_later_field_counts_more() {
        let record = |text: &'static str| Bytes::from_static(text.as_bytes());
        let first = BTreeMap::from([(1, record("a")), (2, record("b"))]);
        let second = BTreeMap::from([(2, record("c")), (7, record(""))]);
        let field = |records| (Bytes::from_static(FIELD), text(records));
        let mut fields = vec![
            field(&first),
            (record("_payload"), record("x")),
            field(&second),
        ];
        let wanted = BTreeMap::from([(1, record("a")), (2, record("c")), (7, record(""))]);
        assert_eq!(carried(&fields), wanted);
        // A record that is cut off is left out.
        fields[2].1.truncate(9);
        assert_eq!(carried(&fields)[&2], record("c"));
        fields[2].1.truncate(8);
        assert_eq!(carried(&fields), first);
    }
}
