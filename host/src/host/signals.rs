//! The signals that stop a process, and the one that makes it read its files again.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::host::Error;

/// A signal that asks the process to stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StopSignal {
    /// Ctrl-C.
    Interrupt,
    /// SIGTERM.
    Terminate,
}

/// Waits for signals that ask the process to stop.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    /// Take these signals: from now on they no longer end the process.
    pub fn listen() -> Result<Self, Error> {
        let listen = |kind| signal(kind).map_err(Error::system("cannot wait for signals"));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Wait for the next one. May be cancelled: no signal is lost.
    pub async fn next(&mut self) -> StopSignal {
        tokio::select! {
            _ = self.interrupt.recv() => StopSignal::Interrupt,
            _ = self.terminate.recv() => StopSignal::Terminate,
        }
    }
}

/// Waits for SIGHUP, which asks the process to read its files again.
#[derive(Debug)]
pub struct ReloadSignals(Signal);

impl ReloadSignals {
    /// Take the signal: from now on it does not end the process.
    pub fn listen() -> Result<Self, Error> {
        signal(SignalKind::hangup())
            .map(Self)
            .map_err(Error::system("cannot wait for signals"))
    }

    /// Wait for the next one. May be cancelled: no signal is lost.
    pub async fn next(&mut self) {
        let _received = self.0.recv().await.is_some();
    }
}
