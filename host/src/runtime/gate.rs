//! The gate: what no handler may see, and why.

use crate::delivery::message::EXPIRES_AT;
use crate::delivery::policy::Reason;
use crate::queue::Claim;

/// What the gate turns away.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The largest body, in bytes.
    pub payload_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            payload_max: 1024 * 1024,
        }
    }
}

/// Whether a handler may see this delivery; if not, why. Asked at the claim; the time to live is
/// asked again just before the start ([`expired`]).
pub fn check(claim: &Claim, limits: &Limits, now_ms: u64) -> Option<(Reason, String)> {
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
