//! The rules of grants, as they are written: `[[grant.http]]`, `[[grant.tcp]]`, `[[grant.files]]` and
//! `[grant.secret]`.
//!
//! All problems of all rules are reported at once, each at the line of its rule.

use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use http::{HeaderName, Method};
use serde_json::{Map, Value as Json, json};

use crate::config::file::ABOVE_TABLES;
use crate::config::rule_schemas::{self, NAME_MAX, RULES_MAX};
use crate::config::settings;
use crate::config::value::{ByteSize, Invalid, LINE, Shape, Value, nearest};
use crate::grants::files::rules::Directory;
use crate::grants::http::rules::{HttpRule, Template};
use crate::grants::http::target::{Scheme, is_prefix};
use crate::grants::network::address::Network;
use crate::grants::network::reach::{HostPattern, Reach};
use crate::grants::secrets::rules::{SecretRule, SecretSource};
use crate::grants::tcp::rules::TcpRule;

/// The shortest and the longest time of a request; the attempt bounds it further.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);
const TIMEOUT_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The name that stands for "no rule" in metrics.
const RESERVED: &str = "none";
/// Headers that no rule may add.
const OF_CONNECTION: [&str; 5] = [
    "connection",
    "content-length",
    "host",
    "transfer-encoding",
    "upgrade",
];

impl Value for Vec<HttpRule> {
    const TYPE: &'static str = "array of tables";
    const SHAPE: Shape = Shape::Rules;

    fn parse(text: &str) -> Result<Self, Invalid> {
        read(text, "rule", "{\"host\":\"api.example.com\"}", http_rule)
    }

    fn show(&self) -> String {
        Json::from(self.iter().map(show_http).collect::<Vec<_>>()).to_string()
    }

    fn schema() -> Json {
        rule_schemas::http()
    }
}

impl Value for Vec<TcpRule> {
    const TYPE: &'static str = "array of tables";
    const SHAPE: Shape = Shape::Rules;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let example = "{\"host\":\"db.example.com\",\"port\":5432}";
        read(text, "rule", example, |table, _| {
            let host = table.required("host", host_pattern);
            let port = table.required("port", port);
            let reach = reach(table);
            let (host, port) = host.zip(port)?;
            Some(TcpRule { host, port, reach })
        })
    }

    fn show(&self) -> String {
        let shown = self.iter().map(|rule| {
            let mut shown = json!({ "host": rule.host.to_string(), "port": rule.port });
            show_reach(&rule.reach, &mut shown);
            shown
        });
        Json::from(shown.collect::<Vec<_>>()).to_string()
    }

    fn schema() -> Json {
        rule_schemas::tcp()
    }
}

impl Value for Vec<Directory> {
    const TYPE: &'static str = "array of tables";
    const SHAPE: Shape = Shape::Rules;

    fn parse(text: &str) -> Result<Self, Invalid> {
        let example = "{\"path\":\"/usr/lib/python3.11\",\"at\":\"/lib\"}";
        read(text, "directory", example, |table, others: &[Directory]| {
            let absolute = |text: &str| text.starts_with('/').then(|| text.to_owned());
            let path = |text: &str| absolute(text).ok_or("is not an absolute path");
            let path = table.required("path", path).map(PathBuf::from);
            let at = |text: &str| absolute(text).ok_or("does not start with `/`");
            let at = table.required("at", at);
            if let Some(at) = at.as_ref()
                && others.iter().any(|other| other.at == *at)
            {
                table.problem(format!("`at` = `{}` is there twice", shown(at)));
            }
            let (path, at) = path.zip(at)?;
            Some(Directory { path, at })
        })
    }

    fn show(&self) -> String {
        let shown = self.iter().map(
            |directory| json!({ "path": directory.path.display().to_string(), "at": directory.at }),
        );
        Json::from(shown.collect::<Vec<_>>()).to_string()
    }

    fn schema() -> Json {
        rule_schemas::files()
    }
}

impl Value for Vec<SecretRule> {
    const TYPE: &'static str = "table of tables";
    const SHAPE: Shape = Shape::Entries;

    fn parse(text: &str) -> Result<Self, Invalid> {
        // The error of the parser could repeat a value.
        let entries: Map<String, Json> = serde_json::from_str(text).map_err(|_| {
            Invalid::new("is not a JSON object of objects")
                .hint("write `{\"stripe\":{\"file\":\"/run/secrets/stripe\"}}`")
        })?;
        let mut problems = Vec::new();
        let mut rules = Self::new();
        for (name, entry) in &entries {
            let Json::Object(map) = entry else {
                let what = format!("`{}` is not a table", shown(name));
                let hint = "write `name = { file = \"...\" }`: the value of a secret is never in a \
                            configuration";
                problems.push(Invalid::new(what).hint(hint));
                continue;
            };
            let mut table = Table::new(map, format!("`{}`", shown(name)), &mut problems);
            if let Err(why) = check_name(name) {
                table.problem(why);
            }
            let file = table.optional("file", |text| PathBuf::parse(text).map_err(|e| e.what));
            let variable =
                table.optional("variable", |text| String::parse(text).map_err(|e| e.what));
            let expose = table.flag("expose").unwrap_or(false);
            let source = match (file, variable) {
                (Some(file), None) => Some(SecretSource::File(file)),
                (None, Some(variable)) => Some(SecretSource::Variable(variable, None)),
                _ => {
                    table.problem("needs either `file` or `variable`".to_owned());
                    None
                }
            };
            table.end();
            if let Some(source) = source {
                rules.push(SecretRule {
                    name: name.clone(),
                    source,
                    expose,
                });
            }
        }
        if rules.len() > RULES_MAX {
            problems.push(Invalid::new(format!("has more than {RULES_MAX} secrets")));
        }
        Invalid::all(problems)?;
        Ok(rules)
    }

    fn show(&self) -> String {
        let entries = self.iter().map(|rule| {
            let mut shown = match &rule.source {
                SecretSource::File(path) => json!({ "file": path.display().to_string() }),
                SecretSource::Variable(name, _) => json!({ "variable": name }),
            };
            if rule.expose {
                shown["expose"] = true.into();
            }
            (rule.name.clone(), shown)
        });
        Json::Object(entries.collect()).to_string()
    }

    fn schema() -> Json {
        rule_schemas::secrets()
    }
}

/// The rules of an array of tables. Each comes from its table and the rules before it.
fn read<T>(
    text: &str,
    noun: &str,
    example: &str,
    rule: impl Fn(&mut Table<'_>, &[T]) -> Option<T>,
) -> Result<Vec<T>, Invalid> {
    // The error of the parser could repeat a value.
    let tables: Vec<Map<String, Json>> = serde_json::from_str(text).map_err(|_| {
        Invalid::new("is not a JSON array of objects").hint(format!("write `[{example}]`"))
    })?;
    if tables.len() > RULES_MAX {
        return Err(Invalid::new(format!("has more than {RULES_MAX} rules")));
    }
    let (mut rules, mut problems) = (Vec::new(), Vec::new());
    for (number, map) in (1..).zip(&tables) {
        let mut table = Table::new(map, format!("{noun} {number}"), &mut problems);
        let rule = rule(&mut table, &rules);
        table.end();
        rules.extend(rule);
    }
    Invalid::all(problems)?;
    Ok(rules)
}

fn http_rule(table: &mut Table<'_>, others: &[HttpRule]) -> Option<HttpRule> {
    let name = table.optional("name", |text| check_name(text).map(|()| text.to_owned()));
    let scheme = table.optional("scheme", |text| match text {
        "http" => Ok(Scheme::Http),
        "https" => Ok(Scheme::Https),
        _ => Err("is neither `http` nor `https`"),
    });
    let scheme = scheme.unwrap_or(Scheme::Https);
    let host = table.required("host", host_pattern);
    let port = table.optional("port", port).unwrap_or(scheme.port());
    let path = table.optional("path", |text| {
        let path = is_prefix(text).then(|| text.to_owned());
        path.ok_or("is not a path like `/v1`, as it stands in a URL")
    });
    let methods = table.list("methods", |text| {
        let upper = text.to_ascii_uppercase();
        match Method::from_bytes(upper.as_bytes()) {
            Ok(Method::CONNECT | Method::TRACE) => Err("cannot be granted"),
            Ok(method) => Ok(method),
            Err(_) => Err("is not a method"),
        }
    });
    let reach = reach(table);
    let connections = table.optional("connections", |text| count(text, 1_000));
    let in_flight = table.optional("in_flight", |text| count(text, 10_000));
    let response_max = table.optional("response_max", |text| {
        let size = ByteSize::parse(text).map_err(|error| error.what)?;
        let size = Some(size.0).filter(|size| *size <= 1 << 30);
        size.ok_or_else(|| "is more than 1GiB".to_owned())
    });
    let timeout = table.optional("timeout", |text| {
        let time = Duration::parse(text).map_err(|error| error.what)?;
        let time = Some(time).filter(|time| (TIMEOUT_MIN..=TIMEOUT_MAX).contains(time));
        time.ok_or_else(|| "is not between 1ms and 1day".to_owned())
    });
    let ca = table.optional("ca", |text| PathBuf::parse(text).map_err(|e| e.what));
    if ca.is_some() && scheme == Scheme::Http {
        table.problem("`ca` means nothing with `scheme = \"http\"`".to_owned());
    }
    let adds_key = table.flag("idempotency_key");
    let key = table.optional("idempotency_header", header_name);
    if key.is_some() && adds_key == Some(false) {
        table.problem(
            "`idempotency_header` means nothing with `idempotency_key = false`".to_owned(),
        );
    }
    let key = key.unwrap_or(HeaderName::from_static("idempotency-key"));
    let headers = headers(table);
    let traceparent = table.flag("traceparent").unwrap_or(true);
    let has_secret = headers
        .iter()
        .any(|(_, value)| value.secrets().next().is_some());
    if methods.as_ref().is_some_and(Vec::is_empty) {
        table.problem("`methods` is empty: the rule would allow nothing".to_owned());
    }
    let host = host?;
    let is_here = matches!(&reach.address, Some(address) if address.is_loopback());
    if has_secret && scheme == Scheme::Http && !is_here && !host.is_loopback() {
        table.problem(
            "a header with a secret would be sent without encryption: use `scheme = \"https\"`, or \
             `address` with an address of this machine"
                .to_owned(),
        );
    }
    let is_taken = |name: &str| others.iter().any(|other| other.name == name);
    if let Some(name) = name.as_ref().filter(|name| is_taken(name)) {
        table.problem(format!("the name `{name}` is there twice"));
    }
    let name = name.unwrap_or_else(|| match host.to_string() {
        host if is_taken(&host) => format!("{host}-{}", others.len() + 1),
        host => host,
    });
    Some(HttpRule {
        name,
        scheme,
        host,
        port,
        path: path.unwrap_or_else(|| "/".to_owned()),
        methods,
        reach,
        connections: connections.unwrap_or(32),
        in_flight: in_flight.unwrap_or(256),
        response_max: response_max.unwrap_or(1 << 20),
        timeout: timeout.unwrap_or(Duration::from_secs(30)),
        ca,
        headers,
        idempotency_key: adds_key.unwrap_or(true).then_some(key),
        traceparent,
    })
}

fn headers(table: &mut Table<'_>) -> Vec<(HeaderName, Template)> {
    let mut headers = Vec::new();
    let Some(written) = table.table("headers") else {
        return headers;
    };
    for (name, value) in written {
        let added = match (header_name(name), value) {
            (Ok(name), Json::String(value)) => {
                Template::parse(value).map(|template| (name, template))
            }
            (Ok(_), _) => Err("is not a string".to_owned()),
            (Err(why), _) => Err(why),
        };
        match added {
            Ok(added) => headers.push(added),
            // The value may be a secret: it is not shown.
            Err(why) => table.problem(format!("the header `{}`: {why}", shown(name))),
        }
    }
    headers
}

fn reach(table: &mut Table<'_>) -> Reach {
    let address = table.optional("address", |text| {
        IpAddr::from_str(text).map_err(|_| "is not an address")
    });
    let networks = table.list("networks", |text| {
        Network::parse(text).ok_or("is not a network like `10.0.0.0/8`")
    });
    if address.is_some() && networks.is_some() {
        table.problem("`networks` means nothing with `address`".to_owned());
    }
    Reach {
        address,
        networks: networks.unwrap_or_default(),
    }
}

fn host_pattern(text: &str) -> Result<HostPattern, &'static str> {
    HostPattern::parse(text).ok_or(
        "is not a host like `api.example.com` or `*.example.com`: no scheme, no port, no path",
    )
}

fn port(text: &str) -> Result<u16, &'static str> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or("is not a port")
}

fn count(text: &str, max: usize) -> Result<usize, String> {
    let number = text.parse().ok().filter(|n| (1..=max).contains(n));
    number.ok_or_else(|| format!("is not between 1 and {max}"))
}

fn header_name(text: &str) -> Result<HeaderName, String> {
    match HeaderName::from_bytes(text.as_bytes()) {
        Ok(name) if OF_CONNECTION.contains(&name.as_str()) => {
            Err("belongs to the connection".to_owned())
        }
        Ok(name) => Ok(name),
        Err(_) => Err("is not the name of a header".to_owned()),
    }
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    match name {
        RESERVED => Err(format!("`{RESERVED}` is reserved")),
        _ if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) => Err(
            format!("a name has 1 to {NAME_MAX} letters, digits, `.`, `_` or `-`"),
        ),
        _ => Ok(()),
    }
}

fn shown(text: &str) -> String {
    crate::delivery::text::printable(crate::delivery::text::truncated(text, NAME_MAX))
}

fn line_of(map: &Map<String, Json>) -> Option<usize> {
    map.get(LINE)?.as_u64()?.try_into().ok()
}

fn show_http(rule: &HttpRule) -> Json {
    let mut shown = json!({
        "name": rule.name,
        "scheme": rule.scheme.name(),
        "host": rule.host.to_string(),
        "port": rule.port,
        "path": rule.path,
        "connections": rule.connections,
        "in_flight": rule.in_flight,
        "response_max": ByteSize(rule.response_max).show(),
        "timeout": rule.timeout.show(),
        "idempotency_key": rule.idempotency_key.is_some(),
        "traceparent": rule.traceparent,
    });
    if let Some(methods) = &rule.methods {
        let methods = methods.iter().map(Method::as_str);
        shown["methods"] = methods.collect::<Vec<_>>().into();
    }
    if let Some(name) = &rule.idempotency_key {
        shown["idempotency_header"] = name.as_str().into();
    }
    if let Some(ca) = &rule.ca {
        shown["ca"] = ca.display().to_string().into();
    }
    if !rule.headers.is_empty() {
        let headers = rule.headers.iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_string().into()));
        shown["headers"] = Json::Object(headers.collect());
    }
    show_reach(&rule.reach, &mut shown);
    shown
}

fn show_reach(reach: &Reach, shown: &mut Json) {
    if let Some(address) = reach.address {
        shown["address"] = address.to_string().into();
    }
    if !reach.networks.is_empty() {
        let networks = reach.networks.iter().map(Network::to_string);
        shown["networks"] = networks.collect::<Vec<_>>().into();
    }
}

/// One table, with its problems. A key that nobody asks for is a problem.
struct Table<'a> {
    map: &'a Map<String, Json>,
    name: String,
    asked: Vec<&'static str>,
    problems: &'a mut Vec<Invalid>,
}

impl<'a> Table<'a> {
    fn new(map: &'a Map<String, Json>, name: String, problems: &'a mut Vec<Invalid>) -> Self {
        Self {
            map,
            name,
            asked: Vec::new(),
            problems,
        }
    }

    fn problem(&mut self, what: String) {
        let what = format!("{}: {what}", self.name);
        self.problems.push(Invalid::new(what).at(line_of(self.map)));
    }

    fn get(&mut self, key: &'static str) -> Option<&'a Json> {
        self.asked.push(key);
        self.map.get(key)
    }

    fn required<T, W: Into<String>>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, W>,
    ) -> Option<T> {
        if !self.map.contains_key(key) {
            self.problem(format!("`{key}` is missing"));
        }
        self.optional(key, parse)
    }

    fn optional<T, W: Into<String>>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, W>,
    ) -> Option<T> {
        let text = match self.get(key)? {
            Json::String(text) => text.clone(),
            Json::Number(number) => number.to_string(),
            other => {
                self.problem(format!("`{key}` is {}, not a text", kind(other)));
                return None;
            }
        };
        match parse(&text) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(format!("`{key}`: {}", with_value(&text, &why.into())));
                None
            }
        }
    }

    fn list<T>(
        &mut self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, &'static str>,
    ) -> Option<Vec<T>> {
        let Json::Array(items) = self.get(key)? else {
            self.problem(format!("`{key}` is not an array of texts"));
            return None;
        };
        let mut values = Vec::new();
        for item in items {
            let text = item.as_str().unwrap_or_default();
            match parse(text) {
                Ok(value) => values.push(value),
                Err(why) => self.problem(format!("`{key}`: {}", with_value(text, why))),
            }
        }
        Some(values)
    }

    fn flag(&mut self, key: &'static str) -> Option<bool> {
        match self.get(key)? {
            Json::Bool(flag) => Some(*flag),
            _ => {
                self.problem(format!("`{key}` is neither `true` nor `false`"));
                None
            }
        }
    }

    fn table(&mut self, key: &'static str) -> Option<&'a Map<String, Json>> {
        match self.get(key)? {
            Json::Object(map) => Some(map),
            other => {
                self.problem(format!("`{key}` is {}, not a table", kind(other)));
                None
            }
        }
    }

    /// Report the keys that nobody asked for.
    fn end(mut self) {
        let is_known = |key: &&String| *key == LINE || self.asked.contains(&key.as_str());
        let unknown: Vec<_> = self.map.keys().filter(|key| !is_known(key)).collect();
        for key in unknown {
            let hint = match nearest(key, self.asked.iter().copied()) {
                Some(known) => format!("did you mean `{known}`?"),
                None if settings::find(key).is_some() => ABOVE_TABLES.to_owned(),
                None => format!("the keys are {}", self.asked.join(", ")),
            };
            self.problem(format!("unknown key `{}`: {hint}", shown(key)));
        }
    }
}

/// A problem with the text that has it, if the problem does not repeat it.
fn with_value(text: &str, why: &str) -> String {
    match why.starts_with('`') {
        true => why.to_owned(),
        false => format!("`{}` {why}", shown(text)),
    }
}

fn kind(value: &Json) -> &'static str {
    match value {
        Json::Null => "nothing",
        Json::Bool(_) => "a boolean",
        Json::Number(_) => "a number",
        Json::String(_) => "a text",
        Json::Array(_) => "an array",
        Json::Object(_) => "a table",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The keys that a rule may have, as an error lists them.
    fn keys_that_are_read<T: Value>(rules: &str) -> BTreeSet<String> {
        let Err(invalid) = T::parse(rules) else {
            unreachable!("no rule has this key");
        };
        let all = std::iter::once(&invalid).chain(&invalid.others);
        let listed = all.filter_map(|invalid| invalid.what.split_once("the keys are "));
        let listed = listed.flat_map(|(_, keys)| keys.split(", "));
        listed.map(str::to_owned).collect()
    }

    #[test]
    fn the_schemas_have_every_key_that_is_read_and_no_other() {
        let unknown = r#"[{"?":1}]"#;
        let keys = |table: &Json| -> BTreeSet<String> {
            let keys = table["properties"].as_object().expect("a table");
            keys.keys().cloned().collect()
        };
        let http = keys_that_are_read::<Vec<HttpRule>>(unknown);
        assert_eq!(http, keys(&Vec::<HttpRule>::schema()["items"]));
        let tcp = keys_that_are_read::<Vec<TcpRule>>(unknown);
        assert_eq!(tcp, keys(&Vec::<TcpRule>::schema()["items"]));
        let files = keys_that_are_read::<Vec<Directory>>(unknown);
        assert_eq!(files, keys(&Vec::<Directory>::schema()["items"]));
        let secret = keys_that_are_read::<Vec<SecretRule>>(r#"{"a":{"?":1}}"#);
        let schema = Vec::<SecretRule>::schema();
        assert_eq!(secret, keys(&schema["additionalProperties"]));
    }
}
