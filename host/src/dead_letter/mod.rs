//! Looking into a dead-letter queue, and replaying messages from it: `hostler dlq`, for programs.
//!
//! | command | here |
//! |---|---|
//! | `dlq peek` | [`DeadLetters::peek`]: the counts by reason, and the newest |
//! | `dlq groups` | [`DeadLetters::groups`]: how many died for each cause |
//! | `dlq show` | [`DeadLetters::find`]: one, whole |
//! | `dlq replay` | [`DeadLetters::replay_all`]; or [`DeadLetters::scan`] and [`DeadLetters::replay`], page by page |
//! | `dlq purge` | [`DeadLetters::purge_all`]; or [`DeadLetters::scan`] and [`DeadLetters::delete`] |
//! | `dlq export` | [`DeadLetters::scan`] and [`Entry::line`] |
//!
//! The commands use nothing else. Replay all dead letters of one reason:
//!
//! ```no_run
//! # async fn example() -> Result<(), hostler::dead_letter::Error> {
//! use hostler::dead_letter::{DeadLetters, Filter, ReplayOptions};
//!
//! let letters = DeadLetters::connect("redis://localhost:6379/0", "orders:dead")?;
//! let filter = Filter {
//!     reasons: vec!["timeout".to_owned()],
//!     ..Filter::default()
//! };
//! let replayed = letters.replay_all(filter, ReplayOptions::default()).await?;
//! println!("{} replayed", replayed.replayed);
//! # Ok(())
//! # }
//! ```
//!
//! Print dead letters as lines that `hostler publish --lines --json` reads back whole:
//!
//! ```no_run
//! # async fn example(letters: &hostler::dead_letter::DeadLetters)
//! # -> Result<(), hostler::dead_letter::Error> {
//! # use hostler::dead_letter::Filter;
//! let mut scan = letters.scan(Filter::default()).await?;
//! while let Some(entries) = scan.next().await? {
//!     for entry in entries {
//!         println!("{}", entry.line());
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Only dead letters are taken ([`Entry::is_dead_letter_in`]), unless a [`Filter`] names others; and
//! nothing is taken from a key that is a queue which is served ([`Error::Served`]).
//!
//! A future that is dropped half-way, or a process that dies, leaves no entry half moved: one script
//! moves it, or, across slots, a two-phase move that the next replay finishes.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};

use crate::delivery::message::Headers;
use crate::redis::connection::{Connector, Link};
use crate::redis::script::Script;
use crate::redis::target::{PasswordSource, Target, TargetError, TlsFiles};
use crate::redis::walk::{Entries, Order, Places, stretch};
use crate::redis::{Error as RedisError, reply, server_ms};
use crate::wire::dead_letter as header;
use crate::wire::stream::{self, Decoded};

pub mod entry;
pub mod groups;
mod list;
pub mod peek;
pub mod replay;
pub mod scan;
pub mod scripts;
mod served;
mod two_phase_move;

pub use entry::Entry;
pub use groups::{Group, Groups};
pub use peek::Peek;
pub use replay::{Replay, ReplayOptions, Replayed, Skip};
pub use scan::{Filter, Scan};

/// The answer of `TYPE` for a missing key.
const NO_KEY: &str = "none";
/// Most entries deleted in one round trip.
const DELETED_PER_PIPELINE: usize = 256;

/// Why a command on a dead-letter queue failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key holds neither a stream nor a list.
    #[error("`{0}` is neither a stream nor a list: name the key of a dead-letter queue")]
    NoStream(String),
    /// This text is not the id of an entry.
    #[error(
        "`{0}` is not an id of an entry: in a stream they look like 1700000000000-0, and `hostler dlq peek` shows them"
    )]
    NoId(String),
    /// The key is not that of a dead-letter queue, as far as it can be known.
    #[error("`{key}` is a queue that is served: {by}")]
    Served {
        /// The key.
        key: String,
        /// Who serves it.
        by: String,
    },
    /// The URL is wrong.
    #[error(transparent)]
    Url(#[from] TargetError),
    /// Redis failed or refused.
    #[error(transparent)]
    Redis(RedisError),
}

/// The dead-letter queue of a stream or of a list. A method that only looks at it changes nothing, also if it fails.
#[derive(Debug)]
pub struct DeadLetters {
    link: Link,
    /// Reads the next entries while the last ones are moved: on `link` they would wait for all moves.
    ahead: Link,
    key: String,
    options: stream::Options,
    even_if_served: bool,
    heads_only: bool,
    kind: OnceLock<Kind>,
    /// How many entries of a list were removed through this handle, or were found gone.
    removed: AtomicU64,
}

/// The type of a dead-letter queue.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Stream,
    List,
}

impl DeadLetters {
    /// The dead-letter queue of this key. Sends nothing yet.
    pub fn new(connector: &Connector, key: impl Into<String>) -> Self {
        let key = key.into();
        Self {
            link: connector.link("dead-letters").of(&key),
            ahead: connector.link("dead-letters").of(&key),
            key,
            options: stream::Options::default(),
            even_if_served: false,
            heads_only: false,
            kind: OnceLock::new(),
            removed: AtomicU64::new(0),
        }
    }

    /// The same on the server of this URL (`redis://`, `rediss://`, `unix://`), with the password
    /// in the URL. Sends nothing yet.
    ///
    /// # Errors
    /// [`Error::Url`].
    pub fn connect(url: &str, key: impl Into<String>) -> Result<Self, Error> {
        let target = Target::parse(url, PasswordSource::Url, TlsFiles::default())?;
        Ok(Self::new(&Connector::new(target, "hostler"), key))
    }

    /// Read entries as the queue in front of it does.
    #[must_use]
    pub fn reading(mut self, options: stream::Options) -> Self {
        self.options = options;
        self
    }

    /// Scan it even if it is a queue that is served, such as a dead-letter queue with hosts of its own.
    #[must_use]
    pub fn even_if_served(mut self, even: bool) -> Self {
        self.even_if_served = even;
        self
    }

    /// Read entries without their bodies, their logs and the headers of their messages: for rows and counts. The
    /// memory held at a time is bounded, however large the entries are; of a list, one value is read whole.
    #[must_use]
    pub fn heads_only(mut self) -> Self {
        self.heads_only = true;
        self
    }

    /// Who serves it as a queue, for people, as far as that can be known.
    pub async fn served_by(&self) -> Result<Option<String>, Error> {
        served::by_whom(self).await
    }

    /// Its key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The message that a handler gets when this dead letter is replayed to `to`, or else to the
    /// queue that it died in; `enqueued_ms` is when that is, in epoch milliseconds.
    pub fn replayed(&self, entry: &Entry, to: Option<&str>, enqueued_ms: u64) -> Decoded {
        let queue = to.or(entry.source.as_deref()).unwrap_or_default();
        // The fields of a list's entry are ours, however streams are read.
        let ours = stream::Options::default();
        let options = match entry.value {
            None => &self.options,
            Some(_) => &ours,
        };
        let is_home = to.is_none() || to == entry.source.as_deref();
        let fields = if entry.value.is_some() && !is_home && list::is_bare(&entry.headers, queue) {
            stream::encode(entry.body.clone(), &Headers::default(), &options.body_field)
        } else {
            let replaying = header::replay::Replaying::default();
            header::replay::stream_fields(&entry.fields, &entry.headers, replaying)
        };
        stream::decode(&queue.into(), &entry.id, enqueued_ms, &fields, options)
    }

    /// Count the whole queue by reason, as it is now, and read the `limit` newest entries. A key
    /// that does not exist is an empty queue.
    pub async fn peek(&self, limit: usize) -> Result<Peek, Error> {
        self.peek_for(&[], limit).await
    }

    /// The same of entries with one of these reasons ([`peek::UNKNOWN`]: of those that are no dead
    /// letters). Empty = any.
    pub async fn peek_for(&self, reasons: &[String], limit: usize) -> Result<Peek, Error> {
        Peek::read(self, reasons, limit).await
    }

    /// Count the entries that match `filter` by their causes ([`Entry::signature_in`]), as they are now.
    pub async fn groups(&self, filter: Filter) -> Result<Groups, Error> {
        Groups::read(self, filter).await
    }

    /// Go through the entries that are there now and match `filter`, oldest first.
    ///
    /// # Errors
    /// [`Error`]; nothing was changed. A wrong id in the filter is [`Error::NoId`], and a key that is a
    /// queue [`Error::Served`], unless [`DeadLetters::even_if_served`].
    pub async fn scan(&self, filter: Filter) -> Result<Scan<'_>, Error> {
        if !self.even_if_served
            && let Some(by) = self.served_by().await?
        {
            return Err(Error::Served {
                key: self.key.clone(),
                by,
            });
        }
        Scan::begin(self, filter).await
    }

    /// Begin a replay. Nothing is moved yet.
    pub fn replay(&self, options: ReplayOptions) -> Replay<'_> {
        Replay::begin(self, options)
    }

    /// Replay the entries that are there now and match `filter`, oldest first, to the end.
    ///
    /// # Errors
    /// [`Error`]; entries moved before stay moved, and a second call goes on with the rest.
    pub async fn replay_all(
        &self,
        filter: Filter,
        options: ReplayOptions,
    ) -> Result<Replayed, Error> {
        let mut replay = self.replay(options);
        let mut scan = self.scan(filter).await?;
        let mut next = scan.next().await?;
        while let Some(entries) = next {
            let sending = async {
                let mut rest = entries.as_slice();
                while !rest.is_empty() && !replay.is_done() {
                    let (chunk, behind) = rest.split_at(replay.chunk().min(rest.len()));
                    replay.pace().await;
                    replay.send(chunk).await?;
                    rest = behind;
                }
                Ok::<_, Error>(!replay.is_done())
            };
            // On the heap: the future of this would be large.
            next = scan.next_beside(Box::pin(sending)).await?;
        }
        Ok(replay.report().clone())
    }

    /// Delete the entries that are there now and match `filter`. Returns how many there were.
    ///
    /// # Errors
    /// [`Error`]; entries deleted before are gone.
    pub async fn purge_all(&self, filter: Filter) -> Result<u64, Error> {
        let mut scan = self.scan(filter).await?;
        let mut purged = 0;
        while let Some(entries) = scan.next().await? {
            purged += self.delete(&entries).await?;
        }
        Ok(purged)
    }

    /// Delete entries: of a stream by their ids, of a list by their values. Returns how many of them
    /// were still there.
    ///
    /// # Errors
    /// [`Error`]; after a lost connection they may be gone or not, and this may be repeated.
    pub async fn delete(&self, entries: &[Entry]) -> Result<u64, Error> {
        if entries.is_empty() {
            return Ok(0);
        }
        let is_list = self.kind().await? == Kind::List;
        let command = if is_list { "LREM" } else { "XDEL" };
        let mut deleted = 0;
        for entries in entries.chunks(DELETED_PER_PIPELINE) {
            let mut pipeline = Pipeline::new();
            if !is_list {
                let ids: Vec<&str> = entries.iter().map(|entry| entry.id.as_str()).collect();
                pipeline.cmd(command).arg(&self.key).arg(ids);
            }
            for value in entries.iter().filter_map(|entry| entry.value.as_ref()) {
                let call = pipeline.cmd(command).arg(&self.key);
                call.arg(-1).arg(&value[..]);
            }
            for answer in self.checked(self.link.pipeline(command, &pipeline).await)? {
                let count = reply::accepted(command, answer);
                let count = count.and_then(|count| reply::count(command, &count));
                deleted += self.checked(count)?;
                // An entry that was gone is removed as well.
                self.note_removed(1);
            }
        }
        Ok(deleted)
    }

    /// One entry, if it is there.
    ///
    /// # Errors
    /// [`Error`]; a wrong id is [`Error::NoId`].
    pub async fn find(&self, id: &str) -> Result<Option<Entry>, Error> {
        if self.kind().await? == Kind::Stream {
            let id = scan::normalized(id)?;
            let mut walk = self.walk(Order::Up, &id, &id);
            return Ok(self.read(&self.link, &mut walk).await?.pop());
        }
        let filter = Filter {
            ids: vec![id.to_owned()],
            any_entry: true,
            ..Filter::default()
        };
        let mut scan = Scan::begin(self, filter).await?;
        while let Some(entries) = scan.next().await? {
            if let Some(entry) = entries.into_iter().next() {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// How many entries there are now.
    pub async fn length(&self) -> Result<u64, Error> {
        let command = match self.kind().await? {
            Kind::Stream => "XLEN",
            Kind::List => "LLEN",
        };
        self.checked(self.link.count(command, &self.key).await)
    }

    /// Whether there is a key of this name; true if the user may not ask. Redis deletes a list with its
    /// last entry.
    pub async fn exists(&self) -> Result<bool, Error> {
        Ok(self.redis_type().await?.as_deref() != Some(NO_KEY))
    }

    fn head_or_whole(&self, entry: Entry) -> Entry {
        match self.heads_only {
            true => entry.into_head(),
            false => entry,
        }
    }

    async fn now_ms(&self) -> Result<u64, Error> {
        self.checked(server_ms(&self.link).await)
    }

    fn note_removed(&self, count: u64) {
        self.removed.fetch_add(count, Ordering::Relaxed);
    }

    fn removed(&self) -> u64 {
        self.removed.load(Ordering::Relaxed)
    }

    /// The type of the key; a missing key is an empty stream. If the user may not ask, the type is taken
    /// for a stream: the next command fails if that is wrong.
    async fn kind(&self) -> Result<Kind, Error> {
        if let Some(kind) = self.kind.get() {
            return Ok(*kind);
        }
        let kind = match self.redis_type().await?.as_deref() {
            None | Some(NO_KEY) => return Ok(Kind::Stream),
            Some("stream") => Kind::Stream,
            Some("list") => Kind::List,
            Some(_) => return Err(Error::NoStream(self.key.clone())),
        };
        Ok(*self.kind.get_or_init(|| kind))
    }

    /// The type of the key; `None` if the user may not ask.
    async fn redis_type(&self) -> Result<Option<String>, Error> {
        match self.link.type_of(&self.key).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_missing_right() => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// The same with an error of this queue.
    fn checked<T>(&self, answer: Result<T, RedisError>) -> Result<T, Error> {
        answer.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: RedisError) -> Error {
        match &error {
            RedisError::Configuration { code, .. } if code == "WRONGTYPE" => {
                Error::NoStream(self.key.clone())
            }
            _ => Error::Redis(error),
        }
    }

    /// At most `count` entries from `newest` downwards (`+` = the end); fewer if they are large.
    async fn newest(&self, newest: &str, count: usize) -> Result<Vec<Entry>, Error> {
        let mut walk = self.walk(Order::Down, newest, "-").most(count);
        self.read(&self.link, &mut walk).await
    }

    /// A walk between these ids.
    fn walk(&self, order: Order, from: &str, to: &str) -> Entries {
        let mut walk = Entries::new(&self.key, order, from, to);
        if self.heads_only {
            let wanted = entry::HEADS.iter().map(|header| format!("h:{header}"));
            walk.wanted = (wanted.collect(), entry::TEXT_MAX);
        }
        walk.is_plain = !self.heads_only;
        walk
    }

    /// The next entries of a walk.
    async fn read(&self, link: &Link, walk: &mut Entries) -> Result<Vec<Entry>, Error> {
        let entries = self.checked(walk.next(link).await)?.into_iter();
        let entry = |(id, fields)| Entry::new(id, fields, &self.options);
        Ok(entries.map(entry).collect())
    }

    /// Values of a list: leave out the `passed` oldest, and read at most `most`, up to the first mark there is. Also says
    /// how many are left before the end.
    async fn oldest_values(
        &self,
        (passed, most): (u64, u64),
        marks: &[Bytes],
    ) -> Result<(Vec<Bytes>, Option<u64>), Error> {
        let places = (passed, most);
        let read = stretch(&self.link, &self.key, Places::Oldest, places, marks).await;
        let (values, left) = self.checked(read)?;
        Ok((values.into_iter().map(|(value, _)| value).collect(), left))
    }

    /// Run a script on this queue.
    async fn run(&self, script: &'static Script, call: &Cmd) -> Result<Value, Error> {
        self.checked(self.link.run(script, call).await)
    }
}
