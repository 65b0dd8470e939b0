//! The history that a dead letter carries, and cycles.
//!
//! A *death* is one dead-lettering event. A history holds one record per {queue, reason}, most
//! recent first, so that it does not grow with the number of deaths. It answers one question:
//! would the message come back to a queue that it already died in, with no rejection in between?
//!
//! A *rejection* is any outcome of a started handler. Each record keeps one bit,
//! [`Death::unrejected`]: no handler rejected the message in this death or since. A rejection clears the
//! bit of every record, and so does a replay. So the answer stays exact although records are merged.

use crate::delivery::policy::Rejection;
use crate::delivery::text::{truncate_utf8, truncated};

/// The most records that a history keeps.
pub const RECORDS_MAX: usize = 32;

/// The longest queue name in a record, in bytes; longer ones are cut, and compared as cut.
pub const NAME_MAX: usize = 1024;

/// The longest reason in a record that another system wrote, in bytes.
const REASON_MAX: usize = 64;

/// The most bytes that a history may take as JSON, including escapes.
pub const BYTES_MAX: usize = 48 * 1024;

/// An escaped byte takes at most this many bytes (`\u00xx`).
const ESCAPED_MAX: usize = 6;

/// The most bytes of a record's keys, numbers and punctuation.
const RECORD_FRAME: usize = 256;

/// The deaths of a message in one queue for one reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Death {
    /// The queue that it died in.
    pub queue: String,
    /// Why: the label of a [`crate::delivery::policy::Reason`], or the text of another system.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// The first time, in epoch milliseconds; 0 = unknown.
    pub first_ms: u64,
    /// The last time, in epoch milliseconds; 0 = unknown.
    pub last_ms: u64,
    /// When the message would have expired, in epoch milliseconds. The copy does not expire.
    pub original_expiration: Option<u64>,
    /// No handler rejected the message in the last of these deaths or since, and it was not replayed
    /// since.
    pub unrejected: bool,
}

impl Death {
    fn is(&self, queue: &str, reason: &str) -> bool {
        self.queue == queue && self.reason == reason
    }

    fn weight(&self) -> usize {
        RECORD_FRAME + ESCAPED_MAX * (self.queue.len() + self.reason.len())
    }
}

/// All deaths of a message, most recent first, bounded.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct History {
    records: Vec<Death>,
    /// A record of an unrejected death was dropped because it did not fit: the message went through
    /// more queues than a history can hold, and no handler saw it.
    overflowed: bool,
}

impl History {
    /// A history from records of any origin, most recent first. Repeats of a {queue, reason} are merged
    /// into the first of them, texts are cut, and records that do not fit are left out.
    pub fn new(records: impl IntoIterator<Item = Death>) -> Self {
        let mut history = Self::default();
        for mut death in records {
            truncate_utf8(&mut death.queue, NAME_MAX);
            truncate_utf8(&mut death.reason, REASON_MAX);
            match history.find(&death.queue, &death.reason) {
                Some(known) => {
                    let known = &mut history.records[known];
                    known.count = known.count.saturating_add(death.count);
                    known.first_ms = known.first_ms.min(death.first_ms);
                    known.last_ms = known.last_ms.max(death.last_ms);
                    known.original_expiration =
                        known.original_expiration.or(death.original_expiration);
                }
                None => history.records.push(death),
            }
            // Bounded at every step: the records may be hostile.
            history.cut();
        }
        history
    }

    /// The records, most recent first.
    pub fn records(&self) -> &[Death] {
        &self.records
    }

    /// Whether the message never died.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Add a death in `queue`. `expiration`: when the message would have expired, if ever.
    pub fn record(
        &mut self,
        queue: &str,
        rejection: &Rejection,
        now_ms: u64,
        expiration: Option<u64>,
    ) {
        let queue = cut_name(queue);
        let reason = rejection.reason.label();
        if rejection.handled {
            self.forgive();
        }
        let death = match self.find(queue, reason) {
            Some(known) => {
                let known = self.records.remove(known);
                Death {
                    count: known.count.saturating_add(1),
                    first_ms: known.first_ms.min(now_ms),
                    last_ms: now_ms,
                    original_expiration: expiration.or(known.original_expiration),
                    unrejected: !rejection.handled,
                    ..known
                }
            }
            None => Death {
                queue: queue.to_owned(),
                reason: reason.to_owned(),
                count: 1,
                first_ms: now_ms,
                last_ms: now_ms,
                original_expiration: expiration,
                unrejected: !rejection.handled,
            },
        };
        self.records.insert(0, death);
        self.overflowed |= self.cut();
    }

    /// The message is replayed: only deaths after the replay can make a cycle.
    pub fn replay(&mut self) {
        self.forgive();
    }

    /// Whether moving the message to `target` closes a cycle: the message already died there, and no
    /// handler rejected it from that death to the last recorded one.
    ///
    /// Ask when the target is chosen, after the present death was [recorded](Self::record). A message
    /// that died in more ways than a history can hold counts as cycling, so that every chain of dead
    /// letters without a rejection ends.
    pub fn cycles_to(&self, target: &str) -> bool {
        let target = cut_name(target);
        self.overflowed
            || self
                .records
                .iter()
                .any(|death| death.unrejected && death.queue == target)
    }

    fn forgive(&mut self) {
        self.overflowed = false;
        for death in &mut self.records {
            death.unrejected = false;
        }
    }

    fn find(&self, queue: &str, reason: &str) -> Option<usize> {
        self.records.iter().position(|d| d.is(queue, reason))
    }

    /// Drop the oldest records that do not fit. The newest record always fits. Returns whether one of
    /// the dropped records was unrejected.
    fn cut(&mut self) -> bool {
        let mut weight = 0;
        let fits = self
            .records
            .iter()
            .take(RECORDS_MAX)
            .take_while(|death| {
                weight += death.weight();
                weight <= BYTES_MAX
            })
            .count();
        self.records.drain(fits..).any(|death| death.unrejected)
    }
}

/// A queue's name as a record holds it.
fn cut_name(name: &str) -> &str {
    truncated(name, NAME_MAX)
}

#[cfg(test)]
pub(crate) mod tests;
