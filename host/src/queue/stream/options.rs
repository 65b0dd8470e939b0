//! The options of a stream queue.

use std::sync::Arc;
use std::time::Duration;

use crate::outgoing::dedup::Dedup;
use crate::outgoing::{Outlets, outbox};
use crate::queue::at_least_once::REPLY_KEEP;
use crate::queue::byte_bounds::{HANDLED, held_max};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::limits::Limit;
use crate::queue::{Rules, journal};
use crate::wire;

/// A stream, a group, and how this host serves them.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// The stream's key.
    pub key: String,
    /// The consumer group.
    pub group: String,
    /// The beginning of the consumer's name (a host name, usually).
    pub consumer: String,
    /// Where a group that does not exist yet begins.
    pub start: GroupStart,
    /// After how long without renewal a delivery is an orphan.
    pub min_idle: Duration,
    /// Where its handler may publish, by the names that the handler uses.
    pub outlets: Outlets,
    /// When that goes through an outbox.
    pub outbox: outbox::Rules,
    /// Its handler may use the keys that begin so; `None` = it has none.
    pub keys: Option<Arc<str>>,
    /// How duplicates are found; `None` = they are not looked for.
    pub dedup: Option<Dedup>,
    /// How journals are kept; `None` = no journals.
    pub journal: Option<journal::Rules>,
    /// Whether it has schedules: then its user needs the rights for them.
    pub schedules: bool,
    /// How long answers to producers are kept.
    pub reply_keep: Duration,
    /// Where dead letters go.
    pub dead_letter: Option<DeadLetterQueue>,
    /// How many messages may be unread: beyond that the oldest of them are dead-lettered.
    pub max_length: Option<u64>,
    /// Which entries are trimmed.
    pub retention: Retention,
    /// How many messages may start in a time.
    pub limits: Arc<[Limit]>,
    /// How entries are read.
    pub decoding: wire::stream::Options,
    /// The most bytes of messages that this host holds: [`held_max`].
    pub held_max: usize,
}

impl StreamOptions {
    /// The rules at the start.
    pub(in crate::queue) fn rules(&self) -> Rules {
        Rules {
            dead_letter: self.dead_letter.clone(),
            max_length: self.max_length,
            ttl: None,
            limits: Arc::clone(&self.limits),
        }
    }

    /// This stream and group, with defaults.
    pub fn new(key: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            group: group.into(),
            consumer: "hostler".to_owned(),
            start: GroupStart::Beginning,
            min_idle: Duration::from_secs(30),
            outlets: Outlets::default(),
            outbox: outbox::Rules::default(),
            keys: None,
            dedup: None,
            journal: None,
            schedules: false,
            reply_keep: REPLY_KEEP,
            dead_letter: None,
            max_length: None,
            retention: Retention::Keep,
            limits: Arc::default(),
            decoding: wire::stream::Options::default(),
            held_max: held_max(HANDLED),
        }
    }
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GroupStart {
    /// With the oldest entry of the stream (`0`).
    #[default]
    Beginning,
    /// With entries added from now on (`$`).
    End,
}

/// Which entries are trimmed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Retention {
    /// None.
    #[default]
    Keep,
    /// Those that every group has acknowledged.
    Acked,
    /// The oldest over about this length, except those that some group still needs.
    MaxLen(u64),
}
