//! What did not reach the collector, since the start of the process.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is sent to a collector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Signal {
    /// Spans.
    Traces,
    /// All series, at intervals.
    Metrics,
    /// Log lines.
    Logs,
}

impl Signal {
    /// All of them: the order of the series of `telemetry_dropped`.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Metrics, Self::Logs];
    /// Their names.
    pub const LABELS: [&'static str; 3] = ["traces", "metrics", "logs"];

    /// Its name.
    pub const fn label(self) -> &'static str {
        Self::LABELS[self as usize]
    }
}

static DROPPED: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// So many spans, lines or sets of metrics were dropped.
pub(super) fn add(signal: Signal, n: u64) {
    DROPPED[signal as usize].fetch_add(n, Ordering::Relaxed);
}

/// How many were dropped since the start: the queue was full, or the collector did not take them.
pub fn dropped(signal: Signal) -> u64 {
    DROPPED[signal as usize].load(Ordering::Relaxed)
}
