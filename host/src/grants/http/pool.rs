//! HTTP requests: one pool of connections for each rule, within the limits of the rule.
//!
//! A pool belongs to one rule, because pools find a connection by its authority: a rule that names an
//! internal address must not lend its connection to another one.

use std::collections::HashMap;
use std::error::Error as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response};
use http_body::{Body as _, Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_rustls::TlsConnector;
use tracing::warn;

use super::adaptive::{Destinations, Pass};
use super::connect::{Connector, Line};
use super::idempotency::{Which, WrittenKeys, idempotency_key};
use super::provider::{Body, HttpError};
use super::rules::{AddsKey, HttpRule, Part, Template, changes_something};
use super::stand_in::Answering;
use super::target::Target;
use crate::delivery::text::{printable, truncated};
use crate::grants::context::Origin;
use crate::grants::journal::session::Call;
use crate::grants::network::names::bounded;
use crate::grants::secrets::reader::Secrets;
use crate::redis::names::Names;
use crate::telemetry::rules::{RequestEnd, RuleCounts};

/// A connection that was not used for this long is closed.
const IDLE: Duration = Duration::from_secs(30);
/// The most servers of one rule with open connections (`*.example.com`).
const SEATS_MAX: usize = 64;
/// Headers of one request, and their bytes.
const HEADERS_MAX: usize = 100;
const HEADER_BYTES_MAX: usize = 64 << 10;
/// The most bytes that a connection has read and the guest has not; the headers of a response are among them.
const UNREAD_MAX: usize = 128 << 10;
/// The most bytes of the headers of a response, and of a body that waits to be sent, by HTTP/2; and of what a server
/// may send before it is read: each window begins with almost as much, by the protocol.
const H2_MAX: u32 = 64 << 10;

/// Headers that belong to the connection: only the host sets them.
const CONNECTION_HEADERS: [&str; 11] = [
    "connection",
    "expect",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A request that a rule allows.
pub(super) struct Allowed<'a> {
    pub(super) origin: &'a Origin,
    pub(super) ordinal: u32,
    pub(super) group: Option<&'a str>,
    pub(super) method: Method,
    pub(super) target: Target,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
    pub(super) deadline: Instant,
    /// The call in the journal of the message, if it is recorded.
    pub(super) call: Option<&'a Call>,
}

/// The headers of a guest, checked. The error says what is wrong.
pub(super) fn headers(
    written: &[(String, Bytes)],
    target: &Target,
    body: &Body,
) -> Result<HeaderMap, String> {
    let bytes: usize = written.iter().map(|(n, v)| n.len() + v.len()).sum();
    if written.len() > HEADERS_MAX || bytes > HEADER_BYTES_MAX {
        return Err(format!(
            "there are more than {HEADERS_MAX} headers, or more than {HEADER_BYTES_MAX} bytes of them"
        ));
    }
    let mut headers = HeaderMap::with_capacity(written.len());
    for (name, value) in written {
        let shown = || printable(truncated(name, 64));
        let known = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("the name of the header `{}` is not valid", shown()))?;
        let value = HeaderValue::from_maybe_shared(value.clone())
            .map_err(|_| format!("the value of the header `{}` is not valid", shown()))?;
        if known == HOST {
            if value
                .as_bytes()
                .eq_ignore_ascii_case(target.authority().as_bytes())
            {
                continue;
            }
            return Err("the header `host` is not the host of the URL".to_owned());
        }
        if CONNECTION_HEADERS.contains(&known.as_str()) {
            return Err(format!("the header `{known}` belongs to the connection"));
        }
        if known == CONTENT_LENGTH {
            let digits = value.to_str().ok();
            let digits = digits.filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
            let length = digits.and_then(|digits| digits.parse::<u64>().ok());
            let length = length.ok_or("`content-length` is not a number")?;
            match body.size_hint().exact() {
                Some(size) if size != length => {
                    return Err("`content-length` is not the length of the body".to_owned());
                }
                // It is set for a body that is there as a whole.
                Some(_) => continue,
                None if headers.contains_key(CONTENT_LENGTH) => {
                    return Err("`content-length` is there twice".to_owned());
                }
                None => {}
            }
        }
        headers.append(known, value);
    }
    Ok(headers)
}

/// The connections of one rule.
pub(in crate::grants) struct Pool {
    pub(super) rule: HttpRule,
    index: usize,
    counts: Arc<RuleCounts>,
    line: Arc<Line>,
    in_flight: Arc<Semaphore>,
    /// If the requests in flight follow the answers.
    destinations: Option<Arc<Destinations>>,
    seats: Mutex<HashMap<String, Seat>>,
    /// The idempotency keys that handlers write.
    keys: Mutex<WrittenKeys>,
}

/// The connections to one server.
struct Seat {
    client: Client<Connector, Body>,
    users: usize,
    used: Instant,
}

impl Pool {
    pub(super) fn new(
        rule: HttpRule,
        index: usize,
        counts: &Arc<RuleCounts>,
        tls: Option<TlsConnector>,
        names: Names,
        answering: Option<&Answering>,
        destinations: Option<Arc<Destinations>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            line: Arc::new(Line {
                pattern: rule.host.clone(),
                reach: rule.reach(),
                tls,
                connections: Arc::new(Semaphore::new(rule.connections.0)),
                names,
                answering: answering.cloned(),
            }),
            in_flight: Arc::new(Semaphore::new(rule.in_flight.0)),
            destinations,
            seats: Mutex::default(),
            keys: Mutex::default(),
            counts: Arc::clone(counts),
            index,
            rule,
        })
    }

    /// Send a request, within the limits of the rule.
    pub(super) async fn send(
        self: Arc<Self>,
        allowed: Allowed<'_>,
        secrets: &Secrets,
    ) -> Result<Response<Body>, HttpError> {
        let mut tally = Tally {
            end: RequestEnd::Cancelled,
            pool: Arc::clone(&self),
            in_flight: None,
            pass: None,
            took: None,
            authority: None,
        };
        let deadline = allowed.deadline;
        let origin = allowed.origin;
        let exchange = self.exchange(allowed, secrets, &mut tally);
        let result = tokio::time::timeout_at(deadline, exchange)
            .await
            .unwrap_or(Err(HttpError::Timeout));
        if let Some(pass) = &mut tally.pass {
            pass.says(result.as_ref(), tally.took, origin.hold.as_deref());
        }
        match result {
            Ok(response) => {
                // A handler may make its next call before it has read this body: it would wait for its own place.
                drop(tally.pass.take());
                tally.end = RequestEnd::of_status(response.status().as_u16());
                let max = self.rule.response_max.0;
                if response.body().size_hint().lower() > max {
                    tally.end = RequestEnd::TooLarge;
                    return Err(HttpError::TooLarge(max));
                }
                Ok(response.map(|body| {
                    Body::new(Bounded {
                        tally: (!body.is_end_stream()).then_some(tally),
                        body,
                        left: max,
                        max,
                        deadline: Box::pin(sleep_until(deadline)),
                    })
                }))
            }
            Err(error) => {
                tally.end = end_of(&error);
                Err(error)
            }
        }
    }

    async fn exchange(
        self: &Arc<Self>,
        mut allowed: Allowed<'_>,
        secrets: &Secrets,
        tally: &mut Tally,
    ) -> Result<Response<Incoming>, HttpError> {
        let authority = allowed.target.authority();
        if let Some(destinations) = &self.destinations {
            let (deadline, hold) = (allowed.deadline.into_std(), allowed.origin.hold.as_deref());
            tally.pass = Some(destinations.enter(&authority, deadline, hold).await?);
        }
        let permit = Arc::clone(&self.in_flight).acquire_owned().await;
        tally.in_flight = permit.ok();
        let uri = allowed.target.uri();
        let uri =
            uri.map_err(|error| HttpError::Denied(format!("the URL is not valid: {error}")))?;
        let key = allowed.add_headers(self, secrets).await?;
        if let Some(call) = allowed.call {
            call.intend(key).await?;
        }
        let mut request = Request::new(allowed.body);
        *request.method_mut() = allowed.method;
        *request.uri_mut() = uri;
        *request.headers_mut() = allowed.headers;
        let client = self.sit(&authority);
        tally.authority = Some(authority);
        if let Some(pass) = &mut tally.pass {
            pass.sent();
        }
        let began = Instant::now();
        let response = client.request(request).await;
        let response = response.map_err(|error| {
            if let Some(pass) = tally.pass.as_mut().filter(|_| is_of_guest(&error)) {
                pass.unfinished();
            }
            of_client(&error)
        })?;
        let took = began.elapsed();
        tally.took = Some(took);
        self.counts.http[self.index].answered(took);
        within_headers(response.headers())?;
        Ok(response)
    }

    /// The connections to a server. They are in use until the request has ended.
    fn sit(&self, authority: &str) -> Client<Connector, Body> {
        let mut seats = self.seats.lock();
        let is_full = self.line.connections.available_permits() == 0;
        if is_full || (seats.len() >= SEATS_MAX && !seats.contains_key(authority)) {
            // Idle connections to another server would keep this one waiting.
            let idle = seats
                .iter()
                .filter(|(a, seat)| seat.users == 0 && *a != authority);
            let oldest = idle
                .min_by_key(|(_, seat)| seat.used)
                .map(|(a, _)| a.clone());
            oldest.and_then(|oldest| seats.remove(&oldest));
        }
        let seat = seats.entry(authority.to_owned()).or_insert_with(|| Seat {
            client: self.client(),
            users: 0,
            used: Instant::now(),
        });
        seat.users += 1;
        seat.used = Instant::now();
        seat.client.clone()
    }

    fn client(&self) -> Client<Connector, Body> {
        Client::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(self.rule.connections.0)
            .http1_max_buf_size(UNREAD_MAX)
            .http1_max_headers(HEADERS_MAX)
            .http2_max_header_list_size(H2_MAX)
            .http2_initial_stream_window_size(H2_MAX)
            .http2_initial_connection_window_size(H2_MAX)
            .http2_max_send_buf_size(H2_MAX as usize)
            .build(Connector(Arc::clone(&self.line)))
    }
}

/// One request, counted at its end: when its response is read, or no guest waits for it any more.
struct Tally {
    end: RequestEnd,
    pool: Arc<Pool>,
    in_flight: Option<OwnedSemaphorePermit>,
    pass: Option<Pass>,
    /// The time until the status came.
    took: Option<Duration>,
    /// The server whose connections it uses.
    authority: Option<String>,
}

impl Drop for Tally {
    fn drop(&mut self) {
        drop(self.in_flight.take());
        drop(self.pass.take());
        if let Some(authority) = &self.authority
            && let Some(seat) = self.pool.seats.lock().get_mut(authority)
        {
            seat.users = seat.users.saturating_sub(1);
        }
        self.pool.counts.http[self.pool.index].ended(self.end);
    }
}

fn end_of(error: &HttpError) -> RequestEnd {
    match error {
        HttpError::Denied(_) => RequestEnd::Denied,
        HttpError::Dns(_) => RequestEnd::Dns,
        HttpError::Connect(_) => RequestEnd::Connect,
        HttpError::Tls(_) => RequestEnd::Tls,
        HttpError::Timeout => RequestEnd::Timeout,
        HttpError::TooLarge(_) => RequestEnd::TooLarge,
        HttpError::Protocol(_) => RequestEnd::Protocol,
        HttpError::Closed(_) => RequestEnd::Closed,
    }
}

impl Allowed<'_> {
    /// Add the headers of the host. Returns the idempotency key; empty = no key.
    async fn add_headers(&mut self, pool: &Pool, secrets: &Secrets) -> Result<String, HttpError> {
        let rule = &pool.rule;
        let headers = &mut self.headers;
        let mut key = String::new();
        if let Some(name) = &rule.idempotency_header {
            let always = rule.idempotency_key == AddsKey::Always;
            let written = headers.remove(name);
            if changes_something(&self.method) {
                let written = written.as_ref().map(HeaderValue::as_bytes);
                if let (Some(suffix), false) = (written, always)
                    && pool.keys.lock().differ(self.origin, self.ordinal, suffix)
                {
                    warn!(
                        rule = &*rule.name,
                        "a handler sends another idempotency key at each attempt, so a retry may repeat its request; \
                         with `idempotency_key = \"always\"` in this rule, the host replaces the keys of handlers"
                    );
                }
                let identity = self.call.map(Call::identity);
                let which = match (written.filter(|_| !always), &identity) {
                    (Some(written), _) => Which::Written(written),
                    (None, Some(identity)) => Which::Recorded(identity),
                    (None, None) => Which::Ordinal(self.ordinal),
                };
                let made = || idempotency_key(self.group, self.origin, which);
                key = self.call.and_then(Call::key).unwrap_or_else(made);
                let value = HeaderValue::try_from(&key);
                headers.insert(name, value.map_err(|e| HttpError::Denied(e.to_string()))?);
            }
        }
        if rule.traceparent && !headers.contains_key("traceparent") {
            for (name, value) in [
                ("traceparent", &self.origin.traceparent),
                ("tracestate", &self.origin.tracestate),
            ] {
                let value = value
                    .clone()
                    .and_then(|v| HeaderValue::from_maybe_shared(v).ok());
                if let Some(value) = value {
                    headers.insert(name, value);
                }
            }
        }
        for (name, template) in rule.added() {
            headers.insert(name, fill(template, name, secrets).await?);
        }
        Ok(key)
    }
}

/// The value of a header with its secrets. It is never shown.
async fn fill(
    template: &Template,
    name: &HeaderName,
    secrets: &Secrets,
) -> Result<HeaderValue, HttpError> {
    let denied = |why: String| HttpError::Denied(format!("the header `{name}` of the rule: {why}"));
    let mut text = String::new();
    for part in template.parts() {
        match part {
            Part::Text(part) => text.push_str(part),
            Part::Secret(secret) => {
                let secret = secrets.get(secret).await;
                text.push_str(secret.map_err(|error| denied(error.to_string()))?.reveal());
            }
        }
    }
    let value = HeaderValue::try_from(text);
    let mut value = value
        .map_err(|_| denied("a secret holds a character that no header may have".to_owned()))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Whether the guest did not finish its body.
fn is_of_guest(error: &ClientError) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.downcast_ref().is_some_and(hyper::Error::is_user) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Why the client has no response.
fn of_client(error: &ClientError) -> HttpError {
    let mut source = error.source();
    let mut detail = error.to_string();
    while let Some(cause) = source {
        // The connection failed, or the guest did not finish its body.
        if let Some(error) = cause.downcast_ref::<HttpError>() {
            return error.clone();
        }
        detail = cause.to_string();
        source = cause.source();
    }
    let detail = bounded(&detail);
    match error.is_connect() {
        true => HttpError::Connect(detail),
        false => HttpError::Protocol(detail),
    }
}

/// Each header takes more memory than its bytes.
fn within_headers(headers: &HeaderMap) -> Result<(), HttpError> {
    match headers.len() <= HEADERS_MAX {
        true => Ok(()),
        false => Err(HttpError::Protocol(format!(
            "the response has more than {HEADERS_MAX} headers"
        ))),
    }
}

/// The body of a response, within the size and the time of its rule.
struct Bounded {
    body: Incoming,
    left: u64,
    max: u64,
    deadline: Pin<Box<Sleep>>,
    /// `None` when it is over: then it holds no place any more.
    tally: Option<Tally>,
}

impl Bounded {
    fn fail(&mut self, error: HttpError) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if let Some(mut tally) = self.tally.take() {
            tally.end = end_of(&error);
        }
        Poll::Ready(Some(Err(error)))
    }
}

impl http_body::Body for Bounded {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        if self.tally.is_none() {
            return Poll::Ready(None);
        }
        if self.deadline.as_mut().poll(cx).is_ready() {
            return self.fail(HttpError::Timeout);
        }
        match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => {
                self.tally = None;
                Poll::Ready(None)
            }
            Some(Err(error)) => {
                let detail = bounded(&error.to_string());
                self.fail(HttpError::Protocol(detail))
            }
            Some(Ok(frame)) => {
                if let Some(Err(error)) = frame.trailers_ref().map(within_headers) {
                    return self.fail(error);
                }
                let size = frame.data_ref().map_or(0, |data| data.len() as u64);
                if size > self.left {
                    let max = self.max;
                    return self.fail(HttpError::TooLarge(max));
                }
                self.left -= size;
                Poll::Ready(Some(Ok(frame)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.tally.is_none() || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_belong_to_the_connection_are_refused() {
        let target = Target::parse("https://api.example.com:8443/").unwrap();
        let check = |name: &str, value: &str| {
            let value = Bytes::copy_from_slice(value.as_bytes());
            headers(&[(name.to_owned(), value)], &target, &Body::default())
        };
        for (name, value) in [
            ("Host", "evil.example.com"),
            ("host", "api.example.com"),
            ("Transfer-Encoding", "chunked"),
            ("connection", "keep-alive"),
            ("te", "trailers"),
            ("upgrade", "h2c"),
            ("content-length", "7"),
            ("content-length", "+0"),
            ("x", "a\r\nhost: evil"),
            ("x", "a\nb"),
            ("x", "a\0b"),
            ("x\r\ny", "z"),
            ("x y", "z"),
            ("x:", "z"),
            ("", "z"),
        ] {
            assert!(check(name, value).is_err(), "{name}: {value}");
        }
        assert!(check("HOST", "API.example.com:8443").unwrap().is_empty());
        assert_eq!(check("X-Ok", "caf\u{e9}").unwrap().len(), 1);
        let many = vec![("a".to_owned(), Bytes::new()); HEADERS_MAX + 1];
        assert!(headers(&many, &target, &Body::default()).is_err());
        let large = [("a".to_owned(), Bytes::from(vec![b'x'; HEADER_BYTES_MAX]))];
        assert!(headers(&large, &target, &Body::default()).is_err());
    }
}
