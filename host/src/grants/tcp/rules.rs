//! The servers to which a handler may connect: `[[grant.tcp]]`.

use std::net::IpAddr;

use crate::grants::network::address::Network;
use crate::grants::network::reach::{HostPattern, Reach, check_reach};
use crate::values::table::{List, rule};

rule! {
    /// A server to which the guest may connect by itself.
    pub struct TcpRule: "rule", "{\"host\":\"db.example.com\",\"port\":5432}";
    /// A host, an address, or `*.example.com` (every name below the domain).
    required host: HostPattern;
    /// The port.
    required port: u16;
    /// Connect to this address: the name is not looked up.
    optional address: IpAddr;
    /// The addresses that the name may have, such as `10.0.0.0/8`: public ones if not given.
    optional networks: List<Network>;
    settle |rule, table, _| check_reach(rule.address, rule.networks.as_ref(), table);
}

impl TcpRule {
    /// The addresses that the server may have.
    pub(in crate::grants) fn reach(&self) -> Reach {
        Reach::new(self.address, self.networks.as_ref())
    }
}
