//! One dead letter and its parts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::ser::{SerializeMap, SerializeStruct};
use serde::{Serialize, Serializer};

use super::list;
use crate::delivery::death::History;
use crate::delivery::evidence::Calls;
use crate::delivery::journal::Stored;
use crate::delivery::message::Headers;
use crate::delivery::recording::{Recording, Unreadable};
use crate::delivery::signature::signature;
use crate::delivery::text::{printable, truncate_utf8};
use crate::wire::{dead_letter as header, death, journal, keys, stream};

/// The reason of entries that are no dead letters ([`Entry::is_dead_letter_in`]), in counts and filters.
pub const UNKNOWN: &str = "unknown";

/// The headers of a head ([`Entry::into_head`]), in lower case.
pub(super) const HEADS: [&str; 7] = [
    header::REASON,
    header::DETAIL,
    header::ATTEMPTS,
    header::SOURCE,
    header::SOURCE_ID,
    header::HANDLER,
    header::GROUP,
];
/// The most bytes of a text of a head.
pub(super) const TEXT_MAX: usize = 4 << 10;
/// The header with its deaths, and the most bytes of it that a head keeps.
const X_DEATH: &str = "x-death";
const DEATH_MAX: usize = 16 << 10;

/// A dead letter, with the values of hostler's headers. Entries of other programs are read as well.
///
/// As JSON: `{"id","died_ms","reason","detail","attempts","source","source_id","handler","group","log":[],"calls":[],"calls_before",
/// "headers":{},"body","body_base64","defect"}`. A missing part is `null`, a `body` that is not UTF-8 is `null`, and of
/// a repeated header the first is shown. `died_ms` is 0 if the time is not known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Its id in the dead-letter queue. In a stream it contains the time of death; in a list it is a
    /// digest of the value, which equal values share.
    pub id: String,
    /// Why it died: usually the label of a [`crate::delivery::policy::Reason`].
    pub reason: Option<String>,
    /// Text for people.
    pub detail: Option<String>,
    /// The starts charged to it in all.
    pub attempts: Option<u64>,
    /// The key of the queue it died in.
    pub source: Option<String>,
    /// Its id there.
    pub source_id: Option<String>,
    /// The digest of the handler that ran or would have run.
    pub handler: Option<String>,
    /// The consumer group it died in.
    pub group: Option<String>,
    /// All its headers, in wire order.
    pub headers: Headers,
    /// Its body; empty if it is defective.
    pub body: Bytes,
    /// Why it cannot be read as a message. The fields have it whole.
    pub defect: Option<String>,
    /// Every field, in wire order, byte for byte; of a list's entry, the fields in a stream.
    pub fields: Vec<(Bytes, Bytes)>,
    /// The value of a list's entry, byte for byte.
    pub value: Option<Bytes>,
}

impl Entry {
    /// Read an entry of a stream.
    pub fn new(id: String, fields: Vec<(Bytes, Bytes)>, options: &stream::Options) -> Self {
        let decoded = stream::decode(&"".into(), &id, 0, &fields, options);
        // Not the message's headers: those are without the headers that only a host may set.
        let headers = stream::headers(&fields);
        let text = |name| {
            headers
                .find(name)
                .map(|value| String::from_utf8_lossy(value).into_owned())
        };
        Self {
            reason: text(header::REASON),
            detail: text(header::DETAIL),
            attempts: headers.find_number(header::ATTEMPTS),
            source: text(header::SOURCE),
            source_id: text(header::SOURCE_ID),
            handler: text(header::HANDLER),
            group: text(header::GROUP),
            body: decoded.message.body,
            defect: decoded.defect.map(|defect| defect.detail),
            id,
            headers,
            fields,
            value: None,
        }
    }

    /// Read a value of a list: a frame, the envelope of a dead letter, or else a payload.
    pub fn of_value(value: Bytes) -> Self {
        let (mut headers, body, _) = list::read(&value);
        let records = headers.find(header::RECORDS).cloned();
        headers.remove(header::RECORDS);
        let options = stream::Options::default();
        let mut fields = stream::encode(body, &headers, &options.body_field);
        fields.extend(records.map(|text| (Bytes::from_static(journal::FIELD), text)));
        Self {
            value: Some(value.clone()),
            ..Self::new(list::id_of(&value), fields, &options)
        }
    }

    /// Without all that may be large. It keeps no buffer that it was read from.
    pub(super) fn into_head(mut self) -> Self {
        let texts = [
            &mut self.reason,
            &mut self.detail,
            &mut self.source,
            &mut self.source_id,
            &mut self.handler,
            &mut self.group,
        ];
        for text in texts.into_iter().flatten() {
            truncate_utf8(text, TEXT_MAX);
            text.shrink_to_fit();
        }
        let mut headers = Headers::default();
        // A list's entry says there when it died.
        if let Some(death) = self.headers.find(X_DEATH)
            && death.len() <= DEATH_MAX
        {
            headers.set(X_DEATH, death.to_vec());
        }
        Self {
            headers,
            body: Bytes::new(),
            fields: Vec::new(),
            value: self.value.map(|_| Bytes::new()),
            defect: None,
            ..self
        }
    }

    /// Whether it is a dead letter in the queue with this key: it says why it died, and it died
    /// elsewhere. A message that was replayed says both, and is a message again where it died.
    pub fn is_dead_letter_in(&self, key: &str) -> bool {
        let has_reason = self.reason.as_deref().is_some_and(|r| !r.is_empty());
        let is_home = |source: &str| source == key || keys::retry(source) == key;
        has_reason && !self.source.as_deref().is_some_and(is_home)
    }

    /// Its reason in a count and in a filter, in the queue with this key: [`UNKNOWN`] if it is no dead
    /// letter there.
    pub fn reason_in(&self, key: &str) -> &str {
        let reason = self.reason.as_deref();
        reason
            .filter(|_| self.is_dead_letter_in(key))
            .unwrap_or(UNKNOWN)
    }

    /// The end of the log of the attempt, one text for each line, if the entry keeps it.
    pub fn log(&self) -> Vec<String> {
        let log = self.headers.find(header::LOG);
        let text = log.map(|log| String::from_utf8_lossy(log).into_owned());
        text.iter()
            .flat_map(|t| t.lines())
            .map(str::to_owned)
            .collect()
    }

    /// The last calls of the attempt, if the entry keeps them.
    pub fn calls(&self) -> Calls {
        let calls = self.headers.find(header::CALLS);
        calls.map(|calls| Calls::read(calls)).unwrap_or_default()
    }

    /// The recording of its last attempt, if it has one.
    pub fn recording(&self) -> Option<Result<Recording, Unreadable>> {
        let text = self.headers.find(header::RECORDING)?;
        Some(Recording::read(text))
    }

    /// What it shares with dead letters of the same cause, in the queue with this key.
    pub fn signature_in(&self, key: &str) -> String {
        let detail = self.detail.as_deref().unwrap_or_default();
        printable(&signature(self.reason_in(key), detail))
    }

    /// When it died, in epoch milliseconds, by Redis' clock; 0 if that is unknown.
    pub fn died_ms(&self) -> u64 {
        match self.value {
            None => Self::time_of(&self.id),
            Some(_) => self.history().records().first().map_or(0, |d| d.last_ms),
        }
    }

    /// The time in an id of a stream's entry, in epoch milliseconds; 0 if it has no time.
    pub(super) fn time_of(id: &str) -> u64 {
        let milliseconds = id.split('-').next().unwrap_or_default();
        milliseconds.parse().unwrap_or(0)
    }

    /// Name it in a call of a script.
    pub(super) fn name_in(&self, call: &mut redis::Cmd) {
        match &self.value {
            None => call.arg("stream").arg(&self.id),
            Some(value) => call.arg("list").arg(&value[..]),
        };
    }

    /// How many bytes its fields have.
    pub(super) fn size(&self) -> usize {
        self.fields.iter().map(|(n, v)| n.len() + v.len()).sum()
    }

    /// The whole entry as one line of JSON: see [`crate::wire::line`].
    pub fn line(&self) -> String {
        crate::wire::line::write(&self.id, self.reason.as_deref(), &self.fields)
    }

    /// Its deaths, most recent first.
    pub fn history(&self) -> History {
        death::read(&self.headers).history
    }

    /// The calls that are recorded of the message, by number.
    pub fn records(&self) -> Vec<Stored> {
        let carried = journal::carried(&self.fields);
        let read = |(number, record)| journal::decode(number, &record);
        carried.into_iter().filter_map(read).collect()
    }
}

impl Serialize for Entry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut entry = serializer.serialize_struct("Entry", 16)?;
        entry.serialize_field("id", &self.id)?;
        entry.serialize_field("died_ms", &self.died_ms())?;
        entry.serialize_field("reason", &self.reason)?;
        entry.serialize_field("detail", &self.detail)?;
        entry.serialize_field("attempts", &self.attempts)?;
        entry.serialize_field("source", &self.source)?;
        entry.serialize_field("source_id", &self.source_id)?;
        entry.serialize_field("handler", &self.handler)?;
        entry.serialize_field("group", &self.group)?;
        entry.serialize_field("log", &self.log())?;
        let Calls { calls, before } = self.calls();
        entry.serialize_field("calls", &calls)?;
        entry.serialize_field("calls_before", &before)?;
        entry.serialize_field("headers", &Shown(&self.headers))?;
        entry.serialize_field("body", &std::str::from_utf8(&self.body).ok())?;
        entry.serialize_field("body_base64", &STANDARD.encode(&self.body))?;
        entry.serialize_field("defect", &self.defect)?;
        entry.end()
    }
}

/// Headers as an object of texts, each name once; without a recording, which is large.
struct Shown<'a>(&'a Headers);

impl Serialize for Shown<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seen = std::collections::HashSet::new();
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.0.iter() {
            let is_recording = name.eq_ignore_ascii_case(header::RECORDING.as_bytes());
            if !is_recording && seen.insert(name.to_ascii_lowercase()) {
                let name = String::from_utf8_lossy(name);
                map.serialize_entry(&name, &String::from_utf8_lossy(value))?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fields: &[(&str, &[u8])]) -> Entry {
        let fields = fields
            .iter()
            .map(|(name, value)| {
                let name = Bytes::copy_from_slice(name.as_bytes());
                (name, Bytes::copy_from_slice(value))
            })
            .collect();
        Entry::new(
            "1700000000123-4".to_owned(),
            fields,
            &stream::Options::default(),
        )
    }

    #[test]
    fn a_dead_letter_as_json() {
        let entry = entry(&[
            ("_payload", b"hi"),
            ("h:X-Tenant", b"7"),
            ("h:x-tenant", b"8"),
            ("h:x-dead-letter-reason", b"dropped"),
            ("h:x-dead-letter-detail", b"no \xff"),
            ("h:x-dead-letter-attempts", b"3"),
            ("h:x-dead-letter-source", b"orders"),
            ("h:x-dead-letter-source-id", b"1-1"),
            ("h:x-dead-letter-handler", b"sha256:abc"),
            ("h:x-dead-letter-group", b"g"),
            ("h:x-dead-letter-log", b"one\ntwo \xff"),
        ]);
        let json = serde_json::to_value(&entry).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "id": "1700000000123-4",
                "died_ms": 1_700_000_000_123_u64,
                "reason": "dropped",
                "detail": "no \u{fffd}",
                "attempts": 3,
                "source": "orders",
                "source_id": "1-1",
                "handler": "sha256:abc",
                "group": "g",
                "log": ["one", "two \u{fffd}"],
                "calls": [],
                "calls_before": 0,
                "headers": {
                    "X-Tenant": "7",
                    "x-dead-letter-reason": "dropped",
                    "x-dead-letter-detail": "no \u{fffd}",
                    "x-dead-letter-attempts": "3",
                    "x-dead-letter-source": "orders",
                    "x-dead-letter-source-id": "1-1",
                    "x-dead-letter-handler": "sha256:abc",
                    "x-dead-letter-group": "g",
                    "x-dead-letter-log": "one\ntwo \u{fffd}",
                },
                "body": "hi",
                "body_base64": "aGk=",
                "defect": null,
            })
        );
        assert_eq!(entry.died_ms(), 1_700_000_000_123);
    }

    #[test]
    fn a_message_that_is_back_where_it_died_is_no_dead_letter() {
        let reason: (&str, &[u8]) = ("h:x-dead-letter-reason", b"trap");
        let died_in = |source: &'static [u8]| ("h:x-dead-letter-source", source);
        for (fields, key, is_dead_letter) in [
            (&[reason, died_in(b"jobs")][..], "jobs:dead", true),
            (&[reason, died_in(b"jobs")], "jobs", false),
            (&[reason, died_in(b"jobs")], "{jobs}:retry", false),
            (&[reason], "jobs", true),
            (&[died_in(b"jobs")], "jobs:dead", false),
            (&[("h:x-dead-letter-reason", b"")], "jobs:dead", false),
            (&[("_payload", b"hi")], "jobs:dead", false),
        ] {
            let entry = entry(fields);
            assert_eq!(
                entry.is_dead_letter_in(key),
                is_dead_letter,
                "{key} {fields:?}"
            );
            assert_eq!(entry.reason_in(key) == UNKNOWN, !is_dead_letter);
        }
    }

    #[test]
    fn other_entries_have_json_as_well() {
        let json = serde_json::to_value(entry(&[
            ("a", b"\xff"),
            ("h:x-dead-letter-attempts", b"many"),
        ]))
        .unwrap();
        for unknown in ["reason", "attempts", "source", "handler"] {
            assert!(json[unknown].is_null(), "{unknown}");
        }
        assert!(json["defect"].as_str().unwrap().contains("not UTF-8"));
        assert_eq!(json["body_base64"], "");

        let binary = serde_json::to_value(entry(&[("_payload", b"\xff\0")])).unwrap();
        assert!(binary["body"].is_null());
        assert_eq!(binary["body_base64"], "/wA=");
    }
}
