//! Handlers of messages, as a slot calls them.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler_handover::slot_events::EventSender;
pub use hostler_handover::ticket_queue::Batching;

use crate::delivery::ledger::{Event, Key};
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::rollout::versions::Versions;
use crate::runtime::fault_point::{self, Point};
use crate::runtime::job::{Job, Ticket};
pub use crate::sandbox::{Call, Report};

/// The host panicked while it ran the handler with this digest.
pub(super) fn panicked(digest: Arc<str>, began: Instant) -> Report {
    Report::new(Outcome::Fault(host_panic()), digest, began.elapsed())
}

/// The fault of a call in which the host panicked.
pub(super) fn host_panic() -> Fault {
    let detail = "the host panicked while it ran the handler";
    Fault::new(FaultKind::HostPanic, detail)
}

/// Handles messages: the sandbox, or the native no-op that it is measured against.
pub trait Handler: Send + Sync + 'static {
    /// State that one slot keeps between calls, such as an instance to reuse.
    type Slot: Send;

    /// The state of a new slot.
    fn slot(&self) -> Self::Slot;

    /// Handle one message.
    fn run<'a>(
        &'a self,
        slot: &'a mut Self::Slot,
        call: Call<'a>,
    ) -> impl Future<Output = Report> + Send + 'a;

    /// How a slot gathers messages for one call; `None` = each message has a call of its own.
    fn batching(&self) -> Option<Batching> {
        None
    }

    /// Handle several messages, and give a verdict on each. Slots call this only if there is
    /// [`Handler::batching`].
    ///
    /// An implementation that calls the guest with several messages must catch panics of the host: each
    /// is a fault of its call.
    fn run_batch<'a>(
        &'a self,
        slot: &'a mut Self::Slot,
        calls: &'a [Call<'a>],
        verdicts: &'a mut Verdicts,
    ) -> impl Future<Output = ()> + Send + 'a {
        async move {
            for (place, call) in calls.iter().enumerate() {
                let began = Instant::now();
                let report = self.run(slot, Call { began, ..*call }).await;
                verdicts.give(place, report);
            }
        }
    }

    /// How long a slot without messages keeps its state; `None` = it has nothing to release.
    fn idle_timeout(&self, _slot: &Self::Slot) -> Option<Duration> {
        None
    }

    /// The slot had no message for this long: release its state.
    fn on_idle(&self, _slot: &mut Self::Slot) {}

    /// The slot has no message, and waits for one.
    fn on_wait(&self, _slot: &mut Self::Slot) {}

    /// The digest of the handler that would run now.
    fn digest(&self) -> Arc<str>;

    /// Its versions, if it can be swapped.
    fn versions(&self) -> Option<&Arc<Versions>> {
        None
    }
}

/// The events that a slot sends to the driver.
#[derive(Debug)]
pub enum SlotEvent {
    /// An event of the ledger.
    Ledger(Event<Job>),
    /// An attempt has ended.
    Finished {
        /// Its delivery.
        key: Key,
        /// Its number.
        attempt: u32,
        /// Its result.
        report: Report,
    },
}

/// Takes the verdicts on the messages of a batch, each as soon as it is known.
#[derive(Debug)]
pub struct Verdicts {
    tickets: Vec<Arc<Ticket>>,
    /// The number of the attempt at each.
    attempts: Vec<u32>,
    events: EventSender<SlotEvent>,
    /// How often pieces of the batch ran again.
    pub(super) splits: u64,
    /// Dropped bytes of the output of pieces that run again.
    log_bytes_dropped: u64,
}

impl Verdicts {
    pub(super) fn new(
        tickets: Vec<Arc<Ticket>>,
        attempts: Vec<u32>,
        events: EventSender<SlotEvent>,
    ) -> Self {
        Self {
            tickets,
            attempts,
            events,
            splits: 0,
            log_bytes_dropped: 0,
        }
    }

    /// The verdict on the message at this place of the batch. Once for each message.
    pub fn give(&mut self, place: usize, mut report: Report) {
        report.log_bytes_dropped += std::mem::take(&mut self.log_bytes_dropped);
        let ticket = &self.tickets[place];
        fault_point::reach(Point::Verdict, &ticket.work.claim.message);
        let event = SlotEvent::Finished {
            key: ticket.work.key,
            attempt: self.attempts[place],
            report,
        };
        // Without a driver the host is ending, and nothing is settled.
        let _is_over = self.events.send(event).is_none();
    }

    /// A piece of the batch faulted, and its halves run next.
    pub fn split(&mut self, log_bytes_dropped: u64) {
        self.splits += 1;
        self.log_bytes_dropped += log_bytes_dropped;
    }
}
