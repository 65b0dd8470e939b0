//! The journal of a message: the answers that its attempts have had from outside of Redis. A later attempt gets the
//! recorded answer, and the call is not made again.
//!
//! A record is first an *intent*, which is written before the call. The answer takes its place before the guest sees
//! it. [`Book`] is the journal as one attempt sees it: each record answers one call.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

/// The most records of a message.
pub const RECORDS_MAX: usize = 1_000;
/// The most bytes of the records of a message.
pub const BYTES_MAX: usize = 256 << 10;

/// One call, and what is known of its answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// The name of the call: equal calls have equal names.
    pub name: String,
    /// The rule that allowed it; empty = it needs none.
    pub rule: String,
    /// Which of the calls with this name it is, from 1.
    pub nth: u32,
    /// The idempotency key that it was sent with; empty = it has none.
    pub key: String,
    /// When it was made, in epoch milliseconds.
    pub at_ms: u64,
    /// What is known of its answer.
    pub content: Content,
}

/// What is known of the answer to a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Content {
    /// Nothing: the call may have been made.
    Intent,
    /// A response by HTTP.
    Response {
        /// The status.
        status: u16,
        /// The headers, in order.
        headers: Vec<(Bytes, Bytes)>,
        /// The body.
        body: Bytes,
    },
    /// A response by HTTP with more than this many bytes.
    TooLarge(u64),
    /// A value that the guest remembers, or a number.
    Value(Bytes),
}

impl Content {
    /// Whether the answer is known.
    pub fn is_answer(&self) -> bool {
        *self != Self::Intent
    }
}

/// A record as it stands in Redis.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// Its number in the journal, from 1. No number is used twice.
    pub number: u32,
    /// What it says.
    pub record: Record,
    /// The same, byte for byte.
    pub bytes: Bytes,
}

/// A record, as an attempt uses it.
#[derive(Debug)]
struct Line {
    stored: Stored,
    /// A call of this attempt has it.
    is_used: bool,
    /// The call is under way in this attempt.
    is_open: bool,
}

/// The journal of a message during one attempt.
#[derive(Debug, Default)]
pub struct Book {
    lines: BTreeMap<u32, Line>,
    /// The greatest number that was ever used.
    last: u32,
    /// Calls of this attempt that are under way, and that no record shows: the name, and which call with the name it is.
    begun: Vec<(String, u32)>,
}

/// What the journal says about a call.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Found {
    /// An earlier attempt had this answer.
    Answer(Record),
    /// An earlier attempt may have made the call: its answer is not known.
    Open(Stored),
    /// Nothing. It is the first call with its name, the second one, and so on: no other call has the number. One that gets no
    /// record leaves it to the next call.
    Nothing(u32),
}

impl Book {
    /// The journal with these records; `last` is the greatest number that was ever used.
    pub fn new(records: impl IntoIterator<Item = Stored>, last: u32) -> Self {
        let mut book = Self {
            last,
            ..Self::default()
        };
        for stored in records {
            book.last = book.last.max(stored.number);
            let line = Line {
                is_used: false,
                is_open: false,
                stored,
            };
            book.lines.insert(line.stored.number, line);
        }
        book
    }

    /// The guest makes a call with this name: it gets the oldest record of that name that no call has.
    pub fn call(&mut self, name: &str) -> Found {
        let mut lines = self.lines.values_mut();
        let Some(line) = lines.find(|line| !line.is_used && line.stored.record.name == name) else {
            return Found::Nothing(self.begin(name));
        };
        line.is_used = true;
        if line.stored.record.content.is_answer() {
            return Found::Answer(line.stored.record.clone());
        }
        line.is_open = true;
        Found::Open(line.stored.clone())
    }

    fn begin(&mut self, name: &str) -> u32 {
        let records = self.lines.values().map(|line| &line.stored.record);
        let of_records = records.map(|record| (&record.name, record.nth));
        let begun = self.begun.iter().map(|(name, nth)| (name, *nth));
        let has = of_records.chain(begun).filter(|(known, _)| *known == name);
        let taken: BTreeSet<u32> = has.map(|(_, nth)| nth).collect();
        let nth = (1..).find(|nth| !taken.contains(nth)).unwrap_or(u32::MAX);
        self.begun.push((name.to_owned(), nth));
        nth
    }

    /// A call for which there was nothing has ended, or has a record.
    pub fn ended(&mut self, name: &str, nth: u32) {
        self.begun
            .retain(|begun| (begun.0.as_str(), begun.1) != (name, nth));
    }

    /// The newest answer with this name, used or not.
    pub fn newest(&mut self, name: &str) -> Option<Record> {
        let mut lines = self.lines.values_mut().rev();
        let line = lines.find(|line| {
            line.stored.record.name == name && line.stored.record.content.is_answer()
        })?;
        line.is_used = true;
        Some(line.stored.record.clone())
    }

    /// Whether a call of this rule may have been made whose answer is not known, and that is not under way here.
    pub fn has_unknown(&self, rule: &str) -> bool {
        self.lines.values().any(|line| {
            !line.is_open
                && !line.stored.record.content.is_answer()
                && line.stored.record.rule == rule
        })
    }

    /// The number of the next record.
    pub fn next(&self) -> u32 {
        self.last.saturating_add(1)
    }

    /// A record is written for a call of this attempt.
    pub fn written(&mut self, stored: Stored) {
        self.last = self.last.max(stored.number);
        let line = Line {
            is_used: true,
            is_open: !stored.record.content.is_answer(),
            stored,
        };
        self.lines.insert(line.stored.number, line);
    }

    /// The call with this record is over, and has no record any more.
    pub fn removed(&mut self, number: u32) {
        self.lines.remove(&number);
        self.last = self.last.max(number);
    }

    /// The call with this record is over, and its answer is not known. The next call of its name takes it up.
    pub fn unknown(&mut self, number: u32) {
        if let Some(line) = self.lines.get_mut(&number) {
            (line.is_open, line.is_used) = (false, false);
        }
    }

    /// The names of records that no call of this attempt has had.
    pub fn unused(&self) -> impl Iterator<Item = &str> {
        let lines = self.lines.values().filter(|line| !line.is_used);
        lines.map(|line| line.stored.record.name.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(number: u32, name: &str, content: Content) -> Stored {
        let record = Record {
            name: name.to_owned(),
            rule: "api".to_owned(),
            nth: number,
            key: format!("key-{number}"),
            at_ms: 1,
            content,
        };
        Stored {
            number,
            record,
            bytes: Bytes::new(),
        }
    }

    fn value(text: &'static str) -> Content {
        Content::Value(Bytes::from_static(text.as_bytes()))
    }

    fn answer(found: &Found) -> Option<&Content> {
        match found {
            Found::Answer(record) => Some(&record.content),
            Found::Open(_) | Found::Nothing(_) => None,
        }
    }

    #[test]
    fn a_call_takes_the_oldest_record_of_its_name_once() {
        let records = [
            stored(3, "a", value("second")),
            stored(1, "a", value("first")),
            stored(2, "b", value("other")),
        ];
        let mut book = Book::new(records, 7);
        assert_eq!(answer(&book.call("a")), Some(&value("first")));
        assert_eq!(answer(&book.call("a")), Some(&value("second")));
        // The calls that the records answer were the first and the third one.
        assert_eq!(book.call("a"), Found::Nothing(2));
        assert_eq!(book.call("a"), Found::Nothing(4));
        book.ended("a", 2);
        assert_eq!(book.call("a"), Found::Nothing(2));
        assert_eq!(book.unused().collect::<Vec<_>>(), ["b"]);
        assert_eq!(book.next(), 8, "no number is used twice");
    }

    #[test]
    fn an_open_intent_blocks_its_rule_unless_its_call_is_under_way_here() {
        let mut book = Book::new([stored(1, "a", Content::Intent)], 1);
        assert!(book.has_unknown("api") && !book.has_unknown("other"));
        let Found::Open(open) = book.call("a") else {
            panic!("it is open");
        };
        assert_eq!(open.record.key, "key-1");
        assert!(!book.has_unknown("api"));
        // The answer did not come: the same attempt takes it up again, and sends the same key.
        book.unknown(1);
        assert!(book.has_unknown("api"));
        assert_eq!(book.call("a"), Found::Open(open));
        book.written(stored(1, "a", value("paid")));
        assert!(!book.has_unknown("api"));
        assert_eq!(book.unused().count(), 0);
        book.written(stored(2, "c", Content::Intent));
        book.removed(2);
        assert_eq!((book.next(), book.has_unknown("api")), (3, false));
    }

    #[test]
    fn the_newest_value_counts() {
        let records = [stored(1, "v", value("old")), stored(2, "v", value("new"))];
        let mut book = Book::new(records, 2);
        assert_eq!(book.newest("v").map(|r| r.content), Some(value("new")));
        assert_eq!(book.newest("w"), None);
    }
}
