//! Measures the CPU time of an attempt.
//!
//! An epoch tick interrupts a long poll of an attempt's future. The thread's CPU clock is read before
//! and after every poll except the first: reading it costs more than a short call. The first poll
//! lasts at most about one tick, and its first tick charges one tick.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::TICK;

/// The CPU time of one attempt. The polling task and the epoch callback write it, never at the same
/// time: the callback runs inside the poll.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    /// Nanoseconds used before the current poll.
    used: AtomicU64,
    /// The thread's CPU clock at the start of the current poll, in nanoseconds; 0 = not read.
    since: AtomicU64,
}

impl Meter {
    /// An attempt and its first poll begin.
    pub(crate) fn begin(&self) {
        self.used.store(0, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    /// A later poll begins.
    pub(crate) fn resume(&self) {
        self.since.store(thread_cpu(), Ordering::Relaxed);
    }

    /// A poll ends.
    pub(crate) fn pause(&self) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since != 0 {
            self.used
                .fetch_add(thread_cpu().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// A tick interrupted the guest. Returns the CPU time used so far.
    pub(crate) fn tick(&self) -> Duration {
        let now = thread_cpu();
        let mut since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            let tick = u64::try_from(TICK.as_nanos()).unwrap_or(u64::MAX);
            since = now.saturating_sub(tick).max(1);
            self.since.store(since, Ordering::Relaxed);
        }
        let used = self.used.load(Ordering::Relaxed);
        Duration::from_nanos(used + now.saturating_sub(since))
    }
}

/// The CPU time of this thread, in nanoseconds; never 0.
fn thread_cpu() -> u64 {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("every Unix that hostler runs on has a CPU clock for threads");
    u64::try_from(Duration::from(time).as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}
