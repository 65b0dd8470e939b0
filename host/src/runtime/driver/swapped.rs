//! Following the versions of the handler: what changes there is told and counted, how each does is
//! judged: by the canary's rule, and by the breaker.

use std::future::pending;
use std::sync::Arc;

use tokio::sync::watch;
use tracing::{error, info, warn};

use super::Driver;
use crate::delivery::breaker::{Breaker, Broken, OnBreak};
use crate::delivery::canary::{self, Decision, Tally};
use crate::delivery::ledger::{Event, Key, Time};
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::runtime::Settings;
use crate::runtime::versions::{Lineup, Versions};

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
    lineup: Arc<Lineup>,
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
    canary: Tally,
    current: Tally,
}

impl Judge {
    pub(super) fn new(versions: &Arc<Versions>, settings: &Settings) -> Self {
        let lineup = versions.lineup();
        Self {
            counted: lineup.swaps,
            lineup,
            versions: Arc::clone(versions),
            breaker: settings.breaker.map(Breaker::new),
            trial: None,
            broken: None,
        }
    }
}

impl Driver {
    pub(super) fn swaps(&self) -> Swaps {
        Swaps(self.judge.as_ref().map(|judge| judge.versions.changes()))
    }

    /// Another version runs, or is tried out.
    pub(super) fn swapped(&mut self, now: Time) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        let lineup = judge.versions.lineup();
        let canary = lineup.canary.as_ref().map(|c| c.version.digest());
        if judge.trial.as_ref().map(|trial| &trial.digest) != canary {
            judge.trial = canary.map(|digest| Trial {
                digest: Arc::clone(digest),
                since: now,
                canary: Tally::default(),
                current: Tally::default(),
            });
        }
        self.metrics.swaps.canary(canary.cloned());
        let current = lineup.current.digest();
        let is_another = judge.lineup.current.digest() != current;
        if is_another {
            if let Some(breaker) = &mut judge.breaker {
                breaker.reset();
            }
            self.metrics.handler(Arc::clone(current));
            self.status.handler(current);
        }
        judge.lineup = lineup;
        let swaps = judge.lineup.swaps.saturating_sub(judge.counted);
        judge.counted = judge.lineup.swaps;
        self.metrics.swaps.taken.inc_by(swaps);
        if is_another || swaps > 0 {
            // Whatever stopped the one before: this one is tried at once.
            self.panicked.clear();
            self.ledger.apply(now, Event::HandlerChanged);
        }
    }

    /// An attempt on the version with this digest has ended.
    pub(super) fn judge(&mut self, now: Time, key: Key, digest: &Arc<str>, outcome: &Outcome) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        let is_instance =
            matches!(outcome, Outcome::Fault(fault) if fault.kind == FaultKind::Instantiation);
        if let Some(trial) = &mut judge.trial
            && trial.digest == *digest
        {
            self.metrics.swaps.attempt(true, outcome);
            trial.canary.count(outcome);
            if is_instance && judge.versions.drop_canary(digest) {
                warn!(
                    digest = &**digest,
                    "the canary was rolled back: no instance of it can be made"
                );
                self.metrics.swaps.rolled_back.inc();
                self.swapped(now);
            }
            return;
        }
        if judge.lineup.current.digest() != digest {
            return;
        }
        self.metrics.swaps.attempt(false, outcome);
        if let Some(trial) = &mut judge.trial {
            trial.current.count(outcome);
        }
        if is_instance || self.ledger.cannot_run() {
            return;
        }
        let broken = judge
            .breaker
            .as_mut()
            .and_then(|breaker| breaker.count(now, key.id, outcome));
        if let Some(broken) = broken {
            self.broke(now, &broken, outcome);
        }
    }

    /// The version that runs faults on everything.
    fn broke(&mut self, now: Time, broken: &Broken, last: &Outcome) {
        let Some(judge) = &mut self.judge else {
            return;
        };
        self.metrics.swaps.broken.inc();
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
        if may && judge.versions.roll_back(&digest) {
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
        let (ours, theirs) = (&trial.canary, &trial.current);
        let (digest, attempts) = (&*trial.digest, ours.attempts);
        let excess = ours.excess_over(theirs);
        let (faults, nacks) = (ours.fault_rate(), ours.nack_rate());
        match canary::decide(rule, age, ours, theirs) {
            Decision::Wait => return,
            Decision::Promote => {
                if judge.versions.promote(digest) {
                    self.metrics.swaps.promoted.inc();
                    info!(
                        digest,
                        attempts, faults, nacks, excess, "the canary was promoted"
                    );
                }
            }
            Decision::RollBack => {
                if judge.versions.drop_canary(digest) {
                    self.metrics.swaps.rolled_back.inc();
                    warn!(
                        digest,
                        attempts,
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
