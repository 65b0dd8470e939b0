//! What the page can read. All of it is JSON; texts of messages are strings in it, and the page shows them as
//! text.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::SemaphorePermit;

use super::{Ui, course};
use crate::dead_letter::{self, DeadLetters, Entry, Filter, groups};
use crate::delivery::text::truncated;
use crate::policies::{self, Policies, Stored};
use crate::policy_change::Refusal;
use crate::redis::Error as RedisError;
use crate::registry::cancel::CancelError;
use crate::registry::{Listed, listed, named, overview, trace};
use crate::rollout::store::Store;
use crate::wire::dead_letter::RECORDING;

/// The most dead letters on a page.
const LETTERS_MAX: usize = 200;
/// The most bytes of a body that are shown.
const BODY_MAX: usize = 64 * 1024;
/// The most bytes of a header that are shown.
const HEADER_MAX: usize = 4 * 1024;
/// The newest entries of each key that are searched for a message. `hostler trace` can search more.
const SEARCHED_MAX: usize = 1_000;
/// The most causes that are shown.
const GROUPS_MAX: usize = 100;

impl Ui {
    /// Wait for the turn of a request that reads dead letters: each holds a stretch of them, and its answer.
    async fn read(&self) -> Result<SemaphorePermit<'_>, Error> {
        let turn = self.0.reader.acquire().await;
        turn.map_err(|error| Error::Wrong(error.to_string()))
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Error {
    #[error(transparent)]
    Redis(#[from] RedisError),
    #[error(transparent)]
    DeadLetters(#[from] dead_letter::Error),
    #[error("{0}")]
    Missing(String),
    #[error("{0}")]
    Wrong(String),
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Policies(policies::Error::Redis(error)) => Self::Redis(error),
            refusal => Self::Wrong(refusal.to_string()),
        }
    }
}

impl From<CancelError> for Error {
    fn from(error: CancelError) -> Self {
        match error {
            CancelError::Redis(error) => Self::Redis(error),
            wrong => Self::Wrong(wrong.to_string()),
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Wrong(_) | Self::DeadLetters(dead_letter::Error::Served { .. }) => {
                StatusCode::BAD_REQUEST
            }
            Self::Redis(_) | Self::DeadLetters(_) => StatusCode::BAD_GATEWAY,
        };
        (status, Json(json!({ "error": self.to_string() }))).into_response()
    }
}

/// The words of a query.
pub(super) struct Words(HashMap<String, String>);

impl<S: Sync> FromRequestParts<S> for Words {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let query = parts.uri.query().unwrap_or_default();
        let pairs = url::form_urlencoded::parse(query.as_bytes()).into_owned();
        Ok(Self(pairs.filter(|(_, value)| !value.is_empty()).collect()))
    }
}

impl Words {
    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    fn required(&self, name: &str) -> Result<&str, Error> {
        let found = self.get(name);
        found.ok_or_else(|| Error::Wrong(format!("`{name}` is missing")))
    }
}

pub(super) async fn session(State(ui): State<Ui>) -> Response {
    let trials = ui.0.trials.iter();
    let handlers = trials.flat_map(|trials| &trials.candidates);
    let handlers =
        handlers.map(|(name, candidate)| json!({ "name": name, "digest": &**candidate.digest() }));
    let session = json!({
        "can_act": ui.0.token.is_some(),
        "version": env!("CARGO_PKG_VERSION"),
        "handlers": handlers.collect::<Vec<_>>(),
    });
    Json(session).into_response()
}

pub(super) async fn queues(State(ui): State<Ui>) -> Result<Response, Error> {
    let queues = course::latest(&ui).await?;
    Ok(Json(&*queues).into_response())
}

/// The listed queue with this name and group.
pub(super) async fn find(ui: &Ui, name: &str, group: Option<&str>) -> Result<Listed, Error> {
    let found = named(&ui.0.connector.link("queues"), name).await?;
    let mut found = found.into_iter();
    let found = found.find(|queue| queue.group.as_deref() == group);
    found.ok_or_else(|| Error::Missing(format!("no queue `{name}` is known")))
}

pub(super) async fn queue(State(ui): State<Ui>, words: Words) -> Result<Response, Error> {
    let (name, group) = (words.required("queue")?, words.get("group"));
    // The page keeps what it has been told.
    let since = words.get("since").and_then(|since| since.parse().ok());
    let listed = find(&ui, name, group).await?;
    let link = Arc::new(ui.0.connector.link("ui").of(name));
    let (seen, hosts, report) = overview::look(&link, &listed).await;
    let store = Store::sharing(link, name);
    let versions = store.report().await.unwrap_or_default();
    let verdicts = store.verdicts(&versions.stored).await.unwrap_or_default();
    let stored = versions.stored.iter().enumerate().map(|(at, version)| {
        let verdicts = verdicts.get(at);
        json!({
            "version": version.number,
            "digest": version.digest,
            "size_bytes": version.size,
            "at_ms": version.at_ms,
            "by": version.by,
            "is_wanted": version.number == versions.requested,
            "kept": verdicts.and_then(|v| v.kept.as_deref()),
            "given_up": verdicts.and_then(|v| v.rejected.as_deref()),
        })
    });
    let policies = Policies::new(ui.0.connector.link("policies"));
    let policies = policies.of_queue(name).await.stored();
    let (policies, _) = policies.unwrap_or_default();
    let answer = json!({
        "queue": seen,
        "consumers": report.consumers,
        "hosts": hosts,
        "versions": stored.collect::<Vec<_>>(),
        "policies": policies.iter().map(policy).collect::<Vec<_>>(),
        "course": course::of(&ui, name, group, since).await,
    });
    Ok(Json(answer).into_response())
}

fn policy(stored: &Stored) -> serde_json::Value {
    json!({
        "setting": stored.setting,
        "value": stored.text,
        "for": &**stored.scope.text(),
    })
}

pub(super) async fn policies(State(ui): State<Ui>) -> Result<Response, Error> {
    let policies = Policies::new(ui.0.connector.link("policies"));
    let (found, _) = policies.by_pattern().await.stored()?;
    Ok(Json(found.iter().map(policy).collect::<Vec<_>>()).into_response())
}

/// A dead letter in a list: without its body.
fn row(entry: &Entry, key: &str) -> serde_json::Value {
    json!({
        "id": entry.id,
        "died_ms": entry.died_ms(),
        "reason": entry.reason_in(key),
        "detail": entry.detail,
        "attempts": entry.attempts,
        "source": entry.source,
        "signature": groups::id_of(&entry.signature_in(key)),
    })
}

pub(super) async fn dead(State(ui): State<Ui>, words: Words) -> Result<Response, Error> {
    let key = words.required("key")?;
    let reasons: Vec<String> = words.get("reason").map(str::to_owned).into_iter().collect();
    let limit = words.get("limit").and_then(|limit| limit.parse().ok());
    let limit = limit.unwrap_or(50).min(LETTERS_MAX);
    let _turn = ui.read().await?;
    let letters = DeadLetters::new(&ui.0.connector, key).heads_only();
    let peek = letters.peek_for(&reasons, limit).await?;
    let served_by = letters.served_by().await?;
    let answer = json!({
        "key": key,
        "total": peek.total,
        "by_reason": peek.by_reason,
        "served_by": served_by,
        "entries": peek.entries.iter().map(|e| row(e, key)).collect::<Vec<_>>(),
    });
    Ok(Json(answer).into_response())
}

pub(super) async fn groups(State(ui): State<Ui>, words: Words) -> Result<Response, Error> {
    let _turn = ui.read().await?;
    let letters = DeadLetters::new(&ui.0.connector, words.required("key")?).heads_only();
    let mut found = letters.groups(Filter::default()).await?;
    let cut = found.groups.iter().skip(GROUPS_MAX).map(|g| g.count);
    found.others += cut.sum::<u64>();
    found.groups.truncate(GROUPS_MAX);
    Ok(Json(found).into_response())
}

pub(super) async fn trace(State(ui): State<Ui>, words: Words) -> Result<Response, Error> {
    let id = words.required("id")?;
    let _turn = ui.read().await?;
    let connector = &ui.0.connector;
    let queues = listed(&connector.link("queues")).await?;
    let found = trace::trace(connector, &queues, id, SEARCHED_MAX).await;
    Ok(Json(found).into_response())
}

pub(super) async fn letter(State(ui): State<Ui>, words: Words) -> Result<Response, Error> {
    let (key, id) = (words.required("key")?, words.required("id")?);
    let _turn = ui.read().await?;
    let letters = DeadLetters::new(&ui.0.connector, key);
    let entry = letters.find(id).await?;
    let entry = entry.ok_or_else(|| Error::Missing(format!("`{key}` has no entry {id}")))?;
    let history = entry.history();
    let history = history.records().iter().map(|death| {
        json!({
            "queue": death.queue, "reason": death.reason, "count": death.count,
            "first_ms": death.first_ms, "last_ms": death.last_ms,
        })
    });
    let headers = entry.headers.iter();
    // It is large.
    let headers = headers.filter(|(name, _)| !name.eq_ignore_ascii_case(RECORDING.as_bytes()));
    let headers = headers.map(|(name, value)| {
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(HEADER_MAX + 4)]);
            truncated(&text, HEADER_MAX).to_owned()
        };
        [text(name), text(value)]
    });
    let beginning = &entry.body[..entry.body.len().min(BODY_MAX + 4)];
    let body = String::from_utf8_lossy(beginning);
    let answer = json!({
        "key": key,
        "row": row(&entry, key),
        "handler": entry.handler,
        "group": entry.group,
        "source_id": entry.source_id,
        "defect": entry.defect,
        "cause": entry.signature_in(key),
        "log": entry.log(),
        "calls": entry.calls().calls,
        "calls_before": entry.calls().before,
        "recording_bytes": entry.headers.find(RECORDING).map(|text| text.len()),
        "history": history.collect::<Vec<_>>(),
        "headers": headers.collect::<Vec<_>>(),
        "body": truncated(&body, BODY_MAX),
        "body_bytes": entry.body.len(),
        "is_text": std::str::from_utf8(&entry.body).is_ok(),
    });
    Ok(Json(answer).into_response())
}
