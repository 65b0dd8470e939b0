//! Connections of one rule: DNS answers, then the address is checked, and exactly that address is
//! connected to.

use std::fmt::Display;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tower_service::Service;

use super::provider::HttpError;
use super::stand_in::{self, Answering};
use crate::grants::network::names::{Unreachable, allowed, ask, bounded, known_address};
use crate::grants::network::reach::{HostPattern, Reach, address_of};
use crate::redis::names::Names;

/// The longest time for one of several addresses. The request has its own deadline.
const ONE_ADDRESS: Duration = Duration::from_secs(2);

impl From<Unreachable> for HttpError {
    fn from(error: Unreachable) -> Self {
        match error {
            Unreachable::Dns(why) => Self::Dns(why),
            Unreachable::Denied(why) => Self::Denied(why),
        }
    }
}

/// Makes the connections of one rule.
#[derive(Clone)]
pub(super) struct Connector(pub(super) Arc<Line>);

/// What the connections of one rule have in common.
pub(super) struct Line {
    pub(super) pattern: HostPattern,
    pub(super) reach: Reach,
    pub(super) tls: Option<TlsConnector>,
    pub(super) connections: Arc<Semaphore>,
    pub(super) names: Names,
    /// Answers instead of every server.
    pub(super) answering: Option<Answering>,
}

impl Service<Uri> for Connector {
    type Response = Pin<Wire>;
    type Error = HttpError;
    type Future = BoxFuture<'static, Result<Pin<Wire>, HttpError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), HttpError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let line = Arc::clone(&self.0);
        Box::pin(async move { line.connect(&uri).await })
    }
}

impl Line {
    async fn connect(&self, uri: &Uri) -> Result<Pin<Wire>, HttpError> {
        let wrong = |what: &str| HttpError::Connect(format!("{what} is missing"));
        let host = uri.host().ok_or_else(|| wrong("the host"))?;
        let host = url::Host::parse(host).map_err(|error| HttpError::Dns(error.to_string()))?;
        let default = if self.tls.is_some() { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(default);
        let permit = Arc::clone(&self.connections)
            .acquire_owned()
            .await
            .map_err(|_| wrong("the pool"))?;
        if let Some(answering) = &self.answering {
            return Ok(Wire::new(stand_in::connect(answering, uri), permit));
        }
        let found = match known_address(&self.reach, &host) {
            Some(address) => vec![address],
            None => ask(&self.names, &host).await?,
        };
        let addresses = allowed(&found, &self.pattern, &self.reach)?;
        let stream = dial(&addresses, port).await?;
        // Small requests leave at once.
        drop(stream.set_nodelay(true));
        let Some(tls) = &self.tls else {
            return Ok(Wire::new(stream, permit));
        };
        let failed = |error: &dyn Display| HttpError::Tls(bounded(&error.to_string()));
        let name = match address_of(&host) {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(host.to_string()).map_err(|error| failed(&error))?,
        };
        let stream = tls.connect(name, stream).await;
        let stream = stream.map_err(|error| failed(&error))?;
        Ok(Wire::new(stream, permit))
    }
}

/// Connect to the first of these addresses that answers.
async fn dial(addresses: &[IpAddr], port: u16) -> Result<TcpStream, HttpError> {
    let mut problem = String::new();
    for (index, address) in addresses.iter().enumerate() {
        let address = SocketAddr::new(*address, port);
        let connecting = TcpStream::connect(address);
        let connected = match index + 1 == addresses.len() {
            true => connecting.await,
            false => tokio::time::timeout(ONE_ADDRESS, connecting)
                .await
                .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
        };
        match connected {
            Ok(stream) => return Ok(stream),
            Err(error) => problem = error.to_string(),
        }
    }
    Err(HttpError::Connect(bounded(&problem)))
}

/// A stream of any kind.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {
    /// Whether both sides have agreed on HTTP/2.
    fn is_h2(&self) -> bool {
        false
    }
}

impl Duplex for TcpStream {}
impl Duplex for DuplexStream {}

impl Duplex for TlsStream<TcpStream> {
    fn is_h2(&self) -> bool {
        self.get_ref().1.alpn_protocol() == Some(b"h2")
    }
}

/// The most bytes that a connection reads in one turn of its task.
const TURN: usize = 16 << 10;

/// A stream that lets other tasks have their turn after it has read `TURN` bytes. A few bytes of a server may stand
/// for far more memory until the task that waits for them has seen them: answers before the answer (`103`), by HTTP/2.
pub(super) struct Turns {
    stream: Box<dyn Duplex>,
    left: usize,
}

impl AsyncRead for Turns {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            self.left = TURN;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        self.left = match read {
            Poll::Pending => TURN,
            Poll::Ready(_) => self.left.saturating_sub(buffer.filled().len() - before),
        };
        read
    }
}

impl AsyncWrite for Turns {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// A connection: a pointer to its stream, which reads and writes in its place when it is pinned. It counts
/// against its rule until it is closed.
pub(super) struct Wire {
    io: TokioIo<Turns>,
    _permit: OwnedSemaphorePermit,
}

impl Wire {
    fn new(stream: impl Duplex + 'static, permit: OwnedSemaphorePermit) -> Pin<Self> {
        let stream = Box::new(stream);
        Pin::new(Self {
            io: TokioIo::new(Turns { stream, left: TURN }),
            _permit: permit,
        })
    }
}

impl Deref for Wire {
    type Target = TokioIo<Turns>;

    fn deref(&self) -> &Self::Target {
        &self.io
    }
}

impl DerefMut for Wire {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.io
    }
}

impl Connection for Pin<Wire> {
    fn connected(&self) -> Connected {
        match self.inner().stream.is_h2() {
            true => Connected::new().negotiated_h2(),
            false => Connected::new(),
        }
    }
}
