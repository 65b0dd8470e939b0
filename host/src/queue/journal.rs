//! The journals of messages, beside their queue: one hash for each message, and an index.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Value, cmd};
use serde::Serialize;

use crate::delivery::journal::{BYTES_MAX, Content, RECORDS_MAX, Stored};
use crate::delivery::millis::millis_up;
use crate::queue::{Maintenance, Sweep, scripts};
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::Script;
use crate::wire::{journal, keys};

/// How journals are kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Rules {
    /// The most bytes of all journals of a queue.
    pub bytes: u64,
    /// For how long a journal stays whose message is gone.
    pub keep: Duration,
}

/// The journal of a message.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Journal {
    /// Its records.
    pub records: Vec<Stored>,
    /// The greatest number that was ever used.
    pub last: u32,
    /// Up to which number records may stand in the message itself.
    pub base: u32,
}

/// A record, for people: its answer stays private.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Recorded {
    /// The name of the call.
    pub name: String,
    /// The status of its answer, `too-large`, `value`, or `not known`.
    pub status: String,
    /// How many bytes it has.
    pub bytes: usize,
    /// When it was made, in epoch milliseconds.
    pub at_ms: u64,
}

impl From<Stored> for Recorded {
    fn from(stored: Stored) -> Self {
        let status = match &stored.record.content {
            Content::Intent => "not known".to_owned(),
            Content::Response { status, .. } => status.to_string(),
            Content::TooLarge(_) => "too-large".to_owned(),
            Content::Value(_) => "value".to_owned(),
        };
        Self {
            status,
            bytes: stored.bytes.len(),
            at_ms: stored.record.at_ms,
            name: stored.record.name,
        }
    }
}

/// The records of the message that has this journal and holds these records itself. Changes nothing.
///
/// # Errors
/// Redis cannot be asked, or a record has another form.
pub async fn recorded(
    link: &Link,
    journal: &str,
    carried: BTreeMap<u32, Bytes>,
) -> Result<Vec<Recorded>, Error> {
    let whole = whole(records(link, journal).await?, carried)?;
    Ok(whole.records.into_iter().map(Recorded::from).collect())
}

/// A sum that is to be recorded.
#[derive(Clone, Copy, Debug)]
pub struct Increment<'a> {
    /// The number of the record.
    pub number: u32,
    /// The record, without the sum.
    pub record: &'a [u8],
    /// The key.
    pub key: &'a str,
    /// How much to add.
    pub delta: i64,
}

/// The most digits of a sum, and its sign.
const SUM_MAX: usize = 20;

/// What became of a record.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Written {
    /// It is written, or removed.
    Done,
    /// There is another record with its number, or the same.
    Known(Bytes),
    /// An intent of another attempt, too: it stays.
    Shared,
    /// There is no record with its number, and no delivery.
    Gone,
    /// Another host has the delivery, or has written to its journal.
    Stolen,
    /// The journal of the message is full.
    Full,
    /// The journals of the queue are full.
    QueueFull,
    /// The sum cannot be made, for this reason.
    Failed(String),
}

/// The command that reads a journal.
const READ: &str = "HGETALL";

/// The error of a queue without journals.
pub(super) fn none() -> Error {
    reply::invalid(READ, "the queue has no journals")
}

/// Most journals that one script looks at.
const SWEPT_MAX: usize = 100;

/// Most values of a list that are looked at for the journals of their messages, and most bytes of them.
const VALUES_MAX: usize = 10_000;
const VALUES_BYTES_MAX: usize = 16 << 20;

/// The journals of a queue, of one group.
#[derive(Debug)]
pub(super) struct Journals {
    /// Only attempts use it, so their threads serve the connection: a call waits for no other thread.
    link: Link,
    rules: Rules,
    key: String,
    group: String,
    /// The key of the index.
    pub(super) index: String,
}

impl Journals {
    /// `group` is empty for a list.
    pub(super) fn new(connector: &Connector, rules: Rules, key: &str, group: &str) -> Self {
        Self {
            link: connector.link("journal").of(key),
            rules,
            index: keys::journals(key, group),
            key: key.to_owned(),
            group: group.to_owned(),
        }
    }

    /// The key of the journal of a message.
    fn of(&self, id: &str) -> String {
        keys::journal(&self.key, &self.group, id)
    }

    /// The records that Redis has of a message, which is called so; and the greatest number that was ever used.
    pub(super) async fn records(
        &self,
        link: &Link,
        id: &str,
    ) -> Result<(BTreeMap<u32, Bytes>, u32), Error> {
        records(link, &self.of(id)).await
    }

    /// The journal of a message, which is called so, and holds these records itself.
    pub(super) async fn read(
        &self,
        id: &str,
        carried: BTreeMap<u32, Bytes>,
    ) -> Result<Journal, Error> {
        whole(self.records(&self.link, id).await?, carried)
    }

    /// Write an intent. `call` has the arguments of the kind, up to the id, on these keys behind its own.
    pub(super) async fn intend(
        &self,
        (script, mut call): (&'static Script, Cmd),
        number: u32,
        record: &[u8],
        is_shared: bool,
        carried: &BTreeMap<u32, Bytes>,
    ) -> Result<Written, Error> {
        self.arguments(&mut call, number, record, journal::size(record), carried);
        call.arg(u8::from(is_shared));
        let reply = self.link.run(script, &call).await?;
        written(script, reply)
    }

    /// Add to a number, and record the sum. `call` as in [`Journals::intend`].
    pub(super) async fn increment(
        &self,
        (script, mut call): (&'static Script, Cmd),
        increment: Increment<'_>,
        carried: &BTreeMap<u32, Bytes>,
    ) -> Result<Written, Error> {
        let Increment {
            number,
            record,
            delta,
            ..
        } = increment;
        self.arguments(&mut call, number, record, record.len() + SUM_MAX, carried);
        call.arg(delta);
        let reply = self.link.run(script, &call).await?;
        written(script, reply)
    }

    /// `carried`: the records that the message holds itself. They count as well.
    fn arguments(
        &self,
        call: &mut Cmd,
        number: u32,
        record: &[u8],
        bytes: usize,
        carried: &BTreeMap<u32, Bytes>,
    ) {
        let held: usize = carried.values().map(|record| journal::size(record)).sum();
        call.arg(number)
            .arg(base(carried))
            .arg(record)
            .arg(bytes)
            .arg(BYTES_MAX.saturating_sub(held))
            .arg(self.rules.bytes)
            .arg(RECORDS_MAX.saturating_sub(carried.len()));
    }

    /// The keys of an intent, behind those of its kind.
    pub(super) fn keys(&self, id: &str) -> [String; 2] {
        [self.index.clone(), self.of(id)]
    }

    /// Write the answer in the place of an intent, or remove the intent.
    pub(super) async fn answer(
        &self,
        id: &str,
        number: u32,
        intent: &[u8],
        answer: Option<&[u8]>,
    ) -> Result<Written, Error> {
        let script = &scripts::JOURNAL_ANSWER;
        let journal = self.of(id);
        let mut call = script.on(&[&self.index, &journal]);
        call.arg(id)
            .arg(number)
            .arg(intent)
            .arg(answer.unwrap_or_default())
            .arg(answer.map_or(0, journal::size))
            .arg(BYTES_MAX)
            .arg(self.rules.bytes);
        let reply = self.link.run(script, &call).await?;
        written(script, reply)
    }

    /// Add what a script needs that removes old journals, and run it.
    pub(super) async fn sweep(
        &self,
        link: &Link,
        script: &'static Script,
        mut call: Cmd,
        done: &mut Maintenance,
    ) -> Result<(), Error> {
        call.arg(millis_up(self.rules.keep)).arg(SWEPT_MAX);
        // A stream knows its entries by their ids: it looks at no values.
        call.arg(VALUES_MAX).arg(VALUES_BYTES_MAX);
        let reply = link.run(script, &call).await?;
        let [_, looked_at, stay] = reply::tuple(script.name(), reply)?;
        done.journals_stay = reply::count(script.name(), &stay)? > 0;
        if reply::count(script.name(), &looked_at)? >= SWEPT_MAX as u64 {
            done.unfinished.push(Sweep::Journals);
        }
        Ok(())
    }
}

/// The records of the journal at this key, and the greatest number that was ever used.
async fn records(link: &Link, key: &str) -> Result<(BTreeMap<u32, Bytes>, u32), Error> {
    let mut read = cmd(READ);
    let fields = link.call(READ, read.arg(key)).await?;
    let (mut records, mut last) = (BTreeMap::new(), 0);
    for (name, value) in reply::fields(READ, fields)? {
        let number = |text: &[u8]| str::from_utf8(text).ok()?.parse().ok();
        match &name[..] {
            b"bytes" | b"shared" => {}
            b"last" => last = number(&value).unwrap_or(0),
            name => {
                let unknown = || reply::invalid(READ, "a record without a number");
                records.insert(number(name).ok_or_else(unknown)?, value);
            }
        }
    }
    Ok((records, last))
}

/// These records of Redis, over those that the message holds itself.
fn whole(
    (own, last): (BTreeMap<u32, Bytes>, u32),
    mut records: BTreeMap<u32, Bytes>,
) -> Result<Journal, Error> {
    let base = base(&records);
    records.extend(own);
    let read = |(number, record)| {
        let unknown = || reply::invalid(READ, "a record of another form");
        journal::decode(number, &record).ok_or_else(unknown)
    };
    Ok(Journal {
        records: records.into_iter().map(read).collect::<Result<_, _>>()?,
        last,
        base,
    })
}

/// The greatest number of a record that the message holds itself.
fn base(carried: &BTreeMap<u32, Bytes>) -> u32 {
    carried.keys().next_back().copied().unwrap_or(0)
}

fn written(script: &'static Script, reply: Value) -> Result<Written, Error> {
    let [word, record] = reply::tuple(script.name(), reply)?;
    Ok(match reply::text(script.name(), word)?.as_str() {
        "done" => Written::Done,
        "known" | "other" => Written::Known(reply::bytes(script.name(), record)?),
        "shared" => Written::Shared,
        "gone" => Written::Gone,
        "full" => Written::Full,
        "queue-full" => Written::QueueFull,
        "failed" => Written::Failed(reply::text(script.name(), record)?),
        _ => Written::Stolen,
    })
}
