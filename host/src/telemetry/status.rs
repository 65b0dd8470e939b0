//! What a host is about, for people who look at it: the rules in force and where they come from, its
//! handler, and the faults of late. Written by the loop and by who keeps the rules, read by the admin
//! server.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::delivery::policy::truncate_utf8;

/// How many faults are kept.
const FAULTS_MAX: usize = 32;
/// The longest text of a fault, in bytes.
const DETAIL_MAX: usize = 256;

/// The status of one host. Cheap to clone; all clones are one.
#[derive(Clone, Debug, Default)]
pub struct Status(Arc<Mutex<Shown>>);

/// What there is to see.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Shown {
    /// What the host serves.
    pub queue: Option<Served>,
    /// The digest of the handler that runs.
    pub handler: Option<String>,
    /// The rules that may change under it: as they are in force.
    pub rules: Vec<Rule>,
    /// Why rules that it has read are not in force; `None` = they are.
    pub refused: Option<String>,
    /// The faults of late, newest first.
    pub faults: VecDeque<Fault>,
}

/// What a host serves.
#[derive(Clone, Debug, Serialize)]
pub struct Served {
    /// The key.
    pub key: String,
    /// The consumer group of a stream.
    pub group: Option<String>,
    /// The name of the host in the queue.
    pub consumer: String,
}

/// One setting in force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Rule {
    /// The key of the setting.
    pub setting: &'static str,
    /// Its value; `None` = nobody set it, and there is no default.
    pub value: Option<String>,
    /// Where it comes from.
    pub from: String,
}

/// A fault.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Fault {
    /// When, in epoch milliseconds.
    pub at_ms: u64,
    /// The message.
    pub id: String,
    /// What kind.
    pub kind: &'static str,
    /// Text for people: bounded, never a payload.
    pub detail: String,
    /// The handler that ran.
    pub handler: String,
}

impl Status {
    /// What this host serves.
    pub fn serves(&self, served: Served) {
        self.lock().queue = Some(served);
    }

    /// The handler that runs from now on.
    pub fn handler(&self, digest: &str) {
        self.lock().handler = Some(digest.to_owned());
    }

    /// The settings in force: key, value, and where it comes from.
    pub fn rules(&self, rules: impl Iterator<Item = (&'static str, Option<String>, String)>) {
        let rule = |(setting, value, from)| Rule {
            setting,
            value,
            from,
        };
        let rules = rules.map(rule).collect();
        self.lock().rules = rules;
    }

    /// Why rules that were read are not in force; `None` = they are.
    pub fn refused(&self, why: Option<String>) {
        self.lock().refused = why;
    }

    /// An attempt has faulted. The oldest fault is forgotten where there are too many.
    pub fn fault(&self, mut fault: Fault) {
        truncate_utf8(&mut fault.detail, DETAIL_MAX);
        truncate_utf8(&mut fault.id, DETAIL_MAX);
        let mut shown = self.lock();
        shown.faults.push_front(fault);
        shown.faults.truncate(FAULTS_MAX);
    }

    /// As it is now.
    pub fn shown(&self) -> Shown {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Shown> {
        // Nothing panics while it is held, and what it holds is valid at every moment anyway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_bounded_and_newest_first() {
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
