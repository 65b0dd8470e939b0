//! What did not reach the collector, since the start of the process.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::delivery::declared::declared;

declared! {
    /// What is sent to a collector, in the order of the series of `telemetry_dropped`.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum Signal (/// Its name.
                     label -> &'static str) {
        /// Spans.
        Traces = "traces",
        /// All series, at intervals.
        Metrics = "metrics",
        /// Log lines.
        Logs = "logs",
    }
}

static DROPPED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// `n` spans, lines or sets of metrics were dropped.
pub(super) fn add(signal: Signal, n: u64) {
    DROPPED[signal as usize].fetch_add(n, Ordering::Relaxed);
}

/// How many were dropped since the start: the queue was full, or the collector did not take them.
pub fn dropped(signal: Signal) -> u64 {
    DROPPED[signal as usize].load(Ordering::Relaxed)
}
