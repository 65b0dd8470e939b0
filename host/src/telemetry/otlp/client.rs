//! The connection to the collector: gRPC, or HTTP with bodies of the same messages.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;
use std::vec;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::uri::{PathAndQuery, Scheme};
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use opentelemetry_proto::tonic::collector::logs::v1::{
    ExportLogsServiceRequest, ExportLogsServiceResponse,
};
use opentelemetry_proto::tonic::collector::metrics::v1::{
    ExportMetricsServiceRequest, ExportMetricsServiceResponse,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions};
use tonic_prost::ProstCodec;
use tower_service::Service;

use crate::delivery::text::{printable, truncated};
use crate::redis::names::Names;
use crate::telemetry::otlp::dropped::Signal;
use crate::telemetry::otlp::{Protocol, Settings};
use crate::tls;

/// The longest time of a request.
const REQUEST_MAX: Duration = Duration::from_secs(5);
/// The most bytes of an answer.
const ANSWER_MAX: usize = 64 << 10;
/// The longest text of an error.
const DETAIL_MAX: usize = 256;

/// Sends requests to one collector. Clones share its connections.
#[derive(Clone, Debug)]
pub(super) struct Client {
    http: HttpClient<HttpsConnector<HttpConnector<Resolver>>, Body>,
    protocol: Protocol,
    endpoint: Uri,
    headers: HeaderMap,
}

/// Answers the name of the collector: one question at a time.
#[derive(Clone, Debug)]
struct Resolver(Names);

impl Service<Name> for Resolver {
    type Response = vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let names = self.0.clone();
        Box::pin(async move { Ok(names.addresses(name.as_str()).await?.into_iter()) })
    }
}

/// Why a request was not taken. The text holds no header.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub(super) struct SendError {
    why: String,
    /// Another try may help.
    pub(super) may_pass: bool,
}

/// What a collector is asked to take.
pub(super) trait Export: prost::Message + Clone + Default + 'static {
    /// Its answer.
    type Answer: prost::Message + Default + 'static;
    const SIGNAL: Signal;
    /// The method of the service.
    const METHOD: &'static str;

    /// How many records of a request the collector refused, and why.
    fn refused(answer: Self::Answer) -> Option<(u64, String)>;
}

macro_rules! exports {
    ($($signal:ident: $request:ty => $answer:ty, $method:literal, $refused:ident;)+) => {$(
        impl Export for $request {
            type Answer = $answer;
            const SIGNAL: Signal = Signal::$signal;
            const METHOD: &'static str =
                concat!("/opentelemetry.proto.collector.", $method, "/Export");

            fn refused(answer: Self::Answer) -> Option<(u64, String)> {
                let partial = answer.partial_success?;
                let refused = u64::try_from(partial.$refused).unwrap_or(0);
                (refused > 0).then_some((refused, partial.error_message))
            }
        }
    )+};
}

exports! {
    Traces: ExportTraceServiceRequest => ExportTraceServiceResponse,
        "trace.v1.TraceService", rejected_spans;
    Metrics: ExportMetricsServiceRequest => ExportMetricsServiceResponse,
        "metrics.v1.MetricsService", rejected_data_points;
    Logs: ExportLogsServiceRequest => ExportLogsServiceResponse,
        "logs.v1.LogsService", rejected_log_records;
}

impl Client {
    /// A client of this collector. Nothing is sent yet.
    ///
    /// # Errors
    /// The certificates cannot be read.
    pub(super) fn new(settings: &Settings) -> Result<Self, String> {
        let encrypted = settings.endpoint.scheme() == Some(&Scheme::HTTPS);
        let mut config = match encrypted || settings.ca.is_some() {
            true => tls::config(settings.ca.as_deref())?,
            false => tls::unused()?,
        };
        // The connector offers what it can speak.
        config.alpn_protocols.clear();
        let mut http = HttpConnector::new_with_resolver(Resolver(Names::system(1)));
        http.enforce_http(false);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(config)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(http);
        let mut headers = settings.headers.clone();
        let agent = HeaderValue::from_static(concat!("hostler/", env!("CARGO_PKG_VERSION")));
        headers.insert(USER_AGENT, agent);
        Ok(Self {
            http: HttpClient::builder(TokioExecutor::new())
                .timer(TokioTimer::new())
                .pool_timer(TokioTimer::new())
                .http2_only(settings.protocol == Protocol::Grpc)
                .build(connector),
            protocol: settings.protocol,
            endpoint: settings.endpoint.clone(),
            headers,
        })
    }

    /// Send a request, within a bounded time.
    pub(super) async fn send<M: Export>(&self, request: M) -> Result<M::Answer, SendError> {
        let sending = async {
            match self.protocol {
                Protocol::Grpc => self.call(request).await,
                Protocol::Http => self.post(&request).await,
            }
        };
        let sent = tokio::time::timeout(REQUEST_MAX, sending).await;
        sent.unwrap_or_else(|_| Err(SendError::new("no answer in time", true)))
    }

    async fn call<M: Export>(&self, request: M) -> Result<M::Answer, SendError> {
        let metadata = MetadataMap::from_headers(self.headers.clone());
        let request = tonic::Request::from_parts(metadata, Extensions::default(), request);
        let mut service = Grpc::with_origin(self.http.clone(), self.endpoint.clone())
            .max_decoding_message_size(ANSWER_MAX);
        let codec = ProstCodec::<M, M::Answer>::default();
        let path = PathAndQuery::from_static(M::METHOD);
        let answer = service.unary(request, path, codec).await;
        answer.map(tonic::Response::into_inner).map_err(|status| {
            let code = status.code();
            let may_pass = matches!(
                code,
                Code::Cancelled
                    | Code::DeadlineExceeded
                    | Code::Aborted
                    | Code::OutOfRange
                    | Code::Unavailable
                    | Code::DataLoss
                    | Code::ResourceExhausted
                    // The connection broke.
                    | Code::Unknown
                    | Code::Internal
            );
            SendError::new(&format!("{code:?}: {}", status.message()), may_pass)
        })
    }

    async fn post<M: Export>(&self, request: &M) -> Result<M::Answer, SendError> {
        let endpoint = self.endpoint.to_string();
        let base = endpoint.trim_end_matches('/');
        let uri = format!("{base}/v1/{}", M::SIGNAL.label());
        let body = Full::new(Bytes::from(request.encode_to_vec()));
        let mut post = Request::post(uri)
            .body(Body::new(body))
            .map_err(|error| SendError::new(&error.to_string(), false))?;
        post.headers_mut().extend(self.headers.clone());
        let protobuf = HeaderValue::from_static("application/x-protobuf");
        post.headers_mut().insert(CONTENT_TYPE, protobuf);
        let answer = self.http.request(post).await;
        let answer = answer.map_err(|error| SendError::new(&of_chain(&error), true))?;
        let status = answer.status();
        if !status.is_success() {
            let may_pass = matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS
                    | StatusCode::BAD_GATEWAY
                    | StatusCode::SERVICE_UNAVAILABLE
                    | StatusCode::GATEWAY_TIMEOUT
            );
            return Err(SendError::new(&status.to_string(), may_pass));
        }
        let body = Limited::new(answer.into_body(), ANSWER_MAX).collect().await;
        let body = body.map_err(|error| SendError::new(&error.to_string(), true))?;
        let decoded = <M::Answer as prost::Message>::decode(body.to_bytes());
        decoded.map_err(|error| SendError::new(&error.to_string(), false))
    }
}

impl SendError {
    fn new(why: &str, may_pass: bool) -> Self {
        Self {
            why: printable(truncated(why, DETAIL_MAX)),
            may_pass,
        }
    }
}

/// An error and what it comes from.
fn of_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    let texts: Vec<String> = causes.map(ToString::to_string).collect();
    texts.join(": ")
}
