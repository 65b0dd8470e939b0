//! Redis comes and goes.
//!
//! One failure of an errand as a whole means that Redis is away: nothing new is asked of it, and
//! one errand probes whether it is back, at growing, jittered intervals. What is running goes on.
//!
//! When the probe works, everything is asked again. What had been refused for a reason that a
//! probe does not see (a right, a type), and what insists on its answer, must work before the host
//! is ready again; if it fails again, the next pause is longer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{info, warn};

use super::Driver;
use crate::delivery::ledger::{Event, Key, Time};
use crate::delivery::millis::millis;
use crate::queue::{Backlog, Contact, Repair, Repaired};
use crate::redis::{Class, Error};
use crate::runtime::errands::{Kind, Look};
use crate::telemetry::health::Cause;

/// The first and the longest pause before Redis is asked again. With the deadline of a probe, a
/// server that is back is found within five seconds.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Once it has worked for so long, the next pause is the first one again.
const STEADY: Time = Time::from_secs(2);
/// Between two lines that say that Redis is away: with the line that says that it is back, at most
/// one line a second.
const TELL_EVERY: Time = Time::from_secs(2);
/// While it stays away, it is said again so often.
const REMIND_EVERY: Time = Time::from_secs(60);

/// What stands between a host and its Redis.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// Failures in a row: how long the next pause is.
    failures: u32,
    /// Errands that must work before the host is ready again.
    owed: BTreeSet<Kind>,
    /// Since when something is wrong.
    since: Option<Time>,
    /// When Redis was last found to be back.
    back: Time,
    /// The code of the error that was said to be in the way, and when that was said last.
    told: Option<String>,
    told_at: Option<Time>,
    /// What the queue has needed of its server, as far as it is counted.
    counted: Contact,
}

impl Away {
    pub(super) fn new(contact: Contact) -> Self {
        Self {
            counted: contact,
            ..Self::default()
        }
    }
}

impl Driver {
    pub(super) fn is_online(&self) -> bool {
        *self.online.borrow()
    }

    pub(super) fn answer<T>(&mut self, kind: Kind, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(answer) => {
                self.worked(kind);
                Some(answer)
            }
            Err(error) => {
                self.failed(kind, &error);
                None
            }
        }
    }

    /// An errand has done what it should.
    pub(super) fn worked(&mut self, kind: Kind) {
        if self.away.owed.remove(&kind) {
            self.see_whether_over();
        }
    }

    /// Something failed as a whole: stop asking, and look now and then whether it works again.
    pub(super) fn failed(&mut self, kind: Kind, error: &Error) {
        let now = self.clock.now();
        self.metrics.redis_error(error);
        if kind.insists() || (error.class() == Class::Configuration && kind != Kind::Look) {
            self.away.owed.insert(kind);
        }
        self.blame(now, error);
        if !self.is_online() {
            return;
        }
        self.online.send_replace(false);
        self.ledger.apply(now, Event::Offline);
        if now >= self.away.back + STEADY {
            self.away.failures = 0;
        }
        self.ask_again();
    }

    fn ask_again(&mut self) {
        let pause = pause(self.away.failures, fastrand::f64());
        self.away.failures = self.away.failures.saturating_add(1);
        if self.errands.look.is_free() {
            self.errands.look.send(Look::Probe(pause));
        }
    }

    /// Nothing is settled meanwhile: what is held now is what must be held in the new group. What
    /// is being acknowledged needs no group that knows it, and would be found there by nobody.
    fn repair(&mut self) {
        let held = self
            .ledger
            .pending()
            .map(|(key, native, job)| (key, Arc::clone(&job.claim), native))
            .collect();
        self.errands.repair.send(held);
    }

    /// Not ready, because of this; and said so, if it was not said a moment ago.
    fn blame(&mut self, now: Time, error: &Error) {
        let (cause, other) = match error.class() {
            Class::Configuration => (Cause::RedisConfiguration, Cause::RedisAway),
            Class::Reconnect | Class::Retry | Class::Missing => {
                (Cause::RedisAway, Cause::RedisConfiguration)
            }
        };
        self.health.impede(cause, error.to_string());
        self.health.clear(other);
        let since = *self.away.since.get_or_insert(now);
        let is_known = self.away.told.as_deref() == Some(error.code());
        let every = if is_known { REMIND_EVERY } else { TELL_EVERY };
        if self.away.told_at.is_some_and(|at| now < at + every) {
            return;
        }
        let failures = self.away.failures;
        let for_ms = now.saturating_sub(since).as_millis();
        if cause == Cause::RedisConfiguration {
            warn!(%error, failures, for_ms, "redis refuses what this host needs");
        } else {
            warn!(%error, failures, for_ms, "redis is away");
        }
        self.away.told = Some(error.code().to_owned());
        self.away.told_at = Some(now);
    }

    fn back(&mut self, now: Time) {
        if self.is_online() {
            return;
        }
        self.online.send_replace(true);
        self.away.back = now;
        self.ledger.apply(now, Event::Online);
        self.see_whether_over();
    }

    fn see_whether_over(&mut self) {
        if !self.is_online() || !self.away.owed.is_empty() {
            return;
        }
        self.health.clear(Cause::RedisAway);
        self.health.clear(Cause::RedisConfiguration);
        let since = self.away.since.take();
        if self.away.told.take().is_some() {
            let after = since.map(|since| self.clock.now().saturating_sub(since));
            let after_ms = after.unwrap_or_default().as_millis();
            info!(after_ms, "redis is back");
        }
    }

    pub(super) fn repaired(
        &mut self,
        now: Time,
        sent: Time,
        keys: Vec<Key>,
        result: Result<Repair, Error>,
    ) {
        self.errands.repair.done();
        match result {
            Ok(repair) => {
                match repair.repaired {
                    Repaired::Intact => {}
                    Repaired::Group => {
                        self.metrics.groups_recreated.inc();
                        warn!("the group was gone: made again behind the last entry read");
                    }
                    Repaired::Stream => {
                        self.metrics.groups_recreated.inc();
                        warn!("the stream was gone: made again, empty, with its group");
                    }
                }
                let replies = keys.into_iter().zip(repair.held).collect();
                let leased = sent;
                self.ledger.apply(now, Event::Readopted { leased, replies });
                self.back(now);
            }
            Err(error) => self.still_away(now, &error, false),
        }
    }

    /// Is Redis back?
    pub(super) fn probed(&mut self, now: Time, result: Result<(), Error>) {
        self.errands.look.done();
        match result {
            Ok(()) => self.back(now),
            Err(error) => self.still_away(now, &error, true),
        }
    }

    /// Is the queue empty?
    pub(super) fn looked(&mut self, result: Result<Backlog, Error>) {
        self.errands.look.done();
        if let Some(backlog) = self.answer(Kind::Look, result) {
            let nothing = !backlog.unread && backlog.pending == 0;
            if self.settings.until_empty.is_some() && nothing && self.ledger.is_empty() {
                self.drain("the queue is empty");
            }
        }
        if !self.is_online() {
            // It was under way when something else failed: nobody has probed since.
            self.ask_again();
        }
    }

    fn still_away(&mut self, now: Time, error: &Error, may_repair: bool) {
        self.metrics.redis_error(error);
        self.blame(now, error);
        if may_repair && error.class() == Class::Missing {
            self.repair();
        } else {
            self.ask_again();
        }
    }

    /// Count what the queue has needed of its server since the last time.
    pub(super) fn count_contact(&mut self) {
        let contact = self.queue.contact();
        let counted = std::mem::replace(&mut self.away.counted, contact);
        let connections = contact.connections_opened - counted.connections_opened;
        let forgotten = contact.scripts_forgotten - counted.scripts_forgotten;
        if connections > 0 {
            self.metrics.reconnects.inc_by(connections);
        }
        if forgotten > 0 {
            self.metrics.scripts_forgotten(forgotten);
        }
        let gaps = contact.gaps - counted.gaps;
        if gaps > 0 {
            let gap = contact.gap.saturating_sub(counted.gap);
            self.metrics.subscription_gaps.inc_by(gaps);
            self.metrics
                .subscription_gap_seconds
                .inc_by(gap.as_secs_f64());
            let gap_ms = millis(gap);
            if let Some(others) = self.throttle.pass("gap", Instant::now()) {
                warn!(
                    gap_ms,
                    others, "subscribed again: what was published meanwhile is lost"
                );
            }
        }
        let dropped = contact.buffer_dropped - counted.buffer_dropped;
        if dropped > 0 {
            self.metrics.buffer_dropped.inc_by(dropped);
            self.dropped_unlogged += dropped;
        }
        if self.dropped_unlogged > 0 && self.throttle.pass("overflow", Instant::now()).is_some() {
            let dropped = std::mem::take(&mut self.dropped_unlogged);
            warn!(dropped, "the buffer is full: messages were dropped");
        }
    }
}

/// The pause before Redis is asked again: doubled with every failure, half of it random.
fn pause(failures: u32, random: f64) -> Duration {
    let longest = (PAUSE_FIRST * 2u32.pow(failures.min(10))).min(PAUSE_MAX);
    longest.mul_f64(0.5 + random / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_their_bound_and_are_jittered() {
        for failures in 0..=12 {
            let (least, most) = (pause(failures, 0.0), pause(failures, 1.0));
            assert_eq!(most, least * 2, "{failures}");
            assert!(most <= PAUSE_MAX);
        }
        assert_eq!(pause(0, 1.0), PAUSE_FIRST);
        assert_eq!(pause(1, 1.0), PAUSE_FIRST * 2);
        assert_eq!(pause(u32::MAX, 1.0), PAUSE_MAX);
    }
}
