//! `hostler:handler/http`: one blocking function, and `wasi:http` behind the same grant.

mod wasi;

use std::time::Duration;

use bytes::Bytes;
use http_body::Body as _;
use http_body_util::{BodyExt, Empty, Full};
use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource};
use wasmtime_wasi_http::WasiHttpView;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest, Method, OutgoingRequest};

use crate::grants::http::provider::{Body, HttpError, HttpRequest};
use crate::sandbox::host::Host;
use crate::sandbox::ungranted::{Store, VERSION};

/// The version that wasmtime links: the same name replaces its functions.
const TYPES: &str = "wasi:http/types@0.2.12";

/// The longest method, and the longest authority: a name, a port, and what is refused later.
const METHOD_MAX: usize = 64;
const AUTHORITY_MAX: usize = 1 << 10;

/// `http.request`.
#[derive(ComponentType, Lift)]
#[component(record)]
struct Request {
    method: String,
    url: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
    #[component(name = "timeout-ms")]
    timeout_ms: Option<u32>,
}

/// `http.error`.
#[derive(ComponentType, Lower)]
#[component(variant)]
enum Error {
    #[component(name = "denied")]
    Denied(String),
    #[component(name = "dns")]
    Dns(String),
    #[component(name = "connect")]
    Connect(String),
    #[component(name = "tls")]
    Tls(String),
    #[component(name = "timeout")]
    Timeout,
    #[component(name = "too-large")]
    TooLarge(u64),
    #[component(name = "protocol")]
    Protocol(String),
}

impl From<HttpError> for Error {
    fn from(error: HttpError) -> Self {
        match error {
            HttpError::Denied(why) => Self::Denied(why),
            HttpError::Dns(why) => Self::Dns(why),
            HttpError::Connect(why) => Self::Connect(why),
            HttpError::Tls(why) => Self::Tls(why),
            HttpError::Timeout => Self::Timeout,
            HttpError::TooLarge(max) => Self::TooLarge(max),
            HttpError::Protocol(why) => Self::Protocol(why),
            // The variant is older: guests know no more than that there is no connection.
            closed @ HttpError::Closed(_) => Self::Connect(closed.to_string()),
        }
    }
}

/// `http.response`.
#[derive(ComponentType, Lower)]
#[component(record)]
struct Response {
    status: u16,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

pub(in crate::grants) fn link(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    requests(linker)?;
    let mut interface = linker.instance(&format!("hostler:handler/http@{VERSION}"))?;
    interface.func_wrap_async("fetch", |store: Store<'_>, (request,): (Request,)| {
        let requests = store.data().scope().and_then(|scope| scope.http());
        Box::new(async move {
            let response = async {
                let requests = requests.map_err(HttpError::Denied)?;
                collect(requests.send(request.into()).await?).await
            };
            Ok((response.await.map_err(Error::from),))
        })
    })
}

/// Texts of requests of `wasi:http`, which the host holds, have a bounded length. wasmtime bounds the path.
fn requests(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.allow_shadowing(true);
    let mut interface = linker.instance(TYPES)?;
    interface.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: Store<'_>, (request, method): (Resource<OutgoingRequest>, Method)| {
            if matches!(&method, Method::Other(other) if other.len() > METHOD_MAX) {
                return Ok((Err(()),));
            }
            let mut http = store.data_mut().http();
            Ok((HostOutgoingRequest::set_method(&mut http, request, method)?,))
        },
    )?;
    interface.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: Store<'_>,
         (request, authority): (Resource<OutgoingRequest>, Option<String>)| {
            if authority
                .as_ref()
                .is_some_and(|text| text.len() > AUTHORITY_MAX)
            {
                return Ok((Err(()),));
            }
            let mut http = store.data_mut().http();
            Ok((HostOutgoingRequest::set_authority(
                &mut http, request, authority,
            )?,))
        },
    )?;
    linker.allow_shadowing(false);
    Ok(())
}

/// The whole response. The provider bounds its size. Its body is copied: a part of it, perhaps of one byte, would hold
/// the buffer that it came in.
async fn collect(response: http::Response<Body>) -> Result<Response, HttpError> {
    let (parts, mut parts_of_body) = response.into_parts();
    let expected = parts_of_body.size_hint().exact().unwrap_or_default();
    let mut body = Vec::with_capacity(usize::try_from(expected).unwrap_or_default());
    while let Some(frame) = parts_of_body.frame().await {
        if let Some(data) = frame?.data_ref() {
            body.extend_from_slice(data);
        }
    }
    let headers = parts.headers.iter();
    Ok(Response {
        status: parts.status.as_u16(),
        headers: headers
            .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().to_vec()))
            .collect(),
        body,
    })
}

impl From<Request> for HttpRequest {
    fn from(request: Request) -> Self {
        let never = |never: std::convert::Infallible| match never {};
        Self {
            method: request.method,
            url: request.url,
            headers: request
                .headers
                .into_iter()
                .map(|(name, value)| (name, Bytes::from(value)))
                .collect(),
            body: match request.body {
                Some(body) => Body::new(Full::from(body).map_err(never)),
                None => Body::new(Empty::new().map_err(never)),
            },
            timeout: request
                .timeout_ms
                .map(|ms| Duration::from_millis(ms.into())),
        }
    }
}
