//! The loop: it feeds the ledger with what happened, and carries out what the ledger says.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{debug, error, info, warn};

use crate::delivery::ledger::{
    Action, Delivery, Ending, Event, Key, Ledger, Note, Parting, Reply, Time,
};
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::Outcome;
use crate::delivery::policy::{DELAY_MAX, Disposition, Policy};
use crate::queue::{
    Claim, Class, Error, Maintenance, Queue, Record, Repaired, Settlement, Step, Taken,
};
use crate::runtime::errands::{Errands, Told};
use crate::runtime::executor::{self, Handler, Report, Shared, Word};
use crate::runtime::job::{Job, Ticket};
use crate::runtime::{Clock, Settings, gate, wall_clock_ms};
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::metrics::Metrics;

/// How long a fetch waits at most. Short, so that a host that stops is not held up where its
/// fetch cannot be interrupted, and so that a lease is never much older than its claim.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(1);
/// How often housekeeping runs.
const MAINTAIN_EVERY: Time = Time::from_secs(5);
/// Between two looks at the backlog while waiting for the queue to be empty.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The first and the longest pause before Redis is asked again.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(4);
/// How many words of slots are taken in one turn.
const WORDS_PER_TURN: usize = 1024;
/// The most that is sent in one settle or record round trip.
const BATCH_MAX: usize = 512;
/// Same-kind log lines are this far apart.
const LOG_EVERY: Time = Time::from_secs(1);

/// What an operator asks of a running host.
#[derive(Clone, Debug)]
pub enum Control {
    /// Stop reading, end what has started, hand back the rest.
    Drain,
    /// The rules have changed.
    Policy(Box<Policy>),
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
#[derive(Debug)]
pub struct Driver {
    queue: Arc<dyn Queue>,
    settings: Settings,
    clock: Clock,
    metrics: Arc<Metrics>,
    health: Health,
    ledger: Ledger<Arc<Job>>,
    errands: Errands,
    /// Released and not finished, by holding.
    tickets: HashMap<Key, Arc<Ticket>, FxBuildHasher>,
    executor: async_channel::Sender<Arc<Ticket>>,
    shared: Arc<Shared>,
    slots: JoinSet<()>,
    words: mpsc::Receiver<Word>,
    told: mpsc::Receiver<Told>,
    online: watch::Sender<bool>,
    /// Failures in a row: how long the next pause is.
    failures: u32,
    fetch: Option<(usize, bool)>,
    due: Option<usize>,
    orphans: Option<usize>,
    renew: Option<Vec<Key>>,
    records: Vec<(Key, Record)>,
    acknowledgements: Vec<(Key, Arc<Claim>)>,
    settlements: Vec<(Key, Settlement)>,
    next_maintenance: Time,
    /// Whether retention was held back when it was last looked at: said once.
    retention_held_back: bool,
    empty: Emptiness,
    drain_deadline: Option<Time>,
    refusal_logged: Option<Time>,
    refusals_unlogged: u64,
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
        let clock = Clock::start();
        let concurrency = settings.ledger.concurrency;
        // What the ledger releases at once is bounded by the prefetch and a few reserved places.
        let released_max = 2 * (settings.ledger.prefetch_max + concurrency) + 64;
        let (executor, tickets) = async_channel::bounded(released_max);
        let (words_tx, words) = mpsc::channel(WORDS_PER_TURN.max(2 * concurrency));
        let (told_tx, told) = mpsc::channel(64);
        let (online, online_rx) = watch::channel(true);
        let cap = settings.ledger.policy.allowance.cap;
        let shared = Arc::new(Shared {
            cancelled: Arc::new(AtomicBool::new(false)),
            max_attempts: AtomicU32::new(cap.unwrap_or(0)),
            min_idle: settings.ledger.min_idle,
            clock,
        });
        metrics.handler(handler.digest());
        let slots = executor::start(handler, concurrency, &shared, &tickets, &words_tx, attempts);
        let deadline = settings.until_empty.and_then(|until| until.timeout);
        Self {
            ledger: Ledger::new(clock.now(), settings.ledger.clone()),
            errands: Errands::start(&queue, clock, &told_tx, &online_rx),
            empty: Emptiness {
                deadline: deadline.map(|after| clock.now() + after),
                gave_up: false,
            },
            queue,
            settings,
            clock,
            metrics,
            health,
            tickets: HashMap::default(),
            executor,
            shared,
            slots,
            words,
            told,
            online,
            failures: 0,
            fetch: None,
            due: None,
            orphans: None,
            renew: None,
            records: Vec::new(),
            acknowledgements: Vec::new(),
            settlements: Vec::new(),
            next_maintenance: Time::ZERO,
            retention_held_back: false,
            drain_deadline: None,
            refusal_logged: None,
            refusals_unlogged: 0,
        }
    }

    /// Run until told to drain, or until the queue is empty if that was asked for.
    pub async fn run(mut self, mut control: mpsc::Receiver<Control>) -> Exit {
        let mut words = Vec::with_capacity(WORDS_PER_TURN);
        let mut actions = Vec::new();
        let mut control_open = true;
        loop {
            let now = self.clock.now();
            self.ledger.poll(now, &mut actions);
            for action in actions.drain(..) {
                self.perform(now, action);
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
            self.metrics
                .in_flight
                .set(i64::try_from(self.ledger.running()).unwrap_or(i64::MAX));
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
            Control::Policy(policy) => {
                let cap = policy.allowance.cap.unwrap_or(0);
                self.shared.max_attempts.store(cap, Ordering::Relaxed);
                self.ledger
                    .apply(self.clock.now(), Event::PolicyChanged(policy));
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
        self.ledger.apply(now, Event::Drain);
    }

    fn time_out(mut self) -> Exit {
        let unfinished = self.ledger.len();
        self.slots.abort_all();
        warn!(
            unfinished,
            "the drain deadline has passed; what is unfinished stays pending"
        );
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

    // --- what the ledger says -------------------------------------------------------------

    fn perform(&mut self, now: Time, action: Action<Arc<Job>>) {
        match action {
            Action::Fetch { want, wait } => self.fetch = Some((want, wait)),
            Action::Interrupt => self.interrupt(),
            Action::TakeDue { max } => self.due = Some(max),
            Action::TakeOrphans { max } => self.orphans = Some(max),
            Action::Renew(keys) => self.renew = Some(keys),
            Action::Release {
                key,
                attempt,
                leased,
            } => self.release(now, key, attempt, leased),
            Action::Record { key, expect, write } => {
                if let Some(claim) = self.claim(key) {
                    let record = Record {
                        claim,
                        expect,
                        write,
                    };
                    self.records.push((key, record));
                }
            }
            Action::Go { key, attempt } => {
                if let Some(ticket) = self.tickets.get(&key) {
                    ticket.grant(attempt);
                }
            }
            Action::Deny(key) => {
                if let Some(ticket) = self.tickets.remove(&key) {
                    ticket.deny();
                }
            }
            Action::Revoke(key) => {
                if self.tickets.get(&key).is_some_and(|ticket| ticket.revoke()) {
                    self.tickets.remove(&key);
                    self.ledger.apply(now, Event::Revoked(key));
                }
            }
            Action::Acknowledge(key) => {
                if let Some(claim) = self.claim(key) {
                    self.acknowledgements.push((key, claim));
                }
            }
            Action::Settle {
                key,
                count,
                parting,
            } => self.settle(key, count, parting),
            Action::Ended { key, cargo, ending } => self.ended(key, &cargo, ending),
            Action::Note(note) => self.note(now, note),
        }
    }

    fn claim(&self, key: Key) -> Option<Arc<Claim>> {
        self.ledger.cargo(key).map(|job| Arc::clone(&job.claim))
    }

    fn release(&mut self, now: Time, key: Key, attempt: Option<u32>, leased: Time) {
        let Some(job) = self.ledger.cargo(key) else {
            return;
        };
        let ticket = Arc::new(Ticket::new(key, Arc::clone(job), attempt, leased));
        self.tickets.insert(key, Arc::clone(&ticket));
        if self.executor.try_send(ticket).is_err() {
            // No room: cannot happen while the ledger keeps its bounds, and loses nothing.
            self.tickets.remove(&key);
            self.ledger.apply(now, Event::Revoked(key));
        }
    }

    fn settle(&mut self, key: Key, count: u32, parting: Parting) {
        let Some(job) = self.ledger.cargo(key) else {
            return;
        };
        let step = match parting {
            Parting::Park { keep, after } => Step::Park { keep, after },
            Parting::HandBack { keep } => Step::Park {
                keep,
                after: Duration::ZERO,
            },
            Parting::Leave => Step::Leave,
            Parting::DeadLetter(rejection) => Step::DeadLetter {
                rejection,
                handler: job.handler().unwrap_or_else(super::no_digest),
            },
            Parting::Discard(_) => Step::Discard,
        };
        let settlement = Settlement {
            claim: Arc::clone(&job.claim),
            count,
            step,
        };
        self.settlements.push((key, settlement));
    }

    fn ended(&mut self, key: Key, job: &Job, ending: Ending) {
        self.tickets.remove(&key);
        let id = &*job.claim.message.id;
        match ending {
            Ending::Acknowledged => self.metrics.acknowledged(1),
            Ending::Parted(Parting::Park { after, .. }) => {
                self.metrics
                    .disposition(&Disposition::Requeue { delay: after });
                debug!(id, delay_ms = after.as_millis(), "requeued");
            }
            Ending::Parted(Parting::HandBack { .. }) => debug!(id, "handed back"),
            Ending::Parted(Parting::Leave) => debug!(id, "left for another host"),
            Ending::Parted(Parting::DeadLetter(rejection)) => {
                let (reason, attempts) = (rejection.reason.label(), rejection.attempts);
                let detail = rejection.detail.clone();
                info!(id, reason, attempts, detail, "dead-lettered");
                self.metrics
                    .disposition(&Disposition::DeadLetter(rejection));
            }
            Ending::Parted(Parting::Discard(rejection)) => {
                let (reason, attempts) = (rejection.reason.label(), rejection.attempts);
                let detail = rejection.detail.clone();
                info!(id, reason, attempts, detail, "discarded");
                self.metrics.disposition(&Disposition::Discard(rejection));
            }
            Ending::Superseded => debug!(id, "claimed again"),
            Ending::Gone => debug!(id, "settled elsewhere"),
            Ending::Trimmed => {
                self.metrics.trimmed_pending.inc();
                warn!(
                    id,
                    "lost to trimming: its entry was deleted while it was pending"
                );
            }
            Ending::Stolen => {
                self.metrics.steals.inc();
                warn!(id, "another host has taken it over");
            }
        }
    }

    fn note(&mut self, now: Time, note: Note) {
        match note {
            Note::OrphansTaken(n) => {
                self.metrics.orphans_recovered.inc_by(n as u64);
                info!(orphans = n, "recovered orphans");
            }
            Note::RequeuedHere => {
                let delay = Duration::ZERO;
                self.metrics.disposition(&Disposition::Requeue { delay });
            }
            Note::Recorded => {
                self.metrics.recorded_starts.inc();
            }
            Note::SettlementRefused { key, cause, again } => {
                self.refused(now, key, &cause, again);
            }
            Note::LeaseLost(key) => {
                self.metrics.leases_lost.inc();
                let id = self.ledger.cargo(key).map(|job| &*job.claim.message.id);
                warn!(id, "lost the lease of a running attempt");
            }
            Note::LeasesRenewed(n) => {
                self.metrics.lease_renewals.inc_by(n as u64);
            }
            Note::AloneBegan(key) => {
                self.metrics.alone_runs.inc();
                let id = self.ledger.cargo(key).map(|job| &*job.claim.message.id);
                info!(id, "runs alone: it may be what ended its last hosts");
            }
            Note::AloneEnded { took, .. } => {
                info!(took_ms = took.as_millis(), "the run alone has ended");
            }
            Note::Halted { detail, again } => {
                self.health.impede(Cause::Handler, &*detail);
                let again_ms = again.as_millis();
                error!(detail, again_ms, "no instance of the handler: stopped");
            }
            Note::Resumed => {
                self.health.clear(Cause::Handler);
                info!("instances of the handler can be made again");
            }
        }
    }

    fn refused(&mut self, now: Time, key: Key, cause: &str, again: Duration) {
        self.metrics.settlements_refused.inc();
        self.health.impede(Cause::DeadLettersRefused, cause);
        self.refusals_unlogged += 1;
        if self.refusal_logged.is_none_or(|at| now >= at + LOG_EVERY) {
            let id = self.ledger.cargo(key).map(|job| &*job.claim.message.id);
            let refusals = self.refusals_unlogged;
            let again_ms = again.as_millis();
            warn!(
                id,
                cause, refusals, again_ms, "redis refuses a settlement; it stays pending"
            );
            self.refusal_logged = Some(now);
            self.refusals_unlogged = 0;
        }
    }

    // --- what slots and errands say -----------------------------------------------------------

    fn take_word(&mut self, now: Time, word: Word) {
        match word {
            Word::Ready(key) => {
                let turned_away = self.ledger.cargo(key).and_then(|job| {
                    let expires_at_ms = job.expires_at_ms?;
                    gate::expired(expires_at_ms, wall_clock_ms())
                });
                let event = match turned_away {
                    Some((reason, detail)) => {
                        if let Some(ticket) = self.tickets.remove(&key) {
                            ticket.deny();
                        }
                        Event::TurnedAway {
                            key,
                            reason,
                            detail,
                        }
                    }
                    None => Event::SlotReady(key),
                };
                self.ledger.apply(now, event);
            }
            Word::TurnedAway(key, reason, detail) => {
                self.tickets.remove(&key);
                let event = Event::TurnedAway {
                    key,
                    reason,
                    detail,
                };
                self.ledger.apply(now, event);
            }
            Word::Finished { key, report, took } => self.finished(now, key, report, took),
        }
    }

    fn finished(&mut self, now: Time, key: Key, report: Report, took: Duration) {
        self.tickets.remove(&key);
        self.metrics.attempt(&report.outcome);
        self.metrics.handler_seconds.observe(took);
        if report.outcome != Outcome::Ack {
            if let Outcome::NackRequeue(Some(delay)) = report.outcome
                && delay > DELAY_MAX
            {
                self.metrics.delays_clamped.inc();
            }
            if let Some(job) = self.ledger.cargo(key) {
                let id = &*job.claim.message.id;
                let digest = &*report.digest;
                if let Outcome::Fault(fault) = &report.outcome {
                    let kind = fault.kind.label();
                    info!(
                        id,
                        kind,
                        detail = fault.detail,
                        digest,
                        "the handler faulted"
                    );
                } else {
                    debug!(id, outcome = ?report.outcome, digest, "the handler answered");
                }
                job.ran_on(report.digest);
            }
        }
        let event = Event::Finished {
            key,
            outcome: report.outcome,
            jitter: fastrand::f64(),
        };
        self.ledger.apply(now, event);
    }

    fn hear(&mut self, told: Told) {
        let now = self.clock.now();
        match told {
            Told::Fetched {
                asked,
                sent,
                result,
            } => {
                self.errands.fetch.done();
                let claims = self.answer(result).unwrap_or_default();
                if self.is_online() {
                    self.failures = 0;
                    if self.health.clear(Cause::Starting) {
                        info!("ready");
                    }
                }
                let event = Event::Fetched {
                    asked,
                    leased: sent,
                    deliveries: self.deliveries(claims),
                };
                self.ledger.apply(now, event);
            }
            Told::Due { sent, result } => {
                self.errands.due.done();
                let taken = self.take(result);
                let event = Event::DueTaken {
                    leased: sent,
                    deliveries: self.deliveries(taken.claims),
                    next: taken.next_due,
                };
                self.ledger.apply(now, event);
            }
            Told::Orphans { sent, result } => {
                self.errands.orphans.done();
                let taken = self.take(result);
                let event = Event::OrphansTaken {
                    leased: sent,
                    deliveries: self.deliveries(taken.claims),
                };
                self.ledger.apply(now, event);
            }
            Told::Recorded { sent, replies } => {
                self.errands.record.done();
                for (key, reply) in replies {
                    let event = Event::Recorded {
                        key,
                        leased: sent,
                        reply,
                    };
                    self.ledger.apply(now, event);
                }
            }
            Told::Acknowledged(keys) => {
                self.errands.acknowledge.done();
                self.ledger.apply(now, Event::Acknowledged(keys));
            }
            Told::Settled(replies) => {
                self.errands.settle.done();
                for (key, reply) in replies {
                    self.ledger.apply(now, Event::Settled(key, reply));
                }
                if self.ledger.refused() == 0 && self.health.clear(Cause::DeadLettersRefused) {
                    info!("redis takes settlements again");
                }
            }
            Told::Renewed { sent, result } => {
                self.errands.renew.done();
                let replies = self.answer(result).unwrap_or_default();
                for (key, reply) in &replies {
                    if *reply == Reply::Done
                        && let Some(ticket) = self.tickets.get(key)
                    {
                        ticket.renew(sent);
                    }
                }
                let event = Event::Renewed {
                    leased: sent,
                    replies,
                };
                self.ledger.apply(now, event);
            }
            Told::Maintained(result) => {
                self.errands.maintain.done();
                if let Some(done) = self.answer(result) {
                    self.maintained(done);
                }
            }
            Told::Looked(result) => self.looked(now, result),
            Told::Repaired(result) => self.repaired(now, result),
            Told::Failed(error) => self.failed(error),
        }
    }

    fn take(&mut self, result: Result<Taken, Error>) -> Taken {
        let taken = self.answer(result).unwrap_or_default();
        if taken.trimmed > 0 {
            self.metrics.trimmed_pending.inc_by(taken.trimmed);
            let entries = taken.trimmed;
            warn!(entries, "lost to trimming: deleted while they were pending");
        }
        taken
    }

    /// The gate's first look, and the ledger's view of what was claimed.
    fn deliveries(&self, claims: Vec<Claim>) -> Vec<Delivery<Arc<Job>>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let now_ms = wall_clock_ms();
        claims
            .into_iter()
            .map(|claim| {
                let enqueued_ms = claim.message.enqueued_ms;
                if enqueued_ms > 0 {
                    let waited = Duration::from_millis(now_ms.saturating_sub(enqueued_ms));
                    self.metrics.queue_wait_seconds.observe(waited);
                }
                Delivery {
                    id: claim.id,
                    origin: claim.origin,
                    header: claim.header,
                    native: claim.native,
                    turned_away: gate::check(&claim, &self.settings.gate, now_ms),
                    cargo: Arc::new(Job::new(claim)),
                }
            })
            .collect()
    }

    // --- Redis comes and goes -----------------------------------------------------------------

    fn is_online(&self) -> bool {
        *self.online.borrow()
    }

    fn answer<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        match result {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.failed(error);
                None
            }
        }
    }

    /// Something failed as a whole: stop asking, and look now and then whether it works again.
    fn failed(&mut self, error: Error) {
        self.metrics.redis_error(&error);
        if !self.is_online() {
            return;
        }
        let cause = match error.class() {
            Class::Configuration => Cause::RedisConfiguration,
            Class::Reconnect | Class::Retry | Class::Missing => Cause::RedisAway,
        };
        self.online.send_replace(false);
        self.health.impede(cause, error.to_string());
        warn!(%error, failures = self.failures, "redis is away");
        self.ledger.apply(self.clock.now(), Event::Offline);
        self.ask_again(&error);
    }

    fn ask_again(&mut self, error: &Error) {
        let pause = pause(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        if error.class() == Class::Missing && self.errands.repair.is_free() {
            let held = self
                .ledger
                .iter()
                .map(|(_, native, job)| (Arc::clone(&job.claim), native))
                .collect();
            self.errands.repair.send((pause, held));
        } else if self.errands.look.is_free() {
            self.errands.look.send(pause);
        }
    }

    fn back(&mut self, now: Time) {
        self.online.send_replace(true);
        self.metrics.reconnects.inc();
        self.health.clear(Cause::RedisAway);
        self.health.clear(Cause::RedisConfiguration);
        info!("redis is back");
        self.ledger.apply(now, Event::Online);
    }

    fn repaired(&mut self, now: Time, result: Result<Repaired, Error>) {
        self.errands.repair.done();
        match result {
            Ok(repaired) => {
                match repaired {
                    Repaired::Intact => {}
                    Repaired::Group => {
                        self.metrics.groups_recreated.inc();
                        warn!("the group was gone: made again behind the last entry read");
                    }
                    Repaired::Stream => {
                        self.metrics.groups_recreated.inc();
                        warn!("the stream was gone: made again, empty, with its group");
                        self.ledger.apply(now, Event::StreamLost);
                    }
                }
                self.back(now);
            }
            Err(error) => {
                self.metrics.redis_error(&error);
                self.health.impede(Cause::RedisAway, error.to_string());
                self.ask_again(&error);
            }
        }
    }

    /// What housekeeping did.
    fn maintained(&mut self, done: Maintenance) {
        self.metrics.retention_trimmed.inc_by(done.trimmed);
        self.metrics
            .dead_letters_trimmed
            .inc_by(done.dead_letters_dropped);
        if done.dead_letters_dropped > 0 {
            let dropped = done.dead_letters_dropped;
            warn!(
                dropped,
                "the dead-letter queue is full: its oldest were dropped"
            );
        }
        if done.consumers_removed > 0 {
            let removed = done.consumers_removed;
            info!(removed, "removed consumers that were long gone");
        }
        if done.held_back && !self.retention_held_back {
            warn!("the stream is longer than its retention: what is over it is unread or pending");
        }
        self.retention_held_back = done.held_back;
    }

    /// A look at the backlog: is Redis back, is the queue empty?
    fn looked(&mut self, now: Time, result: Result<crate::queue::Backlog, Error>) {
        self.errands.look.done();
        match result {
            Ok(backlog) => {
                if !self.is_online() {
                    self.back(now);
                }
                let nothing = !backlog.unread && backlog.pending == 0;
                if self.settings.until_empty.is_some() && nothing && self.ledger.is_empty() {
                    self.drain("the queue is empty");
                }
            }
            Err(error) if self.is_online() => self.failed(error),
            Err(error) => {
                self.metrics.redis_error(&error);
                self.health.impede(Cause::RedisAway, error.to_string());
                self.ask_again(&error);
            }
        }
    }

    // --- errands ------------------------------------------------------------------------------

    fn send_errands(&mut self, now: Time) {
        if self.errands.acknowledge.is_free() && !self.acknowledgements.is_empty() {
            let batch = std::mem::take(&mut self.acknowledgements);
            self.errands.acknowledge.send(batch);
        }
        if self.errands.record.is_free() && !self.records.is_empty() {
            let batch = take_some(&mut self.records);
            self.errands.record.send(batch);
        }
        if self.errands.settle.is_free() && !self.settlements.is_empty() {
            let batch = take_some(&mut self.settlements);
            self.errands.settle.send(batch);
        }
        if self.errands.renew.is_free()
            && let Some(keys) = self.renew.take()
        {
            let claims = keys
                .into_iter()
                .filter_map(|key| Some((key, self.claim(key)?)))
                .collect();
            self.errands.renew.send(claims);
        }
        if self.errands.fetch.is_free()
            && let Some((want, wait)) = self.fetch.take()
        {
            let longest = FETCH_WAIT_MAX.min(self.settings.ledger.min_idle / 4);
            let wait = if wait { longest } else { Duration::ZERO };
            self.errands.fetch.send((want, wait));
        }
        if self.errands.due.is_free()
            && let Some(max) = self.due.take()
        {
            self.errands.due.send(max);
        }
        if self.errands.orphans.is_free()
            && let Some(max) = self.orphans.take()
        {
            let held: rustc_hash::FxHashSet<DeliveryId> =
                self.ledger.iter().map(|(key, _, _)| key.id).collect();
            self.errands.orphans.send((max, held));
        }
        if now >= self.next_maintenance {
            self.next_maintenance = now + MAINTAIN_EVERY;
            if self.is_online() && self.drain_deadline.is_none() && self.errands.maintain.is_free()
            {
                self.errands.maintain.send(());
            }
        }
        if self.settings.until_empty.is_some() && self.drain_deadline.is_none() {
            if self.empty.deadline.is_some_and(|deadline| now >= deadline) {
                self.empty.gave_up = true;
                self.drain("the queue did not become empty in time");
            } else if self.is_online() && self.ledger.is_empty() && self.errands.look.is_free() {
                self.errands.look.send(LOOK_EVERY);
            }
        }
    }

    /// Make a waiting fetch return: best effort, it returns soon anyway.
    fn interrupt(&self) {
        if self.fetch.is_none() {
            let queue = Arc::clone(&self.queue);
            tokio::spawn(async move {
                if let Err(error) = queue.interrupt().await {
                    debug!(%error, "could not interrupt a waiting read");
                }
            });
        }
    }
}

/// Full batches first: what is left goes with the next.
fn take_some<T>(all: &mut Vec<T>) -> Vec<T> {
    if all.len() <= BATCH_MAX {
        return std::mem::take(all);
    }
    let rest = all.split_off(BATCH_MAX);
    std::mem::replace(all, rest)
}

/// The pause before Redis is asked again: doubled with every failure, half of it random.
fn pause(failures: u32, random: f64) -> Duration {
    let longest = (PAUSE_FIRST * 2u32.pow(failures.min(10))).min(PAUSE_MAX);
    longest.mul_f64(0.5 + random / 2.0)
}
