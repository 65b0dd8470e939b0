//! Which requests are answered, and the headers of every answer.
//!
//! A page on another site cannot act: an action needs the header [`TOKEN`], which a form cannot set, which
//! another origin may not set without a permission that is never given, and which no browser sends by itself.
//! The server refuses what such a page sends, to act or to read, before it comes here (`admin`).

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::Ui;

/// The header with the token. Only a script of the page sets it.
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-hostler-token");

/// Scripts and styles come from the page's own files alone, and nothing else comes from anywhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, HeaderValue); 5] = [
    (CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY)),
    (X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (X_FRAME_OPTIONS, HeaderValue::from_static("DENY")),
    (REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (CACHE_CONTROL, HeaderValue::from_static("no-store")),
];

/// Refuse what must not be answered; add the headers.
pub(super) async fn guard(State(ui): State<Ui>, request: Request, next: Next) -> Response {
    let refused = refusal(&ui, &request);
    let mut response = match refused {
        Some((status, why)) => (status, Json(json!({ "error": why }))).into_response(),
        None => next.run(request).await,
    };
    response.headers_mut().extend(HEADERS);
    response
}

fn refusal(ui: &Ui, request: &Request) -> Option<(StatusCode, &'static str)> {
    if request.method() != Method::POST {
        return None;
    }
    let Some(token) = &ui.0.token else {
        let why = "read only: start it with a token to act";
        return Some((StatusCode::FORBIDDEN, why));
    };
    let given = request
        .headers()
        .get(&TOKEN)
        .and_then(|given| given.to_str().ok());
    let given = given.unwrap_or_default();
    // Digests are compared: how long that takes says nothing about the token.
    if Sha256::digest(given) != Sha256::digest(token.reveal()) {
        return Some((StatusCode::UNAUTHORIZED, "the token is wrong"));
    }
    None
}
