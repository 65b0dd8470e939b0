//! Cancelling messages that are not settled, wherever they are.
//!
//! A script takes a message off its queue, answers its producer, deletes its journal, and notes it: all of that, or nothing.
//! A host that has the message reads the note, and cuts its attempt off. Its later requests for the message find nothing:
//! so the effects of that attempt are void.
//!
//! - `scan`: the messages of a queue that are not settled.
//! - `stream`, `list`: taking them off.

mod list;
mod scan;
mod stream;

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use redis::Cmd;

use hostler_core::delivery::message::Headers;
use hostler_core::delivery::millis::millis;
use hostler_core::delivery::policy::{Reason, Rejection};
use hostler_core::delivery::reply::{Answer, Status, inbox};
use hostler_core::wire::dead_letter::{self, Context, only_group};
use hostler_core::wire::list::{Codec, Error as WireError, Framing, encode, parts};
use hostler_core::wire::{keys, reply as answers};
use hostler_redis::Error as RedisError;
use hostler_redis::connection::{Connector, Link};
use hostler_redis::{ServerTime, reply};

pub use scan::{Found, Scan};

use super::Destination;
use scan::Place;

/// For how long notes are kept, and how many.
const NOTE_MS: u64 = 24 * 60 * 60 * 1000;
const NOTES_MAX: u64 = 10_000;
/// For how long an answer is kept.
const REPLY_KEEP: Duration = Duration::from_secs(5 * 60);
/// How often a message is looked for that moves on meanwhile.
const ROUNDS: usize = 8;
/// The most messages that a search by id looks at.
const SEARCH_MAX: u64 = 1_000_000;
/// The most fields of a dead letter: a script gets each as a value.
const FIELDS_MAX: usize = 2_000;

/// What became of a message.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// It is off the queue, and no handler runs it.
    Cancelled,
    /// The same, and this host had it: its attempt is cut off if it runs, and has no effects.
    Void(String),
    /// It was settled before, or its effects are being written.
    TooLate,
    /// There is no such message. A list keeps no trace of settled messages.
    Unknown,
    /// It is as it was, for this reason.
    Refused(String),
}

impl Verdict {
    /// The words for it.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Cancelled => "cancelled",
            Self::Void(_) => "running: void",
            Self::TooLate => "too late",
            Self::Unknown => "unknown",
            Self::Refused(_) => "refused",
        }
    }

    /// Whether it is off the queue because of this.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Self::Cancelled | Self::Void(_))
    }
}

/// A message, and what became of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cancelled {
    /// Its id.
    pub id: String,
    /// The consumer group that this is about; `None` = all of them, or the queue has none.
    pub group: Option<String>,
    /// What became of it.
    pub verdict: Verdict,
}

/// Where cancelled messages are kept, if they are.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The key, of the type of the queue and in its slot.
    pub key: String,
    /// The most entries of it; `None` = no bound.
    pub max_len: Option<u64>,
    /// At that bound nothing is cancelled. Otherwise the oldest go.
    pub stops: bool,
}

/// Why nothing can be cancelled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CancelError {
    /// A channel holds nothing.
    #[error("a channel holds nothing: there is nothing to cancel")]
    Channel,
    /// The age of its messages is asked for, and a list does not know it.
    #[error("a list does not say how old its messages are")]
    NoAge,
    /// Several groups read the stream, and each has its own messages: name one.
    #[error("several groups read this stream ({}): name one", .0.join(", "))]
    Groups(Vec<String>),
    /// Dead letters of this reason go to a key in another slot of the cluster: the message cannot be moved at once.
    #[error(
        "`{0}` is in another slot of the cluster: route `cancelled` to a key in the slot of the queue"
    )]
    OtherSlot(String),
    /// The search has looked at its bound of messages, and has not found this one.
    #[error("it is not among the {0} messages that were looked at: name it by the id of its entry")]
    Bound(u64),
    /// Redis refused it, or its answer was lost: then some may be cancelled.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Which kind of queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Stream,
    List { reliable: bool },
}

/// Cancels messages of one queue.
#[derive(Debug)]
pub struct Canceller {
    link: Link,
    key: String,
    kind: Kind,
    codec: Codec,
    group: Option<String>,
    recovery: Option<String>,
    kept: Option<Kept>,
    search_max: u64,
    time: ServerTime,
}

impl Canceller {
    /// For this queue, with a connection of its own.
    ///
    /// # Errors
    /// [`CancelError::Channel`].
    pub fn new(connector: &Connector, queue: impl Into<Destination>) -> Result<Self, CancelError> {
        let (key, kind, codec) = match queue.into() {
            Destination::Stream(stream) => (stream.key, Kind::Stream, Codec::Frame),
            Destination::List(list) => {
                let reliable = list.reliable;
                (list.key, Kind::List { reliable }, list.codec)
            }
            Destination::Channel(_) => return Err(CancelError::Channel),
        };
        Ok(Self {
            link: connector.link("cancel").of(&key),
            key,
            kind,
            codec,
            group: None,
            recovery: None,
            kept: None,
            search_max: SEARCH_MAX,
            time: ServerTime::default(),
        })
    }

    /// Only in this consumer group of a stream. Without one, a message is cancelled in all groups.
    #[must_use]
    pub fn group(self, group: Option<String>) -> Self {
        Self { group, ..self }
    }

    /// Look at no more messages for an id than so many. The default is a million.
    #[must_use]
    pub fn search_max(self, search_max: u64) -> Self {
        Self { search_max, ..self }
    }

    /// The recovery set of a reliable list.
    #[must_use]
    pub fn recovery(self, recovery: Option<String>) -> Self {
        Self { recovery, ..self }
    }

    /// Keep cancelled messages here.
    ///
    /// # Errors
    /// [`CancelError::OtherSlot`].
    pub fn kept(self, kept: Option<Kept>) -> Result<Self, CancelError> {
        match &kept {
            Some(to) if self.link.is_cluster() && keys::slot(&to.key) != keys::slot(&self.key) => {
                Err(CancelError::OtherSlot(to.key.clone()))
            }
            _ => Ok(Self { kept, ..self }),
        }
    }

    /// Cancel the message with this id: that of its entry, its delivery or its header `x-message-id`. Several messages may
    /// have that id, and several groups a message: there is an answer for each; at least one.
    ///
    /// A message that is not found by the id of its entry is looked for among those that are not settled, then among all entries of
    /// the stream, the newest first: up to a million of each.
    ///
    /// # Errors
    /// [`CancelError::Bound`]; [`CancelError::Redis`]: after a lost answer the message may be cancelled: ask again.
    pub async fn cancel(&self, id: &str) -> Result<Vec<Cancelled>, CancelError> {
        let mut seen = false;
        for _ in 0..ROUNDS {
            let (is_there, done) = self.cancel_found(id).await?;
            // Where all have moved on since they were found, they are looked for again.
            if !done.is_empty() {
                return Ok(done);
            }
            if !is_there {
                break;
            }
            seen = true;
        }
        // A note may say that its entry was cancelled before any host had read it.
        if let Some(gone) = Found::missing(id).filter(|_| self.kind == Kind::Stream)
            && !self.groups().await?.is_empty()
        {
            let done = self.entries(&[&gone]).await?;
            if done.iter().any(|done| done.verdict != Verdict::Unknown) {
                return Ok(done);
            }
        }
        if let Some(settled) = self.settled(id).await? {
            return self.entries(&[&settled]).await;
        }
        let verdict = match seen {
            true => Verdict::TooLate,
            false => Verdict::Unknown,
        };
        Ok(vec![self.about(id, verdict)])
    }

    /// Cancel what has this id and is not settled. Also says whether there was something.
    async fn cancel_found(&self, id: &str) -> Result<(bool, Vec<Cancelled>), CancelError> {
        if let Some(entry) = self.entry(id).await? {
            return Ok((true, self.cancel_all(&[entry]).await?));
        }
        let mut scan = self.scan().await?;
        let (mut is_there, mut done) = (false, Vec::new());
        // Each group of a stream has an entry apart, and one call cancels it in all of them.
        let mut entries = BTreeSet::new();
        while let Some(mut page) = scan.next_of(id).await? {
            is_there = true;
            page.retain(|found| found.entry().is_none_or(|id| entries.insert(id.to_owned())));
            let now = self.cancel_all(&page).await?;
            scan.removed(
                now.iter()
                    .filter(|done| done.verdict.is_cancelled())
                    .count(),
            );
            done.extend(now);
        }
        match scan.is_cut() && !is_there {
            true => Err(CancelError::Bound(self.search_max)),
            false => Ok((is_there, done)),
        }
    }

    /// Cancel these messages. One that is not there any more is left out.
    ///
    /// # Errors
    /// [`CancelError::Redis`]. After a lost answer some may be cancelled.
    pub async fn cancel_all(&self, found: &[Found]) -> Result<Vec<Cancelled>, CancelError> {
        self.time.read(&self.link).await?;
        let entries: Vec<&Found> = found.iter().filter(|f| f.entry().is_some()).collect();
        let others: Vec<&Found> = found.iter().filter(|f| f.entry().is_none()).collect();
        let mut done = self.values(&others).await?;
        if !entries.is_empty() {
            done.extend(self.entries(&entries).await?);
        }
        Ok(done)
    }

    /// Whether a message has this id: one that is not settled, or an entry of the stream.
    ///
    /// # Errors
    /// [`CancelError::Redis`], [`CancelError::Bound`].
    pub async fn has(&self, id: &str) -> Result<bool, CancelError> {
        if self.entry(id).await?.is_some() {
            return Ok(true);
        }
        let mut scan = self.scan().await?;
        match scan.next_of(id).await? {
            None if scan.is_cut() => Err(CancelError::Bound(self.search_max)),
            found => Ok(found.is_some()),
        }
    }

    fn about(&self, id: &str, verdict: Verdict) -> Cancelled {
        Cancelled {
            id: id.to_owned(),
            group: self.group.clone(),
            verdict,
        }
    }

    /// The bound of the dead-letter queue, and what happens there, for a script.
    fn bound(&self, call: &mut Cmd) {
        let kept = self.kept.as_ref();
        call.arg(kept.and_then(|to| to.max_len).unwrap_or(0));
        call.arg(match kept.is_some_and(|to| to.stops) {
            true => "stop",
            false => "drop-oldest",
        });
    }

    /// The answer to the producer of a message, and its dead letter, as scripts take them. `attempts`: starts of it.
    fn left(
        &self,
        found: &Found,
        group: Option<&str>,
        attempts: u32,
    ) -> Result<[Bytes; 2], WireError> {
        let detail = "cancelled by an operator".to_owned();
        let rejection = Rejection::new(Reason::Cancelled, detail, attempts, false);
        let now_ms = self.time.now_ms();
        let is_theirs =
            only_group(&found.headers).is_none_or(|only| group.is_none_or(|g| g == only));
        let answer = inbox(&found.headers).filter(|_| is_theirs).map(|inbox| {
            let answer = Answer {
                id: found.id.clone(),
                group: group.map(str::to_owned),
                status: Status::Cancelled,
                reason: None,
                detail: None,
                value: None,
            };
            let key = keys::replies(&self.key, inbox);
            let answer = answer.because(&rejection);
            answers::pack(&key, millis(REPLY_KEEP), now_ms, &answer)
        });
        let copy = match &self.kept {
            Some(_) => self.copy(found, group, &rejection, now_ms)?,
            None => Bytes::new(),
        };
        Ok([answer.unwrap_or_default(), copy])
    }

    fn copy(
        &self,
        found: &Found,
        group: Option<&str>,
        rejection: &Rejection,
        now_ms: u64,
    ) -> Result<Bytes, WireError> {
        let source_id = found.place.id().unwrap_or_else(|| found.id.clone());
        let context = Context {
            source: &self.key,
            source_id: &source_id,
            group,
            rejection,
            handler: "",
            evidence: None,
            now_ms,
            expires_at_ms: None,
        };
        let mut copy = BytesMut::new();
        let mut put = |part: &[u8]| {
            // What Redis holds is shorter.
            copy.put_u32(u32::try_from(part.len()).unwrap_or(u32::MAX));
            copy.put_slice(part);
        };
        match self.kind {
            Kind::Stream => {
                let (fields, _) =
                    dead_letter::stream_fields(&found.fields, &found.headers, &context);
                if fields.len() > FIELDS_MAX {
                    return Err(WireError::Headers(fields.len()));
                }
                for (name, value) in &fields {
                    put(name);
                    put(value);
                }
            }
            Kind::List { .. } => {
                let (headers, body, framing) = self.read(&found.place);
                let (mut headers, _) = dead_letter::list_headers(&headers, &context);
                if self.codec == Codec::Raw {
                    headers.push(dead_letter::FRAMING, "raw".to_owned());
                }
                put(&encode(&headers, &body, framing.codec())?);
            }
        }
        Ok(copy.freeze())
    }

    /// The headers and the payload of a value of a list, and how it is read: by what it is, unless the values are raw.
    fn read(&self, place: &Place) -> (Headers, Bytes, Framing) {
        let (_, value) = place.value();
        let is_of_host = matches!(place, Place::Value(key, _) if *key != self.key);
        let framings = match self.codec {
            // Only a host writes headers there.
            Codec::Raw if is_of_host => [Framing::Frame, Framing::Raw],
            Codec::Raw => [Framing::Raw; 2],
            Codec::Frame | Codec::Json => [Framing::Json, Framing::Auto],
        };
        let read = framings.into_iter().find_map(|framing| {
            let (headers, body) = parts(&value, framing)?;
            Some((headers, body, framing))
        });
        let (headers, body, framing) = read.unwrap_or_default();
        // A frame is written as a frame.
        let is_json = framing == Framing::Json && value.first() == Some(&b'{');
        let framing = if is_json {
            Framing::Json
        } else {
            Framing::Auto
        };
        (headers, body, framing)
    }
}

/// The words of a script.
fn words(command: &'static str, answer: redis::Value) -> Result<Vec<String>, RedisError> {
    let words = reply::array(command, reply::accepted(command, answer)?)?;
    words.into_iter().map(|w| reply::text(command, w)).collect()
}

/// The verdict of a word that all scripts use alike.
fn refusal(word: &str) -> Verdict {
    Verdict::Refused(match word.strip_prefix('-') {
        Some(why) => why.to_owned(),
        None => "its dead-letter queue is full".to_owned(),
    })
}
