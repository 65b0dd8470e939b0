//! Swaps the handler: carries out version requests up to the switch.
//!
//! ```text
//! file, SIGHUP, deploy -> VersionRequest -> verify (own thread, compiler in a child of low priority)
//!                                   |-> refused: logged, counted; the current version keeps running
//!                                   '-> Versions::switch, or Versions::try_out with a share
//! ```
//!
//! One version is verified at a time, and then taken. The newest of the versions requested meanwhile
//! is next ([`verify_queue`](crate::rollout::verify_queue)). A loaded version (the current, the
//! previous, the canary) needs no verification, so a rollback does not wait.
//!
//! Crash windows: a host that crashes before the switch has not swapped. A host that crashes after it
//! starts with the version in its file, or with the deployed version. No message is affected: an
//! attempt during a crash is charged as any other.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::spawn_blocking;
use tracing::{error, info, warn};

use crate::compiler;
use crate::rollout::canary::Share;
use crate::rollout::verify::{self, Refusal, Step, Terms};
use crate::rollout::versions::{ActiveVersions, Origin, Rejected, Version, Versions};
use crate::sandbox::{self, Sandbox};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::versions::{CanarySeen, VersionSeen, VersionsSeen};

use crate::rollout::refusal_log::RefusalLog;
use crate::rollout::request::{Reload, VersionRequest};
use crate::rollout::verify_queue::{Candidate, Found, VerifyQueue};

/// The settings of swaps.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The settings of the sandbox. New versions are always compiled in the background.
    pub sandbox: sandbox::Settings,
    /// Further checks of a version.
    pub terms: Terms,
    /// The share of messages of a canary; `None` = no canaries.
    pub canary: Option<Share>,
}

/// Swaps the versions of one host.
#[derive(Debug)]
pub struct Swapper {
    versions: Arc<Versions>,
    settings: Settings,
    metrics: Arc<Metrics>,
    health: Health,
    queue: VerifyQueue,
    /// The number of the last request.
    last_request: u64,
    refusal_log: RefusalLog,
    rejected: watch::Receiver<Option<Rejected>>,
    /// Requests the version in the file.
    reload: Option<mpsc::Sender<Reload>>,
    seen: watch::Sender<VersionsSeen>,
}

impl Swapper {
    /// A swapper of these versions.
    pub fn new(
        versions: Arc<Versions>,
        mut settings: Settings,
        metrics: Arc<Metrics>,
        health: Health,
    ) -> Self {
        settings.sandbox.background = true;
        let swapper = Self {
            seen: watch::Sender::new(VersionsSeen::default()),
            rejected: versions.rejected(),
            versions,
            settings,
            metrics,
            health,
            queue: VerifyQueue::default(),
            last_request: 0,
            refusal_log: RefusalLog::default(),
            reload: None,
        };
        swapper.publish();
        swapper
    }

    /// Use `reload` to request the version in the file when it is not loaded.
    #[must_use]
    pub fn with_reload(mut self, reload: mpsc::Sender<Reload>) -> Self {
        self.reload = Some(reload);
        self
    }

    /// The state of the versions, and its changes.
    pub fn seen(&self) -> watch::Receiver<VersionsSeen> {
        self.seen.subscribe()
    }

    /// Carry out requests until all senders are gone.
    pub async fn run(mut self, mut requests: mpsc::Receiver<VersionRequest>) {
        let mut changes = self.versions.changes();
        let mut rejected = self.versions.rejected();
        loop {
            self.verify_next();
            tokio::select! {
                request = requests.recv() => match request {
                    Some(request) => self.on_request(request).await,
                    None => return,
                },
                verified = self.queue.verified() => self.on_verified(verified),
                Ok(()) = changes.changed() => self.publish(),
                Ok(()) = rejected.changed() => self.on_rejected(),
            }
        }
    }

    /// Carry out this request to its end, before any other request.
    pub async fn apply_first(&mut self, request: VersionRequest) {
        self.on_request(request).await;
        self.verify_next();
        if self.queue.is_busy() {
            let verified = self.queue.verified().await;
            self.on_verified(verified);
        }
    }

    /// Start the next verification, if one may start.
    fn verify_next(&mut self) {
        self.queue
            .start_next(&self.settings.sandbox, &self.settings.terms);
    }

    async fn on_request(&mut self, request: VersionRequest) {
        // An earlier verdict belongs to the last request.
        self.on_rejected();
        self.last_request += 1;
        match request {
            VersionRequest::Component {
                origin,
                bytes,
                trial,
            } => {
                // Only matters while another verification runs.
                let settings = self.queue.is_busy().then(|| self.settings.sandbox.clone());
                // Hashing takes a while for a large one.
                let hashed = spawn_blocking(move || {
                    let is_cached =
                        settings.is_some_and(|settings| compiler::is_cached(&bytes, &settings));
                    (verify::digest(&bytes), bytes, is_cached)
                });
                if let Ok((digest, bytes, is_cached)) = hashed.await {
                    let candidate = Candidate {
                        request: self.last_request,
                        origin,
                        digest,
                        trial,
                    };
                    self.on_component(candidate, bytes, is_cached);
                }
            }
            VersionRequest::Loaded { version, trial } => {
                let digest = Arc::clone(version.digest());
                if !self.use_loaded(version.origin, &digest, trial) {
                    // Another version has replaced it since it was found.
                    self.queue.clear();
                    self.install(version, trial, self.last_request);
                }
            }
            VersionRequest::Unusable {
                origin,
                digest,
                step,
                reason,
            } => {
                let candidate = Candidate {
                    request: self.last_request,
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
                self.refusal_log.on_readable();
                info!("the handler's file is readable again and has not changed");
                self.publish();
            }
        }
    }

    /// A component was found. A loaded version is taken at once, without verification.
    fn on_component(&mut self, mut candidate: Candidate, bytes: Vec<u8>, is_cached: bool) {
        if self.queue.join_running(&mut candidate) {
            return;
        }
        if let Err(refusal) = verify::accept(&candidate.digest, &self.settings.terms) {
            self.refuse(&candidate, refusal.step(), &refusal.to_string());
        } else if !self.use_loaded(candidate.origin, &candidate.digest, candidate.trial) {
            self.queue.add(Found {
                candidate,
                bytes,
                is_cached,
            });
        }
    }

    /// Take a loaded version. Returns false if it is not loaded.
    fn use_loaded(&mut self, origin: Origin, digest: &Arc<str>, trial: bool) -> bool {
        if let Origin::Deploy(number) = origin {
            self.versions.deployed(digest, number);
        }
        let active = self.versions.active();
        let canary = active.canary.as_ref().map(|canary| canary.version.digest());
        let previous = active.previous.as_ref().filter(|v| v.digest() == digest);
        if active.current.digest() == digest {
            info!(handler = &**digest, %origin, "this version already runs");
            self.queue.clear();
            self.drop_canary(&active);
            self.on_fulfilled(self.last_request);
        } else if canary == Some(digest) {
            self.queue.clear();
            if !trial {
                self.promote(digest);
            }
            self.on_fulfilled(self.last_request);
        } else if let Some(previous) = previous {
            self.queue.clear();
            let sandbox = previous.sandbox.clone();
            self.install(Version::new(sandbox, origin), false, self.last_request);
        } else {
            return false;
        }
        true
    }

    fn promote(&self, digest: &str) {
        if self.versions.promote(digest) {
            info!(handler = digest, "the canary was promoted by hand");
        }
    }

    fn withdraw(&mut self) {
        self.queue.clear();
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
            // Several deploys have replaced the version from the file.
            let reload = self.reload.as_ref();
            let sent = reload.map(|reload| reload.try_send(Reload::Whole));
            warn!(
                reload = sent.is_some(),
                "the version from the file is no longer loaded"
            );
        } else if self.versions.roll_back(from) {
            let to = self.versions.digest();
            info!(from = &**from, to = &*to, "rolled back by hand");
        }
        self.on_fulfilled(self.last_request);
    }

    fn drop_canary(&self, active: &ActiveVersions) {
        if let Some(canary) = &active.canary {
            let digest = canary.version.digest();
            if self.versions.drop_canary(digest) {
                info!(handler = &**digest, "the canary was cancelled by hand");
            }
        }
    }

    fn on_verified(&mut self, verified: Option<(Candidate, Result<Sandbox, Refusal>)>) {
        let Some((candidate, result)) = verified else {
            return;
        };
        match result {
            Ok(sandbox) => {
                let version = Version::new(sandbox, candidate.origin);
                self.install(version, candidate.trial, candidate.request);
            }
            Err(refusal) => self.refuse(&candidate, refusal.step(), &refusal.to_string()),
        }
    }

    /// Take a version for this request: as a canary if `trial` allows it, else for all messages.
    fn install(&mut self, version: Version, trial: bool, request: u64) {
        let (digest, origin) = (Arc::clone(version.digest()), version.origin);
        let interface = version.sandbox.describe().interface.clone();
        let from = self.versions.digest();
        match self.settings.canary.filter(|_| trial) {
            Some(share) => {
                if self.versions.try_out(version, share) {
                    info!(handler = &*digest, interface, %origin, %share, "a canary begins");
                }
            }
            None => {
                if self.versions.switch(version) {
                    info!(from = &*from, to = &*digest, interface, %origin, "swapped");
                }
            }
        }
        self.on_fulfilled(request);
    }

    /// This request is fulfilled: earlier refusals no longer matter.
    fn on_fulfilled(&mut self, request: u64) {
        self.refusal_log.on_fulfilled(request);
        self.publish();
    }

    /// Show a version that this host has rejected, if there is a new one.
    fn on_rejected(&mut self) {
        if !self.rejected.has_changed().unwrap_or(false) {
            return;
        }
        if let Some(rejected) = &*self.rejected.borrow_and_update() {
            self.refusal_log.on_rejected(self.last_request, rejected);
        }
        self.publish();
    }

    fn refuse(&mut self, candidate: &Candidate, step: Step, reason: &str) {
        let (digest, origin, step) = (&*candidate.digest, candidate.origin, step.label());
        error!(handler = digest, %origin, step, reason, "a new version was refused; the current one stays");
        self.metrics.swap_refused(step);
        self.refusal_log
            .refused(candidate.request, digest, origin, step, reason);
        self.publish();
    }

    fn publish(&self) {
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
        self.seen.send_if_modified(|previous| {
            let differs = *previous != now;
            *previous = now;
            differs
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::STEPS;

    #[test]
    fn the_metrics_have_every_step() {
        assert_eq!(Step::ALL.map(Step::label), STEPS);
    }
}
