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

/// `[[grant.http]]`.
pub(super) fn http() -> Json {
    let number = |max: u32| json!({ "type": "integer", "minimum": 1, "maximum": max });
    let methods = json!({ "type": "array", "items": { "type": "string" }, "minItems": 1 });
    let headers = json!({ "type": "object", "additionalProperties": { "type": "string" } });
    let keys = [
        ("host", host()),
        (
            "scheme",
            about(
                words(&["https", "http"]),
                "The scheme: `https` if not given.",
            ),
        ),
        (
            "port",
            about(port(), "The port: that of the scheme if not given."),
        ),
        (
            "path",
            about(text("^/"), "The path of every request begins with this."),
        ),
        (
            "methods",
            about(
                methods,
                "The methods: all but CONNECT and TRACE if not given.",
            ),
        ),
        ("networks", networks()),
        ("address", address()),
        (
            "headers",
            about(
                headers,
                "Headers that the host adds; `${secret:NAME}` is the value of a secret.",
            ),
        ),
        (
            "idempotency_key",
            about(
                bool::schema(),
                "Add a key to every request that can change something. If not given: true.",
            ),
        ),
        (
            "idempotency_header",
            about(
                String::schema(),
                "The header that carries it: `idempotency-key` if not given.",
            ),
        ),
        (
            "traceparent",
            about(
                bool::schema(),
                "Add the trace of the message, unless the handler sends its own. If not given: true.",
            ),
        ),
        (
            "timeout",
            about(
                Duration::schema(),
                "The longest time of a request: 30s if not given. It never exceeds the rest of the attempt.",
            ),
        ),
        (
            "response_max",
            about(
                ByteSize::schema(),
                "The largest body of a response: 1MiB if not given.",
            ),
        ),
        (
            "connections",
            about(
                number(1_000),
                "The most connections at a time: 32 if not given.",
            ),
        ),
        (
            "in_flight",
            about(
                number(10_000),
                "The most requests at a time: 256 if not given.",
            ),
        ),
        (
            "ca",
            about(
                String::schema(),
                "A file with the certificates (PEM) to trust instead of those of the system.",
            ),
        ),
        (
            "name",
            about(
                name(),
                "The label in metrics and events: the host if not given.",
            ),
        ),
    ];
    rules(table(&["host"], keys))
}

/// `[[grant.tcp]]`.
pub(super) fn tcp() -> Json {
    let keys = [
        ("host", host()),
        ("port", about(port(), "The port.")),
        ("networks", networks()),
        ("address", address()),
    ];
    rules(table(&["host", "port"], keys))
}

/// `[[grant.files]]`.
pub(super) fn files() -> Json {
    let keys = [
        ("path", about(text("^/"), "The directory on the host.")),
        ("at", about(text("^/"), "Where the handler finds it.")),
    ];
    rules(table(&["path", "at"], keys))
}

/// `[grant.secret]`.
pub(super) fn secrets() -> Json {
    let keys = [
        (
            "file",
            about(String::schema(), "The file whose content is the secret."),
        ),
        (
            "variable",
            about(String::schema(), "The variable whose value is the secret."),
        ),
        (
            "expose",
            about(
                bool::schema(),
                "The handler may read it. If not given: false.",
            ),
        ),
    ];
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

fn host() -> Json {
    about(
        String::schema(),
        "A host, an address, or `*.example.com` (every name below the domain).",
    )
}

fn port() -> Json {
    json!({ "type": "integer", "minimum": 1, "maximum": u16::MAX })
}

fn networks() -> Json {
    about(
        json!({ "type": "array", "items": { "type": "string" } }),
        "The addresses that the name may have, such as `10.0.0.0/8`: public ones if not given.",
    )
}

fn address() -> Json {
    about(
        String::schema(),
        "Connect to this address, whatever the name is.",
    )
}

fn name() -> Json {
    json!({ "type": "string", "pattern": format!("^[A-Za-z0-9._-]{{1,{NAME_MAX}}}$") })
}
