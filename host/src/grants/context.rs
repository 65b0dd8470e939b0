//! The attempt on whose behalf a grant does something. All that it began ends with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

use super::journal::session::Session;
use super::recorded;
use super::steps::Recording;
use crate::delivery::millis::millis_up;
use crate::delivery::recording::{Ask, Track};
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
    /// Where the host asks that the message is held; `None` = it never does.
    pub hold: Option<Arc<AskedHold>>,
}

/// For how long the host wants the message of an attempt held, if the attempt wants it again: a call was refused before it was sent.
#[derive(Debug, Default)]
pub struct AskedHold(AtomicU64);

impl AskedHold {
    /// Ask. The longest time counts.
    pub(super) fn ask(&self, hold: Duration) {
        self.0.fetch_max(millis_up(hold).max(1), Ordering::Relaxed);
    }

    /// What was asked for.
    pub(crate) fn asked(&self) -> Option<Duration> {
        let ms = self.0.load(Ordering::Relaxed);
        (ms > 0).then(|| Duration::from_millis(ms))
    }
}

/// An attempt, as the grants see it.
pub(crate) struct Context {
    pub(super) origin: Origin,
    /// Where its steps are noted, if they are.
    recorder: Option<Recorder>,
    /// The most requests, lookups, and calls to the store, of each kind.
    pub(super) requests_max: u32,
    /// Where its answers are recorded, or come from.
    pub(super) track: Option<Arc<Track>>,
    /// Becomes true when the attempt ends.
    ended: watch::Sender<bool>,
}

impl Context {
    pub(crate) fn new(origin: Origin, recorder: Option<Recorder>, requests_max: usize) -> Self {
        Self {
            origin,
            recorder,
            requests_max: u32::try_from(requests_max).unwrap_or(u32::MAX),
            track: None,
            ended: watch::Sender::new(false),
        }
    }

    /// Its answers are recorded here, or come from here.
    pub(crate) fn with(mut self, track: Option<Arc<Track>>) -> Self {
        // A trial asks for nothing.
        self.track = track.filter(|_| !self.is_trial());
        self
    }

    /// The answer to a call, over the track if there is one.
    pub(super) fn answer<T, E>(
        &self,
        asked: impl FnOnce() -> Ask,
        live: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, E>>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned + From<String>,
    {
        recorded::answer(self.track.as_ref(), asked, live)
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
