//! TLS in front of a Unix socket: for servers that have none.

use std::path::Path;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::web::acceptor;

/// The end of TLS; ended when dropped, with all its connections.
#[derive(Debug)]
pub struct TlsFront {
    port: u16,
    accepting: JoinHandle<()>,
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl TlsFront {
    /// On a free port of the loopback, with a certificate for `localhost`. The certificate of its authority is
    /// written to `ca`. Incoming data goes to this Unix socket, in plain bytes.
    ///
    /// # Errors
    /// No port is free.
    pub fn start(socket: &Path, ca: &Path) -> std::io::Result<Self> {
        let acceptor = acceptor("localhost", ca);
        let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let port = listener.local_addr()?.port();
        let socket = socket.to_owned();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, socket) = (acceptor.clone(), socket.clone());
                connections.spawn(async move {
                    let mut inside = UnixStream::connect(socket).await?;
                    let mut outside = acceptor.accept(stream).await?;
                    copy_bidirectional(&mut outside, &mut inside).await
                });
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Self { port, accepting })
    }

    /// Where it listens, as a URL for a Redis client.
    #[must_use]
    pub fn url(&self) -> String {
        format!("rediss://localhost:{}", self.port)
    }
}
