//! The addresses of names, and those of them that a rule allows.

use std::net::{IpAddr, SocketAddr};

use super::reach::{HostPattern, Reach, address_of};
use crate::delivery::text::{printable, truncated};
use crate::redis::names::Names;

/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// The end of the text of a denied address.
pub(in crate::grants) const NOT_ALLOWED: &str = "is not an address that the rule allows";

/// The longest text of an error of the network.
const DETAIL_MAX: usize = 256;

/// Why a host has no address for a guest.
#[derive(Clone, Debug)]
pub(in crate::grants) enum Unreachable {
    /// DNS has none.
    Dns(String),
    /// The rule allows none.
    Denied(String),
}

/// The most questions for names that are under way, of one rule and of all. A rule names many (`*.example.com`), and
/// a guest chooses among them: those of one rule must not keep another one waiting.
const QUESTIONS_OF_A_RULE: usize = 8;
const QUESTIONS: usize = 128;

/// Names of the system.
pub(in crate::grants) fn of_system() -> Names {
    Names::system(QUESTIONS_OF_A_RULE)
}

/// Names for one rule of `rules`.
pub(in crate::grants) fn of_a_rule(names: &Names, rules: usize) -> Names {
    names.with_seats((QUESTIONS / rules.max(1)).clamp(1, QUESTIONS_OF_A_RULE))
}

pub(in crate::grants) fn bounded(text: &str) -> String {
    printable(truncated(text, DETAIL_MAX))
}

/// The address of a host that needs no question: the rule names it, or the host is one.
pub(in crate::grants) fn known_address(reach: &Reach, host: &url::Host<String>) -> Option<IpAddr> {
    reach.address.or_else(|| address_of(host))
}

/// The addresses of a host, as DNS answers.
pub(in crate::grants) async fn ask(
    names: &Names,
    host: &url::Host<String>,
) -> Result<Vec<IpAddr>, Unreachable> {
    let dns = |text: String| Unreachable::Dns(bounded(&text));
    let found = names.addresses(&host.to_string()).await;
    let found = found.map_err(|error| dns(format!("`{host}` cannot be resolved: {error}")))?;
    match found.is_empty() {
        true => Err(dns(format!("`{host}` has no address"))),
        false => Ok(found.iter().map(SocketAddr::ip).collect()),
    }
}

/// Those of the addresses of a host that a rule allows.
pub(in crate::grants) fn allowed(
    found: &[IpAddr],
    pattern: &HostPattern,
    reach: &Reach,
) -> Result<Vec<IpAddr>, Unreachable> {
    let is_allowed = |address: &IpAddr| reach.allows(pattern, *address);
    let allowed = found.iter().copied().filter(is_allowed);
    let allowed: Vec<IpAddr> = allowed.take(ADDRESSES_MAX).collect();
    match (allowed.is_empty(), found.first()) {
        (true, Some(first)) => Err(Unreachable::Denied(format!("{first} {NOT_ALLOWED}"))),
        (_, _) => Ok(allowed),
    }
}
