//! What a stream queue is told.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::delivery::policy::{Reason, Reasons};
use crate::queue::Rules;
use crate::wire::{self, keys};

/// A stream, a group, and how this host serves them.
#[derive(Clone, Debug)]
pub struct StreamOptions {
    /// The stream's key.
    pub key: String,
    /// The consumer group.
    pub group: String,
    /// What the consumer's name begins with (a host name, usually).
    pub consumer: String,
    /// Where a group that does not exist yet begins.
    pub start: GroupStart,
    /// After how long without renewal a delivery is an orphan.
    pub min_idle: Duration,
    /// Where dead letters go.
    pub dead_letter: Option<DeadLetterQueue>,
    /// How many messages may be unread: beyond that the oldest of them are dead-lettered.
    pub max_length: Option<u64>,
    /// What happens to entries that are done.
    pub retention: Retention,
    /// How entries are read.
    pub decoding: wire::stream::Options,
}

impl StreamOptions {
    /// The rules that it begins with.
    pub(in crate::queue) fn rules(&self) -> Rules {
        Rules {
            dead_letter: self.dead_letter.clone(),
            max_length: self.max_length,
            ttl: None,
        }
    }

    /// This stream and group, everything else as by default.
    pub fn new(key: impl Into<String>, group: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            group: group.into(),
            consumer: "hostler".to_owned(),
            start: GroupStart::Beginning,
            min_idle: Duration::from_secs(30),
            dead_letter: None,
            max_length: None,
            retention: Retention::Keep,
            decoding: wire::stream::Options::default(),
        }
    }
}

/// Where a new group begins.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum GroupStart {
    /// With the oldest entry of the stream (`0`).
    #[default]
    Beginning,
    /// With what is added from now on (`$`).
    End,
}

/// A stream for dead letters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetterQueue {
    /// Its key.
    pub key: String,
    /// Most entries in it, approximately; `None` or 0 = no bound.
    pub max_len: Option<u64>,
    /// What happens at the bound.
    pub on_full: OnFull,
    /// What goes elsewhere.
    pub routes: Routes,
}

impl DeadLetterQueue {
    /// Everything to this key, without a bound.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            max_len: None,
            on_full: OnFull::default(),
            routes: Routes::default(),
        }
    }

    /// Where what dies for this reason goes.
    pub fn target(&self, reason: Reason) -> &str {
        self.routes.by_reason.get(&reason).unwrap_or(&self.key)
    }

    /// The bound of this target; none where a route leads back to the queue `source`: what waits
    /// there is no dead letter, and must not be trimmed.
    pub(in crate::queue) fn bound(&self, key: &str, source: &str) -> Option<u64> {
        self.max_len.filter(|most| *most > 0 && key != source)
    }

    /// Every key that a dead letter of the queue `source` may go to, each once.
    pub fn targets(&self, source: &str) -> Vec<String> {
        self.routes.targets(&self.key, source)
    }

    /// Where a message of the queue `source` ends that would go round for ever.
    pub fn cycle(&self, source: &str) -> String {
        self.routes.cycle_of(source)
    }
}

/// Dead letters that go elsewhere than the others. Every target has the same bound.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes {
    /// By reason.
    pub by_reason: BTreeMap<Reason, String>,
    /// What dies for these reasons is discarded: for what dies in here, unseen by the policy.
    pub discarded: Reasons,
    /// What would go round for ever; `None` = the key [`keys::cycle`] of the queue.
    pub cycle: Option<String>,
}

impl Routes {
    /// Every key that a dead letter of the queue `source` may go to, each once: `key`, to which all
    /// goes that has no route, then by name.
    pub fn targets(&self, key: &str, source: &str) -> Vec<String> {
        let mut others: Vec<String> = self.by_reason.values().cloned().collect();
        others.push(self.cycle_of(source));
        others.sort_unstable();
        others.dedup();
        others.retain(|other| other != key);
        others.insert(0, key.to_owned());
        others
    }

    fn cycle_of(&self, source: &str) -> String {
        let named = self.cycle.clone();
        named.unwrap_or_else(|| keys::cycle(source))
    }

    /// Whether what dies for this reason is discarded.
    pub fn is_discarded(&self, reason: Reason) -> bool {
        self.discarded.contains(reason)
    }
}

/// What happens when the dead-letter queue is at its bound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnFull {
    /// The oldest are dropped, and counted.
    #[default]
    DropOldest,
    /// Nothing is dead-lettered until somebody makes room: deliveries stay pending.
    Stop,
}

/// What happens to entries that are done.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Retention {
    /// They stay.
    #[default]
    Keep,
    /// What every group has acknowledged is trimmed.
    Acked,
    /// The stream is trimmed to about this length, but never what some group still needs.
    MaxLen(u64),
}
