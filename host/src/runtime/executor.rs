//! The slots in which handlers run: one task per slot, on all cores.
//!
//! A slot takes a ticket, asks the driver for leave where a start must be recorded first (it keeps
//! the slot meanwhile, so that nothing comes between the record and the start), passes the gate
//! once more, calls the handler, and tells the outcome. A panic of the host inside a call is
//! caught: it is a fault of that attempt.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::delivery::ledger::{Key, Time};
use crate::delivery::message::Message;
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::policy::Reason;
use crate::delivery::rules::Rule;
use crate::runtime::fault_point::{self, Point};
use crate::runtime::job::Ticket;
use crate::runtime::versions::Versions;
use crate::runtime::{Clock, gate, wall_clock_ms};

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
    /// How long a lease lasts without renewal.
    pub min_idle: Time,
    /// The driver's clock.
    pub clock: Clock,
    /// What no handler may see.
    pub gate: gate::Limits,
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
    for _ in 0..concurrency {
        let slot = Slot {
            state: handler.slot(),
            handler: Arc::clone(handler),
            shared: Arc::clone(shared),
            words: words.clone(),
        };
        slots.spawn_on(slot.serve(tickets.clone()), attempts);
    }
    slots
}

struct Slot<H: Handler> {
    handler: Arc<H>,
    state: H::Slot,
    shared: Arc<Shared>,
    words: mpsc::Sender<Word>,
}

impl<H: Handler> Slot<H> {
    async fn serve(mut self, tickets: async_channel::Receiver<Arc<Ticket>>) {
        while let Some(ticket) = self.next(&tickets).await {
            let Some(word) = self.attempt(&ticket).await else {
                continue;
            };
            if self.words.send(word).await.is_err() {
                return;
            }
            // With a full queue nothing above waits: let the other tasks of this core run.
            tokio::task::consume_budget().await;
        }
    }

    /// The next ticket. While there is none, what the slot keeps is kept for so long.
    async fn next(
        &mut self,
        tickets: &async_channel::Receiver<Arc<Ticket>>,
    ) -> Option<Arc<Ticket>> {
        if let Ok(ticket) = tickets.try_recv() {
            return Some(ticket);
        }
        if let Some(patience) = self.handler.patience(&self.state) {
            match tokio::time::timeout(patience, tickets.recv()).await {
                Ok(ticket) => return ticket.ok(),
                Err(_) => self.handler.rest(&mut self.state),
            }
        }
        tickets.recv().await.ok()
    }

    /// One ticket. `None`: it was taken back, and the driver knows.
    async fn attempt(&mut self, ticket: &Ticket) -> Option<Word> {
        if !ticket.take() {
            return None;
        }
        let job = &ticket.job;
        if !job.is_decoded.load(Ordering::Relaxed) {
            if let Some((reason, detail)) = gate::undecodable(&job.claim, &self.shared.gate) {
                return Some(Word::TurnedAway(ticket.key, reason, detail));
            }
            job.is_decoded.store(true, Ordering::Relaxed);
        }
        let attempt = match ticket.attempt.filter(|_| self.has_lease(ticket)) {
            Some(attempt) => {
                if let Some(expires_at_ms) = job.expires_at_ms
                    && let Some((reason, detail)) = gate::expired(expires_at_ms, wall_clock_ms())
                {
                    return Some(Word::TurnedAway(ticket.key, reason, detail));
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
                let detail = "the host panicked while it ran the handler";
                Report {
                    outcome: Outcome::Fault(Fault::new(FaultKind::HostPanic, detail)),
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

    /// Rule 12: nothing starts on a lease that was not confirmed within `min_idle`. One that is
    /// too old asks the driver, whose record confirms it.
    fn has_lease(&self, ticket: &Ticket) -> bool {
        let age = self.shared.clock.now().saturating_sub(ticket.leased());
        age < self.shared.min_idle || !Rule::LeaseBeforeStart.holds()
    }
}
