//! Decides which imports a handler may have. `imports` links them.
//!
//! A component that imports an interface without a grant is refused at load.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::delivery::effect::Outlets;

/// The operator's grants to a handler. None by default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// `config`: the values of `wasi:config`.
    pub config: Option<Values>,
    /// `publish`: the destinations of `publisher`.
    pub publish: Option<Outlets>,
}

/// Names and values. Values may be secrets: `Debug` shows only the names.
#[derive(Clone, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Values(pub(super) Arc<BTreeMap<String, String>>);

impl From<BTreeMap<String, String>> for Values {
    fn from(values: BTreeMap<String, String>) -> Self {
        Self::new(values)
    }
}

impl From<Values> for BTreeMap<String, String> {
    fn from(values: Values) -> Self {
        Arc::unwrap_or_clone(values.0)
    }
}

impl Values {
    /// These values, by name.
    pub fn new(values: BTreeMap<String, String>) -> Self {
        Self(Arc::new(values))
    }

    /// The names, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

/// One grant.
struct Grant {
    /// The name in the configuration.
    name: &'static str,
    /// The interfaces: with a version, or a whole package (`wasi:http`).
    interfaces: &'static [&'static str],
    is_given: fn(&Grants) -> bool,
    /// How to give it in the configuration file; `None` = this version of hostler does not have it.
    example: Option<&'static str>,
}

/// The interfaces of the grant `config`. Other versions have other types, and are refused.
pub(super) const CONFIG: &[&str] = &["wasi:config/store@0.2.0-rc.1"];

/// The grants of this version, and planned grants, so that a refusal can name them.
static GRANTS: [&Grant; 4] = [
    &Grant {
        name: "config",
        interfaces: CONFIG,
        is_given: |grants| grants.config.is_some(),
        example: Some("a table `[grant.config]` with lines such as `region = \"eu\"`"),
    },
    &Grant {
        name: "publish",
        interfaces: &["hostler:handler/publisher"],
        is_given: |grants| grants.publish.is_some(),
        example: Some(
            "a table `[grant.publish]` with lines such as `invoices = \"stream:invoices\"`",
        ),
    },
    &later("http", &["wasi:http"]),
    &later("key-value", &["wasi:keyvalue"]),
];

const fn later(name: &'static str, interfaces: &'static [&'static str]) -> Grant {
    Grant {
        name,
        interfaces,
        is_given: |_| false,
        example: None,
    }
}

impl Grant {
    fn covers(&self, import: &str) -> bool {
        self.interfaces.iter().any(|interface| {
            let rest = import.strip_prefix(interface);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '@']))
        })
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
    /// A planned grant, which this host does not have.
    LaterGrant(&'static str),
    /// This host does not have it.
    Unknown,
}

/// An interface that a component imports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Import {
    /// The full name, such as `wasi:clocks/wall-clock@0.2.6`.
    pub name: String,
    /// The requirement.
    pub need: Need,
}

impl Import {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            need: need(name),
        }
    }

    /// Whether its calls belong to one message: a batch cannot have it.
    pub(super) fn belongs_to_one_message(&self) -> bool {
        self.need == Need::Grant("publish")
    }

    /// Whether these grants allow the import.
    pub fn granted(&self, grants: &Grants) -> bool {
        match self.need {
            Need::Nothing | Need::Inert => true,
            Need::Grant(name) => GRANTS
                .iter()
                .any(|grant| grant.name == name && (grant.is_given)(grants)),
            Need::LaterGrant(_) | Need::Unknown => false,
        }
    }
}

/// What to do about imports that are not granted.
pub(super) fn remedy(imports: &[Import]) -> String {
    let example = |import: &Import| match import.need {
        Need::Grant(name) => GRANTS.iter().find(|grant| grant.name == name)?.example,
        Need::Nothing | Need::Inert | Need::LaterGrant(_) | Need::Unknown => None,
    };
    let examples: Option<BTreeSet<&str>> = imports.iter().map(example).collect();
    match examples {
        Some(examples) => {
            let examples: Vec<&str> = examples.into_iter().collect();
            let examples = examples.join(" and ");
            format!("grant it in the configuration file: {examples}")
        }
        None => "build it without the imports that this host does not have".to_owned(),
    }
}

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.need {
            Need::Nothing | Need::Inert => write!(f, "{}", self.name),
            Need::Grant(grant) => write!(f, "{} (needs the grant `{grant}`)", self.name),
            Need::LaterGrant(grant) => write!(
                f,
                "{} (needs the grant `{grant}`, which this version of hostler does not have)",
                self.name
            ),
            Need::Unknown => write!(f, "{} (this host does not have it)", self.name),
        }
    }
}

/// The interface that makes the host panic, without version; only in test builds.
#[cfg(feature = "fault-points")]
pub(super) const FAULT_POINT: &str = "hostler:fault-points/host";

/// The requirement for an import. As in the linker, compatible versions (`@1.x`, `@0.2.x`) are one
/// interface.
fn need(name: &str) -> Need {
    if let Some(grant) = GRANTS.iter().find(|grant| grant.covers(name)) {
        return if grant.example.is_some() {
            Need::Grant(grant.name)
        } else {
            Need::LaterGrant(grant.name)
        };
    }
    let Some((interface, version)) = name.split_once('@') else {
        return Need::Unknown;
    };
    match interface {
        "hostler:handler/types" | "hostler:handler/delivery" if version.starts_with("1.") => {
            Need::Nothing
        }
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
