//! Decides which imports a handler may have. `imports` links them.
//!
//! A component that imports an interface without a grant is refused at load.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use hostler_components::program::{EXIT, MEMORY};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize, Serializer};

use super::outside::{Offers, Outside};
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
    /// What the handler may do outside the sandbox.
    pub outside: Option<Outside>,
    /// `files`: directories that the handler may read.
    pub files: Vec<Directory>,
}

/// A directory of the host that a handler may read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Directory {
    /// Where it is on the host.
    pub path: PathBuf,
    /// Where the handler finds it.
    pub at: String,
}

impl Grants {
    /// The interfaces that are granted outside the sandbox.
    pub fn offers(&self) -> Offers {
        let outside = self.outside.as_ref();
        outside
            .map(|outside| outside.0.offers())
            .unwrap_or_default()
    }
}

/// Names and values. Values may be secrets: `Debug` shows only the names.
/// Clones share them: they can change while handlers run.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Values(Arc<RwLock<Arc<BTreeMap<String, String>>>>);

impl From<BTreeMap<String, String>> for Values {
    fn from(values: BTreeMap<String, String>) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(values))))
    }
}

impl From<Values> for BTreeMap<String, String> {
    fn from(values: Values) -> Self {
        Arc::unwrap_or_clone(values.now())
    }
}

impl Values {
    /// The names, in order.
    pub fn names(&self) -> Vec<String> {
        self.now().keys().cloned().collect()
    }

    /// The present values.
    pub(super) fn now(&self) -> Arc<BTreeMap<String, String>> {
        Arc::clone(&self.0.read())
    }

    /// Give all clones the values of another one.
    pub fn adopt(&self, other: &Self) {
        let values = other.now();
        *self.0.write() = values;
    }
}

impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        self.now() == other.now()
    }
}

impl Eq for Values {}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// One grant.
struct Grant {
    /// The name in the configuration.
    name: &'static str,
    /// The interfaces, each with the versions that it may have, or their beginnings.
    interfaces: &'static [(&'static str, &'static [&'static str])],
    is_given: fn(&Grants) -> bool,
    /// What gives it, in a queue's file.
    toml: &'static str,
}

/// `wasi:config/store`, which has the same shape in these versions. Others are refused.
pub(super) const CONFIG: [&str; 3] = ["0.2.0-rc.1", "0.2.0-draft-2024-09-27", "0.2.0-draft"];

/// The effects of handlers of batches, whose calls name a message.
pub(super) const BATCH_EFFECTS: &str = "hostler:handler/batch-effects";

/// `wasi:keyvalue`: that of wasmCloud, and that of Spin. Others are refused.
pub(super) const KEYVALUE: [&str; 2] = ["0.2.0-draft", "0.2.0-draft2"];

/// What handlers of Spin import beside the standard interfaces.
pub(super) const SPIN_VARIABLES: &str = "fermyon:spin/variables";
pub(super) const SPIN_KEY_VALUE: &str = "fermyon:spin/key-value";
pub(super) const SPIN_VERSION: &str = "2.0.0";

/// What handlers of wasmCloud publish with.
pub(super) const WASMCLOUD_CONSUMER: &str = "wasmcloud:messaging/consumer";
pub(super) const WASMCLOUD_VERSION: &str = "0.2.0";

/// A function of an interface that this host has without it: a handler does not wait for an answer of others.
pub(super) const WITHOUT: [(&str, &str); 1] = [(WASMCLOUD_CONSUMER, "request")];

/// The grants of this version.
static GRANTS: [&Grant; 6] = [
    &Grant {
        name: "config",
        interfaces: &[
            ("wasi:config/store", &CONFIG),
            (SPIN_VARIABLES, &[SPIN_VERSION]),
        ],
        is_given: |grants| grants.config.is_some(),
        toml: "[grant.config]\nname = \"value\"",
    },
    &Grant {
        name: "http",
        interfaces: &[
            ("hostler:handler/http", &["1."]),
            ("wasi:http/types", &["0.2."]),
            ("wasi:http/outgoing-handler", &["0.2."]),
        ],
        is_given: |grants| grants.offers().http,
        toml: "[[grant.http]]\nhost = \"api.example.com\"\nmethods = [\"GET\", \"POST\"]",
    },
    &Grant {
        name: "secret",
        interfaces: &[("hostler:handler/secrets", &["1."])],
        is_given: |grants| grants.offers().secrets,
        toml: "[grant.secret]\nname = { file = \"/run/secrets/name\", expose = true }",
    },
    &Grant {
        name: "publish",
        interfaces: &[
            ("hostler:handler/publisher", &["1."]),
            (WASMCLOUD_CONSUMER, &[WASMCLOUD_VERSION]),
        ],
        is_given: |grants| grants.publish.is_some(),
        toml: "[grant.publish]\nname = \"stream:key\"",
    },
    &Grant {
        name: KEY_VALUE,
        interfaces: &[
            ("hostler:handler/key-value", &["1."]),
            ("wasi:keyvalue/store", &KEYVALUE),
            ("wasi:keyvalue/atomics", &KEYVALUE),
            ("wasi:keyvalue/batch", &KEYVALUE),
            (SPIN_KEY_VALUE, &[SPIN_VERSION]),
        ],
        is_given: |grants| grants.key_value.is_some(),
        toml: "[grant.key-value]\nprefix = \"{orders}:kv:\"",
    },
    // A call whose own grant is missing is an error.
    &Grant {
        name: "publish or key-value",
        interfaces: &[(BATCH_EFFECTS, &["1."])],
        is_given: |grants| grants.publish.is_some() || grants.key_value.is_some(),
        toml: "[grant.publish]\nname = \"stream:key\"\n\n[grant.key-value]\nprefix = \"{orders}:kv:\"",
    },
];

/// The grant of keys.
const KEY_VALUE: &str = "key-value";

impl Grant {
    fn covers(&self, import: &str) -> bool {
        let (interface, version) = import.split_once('@').unwrap_or((import, ""));
        let serves = |begin: &&str| match begin.ends_with('.') {
            true => version.starts_with(*begin),
            false => version == *begin,
        };
        let mut interfaces = self.interfaces.iter();
        interfaces.any(|(known, versions)| *known == interface && versions.iter().any(serves))
    }
}

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
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            need: need(name),
        }
    }

    /// Whether its calls belong to one message without naming it: a batch cannot have it.
    pub(super) fn belongs_to_one_message(&self) -> bool {
        self.need == Need::Grant("publish") || self.need == Need::Grant(KEY_VALUE)
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

/// Log events with a level. Like stdout, every handler has it.
pub(super) const LOGGING: &str = "wasi:logging/logging";
pub(super) const LOGGING_VERSION: &str = "0.1.0-draft";

/// The interface that makes the host panic, without version; only in test builds.
#[cfg(feature = "fault-points")]
pub(super) const FAULT_POINT: &str = "hostler:fault-points/host";

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
        "hostler:handler/types" | "hostler:handler/delivery" if version.starts_with("1.") => {
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
