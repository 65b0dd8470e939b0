//! What the rules of grants count. They are known from the configuration, so that their series are
//! bounded: no guest can make one.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use serde::{Deserialize, Serialize};

use crate::delivery::declared::declared;
use crate::delivery::text::printable_lines;
use crate::telemetry::histogram::Histogram;

declared! {
    /// How a request can end.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub enum RequestEnd (/// The label.
                         label -> &'static str) {
        /// A response with a status from 100 to 199.
        Informational = "1xx",
        /// A status from 200 to 299.
        Success = "2xx",
        /// A status from 300 to 399.
        Redirection = "3xx",
        /// A status from 400 to 499.
        ClientError = "4xx",
        /// A status from 500 on.
        ServerError = "5xx",
        /// Refused before anything was sent.
        Denied = "denied",
        /// The name has no address.
        Dns = "dns",
        /// No connection.
        Connect = "connect",
        /// No encryption that is accepted.
        Tls = "tls",
        /// The time was over.
        Timeout = "timeout",
        /// The response is too large.
        TooLarge = "too-large",
        /// The connection broke, or the answer is not HTTP.
        Protocol = "protocol",
        /// The attempt ended first.
        Cancelled = "cancelled",
        /// Its destination is away, or has too many calls: nothing was sent.
        Closed = "closed",
    }
}

impl RequestEnd {
    /// The class of a status.
    pub fn of_status(status: u16) -> Self {
        match status {
            0..200 => Self::Informational,
            200..300 => Self::Success,
            300..400 => Self::Redirection,
            400..500 => Self::ClientError,
            500.. => Self::ServerError,
        }
    }
}

/// A destination of a rule with `adaptive`, as it is now.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct DestinationSeen {
    /// The rule.
    pub rule: String,
    /// The host, and its port if it is another one than usual.
    pub destination: String,
    /// Requests that are in flight.
    pub in_flight: u64,
    /// How many may be; 0 = it is closed.
    pub allowed: u64,
    /// Requests that wait for their turn.
    pub waiting: u64,
    /// For how long it has been closed, in milliseconds.
    pub closed_ms: Option<u64>,
    /// Why it is closed.
    pub why: Option<String>,
}

/// Knows the destinations of a rule.
pub trait SeesDestinations: fmt::Debug + Send + Sync {
    /// They, as they are now: a bounded number.
    fn seen(&self) -> Vec<DestinationSeen>;
}

/// What one rule counts.
#[derive(Debug)]
pub struct RuleCount {
    name: String,
    ends: [Counter; RequestEnd::ALL.len()],
    latency: Histogram,
    /// If the requests in flight follow the answers.
    destinations: OnceLock<Arc<dyn SeesDestinations>>,
}

impl RuleCount {
    /// Show these destinations. Only the first call counts.
    pub fn follow(&self, destinations: Arc<dyn SeesDestinations>) {
        drop(self.destinations.set(destinations));
    }

    /// Its destinations; `None` = the requests in flight do not follow the answers.
    pub fn destinations(&self) -> Option<Vec<DestinationSeen>> {
        Some(self.destinations.get()?.seen())
    }

    /// Count a request.
    pub fn ended(&self, end: RequestEnd) {
        self.ends[end as usize].inc();
    }

    /// The status of a response came after this time.
    pub fn answered(&self, took: Duration) {
        self.latency.observe(took);
    }

    /// The requests that ended so.
    pub fn count(&self, end: RequestEnd) -> u64 {
        self.ends[end as usize].get()
    }
}

/// What all rules count.
#[derive(Debug)]
pub struct RuleCounts {
    /// By rule, in the order of the configuration.
    pub http: Vec<RuleCount>,
    /// HTTP requests that no rule allows.
    pub http_denied: Counter,
    /// Name lookups and connections that no rule allows.
    pub tcp_denied: Counter,
}

impl RuleCounts {
    /// Counts of the rules with these names.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        let rule = |name: String| RuleCount {
            name: printable_lines(&name),
            ends: Default::default(),
            latency: Histogram::default(),
            destinations: OnceLock::new(),
        };
        Self {
            http: names.into_iter().map(rule).collect(),
            http_denied: Counter::default(),
            tcp_denied: Counter::default(),
        }
    }
}

/// What rules count, as series. The rules are known after the metrics were declared.
#[derive(Debug)]
pub struct RuleSeries {
    rules: OnceLock<Arc<RuleCounts>>,
    kind: Kind,
}

/// What the series count.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Requests, by rule and end.
    HttpRequests,
    /// Latencies, by rule.
    HttpLatencies,
    /// How many requests may be in flight, by rule.
    HttpAllowed,
    /// Destinations that are closed, by rule.
    HttpClosed,
    /// Denied lookups and connections.
    TcpDenied,
}

impl RuleSeries {
    pub(super) const fn new(kind: Kind) -> Self {
        Self {
            rules: OnceLock::new(),
            kind,
        }
    }

    /// Show what these rules count. Only the first call counts.
    pub(super) fn follow(&self, rules: &Arc<RuleCounts>) {
        // A host has one configuration; a second one would count elsewhere.
        drop(self.rules.set(Arc::clone(rules)));
    }

    /// The destinations of all rules with `adaptive`.
    pub(super) fn destinations(&self) -> Vec<DestinationSeen> {
        let rules = self.rules.get().map(|rules| &rules.http);
        let rules = rules.into_iter().flatten();
        rules
            .filter_map(RuleCount::destinations)
            .flatten()
            .collect()
    }

    /// The labels, each with its values; no values = a name.
    pub(super) fn labels(&self) -> Vec<(&'static str, Vec<&'static str>)> {
        let rule = ("rule", Vec::new());
        match self.kind {
            Kind::HttpRequests => {
                vec![rule, ("end", RequestEnd::ALL.map(RequestEnd::label).into())]
            }
            Kind::HttpLatencies | Kind::HttpAllowed | Kind::HttpClosed => vec![rule],
            Kind::TcpDenied => Vec::new(),
        }
    }
}

/// The rule of requests that no rule allows.
const NONE: &str = "none";

impl EncodeMetric for RuleSeries {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let counts = self.rules.get().map(|rules| &**rules);
        let denied = |of: fn(&RuleCounts) -> &Counter| counts.map(of).cloned().unwrap_or_default();
        let rules = counts.map_or(&[][..], |counts| &counts.http);
        match self.kind {
            Kind::HttpRequests => {
                for rule in rules {
                    for end in RequestEnd::ALL {
                        let labels = [("rule", &*rule.name), ("end", end.label())];
                        rule.ends[end as usize].encode(encoder.encode_family(&labels)?)?;
                    }
                }
                let labels = [("rule", NONE), ("end", RequestEnd::Denied.label())];
                denied(|counts| &counts.http_denied).encode(encoder.encode_family(&labels)?)
            }
            Kind::HttpLatencies => rules.iter().try_for_each(|rule| {
                let labels = [("rule", &*rule.name)];
                rule.latency.encode(encoder.encode_family(&labels)?)
            }),
            Kind::HttpAllowed | Kind::HttpClosed => rules.iter().try_for_each(|rule| {
                let Some(seen) = rule.destinations() else {
                    return Ok(());
                };
                let labels = [("rule", &*rule.name)];
                let value = match self.kind {
                    Kind::HttpAllowed => seen.iter().map(|one| one.allowed).sum(),
                    _ => seen.iter().filter(|one| one.closed_ms.is_some()).count() as u64,
                };
                encoder.encode_family(&labels)?.encode_gauge(&value)
            }),
            Kind::TcpDenied => denied(|counts| &counts.tcp_denied).encode(encoder),
        }
    }

    fn metric_type(&self) -> MetricType {
        match self.kind {
            Kind::HttpLatencies => MetricType::Histogram,
            Kind::HttpAllowed | Kind::HttpClosed => MetricType::Gauge,
            Kind::HttpRequests | Kind::TcpDenied => MetricType::Counter,
        }
    }
}
