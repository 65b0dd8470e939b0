//! Swapping the handler: from a new version that shows up to the one step that puts it in place.
//!
//! ```text
//! file, SIGHUP, deploy -> VersionRequest -> verify (own thread, compiler in a child of low priority)
//!                                   |-> refused: told, counted; what runs goes on
//!                                   '-> Versions::switch, or try_out with a share
//! ```
//!
//! One version is verified at a time, and what has begun is finished and taken; of those that show up
//! meanwhile the newest is next ([`verify_queue`](crate::rollout::verify_queue)). A version that is at hand (what runs, what ran before,
//! the canary) needs no verification, so going back waits for nothing.
//!
//! Crash windows: a host that dies before the step has not swapped; one that dies behind it starts
//! with the version that its file, or the queue's deploy, then is. Neither concerns a message: an
//! attempt that its host died in is charged as any other.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use crate::rollout::canary::Share;
use crate::rollout::verify::{self, Step, Terms};
use crate::rollout::versions::{ActiveVersions, Origin, Verdict, Version, Versions};
use crate::sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::versions::{CanarySeen, VersionSeen, VersionsSeen};

use crate::rollout::refusal_log::RefusalLog;
use crate::rollout::request::{Reload, VersionRequest};
use crate::rollout::verify_queue::{Candidate, Found, Verified, VerifyQueue};

/// How versions are taken.
#[derive(Clone, Debug)]
pub struct Settings {
    /// How a component is run. It is compiled in the background, whatever stands there.
    pub sandbox: sandbox::Settings,
    /// What else it must stand.
    pub terms: Terms,
    /// The share of messages that a new version gets at first; `None` = all at once.
    pub canary: Option<Share>,
}

/// Swaps the versions of one host: see the module.
#[derive(Debug)]
pub struct Swapper {
    versions: Arc<Versions>,
    settings: Settings,
    metrics: Arc<Metrics>,
    health: Health,
    queue: VerifyQueue,
    /// How many requests were heard: the number of the last one.
    heard: u64,
    refusal_log: RefusalLog,
    verdicts: watch::Receiver<Option<Verdict>>,
    /// Asks for what the file holds.
    reload: Option<mpsc::Sender<Reload>>,
    seen: watch::Sender<VersionsSeen>,
}

impl Swapper {
    /// One for these versions.
    pub fn new(
        versions: Arc<Versions>,
        settings: Settings,
        metrics: Arc<Metrics>,
        health: Health,
    ) -> Self {
        let settings = Settings {
            sandbox: sandbox::Settings {
                background: true,
                ..settings.sandbox
            },
            ..settings
        };
        let swapper = Self {
            seen: watch::Sender::new(VersionsSeen::default()),
            verdicts: versions.verdicts(),
            versions,
            settings,
            metrics,
            health,
            queue: VerifyQueue::default(),
            heard: 0,
            refusal_log: RefusalLog::default(),
            reload: None,
        };
        swapper.show();
        swapper
    }

    /// Ask here for what the file holds, if nothing of it is at hand any more.
    #[must_use]
    pub fn reloading(mut self, reload: mpsc::Sender<Reload>) -> Self {
        self.reload = Some(reload);
        self
    }

    /// What there is to see, as it changes.
    pub fn seen(&self) -> watch::Receiver<VersionsSeen> {
        self.seen.subscribe()
    }

    /// Carry out requests until nobody can have any.
    pub async fn run(mut self, mut requests: mpsc::Receiver<VersionRequest>) {
        let mut changes = self.versions.changes();
        let mut verdicts = self.versions.verdicts();
        loop {
            self.begin();
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.hear(request).await,
                    None => return,
                },
                verified = self.queue.verified() => self.verified(verified),
                Ok(()) = changes.changed() => self.show(),
                Ok(()) = verdicts.changed() => self.judged(),
            }
        }
    }

    /// Carry out this request, whatever it takes, before anything else.
    pub async fn begin_with(&mut self, request: VersionRequest) {
        self.hear(request).await;
        self.begin();
        if self.queue.is_busy() {
            let verified = self.queue.verified().await;
            self.verified(verified);
        }
    }

    /// Verify what is next, if it is its turn.
    fn begin(&mut self) {
        self.queue
            .begin(&self.settings.sandbox, &self.settings.terms);
    }

    async fn hear(&mut self, request: VersionRequest) {
        // What was found out before belongs to the request before.
        self.judged();
        self.heard += 1;
        match request {
            VersionRequest::Component {
                origin,
                bytes,
                trial,
            } => {
                // Only beside another one does it matter whether it can do without a compiler.
                let settings = self.queue.is_busy().then(|| self.settings.sandbox.clone());
                // Hashing takes a while for a large one.
                let looked = spawn_blocking(move || {
                    let is_kept =
                        settings.is_some_and(|settings| verify::is_kept(&bytes, &settings));
                    (verify::digest(&bytes), bytes, is_kept)
                });
                if let Ok((digest, bytes, is_kept)) = looked.await {
                    let candidate = Candidate {
                        request: self.heard,
                        origin,
                        digest,
                        trial,
                    };
                    self.found(candidate, bytes, is_kept);
                }
            }
            VersionRequest::AtHand { version, trial } => {
                let digest = Arc::clone(version.digest());
                if !self.take(version.origin, &digest, trial) {
                    // Another one took its place since it was looked for.
                    self.queue.forget();
                    self.put(version, trial, self.heard);
                }
            }
            VersionRequest::Unusable {
                origin,
                digest,
                step,
                reason,
            } => {
                let candidate = Candidate {
                    request: self.heard,
                    origin,
                    digest,
                    trial: false,
                };
                self.refuse(&candidate, step, &reason);
            }
            VersionRequest::Withdraw => self.withdraw(),
            VersionRequest::PromoteFile => {
                let active = self.versions.active();
                let canary = active.canary.as_ref().map(|canary| &canary.version);
                if let Some(canary) = canary.filter(|canary| canary.origin == Origin::File) {
                    self.promote(canary.digest());
                }
            }
            VersionRequest::Readable => {
                self.refusal_log.readable();
                info!("the handler's file can be read again, and is what it was");
                self.show();
            }
        }
    }

    /// A version was found. What is at hand is taken at once.
    fn found(&mut self, mut candidate: Candidate, bytes: Vec<u8>, is_kept: bool) {
        if self.queue.is_at(&mut candidate) {
            return;
        }
        if let Err(refusal) = verify::accept(&candidate.digest, &self.settings.terms) {
            self.refuse(&candidate, refusal.step(), &refusal.to_string());
        } else if !self.take(candidate.origin, &candidate.digest, candidate.trial) {
            self.queue.add(Found {
                candidate,
                bytes,
                is_kept,
            });
        }
    }

    /// Take a version that is at hand: whole, unless it may be tried. False = it is not at hand.
    fn take(&mut self, origin: Origin, digest: &Arc<str>, trial: bool) -> bool {
        let active = self.versions.active();
        let canary = active.canary.as_ref().map(|canary| canary.version.digest());
        let previous = active.previous.as_ref().filter(|v| v.digest() == digest);
        if active.current.digest() == digest {
            info!(digest = &**digest, %origin, "that version runs already");
            self.queue.forget();
            self.drop_canary(&active);
            self.taken(self.heard);
        } else if canary == Some(digest) {
            self.queue.forget();
            if !trial {
                self.promote(digest);
            }
            self.taken(self.heard);
        } else if let Some(previous) = previous {
            self.queue.forget();
            let sandbox = previous.sandbox.clone();
            self.put(Version { sandbox, origin }, false, self.heard);
        } else {
            return false;
        }
        true
    }

    fn promote(&self, digest: &str) {
        if self.versions.promote(digest) {
            info!(digest, "the canary was promoted by hand");
        }
    }

    fn withdraw(&mut self) {
        self.queue.forget();
        let active = self.versions.active();
        let from = active.current.digest();
        let is_deploy = |version: &Version| version.origin != Origin::File;
        if !is_deploy(&active.current) {
            if active
                .canary
                .as_ref()
                .is_some_and(|c| is_deploy(&c.version))
            {
                self.drop_canary(&active);
            }
        } else if active.previous.as_ref().is_none_or(is_deploy) {
            // It has followed several deploys, and not what was wanted in between.
            let told = self
                .reload
                .as_ref()
                .map(|reload| reload.try_send(Reload::Whole));
            warn!(asked = told.is_some(), "what the file held is not at hand");
        } else if self.versions.roll_back(from) {
            let to = self.versions.digest();
            info!(from = &**from, to = &*to, "rolled back by hand");
        }
        self.taken(self.heard);
    }

    fn drop_canary(&self, active: &ActiveVersions) {
        if let Some(canary) = &active.canary {
            let digest = canary.version.digest();
            if self.versions.drop_canary(digest) {
                info!(digest = &**digest, "the canary was given up by hand");
            }
        }
    }

    fn verified(&mut self, verified: Option<Verified>) {
        let Some(verified) = verified else {
            return;
        };
        let candidate = verified.candidate;
        match verified.result {
            Ok(_) if verified.is_stale => {
                crate::rollout::verify_queue::superseded(&candidate.digest)
            }
            Ok(sandbox) => {
                let origin = candidate.origin;
                let version = Version { sandbox, origin };
                self.put(version, candidate.trial, candidate.request);
            }
            Err(refusal) => self.refuse(&candidate, refusal.step(), &refusal.to_string()),
        }
    }

    /// Put a version in place, for this request: whole, or with a share if it may be tried.
    fn put(&mut self, version: Version, trial: bool, request: u64) {
        match self.settings.canary.filter(|_| trial) {
            Some(share) => self.try_out(version, share),
            None => self.switch(version),
        }
        self.taken(request);
    }

    fn switch(&self, version: Version) {
        let from = self.versions.digest();
        let (to, origin) = (Arc::clone(version.digest()), version.origin);
        if self.versions.switch(version) {
            info!(from = &*from, to = &*to, %origin, "swapped");
        }
    }

    fn try_out(&self, version: Version, share: Share) {
        let (digest, origin) = (Arc::clone(version.digest()), version.origin);
        if self.versions.try_out(version, share) {
            info!(digest = &*digest, %origin, %share, "a canary begins");
        }
    }

    /// This request is fulfilled: what was refused before it is history.
    fn taken(&mut self, request: u64) {
        self.refusal_log.taken(request);
        self.show();
    }

    /// This host may have found out what a version is.
    fn judged(&mut self) {
        if !self.verdicts.has_changed().unwrap_or(false) {
            return;
        }
        if let Some(verdict) = &*self.verdicts.borrow_and_update() {
            self.refusal_log.judged(self.heard, verdict);
        }
        self.show();
    }

    fn refuse(&mut self, candidate: &Candidate, step: Step, reason: &str) {
        let (digest, origin, step) = (&*candidate.digest, candidate.origin, step.label());
        error!(digest, %origin, step, reason, "a new version was refused; what runs goes on");
        self.metrics.swap_refused(step);
        self.refusal_log
            .refused(candidate.request, digest, origin, step, reason);
        self.show();
    }

    fn show(&self) {
        let active = self.versions.active();
        let seen = |version: &Version| VersionSeen {
            digest: version.digest().to_string(),
            origin: version.origin.to_string(),
        };
        let now = VersionsSeen {
            current: seen(&active.current),
            previous: active.previous.as_ref().map(seen),
            canary: active.canary.as_ref().map(|canary| CanarySeen {
                digest: canary.version.digest().to_string(),
                origin: canary.version.origin.to_string(),
                share: canary.share.to_string(),
            }),
            refused: self.refusal_log.newest().cloned(),
        };
        self.health.runs(now.clone());
        self.seen.send_if_modified(|before| {
            let differs = *before != now;
            *before = now;
            differs
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::STEPS;

    #[test]
    fn every_step_is_counted() {
        assert_eq!(Step::ALL.map(Step::label), STEPS);
    }
}
