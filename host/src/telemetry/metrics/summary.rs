//! The counts of a host in one line.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Counter, Metrics};
use crate::delivery::outcome::FaultKind;
use crate::delivery::policy::Reason;

/// The counts of a host from its start to its exit: the one line of `--summary json`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// Attempts that ended, faults included.
    pub attempts: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Deliveries requeued.
    pub requeued: u64,
    /// Messages discarded.
    pub discarded: u64,
    /// Messages dead-lettered, by reason; reasons that did not occur are left out.
    pub dead_lettered: BTreeMap<&'static str, u64>,
    /// Faults by kind; kinds that did not occur are left out.
    pub faults: BTreeMap<&'static str, u64>,
    /// Orphans claimed.
    pub orphans_recovered: u64,
    /// New versions of the handler that took over.
    pub swaps: u64,
}

impl Metrics {
    /// The counts, in the format of `--summary json`.
    pub fn summary(&self) -> Summary {
        let faults = labelled(FaultKind::ALL.map(FaultKind::label), &self.faults);
        let answered = self.acks.get() + self.nacks.get() + self.drops.get();
        Summary {
            attempts: answered + faults.values().sum::<u64>(),
            acked: self.acknowledged.get(),
            requeued: self.requeued.get(),
            discarded: self.discarded.iter().map(Counter::get).sum(),
            dead_lettered: labelled(Reason::ALL.map(Reason::label), &self.dead_lettered),
            faults,
            orphans_recovered: self.orphans_recovered.get(),
            swaps: self.swaps.taken.get(),
        }
    }
}

fn labelled<const N: usize>(
    labels: [&'static str; N],
    counters: &[Counter; N],
) -> BTreeMap<&'static str, u64> {
    let counts = labels.into_iter().zip(counters.iter().map(Counter::get));
    counts.filter(|(_, count)| *count > 0).collect()
}
