//! Serves connections: a limited number at a time, each with a deadline. Clients that keep connections
//! open, or that never finish a request, must not use up the file descriptors that Redis connections
//! need, and must not keep a probe from its answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use axum::serve::Listener;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

/// Enough for some scrapers and probes.
const CONNECTIONS_MAX: usize = 64;
/// The longest time from one request, or from the opening of the connection, to the end of the next head.
/// A scraper that asks twice in this time keeps its connection.
const HEAD_DEADLINE: Duration = Duration::from_secs(30);

/// Serve every connection, until dropped.
pub(super) async fn serve(listener: TcpListener, router: Router) {
    serve_within(listener, router, HEAD_DEADLINE).await;
}

async fn serve_within(mut listener: TcpListener, router: Router, head_deadline: Duration) {
    let mut connections = Connections {
        router,
        head_deadline,
        uses: Arc::default(),
        tasks: JoinSet::new(),
        open: Vec::new(),
    };
    loop {
        // The accept of axum waits and tries again when the system is short of resources.
        let (stream, _) = Listener::accept(&mut listener).await;
        connections.add(stream);
    }
}

/// The open connections.
struct Connections {
    router: Router,
    head_deadline: Duration,
    /// Counts the openings and the requests of all connections.
    uses: Arc<AtomicU64>,
    /// Ends them when this is dropped.
    tasks: JoinSet<()>,
    open: Vec<Open>,
}

struct Open {
    task: AbortHandle,
    /// The number of its last use.
    used: Arc<AtomicU64>,
}

impl Connections {
    /// Serve this connection. If there are too many, the one that was used least recently gives way.
    fn add(&mut self, stream: TcpStream) {
        while self.tasks.try_join_next().is_some() {}
        self.open.retain(|open| !open.task.is_finished());
        if self.open.len() >= CONNECTIONS_MAX {
            let last_use = |open: &Open| open.used.load(Ordering::Relaxed);
            let oldest = (0..self.open.len()).min_by_key(|at| last_use(&self.open[*at]));
            if let Some(oldest) = oldest {
                self.open.swap_remove(oldest).task.abort();
            }
        }
        let uses = Arc::clone(&self.uses);
        let used = Arc::new(AtomicU64::new(uses.fetch_add(1, Ordering::Relaxed)));
        let noted = Arc::clone(&used);
        let router = TowerToHyperService::new(self.router.clone());
        let service = service_fn(move |request: Request<Incoming>| {
            noted.store(uses.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
            router.call(request)
        });
        let served = http1::Builder::new()
            .timer(TokioTimer::new())
            // The deadline counts from the request before: it ends idle connections, too.
            .header_read_timeout(self.head_deadline)
            .serve_connection(TokioIo::new(stream), service);
        let task = self.tasks.spawn(async {
            if let Err(error) = served.await {
                tracing::debug!(%error, "a connection to the admin server failed");
            }
        });
        self.open.push(Open { task, used });
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::task::JoinHandle;
    use tokio::time::timeout;

    use super::*;

    /// A test fails after this time.
    const TIMEOUT: Duration = Duration::from_secs(60);
    const REQUEST: &[u8] = b"GET /live HTTP/1.1\r\nhost: a\r\n\r\n";
    const HALF: usize = REQUEST.len() / 2;

    async fn served(head_deadline: Duration) -> (SocketAddr, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().route("/live", get(async || "yes"));
        let task = tokio::spawn(serve_within(listener, router, head_deadline));
        (address, task)
    }

    /// Ask, and keep the connection.
    async fn ask(stream: &mut TcpStream) {
        stream.write_all(REQUEST).await.unwrap();
        is_answered(stream).await;
    }

    async fn is_answered(stream: &mut TcpStream) {
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\nyes") {
            let read = timeout(TIMEOUT, stream.read_buf(&mut answer)).await;
            assert_ne!(read.unwrap().unwrap(), 0, "closed: {answer:?}");
        }
    }

    /// The server closes the connection. It may have sent an error before.
    async fn is_closed(stream: &mut TcpStream) {
        let mut rest = Vec::new();
        let read = timeout(TIMEOUT, stream.read_to_end(&mut rest)).await;
        // A reset is an end as well.
        drop(read.expect("it is closed in time"));
    }

    #[tokio::test]
    async fn half_sent_requests_and_idle_connections_end_at_the_deadline() {
        let (address, _serving) = served(Duration::from_millis(200)).await;
        let mut half_sent = TcpStream::connect(address).await.unwrap();
        half_sent.write_all(&REQUEST[..HALF]).await.unwrap();
        is_closed(&mut half_sent).await;
        let mut idle = TcpStream::connect(address).await.unwrap();
        ask(&mut idle).await;
        is_closed(&mut idle).await;
    }

    #[tokio::test]
    async fn the_connection_that_was_used_least_recently_gives_way() {
        // Nothing ends by the deadline here.
        let (address, _serving) = served(10 * TIMEOUT).await;
        let mut scraper = TcpStream::connect(address).await.unwrap();
        ask(&mut scraper).await;
        let mut held = Vec::new();
        for _ in 1..CONNECTIONS_MAX {
            let mut stream = TcpStream::connect(address).await.unwrap();
            ask(&mut stream).await;
            stream.write_all(&REQUEST[..HALF]).await.unwrap();
            held.push(stream);
        }
        ask(&mut scraper).await;
        let mut probe = TcpStream::connect(address).await.unwrap();
        ask(&mut probe).await;
        is_closed(&mut held[0]).await;
        ask(&mut scraper).await;
        // The others are still open.
        held[1].write_all(&REQUEST[HALF..]).await.unwrap();
        is_answered(&mut held[1]).await;
    }

    #[tokio::test]
    async fn the_end_of_the_server_ends_its_connections() {
        let (address, serving) = served(10 * TIMEOUT).await;
        let mut open = TcpStream::connect(address).await.unwrap();
        ask(&mut open).await;
        serving.abort();
        is_closed(&mut open).await;
    }
}
