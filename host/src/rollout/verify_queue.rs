//! The versions that wait to be verified: one is being verified, and the newest of the others is next.
//!
//! A verification that has begun is finished, however fast other versions follow. So a host makes
//! progress under any flood of versions, and takes the last one in the end. There are two exceptions:
//! a rollback, and a version whose compiled code is cached, which needs no compiler. At most one
//! compiler runs, and at most one version waits for it.

use std::sync::Arc;

use tokio::task::{JoinHandle, spawn_blocking};
use tracing::info;

use crate::rollout::verify::{self, Refusal, Terms};
use crate::rollout::versions::Origin;
use crate::sandbox::{self, Sandbox};

type Verification = JoinHandle<Result<Sandbox, Refusal>>;

/// A version to verify.
#[derive(Debug)]
pub(super) struct Candidate {
    /// The number of its request; later requests have higher numbers.
    pub(super) request: u64,
    pub(super) origin: Origin,
    pub(super) digest: Arc<str>,
    /// Whether the version may be tried as a canary. The version of a rollback may not.
    pub(super) trial: bool,
}

/// A version with its component.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) candidate: Candidate,
    pub(super) bytes: Vec<u8>,
    /// Whether its compiled code is cached.
    pub(super) is_cached: bool,
}

#[derive(Debug)]
struct Work {
    candidate: Candidate,
    is_stale: bool,
    done: Verification,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct VerifyQueue {
    work: Option<Work>,
    /// A verification that was superseded and still runs its compiler.
    superseded_work: Option<Verification>,
    next: Option<Found>,
}

impl VerifyQueue {
    /// Whether anything is being verified.
    pub(super) fn is_busy(&self) -> bool {
        self.work.is_some() || self.superseded_work.is_some()
    }

    /// Whether this version is being verified. If so, the verification serves the new request.
    pub(super) fn join_running(&mut self, candidate: &mut Candidate) -> bool {
        match &mut self.work {
            Some(work) if work.candidate.digest == candidate.digest => {
                std::mem::swap(&mut work.candidate, candidate);
                work.is_stale = false;
                self.clear_next();
                true
            }
            _ => false,
        }
    }

    /// Make this version the next one.
    pub(super) fn add(&mut self, found: Found) {
        self.clear_next();
        if !found.candidate.trial {
            self.mark_stale();
        }
        self.next = Some(found);
    }

    /// Drop earlier requests.
    pub(super) fn clear(&mut self) {
        self.clear_next();
        self.mark_stale();
    }

    fn clear_next(&mut self) {
        if let Some(next) = self.next.take() {
            superseded(&next.candidate.digest);
        }
    }

    fn mark_stale(&mut self) {
        if let Some(work) = &mut self.work {
            work.is_stale = true;
        }
    }

    /// Start the next verification, if one may start.
    pub(super) fn start_next(&mut self, settings: &sandbox::Settings, terms: &Terms) {
        let may_start = |next: &mut Found| match (&self.work, &self.superseded_work) {
            (None, None) => true,
            (Some(_), Some(_)) => false,
            // No compiler is free; a cached version needs none.
            _ => next.is_cached,
        };
        let Some(next) = self.next.take_if(may_start) else {
            return;
        };
        let (candidate, bytes) = (next.candidate, next.bytes);
        if let Some(work) = self.work.take() {
            superseded(&work.candidate.digest);
            self.superseded_work = Some(work.done);
        }
        let (settings, terms) = (settings.clone(), terms.clone());
        info!(handler = &*candidate.digest, origin = %candidate.origin, "verifying a new version");
        self.work = Some(Work {
            candidate,
            is_stale: false,
            done: spawn_blocking(move || verify::verify(&bytes, &settings, &terms)),
        });
    }

    /// Wait for the end of a verification. `None` = its version is not taken: another one was requested meanwhile.
    /// Cancel safe.
    pub(super) async fn verified(&mut self) -> Option<(Candidate, Result<Sandbox, Refusal>)> {
        let result = tokio::select! {
            result = finished(self.work.as_mut().map(|work| &mut work.done)) => result,
            _ = finished(self.superseded_work.as_mut()) => {
                self.superseded_work = None;
                return None;
            }
        };
        let work = self.work.take()?;
        if work.is_stale && result.is_ok() {
            superseded(&work.candidate.digest);
            return None;
        }
        Some((work.candidate, result))
    }
}

/// Log that a version is not taken, because another one was requested.
fn superseded(digest: &str) {
    info!(
        handler = digest,
        "a version was superseded before it was taken"
    );
}

/// Wait for the end of this verification, if there is one.
async fn finished(verification: Option<&mut Verification>) -> Result<Sandbox, Refusal> {
    match verification {
        Some(verification) => match verification.await {
            Ok(result) => result,
            Err(error) => Err(Refusal::Unchecked(error.to_string())),
        },
        None => std::future::pending().await,
    }
}
