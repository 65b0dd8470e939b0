//! Which requests are answered, and the headers of every answer.
//!
//! - A page on another site cannot act: an action needs the header [`TOKEN`], which a form cannot set, which
//!   another origin may not set without a permission that is never given, and which no browser sends by itself.
//!   An `Origin` that is not the one of the page is refused as well.
//! - A page on another site cannot read: nothing allows another origin. A name that is made to point at this
//!   machine is refused where the page is for this machine only.

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
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
    let headers = request.headers();
    let host = text(headers, &HOST);
    if ui.0.is_local && !host.is_some_and(is_this_machine) {
        let why = "this address is for this machine only: open it as localhost or 127.0.0.1";
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    if request.method() != Method::POST {
        return None;
    }
    let Some(token) = &ui.0.token else {
        let why = "read only: start it with a token to act";
        return Some((StatusCode::FORBIDDEN, why));
    };
    // Browsers send it with every POST; other programs need not.
    let is_own = text(headers, &ORIGIN).is_none_or(|origin| {
        let named = origin.split_once("://").map(|(_, host)| host);
        named.is_some() && named == host
    });
    if !is_own {
        return Some((StatusCode::FORBIDDEN, "another page sent this"));
    }
    let given = text(headers, &TOKEN).unwrap_or_default();
    // Digests are compared: how long that takes says nothing about the token.
    if Sha256::digest(given) != Sha256::digest(token.reveal()) {
        return Some((StatusCode::UNAUTHORIZED, "the token is wrong"));
    }
    None
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

/// Whether a `Host` names this machine, whatever its port.
fn is_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |address: std::net::IpAddr| address.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_machine() {
        for own in [
            "localhost",
            "LOCALHOST:9400",
            "127.0.0.1:9400",
            "127.1.2.3",
            "[::1]:9400",
            "[::1]",
        ] {
            assert!(is_this_machine(own), "{own}");
        }
        for other in [
            "",
            "example.com",
            "localhost.example.com:9400",
            "10.0.0.1",
            "[::2]:9400",
            "127.0.0.1.nip.io",
        ] {
            assert!(!is_this_machine(other), "{other}");
        }
    }
}
