//! What every kind of queue does about dead letters: where each goes, and what is counted on the
//! way.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tracing::warn;

use super::{Claim, Maintenance, SettleAction, Settlement};
use crate::delivery::message::Headers;
use crate::delivery::policy::{Reason, Rejection};
use crate::delivery::text::{DETAIL_MAX, truncate_utf8};
use crate::queue::dead_letter_queue::DeadLetterQueue;
use crate::wire::dead_letter::{self, Context};
use crate::wire::death;

/// Where one dead letter goes.
#[derive(Clone, Debug)]
pub(super) struct Destination {
    /// The key.
    pub(super) key: String,
    /// It would have gone round for ever; then its history, with the present death.
    pub(super) cycle: Option<Bytes>,
    /// What it brought as its history was damaged: it was read as far as possible.
    pub(super) damaged: bool,
}

impl Destination {
    pub(super) fn of(target: &DeadLetterQueue, headers: &Headers, context: &Context<'_>) -> Self {
        let incoming = dead_letter::history(headers, context);
        let damaged = incoming.damaged;
        let key = target.target(context.rejection.reason);
        if incoming.history.cycles_to(key) {
            return Self {
                key: target.cycle(context.source),
                cycle: Some(death::write(&incoming.history)),
                damaged,
            };
        }
        Self {
            key: key.to_owned(),
            cycle: None,
            damaged,
        }
    }
}

/// The settlement of a message beyond the length that its queue may have.
pub(super) fn over_length(
    claim: Arc<Claim>,
    attempts: u32,
    most: u64,
    target: Option<&DeadLetterQueue>,
) -> Settlement {
    let rejection = Rejection {
        reason: Reason::MaxLen,
        detail: format!("more than {most} messages were unread, and this was the oldest"),
        attempts,
        handled: false,
    };
    let target = target.filter(|target| !target.routes.is_discarded(rejection.reason));
    let action = match target {
        Some(_) => SettleAction::DeadLetter(rejection),
        None => SettleAction::Discard(rejection),
    };
    let expires_at_ms = claim.expires_at_ms;
    let count = claim.native;
    Settlement {
        expires_at_ms,
        ..Settlement::new(claim, count, action)
    }
}

/// What a length limit remembers from one go to the next.
#[derive(Debug, Default)]
pub(super) struct Overflow {
    refusing: AtomicBool,
    open: Mutex<Vec<Settlement>>,
}

impl Overflow {
    /// Whether the last dead letter was refused: then the next go tries with one.
    pub(super) fn is_refusing(&self) -> bool {
        self.refusing.load(Ordering::Relaxed)
    }

    /// The last dead letter was refused, or it was written.
    pub(super) fn refuses(&self, refusing: bool) {
        self.refusing.store(refusing, Ordering::Relaxed);
    }

    /// What is claimed, and not known to be settled.
    pub(super) fn open(&self) -> Vec<Settlement> {
        self.settlements().clone()
    }

    /// All that is claimed from now on, until it is known to be settled: never more than one script
    /// claims.
    pub(super) fn keep(&self, open: Vec<Settlement>) {
        *self.settlements() = open;
    }

    fn settlements(&self) -> MutexGuard<'_, Vec<Settlement>> {
        // Replaced as a whole: a panic elsewhere leaves nothing half-written.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What was counted since the last [`Maintenance`], and what the length limit remembers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) overflow: Overflow,
    dropped: AtomicU64,
    cycles: AtomicU64,
    damaged: AtomicU64,
    overflowed: AtomicU64,
    other_group: AtomicU64,
}

impl Counts {
    /// Dead letters dropped from a full queue.
    pub(super) fn dropped(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }

    /// A dead letter is written.
    pub(super) fn written(&self, claim: &Claim, to: &Destination) {
        if to.damaged {
            self.damaged.fetch_add(1, Ordering::Relaxed);
        }
        let Some(history) = &to.cycle else {
            return;
        };
        self.cycles.fetch_add(1, Ordering::Relaxed);
        let mut history = String::from_utf8_lossy(history).into_owned();
        truncate_utf8(&mut history, DETAIL_MAX);
        warn!(
            id = &*claim.message.id,
            history,
            to = to.key,
            "ended a cycle: no handler has seen it since it died there last"
        );
    }

    /// What was counted, to be told once.
    pub(super) fn take(&self) -> Maintenance {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        Maintenance {
            dead_letters_dropped: take(&self.dropped),
            cycles: take(&self.cycles),
            histories_damaged: take(&self.damaged),
            overflowed: take(&self.overflowed),
            other_group: take(&self.other_group),
            ..Maintenance::default()
        }
    }

    /// It could not be told: it counts next time.
    pub(super) fn give_back(&self, untold: &Maintenance) {
        for (counter, count) in [
            (&self.dropped, untold.dead_letters_dropped),
            (&self.cycles, untold.cycles),
            (&self.damaged, untold.histories_damaged),
            (&self.overflowed, untold.overflowed),
            (&self.other_group, untold.other_group),
        ] {
            counter.fetch_add(count, Ordering::Relaxed);
        }
    }
}
