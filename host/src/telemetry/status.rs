//! The status of a host for people: the active rules and their origin, the handler, and recent
//! faults. The loop and the config watcher write it; the admin server reads it.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::delivery::text::truncate_utf8;
use crate::telemetry::limited::LimitShown;

/// The number of faults that are kept.
const FAULTS_MAX: usize = 32;
/// The longest text of a fault, in bytes.
const DETAIL_MAX: usize = 512;

/// The status of one host. It is cheap to clone, and all clones share one state.
#[derive(Clone, Debug, Default)]
pub struct Status(Arc<Mutex<Shown>>);

/// The content of a status.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Shown {
    /// The queue that the host serves.
    pub queue: Option<Served>,
    /// The digest of the handler that runs.
    pub handler: Option<String>,
    /// The active rules. They may change while the host runs.
    pub rules: Vec<ActiveRule>,
    /// The active limits of starts.
    pub limits: Vec<LimitShown>,
    /// Why the rules that the host has read are not active; `None` = they are active.
    pub refused: Option<String>,
    /// The queue is paused on this host.
    pub paused: bool,
    /// Recent faults, newest first.
    pub faults: VecDeque<Fault>,
}

impl Shown {
    /// Whether the rules are other ones, or are refused for another reason, or the queue is paused or resumed.
    pub fn is_other_than(&self, other: &Self) -> bool {
        self.rules != other.rules || self.refused != other.refused || self.paused != other.paused
    }
}

/// The queue that a host serves.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// The key.
    pub key: String,
    /// The consumer group of a stream.
    pub group: Option<String>,
    /// The name of the host in the queue.
    pub consumer: String,
}

/// One active setting.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct ActiveRule {
    /// The key of the setting.
    pub setting: String,
    /// Its value; `None` = it is not set and has no default.
    pub value: Option<String>,
    /// Its origin.
    pub from: String,
}

/// A fault.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// The time, in epoch milliseconds.
    pub at_ms: u64,
    /// The message.
    pub id: String,
    /// The kind.
    pub kind: &'static str,
    /// Text for people: bounded. It may quote what the guest wrote to stderr.
    pub detail: String,
    /// The handler that ran.
    pub handler: String,
}

impl Status {
    /// Set the queue that this host serves.
    pub fn serves(&self, served: Served) {
        self.0.lock().queue = Some(served);
    }

    /// Set the handler that runs from now on.
    pub fn handler(&self, digest: &str) {
        self.0.lock().handler = Some(digest.to_owned());
    }

    /// Set the active settings: key, value and origin.
    pub fn rules(&self, rules: impl Iterator<Item = (&'static str, Option<String>, String)>) {
        let rule = |(setting, value, from): (&str, _, _)| ActiveRule {
            setting: setting.to_owned(),
            value,
            from,
        };
        let rules = rules.map(rule).collect();
        self.0.lock().rules = rules;
    }

    /// Set the active limits of starts.
    pub fn limits(&self, limits: Vec<LimitShown>) {
        self.0.lock().limits = limits;
    }

    /// Set why the rules that were read are not active; `None` = they are active.
    pub fn refused(&self, why: Option<String>) {
        self.0.lock().refused = why;
    }

    /// Set whether the queue is paused.
    pub fn paused(&self, paused: bool) {
        self.0.lock().paused = paused;
    }

    /// Add the fault of an attempt. If there are too many faults, the oldest one is dropped.
    pub fn fault(&self, mut fault: Fault) {
        truncate_utf8(&mut fault.detail, DETAIL_MAX);
        truncate_utf8(&mut fault.id, DETAIL_MAX);
        let mut shown = self.0.lock();
        shown.faults.push_front(fault);
        shown.faults.truncate(FAULTS_MAX);
    }

    /// The present status.
    pub fn shown(&self) -> Shown {
        self.0.lock().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_faults_are_kept_newest_first() {
        let status = Status::default();
        for n in 0..100 {
            status.fault(Fault {
                at_ms: n,
                id: n.to_string(),
                kind: "trap",
                detail: "é".repeat(1000),
                handler: "sha256:abc".to_owned(),
            });
        }
        let shown = status.shown();
        assert_eq!(shown.faults.len(), FAULTS_MAX);
        assert_eq!(shown.faults[0].at_ms, 99);
        assert!(shown.faults.iter().all(|f| f.detail.len() <= DETAIL_MAX));
    }
}
