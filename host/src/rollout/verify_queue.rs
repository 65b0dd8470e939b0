//! The line of versions that wait to be verified: one is, and the newest of the others is next.
//!
//! What has begun is finished, however fast others follow: so a host moves forward under any flood
//! of versions, and the last one is taken in the end. Two things end it for nobody: a way back,
//! whose point is not to run it; and a version whose code is kept, which needs no compiler and does
//! not wait for one. So at most one compiler runs, and at most one version waits for it.

use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};
use tracing::info;

use crate::rollout::verify::{self, Refusal, Terms};
use crate::rollout::versions::Origin;
use crate::sandbox::{self, Sandbox};

type Verification = JoinHandle<Result<Sandbox, Refusal>>;

/// A version on its way.
#[derive(Debug)]
pub(super) struct Candidate {
    /// Which of the wishes it is for; later ones have higher numbers.
    pub(super) wish: u64,
    pub(super) origin: Origin,
    pub(super) digest: Arc<str>,
    /// Whether it may be tried with a share of the messages first. What is gone back to may not.
    pub(super) trial: bool,
}

/// A version, found at its source.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) candidate: Candidate,
    pub(super) bytes: Vec<u8>,
    /// Whether its code is kept.
    pub(super) is_kept: bool,
}

/// A version that was verified.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) candidate: Candidate,
    pub(super) result: Result<Sandbox, Refusal>,
    /// Something else is wanted by now.
    pub(super) is_stale: bool,
}

#[derive(Debug)]
struct Work {
    candidate: Candidate,
    is_stale: bool,
    done: Verification,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Line {
    work: Option<Work>,
    /// What was overtaken, and still has the compiler.
    overtaken: Option<Verification>,
    next: Option<Found>,
}

impl Line {
    /// Whether anything is being verified.
    pub(super) fn is_busy(&self) -> bool {
        self.work.is_some() || self.overtaken.is_some()
    }

    /// Whether this very version is being verified: then this is what it is wanted for now.
    pub(super) fn is_at(&mut self, candidate: &mut Candidate) -> bool {
        match &mut self.work {
            Some(work) if work.candidate.digest == candidate.digest => {
                std::mem::swap(&mut work.candidate, candidate);
                work.is_stale = false;
                self.forget_next();
                true
            }
            _ => false,
        }
    }

    /// This one is next, and no other.
    pub(super) fn add(&mut self, found: Found) {
        self.forget_next();
        if !found.candidate.trial {
            self.forget_work();
        }
        self.next = Some(found);
    }

    /// What was wanted before is not wanted any more.
    pub(super) fn forget(&mut self) {
        self.forget_next();
        self.forget_work();
    }

    fn forget_next(&mut self) {
        if let Some(next) = self.next.take() {
            superseded(&next.candidate.digest);
        }
    }

    fn forget_work(&mut self) {
        if let Some(work) = &mut self.work {
            work.is_stale = true;
        }
    }

    /// Verify what is next, if it is its turn.
    pub(super) fn begin(&mut self, settings: &sandbox::Settings, terms: &Terms) {
        let is_turn = match (&self.work, &self.overtaken) {
            (None, None) => true,
            (Some(_), Some(_)) => false,
            // No compiler is free, and none is needed.
            _ => self.next.as_ref().is_some_and(|next| next.is_kept),
        };
        if !is_turn {
            return;
        }
        let Some(Found {
            candidate, bytes, ..
        }) = self.next.take()
        else {
            return;
        };
        if let Some(work) = self.work.take() {
            superseded(&work.candidate.digest);
            self.overtaken = Some(work.done);
        }
        let (settings, terms) = (settings.clone(), terms.clone());
        info!(digest = &*candidate.digest, origin = %candidate.origin, "verifying a new version");
        self.work = Some(Work {
            candidate,
            is_stale: false,
            done: spawn_blocking(move || verify::verify(&bytes, &settings, &terms)),
        });
    }

    /// Wait for the end of a verification; `None` = of one that nobody waits for. May be given up
    /// at any time.
    pub(super) async fn verified(&mut self) -> Option<Verified> {
        let result = tokio::select! {
            result = end(self.work.as_mut().map(|work| &mut work.done)) => result,
            _ = end(self.overtaken.as_mut()) => {
                self.overtaken = None;
                return None;
            }
        };
        self.work.take().map(|work| Verified {
            candidate: work.candidate,
            result,
            is_stale: work.is_stale,
        })
    }
}

/// A version will not be taken, as something else is wanted.
pub(super) fn superseded(digest: &str) {
    info!(digest, "a version was superseded before it was taken");
}

/// Wait for the end of this one, if there is one.
async fn end(verification: Option<&mut Verification>) -> Result<Sandbox, Refusal> {
    match verification {
        Some(verification) => match verification.await {
            Ok(result) => result,
            Err(error) => Err(Refusal::Unchecked(error.to_string())),
        },
        None => std::future::pending().await,
    }
}
