//! `config`: values that the operator configured for a handler. They are in memory: there is no provider.

pub(super) mod link;
pub mod rules;

use super::grant::Grant;

/// `wasi:config/store`, which has the same shape in these versions. Others are refused.
pub(super) const CONFIG: [&str; 3] = ["0.2.0-rc.1", "0.2.0-draft-2024-09-27", "0.2.0-draft"];

/// The variables of Spin.
pub(super) const SPIN_VARIABLES: &str = "fermyon:spin/variables";
/// The version of the interfaces of Spin.
pub(super) const SPIN_VERSION: &str = "2.0.0";

/// The grant.
pub(super) static GRANT: Grant = Grant {
    name: "config",
    interfaces: &[
        ("wasi:config/store", &CONFIG),
        (SPIN_VARIABLES, &[SPIN_VERSION]),
    ],
    is_given: |grants| grants.config.is_some(),
    toml: "[grant.config]\nname = \"value\"",
};
