//! The limits of starts, and which of them keep messages waiting: for people, and as a metric.

use std::fmt;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use serde::{Deserialize, Serialize};

/// A limit that has kept no message waiting for this long keeps none.
const OVER: Duration = Duration::from_secs(5);
/// The most limits that are followed.
const LIMITS_MAX: usize = 32;

/// A limit of starts, as a host has it.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct LimitShown {
    /// All queues that name it share it.
    pub name: String,
    /// How many messages may start: `100/s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// How many at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// How many may run at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrency: Option<u32>,
    /// One limit for each value of this: `header:tenant`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl LimitShown {
    /// What it allows, for people.
    pub fn allows(&self) -> String {
        let rate = self.rate.iter().cloned();
        let burst = self.burst.map(|burst| format!("burst {burst}"));
        let at_a_time = self.concurrency.map(|most| format!("{most} at a time"));
        let all: Vec<_> = rate.chain(burst).chain(at_a_time).collect();
        all.join(", ")
    }
}

/// A limit that keeps messages waiting.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct LimitedSeen {
    /// The limit.
    pub limit: String,
    /// The key that stops all messages behind it, because too many wait to let others pass. Bounded, and without control characters.
    pub key: Option<String>,
    /// For how long messages have had to wait for it.
    pub seconds: u64,
}

/// The limits that keep messages of this host waiting. Each is a series while it does: `key` is empty, or the one key that stops the queue.
#[derive(Debug, Default)]
pub struct Limited(Mutex<Vec<Waits>>);

#[derive(Debug)]
struct Waits {
    limit: String,
    since: Instant,
    last: Instant,
    key: Option<(String, Instant)>,
}

impl Limited {
    /// A message has asked to start, and waits. `key`: it stops those behind it.
    pub fn waits(&self, now: Instant, limit: &str, key: Option<String>) {
        let mut all = self.0.lock();
        all.retain(|one| now.saturating_duration_since(one.last) < OVER);
        let place = all.iter().position(|one| one.limit == limit);
        let place = place.unwrap_or_else(|| {
            all.truncate(LIMITS_MAX - 1);
            all.push(Waits {
                limit: limit.to_owned(),
                since: now,
                last: now,
                key: None,
            });
            all.len() - 1
        });
        let one = &mut all[place];
        one.last = now;
        if let Some(key) = key {
            one.key = Some((key, now));
        }
    }

    /// Those that keep messages waiting now.
    pub fn seen(&self, now: Instant) -> Vec<LimitedSeen> {
        let is_new = |at: &Instant| now.saturating_duration_since(*at) < OVER;
        let all = self.0.lock();
        let waiting = all.iter().filter(|one| is_new(&one.last));
        let seen = waiting.map(|one| LimitedSeen {
            limit: one.limit.clone(),
            key: one
                .key
                .as_ref()
                .filter(|(_, at)| is_new(at))
                .map(|(key, _)| key.clone()),
            seconds: now.saturating_duration_since(one.since).as_secs(),
        });
        seen.collect()
    }

    /// The labels.
    pub(super) fn labels() -> Vec<(&'static str, Vec<&'static str>)> {
        vec![("limit", Vec::new()), ("key", Vec::new())]
    }
}

impl EncodeMetric for Limited {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.seen(Instant::now()).iter().try_for_each(|one| {
            let key = one.key.as_deref().unwrap_or_default();
            let labels = [("limit", &*one.limit), ("key", key)];
            encoder.encode_family(&labels)?.encode_gauge(&one.seconds)
        })
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_shown_while_messages_wait_for_it_with_the_one_key_that_stops_the_queue() {
        let limited = Limited::default();
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let seen = |now| {
            let seen = limited.seen(now).into_iter();
            let seen = seen.map(|one| (one.limit, one.key, one.seconds));
            seen.collect::<Vec<_>>()
        };
        for second in 0..20 {
            let key = (second >= 10).then(|| format!("tenant-{}", second / 10));
            limited.waits(at(second), "tenants", key);
        }
        let key = Some("tenant-1".to_owned());
        assert_eq!(seen(at(20)), [("tenants".to_owned(), key, 20)]);
        limited.waits(at(26), "payments", None);
        assert_eq!(seen(at(26)), [("payments".to_owned(), None, 0)]);
        limited.waits(at(27), "tenants", None);
        assert_eq!(seen(at(27))[1], ("tenants".to_owned(), None, 0));
        for number in 0..100 {
            limited.waits(at(28), &number.to_string(), None);
        }
        assert_eq!(seen(at(28)).len(), LIMITS_MAX);
        assert_eq!(seen(at(40)), []);
    }
}
