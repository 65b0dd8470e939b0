//! The header `x-death`: a message's history as a JSON array, most recent first.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::delivery::death::{BYTES_MAX, Death, History};
use crate::delivery::declared::headers;
use crate::delivery::message::Headers;

headers! {
    /// The history: a JSON array, most recent first, one record for each queue and reason, with
    /// `queue`, `reason`, `count`, `first-time`, `last-time` (epoch milliseconds) and
    /// `original-expiration`.
    X_DEATH = "x-death";
}

/// The longest header that is read as a history, in bytes. Histories that hostler writes have at
/// most [`BYTES_MAX`] bytes.
const READ_MAX: usize = 64 * 1024;
const _: () = assert!(BYTES_MAX < READ_MAX);

/// A history as it was read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Incoming {
    /// The records that could be read.
    pub history: History,
    /// Whether something could not be read and was left out.
    pub damaged: bool,
}

/// A record, as it is written.
#[derive(Deserialize, Serialize)]
#[serde(remote = "Death", rename_all = "kebab-case")]
struct Record {
    queue: String,
    reason: String,
    #[serde(default = "once")]
    count: u64,
    #[serde(default, rename = "first-time")]
    first_ms: u64,
    #[serde(default, rename = "last-time")]
    last_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    original_expiration: Option<u64>,
    /// A field of hostler, see [`Death::unrejected`]. A record of another program never makes a
    /// cycle.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    unrejected: bool,
}

#[derive(Serialize)]
struct Written<'a>(#[serde(with = "Record")] &'a Death);

const fn once() -> u64 {
    1
}

/// Read the history of a message. This never fails, and its cost is bounded. A header that is too
/// long, not JSON or not an array is left out, and so is each element that is not a record.
pub fn read(headers: &Headers) -> Incoming {
    let Some(header) = headers.find(X_DEATH) else {
        return Incoming::default();
    };
    let header = Some(header).filter(|header| header.len() <= READ_MAX);
    let values = header.and_then(|h| serde_json::from_slice::<Vec<serde_json::Value>>(h).ok());
    let Some(values) = values else {
        return Incoming {
            history: History::default(),
            damaged: true,
        };
    };
    let written = values.len();
    let records: Vec<Death> = values
        .into_iter()
        .filter_map(|value| Record::deserialize(value).ok())
        .collect();
    Incoming {
        damaged: records.len() < written,
        history: History::new(records),
    }
}

/// Write the header of a history, with at most [`BYTES_MAX`] bytes.
pub fn write(history: &History) -> Bytes {
    let records: Vec<Written<'_>> = history.records().iter().map(Written).collect();
    serde_json::to_vec(&records)
        .expect("strings, numbers and booleans are always JSON")
        .into()
}

#[cfg(test)]
mod tests;
