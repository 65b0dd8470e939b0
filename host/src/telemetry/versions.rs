//! The versions of the handler on a host, and the last version that was refused. `/ready`,
//! `inspect` and `versions` show them.

use serde::{Deserialize, Serialize};

/// The versions of one host.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct VersionsSeen {
    /// The version that runs.
    pub current: VersionSeen,
    /// The version that ran before. It is kept for a rollback.
    pub previous: Option<VersionSeen>,
    /// The version on trial, which gets a share of the messages.
    pub canary: Option<CanarySeen>,
    /// The newest version that was refused or given up. It is cleared when a later version takes
    /// over.
    pub refused: Option<RefusedSeen>,
}

/// One version.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct VersionSeen {
    /// Its digest.
    pub digest: String,
    /// Its origin: `file`, or `deploy N`.
    pub origin: String,
}

/// A canary.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct CanarySeen {
    /// Its digest.
    pub digest: String,
    /// Its origin.
    pub origin: String,
    /// Its share of the messages, such as `10%`.
    pub share: String,
}

/// A version that was refused or rolled back.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct RefusedSeen {
    /// Its digest; empty if the component could not be read.
    pub digest: String,
    /// Its origin.
    pub origin: String,
    /// The step of its verification that refused it. `canary` and `breaker` = the trial or the
    /// breaker gave it up.
    pub step: String,
    /// The reason, for people.
    pub reason: String,
    /// The time, in epoch milliseconds.
    pub at_ms: u64,
}
