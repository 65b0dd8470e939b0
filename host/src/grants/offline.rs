//! The grants of a handler with nothing behind them: every answer comes from a recording.

use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;

use super::context::Origin;
use super::http::provider::{Body, HttpError, HttpRequest};
use super::key_value::provider::{KeyPage, ReadValues, Reading};
use super::provided::Provided;
use super::recorded::UNRECORDED;
use super::tcp::provider::LookupError;
use super::{http, key_value, secrets, tcp};
use crate::delivery::key_value::Seen;
use crate::redis::target::Secret;

impl Provided {
    /// The same grants, with nothing behind them: every answer comes from a recording.
    #[must_use]
    pub fn offline(&self) -> Self {
        let nothing = || Arc::new(Nothing(self.exposes()));
        Self {
            http: self.http.as_ref().map(|_| nothing() as _),
            tcp: self.tcp.as_ref().map(|_| nothing() as _),
            secrets: self.secrets.as_ref().map(|_| nothing() as _),
            keys: self.keys.as_ref().map(|_| nothing() as _),
        }
    }
}

/// Has no answer. It says whether secrets are exposed.
#[derive(Debug)]
struct Nothing(bool);

#[async_trait]
impl http::provider::Provider for Nothing {
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    fn adapts(&self) -> bool {
        false
    }

    fn refuses_batches(&self) -> Option<String> {
        None
    }

    async fn send(
        &self,
        _: &Origin,
        _: u32,
        _: HttpRequest,
    ) -> Result<::http::Response<Body>, HttpError> {
        Err(HttpError::Protocol(UNRECORDED.to_owned()))
    }
}

#[async_trait]
impl tcp::provider::Provider for Nothing {
    async fn resolve(&self, _: &Origin, _: &str) -> Result<Vec<SocketAddr>, LookupError> {
        Err(LookupError::Unknown)
    }

    fn may_connect(&self, _: SocketAddr) -> bool {
        false
    }

    fn connection_denied(&self, _: &Origin, _: SocketAddr) {}
}

#[async_trait]
impl secrets::provider::Provider for Nothing {
    fn check(&self) -> Vec<String> {
        Vec::new()
    }

    fn exposes(&self) -> bool {
        self.0
    }

    async fn secret(&self, _: &Origin, _: &str) -> Result<String, String> {
        Err(UNRECORDED.to_owned())
    }

    async fn all(&self) -> Vec<(String, Secret)> {
        Vec::new()
    }
}

#[async_trait]
impl key_value::provider::Provider for Nothing {
    async fn read(&self, _: Reading) -> ReadValues {
        Err(UNRECORDED.to_owned())
    }

    async fn increment(&self, _: &str, _: i64) -> Result<i64, String> {
        Err(UNRECORDED.to_owned())
    }

    async fn swap(&self, _: &str, _: &Seen, _: &[u8]) -> Result<bool, String> {
        Err(UNRECORDED.to_owned())
    }

    async fn list(&self, _: &str, _: u64) -> KeyPage {
        Err(UNRECORDED.to_owned())
    }
}
