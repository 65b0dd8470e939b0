//! Settings that may change while a queue is served: where dead letters go, how long the queue may be,
//! how long its messages are worth handling.
//!
//! Crash windows: none of its own. A settlement reads the rules when it is sent. Sent again after a lost
//! reply it may read others, and writes no second copy: a delivery whose dead letter was written is no
//! longer there.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::limits::Limit;

/// See the module.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Rules {
    /// Where dead letters go.
    pub dead_letter: Option<DeadLetterQueue>,
    /// How many messages may be unread.
    pub max_length: Option<u64>,
    /// How long after its first claim a message of a list is worth handling. An entry of a stream says
    /// when it was enqueued, and the gate looks at that.
    pub ttl: Option<Duration>,
    /// How many messages may start in a time.
    pub limits: Arc<[Limit]>,
}

/// The rules in force.
#[derive(Debug)]
pub(super) struct ActiveRules(RwLock<Arc<Rules>>);

impl ActiveRules {
    pub(super) fn new(rules: Rules) -> Self {
        Self(RwLock::new(Arc::new(rules)))
    }

    /// The rules as they are now.
    pub(super) fn now(&self) -> Arc<Rules> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn replace(&self, rules: Rules) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }
}
