//! Following the versions of the handler: what changes there is told and counted, how each does is
//! judged: by the canary's rule, and by the breaker.

use std::future::pending;
use std::hash::BuildHasher;
use std::sync::Arc;

use rustc_hash::FxBuildHasher;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::{Driver, PANICS_MAX};
use crate::delivery::ledger::{Event, Key, Time};
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::rollout::breaker::{Breaker, Broken, OnBreak};
use crate::rollout::canary::{self, Decision, MessageCounter};
use crate::rollout::versions::{ActiveVersions, Versions};
use crate::runtime::Settings;
use crate::runtime::job::Job;
use crate::telemetry::metrics::CanaryDecision;

/// The changes of the versions, one after the other; none, ever, where nothing can be swapped.
pub(super) struct Swaps(Option<watch::Receiver<u64>>);

impl Swaps {
    /// Wait for the next one. Several at once are one.
    pub(super) async fn next(&mut self) {
        if let Some(changes) = &mut self.0
            && changes.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}

/// How the versions do.
pub(super) struct Judge {
    versions: Arc<Versions>,
    lineup: Arc<ActiveVersions>,
    breaker: Option<Breaker>,
    trial: Option<Trial>,
    /// Swaps up to this one are counted; what happened before the first message is none.
    counted: u64,
    /// The version that was rolled back from because it faulted on everything.
    broken: Option<Arc<str>>,
}

/// A canary's trial.
struct Trial {
    digest: Arc<str>,
    since: Time,
    canary: MessageCounter,
    current: MessageCounter,
    /// One that faults on everything goes, whatever the other version does.
    breaker: Option<Breaker>,
}

impl Judge {
    pub(super) fn new(versions: &Arc<Versions>, settings: &Settings) -> Self {
        let lineup = versions.active();
        Self {
            counted: lineup.swaps,
            lineup,
            versions: Arc::clone(versions),
            breaker: settings.breaker.map(Breaker::new),
            trial: None,
            broken: None,
        }
    }

    fn is_on_trial(&self, digest: &str) -> bool {
        self.trial.as_ref().is_some_and(|t| *t.digest == *digest)
    }
}

impl Driver {
    pub(super) fn swaps(&self) -> Swaps {
        Swaps(self.judge.as_ref().map(|judge| judge.versions.changes()))
    }

    /// Another version runs, or is tried out. Also called once at the start, for what there is then.
    pub(super) fn swapped(&mut self, now: Time) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        let mut lineup = judge.versions.active();
        // Where nothing runs there is nothing to compare it with, and nobody to spare.
        if self.ledger.needs_another_version()
            && let Some(canary) = &lineup.canary
            && !judge.is_on_trial(canary.version.digest())
            && judge.versions.promote(canary.version.digest())
        {
            let digest = &**canary.version.digest();
            self.metrics.canary_decided(CanaryDecision::Promote);
            info!(digest, "the canary was promoted: the queue is stopped");
            lineup = judge.versions.active();
        }
        let canary = lineup.canary.as_ref().map(|c| c.version.digest());
        if judge.trial.as_ref().map(|trial| &trial.digest) != canary {
            judge.trial = canary.map(|digest| Trial {
                digest: Arc::clone(digest),
                since: now,
                canary: MessageCounter::default(),
                current: MessageCounter::default(),
                breaker: self.settings.breaker.map(Breaker::new),
            });
        }
        self.metrics.canary(canary.cloned());
        let current = lineup.current.digest();
        let is_another = judge.lineup.current.digest() != current;
        if is_another && let Some(breaker) = &mut judge.breaker {
            breaker.reset();
        }
        self.metrics.handler(Arc::clone(current));
        self.status.handler(current);
        self.panicked
            .retain(|(of, _)| of == current || Some(of) == canary);
        judge.lineup = lineup;
        let swaps = judge.lineup.swaps.saturating_sub(judge.counted);
        judge.counted = judge.lineup.swaps;
        self.metrics.swaps.inc_by(swaps);
        let batch = (self.batch)();
        self.ledger.apply(now, Event::BatchChanged(batch));
        if is_another || swaps > 0 {
            // Whatever stopped the one before: this one is tried at once.
            self.panicked.clear();
            self.ledger.apply(now, Event::HandlerChanged);
        }
    }

    /// Whether this is the version that serves.
    pub(super) fn is_current(&self, digest: &Arc<str>) -> bool {
        self.judge
            .as_ref()
            .is_none_or(|judge| judge.lineup.current.digest() == digest)
    }

    /// An attempt on the version with this digest has ended.
    pub(super) fn judge(&mut self, now: Time, key: Key, digest: &Arc<str>, outcome: &Outcome) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        let is_instance =
            matches!(outcome, Outcome::Fault(fault) if fault.kind == FaultKind::Instantiation);
        let is_stopped = self.ledger.cannot_run();
        let id = self.ledger.job(key).map_or(key.id, told_apart);
        if let Some(trial) = &mut judge.trial
            && trial.digest == *digest
        {
            self.metrics.version_attempt(true, outcome);
            if is_instance {
                self.give_up(now, digest, "no instance of it can be made");
                return;
            }
            trial.canary.count(id, outcome);
            let is_fault = matches!(outcome, Outcome::Fault(_));
            let breaker = trial.breaker.as_mut();
            if is_stopped {
                // It works where the version that serves faults on everything.
                if !is_fault && self.ledger.is_probe(key) && judge.versions.promote(digest) {
                    let digest = &**digest;
                    self.metrics.canary_decided(CanaryDecision::Promote);
                    info!(digest, "the canary was promoted: the queue is stopped");
                    self.swapped(now);
                }
            } else if breaker.and_then(|b| b.count(now, id, outcome)).is_some() {
                self.give_up(now, digest, "it faults on everything");
            }
            return;
        }
        if judge.lineup.current.digest() != digest {
            return;
        }
        self.metrics.version_attempt(false, outcome);
        if let Some(trial) = &mut judge.trial {
            trial.current.count(id, outcome);
        }
        if is_instance || is_stopped {
            return;
        }
        let broken = judge
            .breaker
            .as_mut()
            .and_then(|breaker| breaker.count(now, id, outcome));
        if let Some(broken) = broken {
            self.broke(now, &broken, outcome);
        }
    }

    /// The canary has shown that it cannot be kept, without any comparison.
    fn give_up(&mut self, now: Time, digest: &Arc<str>, why: &'static str) {
        if let Some(judge) = &self.judge
            && judge.versions.reject_canary(digest, why)
        {
            let digest = &**digest;
            warn!(digest, "the canary was rolled back: {why}");
            self.metrics.canary_decided(CanaryDecision::Rollback);
            self.swapped(now);
        }
    }

    /// This message made the host panic on this version: it is charged. One may do so as often as it
    /// has attempts; several are no accident.
    pub(super) fn panicked(&mut self, now: Time, digest: &Arc<str>, id: Arc<str>, last: &str) {
        let is_current = self.is_current(digest);
        let judge = self.judge.as_ref();
        let is_here = is_current || judge.is_some_and(|judge| judge.is_on_trial(digest));
        let known = self.panicked.iter().filter(|(of, _)| of == digest);
        let mut ids: Vec<Arc<str>> = known.map(|(_, id)| Arc::clone(id)).collect();
        if !is_here || ids.len() >= PANICS_MAX || ids.contains(&id) {
            return;
        }
        ids.push(Arc::clone(&id));
        self.panicked.push((Arc::clone(digest), id));
        if ids.len() < PANICS_MAX {
            return;
        }
        if is_current {
            let ids = ids.join(", ");
            let detail = format!("{PANICS_MAX} messages made the host panic ({ids}): {last}");
            self.ledger.apply(now, Event::Panicked { detail });
        } else {
            self.give_up(now, digest, "the host panics");
        }
    }

    /// The version that runs faults on everything.
    fn broke(&mut self, now: Time, broken: &Broken, last: &Outcome) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        self.metrics.breaker_opened.inc();
        let digest = Arc::clone(judge.lineup.current.digest());
        let last = match last {
            Outcome::Fault(fault) => fault.to_string(),
            _ => String::new(),
        };
        let detail = format!(
            "{} of the last {} attempts of {digest} faulted, the last one with: {last}",
            broken.faults, broken.attempts
        );
        // Back and forth between two broken ones would be no rest.
        let before = judge.lineup.previous.as_ref().map(|v| v.digest());
        let may = self.settings.on_break == OnBreak::Rollback && before != judge.broken.as_ref();
        if may && judge.versions.roll_back_on_break(&digest, &detail) {
            judge.broken = Some(digest);
            let to = judge.versions.digest();
            error!(
                detail,
                to = &*to,
                "rolled back: the handler faults on everything"
            );
            self.swapped(now);
        } else {
            self.ledger.apply(now, Event::Broken { detail });
        }
    }

    /// Whether the canary has shown what it is.
    pub(super) fn weigh(&mut self, now: Time) {
        let Some(judge) = &self.judge else {
            return;
        };
        let (Some(trial), Some(rule)) = (&judge.trial, &self.settings.canary) else {
            return;
        };
        let age = now.saturating_sub(trial.since);
        let (ours, theirs) = (&trial.canary.counts(), &trial.current.counts());
        let (digest, messages) = (&*trial.digest, ours.messages);
        let excess = ours.excess_over(theirs);
        let (faults, nacks) = (ours.fault_rate(), ours.nack_rate());
        match canary::decide(rule, age, ours, theirs) {
            Decision::Wait => return,
            Decision::Promote => {
                if judge.versions.accept_canary(digest) {
                    self.metrics.canary_decided(CanaryDecision::Promote);
                    info!(
                        digest,
                        messages, faults, nacks, excess, "the canary was promoted"
                    );
                }
            }
            Decision::RollBack => {
                let why = format!("it failed more often, by {:.1} %", excess * 100.0);
                if judge.versions.reject_canary(digest, &why) {
                    self.metrics.canary_decided(CanaryDecision::Rollback);
                    warn!(
                        digest,
                        messages,
                        faults,
                        nacks,
                        excess,
                        current_faults = theirs.fault_rate(),
                        current_nacks = theirs.nack_rate(),
                        "the canary was rolled back: it fails more often"
                    );
                }
            }
        }
        self.swapped(now);
    }
}

/// What tells messages apart for whoever judges a version: a list gives a message that comes back
/// another delivery, but its id stays.
fn told_apart(job: &Arc<Job>) -> DeliveryId {
    DeliveryId(FxBuildHasher.hash_one(&*job.claim.message.id).into())
}
