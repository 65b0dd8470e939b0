//! A delivery as the driver keeps it in the ledger, and as a slot gets it.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use futures_util::task::AtomicWaker;
use hostler_handover::Work;

use crate::delivery::effect::Effects;
use crate::delivery::evidence::Evidence;
use crate::delivery::ledger::{Key, Time};
use crate::delivery::trace::Trace;
use crate::queue::Claim;

/// A claimed delivery, as the ledger keeps it.
#[derive(Clone, Debug)]
pub struct Job {
    /// The delivery.
    pub claim: Arc<Claim>,
    /// When it stops being worth handling, in epoch milliseconds.
    pub expires_at_ms: Option<u64>,
    /// Its last attempt, if that did not end in an ack: for its dead letter. Few messages have one.
    pub last: Option<Box<LastAttempt>>,
    /// The effects of the attempt that ended in an ack; `None` = none has, or its queue takes no effects.
    pub effects: Option<Arc<Effects>>,
    /// Its producer waits for an answer.
    pub is_awaited: bool,
    /// A handler has run it here.
    pub has_run: bool,
    /// When duplicates were last looked for.
    pub looked: Time,
    /// When its limits have reserved its start for, in epoch milliseconds, until it may start.
    pub reserved_ms: Option<u64>,
}

/// An attempt that did not end in an ack.
#[derive(Clone, Debug)]
pub struct LastAttempt {
    /// The digest of the handler.
    pub handler: Arc<str>,
    /// Its evidence, for a dead letter.
    pub evidence: Option<Arc<Evidence>>,
    /// Its span, if it had one of its own.
    pub trace: Option<Trace>,
}

impl Job {
    /// A job for this claim.
    pub fn new(claim: Claim, expires_at_ms: Option<u64>) -> Self {
        Self {
            expires_at_ms,
            reserved_ms: claim.reserved_ms,
            claim: Arc::new(claim),
            last: None,
            effects: None,
            is_awaited: false,
            has_run: false,
            looked: Time::ZERO,
        }
    }

    /// The span of its last attempt, or else that in which the message was sent.
    pub fn trace(&self) -> Option<Trace> {
        let own = self.last.as_ref().and_then(|last| last.trace);
        own.or_else(|| Trace::of(&self.claim.message.headers))
    }
}

/// The right of a slot to run a delivery.
pub type Ticket = hostler_handover::Ticket<Released>;

/// A delivery that is released to the slots.
#[derive(Debug)]
pub struct Released {
    /// Its key in the ledger.
    pub key: Key,
    /// The delivery.
    pub claim: Arc<Claim>,
    /// As in [`Job`].
    pub expires_at_ms: Option<u64>,
    /// As in [`Job`].
    pub looked: Time,
    /// The gate knows that its body parses.
    pub is_decoded: AtomicBool,
    /// Cuts its attempt off.
    pub cut: Cut,
}

impl Released {
    /// The release of this job.
    pub fn new(key: Key, job: &Job) -> Self {
        Self {
            key,
            claim: Arc::clone(&job.claim),
            expires_at_ms: job.expires_at_ms,
            looked: job.looked,
            is_decoded: AtomicBool::new(false),
            cut: Cut::default(),
        }
    }
}

/// Cuts an attempt off. An attempt that needs one poll costs nothing more.
#[derive(Debug, Default)]
pub struct Cut {
    is_cut: AtomicBool,
    waker: AtomicWaker,
}

impl Cut {
    /// Cut it off, if it runs.
    pub fn off(&self) {
        self.is_cut.store(true, Ordering::Release);
        self.waker.wake();
    }

    /// Run it; `None` = it was cut off, and is dropped.
    pub async fn unless<T>(&self, run: impl Future<Output = T>) -> Option<T> {
        let mut run = pin!(run);
        poll_fn(|context| {
            if let Poll::Ready(done) = run.as_mut().poll(context) {
                return Poll::Ready(Some(done));
            }
            self.waker.register(context.waker());
            match self.is_cut.load(Ordering::Acquire) {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }
}

impl Work for Released {
    fn bytes(&self) -> usize {
        self.claim.message.body.len()
    }
}
