//! `secret`: secrets for headers of requests, and for guests if they are exposed.

pub(super) mod link;
pub mod provider;
pub(super) mod reader;
pub mod rules;

use super::grant::Grant;

/// The grant.
pub(super) static GRANT: Grant = Grant {
    name: "secret",
    interfaces: &[("hostler:handler/secrets", &["1."])],
    is_given: |grants| grants.provided.exposes(),
    toml: "[grant.secret]\nname = { file = \"/run/secrets/name\", expose = true }",
};
