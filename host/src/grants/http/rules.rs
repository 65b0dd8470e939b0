//! The HTTP requests that a handler may send: `[[grant.http]]`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};
use serde_json::{Map, Value as Json, json};

use super::target::{Scheme, Target, is_prefix};
use crate::grants::journal::rules::{Status, Unknown};
use crate::grants::name::Name;
use crate::grants::network::address::Network;
use crate::grants::network::reach::{HostPattern, Reach, check_reach};
use crate::values::table::{List, Table, UpTo, printed, rule, texts, with_value};
use crate::values::{ByteSize, Invalid, Shape, Value, schema};

/// The longest time of a request; the attempt bounds it further.
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
/// The most bytes of a body of a response.
const RESPONSE_MAX: ByteSize = ByteSize(1 << 30);
/// Headers that no rule may add.
const OF_CONNECTION: [&str; 5] = [
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

rule! {
    /// Requests that are allowed, and how they are sent.
    pub struct HttpRule: "rule", "{\"host\":\"api.example.com\"}";
    /// The label in metrics and events: the host if not given.
    default name: Name = Name::default();
    /// The scheme: `https` if not given.
    default scheme: Scheme = Scheme::Https;
    /// A host, an address, or `*.example.com` (every name below the domain).
    required host: HostPattern;
    /// The port: that of the scheme if not given.
    default port: u16 = scheme.port();
    /// The path of every request begins with this.
    default path: String = "/".to_owned(), as schema::text("^/");
    /// The methods: all but CONNECT and TRACE if not given.
    optional methods: List<Method>, as methods_schema();
    /// Connect to this address: the name is not looked up.
    optional address: IpAddr;
    /// The addresses that the name may have, such as `10.0.0.0/8`: public ones if not given.
    optional networks: List<Network>;
    /// The most connections at a time: 32 if not given.
    default connections: UpTo<1_000> = UpTo(32);
    /// The most requests at a time: 256 if not given.
    default in_flight: UpTo<10_000> = UpTo(256);
    /// The requests at a time to each destination follow its answers, up to `in_flight`: latency, 429, 503, `Retry-After`. While one is away,
    /// its requests fail at once, and their messages are held. If not given: false.
    default adaptive: bool = false;
    /// The largest body of a response: 1MiB if not given.
    default response_max: ByteSize = ByteSize(1 << 20);
    /// The longest time of a request: 30s if not given. It never exceeds the rest of the attempt.
    default timeout: Duration = Duration::from_secs(30);
    /// A file with the certificates (PEM) to trust instead of those of the system.
    optional ca: PathBuf;
    /// Add a key to every request that can change something. If not given: true. `"always"` also replaces the key that a handler
    /// writes.
    default idempotency_key: AddsKey = AddsKey::Yes;
    /// The header that carries it: `idempotency-key` if not given.
    optional idempotency_header: HeaderName;
    /// Record the answers to requests that can change something: a later attempt at the message gets them, and the requests are
    /// not sent again. If not given: false.
    default journal: bool = false;
    /// The answers that are recorded, such as `2xx` or `409`: `2xx` if not given.
    optional journal_status: List<Status>;
    /// What happens if an earlier attempt may have sent a request, and its answer is not known: `again` if not given. `fail`: no
    /// further request of the rule leaves.
    default unknown: Unknown = Unknown::Again;
    /// Headers that the host adds; `${secret:NAME}` is the value of a secret.
    optional headers: Headers;
    /// Add the trace of the message, unless the handler sends its own. If not given: true.
    default traceparent: bool = true;
    settle Self::settle;
}

/// When the host adds an idempotency key to a request that can change something.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AddsKey {
    /// Never.
    No,
    /// To each one. A key that the handler writes is its end.
    Yes,
    /// To each one, in the place of a key that the handler writes.
    Always,
}

impl Value for AddsKey {
    const TYPE: &'static str = "`true` | `false` | `always`";
    const SHAPE: Shape = Shape::Bool;

    fn parse(text: &str) -> Result<Self, Invalid> {
        match text {
            "always" => Ok(Self::Always),
            _ => match bool::parse(text) {
                Ok(true) => Ok(Self::Yes),
                Ok(false) => Ok(Self::No),
                Err(_) => Err(Invalid::new("is neither `true`, `false` nor `always`")),
            },
        }
    }

    fn show(&self) -> String {
        match self {
            Self::No => false.show(),
            Self::Yes => true.show(),
            Self::Always => "\"always\"".to_owned(),
        }
    }

    fn schema() -> Json {
        json!({ "enum": [true, false, "always"] })
    }
}

impl HttpRule {
    fn settle(&mut self, table: &mut Table<'_>, others: &[Self]) {
        let problem = |table: &mut Table<'_>, key: &str, value: String, why: &str| {
            table.problem(format!("`{key}`: {}", with_value(&value, why)));
        };
        if !is_prefix(&self.path) {
            let why = "is not a path like `/v1`, as it stands in a URL";
            problem(table, "path", self.path.clone(), why);
        }
        if self.response_max > RESPONSE_MAX {
            let why = "is more than 1GiB";
            problem(table, "response_max", self.response_max.show(), why);
        }
        if !(TIMEOUT_MIN..=TIMEOUT_MAX).contains(&self.timeout) {
            let why = "is not between 1ms and 1day";
            problem(table, "timeout", self.timeout.show(), why);
        }
        check_reach(self.address, self.networks.as_ref(), table);
        if self.ca.is_some() && self.scheme == Scheme::Http {
            table.problem("`ca` means nothing with `scheme = \"http\"`");
        }
        match (self.idempotency_key, &self.idempotency_header) {
            (AddsKey::Yes | AddsKey::Always, None) => {
                self.idempotency_header = Some(HeaderName::from_static("idempotency-key"));
            }
            (AddsKey::No, Some(_)) => {
                table.problem("`idempotency_header` means nothing with `idempotency_key = false`");
            }
            _ => {}
        }
        if self
            .methods
            .as_ref()
            .is_some_and(|methods| methods.is_empty())
        {
            table.problem("`methods` is empty: the rule would allow nothing");
        }
        if !self.journal && (self.journal_status.is_some() || self.unknown != Unknown::Again) {
            table.problem("`journal_status` and `unknown` mean nothing without `journal = true`");
        }
        let has_secret = self
            .added()
            .any(|(_, value)| value.secrets().next().is_some());
        let is_here = self.address.is_some_and(|address| address.is_loopback());
        if has_secret && self.scheme == Scheme::Http && !is_here && !self.host.is_loopback() {
            table.problem(
                "a header with a secret would be sent without encryption: use `scheme = \"https\"`, or \
                 `address` with an address of this machine",
            );
        }
        let is_taken = |name: &str| others.iter().any(|other| *other.name == *name);
        if self.name.is_empty() {
            let host = self.host.to_string();
            self.name = Name(match is_taken(&host) {
                true => format!("{host}-{}", others.len() + 1),
                false => host,
            });
        } else if is_taken(&self.name) {
            table.problem(format!("the name `{}` is there twice", *self.name));
        }
    }

    /// Whether its journal keeps answers with this status.
    pub(super) fn keeps(&self, status: u16) -> bool {
        match &self.journal_status {
            Some(kept) => kept.iter().any(|kept| kept.covers(status)),
            None => Status::SUCCESS.covers(status),
        }
    }

    /// The headers that the host adds.
    pub(crate) fn added(&self) -> impl Iterator<Item = &(HeaderName, Template)> {
        self.headers.iter().flat_map(|headers| &headers.0)
    }

    /// The addresses that the server may have.
    pub(in crate::grants) fn reach(&self) -> Reach {
        Reach::new(self.address, self.networks.as_ref())
    }

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

/// Whether a request of this method can change something: it has an idempotency key, and a journal records it.
pub(super) fn changes_something(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::OPTIONS, Method::TRACE].contains(method)
}

fn methods_schema() -> Json {
    let mut schema = List::<Method>::schema();
    schema["minItems"] = 1.into();
    schema
}

texts! {
    Scheme: "`https` | `http`", |text| match text {
        "http" => Ok(Self::Http),
        "https" => Ok(Self::Https),
        _ => Err("is neither `http` nor `https`".to_owned()),
    }, schema::words(&["https", "http"]);

    Method: "method", |text| match Self::from_bytes(text.to_ascii_uppercase().as_bytes()) {
        Ok(Self::CONNECT | Self::TRACE) => Err("cannot be granted".to_owned()),
        method => method.map_err(|_| "is not a method".to_owned()),
    };

    HeaderName: "name of a header", |text| match Self::from_bytes(text.as_bytes()) {
        Ok(name) if OF_CONNECTION.contains(&name.as_str()) => {
            Err("belongs to the connection".to_owned())
        }
        name => name.map_err(|_| "is not the name of a header".to_owned()),
    }, String::schema();
}

/// Headers that the host adds.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Headers(Vec<(HeaderName, Template)>);

impl Value for Headers {
    const TYPE: &'static str = "table of strings";
    const SHAPE: Shape = Shape::Table;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let written: Map<String, Json> =
            serde_json::from_str(text).map_err(|_| Invalid::new("`headers` is not a table"))?;
        let (mut headers, mut problems) = (Vec::new(), Vec::new());
        for (name, value) in &written {
            let added = match (HeaderName::parse(name), value) {
                (Ok(name), Json::String(value)) => {
                    Template::parse(value).map(|template| (name, template))
                }
                (Ok(_), _) => Err("is not a string".to_owned()),
                (Err(error), _) => Err(error.what),
            };
            match added {
                Ok(added) => headers.push(added),
                // The value may be a secret: it is not shown.
                Err(why) => {
                    let what = format!("the header `{}`: {why}", printed(name));
                    problems.push(Invalid::new(what));
                }
            }
        }
        Invalid::all(problems)?;
        Ok(Self(headers))
    }

    fn show(&self) -> String {
        let headers = self.0.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_string().into()));
        Json::Object(headers.collect()).to_string()
    }

    fn schema() -> Json {
        json!({ "type": "object", "additionalProperties": { "type": "string" } })
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
