//! `wasi:http/outgoing-handler`: the standard interface, on top of the provider.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http::uri::Scheme;
use http_body_util::BodyExt;
use tokio::time::timeout;
use wasmtime_wasi_http::{
    Error, RequestOptions, Result, WasiBody, WasiHttpCtx, WasiHttpCtxView, WasiHttpHooks,
    WasiHttpView,
};

use crate::grants::http::provider::{Body, HttpError, HttpRequest};
use crate::grants::http::requests::Requests;
use crate::sandbox::host::Host;
use crate::sandbox::limits::Limits;

/// Bytes of one write to the body of a request. The host keeps up to two for each body.
const CHUNK: usize = 16 << 10;

/// Bytes of a resource `fields`, at least and at most.
const FIELDS: (usize, usize) = (2 << 10, 128 << 10);

/// How much more memory `fields` take than what is counted, at most: a short header takes 72 bytes of the count and
/// up to 280 of memory.
const HELD: usize = 4;

/// The state of an instance. All its `fields` together have as many bytes as its memory at most.
fn context(limits: &Limits) -> WasiHttpCtx {
    let each = limits.memory / limits.handles.max(1) / HELD;
    let mut context = WasiHttpCtx::new();
    context.set_field_size_limit(each.clamp(FIELDS.0, FIELDS.1));
    context
}

/// The state of the interface during an attempt.
struct State {
    context: WasiHttpCtx,
    hooks: Hooks,
}

impl WasiHttpView for Host {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        let (state, table) = self.state(|host| State {
            context: context(host.limits()),
            hooks: Hooks {
                requests: host.scope().and_then(|scope| scope.http()).ok(),
            },
        });
        WasiHttpCtxView {
            ctx: &mut state.context,
            table,
            hooks: &mut state.hooks,
        }
    }
}

/// Sends what the guest sends through the interface.
struct Hooks {
    /// The requests of the attempt.
    requests: Option<Arc<Requests>>,
}

/// A request in flight that only its response or its failure ends.
type Sending<T> = Box<dyn Future<Output = Result<T>> + Send>;

impl WasiHttpHooks for Hooks {
    fn set_host_header(&mut self) -> bool {
        // The provider sets it, from the URL that it has checked.
        false
    }

    fn default_scheme(&mut self) -> Option<Scheme> {
        Some(Scheme::HTTPS)
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Sending<()>,
    ) -> Sending<(http::Response<WasiBody>, Sending<()>)> {
        // Numbered now: the futures run in any order.
        let sending = self
            .requests
            .clone()
            .map(|requests| requests.send(read(request)));
        Box::new(async move {
            // The interface is linked only where it is granted.
            let sending = sending.ok_or(Error::HttpRequestDenied)?;
            let first_byte = options.and_then(|options| options.first_byte_timeout);
            let response = timeout(first_byte.unwrap_or(Duration::MAX), sending)
                .await
                .map_err(|_| Error::HttpResponseTimeout)??;
            let response = response.map(|body| body.map_err(Error::from).boxed_unsync());
            let processed: Sending<()> = Box::new(async { Ok(()) });
            Ok((response, processed))
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        CHUNK
    }
}

fn read(request: Request<WasiBody>) -> HttpRequest {
    let (parts, body) = request.into_parts();
    let headers = parts.headers.iter();
    HttpRequest {
        method: parts.method.as_str().to_owned(),
        url: parts.uri.to_string(),
        headers: headers
            .map(|(name, value)| {
                let value = Bytes::copy_from_slice(value.as_bytes());
                (name.as_str().to_owned(), value)
            })
            .collect(),
        body: Body::new(body.map_err(|error| HttpError::Protocol(error.to_string()))),
        timeout: None,
    }
}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Denied(_) => Self::HttpRequestDenied,
            HttpError::Dns(_) => Self::DestinationNotFound,
            HttpError::Connect(_) | HttpError::Closed(_) => Self::DestinationUnavailable,
            HttpError::Tls(_) => Self::TlsProtocolError,
            HttpError::Timeout => Self::HttpResponseTimeout,
            HttpError::TooLarge(max) => Self::HttpResponseBodySize(Some(max)),
            HttpError::Protocol(_) => Self::HttpProtocolError,
        }
    }
}
