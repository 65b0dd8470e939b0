//! The JSON Schemas of the rules of grants. A test compares their keys with those that `rules`
//! reads.

use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::config::schema::{about, table, text, words};
use crate::config::value::{ByteSize, Value};

/// The most rules of a kind: each request is compared with all.
pub(super) const RULES_MAX: usize = 100;
/// The longest name of a rule or a secret: it is a label of metrics.
pub(super) const NAME_MAX: usize = 64;

/// Keys of a table with their schemas. The doc comment of a key is its meaning.
macro_rules! keys {
    ($(#[doc = $meaning:literal] $key:literal: $schema:expr,)*) => {
        [$(($key, about($schema, $meaning.trim_ascii()))),*]
    };
}

/// `[[grant.http]]`.
pub(super) fn http() -> Json {
    let number = |max: u32| json!({ "type": "integer", "minimum": 1, "maximum": max });
    let methods = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
    let headers = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let keys = keys! {
        /// A host, an address, or `*.example.com` (every name below the domain).
        "host": String::schema(),
        /// The scheme: `https` if not given.
        "scheme": words(&["https", "http"]),
        /// The port: that of the scheme if not given.
        "port": port(),
        /// The path of every request begins with this.
        "path": text("^/"),
        /// The methods: all but CONNECT and TRACE if not given.
        "methods": methods,
        /// The addresses that the name may have, such as `10.0.0.0/8`: public ones if not given.
        "networks": networks(),
        /// Connect to this address: the name is not looked up.
        "address": String::schema(),
        /// Headers that the host adds; `${secret:NAME}` is the value of a secret.
        "headers": headers,
        /// Add a key to every request that can change something. If not given: true.
        "idempotency_key": bool::schema(),
        /// The header that carries it: `idempotency-key` if not given.
        "idempotency_header": String::schema(),
        /// Add the trace of the message, unless the handler sends its own. If not given: true.
        "traceparent": bool::schema(),
        /// The longest time of a request: 30s if not given. It never exceeds the rest of the attempt.
        "timeout": Duration::schema(),
        /// The largest body of a response: 1MiB if not given.
        "response_max": ByteSize::schema(),
        /// The most connections at a time: 32 if not given.
        "connections": number(1_000),
        /// The most requests at a time: 256 if not given.
        "in_flight": number(10_000),
        /// A file with the certificates (PEM) to trust instead of those of the system.
        "ca": String::schema(),
        /// The label in metrics and events: the host if not given.
        "name": name(),
    };
    rules(table(&["host"], keys))
}

/// `[[grant.tcp]]`.
pub(super) fn tcp() -> Json {
    let keys = keys! {
        /// A host, an address, or `*.example.com` (every name below the domain).
        "host": String::schema(),
        /// The port.
        "port": port(),
        /// The addresses that the name may have, such as `10.0.0.0/8`: public ones if not given.
        "networks": networks(),
        /// Connect to this address: the name is not looked up.
        "address": String::schema(),
    };
    rules(table(&["host", "port"], keys))
}

/// `[[grant.files]]`.
pub(super) fn files() -> Json {
    let keys = keys! {
        /// The directory on the host.
        "path": text("^/"),
        /// Where the handler finds it.
        "at": text("^/"),
    };
    rules(table(&["path", "at"], keys))
}

/// `[grant.secret]`.
pub(super) fn secrets() -> Json {
    let keys = keys! {
        /// The file whose content is the secret.
        "file": String::schema(),
        /// The variable whose value is the secret.
        "variable": String::schema(),
        /// The handler may read it. If not given: false.
        "expose": bool::schema(),
    };
    let mut entry = table(&[], keys);
    entry["oneOf"] = json!([{ "required": ["file"] }, { "required": ["variable"] }]);
    json!({
        "type": "object",
        "propertyNames": name(),
        "maxProperties": RULES_MAX,
        "additionalProperties": entry,
    })
}

fn rules(rule: Json) -> Json {
    json!({ "type": "array", "maxItems": RULES_MAX, "items": rule })
}

fn port() -> Json {
    json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX })
}

fn networks() -> Json {
    json!({ "type": "array", "items": { "type": "string" } })
}

fn name() -> Json {
    json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{NAME_MAX}}}$") })
}
