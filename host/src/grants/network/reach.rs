//! Which servers a rule names, and which addresses they may have.

use std::net::IpAddr;

use url::Host;

use super::address::{Network, is_public};
use crate::values::table::{List, Table, texts};

/// One host, or all below a domain.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HostPattern {
    /// This one.
    Exact(Host),
    /// `*.example.com`: every name that ends in `.example.com`.
    Below(String),
}

impl HostPattern {
    /// Read a host or a pattern.
    pub fn parse(text: &str) -> Option<Self> {
        let (is_pattern, name) = match text.strip_prefix("*.") {
            Some(domain) => (true, domain),
            None => (false, text),
        };
        if name.contains('*') {
            return None;
        }
        // An address of IPv6 is written without brackets in a rule, too.
        if let (false, Ok(address)) = (is_pattern, name.parse()) {
            return Some(Self::Exact(Host::Ipv6(address)));
        }
        match (is_pattern, Host::parse(name).ok()?) {
            (false, host) => Some(Self::Exact(host)),
            (true, Host::Domain(domain)) => Some(Self::Below(format!(".{domain}"))),
            (true, _) => None,
        }
    }

    /// Whether the host is one of these.
    pub(in crate::grants) fn covers(&self, host: &Host) -> bool {
        match (self, host) {
            (Self::Exact(exact), host) => exact == host,
            (Self::Below(end), Host::Domain(name)) => {
                name.len() > end.len() && name.ends_with(end.as_str())
            }
            (Self::Below(_), _) => false,
        }
    }

    /// Whether it is an address of this machine.
    pub fn is_loopback(&self) -> bool {
        self.address().is_some_and(|address| address.is_loopback())
    }

    /// The address, if it is one.
    pub(in crate::grants) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Exact(host) => address_of(host),
            Self::Below(_) => None,
        }
    }
}

/// The address of a host that is written as one.
pub(in crate::grants) fn address_of<S>(host: &Host<S>) -> Option<IpAddr> {
    match host {
        Host::Ipv4(address) => Some(IpAddr::V4(*address)),
        Host::Ipv6(address) => Some(IpAddr::V6(*address)),
        Host::Domain(_) => None,
    }
}

impl std::fmt::Display for HostPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exact(host) => write!(f, "{host}"),
            Self::Below(end) => write!(f, "*{end}"),
        }
    }
}

texts! {
    HostPattern: "host", |text| Self::parse(text).ok_or_else(|| {
        "is not a host like `api.example.com` or `*.example.com`: no scheme, no port, no path".to_owned()
    }), String::schema();
}

/// Report addresses of a rule that contradict each other.
pub(in crate::grants) fn check_reach(
    address: Option<IpAddr>,
    networks: Option<&List<Network>>,
    table: &mut Table<'_>,
) {
    if address.is_some() && networks.is_some() {
        table.problem("`networks` means nothing with `address`");
    }
}

/// The addresses that a server may have.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Connect to this address; DNS is not asked.
    pub address: Option<IpAddr>,
    /// DNS may answer with addresses of these networks only; empty = with public ones only.
    pub networks: Vec<Network>,
}

impl Reach {
    pub(in crate::grants) fn new(
        address: Option<IpAddr>,
        networks: Option<&List<Network>>,
    ) -> Self {
        let networks = networks.map(|networks| networks.0.clone());
        Self {
            address,
            networks: networks.unwrap_or_default(),
        }
    }

    /// Whether this rule may connect to an address of a server with this pattern.
    pub(in crate::grants) fn allows(&self, host: &HostPattern, address: IpAddr) -> bool {
        // The rule names it.
        if self.address == Some(address) || host.address() == Some(address) {
            return true;
        }
        // An address that the network stack would map to IPv4 is judged as IPv4.
        let address = address.to_canonical();
        match self.networks.is_empty() {
            true => is_public(address),
            false => self.networks.iter().any(|n| n.contains(address)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(text: &str) -> Host {
        Host::parse(text).unwrap()
    }

    #[test]
    fn a_pattern_covers_names_below_its_domain_only() {
        let exact = HostPattern::parse("API.example.com").unwrap();
        assert!(exact.covers(&host("api.example.com")));
        assert!(!exact.covers(&host("x.api.example.com")));
        let below = HostPattern::parse("*.example.com").unwrap();
        assert!(below.covers(&host("a.example.com")) && below.covers(&host("a.b.example.com")));
        for other in [
            "example.com",
            "badexample.com",
            "a.example.com.evil.net",
            "127.0.0.1",
        ] {
            assert!(!below.covers(&host(other)), "{other}");
        }
        assert!(HostPattern::parse("::1").unwrap().covers(&host("[::1]")));
        assert!(HostPattern::parse("[::1]").unwrap().covers(&host("[::1]")));
        for wrong in [
            "",
            "*",
            "*.",
            "*.1.2.3.4",
            "a.*.com",
            "a b",
            "http://a",
            "a/b",
            "a:80",
        ] {
            assert!(HostPattern::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn internal_addresses_need_a_rule_that_names_them() {
        let name = HostPattern::parse("db.internal").unwrap();
        let reach = |address: Option<&str>, networks: &[&str]| Reach {
            address: address.map(|a| a.parse().unwrap()),
            networks: networks
                .iter()
                .map(|n| Network::parse(n).unwrap())
                .collect(),
        };
        let allows = |reach: &Reach, host: &HostPattern, address: &str| {
            reach.allows(host, address.parse().unwrap())
        };
        let none = reach(None, &[]);
        assert!(allows(&none, &name, "1.1.1.1"));
        for internal in [
            "127.0.0.1",
            "::1",
            "::ffff:127.0.0.1",
            "10.0.0.1",
            "169.254.169.254",
        ] {
            assert!(!allows(&none, &name, internal), "{internal}");
        }
        let inside = reach(None, &["10.0.0.0/8"]);
        assert!(allows(&inside, &name, "10.1.2.3") && allows(&inside, &name, "::ffff:10.1.2.3"));
        // The name has moved out: it is not the server of the rule any more.
        assert!(!allows(&inside, &name, "1.1.1.1") && !allows(&inside, &name, "127.0.0.1"));
        assert!(allows(&reach(Some("127.0.0.1"), &[]), &name, "127.0.0.1"));
        let literal = HostPattern::parse("127.0.0.1").unwrap();
        assert!(allows(&none, &literal, "127.0.0.1") && !allows(&none, &literal, "127.0.0.2"));
    }
}
