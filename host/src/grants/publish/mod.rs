//! `publish`: messages that are published with the acknowledgement. They are effects of the attempt, which the queue carries
//! out: there is no provider.

pub(super) mod link;
pub(crate) mod rules;

use super::grant::Grant;

/// What handlers of wasmCloud publish with.
pub(super) const WASMCLOUD_CONSUMER: &str = "wasmcloud:messaging/consumer";
pub(super) const WASMCLOUD_VERSION: &str = "0.2.0";

/// The grant.
pub(super) static GRANT: Grant = Grant {
    name: "publish",
    interfaces: &[
        ("hostler:handler/publisher", &["1."]),
        (WASMCLOUD_CONSUMER, &[WASMCLOUD_VERSION]),
    ],
    is_given: |grants| grants.publish.is_some(),
    toml: "[grant.publish]\nname = \"stream:key\"",
};
