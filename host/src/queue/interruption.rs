//! The interruption of a waiting fetch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::cmd;

use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;

/// How often an interruption is tried while the command of its fetch is on its way.
const UNBLOCK_TRIES: u32 = 10;

/// Whether a fetch is running, and whether it is to be interrupted.
#[derive(Debug, Default)]
pub(crate) struct Interruption {
    fetching: AtomicBool,
    wanted: AtomicBool,
}

/// Marks a fetch as running for as long as it lives.
pub(crate) struct Fetching<'a>(&'a Interruption);

impl Drop for Fetching<'_> {
    fn drop(&mut self) {
        self.0.fetching.store(false, Ordering::SeqCst);
        self.0.wanted.store(false, Ordering::SeqCst);
    }
}

impl Interruption {
    /// A fetch begins.
    pub(crate) fn begin(&self) -> Fetching<'_> {
        self.fetching.store(true, Ordering::SeqCst);
        Fetching(self)
    }

    /// Whether the running fetch is to return at once.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Make the fetch that waits on `fetches` return, or the next one not wait.
    pub(crate) async fn unblock(&self, commands: &Link, fetches: &Link) -> Result<(), Error> {
        const COMMAND: &str = "CLIENT UNBLOCK";
        self.wanted.store(true, Ordering::SeqCst);
        for attempt in 0..UNBLOCK_TRIES {
            if !self.fetching.load(Ordering::SeqCst) {
                // The next fetch sees the mark, and does not wait.
                return Ok(());
            }
            // There is no id if the user may not ask for it, or while the fetch is connecting.
            if let Some(id) = fetches.client_id() {
                let mut unblock = cmd("CLIENT");
                let unblock = unblock.arg("UNBLOCK").arg(id);
                let unblocked = commands.call(COMMAND, unblock).await?;
                if reply::integer(COMMAND, &unblocked)? == 1 {
                    return Ok(());
                }
            }
            // The command of the fetch is on its way: it blocks in a moment.
            tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
        }
        Ok(())
    }
}
