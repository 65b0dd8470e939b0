//! A TCP proxy before a server's Unix socket that can cut replies at a chosen byte.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::task::JoinSet;

/// No cut is planned.
const NEVER: i64 = -1;

/// Forwards requests always, and replies until the planned cut; ended when dropped.
#[derive(Debug)]
pub struct CuttingProxy {
    address: SocketAddr,
    /// Bytes of replies that still pass before everything is cut.
    left: Arc<AtomicI64>,
    #[expect(dead_code, reason = "held for its drop, which ends the tasks")]
    tasks: JoinSet<()>,
}

impl CuttingProxy {
    /// Before this socket.
    pub async fn start(socket: &Path) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("the loopback has a free port");
        let address = listener
            .local_addr()
            .expect("a bound socket has an address");
        let left = Arc::new(AtomicI64::new(NEVER));
        let mut tasks = JoinSet::new();
        tasks.spawn(accept(listener, socket.to_owned(), Arc::clone(&left)));
        Self {
            address,
            left,
            tasks,
        }
    }

    /// Its URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Cut every connection when this many more bytes of replies have passed and the next one
    /// comes: the server has carried out what was asked.
    pub fn cut_after(&self, bytes: u32) {
        self.left.store(bytes.into(), Ordering::SeqCst);
    }

    /// Cut nothing any more.
    pub fn heal(&self) {
        self.left.store(NEVER, Ordering::SeqCst);
    }
}

async fn accept(listener: TcpListener, socket: PathBuf, left: Arc<AtomicI64>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        if let Ok(server) = UnixStream::connect(&socket).await {
            connections.spawn(forward(client, server, Arc::clone(&left)));
        }
    }
}

/// Until one side closes, or the cut.
async fn forward(client: TcpStream, server: UnixStream, left: Arc<AtomicI64>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let requests = tokio::io::copy(&mut from_client, &mut to_server);
    let replies = async {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length) = from_server.read(&mut buffer).await {
            let may_pass = left.load(Ordering::SeqCst);
            let passing = match usize::try_from(may_pass) {
                Ok(may_pass) => may_pass.min(length),
                Err(_) => length,
            };
            let sent = to_client.write_all(&buffer[..passing]).await;
            if length == 0 || passing < length || sent.is_err() {
                return;
            }
            if may_pass != NEVER {
                let length = i64::try_from(length).unwrap_or(i64::MAX);
                left.fetch_sub(length, Ordering::SeqCst);
            }
        }
    };
    tokio::select! {
        _ = requests => {}
        () = replies => {}
    }
}
