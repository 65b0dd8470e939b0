//! Which addresses a rule may reach. Names are answered by DNS, which others control: an address is
//! checked after the answer, and exactly the checked address is connected to.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::values::table::texts;

/// A block of addresses, such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Network {
    base: IpAddr,
    prefix: u32,
}

impl Network {
    /// `10.0.0.0/8`, `fd00::/8`, or a single address.
    pub fn parse(text: &str) -> Option<Self> {
        let (base, prefix) = match text.split_once('/') {
            Some((base, prefix)) => (base, Some(prefix.parse::<u32>().ok()?)),
            None => (text, None),
        };
        let base: IpAddr = base.parse().ok()?;
        let bits = width(base);
        let prefix = prefix.unwrap_or(bits);
        (prefix <= bits).then_some(Self { base, prefix })
    }

    /// Whether the address is one of the block.
    pub fn contains(&self, address: IpAddr) -> bool {
        let bits = width(self.base);
        if bits != width(address) {
            return false;
        }
        let host_bits = bits - self.prefix;
        let top = |address| number(address).checked_shr(host_bits).unwrap_or(0);
        top(self.base) == top(address)
    }
}

texts! {
    Network: "network", |text| {
        Self::parse(text).ok_or_else(|| "is not a network like `10.0.0.0/8`".to_owned())
    };
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

fn width(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

/// The addresses of IPv4 that are not public: special purposes, private networks, multicast.
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    // Link-local, with the metadata services of most clouds.
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // A metadata service with a public address.
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];

/// The public addresses of IPv6, and the parts of them that are not: protocols, tunnels (which carry
/// an address of IPv4), documentation.
const PUBLIC_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
];

/// Whether an address belongs to the public internet. Everything else needs to be named by a rule.
pub(super) fn is_public(address: IpAddr) -> bool {
    let within = |base: IpAddr, prefix: u32| Network { base, prefix }.contains(address);
    match address {
        IpAddr::V4(_) => !NOT_PUBLIC_V4
            .iter()
            .any(|(base, prefix)| within(IpAddr::V4(*base), *prefix)),
        IpAddr::V6(_) => {
            let (base, prefix) = PUBLIC_V6;
            within(IpAddr::V6(base), prefix)
                && !NOT_PUBLIC_V6
                    .iter()
                    .any(|(base, prefix)| within(IpAddr::V6(*base), *prefix))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn internal_addresses_are_not_public() {
        for text in [
            "0.0.0.0",
            "10.1.2.3",
            "100.64.0.1",
            "100.100.100.200",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "168.63.129.16",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.192",
            "192.168.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "64:ff9b::7f00:1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!is_public(ip(text)), "{text}");
        }
        for text in [
            "1.1.1.1",
            "172.32.0.1",
            "168.63.129.17",
            "2606:4700::1111",
            "2a00::1",
        ] {
            assert!(is_public(ip(text)), "{text}");
        }
    }

    #[test]
    fn a_network_contains_its_addresses_only() {
        let network = Network::parse("10.1.0.0/16").unwrap();
        assert!(network.contains(ip("10.1.255.255")));
        assert!(!network.contains(ip("10.2.0.0")));
        assert!(!network.contains(ip("::ffff:10.1.0.1")));
        assert!(
            Network::parse("0.0.0.0/0")
                .unwrap()
                .contains(ip("255.1.2.3"))
        );
        assert!(Network::parse("::/0").unwrap().contains(ip("ff02::1")));
        assert!(
            Network::parse("127.0.0.1")
                .unwrap()
                .contains(ip("127.0.0.1"))
        );
        assert!(
            !Network::parse("127.0.0.1")
                .unwrap()
                .contains(ip("127.0.0.2"))
        );
        assert!(Network::parse("fd00::/8").unwrap().contains(ip("fd12::1")));
        for wrong in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/-1",
            "a/8",
            "10.0.0.0/",
        ] {
            assert!(Network::parse(wrong).is_none(), "{wrong}");
        }
        assert_eq!(network.to_string(), "10.1.0.0/16");
    }
}
