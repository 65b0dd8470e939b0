//! What the rules of grants count. They are known from the configuration, so that their series are
//! bounded: no guest can make one.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;

use crate::telemetry::histogram::Histogram;

/// How a request can end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RequestEnd {
    /// A response with a status from 100 to 199.
    Informational,
    /// A status from 200 to 299.
    Success,
    /// A status from 300 to 399.
    Redirection,
    /// A status from 400 to 499.
    ClientError,
    /// A status from 500 on.
    ServerError,
    /// Refused before anything was sent.
    Denied,
    /// The name has no address.
    Dns,
    /// No connection.
    Connect,
    /// No encryption that is accepted.
    Tls,
    /// The time was over.
    Timeout,
    /// The response is too large.
    TooLarge,
    /// The connection broke, or the answer is not HTTP.
    Protocol,
    /// The attempt ended first.
    Cancelled,
}

impl RequestEnd {
    /// All of them, in order.
    pub const ALL: [Self; 13] = [
        Self::Informational,
        Self::Success,
        Self::Redirection,
        Self::ClientError,
        Self::ServerError,
        Self::Denied,
        Self::Dns,
        Self::Connect,
        Self::Tls,
        Self::Timeout,
        Self::TooLarge,
        Self::Protocol,
        Self::Cancelled,
    ];

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

    /// The label.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Informational => "1xx",
            Self::Success => "2xx",
            Self::Redirection => "3xx",
            Self::ClientError => "4xx",
            Self::ServerError => "5xx",
            Self::Denied => "denied",
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::TooLarge => "too-large",
            Self::Protocol => "protocol",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What one rule counts.
#[derive(Debug)]
pub struct RuleCount {
    name: String,
    ends: [Counter; RequestEnd::ALL.len()],
    latency: Histogram,
}

impl RuleCount {
    fn new(name: String) -> Self {
        Self {
            name,
            ends: Default::default(),
            latency: Histogram::default(),
        }
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
        Self {
            http: names.into_iter().map(RuleCount::new).collect(),
            http_denied: Counter::default(),
            tcp_denied: Counter::default(),
        }
    }
}

/// Counts that are known after the metrics were declared.
#[derive(Debug, Default)]
struct Followed(OnceLock<Arc<RuleCounts>>);

impl Followed {
    fn follow(&self, rules: &Arc<RuleCounts>) {
        // A host has one configuration; a second one would count elsewhere.
        drop(self.0.set(Arc::clone(rules)));
    }

    fn rules(&self) -> &[RuleCount] {
        self.0.get().map_or(&[], |counts| &counts.http)
    }
}

/// Requests by rule and end.
#[derive(Debug, Default)]
pub struct HttpRequests(Followed);

/// Latencies by rule.
#[derive(Debug, Default)]
pub struct HttpLatencies(Followed);

/// Denied lookups and connections.
#[derive(Debug, Default)]
pub struct TcpDenied(Followed);

macro_rules! follows {
    ($($name:ident),*) => {$(
        impl $name {
            /// Show what these rules count. Only the first call counts.
            pub fn follow(&self, rules: &Arc<RuleCounts>) {
                self.0.follow(rules);
            }
        }
    )*};
}
follows!(HttpRequests, HttpLatencies, TcpDenied);

/// The rule of requests that no rule allows.
const NONE: &str = "none";

impl EncodeMetric for HttpRequests {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for rule in self.0.rules() {
            for end in RequestEnd::ALL {
                let labels = [("rule", &*rule.name), ("end", end.label())];
                rule.ends[end as usize].encode(encoder.encode_family(&labels)?)?;
            }
        }
        let labels = [("rule", NONE), ("end", RequestEnd::Denied.label())];
        let denied = self.0.0.get().map(|counts| counts.http_denied.clone());
        let denied = denied.unwrap_or_default();
        denied.encode(encoder.encode_family(&labels)?)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}

impl EncodeMetric for HttpLatencies {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        for rule in self.0.rules() {
            let labels = [("rule", &*rule.name)];
            rule.latency.encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

impl EncodeMetric for TcpDenied {
    fn encode(&self, encoder: MetricEncoder<'_>) -> Result<(), fmt::Error> {
        let denied = self.0.0.get().map(|counts| counts.tcp_denied.clone());
        denied.unwrap_or_default().encode(encoder)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Counter
    }
}
