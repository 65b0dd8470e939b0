//! The newest version that this host refused or gave up, and why, until another version is taken.

use crate::delivery::text::truncate_utf8;
use crate::rollout::versions::{Origin, Verdict};
use crate::telemetry::versions::RefusedSeen;
use crate::telemetry::wall_clock_ms;

/// Bytes of a reason that are kept.
const REASON_MAX: usize = 1024;

/// See the module. Each entry has the number of its request.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// The newest version that was refused or given up.
    refused: Option<(u64, RefusedSeen)>,
    /// The handler's file, while it cannot be read.
    unreadable: Option<(u64, RefusedSeen)>,
}

impl RefusalLog {
    /// A version was refused at this step; an empty digest = it could not be read.
    pub(super) fn refused(
        &mut self,
        request: u64,
        digest: &str,
        origin: Origin,
        step: &str,
        reason: &str,
    ) {
        let mut reason = reason.to_owned();
        truncate_utf8(&mut reason, REASON_MAX);
        let seen = RefusedSeen {
            digest: digest.to_owned(),
            origin: origin.to_string(),
            step: step.to_owned(),
            reason,
            at_ms: wall_clock_ms(),
        };
        let said = match origin {
            Origin::File if digest.is_empty() => &mut self.unreadable,
            _ => &mut self.refused,
        };
        *said = Some((request, seen));
    }

    /// This host has judged a version. A version that it gave up stays requested: this entry says why it
    /// does not run.
    pub(super) fn judged(&mut self, request: u64, verdict: &Verdict) {
        if let Some((rule, reason)) = &verdict.given_up {
            self.refused(
                request,
                &verdict.digest,
                verdict.origin,
                rule.label(),
                reason,
            );
        }
    }

    /// The file can be read again.
    pub(super) fn readable(&mut self) {
        self.unreadable = None;
    }

    /// A version was taken for this request: drop the entries of earlier requests.
    pub(super) fn taken(&mut self, request: u64) {
        for said in [&mut self.refused, &mut self.unreadable] {
            said.take_if(|(refused, _)| *refused <= request);
        }
    }

    /// The newest entry.
    pub(super) fn newest(&self) -> Option<&RefusedSeen> {
        let said = [&self.refused, &self.unreadable].into_iter().flatten();
        said.max_by_key(|(request, _)| *request)
            .map(|(_, seen)| seen)
    }
}
