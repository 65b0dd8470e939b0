//! One run: time goes from event to event, and faults come in between.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Write as _;

use fastrand::Rng;

use super::super::held::{Held, Sent, State};
use super::super::{Action, Event, FIRST_SHARE, FOR_ORPHANS, Key, Ledger, Mode, Settings, Time};
use super::audit::{Audit, Cause, Death};
use super::driver::Call;
use super::executor::Slot;
use super::journal::{self, Witnesses};
use super::scenario::{AHEAD, ORIGIN, Scenario, ms};
use super::store::{Entry, HostId, Owner, Pending, Store};
use crate::delivery::attempt::Lane;
use crate::delivery::message::DeliveryId;
use crate::delivery::policy::{Policy, Reason};

/// For how long a host may hold more than it starts soon, and for how long an attempt that ended shows how fast it is.
pub(super) const LATELY: Time = ms(100);

/// More steps than any run takes that ends.
const STEPS_MAX: u64 = 20_000_000;

/// What the caller of the ledger keeps with a delivery: here, which message it is.
pub(super) type Job = Entry;

/// What is to come.
#[derive(Debug)]
pub(super) enum Step {
    Publish(Entry),
    Birth,
    /// Redis executes a call.
    Execute(u64),
    /// The answer of a call arrives.
    Answer(u64),
    /// Its host gives up on a call.
    GiveUp(u64),
    /// Something of the executor reaches the ledger.
    Tell(HostId, Event<Job>),
    Poll(HostId),
    /// A slot has its leave (given at that time), or must let go.
    Go(HostId, Key, u32, Time),
    Deny(HostId, Key),
    /// The handler starts, and ends.
    Start(HostId, u64),
    End(HostId, u64),
    /// The request of a call leaves, and its answer comes.
    Send(HostId, journal::Call),
    Respond(HostId, journal::Call),
    Reconnect(HostId),
    Probe(HostId),
    DrainOver(HostId),
    DeadLettersAccepted,
    MemoryFreed,
    /// A host learns which rules hold now.
    Policy(HostId),
    Heal,
}

pub(super) struct Host {
    pub(super) ledger: Ledger<Job>,
    pub(super) alive: bool,
    pub(super) draining: bool,
    /// It stands still until then.
    pub(super) frozen_until: Time,
    /// The operator has paused the queue until then.
    pub(super) paused_until: Time,
    /// Cut off from Redis.
    pub(super) cut_until: Option<Time>,
    /// It found its group missing, and asks only whether it is back.
    pub(super) offline: bool,
    pub(super) must_repair: bool,
    /// The mark of the group, as it knows it.
    pub(super) mark: u64,
    /// How many entries of the stream it has seen.
    pub(super) seen: usize,
    /// The rules as the operator gave them. With a dead-letter queue, its queue knows where dead letters go.
    pub(super) rules: Policy,
    /// There was a dead-letter queue since it started.
    pub(super) had_dead_letter: bool,
    /// How many it had seen before a read without an answer, and until when that matters.
    pub(super) unanswered_read: Option<(usize, Time)>,
    pub(super) queue: VecDeque<(Key, Option<u32>, Time)>,
    pub(super) slots: Vec<Slot>,
    /// Calls that wait for the connection.
    pub(super) backlog: Vec<super::driver::Command>,
    pub(super) next_poll: Option<Time>,
    /// When it last woke up.
    pub(super) woke: Time,
    /// Leases that it knows it lost.
    pub(super) lost: HashSet<Key>,
    /// Settlements that had no answer once.
    pub(super) unanswered: HashSet<Key>,
    /// When something last kept it from renewing.
    pub(super) disturbed: Time,
    /// The numbers that its last attempts have read.
    pub(super) read: HashMap<Entry, (usize, u64)>,
    /// When the starts of deliveries were reserved for.
    pub(super) reserved: HashMap<Entry, Time>,
    /// The counts that its last attempts have.
    pub(super) counts: HashMap<Entry, u32>,
    /// No instance of the handler can be made until then.
    pub(super) broken_until: Time,
    /// When attempts have ended lately.
    pub(super) ended: VecDeque<Time>,
    /// Since when it has held more than it starts soon.
    hoards: Option<Time>,
    /// When it last said its permits anew although their lease had ended.
    pub(super) lapsed: Time,
    /// When it learned that a request for starts had no answer, or a late one.
    pub(super) asked_in_vain: Time,
    /// Since when normal traffic may run, and for how long it may before the next isolated run.
    pub(super) share: (Time, Time),
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) rng: Rng,
    pub(super) now: Time,
    pub(super) store: Store,
    pub(super) audit: Audit,
    pub(super) hosts: Vec<Host>,
    pub(super) calls: HashMap<u64, Call>,
    pub(super) next_token: u64,
    /// When the clock of the server jumped last.
    jumped: Option<Time>,
    pub(super) healed: bool,
    pub(super) witnesses: Witnesses,
    /// Boxed: the map moves its values about, and these are large.
    steps: BTreeMap<(Time, u64), Box<Step>>,
    away_until: Time,
    /// Which change of the rules is in force.
    policy: Option<usize>,
    faults_left: u32,
    /// What hosts have read in a group that is gone, and do not know of.
    awaiting: Vec<(HostId, Entry)>,
    closed: bool,
    count: u64,
    pub(super) tale: Tale,
    trace: Option<String>,
}

/// What runs were like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tale {
    pub(super) runs: u64,
    pub(super) starts: u64,
    /// Hosts that did not leave by themselves.
    pub(super) deaths: u64,
    /// Replies that said so.
    pub(super) refused: u64,
    pub(super) stolen: u64,
    pub(super) changes: u64,
    /// Attempts that ran again.
    pub(super) reruns: u64,
    /// Starts that were recorded ahead.
    pub(super) ahead: u64,
    /// Groups that were destroyed.
    pub(super) regrouped: u64,
    /// Consumers that were deleted with something pending.
    pub(super) cleaned: u64,
    /// Messages that were cancelled.
    pub(super) cancelled: u64,
    /// How often the clock of the server jumped.
    pub(super) jumps: u64,
    pub(super) steps: u64,
}

impl Tale {
    pub(super) fn add(&mut self, other: Self) {
        self.runs += other.runs;
        self.starts += other.starts;
        self.deaths += other.deaths;
        self.refused += other.refused;
        self.stolen += other.stolen;
        self.changes += other.changes;
        self.reruns += other.reruns;
        self.ahead += other.ahead;
        self.regrouped += other.regrouped;
        self.cleaned += other.cleaned;
        self.cancelled += other.cancelled;
        self.jumps += other.jumps;
        self.steps += other.steps;
    }
}

/// A broken promise, and how it came to that.
#[derive(Debug)]
pub(super) struct Violation {
    pub(super) what: String,
    pub(super) trace: String,
}

pub(super) fn run(scenario: &Scenario, seed: u64, traced: bool) -> Result<Tale, Violation> {
    let mut world = World {
        scenario,
        rng: Rng::with_seed(seed ^ 0x5eed),
        now: ORIGIN,
        store: Store::new(scenario.min_idle, scenario.records),
        audit: Audit::new(scenario),
        hosts: Vec::new(),
        calls: HashMap::new(),
        next_token: 0,
        jumped: None,
        healed: false,
        witnesses: Witnesses::new(),
        steps: BTreeMap::new(),
        away_until: Time::ZERO,
        policy: None,
        faults_left: scenario.faults.most,
        awaiting: Vec::new(),
        closed: false,
        count: 0,
        tale: Tale::default(),
        trace: traced.then(String::new),
    };
    world.begin();
    let lived = world.live();
    if lived
        && world.audit.violation.is_none()
        && scenario.plans.iter().all(|p| !scenario.is_endless(p))
    {
        world.end();
    }
    world.tale.runs = 1;
    world.tale.steps = world.count;
    let lives = &world.audit.lives;
    world.tale.starts = lives.iter().map(|life| u64::from(life.starts)).sum();
    match world.audit.violation {
        Some(what) => Err(Violation {
            what,
            trace: world.trace.unwrap_or_default(),
        }),
        None => Ok(world.tale),
    }
}

impl World<'_> {
    fn begin(&mut self) {
        let origin = self.now;
        for (entry, plan) in self.scenario.plans.iter().enumerate() {
            self.steps.insert(
                (origin + plan.published, entry as u64),
                Box::new(Step::Publish(entry)),
            );
        }
        self.next_token = self.scenario.plans.len() as u64;
        for _ in 0..self.scenario.hosts {
            let after = self.jitter(ms(300));
            self.after(after, Step::Birth);
        }
        self.after(self.scenario.heal_at, Step::Heal);
    }

    /// Run until all is settled. False if it did not come to that.
    fn live(&mut self) -> bool {
        let limit = self.now + self.scenario.heal_at + self.scenario.patience;
        while self.audit.violation.is_none() {
            if self.audit.is_done(self.scenario) {
                return true;
            }
            if self.now > limit || self.count > STEPS_MAX {
                break;
            }
            self.step();
        }
        self.audit.finish(self.scenario, &self.store, self.now);
        false
    }

    /// Drain every host: nothing may be left behind.
    fn end(&mut self) {
        self.healed = true;
        self.heal();
        self.closed = true;
        let drained: Vec<_> = (0..self.hosts.len())
            .filter(|&h| self.hosts[h].alive)
            .collect();
        for &host in &drained {
            self.drain(host);
        }
        let limit = self.now + self.scenario.min_idle * 20;
        while self.audit.violation.is_none() && self.hosts.iter().any(|h| h.alive) {
            if self.now > limit {
                self.audit
                    .violate(|| "a host that drains never ends".to_owned());
            }
            self.step();
        }
        let now = self.now;
        self.audit.finish(self.scenario, &self.store, now);
        self.check_journals();
        let pending = self.store.pending.keys();
        let is_over = |entry: &&Entry| {
            let life = &self.audit.lives[**entry];
            life.again || life.excused
        };
        let pending = pending.filter(|entry| !is_over(entry));
        let pending: Vec<Entry> = pending.copied().collect();
        // What was settled in one group may be pending in another.
        if !pending.is_empty() && !self.audit.regrouped {
            self.audit
                .violate(|| format!("{pending:?} are pending, and all is settled"));
        }
    }

    fn step(&mut self) {
        let Some(((at, _), step)) = self.steps.pop_first() else {
            self.audit
                .violate(|| "nothing is left to happen".to_owned());
            return;
        };
        let step = *step;
        self.now = self.now.max(at);
        self.count += 1;
        let host = self.host_of(&step);
        if let Some(host) = host {
            let h = &self.hosts[host];
            let is_redis = matches!(step, Step::Execute(_));
            if !h.alive && !is_redis {
                return;
            }
            if !is_redis && h.frozen_until > self.now {
                let at = h.frozen_until + self.jitter(ms(3));
                self.at(at, step);
                return;
            }
            let before = self.rng.bool();
            if before && self.trouble(host, &step) {
                // The step may come too late now.
                let is_lost = !is_redis
                    && (!self.hosts[host].alive || self.hosts[host].frozen_until > self.now);
                if is_lost {
                    let at = self.now + ms(1);
                    self.at(at, step);
                    return;
                }
                self.perform(step);
            } else {
                let weighty = self.is_weighty(&step);
                self.perform(step);
                if !before && weighty {
                    self.trouble_now(host);
                }
            }
        } else {
            self.perform(step);
        }
        if let Some(host) = host {
            self.check_hoard(host);
        }
        self.hear_of_settled();
    }

    fn hear_of_settled(&mut self) {
        for (entry, fate) in std::mem::take(&mut self.store.settled) {
            self.trace(|| format!("message {entry} is settled: {fate:?}"));
            self.audit.settled(self.scenario, entry, fate);
        }
    }

    /// A host does not keep what it will not start soon: more than twice as many messages as its attempts ended lately,
    /// by the work that it may read ahead.
    fn check_hoard(&mut self, host: HostId) {
        let (now, scenario) = (self.now, self.scenario);
        let h = &mut self.hosts[host];
        while h.ended.front().is_some_and(|at| *at + LATELY < now) {
            h.ended.pop_front();
        }
        let waits =
            |held: &&Held<Job>| matches!(held.state, State::Waiting) && held.lane == Lane::Normal;
        let waiting = h.ledger.holdings.iter().map(|(_, held)| held).filter(waits);
        let unstarted = waiting.count() + h.queue.len();
        let free = h.slots.iter().filter(|slot| matches!(slot, Slot::Free));
        let shares = scenario.ahead.as_millis().div_ceil(AHEAD.as_millis());
        let soon = h.ended.len() * usize::try_from(shares).unwrap();
        let may_send = h.alive && h.cut_until.is_none() && !h.offline && h.frozen_until <= now;
        if !may_send || unstarted <= free.count() + FOR_ORPHANS + 2 * soon {
            h.hoards = None;
        } else {
            let since = *h.hoards.get_or_insert(now);
            // A host that stood still looks again first, and what asks for its start waits for the answer.
            let since = since.max(h.frozen_until).max(h.asked_in_vain);
            let is_asking = h.ledger.admissions.is_asking();
            self.audit.require(now <= since + LATELY || is_asking, || {
                format!(
                    "host {host} keeps {unstarted} messages since {since:?}, and {soon} start soon"
                )
            });
        }
    }

    /// An isolated run keeps all other messages waiting: before it, they have their share of the time.
    pub(super) fn check_share(&mut self, host: HostId) {
        let h = &self.hosts[host];
        let (open, share) = h.share;
        let Mode::Isolated { since, key } = h.ledger.mode else {
            return;
        };
        let waited = |entry: Entry| ORIGIN + self.scenario.plans[entry].published < open;
        let is_unread = self.store.unread().iter().any(|entry| waited(*entry));
        // The host may know a little before it says so. A group that was made again has unread messages that the
        // host's last look could not find.
        let is_excused = self.audit.regrouped || !self.scenario.faults.is_calm();
        let has_share = since + ms(1) >= open + share || !is_unread || is_excused;
        self.audit.require(has_share, || {
            let entry = entry_of(key);
            format!("message {entry} runs isolated, and unread messages had no share of {share:?} before")
        });
    }

    fn perform(&mut self, step: Step) {
        match step {
            Step::Publish(entry) => {
                self.store.publish(entry);
                self.wake_fetches();
            }
            Step::Birth => self.birth(),
            Step::Execute(call) => self.execute(call),
            Step::Answer(call) => self.answer(call),
            Step::GiveUp(call) => self.give_up(call),
            // A host that stood still hears whether the queue is paused now, and not what was true before.
            Step::Tell(host, Event::Paused(_)) => {
                let is_paused = self.now < self.hosts[host].paused_until;
                self.apply(host, Event::Paused(is_paused));
            }
            Step::Tell(host, event) => self.apply(host, event),
            Step::Poll(host) => {
                self.hosts[host].next_poll = None;
                self.poll(host);
            }
            Step::Go(host, key, attempt, given) => self.go(host, key, attempt, given),
            Step::Deny(host, key) => self.deny(host, key),
            Step::Start(host, token) => self.start(host, token),
            Step::End(host, token) => self.end_attempt(host, token),
            Step::Send(host, call) => self.send(host, call),
            Step::Respond(host, call) => self.respond(host, call),
            Step::Reconnect(host) => self.reconnect(host),
            Step::Probe(host) => self.probe(host),
            Step::DrainOver(host) => self.kill(host, Cause::Outside),
            Step::DeadLettersAccepted => self.store.dead_letters_refused = false,
            Step::MemoryFreed => self.store.out_of_memory = false,
            Step::Policy(host) => {
                // What it has decided by now, it has decided under the rules before.
                self.poll(host);
                let rules = self.rules();
                let at = &mut self.hosts[host];
                let before = Policy {
                    has_dead_letter: at.had_dead_letter,
                    ..at.rules.clone()
                };
                // The queue must know where dead letters go before the ledger decides on one.
                at.rules = rules.clone();
                at.had_dead_letter |= rules.has_dead_letter;
                let policy = Box::new(rules.behind(&before));
                self.apply(host, Event::PolicyChanged(policy));
            }
            Step::Heal => {
                self.healed = true;
                self.heal();
            }
        }
    }

    fn host_of(&self, step: &Step) -> Option<HostId> {
        match step {
            Step::Execute(call) | Step::Answer(call) | Step::GiveUp(call) => {
                self.calls.get(call).map(|call| call.host)
            }
            Step::Tell(host, _)
            | Step::Poll(host)
            | Step::Go(host, ..)
            | Step::Deny(host, _)
            | Step::Start(host, _)
            | Step::End(host, _)
            | Step::Send(host, _)
            | Step::Respond(host, _)
            | Step::Reconnect(host)
            | Step::Probe(host)
            | Step::Policy(host)
            | Step::DrainOver(host) => Some(*host),
            Step::Publish(_)
            | Step::Birth
            | Step::DeadLettersAccepted
            | Step::MemoryFreed
            | Step::Heal => None,
        }
    }

    /// Whether a fault at this step is worth more than one at any other time: looks that find
    /// nothing are most of the steps.
    fn is_weighty(&mut self, step: &Step) -> bool {
        match step {
            Step::Poll(_) => false,
            Step::Execute(call) | Step::Answer(call) | Step::GiveUp(call) => {
                let weighty = self.calls.get(call).is_some_and(|c| c.command.is_weighty());
                weighty || self.rng.u32(0..8) == 0
            }
            _ => true,
        }
    }

    fn trouble(&mut self, host: HostId, step: &Step) -> bool {
        self.is_weighty(step) && self.trouble_now(host)
    }

    /// A fault, perhaps. True if one happened.
    fn trouble_now(&mut self, near: HostId) -> bool {
        let faults = self.scenario.faults;
        if self.healed || self.faults_left == 0 || self.rng.u32(0..1000) >= faults.at_step {
            return false;
        }
        let host = if self.rng.u32(0..3) > 0 || self.hosts.is_empty() {
            near
        } else {
            self.rng.usize(..self.hosts.len())
        };
        if !self.hosts[host].alive {
            return false;
        }
        let min_idle = self.scenario.min_idle;
        let lengths = [min_idle / 10, min_idle / 2, min_idle, min_idle * 3];
        let length = lengths[self.rng.usize(..lengths.len())] + self.jitter(min_idle / 2);
        let weights = [
            faults.kill,
            faults.pause,
            faults.drain,
            faults.cut,
            faults.redis_away,
            faults.dead_letters_refused,
            faults.out_of_memory,
            faults.parked_set_lost,
            faults.trim,
            faults.no_instance,
            faults.policy,
            faults.intake,
            faults.group,
            faults.consumer,
            faults.cancel,
            faults.clock,
        ];
        let all: u32 = weights.iter().sum();
        if all == 0 {
            return false;
        }
        let mut pick = self.rng.u32(0..all);
        let which = weights
            .iter()
            .position(|&weight| {
                let here = pick < weight;
                pick = pick.saturating_sub(weight);
                here
            })
            .unwrap_or(0);
        self.faults_left -= 1;
        match which {
            0 => self.kill(host, Cause::Outside),
            1 => self.freeze(host, length),
            2 => self.drain(host),
            3 => self.cut(host, length),
            4 => {
                self.away_until = self.now + length;
                for host in 0..self.hosts.len() {
                    if self.hosts[host].alive {
                        self.cut(host, length);
                    }
                }
            }
            5 => {
                self.trace(|| format!("the dead-letter queue is full for {length:?}"));
                self.store.dead_letters_refused = true;
                self.after(length, Step::DeadLettersAccepted);
            }
            6 => {
                self.trace(|| format!("Redis is out of memory for {length:?}"));
                self.store.out_of_memory = true;
                self.after(length, Step::MemoryFreed);
            }
            7 => {
                self.trace(|| "the set of parked deliveries is deleted".to_owned());
                let parked = self.store.delete_parked_set();
                self.excuse(parked);
            }
            8 => {
                let entry = self.rng.usize(..self.scenario.plans.len());
                self.trace(|| format!("message {entry} is trimmed"));
                self.store.deleted.insert(entry);
            }
            9 if self.rng.bool() => {
                self.trace(|| format!("host {host} can make no instance for {length:?}"));
                self.hosts[host].broken_until = self.now + length;
            }
            9 => {
                self.trace(|| format!("host {host} has a broken handler for {length:?}"));
                let detail = "it faults on everything".to_owned();
                self.tell(host, Event::Broken { detail });
                self.after(length, Step::Tell(host, Event::HandlerChanged));
            }
            10 => {
                let which = self.rng.usize(..=self.scenario.changes.len());
                self.rule(self.scenario.changes.get(which).map(|_| which));
            }
            11 => {
                self.trace(|| format!("the queue is paused on host {host} for {length:?}"));
                let h = &mut self.hosts[host];
                h.paused_until = h.paused_until.max(self.now + length);
                self.tell(host, Event::Paused(true));
                self.after(length, Step::Tell(host, Event::Paused(false)));
            }
            12 => self.destroy_group(),
            13 => self.delete_consumer(),
            14 => self.cancel(),
            _ => self.jump(length),
        }
        true
    }

    /// Whether the clock of the server jumped during a lease that may last now.
    pub(super) fn may_have_jumped(&self) -> bool {
        let reach = self.scenario.min_idle * 4;
        self.jumped.is_some_and(|at| at + reach >= self.now)
    }

    /// The clock of the server jumps forward: leases end for the server, and not for the hosts. Not twice within a lease,
    /// and not while a message is on its way to its host.
    fn jump(&mut self, by: Time) {
        if self.may_have_jumped() || self.calls.values().any(Call::brings_messages) {
            return;
        }
        self.jumped = Some(self.now);
        self.trace(|| format!("the clock of the server jumps by {by:?}"));
        self.store.jump(by);
        self.tale.jumps += 1;
        let (now, min_idle) = (self.now, self.scenario.min_idle);
        for h in &mut self.hosts {
            h.disturbed = h.disturbed.max(now + min_idle);
        }
    }

    /// The operator cancels a message, wherever it is. Hosts hear of it soon, late, or never.
    fn cancel(&mut self) {
        let entry = self.rng.usize(..self.scenario.plans.len());
        let is_cancelled = self.store.cancel(entry);
        self.trace(|| format!("message {entry} is cancelled: {is_cancelled}"));
        if !is_cancelled {
            return;
        }
        self.tale.cancelled += 1;
        // Before the step that it comes with.
        self.hear_of_settled();
        for host in 0..self.hosts.len() {
            let delays = [ms(1), ms(20), self.scenario.min_idle];
            let delay = delays[self.rng.usize(..delays.len())];
            let delay = self.jitter(delay);
            if self.hosts[host].alive && self.rng.u32(0..4) > 0 {
                let ids = vec![DeliveryId(entry as u128)];
                self.after(delay, Step::Tell(host, Event::Cancelled(ids)));
            }
        }
    }

    /// A client deletes a consumer, with all that is pending for it.
    fn delete_consumer(&mut self) {
        let owner = match self.rng.bool() {
            true => Owner::Parked,
            false => Owner::Host(self.rng.usize(..self.hosts.len())),
        };
        let gone = self.store.delete_consumer(owner);
        self.trace(|| format!("the consumer {owner:?} is deleted, with {gone:?}"));
        self.tale.cleaned += u64::from(!gone.is_empty());
        for &entry in &gone {
            self.audit.unlisted(entry);
            // Its record would have brought it up again: no other host can tell it from one that is settled.
            if self.store.unrecorded.remove(&entry) {
                self.audit.excuse(entry, false);
            }
        }
        self.excuse(gone);
    }

    /// The group is made again by this host, or by another program. What other hosts have read, and do not know of, is
    /// lost with the earlier one.
    pub(super) fn made_again_by(&mut self, host: Option<HostId>) {
        let awaiting = std::mem::take(&mut self.awaiting);
        let others = awaiting
            .into_iter()
            .filter(|&(other, _)| Some(other) != host);
        let others: Vec<Entry> = others.map(|(_, entry)| entry).collect();
        self.excuse(others);
    }

    /// A client destroys the group; another program may make it again at once.
    fn destroy_group(&mut self) {
        let read = self.store.read;
        // What living hosts have, and do not know: the answers are on their way, or lost.
        let unknown = |(&entry, held): (&Entry, &Pending)| {
            let Owner::Host(host) = held.owner else {
                return None;
            };
            let h = &self.hosts[host];
            let is_known =
                h.ledger.holds(&DeliveryId(entry as u128)) || self.store.due.contains_key(&entry);
            (h.alive && !is_known).then_some((host, entry))
        };
        let unknown = self.store.pending.iter().filter_map(unknown);
        let is_new = |&(host, entry): &(HostId, Entry)| {
            self.store.place_behind(entry) > self.hosts[host].read_from(self.now)
        };
        let awaiting: Vec<_> = unknown.filter(is_new).collect();
        self.store.destroy_group();
        match self.rng.u32(0..3) {
            0 => {}
            1 => self.store.create_group(read),
            _ => self.store.create_group(0),
        }
        let again = self.store.group.map(|_| self.store.read);
        self.trace(|| format!("the group is destroyed, and made again at {again:?}"));
        self.audit.regrouped = true;
        self.tale.regrouped += 1;
        self.awaiting = awaiting;
        let is_awaited = self.awaiting.iter().map(|&(_, entry)| entry);
        let is_awaited: HashSet<Entry> = is_awaited.collect();
        let all = 0..self.scenario.plans.len();
        self.excuse(all.filter(|entry| !is_awaited.contains(entry)));
        if again.is_some() {
            self.made_again_by(None);
        }
        self.wake_fetches();
    }

    /// A group takes its pending list with it. Of these, what no living host holds, what is not parked,
    /// and what the next group does not hand out again, is lost: no host knows it any more.
    pub(super) fn excuse(&mut self, entries: impl IntoIterator<Item = Entry>) {
        let living = self.hosts.iter().filter(|host| host.alive);
        let held: HashSet<Entry> = living
            .flat_map(|host| host.ledger.holdings.iter())
            .filter(|(_, held)| {
                let sent = match &held.state {
                    State::Settling { sent, .. } | State::Refused { sent, .. } => Some(sent),
                    _ => None,
                };
                held.lost.is_none() && sent != Some(&Sent::Acknowledgement)
            })
            .map(|(_, held)| held.job)
            .collect();
        let store = &self.store;
        for entry in entries {
            let is_known = store.is_unread(entry)
                || store.pending.contains_key(&entry)
                || store.is_recorded(entry)
                || held.contains(&entry);
            self.audit.excuse(entry, is_known);
        }
    }

    /// Other rules hold: each host learns of it within two seconds.
    fn rule(&mut self, policy: Option<usize>) {
        self.policy = policy;
        self.tale.changes += 1;
        self.trace(|| format!("the rules of change {policy:?} hold"));
        for host in 0..self.hosts.len() {
            let after = self.jitter(ms(2000));
            self.after(after, Step::Policy(host));
        }
    }

    fn rules(&self) -> Policy {
        let change = self
            .policy
            .and_then(|which| self.scenario.changes.get(which));
        self.scenario.policy_after(change)
    }

    fn heal(&mut self) {
        if self.policy.is_some() {
            self.rule(None);
        }
        self.store.dead_letters_refused = false;
        self.store.out_of_memory = false;
    }

    fn birth(&mut self) {
        if self.closed {
            return;
        }
        if self.away_until > self.now {
            let at = self.away_until + self.jitter(ms(50));
            self.at(at, Step::Birth);
            return;
        }
        let id = self.hosts.len();
        if self.store.group.is_none() {
            self.made_again_by(None);
            self.store.create_group(0);
        }
        let mark = self.store.repair(0);
        let policy = self.rules();
        let rules = policy.clone();
        let settings = Settings {
            policy,
            paused: false,
            takes_back: true,
            checked_acks: self.scenario.has_effects,
            concurrency: self.scenario.concurrency,
            batch: 1,
            prefetch_max: self.scenario.prefetch_max,
            ahead: self.scenario.ahead,
            min_idle: self.scenario.min_idle,
            orphan_scan: self.scenario.min_idle / 3,
            due_scan: self.scenario.min_idle / 5,
        };
        self.trace(|| format!("host {id} starts"));
        let mut ledger = Ledger::new(self.now, settings);
        ledger.apply(self.now, Event::Limited(self.scenario.limited()));
        self.hosts.push(Host {
            ledger,
            alive: true,
            draining: false,
            frozen_until: Time::ZERO,
            paused_until: Time::ZERO,
            cut_until: None,
            offline: false,
            must_repair: false,
            mark,
            seen: self.store.read,
            had_dead_letter: rules.has_dead_letter,
            rules,
            unanswered_read: None,
            queue: VecDeque::new(),
            slots: (0..self.scenario.concurrency).map(|_| Slot::Free).collect(),
            backlog: Vec::new(),
            next_poll: None,
            woke: Time::ZERO,
            lost: HashSet::new(),
            unanswered: HashSet::new(),
            disturbed: Time::ZERO,
            read: HashMap::new(),
            reserved: HashMap::new(),
            counts: HashMap::new(),
            broken_until: Time::ZERO,
            ended: VecDeque::new(),
            hoards: None,
            lapsed: Time::ZERO,
            asked_in_vain: Time::ZERO,
            share: (self.now, FIRST_SHARE),
        });
        self.wake(id);
    }

    pub(super) fn kill(&mut self, host: HostId, cause: Cause) {
        if !self.hosts[host].alive {
            return;
        }
        self.tale.deaths += u64::from(cause != Cause::Left);
        let h = &mut self.hosts[host];
        h.alive = false;
        let isolated = match h.ledger.mode {
            Mode::Isolated { key, .. } => Some(entry_of(key)),
            _ => None,
        };
        if cause == Cause::Left && h.slots.iter().any(|slot| slot.entry().is_some()) {
            self.audit
                .violate(|| format!("host {host} left, and a slot is busy"));
        }
        let is_known = h.cut_until.is_none() && !h.offline && !h.ledger.admissions.has_failed;
        let kept = self.store.permits_of(host);
        if cause == Cause::Left && is_known && kept > 0 {
            self.audit
                .violate(|| format!("host {host} left with {kept} permits"));
        }
        self.audit.deaths.insert(host, Death { cause, isolated });
        for life in &mut self.audit.lives {
            life.runs.retain(|&(other, _)| other != host);
        }
        self.trace(|| format!("host {host} ends: {cause:?}, isolated {isolated:?}"));
        let holdings = self.hosts[host].ledger.holdings.iter();
        let mut held: Vec<Entry> = holdings.map(|(_, held)| held.job).collect();
        // What it has closed, and did not say yet.
        held.extend(
            self.hosts[host]
                .ledger
                .out
                .iter()
                .filter_map(|action| match action {
                    Action::Closed { job, .. } => Some(*job),
                    _ => None,
                }),
        );
        let (mine, others) = std::mem::take(&mut self.awaiting)
            .into_iter()
            .partition::<Vec<_>, _>(|&(other, _)| other == host);
        self.awaiting = others;
        held.extend(mine.into_iter().map(|(_, entry)| entry));
        self.excuse(held);
        if let Cause::Killer(killer) = cause
            && isolated == Some(killer)
        {
            self.check_killed_isolated(host, killer);
        }
        let longest = if self.rng.bool() {
            ms(20)
        } else {
            self.scenario.min_idle * 2
        };
        let pause = self.jitter(longest);
        self.after(pause, Step::Birth);
    }

    /// No more attempts at once than there are permits, while the leases of the permits hold.
    pub(super) fn check_permits(&mut self) {
        let Some(most) = self.scenario.permits else {
            return;
        };
        let (now, min_idle) = (self.now, self.scenario.min_idle);
        let is_calm = self.scenario.faults.is_calm();
        let holds = |h: &&Host| {
            let ends = h.ledger.admissions.leased(now) + min_idle;
            h.alive && (is_calm || now < ends)
        };
        let lives = &self.audit.lives;
        let runs = |host: HostId, slot: &Slot| {
            let Slot::Running { key, .. } = slot else {
                return false;
            };
            // Not one that ran on while the lease had ended.
            let mut runs = lives[entry_of(*key)].runs.iter();
            runs.any(|&(other, since)| other == host && since >= self.hosts[host].lapsed)
        };
        let hosts = self.hosts.iter().enumerate();
        let hosts = hosts.filter(|(_, h)| holds(h));
        let slots = hosts.flat_map(|(host, h)| h.slots.iter().map(move |slot| (host, slot)));
        let running = slots.filter(|&(host, slot)| runs(host, slot)).count();
        self.audit.require(running <= most, || {
            format!("{running} attempts at once of {most}")
        });
    }

    /// Nothing that had started, and that Redis still counts for this host.
    fn check_killed_isolated(&mut self, host: HostId, killer: Entry) {
        let lives = &self.audit.lives;
        let is_done = |entry: &Entry| lives[*entry].acked || lives[*entry].dropped;
        let beside: Vec<_> = self.hosts[host]
            .slots
            .iter()
            .filter_map(Slot::entry)
            .chain(self.hosts[host].unconfirmed().into_iter().filter(is_done))
            .filter(|&entry| entry != killer)
            .filter(|entry| {
                self.store
                    .pending
                    .get(entry)
                    .is_some_and(|p| p.owner == Owner::Host(host) && p.raised)
            })
            .collect();
        self.audit.killed_isolated(killer, &beside);
    }

    fn freeze(&mut self, host: HostId, length: Time) {
        self.trace(|| format!("host {host} stands still for {length:?}"));
        let until = self.now + length;
        let h = &mut self.hosts[host];
        h.frozen_until = h.frozen_until.max(until);
        h.woke = h.frozen_until;
        h.disturbed = h.disturbed.max(h.frozen_until);
    }

    fn drain(&mut self, host: HostId) {
        if self.hosts[host].draining {
            return;
        }
        self.trace(|| format!("host {host} drains"));
        self.hosts[host].draining = true;
        if !self.closed {
            self.after(self.scenario.drain_timeout, Step::DrainOver(host));
        }
        self.tell(host, Event::Drain);
    }

    /// An event reaches the ledger a moment later.
    pub(super) fn tell(&mut self, host: HostId, event: Event<Job>) {
        let delay = self.hop();
        self.after(delay, Step::Tell(host, event));
    }

    /// How long a message takes from one task to another.
    pub(super) fn hop(&mut self) -> Time {
        Time::from_micros(self.rng.u64(1..400))
    }

    pub(super) fn jitter(&mut self, most: Time) -> Time {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Time::from_micros(self.rng.u64(..most.max(1)))
    }

    pub(super) fn after(&mut self, delay: Time, step: Step) {
        self.at(self.now + delay, step);
    }

    pub(super) fn at(&mut self, at: Time, step: Step) {
        self.next_token += 1;
        self.steps.insert((at, self.next_token), Box::new(step));
    }

    pub(super) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub(super) fn trace(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let ms = self.now.as_secs_f64() * 1e3 - 100_000.0;
            writeln!(trace, "{ms:10.3} {}", line()).unwrap();
        }
    }
}

impl Host {
    /// Whether discarding for this reason is not what the operator has said: there was a dead-letter queue.
    pub(super) fn discards_on_its_own(&self, reason: Reason) -> bool {
        let kept = Policy {
            has_dead_letter: true,
            ..self.rules.clone()
        };
        self.had_dead_letter && !kept.discards(reason)
    }

    /// Behind how many entries a group begins that it makes again.
    pub(super) fn read_from(&self, now: Time) -> usize {
        match self.unanswered_read {
            Some((from, until)) if now < until => from.min(self.seen),
            _ => self.seen,
        }
    }

    /// What has been handled here, and whose settlement Redis has not answered yet for the first
    /// time, or has found void.
    fn unconfirmed(&self) -> Vec<Entry> {
        self.ledger
            .holdings
            .iter()
            .filter(|(_, held)| match held.state {
                State::Settling { tries: 0, .. } => true,
                State::Waiting => held.last.is_void,
                _ => false,
            })
            .map(|(_, held)| held.job)
            .collect()
    }
}

pub(super) fn entry_of(key: Key) -> Entry {
    usize::try_from(key.id.0).unwrap()
}
