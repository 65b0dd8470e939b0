//! The loop: it feeds the ledger with what happened, and carries out what the ledger says.
//!
//! `act` carries out actions, `hear` takes in what slots and errands say, `send` sends errands off,
//! `away` waits for a Redis that is gone, `swapped` follows the versions of the handler.

mod act;
mod away;
mod hear;
mod send;
mod swapped;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, info, warn};

use crate::delivery::ledger::{Event, Key, Ledger, Time};
use crate::queue::{Claim, Guarantee, Queue, Record, Settlement};
use crate::runtime::errands::{Errands, Told};
use crate::runtime::executor::{self, Handler, Shared, Word};
use crate::runtime::job::{Job, Ticket};
use crate::runtime::{Clock, Rules, Settings};
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::logging::Throttle;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::status::Status;

/// How many words of slots are taken in one turn.
const WORDS_PER_TURN: usize = 1024;
/// Lines that tell of single faults, of each kind in a second: the others are only counted.
const FAULT_LINES: u32 = 100;

/// So many different messages that make the host panic stop the queue.
const PANICS_MAX: usize = 3;
/// Same-kind log lines are this far apart.
const LOG_EVERY: Time = Time::from_secs(1);

/// What an operator asks of a running host.
#[derive(Clone, Debug)]
pub enum Control {
    /// Stop reading, end what has started, hand back the rest.
    Drain,
    /// Other rules hold.
    Rules(Box<Rules>),
}

/// How a host ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Exit {
    /// Everything it held is settled or handed back.
    Drained,
    /// The drain deadline passed; this many deliveries stay pending, and are found as orphans.
    TimedOut {
        /// How many.
        unfinished: usize,
    },
    /// `--until-empty` was given up: the queue still held something.
    NotEmpty,
}

/// A host that is running: see the module.
pub struct Driver {
    queue: Arc<dyn Queue>,
    settings: Settings,
    clock: Clock,
    metrics: Arc<Metrics>,
    health: Health,
    ledger: Ledger<Arc<Job>>,
    /// How the versions of the handler do, if it has any.
    judge: Option<swapped::Judge>,
    /// How many messages one call takes now.
    batch: Box<dyn Fn() -> usize + Send + Sync>,
    errands: Errands,
    /// Released and not finished, by holding.
    tickets: HashMap<Key, Arc<Ticket>, FxBuildHasher>,
    executor: async_channel::Sender<Arc<Ticket>>,
    shared: Arc<Shared>,
    slots: JoinSet<()>,
    words: mpsc::Receiver<Word>,
    told: mpsc::Receiver<Told>,
    online: watch::Sender<bool>,
    away: away::Away,
    fetch: Option<(usize, bool)>,
    due: Option<usize>,
    orphans: Option<usize>,
    renew: Option<Vec<Key>>,
    records: Vec<(Key, Record)>,
    acknowledgements: Vec<(Key, Arc<Claim>)>,
    settlements: Vec<(Key, Settlement)>,
    next_maintenance: Time,
    next_observation: Time,
    empty: Emptiness,
    drain_deadline: Option<Time>,
    refusal_logged: Option<Time>,
    refusals_unlogged: u64,
    /// Redis has refused a settlement that is not carried out yet.
    refusing: bool,
    /// Redis refuses housekeeping: said once.
    house_refused: bool,
    /// Different messages that made the host panic in a call, and on which version: at most
    /// [`PANICS_MAX`] for each of those that run now.
    panicked: Vec<(Arc<str>, Arc<str>)>,
    /// What happens to many deliveries at once is said once a second.
    throttle: Throttle,
    /// Of what is told of each fault.
    faults: Throttle,
    /// What people see of this host.
    status: Status,
    /// Retention is held back by what is unread or pending: said once.
    held_back: bool,
    /// Messages that a full buffer dropped, and that no line has told of yet.
    dropped_unlogged: u64,
}

/// Whether the queue holds nothing to do, for `--until-empty`.
#[derive(Debug, Default)]
struct Emptiness {
    deadline: Option<Time>,
    gave_up: bool,
}

impl Driver {
    /// A host of this queue: its slots run on `attempts`, everything else on the caller's runtime.
    pub fn new<H: Handler>(
        queue: Arc<dyn Queue>,
        handler: &Arc<H>,
        settings: Settings,
        metrics: Arc<Metrics>,
        health: Health,
        attempts: &tokio::runtime::Handle,
    ) -> Self {
        let mut settings = settings.on(queue.guarantee());
        let clock = Clock::start();
        let concurrency = settings.ledger.concurrency;
        // What the ledger releases at once is bounded by the prefetch and a few reserved places.
        let released_max = 2 * (settings.ledger.prefetch_max + concurrency) + 64;
        let (executor, tickets) = async_channel::bounded(released_max);
        let (words_tx, words) = mpsc::channel(WORDS_PER_TURN.max(2 * concurrency));
        let (told_tx, told) = mpsc::channel(64);
        let (online, online_rx) = watch::channel(true);
        let shared = Arc::new(Shared {
            cancelled: Arc::new(AtomicBool::new(false)),
            max_attempts: AtomicU32::new(settings.ledger.policy.limit.starts_max()),
            running: AtomicUsize::new(0),
            batches: AtomicU64::new(0),
            splits: AtomicU64::new(0),
            min_idle: settings.ledger.min_idle,
            clock,
            time: queue.time(),
            gate: settings.gate.clone(),
        });
        metrics.handler(handler.digest());
        let slots = executor::start(handler, concurrency, &shared, &tickets, &words_tx, attempts);
        let versions = handler.versions();
        let judge = versions.map(|versions| swapped::Judge::new(versions, &settings));
        let deadline = settings.until_empty.and_then(|until| until.timeout);
        let handler = Arc::clone(handler);
        let batch: Box<dyn Fn() -> usize + Send + Sync> =
            Box::new(move || handler.batching().map_or(1, |batching| batching.size));
        settings.ledger.batch = batch();
        Self {
            ledger: Ledger::new(clock.now(), settings.ledger.clone()),
            batch,
            errands: Errands::start(&queue, clock, &told_tx, &online_rx),
            empty: Emptiness {
                deadline: deadline.map(|after| clock.now() + after),
                gave_up: false,
            },
            away: away::Away::new(queue.contact()),
            queue,
            settings,
            clock,
            metrics,
            health,
            judge,
            tickets: HashMap::default(),
            executor,
            shared,
            slots,
            words,
            told,
            online,
            fetch: None,
            due: None,
            orphans: None,
            renew: None,
            records: Vec::new(),
            acknowledgements: Vec::new(),
            settlements: Vec::new(),
            next_maintenance: Time::ZERO,
            next_observation: Time::ZERO,
            drain_deadline: None,
            refusal_logged: None,
            refusals_unlogged: 0,
            refusing: false,
            house_refused: false,
            panicked: Vec::new(),
            throttle: Throttle::default(),
            faults: Throttle::bursts(Duration::from_secs(1), FAULT_LINES),
            held_back: false,
            dropped_unlogged: 0,
            status: Status::default(),
        }
    }

    /// Show here what people may want to see of this host.
    #[must_use]
    pub fn showing(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// Run until told to drain, or until the queue is empty if that was asked for.
    pub async fn run(mut self, mut control: mpsc::Receiver<Control>) -> Exit {
        let mut words = Vec::with_capacity(WORDS_PER_TURN);
        let mut actions = Vec::new();
        let mut control_open = true;
        let mut swaps = self.swaps();
        // What came before that is heard of now: a canary of the start is on trial as any other.
        self.swapped(self.clock.now());
        loop {
            let now = self.clock.now();
            // Carrying out an action can make another (a revoked delivery is handed back).
            self.ledger.poll(now, &mut actions);
            while !actions.is_empty() {
                for action in actions.drain(..) {
                    self.perform(now, action);
                }
                self.ledger.poll(now, &mut actions);
            }
            self.send_errands(now);
            self.health.beat(Instant::now());
            if self.ledger.is_drained() {
                break;
            }
            if self.drain_deadline.is_some_and(|deadline| now >= deadline) {
                return self.time_out();
            }
            let deadline = self.clock.at(self.deadline(now)).into();
            tokio::select! {
                biased;
                command = control.recv(), if control_open => match command {
                    Some(command) => self.command(command),
                    None => control_open = false,
                },
                () = swaps.next() => self.swapped(self.clock.now()),
                Some(told) = self.told.recv() => self.hear(told),
                _ = self.words.recv_many(&mut words, WORDS_PER_TURN) => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
            // Whatever else has come meanwhile belongs to the same turn.
            while let Ok(told) = self.told.try_recv() {
                self.hear(told);
            }
            let now = self.clock.now();
            for word in words.drain(..) {
                self.take_word(now, word);
            }
            self.weigh(now);
            self.count_contact();
            self.metrics.in_flight.set(
                i64::try_from(self.shared.running.load(Ordering::Relaxed)).unwrap_or(i64::MAX),
            );
            let counted = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
            self.metrics.batches.inc_by(counted(&self.shared.batches));
            self.metrics
                .batch_splits
                .inc_by(counted(&self.shared.splits));
            self.metrics
                .held
                .set(i64::try_from(self.ledger.len()).unwrap_or(i64::MAX));
        }
        self.leave().await
    }

    fn deadline(&self, now: Time) -> Time {
        let looking = self.settings.until_empty.is_some() && self.drain_deadline.is_none();
        let empty = self.empty.deadline.filter(|_| looking);
        [
            self.ledger.next_deadline(),
            Some(self.next_maintenance),
            Some(self.next_observation),
            self.drain_deadline,
            empty,
        ]
        .into_iter()
        .flatten()
        .min()
        // Never in the past for long: a deadline that cannot be acted on must not spin.
        .map_or(now + LOG_EVERY, |at| at.max(now + Time::from_micros(200)))
    }

    fn command(&mut self, command: Control) {
        match command {
            Control::Drain => self.drain("told to stop"),
            Control::Rules(rules) => {
                let Rules { policy, ttl, queue } = *rules;
                let policy = policy.on(self.queue.guarantee());
                let starts_max = policy.limit.starts_max();
                self.shared
                    .max_attempts
                    .store(starts_max, Ordering::Relaxed);
                self.settings.gate.ttl = ttl;
                // Where a dead letter goes before it is decided that there is one.
                self.queue.adopt(queue);
                self.ledger
                    .apply(self.clock.now(), Event::PolicyChanged(Box::new(policy)));
                // A length limit is kept by the housekeeping.
                self.next_maintenance = Time::ZERO;
            }
        }
    }

    fn drain(&mut self, why: &'static str) {
        if self.drain_deadline.is_some() {
            return;
        }
        let now = self.clock.now();
        self.drain_deadline = Some(now + self.settings.drain_timeout);
        self.health.impede(Cause::Draining, why);
        self.shared.cancelled.store(true, Ordering::Relaxed);
        info!(why, held = self.ledger.len(), "draining");
        self.queue.stop_taking();
        self.ledger.apply(now, Event::Drain);
    }

    fn time_out(mut self) -> Exit {
        let unfinished = self.ledger.len();
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

    async fn leave(self) -> Exit {
        self.executor.close();
        if let Err(error) = self.queue.leave().await {
            debug!(%error, "could not remove this host's consumer; others will");
        }
        if self.empty.gave_up {
            return Exit::NotEmpty;
        }
        info!("drained");
        Exit::Drained
    }
}
