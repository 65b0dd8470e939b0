//! Request workers: one task for each request to the queue that may be under way. Most kinds of requests have one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use super::{Completion, Kind, Listed, Request};
use crate::clock::Clock;
use crate::delivery::ledger::{Key, Time};
use crate::queue::Queue;
use crate::redis::Error;
use crate::runtime::fault_point;

/// The least pause between a failure and the next try: the driver needs a moment to note that Redis is
/// away.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// All request workers of a host.
#[derive(Debug)]
pub(in crate::runtime::driver) struct Workers {
    inboxes: [mpsc::Sender<Request>; Kind::ALL.len()],
    under_way: [usize; Kind::ALL.len()],
    /// The fetch under way asks for no more parts.
    ends_fetch: Arc<AtomicBool>,
    /// The tasks; they end when this is dropped.
    tasks: JoinSet<()>,
}

impl Workers {
    /// Start them. `online` says whether Redis is there, as far as the driver knows.
    pub(in crate::runtime::driver) fn start(
        queue: &Arc<dyn Queue>,
        clock: Clock,
        completions: &mpsc::Sender<Completion>,
        online: &watch::Receiver<bool>,
    ) -> Self {
        let mut tasks = JoinSet::new();
        let ends_fetch = Arc::<AtomicBool>::default();
        let inboxes = std::array::from_fn(|number| {
            let under_way = Kind::ALL[number].under_way();
            let (requests, inbox) = mpsc::channel(under_way);
            // The workers of a kind take the next request in turn.
            let inbox = Arc::new(Mutex::new(inbox));
            for _ in 0..under_way {
                let worker = Worker {
                    queue: Arc::clone(queue),
                    clock,
                    completions: completions.clone(),
                    online: online.clone(),
                    ends_fetch: Arc::clone(&ends_fetch),
                };
                tasks.spawn(worker.work(Arc::clone(&inbox)));
            }
            requests
        });
        Self {
            inboxes,
            under_way: [0; Kind::ALL.len()],
            ends_fetch,
            tasks,
        }
    }

    /// Whether the worker for this kind can take a request.
    pub(in crate::runtime::driver) fn is_free(&self, kind: Kind) -> bool {
        self.under_way[kind as usize] < kind.under_way()
    }

    /// Send a request. Its worker must be free.
    pub(super) fn send<R: Listed>(&mut self, request: R) {
        debug_assert!(self.is_free(R::KIND));
        let kind = R::KIND as usize;
        // There is room: a worker answers before it gets the next request. It ends with the host.
        let is_sent = self.inboxes[kind].try_send(request.into()).is_ok();
        self.under_way[kind] += usize::from(is_sent);
    }

    /// The next fetch asks for all its parts.
    pub(super) fn begin_fetch(&self) {
        self.ends_fetch.store(false, Ordering::Relaxed);
    }

    /// Ask for no more parts of the fetch that is under way.
    pub(in crate::runtime::driver) fn end_fetch(&self) {
        self.ends_fetch.store(true, Ordering::Relaxed);
    }

    /// End them: nothing is sent from now on.
    pub(in crate::runtime::driver) async fn stop(&mut self) {
        self.tasks.shutdown().await;
    }

    /// The worker for this kind has answered.
    pub(super) fn done(&mut self, kind: Kind) {
        self.under_way[kind as usize] -= 1;
    }
}

/// A worker: it carries out one request at a time.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) queue: Arc<dyn Queue>,
    pub(super) clock: Clock,
    completions: mpsc::Sender<Completion>,
    online: watch::Receiver<bool>,
    pub(super) ends_fetch: Arc<AtomicBool>,
}

impl Worker {
    async fn work(mut self, inbox: Arc<Mutex<mpsc::Receiver<Request>>>) {
        loop {
            let next = inbox.lock().await.recv().await;
            let Some(request) = next else {
                return;
            };
            if request.run(&mut self).await.is_none() {
                return;
            }
        }
    }

    /// Ask, and again if it is repeated until it is answered. `None`: the host is ending.
    pub(super) async fn repeat<R: Listed>(&mut self, mut request: R) -> Option<()> {
        let kind = R::KIND;
        loop {
            let pause = request.pause();
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            let sent = self.clock.now();
            fault_point::pass(format_args!("{kind:?}-before"));
            let result = request.ask(self).await;
            if result.is_ok() {
                fault_point::pass(format_args!("{kind:?}-after"));
            }
            let is_over = result.is_ok() || !R::IS_REPEATED;
            let unanswered = match is_over {
                true => Vec::new(),
                false => request.again(),
            };
            self.complete::<R>(sent, result, unanswered).await?;
            if is_over {
                return Some(());
            }
            tokio::time::sleep(RETRY_PAUSE).await;
            drop(self.online.wait_for(|online| *online).await);
        }
    }

    /// Send the result to the driver. `None`: the host is ending.
    pub(super) async fn complete<R: Listed>(
        &self,
        sent: Time,
        result: Result<R::Answer, Error>,
        unanswered: Vec<Key>,
    ) -> Option<()> {
        let completion = Completion {
            sent,
            outcome: R::outcome(result),
            unanswered,
        };
        self.completions.send(completion).await.ok()
    }
}
