//! HTTP servers of a test, on addresses of this machine: one that behaves in every way that its paths
//! ask for, byte for byte, and one with TLS and HTTP/2.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The request line and the headers.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Seen {
    /// The target of the request line.
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// How many requests to `/place/N` are served at a time.
pub const PLACES: usize = 20;

/// What became of the requests to `/place/N`.
#[derive(Debug, Default)]
pub struct Places {
    taken: AtomicUsize,
    served: AtomicUsize,
    refused: AtomicUsize,
    away: AtomicUsize,
}

impl Places {
    /// Answered with 200.
    pub fn served(&self) -> usize {
        self.served.load(Ordering::Relaxed)
    }

    /// Answered with 429.
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// Answered with 503.
    pub fn away(&self) -> usize {
        self.away.load(Ordering::Relaxed)
    }

    async fn serve(&self, time: Duration, is_away: bool) -> u16 {
        let (status, count) = if is_away {
            (503, &self.away)
        } else if self.taken.fetch_add(1, Ordering::Relaxed) < PLACES {
            tokio::time::sleep(time).await;
            self.taken.fetch_sub(1, Ordering::Relaxed);
            (200, &self.served)
        } else {
            self.taken.fetch_sub(1, Ordering::Relaxed);
            (429, &self.refused)
        };
        count.fetch_add(1, Ordering::Relaxed);
        status
    }
}

/// A server that answers by the path of a request: `/ok`, `/echo` (the head of the request),
/// `/body` (its body), `/status/N`, `/size/N`, `/to?URL` (a redirect), `/never`, `/endless`,
/// `/endless-head`, `/trickle` (a byte at a time), `/after/N` (N milliseconds later), `/garbage`, `/cut` (fewer bytes than announced),
/// `/gzip`, `/gate` (503 while [`Web::away`] says so), `/bearer/TOKEN` (401 for another `authorization`), `/pause/N` (503 with
/// `retry-after: N` while it is away), `/place/N` (takes one of [`PLACES`] for N milliseconds; 429 if there is none, 503 while it is away).
#[derive(Debug)]
pub struct Web {
    address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    away: Arc<AtomicBool>,
    places: Arc<Places>,
    connections: Arc<AtomicUsize>,
    open: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for Web {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Web {
    /// On 127.0.0.1.
    pub async fn start() -> Self {
        Self::at("127.0.0.1:0").await
    }

    /// On this address.
    ///
    /// # Panics
    ///
    /// If it cannot listen there.
    pub async fn at(address: &str) -> Self {
        let listener = TcpListener::bind(address).await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let seen = Arc::<Mutex<Vec<Seen>>>::default();
        let (connections, open) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (away, places) = (Arc::<AtomicBool>::default(), Arc::<Places>::default());
        let all = (
            (Arc::clone(&seen), Arc::clone(&away), Arc::clone(&places)),
            Arc::clone(&connections),
            Arc::clone(&open),
        );
        let accepting = tokio::spawn(async move {
            let ((seen, away, places), connections, open) = all;
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::Relaxed);
                open.fetch_add(1, Ordering::Relaxed);
                let (seen, open) = (Arc::clone(&seen), Arc::clone(&open));
                let (away, places) = (Arc::clone(&away), Arc::clone(&places));
                tokio::spawn(async move {
                    serve(stream, &seen, &away, &places).await;
                    open.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self {
            address,
            seen,
            away,
            places,
            connections,
            open,
            accepting,
        }
    }

    /// What became of the requests to `/place/N`.
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Whether `/gate`, `/pause/N` and `/place/N` answer with 503 from now on.
    pub fn away(&self, is_away: bool) {
        self.away.store(is_away, Ordering::Relaxed);
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Its address.
    pub fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    /// The requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// How many requests there were so far.
    pub fn requests(&self) -> usize {
        self.seen
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// The connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// The connections that are open.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

async fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Seen>>, away: &AtomicBool, places: &Places) {
    let mut buffer = Vec::new();
    while let Some(request) = read(&mut stream, &mut buffer).await {
        let target = request.target().to_owned();
        seen.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request.clone());
        let away = (away.load(Ordering::Relaxed), places);
        if answer(&mut stream, &target, &request, away).await.is_none() {
            return;
        }
    }
}

async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break end;
        }
        more(stream, buffer).await?;
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    buffer.drain(..end + 4);
    let mut seen = Seen {
        head,
        body: Vec::new(),
    };
    if seen.header("transfer-encoding").is_some() {
        let (body, used) = loop {
            match unchunked(buffer) {
                Some(whole) => break whole,
                None => more(stream, buffer).await?,
            }
        };
        buffer.drain(..used);
        seen.body = body;
        return Some(seen);
    }
    let length = seen.header("content-length").and_then(|n| n.parse().ok());
    let length: usize = length.unwrap_or(0);
    while buffer.len() < length {
        more(stream, buffer).await?;
    }
    seen.body = buffer.drain(..length).collect();
    Some(seen)
}

async fn more(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<()> {
    (stream.read_buf(buffer).await.ok()? > 0).then_some(())
}

/// A whole chunked body, and the bytes that it has on the wire.
fn unchunked(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = bytes[at..].windows(2).position(|pair| pair == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[at..at + line]).ok()?;
        let size = usize::from_str_radix(size, 16).ok()?;
        at += line + 2;
        body.extend_from_slice(bytes.get(at..at + size)?);
        at += size + 2;
        if size == 0 {
            return (bytes.len() >= at).then_some((body, at));
        }
    }
}

/// Answer a request. `None` = the connection is over.
async fn answer(
    stream: &mut TcpStream,
    target: &str,
    request: &Seen,
    (is_away, places): (bool, &Places),
) -> Option<()> {
    let whole = |status: u16, headers: &str, body: &[u8]| {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n");
        [head.as_bytes(), body].concat()
    };
    let path = target.split('?').next().unwrap_or_default();
    let number = |begin| path.strip_prefix(begin)?.parse::<usize>().ok();
    let reply = match path {
        "/echo" => whole(200, "", request.head.as_bytes()),
        "/body" => whole(200, "", &request.body),
        "/gate" if is_away => whole(503, "", b"away"),
        "/to" => {
            let to = target.split_once('?').map_or("", |(_, to)| to);
            whole(302, &format!("location: {to}\r\n"), b"elsewhere")
        }
        "/never" => {
            // Until the client goes.
            while more(stream, &mut Vec::new()).await.is_some() {}
            return None;
        }
        "/endless" => {
            let head = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.ok()?;
            let chunk = [b"4000\r\n", &[b'x'; 0x4000][..], b"\r\n"].concat();
            loop {
                stream.write_all(&chunk).await.ok()?;
            }
        }
        "/endless-head" => {
            stream.write_all(b"HTTP/1.1 200 X\r\n").await.ok()?;
            loop {
                stream
                    .write_all(b"x-more: yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\r\n")
                    .await
                    .ok()?;
            }
        }
        "/trickle" => {
            let head = b"HTTP/1.1 200 X\r\ncontent-length: 60000\r\n\r\n";
            stream.write_all(head).await.ok()?;
            loop {
                stream.write_all(b"x").await.ok()?;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        "/garbage" => {
            stream
                .write_all(b"SSH-2.0-OpenSSH_9.9\r\n\0\xff")
                .await
                .ok()?;
            return None;
        }
        "/cut" => {
            let head = b"HTTP/1.1 200 X\r\ncontent-length: 100\r\n\r\nabc";
            stream.write_all(head).await.ok()?;
            return None;
        }
        // 20 bytes that a client which decodes would blow up are enough to see that no client does.
        "/gzip" => whole(200, "content-encoding: gzip\r\n", b"\x1f\x8b\x08not really"),
        _ if path.starts_with("/bearer/") => {
            let wanted = path.replace("/bearer/", "Bearer ");
            let status = match request.header("authorization") == Some(&wanted) {
                true => 200,
                false => 401,
            };
            whole(status, "", b"login")
        }
        _ if path.starts_with("/pause/") && is_away => {
            let seconds = number("/pause/")?;
            whole(503, &format!("retry-after: {seconds}\r\n"), b"away")
        }
        _ if path.starts_with("/place/") => {
            let time = Duration::from_millis(u64::try_from(number("/place/")?).ok()?);
            whole(places.serve(time, is_away).await, "", b"place")
        }
        _ if path.starts_with("/after/") => {
            let late = u64::try_from(number("/after/")?).ok()?;
            tokio::time::sleep(Duration::from_millis(late)).await;
            whole(200, "", b"ok")
        }
        _ if path.starts_with("/bits/") => {
            let head = b"HTTP/1.1 200 X\r\ntransfer-encoding: chunked\r\n\r\n";
            stream.write_all(head).await.ok()?;
            // Parts of one byte.
            let parts = b"1\r\nx\r\n".repeat(4096);
            for _ in 0..number("/bits/")?.div_ceil(4096) {
                stream.write_all(&parts).await.ok()?;
            }
            stream.write_all(b"0\r\n\r\n").await.ok()?;
            return Some(());
        }
        _ if path.starts_with("/headers/") => {
            let headers = (0..number("/headers/")?).map(|n| format!("x{n}: y\r\n"));
            whole(200, &headers.collect::<String>(), b"ok")
        }
        _ => match (number("/status/"), number("/size/")) {
            (Some(status), _) => whole(u16::try_from(status).unwrap_or(500), "", b"status"),
            (_, Some(size)) => whole(200, "", &vec![b'x'; size]),
            (None, None) => whole(200, "", b"ok"),
        },
    };
    stream.write_all(&reply).await.ok()
}

/// TLS with a certificate for this name, and HTTP/2. The certificate of its authority is written to `ca`.
pub(crate) fn acceptor(name: &str, ca: &Path) -> TlsAcceptor {
    let mut params = CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = KeyPair::generate().expect("a key");
    let issuer = CertifiedIssuer::self_signed(params, authority).expect("a certificate");
    std::fs::write(ca, issuer.pem()).expect("the certificate is written");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
    let own = params.signed_by(&key, &issuer).expect("a certificate");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let private = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![own.der().clone()], private.into())
        .expect("a certificate and its key");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// A server with TLS, which speaks HTTP/2 if it is asked for. It answers with the version, the method
/// and the path of each request.
#[derive(Debug)]
pub struct SecureWeb {
    port: u16,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for SecureWeb {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl SecureWeb {
    /// On 127.0.0.1, with a certificate for this name. The certificate of its authority is written to
    /// `ca`.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn start(name: &str, ca: &Path) -> Self {
        let acceptor = acceptor(name, ca);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else {
                        return;
                    };
                    let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let answer = service_fn(|request: Request<hyper::body::Incoming>| async move {
                        let (version, method) = (request.version(), request.method().clone());
                        let text = format!("{version:?} {method} {}", request.uri().path());
                        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(text))))
                    });
                    // A client may close its connection at any time.
                    drop(server.serve_connection(TokioIo::new(stream), answer).await);
                });
            }
        });
        Self {
            port,
            connections,
            accepting,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// What a hostile server of HTTP/2 sends as its answer.
#[derive(Clone, Copy, Debug)]
pub enum Hostility {
    /// A body in parts of one byte, for ever.
    Bits,
    /// A body in parts that have no byte, for ever.
    Empty,
    /// A body that does not wait until the client may get more, for ever.
    Flood,
    /// As much of a body as the client may get unread, on all streams together.
    Window,
    /// Headers that never end.
    Continuations,
    /// A few bytes that stand for many headers.
    Bomb,
    /// Answers before the answer, for ever.
    Informational,
    /// Settings, for ever. It reads no reply.
    Settings,
    /// Pings, for ever. It reads no reply.
    Pings,
    /// Room for the client to send, for ever.
    Room,
    /// Requests that the client did not make, for ever.
    Promises,
}

impl Hostility {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Bits,
        Self::Empty,
        Self::Flood,
        Self::Window,
        Self::Continuations,
        Self::Bomb,
        Self::Informational,
        Self::Settings,
        Self::Pings,
        Self::Room,
        Self::Promises,
    ];

    /// What comes first on this stream, what comes again and again, and how often.
    fn frames(self, stream: u32) -> (Vec<u8>, Vec<u8>, usize) {
        // `:status: 200`, by its number.
        let head = frame(HEADERS, END_HEADERS, stream, &[0x88]);
        match self {
            Self::Bits => (head, frame(DATA, 0, stream, b"x"), usize::MAX),
            Self::Empty => (head, frame(DATA, 0, stream, b""), usize::MAX),
            Self::Flood => (head, frame(DATA, 0, stream, &[b'x'; 16 << 10]), usize::MAX),
            Self::Window => (head, frame(DATA, 0, stream, &[b'x'; 256]), 16),
            Self::Continuations => (
                frame(HEADERS, 0, stream, &[0x88]),
                // A header without an index: `x: y`.
                frame(CONTINUATION, 0, stream, &[0, 1, b'x', 1, b'y']),
                usize::MAX,
            ),
            Self::Bomb => {
                // A header of 3,000 bytes that gets the number 62, and then that number very often. A length above
                // 126 is written in seven bits at a time.
                let mut block = vec![0x88, 0x40, 1, b'x', 0x7f, 0xb9, 0x16];
                block.extend([b'y'; 3_000]);
                block.extend([0xbe; 12_000]);
                (frame(HEADERS, END_HEADERS, stream, &block), Vec::new(), 0)
            }
            // `:status: 103`.
            Self::Informational => (
                Vec::new(),
                frame(
                    HEADERS,
                    END_HEADERS,
                    stream,
                    &[8, 3, b'1', b'0', b'3', 0, 1, b'x', 1, b'y'],
                ),
                usize::MAX,
            ),
            Self::Settings => (
                head,
                frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]),
                usize::MAX,
            ),
            Self::Pings => (head, frame(PING, 0, 0, &[0; 8]), usize::MAX),
            Self::Room => (
                head,
                frame(WINDOW_UPDATE, 0, stream, &[0, 0, 0, 1]),
                usize::MAX,
            ),
            Self::Promises => (
                head,
                // `:method: GET`, `:scheme: https`, `:path: /`, and the next stream of the server.
                frame(
                    PUSH_PROMISE,
                    END_HEADERS,
                    stream,
                    &[0, 0, 0, 2, 0x82, 0x87, 0x84],
                ),
                usize::MAX,
            ),
        }
    }
}

// Kinds of frames, and a flag.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;
const END_HEADERS: u8 = 4;

/// A frame of HTTP/2.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("a frame is small");
    let mut frame = length.to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A server with TLS and HTTP/2 that answers each request in a hostile way.
#[derive(Debug)]
pub struct HostileWeb {
    port: u16,
    sent: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for HostileWeb {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl HostileWeb {
    /// On 127.0.0.1, with a certificate for this name. The certificate of its authority is written to `ca`.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn start(name: &str, ca: &Path, hostility: Hostility) -> Self {
        let acceptor = acceptor(name, ca);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let sent = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&sent);
        let accepting = tokio::spawn(async move {
            // They end with the server.
            let mut serving = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, counted) = (acceptor.clone(), Arc::clone(&counted));
                serving.spawn(async move {
                    if let Ok(stream) = acceptor.accept(stream).await {
                        // A client may close its connection at any time.
                        drop(be_hostile(stream, hostility, &counted).await);
                    }
                });
            }
        });
        Self {
            port,
            sent,
            accepting,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The bytes that it has sent.
    pub fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Serve a connection, until the client closes it.
async fn be_hostile(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    hostility: Hostility,
    sent: &AtomicUsize,
) -> std::io::Result<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).await?;
    // Its own settings, and that it knows those of the client.
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await?;
    stream.write_all(&frame(SETTINGS, 1, 0, &[])).await?;
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await?;
        let [_, a, b, kind, _, c @ ..] = head;
        let mut payload = vec![0; usize::from(u16::from_be_bytes([a, b]))];
        stream.read_exact(&mut payload).await?;
        if kind != HEADERS {
            continue;
        }
        let (first, again, count) = hostility.frames(u32::from_be_bytes(c));
        stream.write_all(&first).await?;
        // Some at a time, as they come out of a fast network.
        let times = (16 << 10) / again.len().max(1) + 1;
        let mut left = count;
        while left > 0 {
            let times = times.min(left);
            stream.write_all(&again.repeat(times)).await?;
            sent.fetch_add(again.len() * times, Ordering::Relaxed);
            left -= times;
        }
        stream.flush().await?;
    }
}

/// A server of lines, which answers each with `echo LINE`.
#[derive(Debug)]
pub struct LineServer {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
    accepting: JoinHandle<()>,
}

impl Drop for LineServer {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl LineServer {
    /// On 127.0.0.1.
    ///
    /// # Panics
    ///
    /// If it cannot listen.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let connections = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&connections);
        let accepting = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let mut line = Vec::new();
                    while more(&mut stream, &mut line).await.is_some() && !line.ends_with(b"\n") {}
                    let reply = [b"echo ", &line[..]].concat();
                    drop(stream.write_all(&reply).await);
                });
            }
        });
        Self {
            address,
            connections,
            accepting,
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}
