//! The newest version that this host refused or rejected, with the reason, until a later request is
//! fulfilled.

use crate::delivery::text::truncate_utf8;
use crate::rollout::versions::{Origin, Rejected};
use crate::telemetry::versions::RefusedSeen;
use crate::telemetry::wall_clock_ms;

/// Bytes of a reason.
const REASON_MAX: usize = 1024;

/// See the module. Each entry has the number of its request.
#[derive(Debug, Default)]
pub(super) struct RefusalLog {
    /// The newest version that was refused or rejected.
    refused: Option<(u64, RefusedSeen)>,
    /// The handler's file, while it cannot be read.
    unreadable: Option<(u64, RefusedSeen)>,
}

impl RefusalLog {
    /// A version was refused at this step. An empty digest means that the version could not be read.
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
        let entry = match origin {
            Origin::File if digest.is_empty() => &mut self.unreadable,
            _ => &mut self.refused,
        };
        *entry = Some((request, seen));
    }

    /// This host rejected a version. It stays requested; the entry explains why it does not run.
    pub(super) fn on_rejected(&mut self, request: u64, rejected: &Rejected) {
        let version = &rejected.version;
        let (by, reason) = (rejected.by.label(), &rejected.reason);
        self.refused(request, version.digest(), version.origin, by, reason);
    }

    /// The handler's file is readable again.
    pub(super) fn on_readable(&mut self) {
        self.unreadable = None;
    }

    /// This request is fulfilled: drop its entries and those of earlier requests.
    pub(super) fn on_fulfilled(&mut self, request: u64) {
        for entry in [&mut self.refused, &mut self.unreadable] {
            entry.take_if(|(refused, _)| *refused <= request);
        }
    }

    /// The newest entry.
    pub(super) fn newest(&self) -> Option<&RefusedSeen> {
        let entries = [&self.refused, &self.unreadable].into_iter().flatten();
        entries
            .max_by_key(|(request, _)| *request)
            .map(|(_, seen)| seen)
    }
}
