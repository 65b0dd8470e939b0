//! Probing an embedded server, before there is a client.

use std::io;
use std::io::ErrorKind::{ConnectionRefused, NotFound};
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::embedded::END_DEADLINE;

/// How long a server may take to answer a `PING` before it counts as silent.
const PING_DEADLINE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Health {
    /// It answers.
    Ready,
    /// It answers that it is loading its data.
    Loading,
    /// A server listens, and does not answer.
    Silent,
    /// No server listens.
    Absent,
}

pub(super) async fn probe(socket: &Path) -> Health {
    match timeout(PING_DEADLINE, ask(socket, b"PING\r\n")).await {
        Ok(Ok(reply)) if reply.starts_with("-LOADING") => Health::Loading,
        // Any other answer comes from a running server, even if it reports an error.
        Ok(Ok(reply)) if reply.starts_with(['+', '-']) => Health::Ready,
        Ok(Err(error)) if matches!(error.kind(), NotFound | ConnectionRefused) => Health::Absent,
        Ok(Ok(_) | Err(_)) | Err(_) => Health::Silent,
    }
}

/// Ask the server to end. It closes the connection when it has written everything and removed
/// its socket.
pub(super) async fn shut_down(socket: &Path) {
    let _reply = timeout(END_DEADLINE, ask(socket, b"SHUTDOWN\r\n")).await;
}

async fn ask(socket: &Path, command: &[u8]) -> io::Result<String> {
    let mut stream = BufReader::new(UnixStream::connect(socket).await?);
    stream.write_all(command).await?;
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line)
}
