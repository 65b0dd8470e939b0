//! Watches how the versions of the handler do. It promotes a canary or rolls it back by the canary's
//! rule, and it stops or rolls back a version that faults on everything. A version that runs for long
//! without a complaint is kept.

use std::future::pending;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxBuildHasher;
use tokio::sync::watch;
use tracing::{error, info, warn};

use crate::delivery::ledger::{Event, Key, Ledger, Time};
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::rollout::breaker::{Breaker, BreakerRule, Broken, OnBreak};
use crate::rollout::canary::{self, CanaryRule, Decision, MessageCounter};
use crate::rollout::versions::{ActiveVersions, Version, Versions};
use crate::runtime::Settings;
use crate::runtime::handler::{Handler, Report};
use crate::runtime::job::Job;
use crate::runtime::reporter::Reporter;
use crate::telemetry::metrics::CanaryDecision;

/// When this many different messages have made the host panic on a version, that version stops.
const PANICS_MAX: usize = 3;

/// The changes of the versions, one after the other. Without versions there are no changes.
pub(super) struct Changes(Option<watch::Receiver<u64>>);

impl Changes {
    /// Wait for the next change. Several at once count as one.
    pub(super) async fn next(&mut self) {
        if let Some(changes) = &mut self.0
            && changes.changed().await.is_ok()
        {
            return;
        }
        pending().await
    }
}

/// The parts of the driver that the monitor uses.
pub(super) struct Host<'a> {
    pub(super) now: Time,
    pub(super) ledger: &'a mut Ledger<Job>,
    pub(super) reporter: &'a Reporter,
}

/// See the module.
pub(super) struct RolloutMonitor {
    /// `None`: the handler cannot be swapped.
    rollout: Option<Rollout>,
    /// How many messages one call takes now.
    batch: Box<dyn Fn() -> usize + Send + Sync>,
    canary_rule: Option<CanaryRule>,
    kept_after: Duration,
    breaker_rule: Option<BreakerRule>,
    on_break: OnBreak,
    /// Messages that made the host panic, and the version that they ran on: at most [`PANICS_MAX`] for
    /// each active version.
    panicked: Vec<(Arc<str>, Arc<str>)>,
}

struct Rollout {
    versions: Arc<Versions>,
    active: Arc<ActiveVersions>,
    breaker: Option<Breaker>,
    trial: Option<Trial>,
    tenure: Tenure,
    /// The swaps that are counted already. Swaps before the first message do not count.
    counted: u64,
    /// The version that was rolled back because it faulted on everything.
    broken: Option<Arc<str>>,
}

/// The trial of a canary.
struct Trial {
    digest: Arc<str>,
    since: Time,
    canary: MessageCounter,
    current: MessageCounter,
    /// A canary that faults on everything is rolled back, no matter how the current version does.
    breaker: Option<Breaker>,
}

/// The time of the current version without a complaint: the queue did not stop.
struct Tenure {
    /// The digest, and the deploy that the verdict is about.
    of: (Arc<str>, Option<u64>),
    since: Time,
    /// A message was handled without a fault.
    works: bool,
    is_kept: bool,
}

impl Tenure {
    fn begin(version: &Version, now: Time) -> Self {
        Self {
            of: (Arc::clone(version.digest()), version.deploy),
            since: now,
            works: false,
            is_kept: false,
        }
    }

    fn is_of(&self, version: &Version) -> bool {
        *self.of.0 == **version.digest() && self.of.1 == version.deploy
    }
}

impl Rollout {
    fn is_on_trial(&self, digest: &str) -> bool {
        self.trial.as_ref().is_some_and(|t| *t.digest == *digest)
    }
}

impl RolloutMonitor {
    pub(super) fn new<H: Handler>(handler: &Arc<H>, settings: &Settings) -> Self {
        let rollout = handler.versions().map(|versions| {
            let active = versions.active();
            Rollout {
                counted: active.swaps,
                tenure: Tenure::begin(&active.current, Time::ZERO),
                active,
                versions: Arc::clone(versions),
                breaker: settings.breaker.map(Breaker::new),
                trial: None,
                broken: None,
            }
        });
        let handler = Arc::clone(handler);
        Self {
            rollout,
            batch: Box::new(move || handler.batching().map_or(1, |batching| batching.size)),
            canary_rule: settings.canary,
            kept_after: settings.kept_after,
            breaker_rule: settings.breaker,
            on_break: settings.on_break,
            panicked: Vec::new(),
        }
    }

    /// How many messages one call takes now.
    pub(super) fn batch(&self) -> usize {
        (self.batch)()
    }

    pub(super) fn changes(&self) -> Changes {
        let rollout = self.rollout.as_ref();
        Changes(rollout.map(|rollout| rollout.versions.changes()))
    }

    /// Whether this is the current version.
    pub(super) fn is_current(&self, digest: &Arc<str>) -> bool {
        let rollout = self.rollout.as_ref();
        rollout.is_none_or(|rollout| rollout.active.current.digest() == digest)
    }

    /// Another version runs, or is on trial. Also called once at the start.
    pub(super) fn on_change(&mut self, host: &mut Host<'_>) {
        let Some(rollout) = &mut self.rollout else {
            return;
        };
        let metrics = &host.reporter.metrics;
        let mut active = rollout.versions.active();
        // While the queue is stopped there is nothing to compare the canary with.
        if host.ledger.needs_another_version()
            && let Some(canary) = &active.canary
            && !rollout.is_on_trial(canary.version.digest())
            && rollout.versions.promote(canary.version.digest())
        {
            let digest = &**canary.version.digest();
            metrics.canary_decided(CanaryDecision::Promote);
            info!(
                handler = digest,
                "the canary was promoted: the queue is stopped"
            );
            active = rollout.versions.active();
        }
        let canary = active.canary.as_ref().map(|c| c.version.digest());
        if rollout.trial.as_ref().map(|trial| &trial.digest) != canary {
            rollout.trial = canary.map(|digest| Trial {
                digest: Arc::clone(digest),
                since: host.now,
                canary: MessageCounter::default(),
                current: MessageCounter::default(),
                breaker: self.breaker_rule.map(Breaker::new),
            });
        }
        if !rollout.tenure.is_of(&active.current) {
            rollout.tenure = Tenure::begin(&active.current, host.now);
        }
        metrics.canary(canary.cloned());
        let current = active.current.digest();
        let is_another = rollout.active.current.digest() != current;
        if is_another && let Some(breaker) = &mut rollout.breaker {
            breaker.reset();
        }
        metrics.handler(Arc::clone(current));
        host.reporter.status.handler(current);
        self.panicked
            .retain(|(of, _)| of == current || Some(of) == canary);
        rollout.active = active;
        let swaps = rollout.active.swaps.saturating_sub(rollout.counted);
        rollout.counted = rollout.active.swaps;
        metrics.swaps.inc_by(swaps);
        let batch = (self.batch)();
        host.ledger.apply(host.now, Event::BatchChanged(batch));
        if is_another || swaps > 0 {
            // The new version is tried at once, even if the last one was stopped.
            self.panicked.clear();
            host.ledger.apply(host.now, Event::HandlerChanged);
        }
    }

    /// An attempt has ended; the ledger does not know it yet.
    pub(super) fn on_attempt(&mut self, host: &mut Host<'_>, key: Key, report: &Report) {
        let Some(rollout) = &mut self.rollout else {
            return;
        };
        // It says nothing about the version, and it is not charged.
        if let Some(Ok(_)) = report.hold {
            return;
        }
        let (digest, outcome) = (&report.digest, &report.outcome);
        let fault = match outcome {
            Outcome::Fault(fault) => Some(fault.kind),
            _ => None,
        };
        let is_stopped = host.ledger.cannot_run();
        let id = host.ledger.job(key).map_or(key.id, message_hash);
        let metrics = &host.reporter.metrics;
        if let Some(trial) = &mut rollout.trial
            && trial.digest == *digest
        {
            metrics.version_attempt(true, outcome);
            if fault == Some(FaultKind::Instantiation) {
                self.roll_back_canary(host, digest, "no instance of it can be made");
                return;
            }
            trial.canary.count(id, outcome);
            let breaker = trial.breaker.as_mut();
            if is_stopped {
                // The canary works on a message while the current version faults on everything.
                let works = fault.is_none() && host.ledger.is_probe(key);
                if works && rollout.versions.promote(digest) {
                    let digest = &**digest;
                    metrics.canary_decided(CanaryDecision::Promote);
                    info!(
                        handler = digest,
                        "the canary was promoted: the queue is stopped"
                    );
                    self.on_change(host);
                }
            } else if breaker
                .and_then(|b| b.count(host.now, id, outcome))
                .is_some()
            {
                self.roll_back_canary(host, digest, "it faults on everything");
            }
            return;
        }
        if rollout.active.current.digest() != digest {
            return;
        }
        metrics.version_attempt(false, outcome);
        if let Some(trial) = &mut rollout.trial {
            trial.current.count(id, outcome);
        }
        if fault == Some(FaultKind::Instantiation) || is_stopped {
            return;
        }
        rollout.tenure.works |= fault.is_none();
        let breaker = rollout.breaker.as_mut();
        if let Some(broken) = breaker.and_then(|b| b.count(host.now, id, outcome)) {
            self.on_break(host, &broken, outcome);
        }
    }

    /// A message made the host panic, and is charged. One message may do so in each of its attempts. If
    /// several messages do so, the version stops.
    pub(super) fn on_panic(
        &mut self,
        host: &mut Host<'_>,
        digest: &Arc<str>,
        id: Arc<str>,
        last: &str,
    ) {
        let is_current = self.is_current(digest);
        let rollout = self.rollout.as_ref();
        let is_active = is_current || rollout.is_some_and(|rollout| rollout.is_on_trial(digest));
        let known = self.panicked.iter().filter(|(of, _)| of == digest);
        let mut ids: Vec<Arc<str>> = known.map(|(_, id)| Arc::clone(id)).collect();
        if !is_active || ids.len() >= PANICS_MAX || ids.contains(&id) {
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
            host.ledger.apply(host.now, Event::Panicked { detail });
        } else {
            self.roll_back_canary(host, digest, "the host panics");
        }
    }

    /// The canary is unfit, without any comparison.
    fn roll_back_canary(&mut self, host: &mut Host<'_>, digest: &Arc<str>, why: &'static str) {
        if let Some(rollout) = &self.rollout
            && rollout.versions.reject_canary(digest, why)
        {
            let digest = &**digest;
            warn!(handler = digest, "the canary was rolled back: {why}");
            host.reporter
                .metrics
                .canary_decided(CanaryDecision::Rollback);
            self.on_change(host);
        }
    }

    /// The current version faults on everything.
    fn on_break(&mut self, host: &mut Host<'_>, broken: &Broken, last: &Outcome) {
        let Some(rollout) = &mut self.rollout else {
            return;
        };
        host.reporter.metrics.breaker_opened.inc();
        let digest = Arc::clone(rollout.active.current.digest());
        let last = match last {
            Outcome::Fault(fault) => fault.to_string(),
            _ => String::new(),
        };
        let detail = format!(
            "{} of the last {} attempts of {digest} faulted, the last one with: {last}",
            broken.faults, broken.attempts
        );
        // Two broken versions must not replace each other again and again.
        let before = rollout.active.previous.as_ref().map(|v| v.digest());
        let may = self.on_break == OnBreak::Rollback && before != rollout.broken.as_ref();
        if may && rollout.versions.roll_back_on_break(&digest, &detail) {
            rollout.broken = Some(digest);
            let to = rollout.versions.digest();
            error!(
                detail,
                to = &*to,
                "rolled back: the handler faults on everything"
            );
            self.on_change(host);
        } else {
            host.ledger.apply(host.now, Event::Broken { detail });
        }
    }

    /// Keep the current version if it has run for long without a complaint. End the trial of the canary,
    /// if there is enough evidence.
    pub(super) fn evaluate(&mut self, host: &mut Host<'_>) {
        let Some(rollout) = &mut self.rollout else {
            return;
        };
        let is_stopped = host.ledger.cannot_run();
        rollout.versions.stopped(is_stopped);
        let tenure = &mut rollout.tenure;
        if is_stopped {
            *tenure = Tenure::begin(&rollout.active.current, host.now);
        }
        let is_long = host.now.saturating_sub(tenure.since) >= self.kept_after;
        if tenure.works && is_long && !std::mem::replace(&mut tenure.is_kept, true) {
            rollout.versions.keep(&tenure.of.0);
        }
        let (Some(trial), Some(rule)) = (&rollout.trial, &self.canary_rule) else {
            return;
        };
        let age = host.now.saturating_sub(trial.since);
        let (ours, theirs) = (&trial.canary.counts(), &trial.current.counts());
        let (digest, messages) = (&*trial.digest, ours.messages);
        let excess = ours.excess_over(theirs);
        let (faults, nacks) = (ours.fault_rate(), ours.nack_rate());
        let metrics = &host.reporter.metrics;
        match canary::decide(rule, age, ours, theirs) {
            Decision::Wait => return,
            Decision::Promote => {
                if rollout.versions.accept_canary(digest) {
                    metrics.canary_decided(CanaryDecision::Promote);
                    info!(
                        handler = digest,
                        messages, faults, nacks, excess, "the canary was promoted"
                    );
                }
            }
            Decision::RollBack => {
                let why = format!("it failed more often, by {:.1} %", excess * 100.0);
                if rollout.versions.reject_canary(digest, &why) {
                    metrics.canary_decided(CanaryDecision::Rollback);
                    warn!(
                        handler = digest,
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
        self.on_change(host);
    }
}

/// Distinguishes messages. A list gives a message that comes back another delivery id, but the message
/// keeps its own id.
fn message_hash(job: &Job) -> DeliveryId {
    DeliveryId(FxBuildHasher.hash_one(&*job.claim.message.id).into())
}
