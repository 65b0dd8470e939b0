//! Requests for another version of the handler.

use std::sync::Arc;

use crate::rollout::verify::Step;
use crate::rollout::versions::{Origin, Version};

/// A request for another version, from the handler's file or from a deploy.
#[derive(Debug)]
pub enum VersionRequest {
    /// A component.
    Component {
        /// The source.
        origin: Origin,
        /// The bytes.
        bytes: Vec<u8>,
        /// Whether the version may be tried as a canary first.
        trial: bool,
    },
    /// A version that needs no verification: it is the current, the previous or the canary, or was one
    /// of them a moment ago.
    Loaded {
        /// The version, with its new source.
        version: Version,
        /// Whether the version may be tried as a canary first.
        trial: bool,
    },
    /// A version that cannot be verified and is refused.
    Unusable {
        /// The source.
        origin: Origin,
        /// The digest; empty = unknown.
        digest: Arc<str>,
        /// The step that refuses it: the version cannot be read, or is too large.
        step: Step,
        /// The reason, for people.
        reason: String,
    },
    /// The deploy is withdrawn: a host that runs it goes back to the version before, and a host that
    /// tries it as a canary drops it. Other hosts change nothing.
    Withdraw,
    /// Promote the canary that came from the file, if there is one.
    PromoteFile,
    /// The file can be read again, and has not changed. Not a version request: it clears an earlier
    /// read error.
    Readable,
}

/// How to take the version in the handler's file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reload {
    /// As any new version: as a canary first, if canaries are configured.
    Trial,
    /// For all messages at once, because the current version was withdrawn.
    Whole,
}
