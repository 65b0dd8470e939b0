//! The slots in which handlers run: one task for each slot, on all cores.
//!
//! A slot takes a ticket and asks the gate. If the start must be recorded first, and is not, the slot asks the
//! driver and waits, so that nothing comes between the record and the start. Then it calls the handler and
//! reports the outcome. A panic of the host in a call is caught: it is a fault of that attempt. For a
//! handler of batches, a slot gathers several tickets and does the same with all of them.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use futures_util::FutureExt;
use hostler_handover::slot_events::EventSender;
use hostler_handover::ticket_queue::TicketQueue;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::delivery::hold::{HoldLimits, HoldRoom};
use crate::delivery::ledger::{Event, Time};
use crate::delivery::outcome::Outcome;
use crate::delivery::trace::Traced;
use crate::grants::journal::session::Session;
use crate::runtime::fault_point::{self, Point};
use crate::runtime::gate::Gate;
use crate::runtime::handler::{Batching, Call, Handler, SlotEvent, Verdicts, panicked};
use crate::runtime::job::{Released, Ticket};
use crate::runtime::journals::{self, Journals};
use crate::sandbox::{Cancelled, LogSink};

/// State that one slot and the driver share. It has cache lines of its own: each call writes to it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SlotState {
    /// Says that the host stops.
    cancelled: Arc<Cancelled>,
    /// Messages whose handler runs now.
    running: AtomicUsize,
}

/// State that the slots and the driver share.
#[derive(Debug)]
pub struct Shared {
    /// `max_deliveries`, as guests see it; 0 = no cap.
    pub max_attempts: AtomicU32,
    /// One for each slot.
    pub slots: Box<[SlotState]>,
    /// Calls with gathered messages, since the driver last counted them.
    pub batches: AtomicU64,
    /// How often a batch, or a piece of one, ran again in halves, since the driver last counted.
    pub splits: AtomicU64,
    /// How long a lease lasts without renewal.
    pub min_idle: Time,
    /// After how long duplicates are looked for once more before a start; `None` = they are not looked for.
    pub look_max: Option<Time>,
    /// The driver's clock.
    pub clock: Clock,
    /// Asked before each start.
    pub gate: Gate,
    /// The output of guests goes here.
    pub logs: LogSink,
    /// The journals of messages, if they have any.
    pub journals: Option<Journals>,
    /// How often a message may be held, and for how long; `None` = its queue takes nothing back.
    pub holds: Option<HoldLimits>,
}

/// A start that comes later after the look for duplicates waits for another look.
pub(super) const LOOK_MAX: Time = Time::from_millis(100);

/// Start the slots on `attempts`. They end when `queue` closes.
pub(super) fn start<H: Handler>(
    handler: &Arc<H>,
    shared: &Arc<Shared>,
    queue: &TicketQueue<Released>,
    events: &EventSender<SlotEvent>,
    attempts: &Handle,
) -> JoinSet<()> {
    let mut slots = JoinSet::new();
    for number in 0..shared.slots.len() {
        let slot = Slot {
            state: handler.slot(),
            handler: Arc::clone(handler),
            shared: Arc::clone(shared),
            events: events.clone(),
            number,
        };
        let (queue, events) = (queue.clone(), events.clone());
        let serve = async move { events.flushing(slot.serve(queue)).await };
        slots.spawn_on(serve, attempts);
    }
    slots
}

impl Shared {
    /// `concurrency` slots, none of which is cancelled or runs anything.
    pub(super) fn idle_slots(concurrency: usize) -> Box<[SlotState]> {
        (0..concurrency).map(|_| SlotState::default()).collect()
    }

    /// Notify every slot that the host stops.
    pub(super) fn cancel(&self) {
        for slot in &self.slots {
            slot.cancelled.store(true, Ordering::Relaxed);
        }
    }

    /// In how many slots handlers run now, and for how many messages.
    pub(super) fn occupied(&self) -> (usize, usize) {
        let running = self.slots.iter().map(|slot| &slot.running);
        let running = running.map(|count| count.load(Ordering::Relaxed));
        running.fold((0, 0), |(slots, all), here| {
            (slots + usize::from(here > 0), all + here)
        })
    }

    /// The attempt of a ticket whose slot need not ask the driver. Rule 12: nothing starts unless its
    /// lease was confirmed within `min_idle`. With an older lease the slot asks; the record confirms it. It also asks if a
    /// duplicate may have been handled since the last look.
    fn sure_attempt(&self, ticket: &Ticket, now: Time) -> Option<u32> {
        let is_late = |max: Time| now.saturating_sub(ticket.work.looked) >= max;
        let is_sure = self.has_lease(ticket, now) && !self.look_max.is_some_and(is_late);
        ticket.attempt.filter(|_| is_sure)
    }

    fn has_lease(&self, ticket: &Ticket, now: Time) -> bool {
        now.saturating_sub(ticket.leased()) < self.min_idle
    }

    /// The event of a ticket that the gate turns away.
    fn turned_away(&self, ticket: &Ticket) -> Option<SlotEvent> {
        let (reason, detail) = self.gate.at_start(&ticket.work)?;
        Some(SlotEvent::Ledger(Event::TurnedAway {
            key: ticket.work.key,
            reason,
            detail,
        }))
    }

    fn call<'a>(
        &'a self,
        slot: usize,
        (ticket, attempt): (&'a Ticket, u32),
        began: Instant,
        journal: Option<&'a Arc<Session>>,
    ) -> Call<'a> {
        let claim = &ticket.work.claim;
        let message = &claim.message;
        fault_point::reach(Point::Start, message);
        let room = match self.holds {
            // Only a message that was held before asks for the time.
            Some(limits) if claim.held.count == 0 => limits.room(claim.held, 0),
            Some(limits) => limits.room(claim.held, self.gate.now_ms()),
            None => HoldRoom::AtMostOnce,
        };
        Call {
            message,
            attempt,
            max_attempts: self.max_attempts.load(Ordering::Relaxed),
            cancelled: &self.slots[slot].cancelled,
            logs: &self.logs,
            trace: Traced::default(),
            began,
            journal,
            room,
        }
    }
}

struct Slot<H: Handler> {
    handler: Arc<H>,
    state: H::Slot,
    shared: Arc<Shared>,
    events: EventSender<SlotEvent>,
    /// Its place among the slots.
    number: usize,
}

impl<H: Handler> Slot<H> {
    async fn serve(mut self, queue: TicketQueue<Released>) {
        loop {
            let goes_on = match self.handler.batching() {
                Some(batching) => self.serve_batch(&queue, &batching).await,
                None => self.serve_one(&queue).await,
            };
            if goes_on.is_none() {
                return;
            }
            // With a full queue nothing above waits: let the other tasks of this core run.
            tokio::task::consume_budget().await;
        }
    }

    /// Serve one message. `None`: the host is ending.
    async fn serve_one(&mut self, queue: &TicketQueue<Released>) -> Option<()> {
        let ticket = match queue.try_one() {
            Some(ticket) => ticket,
            None => self.wait(queue.one()).await?,
        };
        match self.attempt(&ticket).await {
            Some(event) => self.events.send(event),
            None => Some(()),
        }
    }

    /// Wait for something to do. After the idle timeout the slot releases its state.
    async fn wait<T>(&mut self, next: impl Future<Output = T>) -> T {
        let mut next = pin!(next);
        self.handler.on_wait(&mut self.state);
        if let Some(idle) = self.handler.idle_timeout(&self.state) {
            match tokio::time::timeout(idle, &mut next).await {
                Ok(next) => return next,
                Err(_) => self.handler.on_idle(&mut self.state),
            }
        }
        next.await
    }

    /// Serve several messages in one call. `None`: the host is ending.
    ///
    /// A crash charges each message as it would charge a single one: its start is recorded before the
    /// call, and in between the slot waits only for the other records of this batch. While a batch is
    /// being split, each of its messages has one attempt under way, no matter how often its piece runs. A
    /// crash then charges each message once.
    async fn serve_batch(
        &mut self,
        queue: &TicketQueue<Released>,
        batching: &Batching,
    ) -> Option<()> {
        let first = self.wait(queue.first()).await?;
        let tickets = first.gather(batching).await;
        let admitted = self.admit(tickets).await?;
        if admitted.is_empty() {
            return Some(());
        }
        let shared = &self.shared;
        let (tickets, attempts): (Vec<_>, Vec<_>) = admitted.into_iter().unzip();
        let began = Instant::now();
        let started = tickets.iter().zip(&attempts);
        let calls: Vec<Call<'_>> = started
            .map(|(ticket, attempt)| shared.call(self.number, (ticket, *attempt), began, None))
            .collect();
        let mut verdicts = Verdicts::new(tickets.clone(), attempts, self.events.clone());
        let running = &shared.slots[self.number].running;
        running.store(calls.len(), Ordering::Relaxed);
        self.handler
            .run_batch(&mut self.state, &calls, &mut verdicts)
            .await;
        running.store(0, Ordering::Relaxed);
        shared.batches.fetch_add(1, Ordering::Relaxed);
        shared.splits.fetch_add(verdicts.splits, Ordering::Relaxed);
        Some(())
    }

    /// The tickets that may start, each with its attempt. The driver hears of the others. `None`: the
    /// host is ending.
    async fn admit(&mut self, tickets: Vec<Arc<Ticket>>) -> Option<Vec<(Arc<Ticket>, u32)>> {
        let shared = Arc::clone(&self.shared);
        let split = |tickets: Vec<Arc<Ticket>>| -> (Vec<_>, Vec<_>) {
            let now = shared.clock.now();
            let is_sure = |ticket: &Arc<Ticket>| shared.sure_attempt(ticket, now).is_some();
            tickets.into_iter().partition(is_sure)
        };
        let (mut sure, mut asking) = split(tickets);
        let mut granted = Vec::new();
        // The records of a batch go together. Meanwhile other leases grow old.
        while !asking.is_empty() {
            let mut asked = Vec::with_capacity(asking.len());
            for ticket in asking {
                match shared.turned_away(&ticket) {
                    Some(event) => self.events.send(event)?,
                    None => {
                        self.events.send(ready(&ticket))?;
                        asked.push(ticket);
                    }
                }
            }
            for ticket in asked {
                if let Some(attempt) = ticket.decision().await {
                    granted.push((ticket, attempt));
                }
            }
            (sure, asking) = split(sure);
        }
        let mut admitted = Vec::with_capacity(sure.len() + granted.len());
        for ticket in sure {
            match (shared.turned_away(&ticket), ticket.attempt) {
                (Some(event), _) => self.events.send(event)?,
                (None, Some(attempt)) => admitted.push((ticket, attempt)),
                (None, None) => {}
            }
        }
        let now = shared.clock.now();
        for (ticket, attempt) in granted {
            if shared.has_lease(&ticket, now) {
                admitted.push((ticket, attempt));
            } else {
                let event = SlotEvent::Ledger(Event::Unstarted(ticket.work.key));
                self.events.send(event)?;
            }
        }
        Some(admitted)
    }

    /// Serve one ticket. `None`: the driver has taken it back.
    async fn attempt(&mut self, ticket: &Ticket) -> Option<SlotEvent> {
        if !ticket.take() {
            return None;
        }
        let shared = &self.shared;
        if let Some(event) = shared.turned_away(ticket) {
            return Some(event);
        }
        let mut began = Instant::now();
        let attempt = match shared.sure_attempt(ticket, shared.clock.now()) {
            Some(attempt) => attempt,
            None => {
                self.events.send(ready(ticket))?;
                let attempt = ticket.decision().await?;
                began = Instant::now();
                attempt
            }
        };
        let journals = shared.journals.as_ref();
        let journal = journals.map(|journals| journals.begin(&ticket.work.claim));
        let call = shared.call(self.number, (ticket, attempt), began, journal.as_ref());
        let running = &shared.slots[self.number].running;
        running.store(1, Ordering::Relaxed);
        let ran = {
            // It is large: pinned, it is not moved.
            let run = pin!(self.handler.run(&mut self.state, call));
            let run = AssertUnwindSafe(run).catch_unwind();
            ticket.work.cut.unless(run).await
        };
        running.store(0, Ordering::Relaxed);
        let Some(ran) = ran else {
            // The state of the slot is half-changed.
            self.state = self.handler.slot();
            if let Some(journal) = &journal {
                journals::end(journal, call.message, attempt, false).await;
            }
            return Some(SlotEvent::Ledger(Event::CutOff(ticket.work.key)));
        };
        let report = match ran {
            Ok(report) => report,
            Err(_) => {
                // The state of the slot may be half-changed.
                self.state = self.handler.slot();
                panicked(self.handler.digest(), began)
            }
        };
        if let Some(journal) = &journal {
            let is_acked = report.outcome == Outcome::Ack;
            journals::end(journal, call.message, attempt, is_acked).await;
        }
        fault_point::reach(Point::Verdict, call.message);
        Some(SlotEvent::Finished {
            key: ticket.work.key,
            attempt,
            report,
        })
    }
}

/// The slot has this ticket, and asks whether it may start it.
fn ready(ticket: &Ticket) -> SlotEvent {
    SlotEvent::Ledger(Event::SlotReady(ticket.work.key))
}
