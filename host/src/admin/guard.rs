//! Which requests are answered: none that a page of another site makes a browser send.
//!
//! - A browser says where a request comes from (`Sec-Fetch-Site`), if it goes to this machine or through TLS. Other
//!   programs do not say it. To open an address is no request of a page, wherever the link to it was.
//! - A page can also make a name point at this server (DNS rebinding), and is then its own page to the browser. Where
//!   the server listens for this machine only, a request must name this machine. Elsewhere scrapers may use any name,
//!   and a browser those that no stranger can have.

use std::net::{IpAddr, SocketAddr};

use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_LANGUAGE, HOST, HeaderMap, HeaderName, ORIGIN};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use nix::unistd::gethostname;
use serde_json::json;

/// Where a request comes from, what it is for, and where its answer goes.
const SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const DESTINATION: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Domains in which no name can be registered.
const PRIVATE_DOMAINS: [&str; 3] = [".internal", ".local", ".svc"];

/// Refuse what must not be answered.
pub(super) async fn guard(
    State(address): State<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let is_local = address.ip().is_loopback();
    match refusal(request.method(), request.headers(), is_local) {
        Some((status, why)) => (status, Json(json!({ "error": why }))).into_response(),
        None => next.run(request).await,
    }
}

fn refusal(
    method: &Method,
    headers: &HeaderMap,
    is_local: bool,
) -> Option<(StatusCode, &'static str)> {
    let text = |name| {
        let value = headers.get(name)?;
        Some(value.to_str().unwrap_or_default())
    };
    let host = text(HOST);
    let is_opened = *method == Method::GET
        && text(MODE) == Some("navigate")
        && text(DESTINATION) == Some("document");
    let is_foreign = match (text(SITE), text(ORIGIN)) {
        (Some(site), _) if !matches!(site, "same-origin" | "none") && !is_opened => true,
        (_, Some(origin)) => origin.split_once("://").map(|(_, named)| named) != host,
        _ => false,
    };
    if is_foreign {
        return Some((StatusCode::FORBIDDEN, "another page sent this"));
    }
    // A browser names a host.
    let name = name_of(host?);
    // Every browser sends this header, and a page cannot take it away.
    let is_browser = headers.contains_key(ACCEPT_LANGUAGE);
    let why = if is_local {
        let is_right = is_this_machine(name);
        (!is_right)
            .then_some("this address is for this machine only: open it as localhost or 127.0.0.1")
    } else {
        // A request that comes through TLS has the name of the certificate.
        let is_right = !is_browser || headers.contains_key(SITE) || is_own(name);
        (!is_right).then_some("anyone can make this name point here: open the address, or use TLS")
    };
    Some((StatusCode::MISDIRECTED_REQUEST, why?))
}

/// The name or address in a `Host`, without the port.
fn name_of(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    }
}

fn is_this_machine(name: &str) -> bool {
    let is_loopback = |address: IpAddr| address.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

/// Whether no page can have made this name point here.
fn is_own(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_hostname = || {
        let own = gethostname().ok().and_then(|own| own.into_string().ok());
        own.is_some_and(|own| own.eq_ignore_ascii_case(&name))
    };
    name.parse::<IpAddr>().is_ok()
        || !name.contains('.')
        || PRIVATE_DOMAINS.iter().any(|domain| name.ends_with(domain))
        || is_hostname()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn status(is_local: bool, headers: &[(&HeaderName, &str)]) -> u16 {
        let pair = |(name, value): &(&HeaderName, &str)| {
            ((*name).clone(), HeaderValue::from_str(value).unwrap())
        };
        let headers = headers.iter().map(pair).collect();
        let refused = refusal(&Method::GET, &headers, is_local);
        refused.map_or(200, |(status, _)| status.as_u16())
    }

    #[test]
    fn a_server_for_this_machine_answers_to_its_names_only() {
        for own in [
            "localhost",
            "LOCALHOST:9400",
            "127.0.0.1:9400",
            "127.1.2.3",
            "[::1]:9400",
            "[::1]",
        ] {
            assert_eq!(status(true, &[(&HOST, own)]), 200, "{own}");
        }
        for other in [
            "",
            "host",
            "example.com",
            "localhost.example.com:9400",
            "10.0.0.1",
            "0.0.0.0:9400",
            "[::2]:9400",
            "127.0.0.1.nip.io",
        ] {
            assert_eq!(status(true, &[(&HOST, other)]), 421, "{other}");
        }
        // A probe of HTTP/1.0.
        assert_eq!(status(true, &[]), 200);
    }

    #[test]
    fn probes_and_scrapers_use_any_name_and_browsers_only_names_that_no_stranger_has() {
        let names = [
            "10.1.2.3:9400",
            "[fd00::7]:9400",
            "hostler-0:9400",
            "hostler.queues.svc:9400",
            "hostler.queues.svc.cluster.local",
            "ip-10-1-2-3.ec2.internal:9400",
        ];
        let language = (&ACCEPT_LANGUAGE, "en");
        for name in names {
            assert_eq!(status(false, &[(&HOST, name)]), 200, "{name}");
            assert_eq!(status(false, &[(&HOST, name), language]), 200, "{name}");
        }
        for name in [
            "evil.example:9400",
            "10.1.2.3.nip.io",
            "internal.evil.example",
        ] {
            let named = (&HOST, name);
            assert_eq!(status(false, &[named]), 200, "{name}");
            assert_eq!(status(false, &[named, language]), 421, "{name}");
            // A page may empty the header, and cannot say that it came through TLS.
            assert_eq!(
                status(false, &[named, (&ACCEPT_LANGUAGE, "")]),
                421,
                "{name}"
            );
            let own = (&SITE, "same-origin");
            assert_eq!(status(false, &[named, language, own]), 200, "{name}");
        }
    }

    #[test]
    fn no_page_of_another_site_gets_an_answer() {
        let host = (&HOST, "127.0.0.1:9400");
        for is_local in [true, false] {
            for site in ["cross-site", "same-site", "", "unknown"] {
                let site = (&SITE, site);
                assert_eq!(status(is_local, &[host, site]), 403, "{site:?}");
                for (mode, destination) in [
                    ("cors", "empty"),
                    ("no-cors", "image"),
                    ("no-cors", "script"),
                    ("navigate", "iframe"),
                    ("navigate", "object"),
                ] {
                    let headers = [host, site, (&MODE, mode), (&DESTINATION, destination)];
                    assert_eq!(status(is_local, &headers), 403, "{headers:?}");
                }
                // A link that a person follows.
                let opened = [host, site, (&MODE, "navigate"), (&DESTINATION, "document")];
                assert_eq!(status(is_local, &opened), 200);
            }
            for site in ["same-origin", "none"] {
                assert_eq!(status(is_local, &[host, (&SITE, site)]), 200);
            }
            for origin in ["http://evil.example", "http://127.0.0.1:3000", "null", ""] {
                assert_eq!(
                    status(is_local, &[host, (&ORIGIN, origin)]),
                    403,
                    "{origin}"
                );
            }
            let own = (&ORIGIN, "http://127.0.0.1:9400");
            assert_eq!(status(is_local, &[host, own]), 200);
        }
    }
}
