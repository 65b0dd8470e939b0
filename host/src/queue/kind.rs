//! A queue of any kind: the one place that tells kinds apart.

use std::sync::Arc;

use super::Queue;
use super::connection::Connector;
use super::list::{ListOptions, ListQueue};
use super::pubsub::{PubSub, PubSubOptions};
use super::simple_list::{SimpleList, SimpleListOptions};
use super::startup::{self, StartError, StartWarning};
use super::stream::{StreamOptions, StreamQueue};

/// A queue, and how this host serves it.
#[derive(Clone, Debug)]
pub enum QueueOptions {
    /// A stream, through a consumer group. At least once.
    Stream(StreamOptions),
    /// A list, through processing lists. At least once.
    List(ListOptions),
    /// A list whose values are forgotten when they are taken. At most once.
    SimpleList(SimpleListOptions),
    /// A channel, or the channels that a pattern matches. At most once.
    PubSub(PubSubOptions),
}

impl QueueOptions {
    /// Check all that serving it needs; nothing is changed.
    ///
    /// # Errors
    /// The first [`StartError`].
    pub async fn check(&self, connector: &Connector) -> Result<Vec<StartWarning>, StartError> {
        match self {
            Self::Stream(options) => startup::check(connector, options).await,
            Self::List(options) => startup::check_list(connector, options).await,
            Self::SimpleList(options) => startup::check_simple_list(connector, options).await,
            Self::PubSub(options) => startup::check_pubsub(connector, options).await,
        }
    }

    /// Begin to serve it.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses.
    pub async fn open(self, connector: Connector) -> Result<Arc<dyn Queue>, StartError> {
        Ok(match self {
            Self::Stream(options) => Arc::new(StreamQueue::open(connector, options).await?),
            Self::List(options) => Arc::new(ListQueue::open(connector, options).await?),
            Self::SimpleList(options) => Arc::new(SimpleList::open(connector, options).await?),
            Self::PubSub(options) => Arc::new(PubSub::open(connector, options).await?),
        })
    }
}
