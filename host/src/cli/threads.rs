//! The threads of a host.

use tokio::runtime::{Builder, Handle, Runtime};

use crate::cli::exit::Failure;

/// The loop has a thread of its own: handlers that keep all cores busy must not keep leases from
/// being renewed.
pub(super) struct Threads {
    main: Runtime,
    attempts: Runtime,
}

impl Threads {
    /// One for the loop, one per core for attempts.
    pub(super) fn start() -> Result<Self, Failure> {
        let cannot = |error| Failure::io("cannot start threads", &error);
        let main = Builder::new_current_thread().enable_all().build();
        let attempts = Builder::new_multi_thread()
            .thread_name("hostler-attempt")
            .enable_all()
            .build();
        Ok(Self {
            main: main.map_err(cannot)?,
            attempts: attempts.map_err(cannot)?,
        })
    }

    /// Run this on the loop's thread, with the threads of attempts; give up what still runs when it
    /// has ended.
    pub(super) fn run<T>(self, serving: impl AsyncFnOnce(&Handle) -> T) -> T {
        let value = self.main.block_on(serving(self.attempts.handle()));
        self.attempts.shutdown_background();
        self.main.shutdown_background();
        value
    }
}
