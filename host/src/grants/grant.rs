//! A grant: what it is called, which interfaces it gives, and whether a handler has it.

use super::configuration::rules::Values;
use super::files::rules::Directory;
use super::journal::rules::JournalGrant;
use super::provided::Provided;
use crate::delivery::effect::Outlets;
use crate::delivery::key_value::KeyRules;

/// The operator's grants to a handler. None by default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// `config`: the values of `wasi:config`.
    pub config: Option<Values>,
    /// `publish`: the destinations of `publisher`.
    pub publish: Option<Outlets>,
    /// `key-value`: the keys of `key-value`.
    pub key_value: Option<KeyRules>,
    /// `journal`: the handler may remember values.
    pub journal: Option<JournalGrant>,
    /// `files`: directories that the handler may read.
    pub files: Vec<Directory>,
    /// What the handler may do outside the sandbox.
    pub provided: Provided,
}

impl Grants {
    /// Whether an attempt does anything outside the sandbox.
    pub(crate) fn has_scope(&self) -> bool {
        !self.provided.is_empty() || self.journal.is_some()
    }

    /// Whether an attempt makes calls that are noted.
    pub(crate) fn has_calls(&self) -> bool {
        !self.provided.is_empty() || self.publish.is_some()
    }
}

/// One grant.
pub(super) struct Grant {
    /// The name in the configuration.
    pub(super) name: &'static str,
    /// The interfaces, each with the versions that it may have, or their beginnings.
    pub(super) interfaces: &'static [(&'static str, &'static [&'static str])],
    pub(super) is_given: fn(&Grants) -> bool,
    /// What gives it, in a queue's file.
    pub(super) toml: &'static str,
}

impl Grant {
    pub(super) fn covers(&self, import: &str) -> bool {
        let (interface, version) = import.split_once('@').unwrap_or((import, ""));
        let serves = |begin: &&str| match begin.ends_with('.') {
            true => version.starts_with(*begin),
            false => version == *begin,
        };
        let mut interfaces = self.interfaces.iter();
        interfaces.any(|(known, versions)| *known == interface && versions.iter().any(serves))
    }
}
