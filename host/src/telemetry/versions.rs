//! Which versions of the handler a host runs, and what became of the last one that was refused:
//! for `/ready`, `inspect` and `versions`.

use serde::{Deserialize, Serialize};

/// The versions of one host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct VersionsSeen {
    /// What runs.
    pub current: VersionSeen,
    /// What ran before, and is kept for going back.
    pub previous: Option<VersionSeen>,
    /// What a share of the messages gets.
    pub canary: Option<CanarySeen>,
    /// The newest version that was refused, or given up, unless a later one was taken.
    pub refused: Option<RefusedSeen>,
}

/// One version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct VersionSeen {
    /// Its digest.
    pub digest: String,
    /// Where it came from: `file`, or `deploy N`.
    pub origin: String,
}

/// A version on trial.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CanarySeen {
    /// Its digest.
    pub digest: String,
    /// Where it came from.
    pub origin: String,
    /// The share of messages that it gets, such as `10%`.
    pub share: String,
}

/// A version that was refused, or given up.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RefusedSeen {
    /// Its digest; empty if nothing could be read.
    pub digest: String,
    /// Where it came from.
    pub origin: String,
    /// At which step of its verification; `canary` or `breaker` = it was given up by that.
    pub step: String,
    /// Why, for people.
    pub reason: String,
    /// When, in epoch milliseconds.
    pub at_ms: u64,
}
