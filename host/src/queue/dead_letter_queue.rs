//! Where the dead letters of a queue go, and how many may wait there.

use std::collections::BTreeMap;

use crate::delivery::policy::{Reason, Reasons};
use crate::wire::keys;

/// A stream for dead letters.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DeadLetterQueue {
    /// Its key.
    pub key: String,
    /// Most entries in it, approximately; `None` or 0 = no bound.
    pub max_len: Option<u64>,
    /// The rule at the bound.
    pub on_full: OnFull,
    /// Exceptions.
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

    /// The key for dead letters of this reason.
    pub fn target(&self, reason: Reason) -> &str {
        self.routes.by_reason.get(&reason).unwrap_or(&self.key)
    }

    /// The bound of this target; none if a route leads back to the queue `source`, whose messages must
    /// not be trimmed.
    pub(in crate::queue) fn bound(&self, key: &str, source: &str) -> Option<u64> {
        self.max_len.filter(|most| *most > 0 && key != source)
    }

    /// Every key that a dead letter of the queue `source` may go to, each once.
    pub fn targets(&self, source: &str) -> Vec<String> {
        self.routes.targets(&self.key, source)
    }

    /// The key for messages of the queue `source` that would go round for ever.
    pub fn cycle(&self, source: &str) -> String {
        self.routes.cycle_of(source)
    }
}

/// Exceptions from the key of a [`DeadLetterQueue`]. Every target has the same bound.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Routes {
    /// By reason.
    pub by_reason: BTreeMap<Reason, String>,
    /// Messages that die for these reasons are discarded: used where no policy decides.
    pub discarded: Reasons,
    /// The key for messages that would go round for ever; `None` = [`keys::cycle`] of the queue.
    pub cycle: Option<String>,
}

impl Routes {
    /// Every key that a dead letter of the queue `source` may go to, each once: `key`, then the others by
    /// name.
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

    /// Whether messages that die for this reason are discarded.
    pub fn is_discarded(&self, reason: Reason) -> bool {
        self.discarded.contains(reason)
    }
}

/// The rule of a dead-letter queue at its bound.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum OnFull {
    /// The oldest are dropped, and counted.
    #[default]
    DropOldest,
    /// Deliveries stay pending until there is room.
    Stop,
}
