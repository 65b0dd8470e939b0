//! A length limit: the oldest unread entries beyond it are claimed and given up unrun.
//!
//! Nothing is trimmed, and what is pending is not touched. As long as the target takes no dead
//! letter, nothing is claimed. What it refuses although it seemed to take some is handed back: held
//! for later by no host, due now, uncharged. What was claimed when the answer to its settlement was
//! lost is remembered, and settled before anything else is claimed. A host that dies between the
//! claim and the dead letter, or loses the answer to the claim, leaves pending deliveries, at most
//! [`CLAIMS_MAX`]: they are handled like any other orphans, charged one attempt, and run.

use std::sync::Arc;

use redis::Cmd;

use super::StreamQueue;
use crate::delivery::policy::Reason;
use crate::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use crate::queue::dead_letters::over_length;
use crate::queue::{Claim, Maintenance, Origin, Reply, SettleAction, Settlement};
use crate::redis::error::Error;
use crate::redis::reply;
use crate::redis::script::{self, Script};
use crate::redis::script_reply::{full, refused};
use crate::wire::dead_letter::only_group;

/// Most entries, and about how many bytes of them, that one script claims.
const CLAIMS_MAX: u64 = 100;
const BYTES_MAX: usize = 4 << 20;
/// How many entries one script counts where Redis does not know how many are unread.
const COUNTED_MAX: u64 = 10_000;
/// Most scripts in one go.
const CALLS_MAX: usize = 100;

impl StreamQueue {
    /// Give up what is unread beyond the length, as far as one go may.
    pub(super) async fn shorten(&self, done: &mut Maintenance) -> Result<(), Error> {
        let rules = self.rules.now();
        let Some(most) = rules.max_length else {
            return Ok(());
        };
        let overflow = &self.counts.overflow;
        // The ledger may have adopted some of them: one that it has started has another count.
        if !self.give_up(overflow.open(), true, done).await? {
            return Ok(());
        }
        let (_, over) = self.claim_over(most, 0).await?;
        if over == 0 {
            return Ok(());
        }
        let target = rules.dead_letter.as_ref();
        if let Some(target) = target.filter(|to| !to.routes.is_discarded(Reason::MaxLen)) {
            let looked = self.look_at_target(target).await;
            let looked = looked.or_else(|error| refused(self.about(error)))?;
            if let Reply::Refused(why) = looked {
                done.dead_letters_refused = Some(why);
                done.refusals += 1;
                return Ok(());
            }
        }
        for _ in 0..CALLS_MAX {
            let is_refusing = overflow.is_refusing();
            let want = if is_refusing { 1 } else { CLAIMS_MAX };
            let (claims, left) = self.claim_over(most, want).await?;
            if claims.is_empty() {
                done.overflows = false;
                return Ok(());
            }
            let settlements: Vec<Settlement> = claims
                .into_iter()
                .map(|claim| {
                    // No dead letter of ours: its own group has it.
                    let target = target.filter(|_| !self.is_for_others(&claim));
                    let attempts = claim.header;
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

    /// Claim the oldest entries over the length, at most `want`; and how many more there are.
    async fn claim_over(&self, most: u64, want: u64) -> Result<(Vec<Claim>, u64), Error> {
        let script = Script::Overflow;
        let mut call = script.on(&[self.key()]);
        call.arg(self.group())
            .arg(&self.consumer)
            .arg(most)
            .arg(want)
            .arg(BYTES_MAX)
            .arg(COUNTED_MAX);
        let reply = script::run(&self.commands, script, &call).await?;
        let [claimed, left] = reply::tuple(script.name(), reply)?;
        let left = reply::count(script.name(), &left)?;
        let mut claims = Vec::new();
        for entry in reply::array(script.name(), claimed)? {
            let [id, fields] = reply::tuple(script.name(), entry)?;
            let id = reply::text(script.name(), id)?;
            let fields = reply::fields(script.name(), fields)?;
            let claim = self.claim(script.name(), &id, 1, Origin::Fresh, fields)?;
            self.saw(claim.id);
            claims.push(claim);
        }
        Ok((claims, left))
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
            match reply {
                // Handed back, in the end.
                Reply::Done if settlement.action.parking().is_some() => {}
                Reply::Done if self.is_for_others(&settlement.claim) => done.other_group += 1,
                Reply::Done => {
                    done.overflowed += 1;
                    overflow.refuses(false);
                }
                Reply::Refused(why) => {
                    done.dead_letters_refused = Some(why);
                    done.refusals += 1;
                    back.push(handed_back(settlement));
                }
                Reply::Gone | Reply::Trimmed | Reply::Stolen => {}
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

    /// Replayed for another consumer group of this stream.
    fn is_for_others(&self, claim: &Claim) -> bool {
        only_group(&claim.message.headers).is_some_and(|only| only != self.group())
    }

    /// Whether the target would take a dead letter, as far as that can be told without one.
    async fn look_at_target(&self, target: &DeadLetterQueue) -> Result<Reply, Error> {
        let key = target.target(Reason::MaxLen);
        let mut length = Cmd::new();
        length.arg("XLEN").arg(key);
        match self.commands.call("XLEN", &length).await {
            Ok(length) => {
                let length = reply::count("XLEN", &length)?;
                let most = target.bound(key, self.key());
                if target.on_full == OnFull::Stop && most.is_some_and(|most| length >= most) {
                    return Ok(full());
                }
            }
            // Without a bound it may be that nobody needs to count.
            Err(error) if error.is_missing_right() => {}
            Err(error) => return Err(error),
        }
        // Nothing can have this id: nothing is added, it is an error. But a user without the right
        // and a server without memory hear another one.
        let mut add = Cmd::new();
        add.arg("XADD").arg(key).arg("0-0").arg("name").arg("value");
        match self.commands.call("XADD", &add).await {
            Err(Error::Configuration { code, .. }) if code == "ERR" => Ok(Reply::Done),
            Err(error) => Err(error),
            Ok(_) => Ok(Reply::Done),
        }
    }
}

/// Held for later by no host, due now: its next start is its first.
fn handed_back(settlement: &Settlement) -> Settlement {
    Settlement {
        action: SettleAction::HandBack { keep: 0 },
        ..settlement.clone()
    }
}
