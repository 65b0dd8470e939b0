//! What grants let a handler do outside the sandbox. The sandbox asks a [`Provider`], which the host
//! gives it, and does not know what stands behind it.
//!
//! Everything that an attempt began ends with it: its requests, and the responses that its guest left
//! unread.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use parking_lot::Mutex;
use tokio::sync::watch;
use wasmtime::component::{ComponentType, Lower};

use super::steps::{self, Recording};
use crate::delivery::declared::declared;
use crate::delivery::key_value::Seen;
use crate::delivery::trace::{AttemptSpan, StepKind};

/// A body of a request or of a response.
pub type Body = UnsyncBoxBody<Bytes, HttpError>;

/// A future of a provider.
pub type Promise<T> = Pin<Box<dyn Future<Output = T> + Send>>;

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
#[derive(Clone, ComponentType, Debug, Eq, Lower, PartialEq, thiserror::Error)]
#[component(variant)]
pub enum HttpError {
    /// No rule allows it, or it is not valid. Nothing was sent.
    #[error("denied: {0}")]
    #[component(name = "denied")]
    Denied(String),
    /// The name has no address.
    #[error("dns: {0}")]
    #[component(name = "dns")]
    Dns(String),
    /// No connection.
    #[error("connect: {0}")]
    #[component(name = "connect")]
    Connect(String),
    /// No encryption that is accepted.
    #[error("tls: {0}")]
    #[component(name = "tls")]
    Tls(String),
    /// The time was over, or the attempt ended.
    #[error("timeout")]
    #[component(name = "timeout")]
    Timeout,
    /// The response is larger than this many bytes.
    #[error("the response has more than {0} bytes")]
    #[component(name = "too-large")]
    TooLarge(u64),
    /// The connection broke, or the answer is not HTTP.
    #[error("protocol: {0}")]
    #[component(name = "protocol")]
    Protocol(String),
}

impl HttpError {
    /// One word, for `error.type`.
    const fn label(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::Dns(_) => "dns",
            Self::Connect(_) => "connect",
            Self::Tls(_) => "tls",
            Self::Timeout => "timeout",
            Self::TooLarge(_) => "too-large",
            Self::Protocol(_) => "protocol",
        }
    }
}

/// Keys to read, by their names in Redis.
#[derive(Clone, Debug)]
pub struct Reading {
    /// The keys.
    pub keys: Vec<String>,
    /// The most bytes of a value.
    pub value_max: usize,
    /// The most bytes of all values.
    pub bytes_max: usize,
    /// Whether digests are wanted.
    pub digests: bool,
}

/// The value of each key, if it has one; or an error for the guest.
pub type ReadValues = Result<Vec<Option<Stored>>, String>;

/// Some keys, and the cursor of the next ones; or an error for the guest.
pub type KeyPage = Result<(Vec<String>, Option<u64>), String>;

/// How many calls to the store a page of keys counts as: each looks at many keys of others.
const CALLS_PER_PAGE: usize = 10;

/// A value in Redis.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Stored {
    /// The value.
    pub value: Bytes,
    /// Its SHA-1 digest in hexadecimal digits; empty if it was not asked for.
    pub digest: String,
}

declared! {
    /// Why a name has no address for the guest.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum LookupError (/// One word, for `error.type`.
                          label -> &'static str) {
        /// No rule names it, or no rule allows its addresses.
        Denied = "denied",
        /// DNS has no address for it.
        Unknown = "unknown",
        /// The time was over.
        Timeout = "timeout",
    }
}

/// The attempt on whose behalf something is done.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The id of the message.
    pub message_id: Arc<str>,
    /// The queue that the message came from.
    pub queue: Arc<str>,
    /// The number of the attempt.
    pub attempt: u32,
    /// The messages of the call; the others belong to the first one.
    pub messages: usize,
    /// The end of the attempt at the latest.
    pub deadline: Instant,
    /// `traceparent` of the message; a batch has none.
    pub traceparent: Option<Bytes>,
    /// `tracestate` of the message.
    pub tracestate: Option<Bytes>,
    /// The digest of the handler.
    pub handler: Arc<str>,
}

/// Does what grants allow, outside the sandbox.
#[async_trait]
pub trait Provider: fmt::Debug + Send + Sync {
    /// Which interfaces the operator granted.
    fn offers(&self) -> Offers;

    /// Whether everything that the grants name can be read. Reads files.
    ///
    /// # Errors
    /// All problems, for the operator.
    fn check(&self) -> Result<(), String>;

    /// Why a handler of batches cannot have these grants.
    fn refuses_batches(&self) -> Option<String>;

    /// Send a request. `ordinal` is its number in the attempt, from 1.
    async fn send(
        &self,
        origin: &Origin,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<http::Response<Body>, HttpError>;

    /// The value of a secret that the guest may read. The error is for the guest.
    async fn secret(&self, origin: &Origin, name: &str) -> Result<String, String>;

    /// The addresses to which a guest that asks for this name may connect.
    async fn resolve(&self, origin: &Origin, name: &str) -> Result<Vec<SocketAddr>, LookupError>;

    /// The values of keys, in their order. The error is for the guest.
    async fn read(&self, reading: Reading) -> ReadValues;

    /// Add to the number of a key, at once. The error is for the guest.
    async fn increment(&self, key: &str, delta: i64) -> Result<i64, String>;

    /// Set a value at once, if the present one is the one that was seen; says whether it was. The error is
    /// for the guest.
    async fn swap(&self, key: &str, seen: &Seen, value: &[u8]) -> Result<bool, String>;

    /// Some keys that begin so, from this cursor on, and the cursor of the next ones; 0 = the first ones.
    /// The error is for the guest.
    async fn list(&self, prefix: &str, cursor: u64) -> KeyPage;

    /// Whether a guest may connect to this address without a name.
    fn may_connect(&self, address: SocketAddr) -> bool;

    /// A guest wanted to connect to an address that it may not have.
    fn connection_denied(&self, origin: &Origin, address: SocketAddr);
}

/// The granted interfaces.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Offers {
    /// HTTP requests.
    pub http: bool,
    /// Secrets that the guest may read.
    pub secrets: bool,
    /// TCP connections.
    pub tcp: bool,
}

/// A provider, compared by identity.
#[derive(Clone, Debug)]
pub struct Outside(pub Arc<dyn Provider>);

impl PartialEq for Outside {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Outside {}

/// What one attempt does outside.
pub(super) struct Scope {
    provider: Arc<dyn Provider>,
    origin: Origin,
    /// The span of the attempt, if it is recorded.
    span: Option<Arc<AttemptSpan>>,
    requests: AtomicU32,
    /// Calls to the key-value store.
    store_calls: AtomicU32,
    lookups: AtomicU32,
    requests_max: u32,
    /// Becomes true when the attempt ends.
    ended: watch::Sender<bool>,
    /// The bodies of responses that are not read to their end.
    unread: Mutex<Vec<Unread>>,
    /// The addresses that names were answered with.
    addresses: Mutex<Vec<SocketAddr>>,
}

/// A body that its attempt can take away.
type Unread = Arc<Mutex<Option<Body>>>;

/// Why nothing is allowed while an instance is only made.
pub(super) const NO_MESSAGE: &str = "no message is being handled";

/// Why a call to the store has no answer.
const TOO_LATE: &str = "the time of the attempt is over";

/// The most addresses that an attempt may learn: names have a few each.
const ADDRESSES_MAX: usize = 1_000;

impl Scope {
    pub(super) fn new(
        provider: &Arc<dyn Provider>,
        origin: Origin,
        span: Option<Arc<AttemptSpan>>,
        requests_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            provider: Arc::clone(provider),
            origin,
            span,
            requests: AtomicU32::new(0),
            store_calls: AtomicU32::new(0),
            lookups: AtomicU32::new(0),
            requests_max: u32::try_from(requests_max).unwrap_or(u32::MAX),
            ended: watch::Sender::new(false),
            unread: Mutex::default(),
            addresses: Mutex::default(),
        })
    }

    /// End everything that the attempt began.
    pub(super) fn end(&self) {
        self.ended.send_replace(true);
        let unread = std::mem::take(&mut *self.unread.lock());
        for body in unread {
            drop(body.lock().take());
        }
        self.addresses.lock().clear();
    }

    /// Send a request, which ends with the attempt. Its number is that of this call, whenever the
    /// future runs.
    pub(super) fn send(
        self: Arc<Self>,
        request: HttpRequest,
    ) -> impl Future<Output = Result<http::Response<Body>, HttpError>> + Send + 'static {
        let ordinal = self
            .requests
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        self.send_as(ordinal, request)
    }

    async fn send_as(
        self: Arc<Self>,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<http::Response<Body>, HttpError> {
        if self.is_trial() {
            return Err(HttpError::Denied(NO_MESSAGE.to_owned()));
        }
        if ordinal > self.requests_max {
            let max = self.requests_max;
            let why = format!("the attempt has sent {max} requests (limit `requests`)");
            return Err(HttpError::Denied(why));
        }
        let mut ended = self.ended.subscribe();
        let mut recording = self.record(|| steps::of_request(&request.method, &request.url));
        let recorded = recording.as_ref().map(|recording| Origin {
            traceparent: Some(Bytes::from(recording.trace().to_string())),
            ..self.origin.clone()
        });
        let origin = recorded.as_ref().unwrap_or(&self.origin);
        let sending = self.provider.send(origin, ordinal, request);
        let response = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Err(HttpError::Timeout),
            response = sending => response,
        };
        if let (Some(recording), Ok(response)) = (&mut recording, &response) {
            recording.answered(response.status().as_u16());
        }
        if let Some(recording) = recording {
            recording.end(response.as_ref().err().map(HttpError::label));
        }
        Ok(response?.map(|body| self.watched(body)))
    }

    /// Record a step, if the attempt is recorded.
    fn record(&self, kind: impl FnOnce() -> StepKind) -> Option<Recording> {
        let span = self.span.as_ref()?;
        Some(Recording::begin(span, kind()))
    }

    /// The body, which ends with the attempt.
    fn watched(self: &Arc<Self>, body: Body) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let body: Unread = Arc::new(Mutex::new(Some(body)));
        let mut unread = self.unread.lock();
        // Those that only this list holds were dropped by the guest, or read to their end.
        unread.retain(|body| Arc::strong_count(body) > 1 && body.lock().is_some());
        unread.push(Arc::clone(&body));
        drop(unread);
        if *self.ended.borrow() {
            drop(body.lock().take());
        }
        Body::new(Watched(body))
    }

    /// Whether the instance is only made, at load: nothing may happen outside.
    fn is_trial(&self) -> bool {
        self.origin.messages == 0
    }

    pub(super) async fn secret(&self, name: &str) -> Result<String, String> {
        if self.is_trial() {
            return Err(NO_MESSAGE.to_owned());
        }
        self.provider.secret(&self.origin, name).await
    }

    /// The values of keys.
    pub(super) async fn read(self: Arc<Self>, reading: Reading) -> ReadValues {
        let calls = reading.keys.len();
        let read = self.provider.read(reading);
        self.ask_store("get", calls, calls, read).await
    }

    /// Add to the number of a key.
    pub(super) async fn increment(&self, key: &str, delta: i64) -> Result<i64, String> {
        let increment = self.provider.increment(key, delta);
        self.ask_store("increment", 1, 1, increment).await
    }

    /// Set a value, if the present one is the one that was seen.
    pub(super) async fn swap(&self, key: &str, seen: &Seen, value: &[u8]) -> Result<bool, String> {
        let swap = self.provider.swap(key, seen, value);
        self.ask_store("swap", 1, 1, swap).await
    }

    /// Some keys, and the cursor of the next ones.
    pub(super) async fn list(&self, prefix: &str, cursor: u64) -> KeyPage {
        let list = self.provider.list(prefix, cursor);
        self.ask_store("list", 1, CALLS_PER_PAGE, list).await
    }

    /// Ask the key-value store about so many keys or prefixes, which counts as so many calls, until the attempt
    /// ends.
    async fn ask_store<T>(
        &self,
        operation: &'static str,
        keys: usize,
        calls: usize,
        asking: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        if self.is_trial() {
            return Err(NO_MESSAGE.to_owned());
        }
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let before = self.store_calls.load(Ordering::Relaxed);
        // Only this attempt counts here, one call after the other.
        let after = before.saturating_add(calls);
        self.store_calls.store(after, Ordering::Relaxed);
        if after > self.requests_max {
            let max = self.requests_max;
            return Err(format!(
                "the attempt has asked the store {max} times (limit `requests`)"
            ));
        }
        let mut ended = self.ended.subscribe();
        let deadline = tokio::time::Instant::from(self.origin.deadline);
        let recording = self.record(|| StepKind::Store { operation, keys });
        let answer = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Err(TOO_LATE.to_owned()),
            answer = tokio::time::timeout_at(deadline, asking) => {
                answer.unwrap_or_else(|_| Err(TOO_LATE.to_owned()))
            }
        };
        if let Some(recording) = recording {
            recording.end(answer.as_ref().err().map(|_| "store"));
        }
        answer
    }

    /// The addresses of a name. The guest may connect to them until its attempt ends. It counts from this call
    /// on, whenever the future runs.
    pub(super) fn resolve(
        self: Arc<Self>,
        name: String,
    ) -> impl Future<Output = Result<Vec<IpAddr>, LookupError>> + Send + 'static {
        let before = self.lookups.fetch_add(1, Ordering::Relaxed);
        let is_denied = self.is_trial() || before >= self.requests_max;
        async move {
            match is_denied {
                true => Err(LookupError::Denied),
                false => self.look_up(&name).await,
            }
        }
    }

    async fn look_up(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let mut ended = self.ended.subscribe();
        let resolving = self.provider.resolve(&self.origin, name);
        let recording = self.record(|| steps::of_lookup(name));
        let found = tokio::select! {
            biased;
            _ = ended.wait_for(|ended| *ended) => Err(LookupError::Timeout),
            found = resolving => found,
        };
        if let Some(recording) = recording {
            let error = found.as_ref().err().copied();
            recording.end(error.map(LookupError::label));
        }
        let found = found?;
        let mut addresses = self.addresses.lock();
        let mut ips = Vec::new();
        for address in found {
            if !addresses.contains(&address) && addresses.len() < ADDRESSES_MAX {
                addresses.push(address);
            }
            if !ips.contains(&address.ip()) {
                ips.push(address.ip());
            }
        }
        Ok(ips)
    }

    /// Whether the guest may connect to this address.
    pub(super) fn may_connect(&self, address: SocketAddr) -> bool {
        let granted = || self.provider.may_connect(address);
        let is_known = self.addresses.lock().contains(&address);
        let allowed = !self.is_trial() && (is_known || granted());
        if !allowed {
            self.provider.connection_denied(&self.origin, address);
        }
        allowed
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        self.end();
    }
}

/// A body that ends with an error when its attempt has taken it away.
struct Watched(Unread);

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let mut body = self.0.lock();
        match &mut *body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(Some(Err(HttpError::Timeout))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.lock();
        body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.lock();
        body.as_ref()
            .map(http_body::Body::size_hint)
            .unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.0.lock().take());
    }
}
