//! The secrets of a handler: `[grant.secret]`.

use std::path::PathBuf;

/// A secret.
#[derive(Clone, Debug)]
pub struct SecretRule {
    /// Its name.
    pub name: String,
    /// Where its value is.
    pub source: SecretSource,
    /// Whether the guest may read it.
    pub expose: bool,
}

/// Where the value of a secret is.
#[derive(Clone, Debug)]
pub enum SecretSource {
    /// The content of this file, without the line end behind it.
    File(PathBuf),
    /// The value of this variable, as it was at the start; `None` = it is not set.
    Variable(String, Option<crate::redis::target::Secret>),
}
