//! The length limit: the oldest waiting messages over it are claimed, and dead-lettered or discarded
//! unrun.
//!
//! Pending deliveries are not touched. A message that Redis refuses to write goes back to the queue: due
//! now, uncharged. If the answer to a settlement is lost, its deliveries are remembered, and settled
//! before anything else is claimed.
//!
//! Crash windows: a host that dies between the claim and the dead letter, or loses the answer to the
//! claim, leaves pending deliveries, at most [`CLAIMS_MAX`]: they are orphans like any others.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::{AtLeastOnce, settle};
use crate::delivery::policy::{Reason, Rejection};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::queue::{Claim, Maintenance, Origin, Reply, SettleAction, Settlement};
use crate::redis::error::Error;
use crate::wire::dead_letter::only_group;

/// Most messages that one script claims.
const CLAIMS_MAX: usize = 100;
/// Most scripts in one housekeeping.
const CALLS_MAX: usize = 100;

/// The memory of the limit from one housekeeping to the next.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    /// The last dead letter was refused: the next housekeeping tries with one.
    is_refusing: AtomicBool,
    /// Claimed, and not known to be settled: never more than one script claims.
    open: Mutex<Vec<Settlement>>,
}

impl Overflow {
    fn open(&self) -> MutexGuard<'_, Vec<Settlement>> {
        // Replaced as a whole: a panic elsewhere leaves nothing half-written.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is claimed, and not known to be settled.
    pub(super) fn unsettled(&self) -> Vec<(Arc<Claim>, u32)> {
        let open = self.open();
        let held = open
            .iter()
            .map(|open| (Arc::clone(&open.claim), open.count));
        held.collect()
    }
}

/// Give up messages over the length, as many as one housekeeping may.
pub(super) async fn shorten<Q: AtLeastOnce>(
    queue: &Q,
    done: &mut Maintenance,
) -> Result<(), Error> {
    let rules = queue.base().rules.now();
    let Some(length) = rules.max_length else {
        return Ok(());
    };
    let overflow = &queue.base().overflow;
    let open = overflow.open().clone();
    if !give_up(queue, open, true, done).await? {
        return Ok(());
    }
    let target = rules.dead_letter.as_ref();
    let target = target.filter(|target| !target.routes.is_discarded(Reason::MaxLen));
    match queue.check_overflow(length, target).await? {
        Reply::Done => {}
        Reply::Refused(why) => {
            done.dead_letters_refused = Some(why);
            done.refusals += 1;
            return Ok(());
        }
        Reply::Gone
        | Reply::Trimmed
        | Reply::Stolen
        | Reply::Duplicate
        | Reply::Changed
        | Reply::Unfit(_) => {
            return Ok(());
        }
    }
    for _ in 0..CALLS_MAX {
        let is_refusing = overflow.is_refusing.load(Ordering::Relaxed);
        let want = if is_refusing { 1 } else { CLAIMS_MAX };
        let (claims, left) = queue.claim_over(length, want).await?;
        if claims.is_empty() {
            done.overflows = false;
            return Ok(());
        }
        let settlements = claims
            .into_iter()
            .map(|claim| over_length(queue, claim, length, target))
            .collect();
        let all_taken = give_up(queue, settlements, false, done).await?;
        done.overflows = all_taken && left > 0;
        if !done.overflows {
            return Ok(());
        }
    }
    Ok(())
}

fn over_length<Q: AtLeastOnce>(
    queue: &Q,
    claim: Claim,
    length: u64,
    target: Option<&DeadLetterQueue>,
) -> Settlement {
    let rejection = Rejection {
        reason: Reason::MaxLen,
        detail: format!("more than {length} messages were unread, and this was the oldest"),
        attempts: queue.starts_before(&claim),
        handled: false,
    };
    // The group of such a message has it, too: no dead letter is needed.
    let action = match target.filter(|_| !is_for_others(queue, &claim)) {
        Some(_) => SettleAction::DeadLetter(rejection),
        None => SettleAction::Discard(rejection),
    };
    let (count, expires_at_ms) = (claim.native, claim.expires_at_ms);
    Settlement {
        expires_at_ms,
        ..Settlement::new(Arc::new(claim), count, action)
    }
}

/// Whether a message was replayed for another consumer group of the queue.
fn is_for_others<Q: AtLeastOnce>(queue: &Q, claim: &Claim) -> bool {
    only_group(&claim.message.headers).is_some_and(|only| queue.group().is_some_and(|g| g != only))
}

/// Settle claims; refused messages go back. Returns whether none was refused. In a repeat, a delivery
/// that is gone was settled by the try whose answer was lost.
async fn give_up<Q: AtLeastOnce>(
    queue: &Q,
    settlements: Vec<Settlement>,
    is_repeat: bool,
    done: &mut Maintenance,
) -> Result<bool, Error> {
    if settlements.is_empty() {
        return Ok(true);
    }
    let overflow = &queue.base().overflow;
    *overflow.open() = settlements.clone();
    let replies = settle(queue, &settlements).await?;
    let mut back = Vec::new();
    for (settlement, reply) in settlements.iter().zip(replies) {
        match reply {
            Reply::Refused(why) => {
                done.dead_letters_refused = Some(why);
                done.refusals += 1;
                back.push(handed_back(settlement));
            }
            Reply::Gone if !is_repeat => {}
            // It went back, at last.
            Reply::Done | Reply::Gone if settlement.action.parking().is_some() => {}
            Reply::Done | Reply::Gone if is_for_others(queue, &settlement.claim) => {
                done.other_group += 1;
            }
            Reply::Done | Reply::Gone => {
                done.overflowed += 1;
                overflow.is_refusing.store(false, Ordering::Relaxed);
            }
            // Only what a handler read can have changed, and only what it writes can be unfit.
            Reply::Trimmed
            | Reply::Stolen
            | Reply::Duplicate
            | Reply::Changed
            | Reply::Unfit(_) => {}
        }
    }
    *overflow.open() = back.clone();
    if back.is_empty() {
        return Ok(true);
    }
    overflow.is_refusing.store(true, Ordering::Relaxed);
    let replies = settle(queue, &back).await?;
    let stays = back.into_iter().zip(replies);
    let stays = stays.filter(|(_, reply)| matches!(reply, Reply::Refused(_)));
    *overflow.open() = stays.map(|(settlement, _)| settlement).collect();
    Ok(false)
}

/// Back to the queue, due now, as it was before the claim.
fn handed_back(settlement: &Settlement) -> Settlement {
    let keep = match settlement.claim.origin {
        Origin::Fresh => 0,
        Origin::Returned | Origin::Orphan { .. } => settlement.count,
    };
    Settlement {
        action: SettleAction::HandBack {
            keep,
            after: Duration::ZERO,
        },
        ..settlement.clone()
    }
}
