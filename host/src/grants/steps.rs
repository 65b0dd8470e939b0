//! The steps of an attempt that is recorded: each has a span of its own.

use std::sync::Arc;
use std::time::Instant;

use http::Uri;

use crate::delivery::text::truncated;
use crate::delivery::trace::{AttemptSpan, Step, StepKind, Trace};

/// The most bytes of a text that the guest chooses.
const TEXT_MAX: usize = 256;

/// A step that goes on. It ends when this is dropped, too: a guest may wait no longer for it.
#[derive(Debug)]
pub(crate) struct Recording {
    span: Arc<AttemptSpan>,
    span_id: u64,
    began: Instant,
    /// `None` once it has ended.
    kind: Option<StepKind>,
}

impl Recording {
    pub(crate) fn begin(span: &Arc<AttemptSpan>, kind: StepKind) -> Self {
        Self {
            span: Arc::clone(span),
            span_id: fastrand::u64(1..),
            began: Instant::now(),
            kind: Some(kind),
        }
    }

    /// Its own span.
    pub(crate) fn trace(&self) -> Trace {
        self.span.trace().with_span(self.span_id)
    }

    /// The response has this status. `replayed`: an earlier attempt has recorded it.
    pub(crate) fn answered(&mut self, answer: u16, replayed: bool) {
        if let Some(StepKind::Http {
            status,
            is_replayed,
            ..
        }) = &mut self.kind
        {
            (*status, *is_replayed) = (Some(answer), replayed);
        }
    }

    pub(crate) fn end(mut self, error: Option<&'static str>) {
        self.add(error);
    }

    fn add(&mut self, error: Option<&'static str>) {
        if let Some(kind) = self.kind.take() {
            self.span.add(Step {
                span_id: self.span_id,
                kind,
                began: self.began,
                ended: Instant::now(),
                error,
            });
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        self.add(Some("cancelled"));
    }
}

/// The step of a request. A user, a password and a query may be secret: they are left out.
pub(crate) fn of_request(method: &str, url: &str) -> StepKind {
    let url: Uri = url.parse().unwrap_or_default();
    let (scheme, host) = (
        url.scheme_str().unwrap_or_default(),
        url.host().unwrap_or_default(),
    );
    let port = url.port_u16();
    let shown = match port {
        Some(port) => format!("{scheme}://{host}:{port}{}", url.path()),
        None => format!("{scheme}://{host}{}", url.path()),
    };
    let usual = match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    StepKind::Http {
        method: truncated(method, TEXT_MAX).to_owned(),
        url: truncated(&shown, TEXT_MAX).to_owned(),
        host: truncated(host, TEXT_MAX).to_owned(),
        port: port.or(usual),
        status: None,
        is_replayed: false,
    }
}

pub(crate) fn of_lookup(name: &str) -> StepKind {
    StepKind::Lookup {
        name: truncated(name, TEXT_MAX).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_without_what_may_be_secret() {
        for (url, shown, host, port) in [
            (
                "http://a.test/x?token=s#f",
                "http://a.test/x",
                "a.test",
                Some(80),
            ),
            (
                "https://me:pw@a.test:8443/x",
                "https://a.test:8443/x",
                "a.test",
                Some(8443),
            ),
            ("https://[::1]/", "https://[::1]/", "[::1]", Some(443)),
            ("no url at all", "://", "", None),
        ] {
            let StepKind::Http {
                url: found,
                host: named,
                port: at,
                ..
            } = of_request("GET", url)
            else {
                panic!("a request");
            };
            assert_eq!((&*named, at), (host, port), "{url}");
            assert!(
                found.starts_with(shown) && found.len() <= shown.len() + 1,
                "{found}"
            );
        }
        let StepKind::Http { url, method, .. } = of_request(
            &"M".repeat(1_000),
            &format!("http://a/{}", "x".repeat(1_000)),
        ) else {
            panic!("a request");
        };
        assert_eq!((url.len(), method.len()), (TEXT_MAX, TEXT_MAX));
    }
}
