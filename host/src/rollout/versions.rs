//! The versions of the handler. Decides which version an attempt gets.
//!
//! ```text
//!             switch, or promote                 roll_back
//! canary --------------------------> current <-----------------> previous
//!    ^ try_out     | drop_canary
//! ```
//!
//! An attempt picks its version once, when it starts, and keeps it. So a change is one step for all
//! attempts that start after it. The previous version stays loaded, with its pool, so that a rollback
//! is one such step too. At most three versions are kept; others are dropped when their last attempt
//! has ended.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::watch;

use crate::rollout::canary::Share;
use crate::sandbox::{Sandbox, World};

/// The source of a version.
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

/// A verdict of this host about a version. Actions of an operator are not verdicts.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The digest of the version.
    pub digest: Arc<str>,
    /// The source.
    pub origin: Origin,
    /// The rule that rejected the version, and the reason; `None` = the version was kept.
    pub rejected: Option<(RejectedBy, String)>,
}

/// The rule that rejected a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RejectedBy {
    /// The canary failed more often than the current version.
    Canary,
    /// The version faulted on everything, and the previous version took over.
    Breaker,
}

impl RejectedBy {
    /// The label, used in place of a verification step.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Breaker => "breaker",
        }
    }
}

/// A loaded version. Clones share it.
#[derive(Clone, Debug)]
pub struct Version {
    /// The component.
    pub sandbox: Sandbox,
    /// The source.
    pub origin: Origin,
}

impl Version {
    /// The digest, which identifies the version.
    pub fn digest(&self) -> &Arc<str> {
        self.sandbox.digest()
    }
}

/// A version on trial.
#[derive(Clone, Debug)]
pub struct Canary {
    /// The version.
    pub version: Version,
    /// The share of messages, by their ids.
    pub share: Share,
}

/// The versions that are active at one moment.
#[derive(Clone, Debug)]
pub struct ActiveVersions {
    /// The current version.
    pub current: Version,
    /// The previous version, for a rollback.
    pub previous: Option<Version>,
    /// The canary, which gets a share of the messages.
    pub canary: Option<Canary>,
    /// How often the current version was replaced.
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

/// The versions of one host.
#[derive(Debug)]
pub struct Versions {
    active: RwLock<Arc<ActiveVersions>>,
    changes: watch::Sender<u64>,
    /// The last verdict. Verdicts are minutes apart, and a new one makes the last one outdated.
    verdicts: watch::Sender<Option<Verdict>>,
}

impl Versions {
    /// Only this version, from this source.
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

    /// A snapshot of the active versions.
    pub fn active(&self) -> Arc<ActiveVersions> {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&active)
    }

    /// The version for a new attempt of the message with this id.
    pub fn pick(&self, id: &str) -> Sandbox {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        active.pick(id).sandbox.clone()
    }

    /// Whether the current version is a batch handler.
    pub fn takes_batches(&self) -> bool {
        let active = self.active.read().unwrap_or_else(PoisonError::into_inner);
        active.current.sandbox.describe().world == World::Batch
    }

    /// The active version with this digest.
    pub fn loaded(&self, digest: &str) -> Option<Version> {
        let active = self.active();
        let canary = active.canary.as_ref().map(|canary| &canary.version);
        [Some(&active.current), active.previous.as_ref(), canary]
            .into_iter()
            .flatten()
            .find(|known| **known.digest() == *digest)
            .cloned()
    }

    /// The digest of the current version.
    pub fn digest(&self) -> Arc<str> {
        Arc::clone(self.active().current.digest())
    }

    /// The number of changes, and its changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// The last verdict, and its changes.
    pub fn verdicts(&self) -> watch::Receiver<Option<Verdict>> {
        self.verdicts.subscribe()
    }

    /// Make this version the current one, and drop a canary. Returns whether anything changed.
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

    /// Make this version the canary. Returns whether anything changed.
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

    /// Make the canary the current version, if it still has this digest. Returns whether anything
    /// changed.
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

    /// Drop the canary, if it still has this digest. Returns whether anything changed.
    pub fn drop_canary(&self, digest: &str) -> bool {
        self.change(|active| {
            let is_it = |canary: &mut Canary| **canary.version.digest() == *digest;
            active.canary.take_if(is_it).is_some()
        })
    }

    /// Exchange the current and the previous version, if the current one still has this digest. Run it
    /// again to undo it. Returns whether anything changed.
    pub fn roll_back(&self, digest: &str) -> bool {
        self.change(|active| {
            if **active.current.digest() != *digest {
                return false;
            }
            let previous = active.previous.take();
            let changed = previous.is_some();
            if let Some(previous) = previous {
                active.canary = None;
                active.replace(previous);
            }
            changed
        })
    }

    /// [`Versions::promote`], with a verdict of this host.
    pub fn accept_canary(&self, digest: &str) -> bool {
        let canary = self.active().canary.clone();
        self.promote(digest) && self.publish_verdict(canary.map(|canary| canary.version), None)
    }

    /// [`Versions::drop_canary`], with a verdict of this host and its reason.
    pub fn reject_canary(&self, digest: &str, reason: &str) -> bool {
        let canary = self.active().canary.clone();
        let rejected = Some((RejectedBy::Canary, reason.to_owned()));
        self.drop_canary(digest)
            && self.publish_verdict(canary.map(|canary| canary.version), rejected)
    }

    /// [`Versions::roll_back`], with a verdict of this host and its reason.
    pub fn roll_back_on_break(&self, digest: &str, reason: &str) -> bool {
        let current = self.active().current.clone();
        let rejected = Some((RejectedBy::Breaker, reason.to_owned()));
        self.roll_back(digest) && self.publish_verdict(Some(current), rejected)
    }

    fn publish_verdict(
        &self,
        version: Option<Version>,
        rejected: Option<(RejectedBy, String)>,
    ) -> bool {
        let verdict = version.map(|version| Verdict {
            digest: Arc::clone(version.digest()),
            origin: version.origin,
            rejected,
        });
        self.verdicts.send_replace(verdict);
        true
    }

    /// Change the active versions in one step. Returns whether anything changed.
    fn change(&self, step: impl FnOnce(&mut ActiveVersions) -> bool) -> bool {
        let mut shared = self.active.write().unwrap_or_else(PoisonError::into_inner);
        let mut active = ActiveVersions::clone(&shared);
        let changed = step(&mut active);
        let before = changed.then(|| std::mem::replace(&mut *shared, Arc::new(active)));
        drop(shared);
        // An unused version is unmapped here, after the lock was released.
        drop(before);
        if changed {
            self.changes.send_modify(|number| *number += 1);
        }
        changed
    }
}
