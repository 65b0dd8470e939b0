//! The providers that the links of a handler reach. A link knows the trait of its own provider only, so another one may
//! stand before it.

use std::sync::Arc;

use super::{
    http::provider as http, key_value::provider as key_value, secrets::provider as secrets,
    tcp::provider as tcp,
};

/// A provider for each grant that leads outside the sandbox; `None` = it is not granted. Compared by identity.
#[derive(Clone, Debug, Default)]
pub struct Provided {
    /// `http`
    pub http: Option<Arc<dyn http::Provider>>,
    /// `tcp`
    pub tcp: Option<Arc<dyn tcp::Provider>>,
    /// `secret`
    pub secrets: Option<Arc<dyn secrets::Provider>>,
    /// `key-value`
    pub keys: Option<Arc<dyn key_value::Provider>>,
}

impl Provided {
    /// Whether everything that the grants name can be read. Reads files.
    ///
    /// # Errors
    /// All problems, for the operator.
    pub fn check(&self) -> Result<(), String> {
        let secrets = self.secrets.as_ref().map(|secrets| secrets.check());
        let http = self.http.as_ref().map(|http| http.check());
        let problems: Vec<String> = [secrets, http].into_iter().flatten().flatten().collect();
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("; ")),
        }
    }

    /// Whether guests may read a secret.
    pub fn exposes(&self) -> bool {
        let secrets = self.secrets.as_ref();
        secrets.is_some_and(|secrets| secrets.exposes())
    }

    /// Whether nothing is granted outside the sandbox.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl PartialEq for Provided {
    fn eq(&self, other: &Self) -> bool {
        is_same(self.http.as_ref(), other.http.as_ref())
            && is_same(self.tcp.as_ref(), other.tcp.as_ref())
            && is_same(self.secrets.as_ref(), other.secrets.as_ref())
            && is_same(self.keys.as_ref(), other.keys.as_ref())
    }
}

impl Eq for Provided {}

fn is_same<T: ?Sized>(one: Option<&Arc<T>>, other: Option<&Arc<T>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}
