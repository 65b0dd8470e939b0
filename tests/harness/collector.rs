//! A collector of telemetry: it takes the real protocol, by gRPC and by HTTP, and keeps what it gets.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::{MethodRouter, post};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use opentelemetry_proto::tonic::collector::logs::v1::logs_service_server::{
    LogsService, LogsServiceServer,
};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::metrics_service_server::{
    MetricsService, MetricsServiceServer,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::logs::v1::LogRecord;
use opentelemetry_proto::tonic::metrics::v1::Metric;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tonic::service::Routes;
use tonic::{Request, Response, Status};

/// What a collector has got.
#[derive(Clone, Debug, Default)]
pub struct Received {
    /// Who sent it: one for each request.
    pub resources: Vec<Resource>,
    /// The headers of each request.
    pub headers: Vec<HeaderMap>,
    /// All spans.
    pub spans: Vec<Span>,
    /// All log lines, each with its scope.
    pub lines: Vec<(String, LogRecord)>,
    /// The last metrics.
    pub metrics: Vec<Metric>,
}

type Shared = Arc<Mutex<Received>>;

/// A collector on a port of its own.
#[derive(Debug)]
pub struct Collector {
    url: String,
    received: Shared,
    accepting: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Collector {
    /// Without encryption.
    pub async fn start() -> Self {
        Self::serve("http", |stream| async { Some(stream) }).await
    }

    /// With TLS, for the name `localhost`. The certificate of its authority is written to `ca`.
    pub async fn secure(ca: &Path) -> Self {
        let acceptor = crate::web::acceptor("localhost", ca);
        Self::serve("https", move |stream| {
            let acceptor = acceptor.clone();
            async move { acceptor.accept(stream).await.ok() }
        })
        .await
    }

    async fn serve<S, F>(scheme: &str, open: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = Option<S>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let received = Shared::default();
        let routes = routes(&received);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let opening = open(stream);
                let service = TowerToHyperService::new(routes.clone());
                tokio::spawn(async move {
                    let Some(stream) = opening.await else {
                        return;
                    };
                    let server = auto::Builder::new(TokioExecutor::new());
                    // A client may close its connection at any time.
                    drop(server.serve_connection(TokioIo::new(stream), service).await);
                });
            }
        });
        Self {
            url: format!("{scheme}://localhost:{port}"),
            received,
            accepting,
        }
    }

    /// The URL for `otlp.endpoint`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it has got so far.
    pub fn received(&self) -> Received {
        locked(&self.received).clone()
    }

    /// The spans so far, in the order of their begin.
    pub fn spans(&self) -> Vec<Span> {
        let mut spans = self.received().spans;
        spans.sort_by_key(|span| span.start_time_unix_nano);
        spans
    }

    /// The spans of attempts so far, in the order of their begin.
    pub fn attempts(&self) -> Vec<Span> {
        let mut spans = self.spans();
        spans.retain(|span| span.name.starts_with("process "));
        spans
    }
}

fn locked(received: &Shared) -> MutexGuard<'_, Received> {
    received.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An attribute as text; empty if it is missing.
pub fn attribute(attributes: &[KeyValue], key: &str) -> String {
    let found = attributes.iter().find(|attribute| attribute.key == key);
    let value = found.and_then(|found| found.value.clone()?.value);
    match value {
        Some(Value::StringValue(text)) => text,
        Some(Value::IntValue(number)) => number.to_string(),
        Some(Value::DoubleValue(number)) => number.to_string(),
        Some(Value::BoolValue(is)) => is.to_string(),
        _ => String::new(),
    }
}

/// An id as it is written in `traceparent`.
pub fn hexadecimal(id: &[u8]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn take_spans(received: &Shared, headers: HeaderMap, request: ExportTraceServiceRequest) {
    let mut received = locked(received);
    received.headers.push(headers);
    for of_resource in request.resource_spans {
        received.resources.extend(of_resource.resource);
        for of_scope in of_resource.scope_spans {
            received.spans.extend(of_scope.spans);
        }
    }
}

fn take_lines(received: &Shared, headers: HeaderMap, request: ExportLogsServiceRequest) {
    let mut received = locked(received);
    received.headers.push(headers);
    for of_resource in request.resource_logs {
        received.resources.extend(of_resource.resource);
        for of_scope in of_resource.scope_logs {
            let scope = of_scope.scope.map(|scope| scope.name).unwrap_or_default();
            let lines = of_scope.log_records.into_iter();
            received
                .lines
                .extend(lines.map(|line| (scope.clone(), line)));
        }
    }
}

fn take_metrics(received: &Shared, headers: HeaderMap, request: ExportMetricsServiceRequest) {
    let mut received = locked(received);
    received.headers.push(headers);
    for of_resource in request.resource_metrics {
        received.resources.extend(of_resource.resource);
        let of_scopes = of_resource.scope_metrics.into_iter();
        received.metrics = of_scopes.flat_map(|scope| scope.metrics).collect();
    }
}

#[derive(Clone)]
struct Services(Shared);

#[tonic::async_trait]
impl TraceService for Services {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        take_spans(&self.0, headers, request.into_inner());
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl LogsService for Services {
    async fn export(
        &self,
        request: Request<ExportLogsServiceRequest>,
    ) -> Result<Response<ExportLogsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        take_lines(&self.0, headers, request.into_inner());
        Ok(Response::new(ExportLogsServiceResponse::default()))
    }
}

#[tonic::async_trait]
impl MetricsService for Services {
    async fn export(
        &self,
        request: Request<ExportMetricsServiceRequest>,
    ) -> Result<Response<ExportMetricsServiceResponse>, Status> {
        let headers = request.metadata().clone().into_headers();
        take_metrics(&self.0, headers, request.into_inner());
        Ok(Response::new(ExportMetricsServiceResponse::default()))
    }
}

fn routes(received: &Shared) -> Router {
    let services = Services(Arc::clone(received));
    let grpc = Routes::new(TraceServiceServer::new(services.clone()))
        .add_service(LogsServiceServer::new(services.clone()))
        .add_service(MetricsServiceServer::new(services))
        .into_axum_router();
    let http = Router::new()
        .route("/v1/traces", by_http(take_spans))
        .route("/v1/logs", by_http(take_lines))
        .route("/v1/metrics", by_http(take_metrics))
        .with_state(Arc::clone(received));
    grpc.merge(http)
}

/// A request by HTTP: only protobuf is taken. An empty body is an answer without complaints.
fn by_http<M: Message + Default + 'static>(
    take: fn(&Shared, HeaderMap, M),
) -> MethodRouter<Shared> {
    post(
        async move |State(received): State<Shared>, headers: HeaderMap, body: Bytes| {
            let kind = headers.get("content-type").map(|kind| kind.as_bytes());
            let is_protobuf = kind == Some(b"application/x-protobuf");
            match M::decode(body) {
                Ok(request) if is_protobuf => {
                    take(&received, headers, request);
                    StatusCode::OK
                }
                _ => StatusCode::BAD_REQUEST,
            }
        },
    )
}
