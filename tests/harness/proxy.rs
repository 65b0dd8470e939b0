//! A proxy between a host and its Redis that fails on demand: cuts, pauses, delays, small pieces,
//! replies that end early, and requests that are changed on the way. Over Unix sockets or TCP; random choices come from
//! a seed.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use fastrand::Rng;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// What one read takes at most.
const CHUNK: usize = 16 * 1024;

/// How the link behaves now.
#[derive(Clone, Debug, Default)]
struct Weather {
    /// Nothing passes, in either direction; nothing is lost.
    paused: bool,
    /// New connections are closed at once.
    refusing: bool,
    /// Each piece waits the first time, plus up to the second.
    delay: (Duration, Duration),
    /// Pieces have 1 to this number of bytes; 0 = as they come.
    pieces: usize,
    /// Connections of an earlier era are closed.
    era: u64,
    /// The requests of this number of first connections are held back.
    stalled: u64,
    /// How many bytes pass in a second, in each direction, all connections together; 0 = any number.
    rate: u64,
}

/// The way of bytes.
#[derive(Clone, Copy, Debug)]
enum Direction {
    Request,
    Reply,
}

/// A request that is waited for: armed until it is seen.
#[derive(Clone, Debug)]
struct Trap {
    needle: Vec<u8>,
    effect: Effect,
}

/// What happens to it.
#[derive(Clone, Copy, Debug)]
enum Effect {
    /// Its reply is cut after this number of bytes.
    Cut(u64),
    /// It is held back, with everything else.
    Pause,
}

#[derive(Debug)]
struct Shared {
    weather: watch::Sender<Weather>,
    /// The Unix socket of the server, if it has one.
    server: Mutex<PathBuf>,
    trap: Mutex<Option<Trap>>,
    /// Before which request a connection is closed; 0 = none.
    closing: AtomicU64,
    /// What requests say, and what reaches the server instead.
    rewrites: Mutex<Arc<Rewrites>>,
    random: Mutex<Rng>,
    /// When each direction has passed what it took, at its rate.
    free: [Mutex<Instant>; 2],
    connections: AtomicU64,
    sprung: AtomicU64,
    passed: AtomicU64,
}

type Rewrites = Vec<(Vec<u8>, Vec<u8>)>;

#[derive(Clone, Debug)]
enum Place {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// A running proxy; ended when dropped, with all its connections.
#[derive(Debug)]
pub struct Proxy {
    shared: Arc<Shared>,
    here: Place,
    serving: JoinHandle<()>,
    _dir: Option<TempDir>,
}

impl Proxy {
    /// In front of a server's Unix socket, on a socket of its own.
    ///
    /// # Errors
    /// What the system says.
    pub fn to_socket(server: &Path, seed: u64) -> io::Result<Self> {
        let dir = TempDir::with_prefix("proxy")?;
        let here = dir.path().join("proxy.sock");
        let listener = UnixListener::bind(&here)?;
        let shared = Shared::new(seed);
        *shared.server() = server.to_owned();
        let to = Arc::clone(&shared);
        let serving = tokio::spawn(serve(
            Arc::clone(&shared),
            async move || Ok(listener.accept().await?.0),
            async move || {
                let server = to.server().clone();
                UnixStream::connect(server).await
            },
        ));
        Ok(Self {
            shared,
            here: Place::Unix(here),
            serving,
            _dir: Some(dir),
        })
    }

    /// In front of a server's TCP port, on a free port of the loopback.
    ///
    /// # Errors
    /// What the system says.
    pub async fn to_port(server: u16, seed: u64) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let here = listener.local_addr()?;
        let shared = Shared::new(seed);
        let serving = tokio::spawn(serve(
            Arc::clone(&shared),
            async move || Ok(listener.accept().await?.0),
            async move || TcpStream::connect(("127.0.0.1", server)).await,
        ));
        Ok(Self {
            shared,
            here: Place::Tcp(here),
            serving,
            _dir: None,
        })
    }

    /// Where it listens, as a URL for a Redis client.
    #[must_use]
    pub fn url(&self) -> String {
        match &self.here {
            Place::Unix(path) => format!("unix://{}", path.display()),
            Place::Tcp(address) => format!("redis://{address}"),
        }
    }

    /// Lead new connections to the Unix socket of another server. Those that are open stay where they are.
    pub fn lead_to(&self, server: &Path) {
        *self.shared.server() = server.to_owned();
    }

    /// Close every connection, now. New ones are served.
    pub fn cut(&self) {
        self.shared.weather.send_modify(|weather| weather.era += 1);
    }

    /// Close each connection that is made from now on, or serve them again.
    pub fn refuse(&self, refusing: bool) {
        self.change(|weather| weather.refusing = refusing);
    }

    /// Let nothing pass, in either direction, and keep the connections open: a black hole.
    pub fn pause(&self) {
        self.change(|weather| weather.paused = true);
    }

    /// Let pass again what was held back, and what follows.
    pub fn resume(&self) {
        self.change(|weather| weather.paused = false);
    }

    /// Hold back whatever the connections that are open now ask. New ones are served: a client that
    /// gives one of those up is served at once, and its earlier requests come late.
    pub fn stall(&self) {
        let open = self.connections();
        self.change(|weather| weather.stalled = open);
    }

    /// Let pass what [`Proxy::stall`] has held back.
    pub fn release(&self) {
        self.change(|weather| weather.stalled = 0);
    }

    /// Hold each piece back for `base`, and up to `jitter` longer.
    pub fn delay(&self, base: Duration, jitter: Duration) {
        self.change(|weather| weather.delay = (base, jitter));
    }

    /// Pass `rate` bytes in a second, in each direction, all connections together: a slow link. 0 = any
    /// number.
    pub fn throttle(&self, rate: u64) {
        self.change(|weather| weather.rate = rate);
    }

    /// Pass pieces of 1 to `most` bytes; 0 = as they come.
    pub fn pieces(&self, most: usize) {
        self.change(|weather| weather.pieces = most);
    }

    /// Once: when a request with `needle` in it passes, let `reply_bytes` bytes of the server's answer through, and
    /// close the connection. The server has carried the request out by then.
    ///
    /// Answers that are still on their way to earlier requests on the same connection count, too.
    pub fn cut_reply(&self, needle: impl Into<Vec<u8>>, reply_bytes: u64) {
        self.set(needle, Effect::Cut(reply_bytes));
    }

    /// Once: the request number `n` from now on, of all connections together, does not reach the server: its
    /// connection is closed. Commands that a client sends at once are one request.
    pub fn close_at(&self, n: u64) {
        self.shared.closing.store(n, Ordering::SeqCst);
    }

    /// Forget a trap that has not sprung.
    pub fn disarm(&self) {
        *self.shared.trap() = None;
    }

    /// Once: when a request with `needle` in it comes, hold it back: [`Proxy::pause`].
    pub fn pause_at(&self, needle: impl Into<Vec<u8>>) {
        self.set(needle, Effect::Pause);
    }

    /// Let the server read `to` wherever a request says `from`. Requests that clients have sent before stay.
    pub fn rewrite(&self, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        let mut rewrites = self.shared.rewrites();
        let mut all = (**rewrites).clone();
        all.push((from.into(), to.into()));
        *rewrites = Arc::new(all);
    }

    /// Whether nothing passes.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.weather.borrow().paused
    }

    fn set(&self, needle: impl Into<Vec<u8>>, effect: Effect) {
        let needle = needle.into();
        *self.shared.trap() = Some(Trap { needle, effect });
    }

    /// How many connections were closed by [`Proxy::cut_reply`] and [`Proxy::close_at`].
    #[must_use]
    pub fn replies_cut(&self) -> u64 {
        self.shared.sprung.load(Ordering::SeqCst)
    }

    /// How many connections were served.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// How many bytes have passed, both directions together.
    #[must_use]
    pub fn bytes_passed(&self) -> u64 {
        self.shared.passed.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Weather)) {
        self.shared.weather.send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.cut();
        self.serving.abort();
    }
}

impl Shared {
    fn new(seed: u64) -> Arc<Self> {
        Arc::new(Self {
            weather: watch::Sender::new(Weather::default()),
            server: Mutex::default(),
            trap: Mutex::new(None),
            closing: AtomicU64::new(0),
            rewrites: Mutex::default(),
            random: Mutex::new(Rng::with_seed(seed)),
            free: [Instant::now(), Instant::now()].map(Mutex::new),
            connections: AtomicU64::new(0),
            sprung: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        })
    }

    fn server(&self) -> MutexGuard<'_, PathBuf> {
        self.server.lock().expect("nothing panics while it is held")
    }

    fn trap(&self) -> MutexGuard<'_, Option<Trap>> {
        self.trap.lock().expect("nothing panics while it is held")
    }

    fn rewrites(&self) -> MutexGuard<'_, Arc<Rewrites>> {
        let rewrites = self.rewrites.lock();
        rewrites.expect("nothing panics while it is held")
    }

    fn random_up_to(&self, most: u64) -> u64 {
        let mut random = self.random.lock().expect("nothing panics while it is held");
        random.u64(0..=most)
    }
}

async fn serve<C, S>(
    shared: Arc<Shared>,
    accept: impl AsyncFn() -> io::Result<C>,
    connect: impl AsyncFn() -> io::Result<S>,
) where
    C: AsyncRead + AsyncWrite + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    while let Ok(client) = accept().await {
        let refusing = shared.weather.borrow().refusing;
        // A server that is away hangs up, too.
        if !refusing && let Ok(server) = connect().await {
            let number = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
            tokio::spawn(pass(Arc::clone(&shared), number, client, server));
        }
    }
}

/// One connection, until either side ends or the weather says so.
async fn pass<C, S>(shared: Arc<Shared>, number: u64, client: C, server: S)
where
    C: AsyncRead + AsyncWrite + Send + 'static,
    S: AsyncRead + AsyncWrite + Send + 'static,
{
    let mut weather = shared.weather.subscribe();
    let era = weather.borrow().era;
    // How many more bytes of replies may pass, once a trap has sprung.
    let left = watch::Sender::new(None);
    let (from_client, to_client) = tokio::io::split(client);
    let (from_server, to_server) = tokio::io::split(server);
    tokio::select! {
        () = requests(&shared, number, from_client, to_server, &left) => {}
        () = replies(&shared, from_server, to_client, &left) => {}
        _ = weather.wait_for(|weather| weather.era != era) => {}
    }
}

async fn requests<C: AsyncRead, S: AsyncWrite>(
    shared: &Shared,
    number: u64,
    mut from: ReadHalf<C>,
    mut to: WriteHalf<S>,
    left: &watch::Sender<Option<u64>>,
) {
    let mut chunk = vec![0; CHUNK];
    // The end of what has passed: a needle may lie across two reads.
    let mut passed: Vec<u8> = Vec::new();
    // The end of what was read, if the next read may complete a text that is to be changed.
    let mut held: Vec<u8> = Vec::new();
    let mut weather = shared.weather.subscribe();
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let is_open = |weather: &Weather| number > weather.stalled;
        if weather.wait_for(is_open).await.is_err() {
            return;
        }
        if shared.is_closing() {
            return;
        }
        passed.extend_from_slice(&chunk[..length]);
        match shared.sprung_by(&passed, length) {
            // Before the request passes: its reply cannot slip through.
            Some(Effect::Cut(reply_bytes)) => drop(left.send_replace(Some(reply_bytes))),
            Some(Effect::Pause) => shared.weather.send_modify(|weather| weather.paused = true),
            None => {}
        }
        passed.drain(..passed.len().saturating_sub(CHUNK));
        held.extend_from_slice(&chunk[..length]);
        let rewrites = Arc::clone(&shared.rewrites());
        let written = rewritten(&mut held, &rewrites);
        let sent = shared.write(Direction::Request, &mut to, &written);
        if sent.await.is_err() {
            return;
        }
    }
}

/// Take from `held` what can be passed on, changed.
fn rewritten(held: &mut Vec<u8>, rewrites: &Rewrites) -> Vec<u8> {
    let mut written = Vec::with_capacity(held.len());
    let mut at = 0;
    while at < held.len() {
        let rest = &held[at..];
        if let Some((from, to)) = rewrites.iter().find(|(from, _)| rest.starts_with(from)) {
            written.extend_from_slice(to);
            at += from.len();
        } else if rewrites.iter().any(|(from, _)| from.starts_with(rest)) {
            break;
        } else {
            written.push(held[at]);
            at += 1;
        }
    }
    held.drain(..at);
    written
}

async fn replies<S: AsyncRead, C: AsyncWrite>(
    shared: &Shared,
    mut from: ReadHalf<S>,
    mut to: WriteHalf<C>,
    left: &watch::Sender<Option<u64>>,
) {
    let mut chunk = vec![0; CHUNK];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        let allowed = *left.borrow();
        let may_pass = allowed.map_or(length, |left| {
            length.min(usize::try_from(left).unwrap_or(usize::MAX))
        });
        let sent = shared.write(Direction::Reply, &mut to, &chunk[..may_pass]);
        if sent.await.is_err() {
            return;
        }
        if let Some(allowed) = allowed {
            if may_pass < length {
                shared.sprung.fetch_add(1, Ordering::SeqCst);
                return;
            }
            left.send_replace(Some(allowed - may_pass as u64));
        }
    }
}

impl Shared {
    /// The trap's effect, if its needle ends in the last `fresh` bytes of what has passed: it is
    /// then sprung. A request from before the trap was set does not spring it.
    fn sprung_by(&self, passed: &[u8], fresh: usize) -> Option<Effect> {
        let mut trap = self.trap();
        let needle = &trap.as_ref()?.needle;
        let before = passed.len() - fresh;
        let from = before.saturating_sub(needle.len().saturating_sub(1));
        let found = passed[from..]
            .windows(needle.len().max(1))
            .any(|window| window == needle);
        if found {
            trap.take().map(|trap| trap.effect)
        } else {
            None
        }
    }

    /// Whether this request closes its connection.
    fn is_closing(&self) -> bool {
        let left = self
            .closing
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                left.checked_sub(1)
            });
        let closes = left == Ok(1);
        self.sprung.fetch_add(u64::from(closes), Ordering::SeqCst);
        closes
    }

    /// Wait until a piece has passed at this rate, behind those before it.
    async fn take_turn(&self, direction: Direction, length: usize, rate: u64) {
        if rate == 0 {
            return;
        }
        let until = {
            let free = &self.free[direction as usize];
            let mut free = free.lock().expect("nothing panics while it is held");
            let took = Duration::from_secs_f64(length as f64 / rate as f64);
            *free = (*free).max(Instant::now()) + took;
            *free
        };
        tokio::time::sleep_until(until).await;
    }

    /// Write as the weather is.
    async fn write<W: AsyncWrite>(
        &self,
        direction: Direction,
        to: &mut WriteHalf<W>,
        mut bytes: &[u8],
    ) -> io::Result<()> {
        let mut weather = self.weather.subscribe();
        while !bytes.is_empty() {
            let now = weather.borrow_and_update().clone();
            if now.paused {
                if weather.changed().await.is_err() {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                continue;
            }
            let (base, jitter) = now.delay;
            let jitter = u64::try_from(jitter.as_micros()).unwrap_or(u64::MAX);
            let wait = base + Duration::from_micros(self.random_up_to(jitter));
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let most = match now.pieces {
                // Every piece of a throttled link takes a twentieth of a second.
                0 if now.rate > 0 => usize::try_from(now.rate / 20).unwrap_or(1).max(1),
                0 => bytes.len(),
                pieces => 1 + usize::try_from(self.random_up_to(pieces as u64 - 1)).unwrap_or(0),
            };
            let (piece, rest) = bytes.split_at(most.min(bytes.len()));
            self.take_turn(direction, piece.len(), now.rate).await;
            // Before it is written: who has read it must see it counted.
            self.passed.fetch_add(piece.len() as u64, Ordering::SeqCst);
            to.write_all(piece).await?;
            bytes = rest;
        }
        to.flush().await
    }
}
