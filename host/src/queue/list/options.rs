//! The options of a list queue.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::attempt::Accounting;
use crate::outgoing::dedup::Dedup;
use crate::outgoing::{Outlets, outbox};
use crate::queue::at_least_once::REPLY_KEEP;
use crate::queue::byte_bounds::{HANDLED, held_max};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::limits::Limit;
use crate::queue::{Rules, journal};
use crate::wire::list::Framing;

/// A reliable list, and how this host serves it.
#[derive(Clone, Debug)]
pub struct ListOptions {
    /// The list's key.
    pub key: String,
    /// The beginning of the instance's name (a host name, usually).
    pub consumer: String,
    /// How values are read, and so how they are written.
    pub framing: Framing,
    /// After how long without renewal a delivery is an orphan.
    pub min_idle: Duration,
    /// Where claims are recorded, so that they are recovered one by one. Without it, the deliveries of an
    /// instance are recovered when that instance is no longer seen.
    pub recovery: Option<Recovery>,
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
    /// Where dead letters go: a list.
    pub dead_letter: Option<DeadLetterQueue>,
    /// How many messages may be unclaimed: beyond that the oldest of them are dead-lettered.
    pub max_length: Option<u64>,
    /// How long after a host first claimed it a message is worth handling. A value does not say
    /// when it was enqueued; a host that dies makes the time begin again.
    pub ttl: Option<Duration>,
    /// How starts are counted.
    pub accounting: Accounting,
    /// How many messages may start in a time.
    pub limits: Arc<[Limit]>,
    /// The most bytes of messages that this host holds: [`held_max`].
    pub held_max: usize,
}

/// A sorted set of claims.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Recovery {
    /// Its key.
    pub key: String,
    /// After how long without any claim or renewal it expires; longer than `min_idle`.
    pub ttl: Option<Duration>,
}

impl ListOptions {
    /// The rules at the start.
    pub(in crate::queue) fn rules(&self) -> Rules {
        Rules {
            dead_letter: self.dead_letter.clone(),
            max_length: self.max_length,
            ttl: self.ttl,
            limits: Arc::clone(&self.limits),
        }
    }

    /// This list, with defaults.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            consumer: "hostler".to_owned(),
            framing: Framing::default(),
            min_idle: Duration::from_secs(30),
            recovery: None,
            outlets: Outlets::default(),
            outbox: outbox::Rules::default(),
            keys: None,
            dedup: None,
            journal: None,
            schedules: false,
            reply_keep: REPLY_KEEP,
            dead_letter: None,
            max_length: None,
            ttl: None,
            accounting: Accounting::default(),
            limits: Arc::default(),
            held_max: held_max(HANDLED),
        }
    }
}
