//! Which versions of the handler there are, and which one an attempt gets: the one owner of that.
//!
//! ```text
//!             switch, or promote                 roll_back
//! canary --------------------------> current <-----------------> previous
//!    ^ try_out     | drop_canary
//! ```
//!
//! An attempt picks its version once, when it starts, and ends on it, whatever happens meanwhile;
//! so a change of the active is one step for all attempts that start after it. The one before the
//! current one stays, compiled and with its pool, so that going back takes no more than that step.
//! At most three versions are kept here; others live until their last attempt has ended.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use crate::rollout::canary::Share;
use crate::sandbox::{Sandbox, World};

/// Where a version came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The handler's file.
    File,
    /// A deploy, by its number.
    Deploy(u64),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File => f.write_str("file"),
            Self::Deploy(number) => write!(f, "deploy {number}"),
        }
    }
}

/// What this host has found out about a version by itself: never what somebody told it.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The version's digest.
    pub digest: Arc<str>,
    /// Where it came from.
    pub origin: Origin,
    /// By which rule it was given up, and why, in words; `None` = it was kept.
    pub given_up: Option<(Rule, String)>,
}

/// What a version is given up by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rule {
    /// As a canary, it failed more often than the other version.
    Canary,
    /// It faulted on everything, and another one took its place.
    Breaker,
}

impl Rule {
    /// The word that stands where else the step of a verification does.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Breaker => "breaker",
        }
    }
}

/// A version that can be run. Clones share it.
#[derive(Clone, Debug)]
pub struct Version {
    /// The component.
    pub sandbox: Sandbox,
    /// Where it came from.
    pub origin: Origin,
}

impl Version {
    /// Its digest: what makes it this version.
    pub fn digest(&self) -> &Arc<str> {
        self.sandbox.digest()
    }
}

/// A new version on trial.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The version.
    pub version: Version,
    /// The share of messages that it gets, by their ids.
    pub share: Share,
}

/// What runs at one moment.
#[derive(Clone, Debug)]
pub struct ActiveVersions {
    /// What runs.
    pub current: Version,
    /// What ran before: for going back at once.
    pub previous: Option<Version>,
    /// What a share of the messages gets.
    pub canary: Option<Canary>,
    /// How often another version became the current one.
    pub swaps: u64,
}

impl ActiveVersions {
    /// The version for a message with this id.
    pub fn pick(&self, id: &str) -> &Version {
        match &self.canary {
            Some(canary) if canary.share.has(id) => &canary.version,
            _ => &self.current,
        }
    }

    fn replace(&mut self, version: Version) {
        self.previous = Some(std::mem::replace(&mut self.current, version));
        self.swaps += 1;
    }
}

/// The versions of one host: see the module.
#[derive(Debug)]
pub struct Versions {
    active: RwLock<Arc<ActiveVersions>>,
    changes: watch::Sender<u64>,
    /// The last one. They are minutes apart: who is late for one is late for one that is outdated.
    verdicts: watch::Sender<Option<Verdict>>,
}

impl Versions {
    /// One version, and none before it.
    pub fn new(sandbox: Sandbox, origin: Origin) -> Self {
        let active = ActiveVersions {
            current: Version { sandbox, origin },
            previous: None,
            canary: None,
            swaps: 0,
        };
        Self {
            active: RwLock::new(Arc::new(active)),
            changes: watch::Sender::new(0),
            verdicts: watch::Sender::new(None),
        }
    }

    /// What runs now. A snapshot: whoever asks it twice gets the same answer.
    pub fn active(&self) -> Arc<ActiveVersions> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&active)
    }

    /// The version for an attempt that starts now, of the message with this id.
    pub fn pick(&self, id: &str) -> Sandbox {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        active.pick(id).sandbox.clone()
    }

    /// Whether what runs now takes several messages at a time.
    pub fn takes_batches(&self) -> bool {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        active.current.sandbox.describe().world == World::Batch
    }

    /// The version with this digest, if it can be run without being loaded.
    pub fn at_hand(&self, digest: &str) -> Option<Version> {
        let active = self.active();
        let canary = active.canary.as_ref().map(|canary| &canary.version);
        [Some(&active.current), active.previous.as_ref(), canary]
            .into_iter()
            .flatten()
            .find(|known| **known.digest() == *digest)
            .cloned()
    }

    /// The digest of what runs now.
    pub fn digest(&self) -> Arc<str> {
        Arc::clone(self.active().current.digest())
    }

    /// Tells of every change, by its number.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// What this host finds out about its versions, the last of it.
    pub fn verdicts(&self) -> watch::Receiver<Option<Verdict>> {
        self.verdicts.subscribe()
    }

    /// Run this version from now on; a canary's trial is over. Returns whether anything changed.
    pub fn switch(&self, version: Version) -> bool {
        self.change(|active| {
            let ended = active.canary.take().is_some();
            let other = active.current.digest() != version.digest();
            if other {
                active.replace(version);
            }
            ended || other
        })
    }

    /// Give this version a share of the messages. Returns whether anything changed.
    pub fn try_out(&self, version: Version, share: Share) -> bool {
        self.change(|active| {
            let canary = active.canary.as_ref();
            let known = version.digest() == active.current.digest()
                || canary.is_some_and(|canary| canary.version.digest() == version.digest());
            if !known {
                active.canary = Some(Canary { version, share });
            }
            !known
        })
    }

    /// Run the canary from now on, if it is still the one with this digest.
    pub fn promote(&self, digest: &str) -> bool {
        self.change(|active| match active.canary.take() {
            Some(canary) if **canary.version.digest() == *digest => {
                active.replace(canary.version);
                true
            }
            other => {
                active.canary = other;
                false
            }
        })
    }

    /// Give up the canary, if it is still the one with this digest.
    pub fn drop_canary(&self, digest: &str) -> bool {
        self.change(|active| {
            let is_it = |canary: &mut Canary| **canary.version.digest() == *digest;
            active.canary.take_if(is_it).is_some()
        })
    }

    /// Go back to the version before, if the current one is still the one with this digest. The
    /// two change places, so that this can be taken back.
    pub fn roll_back(&self, digest: &str) -> bool {
        self.change(|active| {
            if **active.current.digest() != *digest {
                return false;
            }
            let previous = active.previous.take();
            let went = previous.is_some();
            if let Some(previous) = previous {
                active.canary = None;
                active.replace(previous);
            }
            went
        })
    }

    /// [`Versions::promote`], as this host has found the canary to be no worse.
    pub fn keep(&self, digest: &str) -> bool {
        let canary = self.active().canary.clone();
        self.promote(digest) && self.judged(canary.map(|canary| canary.version), None)
    }

    /// [`Versions::drop_canary`], as this host has found it to be worse, and why.
    pub fn give_up(&self, digest: &str, reason: &str) -> bool {
        let canary = self.active().canary.clone();
        let given_up = Some((Rule::Canary, reason.to_owned()));
        self.drop_canary(digest) && self.judged(canary.map(|canary| canary.version), given_up)
    }

    /// [`Versions::roll_back`], as this host has found the version to be broken, and how.
    pub fn roll_back_on_break(&self, digest: &str, reason: &str) -> bool {
        let current = self.active().current.clone();
        let given_up = Some((Rule::Breaker, reason.to_owned()));
        self.roll_back(digest) && self.judged(Some(current), given_up)
    }

    fn judged(&self, version: Option<Version>, given_up: Option<(Rule, String)>) -> bool {
        let verdict = version.map(|version| Verdict {
            digest: Arc::clone(version.digest()),
            origin: version.origin,
            given_up,
        });
        self.verdicts.send_replace(verdict);
        true
    }

    /// One step: attempts see the active from before or the one from after.
    fn change(&self, step: impl FnOnce(&mut ActiveVersions) -> bool) -> bool {
        let mut shared = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let mut active = ActiveVersions::clone(&shared);
        let changed = step(&mut active);
        let before = changed.then(|| std::mem::replace(&mut *shared, Arc::new(active)));
        drop(shared);
        // What nobody uses any more is unmapped here, while nobody waits for the lock.
        drop(before);
        if changed {
            self.changes.send_modify(|number| *number += 1);
        }
        changed
    }
}
