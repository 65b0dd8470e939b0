//! `key-value`: keys that are read at once, and written with the acknowledgement.

pub(super) mod link;
pub mod provider;
pub(crate) mod rules;
pub(super) mod store;

use super::configuration::SPIN_VERSION;
use super::grant::Grant;

/// The name of the grant.
pub(super) const KEY_VALUE: &str = "key-value";

/// `wasi:keyvalue`: that of wasmCloud, and that of Spin. Others are refused.
pub(super) const KEYVALUE: [&str; 2] = ["0.2.0-draft", "0.2.0-draft2"];

/// The keys of Spin.
pub(super) const SPIN_KEY_VALUE: &str = "fermyon:spin/key-value";

/// The grant.
pub(super) static GRANT: Grant = Grant {
    name: KEY_VALUE,
    interfaces: &[
        ("hostler:handler/key-value", &["1."]),
        ("wasi:keyvalue/store", &KEYVALUE),
        ("wasi:keyvalue/atomics", &KEYVALUE),
        ("wasi:keyvalue/batch", &KEYVALUE),
        (SPIN_KEY_VALUE, &[SPIN_VERSION]),
    ],
    is_given: |grants| grants.key_value.is_some(),
    toml: "[grant.key-value]\nprefix = \"{orders}:kv:\"",
};
