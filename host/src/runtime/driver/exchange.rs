//! The traffic between the ledger, the slots and the request workers.
//!
//! Actions of the ledger go to the slots as tickets, and to the request workers through the outbox. The
//! outbox leaves as soon as a worker is free: so batches grow with the load, and a single message waits
//! for nothing.

use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, info, warn};

use super::Driver;
use crate::delivery::ledger::{Action, Delivery, Event, Key, Note, Reply, SettleAction, Time};
use crate::delivery::millis::millis;
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::queue::{Claim, Guarantee, Record, Repair, Settlement, Taken};
use crate::redis::{Class, Error};
use crate::runtime::errands;
use crate::runtime::handler::{Report, SlotEvent};
use crate::runtime::job::{Job, LastAttempt};
use crate::runtime::no_digest;
use crate::runtime::ticket::Ticket;
use crate::runtime::workers::{Answer, Completion, Kind, Request};
use crate::telemetry::health::Cause;

/// How long a fetch waits at most. A short wait does not hold up a host that stops although its fetch
/// cannot be interrupted, and a lease is never much older than its claim.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(2);
/// How often housekeeping runs, and after how many settled deliveries at the latest: so retention keeps up with any
/// rate.
const MAINTAIN_EVERY: Time = Time::from_secs(5);
const MAINTAIN_AFTER: usize = 10_000;
/// The pause before housekeeping goes on that had more to do than one go may.
const MAINTAIN_AGAIN: Time = Time::from_millis(20);
/// How often the gauges are updated.
const OBSERVE_EVERY: Time = Time::from_secs(5);
/// How often `--until-empty` looks at the backlog.
const BACKLOG_EVERY: Duration = Duration::from_millis(20);

/// A delivery that Redis does not find, its count, and the end of its lease.
type Missing = (Arc<Claim>, u32, Time);

/// Requests that wait for their worker. The deliveries that the ledger holds bound their number.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    fetch: Option<(usize, bool)>,
    due: Option<usize>,
    orphans: Option<usize>,
    renew: Option<Vec<Key>>,
    records: Vec<(Key, Record)>,
    acknowledgements: Vec<(Key, Arc<Claim>)>,
    missing: Vec<(Key, Missing)>,
    settlements: Vec<(Key, Settlement)>,
    dead_letters: Vec<(Key, Settlement)>,
}

impl Driver {
    // From the ledger.

    pub(super) fn perform(&mut self, now: Time, action: Action<Job>) {
        match action {
            Action::Fetch { want, wait } => self.outbox.fetch = Some((want, wait)),
            Action::Interrupt => self.interrupt(),
            Action::TakeDue { .. } if self.errands.pauses(now, Kind::Due) => {
                self.took(now, Kind::Due, now, Taken::default());
            }
            Action::TakeDue { max } => self.outbox.due = Some(max),
            Action::TakeOrphans { .. } if self.errands.pauses(now, Kind::Orphans) => {
                self.took(now, Kind::Orphans, now, Taken::default());
            }
            Action::TakeOrphans { max } => self.outbox.orphans = Some(max),
            Action::Renew(keys) => self.outbox.renew = Some(keys),
            Action::Release {
                key,
                attempt,
                leased,
            } => self.release(key, attempt, leased),
            Action::Record { key, expect, write } => {
                if let Some(job) = self.ledger.job_mut(key) {
                    let look_max = self.shared.look_max;
                    let is_late = look_max.is_some_and(|max| now.saturating_sub(job.looked) >= max);
                    if is_late {
                        job.looked = now;
                    }
                    let record = Record {
                        claim: Arc::clone(&job.claim),
                        expect,
                        write,
                        is_late,
                    };
                    self.outbox.records.push((key, record));
                }
            }
            Action::Go { key, attempt } => {
                self.renew_ticket(key);
                if let Some(ticket) = self.tickets.get(&key) {
                    ticket.grant(attempt);
                }
            }
            Action::Deny(key) => {
                if let Some(ticket) = self.tickets.remove(&key) {
                    ticket.deny();
                }
            }
            Action::Revoke(key) => {
                if self.tickets.get(&key).is_some_and(|ticket| ticket.revoke()) {
                    self.tickets.remove(&key);
                    self.ledger.apply(now, Event::Revoked(key));
                }
            }
            Action::Acknowledge(key) => {
                if let Some(claim) = self.claim(key) {
                    self.outbox.acknowledgements.push((key, claim));
                }
            }
            Action::Settle { key, count, action } => self.settle(key, count, action),
            Action::BringBack { key, count } => {
                if let Some(claim) = self.claim(key) {
                    let until = self.ledger.lease_ends(key).unwrap_or_default();
                    self.outbox.missing.push((key, (claim, count, until)));
                }
            }
            Action::Closed { key, job, how } => {
                self.tickets.remove(&key);
                self.reporter.closed(&job, how, self.ledger.policy());
            }
            Action::Note(note) => {
                if let Note::Changed { key, .. } | Note::Unfit { key, .. } = &note
                    && let Some(job) = self.ledger.job_mut(*key)
                {
                    // The effects of that attempt are void.
                    job.effects = None;
                }
                let job = note.key().and_then(|key| self.ledger.job(key));
                self.reporter.note(note, job);
            }
        }
    }

    fn claim(&self, key: Key) -> Option<Arc<Claim>> {
        self.ledger.job(key).map(|job| Arc::clone(&job.claim))
    }

    fn release(&mut self, key: Key, attempt: Option<u32>, leased: Time) {
        let Some(job) = self.ledger.job(key) else {
            return;
        };
        let claim = Arc::clone(&job.claim);
        let ticket = Ticket::new(key, claim, attempt, leased);
        let ticket = ticket.expires(job.expires_at_ms).looked(job.looked);
        let ticket = Arc::new(ticket);
        self.tickets.insert(key, Arc::clone(&ticket));
        self.released.push(ticket);
    }

    /// Put what was released into the queue of the slots, in one go.
    pub(super) fn hand_out(&mut self, now: Time) {
        if self.released.is_empty() {
            return;
        }
        self.executor.send(&mut self.released);
        // There is room while the ledger keeps its bounds. Without room nothing is lost.
        for ticket in self.released.drain(..).filter(|ticket| ticket.revoke()) {
            self.tickets.remove(&ticket.key);
            self.ledger.apply(now, Event::Revoked(ticket.key));
        }
    }

    fn settle(&mut self, key: Key, count: u32, action: SettleAction) {
        let Some(job) = self.ledger.job(key) else {
            return;
        };
        let is_dead_letter = matches!(action, SettleAction::DeadLetter(_));
        let (handler, log) = match &job.last {
            Some(last) => (Arc::clone(&last.handler), last.log.clone()),
            None => (no_digest(), None),
        };
        let settlement = Settlement {
            claim: Arc::clone(&job.claim),
            count,
            action,
            handler,
            // Only a dead letter keeps it.
            log: log.filter(|_| is_dead_letter),
            expires_at_ms: job.expires_at_ms,
            effects: job.effects.clone(),
            has_run: job.has_run,
        };
        let outbox = &mut self.outbox;
        match is_dead_letter {
            true => outbox.dead_letters.push((key, settlement)),
            false => outbox.settlements.push((key, settlement)),
        }
    }

    /// A slot that waits with this delivery sees when its lease was confirmed.
    fn renew_ticket(&self, key: Key) {
        if let Some(ticket) = self.tickets.get(&key)
            && let Some(leased) = self.ledger.leased(key)
        {
            ticket.renew(leased);
        }
    }

    /// Make a fetch return: it waits no more, and no other part of it comes. If this fails, the fetch still returns
    /// soon.
    fn interrupt(&self) {
        self.workers.end_fetch();
        if self.outbox.fetch.is_none() {
            let queue = Arc::clone(&self.queue);
            tokio::spawn(async move {
                if let Err(error) = queue.interrupt().await {
                    debug!(%error, "could not interrupt a waiting read");
                }
            });
        }
    }

    // To the request workers.

    pub(super) fn send_requests(&mut self, now: Time) {
        let is_online = self.connection.is_online();
        // While Redis is away nothing is settled: a new group must hold the delivery again, and hostler
        // could not tell what was settled there. An at-most-once queue asks nothing of Redis for this.
        if is_online || self.queue.guarantee() == Guarantee::AtMostOnce {
            self.send_settlements(now);
        }
        if self.workers.is_free(Kind::Renew)
            && let Some(keys) = self.outbox.renew.take()
        {
            let held = keys.into_iter();
            let held = held.filter_map(|key| Some((key, self.claim(key)?)));
            let (keys, claims) = held.unzip();
            self.workers.send(Request::Renew(keys, claims));
        }
        if self.workers.is_free(Kind::Fetch)
            && let Some((want, wait)) = self.outbox.fetch.take()
        {
            let longest = FETCH_WAIT_MAX.min(self.settings.ledger.min_idle / 4);
            let wait = if wait { longest } else { Duration::ZERO };
            self.workers.send(Request::Fetch(want, wait));
        }
        if self.workers.is_free(Kind::Due)
            && let Some(max) = self.outbox.due.take()
        {
            self.workers.send(Request::Due(max));
        }
        if self.workers.is_free(Kind::Orphans)
            && let Some(max) = self.outbox.orphans.take()
        {
            let held = self.ledger.iter().map(|(key, _, _)| key.id).collect();
            self.workers.send(Request::Orphans(max, held));
        }
        if self.ledger.is_empty() {
            // A renewal that Redis refused is not sent again: there is nothing left to renew.
            self.connection.succeeded(now, Kind::Renew, &self.reporter);
        }
        let is_draining = self.drain_deadline.is_some();
        let is_due = now >= self.next_maintenance || self.settled >= MAINTAIN_AFTER;
        if is_due && self.workers.is_free(Kind::Maintain) {
            self.next_maintenance = now + MAINTAIN_EVERY;
            self.settled = 0;
            if is_online && !is_draining {
                self.workers.send(Request::Maintain);
            }
        }
        if now >= self.next_observation {
            self.next_observation = now + OBSERVE_EVERY;
            if is_online && self.workers.is_free(Kind::Observe) {
                self.workers.send(Request::Observe);
            }
        }
        if self.settings.until_empty.is_some() && !is_draining {
            if self.empty_deadline.is_some_and(|deadline| now >= deadline) {
                self.timed_out = true;
                self.drain("the queue did not become empty in time");
            } else if is_online
                && self.ledger.is_empty()
                && self.workers.is_free(Kind::Backlog)
                && !self.errands.pauses(now, Kind::Backlog)
            {
                self.workers.send(Request::Backlog(BACKLOG_EVERY));
            }
        }
    }

    fn send_settlements(&mut self, now: Time) {
        let outbox = &mut self.outbox;
        if !outbox.acknowledgements.is_empty() && self.workers.is_free(Kind::Acknowledge) {
            let all = std::mem::take(&mut outbox.acknowledgements);
            let is_late = |(key, _): &(Key, _)| !self.ledger.is_sure(now, *key);
            let is_late = all.iter().any(is_late);
            let (keys, claims) = all.into_iter().unzip();
            self.workers
                .send(Request::Acknowledge(keys, claims, is_late));
        }
        while let Some((keys, held)) =
            self.next_batch(Kind::BringBack, |outbox| &mut outbox.missing)
        {
            let until = held.iter().map(|(.., until)| *until).min();
            let held = held.into_iter().map(|(claim, count, _)| (claim, count));
            let until = until.unwrap_or_default();
            self.workers
                .send(Request::BringBack(keys, held.collect(), until));
        }
        while let Some((keys, records)) =
            self.next_batch(Kind::Record, |outbox| &mut outbox.records)
        {
            self.workers.send(Request::Record(keys, records));
        }
        while let Some((keys, some)) =
            self.next_batch(Kind::Settle, |outbox| &mut outbox.settlements)
        {
            self.workers.send(Request::Settle(keys, some));
        }
        while let Some((keys, some)) =
            self.next_batch(Kind::DeadLetter, |outbox| &mut outbox.dead_letters)
        {
            self.workers.send(Request::DeadLetter(keys, some));
        }
    }

    /// The oldest that wait for a free worker of this kind, as many as one request takes.
    fn next_batch<T>(
        &mut self,
        kind: Kind,
        waiting: impl Fn(&mut Outbox) -> &mut Vec<(Key, T)>,
    ) -> Option<(Vec<Key>, Vec<T>)> {
        let all = waiting(&mut self.outbox);
        if all.is_empty() || !self.workers.is_free(kind) {
            return None;
        }
        let count = all.len().min(kind.most_deliveries());
        Some(all.drain(..count).unzip())
    }

    // From the slots.

    pub(super) fn on_slot_event(&mut self, now: Time, event: SlotEvent) {
        match event {
            SlotEvent::Ledger(event) => self.ledger.apply(now, event),
            SlotEvent::Finished {
                key,
                attempt,
                report,
            } => self.finished(now, (key, attempt), report),
        }
    }

    fn finished(&mut self, now: Time, (key, attempt): (Key, u32), report: Report) {
        self.tickets.remove(&key);
        self.monitored(now, |monitor, host| monitor.on_attempt(host, key, &report));
        let mut job = self.ledger.job_mut(key);
        let started = job.as_deref().map(|job| (job, attempt));
        self.reporter.finished(started, &report);
        let mut panicked = None;
        if let Some(job) = &mut job {
            let is_unstarted = |fault: &Fault| fault.kind == FaultKind::Instantiation;
            job.has_run |= !matches!(&report.outcome, Outcome::Fault(fault) if is_unstarted(fault));
        }
        if report.outcome == Outcome::Ack
            && self.settings.ledger.checked_acks
            && let Some(job) = &mut job
        {
            job.effects = Some(report.effects.unwrap_or_default());
        }
        if report.outcome != Outcome::Ack
            && let Some(job) = job
        {
            job.last = Some(Box::new(LastAttempt {
                handler: Arc::clone(&report.digest),
                log: report.log,
                trace: report.trace,
            }));
            if let Outcome::Fault(fault) = &report.outcome
                && fault.kind == FaultKind::HostPanic
            {
                panicked = Some((Arc::clone(&job.claim.message.id), fault.detail.clone()));
            }
        }
        let event = Event::Finished {
            key,
            outcome: report.outcome,
            is_current: self.monitor.is_current(&report.digest),
            jitter: fastrand::f64(),
        };
        self.ledger.apply(now, event);
        if let Some((id, detail)) = panicked {
            let digest = &report.digest;
            self.monitored(now, |monitor, host| {
                monitor.on_panic(host, digest, id, &detail)
            });
        }
    }

    // From the request workers.

    pub(super) fn on_completion(&mut self, completion: Completion) {
        let Completion {
            kind,
            sent,
            result,
            unanswered,
        } = completion;
        let now = self.clock.now();
        for key in unanswered {
            self.ledger.apply(now, Event::Unanswered(key));
        }
        let more = matches!(result, Ok(Answer::Fetched { more: true, .. }));
        if !more && (result.is_ok() || !kind.retries()) {
            self.workers.done(kind);
        }
        let answer = match result {
            Ok(answer) => {
                if self.errands.answered(kind)
                    && let Some(what) = errands::name(kind)
                {
                    info!(what, "redis takes this again");
                }
                self.connection.succeeded(now, kind, &self.reporter);
                Some(answer)
            }
            Err(error) => {
                self.on_failure(now, kind, &error);
                None
            }
        };
        match (kind, answer) {
            (Kind::Fetch, answer) => {
                let claims = match answer {
                    Some(Answer::Fetched { claims, .. }) => claims,
                    _ => Vec::new(),
                };
                if self.connection.is_online() && self.reporter.health.clear(Cause::Starting) {
                    info!("ready");
                }
                let event = Event::Fetched {
                    leased: sent,
                    deliveries: self.deliveries(sent, claims),
                    more,
                };
                self.ledger.apply(now, event);
            }
            (Kind::Due | Kind::Orphans, answer) => {
                let taken = match answer {
                    Some(Answer::Taken(taken)) => taken,
                    _ => Default::default(),
                };
                self.reporter.taken(&taken);
                self.took(now, kind, sent, taken);
            }
            (Kind::Renew, answer) => {
                let replies = match answer {
                    Some(Answer::Replies(replies)) => replies,
                    _ => Vec::new(),
                };
                self.renewed(now, sent, replies);
            }
            (Kind::Settle | Kind::DeadLetter, Some(Answer::Replies(replies))) => {
                self.settled += replies.len();
                for (key, reply) in replies {
                    self.ledger.apply(now, Event::Settled(key, reply));
                }
                self.check_refused();
            }
            (Kind::BringBack, Some(Answer::Replies(replies))) => {
                self.reporter.brought_back(&replies);
                let leased = sent;
                self.ledger
                    .apply(now, Event::BroughtBack { leased, replies });
            }
            (_, Some(Answer::Replies(replies))) => {
                for (key, reply) in replies {
                    if reply == Reply::Duplicate
                        && let Some(job) = self.ledger.job(key)
                    {
                        self.reporter.duplicate(&job.claim.message);
                    }
                    let event = Event::Recorded {
                        key,
                        leased: sent,
                        reply,
                    };
                    self.ledger.apply(now, event);
                }
            }
            (_, Some(Answer::Acknowledged(keys))) => {
                self.settled += keys.len();
                self.ledger.apply(now, Event::Acknowledged(keys));
            }
            (_, Some(Answer::Maintained(done))) => {
                self.reporter.maintained(&done, self.ledger.policy());
                if !done.unfinished.is_empty() {
                    self.next_maintenance = now + MAINTAIN_AGAIN;
                }
            }
            (_, Some(Answer::Observed(Some(seen)))) => self.reporter.observed(&seen),
            (_, Some(Answer::Backlog(backlog))) => {
                let is_empty = !backlog.unread
                    && backlog.pending == 0
                    && backlog.outbox == 0
                    && self.ledger.is_empty();
                if self.settings.until_empty.is_some() && is_empty {
                    // Values that were taken meanwhile are not in an at-most-once queue any more, and not here yet.
                    if self.queue.guarantee() == Guarantee::AtMostOnce {
                        self.ledger.keep_all();
                    }
                    self.drain("the queue is empty");
                }
            }
            (_, Some(Answer::Probed)) if self.connection.must_repair() => self.repair(),
            (_, Some(Answer::Probed)) => self.restored(now),
            (_, Some(Answer::Repaired(keys, repair))) => self.repaired(now, sent, keys, repair),
            _ => {}
        }
    }

    /// Due deliveries or orphans are here.
    fn took(&mut self, now: Time, kind: Kind, leased: Time, taken: Taken) {
        let deliveries = self.deliveries(leased, taken.claims);
        let event = match kind {
            Kind::Due => Event::DueTaken {
                leased,
                deliveries,
                next: taken.next_due,
            },
            _ => Event::OrphansTaken { leased, deliveries },
        };
        self.ledger.apply(now, event);
    }

    /// Redis refuses one request, for its own keys and rights: only that one pauses.
    fn pause_errand(&mut self, now: Time, kind: Kind, what: &'static str, error: &Error) {
        let (pause, is_new) = self.errands.refused(now, kind);
        let reporter = &self.reporter;
        self.connection.errand_refused(kind, what, error, reporter);
        let pause_ms = millis(pause);
        if is_new {
            warn!(what, %error, "redis refuses this: it pauses alone, and is tried again");
        } else {
            debug!(what, %error, pause_ms, "redis refuses this");
        }
    }

    fn on_failure(&mut self, now: Time, kind: Kind, error: &Error) {
        if let Some(what) = errands::name(kind)
            && error.is_about_this_command()
        {
            return self.pause_errand(now, kind, what, error);
        }
        match kind {
            Kind::Observe => debug!(%error, "could not look at the queue for metrics"),
            // Housekeeping may be late: if only it lacks a right, nothing else stops.
            Kind::Maintain if error.class() == Class::Configuration => {
                self.reporter.housekeeping_refused(error);
            }
            Kind::Probe | Kind::Repair => {
                self.connection.mark_unready(now, error, &self.reporter);
                if kind == Kind::Probe && error.class() == Class::Missing {
                    self.repair();
                } else {
                    self.probe();
                }
            }
            _ => {
                let reporter = &self.reporter;
                if self.connection.failed(now, kind, error, reporter) {
                    self.ledger.apply(now, Event::Offline);
                    self.probe();
                }
            }
        }
    }

    /// Ask after a pause whether Redis is back.
    fn probe(&mut self) {
        let pause = self.connection.next_pause();
        if self.workers.is_free(Kind::Probe) {
            self.workers.send(Request::Probe(pause));
        }
    }

    /// Make a missing group again, with the deliveries that this host holds; or bring them into the group
    /// that another host made. The host settles nothing meanwhile. A delivery that is being acknowledged does not belong into the new group: it would stay
    /// there for ever.
    fn repair(&mut self) {
        let held = self.ledger.pending();
        let held = held.map(|(key, native, job)| (key, (Arc::clone(&job.claim), native)));
        let (keys, held) = held.unzip();
        self.workers.send(Request::Repair(keys, held));
    }

    fn repaired(&mut self, now: Time, sent: Time, keys: Vec<Key>, repair: Repair) {
        self.connection.repaired();
        self.reporter.repaired(&repair);
        let event = Event::Readopted {
            leased: sent,
            replies: keys.into_iter().zip(repair.held).collect(),
        };
        self.ledger.apply(now, event);
        self.restored(now);
    }

    /// Redis is back.
    fn restored(&mut self, now: Time) {
        if self.connection.restored(now, &self.reporter) {
            self.ledger.apply(now, Event::Online);
        }
    }

    fn renewed(&mut self, now: Time, sent: Time, replies: Vec<(Key, Reply)>) {
        let renewed = replies.iter().filter(|(_, reply)| *reply == Reply::Done);
        let renewed: Vec<Key> = renewed.map(|&(key, _)| key).collect();
        let event = Event::Renewed {
            leased: sent,
            replies,
        };
        self.ledger.apply(now, event);
        for key in renewed {
            self.renew_ticket(key);
        }
        self.check_refused();
    }

    /// A refused settlement may have been carried out, or its delivery is no longer held.
    fn check_refused(&mut self) {
        if self.reporter.refuses_settlements()
            && !self.ledger.has_refused()
            && self.reporter.settlements_accepted()
        {
            // Redis may still refuse dead letters over the length limit: report that at once.
            self.next_maintenance = Time::ZERO;
        }
    }

    /// The deliveries of claims that were sent for at this time, after the gate. Duplicates were looked for after that
    /// time.
    fn deliveries(&self, sent: Time, claims: Vec<Claim>) -> Vec<Delivery<Job>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let now_ms = self.gate.now_ms();
        let delivery = |claim| {
            let mut delivery = self.gate.at_claim(claim, now_ms);
            delivery.job.looked = sent;
            self.reporter.claimed(&delivery, now_ms);
            delivery
        };
        claims.into_iter().map(delivery).collect()
    }
}
