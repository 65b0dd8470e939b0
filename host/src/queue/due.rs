//! Looks for what is due, that need not ask Redis: nothing was parked or published for later since the last look,
//! and nothing was due soon then.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Taken;
use crate::redis::connection::{Bell, Connector, KeyWatch, Mark};
use crate::redis::error::Error;

/// How long the answer of a look is believed, at most. A delivery that is due at a moment is due by the server's
/// clock: if that is set forward, the host notices this much later at most.
const BELIEVED: Duration = Duration::from_secs(15);

/// The last look that found nothing, and whether it still holds.
#[derive(Debug, Default)]
pub(super) struct Due {
    watch: KeyWatch,
    last: Mutex<Option<Look>>,
}

#[derive(Clone, Copy, Debug)]
struct Look {
    mark: Mark,
    at: Instant,
    /// When the first is due.
    next: Option<Instant>,
}

impl Due {
    /// Watch the sets of what is due later, and the key of this bell.
    pub(super) fn begin(connector: &Connector, sets: Vec<String>, bell: Bell) -> Self {
        Self {
            watch: KeyWatch::begin(connector, sets, bell),
            last: Mutex::default(),
        }
    }

    /// Look, and remember what was found.
    pub(super) async fn look(
        &self,
        ask: impl Future<Output = Result<Taken, Error>>,
    ) -> Result<Taken, Error> {
        let (mark, at) = (self.watch.mark(), Instant::now());
        let taken = ask.await?;
        let is_empty = taken.claims.is_empty() && taken.trimmed == 0;
        let look = mark.filter(|_| is_empty).map(|mark| Look {
            mark,
            at,
            next: taken.next_due.map(|next| at + next),
        });
        // A whole value: a panic elsewhere leaves none half-written.
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = look;
        Ok(taken)
    }

    /// What a look would find now: nothing, and the time until the first is due. `None` = look.
    pub(super) fn known(&self) -> Option<Taken> {
        let now = Instant::now();
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let last = last.filter(|look| self.watch.is_unchanged(look.mark))?;
        let is_fresh = now.saturating_duration_since(last.at) < BELIEVED;
        let left = match last.next {
            Some(next) => Some(
                next.checked_duration_since(now)
                    .filter(|left| !left.is_zero())?,
            ),
            None => None,
        };
        is_fresh.then(|| Taken {
            next_due: left,
            ..Taken::default()
        })
    }
}
