//! A histogram of durations without a lock. The histogram of the library takes a mutex for each
//! observation.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// The upper bounds of the buckets in microseconds: 10 us to 60 s, three per decade. Slower
/// observations are only in `+Inf`.
const BOUNDS_US: [u64; 22] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000,
    500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000, 25_000_000, 50_000_000, 60_000_000,
];

/// What a histogram has counted up to a moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Durations {
    buckets: [u64; BOUNDS_US.len() + 1],
    sum: Duration,
}

impl Durations {
    /// The durations since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut more = *self;
        for (now, then) in more.buckets.iter_mut().zip(earlier.buckets) {
            *now = now.saturating_sub(then);
        }
        more.sum = more.sum.saturating_sub(earlier.sum);
        more
    }

    /// How many there are: the sum of the buckets, so that both agree in one scrape.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The average duration. `None` if there is no duration.
    pub fn average(&self) -> Option<Duration> {
        let count = self.count();
        (count > 0).then(|| self.sum.div_f64(count as f64))
    }

    /// The quantile for a share from 0 to 1: this share of the durations is not longer. `None` if there is no
    /// duration. The result is exact at the bounds of the buckets, and interpolated between them. Durations
    /// beyond the last bound count as the last bound.
    pub fn quantile(&self, share: f64) -> Option<Duration> {
        let count = self.count();
        let rank = share * count as f64;
        let (mut below, mut lower) = (0, 0);
        for (bound, bucket) in BOUNDS_US.iter().zip(self.buckets) {
            let within = (rank - below as f64) / bucket as f64;
            if bucket > 0 && within <= 1.0 {
                let width = Duration::from_micros(bound - lower);
                return Some(Duration::from_micros(lower) + width.mul_f64(within.max(0.0)));
            }
            (below, lower) = (below + bucket, *bound);
        }
        (count > 0).then(|| Duration::from_micros(lower))
    }
}

/// Durations by bucket. Observations from many threads are cheap. A scrape may see an observation
/// in its bucket a moment before it sees it in the sum.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

impl Histogram {
    /// Count one duration.
    pub fn observe(&self, duration: Duration) {
        let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.partition_point(|bound| *bound * 1_000 < ns);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ns.fetch_add(ns, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn durations(&self) -> Durations {
        Durations {
            buckets: std::array::from_fn(|at| self.buckets[at].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_ns.load(Ordering::Relaxed)),
        }
    }
}

impl EncodeMetric for Histogram {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), std::fmt::Error> {
        let bounds = BOUNDS_US
            .iter()
            .map(|us| Duration::from_micros(*us).as_secs_f64())
            .chain([f64::INFINITY]);
        let durations = self.durations();
        let buckets: Vec<(f64, u64)> = bounds.zip(durations.buckets).collect();
        let (sum, count) = (durations.sum.as_secs_f64(), durations.count());
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
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
        let durations = histogram.durations();
        assert_eq!(durations.buckets[0], 2);
        assert_eq!(durations.buckets[1], 1);
        assert_eq!(durations.buckets[BOUNDS_US.len()], 1);
        assert_eq!(durations.count(), 4);
        assert_eq!(
            durations.sum,
            Duration::from_secs(61) + Duration::from_nanos(20_001)
        );
    }

    #[test]
    fn a_quantile_is_of_the_durations_since_a_moment() {
        let histogram = Histogram::default();
        let none = histogram.durations();
        assert_eq!((none.average(), none.quantile(0.99)), (None, None));
        histogram.observe(Duration::from_secs(61));
        let slowest = histogram.durations();
        assert_eq!(slowest.quantile(0.5), Some(Duration::from_secs(60)));
        // 98 of them take at most 10 us, and two at most 5 ms.
        for _ in 0..98 {
            histogram.observe(Duration::from_micros(10));
        }
        for _ in 0..2 {
            histogram.observe(Duration::from_millis(5));
        }
        let since = histogram.durations().since(&slowest);
        assert_eq!(since.average(), Some(Duration::from_nanos(109_800)));
        let us = |us| Some(Duration::from_micros(us));
        assert_eq!(since.quantile(0.0), us(0));
        assert_eq!(since.quantile(0.49), us(5));
        assert_eq!(since.quantile(0.98), us(10));
        assert_eq!(since.quantile(0.99), us(3_750));
        assert_eq!(since.quantile(1.0), us(5_000));
    }

    #[test]
    fn bounds_rise() {
        assert!(BOUNDS_US.is_sorted());
    }
}
