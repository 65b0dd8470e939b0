//! The journals of messages: the queue has them, and attempts use them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use crate::delivery::journal::{BYTES_MAX, Book, RECORDS_MAX};
use crate::delivery::message::Message;
use crate::delivery::text::{printable, truncated};
use crate::grants::journal::provider::{Increment, Provider, Refused, Wrote};
use crate::grants::journal::session::{Counts, Session};
use crate::queue::journal::Written;
use crate::queue::{self, Claim, Queue};
use crate::redis::error::{Class, Error};
use crate::telemetry::metrics::Metrics;
use crate::wire::journal;

/// How long a request waits until it is tried again.
const AGAIN: Duration = Duration::from_millis(50);
/// For how long the answer to a call is tried to be written: a host that cannot reach Redis settles nothing.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// For how long an acknowledgement waits to learn which records are unused.
const LOOK_MAX: Duration = Duration::from_millis(500);
/// Names of unused records in one event, and their bytes.
const SHOWN_MAX: usize = 5;
const NAME_MAX: usize = 200;

/// The journals of the messages of a queue.
#[derive(Clone, Debug)]
pub struct Journals {
    queue: Arc<dyn Queue>,
    counts: Counts,
}

impl Journals {
    /// The journals of this queue, which count here.
    pub fn new(queue: &Arc<dyn Queue>, metrics: &Metrics) -> Self {
        Self {
            queue: Arc::clone(queue),
            counts: Counts {
                writes: Arc::clone(&metrics.journal_writes),
                bytes: Arc::clone(&metrics.journal_bytes),
                replayed: Arc::clone(&metrics.journal_replayed),
                unknown: Arc::clone(&metrics.journal_unknown),
                refused: Arc::clone(&metrics.journal_refused),
                unused: Arc::clone(&metrics.journal_unused),
            },
        }
    }

    /// An attempt begins at this delivery. Nothing is read yet.
    pub(super) fn begin(&self, claim: &Arc<Claim>) -> Arc<Session> {
        let provider = Delivered {
            queue: Arc::clone(&self.queue),
            claim: Arc::clone(claim),
        };
        Session::new(Arc::new(provider), &self.counts)
    }
}

/// The attempt has ended: wait for what it has to write, and look whether it has left records unused. `number`: that of the
/// attempt. The first one finds no record, unless it has looked for one.
pub(super) async fn end(session: &Session, message: &Message, number: u32, is_acked: bool) {
    session.settled().await;
    let replayed = session.replayed();
    if replayed > 0 {
        info!(
            message_id = printable(&message.id),
            attempt = number,
            replayed,
            "calls of the attempt got the answers that an earlier one has recorded"
        );
    }
    if !is_acked {
        return;
    }
    // Where Redis does not answer, nothing is logged.
    let unused = timeout(LOOK_MAX, session.unused(number > 1)).await;
    let unused = unused.ok().and_then(Result::ok).unwrap_or_default();
    if !unused.is_empty() {
        let shown = unused.iter().take(SHOWN_MAX);
        let shown: Vec<_> = shown
            .map(|name| printable(truncated(name, NAME_MAX)))
            .collect();
        warn!(
            message_id = printable(&message.id),
            count = unused.len(),
            calls = ?shown,
            "the attempt that acknowledged has not made calls that an earlier one has recorded"
        );
    }
}

/// The journal of one delivery.
struct Delivered {
    queue: Arc<dyn Queue>,
    claim: Arc<Claim>,
}

impl fmt::Debug for Delivered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = &self.claim.id;
        f.debug_struct("Delivered")
            .field("id", id)
            .finish_non_exhaustive()
    }
}

/// After an error: wait until the request may be tried again. The caller has a deadline.
async fn pause(error: Error) -> Result<(), Refused> {
    if error.class() == Class::Configuration {
        return Err(Refused::Unavailable(format!("refused: {}", error.code())));
    }
    sleep(AGAIN).await;
    Ok(())
}

impl Delivered {
    fn wrote(number: u32, written: Written) -> Result<Wrote, Refused> {
        let full = |what: &str| Err(Refused::Full(what.to_owned()));
        match written {
            Written::Done => Ok(Wrote::Done),
            Written::Shared => Ok(Wrote::Shared),
            Written::Gone => Ok(Wrote::Gone),
            Written::Stolen => Err(Refused::Lost),
            Written::Known(bytes) => match journal::decode(number, &bytes) {
                Some(known) => Ok(Wrote::Known(known)),
                None => Err(Refused::Unavailable("a record has another form".to_owned())),
            },
            Written::Full => full(&format!(
                "the journal of the message is full ({RECORDS_MAX} records, {BYTES_MAX} bytes)"
            )),
            Written::Failed(why) => Err(Refused::Failed(why)),
            Written::QueueFull => full("the journals of the queue are full (`journal.bytes`)"),
        }
    }
}

#[async_trait]
impl Provider for Delivered {
    async fn read(&self) -> Result<Book, Refused> {
        loop {
            match self.queue.journal(&self.claim).await {
                Ok(found) => return Ok(Book::new(found.records, found.last.max(found.base))),
                Err(error) => pause(error).await?,
            }
        }
    }

    fn now_ms(&self) -> u64 {
        self.queue.time().now_ms()
    }

    async fn intend(&self, number: u32, intent: &Bytes, is_shared: bool) -> Result<Wrote, Refused> {
        loop {
            let intend = self.queue.intend(&self.claim, number, intent, is_shared);
            match intend.await {
                // The message has left its queue.
                Ok(Written::Gone) => return Err(Refused::Lost),
                Ok(written) => return Self::wrote(number, written),
                Err(error) => pause(error).await?,
            }
        }
    }

    async fn increment(&self, increment: Increment<'_>) -> Result<Wrote, Refused> {
        let Increment {
            number,
            record,
            key,
            delta,
        } = increment;
        let increment = queue::journal::Increment {
            number,
            record,
            key,
            delta,
        };
        loop {
            match self.queue.increment(&self.claim, increment).await {
                Ok(Written::Gone) => return Err(Refused::Lost),
                Ok(written) => return Self::wrote(number, written),
                Err(error) => pause(error).await?,
            }
        }
    }

    async fn answer(
        &self,
        number: u32,
        intent: &Bytes,
        answer: Option<&Bytes>,
    ) -> Result<Wrote, Refused> {
        let answer = answer.map(|answer| &answer[..]);
        let until = Instant::now() + ANSWER_MAX;
        loop {
            match self.queue.answer(&self.claim, number, intent, answer).await {
                Ok(written) => return Self::wrote(number, written),
                Err(error) if Instant::now() < until => pause(error).await?,
                Err(error) => return Err(Refused::Unavailable(error.code().to_owned())),
            }
        }
    }
}
