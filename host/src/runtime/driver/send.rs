//! Sending errands: whatever is ready goes as soon as its errand is free, so that batches grow with
//! the load, and a lone message waits for nothing.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashSet;
use tracing::debug;

use super::Driver;
use crate::delivery::ledger::Time;
use crate::delivery::message::DeliveryId;
use crate::queue::Guarantee;
use crate::runtime::errands::Look;

/// How long a fetch waits at most. Short, so that a host that stops is not held up where its
/// fetch cannot be interrupted, and so that a lease is never much older than its claim.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often housekeeping runs.
const MAINTAIN_EVERY: Time = Time::from_secs(5);
/// How often the gauges are brought up to date.
const OBSERVE_EVERY: Time = Time::from_secs(5);
/// Between two looks at the backlog while waiting for the queue to be empty.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The most that is sent in one settle or record round trip.
const BATCH_MAX: usize = 512;

impl Driver {
    pub(super) fn send_errands(&mut self, now: Time) {
        if self.is_online() || self.queue.guarantee() == Guarantee::AtMostOnce {
            self.send_settlements();
        }
        if self.errands.renew.is_free()
            && let Some(keys) = self.renew.take()
        {
            let claims = keys
                .into_iter()
                .filter_map(|key| Some((key, self.claim(key)?)))
                .collect();
            self.errands.renew.send(claims);
        }
        if self.errands.fetch.is_free()
            && let Some((want, wait)) = self.fetch.take()
        {
            let longest = FETCH_WAIT_MAX.min(self.settings.ledger.min_idle / 4);
            let wait = if wait { longest } else { Duration::ZERO };
            self.errands.fetch.send((want, wait));
        }
        if self.errands.due.is_free()
            && let Some(max) = self.due.take()
        {
            self.errands.due.send(max);
        }
        if self.errands.orphans.is_free()
            && let Some(max) = self.orphans.take()
        {
            let held: FxHashSet<DeliveryId> =
                self.ledger.iter().map(|(key, _, _)| key.id).collect();
            self.errands.orphans.send((max, held));
        }
        if now >= self.next_maintenance {
            self.next_maintenance = now + MAINTAIN_EVERY;
            if self.is_online() && self.drain_deadline.is_none() && self.errands.maintain.is_free()
            {
                self.errands.maintain.send(());
            }
        }
        if now >= self.next_observation {
            self.next_observation = now + OBSERVE_EVERY;
            if self.is_online() && self.errands.observe.is_free() {
                self.errands.observe.send(());
            }
        }
        if self.settings.until_empty.is_some() && self.drain_deadline.is_none() {
            if self.empty.deadline.is_some_and(|deadline| now >= deadline) {
                self.empty.gave_up = true;
                self.drain("the queue did not become empty in time");
            } else if self.is_online() && self.ledger.is_empty() && self.errands.look.is_free() {
                self.errands.look.send(Look::Backlog(LOOK_EVERY));
            }
        }
    }

    /// What insists on its answer. Not while Redis is away: what is settled then could not be told
    /// from what a new group must hold again. At most once, nothing is asked of Redis for it.
    fn send_settlements(&mut self) {
        if self.errands.acknowledge.is_free() && !self.acknowledgements.is_empty() {
            let batch = std::mem::take(&mut self.acknowledgements);
            self.errands.acknowledge.send(batch);
        }
        if self.errands.record.is_free() && !self.records.is_empty() {
            let batch = take_some(&mut self.records);
            self.errands.record.send(batch);
        }
        if self.errands.settle.is_free() && !self.settlements.is_empty() {
            let batch = take_some(&mut self.settlements);
            self.errands.settle.send(batch);
        }
    }

    /// Make a waiting fetch return: best effort, it returns soon anyway.
    pub(super) fn interrupt(&self) {
        if self.fetch.is_none() {
            let queue = Arc::clone(&self.queue);
            tokio::spawn(async move {
                if let Err(error) = queue.interrupt().await {
                    debug!(%error, "could not interrupt a waiting read");
                }
            });
        }
    }
}

/// Full batches first: what is left goes with the next.
fn take_some<T>(all: &mut Vec<T>) -> Vec<T> {
    if all.len() <= BATCH_MAX {
        return std::mem::take(all);
    }
    let rest = all.split_off(BATCH_MAX);
    std::mem::replace(all, rest)
}
