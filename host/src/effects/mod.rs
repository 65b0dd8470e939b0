//! What grants do outside the sandbox: HTTP requests, secrets, and the names and addresses of sockets.
//!
//! The [`sandbox`](crate::sandbox) asks by its trait [`Provider`]; nothing here knows WebAssembly. Every
//! request is compared with the rules of the operator before a packet leaves, and every address after
//! the answer of DNS.
//!
//! - [`rules`]: what is granted. [`address`]: networks. [`target`]: URLs.
//! - `http`: a pool for each rule. `connect`: DNS, the check of the address, TCP and TLS.
//! - `secrets`: values that are read when they are used. `denials`: events.

pub mod address;
mod connect;
mod denials;
mod http;
pub mod rules;
mod secrets;
pub mod target;
mod tls;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use ::http::{Method, Response};
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::effects::connect::{ConnectError, NOT_ALLOWED, Resolver, allowed_addresses, system_resolver};
use crate::effects::denials::Denials;
use crate::effects::http::{Allowed, Pool, headers};
use crate::effects::rules::{HttpRule, Rules};
use crate::effects::secrets::Secrets;
use crate::effects::target::{Scheme, Target};
use crate::sandbox::{
    Body, HttpError, HttpRequest, LookupError, Offers, Origin, Promise, Provider,
};
use crate::telemetry::rules::{RequestEnd, RuleCounts};

/// Grants that cannot be given: files that cannot be read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", problems.join("; "))]
pub struct Error {
    /// At least one.
    pub problems: Vec<String>,
}

/// Everything that is granted outside the sandbox. Clones share it.
#[derive(Clone)]
pub struct Effects(Arc<Inner>);

struct Inner {
    rules: Rules,
    secrets: Secrets,
    resolver: Resolver,
    pools: Vec<OnceLock<Arc<Pool>>>,
    /// TLS with the certificates of the system, for all rules without their own.
    system_tls: OnceLock<TlsConnector>,
    counts: Arc<RuleCounts>,
    denials: Denials,
}

impl fmt::Debug for Effects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Effects")
            .field("rules", &self.0.rules)
            .finish_non_exhaustive()
    }
}

impl Effects {
    /// What these rules grant. Nothing is read or opened yet.
    pub fn new(rules: Rules) -> Self {
        Self::with_resolver(rules, system_resolver())
    }

    fn with_resolver(rules: Rules, resolver: Resolver) -> Self {
        let names = rules.http.iter().map(|rule| rule.name.clone());
        Self(Arc::new(Inner {
            secrets: Secrets::new(&rules.secrets),
            resolver,
            pools: rules.http.iter().map(|_| OnceLock::new()).collect(),
            system_tls: OnceLock::new(),
            counts: Arc::new(RuleCounts::new(names)),
            denials: Denials::default(),
            rules,
        }))
    }

    /// Check that everything that the rules name can be read. Reads files.
    ///
    /// # Errors
    /// All problems.
    pub fn check(&self) -> Result<(), Error> {
        let inner = &self.0;
        let mut problems = inner.secrets.check();
        for (index, rule) in inner.rules.http.iter().enumerate() {
            if let Err(why) = inner.pool(index) {
                problems.push(format!("the rule `{}`: {why}", rule.name));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(Error { problems }),
        }
    }

    /// What the rules count.
    pub fn counts(&self) -> &Arc<RuleCounts> {
        &self.0.counts
    }
}

impl Inner {
    fn pool(&self, index: usize) -> Result<&Arc<Pool>, String> {
        let place = &self.pools[index];
        if let Some(pool) = place.get() {
            return Ok(pool);
        }
        let rule = &self.rules.http[index];
        let tls = match (rule.scheme, &rule.ca) {
            (Scheme::Http, _) => None,
            (Scheme::Https, Some(ca)) => Some(tls::connector(Some(ca))?),
            (Scheme::Https, None) => Some(match self.system_tls.get() {
                Some(tls) => tls.clone(),
                None => {
                    let tls = tls::connector(None)?;
                    self.system_tls.get_or_init(|| tls).clone()
                }
            }),
        };
        let pool = Pool::new(rule.clone(), index, &self.counts, tls, &self.resolver);
        Ok(place.get_or_init(|| pool))
    }

    async fn send(
        &self,
        origin: &Origin,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<Response<Body>, HttpError> {
        let now = Instant::now();
        let denied = |why: String| {
            self.counts.http_denied.inc();
            HttpError::Denied(why)
        };
        let target = Target::parse(&request.url).map_err(|why| {
            let why = format!("the URL {why}");
            let url = request.url.split(['?', '#']).next().unwrap_or_default();
            self.denials.log(origin, url, &why, "no rule");
            denied(why)
        })?;
        let what = || format!("{} {}", request.method, target.without_query());
        let method = Method::from_bytes(request.method.as_bytes())
            .map_err(|_| denied("the method is not valid".to_owned()))?;
        let mut rules = self.rules.http.iter().enumerate();
        let Some((index, rule)) = rules.find(|(_, rule)| rule.allows(&method, &target)) else {
            let why = "no rule of `[[grant.http]]` allows it";
            self.denials.log(origin, &what(), why, &suggestion(&method, &target));
            return Err(denied(format!("{why}: {}", what())));
        };
        let headers = headers(&request.headers, &target, &request.body).map_err(|why| {
            self.counts.http[index].ended(RequestEnd::Denied);
            self.denials.log(origin, &what(), &why, "no rule");
            HttpError::Denied(why)
        })?;
        let pool = Arc::clone(self.pool(index).map_err(HttpError::Tls)?);
        let timeout = request.timeout.unwrap_or(rule.timeout).min(rule.timeout);
        let allowed = Allowed {
            origin,
            ordinal,
            group: self.rules.group.as_deref(),
            target: target.clone(),
            deadline: (now + timeout).min(origin.deadline.into()),
            method,
            headers,
            body: request.body,
        };
        let response = pool.send(allowed, &self.secrets).await;
        if let Err(HttpError::Denied(why)) = &response
            && why.ends_with(NOT_ALLOWED)
        {
            let (name, host) = (&rule.name, &rule.host);
            let remedy = format!(
                "`networks` in the rule `{name}` ({host}), if the server is meant to be there"
            );
            let what = format!("{} {}", request.method, target.without_query());
            self.denials.log(origin, &what, why, &remedy);
        }
        response
    }

    async fn resolve(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError> {
        let denied = |why: &str, remedy: &str| {
            self.counts.tcp_denied.inc();
            self.denials.log(origin, &format!("a lookup of {name}"), why, remedy);
            LookupError::Denied
        };
        // The guests of most languages ask for addresses, too.
        let host = match name.parse() {
            Ok(address) => Ok(url::Host::Ipv6(address)),
            Err(_) => url::Host::parse(name),
        };
        let host = host.map_err(|_| LookupError::Unknown)?;
        let rules = self.rules.tcp.iter().filter(|rule| rule.host.covers(&host));
        let mut found = Vec::new();
        let mut problem = None;
        for rule in rules {
            let addresses =
                allowed_addresses(&self.resolver, &rule.host, &rule.reach, &host).await;
            match addresses {
                Ok(addresses) => {
                    found.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, rule.port)));
                }
                Err(error) => problem = Some(error),
            }
        }
        match problem {
            _ if !found.is_empty() => Ok(found),
            Some(error @ ConnectError::Denied(_)) => Err(denied(
                &error.to_string(),
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

/// The rule that would allow a request, as an item of `grant.http = [...]`.
fn suggestion(method: &Method, target: &Target) -> String {
    let mut rule = String::from("[[grant.http]] with ");
    if target.scheme == Scheme::Http {
        rule.push_str("scheme = \"http\", ");
    }
    rule.push_str(&format!("host = \"{}\", ", target.host));
    if target.port != target.scheme.port() {
        rule.push_str(&format!("port = {}, ", target.port));
    }
    rule.push_str(&format!("methods = [\"{method}\"]"));
    rule
}

impl Provider for Effects {
    fn offers(&self) -> Offers {
        Offers {
            http: !self.0.rules.http.is_empty(),
            secrets: self.0.secrets.exposes(),
            tcp: !self.0.rules.tcp.is_empty(),
        }
    }

    fn refuses_batches(&self) -> Option<String> {
        let has_key = |rule: &&HttpRule| rule.idempotency_key.is_some();
        let rule = self.0.rules.http.iter().find(has_key)?;
        Some(format!(
            "the rule `{}` of `[[grant.http]]` adds an idempotency key, which belongs to one message; \
             write `idempotency_key = false` in the rule, or handle single messages",
            rule.name
        ))
    }

    fn send(
        &self,
        origin: &Origin,
        ordinal: u32,
        request: HttpRequest,
    ) -> Promise<Result<Response<Body>, HttpError>> {
        let (inner, origin) = (Arc::clone(&self.0), origin.clone());
        Box::pin(async move { inner.send(&origin, ordinal, request).await })
    }

    fn secret(&self, origin: &Origin, name: &str) -> Promise<Result<String, String>> {
        let (inner, origin, name) = (Arc::clone(&self.0), origin.clone(), name.to_owned());
        Box::pin(async move {
            let value = inner.secrets.exposed(&name).await;
            value.map(|value| value.reveal().to_owned()).map_err(|error| {
                let why = error.to_string();
                let rule = "`expose = true` in `[grant.secret]`";
                inner.denials.log(&origin, "a secret", &why, rule);
                why
            })
        })
    }

    fn resolve(
        &self,
        origin: &Origin,
        name: &str,
    ) -> Promise<Result<Vec<SocketAddr>, LookupError>> {
        let (inner, origin, name) = (Arc::clone(&self.0), origin.clone(), name.to_owned());
        Box::pin(async move {
            let deadline = origin.deadline.into();
            let resolving = inner.resolve(&origin, &name);
            let found = tokio::time::timeout_at(deadline, resolving).await;
            found.unwrap_or(Err(LookupError::Timeout))
        })
    }

    fn may_connect(&self, address: SocketAddr) -> bool {
        let mut rules = self.0.rules.tcp.iter();
        rules.any(|rule| {
            rule.port == address.port() && rule.host.address() == Some(address.ip())
        })
    }

    fn connection_denied(&self, origin: &Origin, address: SocketAddr) {
        self.0.counts.tcp_denied.inc();
        let (ip, port) = (address.ip(), address.port());
        self.0.denials.log(
            origin,
            &format!("a connection to {address}"),
            "no rule of `[[grant.tcp]]` allows it, or no granted name was looked up in this attempt",
            &format!("[[grant.tcp]] with host = \"{ip}\", port = {port}"),
        );
    }
}
