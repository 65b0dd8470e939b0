//! The HTTP requests that a handler may send: `[[grant.http]]`.

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Method};

use super::target::{Scheme, Target};
use crate::grants::network::reach::{HostPattern, Reach};

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
    /// The idempotency key that the host adds.
    pub idempotency_key: Option<KeyRule>,
    /// Whether the trace of the message goes on.
    pub traceparent: bool,
}

/// The idempotency key of requests that can change something.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyRule {
    /// The header that carries it.
    pub header: HeaderName,
    /// Whether it replaces the key that a handler writes; otherwise that one is its end.
    pub always: bool,
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
