//! Pub/Sub: who listens when a message is published gets it, and nobody keeps it. At most once.
//!
//! - `inbox`: the bounded buffer between the subscription and the host.
//! - `keeper`: the task that subscribes again.
//!
//! The server pushes as fast as others publish, whatever the handler takes: what does not fit into
//! the buffer is dropped by its rule, and counted. So memory stays flat, and the server never has
//! to cut off a slow reader.
//!
//! Crash windows: what is published while nobody is subscribed (this host is not started, its
//! connection is broken) is gone; the time without a subscription is counted as a gap, from when
//! it is noticed. A host that dies loses its buffer and what it runs. One that drains runs both.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;

use super::Contact;
use super::at_most_once::{AtMostOnce, Source, Value};
use crate::redis::connection::Connector;
use crate::redis::error::Error;
use crate::redis::startup::StartError;
use crate::wire::list::Framing;

mod inbox;
mod keeper;

use inbox::Inbox;
use keeper::Kept;

/// How one subscribes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Subscription {
    /// To a channel (`SUBSCRIBE`).
    Channel,
    /// To the channels that a pattern matches (`PSUBSCRIBE`).
    Pattern,
    /// To a sharded channel (`SSUBSCRIBE`).
    Sharded,
}

impl Subscription {
    /// The command that subscribes so.
    pub(super) const fn command(self) -> &'static str {
        match self {
            Self::Channel => "SUBSCRIBE",
            Self::Pattern => "PSUBSCRIBE",
            Self::Sharded => "SSUBSCRIBE",
        }
    }
}

/// What waits in a host before it is handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Buffer {
    /// At most so many messages.
    pub messages: usize,
    /// At most so many bytes.
    pub bytes: usize,
    /// What happens to one that finds no room.
    pub on_overflow: OnOverflow,
}

/// What a full buffer drops.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnOverflow {
    /// The message that finds no room.
    #[default]
    DropNewest,
    /// Those that wait longest, until there is room.
    DropOldest,
}

/// A subscription, and how this host serves it.
#[derive(Clone, Debug)]
pub struct PubSubOptions {
    /// The channel or the pattern.
    pub name: String,
    /// How it is subscribed to.
    pub subscription: Subscription,
    /// What this host's name begins with (a host name, usually).
    pub consumer: String,
    /// How values are read.
    pub framing: Framing,
    /// What waits here.
    pub buffer: Buffer,
}

impl PubSubOptions {
    /// This channel, everything else as by default.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            subscription: Subscription::Channel,
            consumer: "hostler".to_owned(),
            framing: Framing::default(),
            buffer: Buffer::default(),
        }
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self {
            messages: 10_000,
            bytes: 64 << 20,
            on_overflow: OnOverflow::default(),
        }
    }
}

/// A subscription, as one host serves it.
pub struct PubSub {
    name: String,
    inbox: Arc<Inbox>,
    keeper: JoinHandle<()>,
}

impl fmt::Debug for PubSub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PubSub")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Drop for PubSub {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl PubSub {
    /// Subscribe. Returns once the server has confirmed it: what is published from then on comes.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses, or knows no sharded channels.
    pub async fn open(
        connector: Connector,
        options: PubSubOptions,
    ) -> Result<AtMostOnce<Self>, StartError> {
        let inbox = Arc::new(Inbox::new(options.buffer));
        let kept = Kept::begin(&connector, &options, &inbox).await;
        let kept = kept.map_err(|error| StartError::from_error(error, &options.name))?;
        let (framing, consumer) = (options.framing, options.consumer.clone());
        let pubsub = Self {
            name: options.name.clone(),
            inbox: Arc::clone(&inbox),
            keeper: tokio::spawn(keeper::keep(kept, connector, options, inbox)),
        };
        Ok(AtMostOnce::new(pubsub, framing, &consumer))
    }
}

#[async_trait]
impl Source for PubSub {
    async fn take(&self, want: usize, wait: Duration) -> Result<Vec<Value>, Error> {
        self.inbox.take(want, wait).await
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.inbox.interrupt();
        Ok(())
    }

    /// Unsubscribes: the connection ends with its task.
    fn stop(&self) {
        self.inbox.stop();
        self.keeper.abort();
    }

    async fn waiting(&self) -> Result<u64, Error> {
        Ok(self.inbox.len() as u64)
    }

    async fn probe(&self) -> Result<(), Error> {
        self.inbox.error().map_or(Ok(()), Err)
    }

    fn contact(&self) -> Contact {
        self.inbox.contact()
    }
}
