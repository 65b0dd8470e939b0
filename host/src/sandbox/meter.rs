//! How long an attempt holds a core.
//!
//! An attempt's future is polled in stretches, and an epoch tick ends a stretch that runs for
//! long. The thread's CPU clock is read around every stretch but the first: reading it costs more
//! than a short call, and the first stretch is at most about one tick, which is what the first
//! tick in it charges.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use super::TICK;

/// The CPU time of one attempt. Written by the task that polls the attempt, and by the guest's
/// epoch callback, which runs inside of that poll: never at the same time.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Nanoseconds used before the current stretch.
    used: AtomicU64,
    /// The thread's CPU clock at the start of the current stretch, in nanoseconds; 0 = not read.
    since: AtomicU64,
}

impl Meter {
    /// An attempt begins, and with it its first stretch.
    pub(super) fn begin(&self) {
        self.used.store(0, Ordering::Relaxed);
        self.since.store(0, Ordering::Relaxed);
    }

    /// A later stretch begins.
    pub(super) fn resume(&self) {
        self.since.store(thread_cpu(), Ordering::Relaxed);
    }

    /// A stretch ends.
    pub(super) fn pause(&self) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since != 0 {
            self.used
                .fetch_add(thread_cpu().saturating_sub(since), Ordering::Relaxed);
        }
    }

    /// A tick found the guest running: the CPU time used so far.
    pub(super) fn tick(&self) -> Duration {
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
