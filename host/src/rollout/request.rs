//! What asks for another version of the handler.

use std::sync::Arc;

use crate::rollout::verify::Step;
use crate::rollout::versions::{Origin, Version};

/// Another version is asked for: by the handler's file, or by a deploy.
#[derive(Debug)]
pub enum VersionRequest {
    /// A component.
    Component {
        /// Where it comes from.
        origin: Origin,
        /// Its bytes.
        bytes: Vec<u8>,
        /// Whether it may be tried with a share of the messages first.
        trial: bool,
    },
    /// A version that needs no verification: it runs, has run before, or is the canary, or was one
    /// of them a moment ago.
    AtHand {
        /// The version, and where it comes from now.
        version: Version,
        /// As above.
        trial: bool,
    },
    /// A version that cannot be verified: it is refused.
    Unusable {
        /// Where.
        origin: Origin,
        /// Its digest; empty = not known.
        digest: Arc<str>,
        /// At which step it is refused: it cannot be read, or is too large.
        step: Step,
        /// Why, for people.
        reason: String,
    },
    /// The deploy is withdrawn: a host that runs it goes back to the version before, and a host that
    /// tries it as a canary drops it. Other hosts change nothing.
    Withdraw,
    /// The canary from the file takes over, if there is one.
    PromoteFile,
    /// The file can be read again, and has not changed. Not a version request: it clears an earlier
    /// read error.
    Readable,
}

/// How the handler's file is taken when a host is asked to look at it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reload {
    /// As any new version: with a share first, where versions are tried.
    Trial,
    /// By all messages at once: what runs is no longer wanted.
    Whole,
}
