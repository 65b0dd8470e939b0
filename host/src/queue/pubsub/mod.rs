//! Pub/Sub: every subscriber gets a message when it is published, and it is not kept. At most once.
//!
//! - `inbox`: the bounded buffer between the subscription and the host.
//! - `subscriber`: the task that subscribes again.
//!
//! The server pushes as fast as others publish, however slow the handler is. A message that does not fit
//! into the buffer is dropped by the buffer's rule, and counted. So memory stays flat, and the server
//! never has to cut off a slow reader.
//!
//! Crash windows: messages published without a subscription (this host is not started, its connection
//! is broken) are lost; the time without a subscription is counted as a gap, from when it is noticed. A
//! host that dies loses its buffer and its running messages. A host that drains runs both.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::task::JoinHandle;

use super::Contact;
use super::at_most_once::{AtMostOnce, Source, Value};
use crate::delivery::declared::declared;
use crate::outgoing::Outlets;
use crate::queue::startup::StartError;
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::wire::list::Framing;

mod inbox;
mod subscriber;

use inbox::Inbox;
use subscriber::Subscriber;

declared! {
    /// The kinds of subscriptions.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Subscription (/// The command that subscribes.
                           command -> &'static str) {
        /// To a channel (`SUBSCRIBE`).
        Channel = "SUBSCRIBE",
        /// To the channels that a pattern matches (`PSUBSCRIBE`).
        Pattern = "PSUBSCRIBE",
        /// To a sharded channel (`SSUBSCRIBE`).
        Sharded = "SSUBSCRIBE",
    }
}

/// The bounds of the messages that wait in a host.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Buffer {
    /// At most this number of messages.
    pub messages: usize,
    /// At most this number of bytes.
    pub bytes: usize,
    /// Which message is dropped when there is no room.
    pub on_overflow: OnOverflow,
}

/// The message that a full buffer drops.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnOverflow {
    /// The new message.
    #[default]
    DropNewest,
    /// The oldest ones, until there is room.
    DropOldest,
}

/// A subscription, and how this host serves it.
#[derive(Clone, Debug)]
pub struct PubSubOptions {
    /// The channel or the pattern.
    pub name: String,
    /// The kind of subscription.
    pub subscription: Subscription,
    /// The beginning of this host's name (a host name, usually).
    pub consumer: String,
    /// How values are read.
    pub framing: Framing,
    /// Where its handler may publish, by the names that the handler uses.
    pub outlets: Outlets,
    /// The bounds of the buffer.
    pub buffer: Buffer,
}

impl PubSubOptions {
    /// This channel, with defaults.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            subscription: Subscription::Channel,
            consumer: "hostler".to_owned(),
            framing: Framing::default(),
            outlets: Outlets::default(),
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
#[derive(Debug)]
pub struct PubSub {
    inbox: Arc<Inbox>,
    /// For the clock of the server.
    commands: Arc<Link>,
    subscribing: JoinHandle<()>,
}

impl Drop for PubSub {
    fn drop(&mut self) {
        self.subscribing.abort();
    }
}

impl PubSub {
    /// Subscribe. Returns once the server has confirmed it: messages published from then on come.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses, or knows no sharded channels.
    pub async fn open(
        connector: Connector,
        options: PubSubOptions,
    ) -> Result<AtMostOnce<Self>, StartError> {
        let time = Arc::default();
        let inbox = Arc::new(Inbox::new(options.buffer, Arc::clone(&time)));
        let subscriber = Subscriber::begin(&connector, &options, &inbox).await;
        let subscriber =
            subscriber.map_err(|error| StartError::from_error(error, &options.name))?;
        let (framing, consumer) = (options.framing, options.consumer.clone());
        let (name, commands) = (
            options.name.clone(),
            Arc::new(connector.link("commands").of(&options.name)),
        );
        let publisher = connector.clone();
        let outlets = Arc::clone(&options.outlets);
        let pubsub = Self {
            inbox: Arc::clone(&inbox),
            commands: Arc::clone(&commands),
            subscribing: tokio::spawn(subscriber::keep(subscriber, connector, options, inbox)),
        };
        let publishing = (&publisher, &*name, outlets);
        let opened = AtMostOnce::open(pubsub, framing, &consumer, time, commands, publishing).await;
        opened.map_err(|error| StartError::from_error(error, &name))
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
        self.subscribing.abort();
    }

    async fn waiting(&self) -> Result<u64, Error> {
        Ok(self.inbox.len() as u64)
    }

    async fn probe(&self) -> Result<(), Error> {
        self.inbox.error().map_or(Ok(()), Err)
    }

    fn contact(&self) -> Contact {
        let contact = self.inbox.contact();
        Contact {
            connections_opened: contact.connections_opened + self.commands.opened(),
            redirections: self.commands.redirections(),
            ..contact
        }
    }
}
