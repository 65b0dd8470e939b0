//! Making a waiting fetch return.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Cmd;

use crate::redis::connection::Link;
use crate::redis::error::Error;
use crate::redis::reply;

/// How often an interruption is tried while its fetch is on its way to Redis.
const UNBLOCK_TRIES: u32 = 10;

/// Whether a fetch is under way, and whether somebody wants it back.
#[derive(Default)]
pub(crate) struct Interruption {
    fetching: AtomicBool,
    wanted: AtomicBool,
}

/// Marks a fetch as under way for as long as it lives.
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

    /// Whether the fetch that is under way is wanted back.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Make the fetch that waits on `fetches` return, or the next one not wait.
    pub(crate) async fn unblock(&self, commands: &Link, fetches: &Link) -> Result<(), Error> {
        const COMMAND: &str = "CLIENT UNBLOCK";
        self.wanted.store(true, Ordering::SeqCst);
        for attempt in 0..UNBLOCK_TRIES {
            if !self.fetching.load(Ordering::SeqCst) {
                // The next fetch sees the wish, and does not wait.
                return Ok(());
            }
            // Without an id the user may not know it, or the fetch is still connecting.
            if let Some(id) = fetches.client_id() {
                let mut cmd = Cmd::new();
                cmd.arg("CLIENT").arg("UNBLOCK").arg(id);
                let unblocked = commands.call(COMMAND, &cmd).await?;
                if reply::integer(COMMAND, &unblocked)? == 1 {
                    return Ok(());
                }
            }
            // The fetch is between our look and Redis: it blocks in a moment.
            tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
        }
        Ok(())
    }
}
