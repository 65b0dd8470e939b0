//! The traffic between the ledger, the slots and the request workers.
//!
//! Actions of the ledger go to the slots as tickets, and to the request workers through what waits
//! for them (`requests`).

use std::sync::Arc;

use tracing::debug;

use super::Driver;
use crate::delivery::hold;
use crate::delivery::ledger::{Action, Closed, Event, Key, Note, SettleAction, Time};
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::queue::{Claim, Record, Settlement};
use crate::runtime::handler::{Report, SlotEvent};
use crate::runtime::job::{Job, LastAttempt, Released, Ticket};
use crate::runtime::no_digest;

impl Driver {
    // From the ledger.

    pub(super) fn perform(&mut self, now: Time, action: Action<Job>) {
        match action {
            Action::Fetch { want, wait } => self.waiting.fetch = Some((want, wait)),
            Action::Interrupt => self.interrupt(),
            Action::TakeDue { max } => self.waiting.due = Some(max),
            Action::TakeOrphans { max } => self.waiting.orphans = Some(max),
            Action::Renew(keys) => self.waiting.renewals = Some(keys),
            Action::Admit { keys, permits } => self.waiting.admissions = Some((keys, permits)),
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
                        is_repeated: false,
                    };
                    self.waiting.records.push((key, record));
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
            Action::Cut(key) => {
                if let Some(ticket) = self.tickets.get(&key) {
                    ticket.work.cut.off();
                }
            }
            Action::Acknowledge(key) => {
                if let Some(claim) = self.claim(key) {
                    self.waiting.acknowledgements.push((key, claim));
                }
            }
            Action::Settle { key, count, action } => self.settle(key, count, action),
            Action::BringBack { key, count } => {
                if let Some(claim) = self.claim(key) {
                    let until = self.ledger.lease_ends(key).unwrap_or_default();
                    self.waiting.missing.push((key, (claim, count, until)));
                }
            }
            Action::Closed { key, job, how } => {
                self.tickets.remove(&key);
                if how == Closed::Stolen {
                    // The answer that says so may be this host's own doubt.
                    self.queue.let_go();
                }
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

    pub(super) fn claim(&self, key: Key) -> Option<Arc<Claim>> {
        self.ledger.job(key).map(|job| Arc::clone(&job.claim))
    }

    fn release(&mut self, key: Key, attempt: Option<u32>, leased: Time) {
        let Some(job) = self.ledger.job(key) else {
            return;
        };
        let ticket = Ticket::new(Released::new(key, job), attempt, leased);
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
            let key = ticket.work.key;
            self.tickets.remove(&key);
            self.ledger.apply(now, Event::Revoked(key));
        }
    }

    fn settle(&mut self, key: Key, count: u32, action: SettleAction) {
        let Some(job) = self.ledger.job(key) else {
            return;
        };
        let is_dead_letter = matches!(action, SettleAction::DeadLetter(_));
        let (handler, evidence) = match &job.last {
            Some(last) => (Arc::clone(&last.handler), last.evidence.clone()),
            None => (no_digest(), None),
        };
        let settlement = Settlement {
            claim: Arc::clone(&job.claim),
            count,
            action,
            handler,
            // Only a dead letter keeps it.
            evidence: evidence.filter(|_| is_dead_letter),
            expires_at_ms: job.expires_at_ms,
            effects: job.effects.clone(),
            has_run: job.has_run,
            reserved_ms: job.reserved_ms,
        };
        let waiting = &mut self.waiting;
        match is_dead_letter {
            true => waiting.dead_letters.push((key, settlement)),
            false => waiting.settlements.push((key, settlement)),
        }
    }

    /// A slot that waits with this delivery sees when its lease was confirmed.
    pub(super) fn renew_ticket(&self, key: Key) {
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
        if self.waiting.fetch.is_none() {
            let queue = Arc::clone(&self.queue);
            tokio::spawn(async move {
                if let Err(error) = queue.interrupt().await {
                    debug!(%error, "could not interrupt a waiting read");
                }
            });
        }
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
        let acts = report.effects.is_some();
        if report.outcome == Outcome::Ack
            && let Some(job) = &mut job
            && (acts || job.is_awaited || self.settings.ledger.checked_acks)
        {
            job.effects = Some(report.effects.unwrap_or_default());
        }
        if report.outcome != Outcome::Ack
            && let Some(job) = job
        {
            job.last = Some(Box::new(LastAttempt {
                handler: Arc::clone(&report.digest),
                evidence: report.evidence,
                trace: report.trace,
            }));
            if let Outcome::Fault(fault) = &report.outcome
                && fault.kind == FaultKind::HostPanic
            {
                panicked = Some((Arc::clone(&job.claim.message.id), fault.detail.clone()));
            }
        }
        let jitter = fastrand::f64();
        let held = report.hold.and_then(Result::ok);
        let event = Event::Finished {
            key,
            outcome: report.outcome,
            told: report.told,
            hold: held.map(|asked| hold::jittered(asked, jitter)),
            acts,
            is_current: self.monitor.is_current(&report.digest),
            jitter,
        };
        self.ledger.apply(now, event);
        if let Some((id, detail)) = panicked {
            let digest = &report.digest;
            self.monitored(now, |monitor, host| {
                monitor.on_panic(host, digest, id, &detail)
            });
        }
    }
}
