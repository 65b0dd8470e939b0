//! The slots in which handlers run: one task per slot, on all cores.
//!
//! A slot takes a ticket, asks the driver for leave where a start must be recorded first (it keeps
//! the slot meanwhile, so that nothing comes between the record and the start), passes the gate
//! once more, calls the handler, and tells the outcome. A panic of the host inside a call is
//! caught: it is a fault of that attempt. For a handler of batches it gathers several tickets
//! first, and goes the same way with all of them.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::delivery::ledger::{Key, Time};
use crate::delivery::message::Message;
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::policy::Reason;
use crate::delivery::rules::Rule;
use crate::redis::ServerTime;
use crate::rollout::versions::Versions;
use crate::runtime::fault_point::{self, Point};
use crate::runtime::gather::{Batching, Counter, Verdicts};
use crate::runtime::job::Ticket;
use crate::runtime::{Clock, gate};

/// One call of a handler.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The message.
    pub message: &'a Message,
    /// Which start this is, 1-based.
    pub attempt: u32,
    /// After how many starts the message is given up; 0 = never.
    pub max_attempts: u32,
    /// Says that the host stops and would like an answer soon.
    pub cancelled: &'a Arc<AtomicBool>,
}

/// What a call produced.
#[derive(Clone, Debug)]
pub struct Report {
    /// The outcome: what a guest does wrong is one, never an error.
    pub outcome: Outcome,
    /// The digest of the handler that ran.
    pub digest: Arc<str>,
    /// Bytes of what the guest wrote that were dropped, as over the limits.
    pub log_bytes_dropped: u64,
}

/// Whatever can handle messages: the sandbox, or the native no-op that it is measured against.
pub trait Handler: Send + Sync + 'static {
    /// What one slot keeps between calls (an instance to reuse, say).
    type Slot: Send;

    /// The state of a new slot.
    fn slot(&self) -> Self::Slot;

    /// Handle one message.
    fn run<'a>(
        &'a self,
        slot: &'a mut Self::Slot,
        call: Call<'a>,
    ) -> impl Future<Output = Report> + Send + 'a;

    /// How messages are gathered for a call now; `None` = each has a call of its own.
    fn batching(&self) -> Option<Batching> {
        None
    }

    /// Handle several messages, and tell a verdict on each. Only called while there is
    /// [`Handler::batching`].
    ///
    /// A panic of the host in a call is a fault of that call: whoever calls for several messages
    /// catches it.
    fn run_batch<'a>(
        &'a self,
        slot: &'a mut Self::Slot,
        calls: &'a [Call<'a>],
        verdicts: &'a mut Verdicts,
    ) -> impl Future<Output = ()> + Send + 'a {
        async move {
            for (place, call) in calls.iter().enumerate() {
                let report = self.run(slot, *call).await;
                verdicts.tell(place, report).await;
            }
        }
    }

    /// For how long a slot without a message may keep what it keeps; `None` = it keeps nothing.
    fn patience(&self, _slot: &Self::Slot) -> Option<Duration> {
        None
    }

    /// No message has come for so long.
    fn rest(&self, _slot: &mut Self::Slot) {}

    /// The digest of the handler that would run now.
    fn digest(&self) -> Arc<str>;

    /// Its versions, if it can be swapped.
    fn versions(&self) -> Option<&Arc<Versions>> {
        None
    }
}

/// What a slot tells the driver.
#[derive(Debug)]
pub enum Word {
    /// It holds this ticket, and may not start it without leave.
    Ready(Key),
    /// It was given leave, and then its lease was too old to start it.
    Unstarted(Key),
    /// The gate turned it away.
    TurnedAway(Key, Reason, String),
    /// An attempt has ended.
    Finished {
        /// Whose.
        key: Key,
        /// What it produced.
        report: Report,
        /// How long the call took.
        took: Duration,
    },
}

/// What the slots share.
#[derive(Debug)]
pub struct Shared {
    /// Says that the host stops.
    pub cancelled: Arc<AtomicBool>,
    /// `max_deliveries`, as guests are told; 0 = no cap.
    pub max_attempts: AtomicU32,
    /// Handlers running now.
    pub running: AtomicUsize,
    /// Calls with gathered messages, since the driver last counted them.
    pub batches: AtomicU64,
    /// How often a batch, or a piece of one, was run again in halves; counted likewise.
    pub splits: AtomicU64,
    /// How long a lease lasts without renewal.
    pub min_idle: Time,
    /// The driver's clock.
    pub clock: Clock,
    /// The time of day that messages expire by.
    pub time: Arc<ServerTime>,
    /// What no handler may see.
    pub gate: gate::Limits,
}

/// What a panic of the host in a call is.
pub(super) fn panicked() -> Fault {
    let detail = "the host panicked while it ran the handler";
    Fault::new(FaultKind::HostPanic, detail)
}

/// Start `concurrency` slots on `attempts`. They end when `tickets` closes.
pub fn start<H: Handler>(
    handler: &Arc<H>,
    concurrency: usize,
    shared: &Arc<Shared>,
    tickets: &async_channel::Receiver<Arc<Ticket>>,
    words: &mpsc::Sender<Word>,
    attempts: &tokio::runtime::Handle,
) -> JoinSet<()> {
    let mut slots = JoinSet::new();
    let counter = Counter::new(tickets.clone());
    for _ in 0..concurrency {
        let slot = Slot {
            state: handler.slot(),
            handler: Arc::clone(handler),
            shared: Arc::clone(shared),
            words: words.clone(),
        };
        slots.spawn_on(slot.serve(counter.clone()), attempts);
    }
    slots
}

impl Shared {
    /// Rule 12: nothing starts on a lease that was not confirmed within `min_idle`. One that is
    /// too old asks the driver, whose record confirms it.
    fn has_lease(&self, ticket: &Ticket) -> bool {
        let age = self.clock.now().saturating_sub(ticket.leased());
        age < self.min_idle || !Rule::LeaseBeforeStart.holds()
    }

    /// The word to the driver, if its body is not what the queue declares. Parsed once.
    fn undecodable(&self, ticket: &Ticket) -> Option<Word> {
        let job = &ticket.job;
        if job.is_decoded.load(Ordering::Relaxed) {
            return None;
        }
        let turned_away = gate::undecodable(&job.claim, &self.gate);
        if let Some((reason, detail)) = turned_away {
            return Some(Word::TurnedAway(ticket.key, reason, detail));
        }
        job.is_decoded.store(true, Ordering::Relaxed);
        None
    }

    /// The word to the driver, if its time has passed since it was claimed.
    fn turned_away(&self, ticket: &Ticket) -> Option<Word> {
        let expires_at_ms = ticket.job.expires_at_ms?;
        let (reason, detail) = gate::expired(expires_at_ms, self.time.now_ms())?;
        Some(Word::TurnedAway(ticket.key, reason, detail))
    }
}

struct Slot<H: Handler> {
    handler: Arc<H>,
    state: H::Slot,
    shared: Arc<Shared>,
    words: mpsc::Sender<Word>,
}

impl<H: Handler> Slot<H> {
    async fn serve(mut self, counter: Counter) {
        loop {
            let goes_on = match self.handler.batching() {
                Some(batching) => self.serve_batch(&counter, &batching).await,
                None => self.serve_one(&counter).await,
            };
            if goes_on.is_none() {
                return;
            }
            // With a full queue nothing above waits: let the other tasks of this core run.
            tokio::task::consume_budget().await;
        }
    }

    /// One message. `None`: the host is ending.
    async fn serve_one(&mut self, counter: &Counter) -> Option<()> {
        let ticket = match counter.try_one() {
            Some(ticket) => ticket,
            None => self.patiently(counter.one()).await?,
        };
        match self.attempt(&ticket).await {
            Some(word) => self.words.send(word).await.ok(),
            None => Some(()),
        }
    }

    /// Wait for something to do. While there is nothing, what the slot keeps is kept for so long.
    async fn patiently<T>(&mut self, coming: impl Future<Output = T>) -> T {
        let mut coming = pin!(coming);
        if let Some(patience) = self.handler.patience(&self.state) {
            match tokio::time::timeout(patience, &mut coming).await {
                Ok(come) => return come,
                Err(_) => self.handler.rest(&mut self.state),
            }
        }
        coming.await
    }

    /// Several messages in one call. `None`: the host is ending.
    ///
    /// Where the host dies: as for one message, for each of them. A start is written down before
    /// the call, and between the two nothing is waited for but the other records of this batch. A
    /// batch that is being split has one attempt of each message under way, however often its
    /// pieces are run: who dies meanwhile charges each of its messages once.
    async fn serve_batch(&mut self, counter: &Counter, batching: &Batching) -> Option<()> {
        let first = self.patiently(counter.first()).await?;
        let tickets = first.gather(batching).await;
        let admitted = self.admit(tickets).await?;
        if admitted.is_empty() {
            return Some(());
        }
        let (tickets, attempts): (Vec<_>, Vec<_>) = admitted.into_iter().unzip();
        let max_attempts = self.shared.max_attempts.load(Ordering::Relaxed);
        let calls: Vec<Call<'_>> = tickets
            .iter()
            .zip(attempts)
            .map(|(ticket, attempt)| Call {
                message: &ticket.job.claim.message,
                attempt,
                max_attempts,
                cancelled: &self.shared.cancelled,
            })
            .collect();
        for call in &calls {
            fault_point::reach(Point::Start, call.message);
        }
        let mut verdicts = Verdicts {
            tickets: tickets.clone(),
            words: self.words.clone(),
            began: Instant::now(),
            splits: 0,
            log_bytes_dropped: 0,
        };
        let running = &self.shared.running;
        running.fetch_add(calls.len(), Ordering::Relaxed);
        self.handler
            .run_batch(&mut self.state, &calls, &mut verdicts)
            .await;
        let splits = verdicts.splits;
        running.fetch_sub(calls.len(), Ordering::Relaxed);
        self.shared.batches.fetch_add(1, Ordering::Relaxed);
        self.shared.splits.fetch_add(splits, Ordering::Relaxed);
        Some(())
    }

    /// Which of these may start, and as which attempt; the driver hears of the others. `None`: the
    /// host is ending.
    async fn admit(&mut self, tickets: Vec<Arc<Ticket>>) -> Option<Vec<(Arc<Ticket>, u32)>> {
        let shared = Arc::clone(&self.shared);
        let mut decoded = Vec::with_capacity(tickets.len());
        for ticket in tickets {
            match shared.undecodable(&ticket) {
                Some(word) => self.words.send(word).await.ok()?,
                None => decoded.push(ticket),
            }
        }
        let is_sure = |ticket: &Arc<Ticket>| ticket.attempt.is_some() && shared.has_lease(ticket);
        let (mut sure, mut asking): (Vec<_>, Vec<_>) = decoded.into_iter().partition(is_sure);
        let mut granted = Vec::new();
        // Their records go together; meanwhile other leases grow old.
        while !asking.is_empty() {
            for ticket in &asking {
                self.words.send(Word::Ready(ticket.key)).await.ok()?;
            }
            for ticket in asking {
                if let Some(attempt) = ticket.decision().await {
                    granted.push((ticket, attempt));
                }
            }
            (sure, asking) = sure.into_iter().partition(is_sure);
        }
        let mut admitted = Vec::with_capacity(sure.len() + granted.len());
        for ticket in sure {
            match (shared.turned_away(&ticket), ticket.attempt) {
                (Some(word), _) => self.words.send(word).await.ok()?,
                (None, Some(attempt)) => admitted.push((ticket, attempt)),
                (None, None) => {}
            }
        }
        for (ticket, attempt) in granted {
            if shared.has_lease(&ticket) {
                admitted.push((ticket, attempt));
            } else {
                self.words.send(Word::Unstarted(ticket.key)).await.ok()?;
            }
        }
        Some(admitted)
    }

    /// One ticket. `None`: it was taken back, and the driver knows.
    async fn attempt(&mut self, ticket: &Ticket) -> Option<Word> {
        if !ticket.take() {
            return None;
        }
        let job = &ticket.job;
        if let Some(word) = self.shared.undecodable(ticket) {
            return Some(word);
        }
        let attempt = match ticket.attempt.filter(|_| self.shared.has_lease(ticket)) {
            Some(attempt) => {
                if let Some(word) = self.shared.turned_away(ticket) {
                    return Some(word);
                }
                attempt
            }
            // The driver asks the gate before it gives leave.
            None => {
                self.words.send(Word::Ready(ticket.key)).await.ok()?;
                ticket.decision().await?
            }
        };
        let message = &job.claim.message;
        let call = Call {
            message,
            attempt,
            max_attempts: self.shared.max_attempts.load(Ordering::Relaxed),
            cancelled: &self.shared.cancelled,
        };
        fault_point::reach(Point::Start, message);
        let began = Instant::now();
        let run = AssertUnwindSafe(self.handler.run(&mut self.state, call));
        self.shared.running.fetch_add(1, Ordering::Relaxed);
        let ran = run.catch_unwind().await;
        self.shared.running.fetch_sub(1, Ordering::Relaxed);
        let report = match ran {
            Ok(report) => report,
            Err(_) => {
                // Whatever the slot kept may be half-changed.
                self.state = self.handler.slot();
                Report {
                    outcome: Outcome::Fault(panicked()),
                    digest: self.handler.digest(),
                    log_bytes_dropped: 0,
                }
            }
        };
        let took = began.elapsed();
        fault_point::reach(Point::Verdict, message);
        Some(Word::Finished {
            key: ticket.key,
            report,
            took,
        })
    }
}
