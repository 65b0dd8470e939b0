//! A queue of any kind: the one place that distinguishes kinds.

use std::sync::Arc;

use super::inspect::{self, Report};
use super::list::{ListOptions, ListQueue};
use super::pubsub::{PubSub, PubSubOptions};
use super::simple_list::{SimpleList, SimpleListOptions};
use super::stream::{StreamOptions, StreamQueue};
use super::{Queue, Rules};
use crate::queue::requirements;
use crate::queue::startup::{Key, StartError, StartWarning, check_all};
use crate::redis::Error;
use crate::redis::connection::{Connector, Link};

/// A queue, and how this host serves it.
#[derive(Clone, Debug)]
pub enum QueueOptions {
    /// A stream, through a consumer group. At least once.
    Stream(StreamOptions),
    /// A list, through processing lists. At least once.
    List(ListOptions),
    /// A list; a value is forgotten when it is taken. At most once.
    SimpleList(SimpleListOptions),
    /// A channel, or the channels that a pattern matches. At most once.
    PubSub(PubSubOptions),
}

/// A queue to inspect.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Place {
    /// A stream, and one of its groups.
    Stream {
        /// The stream.
        key: Arc<str>,
        /// The group.
        group: Arc<str>,
    },
    /// A reliable list.
    List {
        /// The list.
        key: Arc<str>,
        /// Its recovery set, if it has one.
        recovery: Option<String>,
    },
    /// A simple list.
    SimpleList {
        /// The list.
        key: Arc<str>,
    },
    /// A channel, or several.
    PubSub,
}

impl Place {
    /// Its state; `None` if the kind has no state. Changes nothing.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is no such stream or group, and refusals of Redis.
    pub async fn look(
        &self,
        link: &Link,
        dead_letter: Option<&str>,
    ) -> Result<Option<Report>, Error> {
        Ok(Some(match self {
            Self::Stream { key, group } => Report {
                outboxes: inspect::outboxes(link, key).await?,
                journals: inspect::journals(link, key, group).await?,
                ..inspect::stream(link, key, group, dead_letter).await?
            },
            Self::List { key, .. } => Report {
                outboxes: inspect::outboxes(link, key).await?,
                journals: inspect::journals(link, key, "").await?,
                ..inspect::list(link, key, dead_letter).await?
            },
            Self::SimpleList { key } => {
                let length = link.count("LLEN", key).await?;
                Report {
                    length,
                    lag: Some(length),
                    unread: length > 0,
                    ..Report::default()
                }
            }
            Self::PubSub => return Ok(None),
        }))
    }
}

impl QueueOptions {
    /// The rules at the start.
    pub fn rules(&self) -> Rules {
        match self {
            Self::Stream(options) => options.rules(),
            Self::List(options) => options.rules(),
            Self::SimpleList(_) | Self::PubSub(_) => Rules::default(),
        }
    }

    /// The same with other rules.
    #[must_use]
    pub fn with(mut self, rules: Rules) -> Self {
        match &mut self {
            Self::Stream(options) => {
                options.dead_letter = rules.dead_letter;
                options.max_length = rules.max_length;
                options.limits = rules.limits;
            }
            Self::List(options) => {
                options.dead_letter = rules.dead_letter;
                options.max_length = rules.max_length;
                options.ttl = rules.ttl;
                options.limits = rules.limits;
            }
            Self::SimpleList(_) | Self::PubSub(_) => {}
        }
        self
    }

    /// Check the requirements; nothing is changed.
    ///
    /// # Errors
    /// The first [`StartError`].
    pub async fn check(&self, connector: &Connector) -> Result<Vec<StartWarning>, StartError> {
        use requirements::{list, list_keys, pubsub, simple_list, stream, stream_keys};
        let requirements = |is_cluster| match self {
            Self::Stream(options) => (
                stream_keys(options, is_cluster),
                stream(options, is_cluster),
            ),
            Self::List(options) => (list_keys(options, is_cluster), list(options, is_cluster)),
            Self::SimpleList(options) => {
                let key = Key::new(&options.key, "list", "the queue");
                (vec![key], simple_list(options))
            }
            // A replica is enough: it passes on messages published on its primary.
            Self::PubSub(options) => (Vec::new(), pubsub(options)),
        };
        let warnings = check_all(connector, requirements).await?;
        let evicts = |warning: &StartWarning| match warning {
            StartWarning::Evicts(policy) if self.has_journals() => Some(policy.clone()),
            _ => None,
        };
        match warnings.iter().find_map(evicts) {
            Some(policy) => Err(StartError::EvictsJournals(policy)),
            None => Ok(warnings),
        }
    }

    /// Whether its messages may have journals.
    fn has_journals(&self) -> bool {
        match self {
            Self::Stream(options) => options.journal.is_some(),
            Self::List(options) => options.journal.is_some(),
            Self::SimpleList(_) | Self::PubSub(_) => false,
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
