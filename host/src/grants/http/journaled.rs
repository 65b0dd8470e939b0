//! Requests of rules with a journal: a later attempt gets the answer that an earlier one has had.
//!
//! The request leaves when its body is whole, and the answer arrives whole. Once the intent is written, the request goes
//! on until its own deadline, also if its attempt ends: so its answer is known more often.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::time::timeout_at;
use tracing::warn;

use super::pool::{Allowed, Pool};
use super::provider::{Body, HttpError, Replayed};
use super::rules::{AddsKey, HttpRule};
use crate::delivery::journal::{BYTES_MAX, Content};
use crate::delivery::text::{hex, printable, truncated};
use crate::grants::journal::session::{Asked, Begun, End, Session};
use crate::grants::secrets::reader::Secrets;

/// The largest body of a request.
const REQUEST_MAX: usize = 8 << 20;
/// The largest body of an answer: the journal of a message needs room for the rest of it.
const ANSWER_MAX: usize = BYTES_MAX - (8 << 10);
/// The longest name that a guest gives to a call, and the longest URL in a name.
const NAME_MAX: usize = 200;
const URL_MAX: usize = 100;
/// The shortest secret that is looked for in an answer.
const SECRET_MIN: usize = 4;

/// Send a request, unless its answer is known.
pub(super) async fn send(
    pool: Arc<Pool>,
    secrets: Arc<Secrets>,
    journal: &Arc<Session>,
    allowed: Allowed<'_>,
) -> Result<Response<Body>, HttpError> {
    let deadline = allowed.deadline;
    let is_late = |_| HttpError::Timeout;
    let whole = Limited::new(allowed.body, REQUEST_MAX).collect();
    let body = timeout_at(deadline, whole).await.map_err(is_late)?;
    let body = body.map_err(of_body)?.to_bytes();
    let rule = &pool.rule;
    let asked = Asked {
        name: name(
            rule,
            &allowed.method,
            &allowed.target,
            &allowed.headers,
            &body,
        ),
        rule: rule.name.to_string(),
        unknown: rule.unknown,
    };
    let begun = timeout_at(deadline, journal.begin(asked)).await;
    let call = match begun.map_err(is_late)?? {
        Begun::Recorded(record) => {
            let mut response = replayed(record.content)?;
            response.extensions_mut().insert(Replayed);
            return Ok(response);
        }
        Begun::Call(call) => call,
    };
    let (tell, told) = oneshot::channel();
    let (origin, group) = (allowed.origin.clone(), allowed.group.map(str::to_owned));
    let allowed = Allowed {
        origin: &origin,
        group: group.as_deref(),
        body: Body::default(),
        ..allowed
    };
    let (ordinal, target) = (allowed.ordinal, allowed.target);
    let (method, headers) = (allowed.method, allowed.headers);
    tokio::spawn(async move {
        let exchange = async {
            let allowed = Allowed {
                origin: &origin,
                ordinal,
                group: group.as_deref(),
                method,
                target,
                headers,
                body: match body.is_empty() {
                    true => Body::default(),
                    false => Body::new(Full::from(body).map_err(|never| match never {})),
                },
                deadline,
                call: Some(&call),
            };
            let answer = Arc::clone(&pool).send(allowed, &secrets).await?;
            let (head, body) = answer.into_parts();
            let max = pool.rule.response_max.as_usize().min(ANSWER_MAX);
            let body = Limited::new(body, max).collect().await;
            Ok((
                head,
                body.map_err(|error| of_answer(error, max))?.to_bytes(),
            ))
        };
        let answer = match exchange.await {
            Ok((head, body)) => Ok(Content::Response {
                status: head.status.as_u16(),
                headers: pairs(&head.headers),
                body,
            }),
            Err(error) => Err(error),
        };
        let end = end(&pool.rule, &secrets, &answer).await;
        let stands = call.end(end).await;
        // The guest may have gone.
        drop(tell.send(match stands {
            Some(stands) => replayed(stands),
            None => answer.and_then(replayed),
        }));
    });
    let gone = |_| Err(HttpError::Protocol("the host is ending".to_owned()));
    told.await.unwrap_or_else(gone)
}

/// How a call ends for the journal.
async fn end(rule: &HttpRule, secrets: &Secrets, answer: &Result<Content, HttpError>) -> End {
    match answer {
        Ok(Content::Response { status, .. }) if !rule.keeps(*status) => End::NotKept,
        Ok(content) if holds_secret(content, secrets).await => {
            warn!(
                rule = &*rule.name,
                "an answer holds a secret, so it is not recorded: the next attempt sends the request again, with the same key"
            );
            End::Unknown
        }
        Ok(content) => End::Answer(content.clone()),
        Err(HttpError::TooLarge(max)) => End::Answer(Content::TooLarge(*max)),
        Err(
            HttpError::Denied(_)
            | HttpError::Dns(_)
            | HttpError::Connect(_)
            | HttpError::Tls(_)
            | HttpError::Closed(_),
        ) => End::Unsent,
        Err(HttpError::Timeout | HttpError::Protocol(_)) => End::Unknown,
    }
}

async fn holds_secret(content: &Content, secrets: &Secrets) -> bool {
    let Content::Response { headers, body, .. } = content else {
        return false;
    };
    let values = secrets.values().await;
    let holds = |text: &[u8], secret: &[u8]| {
        text.len() >= secret.len() && text.windows(secret.len()).any(|part| part == secret)
    };
    values.iter().any(|secret| {
        let secret = secret.reveal().as_bytes();
        let in_headers = || headers.iter().any(|(_, value)| holds(value, secret));
        secret.len() >= SECRET_MIN && (holds(body, secret) || in_headers())
    })
}

/// The recorded answer, as the guest sees it.
pub(super) fn replayed(content: Content) -> Result<Response<Body>, HttpError> {
    let (status, headers, body) = match content {
        Content::Response {
            status,
            headers,
            body,
        } => (status, headers, body),
        Content::TooLarge(max) => return Err(HttpError::TooLarge(max)),
        Content::Value(_) | Content::Intent => {
            return Err(HttpError::Protocol("the record is no response".to_owned()));
        }
    };
    let mut response = Response::new(match body.is_empty() {
        true => Body::default(),
        false => Body::new(Full::from(body).map_err(|never| match never {})),
    });
    let invalid = || HttpError::Protocol("the record is damaged".to_owned());
    *response.status_mut() = StatusCode::from_u16(status).map_err(|_| invalid())?;
    for (name, value) in headers {
        let name = http::HeaderName::from_bytes(&name).map_err(|_| invalid())?;
        let value = HeaderValue::from_maybe_shared(value).map_err(|_| invalid())?;
        response.headers_mut().append(name, value);
    }
    Ok(response)
}

pub(super) fn pairs(headers: &HeaderMap) -> Vec<(Bytes, Bytes)> {
    let pair = |(name, value): (&http::HeaderName, &HeaderValue)| {
        let name = Bytes::copy_from_slice(name.as_str().as_bytes());
        (name, Bytes::copy_from_slice(value.as_bytes()))
    };
    headers.iter().map(pair).collect()
}

/// The name of a call: the idempotency key that the guest has written; else what the request is. Headers that carry the
/// trace are no part of it, and their order neither.
fn name(
    rule: &HttpRule,
    method: &Method,
    target: &super::target::Target,
    headers: &HeaderMap,
    body: &Bytes,
) -> String {
    let header = rule.idempotency_header.as_ref();
    let header = header.map_or("idempotency-key", http::HeaderName::as_str);
    let written = headers.get(header).and_then(|value| value.to_str().ok());
    if let Some(written) = written.filter(|_| rule.idempotency_key != AddsKey::Always)
        && written.len() <= NAME_MAX
    {
        return format!("key:{written}");
    }
    let ignored = match rule.idempotency_key {
        AddsKey::Always => header,
        AddsKey::No | AddsKey::Yes => "",
    };
    let mut names: Vec<_> = headers.keys().collect();
    names.retain(|name| !["traceparent", "tracestate", ignored].contains(&name.as_str()));
    names.sort_unstable_by_key(|name| name.as_str());
    let mut digest = Sha256::new();
    let mut add = |part: &[u8]| {
        digest.update((part.len() as u64).to_le_bytes());
        digest.update(part);
    };
    add(method.as_str().as_bytes());
    add(target.to_string().as_bytes());
    for name in names {
        for value in headers.get_all(name) {
            add(name.as_str().as_bytes());
            add(value.as_bytes());
        }
    }
    add(body);
    let url = target.without_query();
    let url = printable(truncated(&url, URL_MAX));
    format!("http:{method} {url} {}", &hex(&digest.finalize())[..32])
}

fn of_body(error: Box<dyn std::error::Error + Send + Sync>) -> HttpError {
    match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(_) => HttpError::Denied(format!(
            "the body has more than {REQUEST_MAX} bytes, and the rule has a journal"
        )),
    }
}

fn of_answer(error: Box<dyn std::error::Error + Send + Sync>, max: usize) -> HttpError {
    match error.downcast::<HttpError>() {
        Ok(error) => *error,
        Err(_) => HttpError::TooLarge(max as u64),
    }
}
