//! Counters of everything a host does. `/metrics`, the exit summary and `docs/metrics.md` read the same
//! declarations.
//!
//! Every series exists from the start, with labels from a bounded set. So counting is one atomic
//! addition: no lock, no allocation, and no label that a guest or a message could choose.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

pub use prometheus_client::metrics::counter::Counter;
pub use prometheus_client::metrics::gauge::Gauge;

use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::{Disposition, Policy, Reason};
use crate::delivery::reply::Status;
use crate::delivery::text::printable_lines;
use crate::telemetry::health::Health;
use crate::telemetry::histogram::Histogram;
use crate::telemetry::limited::Limited;
use crate::telemetry::logging;
use crate::telemetry::otlp::dropped::{Signal, dropped};
use crate::telemetry::rules::{DestinationSeen, Kind, RuleCounts, RuleSeries};

/// A counter of seconds.
pub type CounterF64 = Counter<f64, AtomicU64>;
/// A gauge of seconds.
pub type GaugeF64 = Gauge<f64, AtomicU64>;

/// The error codes of Redis that have a series of their own. The last one stands for all others.
const REDIS_CODES: [&str; 25] = [
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
    "other",
];

/// The parts of housekeeping of which one go may not do all.
const SWEEPS: [&str; 6] = [
    "retention",
    "max-length",
    "dead-letters",
    "consumers",
    "outboxes",
    "journals",
];

/// The steps at which a new version can be refused.
pub const STEPS: [&str; 10] = [
    "source", "size", "digest", "format", "compile", "world", "imports", "limits", "instance",
    "selftest",
];

/// How an attempt can end: the order of [`place`].
const OUTCOMES: [&str; 4] = ["ack", "nack-requeue", "drop", "fault"];

/// Declares every metric once: its doc comment is the help text, its field the name after `hostler_`.
/// A name that ends in `_seconds` has that unit.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $vis:vis $name:ident: $kind:ty $(= $new:expr)?;)+) => {
        /// Everything that a host counts. One per host, shared by reference.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            /// The declarations, in order.
            pub declared: Vec<Declared>,
            $($(#[doc = $help])+ $vis $name: Arc<$kind>,)+
        }

        impl Metrics {
            fn with_labels(labels: Vec<(Cow<'static, str>, Cow<'static, str>)>) -> Self {
                let mut registry = Registry::with_prefix_and_labels("hostler", labels.into_iter());
                $(let $name: Arc<$kind> = Arc::new(metrics!(@new $kind $(, $new)?));)+
                let declared = vec![
                    $(declare(&mut registry, stringify!($name), concat!($($help),+), &$name),)+
                ];
                Self { registry, declared, $($name,)+ }
            }
        }
    };
    (@new $kind:ty) => { <$kind>::default() };
    (@new $kind:ty, $new:expr) => { $new };
}

metrics! {
    /// The version of hostler.
    pub build: Info = Info::new("version", env!("CARGO_PKG_VERSION"));
    /// The digest of the handler that runs.
    handler: Info = Info::new("digest", "");
    /// The digest of the canary; empty without one.
    canary: Info = Info::new("digest", "");
    /// 1 if the host is ready, else 0.
    ready: Gauge;

    /// Attempts that the handler answered, by its answer.
    attempts: Counters = Counters::by("outcome", &OUTCOMES[..3]);
    /// Attempts that ended in a fault.
    faults: Counters = Counters::by("kind", &FaultKind::ALL.map(FaultKind::label));
    /// Attempts by the version of the handler, and how they ended.
    version_attempts: Counters = Counters::new(&["version", "outcome"], ["current", "canary"]
        .iter().flat_map(|version| OUTCOMES.map(|outcome| vec![*version, outcome])).collect());
    /// Outcomes that a queue at most once cannot carry out, as it has forgotten the message.
    outcomes_not_honoured: Counters = Counters::by("outcome", &OUTCOMES[1..]);
    /// Dispositions that were carried out, by their reason.
    dispositions: Counters = Counters::new(&["disposition", "reason"], dispositions());

    /// Run time of a handler.
    pub handler_seconds: Histogram;
    /// Time from the enqueueing of a message to its first start.
    pub queue_wait_seconds: Histogram;

    /// Deliveries claimed from hosts that died.
    pub orphans_recovered: Counter;
    /// Deliveries of this host that another host took.
    pub steals: Counter;
    /// Deliveries of this host that are no longer pending, and that this host did not settle.
    pub gone: Counter;
    /// Leases renewed.
    pub lease_renewals: Counter;
    /// Leases that ran out, or could not be confirmed, before the delivery was settled.
    pub leases_lost: Counter;
    /// Pending deliveries that were lost because a client trimmed or deleted the entry.
    pub trimmed_pending: Counter;
    /// Entries that the setting `retention` trimmed.
    pub retention_trimmed: Counter;
    /// Times that housekeeping had more to do than one go may, and went on at once.
    housekeeping_unfinished: Counters = Counters::by("sweep", &SWEEPS);
    /// Connections to Redis that were made again.
    pub reconnects: Counter;
    /// Errors of Redis by code.
    redis_errors: Counters = Counters::by("code", &REDIS_CODES);
    /// Settlements that Redis did not write; the host tries each again.
    pub settlements_refused: Counter;
    /// Messages acknowledged without a run or without effects, because a message with the same id was handled
    /// already.
    pub duplicates: Counter;
    /// Handled messages whose ids are not remembered, because `dedup.max_ids` is reached.
    pub dedup_marks_refused: Counter;
    /// Messages that handlers published with their acknowledgements.
    pub published: Counter;
    /// Keys that handlers set or deleted with their acknowledgements.
    pub keys_written: Counter;
    /// Attempts that ran again, or counted as nacks, because a value that they had read changed before their
    /// acknowledgement.
    pub reruns: Counter;
    /// Acknowledgements with effects that came too late: another host had the delivery, or it was gone.
    /// Nothing was published or written for them.
    pub effects_void: Counter;
    /// Messages that this host has relayed from outboxes to destinations in other slots.
    pub outbox_relayed: Counter;
    /// Times that a destination in another slot refused the next message of an outbox, or could not be
    /// reached; the host tries again.
    pub outbox_refusals: Counter;
    /// Consumer groups that were created again after a client deleted them.
    pub groups_recreated: Counter;
    /// Dead letters dropped because their queue was full.
    pub dead_letters_trimmed: Counter;
    /// Messages that went to the cycle key, because they would have gone round for ever.
    pub cycles: Counter;
    /// Damaged histories (`x-death`), which were read as far as possible.
    pub histories_damaged: Counter;
    /// Copies replayed for another consumer group, acknowledged without a run.
    pub other_group: Counter;
    /// Starts recorded in Redis before the handler ran.
    pub recorded_starts: Counter;
    /// Suspects that ran isolated: no other message ran on this host meanwhile.
    pub isolated_runs: Counter;
    /// Panics of the host inside a call, caught.
    pub host_panics: Counter;
    /// Calls of a handler of batches.
    pub batches: Counter;
    /// Batches, or parts of them, that were run again in halves.
    pub batch_splits: Counter;
    /// Bytes of handler logs dropped because a limit was reached.
    pub guest_log_bytes_dropped: Counter;
    /// Log lines dropped because the reader of stderr was too slow.
    log_lines_dropped: Counter;
    /// Telemetry that did not reach the collector, because its queue was full or the collector did not take it:
    /// spans of attempts, log lines, and sets of metrics.
    telemetry_dropped: Counters = Counters::by("signal", &Signal::ALL.map(Signal::label));

    /// HTTP requests of the handler, by the rule that allowed them and by their end: the class of the
    /// status, or why there was no response. The rule `none` stands for requests that no rule allows.
    http_requests: RuleSeries = RuleSeries::new(Kind::HttpRequests);
    /// Time from a request of the handler to the status of its response, by rule.
    http_request_seconds: RuleSeries = RuleSeries::new(Kind::HttpLatencies);
    /// Requests that may be in flight to the destinations of a rule with `adaptive`; none to one that is closed.
    http_allowed: RuleSeries = RuleSeries::new(Kind::HttpAllowed);
    /// Destinations of a rule with `adaptive` that are closed: their requests fail at once.
    http_closed: RuleSeries = RuleSeries::new(Kind::HttpClosed);
    /// Name lookups and TCP connections of the handler that no rule allows.
    tcp_denied: RuleSeries = RuleSeries::new(Kind::TcpDenied);

    /// Records written to journals: intents, answers, values and sums.
    pub journal_writes: Counter;
    /// Bytes of these records.
    pub journal_bytes: Counter;
    /// Calls that were not made, because an earlier attempt at the message has recorded the answer.
    pub journal_replayed: Counter;
    /// Calls whose answer an earlier attempt does not know: they were made again, or refused.
    pub journal_unknown: Counter;
    /// Calls that were refused, because a journal had no room for their answer.
    pub journal_refused: Counter;
    /// Records that the attempt has not used that acknowledged its message.
    pub journal_unused: Counter;

    /// Answers to producers, by the status of their message: of messages whose producers wait, or whose handlers reply.
    replies: Counters = Counters::by("status", &Status::ALL.map(Status::label));

    /// Messages that this host has published for ticks of schedules.
    pub schedule_ticks: Counter;
    /// Ticks of schedules that came more than a minute late. `catch_up` says which of them were published all the same.
    pub schedule_missed: Counter;
    /// Ticks of schedules with `overlap = "skip"` that were skipped, because the message before was not settled.
    pub schedule_skipped: Counter;
    /// Schedules that this host cannot publish: it does not know their zone, Redis refuses the message, or the queue has no room
    /// for those of its file.
    pub schedules_failing: Gauge;
    /// For how long the oldest tick has been due that no host has published.
    pub schedule_overdue_seconds: GaugeF64;

    /// Attempts that ended with a hold of their message, and are not charged.
    pub holds: Counter;
    /// Holds that a handler asked for and did not get: too many, too long, or after effects. These attempts are charged.
    pub holds_refused: Counter;

    /// Times that a message asked to start and had to wait, because of a limit.
    pub limited: Counter;
    /// For how long messages of this host have had to wait for a limit; no series = none waits. `key` is empty, but for the one key that
    /// stops the queue, because too many messages wait to let others pass.
    pub limited_for_seconds: Limited;

    /// Handlers swapped in.
    pub swaps: Counter;
    /// New versions that were refused, by the step of their verification.
    swaps_refused: Counters = Counters::by("step", &STEPS);
    /// Decisions of the host about canaries.
    canary_decisions: Counters = Counters::by("decision", &["promote", "rollback"]);
    /// Times that the breaker stopped or rolled back a version that faulted on almost everything.
    pub breaker_opened: Counter;

    /// Times that the subscription was interrupted.
    pub subscription_gaps: Counter;
    /// Total length of these interruptions.
    pub subscription_gap_seconds: CounterF64;
    /// Messages of a subscription dropped because the buffer was full.
    pub buffer_dropped: Counter;

    /// 1 if the queue is paused on this host, else 0.
    pub paused: Gauge;
    /// Handlers that run now.
    pub in_flight: Gauge;
    /// Deliveries that this host holds, running or waiting.
    pub held: Gauge;
    /// Messages that no host has read yet.
    pub unread: Gauge;
    /// Deliveries that hosts hold, and parked ones.
    pub pending: Gauge;
    /// For how long the oldest pending delivery has been in the stream; of a reliable list, since a host first took it.
    pub oldest_pending_seconds: GaugeF64;
    /// Deliveries of hosts that were not seen for `min_idle`: no other host has taken them yet.
    pub orphans: Gauge;
    /// Deliveries parked for later, which no host holds.
    pub parked: Gauge;
    /// Messages that were held, and are not settled.
    pub on_hold: Gauge;
    /// Entries in the dead-letter queue.
    pub dead_letters: Gauge;
    /// Messages in the outboxes of the queue: acknowledged, and on their way to other slots.
    pub outbox_messages: Gauge;
    /// How long ago the oldest of them was acknowledged.
    pub outbox_oldest_seconds: GaugeF64;
    /// Outboxes whose next message the destination refuses.
    pub outbox_blocked: Gauge;
}

/// A decision about a canary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CanaryDecision {
    /// It was kept.
    Promote,
    /// It was rolled back.
    Rollback,
}

/// Without labels, for a host whose metrics are not scraped.
impl Default for Metrics {
    fn default() -> Self {
        Self::with_labels(Vec::new())
    }
}

impl Metrics {
    /// All series of a host of this queue, at zero.
    pub fn new(queue: &str, group: Option<&str>) -> Self {
        let label =
            |name: &'static str, value: &str| (name.into(), Cow::from(printable_lines(value)));
        let labels = [
            Some(label("queue", queue)),
            group.map(|group| label("group", group)),
        ];
        Self::with_labels(labels.into_iter().flatten().collect())
    }

    /// Count an attempt, when its outcome is known.
    pub fn attempt(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Fault(fault) => self.faults.at(fault.kind as usize),
            _ => self.attempts.at(place(outcome)),
        }
        .inc();
    }

    /// Count an attempt for its version: the current one, or the canary.
    pub fn version_attempt(&self, is_canary: bool, outcome: &Outcome) {
        let row = usize::from(is_canary) * OUTCOMES.len() + place(outcome);
        self.version_attempts.at(row).inc();
    }

    /// Count messages that the queue gave up, as too many were unread.
    pub fn overflowed(&self, count: u64, policy: &Policy) {
        let reason = Reason::MaxLen;
        let is_kept = policy.has_dead_letter && !policy.dead_letters.discarded.contains(reason);
        let row = if is_kept {
            dead_lettered(reason)
        } else {
            discarded(reason)
        };
        self.dispositions.at(row).inc_by(count);
    }

    /// Count an outcome that the queue cannot honour: it has forgotten the message.
    pub fn outcome_not_honoured(&self, outcome: &Outcome) {
        if let Some(row) = place(outcome).checked_sub(1) {
            self.outcomes_not_honoured.at(row).inc();
        }
    }

    /// Count a disposition, once it is carried out.
    pub fn disposition(&self, disposition: &Disposition) {
        let row = match disposition {
            Disposition::Acknowledge => ACKNOWLEDGED,
            Disposition::Requeue { .. } => REQUEUED,
            Disposition::DeadLetter(rejection) => dead_lettered(rejection.reason),
            Disposition::Discard(rejection) => discarded(rejection.reason),
        };
        self.dispositions.at(row).inc();
    }

    /// Count `n` acknowledgements at once: what a batch settles.
    pub fn acknowledged(&self, n: u64) {
        self.dispositions.at(ACKNOWLEDGED).inc_by(n);
    }

    /// Show what these rules count from now on.
    pub fn follow(&self, rules: &Arc<RuleCounts>) {
        for series in [
            &self.http_requests,
            &self.http_request_seconds,
            &self.http_allowed,
            &self.http_closed,
            &self.tcp_denied,
        ] {
            series.follow(rules);
        }
    }

    /// The destinations of rules with `adaptive`, as they are now.
    pub fn destinations(&self) -> Vec<DestinationSeen> {
        self.http_closed.destinations()
    }

    /// Count an error of Redis by its code.
    pub fn redis_error(&self, error: &crate::redis::Error) {
        self.redis_errors_of(error.code(), 1);
    }

    /// Count scripts that Redis had forgotten (`NOSCRIPT`). Each was loaded and run again.
    pub fn scripts_forgotten(&self, n: u64) {
        self.redis_errors_of("NOSCRIPT", n);
    }

    /// Count commands that a node of a cluster refused because another one has the key. Each was sent there.
    pub fn redirections(&self, n: u64) {
        self.redis_errors_of("MOVED", n);
    }

    fn redis_errors_of(&self, code: &str, n: u64) {
        let known = REDIS_CODES.iter().position(|known| *known == code);
        let row = known.unwrap_or(REDIS_CODES.len() - 1);
        self.redis_errors.at(row).inc_by(n);
    }

    /// Count that this part of housekeeping has more to do.
    pub fn housekeeping_unfinished(&self, sweep: &str) {
        if let Some(row) = SWEEPS.iter().position(|known| *known == sweep) {
            self.housekeeping_unfinished.at(row).inc();
        }
    }

    /// The handler that runs from now on, by its digest.
    pub fn handler(&self, digest: Arc<str>) {
        self.handler.set(digest);
    }

    /// The canary from now on, by its digest.
    pub fn canary(&self, digest: Option<Arc<str>>) {
        self.canary.set(digest.unwrap_or_default());
    }

    /// Count a decision about a canary.
    pub fn canary_decided(&self, decision: CanaryDecision) {
        self.canary_decisions.at(decision as usize).inc();
    }

    /// Count a version that was refused at this step, one of [`STEPS`].
    pub fn swap_refused(&self, step: &str) {
        if let Some(row) = STEPS.iter().position(|known| *known == step) {
            self.swaps_refused.at(row).inc();
        }
    }

    /// Count an answer to a producer.
    pub fn replied(&self, status: Status) {
        self.replies.at(status as usize).inc();
    }

    /// The OpenMetrics text of all series.
    pub fn render(&self, health: &Health) -> String {
        self.ready.set(health.is_ready().into());
        // The process counts these.
        let counted = |counter: &Counter, total: u64| {
            counter.inner().fetch_max(total, Ordering::Relaxed);
        };
        counted(&self.log_lines_dropped, logging::lines_dropped());
        for signal in Signal::ALL {
            let row = self.telemetry_dropped.at(signal as usize);
            counted(row, dropped(signal));
        }
        let mut text = String::with_capacity(16 * 1024);
        prometheus_client::encoding::text::encode(&mut text, &self.registry)
            .expect("writing to a String cannot fail");
        text
    }

    /// How many attempts have ended.
    pub fn attempts_ended(&self) -> u64 {
        let rows = self.attempts.rows.iter().chain(&self.faults.rows);
        rows.map(|(_, counter)| counter.get()).sum()
    }

    /// What happened, in the shape of `--summary json`.
    pub fn summary(&self) -> Summary {
        fn occurred<const N: usize>(counts: [(&str, u64); N]) -> BTreeMap<&str, u64> {
            counts.into_iter().filter(|(_, n)| *n > 0).collect()
        }
        let of = |label: fn(Reason) -> usize, reason| self.dispositions.at(label(reason)).get();
        let faults = FaultKind::ALL.map(|kind| (kind.label(), self.faults.at(kind as usize).get()));
        let dead = Reason::ALL.map(|reason| (reason.label(), of(dead_lettered, reason)));
        Summary {
            attempts: self.attempts_ended(),
            acked: self.dispositions.at(ACKNOWLEDGED).get(),
            requeued: self.dispositions.at(REQUEUED).get(),
            discarded: Reason::ALL.map(|reason| of(discarded, reason)).iter().sum(),
            dead_lettered: occurred(dead),
            faults: occurred(faults),
            orphans_recovered: self.orphans_recovered.get(),
            swaps: self.swaps.get(),
        }
    }
}

/// The work of a host from its start to its exit: the one line of `--summary json`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// Attempts that ended, faults included.
    pub attempts: u64,
    /// Messages acknowledged.
    pub acked: u64,
    /// Deliveries requeued.
    pub requeued: u64,
    /// Messages discarded.
    pub discarded: u64,
    /// Messages dead-lettered, by reason; without the reasons that did not occur.
    pub dead_lettered: BTreeMap<&'static str, u64>,
    /// Faults by kind; without the kinds that did not occur.
    pub faults: BTreeMap<&'static str, u64>,
    /// Orphans claimed.
    pub orphans_recovered: u64,
    /// Handlers swapped in.
    pub swaps: u64,
}

/// The place of an outcome in [`OUTCOMES`].
fn place(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Ack => 0,
        Outcome::NackRequeue(_) => 1,
        Outcome::Drop(_) => 2,
        Outcome::Fault(_) => 3,
    }
}

const ACKNOWLEDGED: usize = 0;
const REQUEUED: usize = 1;

fn dead_lettered(reason: Reason) -> usize {
    2 + reason as usize
}

fn discarded(reason: Reason) -> usize {
    2 + Reason::ALL.len() + reason as usize
}

/// The rows of `dispositions`, in the order of the places above.
fn dispositions() -> Vec<Vec<&'static str>> {
    let given_up = ["dead-letter", "discard"]
        .into_iter()
        .flat_map(|word| Reason::ALL.map(|reason| vec![word, reason.label()]));
    [vec!["acknowledge", ""], vec!["requeue", ""]]
        .into_iter()
        .chain(given_up)
        .collect()
}

/// A declared metric, for `docs/metrics.md`.
#[derive(Debug)]
pub struct Declared {
    /// The name in `/metrics`.
    pub name: String,
    /// The type in OpenMetrics.
    pub kind: &'static str,
    /// The labels beside `queue` and `group`, each with its values; no values = a digest or a version.
    pub labels: Vec<(&'static str, Vec<&'static str>)>,
    /// The meaning.
    pub help: &'static str,
}

/// Registers a metric.
fn declare<M: Series>(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    metric: &Arc<M>,
) -> Declared {
    let help = help.trim();
    // The library adds the unit, the suffix of the type, and the full stop.
    let shared = Shared(Arc::clone(metric));
    let text = help.trim_end_matches('.');
    match name.strip_suffix("_seconds") {
        Some(base) => registry.register_with_unit(base, text, Unit::Seconds, shared),
        None => registry.register(name, text, shared),
    }
    let (kind, suffix) = match metric.metric_type() {
        MetricType::Counter => ("counter", "_total"),
        MetricType::Info => ("info", "_info"),
        MetricType::Histogram => ("histogram", ""),
        _ => ("gauge", ""),
    };
    Declared {
        name: format!("hostler_{name}{suffix}"),
        kind,
        labels: metric.labels(),
        help,
    }
}

/// A metric of any type.
trait Series: EncodeMetric + fmt::Debug + Send + Sync + 'static {
    /// The labels, each with its values.
    fn labels(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        Vec::new()
    }
}

impl Series for Counter {}
impl Series for CounterF64 {}
impl Series for Gauge {}
impl Series for GaugeF64 {}
impl Series for Histogram {}

impl Series for Limited {
    fn labels(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        Self::labels()
    }
}

/// The registry owns its metrics; these are shared with it.
#[derive(Debug)]
struct Shared<M>(Arc<M>);

impl<M: EncodeMetric> EncodeMetric for Shared<M> {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        self.0.encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        self.0.metric_type()
    }
}

/// Counters of one name, with every combination of labels from the start.
#[derive(Debug)]
struct Counters {
    labels: Vec<&'static str>,
    rows: Vec<(Vec<&'static str>, Counter)>,
}

impl Counters {
    fn new(labels: &[&'static str], rows: Vec<Vec<&'static str>>) -> Self {
        let rows = rows.into_iter().map(|words| (words, Counter::default()));
        Self {
            labels: labels.to_vec(),
            rows: rows.collect(),
        }
    }

    /// By one label.
    fn by(label: &'static str, words: &[&'static str]) -> Self {
        Self::new(&[label], words.iter().map(|word| vec![*word]).collect())
    }

    fn at(&self, row: usize) -> &Counter {
        &self.rows[row].1
    }
}

impl EncodeMetric for Counters {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for (words, counter) in &self.rows {
            let labels: Vec<_> = self
                .labels
                .iter()
                .zip(words)
                .map(|(l, w)| (*l, *w))
                .collect();
            counter.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl Series for Counters {
    fn labels(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let values = |place: usize| {
            let mut values: Vec<&str> = Vec::new();
            for (words, _) in &self.rows {
                if !words[place].is_empty() && !values.contains(&words[place]) {
                    values.push(words[place]);
                }
            }
            values
        };
        let labels = self.labels.iter().enumerate();
        labels
            .map(|(place, label)| (*label, values(place)))
            .collect()
    }
}

/// A text as the label of an info metric: it may change.
#[derive(Debug)]
pub struct Info {
    label: &'static str,
    text: RwLock<Arc<str>>,
}

impl Info {
    fn new(label: &'static str, text: &str) -> Self {
        Self {
            label,
            text: RwLock::new(text.into()),
        }
    }

    fn set(&self, text: Arc<str>) {
        *self.text.write().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl EncodeMetric for Info {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let text = self.text.read().unwrap_or_else(PoisonError::into_inner);
        encoder.encode_info(&[(self.label, &**text)])
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Info
    }
}

impl Series for RuleSeries {
    fn labels(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        self.labels()
    }
}

impl Series for Info {
    fn labels(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        vec![(self.label, Vec::new())]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::delivery::attempt::DeliveryLimit;
    use crate::delivery::outcome::Fault;
    use crate::delivery::policy::{OnCap, OnFault};
    use crate::delivery::text::acts;
    use crate::telemetry::health::Cause;
    use crate::telemetry::rules::SeesDestinations;

    fn scrape(metrics: &Metrics) -> String {
        metrics.render(&Health::default())
    }

    #[test]
    fn every_kind_and_reason_has_a_series_of_its_own() {
        for (index, kind) in FaultKind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, index);
        }
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
        let text = scrape(&Metrics::default());
        for kind in FaultKind::ALL.map(FaultKind::label) {
            assert!(text.contains(&format!("hostler_faults_total{{kind=\"{kind}\"}} 0")));
        }
        for reason in Reason::ALL {
            let labels = format!("{{disposition=\"dead-letter\",reason=\"{reason}\"}} 0");
            assert!(text.contains(&labels), "{labels}");
        }
    }

    #[test]
    fn every_series_carries_the_queue_and_its_group() {
        let text = scrape(&Metrics::new("orders", Some("billing")));
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let labels = "{queue=\"orders\",group=\"billing\"";
            assert!(line.contains(labels), "{line}");
        }
        let text = scrape(&Metrics::new("jobs", None));
        assert!(text.contains("hostler_ready{queue=\"jobs\"} 0"), "{text}");
    }

    #[test]
    fn no_label_acts_on_a_terminal() {
        let metrics = Metrics::new("a\u{1b}[31m\nb", Some("\u{9b}0m\"\\"));
        metrics.follow(&Arc::new(RuleCounts::new(["c\u{1b}[0m".to_owned()])));
        let text = scrape(&metrics);
        assert!(!text.contains(|c| c != '\n' && acts(c)), "{text:?}");
        // The format escapes the line end, and a backslash once more.
        let labels = r#"{queue="a\\u{1b}[31m\nb",group="\\u{9b}0m\"\\","#;
        assert!(text.contains(labels), "{text}");
        assert!(text.contains(r#"rule="c\\u{1b}[0m""#), "{text}");
    }

    #[derive(Debug)]
    struct NoDestinations;

    impl SeesDestinations for NoDestinations {
        fn seen(&self) -> Vec<DestinationSeen> {
            Vec::new()
        }
    }

    #[test]
    fn every_declared_metric_is_scraped_by_its_name() {
        let metrics = Metrics::default();
        let rules = RuleCounts::new(["api".to_owned()]);
        rules.http[0].follow(Arc::new(NoDestinations));
        metrics.follow(&Arc::new(rules));
        metrics
            .limited_for_seconds
            .waits(Instant::now(), "payments", None);
        let text = scrape(&metrics);
        for declared in &metrics.declared {
            let name = &declared.name;
            let known = ["", "_count"].iter().any(|suffix| {
                [' ', '{']
                    .iter()
                    .any(|next| text.contains(&format!("\n{name}{suffix}{next}")))
            });
            assert!(known, "{name}");
        }
    }

    #[test]
    fn summary_and_scrape_agree() {
        let metrics = Metrics::default();
        let policy = Policy {
            limit: DeliveryLimit {
                cap: Some(1),
                ..DeliveryLimit::default()
            },
            on_cap: OnCap::DeadLetter,
            on_fault: OnFault::Requeue,
            has_dead_letter: true,
            dead_letters: crate::delivery::policy::DeadLetterRules::default(),
            backoff: crate::delivery::backoff::Backoff::default(),
        };
        let outcomes = [
            Outcome::Ack,
            Outcome::Drop(None),
            Outcome::NackRequeue(None),
            Outcome::Fault(Fault::new(FaultKind::MemoryLimit, "too much")),
        ];
        for outcome in &outcomes {
            metrics.attempt(outcome);
            metrics.version_attempt(true, outcome);
            let disposition = crate::delivery::policy::decide(outcome, None, 1, &policy, 0.5);
            metrics.disposition(&disposition);
        }
        metrics.orphans_recovered.inc_by(3);
        let summary = serde_json::to_string(&metrics.summary()).unwrap();
        assert_eq!(
            summary,
            r#"{"attempts":4,"acked":1,"requeued":0,"discarded":0,"dead_lettered":{"dropped":1,"max-deliveries":2},"faults":{"memory-limit":1},"orphans_recovered":3,"swaps":0}"#
        );
        let text = scrape(&metrics);
        for series in [
            "hostler_attempts_total{outcome=\"ack\"} 1",
            "hostler_faults_total{kind=\"memory-limit\"} 1",
            "hostler_version_attempts_total{version=\"canary\",outcome=\"fault\"} 1",
            "{disposition=\"dead-letter\",reason=\"max-deliveries\"} 2",
            "hostler_orphans_recovered_total 3",
        ] {
            assert!(text.contains(series), "{series}: {text}");
        }
    }

    #[test]
    fn unknown_codes_of_redis_share_a_series() {
        let metrics = Metrics::default();
        for code in ["OOM", "MADEUP"] {
            metrics.redis_error(&crate::redis::Error::Unavailable {
                command: "XADD",
                code: code.to_owned(),
                detail: String::new(),
            });
        }
        let text = scrape(&metrics);
        assert!(text.contains("hostler_redis_errors_total{code=\"OOM\"} 1"));
        assert!(text.contains("hostler_redis_errors_total{code=\"other\"} 1"));
        assert!(!text.contains("MADEUP"));
    }

    #[test]
    fn ready_is_what_health_says_and_the_digest_follows_a_swap() {
        let metrics = Metrics::default();
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
