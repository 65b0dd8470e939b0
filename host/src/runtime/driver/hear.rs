//! Taking in what slots and errands say.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, info, warn};

use super::Driver;
use crate::delivery::ledger::{Delivery, Event, Key, Origin, Reply, Time, TurnedAway};
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::DELAY_MAX;
use crate::delivery::trace::Trace;
use crate::queue::{Claim, Guarantee, Maintenance, Observation, Taken};
use crate::redis::{Class, Error};
use crate::runtime::errands::{Kind, Told};
use crate::runtime::executor::{Report, Word};
use crate::runtime::gate;
use crate::runtime::job::Job;
use crate::telemetry::health::Cause;
use crate::telemetry::metrics::Gauge;
use crate::telemetry::status::Fault as Faulted;
use crate::telemetry::wall_clock_ms;

impl Driver {
    pub(super) fn take_word(&mut self, now: Time, word: Word) {
        match word {
            Word::Ready(key) => {
                let turned_away = self.ledger.job(key).and_then(|job| {
                    let expires_at_ms = job.expires_at_ms?;
                    gate::expired(expires_at_ms, self.shared.time.now_ms())
                });
                let event = match turned_away {
                    Some((reason, detail)) => {
                        if let Some(ticket) = self.tickets.remove(&key) {
                            ticket.deny();
                        }
                        Event::TurnedAway {
                            key,
                            reason,
                            detail,
                        }
                    }
                    None => Event::SlotReady(key),
                };
                self.ledger.apply(now, event);
            }
            Word::Unstarted(key) => {
                self.tickets.remove(&key);
                self.ledger.apply(now, Event::Unstarted(key));
            }
            Word::TurnedAway(key, reason, detail) => {
                self.tickets.remove(&key);
                let event = Event::TurnedAway {
                    key,
                    reason,
                    detail,
                };
                self.ledger.apply(now, event);
            }
            Word::Finished { key, report, took } => self.finished(now, key, report, took),
        }
    }

    pub(super) fn finished(&mut self, now: Time, key: Key, report: Report, took: Duration) {
        self.tickets.remove(&key);
        self.metrics.attempt(&report.outcome);
        self.judge(now, key, &report.digest, &report.outcome);
        self.metrics.handler_seconds.observe(took);
        if report.log_bytes_dropped > 0 {
            self.metrics
                .guest_log_bytes_dropped
                .inc_by(report.log_bytes_dropped);
        }
        let mut panicked = None;
        if report.outcome != Outcome::Ack {
            if self.queue.guarantee() == Guarantee::AtMostOnce {
                self.metrics.outcome_not_honoured(&report.outcome);
            }
            if let Outcome::NackRequeue(Some(delay)) = report.outcome
                && delay > DELAY_MAX
            {
                self.metrics.delays_clamped.inc();
            }
            if let Some(job) = self.ledger.job(key) {
                let id = &*job.claim.message.id;
                let digest = &*report.digest;
                let trace = Trace::of(&job.claim.message.headers);
                let trace_id = trace.as_ref().map(Trace::trace_id);
                let span_id = trace.as_ref().map(Trace::span_id);
                if let Outcome::Fault(fault) = &report.outcome {
                    if fault.kind == FaultKind::HostPanic {
                        self.metrics.host_panics.inc();
                        panicked = Some((Arc::clone(&job.claim.message.id), fault.detail.clone()));
                    }
                    let kind = fault.kind.label();
                    self.status.fault(Faulted {
                        at_ms: wall_clock_ms(),
                        id: id.to_owned(),
                        kind,
                        detail: fault.detail.clone(),
                        handler: digest.to_owned(),
                    });
                    if let Some(suppressed) = self.faults.pass(kind, Instant::now()) {
                        info!(
                            id,
                            kind,
                            detail = fault.detail,
                            digest,
                            trace_id,
                            span_id,
                            suppressed,
                            "the handler faulted"
                        );
                    }
                } else {
                    let outcome = &report.outcome;
                    debug!(
                        id,
                        ?outcome,
                        digest,
                        trace_id,
                        span_id,
                        "the handler answered"
                    );
                }
                job.ran_on(Arc::clone(&report.digest));
            }
        }
        let event = Event::Finished {
            key,
            outcome: report.outcome,
            is_current: self.is_current(&report.digest),
            jitter: fastrand::f64(),
        };
        self.ledger.apply(now, event);
        if let Some((id, detail)) = panicked {
            self.panicked(now, &report.digest, id, &detail);
        }
    }

    pub(super) fn hear(&mut self, told: Told) {
        let now = self.clock.now();
        match told {
            Told::Fetched {
                asked,
                sent,
                result,
            } => {
                self.errands.fetch.done();
                let claims = self.answer(Kind::Fetch, result).unwrap_or_default();
                if self.is_online() && self.health.clear(Cause::Starting) {
                    info!("ready");
                }
                let event = Event::Fetched {
                    asked,
                    leased: sent,
                    deliveries: self.deliveries(claims),
                };
                self.ledger.apply(now, event);
            }
            Told::Due { sent, result } => {
                self.errands.due.done();
                let taken = self.take(Kind::Due, result);
                let event = Event::DueTaken {
                    leased: sent,
                    deliveries: self.deliveries(taken.claims),
                    next: taken.next_due,
                };
                self.ledger.apply(now, event);
            }
            Told::Orphans { sent, result } => {
                self.errands.orphans.done();
                let taken = self.take(Kind::Orphans, result);
                let event = Event::OrphansTaken {
                    leased: sent,
                    deliveries: self.deliveries(taken.claims),
                };
                self.ledger.apply(now, event);
            }
            Told::Recorded { sent, replies } => {
                self.errands.record.done();
                self.worked(Kind::Record);
                for (key, reply) in replies {
                    let event = Event::Recorded {
                        key,
                        leased: sent,
                        reply,
                    };
                    self.ledger.apply(now, event);
                }
            }
            Told::Acknowledged(keys) => {
                self.errands.acknowledge.done();
                self.worked(Kind::Acknowledge);
                self.ledger.apply(now, Event::Acknowledged(keys));
            }
            Told::Settled(replies) => {
                self.errands.settle.done();
                self.worked(Kind::Settle);
                for (key, reply) in replies {
                    self.ledger.apply(now, Event::Settled(key, reply));
                }
                self.see_whether_taken();
            }
            Told::Renewed { sent, result } => {
                self.errands.renew.done();
                let replies = self.answer(Kind::Renew, result).unwrap_or_default();
                let renewed: Vec<Key> = replies
                    .iter()
                    .filter(|(_, reply)| *reply == Reply::Done)
                    .map(|&(key, _)| key)
                    .collect();
                let event = Event::Renewed {
                    leased: sent,
                    replies,
                };
                self.ledger.apply(now, event);
                for key in renewed {
                    if let Some(ticket) = self.tickets.get(&key)
                        && let Some(leased) = self.ledger.leased(key)
                    {
                        ticket.renew(leased);
                    }
                }
                self.see_whether_taken();
            }
            Told::Maintained(result) => {
                self.errands.maintain.done();
                self.kept_house(result);
            }
            Told::Observed(result) => {
                self.errands.observe.done();
                match result {
                    Ok(Some(seen)) => self.observed(&seen),
                    Ok(None) => {}
                    Err(error) => debug!(%error, "could not look at the queue for metrics"),
                }
            }
            Told::Looked(result) => self.looked(result),
            Told::Probed(result) => self.probed(now, result),
            Told::Repaired { sent, keys, result } => self.repaired(now, sent, keys, result),
            Told::Failed(kind, error) => self.failed(kind, &error),
        }
    }

    /// A settlement that was refused may have been carried out, or be nobody's business anymore.
    fn see_whether_taken(&mut self) {
        if self.refusing && !self.ledger.has_refused() {
            self.refusing = false;
            self.health.clear(Cause::DeadLettersRefused);
            info!("redis takes settlements again");
            // What is over the length may be refused still: that is told at once.
            self.next_maintenance = Time::ZERO;
        }
    }

    fn kept_house(&mut self, result: Result<Maintenance, Error>) {
        match result {
            // Housekeeping may be late: a right that only it lacks stops nothing else.
            Err(error) if error.class() == Class::Configuration => {
                self.metrics.redis_error(&error);
                if !std::mem::replace(&mut self.house_refused, true) {
                    warn!(%error, "redis refuses the housekeeping of this queue");
                }
            }
            result => {
                if let Some(done) = self.answer(Kind::Maintain, result) {
                    if std::mem::take(&mut self.house_refused) {
                        info!("redis takes the housekeeping of this queue again");
                    }
                    self.maintained(done);
                }
            }
        }
    }

    fn observed(&self, seen: &Observation) {
        let set = |gauge: &Gauge, value: u64| {
            gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        };
        set(&self.metrics.unread, seen.unread);
        set(&self.metrics.pending, seen.pending);
        set(&self.metrics.parked, seen.parked);
        set(&self.metrics.dead_letters, seen.dead_letters.unwrap_or(0));
        let oldest = seen.oldest_pending.unwrap_or_default();
        self.metrics
            .oldest_pending_seconds
            .set(oldest.as_secs_f64());
    }

    fn maintained(&mut self, done: Maintenance) {
        self.metrics.retention_trimmed.inc_by(done.trimmed);
        let dropped = done.dead_letters_dropped;
        if dropped > 0 {
            self.metrics.dead_letters_trimmed.inc_by(dropped);
            warn!(
                dropped,
                "the dead-letter queue is full: its oldest entries were dropped"
            );
        }
        if done.cycles > 0 {
            self.metrics.cycles.inc_by(done.cycles);
        }
        let damaged = done.histories_damaged;
        if damaged > 0 {
            self.metrics.histories_damaged.inc_by(damaged);
            warn!(
                damaged,
                "histories of messages were damaged: what could be read was kept"
            );
        }
        let overflowed = done.overflowed;
        if overflowed > 0 {
            self.metrics.overflowed(overflowed, self.ledger.policy());
            warn!(
                overflowed,
                "more was unread than may be: the oldest were given up unrun"
            );
        }
        if done.overflows {
            self.next_maintenance = Time::ZERO;
        }
        if done.other_group > 0 {
            self.metrics.other_group.inc_by(done.other_group);
            let messages = done.other_group;
            debug!(messages, "replayed for another group");
        }
        self.metrics.settlements_refused.inc_by(done.refusals);
        self.overflow_refused(done.dead_letters_refused.as_deref());
        if done.consumers_removed > 0 {
            let consumers = done.consumers_removed;
            debug!(consumers, "removed consumers that were long gone");
        }
        if done.held_back && !self.held_back {
            warn!("the queue is longer than its retention says: what is over is unread or pending");
        }
        self.held_back = done.held_back;
    }

    /// What is over the length is held by nobody: no settlement tells of its dead letters.
    fn overflow_refused(&self, cause: Option<&str>) {
        match cause {
            Some(cause) => {
                if self.health.impede(Cause::DeadLettersRefused, cause) {
                    warn!(
                        cause,
                        "redis refuses dead letters; what is over the length stays unread"
                    );
                }
            }
            // As long as a settlement is refused, that is the cause.
            None if self.refusing => {}
            None => {
                if self.health.clear(Cause::DeadLettersRefused) {
                    info!("redis takes what is over the length again");
                }
            }
        }
    }

    pub(super) fn take(&mut self, kind: Kind, result: Result<Taken, Error>) -> Taken {
        let taken = self.answer(kind, result).unwrap_or_default();
        if taken.trimmed > 0 {
            self.metrics.trimmed_pending.inc_by(taken.trimmed);
            let entries = taken.trimmed;
            warn!(entries, "lost to trimming: deleted while they were pending");
        }
        taken
    }

    /// The gate's first look, and the ledger's view of what was claimed.
    pub(super) fn deliveries(&self, claims: Vec<Claim>) -> Vec<Delivery<Arc<Job>>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let now_ms = self.shared.time.now_ms();
        claims
            .into_iter()
            .map(|claim| {
                let enqueued_ms = claim.message.enqueued_ms;
                if enqueued_ms > 0 && claim.origin == Origin::Fresh {
                    let waited = Duration::from_millis(now_ms.saturating_sub(enqueued_ms));
                    self.metrics.queue_wait_seconds.observe(waited);
                }
                let turned_away = gate::check(&claim, &self.settings.gate, now_ms);
                if turned_away == Some(TurnedAway::OtherGroup) {
                    self.metrics.other_group.inc();
                    debug!(id = &*claim.message.id, "replayed for another group");
                }
                Delivery {
                    id: claim.id,
                    origin: claim.origin,
                    header: claim.header,
                    native: claim.native,
                    turned_away,
                    job: Arc::new(Job::new(claim, &self.settings.gate)),
                }
            })
            .collect()
    }
}
