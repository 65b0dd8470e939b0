//! A server in this process that stands in for every other one: what a test of a handler talks to. The rules
//! apply to its requests, and nothing leaves the process.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::DuplexStream;

/// The buffer of a connection.
const BUFFER: usize = 64 << 10;
/// The largest body of a request: more than a handler's memory holds by default.
const BODY_MAX: usize = 64 << 20;

/// A request, as a handler has sent it.
#[derive(Debug)]
pub struct Asked {
    /// `POST https://example.com/charges`
    pub line: String,
    /// The body.
    pub body: Bytes,
}

/// Answers the requests to all servers.
pub type Answering = Arc<dyn Fn(Asked) -> Response<Bytes> + Send + Sync>;

/// Open a connection to the server of this URL. Must be called in a runtime.
pub(super) fn connect(answering: &Answering, uri: &Uri) -> DuplexStream {
    let (client, server) = tokio::io::duplex(BUFFER);
    let scheme = uri.scheme_str().unwrap_or("http").to_owned();
    let answering = Arc::clone(answering);
    tokio::spawn(async move {
        let service = service_fn(|request| answer(&answering, &scheme, request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(server), service);
        // A client may close its connection at any time.
        drop(connection.await);
    });
    client
}

async fn answer(
    answering: &Answering,
    scheme: &str,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let host = String::from_utf8_lossy(host.unwrap_or_default()).into_owned();
    let line = format!("{} {scheme}://{host}{}", request.method(), request.uri());
    let body = Limited::new(request.into_body(), BODY_MAX).collect().await;
    let body = body.map_or_else(|_| Bytes::new(), http_body_util::Collected::to_bytes);
    Ok(answering(Asked { line, body }).map(Full::new))
}
