//! The history that a dead letter carries, and cycles.
//!
//! A *death* is one dead-lettering event. A history holds one record per {queue, reason}, most
//! recent first, so that it does not grow with the number of deaths. It answers one question:
//! would the message come back to a queue that it already died in, with no rejection in between?
//!
//! A *rejection* is any outcome of a started handler. Each record therefore keeps one bit,
//! [`Death::unrejected`]: since this death, itself included, nothing rejected the message. A
//! rejection clears the bit of every record, and so does a replay; so the answer stays exact
//! although records are merged.

use crate::delivery::policy::{Rejection, truncate_utf8};

/// The most records that a history keeps.
pub const RECORDS_MAX: usize = 32;

/// The longest queue name in a record, in bytes; longer ones are cut, and compared as cut.
pub const NAME_MAX: usize = 1024;

/// The longest reason in a record that somebody else wrote, in bytes.
const REASON_MAX: usize = 64;

/// The most bytes that a history may take as JSON, however its texts have to be escaped.
pub const BYTES_MAX: usize = 48 * 1024;

/// An escaped byte takes at most this many bytes (`\u00xx`).
const ESCAPED_MAX: usize = 6;

/// What a record's keys, numbers and punctuation take at most.
const RECORD_FRAME: usize = 256;

/// The deaths of a message in one queue for one reason.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Death {
    /// The queue that it died in.
    pub queue: String,
    /// Why: the label of a [`crate::delivery::policy::Reason`], or what another system wrote.
    pub reason: String,
    /// How often.
    pub count: u64,
    /// The first time, in epoch milliseconds; 0 = unknown.
    pub first_ms: u64,
    /// The last time, in epoch milliseconds; 0 = unknown.
    pub last_ms: u64,
    /// When the message would have expired, in epoch milliseconds: what the copy has lost.
    pub original_expiration: Option<u64>,
    /// Since the last of these deaths, itself included, no handler rejected the message and
    /// nobody replayed it.
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
    /// A record of an unrejected death did not fit any more: whatever the target, the message
    /// has wandered through more queues than a history can tell apart, unseen by any handler.
    overflowed: bool,
}

impl History {
    /// A history from what somebody wrote, most recent first: repeats of a {queue, reason} are
    /// merged into the first of them, texts are cut, and what does not fit is left out.
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
            // Bounded at every step: what is read may be hostile.
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

    /// Add a death in `queue`. `expiration`: when the message would have expired, if it could.
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

    /// Somebody replays the message: it starts anew, so that only deaths since then make a cycle.
    pub fn replay(&mut self) {
        self.forgive();
    }

    /// Whether moving the message to `target` closes a cycle: it already died there, and from
    /// that death on, up to and including the last recorded one, nothing rejected it.
    ///
    /// To be asked when the target is chosen, after the present death was [recorded](Self::record).
    /// Every way of dead letters without a rejection ends: a message that died in more ways than a
    /// history can hold counts as cycling too.
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

    /// Drop the oldest records that do not fit; the newest always does. Says whether one of them
    /// was unrejected.
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
    let end = (0..=NAME_MAX.min(name.len()))
        .rev()
        .find(|&i| name.is_char_boundary(i));
    &name[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests;
