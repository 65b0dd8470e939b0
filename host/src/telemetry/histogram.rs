//! A histogram of durations without a lock. The histogram of the library takes a mutex for each
//! observation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The upper bounds of the buckets in nanoseconds: 10 us to 60 s, three per decade. Slower
/// observations are only in `+Inf`.
const BOUNDS_NS: [u64; 22] = [
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    25_000_000_000,
    50_000_000_000,
    60_000_000_000,
];

/// Durations by bucket. Observations from many threads are cheap. A scrape may see an observation
/// in its bucket a moment before it sees it in the sum.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_NS.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Count one duration.
    pub fn observe(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_NS.partition_point(|bound| *bound < ns);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// The sum of the durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed))
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = BOUNDS_NS
            .iter()
            .map(|ns| Duration::from_nanos(*ns).as_secs_f64())
            .chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds
            .zip(self.buckets.iter().map(|b| b.load(Ordering::Relaxed)))
            .collect();
        // The count is the sum of the buckets just read: both must agree in one scrape.
        let count = buckets.iter().map(|(_, count)| count).sum();
        encoder.encode_histogram::<NoLabelSet>(self.sum().as_secs_f64(), count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_its_bucket_and_the_slow_are_in_the_last() {
        let histogram = Histogram::default();
        histogram.observe(Duration::ZERO);
        histogram.observe(Duration::from_micros(10));
        histogram.observe(Duration::from_nanos(10_001));
        histogram.observe(Duration::from_secs(61));
        let counts: Vec<u64> = histogram
            .buckets
            .iter()
            .map(|b| b.load(Ordering::Relaxed))
            .collect();
        assert_eq!(counts[0], 2);
        assert_eq!(counts[1], 1);
        assert_eq!(counts[BOUNDS_NS.len()], 1);
        assert_eq!(histogram.count(), 4);
        assert_eq!(
            histogram.sum(),
            Duration::from_secs(61) + Duration::from_nanos(20_001)
        );
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS_NS.is_sorted());
    }
}
