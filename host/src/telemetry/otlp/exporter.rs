//! Queued items go to the collector in batches. Everything here runs on a thread of its own.

use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::telemetry::logging::Throttle;
use crate::telemetry::otlp::client::{Client, Export};
use crate::telemetry::otlp::dropped;

/// The most records of a request.
const BATCH_MAX: usize = 512;
/// How long the first record of a request waits for others.
const DELAY: Duration = Duration::from_secs(1);
/// How often the queue is looked at meanwhile: it holds more than comes within this time.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The pauses before a request is tried again. After them it is dropped.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// A collector that does not answer is one line in this time.
const LINE_EVERY: Duration = Duration::from_secs(60);

/// Sends requests of one kind.
pub(super) struct Exporter {
    pub(super) client: Client,
    /// Becomes true when the host ends.
    pub(super) stop: watch::Receiver<bool>,
    lines: Throttle,
}

impl Exporter {
    pub(super) fn new(client: &Client, stop: &watch::Receiver<bool>) -> Self {
        Self {
            client: client.clone(),
            stop: stop.clone(),
            lines: Throttle::new(LINE_EVERY),
        }
    }

    /// Send what is queued, in batches, until the host ends and the queue is empty.
    pub(super) async fn ship<T, M: Export>(
        mut self,
        mut queue: mpsc::Receiver<T>,
        request: impl Fn(Vec<T>) -> M,
    ) {
        loop {
            let mut batch = Vec::with_capacity(BATCH_MAX);
            let mut stop = self.stop.clone();
            let gather = async {
                if queue.recv_many(&mut batch, BATCH_MAX).await == 0 {
                    return;
                }
                // It looks now and then: a task that waits for each record is woken by each, and a wake-up costs
                // the attempt more than its span.
                let since = Instant::now();
                while batch.len() + queue.len() < BATCH_MAX && since.elapsed() < DELAY {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                fill(&mut batch, &mut queue);
            };
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => {}
                () = gather => {}
            }
            if *self.stop.borrow() {
                fill(&mut batch, &mut queue);
            }
            if batch.is_empty() {
                // The host ends, or nothing can be queued any more.
                return;
            }
            let records = batch.len() as u64;
            self.deliver(request(batch), records).await;
        }
    }

    /// Send a request; a collector that does not take it now may take it later. While the host ends, it is
    /// tried once.
    pub(super) async fn deliver<M: Export>(&mut self, request: M, records: u64) {
        let mut pauses = PAUSES.iter();
        let signal = M::SIGNAL.label();
        loop {
            let error = match self.client.send(request.clone()).await {
                Ok(answer) => {
                    if let Some((refused, why)) = M::refused(answer) {
                        dropped::add(M::SIGNAL, refused);
                        if self.lines.pass("refused", Instant::now()).is_some() {
                            warn!(signal, refused, why, "the collector refuses telemetry");
                        }
                    } else {
                        self.lines.end("failed");
                    }
                    return;
                }
                Err(error) => error,
            };
            if let Some(others) = self.lines.pass("failed", Instant::now()) {
                warn!(signal, %error, others, "the collector does not take telemetry");
            }
            let stopping = *self.stop.borrow();
            let pause = pauses.next().filter(|_| error.may_pass && !stopping);
            let Some(pause) = pause else {
                dropped::add(M::SIGNAL, records);
                return;
            };
            let mut stop = self.stop.clone();
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                () = tokio::time::sleep(*pause) => {}
            }
        }
    }
}

/// Add what is queued, without waiting, up to a full batch.
fn fill<T>(batch: &mut Vec<T>, queue: &mut mpsc::Receiver<T>) {
    while batch.len() < BATCH_MAX
        && let Ok(next) = queue.try_recv()
    {
        batch.push(next);
    }
}
