//! Carrying out what the ledger says.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{debug, error, info, warn};

use super::{Driver, LOG_EVERY};
use crate::delivery::ledger::{Action, Closed, Event, HaltCause, Key, Note, Time};
use crate::delivery::millis::millis;
use crate::delivery::policy::Disposition;
use crate::queue::{Claim, Guarantee, Record, SettleAction, Settlement};
use crate::runtime::job::{Job, Ticket};
use crate::runtime::no_digest;
use crate::telemetry::health::Cause;

impl Driver {
    pub(super) fn perform(&mut self, now: Time, action: Action<Arc<Job>>) {
        match action {
            Action::Fetch { want, wait } => self.fetch = Some((want, wait)),
            Action::Interrupt => self.interrupt(),
            Action::TakeDue { max } => self.due = Some(max),
            Action::TakeOrphans { max } => self.orphans = Some(max),
            Action::Renew(keys) => self.renew = Some(keys),
            Action::Release {
                key,
                attempt,
                leased,
            } => self.release(now, key, attempt, leased),
            Action::Record { key, expect, write } => {
                if let Some(claim) = self.claim(key) {
                    let record = Record {
                        claim,
                        expect,
                        write,
                    };
                    self.records.push((key, record));
                }
            }
            Action::Go { key, attempt } => {
                if let Some(ticket) = self.tickets.get(&key) {
                    if let Some(leased) = self.ledger.leased(key) {
                        ticket.renew(leased);
                    }
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
                    self.acknowledgements.push((key, claim));
                }
            }
            Action::Settle { key, count, action } => self.settle(key, count, action),
            Action::Closed { key, job, how } => self.ended(key, &job, how),
            Action::Note(note) => self.note(now, note),
        }
    }

    pub(super) fn claim(&self, key: Key) -> Option<Arc<Claim>> {
        self.ledger.job(key).map(|job| Arc::clone(&job.claim))
    }

    pub(super) fn release(&mut self, now: Time, key: Key, attempt: Option<u32>, leased: Time) {
        let Some(job) = self.ledger.job(key) else {
            return;
        };
        let ticket = Arc::new(Ticket::new(key, Arc::clone(job), attempt, leased));
        self.tickets.insert(key, Arc::clone(&ticket));
        if self.executor.try_send(ticket).is_err() {
            // No room: cannot happen while the ledger keeps its bounds, and loses nothing.
            self.tickets.remove(&key);
            self.ledger.apply(now, Event::Revoked(key));
        }
    }

    pub(super) fn settle(&mut self, key: Key, count: u32, action: SettleAction) {
        let Some(job) = self.ledger.job(key) else {
            return;
        };
        let settlement = Settlement {
            claim: Arc::clone(&job.claim),
            count,
            action,
            handler: job.handler().unwrap_or_else(no_digest),
            expires_at_ms: job.expires_at_ms,
        };
        self.settlements.push((key, settlement));
    }

    pub(super) fn ended(&mut self, key: Key, job: &Job, closed: Closed) {
        self.tickets.remove(&key);
        let id = &*job.claim.message.id;
        // What is said of an attempt names the handler that ran, if any has.
        let ran = match closed {
            Closed::Settled(_) => job.handler(),
            _ => None,
        };
        let digest = ran.as_deref();
        match closed {
            Closed::Acknowledged => self.metrics.acknowledged(1),
            Closed::Settled(SettleAction::Park { after, .. }) => {
                self.metrics
                    .disposition(&Disposition::Requeue { delay: after });
                debug!(id, delay_ms = millis(after), digest, "requeued");
            }
            Closed::Settled(SettleAction::HandBack { .. }) => debug!(id, "handed back"),
            Closed::Settled(SettleAction::Leave { .. }) => debug!(id, "left for another host"),
            Closed::Settled(SettleAction::DeadLetter(rejection)) => {
                let (reason, attempts) = (rejection.reason.label(), rejection.attempts);
                let detail = rejection.detail.clone();
                info!(id, reason, attempts, detail, digest, "dead-lettered");
                self.metrics
                    .disposition(&Disposition::DeadLetter(rejection));
            }
            Closed::Settled(SettleAction::Discard(rejection)) => {
                let (reason, attempts) = (rejection.reason.label(), rejection.attempts);
                let detail = rejection.detail.clone();
                if self.queue.guarantee() == Guarantee::AtMostOnce {
                    if let Some(others) = self.throttle.pass("lost", Instant::now()) {
                        warn!(
                            id,
                            reason, detail, digest, others, "lost: this queue takes nothing back"
                        );
                    }
                } else if !self.ledger.policy().is_lost(rejection.reason) {
                    info!(id, reason, attempts, detail, digest, "discarded");
                } else if let Some(others) = self.throttle.pass(reason, Instant::now()) {
                    warn!(
                        id,
                        reason,
                        attempts,
                        detail,
                        digest,
                        others,
                        "discarded: it cannot be handled, and there is no `dead_letter.key`"
                    );
                }
                self.metrics.disposition(&Disposition::Discard(rejection));
            }
            Closed::Superseded => debug!(id, "claimed again"),
            Closed::Gone => debug!(id, "settled elsewhere"),
            Closed::Trimmed => {
                self.metrics.trimmed_pending.inc();
                if let Some(others) = self.throttle.pass("trimmed", Instant::now()) {
                    warn!(
                        id,
                        others, "lost to trimming: its entry was deleted while it was pending"
                    );
                }
            }
            Closed::Stolen => {
                self.metrics.steals.inc();
                if let Some(others) = self.throttle.pass("stolen", Instant::now()) {
                    warn!(id, others, "another host has taken it over");
                }
            }
        }
    }

    pub(super) fn note(&mut self, now: Time, note: Note) {
        match note {
            Note::OrphansTaken(n) => {
                self.metrics.orphans_recovered.inc_by(n as u64);
                info!(orphans = n, "recovered orphans");
            }
            Note::RequeuedHere => {
                let delay = Duration::ZERO;
                self.metrics.disposition(&Disposition::Requeue { delay });
            }
            Note::Recorded => {
                self.metrics.recorded_starts.inc();
            }
            Note::SettlementRefused { key, cause, again } => {
                self.refused(now, key, &cause, again);
            }
            Note::LeaseLost(key) => {
                self.metrics.leases_lost.inc();
                let id = self.ledger.job(key).map(|job| &*job.claim.message.id);
                if let Some(others) = self.throttle.pass("lease", Instant::now()) {
                    warn!(id, others, "lost the lease of a running attempt");
                }
            }
            Note::LeasesRenewed(n) => {
                self.metrics.lease_renewals.inc_by(n as u64);
            }
            Note::IsolatedRunBegan(key) => {
                self.metrics.isolated_runs.inc();
                let id = self.ledger.job(key).map(|job| &*job.claim.message.id);
                info!(id, "runs isolated: it may have ended its last hosts");
            }
            Note::IsolatedRunEnded { took, .. } => {
                info!(took_ms = millis(took), "the isolated run has ended");
            }
            Note::Halted {
                cause,
                detail,
                again,
            } => {
                self.health.impede(Cause::Handler, &*detail);
                let again_ms = millis(again);
                match cause {
                    HaltCause::Instance => {
                        error!(detail, again_ms, "no instance of the handler: stopped");
                    }
                    HaltCause::Panics => {
                        error!(
                            detail,
                            "the host panics: stopped until the handler is swapped"
                        );
                    }
                    HaltCause::Broken => {
                        error!(
                            detail,
                            again_ms, "the handler faults on everything: stopped"
                        );
                    }
                }
            }
            Note::Resumed => {
                self.health.clear(Cause::Handler);
                info!("the handler is run again");
            }
        }
    }

    pub(super) fn refused(&mut self, now: Time, key: Key, cause: &str, again: Duration) {
        self.metrics.settlements_refused.inc();
        self.refusing = true;
        self.health.impede(Cause::DeadLettersRefused, cause);
        self.refusals_unlogged += 1;
        if self.refusal_logged.is_none_or(|at| now >= at + LOG_EVERY) {
            let id = self.ledger.job(key).map(|job| &*job.claim.message.id);
            let refusals = self.refusals_unlogged;
            let again_ms = millis(again);
            warn!(
                id,
                cause, refusals, again_ms, "redis refuses a settlement; it stays pending"
            );
            self.refusal_logged = Some(now);
            self.refusals_unlogged = 0;
        }
    }
}
