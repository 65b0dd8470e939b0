//! Requests that neither read nor settle: taking what is due, looking for orphans, and at the backlog.
//!
//! Each needs keys and rights of its own. If Redis refuses one of them until an operator changes something,
//! only that one pauses, and the host says so. Reading and settling go on.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::delivery::ledger::Time;
use crate::runtime::driver::connection::pause;
use crate::runtime::driver::requests::Kind;

/// The errands that pause.
#[derive(Debug, Default)]
pub(super) struct Errands(BTreeMap<Kind, Paused>);

#[derive(Debug)]
struct Paused {
    /// Refusals in a row: they set the pause.
    refusals: u32,
    until: Time,
}

impl Errands {
    /// Redis refused this one. Returns how long it pauses, and whether it was not refused before.
    pub(super) fn refused(&mut self, now: Time, kind: Kind) -> (Duration, bool) {
        let paused = self.0.entry(kind).or_insert(Paused {
            refusals: 0,
            until: now,
        });
        paused.refusals = paused.refusals.saturating_add(1);
        let length = pause(paused.refusals, fastrand::f64());
        paused.until = now + length;
        (length, paused.refusals == 1)
    }

    /// This one was answered. Returns whether it was refused before.
    pub(super) fn answered(&mut self, kind: Kind) -> bool {
        self.0.remove(&kind).is_some()
    }

    /// Whether this one is to be left alone for now.
    pub(super) fn pauses(&self, now: Time, kind: Kind) -> bool {
        self.0.get(&kind).is_some_and(|paused| now < paused.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_pauses_longer_with_every_refusal_until_it_is_answered() {
        let mut errands = Errands::default();
        let mut now = Time::ZERO;
        assert!(!errands.pauses(now, Kind::Due));
        for refusal in 0..20 {
            let (length, is_first) = errands.refused(now, Kind::Due);
            assert_eq!(is_first, refusal == 0);
            assert!(errands.pauses(now, Kind::Due) && !errands.pauses(now, Kind::Orphans));
            now += length;
            assert!(!errands.pauses(now, Kind::Due));
        }
        assert!(
            now > Time::from_secs(10) && now < Time::from_secs(40),
            "{now:?}"
        );
        assert!(errands.answered(Kind::Due) && !errands.answered(Kind::Due));
        assert!(errands.refused(now, Kind::Due).1);
    }
}
