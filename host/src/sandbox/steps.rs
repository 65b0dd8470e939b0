//! The steps of an attempt that is recorded: each has a span of its own.

use std::sync::Arc;
use std::time::Instant;

use crate::delivery::text::truncated;
use crate::delivery::trace::{AttemptSpan, Step, StepKind, Trace};

/// The most bytes of a text that the guest chooses.
const TEXT_MAX: usize = 256;

/// A step that goes on. It ends when this is dropped, too: a guest may wait no longer for it.
#[derive(Debug)]
pub(super) struct Recording {
    span: Arc<AttemptSpan>,
    span_id: u64,
    began: Instant,
    /// `None` once it has ended.
    kind: Option<StepKind>,
}

impl Recording {
    pub(super) fn begin(span: &Arc<AttemptSpan>, kind: StepKind) -> Self {
        Self {
            span: Arc::clone(span),
            span_id: fastrand::u64(1..),
            began: Instant::now(),
            kind: Some(kind),
        }
    }

    /// Its own span.
    pub(super) fn trace(&self) -> Trace {
        self.span.trace().with_span(self.span_id)
    }

    /// The response has this status.
    pub(super) fn answered(&mut self, answer: u16) {
        if let Some(StepKind::Http { status, .. }) = &mut self.kind {
            *status = Some(answer);
        }
    }

    pub(super) fn end(mut self, error: Option<&'static str>) {
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

/// The step of a request. A query may hold what nobody else should see: it is left out.
pub(super) fn of_request(method: &str, url: &str) -> StepKind {
    let url = url::Url::parse(url).ok();
    let host = url
        .as_ref()
        .and_then(url::Url::host_str)
        .unwrap_or_default();
    let shown = url.as_ref().map(|url| {
        let mut url = url.clone();
        url.set_query(None);
        url.set_fragment(None);
        // They fail for URLs that have no server.
        let _without = (url.set_username("").is_ok(), url.set_password(None).is_ok());
        url
    });
    StepKind::Http {
        method: truncated(method, TEXT_MAX).to_owned(),
        url: truncated(shown.as_ref().map_or("", url::Url::as_str), TEXT_MAX).to_owned(),
        host: truncated(host, TEXT_MAX).to_owned(),
        port: url.as_ref().and_then(url::Url::port_or_known_default),
        status: None,
    }
}

pub(super) fn of_lookup(name: &str) -> StepKind {
    StepKind::Lookup {
        name: truncated(name, TEXT_MAX).to_owned(),
    }
}
