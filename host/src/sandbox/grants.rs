//! Which imports a handler may have: the one place that decides.

use std::fmt;

/// What an operator grants beyond what every handler has. Nothing, by default.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Grants {}

/// What it takes to import an interface.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Need {
    /// Every handler has it.
    Nothing,
    /// Every handler has it, but there is nothing behind it: no directory, no variable, no network.
    Inert,
    /// The operator has to grant it, by this name.
    Grant(&'static str),
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
    pub fn granted(&self, _grants: &Grants) -> bool {
        match self.need {
            Need::Nothing | Need::Inert => true,
            Need::Grant(_) | Need::Unknown => false,
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

/// What it takes to import an interface. Versions count as the linker counts them: compatible
/// versions (`@1.x`, `@0.2.x`) are one interface.
fn need(name: &str) -> Need {
    let Some((interface, version)) = name.split_once('@') else {
        return Need::Unknown;
    };
    match interface {
        "hostler:handler/types" | "hostler:handler/delivery" if version.starts_with("1.") => {
            Need::Nothing
        }
        "hostler:handler/publisher" if version.starts_with("1.") => Need::Grant("publisher"),
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
        Some(("wasi:config", _)) => Need::Grant("config"),
        Some(("wasi:http", _)) => Need::Grant("http"),
        Some(("wasi:keyvalue", _)) => Need::Grant("key-value"),
        _ => Need::Unknown,
    }
}
