//! The steps of an attempt, for its dead letter. If its span is recorded, each step has a span of its own.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use http::Uri;

use crate::delivery::text::truncated;
use crate::delivery::trace::{Recorder, Step, StepKind, Trace};

/// The most bytes of a text that the guest chooses.
const TEXT_MAX: usize = 256;

/// A step that goes on. It ends when this is dropped, too: a guest may wait no longer for it.
#[derive(Debug)]
pub(crate) struct Recording {
    recorder: Recorder,
    span_id: u64,
    has_ended: bool,
}

impl Recording {
    pub(crate) fn begin(recorder: &Recorder, kind: StepKind) -> Self {
        let span_id = fastrand::u64(1..);
        recorder.steps.begin(Step {
            span_id,
            kind,
            began: Instant::now(),
            ended: None,
            error: None,
            received: None,
        });
        Self {
            recorder: recorder.clone(),
            span_id,
            has_ended: false,
        }
    }

    /// Its own span, if that of the attempt is recorded.
    pub(crate) fn trace(&self) -> Option<Trace> {
        let trace = self.recorder.trace.as_ref()?;
        Some(trace.with_span(self.span_id))
    }

    /// The response has this status. `replayed`: an earlier attempt has recorded it. The bytes of its body are counted
    /// in the returned number.
    pub(crate) fn answered(&self, answer: u16, replayed: bool) -> Arc<AtomicU64> {
        let received = Arc::<AtomicU64>::default();
        self.recorder.steps.change(self.span_id, |step| {
            step.received = Some(Arc::clone(&received));
            if let StepKind::Http {
                status,
                is_replayed,
                ..
            } = &mut step.kind
            {
                (*status, *is_replayed) = (Some(answer), replayed);
            }
        });
        received
    }

    pub(crate) fn end(mut self, error: Option<&'static str>) {
        self.ended(error);
    }

    fn ended(&mut self, error: Option<&'static str>) {
        self.has_ended = true;
        self.recorder.steps.change(self.span_id, |step| {
            (step.ended, step.error) = (Some(Instant::now()), error);
        });
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if !self.has_ended {
            self.ended(Some("cancelled"));
        }
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
