//! Answers the names that rules grant, and checks addresses: nothing else reaches DNS.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::provider::{LookupError, Provider};
use super::rules::TcpRule;
use crate::grants::context::Origin;
use crate::grants::denials::Denials;
use crate::grants::network::names::{Unreachable, allowed, ask, known_address};
use crate::redis::names::Names;
use crate::telemetry::rules::RuleCounts;

/// The rules, each with names of its own seats.
pub(in crate::grants) struct Sockets {
    pub(in crate::grants) rules: Vec<TcpRule>,
    pub(in crate::grants) names: Vec<Names>,
    pub(in crate::grants) counts: Arc<RuleCounts>,
    pub(in crate::grants) denials: Arc<Denials>,
}

impl fmt::Debug for Sockets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sockets")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

impl Sockets {
    async fn answer(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError> {
        let denied = |why: &str, remedy: &str| {
            self.counts.tcp_denied.inc();
            self.denials
                .log(origin, &format!("a lookup of {name}"), why, remedy);
            LookupError::Denied
        };
        // The guests of most languages ask for addresses, too.
        let host = match name.parse() {
            Ok(address) => Ok(url::Host::Ipv6(address)),
            Err(_) => url::Host::parse(name),
        };
        let host = host.map_err(|_| LookupError::Unknown)?;
        let rules = self.rules.iter().zip(&self.names);
        let rules = rules.filter(|(rule, _)| rule.host.covers(&host));
        let mut found = Vec::new();
        let mut problem = None;
        // One question, whose answer is checked by each rule.
        let mut answer = None;
        for (rule, names) in rules {
            let reach = rule.reach();
            let addresses = match known_address(&reach, &host) {
                Some(address) => Ok(vec![address]),
                None => match &answer {
                    Some(answer) => Result::clone(answer),
                    None => answer.insert(ask(names, &host).await).clone(),
                },
            };
            match addresses.and_then(|found| allowed(&found, &rule.host, &reach)) {
                Ok(addresses) => {
                    found.extend(
                        addresses
                            .into_iter()
                            .map(|ip| SocketAddr::new(ip, rule.port)),
                    );
                }
                Err(error) => problem = Some(error),
            }
        }
        match problem {
            _ if !found.is_empty() => Ok(found),
            Some(Unreachable::Denied(why)) => Err(denied(
                &why,
                &format!("`networks` in the rule for {host}, if the server is meant to be there"),
            )),
            Some(_) => Err(LookupError::Unknown),
            None => Err(denied(
                "no rule of `[[grant.tcp]]` names it",
                &format!("[[grant.tcp]] with host = \"{host}\" and its port"),
            )),
        }
    }
}

#[async_trait]
impl Provider for Sockets {
    async fn resolve(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError> {
        let answer = self.answer(origin, name);
        let found = tokio::time::timeout_at(origin.deadline.into(), answer).await;
        found.unwrap_or(Err(LookupError::Timeout))
    }

    fn may_connect(&self, address: SocketAddr) -> bool {
        let mut rules = self.rules.iter();
        rules.any(|rule| rule.port == address.port() && rule.host.address() == Some(address.ip()))
    }

    fn connection_denied(&self, origin: &Origin, address: SocketAddr) {
        self.counts.tcp_denied.inc();
        let (ip, port) = (address.ip(), address.port());
        self.denials.log(
            origin,
            &format!("a connection to {address}"),
            "no rule of `[[grant.tcp]]` allows it, or no granted name was looked up in this attempt",
            &format!("[[grant.tcp]] with host = \"{ip}\", port = {port}"),
        );
    }
}
