//! The gate: what no handler may see, and why.

use std::sync::Arc;
use std::time::Duration;

use crate::delivery::ledger::TurnedAway;
use crate::delivery::message::EXPIRES_AT;
use crate::delivery::millis::millis;
use crate::delivery::policy::Reason;
use crate::queue::Claim;
use crate::wire::codec::BodyCodec;
use crate::wire::dead_letter::only_group;

/// What the gate turns away.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes.
    pub payload_max: usize,
    /// The consumer group that is served: what was replayed for another one is not ours.
    pub group: Option<Arc<str>>,
    /// How long after it was enqueued a message is worth handling; the earlier of this and the
    /// header counts.
    pub ttl: Option<Duration>,
    /// What every body must parse as.
    pub codec: Option<BodyCodec>,
    /// The headers that every message must have, in lower case.
    pub required: Vec<String>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_max: 1024 * 1024,
            group: None,
            ttl: None,
            codec: None,
            required: Vec::new(),
        }
    }
}

/// Whether a handler may see this delivery; if not, why. Asked at the claim; the time to live is
/// asked again just before the start ([`expired`]).
pub fn check(claim: &Claim, limits: &Limits, now_ms: u64) -> Option<TurnedAway> {
    if let Some(group) = &limits.group
        && only_group(&claim.message.headers).is_some_and(|only| *only != **group)
    {
        return Some(TurnedAway::OtherGroup);
    }
    rejected(claim, limits, now_ms).map(|(reason, detail)| TurnedAway::Rejected(reason, detail))
}

fn rejected(claim: &Claim, limits: &Limits, now_ms: u64) -> Option<(Reason, String)> {
    if let Some(defect) = &claim.defect {
        return Some((defect.reason, defect.detail.clone()));
    }
    let size = claim.message.body.len();
    if size > limits.payload_max {
        let detail = format!(
            "the body has {size} bytes, {} are allowed",
            limits.payload_max
        );
        return Some((Reason::Oversize, detail));
    }
    let headers = &claim.message.headers;
    if let Some(missing) = limits.required.iter().find(|n| headers.find(n).is_none()) {
        let detail = format!("the header `{missing}` is missing");
        return Some((Reason::Malformed, detail));
    }
    let expires_at = expires_at_ms(claim, limits)?;
    expired(expires_at, now_ms)
}

/// Whether the body parses as the codec that the queue declares. Apart from the rest, because it
/// costs as much as the body is long: asked in a slot, on any core.
pub fn undecodable(claim: &Claim, limits: &Limits) -> Option<(Reason, String)> {
    let failure = limits.codec?.check(&claim.message.body).err()?;
    Some((Reason::DecodeFailed, failure))
}

/// When the message stops being worth handling, in epoch milliseconds.
pub fn expires_at_ms(claim: &Claim, limits: &Limits) -> Option<u64> {
    let message = &claim.message;
    let by_header = message.headers.find_number(EXPIRES_AT);
    let by_queue = limits.ttl.filter(|_| message.enqueued_ms > 0).map(|ttl| {
        let ttl = millis(ttl);
        message.enqueued_ms.saturating_add(ttl)
    });
    let by_claim = claim.expires_at_ms;
    [by_header, by_queue, by_claim].into_iter().flatten().min()
}

/// Whether its time has passed.
pub fn expired(expires_at_ms: u64, now_ms: u64) -> Option<(Reason, String)> {
    (now_ms >= expires_at_ms).then(|| {
        let detail = format!("expired {} ms ago", now_ms - expires_at_ms);
        (Reason::Expired, detail)
    })
}
