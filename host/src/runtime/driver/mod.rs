//! The loop: it feeds the ledger with events, and carries out the actions of the ledger.
//!
//! One task owns the [`Ledger`]. `exchange` is the traffic between the ledger and the slots, `requests` are the requests
//! to the queue. `connection`: whether Redis is there. `errands`: which requests pause by themselves.

mod connection;
mod errands;
mod exchange;
mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use hostler_handover::slot_events::{self, EventReceiver};
use hostler_handover::ticket_queue::{self, TicketSender};
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::clock::Clock;
use crate::delivery::ledger::{Event, Key, Ledger, Time};
use crate::queue::{Guarantee, Queue, limits};
use crate::runtime::executor::{self, LOOK_MAX, Shared};
use crate::runtime::gate::Gate;
use crate::runtime::handler::{Handler, SlotEvent};
use crate::runtime::job::{Job, Released, Ticket};
use crate::runtime::journals::Journals;
use crate::runtime::reporter::Reporter;
use crate::runtime::rollout_monitor::{Host, RolloutMonitor};
use crate::runtime::{Rules, Settings, policy_on};
use crate::sandbox::LogSink;
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::status::Status;
use connection::Connection;
use errands::Errands;
use requests::{Completion, Kind, Waiting, Workers};

/// How often a host that drains looks whether all is relayed.
const RELAYED_LOOK: Time = Time::from_millis(5);
/// The longest turn without events.
const TURN_MAX: Time = Time::from_secs(1);

/// A request of the operator to a running host.
#[derive(Clone, Debug)]
pub enum Control {
    /// Stop reading, finish started attempts, hand back the rest.
    Drain,
    /// Other rules hold.
    Rules(Box<Rules>),
}

/// How a host ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// All deliveries are settled or handed back.
    Drained,
    /// The drain deadline passed. Some deliveries stay pending, and are found as orphans.
    TimedOut {
        /// How many.
        unfinished: usize,
    },
    /// `--until-empty` timed out: the queue still held something.
    NotEmpty,
}

/// A host that is running: see the module.
pub struct Driver {
    queue: Arc<dyn Queue>,
    settings: Settings,
    clock: Clock,
    gate: Gate,
    ledger: Ledger<Job>,
    reporter: Reporter,
    connection: Connection,
    errands: Errands,
    monitor: RolloutMonitor,
    workers: Workers,
    completions: mpsc::Receiver<Completion>,
    /// What waits for a request worker.
    waiting: Waiting,
    /// The tasks of the slots.
    slots: JoinSet<()>,
    slot_events: EventReceiver<SlotEvent>,
    executor: TicketSender<Released>,
    /// Tickets for the executor, in one go.
    released: Vec<Arc<Ticket>>,
    shared: Arc<Shared>,
    /// The tickets of released deliveries.
    tickets: FxHashMap<Key, Arc<Ticket>>,
    next_maintenance: Time,
    /// Deliveries settled since the last housekeeping.
    settled: usize,
    next_observation: Time,
    drain_deadline: Option<Time>,
    /// When `--until-empty` times out.
    empty_deadline: Option<Time>,
    /// `--until-empty` has timed out.
    timed_out: bool,
    /// How many messages may wait for the start that is reserved for them: all that are parked, as they were seen last.
    waiting_starts: u64,
    /// All is settled: the entries of outboxes are relayed, before the host ends.
    is_relaying: bool,
}

impl Driver {
    /// A host of this queue. Its slots run on `attempts`, everything else on the caller's runtime.
    pub fn new<H: Handler>(
        queue: Arc<dyn Queue>,
        handler: &Arc<H>,
        settings: Settings,
        metrics: Arc<Metrics>,
        health: Health,
        attempts: &tokio::runtime::Handle,
    ) -> Self {
        let mut settings = settings.on(&*queue);
        let clock = Clock::start();
        let concurrency = settings.ledger.concurrency;
        // The prefetch and a few reserved places bound what the ledger releases at once.
        let released_max = 2 * (settings.ledger.prefetch_max + concurrency) + 64;
        let (executor, queue_of_slots) = ticket_queue::channel(released_max);
        let (events, slot_events) = slot_events::channel();
        let (completed, completions) = mpsc::channel(64);
        let (online, online_seen) = watch::channel(true);
        let gate = Gate::new(settings.gate.clone(), queue.time());
        let shared = Arc::new(Shared {
            max_attempts: AtomicU32::new(settings.ledger.policy.limit.starts_max()),
            slots: Shared::idle_slots(concurrency),
            batches: AtomicU64::new(0),
            splits: AtomicU64::new(0),
            min_idle: settings.ledger.min_idle,
            look_max: queue.finds_duplicates().then_some(LOOK_MAX),
            clock,
            gate: gate.clone(),
            logs: LogSink::Tracing,
            holds: (!settings.ledger.policy.limit.at_most_once)
                .then_some(settings.ledger.policy.limit.holds),
            journals: settings.journals.then(|| Journals::new(&queue, &metrics)),
        });
        metrics.handler(handler.digest());
        let slots = executor::start(handler, &shared, &queue_of_slots, &events, attempts);
        let monitor = RolloutMonitor::new(handler, &settings);
        settings.ledger.batch = monitor.batch();
        let timeout = settings.until_empty.and_then(|until| until.timeout);
        let mut ledger = Ledger::new(clock.now(), settings.ledger.clone());
        ledger.apply(clock.now(), Event::Limited(settings.limited));
        Self {
            ledger,
            reporter: Reporter::new(metrics, health, queue.guarantee(), queue.contact()),
            connection: Connection::new(online),
            errands: Errands::default(),
            workers: Workers::start(&queue, clock, &completed, &online_seen),
            empty_deadline: timeout.map(|after| clock.now() + after),
            queue,
            settings,
            clock,
            gate,
            monitor,
            completions,
            waiting: Waiting::default(),
            slots,
            slot_events,
            executor,
            released: Vec::new(),
            shared,
            tickets: FxHashMap::default(),
            next_maintenance: Time::ZERO,
            settled: 0,
            next_observation: Time::ZERO,
            drain_deadline: None,
            timed_out: false,
            waiting_starts: 0,
            is_relaying: false,
        }
    }

    /// Show the state of this host here.
    #[must_use]
    pub fn showing(mut self, status: Status) -> Self {
        self.reporter.status = status;
        self
    }

    /// Run until [`Control::Drain`], or until the queue is empty if the settings say so.
    pub async fn run(mut self, mut control: mpsc::Receiver<Control>) -> Exit {
        let mut slot_events = Vec::new();
        let mut actions = Vec::new();
        let mut control_open = true;
        let mut changes = self.monitor.changes();
        if self.ledger.is_paused() {
            // It reads nothing, because it is paused.
            self.reporter.paused(true);
            self.reporter.health.clear(Cause::Starting);
            info!("ready, and paused");
        }
        // Take in the changes from before: a canary of the start is on trial like any other.
        self.monitored(self.clock.now(), RolloutMonitor::on_change);
        loop {
            let now = self.clock.now();
            // An action can lead to another one: a revoked delivery is handed back.
            self.ledger.poll(now, &mut actions);
            while !actions.is_empty() {
                for action in actions.drain(..) {
                    self.perform(now, action);
                }
                self.hand_out(now);
                self.ledger.poll(now, &mut actions);
            }
            self.end_if_late(now);
            self.send_requests(now);
            self.reporter.health.beat(Instant::now());
            if self.ledger.is_drained() && self.outboxes_are_done(now) {
                break;
            }
            if self.drain_deadline.is_some_and(|deadline| now >= deadline) {
                return self.time_out();
            }
            let left = self.deadline(now).saturating_sub(self.clock.now());
            tokio::select! {
                biased;
                command = control.recv(), if control_open => match command {
                    Some(command) => self.command(command),
                    None => control_open = false,
                },
                () = changes.next() => self.monitored(self.clock.now(), RolloutMonitor::on_change),
                Some(completion) = self.completions.recv() => self.on_completion(completion),
                () = self.slot_events.wait(&mut slot_events) => {}
                () = tokio::time::sleep(left) => {}
            }
            // Rules hold for each message that comes after them.
            while let Ok(command) = control.try_recv() {
                self.command(command);
            }
            // Other completions that are here belong to the same turn.
            while let Ok(completion) = self.completions.try_recv() {
                self.on_completion(completion);
            }
            // So do other events, even those that did not wake this loop.
            self.slot_events.take(&mut slot_events);
            let now = self.clock.now();
            for event in slot_events.drain(..) {
                self.on_slot_event(now, event);
            }
            self.monitored(now, RolloutMonitor::evaluate);
            self.reporter.contact(self.queue.contact());
            self.reporter.relayed(self.queue.relayed());
            let (slots, running) = self.shared.occupied();
            self.ledger.occupied(slots, running);
            let batches = self.shared.batches.swap(0, Ordering::Relaxed);
            let splits = self.shared.splits.swap(0, Ordering::Relaxed);
            self.reporter
                .turn(running, batches, splits, self.ledger.len());
        }
        self.leave().await
    }

    /// Let the rollout monitor act on the ledger.
    fn monitored(&mut self, now: Time, act: impl FnOnce(&mut RolloutMonitor, &mut Host<'_>)) {
        let mut host = Host {
            now,
            ledger: &mut self.ledger,
            reporter: &self.reporter,
        };
        act(&mut self.monitor, &mut host);
    }

    fn deadline(&self, now: Time) -> Time {
        let deadlines = [
            self.ledger.next_deadline(),
            // Its worker's answer wakes the loop.
            Some(self.next_maintenance).filter(|_| self.workers.is_free(Kind::Maintain)),
            Some(self.next_observation).filter(|_| self.workers.is_free(Kind::Observe)),
            self.drain_deadline,
            self.empty_deadline
                .filter(|_| self.drain_deadline.is_none()),
            self.is_relaying.then(|| now + RELAYED_LOOK),
        ];
        // A deadline that the host cannot act on must not make the loop spin.
        let next = deadlines.into_iter().flatten().min();
        next.map_or(now + TURN_MAX, |at| at.max(now + Time::from_micros(200)))
    }

    fn command(&mut self, command: Control) {
        match command {
            Control::Drain => self.drain("asked to stop"),
            Control::Rules(rules) => {
                let Rules {
                    policy,
                    ttl,
                    queue,
                    paused,
                } = *rules;
                let policy = policy_on(policy, self.queue.guarantee());
                let starts_max = policy.limit.starts_max();
                let max_attempts = &self.shared.max_attempts;
                max_attempts.store(starts_max, Ordering::Relaxed);
                self.gate.limits.ttl = ttl;
                let limited = Event::Limited(limits::limited(&queue.limits));
                // The queue must know where dead letters go before the ledger decides on one.
                self.queue.adopt(queue);
                self.ledger.apply(self.clock.now(), limited);
                self.ledger
                    .apply(self.clock.now(), Event::PolicyChanged(Box::new(policy)));
                if paused != self.ledger.is_paused() {
                    self.paused(paused);
                }
                // Housekeeping enforces a length limit.
                self.next_maintenance = Time::ZERO;
            }
        }
    }

    /// The operator has paused the queue, or resumed it.
    fn paused(&mut self, paused: bool) {
        let held = self.ledger.len();
        match paused {
            true => info!(held, "paused: what has not started goes back"),
            false => info!("resumed"),
        }
        self.reporter.paused(paused);
        self.ledger.apply(self.clock.now(), Event::Paused(paused));
    }

    fn drain(&mut self, why: &'static str) {
        if self.drain_deadline.is_some() {
            return;
        }
        let now = self.clock.now();
        self.drain_deadline = Some(now + self.settings.drain_timeout);
        self.reporter.health.impede(Cause::Draining, why);
        self.shared.cancel();
        info!(why, held = self.ledger.len(), "draining");
        self.queue.stop_taking();
        self.ledger.apply(now, Event::Drain);
    }

    /// `--until-empty` may wait no longer.
    fn end_if_late(&mut self, now: Time) {
        let is_late = self.empty_deadline.is_some_and(|deadline| now >= deadline);
        if is_late && self.drain_deadline.is_none() {
            self.timed_out = true;
            self.drain("the queue did not become empty in time");
        }
    }

    /// Whether the acknowledged publications are relayed to other slots, as far as it can be now. An entry that is left
    /// stays in its outbox, for any host of the queue.
    fn outboxes_are_done(&mut self, now: Time) -> bool {
        if !std::mem::replace(&mut self.is_relaying, true) {
            self.queue.hurry();
        }
        let is_late = self.drain_deadline.is_some_and(|deadline| now >= deadline);
        is_late || self.queue.relayed().is_done
    }

    fn time_out(mut self) -> Exit {
        let unfinished = self.ledger.len();
        // Even in the middle of a call.
        self.slots.abort_all();
        match self.queue.guarantee() {
            Guarantee::AtLeastOnce => warn!(
                unfinished,
                "the drain deadline has passed; what is unfinished stays pending"
            ),
            Guarantee::AtMostOnce => warn!(
                unfinished,
                "the drain deadline has passed; what is unfinished is lost"
            ),
        }
        Exit::TimedOut { unfinished }
    }

    async fn leave(mut self) -> Exit {
        self.executor.close();
        // A renewal or a look for orphans behind the departure would enter this host again.
        self.workers.stop().await;
        let relayed = self.queue.relayed();
        self.reporter.relayed(relayed);
        self.reporter.left_in_outboxes(relayed.left);
        if let Err(error) = self.queue.leave().await {
            debug!(%error, "could not remove this host's consumer; others will");
        }
        if self.timed_out {
            return Exit::NotEmpty;
        }
        info!("drained");
        Exit::Drained
    }
}
