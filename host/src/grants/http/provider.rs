//! HTTP requests of guests: their provider.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use serde::{Deserialize, Serialize};

use crate::grants::context::Origin;
use crate::grants::journal::provider::Refused;

/// Of a response that an earlier attempt has recorded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Replayed;

/// A body of a request or of a response.
pub type Body = UnsyncBoxBody<Bytes, HttpError>;

/// An HTTP request of a guest, as the guest wrote it: nothing is checked.
#[derive(Debug)]
pub struct HttpRequest {
    /// The method.
    pub method: String,
    /// The URL.
    pub url: String,
    /// The headers, in order.
    pub headers: Vec<(String, Bytes)>,
    /// The body.
    pub body: Body,
    /// The longest time for the whole response.
    pub timeout: Option<Duration>,
}

/// Why a request has no response: `http.error`. The texts are for the guest: they hold no secret.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
pub enum HttpError {
    /// No rule allows it, or it is not valid. Nothing was sent.
    #[error("denied: {0}")]
    Denied(String),
    /// The name has no address.
    #[error("dns: {0}")]
    Dns(String),
    /// No connection.
    #[error("connect: {0}")]
    Connect(String),
    /// No encryption that is accepted.
    #[error("tls: {0}")]
    Tls(String),
    /// The time was over, or the attempt ended.
    #[error("timeout")]
    Timeout,
    /// The response is larger than this many bytes.
    #[error("the response has more than {0} bytes")]
    TooLarge(u64),
    /// The connection broke, or the answer is not HTTP.
    #[error("protocol: {0}")]
    Protocol(String),
    /// Its destination is away, or has too many calls: nothing was sent.
    #[error("closed: {0}")]
    Closed(String),
}

/// Nothing was sent.
impl From<Refused> for HttpError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full(why) => Self::Denied(why),
            Refused::Lost | Refused::Unavailable(_) | Refused::Failed(_) => {
                Self::Connect(format!("the journal of the message: {refused}"))
            }
            Refused::Unknown => Self::Protocol(refused.to_string()),
        }
    }
}

impl HttpError {
    /// One word, for `error.type`.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Dns(_) => "dns",
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::TooLarge(_) => "too-large",
            Self::Protocol(_) => "protocol",
            Self::Closed(_) => "closed",
        }
    }
}

/// Sends the requests of guests.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// The problems of what the grant names, for the operator. Reads files.
    fn check(&self) -> Vec<String>;

    /// Whether calls may be refused before they are sent, so that their messages are held.
    fn adapts(&self) -> bool;

    /// Why a handler of batches cannot have the grant.
    fn refuses_batches(&self) -> Option<String>;

    /// Send a request. `ordinal` is its number in the attempt, from 1.
    async fn send(
        &self,
        origin: &Origin,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<http::Response<Body>, HttpError>;
}
