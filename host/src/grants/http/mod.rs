//! `http`: requests by HTTP. Every request is compared with the rules of the operator before a packet leaves, and every
//! address after the answer of DNS.
//!
//! - [`rules`]: what is granted. [`target`]: URLs.
//! - [`provider`]: who sends a request. `requests`: those of an attempt, which a link asks; `recorded`: their answers for a
//!   dead letter. `client`: sends what a rule allows; `pool`: the connections of each rule; `idempotency`: keys of requests; `journaled`: requests
//!   whose answers are recorded; `adaptive`: how many calls a destination takes, and when it is closed;
//!   `connect`: DNS, the check of the address, TCP and TLS. [`stand_in`]: a server of a test.
//! - `link`: the interface of hostler, and `wasi:http`.

pub(super) mod adaptive;
pub(super) mod client;
mod connect;
mod idempotency;
mod journaled;
pub(super) mod link;
mod pool;
pub mod provider;
mod recorded;
pub(super) mod requests;
pub mod rules;
pub mod stand_in;
pub mod target;

use super::grant::Grant;

/// The grant.
pub(super) static GRANT: Grant = Grant {
    name: "http",
    interfaces: &[
        ("hostler:handler/http", &["1."]),
        ("wasi:http/types", &["0.2."]),
        ("wasi:http/outgoing-handler", &["0.2."]),
    ],
    is_given: |grants| grants.provided.http.is_some(),
    toml: "[[grant.http]]\nhost = \"api.example.com\"\nmethods = [\"GET\", \"POST\"]",
};
