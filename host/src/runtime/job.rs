//! A delivery as the driver and a slot share it.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};

use crate::delivery::effect::Effects;
use crate::delivery::trace::Trace;
use crate::queue::Claim;

/// A claimed delivery, as the ledger keeps it.
#[derive(Debug)]
pub struct Job {
    /// The delivery.
    pub claim: Arc<Claim>,
    /// When it stops being worth handling, in epoch milliseconds.
    pub expires_at_ms: Option<u64>,
    /// The gate knows that its body parses.
    pub is_decoded: AtomicBool,
    /// Its last attempt, if that did not end in an ack: for its dead letter.
    last: Mutex<Option<LastAttempt>>,
    /// The effects of the attempt that ended in an ack.
    effects: Mutex<Option<Arc<Effects>>>,
}

/// An attempt that did not end in an ack.
#[derive(Clone, Debug)]
pub struct LastAttempt {
    /// The digest of the handler.
    pub handler: Arc<str>,
    /// The end of its log, if it wrote anything.
    pub log: Option<Arc<str>>,
    /// Its span, if it had one of its own.
    pub trace: Option<Trace>,
}

impl Job {
    /// A job for this claim.
    pub fn new(claim: Claim, expires_at_ms: Option<u64>) -> Self {
        Self {
            expires_at_ms,
            is_decoded: AtomicBool::new(false),
            claim: Arc::new(claim),
            last: Mutex::new(None),
            effects: Mutex::new(None),
        }
    }

    /// Remember an attempt that did not end in an ack.
    pub fn failed(&self, attempt: LastAttempt) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(attempt);
    }

    /// Remember the effects of the attempt that ended in an ack; `None` = that attempt is void.
    pub fn acts(&self, effects: Option<Arc<Effects>>) {
        *self.effects.lock().unwrap_or_else(PoisonError::into_inner) = effects;
    }

    /// The effects of the attempt that ended in an ack; `None` = none has, or its queue takes no effects.
    pub fn effects(&self) -> Option<Arc<Effects>> {
        self.effects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// The span of its last attempt, or else that in which the message was sent.
    pub fn trace(&self) -> Option<Trace> {
        let own = self.last().and_then(|last| last.trace);
        own.or_else(|| Trace::of(&self.claim.message.headers))
    }

    /// Its last attempt, if that did not end in an ack.
    pub fn last(&self) -> Option<LastAttempt> {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
