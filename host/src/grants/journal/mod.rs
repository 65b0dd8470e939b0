//! The journal: a later attempt at a message gets the answers that an earlier one has had.
//!
//! - `link`: the interface of hostler; `remembered`: what it asks for. [`memory`]: a journal without a server.
//! - [`rules`]: what the operator writes. [`provider`]: where the records of one message are. [`session`]: the journal during one attempt.

pub(super) mod link;
pub mod memory;
pub mod provider;
pub(crate) mod remembered;
pub mod rules;
pub mod session;

use super::grant::Grant;

/// The grant.
pub(super) static GRANT: Grant = Grant {
    name: "journal",
    interfaces: &[("hostler:handler/journal", &["1."])],
    is_given: |grants| grants.journal.is_some(),
    toml: "[grant.journal]",
};
