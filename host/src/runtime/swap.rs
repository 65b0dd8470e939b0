//! Swapping the handler: from a new version that shows up to the one step that puts it in place.
//!
//! ```text
//! file, SIGHUP, deploy -> Wish -> verify (own thread, compiler in a child of low priority)
//!                                   |-> refused: told, counted; what runs goes on
//!                                   '-> Versions::switch, or try_out with a share
//! ```
//!
//! One version is verified at a time; of those that show up meanwhile the newest is next, and what
//! is no longer wanted is let go when it is done. A version that is at hand (what runs, what ran
//! before, the canary) needs no verification, so going back waits for nothing.
//!
//! Crash windows: a host that dies before the step has not swapped; one that dies behind it starts
//! with the version that its file, or the queue's deploy, then is. Neither concerns a message: an
//! attempt that its host died in is charged as any other.

use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{error, info, warn};

use crate::delivery::canary::Share;
use crate::runtime::versions::{Lineup, Origin, Version, Versions};
use crate::runtime::wall_clock_ms;
use crate::runtime::watch::{Change, FileWatch};
use crate::sandbox::swap::{self, Refusal, Step, Terms};
use crate::sandbox::{self, Sandbox};
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::versions::{CanarySeen, RefusedSeen, VersionSeen, VersionsSeen};

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

/// Something that shows up at one of the sources.
#[derive(Debug)]
pub enum Wish {
    /// A component.
    Component {
        /// Where it comes from.
        origin: Origin,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Whether it may be tried with a share of the messages first.
        trial: bool,
    },
    /// A version that runs, has run before, or is the canary.
    AtHand {
        /// Where it comes from.
        origin: Origin,
        /// Its digest.
        digest: Arc<str>,
    },
    /// There is something, and it cannot be read.
    Unreadable {
        /// Where.
        origin: Origin,
        /// Why, for people.
        reason: String,
    },
    /// Back to the version before; a canary is given up.
    RollBack,
    /// The canary takes over.
    Promote,
}

/// A version, found at its source.
#[derive(Debug)]
struct Found {
    origin: Origin,
    bytes: Vec<u8>,
    digest: Arc<str>,
    trial: bool,
}

/// What is being verified.
#[derive(Debug)]
struct Work {
    origin: Origin,
    digest: Arc<str>,
    trial: bool,
    /// Something newer is wanted.
    is_stale: bool,
    done: JoinHandle<Result<Sandbox, Refusal>>,
}

/// Swaps the versions of one host: see the module.
#[derive(Debug)]
pub struct Swapper {
    versions: Arc<Versions>,
    settings: Settings,
    metrics: Arc<Metrics>,
    health: Health,
    refused: Option<RefusedSeen>,
    work: Option<Work>,
    next: Option<Found>,
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
            versions,
            settings,
            metrics,
            health,
            refused: None,
            work: None,
            next: None,
        };
        swapper.show();
        swapper
    }

    /// What there is to see, as it changes.
    pub fn seen(&self) -> watch::Receiver<VersionsSeen> {
        self.seen.subscribe()
    }

    /// Carry out wishes until nobody can have any.
    pub async fn run(mut self, mut wishes: mpsc::Receiver<Wish>) {
        let mut changes = self.versions.changes();
        loop {
            self.begin();
            tokio::select! {
                wish = wishes.recv() => match wish {
                    Some(wish) => self.hear(wish).await,
                    None => return,
                },
                verified = verified(&mut self.work) => self.verified(verified),
                Ok(()) = changes.changed() => self.show(),
            }
        }
    }

    /// Carry out this wish, whatever it takes, before anything else.
    pub async fn begin_with(&mut self, wish: Wish) {
        self.hear(wish).await;
        self.begin();
        if self.work.is_some() {
            let verified = verified(&mut self.work).await;
            self.verified(verified);
        }
    }

    async fn hear(&mut self, wish: Wish) {
        match wish {
            Wish::Component {
                origin,
                bytes,
                trial,
            } => {
                // Hashing takes a while for a large one.
                let hashed = spawn_blocking(move || (swap::digest(&bytes), bytes)).await;
                if let Ok((digest, bytes)) = hashed {
                    let found = Found {
                        origin,
                        bytes,
                        digest,
                        trial,
                    };
                    self.found(found);
                }
            }
            Wish::AtHand { origin, digest } => {
                if !self.take(origin, &digest) {
                    // It has gone since: whoever wished for it looks again.
                    warn!(digest = &*digest, "a version is not at hand any more");
                }
            }
            Wish::Unreadable { origin, reason } => {
                self.refuse(origin, "", Step::Source, &reason);
            }
            Wish::RollBack => self.roll_back(),
            Wish::Promote => {
                let lineup = self.versions.lineup();
                if let Some(canary) = &lineup.canary {
                    let digest = canary.version.digest();
                    if self.versions.promote(digest) {
                        info!(digest = &**digest, "the canary was promoted by hand");
                    }
                }
            }
        }
    }

    /// A version was found. What is at hand is taken at once.
    fn found(&mut self, found: Found) {
        let digest = &found.digest;
        if let Some(work) = &mut self.work
            && work.digest == *digest
        {
            // It is being verified for this very wish.
            work.is_stale = false;
            self.next = None;
            return;
        }
        if let Err(refusal) = swap::accept(digest, &self.settings.terms) {
            self.refuse(found.origin, digest, refusal.step(), &refusal.to_string());
            return;
        }
        if !self.take(found.origin, &found.digest) {
            if let Some(work) = &mut self.work {
                work.is_stale = true;
            }
            self.next = Some(found);
        }
    }

    /// Take a version that is at hand; false = it is not.
    fn take(&mut self, origin: Origin, digest: &Arc<str>) -> bool {
        let lineup = self.versions.lineup();
        let canary = lineup.canary.as_ref().map(|canary| canary.version.digest());
        let previous = lineup.previous.as_ref().filter(|v| v.digest() == digest);
        if lineup.current.digest() == digest {
            info!(digest = &**digest, %origin, "that version runs already");
            self.forget_others();
            self.drop_canary(&lineup);
            self.taken();
        } else if canary == Some(digest) {
            self.forget_others();
            self.taken();
        } else if let Some(previous) = previous {
            self.forget_others();
            let sandbox = previous.sandbox.clone();
            self.switch(Version { sandbox, origin });
        } else {
            return false;
        }
        true
    }

    fn roll_back(&mut self) {
        self.forget_others();
        let lineup = self.versions.lineup();
        if lineup.canary.is_some() {
            self.drop_canary(&lineup);
            return;
        }
        let from = lineup.current.digest();
        if self.versions.roll_back(from) {
            let to = self.versions.digest();
            info!(from = &**from, to = &*to, "rolled back by hand");
            self.taken();
        } else {
            warn!("there is no version to go back to");
        }
    }

    /// What was wanted before is not wanted any more.
    fn forget_others(&mut self) {
        self.next = None;
        if let Some(work) = &mut self.work {
            work.is_stale = true;
        }
    }

    fn drop_canary(&self, lineup: &Lineup) {
        if let Some(canary) = &lineup.canary {
            let digest = canary.version.digest();
            if self.versions.drop_canary(digest) {
                info!(digest = &**digest, "the canary was given up by hand");
            }
        }
    }

    /// Verify what is next, if nothing is being verified.
    fn begin(&mut self) {
        if self.work.is_some() {
            return;
        }
        let Some(found) = self.next.take() else {
            return;
        };
        let (sandbox, terms) = (self.settings.sandbox.clone(), self.settings.terms.clone());
        info!(digest = &*found.digest, origin = %found.origin, "verifying a new version");
        self.work = Some(Work {
            origin: found.origin,
            digest: found.digest,
            trial: found.trial,
            is_stale: false,
            done: spawn_blocking(move || swap::verify(&found.bytes, &sandbox, &terms)),
        });
    }

    fn verified(&mut self, verified: Result<Sandbox, Refusal>) {
        let Some(work) = self.work.take() else {
            return;
        };
        match verified {
            Ok(_) if work.is_stale => {
                let digest = &*work.digest;
                info!(digest, "a version was superseded before it was taken");
            }
            Ok(sandbox) => {
                let origin = work.origin;
                let version = Version { sandbox, origin };
                match self.settings.canary.filter(|_| work.trial) {
                    Some(share) => self.try_out(version, share),
                    None => self.switch(version),
                }
            }
            Err(refusal) => {
                self.refuse(
                    work.origin,
                    &work.digest,
                    refusal.step(),
                    &refusal.to_string(),
                );
            }
        }
    }

    fn switch(&mut self, version: Version) {
        let from = self.versions.digest();
        let (to, origin) = (Arc::clone(version.digest()), version.origin);
        if self.versions.switch(version) {
            info!(from = &*from, to = &*to, %origin, "swapped");
        }
        self.taken();
    }

    fn try_out(&mut self, version: Version, share: Share) {
        let (digest, origin) = (Arc::clone(version.digest()), version.origin);
        if self.versions.try_out(version, share) {
            info!(digest = &*digest, %origin, %share, "a canary begins");
        }
        self.taken();
    }

    /// The newest wish is fulfilled: what was refused before is history.
    fn taken(&mut self) {
        self.refused = None;
        self.show();
    }

    fn refuse(&mut self, origin: Origin, digest: &str, step: Step, reason: &str) {
        let step = step.label();
        error!(digest, %origin, step, reason, "a new version was refused; what runs goes on");
        self.metrics.swaps.refused(step);
        let mut reason = reason.to_owned();
        crate::delivery::policy::truncate_utf8(&mut reason, REASON_MAX);
        self.refused = Some(RefusedSeen {
            digest: digest.to_owned(),
            origin: origin.to_string(),
            step: step.to_owned(),
            reason,
            at_ms: wall_clock_ms(),
        });
        self.show();
    }

    fn show(&self) {
        let lineup = self.versions.lineup();
        let seen = |version: &Version| VersionSeen {
            digest: version.digest().to_string(),
            origin: version.origin.to_string(),
        };
        let now = VersionsSeen {
            current: seen(&lineup.current),
            previous: lineup.previous.as_ref().map(seen),
            canary: lineup.canary.as_ref().map(|canary| CanarySeen {
                digest: canary.version.digest().to_string(),
                origin: canary.version.origin.to_string(),
                share: canary.share.to_string(),
            }),
            refused: self.refused.clone(),
        };
        self.health.runs(now.clone());
        self.seen.send_if_modified(|before| {
            let differs = *before != now;
            *before = now;
            differs
        });
    }
}

/// Bytes of a reason that are kept.
const REASON_MAX: usize = 1024;

/// Wait for the end of the work, if there is any.
async fn verified(work: &mut Option<Work>) -> Result<Sandbox, Refusal> {
    match work {
        Some(work) => match (&mut work.done).await {
            Ok(verified) => verified,
            Err(error) => Err(Refusal::Unchecked(error.to_string())),
        },
        None => std::future::pending().await,
    }
}

/// Watch the handler's file, of at most `max` bytes, until nobody listens. Whenever `reload` says so,
/// what it holds is wished for, whether it has changed or not.
pub async fn watch_file(
    mut watch: FileWatch,
    max: u64,
    wishes: mpsc::Sender<Wish>,
    mut reload: mpsc::Receiver<()>,
) {
    let origin = Origin::File;
    loop {
        let change = tokio::select! {
            change = watch.changed() => change,
            Some(()) = reload.recv() => {
                info!("told to look at the handler's file");
                // Nothing of it is known: what it holds is a change.
                watch = FileWatch::new(watch.path().to_owned(), max);
                continue;
            }
        };
        let wish = match change {
            Change::Content(bytes) => Wish::Component {
                origin,
                bytes,
                trial: true,
            },
            Change::Unreadable(reason) => Wish::Unreadable { origin, reason },
        };
        if wishes.send(wish).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::swaps::STEPS;

    #[test]
    fn every_step_is_counted() {
        assert_eq!(Step::ALL.map(Step::label), STEPS);
    }
}
