//! Looking into a dead-letter queue, and bringing messages back from it.
//!
//! - [`entry`]: one dead letter, taken apart.
//! - [`peek`]: how many for which reason, and the newest.
//! - [`scan`]: all that are there now and match a filter, oldest first; finding one, deleting.
//! - [`replay`]: moving them back.
//!
//! Replay everything that died for one reason:
//!
//! ```no_run
//! # async fn example(connector: &hostler::queue::connection::Connector)
//! # -> Result<(), hostler::dead_letter::Error> {
//! use hostler::dead_letter::{DeadLetters, Filter, ReplayOptions};
//!
//! let letters = DeadLetters::new(connector, "orders:dead");
//! let filter = Filter {
//!     reasons: vec!["timeout".to_owned()],
//!     ..Filter::default()
//! };
//! let mut replay = letters.replay(ReplayOptions::default());
//! let mut scan = letters.scan(filter).await?;
//! while let Some(entries) = scan.next().await? {
//!     replay.send(&entries).await?;
//! }
//! println!("{} replayed", replay.report().replayed);
//! # Ok(())
//! # }
//! ```

use std::fmt;

use bytes::Bytes;

use crate::queue::connection::{Connector, Link};
use crate::queue::{Error as RedisError, reply};
use crate::wire::stream;

pub mod entry;
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
    #[error("`{key}` is no stream: name the key of a dead-letter queue")]
    NoStream {
        /// The key.
        key: String,
    },
    /// An id is none.
    #[error(
        "`{id}` is no id of an entry: they look like 1700000000000-0, and `hostler dlq peek` shows them"
    )]
    NoId {
        /// What was given.
        id: String,
    },
    /// Redis failed or refused.
    #[error(transparent)]
    Redis(RedisError),
}

/// A stream's dead-letter queue.
pub struct DeadLetters {
    link: Link,
    key: String,
    options: stream::Options,
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
        }
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
