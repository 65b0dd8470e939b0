//! The right to run a job, which the driver gives to the slots.

use std::time::Duration;

use hostler_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use hostler_sync::tokio::sync::Notify;

/// What a slot runs.
pub trait Work {
    /// How many bytes it adds to a batch.
    fn bytes(&self) -> usize;
}

/// One release of a job to the executor. The first to move it out of `QUEUED` has it: the slot that
/// starts it, or the driver that takes it back.
#[derive(Debug)]
pub struct Ticket<W> {
    /// What to run.
    pub work: W,
    /// The attempt, if a slot may start it without asking.
    pub attempt: Option<u32>,
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

impl<W> Ticket<W> {
    /// A ticket that no slot has taken.
    pub fn new(work: W, attempt: Option<u32>, leased: Duration) -> Self {
        Self {
            work,
            attempt,
            leased_us: AtomicU64::new(micros(leased)),
            state: AtomicU32::new(QUEUED),
            decided: Notify::new(),
        }
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
    pub fn leased(&self) -> Duration {
        Duration::from_micros(self.leased_us.load(Ordering::Relaxed))
    }

    /// The lease was confirmed.
    pub fn renew(&self, leased: Duration) {
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

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
