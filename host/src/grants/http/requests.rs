//! The requests of one attempt. They end with it, and so do the responses that its guest left unread.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::task::{Context as TaskContext, Poll};

use bytes::Bytes;
use http_body::{Body as _, Frame, SizeHint};
use parking_lot::Mutex;

use super::provider::{Body, HttpError, HttpRequest, Provider, Replayed};
use super::recorded;
use crate::grants::context::{Context, NO_MESSAGE, Origin};
use crate::grants::steps;

/// The requests of one attempt.
pub(crate) struct Requests {
    context: Arc<Context>,
    provider: Arc<dyn Provider>,
    sent: AtomicU32,
    /// The bodies of responses that are not read to their end.
    unread: Mutex<Vec<Unread>>,
}

/// A body that its attempt can take away.
type Unread = Arc<Mutex<Option<Body>>>;

impl Requests {
    pub(in crate::grants) fn new(
        context: &Arc<Context>,
        provider: &Arc<dyn Provider>,
    ) -> Arc<Self> {
        Arc::new(Self {
            context: Arc::clone(context),
            provider: Arc::clone(provider),
            sent: AtomicU32::new(0),
            unread: Mutex::default(),
        })
    }

    /// The attempt has ended: take the bodies away.
    pub(in crate::grants) fn end(&self) {
        let unread = std::mem::take(&mut *self.unread.lock());
        for body in unread {
            drop(body.lock().take());
        }
    }

    /// Send a request, which ends with the attempt. Its number is that of this call, whenever the
    /// future runs.
    pub(crate) fn send(
        self: Arc<Self>,
        request: HttpRequest,
    ) -> impl Future<Output = Result<http::Response<Body>, HttpError>> + Send + 'static {
        let ordinal = self.sent.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.send_as(ordinal, request)
    }

    async fn send_as(
        self: Arc<Self>,
        ordinal: u32,
        request: HttpRequest,
    ) -> Result<http::Response<Body>, HttpError> {
        let context = &self.context;
        if context.is_trial() {
            return Err(HttpError::Denied(NO_MESSAGE.to_owned()));
        }
        if ordinal > context.requests_max {
            let max = context.requests_max;
            let why = format!("the attempt has sent {max} requests (limit `requests`)");
            return Err(HttpError::Denied(why));
        }
        let ending = context.ending();
        let recording = context.record(|| steps::of_request(&request.method, &request.url));
        let trace = recording.as_ref().and_then(|recording| recording.trace());
        let recorded = trace.map(|trace| Origin {
            traceparent: Some(Bytes::from(trace.to_string())),
            ..context.origin.clone()
        });
        let origin = recorded.as_ref().unwrap_or(&context.origin);
        let sending = async {
            let send = |request| self.provider.send(origin, ordinal, request);
            match &context.track {
                None => send(request).await,
                Some(track) => recorded::send(track, request, send).await,
            }
        };
        let response = tokio::select! {
            biased;
            () = ending => Err(HttpError::Timeout),
            response = sending => response,
        };
        let mut received = None;
        if let (Some(recording), Ok(response)) = (&recording, &response) {
            let replayed = response.extensions().get::<Replayed>();
            received = Some(recording.answered(response.status().as_u16(), replayed.is_some()));
        }
        if let Some(recording) = recording {
            recording.end(response.as_ref().err().map(HttpError::label));
        }
        Ok(response?.map(|body| self.watched(body, received)))
    }

    /// The body, which ends with the attempt. Its bytes are counted in `received`.
    fn watched(&self, body: Body, received: Option<Arc<AtomicU64>>) -> Body {
        if body.is_end_stream() {
            return body;
        }
        let body: Unread = Arc::new(Mutex::new(Some(body)));
        let mut unread = self.unread.lock();
        // Those that only this list holds were dropped by the guest, or read to their end.
        unread.retain(|body| Arc::strong_count(body) > 1 && body.lock().is_some());
        unread.push(Arc::clone(&body));
        drop(unread);
        if self.context.has_ended() {
            drop(body.lock().take());
        }
        Body::new(Watched(body, received))
    }
}

/// A body that ends with an error when its attempt has taken it away, and how many bytes of it have come.
struct Watched(Unread, Option<Arc<AtomicU64>>);

impl http_body::Body for Watched {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let mut body = self.0.lock();
        match &mut *body {
            Some(body) => {
                let polled = Pin::new(body).poll_frame(cx);
                if let (Some(received), Poll::Ready(Some(Ok(frame)))) = (&self.1, &polled)
                    && let Some(data) = frame.data_ref()
                {
                    received.fetch_add(data.len() as u64, Ordering::Relaxed);
                }
                polled
            }
            None => Poll::Ready(Some(Err(HttpError::Timeout))),
        }
    }

    fn is_end_stream(&self) -> bool {
        let body = self.0.lock();
        body.as_ref().is_some_and(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let body = self.0.lock();
        body.as_ref()
            .map(http_body::Body::size_hint)
            .unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.0.lock().take());
    }
}
