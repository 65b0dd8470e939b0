//! The journal of a message during one attempt.
//!
//! It is read at the first call that needs it. The record that a call has to write outlives the attempt: its host waits
//! for that ([`Session::settled`]) before it settles the message.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::{Mutex as AsyncMutex, watch};
use tracing::warn;

use super::provider::{Increment, Provider, Refused, Wrote};
use super::rules::Unknown;
use crate::delivery::journal::{Book, Content, Found, Record, Stored};
use crate::wire::journal::encode;

/// Bytes that are reserved for an answer, before anybody knows how large it is.
const RESERVED: usize = 16 << 10;

/// What all journals of a host have counted.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Records written.
    pub writes: Arc<Counter>,
    /// Bytes of these.
    pub bytes: Arc<Counter>,
    /// Calls that were not made: they got a recorded answer.
    pub replayed: Arc<Counter>,
    /// Calls whose answer is not known, and that were made again or refused.
    pub unknown: Arc<Counter>,
    /// Calls that were refused: there was no room.
    pub refused: Arc<Counter>,
    /// Records that an attempt has not used that acked.
    pub unused: Arc<Counter>,
}

impl Counts {
    fn wrote(&self, record: &[u8]) {
        self.writes.inc();
        self.bytes.inc_by(record.len() as u64);
    }
}

/// The journal of a message during one attempt.
pub struct Session {
    provider: Arc<dyn Provider>,
    /// The records; `None` = not read yet.
    book: AsyncMutex<Option<Book>>,
    /// Calls that may have something to write.
    open: watch::Sender<usize>,
    counts: Counts,
    /// Calls of this attempt that got a recorded answer.
    replayed: AtomicU32,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// A call, as the journal knows it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// Its name.
    pub(crate) name: String,
    /// The rule that allows it.
    pub(crate) rule: String,
    /// What to do if its answer is not known.
    pub(crate) unknown: Unknown,
}

/// What a call begins with.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The answer of an earlier attempt.
    Recorded(Record),
    /// The call is to be made.
    Call(Call),
}

impl Session {
    /// The journal of this message, for one attempt.
    pub fn new(provider: Arc<dyn Provider>, counts: &Counts) -> Arc<Self> {
        Arc::new(Self {
            provider,
            book: AsyncMutex::default(),
            open: watch::Sender::new(0),
            counts: counts.clone(),
            replayed: AtomicU32::new(0),
        })
    }

    fn replays(&self) {
        self.replayed.fetch_add(1, Ordering::Relaxed);
        self.counts.replayed.inc();
    }

    /// How many calls of this attempt got a recorded answer.
    pub fn replayed(&self) -> u32 {
        self.replayed.load(Ordering::Relaxed)
    }

    /// Wait until nothing is left to write.
    pub async fn settled(&self) {
        let mut open = self.open.subscribe();
        // An error: the session is gone.
        drop(open.wait_for(|open| *open == 0).await);
    }

    /// The names of the records that an attempt has not used. If it made no call that is recorded, they are known only if they
    /// are read for this.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub async fn unused(&self, reads: bool) -> Result<Vec<String>, Refused> {
        let mut held = self.book.lock().await;
        if held.is_none() && !reads {
            return Ok(Vec::new());
        }
        let book = self.read(&mut held).await?;
        let unused: Vec<String> = book.unused().map(str::to_owned).collect();
        self.counts.unused.inc_by(unused.len() as u64);
        Ok(unused)
    }

    /// The value that was remembered last under this name.
    pub(crate) async fn recall(&self, name: &str) -> Result<Option<Bytes>, Refused> {
        let mut held = self.book.lock().await;
        let book = self.read(&mut held).await?;
        let newest = book.newest(name);
        if newest.is_some() {
            self.replays();
        }
        Ok(newest.map(|record| value(record.content)))
    }

    /// Remember a value under this name.
    pub(crate) async fn remember(&self, name: String, value: Bytes) -> Result<(), Refused> {
        let mut held = self.book.lock().await;
        let book = self.read(&mut held).await?;
        let record = self.record(name, 0, Content::Value(value));
        let stored = stored(book.next(), record, 0)?;
        // Where this does not return, it may be written.
        book.removed(stored.number);
        match self
            .provider
            .intend(stored.number, &stored.bytes, false)
            .await
        {
            Ok(Wrote::Done) => {}
            Ok(Wrote::Known(known)) if known == stored => {}
            Ok(Wrote::Known(_) | Wrote::Shared | Wrote::Gone) => return Err(Refused::Lost),
            Err(refused) => return Err(self.refused(refused)),
        }
        self.counts.wrote(&stored.bytes);
        book.written(stored);
        Ok(())
    }

    /// Add to the number of a key, once for the message. `elsewhere` adds, if the journal is not where the key is.
    pub(crate) async fn increment(
        &self,
        key: &str,
        delta: i64,
        elsewhere: impl Future<Output = Result<i64, String>>,
    ) -> Result<i64, Refused> {
        let mut held = self.book.lock().await;
        let book = self.read(&mut held).await?;
        let name = format!("increment:{key} {delta}");
        let asked = match book.call(&name) {
            Found::Answer(record) => {
                self.replays();
                return sum(record.content);
            }
            // An earlier call had no answer: it is repeated.
            Found::Open(open) => open,
            Found::Nothing(nth) => {
                book.ended(&name, nth);
                let open = self.record(name.clone(), nth, Content::Intent);
                let empty = Record {
                    content: Content::Value(Bytes::new()),
                    ..open.clone()
                };
                Stored {
                    record: open,
                    ..stored(book.next(), empty, 0)?
                }
            }
        };
        let number = asked.number;
        if !self.provider.adds() {
            let sum = elsewhere.await.map_err(Refused::Failed)?;
            let content = Content::Value(sum.to_string().into());
            let record = Record {
                content,
                ..asked.record
            };
            let known = stored(number, record, 0)?;
            self.provider.intend(number, &known.bytes, false).await?;
            book.written(known);
            return Ok(sum);
        }
        book.written(asked.clone());
        // Where this does not return, it may be added.
        book.unknown(number);
        let wrote = self.provider.increment(Increment {
            number,
            record: &asked.bytes,
            key,
            delta,
        });
        match wrote.await {
            Ok(Wrote::Known(known)) if known.record.name == name => {
                self.counts.wrote(&known.bytes);
                let added = known.record.content.clone();
                book.written(known);
                sum(added)
            }
            Ok(_) => Err(Refused::Lost),
            Err(Refused::Unavailable(why)) => Err(Refused::Unavailable(why)),
            Err(refused) => {
                book.removed(number);
                Err(self.refused(refused))
            }
        }
    }

    /// The journal, which is read now if it was not yet.
    async fn read<'a>(&self, book: &'a mut Option<Book>) -> Result<&'a mut Book, Refused> {
        Ok(match book {
            Some(known) => known,
            unread => unread.insert(self.provider.read().await?),
        })
    }

    fn record(&self, name: String, nth: u32, content: Content) -> Record {
        Record {
            name,
            rule: String::new(),
            nth,
            key: String::new(),
            at_ms: self.provider.now_ms(),
            content,
        }
    }

    fn refused(&self, refused: Refused) -> Refused {
        if let Refused::Full(_) = refused {
            self.counts.refused.inc();
        }
        refused
    }

    /// A call begins. A caller that waits no longer has changed nothing.
    pub(crate) async fn begin(self: &Arc<Self>, asked: Asked) -> Result<Begun, Refused> {
        let mut held = self.book.lock().await;
        let book = self.read(&mut held).await?;
        let (nth, resumed) = match book.call(&asked.name) {
            Found::Answer(record) => {
                self.replays();
                return Ok(Begun::Recorded(record));
            }
            Found::Open(open) => {
                self.counts.unknown.inc();
                if asked.unknown == Unknown::Fail {
                    book.unknown(open.number);
                    return Err(Refused::Unknown);
                }
                // Until this is answered, the call is not under way.
                book.unknown(open.number);
                match self.provider.intend(open.number, &open.bytes, true).await? {
                    Wrote::Done => {}
                    Wrote::Known(stored) if stored == open => {}
                    Wrote::Known(stored) if stored.record.content.is_answer() => {
                        let record = stored.record.clone();
                        book.written(stored);
                        self.replays();
                        return Ok(Begun::Recorded(record));
                    }
                    Wrote::Known(_) | Wrote::Shared | Wrote::Gone => {
                        return Err(Refused::Lost);
                    }
                }
                book.written(open.clone());
                (open.record.nth, Some(open))
            }
            Found::Nothing(nth)
                if asked.unknown == Unknown::Fail && book.has_unknown(&asked.rule) =>
            {
                book.ended(&asked.name, nth);
                self.counts.unknown.inc();
                return Err(Refused::Unknown);
            }
            Found::Nothing(nth) => (nth, None),
        };
        drop(held);
        self.open.send_modify(|open| *open += 1);
        Ok(Begun::Call(Call {
            session: Arc::clone(self),
            asked,
            nth,
            is_resumed: resumed.is_some(),
            intent: Mutex::new(resumed.map_or(Intent::None, Intent::Written)),
        }))
    }
}

/// How far the intent of a call is.
#[derive(Debug)]
enum Intent {
    /// Nothing is written.
    None,
    /// It may be written: there is no answer yet.
    Asked(Stored),
    /// It is written.
    Written(Stored),
}

/// A call that is to be made.
#[derive(Debug)]
pub(crate) struct Call {
    session: Arc<Session>,
    asked: Asked,
    /// Which call of its name it is in the attempt.
    nth: u32,
    /// An earlier attempt may have made it.
    is_resumed: bool,
    intent: Mutex<Intent>,
}

/// How a call has ended.
#[derive(Debug)]
pub(crate) enum End {
    /// With an answer that is kept.
    Answer(Content),
    /// With an answer that is not kept.
    NotKept,
    /// It was not made.
    Unsent,
    /// It may have been made.
    Unknown,
}

impl Call {
    /// What distinguishes it from other calls of the message: its name, and which call of that name it is.
    pub(crate) fn identity(&self) -> String {
        match self.nth {
            1 => self.asked.name.clone(),
            nth => format!("{} {nth}", self.asked.name),
        }
    }

    /// The key that an earlier attempt has sent it with.
    pub(crate) fn key(&self) -> Option<String> {
        match &*self.intent.lock() {
            Intent::Written(stored) => Some(stored.record.key.clone()),
            Intent::None | Intent::Asked(_) => None,
        }
    }

    /// Write the intent, before the call leaves with this key. A caller that waits no longer has not made the call.
    pub(crate) async fn intend(&self, key: String) -> Result<(), Refused> {
        if self.is_resumed {
            return Ok(());
        }
        let session = &self.session;
        let mut held = session.book.lock().await;
        let book = held.as_mut().expect("it was read");
        let record = Record {
            rule: self.asked.rule.clone(),
            key,
            ..session.record(self.asked.name.clone(), self.nth, Content::Intent)
        };
        let stored = stored(book.next(), record, RESERVED)?;
        // No other call takes the number, whatever the answer is.
        book.written(stored.clone());
        *self.intent.lock() = Intent::Asked(stored.clone());
        let refused = match session
            .provider
            .intend(stored.number, &stored.bytes, false)
            .await
        {
            Ok(Wrote::Done) => None,
            Ok(Wrote::Known(known)) if known == stored => None,
            Ok(Wrote::Known(_) | Wrote::Shared | Wrote::Gone) => Some(Refused::Lost),
            Err(refused) => Some(refused),
        };
        let Some(refused) = refused else {
            session.counts.wrote(&stored.bytes);
            *self.intent.lock() = Intent::Written(stored);
            return Ok(());
        };
        if let Refused::Full(_) | Refused::Lost = refused {
            *self.intent.lock() = Intent::None;
            book.removed(stored.number);
        }
        Err(session.refused(refused))
    }

    /// The call has ended. Returns the answer that stands: the one that was first.
    pub(crate) async fn end(&self, end: End) -> Option<Content> {
        let intent = std::mem::replace(&mut *self.intent.lock(), Intent::None);
        let ended = self.with_book(|book| book.ended(&self.asked.name, self.nth));
        ended.await;
        let (intent, answer) = match (intent, end) {
            (Intent::None, _) => return None,
            (Intent::Written(intent), End::Answer(content)) => (intent, Some(content)),
            // Another attempt may still get an answer that is kept (rule 34).
            (Intent::Written(intent), End::NotKept | End::Unsent) if !self.is_resumed => {
                (intent, None)
            }
            (Intent::Written(intent), _) => {
                self.with_book(|book| book.unknown(intent.number)).await;
                return None;
            }
            // Without the answer to its intent, the call was not made.
            (Intent::Asked(intent), _) => (intent, None),
        };
        match self.write(&intent, answer.as_ref()).await {
            Ok(content) => content,
            Err(error) => {
                warn!(%error, call = self.asked.name, "the answer to a call is not recorded");
                self.with_book(|book| book.unknown(intent.number)).await;
                None
            }
        }
    }

    async fn write(
        &self,
        intent: &Stored,
        answer: Option<&Content>,
    ) -> Result<Option<Content>, Refused> {
        let (number, provider) = (intent.number, &self.session.provider);
        let record = |content: Content| {
            let record = Record {
                content,
                ..intent.record.clone()
            };
            stored(number, record, 0)
        };
        let mut answer = answer.cloned().map(record).transpose()?;
        let wrote = loop {
            let bytes = answer.as_ref().map(|answer| &answer.bytes);
            match (provider.answer(number, &intent.bytes, bytes).await, &answer) {
                // It has no room: the next attempt gets the same error.
                (Err(Refused::Full(_)), Some(full)) if full.bytes.len() > RESERVED => {
                    let size = full.bytes.len() as u64;
                    answer = Some(record(Content::TooLarge(size.saturating_sub(1)))?);
                }
                (wrote, _) => break wrote?,
            }
        };
        let known = match wrote {
            Wrote::Done => answer.inspect(|answer| self.session.counts.wrote(&answer.bytes)),
            Wrote::Known(known) if known.record.content.is_answer() => Some(known),
            Wrote::Shared => {
                self.with_book(|book| book.unknown(number)).await;
                return Ok(None);
            }
            // The message has left its queue, or another host has removed the intent.
            Wrote::Known(_) | Wrote::Gone => None,
        };
        let content = known.as_ref().map(|known| known.record.content.clone());
        self.with_book(|book| match known {
            Some(known) => book.written(known),
            None => book.removed(number),
        })
        .await;
        Ok(content)
    }

    async fn with_book(&self, change: impl FnOnce(&mut Book)) {
        if let Some(book) = &mut *self.session.book.lock().await {
            change(book);
        }
    }
}

/// What a record of a value says.
fn value(content: Content) -> Bytes {
    match content {
        Content::Value(value) => value,
        Content::Intent | Content::Response { .. } | Content::TooLarge(_) => Bytes::new(),
    }
}

fn sum(content: Content) -> Result<i64, Refused> {
    let text = value(content);
    let sum = str::from_utf8(&text)
        .ok()
        .and_then(|text| text.parse().ok());
    sum.ok_or_else(|| Refused::Unavailable("a record is no number".to_owned()))
}

/// A record as it is written; it takes `reserved` bytes at least.
fn stored(number: u32, record: Record, reserved: usize) -> Result<Stored, Refused> {
    let bytes = encode(&record, reserved);
    let bytes = bytes.map_err(|error| Refused::Full(error.to_string()))?;
    Ok(Stored {
        number,
        record,
        bytes,
    })
}

impl Drop for Call {
    fn drop(&mut self) {
        self.session.open.send_modify(|open| *open -= 1);
    }
}
