//! An inbox: a producer waits for what becomes of its messages, and for the replies of their handlers.
//!
//! Hosts write the answers to one stream, together with the settlement of the message. One connection reads it, for all
//! messages that wait: so the server does not work more for ten thousand of them than for one. An answer that is read is
//! deleted; one that nothing reads goes after `reply.keep` of the host.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Value, cmd};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use hostler_core::delivery::millis::millis;
use hostler_core::delivery::reply::{Answer, INBOX_MAX, REPLY_TO};
use hostler_core::wire::list::Codec;
use hostler_core::wire::{keys, reply as answers};
use hostler_redis::connection::{Connector, Link};
use hostler_redis::error::{Class, Error as RedisError};
use hostler_redis::reply;

use super::destination::Destination;
use super::error::Error;
use super::outgoing::Outgoing;
use super::publisher::Publisher;
use super::receipt::Receipt;

/// The most messages of an inbox that wait at a time.
pub const AWAITED_MAX: usize = 100_000;
/// How long one read waits for an answer.
const READ: Duration = Duration::from_secs(5);
/// The most answers of one read.
const READ_MAX: usize = 128;
/// The first and the longest pause behind a failed read.
const PAUSES: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WaitError {
    /// Its queue answers to no producer, for this reason: nothing was sent.
    #[error("{0}")]
    NoAnswers(&'static str),
    /// The message was not published, or may not have been.
    #[error(transparent)]
    Publish(#[from] Error),
    /// A message with this id waits already: nothing was sent.
    #[error("a message with the id `{0}` waits for its answer already")]
    Awaited(String),
    /// [`AWAITED_MAX`] messages wait already: nothing was sent.
    #[error("{AWAITED_MAX} messages wait for their answers already")]
    TooMany,
    /// The time is over. The message may be handled later.
    #[error("no answer to the message `{id}` within {}", humantime::format_duration(*.within))]
    TimedOut {
        /// The id of the message.
        id: String,
        /// How long it waited.
        within: Duration,
    },
    /// The inbox cannot be read.
    #[error("the answers cannot be read: {0}")]
    Redis(#[from] RedisError),
    /// The inbox was closed.
    #[error("the inbox was closed")]
    Closed,
}

/// Publishes messages to one queue, and waits for what becomes of them.
///
/// Inside of a tokio runtime, and for as long as a message waits, a task reads the answers.
#[derive(Debug)]
pub struct Inbox {
    publisher: Publisher,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    link: Link,
    /// Its name: that of one start of one process.
    name: String,
    key: String,
    /// Only answers of this consumer group count.
    group: Option<String>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    by_id: HashMap<String, oneshot::Sender<Result<Answer, RedisError>>>,
    /// The task that reads.
    reader: Option<AbortHandle>,
    /// The number of the next message.
    next: u64,
}

impl Inbox {
    /// An inbox for messages to this queue, with connections of its own. `group`: the consumer group whose answers count;
    /// without one, the first answer of any group counts.
    ///
    /// # Errors
    /// [`WaitError::NoAnswers`]: only a stream, or a list that hosts read with `reliable`, has hosts that answer.
    pub fn new(
        connector: &Connector,
        queue: impl Into<Destination>,
        group: Option<&str>,
    ) -> Result<Self, WaitError> {
        let queue = queue.into();
        answers_to(&queue)?;
        let name = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        debug_assert!(name.len() < INBOX_MAX);
        let key = keys::replies(queue.name(), &name);
        let shared = Shared {
            link: connector.link("inbox").of(&key),
            name,
            key,
            group: group.map(str::to_owned),
            waiting: Mutex::default(),
        };
        Ok(Self {
            publisher: Publisher::new(connector, queue),
            shared: Arc::new(shared),
        })
    }

    /// What publishes its messages.
    pub fn publisher(&self) -> &Publisher {
        &self.publisher
    }

    /// Publish a message, and wait for what becomes of it.
    ///
    /// # Errors
    /// [`WaitError`]. After [`WaitError::TimedOut`] the message stays in its queue.
    pub async fn ask(&self, message: &Outgoing, within: Duration) -> Result<Answer, WaitError> {
        self.send(message).await?.answer(within).await
    }

    /// Publish a message whose answer is awaited later. A message without an id gets one.
    ///
    /// # Errors
    /// [`WaitError`] without `TimedOut`.
    pub async fn send(&self, message: &Outgoing) -> Result<Awaited, WaitError> {
        let (id, receiver, message) = self.register(message)?;
        // From here on it is forgotten when it is dropped.
        let mut awaited = Awaited {
            id,
            receipt: Receipt::Length(0),
            receiver,
            shared: Arc::clone(&self.shared),
        };
        awaited.receipt = self.publisher.publish(&message).await?;
        Ok(awaited)
    }

    #[expect(clippy::type_complexity, reason = "used once")]
    fn register(
        &self,
        message: &Outgoing,
    ) -> Result<
        (
            String,
            oneshot::Receiver<Result<Answer, RedisError>>,
            Outgoing,
        ),
        WaitError,
    > {
        let shared = &self.shared;
        let mut waiting = shared.waiting.lock();
        if waiting.by_id.len() >= AWAITED_MAX {
            return Err(WaitError::TooMany);
        }
        let own = format!("{}-{}", shared.name, waiting.next);
        waiting.next += 1;
        let (id, message) = message.with_id(own);
        let mut message = message.into_owned();
        message.set(REPLY_TO, shared.name.clone().into());
        let (sender, receiver) = oneshot::channel();
        match waiting.by_id.entry(id.clone()) {
            Entry::Occupied(_) => return Err(WaitError::Awaited(id)),
            Entry::Vacant(place) => place.insert(sender),
        };
        if waiting.reader.is_none() {
            let reader = tokio::spawn(read(Arc::clone(shared)));
            waiting.reader = Some(reader.abort_handle());
        }
        Ok((id, receiver, message))
    }
}

impl Drop for Inbox {
    /// Those that still wait hear that the inbox is closed.
    fn drop(&mut self) {
        let mut waiting = self.shared.waiting.lock();
        waiting.by_id.clear();
        if let Some(reader) = waiting.reader.take() {
            reader.abort();
        }
    }
}

/// A message that is published, and whose answer has not come yet.
#[derive(Debug)]
pub struct Awaited {
    id: String,
    receipt: Receipt,
    receiver: oneshot::Receiver<Result<Answer, RedisError>>,
    shared: Arc<Shared>,
}

impl Awaited {
    /// The id of the message.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// What Redis answered when it was published.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// Wait for what becomes of it, for so long.
    ///
    /// # Errors
    /// [`WaitError`]. After [`WaitError::TimedOut`] the message stays in its queue.
    pub async fn answer(mut self, within: Duration) -> Result<Answer, WaitError> {
        match tokio::time::timeout(within, &mut self.receiver).await {
            Ok(Ok(answer)) => Ok(answer?),
            Ok(Err(_)) => Err(WaitError::Closed),
            Err(_) => Err(WaitError::TimedOut {
                id: std::mem::take(&mut self.id),
                within,
            }),
        }
    }
}

impl Drop for Awaited {
    fn drop(&mut self) {
        self.shared.waiting.lock().by_id.remove(&self.id);
    }
}

/// Whether the hosts of this queue answer.
fn answers_to(queue: &Destination) -> Result<(), WaitError> {
    match queue {
        Destination::Stream(_) => Ok(()),
        Destination::List(list) if !list.reliable => Err(WaitError::NoAnswers(
            "only a list that hosts read with `reliable` has answers: a simple list forgets a message when it is taken",
        )),
        Destination::List(list) if list.codec == Codec::Raw => Err(WaitError::NoAnswers(
            "a raw value has no header that asks for an answer: write frames or JSON",
        )),
        Destination::List(_) => Ok(()),
        Destination::Channel(_) => Err(WaitError::NoAnswers(
            "a channel has no answers: it forgets a message when it is sent",
        )),
    }
}

/// Read answers for as long as a message waits.
async fn read(shared: Arc<Shared>) {
    let mut pause = PAUSES.0;
    loop {
        {
            let mut waiting = shared.waiting.lock();
            if waiting.by_id.is_empty() {
                waiting.reader = None;
                return;
            }
        }
        let Err(error) = read_some(&shared).await else {
            pause = PAUSES.0;
            continue;
        };
        match error.class() {
            // A new connection, or another server, may answer: messages wait for as long as they want to.
            Class::Reconnect | Class::Retry => {
                tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
                pause = (pause * 2).min(PAUSES.1);
            }
            Class::Missing | Class::Configuration => {
                let mut waiting = shared.waiting.lock();
                for (_, sender) in waiting.by_id.drain() {
                    // It may wait no more.
                    drop(sender.send(Err(error.clone())));
                }
                waiting.reader = None;
                return;
            }
        }
    }
}

/// Read some answers, and delete them.
///
/// The stream is read from its beginning each time: what was read is gone. So a server that lost data, or whose clock went
/// back, hides no answer.
async fn read_some(shared: &Shared) -> Result<(), RedisError> {
    const COMMAND: &str = "XREAD";
    let mut read = cmd(COMMAND);
    read.arg("COUNT").arg(READ_MAX);
    read.arg("BLOCK").arg(millis(READ));
    read.arg("STREAMS").arg(&shared.key).arg(0);
    let found = shared.link.call_waiting(COMMAND, &read, READ).await?;
    let mut delete = cmd("XDEL");
    delete.arg(&shared.key);
    let mut is_found = false;
    for entry in entries(COMMAND, found)? {
        let [id, fields] = reply::tuple(COMMAND, entry)?;
        delete.arg(&reply::bytes(COMMAND, id)?[..]);
        is_found = true;
        // Anything else is not from a host: it goes as well.
        if let Some(answer) = answers::read(&reply::fields(COMMAND, fields)?) {
            shared.take(answer);
        }
    }
    if is_found {
        shared.link.call("XDEL", &delete).await?;
    }
    Ok(())
}

/// The entries of the one stream that was read; RESP3 has a map, RESP2 pairs.
fn entries(command: &'static str, found: Value) -> Result<Vec<Value>, RedisError> {
    let entries = match found {
        Value::Map(mut streams) => streams.pop().map(|(_, entries)| entries),
        other => match reply::array(command, other)?.pop() {
            Some(stream) => {
                let [_, entries] = reply::tuple(command, stream)?;
                Some(entries)
            }
            None => None,
        },
    };
    entries.map_or(Ok(Vec::new()), |entries| reply::array(command, entries))
}

impl Shared {
    /// Pass an answer to the message that waits for it, if one does.
    fn take(&self, answer: Answer) {
        // One without a group is about the message in every group.
        let is_ours = self.group.is_none() || answer.group.is_none() || self.group == answer.group;
        if is_ours && let Some(sender) = self.waiting.lock().by_id.remove(&answer.id) {
            // It may wait no more.
            drop(sender.send(Ok(answer)));
        }
    }
}
