//! What grants do outside the sandbox: HTTP requests, keys that are read, secrets, and the names and
//! addresses of sockets.
//!
//! The [`sandbox`](crate::sandbox) asks by its trait [`Provider`]; nothing here knows WebAssembly. Every
//! request is compared with the rules of the operator before a packet leaves, and every address after
//! the answer of DNS.
//!
//! - [`rules`]: what is granted. [`address`]: networks. [`target`]: URLs.
//! - `key_value`: keys that are read, and numbers that are added.
//! - `http`: a pool for each rule. `connect`: DNS, the check of the address, TCP and TLS.
//! - `stand_in`: a server of a test. `secrets`: values that are read when they are used. `denials`: events.

pub mod address;
mod connect;
mod denials;
mod http;
mod key_value;
pub mod rules;
mod secrets;
pub mod stand_in;
pub mod target;

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use ::http::{Method, Response};
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;

use crate::delivery::key_value::Seen;
use crate::delivery::text::{printable, truncated};
use crate::effects::connect::{NOT_ALLOWED, allowed, ask, known_address};
use crate::effects::denials::Denials;
use crate::effects::http::{Allowed, Pool, headers};
use crate::effects::key_value::Store;
use crate::effects::rules::{HttpRule, Rules};
use crate::effects::secrets::Secrets;
use crate::effects::stand_in::Answering;
use crate::effects::target::{Scheme, Target};
use crate::redis::connection::Connector;
use crate::redis::names::Names;
use crate::sandbox::{
    Body, HttpError, HttpRequest, KeyPage, LookupError, Offers, Origin, Provider, ReadValues,
    Reading,
};
use crate::telemetry::rules::{RequestEnd, RuleCounts};
use crate::tls;

/// The longest method.
const METHOD_MAX: usize = 32;
/// The bytes of a segment of a path that an error shows.
const SEGMENT_MAX: usize = 64;
/// The most questions for names that are under way, of one rule and of all. A rule names many (`*.example.com`), and
/// a guest chooses among them: those of one rule must not keep another one waiting.
const QUESTIONS_OF_A_RULE: usize = 8;
const QUESTIONS: usize = 128;

/// Everything that is granted outside the sandbox. Clones share it.
#[derive(Clone)]
pub struct Effects(Arc<Inner>);

struct Inner {
    rules: Rules,
    secrets: Secrets,
    store: Store,
    names: Names,
    /// Names of each rule for sockets, with seats of its own.
    tcp_names: Vec<Names>,
    answering: Option<Answering>,
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
        Self::with(rules, Names::system(QUESTIONS_OF_A_RULE), None)
    }

    /// The same rules, with these answers to every request: none leaves this process.
    #[must_use]
    pub fn answered_by(&self, answering: Answering) -> Self {
        let (rules, names) = (self.0.rules.clone(), self.0.names.clone());
        Self::with(rules, names, Some(answering))
    }

    fn with(rules: Rules, names: Names, answering: Option<Answering>) -> Self {
        let labels = rules.http.iter().map(|rule| rule.name.clone());
        Self(Arc::new(Inner {
            secrets: Secrets::new(&rules.secrets),
            store: Store::default(),
            tcp_names: rules
                .tcp
                .iter()
                .map(|_| names_of_a_rule(&names, &rules))
                .collect(),
            names,
            answering,
            pools: rules.http.iter().map(|_| OnceLock::new()).collect(),
            system_tls: OnceLock::new(),
            counts: Arc::new(RuleCounts::new(labels)),
            denials: Denials::default(),
            rules,
        }))
    }

    /// Keys are those of this server from now on.
    pub fn connect(&self, connector: &Connector) {
        self.0.store.connect(connector);
    }

    /// A handler is tried, without a server: these keys have these values, and no other key has one.
    pub fn try_with<V: Into<Bytes>>(&self, values: impl Iterator<Item = (String, V)>) {
        let values = values.map(|(key, value)| (key, value.into()));
        self.0.store.try_with(values.collect());
    }

    /// The most connections of all rules at a time.
    pub fn connections_max(&self) -> usize {
        self.0.rules.http.iter().map(|rule| rule.connections).sum()
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
            _ if self.answering.is_some() => None,
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
        let pool = Pool::new(
            rule.clone(),
            index,
            &self.counts,
            tls,
            names_of_a_rule(&self.names, &self.rules),
            self.answering.as_ref(),
        );
        Ok(place.get_or_init(|| pool))
    }

    async fn resolve(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError> {
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
        let rules = self.rules.tcp.iter().zip(&self.tcp_names);
        let rules = rules.filter(|(rule, _)| rule.host.covers(&host));
        let mut found = Vec::new();
        let mut problem = None;
        // One question, whose answer is checked by each rule.
        let mut answer = None;
        for (rule, names) in rules {
            let addresses = match known_address(&rule.reach, &host) {
                Some(address) => Ok(vec![address]),
                None => match &answer {
                    Some(answer) => Result::clone(answer),
                    None => answer.insert(ask(names, &host).await).clone(),
                },
            };
            match addresses.and_then(|found| allowed(&found, &rule.host, &rule.reach)) {
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
            Some(HttpError::Denied(why)) => Err(denied(
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

/// Names for one rule of these.
fn names_of_a_rule(names: &Names, rules: &Rules) -> Names {
    let rules = rules.http.len() + rules.tcp.len();
    names.with_seats((QUESTIONS / rules.max(1)).clamp(1, QUESTIONS_OF_A_RULE))
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

#[async_trait]
impl Provider for Effects {
    fn offers(&self) -> Offers {
        Offers {
            http: !self.0.rules.http.is_empty(),
            secrets: self.0.secrets.exposes(),
            tcp: !self.0.rules.tcp.is_empty(),
        }
    }

    fn check(&self) -> Result<(), String> {
        let inner = &self.0;
        let mut problems = inner.secrets.check();
        for (index, rule) in inner.rules.http.iter().enumerate() {
            if let Err(why) = inner.pool(index) {
                problems.push(format!("the rule `{}`: {why}", rule.name));
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("; ")),
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

    async fn send(
        &self,
        origin: &Origin,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<Response<Body>, HttpError> {
        let inner = &self.0;
        let now = Instant::now();
        let denied = |why: String| {
            inner.counts.http_denied.inc();
            HttpError::Denied(why)
        };
        let target = Target::parse(&request.url).map_err(|why| {
            let why = format!("the URL {why}");
            // What is before an `@` may be a password.
            let url = request.url.split(['?', '#']).next().unwrap_or_default();
            let url = url.rsplit('@').next().unwrap_or_default();
            inner.denials.log(origin, url, &why, "no rule");
            denied(why)
        })?;
        let what = || format!("{} {}", request.method, target.without_query());
        let method = Method::from_bytes(request.method.as_bytes()).ok();
        let method = method.filter(|method| method.as_str().len() <= METHOD_MAX);
        let method = method.ok_or_else(|| denied("the method is not valid".to_owned()))?;
        let mut rules = inner.rules.http.iter().enumerate();
        let Some((index, rule)) = rules.find(|(_, rule)| rule.allows(&method, &target)) else {
            let mut rules = inner.rules.http.iter();
            let (why, rule) = match target.unclear() {
                Some(segment) if rules.any(|rule| rule.names(&method, &target)) => {
                    let shown = printable(truncated(segment, SEGMENT_MAX));
                    let why = format!(
                        "servers may read the segment `{shown}` in different ways, and leave the `path` of the rule"
                    );
                    (why, "a rule without `path`".to_owned())
                }
                _ => {
                    let why = "no rule of `[[grant.http]]` allows it".to_owned();
                    (why, suggestion(&method, &target))
                }
            };
            inner.denials.log(origin, &what(), &why, &rule);
            return Err(denied(format!("{why}: {}", what())));
        };
        let headers = headers(&request.headers, &target, &request.body).map_err(|why| {
            inner.counts.http[index].ended(RequestEnd::Denied);
            inner.denials.log(origin, &what(), &why, "no rule");
            HttpError::Denied(why)
        })?;
        let pool = Arc::clone(inner.pool(index).map_err(HttpError::Tls)?);
        let timeout = request.timeout.unwrap_or(rule.timeout).min(rule.timeout);
        let allowed = Allowed {
            origin,
            ordinal,
            group: inner.rules.group.as_deref(),
            target: target.clone(),
            deadline: (now + timeout).min(origin.deadline.into()),
            method,
            headers,
            body: request.body,
        };
        let response = pool.send(allowed, &inner.secrets).await;
        if let Err(HttpError::Denied(why)) = &response
            && why.ends_with(NOT_ALLOWED)
        {
            let (name, host) = (&rule.name, &rule.host);
            let remedy = format!(
                "`networks` in the rule `{name}` ({host}), if the server is meant to be there"
            );
            inner.denials.log(origin, &what(), why, &remedy);
        }
        response
    }

    async fn secret(&self, origin: &Origin, name: &str) -> Result<String, String> {
        let value = self.0.secrets.exposed(name).await;
        value
            .map(|value| value.reveal().to_owned())
            .map_err(|error| {
                let why = error.to_string();
                let rule = "`expose = true` in `[grant.secret]`";
                self.0.denials.log(origin, "a secret", &why, rule);
                why
            })
    }

    async fn resolve(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError> {
        let resolving = self.0.resolve(origin, name);
        let found = tokio::time::timeout_at(origin.deadline.into(), resolving).await;
        found.unwrap_or(Err(LookupError::Timeout))
    }

    async fn read(&self, reading: Reading) -> ReadValues {
        self.0.store.read(&reading).await
    }

    async fn increment(&self, key: &str, delta: i64) -> Result<i64, String> {
        self.0.store.increment(key, delta).await
    }

    async fn swap(&self, key: &str, seen: &Seen, value: &[u8]) -> Result<bool, String> {
        self.0.store.swap(key, seen, value).await
    }

    async fn list(&self, prefix: &str, cursor: u64) -> KeyPage {
        self.0.store.list(prefix, cursor).await
    }

    fn may_connect(&self, address: SocketAddr) -> bool {
        let mut rules = self.0.rules.tcp.iter();
        rules.any(|rule| rule.port == address.port() && rule.host.address() == Some(address.ip()))
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::address::Network;
    use super::rules::{HostPattern, Reach, TcpRule};
    use super::*;
    use crate::redis::names::Ask;

    fn origin() -> Origin {
        Origin {
            message_id: "1-1".into(),
            queue: "orders".into(),
            attempt: 1,
            messages: 1,
            deadline: std::time::Instant::now() + Duration::from_secs(30),
            traceparent: None,
            tracestate: None,
            handler: "sha256:0".into(),
        }
    }

    fn rule(host: &str, port: u16, networks: &[&str]) -> HttpRule {
        HttpRule {
            name: host.to_owned(),
            scheme: Scheme::Http,
            host: HostPattern::parse(host).unwrap(),
            port,
            path: "/".to_owned(),
            methods: None,
            reach: reach(networks),
            connections: 4,
            in_flight: 4,
            response_max: 1 << 20,
            timeout: Duration::from_secs(10),
            ca: None,
            headers: Vec::new(),
            idempotency_key: None,
            traceparent: false,
        }
    }

    fn reach(networks: &[&str]) -> Reach {
        Reach {
            address: None,
            networks: networks
                .iter()
                .map(|n| Network::parse(n).unwrap())
                .collect(),
        }
    }

    /// DNS that gives the next of these answers to each question, and the last one for ever. Also how
    /// often it was asked.
    fn dns(answers: &[&[&str]]) -> (Names, Arc<AtomicUsize>) {
        let address = |a: &&str| SocketAddr::new(a.parse().unwrap(), 0);
        let parse = |answer: &&[&str]| answer.iter().map(address).collect();
        let answers: Vec<Vec<SocketAddr>> = answers.iter().map(parse).collect();
        let asked = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&asked);
        let ask: Ask = Box::new(move |_| {
            let n = counted.fetch_add(1, Ordering::Relaxed);
            Ok(answers[n.min(answers.len() - 1)].clone())
        });
        (Names::answered_by(ask, 1), asked)
    }

    /// A server that answers every connection once, with its own address.
    async fn server(address: (&str, u16)) -> (u16, Arc<AtomicUsize>) {
        let listener = TcpListener::bind(address).await.unwrap();
        let local = listener.local_addr().unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                drop(stream.read(&mut [0; 4096]).await);
                let ip = local.ip().to_string();
                let reply = format!(
                    "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{ip}",
                    ip.len()
                );
                drop(stream.write_all(reply.as_bytes()).await);
            }
        });
        (local.port(), connections)
    }

    async fn get(effects: &Effects, url: &str) -> Result<Bytes, HttpError> {
        use http_body_util::BodyExt;
        let request = HttpRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: Body::default(),
            timeout: None,
        };
        let response = effects.send(&origin(), 1, request).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }

    #[tokio::test]
    async fn dns_that_changes_its_answer_reaches_checked_addresses_only() {
        let (port, granted) = server(("127.0.0.1", 0)).await;
        let (_, internal) = server(("127.0.0.2", port)).await;
        // The answers: granted, internal, both in either order, internal in other words.
        let (names, asked) = dns(&[
            &["127.0.0.1"],
            &["127.0.0.2"],
            &["127.0.0.2", "127.0.0.1"],
            &["127.0.0.1", "127.0.0.2"],
            &["::ffff:127.0.0.2"],
            &[],
        ]);
        let rules = Rules {
            http: vec![rule("rebind.test", port, &["127.0.0.1"])],
            ..Rules::default()
        };
        let effects = Effects::with(rules, names, None);
        let url = format!("http://rebind.test:{port}/");
        let mut found = Vec::new();
        for _ in 0..6 {
            found.push(match get(&effects, &url).await {
                Ok(body) => String::from_utf8(body.to_vec()).unwrap(),
                Err(HttpError::Denied(_)) => "denied".to_owned(),
                Err(error) => error.to_string(),
            });
        }
        let none = "dns: `rebind.test` has no address";
        assert_eq!(
            found,
            [
                "127.0.0.1",
                "denied",
                "127.0.0.1",
                "127.0.0.1",
                "denied",
                none
            ]
        );
        // One question for each connection: there is no second answer to be fooled by.
        assert_eq!(asked.load(Ordering::Relaxed), 6);
        assert_eq!(granted.load(Ordering::Relaxed), 3);
        assert_eq!(internal.load(Ordering::Relaxed), 0);
    }

    #[tokio::test]
    async fn a_rule_does_not_lend_its_connections_to_another_rule() {
        // Both rules cover the same authority. The first one names the loopback interface, for one path.
        let (port, connections) = server(("127.0.0.1", 0)).await;
        let (names, _) = dns(&[&["127.0.0.1"]]);
        let inside = HttpRule {
            path: "/inside".to_owned(),
            ..rule("api.test", port, &["127.0.0.0/8"])
        };
        let rules = Rules {
            http: vec![inside, rule("*.test", port, &[])],
            ..Rules::default()
        };
        let effects = Effects::with(rules, names, None);
        let inside = get(&effects, &format!("http://api.test:{port}/inside")).await;
        assert_eq!(inside.unwrap(), "127.0.0.1");
        let other = get(&effects, &format!("http://api.test:{port}/other")).await;
        assert!(matches!(other, Err(HttpError::Denied(_))), "{other:?}");
        assert_eq!(connections.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn names_of_sockets_are_answered_for_rules_only_and_never_reach_dns_otherwise() {
        let asked_for = Arc::<Mutex<Vec<String>>>::default();
        let asked = Arc::clone(&asked_for);
        let ask: Ask = Box::new(move |name| {
            asked.lock().unwrap().push(name.to_owned());
            let addresses = ["10.0.0.7:0", "1.2.3.4:0"];
            Ok(addresses.map(|a| a.parse().unwrap()).to_vec())
        });
        let tcp = |host: &str, port, networks: &[&str]| TcpRule {
            host: HostPattern::parse(host).unwrap(),
            port,
            reach: reach(networks),
        };
        let rules = Rules {
            tcp: vec![
                tcp("db.test", 5432, &["10.0.0.0/8"]),
                tcp("db.test", 6432, &[]),
                tcp("private.test", 1, &["192.168.0.0/16"]),
                tcp("1.2.3.4", 25, &[]),
            ],
            ..Rules::default()
        };
        let effects = Effects::with(rules, Names::answered_by(ask, 1), None);
        let found = effects.resolve(&origin(), "DB.test").await.unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.7:5432", "1.2.3.4:6432"]);
        let private = effects.resolve(&origin(), "private.test").await;
        assert_eq!(private, Err(LookupError::Denied));
        let leak = effects.resolve(&origin(), "data.evil.example").await;
        assert_eq!(leak, Err(LookupError::Denied));
        // One question, whichever rules cover the name.
        assert_eq!(*asked_for.lock().unwrap(), ["db.test", "private.test"]);
        assert!(effects.may_connect("1.2.3.4:25".parse().unwrap()));
        for other in ["1.2.3.4:26", "10.0.0.7:5432", "127.0.0.1:25"] {
            assert!(!effects.may_connect(other.parse().unwrap()), "{other}");
        }
        assert_eq!(effects.counts().tcp_denied.get(), 2);
    }
}
