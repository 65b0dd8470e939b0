//! Telemetry to a collector, by the protocol of OpenTelemetry: spans of attempts, metrics, log lines.
//!
//! ```text
//! attempts, log lines --bounded queues--> a thread of its own --requests--> collector
//! ```
//!
//! Nothing waits for a collector. Items that the queues do not hold are dropped and counted ([`dropped`]), and
//! a host that ends sends the rest for at most [`CLOSE_MAX`].
//!
//! - [`tracer`]: which attempts are recorded, and where in their trace. `span`: spans as they are sent.
//! - [`log_layer`]: log lines. `metric_points`: the metrics, read from the text of `/metrics`.
//! - `exporter`: batches, and what is tried again. `client`: gRPC and HTTP.

mod client;
pub mod dropped;
mod exporter;
pub mod log_layer;
mod metric_points;
mod span;
pub mod tracer;
mod value;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc as std_mpsc;
use std::time::Duration;

use http::{HeaderMap, Uri};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;

use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otlp::client::Client;
use crate::telemetry::otlp::exporter::Exporter;
use crate::telemetry::otlp::log_layer::{Line, LogLayer};
use crate::telemetry::otlp::metric_points::Times;
use crate::telemetry::otlp::tracer::{Place, Recorded, Sampler, Tracer};
use crate::telemetry::otlp::value::{now_ns, scope, text};

/// How long a host that ends goes on sending, at most.
pub const CLOSE_MAX: Duration = Duration::from_secs(2);
/// The most attempts that wait for the collector.
const SPANS_MAX: usize = 4096;
/// The most log lines that wait for the collector.
const LINES_MAX: usize = 2048;
/// Who makes the records.
const SCOPE: &str = "hostler";

/// How requests are sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Protocol {
    /// gRPC.
    Grpc,
    /// HTTP, with bodies in protobuf.
    Http,
}

/// The collector, and what it gets.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The URL of the collector: `http` or `https`. For HTTP, the paths `/v1/...` are added.
    pub endpoint: Uri,
    /// How requests are sent.
    pub protocol: Protocol,
    /// Headers of every request: secrets, so marked as sensitive.
    pub headers: HeaderMap,
    /// The certificates that are trusted; `None` = those of the system.
    pub ca: Option<PathBuf>,
    /// Whether spans are sent.
    pub traces: bool,
    /// Whether metrics are sent.
    pub metrics: bool,
    /// Whether log lines are sent.
    pub logs: bool,
    /// The share of the messages without a trace that are recorded, from 0 to 1.
    pub sample: f64,
    /// How often metrics are sent.
    pub metrics_every: Duration,
    /// `service.name`.
    pub service_name: String,
}

/// The queue that a host serves, for the resource of all that it sends.
#[derive(Clone, Copy, Debug)]
pub struct Queue<'a> {
    /// The key.
    pub name: &'a str,
    /// The consumer group of a stream.
    pub group: Option<&'a str>,
}

/// Why telemetry cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The certificates cannot be read.
    #[error("telemetry: {0}")]
    Tls(String),
    /// The thread cannot be started.
    #[error("cannot start the thread of telemetry")]
    Thread(#[source] std::io::Error),
}

/// The telemetry of a running host.
#[derive(Debug)]
pub struct Telemetry {
    spans: Option<mpsc::Sender<Recorded>>,
    sampler: Sampler,
    lines: Option<mpsc::Sender<Line>>,
    shown: Option<oneshot::Sender<(Arc<Metrics>, Health)>>,
    stop: watch::Sender<bool>,
    ended: std_mpsc::Receiver<()>,
}

impl Telemetry {
    /// Send telemetry of a host of this queue from now on.
    ///
    /// # Errors
    /// The certificates cannot be read, or there is no thread.
    pub fn start(settings: &Settings, queue: Queue<'_>) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(Error::Thread)?;
        let client = {
            let _inside = runtime.enter();
            Client::new(settings).map_err(Error::Tls)?
        };
        let resource = resource(settings, queue);
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = std_mpsc::sync_channel(1);
        let mut work = JoinSet::new();
        let exporter = || Exporter::new(&client, &stopped);
        let mut telemetry = Self {
            spans: None,
            sampler: Sampler::new(settings.sample),
            lines: None,
            shown: None,
            stop,
            ended,
        };
        let handle = runtime.handle();
        if settings.traces {
            let (spans, queue) = mpsc::channel(SPANS_MAX);
            telemetry.spans = Some(spans);
            let resource = resource.clone();
            let request = move |batch: Vec<Recorded>| traces(&resource, &batch);
            work.spawn_on(exporter().ship(queue, request), handle);
        }
        if settings.logs {
            let (lines, queue) = mpsc::channel(LINES_MAX);
            telemetry.lines = Some(lines);
            let resource = resource.clone();
            let request = move |batch| logs(&resource, batch);
            work.spawn_on(exporter().ship(queue, request), handle);
        }
        if settings.metrics {
            let (shown, metrics) = oneshot::channel();
            telemetry.shown = Some(shown);
            let every = settings.metrics_every;
            work.spawn_on(send_metrics(exporter(), metrics, every, resource), handle);
        }
        let mut stopping = stopped;
        let run = move || {
            runtime.block_on(async {
                let all = async { while work.join_next().await.is_some() {} };
                let late = async {
                    // The telemetry that is gone without a word stops, too.
                    let _is_told = stopping.wait_for(|stop| *stop).await.is_ok();
                    tokio::time::sleep(CLOSE_MAX).await;
                };
                tokio::select! {
                    () = all => {}
                    () = late => {}
                }
            });
            runtime.shutdown_background();
            // Perhaps no task waits for it any more.
            let _is_heard = end.send(()).is_ok();
        };
        let thread = std::thread::Builder::new().name("hostler-telemetry".to_owned());
        thread.spawn(run).map_err(Error::Thread)?;
        Ok(telemetry)
    }

    /// Sends log lines; `None` = they are not to be sent.
    pub fn log_layer(&self) -> Option<LogLayer> {
        self.lines.clone().map(LogLayer::new)
    }

    /// Records attempts; `None` = they are not to be sent.
    pub fn tracer(&self, place: Place) -> Option<Tracer> {
        let spans = self.spans.clone()?;
        Some(Tracer::new(spans, self.sampler, place))
    }

    /// Send these metrics from now on, if metrics are to be sent.
    pub fn follow(&mut self, metrics: &Arc<Metrics>, health: &Health) {
        if let Some(shown) = self.shown.take() {
            // The thread ends with this only.
            let _is_followed = shown.send((Arc::clone(metrics), health.clone())).is_ok();
        }
    }

    /// Send what is left, for at most [`CLOSE_MAX`].
    pub fn close(self) {
        self.stop.send_replace(true);
        let grace = CLOSE_MAX + Duration::from_millis(500);
        if self.ended.recv_timeout(grace).is_err() {
            tracing::debug!("telemetry did not end in time");
        }
    }
}

/// Who sends.
fn resource(settings: &Settings, queue: Queue<'_>) -> Resource {
    let host = nix::unistd::gethostname().ok();
    let host = host.and_then(|host| host.into_string().ok());
    let instance = format!("{:032x}", fastrand::u128(1..));
    let attributes = [
        Some(text("service.name", &settings.service_name)),
        Some(text("service.version", env!("CARGO_PKG_VERSION"))),
        Some(text("service.instance.id", &instance)),
        host.map(|host| text("host.name", &host)),
        Some(text("hostler.queue", queue.name)),
        queue.group.map(|group| text("hostler.group", group)),
    ];
    Resource {
        attributes: attributes.into_iter().flatten().collect(),
        ..Resource::default()
    }
}

fn traces(resource: &Resource, batch: &[Recorded]) -> ExportTraceServiceRequest {
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![ScopeSpans {
                scope: Some(scope(SCOPE)),
                spans: batch.iter().flat_map(span::spans).collect(),
                ..ScopeSpans::default()
            }],
            ..ResourceSpans::default()
        }],
    }
}

fn logs(resource: &Resource, batch: Vec<Line>) -> ExportLogsServiceRequest {
    let (guest, own): (Vec<_>, Vec<_>) = batch.into_iter().partition(|line| line.is_guest);
    let scopes = [(SCOPE, own), ("guest", guest)].into_iter();
    let scopes = scopes.filter(|(_, lines)| !lines.is_empty());
    let scope_logs = scopes.map(|(name, lines)| ScopeLogs {
        scope: Some(scope(name)),
        log_records: lines.into_iter().map(|line| line.record).collect(),
        ..ScopeLogs::default()
    });
    ExportLogsServiceRequest {
        resource_logs: vec![ResourceLogs {
            resource: Some(resource.clone()),
            scope_logs: scope_logs.collect(),
            ..ResourceLogs::default()
        }],
    }
}

async fn send_metrics(
    mut exporter: Exporter,
    shown: oneshot::Receiver<(Arc<Metrics>, Health)>,
    every: Duration,
    resource: Resource,
) {
    let start_ns = now_ns();
    let mut stop = exporter.stop.clone();
    let (metrics, health) = tokio::select! {
        shown = shown => match shown {
            Ok(shown) => shown,
            Err(_) => return,
        },
        _ = stop.wait_for(|stop| *stop) => return,
    };
    loop {
        let is_last = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => true,
            () = tokio::time::sleep(every) => false,
        };
        let times = Times {
            start_ns,
            now_ns: now_ns(),
        };
        let text = metrics.render(&health);
        let request = ExportMetricsServiceRequest {
            resource_metrics: vec![ResourceMetrics {
                resource: Some(resource.clone()),
                scope_metrics: vec![ScopeMetrics {
                    scope: Some(scope(SCOPE)),
                    metrics: metric_points::metrics(&text, times),
                    ..ScopeMetrics::default()
                }],
                ..ResourceMetrics::default()
            }],
        };
        // One set: the next one says the same and more.
        exporter.deliver(request, 1).await;
        if is_last {
            return;
        }
    }
}
