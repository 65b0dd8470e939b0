//! What one attempt does outside the sandbox. Links ask here, and this asks the providers.

use std::sync::Arc;

use super::context::{Context, NO_MESSAGE};
use super::http::requests::Requests;
use super::journal::remembered::Remembered;
use super::key_value::provider::Keys;
use super::provided::Provided;
use super::secrets::provider::Exposed;
use super::tcp::provider::Lookups;

/// What one attempt does outside, by grant; `None` = it is not granted.
pub(crate) struct Scope {
    context: Arc<Context>,
    http: Option<Arc<Requests>>,
    tcp: Option<Arc<Lookups>>,
    secrets: Option<Arc<Exposed>>,
    keys: Option<Arc<Keys>>,
    remembered: Option<Arc<Remembered>>,
}

impl Scope {
    pub(crate) fn new(provided: &Provided, context: Context) -> Arc<Self> {
        let context = Arc::new(context);
        let Provided {
            http,
            tcp,
            secrets,
            keys,
        } = provided;
        Arc::new(Self {
            http: http.as_ref().map(|http| Requests::new(&context, http)),
            tcp: tcp.as_ref().map(|tcp| Lookups::new(&context, tcp)),
            secrets: (secrets.as_ref()).map(|secrets| Exposed::new(&context, secrets)),
            keys: keys.as_ref().map(|keys| Keys::new(&context, keys)),
            remembered: (context.origin.journal.is_some()).then(|| Remembered::new(&context)),
            context,
        })
    }

    /// End everything that the attempt began.
    pub(crate) fn end(&self) {
        self.context.end();
        if let Some(http) = &self.http {
            http.end();
        }
        if let Some(tcp) = &self.tcp {
            tcp.end();
        }
    }

    /// Its requests.
    ///
    /// # Errors
    /// Here and below: it is not granted, which only a trial sees. The text is for the guest.
    pub(crate) fn http(&self) -> Result<Arc<Requests>, String> {
        granted(self.http.as_ref())
    }

    /// Its lookups.
    pub(crate) fn tcp(&self) -> Result<Arc<Lookups>, String> {
        granted(self.tcp.as_ref())
    }

    /// Its secrets.
    pub(crate) fn secrets(&self) -> Result<Arc<Exposed>, String> {
        granted(self.secrets.as_ref())
    }

    /// What it remembers.
    pub(crate) fn remembered(&self) -> Result<Arc<Remembered>, String> {
        granted(self.remembered.as_ref())
    }

    /// Its keys.
    pub(crate) fn keys(&self) -> Result<Arc<Keys>, String> {
        granted(self.keys.as_ref())
    }
}

fn granted<T>(part: Option<&Arc<T>>) -> Result<Arc<T>, String> {
    part.cloned().ok_or_else(|| NO_MESSAGE.to_owned())
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.end();
    }
}
