//! The length limit: which unread entries are over it. They are counted. The number that Redis gives (`lag`) is an
//! estimate: after a failover, or where entries were deleted, it may be far off, and a dead letter is for ever.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::StreamQueue;
use crate::queue::Claim;
use crate::queue::at_least_once::AtLeastOnce;
use crate::queue::stream::scripts;
use crate::redis::error::{Class, Error};
use crate::redis::reply;

/// How many entries one script counts, and after how many bytes of them it stops: it blocks Redis for a millisecond or
/// two.
const COUNTED_MAX: u64 = 1_000;
const COUNTED_BYTES_MAX: usize = 1 << 20;
/// The most entries over the length that are claimed after one count.
const OVER_MAX: u64 = 10_000;
/// A count that took longer than this, and found nothing over the length, is made again after a hundred times as long.
const BRIEF: Duration = Duration::from_millis(50);

/// What the last count found.
#[derive(Debug, Default)]
pub(super) struct OverLength {
    /// The last entry that is over the length.
    last: String,
    /// When entries are counted again, if not at once.
    again: Option<Instant>,
}

impl StreamQueue {
    /// Count the unread entries, and keep which of them are over this length: these can be claimed then. Returns whether
    /// there are any.
    pub(super) async fn find_over(&self, length: u64) -> Result<bool, Error> {
        let began = Instant::now();
        let is_early = self.over().again.is_some_and(|again| began < again);
        if is_early || self.base.commands.count("XLEN", self.key()).await? <= length {
            return Ok(false);
        }
        let (unread, first, _) = self.count_unread("", length + OVER_MAX).await?;
        let excess = unread.saturating_sub(length);
        if excess == 0 {
            let took = began.elapsed();
            self.over().again = (took > BRIEF).then(|| began + took * 100);
            return Ok(false);
        }
        let (_, _, last) = self.count_unread(&first, excess).await?;
        *self.over() = OverLength { last, again: None };
        Ok(true)
    }

    fn over(&self) -> MutexGuard<'_, OverLength> {
        self.over_length
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Count unread entries behind this one, or behind the last one that was handed out (``). Returns how many there
    /// are, at most `most`; the entry in front of them; the last of them.
    async fn count_unread(&self, behind: &str, most: u64) -> Result<(u64, String, String), Error> {
        let script = &scripts::COUNT_UNREAD;
        let (mut counted, mut first, mut last) = (0, None, behind.to_owned());
        while counted < most {
            let mut call = self.call(script, &[]);
            call.arg(&last)
                .arg(COUNTED_MAX.min(most - counted))
                .arg(COUNTED_BYTES_MAX);
            let reply = self.run(script, &call).await?;
            let [count, from, to, is_end] = reply::tuple(script.name(), reply)?;
            counted += reply::count(script.name(), &count)?;
            let from = reply::text(script.name(), from)?;
            first.get_or_insert(from);
            last = reply::text(script.name(), to)?;
            if reply::count(script.name(), &is_end)? > 0 {
                break;
            }
        }
        Ok((counted, first.unwrap_or_default(), last))
    }

    /// Claim the oldest unread entries of those that are over the length, at most `want`. Also says whether there are
    /// more: 0 = none.
    pub(super) async fn claim_unread_over(&self, want: usize) -> Result<(Vec<Claim>, u64), Error> {
        let script = &scripts::OVERFLOW;
        let mut call = self.call(script, &[]);
        let bytes = self.base.bounds.request();
        call.arg(&self.over().last).arg(want).arg(bytes);
        let reply = self.run(script, &call).await;
        if reply
            .as_ref()
            .is_err_and(|error| error.class() == Class::Reconnect)
        {
            self.read_unanswered();
        }
        let [claimed, left] = reply::tuple(script.name(), reply?)?;
        let left = reply::count(script.name(), &left)?;
        Ok((self.entries(script.name(), claimed)?, left))
    }
}
