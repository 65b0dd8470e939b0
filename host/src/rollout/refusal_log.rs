//! What a host says about versions that it does not run, until it is history.

use crate::delivery::policy::truncate_utf8;
use crate::rollout::versions::{Origin, Verdict};
use crate::telemetry::versions::RefusedSeen;
use crate::telemetry::wall_clock_ms;

/// Bytes of a reason that are kept.
const REASON_MAX: usize = 1024;

/// See the module. Each notice stands beside the number of the wish that it was for.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// The newest version that was refused, or given up.
    refused: Option<(u64, RefusedSeen)>,
    /// The same of a file that cannot be read, until it can be.
    unreadable: Option<(u64, RefusedSeen)>,
}

impl Notices {
    /// A version was refused at this step; an empty digest = it could not be read.
    pub(super) fn refused(
        &mut self,
        wish: u64,
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
        *said = Some((wish, seen));
    }

    /// This host has found out what a version is. One that it gave up is wanted until somebody says
    /// otherwise: this is why it does not run.
    pub(super) fn judged(&mut self, wish: u64, verdict: &Verdict) {
        if let Some((rule, reason)) = &verdict.given_up {
            self.refused(wish, &verdict.digest, verdict.origin, rule.label(), reason);
        }
    }

    /// The file can be read again.
    pub(super) fn readable(&mut self) {
        self.unreadable = None;
    }

    /// This wish is fulfilled: what was said of others before it is history.
    pub(super) fn taken(&mut self, wish: u64) {
        for said in [&mut self.refused, &mut self.unreadable] {
            said.take_if(|(refused, _)| *refused <= wish);
        }
    }

    /// What there is to say.
    pub(super) fn newest(&self) -> Option<&RefusedSeen> {
        let said = [&self.refused, &self.unreadable].into_iter().flatten();
        said.max_by_key(|(wish, _)| *wish).map(|(_, seen)| seen)
    }
}
