//! The attempt on whose behalf a grant does something. All that it began ends with it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;

use super::journal::session::Session;
use super::steps::Recording;
use crate::delivery::trace::{Recorder, StepKind};

/// Why nothing is allowed while an instance is only made.
pub(crate) const NO_MESSAGE: &str = "no message is being handled";

/// The attempt on whose behalf something is done.
#[derive(Clone, Debug)]
pub struct Origin {
    /// The id of the message.
    pub message_id: Arc<str>,
    /// The queue that the message came from.
    pub queue: Arc<str>,
    /// The number of the attempt.
    pub attempt: u32,
    /// The messages of the call; the others belong to the first one.
    pub messages: usize,
    /// The end of the attempt at the latest.
    pub deadline: Instant,
    /// `traceparent` of the message; a batch has none.
    pub traceparent: Option<Bytes>,
    /// `tracestate` of the message.
    pub tracestate: Option<Bytes>,
    /// The digest of the handler.
    pub handler: Arc<str>,
    /// The journal of the message, if it has one.
    pub journal: Option<Arc<Session>>,
}

/// An attempt, as the grants see it.
pub(crate) struct Context {
    pub(super) origin: Origin,
    /// Where its steps are noted, if they are.
    recorder: Option<Recorder>,
    /// The most requests, lookups, and calls to the store, of each kind.
    pub(super) requests_max: u32,
    /// Becomes true when the attempt ends.
    ended: watch::Sender<bool>,
}

impl Context {
    pub(super) fn new(
        origin: Origin,
        recorder: Option<Recorder>,
        requests_max: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            origin,
            recorder,
            requests_max: u32::try_from(requests_max).unwrap_or(u32::MAX),
            ended: watch::Sender::new(false),
        })
    }

    /// Whether the instance is only made, at load: nothing may happen outside.
    pub(super) fn is_trial(&self) -> bool {
        self.origin.messages == 0
    }

    /// Note a step, if the steps of the attempt are noted.
    pub(super) fn record(&self, kind: impl FnOnce() -> StepKind) -> Option<Recording> {
        let recorder = self.recorder.as_ref()?;
        Some(Recording::begin(recorder, kind()))
    }

    /// Wait for the end of the attempt.
    pub(super) fn ending(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut ended = self.ended.subscribe();
        async move {
            // An error: the attempt is gone.
            drop(ended.wait_for(|ended| *ended).await);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    pub(super) fn end(&self) {
        self.ended.send_replace(true);
    }
}
