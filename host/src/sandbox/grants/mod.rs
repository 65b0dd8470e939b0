//! Which imports a handler may have: the one place that decides. Each grant has a file of its own.
//!
//! What is not granted is not even linked: a component that imports it is refused at its load, by
//! name, and could not be instantiated if it were not.

mod config;

use std::fmt;

use wasmtime::component::Linker;

use super::host::Host;

pub use config::Values;

/// What an operator grants beyond what every handler has. Nothing, by default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {
    /// `config`: the values of `wasi:config`.
    pub config: Option<Values>,
}

type Link = fn(&mut Linker<Host>) -> wasmtime::Result<()>;

/// One grant.
struct Grant {
    /// What operators call it.
    name: &'static str,
    /// The interfaces it is about: with their versions, or whole packages (`wasi:http`).
    interfaces: &'static [&'static str],
    is_given: fn(&Grants) -> bool,
    /// What is behind them; `None` = this version of hostler has nothing there.
    link: Option<Link>,
}

/// Every grant there is, and those that are still to come: what needs one is told by its name.
static GRANTS: [&Grant; 4] = [
    &config::GRANT,
    &later("publisher", &["hostler:handler/publisher"]),
    &later("http", &["wasi:http"]),
    &later("key-value", &["wasi:keyvalue"]),
];

const fn later(name: &'static str, interfaces: &'static [&'static str]) -> Grant {
    Grant {
        name,
        interfaces,
        is_given: |_| false,
        link: None,
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

impl Grants {
    /// Link what is granted, and nothing else.
    pub(super) fn link(&self, linker: &mut Linker<Host>) -> wasmtime::Result<()> {
        for grant in GRANTS {
            if let (true, Some(link)) = ((grant.is_given)(self), grant.link) {
                link(linker)?;
            }
        }
        Ok(())
    }
}

/// What it takes to import an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Need {
    /// Every handler has it.
    Nothing,
    /// Every handler has it, but there is nothing behind it: no directory, no variable, no network.
    Inert,
    /// The operator has to grant it, by this name.
    Grant(&'static str),
    /// There will be a grant of this name, but this host does not have it.
    LaterGrant(&'static str),
    /// This host does not have it.
    Unknown,
}

/// An interface that a component imports, and what that takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Import {
    /// Its full name, such as `wasi:clocks/wall-clock@0.2.6`.
    pub name: String,
    /// What it takes to import it.
    pub need: Need,
}

impl Import {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            need: need(name),
        }
    }

    /// Whether these grants satisfy it.
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

impl fmt::Display for Import {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.need {
            Need::Nothing | Need::Inert => write!(f, "{}", self.name),
            Need::Grant(grant) => write!(f, "{} (needs the grant `{grant}`)", self.name),
            Need::LaterGrant(grant) => write!(
                f,
                "{} (needs the grant `{grant}`, which this host does not have)",
                self.name
            ),
            Need::Unknown => write!(f, "{} (this host does not have it)", self.name),
        }
    }
}

/// What it takes to import an interface. Versions count as the linker counts them: compatible
/// versions (`@1.x`, `@0.2.x`) are one interface.
fn need(name: &str) -> Need {
    if let Some(grant) = GRANTS.iter().find(|grant| grant.covers(name)) {
        return match grant.link {
            Some(_) => Need::Grant(grant.name),
            None => Need::LaterGrant(grant.name),
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
        super::fault_point::INTERFACE => Need::Nothing,
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
