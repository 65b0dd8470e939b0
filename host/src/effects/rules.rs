//! The rules of the operator: what a handler may reach outside the sandbox.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use url::Host;

use super::address::{Network, is_public};
use super::target::{Scheme, Target};

/// Everything that is granted. `effects` does only this.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `[[grant.http]]`, in order.
    pub http: Vec<HttpRule>,
    /// `[[grant.tcp]]`, in order.
    pub tcp: Vec<TcpRule>,
    /// `[grant.secret]`.
    pub secrets: Vec<SecretRule>,
    /// Whether `[grant.key-value]` is there.
    pub keys: bool,
    /// The consumer group of the queue, if it has one.
    pub group: Option<String>,
}

impl Rules {
    /// Whether nothing is granted.
    pub fn is_empty(&self) -> bool {
        self.http.is_empty() && self.tcp.is_empty() && self.secrets.is_empty() && !self.keys
    }
}

/// Requests that are allowed, and how they are sent.
#[derive(Clone, Debug)]
pub struct HttpRule {
    /// The name in metrics and events.
    pub name: String,
    /// How the server is reached.
    pub scheme: Scheme,
    /// The server.
    pub host: HostPattern,
    /// Its port.
    pub port: u16,
    /// The path of every request begins with this.
    pub path: String,
    /// The methods; `None` = all but `CONNECT` and `TRACE`.
    pub methods: Option<Vec<Method>>,
    /// The addresses that the server may have.
    pub reach: Reach,
    /// The most connections at a time.
    pub connections: usize,
    /// The most requests at a time; further ones wait.
    pub in_flight: usize,
    /// The most bytes of a body of a response.
    pub response_max: u64,
    /// The longest time of a request.
    pub timeout: Duration,
    /// The certificates that are trusted instead of those of the system.
    pub ca: Option<PathBuf>,
    /// Headers that the host adds.
    pub headers: Vec<(HeaderName, Template)>,
    /// The header that carries an idempotency key.
    pub idempotency_key: Option<HeaderName>,
    /// Whether the trace of the message goes on.
    pub traceparent: bool,
}

impl HttpRule {
    /// Whether it allows this request. A rule for a folder allows no path that may lead out of it.
    pub(super) fn allows(&self, method: &Method, target: &Target) -> bool {
        self.names(method, target) && (self.path == "/" || target.unclear().is_none())
    }

    /// The same, if every server reads the path as it is written.
    pub(super) fn names(&self, method: &Method, target: &Target) -> bool {
        let method_allowed = match &self.methods {
            Some(methods) => methods.contains(method),
            None => *method != Method::CONNECT && *method != Method::TRACE,
        };
        method_allowed
            && self.scheme == target.scheme
            && self.port == target.port
            && self.host.covers(&target.host)
            && target.is_below(&self.path)
    }
}

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

/// A secret.
#[derive(Clone, Debug)]
pub struct SecretRule {
    /// Its name.
    pub name: String,
    /// Where its value is.
    pub source: SecretSource,
    /// Whether the guest may read it.
    pub expose: bool,
}

/// Where the value of a secret is.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// The content of this file, without the line end behind it.
    File(PathBuf),
    /// The value of this variable, as it was at the start; `None` = it is not set.
    Variable(String, Option<crate::redis::target::Secret>),
}

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
    pub(super) fn covers(&self, host: &Host) -> bool {
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
    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Exact(host) => address_of(host),
            Self::Below(_) => None,
        }
    }
}

/// The address of a host that is written as one.
pub(super) fn address_of<S>(host: &Host<S>) -> Option<IpAddr> {
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

/// The addresses that a server may have.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Connect to this address; DNS is not asked.
    pub address: Option<IpAddr>,
    /// DNS may answer with addresses of these networks only; empty = with public ones only.
    pub networks: Vec<Network>,
}

impl Reach {
    /// Whether this rule may connect to an address of a server with this pattern.
    pub(super) fn allows(&self, host: &HostPattern, address: IpAddr) -> bool {
        // The rule names it.
        if self.address == Some(address) || host.address() == Some(address) {
            return true;
        }
        // What the network stack would map to IPv4 is judged as IPv4.
        let address = address.to_canonical();
        match self.networks.is_empty() {
            true => is_public(address),
            false => self.networks.iter().any(|n| n.contains(address)),
        }
    }
}

/// The value of a header, with secrets in it: `Bearer ${secret:stripe}`.
#[derive(Clone, Eq, PartialEq)]
pub struct Template(Vec<Part>);

/// A part of a [`Template`].
#[derive(Clone, Eq, PartialEq)]
pub(super) enum Part {
    Text(String),
    Secret(String),
}

/// The beginning and the end of a secret in a template.
const BEGIN: &str = "${secret:";
const END: char = '}';

impl Template {
    /// Read a template. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (name, after) = after
                .split_once(END)
                .ok_or_else(|| format!("`{BEGIN}` without `{END}`"))?;
            if name.is_empty() {
                return Err(format!("`{BEGIN}{END}` names no secret"));
            }
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Secret(name.to_owned()));
            rest = after;
        }
        if rest.contains("${") {
            return Err(format!("`${{` is not `{BEGIN}`"));
        }
        parts.push(Part::Text(rest.to_owned()));
        parts.retain(|part| !matches!(part, Part::Text(text) if text.is_empty()));
        let is_value = |part: &Part| match part {
            Part::Text(text) => http::HeaderValue::from_str(text).is_ok(),
            Part::Secret(_) => true,
        };
        if !parts.iter().all(is_value) {
            return Err("it holds a character that no header may have".to_owned());
        }
        Ok(Self(parts))
    }

    pub(super) fn parts(&self) -> &[Part] {
        &self.0
    }

    /// The names of its secrets.
    pub fn secrets(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|part| match part {
            Part::Secret(name) => Some(&**name),
            Part::Text(_) => None,
        })
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// A value without a secret may be one itself: it is masked.
impl std::fmt::Display for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.secrets().next().is_none() {
            return f.write_str("***");
        }
        self.0.iter().try_for_each(|part| match part {
            Part::Text(text) => f.write_str(text),
            Part::Secret(name) => write!(f, "{BEGIN}{name}{END}"),
        })
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

    #[test]
    fn a_template_names_its_secrets() {
        let text = "Bearer ${secret:stripe}, ${secret:b}";
        let template = Template::parse(text).unwrap();
        assert_eq!(template.secrets().collect::<Vec<_>>(), ["stripe", "b"]);
        assert_eq!(template.to_string(), text);
        let plain = Template::parse("s3cr3t").unwrap();
        assert_eq!(plain.secrets().count(), 0);
        assert_eq!(format!("{plain} {plain:?}"), "*** ***");
        for wrong in [
            "${secret:a",
            "${secret:}",
            "${other:a}",
            "a\nb",
            "${secret:a}\r\n",
        ] {
            assert!(Template::parse(wrong).is_err(), "{wrong}");
        }
    }
}
