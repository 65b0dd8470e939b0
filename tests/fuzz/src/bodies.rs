//! What each target does with arbitrary bytes: read them as a message, and hold the promises
//! of the layout. A panic is a finding; so is memory that the bytes do not account for.

use bytes::Bytes;
use hostler_core::delivery::death::{BYTES_MAX, RECORDS_MAX};
use hostler_core::delivery::message::Headers;
use hostler_core::delivery::policy::{Reason, Rejection};
use hostler_core::wire::codec::BodyCodec;
use hostler_core::wire::dead_letter::{self, Context, replay};
use hostler_core::wire::line::{self, Line};
use hostler_core::wire::list::{self, Codec, Framing};
use hostler_core::wire::stream::{self, MissingBody, Options};
use hostler_core::wire::{death as history, envelope as envelopes, frame as frames};

/// The name of a target, and its body.
pub type Target = (&'static str, fn(&[u8]));

/// The targets that have their bodies here.
pub const TARGETS: [Target; 6] = [
    ("frame", frame),
    ("envelope", envelope),
    ("stream_fields", stream_fields),
    ("death", death),
    ("line", line),
    ("body", body),
];

/// A value of a list, read in every framing.
pub fn frame(data: &[u8]) {
    let value = Bytes::copy_from_slice(data);
    if let Some((headers, payload)) = frames::decode(&value) {
        assert!(
            weight(&headers) + payload.len() <= data.len(),
            "more than there was"
        );
        let again = frames::encode(&headers, &payload);
        assert_eq!(again.as_deref(), Ok(data), "byte for byte");
    }
    let read = |framing| list::decode(&"jobs".into(), "token", 0, &value, framing);
    assert_eq!(
        read(Framing::Auto).defect,
        None,
        "whatever it is, it is a message"
    );
    assert_eq!(read(Framing::Raw).message.body, value);
    let is_frame = frames::decode(&value).is_some();
    assert_eq!(read(Framing::Frame).defect.is_none(), is_frame);
    // A host can read its own text again.
    for framing in [Framing::Auto, Framing::Frame, Framing::Json] {
        if let Some((headers, payload)) = list::parts(&value, framing) {
            let written = list::encode(&headers, &payload, framing.codec());
            let written = written.expect("what was read can be written");
            assert_eq!(list::parts(&written, framing), Some((headers, payload)));
        }
    }
}

/// A value of a list with `codec = "json"`.
pub fn envelope(data: &[u8]) {
    let Some((headers, payload)) = envelopes::decode(data) else {
        return;
    };
    assert!(
        weight(&headers) + payload.len() <= data.len(),
        "more than there was"
    );
    let written = list::encode(&headers, &payload, Codec::Json).expect("names are text");
    assert_eq!(
        envelopes::decode(&written),
        Some((headers.clone(), payload.clone()))
    );
    // The two framings carry the same messages.
    let framed = list::encode(&headers, &payload, Codec::Frame).expect("names are text");
    assert_eq!(frames::decode(&framed), Some((headers, payload)));
}

/// The fields of a stream entry: as they come, with any body field.
pub fn stream_fields(data: &[u8]) {
    let mut rest = data;
    let body_field = Bytes::copy_from_slice(text(&mut rest));
    let fields = pairs(rest);
    for missing_body in [MissingBody::Json, MissingBody::Malformed] {
        for body_field in [Bytes::from_static(b"_payload"), body_field.clone()] {
            let options = Options {
                body_field: body_field.clone(),
                missing_body,
            };
            let read = stream::decode(&"orders".into(), "1-1", 1, &fields, &options);
            if let Some(defect) = &read.defect {
                assert!(defect.detail.len() < 1024, "details are bounded");
                assert!(read.message.body.is_empty());
            } else if !fields.iter().any(|(name, _)| *name == body_field) {
                let object: Result<serde_json::Map<_, _>, _> =
                    serde_json::from_slice(&read.message.body);
                assert!(object.is_ok(), "fields are a JSON object");
            }
            dead_lettered(&fields, &stream::headers(&fields));
        }
    }
}

/// The header `x-death`, as anybody may have written it.
pub fn death(data: &[u8]) {
    let mut headers = Headers::default();
    headers.push("x-death", Bytes::copy_from_slice(data));
    let read = history::read(&headers);
    assert!(read.history.records().len() <= RECORDS_MAX);
    let written = history::write(&read.history);
    assert!(written.len() <= 2 * BYTES_MAX, "{} bytes", written.len());
    let mut again = Headers::default();
    again.push("X-Death", written);
    assert_eq!(
        history::read(&again).history.records(),
        read.history.records()
    );
    dead_lettered(&[], &headers);
}

/// A line of `publish --lines --json`.
pub fn line(data: &[u8]) {
    match line::read(data) {
        Ok(Line::Message(body, headers)) => {
            let fields = stream::encode(body, &headers, &Bytes::from_static(b"_payload"));
            same_line(&fields);
        }
        Ok(Line::Fields(fields)) => {
            assert!(!fields.is_empty(), "an entry has fields");
            same_line(&fields);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// A body that must parse.
pub fn body(data: &[u8]) {
    for codec in [BodyCodec::Json, BodyCodec::MsgPack, BodyCodec::Utf8] {
        if let Err(detail) = codec.check(data) {
            assert!(detail.len() < 1024, "details are bounded");
        }
    }
    let is_text = std::str::from_utf8(data).is_ok();
    assert_eq!(BodyCodec::Utf8.check(data).is_ok(), is_text);
}

/// An entry is the same after it was written as a line.
fn same_line(fields: &[(Bytes, Bytes)]) {
    let written = line::write("1-1", Some("dropped"), fields);
    let again = match line::read(written.as_bytes()).expect("our own line") {
        Line::Message(body, headers) => {
            stream::encode(body, &headers, &Bytes::from_static(b"_payload"))
        }
        Line::Fields(fields) => fields,
    };
    assert_eq!(again, fields);
}

/// A dead letter loses nothing of the message that it does not own, twice in a row and when it is
/// replayed.
fn dead_lettered(fields: &[(Bytes, Bytes)], headers: &Headers) {
    let rejection = Rejection {
        reason: Reason::Dropped,
        attempts: 1,
        detail: "a reason".to_owned(),
        handled: true,
    };
    let context = Context {
        source: "orders",
        source_id: "1-1",
        group: Some("workers"),
        rejection: &rejection,
        handler: "sha256:0",
        evidence: None,
        now_ms: 1,
        expires_at_ms: None,
    };
    let (copy, _) = dead_letter::stream_fields(fields, headers, &context);
    let plain = |fields: &[(Bytes, Bytes)]| -> Vec<_> {
        let plain = fields
            .iter()
            .filter(|(n, _)| stream::header_name(n).is_none());
        plain.cloned().collect()
    };
    assert_eq!(plain(fields), plain(&copy), "every field that is no header");
    let (twice, _) = dead_letter::stream_fields(&copy, &stream::headers(&copy), &context);
    assert!(
        twice.len() <= copy.len(),
        "it does not grow with every death"
    );
    let replaying = replay::Replaying {
        only_group: Some("workers"),
        again: false,
    };
    let replayed = replay::stream_fields(&twice, &stream::headers(&twice), replaying);
    assert_eq!(plain(fields), plain(&replayed));
    assert_eq!(
        dead_letter::only_group(&stream::headers(&replayed)),
        Some("workers")
    );
}

/// How many bytes the headers are.
fn weight(headers: &Headers) -> usize {
    headers
        .iter()
        .map(|(name, value)| name.len() + value.len())
        .sum()
}

/// A text behind one byte of length.
fn text<'a>(rest: &mut &'a [u8]) -> &'a [u8] {
    let Some((length, behind)) = rest.split_first() else {
        return &[];
    };
    let (text, behind) = behind.split_at(usize::from(*length).min(behind.len()));
    *rest = behind;
    text
}

fn pairs(mut rest: &[u8]) -> Vec<(Bytes, Bytes)> {
    let mut pairs = Vec::new();
    while !rest.is_empty() {
        let name = Bytes::copy_from_slice(text(&mut rest));
        let value = Bytes::copy_from_slice(text(&mut rest));
        pairs.push((name, value));
    }
    pairs
}
