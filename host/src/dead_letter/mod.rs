//! Looking into a dead-letter queue, and bringing messages back from it: what `hostler dlq` does,
//! for programs.
//!
//! | command | here |
//! |---|---|
//! | `dlq peek` | [`DeadLetters::peek`]: how many for which reason, and the newest |
//! | `dlq show` | [`DeadLetters::find`]: one, whole |
//! | `dlq replay` | [`DeadLetters::replay_all`]; or [`DeadLetters::scan`] and [`DeadLetters::replay`], page by page |
//! | `dlq purge` | [`DeadLetters::purge_all`]; or [`DeadLetters::scan`] and [`DeadLetters::delete`] |
//! | `dlq export` | [`DeadLetters::scan`] and [`Entry::line`] |
//!
//! The commands are made of nothing else. Replay everything that died for one reason:
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
//! Print what died, as lines that `hostler publish --lines --json` reads back whole:
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
//! Whatever is given up half-way (a future that is dropped, a process that dies) leaves no entry
//! half moved: each is moved by one script, or, across slots, in steps that the next replay finishes.

use std::fmt;
use std::sync::OnceLock;

use bytes::Bytes;

use crate::delivery::message::Headers;
use crate::redis::connection::{Connector, Link};
use crate::redis::target::{PasswordSource, Target, TargetError, TlsFiles};
use crate::redis::{Error as RedisError, reply};
use crate::wire::dead_letter as header;
use crate::wire::stream::{self, Decoded};

mod apart;
pub mod entry;
mod list;
pub mod peek;
pub mod replay;
pub mod scan;

pub use entry::Entry;
pub use peek::Peek;
pub use replay::{Replay, ReplayOptions, Replayed, Skip};
pub use scan::{Filter, Scan};

/// Why a dead-letter queue cannot be looked into.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The key holds something else.
    #[error("`{key}` is no stream and no list: name the key of a dead-letter queue")]
    NoStream {
        /// The key.
        key: String,
    },
    /// An id is none.
    #[error(
        "`{id}` is no id of an entry: in a stream they look like 1700000000000-0, and `hostler dlq peek` shows them"
    )]
    NoId {
        /// What was given.
        id: String,
    },
    /// The URL leads nowhere.
    #[error(transparent)]
    Url(#[from] TargetError),
    /// Redis failed or refused.
    #[error(transparent)]
    Redis(RedisError),
}

/// The dead-letter queue of a stream or of a list.
pub struct DeadLetters {
    link: Link,
    key: String,
    options: stream::Options,
    kind: OnceLock<Kind>,
    removed: list::Removed,
}

/// What a dead-letter queue is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Stream,
    List,
}

impl fmt::Debug for DeadLetters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeadLetters")
            .field("key", &self.key)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl DeadLetters {
    /// The dead-letter queue of this key. Nothing is asked yet.
    pub fn new(connector: &Connector, key: impl Into<String>) -> Self {
        Self {
            link: connector.link("dead-letters"),
            key: key.into(),
            options: stream::Options::default(),
            kind: OnceLock::new(),
            removed: list::Removed::default(),
        }
    }

    /// The same on the server of this URL (`redis://`, `rediss://`, `unix://`), with the password
    /// that stands in it. Nothing is asked yet.
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
            header::replay::stream_fields(&entry.fields, &entry.headers, None)
        };
        stream::decode(&queue.into(), &entry.id, enqueued_ms, &fields, options)
    }

    /// What the key holds; one that does not exist is an empty stream. Whoever may not ask has a
    /// stream, or is told what goes wrong.
    async fn kind(&self) -> Result<Kind, Error> {
        const COMMAND: &str = "TYPE";
        if let Some(kind) = self.kind.get() {
            return Ok(*kind);
        }
        let mut command = redis::cmd(COMMAND);
        command.arg(&self.key);
        let answer = self.link.call(COMMAND, &command).await;
        let kind = match answer.and_then(|answer| reply::text(COMMAND, answer)) {
            Ok(kind) => kind,
            Err(error) if error.is_missing_right() => return Ok(Kind::Stream),
            Err(error) => return Err(self.failed(error)),
        };
        let kind = match kind.as_str() {
            "none" => return Ok(Kind::Stream),
            "stream" => Kind::Stream,
            "list" => Kind::List,
            _ => {
                return Err(Error::NoStream {
                    key: self.key.clone(),
                });
            }
        };
        Ok(*self.kind.get_or_init(|| kind))
    }

    fn failed(&self, error: RedisError) -> Error {
        match &error {
            RedisError::Configuration { code, .. } if code == "WRONGTYPE" => Error::NoStream {
                key: self.key.clone(),
            },
            _ => Error::Redis(error),
        }
    }

    /// At most `count` entries from `newest` downwards (`+` = the end).
    async fn newest(&self, newest: &str, count: usize) -> Result<Vec<Entry>, Error> {
        self.read("XREVRANGE", newest, "-", count).await
    }

    /// At most `count` entries from `from` upwards, up to `last`.
    async fn range(&self, from: &str, last: &str, count: usize) -> Result<Vec<Entry>, Error> {
        self.read("XRANGE", from, last, count).await
    }

    async fn read(
        &self,
        name: &'static str,
        from: &str,
        to: &str,
        count: usize,
    ) -> Result<Vec<Entry>, Error> {
        let mut command = redis::cmd(name);
        command.arg(&self.key).arg(from).arg(to);
        command.arg("COUNT").arg(count);
        let read = async {
            let reply = self.link.call(name, &command).await?;
            reply::array(name, reply)?
                .into_iter()
                .map(|entry| {
                    let [id, fields] = reply::tuple(name, entry)?;
                    Ok((reply::text(name, id)?, reply::fields(name, fields)?))
                })
                .collect::<Result<Vec<(String, Vec<(Bytes, Bytes)>)>, RedisError>>()
        };
        let entries = read.await.map_err(|error| self.failed(error))?;
        Ok(entries
            .into_iter()
            .map(|(id, fields)| Entry::new(id, fields, &self.options))
            .collect())
    }
}
