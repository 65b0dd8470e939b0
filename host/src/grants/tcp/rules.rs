//! The servers to which a handler may connect: `[[grant.tcp]]`.

use crate::grants::network::reach::{HostPattern, Reach};

/// A server to which the guest may connect by itself.
#[derive(Clone, Debug)]
pub struct TcpRule {
    /// The server.
    pub host: HostPattern,
    /// Its port.
    pub port: u16,
    /// The addresses that it may have.
    pub reach: Reach,
}
