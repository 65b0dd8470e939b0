//! Messages that an operator cancels while this host has them: `cancel` notes each delivery that it takes off the queue,
//! and the server tells this host of the note. Where it may not, the host finds such a delivery gone when it renews its
//! lease, or settles it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use redis::cmd;
use tokio::sync::Notify;
use tracing::debug;

use crate::delivery::message::DeliveryId;
use crate::redis::connection::{Bell, Link};
use crate::redis::error::{Class, Error};
use crate::redis::reply;

/// The pause behind a failed read of the notes.
const PAUSE: Duration = Duration::from_secs(1);

/// The notes of one group of hosts.
#[derive(Debug)]
pub(super) struct Cancels {
    key: String,
    rung: Arc<Notify>,
    /// The time of the last note that was read, or of the start of this host, in epoch milliseconds.
    since: AtomicU64,
}

impl Cancels {
    /// The notes at this key, from this time of the server on.
    pub(super) fn new(key: String) -> Self {
        Self {
            key,
            rung: Arc::default(),
            since: AtomicU64::new(u64::MAX),
        }
    }

    /// Begin with what is cancelled from now on, by the server's clock. What was cancelled before concerns nothing that
    /// this host has. The bell is to be watched.
    pub(super) fn begin(&self, now_ms: u64) -> Bell {
        self.since.store(now_ms, Ordering::Relaxed);
        Bell {
            key: self.key.clone(),
            rung: Arc::clone(&self.rung),
        }
    }

    /// Wait for new notes. `id`: the delivery of a note; `None` = it is none of hostler's.
    pub(super) async fn next(
        &self,
        link: &Link,
        id: impl Fn(&Bytes) -> Option<DeliveryId>,
    ) -> Vec<DeliveryId> {
        self.rung.notified().await;
        loop {
            match self.read(link).await {
                Ok(notes) => return notes.iter().filter_map(&id).collect(),
                Err(error) => {
                    debug!(%error, "could not read what is cancelled");
                    if error.class() == Class::Configuration {
                        return Vec::new();
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    async fn read(&self, link: &Link) -> Result<Vec<Bytes>, Error> {
        const COMMAND: &str = "ZRANGEBYSCORE";
        let since = self.since.load(Ordering::Relaxed);
        let mut read = cmd(COMMAND);
        read.arg(&self.key).arg(since).arg("+inf").arg("WITHSCORES");
        let notes = reply::scored(COMMAND, link.call(COMMAND, &read).await?)?;
        let last = notes.iter().map(|(_, at)| *at).max().unwrap_or(since);
        self.since.store(last, Ordering::Relaxed);
        Ok(notes.into_iter().map(|(note, _)| note).collect())
    }
}
