//! Swapping the handler: from a new version that shows up to the one step that puts it in place.
//!
//! ```text
//! file, SIGHUP, deploy -> Wish -> verify (own thread, compiler in a child of low priority)
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
use crate::rollout::versions::{Lineup, Origin, Verdict, Version, Versions};
use crate::sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::versions::{CanarySeen, VersionSeen, VersionsSeen};

pub use crate::rollout::handler_file::{Reload, watch_file};
use crate::rollout::refusal_log::Notices;
use crate::rollout::verify_queue::{Candidate, Found, Line, Verified};

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
    /// A version that needs no verification: it runs, has run before, or is the canary, or was one
    /// of them a moment ago.
    AtHand {
        /// The version, and where it comes from now.
        version: Version,
        /// As above.
        trial: bool,
    },
    /// There is something, and it is not even looked at.
    Unusable {
        /// Where.
        origin: Origin,
        /// Its digest; empty = not known.
        digest: Arc<str>,
        /// At which step it is refused: it cannot be read, or is too large.
        step: Step,
        /// Why, for people.
        reason: String,
    },
    /// No deploy is wanted any more: a host that runs one goes back to what ran before, and one that
    /// tries one gives it up. Where none ever came to, nothing changes.
    Withdraw,
    /// The canary from the file takes over, if there is one.
    PromoteFile,
    /// The file can be read again, and is what it was. It is no wish: what was said of it is history.
    Readable,
}

/// Swaps the versions of one host: see the module.
#[derive(Debug)]
pub struct Swapper {
    versions: Arc<Versions>,
    settings: Settings,
    metrics: Arc<Metrics>,
    health: Health,
    line: Line,
    /// How many wishes were heard: the number of the last one.
    heard: u64,
    notices: Notices,
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
            line: Line::default(),
            heard: 0,
            notices: Notices::default(),
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

    /// Carry out wishes until nobody can have any.
    pub async fn run(mut self, mut wishes: mpsc::Receiver<Wish>) {
        let mut changes = self.versions.changes();
        let mut verdicts = self.versions.verdicts();
        loop {
            self.begin();
            tokio::select! {
                wish = wishes.recv() => match wish {
                    Some(wish) => self.hear(wish).await,
                    None => return,
                },
                verified = self.line.verified() => self.verified(verified),
                Ok(()) = changes.changed() => self.show(),
                Ok(()) = verdicts.changed() => self.judged(),
            }
        }
    }

    /// Carry out this wish, whatever it takes, before anything else.
    pub async fn begin_with(&mut self, wish: Wish) {
        self.hear(wish).await;
        self.begin();
        if self.line.is_busy() {
            let verified = self.line.verified().await;
            self.verified(verified);
        }
    }

    /// Verify what is next, if it is its turn.
    fn begin(&mut self) {
        self.line
            .begin(&self.settings.sandbox, &self.settings.terms);
    }

    async fn hear(&mut self, wish: Wish) {
        // What was found out before belongs to the wish before.
        self.judged();
        self.heard += 1;
        match wish {
            Wish::Component {
                origin,
                bytes,
                trial,
            } => {
                // Only beside another one does it matter whether it can do without a compiler.
                let settings = self.line.is_busy().then(|| self.settings.sandbox.clone());
                // Hashing takes a while for a large one.
                let looked = spawn_blocking(move || {
                    let is_kept =
                        settings.is_some_and(|settings| verify::is_kept(&bytes, &settings));
                    (verify::digest(&bytes), bytes, is_kept)
                });
                if let Ok((digest, bytes, is_kept)) = looked.await {
                    let candidate = Candidate {
                        wish: self.heard,
                        origin,
                        digest,
                        trial,
                    };
                    self.found(candidate, bytes, is_kept);
                }
            }
            Wish::AtHand { version, trial } => {
                let digest = Arc::clone(version.digest());
                if !self.take(version.origin, &digest, trial) {
                    // Another one took its place since it was looked for.
                    self.line.forget();
                    self.put(version, trial, self.heard);
                }
            }
            Wish::Unusable {
                origin,
                digest,
                step,
                reason,
            } => {
                let candidate = Candidate {
                    wish: self.heard,
                    origin,
                    digest,
                    trial: false,
                };
                self.refuse(&candidate, step, &reason);
            }
            Wish::Withdraw => self.withdraw(),
            Wish::PromoteFile => {
                let lineup = self.versions.lineup();
                let canary = lineup.canary.as_ref().map(|canary| &canary.version);
                if let Some(canary) = canary.filter(|canary| canary.origin == Origin::File) {
                    self.promote(canary.digest());
                }
            }
            Wish::Readable => {
                self.notices.readable();
                info!("the handler's file can be read again, and is what it was");
                self.show();
            }
        }
    }

    /// A version was found. What is at hand is taken at once.
    fn found(&mut self, mut candidate: Candidate, bytes: Vec<u8>, is_kept: bool) {
        if self.line.is_at(&mut candidate) {
            return;
        }
        if let Err(refusal) = verify::accept(&candidate.digest, &self.settings.terms) {
            self.refuse(&candidate, refusal.step(), &refusal.to_string());
        } else if !self.take(candidate.origin, &candidate.digest, candidate.trial) {
            self.line.add(Found {
                candidate,
                bytes,
                is_kept,
            });
        }
    }

    /// Take a version that is at hand: whole, unless it may be tried. False = it is not at hand.
    fn take(&mut self, origin: Origin, digest: &Arc<str>, trial: bool) -> bool {
        let lineup = self.versions.lineup();
        let canary = lineup.canary.as_ref().map(|canary| canary.version.digest());
        let previous = lineup.previous.as_ref().filter(|v| v.digest() == digest);
        if lineup.current.digest() == digest {
            info!(digest = &**digest, %origin, "that version runs already");
            self.line.forget();
            self.drop_canary(&lineup);
            self.taken(self.heard);
        } else if canary == Some(digest) {
            self.line.forget();
            if !trial {
                self.promote(digest);
            }
            self.taken(self.heard);
        } else if let Some(previous) = previous {
            self.line.forget();
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
        self.line.forget();
        let lineup = self.versions.lineup();
        let from = lineup.current.digest();
        let is_deploy = |version: &Version| version.origin != Origin::File;
        if !is_deploy(&lineup.current) {
            if lineup
                .canary
                .as_ref()
                .is_some_and(|c| is_deploy(&c.version))
            {
                self.drop_canary(&lineup);
            }
        } else if lineup.previous.as_ref().is_none_or(is_deploy) {
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

    fn drop_canary(&self, lineup: &Lineup) {
        if let Some(canary) = &lineup.canary {
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
                self.put(version, candidate.trial, candidate.wish);
            }
            Err(refusal) => self.refuse(&candidate, refusal.step(), &refusal.to_string()),
        }
    }

    /// Put a version in place, for this wish: whole, or with a share if it may be tried.
    fn put(&mut self, version: Version, trial: bool, wish: u64) {
        match self.settings.canary.filter(|_| trial) {
            Some(share) => self.try_out(version, share),
            None => self.switch(version),
        }
        self.taken(wish);
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

    /// This wish is fulfilled: what was refused before it is history.
    fn taken(&mut self, wish: u64) {
        self.notices.taken(wish);
        self.show();
    }

    /// This host may have found out what a version is.
    fn judged(&mut self) {
        if !self.verdicts.has_changed().unwrap_or(false) {
            return;
        }
        if let Some(verdict) = &*self.verdicts.borrow_and_update() {
            self.notices.judged(self.heard, verdict);
        }
        self.show();
    }

    fn refuse(&mut self, candidate: &Candidate, step: Step, reason: &str) {
        let (digest, origin, step) = (&*candidate.digest, candidate.origin, step.label());
        error!(digest, %origin, step, reason, "a new version was refused; what runs goes on");
        self.metrics.swaps.refused(step);
        self.notices
            .refused(candidate.wish, digest, origin, step, reason);
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
            refused: self.notices.newest().cloned(),
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
    use crate::telemetry::swaps::STEPS;

    #[test]
    fn every_step_is_counted() {
        assert_eq!(Step::ALL.map(Step::label), STEPS);
    }
}
