//! HTTP for operators: whether the host is alive and ready, and its metrics.
//!
//! | route | answer |
//! |---|---|
//! | `GET /metrics` | OpenMetrics text |
//! | `GET /live` | 200, or 503 if the loop has not turned for a minute |
//! | `GET /ready` | 200, or 503 with the reasons; the destinations that are closed, the limits that keep messages waiting, and the versions of the handler |
//! | `GET /status` | JSON: the served queue, the active rules and their origin, destinations, recent faults |
//!
//! The server only reads, and it shows no secrets. But its clients can see queue names and
//! failures, so it listens on loopback by default, and pages of other sites get no answer (`guard`). The number of connections is limited: beyond it,
//! the one that was used least recently is closed. So is one that sends no request for half a minute.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::json;

use crate::telemetry::health::Health;
use crate::telemetry::metrics::{Metrics, Summary};
use crate::telemetry::rules::DestinationSeen;
use crate::telemetry::status::{Shown, Status};

mod guard;
mod listener;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Why the admin server could not start.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve on {address}: {source}")]
pub struct Error {
    /// The address.
    pub address: SocketAddr,
    /// The error of the system.
    pub source: std::io::Error,
}

/// A socket that listens but does not serve yet.
#[derive(Debug)]
pub struct Bound {
    listener: tokio::net::TcpListener,
    address: SocketAddr,
}

/// Listen on this address. Port 0 takes a free port.
///
/// # Errors
/// The address is in use, or does not belong to this machine.
pub async fn bind(address: SocketAddr) -> Result<Bound, Error> {
    let error = |source| Error { address, source };
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(error)?;
    let address = listener.local_addr().map_err(error)?;
    Ok(Bound { listener, address })
}

impl Bound {
    /// The actual address, with the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serve until the task is dropped.
    /// `beside`: further routes.
    pub async fn serve(
        self,
        metrics: Arc<Metrics>,
        health: Health,
        status: Status,
        beside: Option<Router>,
    ) {
        let state = Shared {
            metrics,
            health,
            status,
        };
        let mut router = router(state);
        if let Some(beside) = beside {
            router = router.merge(beside);
        }
        self.serve_only(router).await;
    }

    /// Serve these routes alone, until the task is dropped.
    pub async fn serve_only(self, router: Router) {
        let guard = middleware::from_fn_with_state(self.address, guard::guard);
        listener::serve(self.listener, router.layer(guard)).await;
    }
}

#[derive(Clone)]
struct Shared {
    metrics: Arc<Metrics>,
    health: Health,
    status: Status,
}

fn router(state: Shared) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/live", get(live))
        .route("/ready", get(ready))
        .route("/status", get(status))
        .fallback(async || {
            let known = json!({ "error": "not found", "routes": ["/metrics", "/live", "/ready", "/status"] });
            (StatusCode::NOT_FOUND, Json(known))
        })
        .with_state(state)
}

async fn metrics(State(shared): State<Shared>) -> Response {
    let text = shared.metrics.render(&shared.health);
    ([(CONTENT_TYPE, OPEN_METRICS)], text).into_response()
}

async fn live(State(shared): State<Shared>) -> Response {
    match shared.health.stuck(Instant::now()) {
        None => Json(json!({ "live": true })).into_response(),
        Some(silent) => {
            let body = json!({ "live": false, "silent_seconds": silent.as_secs() });
            (StatusCode::SERVICE_UNAVAILABLE, Json(body)).into_response()
        }
    }
}

/// The shape of `/status`.
#[derive(Serialize)]
struct StatusPage {
    #[serde(flatten)]
    status: Shown,
    /// Handlers that run now.
    in_flight: i64,
    /// The destinations of rules with `adaptive`.
    destinations: Vec<DestinationSeen>,
    /// The counts since the start, in the format of `--summary json`.
    counters: Summary,
}

async fn status(State(shared): State<Shared>) -> Response {
    Json(StatusPage {
        status: shared.status.shown(),
        in_flight: shared.metrics.in_flight.get(),
        destinations: shared.metrics.destinations(),
        counters: shared.metrics.summary(),
    })
    .into_response()
}

async fn ready(State(shared): State<Shared>) -> Response {
    let reasons = shared.health.impediments();
    let status = match reasons.is_empty() {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut closed = shared.metrics.destinations();
    closed.retain(|one| one.closed_ms.is_some());
    let body = json!({
        "ready": reasons.is_empty(),
        "reasons": reasons,
        "closed": closed,
        "limited": shared.metrics.limited_for_seconds.seen(Instant::now()),
        "handler": shared.health.versions(),
    });
    (status, Json(body)).into_response()
}
