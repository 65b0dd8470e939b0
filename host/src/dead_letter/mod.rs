//! Looking into a dead-letter queue, and bringing messages back from it.
//!
//! - [`entry`]: one dead letter, taken apart.
//! - [`peek`]: how many for which reason, and the newest.

use std::fmt;

use bytes::Bytes;

use crate::queue::connection::{Connector, Link};
use crate::queue::{Error as RedisError, reply};
use crate::wire::stream;

pub mod entry;
pub mod peek;

pub use entry::Entry;
pub use peek::Peek;

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
        const COMMAND: &str = "XREVRANGE";
        let mut command = redis::cmd(COMMAND);
        command.arg(&self.key).arg(newest).arg("-");
        command.arg("COUNT").arg(count);
        let read = async {
            let reply = self.link.call(COMMAND, &command).await?;
            reply::array(COMMAND, reply)?
                .into_iter()
                .map(|entry| {
                    let [id, fields] = reply::tuple(COMMAND, entry)?;
                    Ok((reply::text(COMMAND, id)?, reply::fields(COMMAND, fields)?))
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
