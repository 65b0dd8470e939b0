//! A length limit: the oldest values beyond it are claimed and given up unrun.
//!
//! Nothing is trimmed, and what is pending is not touched. A host that dies between the claim and
//! the dead letter leaves a delivery on its processing list, which is handled like any other orphan.
//! What Redis would not write goes back to the front of the list. What was claimed when an answer
//! was lost is remembered, and settled before anything else is claimed.

use std::sync::Arc;

use super::ListQueue;
use crate::queue::dead_letters::over_length;
use crate::queue::{Maintenance, Origin, Reply, SettleAction, Settlement};
use crate::redis::error::Error;

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
        let overflow = &self.counts.overflow;
        // Each value is claimed under a token of its own: what an earlier try has settled is gone.
        if !self.give_up(overflow.open(), true, done).await? {
            return Ok(());
        }
        for _ in 0..CALLS_MAX {
            let is_refusing = overflow.is_refusing();
            let want = if is_refusing { 1 } else { CLAIMS_MAX };
            let claimed = self.claim_beyond(&self.commands, want, Some(most));
            let (claims, left) = claimed.await?;
            let target = rules.dead_letter.as_ref();
            let settlements: Vec<Settlement> = claims
                .into_iter()
                .map(|claim| {
                    let attempts = self.values.parts(&claim).0.retry_count();
                    over_length(Arc::new(claim), attempts, most, target)
                })
                .collect();
            let all_taken = self.give_up(settlements, false, done).await?;
            done.overflows = all_taken && left > 0;
            if !done.overflows {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Settle what was claimed; what is refused goes back. Returns whether nothing was. Asked
    /// `again`, what is gone was settled by the try whose answer was lost.
    async fn give_up(
        &self,
        settlements: Vec<Settlement>,
        again: bool,
        done: &mut Maintenance,
    ) -> Result<bool, Error> {
        if settlements.is_empty() {
            return Ok(true);
        }
        let overflow = &self.counts.overflow;
        overflow.keep(settlements.clone());
        let replies = self.settle_all(&settlements).await?;
        let mut back = Vec::new();
        for (settlement, reply) in settlements.iter().zip(replies) {
            let reply = match reply {
                Reply::Gone if again => Reply::Done,
                reply => reply,
            };
            match (reply, &settlement.action) {
                (Reply::Refused(why), _) => {
                    done.dead_letters_refused = Some(why);
                    done.refusals += 1;
                    back.push(handed_back(settlement));
                }
                (Reply::Done, SettleAction::DeadLetter(_) | SettleAction::Discard(_)) => {
                    done.overflowed += 1;
                    overflow.refuses(false);
                }
                _ => {}
            }
        }
        overflow.keep(back.clone());
        if back.is_empty() {
            return Ok(true);
        }
        overflow.refuses(true);
        let replies = self.settle_all(&back).await?;
        let stays = back.into_iter().zip(replies);
        let stays = stays.filter(|(_, reply)| matches!(reply, Reply::Refused(_)));
        overflow.keep(stays.map(|(settlement, _)| settlement).collect());
        Ok(false)
    }
}

/// Back to the front, as it was.
fn handed_back(settlement: &Settlement) -> Settlement {
    let keep = match settlement.claim.origin {
        Origin::Fresh => 0,
        Origin::Returned | Origin::Orphan { .. } => settlement.count,
    };
    Settlement {
        action: SettleAction::HandBack { keep },
        ..settlement.clone()
    }
}
