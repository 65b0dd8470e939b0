//! Publishing: thousands of messages per round trip, in bounded memory.
//!
//! A message with a delay, or to a list with a time to live, needs a script; all others are plain
//! commands, which need no other right.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::{Cmd, Pipeline, Value};

use hostler_core::delivery::millis::millis_up;
use hostler_core::wire::list;
use hostler_core::wire::{delayed, stream};
use hostler_redis::connection::{Connector, Link};
use hostler_redis::error::Error as RedisError;
use hostler_redis::reply;

use super::destination::Destination;
use super::error::{Error, Incomplete, TTL_MAX};
use super::later::Later;
use super::outgoing::Outgoing;
use super::receipt::Receipt;
use super::scripts;

/// How many messages go in one round trip at most.
pub const BATCH_MESSAGES: usize = 4096;
/// How many bytes go in one round trip, unless a single message is larger.
pub const BATCH_BYTES: usize = 4 * 1024 * 1024;

/// Publishes to one destination.
#[derive(Debug)]
pub struct Publisher {
    link: Link,
    destination: Destination,
    /// The first half of the tokens of its delayed messages, and the number of the next one.
    token: u64,
    delayed: AtomicU64,
}

impl Publisher {
    /// A publisher with its own connection. The first use opens it; after a failure the next use opens it
    /// again.
    pub fn new(connector: &Connector, destination: impl Into<Destination>) -> Self {
        let destination = destination.into();
        Self {
            link: connector.link("publish").of(destination.name()),
            destination,
            token: fastrand::u64(..),
            delayed: AtomicU64::new(0),
        }
    }

    /// The destination of its messages.
    pub fn destination(&self) -> &Destination {
        &self.destination
    }

    /// Connect, if there is no connection. Before the first message, a failure means for certain that
    /// nothing was published.
    pub async fn reach(&self) -> Result<(), RedisError> {
        self.link.reach().await
    }

    /// Publish one message.
    ///
    /// # Errors
    /// After a [`RedisError`] of class `Reconnect` it may be published or not.
    pub async fn publish(&self, message: &Outgoing) -> Result<Receipt, Error> {
        let mut pipeline = Pipeline::with_capacity(1);
        let expected = self.append(&mut pipeline, message)?;
        let reply = self.send(&pipeline).await?.pop().unwrap_or(Value::Nil);
        Ok(self.receipt(expected, reply)?)
    }

    /// Publish messages in their order, at most [`BATCH_MESSAGES`] and [`BATCH_BYTES`] per round
    /// trip. All or nothing is not promised: see [`Incomplete`].
    ///
    /// # Errors
    /// [`Incomplete`] has the receipts before the first failure.
    pub async fn publish_all(&self, messages: &[Outgoing]) -> Result<Vec<Receipt>, Incomplete> {
        let mut receipts = Vec::with_capacity(messages.len());
        let mut rest = messages;
        while !rest.is_empty() {
            let (batch, behind) = rest.split_at(batch_len(rest));
            rest = behind;
            let incomplete = |receipts, taken_behind, in_doubt, error| Incomplete {
                receipts,
                taken_behind,
                in_doubt,
                error,
            };
            let mut pipeline = Pipeline::with_capacity(batch.len());
            let expected: Result<Vec<_>, Error> = batch
                .iter()
                .map(|message| self.append(&mut pipeline, message))
                .collect();
            let expected = match expected {
                Ok(expected) => expected,
                Err(error) => return Err(incomplete(receipts, 0, 0, error)),
            };
            let replies = match self.send(&pipeline).await {
                Ok(replies) => replies,
                Err(error) => return Err(incomplete(receipts, 0, batch.len(), error.into())),
            };
            let mut replies = expected.into_iter().zip(replies);
            while let Some((expected, reply)) = replies.next() {
                match self.receipt(expected, reply) {
                    Ok(receipt) => receipts.push(receipt),
                    Err(error) => {
                        let behind = replies.filter_map(|(e, r)| self.receipt(e, r).ok());
                        return Err(incomplete(receipts, behind.count(), 0, error.into()));
                    }
                }
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

    /// Add a message to a round trip. Returns the expected answer.
    fn append(&self, pipeline: &mut Pipeline, message: &Outgoing) -> Result<Expected, Error> {
        if message.fields.is_some() && !matches!(self.destination, Destination::Stream(_)) {
            return Err(Error::Fields);
        }
        let ended = message.with_end();
        if let Some(delay) = message.waits()? {
            self.destination.takes_delays()?;
            let (id, call) = self.later(&ended, delay)?;
            pipeline.add_command(call);
            return Ok(Expected::Scheduled(id));
        }
        pipeline.add_command(self.now(&ended)?);
        Ok(match self.destination {
            Destination::Stream(_) => Expected::Entry,
            Destination::List(_) => Expected::Length,
            Destination::Channel(_) => Expected::Receivers,
        })
    }

    /// The command that publishes a message at once.
    fn now(&self, message: &Outgoing) -> Result<Cmd, Error> {
        let mut command = Cmd::new();
        match &self.destination {
            Destination::Stream(to) => {
                command.arg("XADD").arg(&to.key);
                if let Some(max_len) = to.max_len {
                    command.arg("MAXLEN").arg("~").arg(max_len);
                }
                command.arg("*");
                let mut add = |fields: &[(Bytes, Bytes)]| {
                    for (field, value) in fields {
                        command.arg(&field[..]).arg(&value[..]);
                    }
                };
                match &message.fields {
                    Some(fields) => add(fields),
                    None => {
                        let body = message.body.clone();
                        add(&stream::encode(body, &message.headers, &to.body_field));
                    }
                }
            }
            Destination::List(to) => {
                let value = list::encode(&message.headers, &message.body, to.codec)?;
                match to.ttl {
                    // Redis refuses the time only after it has taken the value.
                    Some(ttl) if ttl > TTL_MAX => return Err(Error::TtlTooLong),
                    Some(ttl) => {
                        command = scripts::PUBLISH_LAPSING.on(&[&to.key]);
                        command.arg(millis_up(ttl).max(1)).arg(&value[..]);
                    }
                    None => {
                        command.arg("LPUSH").arg(&to.key).arg(&value[..]);
                    }
                }
            }
            Destination::Channel(to) => {
                let value = list::encode(&message.headers, &message.body, to.codec)?;
                command.arg(self.destination.command());
                command.arg(&to.name).arg(&value[..]);
            }
        }
        Ok(command)
    }

    /// The call that holds a message until it is due, and the id that the message will have.
    fn later(&self, message: &Outgoing, delay: Duration) -> Result<(String, Cmd), Error> {
        let mut token = [0; delayed::TOKEN_LEN];
        let number = self.delayed.fetch_add(1, Ordering::Relaxed);
        token[..8].copy_from_slice(&self.token.to_be_bytes());
        token[8..].copy_from_slice(&number.to_be_bytes());
        let (id, message) = message.with_id(format!("{:032x}", u128::from_be_bytes(token)));
        let later = match (&self.destination, &message.fields) {
            (Destination::Stream(to), Some(fields)) => {
                Later::new(&to.key, delay, delayed::fields(token, fields)?)
            }
            (to, _) => to.write_later(&message.headers, &message.body, delay, token)?,
        };
        let mut call = scripts::PUBLISH_LATER.on(&[&later.key]);
        call.arg(later.delay_ms).arg(&later.member[..]);
        Ok((id, call))
    }

    async fn send(&self, pipeline: &Pipeline) -> Result<Vec<Value>, RedisError> {
        let command = self.destination.command();
        self.link.pipeline(command, pipeline).await
    }

    fn receipt(&self, expected: Expected, reply: Value) -> Result<Receipt, RedisError> {
        let command = self.destination.command();
        let reply = reply::accepted(command, reply)?;
        Ok(match expected {
            Expected::Entry => Receipt::Entry(reply::text(command, reply)?),
            Expected::Length => Receipt::Length(reply::count(command, &reply)?),
            Expected::Receivers => Receipt::Receivers(reply::count(command, &reply)?),
            Expected::Scheduled(id) => Receipt::Scheduled {
                id,
                due_ms: reply::count(command, &reply)?,
            },
        })
    }
}

/// The answer of Redis to a published message.
enum Expected {
    Entry,
    Length,
    Receivers,
    Scheduled(String),
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
