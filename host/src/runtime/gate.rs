//! The gate: what no handler may see, and why.

use std::sync::Arc;

use crate::delivery::ledger::TurnedAway;
use crate::delivery::message::EXPIRES_AT;
use crate::delivery::policy::Reason;
use crate::queue::Claim;
use crate::wire::dead_letter::only_group;

/// What the gate turns away.
#[derive(Clone, Debug)]
pub struct Limits {
    /// The largest body, in bytes.
    pub payload_max: usize,
    /// The consumer group that is served: what was replayed for another one is not ours.
    pub group: Option<Arc<str>>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_max: 1024 * 1024,
            group: None,
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
    let expires_at = expires_at_ms(claim)?;
    expired(expires_at, now_ms)
}

/// When the message stops being worth handling, in epoch milliseconds.
pub fn expires_at_ms(claim: &Claim) -> Option<u64> {
    claim.message.headers.find_number(EXPIRES_AT)
}

/// Whether its time has passed.
pub fn expired(expires_at_ms: u64, now_ms: u64) -> Option<(Reason, String)> {
    (now_ms >= expires_at_ms).then(|| {
        let detail = format!("expired {} ms ago", now_ms - expires_at_ms);
        (Reason::Expired, detail)
    })
}
