//! The providers of this host, and the one place that chooses which of them a handler gets.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use super::denials::Denials;
use super::http::adaptive::Destinations;
use super::http::client::Client;
use super::http::rules::HttpRule;
use super::http::stand_in::Answering;
use super::key_value::store::Store;
use super::network::names::{of_a_rule, of_system};
use super::provided::Provided;
use super::secrets::reader::Secrets;
use super::secrets::rules::SecretRule;
use super::tcp::rules::TcpRule;
use super::tcp::sockets::Sockets;
use crate::redis::connection::Connector;
use crate::redis::names::Names;
use crate::telemetry::rules::RuleCounts;

/// Everything that is granted outside the sandbox. Providers do only this.
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

/// Everything that is granted outside the sandbox. Clones share it.
#[derive(Clone, Debug)]
pub struct Providers {
    rules: Rules,
    names: Names,
    http: Arc<Client>,
    tcp: Arc<Sockets>,
    secrets: Arc<Secrets>,
    keys: Arc<Store>,
    counts: Arc<RuleCounts>,
}

impl Providers {
    /// What these rules grant. Nothing is read or opened yet.
    pub fn new(rules: Rules) -> Self {
        Self::with(rules, of_system(), None)
    }

    /// The same rules, with these answers to every request: none leaves this process.
    #[must_use]
    pub fn answered_by(&self, answering: Answering) -> Self {
        Self::with(self.rules.clone(), self.names.clone(), Some(answering))
    }

    fn with(rules: Rules, names: Names, answering: Option<Answering>) -> Self {
        let labels = rules.http.iter().map(|rule| rule.name.to_string());
        let counts = Arc::new(RuleCounts::new(labels));
        let destinations = rules.http.iter().zip(&counts.http).map(|(rule, count)| {
            // A stand-in answers as a test says: it is never away.
            let adapts = rule.adaptive && answering.is_none();
            let made = adapts.then(|| Destinations::new(&rule.name, rule.in_flight.0))?;
            count.follow(Arc::clone(&made) as _);
            Some(made)
        });
        let destinations = destinations.collect();
        let denials = Arc::<Denials>::default();
        let secrets = Arc::new(Secrets::new(&rules.secrets, &denials));
        let rules_of_all = rules.http.len() + rules.tcp.len();
        let tcp_names = rules.tcp.iter().map(|_| of_a_rule(&names, rules_of_all));
        Self {
            tcp: Arc::new(Sockets {
                rules: rules.tcp.clone(),
                names: tcp_names.collect(),
                counts: Arc::clone(&counts),
                denials: Arc::clone(&denials),
            }),
            http: Arc::new(Client {
                rules: rules.http.clone(),
                group: rules.group.clone(),
                names: names.clone(),
                rules_of_all,
                answering,
                pools: rules.http.iter().map(|_| OnceLock::new()).collect(),
                destinations,
                system_tls: OnceLock::new(),
                secrets: Arc::clone(&secrets),
                counts: Arc::clone(&counts),
                denials,
            }),
            secrets,
            keys: Arc::default(),
            counts,
            names,
            rules,
        }
    }

    /// The providers of a handler: the place where another one is put before one of these.
    pub fn provided(&self) -> Provided {
        let rules = &self.rules;
        Provided {
            http: (!rules.http.is_empty()).then(|| Arc::clone(&self.http) as _),
            tcp: (!rules.tcp.is_empty()).then(|| Arc::clone(&self.tcp) as _),
            secrets: (!rules.secrets.is_empty()).then(|| Arc::clone(&self.secrets) as _),
            keys: rules.keys.then(|| Arc::clone(&self.keys) as _),
        }
    }

    /// Keys are those of this server from now on.
    pub fn connect(&self, connector: &Connector) {
        self.keys.connect(connector);
    }

    /// A handler is tried, without a server: these keys have these values, and no other key has one.
    pub fn try_with<V: Into<Bytes>>(&self, values: impl Iterator<Item = (String, V)>) {
        let values = values.map(|(key, value)| (key, value.into()));
        self.keys.try_with(values.collect());
    }

    /// The most connections of all rules at a time.
    pub fn connections_max(&self) -> usize {
        self.rules.http.iter().map(|rule| rule.connections.0).sum()
    }

    /// What the rules count.
    pub fn counts(&self) -> &Arc<RuleCounts> {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use ::http::Response;
    use async_trait::async_trait;
    use bytes::Bytes;
    use http_body_util::BodyExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::grants::context::{Context, Origin};
    use crate::grants::http;
    use crate::grants::http::provider::{Body, HttpError, HttpRequest, Provider as _};
    use crate::grants::http::rules::AddsKey;
    use crate::grants::http::target::Scheme;
    use crate::grants::journal::rules::Unknown;
    use crate::grants::name::Name;
    use crate::grants::network::address::Network;
    use crate::grants::network::reach::HostPattern;
    use crate::grants::scope::Scope;
    use crate::grants::tcp::provider::{LookupError, Provider as _};
    use crate::redis::names::Ask;
    use crate::values::ByteSize;
    use crate::values::table::{List, UpTo};

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
            journal: None,
            hold: None,
        }
    }

    fn rule(host: &str, port: u16, networks: &[&str]) -> HttpRule {
        HttpRule {
            name: Name(host.to_owned()),
            scheme: Scheme::Http,
            host: HostPattern::parse(host).unwrap(),
            port,
            path: "/".to_owned(),
            methods: None,
            address: None,
            networks: self::networks(networks),
            connections: UpTo(4),
            in_flight: UpTo(4),
            adaptive: false,
            response_max: ByteSize(1 << 20),
            timeout: Duration::from_secs(10),
            ca: None,
            headers: None,
            idempotency_key: AddsKey::No,
            idempotency_header: None,
            traceparent: false,
            journal: false,
            journal_status: None,
            unknown: Unknown::Again,
        }
    }

    fn networks(networks: &[&str]) -> Option<List<Network>> {
        let networks = networks.iter().map(|n| Network::parse(n).unwrap());
        Some(List(networks.collect()))
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

    async fn get(providers: &Providers, url: &str) -> Result<Bytes, HttpError> {
        let response = providers.http.send(&origin(), 1, request(url)).await?;
        Ok(response.into_body().collect().await?.to_bytes())
    }

    fn request(url: &str) -> HttpRequest {
        HttpRequest {
            method: "GET".to_owned(),
            url: url.to_owned(),
            headers: Vec::new(),
            body: Body::default(),
            timeout: None,
        }
    }

    /// Stands before another provider: notes each request, and refuses those to one path.
    #[derive(Debug)]
    struct Noting {
        next: Arc<dyn http::provider::Provider>,
        noted: Mutex<Vec<String>>,
    }

    #[async_trait]
    impl http::provider::Provider for Noting {
        fn check(&self) -> Vec<String> {
            self.next.check()
        }

        fn adapts(&self) -> bool {
            self.next.adapts()
        }

        fn refuses_batches(&self) -> Option<String> {
            self.next.refuses_batches()
        }

        async fn send(
            &self,
            origin: &Origin,
            ordinal: u32,
            request: HttpRequest,
        ) -> Result<Response<Body>, HttpError> {
            let noted = format!("{ordinal} {}", request.url);
            self.noted.lock().unwrap().push(noted);
            match request.url.ends_with("/refused") {
                true => Err(HttpError::Denied("it was not recorded".to_owned())),
                false => self.next.send(origin, ordinal, request).await,
            }
        }
    }

    #[tokio::test]
    async fn a_provider_stands_before_another_one() {
        let answering: Answering = Arc::new(|asked| Response::new(asked.line.into()));
        let rules = Rules {
            http: vec![rule("api.test", 80, &[])],
            ..Rules::default()
        };
        let mut provided = Providers::new(rules).answered_by(answering).provided();
        let noting = Arc::new(Noting {
            next: provided.http.take().unwrap(),
            noted: Mutex::default(),
        });
        provided.http = Some(Arc::clone(&noting) as _);
        let scope = Scope::new(&provided, Context::new(origin(), None, 10));
        let requests = scope.http().unwrap();
        let answer = Arc::clone(&requests).send(request("http://api.test/a"));
        let answer = answer.await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(answer.to_bytes(), "GET http://api.test/a");
        let refused = requests.send(request("http://api.test/refused")).await;
        assert!(matches!(refused, Err(HttpError::Denied(_))), "{refused:?}");
        let noted = noting.noted.lock().unwrap();
        assert_eq!(*noted, ["1 http://api.test/a", "2 http://api.test/refused"]);
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
        let providers = Providers::with(rules, names, None);
        let url = format!("http://rebind.test:{port}/");
        let mut found = Vec::new();
        for _ in 0..6 {
            found.push(match get(&providers, &url).await {
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
        let providers = Providers::with(rules, names, None);
        let inside = get(&providers, &format!("http://api.test:{port}/inside")).await;
        assert_eq!(inside.unwrap(), "127.0.0.1");
        let other = get(&providers, &format!("http://api.test:{port}/other")).await;
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
            address: None,
            networks: self::networks(networks),
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
        let providers = Providers::with(rules, Names::answered_by(ask, 1), None);
        let found = providers.tcp.resolve(&origin(), "DB.test").await.unwrap();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["10.0.0.7:5432", "1.2.3.4:6432"]);
        let private = providers.tcp.resolve(&origin(), "private.test").await;
        assert_eq!(private, Err(LookupError::Denied));
        let leak = providers.tcp.resolve(&origin(), "data.evil.example").await;
        assert_eq!(leak, Err(LookupError::Denied));
        // One question, whichever rules cover the name.
        assert_eq!(*asked_for.lock().unwrap(), ["db.test", "private.test"]);
        assert!(providers.tcp.may_connect("1.2.3.4:25".parse().unwrap()));
        for other in ["1.2.3.4:26", "10.0.0.7:5432", "127.0.0.1:25"] {
            assert!(
                !providers.tcp.may_connect(other.parse().unwrap()),
                "{other}"
            );
        }
        assert_eq!(providers.counts().tcp_denied.get(), 2);
    }
}
