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
//!
//! While the queue is stopped, the messages that are tried go to the current version and to the canary
//! in turn, whatever the share is: either of them may work again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use hostler_handover::{Cached, ReadMostly};
use tokio::sync::watch;

use crate::delivery::declared::declared;
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

/// A version that this host rejected. An action of an operator rejects nothing.
#[derive(Clone, Debug)]
pub struct Rejected {
    /// The version.
    pub version: Version,
    /// The rule.
    pub by: RejectedBy,
    /// The reason.
    pub reason: String,
}

/// A deployed version that this host kept: after its trial, or because it ran for long without a
/// complaint.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The number of the deploy.
    pub deploy: u64,
    /// The digest of the version.
    pub digest: Arc<str>,
}

declared! {
    /// The rule that rejected a version.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum RejectedBy (/// The label, used in place of a verification step.
                         label -> &'static str) {
        /// The canary failed more often than the current version.
        Canary = "canary",
        /// The version faulted on everything, and the previous version took over.
        Breaker = "breaker",
    }
}

/// A loaded version. Clones share it.
#[derive(Clone, Debug)]
pub struct Version {
    /// The component.
    pub sandbox: Sandbox,
    /// The source.
    pub origin: Origin,
    /// The last deploy of this digest. It may have come after the file had brought the version.
    pub deploy: Option<u64>,
}

impl Version {
    /// This component, from this source.
    pub fn new(sandbox: Sandbox, origin: Origin) -> Self {
        let deploy = match origin {
            Origin::File => None,
            Origin::Deploy(number) => Some(number),
        };
        Self {
            sandbox,
            origin,
            deploy,
        }
    }

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

/// The active versions as one slot sees them. It looks again after each change, so a change is one step for all
/// attempts that start after it. A slot without messages must not keep its view: versions live as long.
#[derive(Debug, Default)]
pub struct View(Cached<Seen>);

#[derive(Debug)]
struct Seen {
    active: Arc<ActiveVersions>,
    /// The digest of the current version: a copy, because all cores count the uses of the original.
    digest: Arc<str>,
}

impl View {
    fn refresh(&mut self, versions: &Versions) -> &Seen {
        self.0.get(&versions.active, |active| Seen {
            digest: Arc::from(&**active.current.digest()),
            active,
        })
    }
}

impl ActiveVersions {
    fn takes_batches(&self) -> bool {
        self.current.sandbox.describe().world == World::Batch
    }

    fn replace(&mut self, version: Version) {
        self.previous = Some(std::mem::replace(&mut self.current, version));
        self.swaps += 1;
    }
}

/// The versions of one host.
#[derive(Debug)]
pub struct Versions {
    active: ReadMostly<ActiveVersions>,
    /// The current version is a batch handler.
    takes_batches: AtomicBool,
    changes: watch::Sender<u64>,
    /// The last verdicts. They are minutes apart, and a new one makes the last one of its kind outdated.
    rejected: watch::Sender<Option<Rejected>>,
    kept: watch::Sender<Option<Kept>>,
    is_stopped: AtomicBool,
    /// How many attempts have picked a version while the queue was stopped.
    tried: AtomicU64,
}

impl Versions {
    /// Only this version, from this source.
    pub fn new(sandbox: Sandbox, origin: Origin) -> Self {
        let active = ActiveVersions {
            current: Version::new(sandbox, origin),
            previous: None,
            canary: None,
            swaps: 0,
        };
        Self {
            takes_batches: AtomicBool::new(active.takes_batches()),
            active: ReadMostly::new(active),
            changes: watch::Sender::new(0),
            rejected: watch::Sender::new(None),
            kept: watch::Sender::new(None),
            is_stopped: AtomicBool::new(false),
            tried: AtomicU64::new(0),
        }
    }

    /// A snapshot of the active versions.
    pub fn active(&self) -> Arc<ActiveVersions> {
        self.active.get()
    }

    /// The version for a new attempt of the message with this id.
    pub fn pick(&self, id: &str) -> Sandbox {
        let mut view = View::default();
        self.pick_from(&mut view, id).0.clone()
    }

    /// The same, and its digest, by a view of the caller's own.
    pub fn pick_from<'a>(&self, view: &'a mut View, id: &str) -> (&'a Sandbox, &'a Arc<str>) {
        let seen = view.refresh(self);
        match &seen.active.canary {
            Some(canary) if self.tries(canary, id) => {
                (&canary.version.sandbox, canary.version.digest())
            }
            _ => (&seen.active.current.sandbox, &seen.digest),
        }
    }

    /// Whether the canary gets the message with this id.
    fn tries(&self, canary: &Canary, id: &str) -> bool {
        match self.is_stopped.load(Ordering::Relaxed) {
            true => !self.tried.fetch_add(1, Ordering::Relaxed).is_multiple_of(2),
            false => canary.share.has(id),
        }
    }

    /// Whether the queue is stopped, because its handler cannot be run.
    pub fn stopped(&self, is_stopped: bool) {
        if self.is_stopped.swap(is_stopped, Ordering::Relaxed) != is_stopped {
            self.tried.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the current version is a batch handler.
    pub fn takes_batches(&self) -> bool {
        self.takes_batches.load(Ordering::Acquire)
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

    /// The last version that this host rejected, and its changes.
    pub fn rejected(&self) -> watch::Receiver<Option<Rejected>> {
        self.rejected.subscribe()
    }

    /// The last deploy that this host kept, and its changes.
    pub fn kept(&self) -> watch::Receiver<Option<Kept>> {
        self.kept.subscribe()
    }

    /// The active version with this digest was deployed with this number. Verdicts about it are recorded
    /// there. A version from the file stays one: no rollback of the deploy takes it away.
    pub fn deployed(&self, digest: &str, number: u64) {
        self.change(|active| {
            let ActiveVersions {
                current,
                previous,
                canary,
                ..
            } = active;
            let canary = canary.as_mut().map(|canary| &mut canary.version);
            let all = [Some(current), previous.as_mut(), canary];
            let mut changed = false;
            for version in all.into_iter().flatten() {
                if **version.digest() == *digest && version.deploy != Some(number) {
                    version.deploy = Some(number);
                    if version.origin != Origin::File {
                        version.origin = Origin::Deploy(number);
                    }
                    changed = true;
                }
            }
            changed
        });
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

    /// [`Versions::promote`]: this host has kept the canary.
    pub fn accept_canary(&self, digest: &str) -> bool {
        let promoted = self.promote(digest);
        if promoted {
            self.keep(digest);
        }
        promoted
    }

    /// This host has kept the current version, if it still has this digest.
    pub fn keep(&self, digest: &str) {
        let active = self.active();
        if let Some(deploy) = active.current.deploy
            && **active.current.digest() == *digest
        {
            let digest = Arc::clone(active.current.digest());
            self.kept.send_replace(Some(Kept { deploy, digest }));
        }
    }

    /// [`Versions::drop_canary`]: this host has rejected it, for this reason.
    pub fn reject_canary(&self, digest: &str, reason: &str) -> bool {
        let canary = self.active().canary.clone();
        let version = canary.map(|canary| canary.version);
        self.drop_canary(digest) && self.reject(version, RejectedBy::Canary, reason)
    }

    /// [`Versions::roll_back`]: this host has rejected the current version, for this reason.
    pub fn roll_back_on_break(&self, digest: &str, reason: &str) -> bool {
        let version = self.active().current.clone();
        self.roll_back(digest) && self.reject(Some(version), RejectedBy::Breaker, reason)
    }

    fn reject(&self, version: Option<Version>, by: RejectedBy, reason: &str) -> bool {
        let reason = reason.to_owned();
        let rejected = version.map(|version| Rejected {
            version,
            by,
            reason,
        });
        self.rejected.send_replace(rejected);
        true
    }

    /// Change the active versions in one step. Returns whether anything changed.
    fn change(&self, step: impl FnOnce(&mut ActiveVersions) -> bool) -> bool {
        let changed = self.active.change(|active| {
            let changed = step(active);
            if changed {
                let takes_batches = active.takes_batches();
                self.takes_batches.store(takes_batches, Ordering::Release);
            }
            changed
        });
        if changed {
            self.changes.send_modify(|number| *number += 1);
        }
        changed
    }
}
