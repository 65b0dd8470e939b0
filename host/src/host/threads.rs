//! The threads of a host.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::host::{Error, StopSignals};

/// The loop has a thread of its own: handlers that keep all cores busy must not delay the renewal of
/// leases. No handler runs on it.
pub struct Threads {
    main: Runtime,
    attempts: Runtime,
}

impl Threads {
    /// Start one thread for the loop, and one per core for attempts.
    pub fn start() -> Result<Self, Error> {
        let main = Builder::new_current_thread().enable_all().build();
        let attempts = Builder::new_multi_thread()
            .thread_name("hostler-attempt")
            .enable_all()
            .build();
        let refused = Error::system("cannot start threads");
        Ok(Self {
            main: main.map_err(&refused)?,
            attempts: attempts.map_err(&refused)?,
        })
    }

    /// Take the signals that stop the process, before any work.
    pub fn listen(&self) -> Result<StopSignals, Error> {
        let _inside = self.main.enter();
        StopSignals::listen()
    }

    /// Wait for something before the work.
    pub fn wait<T>(&self, until: impl Future<Output = T>) -> T {
        self.main.block_on(until)
    }

    /// Run `work` on the loop's thread; it gets the threads of attempts. Tasks that still run when it
    /// ends are abandoned.
    pub fn run<T>(self, work: impl AsyncFnOnce(&Handle) -> T) -> T {
        let value = self.main.block_on(work(self.attempts.handle()));
        self.attempts.shutdown_background();
        self.main.shutdown_background();
        value
    }
}
