//! What a stream queue is told.

use std::time::Duration;

use crate::queue::Rules;
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::wire;

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
