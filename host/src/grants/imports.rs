//! Decides which imports a handler may have. `link` links them.
//!
//! A component that imports an interface without a grant is refused at load.

use std::fmt;

use hostler_components::program::{EXIT, MEMORY};
use serde::{Serialize, Serializer};

use super::grant::{Grant, Grants};
use super::key_value::KEY_VALUE;
use super::publish::WASMCLOUD_CONSUMER;
use super::{configuration, http, journal, key_value, publish, secrets};

/// The grants of this version that give interfaces.
static GRANTS: [&Grant; 7] = [
    &configuration::GRANT,
    &http::GRANT,
    &secrets::GRANT,
    &publish::GRANT,
    &key_value::GRANT,
    &journal::GRANT,
    &OF_BATCHES,
];

/// The effects of handlers of batches, whose calls name a message.
pub(super) const BATCH_EFFECTS: &str = "hostler:handler/batch-effects";

/// A call whose own grant is missing is an error.
static OF_BATCHES: Grant = Grant {
    name: "publish or key-value",
    interfaces: &[(BATCH_EFFECTS, &["1."])],
    is_given: |grants| grants.publish.is_some() || grants.key_value.is_some(),
    toml: "[grant.publish]\nname = \"stream:key\"\n\n[grant.key-value]\nprefix = \"{orders}:kv:\"",
};

/// A function of an interface that this host has without it: a handler does not wait for an answer of others.
pub(crate) const WITHOUT: [(&str, &str); 1] = [(WASMCLOUD_CONSUMER, "request")];

/// The requirement for an import.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Need {
    /// Every handler has it.
    Nothing,
    /// Every handler has it, without content: no directory, no variable, no network.
    Inert,
    /// The operator must give the grant with this name.
    Grant(&'static str),
    /// This host does not have it.
    Unknown,
}

/// An interface that a component imports.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Import {
    /// The full name, such as `wasi:clocks/wall-clock@0.2.6`.
    pub name: String,
    /// The requirement.
    #[serde(flatten, serialize_with = "needs")]
    pub need: Need,
}

/// A requirement in JSON: `needs` is `nothing`, `inert`, `grant` (it is given) or `unknown`.
fn needs<S: Serializer>(need: &Need, serializer: S) -> Result<S::Ok, S::Error> {
    let (needs, grant) = match need {
        Need::Nothing => ("nothing", None),
        Need::Inert => ("inert", None),
        Need::Grant(grant) => ("grant", Some(*grant)),
        Need::Unknown => ("unknown", None),
    };
    serializer.collect_map([("needs", Some(needs)), ("grant", grant)])
}

impl Import {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            need: need(name),
        }
    }

    /// Whether its calls belong to one message without naming it: a batch cannot have it.
    pub(crate) fn belongs_to_one_message(&self) -> bool {
        let is_granted = ["publish", KEY_VALUE, "journal"]
            .map(Need::Grant)
            .contains(&self.need);
        is_granted || self.is(FLOW) || self.is(REPLY)
    }

    /// Whether its calls hold messages or answer to producers: a queue at most once does neither.
    pub(crate) fn needs_keeping(&self) -> bool {
        [FLOW, BATCH_FLOW, REPLY, BATCH_REPLY]
            .iter()
            .any(|name| self.is(name))
    }

    /// Whether it is this interface, in some version.
    fn is(&self, interface: &str) -> bool {
        self.name.split('@').next() == Some(interface)
    }

    /// Whether it belongs to the network: the grant `tcp` opens it.
    pub fn is_socket(&self) -> bool {
        self.name.starts_with("wasi:sockets/")
    }

    /// Whether it belongs to files: the grant `files` fills it.
    pub fn is_file(&self) -> bool {
        self.name.starts_with("wasi:filesystem/")
    }

    /// What gives the grant that the import needs, in a queue's file.
    pub fn toml(&self) -> Option<&'static str> {
        self.grant().map(|grant| grant.toml)
    }

    fn grant(&self) -> Option<&'static Grant> {
        let Need::Grant(name) = self.need else {
            return None;
        };
        GRANTS.into_iter().find(|grant| grant.name == name)
    }

    /// Whether these grants allow the import.
    pub fn granted(&self, grants: &Grants) -> bool {
        match self.need {
            Need::Nothing | Need::Inert => true,
            Need::Grant(_) => self.grant().is_some_and(|grant| (grant.is_given)(grants)),
            Need::Unknown => false,
        }
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.need {
            Need::Nothing | Need::Inert => write!(f, "{}", self.name),
            Need::Grant(grant) => write!(f, "{} (needs the grant `{grant}`)", self.name),
            Need::Unknown => write!(f, "{} (this host does not have it)", self.name),
        }
    }
}

/// Holds of messages, and those of handlers of batches, whose calls name a message.
pub(crate) const FLOW: &str = "hostler:handler/flow";
pub(crate) const BATCH_FLOW: &str = "hostler:handler/batch-flow";
/// Answers to producers that wait, and those of handlers of batches.
pub(crate) const REPLY: &str = "hostler:handler/reply";
pub(crate) const BATCH_REPLY: &str = "hostler:handler/batch-reply";

/// Log events with a level. Like stdout, every handler has it.
pub(crate) const LOGGING: &str = "wasi:logging/logging";
pub(crate) const LOGGING_VERSION: &str = "0.1.0-draft";

/// The interface that makes the host panic, without version; only in test builds.
#[cfg(feature = "fault-points")]
pub(crate) const FAULT_POINT: &str = "hostler:fault-points/host";

/// Types of other hosts: an interface without functions.
const FOREIGN_TYPES: [(&str, &str); 3] = [
    ("fermyon:spin/redis-types", ""),
    ("fermyon:spin-sqs/sqs-types", "2."),
    ("wasmcloud:messaging/types", "0.2."),
];

/// The requirement for an import. As in the linker, compatible versions (`@1.x`, `@0.2.x`) are one
/// interface.
fn need(name: &str) -> Need {
    if let Some(grant) = GRANTS.iter().find(|grant| grant.covers(name)) {
        return Need::Grant(grant.name);
    }
    let (interface, version) = name.split_once('@').unwrap_or((name, ""));
    match interface {
        _ if FOREIGN_TYPES
            .iter()
            .any(|(known, begin)| *known == interface && version.starts_with(begin)) =>
        {
            Need::Nothing
        }
        "hostler:handler/types"
        | "hostler:handler/delivery"
        | FLOW
        | BATCH_FLOW
        | REPLY
        | BATCH_REPLY
            if version.starts_with("1.") =>
        {
            Need::Nothing
        }
        LOGGING if version == LOGGING_VERSION => Need::Nothing,
        EXIT | MEMORY if version.starts_with("1.") => Need::Nothing,
        #[cfg(feature = "fault-points")]
        FAULT_POINT => Need::Nothing,
        _ if version.starts_with("0.2.") => need_wasi(interface),
        _ => Need::Unknown,
    }
}

fn need_wasi(interface: &str) -> Need {
    match interface.split_once('/') {
        Some(("wasi:cli", "environment" | "stdin")) => Need::Inert,
        Some(("wasi:filesystem" | "wasi:sockets", _)) => Need::Inert,
        Some(("wasi:cli" | "wasi:clocks" | "wasi:io" | "wasi:random", _)) => Need::Nothing,
        _ => Need::Unknown,
    }
}
