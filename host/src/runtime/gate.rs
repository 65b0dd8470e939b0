//! The gate: which messages no handler may see, and why.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::delivery::ledger::{Delivery, TurnedAway};
use crate::delivery::message::{EXPIRES_AT, TIME_MIN_MS};
use crate::delivery::millis::millis;
use crate::delivery::policy::Reason;
use crate::delivery::reply;
use crate::queue::Claim;
use crate::redis::ServerTime;
use crate::runtime::job::{Job, Released};
use crate::wire::codec::BodyCodec;
use crate::wire::dead_letter::only_group;

/// The limits of the gate.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes.
    pub payload_max: usize,
    /// The consumer group that this host serves. Messages that were replayed for another group are
    /// turned away.
    pub group: Option<Arc<str>>,
    /// How long after its enqueueing a message is worth handling. The earlier of this and the header
    /// counts.
    pub ttl: Option<Duration>,
    /// Every body must parse as this.
    pub codec: Option<BodyCodec>,
    /// The headers that every message must have, in lower case.
    pub required: Vec<String>,
    /// Whether producers that wait are answered.
    pub answers: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_max: 1024 * 1024,
            group: None,
            ttl: None,
            codec: None,
            required: Vec::new(),
            answers: true,
        }
    }
}

/// See the module. The driver asks [`Gate::at_claim`], and a slot asks [`Gate::at_start`].
#[derive(Clone, Debug)]
pub struct Gate {
    pub(super) limits: Limits,
    time: Arc<ServerTime>,
}

impl Gate {
    /// A gate with these limits. Messages expire by this time of day.
    pub fn new(limits: Limits, time: Arc<ServerTime>) -> Self {
        Self { limits, time }
    }

    /// The time of day that messages expire by, in epoch milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.time.now_ms()
    }

    /// The delivery of a claim at this time, and whether it is turned away.
    pub fn at_claim(&self, claim: Claim, now_ms: u64) -> Delivery<Job> {
        let expires_at_ms = self.expires_at_ms(&claim);
        let is_for_others = self.limits.group.as_ref().is_some_and(|group| {
            only_group(&claim.message.headers).is_some_and(|only| *only != **group)
        });
        let turned_away = if is_for_others {
            Some(TurnedAway::OtherGroup)
        } else if claim.is_duplicate {
            Some(TurnedAway::Duplicate)
        } else {
            self.defect(&claim)
                .or_else(|| expired(expires_at_ms, now_ms))
                .map(|(reason, detail)| TurnedAway::Rejected(reason, detail))
        };
        let is_awaited =
            self.limits.answers && !is_for_others && reply::inbox(&claim.message.headers).is_some();
        Delivery {
            id: claim.id,
            origin: claim.origin,
            header: claim.header,
            native: claim.native,
            held: claim.held.count,
            turned_away,
            is_awaited,
            job: Job {
                is_awaited,
                ..Job::new(claim, expires_at_ms)
            },
        }
    }

    /// Why a delivery must not start now, if so. A slot asks before the start is recorded.
    ///
    /// Decoding takes time in proportion to the body, so it happens here, on any core, and once for a release.
    pub fn at_start(&self, released: &Released) -> Option<(Reason, String)> {
        if let Some(codec) = self.limits.codec
            && !released.is_decoded.load(Ordering::Relaxed)
        {
            if let Err(failure) = codec.check(&released.claim.message.body) {
                return Some((Reason::DecodeFailed, failure));
            }
            released.is_decoded.store(true, Ordering::Relaxed);
        }
        // Only a message that may expire asks for the time: all cores share it.
        released.expires_at_ms?;
        expired(released.expires_at_ms, self.now_ms())
    }

    fn defect(&self, claim: &Claim) -> Option<(Reason, String)> {
        if let Some(defect) = &claim.defect {
            return Some((defect.reason, defect.detail.clone()));
        }
        let (size, most) = (claim.message.body.len(), self.limits.payload_max);
        if size > most {
            let detail = format!("the body has {size} bytes, {most} are allowed");
            return Some((Reason::Oversize, detail));
        }
        if let Some(detail) = self.wrong_time(claim) {
            return Some((Reason::Malformed, detail));
        }
        let headers = &claim.message.headers;
        let mut required = self.limits.required.iter();
        let missing = required.find(|name| headers.find(name).is_none())?;
        let detail = format!("the header `{missing}` is missing");
        Some((Reason::Malformed, detail))
    }

    /// Why a time that decides about the message cannot be one, if so. It would be over at once, or never.
    fn wrong_time(&self, claim: &Claim) -> Option<String> {
        let message = &claim.message;
        let by_header = message.headers.find_number(EXPIRES_AT);
        if by_header.is_none() && message.headers.find(EXPIRES_AT).is_some() {
            return Some(format!(
                "`{EXPIRES_AT}` is not a number: it is in epoch milliseconds"
            ));
        }
        if let Some(at) = by_header.filter(|at| *at < TIME_MIN_MS) {
            return Some(format!(
                "`{EXPIRES_AT}` is {at}: it is in epoch milliseconds, and that is before September 2001"
            ));
        }
        // The entries of a stream have a time.
        let has_time = message.enqueued_ms > 0 || self.limits.group.is_some();
        if self.limits.ttl.is_some() && has_time && message.enqueued_ms < TIME_MIN_MS {
            let ms = message.enqueued_ms;
            return Some(format!(
                "`queue.ttl` counts from the time in the id of the entry, and {ms} ms is before September 2001"
            ));
        }
        None
    }

    /// When the message stops being worth handling, in epoch milliseconds.
    fn expires_at_ms(&self, claim: &Claim) -> Option<u64> {
        let message = &claim.message;
        let by_header = message.headers.find_number(EXPIRES_AT);
        let ttl = self.limits.ttl.filter(|_| message.enqueued_ms > 0);
        let by_queue = ttl.map(|ttl| message.enqueued_ms.saturating_add(millis(ttl)));
        let all = [by_header, by_queue, claim.expires_at_ms];
        all.into_iter().flatten().min()
    }
}

fn expired(expires_at_ms: Option<u64>, now_ms: u64) -> Option<(Reason, String)> {
    let ago = now_ms.checked_sub(expires_at_ms?)?;
    Some((Reason::Expired, format!("expired {ago} ms ago")))
}
