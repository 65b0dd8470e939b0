//! The queue of a measurement.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::publish::Destination;
use crate::queue::Queue;
use crate::queue::kind::QueueOptions;
use crate::queue::list::{ListOptions, Recovery};
use crate::queue::pubsub::PubSubOptions;
use crate::queue::simple_list::SimpleListOptions;
use crate::queue::stream::{Retention, StreamOptions};
use crate::redis::connection::Connector;
use crate::wire::keys;
use crate::workbench::Error;

/// A kind of queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Through {
    /// A stream.
    #[default]
    Stream,
    /// A simple list.
    List,
    /// A reliable list.
    ReliableList,
    /// A reliable list with a recovery set.
    RecoveredList,
    /// A channel.
    Channel,
}

impl Through {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stream => "stream",
            Self::List => "simple list",
            Self::ReliableList => "reliable list",
            Self::RecoveredList => "reliable list with a recovery set",
            Self::Channel => "channel",
        }
    }

    /// Whether it holds messages until a host serves it.
    pub(super) fn holds(self) -> bool {
        self != Self::Channel
    }

    pub(super) fn destination(self, key: &str) -> Destination {
        match self {
            Self::Stream => Destination::stream(key),
            Self::List | Self::ReliableList | Self::RecoveredList => Destination::list(key),
            Self::Channel => Destination::channel(key),
        }
    }

    /// The queue of this key, opened by a host.
    pub(super) async fn open(
        self,
        connector: &Connector,
        key: &str,
        retention: Retention,
    ) -> Result<Arc<dyn Queue>, Error> {
        let list = |recovery| {
            QueueOptions::List(ListOptions {
                recovery,
                ..ListOptions::new(key)
            })
        };
        let options = match self {
            Self::Stream => QueueOptions::Stream(StreamOptions {
                retention,
                ..StreamOptions::new(key, "bench")
            }),
            Self::List => QueueOptions::SimpleList(SimpleListOptions::new(key)),
            Self::ReliableList => list(None),
            Self::RecoveredList => list(Some(Recovery {
                key: claims(key),
                ttl: Some(Duration::from_secs(3600)),
            })),
            Self::Channel => QueueOptions::PubSub(PubSubOptions::new(key)),
        };
        Ok(options.open(connector.clone()).await?)
    }

    /// All keys that it may leave behind.
    pub(super) fn keys(key: &str) -> Vec<String> {
        vec![key.to_owned(), claims(key), keys::instances(key)]
    }
}

fn claims(key: &str) -> String {
    keys::derived(key, "claims")
}
