//! Publishing: thousands of messages per round trip, in bounded memory.

use std::fmt;

use bytes::Bytes;
use redis::{Pipeline, Value};

use super::connection::{Connector, Link};
use super::error::Error as RedisError;
use super::reply;
use crate::delivery::message::Headers;
use crate::wire::list::{self, Codec};
use crate::wire::stream;

/// How many messages go in one round trip at most.
pub const BATCH_MESSAGES: usize = 4096;
/// How many bytes go in one round trip, unless a single message is larger.
pub const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Where messages go.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Destination {
    /// Appended to a stream.
    Stream {
        /// Its key.
        key: String,
        /// The field that holds the body: usually [`stream::BODY_FIELD`].
        body_field: Bytes,
        /// Trim the stream to about this many entries: the oldest go, read or not.
        max_len: Option<u64>,
    },
    /// Pushed to the left of a list, whose consumers take from the right.
    List {
        /// Its key.
        key: String,
        /// How values are written.
        codec: Codec,
    },
    /// Sent to whoever listens to a channel now.
    Channel {
        /// Its name.
        name: String,
        /// How values are written.
        codec: Codec,
        /// Whether it is a sharded channel (`SPUBLISH`).
        sharded: bool,
    },
}

impl Destination {
    /// A stream, with the usual body field, never trimmed.
    pub fn stream(key: impl Into<String>) -> Self {
        Self::Stream {
            key: key.into(),
            body_field: Bytes::from_static(stream::BODY_FIELD.as_bytes()),
            max_len: None,
        }
    }

    /// A list of framed values.
    pub fn list(key: impl Into<String>) -> Self {
        Self::List {
            key: key.into(),
            codec: Codec::Frame,
        }
    }

    /// A channel of framed values.
    pub fn channel(name: impl Into<String>) -> Self {
        Self::Channel {
            name: name.into(),
            codec: Codec::Frame,
            sharded: false,
        }
    }

    const fn command(&self) -> &'static str {
        match self {
            Self::Stream { .. } => "XADD",
            Self::List { .. } => "LPUSH",
            Self::Channel { sharded: false, .. } => "PUBLISH",
            Self::Channel { sharded: true, .. } => "SPUBLISH",
        }
    }
}

/// A message to publish.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Outgoing {
    /// The body, byte for byte.
    pub body: Bytes,
    /// The headers, in their order.
    pub headers: Headers,
    /// Instead of body and headers: the fields of a stream entry, as they are.
    pub fields: Option<Vec<(Bytes, Bytes)>>,
}

impl Outgoing {
    /// A message without headers.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self {
            body: body.into(),
            ..Self::default()
        }
    }

    /// The same with one more header.
    #[must_use]
    pub fn header(mut self, name: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        self.headers.push(name, value);
        self
    }

    fn size(&self) -> usize {
        let headers: usize = self.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
        let fields = self.fields.iter().flatten();
        let fields: usize = fields.map(|(n, v)| n.len() + v.len()).sum();
        self.body.len() + headers + fields
    }
}

/// What Redis says about a message that it has taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Receipt {
    /// The id of its stream entry.
    Entry(String),
    /// The length of the list with it.
    Length(u64),
    /// How many subscribers got it.
    Receivers(u64),
}

/// The id, or the number.
impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(id) => f.write_str(id),
            Self::Length(number) | Self::Receivers(number) => number.fmt(f),
        }
    }
}

/// Why a message was not published, or may not have been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// It cannot be written in the destination's codec: nothing was sent.
    #[error("the message cannot be written: {0}")]
    Message(#[from] list::Error),
    /// It is the fields of a stream entry, and the destination is no stream: nothing was sent.
    #[error("the message is the fields of a stream entry: only a stream can hold it")]
    Fields,
    /// Redis refused it, or its answer was lost.
    #[error(transparent)]
    Redis(#[from] RedisError),
}

/// Some messages were published, and some were not or may not have been.
#[derive(Debug, thiserror::Error)]
pub struct Incomplete {
    /// What Redis has taken, in order, before the first failure.
    pub receipts: Vec<Receipt>,
    /// How many messages behind the first failure were published all the same: they were in the
    /// same round trip, and Redis refused only some of it.
    pub taken_behind: usize,
    /// How many messages were sent without an answer: they may have been published or not.
    pub in_doubt: usize,
    /// The first failure.
    #[source]
    pub error: Error,
}

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "published {}, then: {}", self.receipts.len(), self.error)?;
        if self.taken_behind > 0 {
            write!(f, "; {} behind it were published", self.taken_behind)?;
        }
        if self.in_doubt > 0 {
            write!(f, "; {} may have been published or not", self.in_doubt)?;
        }
        Ok(())
    }
}

/// Publishes to one destination.
pub struct Publisher {
    link: Link,
    destination: Destination,
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher")
            .field("destination", &self.destination)
            .finish_non_exhaustive()
    }
}

impl Publisher {
    /// A publisher with a connection of its own, opened by the first use, and again by the first
    /// use after it broke.
    pub fn new(connector: &Connector, destination: Destination) -> Self {
        Self {
            link: connector.link("publish"),
            destination,
        }
    }

    /// Publish one message.
    ///
    /// # Errors
    /// After a [`RedisError`] of class `Reconnect`, whether it was published is not known.
    pub async fn publish(&self, message: &Outgoing) -> Result<Receipt, Error> {
        let mut pipeline = Pipeline::with_capacity(1);
        self.append(&mut pipeline, message)?;
        let reply = self.send(&pipeline).await?.pop().unwrap_or(Value::Nil);
        Ok(self.receipt(reply)?)
    }

    /// Publish messages in their order, at most [`BATCH_MESSAGES`] and [`BATCH_BYTES`] per round
    /// trip. All or nothing is not promised: see [`Incomplete`].
    ///
    /// # Errors
    /// [`Incomplete`] says what was published before the first failure.
    pub async fn publish_all(&self, messages: &[Outgoing]) -> Result<Vec<Receipt>, Incomplete> {
        let mut receipts = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at(batch_len(rest));
            rest = behind;
            if let Err(failure) = self.round_trip(batch, &mut receipts).await {
                return Err(Incomplete {
                    receipts,
                    taken_behind: failure.taken_behind,
                    in_doubt: failure.in_doubt,
                    error: failure.error,
                });
            }
        }
        Ok(receipts)
    }

    /// A batch that sends itself whenever it is full: for endless input in bounded memory.
    pub fn batch(&self) -> Batch<'_> {
        Batch {
            publisher: self,
            waiting: Vec::new(),
            bytes: 0,
        }
    }

    async fn round_trip(
        &self,
        batch: &[Outgoing],
        receipts: &mut Vec<Receipt>,
    ) -> Result<(), Failure> {
        let mut pipeline = Pipeline::with_capacity(batch.len());
        for message in batch {
            self.append(&mut pipeline, message)
                .map_err(|error| Failure {
                    taken_behind: 0,
                    in_doubt: 0,
                    error,
                })?;
        }
        let replies = self.send(&pipeline).await.map_err(|error| Failure {
            taken_behind: 0,
            in_doubt: batch.len(),
            error: error.into(),
        })?;
        let mut replies = replies.into_iter().map(|reply| self.receipt(reply));
        for receipt in replies.by_ref() {
            match receipt {
                Ok(receipt) => receipts.push(receipt),
                Err(error) => {
                    return Err(Failure {
                        taken_behind: replies.filter(Result::is_ok).count(),
                        in_doubt: 0,
                        error: error.into(),
                    });
                }
            }
        }
        Ok(())
    }

    fn append(&self, pipeline: &mut Pipeline, message: &Outgoing) -> Result<(), Error> {
        let Outgoing {
            body,
            headers,
            fields,
        } = message;
        if fields.is_some() && !matches!(self.destination, Destination::Stream { .. }) {
            return Err(Error::Fields);
        }
        let command = pipeline.cmd(self.destination.command());
        match &self.destination {
            Destination::Stream {
                key,
                body_field,
                max_len,
            } => {
                command.arg(key);
                if let Some(max_len) = max_len {
                    command.arg("MAXLEN").arg("~").arg(*max_len);
                }
                command.arg("*");
                match fields {
                    Some(fields) => {
                        for (field, value) in fields {
                            command.arg(&field[..]).arg(&value[..]);
                        }
                    }
                    None => {
                        for (field, value) in stream::encode(body.clone(), headers, body_field) {
                            command.arg(&field[..]).arg(&value[..]);
                        }
                    }
                }
            }
            Destination::List { key: to, codec }
            | Destination::Channel {
                name: to, codec, ..
            } => {
                let value = list::encode(headers, body, *codec)?;
                command.arg(to).arg(&value[..]);
            }
        }
        Ok(())
    }

    async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        self.link
            .pipeline(self.destination.command(), pipeline)
            .await
    }

    fn receipt(&self, reply: Value) -> Result<Receipt, RedisError> {
        let command = self.destination.command();
        let reply = reply::accepted(command, reply)?;
        Ok(match self.destination {
            Destination::Stream { .. } => Receipt::Entry(reply::text(command, reply)?),
            Destination::List { .. } => Receipt::Length(reply::count(command, &reply)?),
            Destination::Channel { .. } => Receipt::Receivers(reply::count(command, &reply)?),
        })
    }
}

struct Failure {
    taken_behind: usize,
    in_doubt: usize,
    error: Error,
}

/// How many of these messages fit into one round trip: at least one.
fn batch_len(messages: &[Outgoing]) -> usize {
    let mut bytes = 0;
    messages
        .iter()
        .take(BATCH_MESSAGES)
        .take_while(|message| {
            let first = bytes == 0;
            bytes += message.size().max(1);
            first || bytes <= BATCH_BYTES
        })
        .count()
}

/// Messages on their way: at most one round trip's worth is kept.
#[derive(Debug)]
pub struct Batch<'a> {
    publisher: &'a Publisher,
    waiting: Vec<Outgoing>,
    bytes: usize,
}

impl Batch<'_> {
    /// Add a message; if the batch is full then, publish it and return the receipts.
    ///
    /// # Errors
    /// As [`Publisher::publish_all`]; the batch is empty afterwards.
    pub async fn push(&mut self, message: Outgoing) -> Result<Vec<Receipt>, Incomplete> {
        self.bytes += message.size();
        self.waiting.push(message);
        if self.waiting.len() < BATCH_MESSAGES && self.bytes < BATCH_BYTES {
            return Ok(Vec::new());
        }
        self.flush().await
    }

    /// Publish what waits.
    ///
    /// # Errors
    /// As [`Publisher::publish_all`]; the batch is empty afterwards.
    pub async fn flush(&mut self) -> Result<Vec<Receipt>, Incomplete> {
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.publisher.publish_all(&waiting).await
    }

    /// How many messages wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_in_messages_and_bytes_and_never_empty() {
        let of = |sizes: &[usize]| {
            let messages: Vec<_> = sizes.iter().map(|n| Outgoing::new(vec![0; *n])).collect();
            batch_len(&messages)
        };
        assert_eq!(of(&[0; BATCH_MESSAGES + 1]), BATCH_MESSAGES);
        assert_eq!(of(&[BATCH_BYTES * 2, 1]), 1);
        assert_eq!(of(&[BATCH_BYTES - 1, 1, 1]), 2);
        assert_eq!(of(&[0, BATCH_BYTES, 0]), 1);
        assert_eq!(of(&[]), 0);
    }
}
