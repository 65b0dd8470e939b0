//! The socket under a connection, and whether bytes move through it.
//!
//! A slow link is not a dead one: a reply may take long for its size, and a deadline must not cut it off.
//! So a deadline counts from the last byte that moved: one that arrived, or one that the peer has made room
//! for. A byte that only went into an empty buffer of this machine says nothing about the peer.

use std::io;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use redis::ConnectionAddr;
use redis::io::tcp::socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_util::io::poll_read_buf;

use super::entries::Intake;
use crate::names::Names;

/// After how long a silent peer is probed, how often, and how many probes it may miss.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// How many bytes may wait in this machine for a slow link. With more, nothing would show for too long
/// whether the peer takes them.
const UNSENT_MAX: u32 = 64 << 10;
/// The most questions for names of servers that are under way.
const QUESTIONS: usize = 16;

/// How long a server that hung up is listened to.
const CROWDED_AFTER: Duration = Duration::from_millis(500);

/// A connection to a server, of any kind.
pub(super) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Socket for S {}

/// Connect to the server, through TLS if `tls` is given.
pub(super) async fn connect(
    address: &ConnectionAddr,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<Box<dyn Socket>> {
    let (host, port) = match address {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => (host, port),
        ConnectionAddr::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    let stream = connect_tcp(host, *port).await?;
    let Some(tls) = tls else {
        return Ok(Box::new(stream));
    };
    let name = ServerName::try_from(host.clone());
    let name = name.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let secured = TlsConnector::from(tls).connect(name, stream).await?;
    Ok(Box::new(secured))
}

/// Whether the server hangs up because it has too many connections. It says so before it reads: a request that meets this
/// discards the answer, so this connection asks nothing.
pub(super) async fn is_crowded(address: &ConnectionAddr) -> bool {
    if matches!(address, ConnectionAddr::TcpTls { .. }) {
        return false;
    }
    let listen = async {
        let mut words = [0; 64];
        let read = connect(address, None)
            .await
            .ok()?
            .read(&mut words)
            .await
            .ok()?;
        let words = String::from_utf8_lossy(words.get(..read)?).into_owned();
        Some(words.contains("max number of clients"))
    };
    let heard = tokio::time::timeout(CROWDED_AFTER, listen).await;
    heard.ok().flatten().unwrap_or(false)
}

/// Connect to the first address of this name that answers: one that is dead holds up none of the others.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    static NAMES: LazyLock<Names> = LazyLock::new(|| Names::system(QUESTIONS));
    let mut addresses = NAMES.addresses(host).await?;
    addresses
        .iter_mut()
        .for_each(|address| address.set_port(port));
    if addresses.is_empty() {
        return Err(io::Error::other("the name has no address"));
    }
    let tries = addresses.into_iter().map(TcpStream::connect).map(Box::pin);
    let (stream, _) = futures_util::future::select_ok(tries).await?;
    stream.set_nodelay(true)?;
    let (idle, interval, retries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new()
        .with_time(idle)
        .with_interval(interval)
        .with_retries(retries);
    let socket = SockRef::from(&stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_MAX)?;
    Ok(stream)
}

/// What has moved through a socket.
#[derive(Debug)]
pub(super) struct Progress {
    begun: Instant,
    /// When the last byte moved, in ms since the beginning.
    moved_ms: AtomicU64,
    /// How many bytes have arrived.
    received: AtomicU64,
    /// How it ended, if nothing can be read any more.
    broke: OnceLock<Broke>,
}

/// How a socket ended.
#[derive(Debug)]
pub(super) enum Broke {
    /// With this error. That of TLS says what is wrong with a certificate.
    Failed(String),
    /// The peer hung up, and had not sent a byte.
    Silent,
    /// The peer hung up.
    Closed,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            moved_ms: AtomicU64::new(0),
            received: AtomicU64::new(0),
            broke: OnceLock::new(),
        }
    }

    /// How it ended, if it has.
    pub(super) fn broke(&self) -> Option<&Broke> {
        self.broke.get()
    }

    /// Note how a read ended it. The first end counts.
    fn ended(&self, error: Option<&io::Error>) {
        let is_silent = self.received() == 0;
        let broke = match error {
            Some(error) if is_silent && is_hung_up(error) => Broke::Silent,
            Some(error) => Broke::Failed(error.to_string()),
            None if is_silent => Broke::Silent,
            None => Broke::Closed,
        };
        // It was set before, at the first end.
        drop(self.broke.set(broke));
    }

    /// How many bytes have arrived.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Wait for this for as long as bytes move; `None` once none has moved for this time.
    pub(super) async fn wait_for<T>(
        &self,
        silence: Duration,
        work: impl Future<Output = T>,
    ) -> Option<T> {
        let since = Instant::now();
        let until = || since.max(self.last()) + silence;
        let mut work = pin!(work);
        loop {
            if let Ok(done) = timeout_at(until(), &mut work).await {
                return Some(done);
            }
            if until() <= Instant::now() {
                return None;
            }
        }
    }

    fn last(&self) -> Instant {
        self.begun + Duration::from_millis(self.moved_ms.load(Ordering::Relaxed))
    }

    fn arrived(&self, bytes: usize) {
        if bytes > 0 {
            self.moved();
            self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        }
    }

    fn moved(&self) {
        let ms = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_ms.store(ms, Ordering::Relaxed);
    }
}

/// The room for bytes that arrive of a reply with entries.
const ARRIVING: usize = 64 << 10;

/// A socket that notes its progress, and takes entries out of replies.
pub(super) struct Watched {
    socket: Box<dyn Socket>,
    progress: Arc<Progress>,
    intake: Arc<Intake>,
    /// What has arrived of a reply with entries.
    arrived: BytesMut,
    /// What the client library gets in its place.
    answer: Bytes,
    /// The last bytes to write had to wait.
    is_full: bool,
    /// The peer takes nothing more.
    is_closed: bool,
}

impl Watched {
    pub(super) fn new(
        socket: Box<dyn Socket>,
        progress: Arc<Progress>,
        intake: Arc<Intake>,
    ) -> Self {
        Self {
            socket,
            progress,
            intake,
            arrived: BytesMut::new(),
            answer: Bytes::new(),
            is_full: false,
            is_closed: false,
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        loop {
            if !this.answer.is_empty() {
                let fitting = buffer.remaining().min(this.answer.len());
                buffer.put_slice(&this.answer[..fitting]);
                this.answer.advance(fitting);
                return Poll::Ready(Ok(()));
            }
            let socket = Pin::new(&mut this.socket);
            if !this.intake.is_wanted() {
                if this.intake.is_lost() {
                    return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
                }
                let before = buffer.filled().len();
                let polled = socket.poll_read(context, buffer);
                let read = buffer.filled().len() - before;
                this.progress.arrived(read);
                match &polled {
                    Poll::Ready(Ok(())) if read == 0 => this.progress.ended(None),
                    Poll::Ready(Err(error)) => this.progress.ended(Some(error)),
                    _ => {}
                }
                return polled;
            }
            this.arrived.reserve(ARRIVING);
            let read = ready!(poll_read_buf(socket, context, &mut this.arrived))?;
            if read == 0 {
                return Poll::Ready(Ok(()));
            }
            // The client library's own buffer has none of them.
            this.progress.moved();
            let answer = this.intake.take(&mut this.arrived);
            let answer = answer.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error));
            this.answer = answer?.unwrap_or_default();
        }
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_closed {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.socket).poll_write(context, bytes);
        match &polled {
            Poll::Pending => self.is_full = true,
            Poll::Ready(Ok(written)) => {
                if self.is_full && *written > 0 {
                    self.progress.moved();
                }
                self.is_full = *written < bytes.len();
            }
            // A server that refuses what it reads says why before it hangs up. Reading brings that, and
            // then the end.
            Poll::Ready(Err(error)) if is_hung_up(error) => {
                self.is_closed = true;
                return Poll::Ready(Ok(bytes.len()));
            }
            Poll::Ready(Err(_)) => {}
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_closed {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}

fn is_hung_up(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    matches!(error.kind(), BrokenPipe | ConnectionReset)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    /// How long a peer may be silent in these tests. Its steps are short, and take longer together.
    const SILENCE: Duration = Duration::from_secs(2);
    const STEP: Duration = Duration::from_millis(50);
    const STEPS: usize = 60;

    fn watched(buffer: usize) -> (Watched, tokio::io::DuplexStream, Arc<Progress>) {
        let (here, there) = duplex(buffer);
        let progress = Arc::new(Progress::new());
        let watched = Watched::new(Box::new(here), Arc::clone(&progress), Arc::default());
        (watched, there, progress)
    }

    #[tokio::test]
    async fn a_reply_may_take_as_long_as_its_bytes_flow() {
        let (mut here, mut there, progress) = watched(64);
        let answer = tokio::spawn(async move {
            for _ in 0..STEPS {
                tokio::time::sleep(STEP).await;
                there.write_all(b"x").await.unwrap();
            }
            there
        });
        let mut bytes = [0; STEPS];
        let read = progress.wait_for(SILENCE, here.read_exact(&mut bytes));
        assert!(read.await.is_some());
        assert_eq!(progress.received(), STEPS as u64);
        // The peer is silent from now on.
        let _there = answer.await.unwrap();
        let read = progress.wait_for(STEP, here.read_exact(&mut bytes));
        assert!(read.await.is_none());
    }

    #[tokio::test]
    async fn a_request_may_take_as_long_as_its_peer_takes_bytes() {
        let (mut here, mut there, progress) = watched(4);
        let peer = tokio::spawn(async move {
            let mut bytes = [0; 4];
            for _ in 0..STEPS {
                tokio::time::sleep(STEP).await;
                there.read_exact(&mut bytes).await.unwrap();
            }
            there
        });
        let write = progress.wait_for(SILENCE, here.write_all(&[0; 4 * STEPS]));
        assert!(write.await.is_some());
        // Bytes that an empty buffer takes are no sign of the peer.
        let _there = peer.await.unwrap();
        let write = async {
            for _ in 0..4 {
                tokio::time::sleep(SILENCE / 4).await;
                here.write_all(b"x").await.unwrap();
            }
            std::future::pending::<()>().await;
        };
        let begun = Instant::now();
        assert!(progress.wait_for(SILENCE, write).await.is_none());
        assert!(begun.elapsed() < 2 * SILENCE - SILENCE / 4);
    }

    #[tokio::test]
    async fn what_a_peer_said_before_it_hung_up_is_read() {
        let (here, mut there) = UnixStream::pair().unwrap();
        let mut here = Watched::new(Box::new(here), Arc::new(Progress::new()), Arc::default());
        there.write_all(b"because").await.unwrap();
        drop(there);
        here.write_all(&[0; 1 << 20]).await.unwrap();
        let mut said = Vec::new();
        here.read_to_end(&mut said).await.unwrap();
        assert_eq!(said, b"because");
    }
}
