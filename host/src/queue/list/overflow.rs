//! A length limit: the oldest values beyond it are claimed and given up unrun.
//!
//! Nothing is trimmed, and what is pending is not touched. A host that dies between the claim and
//! the dead letter leaves a delivery on its processing list, which is handled like any other orphan.
//! What Redis would not write goes back to the front of the list.

use std::sync::Arc;
use std::time::Duration;

use super::ListQueue;
use crate::queue::dead_letters::over_length;
use crate::queue::error::Error;
use crate::queue::{Maintenance, Origin, Reply, Settlement, Step};

/// Most values that one script claims.
const CLAIMS_MAX: usize = 100;
/// Most scripts in one go.
const CALLS_MAX: usize = 100;

impl ListQueue {
    /// Give up what waits beyond the length, as far as one go may.
    pub(super) async fn shorten(&self, done: &mut Maintenance) -> Result<(), Error> {
        let rules = self.rules.now();
        let Some(most) = rules.max_length else {
            return Ok(());
        };
        for _ in 0..CALLS_MAX {
            let claimed = self.claim_beyond(&self.commands, CLAIMS_MAX, Some(most));
            let (claims, left) = claimed.await?;
            let target = rules.dead_letter.as_ref();
            let settlements: Vec<Settlement> = claims
                .into_iter()
                .map(|claim| {
                    let attempts = self.values.parts(&claim).0.retry_count();
                    over_length(Arc::new(claim), attempts, most, target)
                })
                .collect();
            let replies = self.settle_all(&settlements).await?;
            let mut refused = Vec::new();
            for (settlement, reply) in settlements.iter().zip(&replies) {
                match reply {
                    Reply::Done => done.overflowed += 1,
                    Reply::Refused(_) => refused.push(handed_back(settlement)),
                    _ => {}
                }
            }
            self.settle_all(&refused).await?;
            done.overflows = left > 0 && refused.is_empty();
            if !done.overflows {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Back to the front, as it was.
fn handed_back(settlement: &Settlement) -> Settlement {
    let keep = match settlement.claim.origin {
        Origin::Fresh => 0,
        Origin::Returned | Origin::Orphan { .. } => settlement.count,
    };
    let after = Duration::ZERO;
    Settlement {
        step: Step::Park { keep, after },
        ..settlement.clone()
    }
}
