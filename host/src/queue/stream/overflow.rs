//! A length limit: the oldest unread entries beyond it are claimed and given up unrun.
//!
//! Nothing is trimmed, and what is pending is not touched. A host that dies between the claim and
//! the dead letter leaves a pending delivery, which is handled like any other orphan; so is one
//! whose dead letter Redis would not write.

use std::sync::Arc;

use super::StreamQueue;
use crate::queue::dead_letters::over_length;
use crate::queue::error::Error;
use crate::queue::reply;
use crate::queue::script::{self, Script};
use crate::queue::{Maintenance, Origin, Reply};

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
        let script = Script::Overflow;
        for _ in 0..CALLS_MAX {
            let mut call = script.on(&[self.key()]);
            call.arg(self.group())
                .arg(&self.consumer)
                .arg(most)
                .arg(CLAIMS_MAX)
                .arg(BYTES_MAX)
                .arg(COUNTED_MAX);
            let reply = script::run(&self.commands, script, &call).await?;
            let [claimed, left] = reply::tuple(script.name(), reply)?;
            let left = reply::count(script.name(), &left)?;
            let mut settlements = Vec::new();
            for entry in reply::array(script.name(), claimed)? {
                let [id, fields] = reply::tuple(script.name(), entry)?;
                let id = reply::text(script.name(), id)?;
                let fields = reply::fields(script.name(), fields)?;
                let claim = self.claim(script.name(), &id, 1, Origin::Fresh, fields)?;
                self.saw(claim.id);
                let (attempts, target) = (claim.header, rules.dead_letter.as_ref());
                settlements.push(over_length(Arc::new(claim), attempts, most, target));
            }
            if settlements.is_empty() {
                done.overflows = false;
                return Ok(());
            }
            let replies = self.settle_all(&settlements).await?;
            let settled = replies.iter().filter(|reply| **reply == Reply::Done);
            done.overflowed += settled.count() as u64;
            done.overflows = left > 0;
            let refused = |reply: &Reply| matches!(reply, Reply::Refused(_));
            if left == 0 || replies.iter().any(refused) {
                // What was refused is pending now: no more of those, for a while.
                done.overflows = false;
                return Ok(());
            }
        }
        Ok(())
    }
}
