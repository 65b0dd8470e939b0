//! The queue of a measurement.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::cli::exit::Failure;
use crate::cli::text::parse;
use crate::publish::Destination;
use crate::queue::Queue;
use crate::queue::kind::QueueOptions;
use crate::queue::list::{ListOptions, Recovery};
use crate::queue::pubsub::PubSubOptions;
use crate::queue::simple_list::SimpleListOptions;
use crate::queue::stream::{Retention, StreamOptions};
use crate::redis::connection::Connector;
use crate::wire::keys;

/// A kind of queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Through {
    #[default]
    Stream,
    List,
    ReliableList,
    RecoveredList,
    Channel,
}

/// The flags that name one.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub(super) struct Flags {
    /// Measure a list instead of a stream: a simple list, unless --reliable
    #[arg(long, conflicts_with_all = ["in_process", "replay"])]
    list: bool,

    /// With --list: a reliable list
    #[arg(long, requires = "list")]
    reliable: bool,

    /// With --list --reliable: record every claim in a recovery set
    #[arg(long, requires = "reliable")]
    recovery: bool,

    /// Measure a channel instead of a stream
    ///
    /// Messages are published as fast as they are handled, at most 4096 ahead.
    #[arg(long, conflicts_with_all = ["list", "in_process", "replay"])]
    channel: bool,

    /// What the host trims of the stream: keep, acked, or maxlen:N
    #[arg(
        long,
        value_name = "RULE",
        default_value = "keep",
        value_parser = parse::<Retention>,
        conflicts_with_all = ["list", "channel", "in_process", "replay"]
    )]
    retention: Retention,
}

impl Flags {
    pub(super) fn through(self) -> Through {
        match self {
            Self { channel: true, .. } => Through::Channel,
            Self { recovery: true, .. } => Through::RecoveredList,
            Self { reliable: true, .. } => Through::ReliableList,
            Self { list: true, .. } => Through::List,
            _ => Through::Stream,
        }
    }

    pub(super) fn retention(self) -> Retention {
        self.retention
    }
}

impl Through {
    /// Its name.
    pub(super) fn name(self) -> &'static str {
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
    ) -> Result<Arc<dyn Queue>, Failure> {
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
