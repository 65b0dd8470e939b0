//! The right to run a job, which the driver gives to the slots.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::delivery::ledger::{Key, Time};
use crate::queue::Claim;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// One release of a job to the executor. The first to move it out of `QUEUED` has it: the slot that
/// starts it, or the driver that takes it back.
#[derive(Debug)]
pub struct Ticket {
    /// Its delivery.
    pub key: Key,
    /// What to run.
    pub claim: Arc<Claim>,
    /// When it stops being worth handling, in epoch milliseconds.
    pub expires_at_ms: Option<u64>,
    /// The gate knows that its body parses.
    pub is_decoded: AtomicBool,
    /// The attempt, if a slot may start it without asking.
    pub attempt: Option<u32>,
    /// When duplicates were last looked for.
    pub looked: Time,
    /// When the lease was last confirmed, in microseconds of the clock.
    leased_us: AtomicU64,
    state: AtomicU32,
    /// Wakes the slot that has asked.
    decided: Notify,
}

const QUEUED: u32 = 0;
const TAKEN: u32 = 1;
const REVOKED: u32 = 2;
const DENIED: u32 = 3;
/// Attempts are numbered from 1: a granted attempt `n` is stored as `GRANTED + n`.
const GRANTED: u32 = 3;

impl Ticket {
    /// A ticket that no slot has taken.
    pub fn new(key: Key, claim: Arc<Claim>, attempt: Option<u32>, leased: Time) -> Self {
        Self {
            key,
            claim,
            expires_at_ms: None,
            is_decoded: AtomicBool::new(false),
            attempt,
            looked: leased,
            leased_us: AtomicU64::new(micros(leased)),
            state: AtomicU32::new(QUEUED),
            decided: Notify::new(),
        }
    }

    /// The same for a message that expires at this time, in epoch milliseconds.
    #[must_use]
    pub fn expires(self, expires_at_ms: Option<u64>) -> Self {
        Self {
            expires_at_ms,
            ..self
        }
    }

    /// The same where duplicates were last looked for at this time.
    #[must_use]
    pub fn looked(self, looked: Time) -> Self {
        Self { looked, ..self }
    }

    /// The slot takes it. False if the driver has taken it back.
    pub fn take(&self) -> bool {
        self.leave_queue(TAKEN)
    }

    /// The driver takes it back. False if a slot has it.
    pub fn revoke(&self) -> bool {
        self.leave_queue(REVOKED)
    }

    /// When the lease was last confirmed.
    pub fn leased(&self) -> Time {
        Time::from_micros(self.leased_us.load(Ordering::Relaxed))
    }

    /// The lease was confirmed.
    pub fn renew(&self, leased: Time) {
        self.leased_us.fetch_max(micros(leased), Ordering::Relaxed);
    }

    /// Let the slot that has asked start this attempt.
    pub fn grant(&self, attempt: u32) {
        let value = GRANTED.saturating_add(attempt);
        self.state.store(value, Ordering::Release);
        self.decided.notify_one();
    }

    /// Make the slot that has asked let it go.
    pub fn deny(&self) {
        self.state.store(DENIED, Ordering::Release);
        self.decided.notify_one();
    }

    /// The slot waits for the driver's decision: the attempt to start, or `None`.
    pub async fn decision(&self) -> Option<u32> {
        loop {
            match self.state.load(Ordering::Acquire) {
                DENIED | REVOKED => return None,
                granted if granted > GRANTED => return Some(granted - GRANTED),
                _ => self.decided.notified().await,
            }
        }
    }

    fn leave_queue(&self, to: u32) -> bool {
        self.state
            .compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

fn micros(time: Time) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
