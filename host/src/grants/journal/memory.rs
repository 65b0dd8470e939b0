//! A journal in memory: where a handler is tried, without a server.

use std::collections::BTreeMap;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;

use super::provider::{Increment, Provider, Refused, Wrote};
use super::remembered::{VALUE, value_of};
use crate::delivery::journal::{Book, Content, Record, Stored};
use crate::wire::journal::{decode, encode};

/// The records of one message. No bound applies.
#[derive(Debug, Default)]
pub struct Memory(Mutex<BTreeMap<u32, Bytes>>);

impl Memory {
    /// These records.
    pub fn new(records: impl IntoIterator<Item = Stored>) -> Self {
        let records = records.into_iter();
        Self(Mutex::new(records.map(|r| (r.number, r.bytes)).collect()))
    }

    /// An earlier attempt has remembered a value under this name. One of 4 GiB has no record.
    pub fn remember(&self, name: &str, value: Bytes) {
        let record = Record {
            name: value_of(name),
            rule: String::new(),
            nth: 0,
            key: String::new(),
            at_ms: 0,
            content: Content::Value(value),
        };
        let mut records = self.0.lock();
        let last = records.keys().next_back().copied().unwrap_or(0);
        records.extend(encode(&record, 0).map(|bytes| (last + 1, bytes)));
    }

    /// The values that are remembered, by name.
    pub fn values(&self) -> BTreeMap<String, Bytes> {
        let value = |stored: Stored| match stored.record {
            Record {
                name,
                content: Content::Value(value),
                ..
            } => Some((name.strip_prefix(VALUE)?.to_owned(), value)),
            _ => None,
        };
        self.records().into_iter().filter_map(value).collect()
    }

    /// Its records, by number.
    pub fn records(&self) -> Vec<Stored> {
        let records = self.0.lock();
        let read = |(number, bytes): (&u32, &Bytes)| decode(*number, bytes);
        records.iter().filter_map(read).collect()
    }
}

#[async_trait]
impl Provider for Memory {
    async fn read(&self) -> Result<Book, Refused> {
        Ok(Book::new(self.records(), 0))
    }

    fn now_ms(&self) -> u64 {
        0
    }

    // One attempt at a time: none shares an intent.
    async fn intend(
        &self,
        number: u32,
        intent: &Bytes,
        _is_shared: bool,
    ) -> Result<Wrote, Refused> {
        let mut records = self.0.lock();
        let known = records.entry(number).or_insert_with(|| intent.clone());
        let known = decode(number, known).map(Wrote::Known);
        Ok(known.unwrap_or(Wrote::Done))
    }

    fn adds(&self) -> bool {
        false
    }

    async fn increment(&self, _increment: Increment<'_>) -> Result<Wrote, Refused> {
        Err(Refused::Failed("no store is there".to_owned()))
    }

    async fn answer(
        &self,
        number: u32,
        _intent: &Bytes,
        answer: Option<&Bytes>,
    ) -> Result<Wrote, Refused> {
        let mut records = self.0.lock();
        match answer {
            Some(answer) => records.insert(number, answer.clone()),
            None => records.remove(&number),
        };
        Ok(Wrote::Done)
    }
}
