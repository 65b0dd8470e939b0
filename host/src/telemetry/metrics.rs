//! The counters of a host. `/metrics` and the exit summary read the same counters.
//!
//! Every series is made at start from a bounded set of labels. So counting is one atomic addition,
//! without locks or allocations, and no guest or message can choose a label.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

mod summary;

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::gauge::Gauge;
pub use summary::Summary;

use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::{Disposition, Policy, Reason};
use crate::telemetry::health::Health;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::logging;
use crate::telemetry::swaps::Swaps;

/// A gauge of a fraction: seconds.
pub type GaugeF64 = Gauge<f64, AtomicU64>;

/// A counter of fractions: seconds.
pub type CounterF64 = Counter<f64, AtomicU64>;

/// The error codes of Redis that have their own series. Other codes count as `other`.
const REDIS_CODES: [&str; 24] = [
    "BUSY",
    "BUSYGROUP",
    "CLUSTERDOWN",
    "ERR",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "MOVED",
    "NOAUTH",
    "NOGROUP",
    "NOPERM",
    "NOREPLICAS",
    "NOSCRIPT",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
    "UNKILLABLE",
    "WRONGPASS",
    "WRONGTYPE",
    "connection",
    "deadline",
    "file",
    "reply",
];
const REDIS_OTHER: &str = "other";

pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// All counters of a host. Each host has one, shared by reference.
///
/// Callers count the public fields directly. Counters with a label have a method.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    acks: Counter,
    nacks: Counter,
    drops: Counter,
    faults: [Counter; FaultKind::ALL.len()],
    /// Of nacks, drops and faults: those that the queue could not honour.
    not_honoured: [Counter; 3],
    acknowledged: Counter,
    requeued: Counter,
    dead_lettered: [Counter; Reason::ALL.len()],
    discarded: [Counter; Reason::ALL.len()],
    redis_errors: [Counter; REDIS_CODES.len()],
    redis_other: Counter,
    handler: Arc<Handler>,
    ready: Gauge,

    /// How long a handler ran.
    pub handler_seconds: Arc<Histogram>,
    /// How long a message waited from its enqueueing to its first start.
    pub queue_wait_seconds: Arc<Histogram>,

    /// Orphans claimed: deliveries whose host died.
    pub orphans_recovered: Counter,
    /// Deliveries of this host that another one took.
    pub steals: Counter,
    /// Leases renewed.
    pub lease_renewals: Counter,
    /// Leases that ran out, or could not be confirmed, before the delivery was settled.
    pub leases_lost: Counter,
    /// Deliveries whose entry was trimmed or deleted while it was pending: lost to trimming.
    pub trimmed_pending: Counter,
    /// Entries that `retention` trimmed.
    pub retention_trimmed: Counter,
    /// Connections to Redis made anew.
    pub reconnects: Counter,
    /// Settlements that Redis would not write; each is tried again.
    pub settlements_refused: Counter,
    /// Delays that handlers asked for and that were clamped to the longest allowed one.
    pub delays_clamped: Counter,
    /// Groups made anew because somebody deleted them.
    pub groups_recreated: Counter,
    /// Dead letters dropped because their queue was full.
    pub dead_letters_trimmed: Counter,
    /// Messages that would have gone round for ever, ended.
    pub cycles: Counter,
    /// Histories (`x-death`) that came in damaged, and were read as far as possible.
    pub histories_damaged: Counter,
    /// Copies replayed for another consumer group, acknowledged unrun.
    pub other_group: Counter,
    /// Starts recorded in Redis before their handler ran.
    pub recorded_starts: Counter,
    /// Suspects that ran alone on this host.
    pub alone_runs: Counter,
    /// Panics of the host inside a call, caught.
    pub host_panics: Counter,
    /// Calls with gathered messages.
    pub batches: Counter,
    /// Batches, or pieces of them, that were run again in halves.
    pub batch_splits: Counter,
    /// Bytes of guest logs dropped because a limit was reached.
    pub guest_log_bytes_dropped: Counter,
    /// The versions of the handler, and how they do.
    pub swaps: Swaps,
    /// Log lines that were not written, as stderr took none.
    log_lines_dropped: Counter,
    /// How many of them are counted already.
    log_lines_known: AtomicU64,
    /// How often a subscription was gone for a while.
    pub subscription_gaps: Counter,
    /// For how long in all.
    pub subscription_gap_seconds: CounterF64,
    /// Messages of a subscription dropped because the buffer was full.
    pub buffer_dropped: Counter,

    /// Handlers running now.
    pub in_flight: Gauge,
    /// Deliveries that this host holds, running or waiting.
    pub held: Gauge,
    /// Messages that no host has read yet.
    pub unread: Gauge,
    /// Deliveries that hosts hold, parked ones included.
    pub pending: Gauge,
    /// The age of the oldest pending delivery.
    pub oldest_pending_seconds: GaugeF64,
    /// Deliveries held for later by no host.
    pub parked: Gauge,
    /// Entries in the dead-letter queue.
    pub dead_letters: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All series, at zero.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("hostler");
        let r = &mut registry;
        r.register(
            "build",
            "The version of hostler",
            Info::new([("version", env!("CARGO_PKG_VERSION"))]),
        );
        let handler = Arc::new(Handler::default());
        r.register("handler", "The handler that runs", Shared(handler.clone()));

        let attempts = Family::<Labels<1>, Counter>::default();
        r.register("attempts", "Attempts by outcome", attempts.clone());
        let attempt = |outcome: &'static str| attempts.get_or_create_owned(&[("outcome", outcome)]);
        let faults = Family::<Labels<1>, Counter>::default();
        r.register("faults", "Attempts that ended in a fault", faults.clone());
        let lost = Family::<Labels<1>, Counter>::default();
        r.register(
            "outcomes_not_honoured",
            "Outcomes other than ack on a queue that takes nothing back",
            lost.clone(),
        );
        let dispositions = Family::<Labels<2>, Counter>::default();
        r.register(
            "dispositions",
            "What was carried out, by disposition and reason",
            dispositions.clone(),
        );
        let disposition = |word: &'static str, reason: &'static str| {
            dispositions.get_or_create_owned(&[("disposition", word), ("reason", reason)])
        };
        let codes = Family::<Labels<1>, Counter>::default();
        r.register("redis_errors", "Errors of Redis by code", codes.clone());
        let code = |code: &'static str| codes.get_or_create_owned(&[("code", code)]);

        let seconds = |r: &mut Registry, name: &str, help: &str| {
            let histogram = Arc::new(Histogram::default());
            r.register_with_unit(name, help, Unit::Seconds, Shared(histogram.clone()));
            histogram
        };
        let oldest_pending_seconds = GaugeF64::default();
        r.register_with_unit(
            "oldest_pending",
            "The age of the oldest pending delivery",
            Unit::Seconds,
            oldest_pending_seconds.clone(),
        );

        let subscription_gap_seconds = CounterF64::default();
        r.register_with_unit(
            "subscription_gap",
            "For how long the subscription was gone",
            Unit::Seconds,
            subscription_gap_seconds.clone(),
        );

        Self {
            acks: attempt("ack"),
            nacks: attempt("nack-requeue"),
            drops: attempt("drop"),
            faults: FaultKind::ALL
                .map(|kind| faults.get_or_create_owned(&[("kind", kind.label())])),
            not_honoured: ["nack-requeue", "drop", "fault"]
                .map(|outcome| lost.get_or_create_owned(&[("outcome", outcome)])),
            acknowledged: disposition("acknowledge", ""),
            requeued: disposition("requeue", ""),
            dead_lettered: Reason::ALL.map(|reason| disposition("dead-letter", reason.label())),
            discarded: Reason::ALL.map(|reason| disposition("discard", reason.label())),
            redis_errors: REDIS_CODES.map(code),
            redis_other: code(REDIS_OTHER),
            handler,
            ready: gauge(r, "ready", "1 if the host is ready"),
            handler_seconds: seconds(r, "handler", "How long handlers ran"),
            queue_wait_seconds: seconds(r, "queue_wait", "From enqueueing to the first start"),
            orphans_recovered: counter(r, "orphans_recovered", "Orphans claimed"),
            steals: counter(r, "steals", "Deliveries that another host took"),
            lease_renewals: counter(r, "lease_renewals", "Leases renewed"),
            leases_lost: counter(r, "leases_lost", "Leases lost before settlement"),
            trimmed_pending: counter(
                r,
                "trimmed_pending",
                "Pending deliveries lost to trimming or deletion",
            ),
            retention_trimmed: counter(r, "retention_trimmed", "Entries trimmed by retention"),
            reconnects: counter(r, "reconnects", "Connections to Redis made anew"),
            settlements_refused: counter(
                r,
                "settlements_refused",
                "Settlements that Redis would not write",
            ),
            delays_clamped: counter(r, "delays_clamped", "Delays clamped to the longest one"),
            groups_recreated: counter(r, "groups_recreated", "Consumer groups made anew"),
            dead_letters_trimmed: counter(
                r,
                "dead_letters_trimmed",
                "Dead letters dropped from a full queue",
            ),
            cycles: counter(
                r,
                "cycles",
                "Messages ended that would have gone round for ever",
            ),
            histories_damaged: counter(
                r,
                "histories_damaged",
                "Histories of dead messages that came in damaged",
            ),
            other_group: counter(
                r,
                "other_group",
                "Copies replayed for another group, acknowledged unrun",
            ),
            recorded_starts: counter(r, "recorded_starts", "Starts recorded beforehand"),
            alone_runs: counter(r, "alone_runs", "Suspects that ran alone"),
            host_panics: counter(r, "host_panics", "Panics of the host inside a call"),
            batches: counter(r, "batches", "Calls of a handler of batches"),
            batch_splits: counter(
                r,
                "batch_splits",
                "Batches, or parts of one, that faulted and were run again in halves",
            ),
            log_lines_dropped: counter(
                r,
                "log_lines_dropped",
                "Log lines that were not written, as whoever reads stderr had stopped reading",
            ),
            log_lines_known: AtomicU64::new(0),
            guest_log_bytes_dropped: counter(
                r,
                "guest_log_bytes_dropped",
                "Bytes of guest logs over a limit",
            ),
            swaps: Swaps::new(r),
            subscription_gaps: counter(
                r,
                "subscription_gaps",
                "How often the subscription was gone for a while",
            ),
            subscription_gap_seconds,
            buffer_dropped: counter(
                r,
                "buffer_dropped",
                "Messages of a subscription dropped from a full buffer",
            ),
            in_flight: gauge(r, "in_flight", "Handlers running now"),
            held: gauge(r, "held", "Deliveries that this host holds"),
            unread: gauge(r, "unread", "Messages that no host has read yet"),
            pending: gauge(r, "pending", "Deliveries that hosts hold, parked included"),
            parked: gauge(r, "parked", "Deliveries held for later by no host"),
            dead_letters: gauge(r, "dead_letters", "Entries in the dead-letter queue"),
            oldest_pending_seconds,
            registry,
        }
    }

    /// Count an attempt after its outcome is known.
    pub fn attempt(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Ack => self.acks.inc(),
            Outcome::NackRequeue(_) => self.nacks.inc(),
            Outcome::Drop(_) => self.drops.inc(),
            Outcome::Fault(fault) => self.faults[fault.kind as usize].inc(),
        };
    }

    /// Count messages given up by the queue itself, as unread beyond its length.
    pub fn overflowed(&self, count: u64, policy: &Policy) {
        let reason = Reason::MaxLen;
        let is_kept = policy.has_dead_letter && !policy.dead_letters.discarded.contains(reason);
        let counters = match is_kept {
            true => &self.dead_lettered,
            false => &self.discarded,
        };
        counters[reason as usize].inc_by(count);
    }

    /// Count an outcome that the queue cannot honour, because it forgets the messages that it
    /// delivers.
    pub fn outcome_not_honoured(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Ack => return,
            Outcome::NackRequeue(_) => self.not_honoured[0].inc(),
            Outcome::Drop(_) => self.not_honoured[1].inc(),
            Outcome::Fault(_) => self.not_honoured[2].inc(),
        };
    }

    /// Count a disposition after it is carried out.
    pub fn disposition(&self, disposition: &Disposition) {
        match disposition {
            Disposition::Acknowledge => self.acknowledged.inc(),
            Disposition::Requeue { .. } => self.requeued.inc(),
            Disposition::DeadLetter(r) => self.dead_lettered[r.reason as usize].inc(),
            Disposition::Discard(r) => self.discarded[r.reason as usize].inc(),
        };
    }

    /// Count `n` acknowledgements at once: what a batch settles.
    pub fn acknowledged(&self, n: u64) {
        self.acknowledged.inc_by(n);
    }

    /// Count an error of Redis by its code. Unknown codes are `other`.
    pub fn redis_error(&self, error: &crate::redis::Error) {
        let code = error.code();
        REDIS_CODES
            .iter()
            .position(|known| *known == code)
            .map_or(&self.redis_other, |i| &self.redis_errors[i])
            .inc();
    }

    /// Count how often Redis had forgotten a script (`NOSCRIPT`). Each time the script was loaded
    /// and run again.
    pub fn scripts_forgotten(&self, n: u64) {
        if let Some(i) = REDIS_CODES.iter().position(|code| *code == "NOSCRIPT") {
            self.redis_errors[i].inc_by(n);
        }
    }

    /// Set the digest of the handler that runs from now on.
    pub fn handler(&self, digest: Arc<str>) {
        self.handler.set(digest);
    }

    /// The OpenMetrics text of all series.
    pub fn render(&self, health: &Health) -> String {
        self.ready.set(health.is_ready().into());
        let dropped = logging::lines_dropped();
        let known = self.log_lines_known.fetch_max(dropped, Ordering::Relaxed);
        self.log_lines_dropped.inc_by(dropped.saturating_sub(known));
        let mut text = String::with_capacity(16 * 1024);
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a String cannot fail");
        text
    }
}

pub(super) fn counter(registry: &mut Registry, name: &str, help: &str) -> Counter {
    let counter = Counter::default();
    registry.register(name, help, counter.clone());
    counter
}

fn gauge(registry: &mut Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::default();
    registry.register(name, help, gauge.clone());
    gauge
}

/// A metric that is shared with the registry, because the registry owns its metrics.
pub(super) struct Shared<M>(pub(super) Arc<M>);

impl<M: fmt::Debug> fmt::Debug for Shared<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<M: EncodeMetric> EncodeMetric for Shared<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

/// The digest of the handler: an info metric. A swap changes its value.
#[derive(Debug, Default)]
pub(super) struct Handler(RwLock<Arc<str>>);

impl Handler {
    pub(super) fn set(&self, digest: Arc<str>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = digest;
    }
}

impl EncodeMetric for Handler {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let digest = self.0.read().unwrap_or_else(PoisonError::into_inner);
        encoder.encode_info(&[("digest", &**digest)])
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Info
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::attempt::Allowance;
    use crate::delivery::backoff::Backoff;
    use crate::delivery::outcome::Fault;
    use crate::delivery::policy::{OnCap, OnFault, Policy};
    use crate::telemetry::health::Cause;

    #[test]
    fn every_kind_and_reason_has_a_series_of_its_own() {
        for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        let text = Metrics::new().render(&Health::default());
        for kind in FaultKind::ALL {
            assert!(text.contains(&format!(
                "hostler_faults_total{{kind=\"{}\"}} 0",
                kind.label()
            )));
        }
        for reason in Reason::ALL {
            let labels = format!("{{disposition=\"dead-letter\",reason=\"{reason}\"}} 0");
            assert!(text.contains(&labels), "{labels}");
        }
    }

    #[test]
    fn summary_and_scrape_agree() {
        let metrics = Metrics::new();
        let policy = Policy {
            allowance: Allowance {
                cap: Some(1),
                ..Allowance::default()
            },
            on_cap: OnCap::DeadLetter,
            on_fault: OnFault::Requeue,
            has_dead_letter: true,
            dead_letters: crate::delivery::policy::DeadLetterRules::default(),
            backoff: Backoff::default(),
        };
        let outcomes = [
            Outcome::Ack,
            Outcome::Drop(None),
            Outcome::NackRequeue(None),
            Outcome::Fault(Fault::new(FaultKind::MemoryLimit, "too much")),
        ];
        for outcome in &outcomes {
            metrics.attempt(outcome);
            let disposition = crate::delivery::policy::decide(outcome, 1, &policy, 0.5);
            metrics.disposition(&disposition);
        }
        metrics.orphans_recovered.inc_by(3);
        let summary = serde_json::to_string(&metrics.summary()).unwrap();
        assert_eq!(
            summary,
            r#"{"attempts":4,"acked":1,"requeued":0,"discarded":0,"dead_lettered":{"dropped":1,"max-deliveries":2},"faults":{"memory-limit":1},"orphans_recovered":3,"swaps":0}"#
        );
        let text = metrics.render(&Health::default());
        assert!(text.contains("hostler_attempts_total{outcome=\"ack\"} 1"));
        assert!(text.contains("hostler_faults_total{kind=\"memory-limit\"} 1"));
        assert!(
            text.contains("{disposition=\"dead-letter\",reason=\"max-deliveries\"} 2"),
            "{text}"
        );
        assert!(text.contains("hostler_orphans_recovered_total 3"));
    }

    #[test]
    fn unknown_codes_of_redis_share_a_series() {
        let metrics = Metrics::new();
        for code in ["OOM", "MADEUP"] {
            metrics.redis_error(&crate::redis::Error::Unavailable {
                command: "XADD",
                code: code.to_owned(),
                detail: String::new(),
            });
        }
        let text = metrics.render(&Health::default());
        assert!(text.contains("hostler_redis_errors_total{code=\"OOM\"} 1"));
        assert!(text.contains("hostler_redis_errors_total{code=\"other\"} 1"));
        assert!(!text.contains("MADEUP"));
    }

    #[test]
    fn ready_is_what_health_says_and_the_digest_follows_a_swap() {
        let metrics = Metrics::new();
        let health = Health::default();
        metrics.handler("sha256:aa".into());
        let text = metrics.render(&health);
        assert!(text.contains("hostler_ready 0"));
        assert!(
            text.contains("hostler_handler_info{digest=\"sha256:aa\"} 1"),
            "{text}"
        );
        health.clear(Cause::Starting);
        metrics.handler("sha256:bb".into());
        let text = metrics.render(&health);
        assert!(text.contains("hostler_ready 1"));
        assert!(text.contains("digest=\"sha256:bb\""));
        assert!(!text.contains("sha256:aa"));
    }
}
