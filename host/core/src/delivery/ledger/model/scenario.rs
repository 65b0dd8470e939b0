//! What a run is made of: messages, hosts, and how much goes wrong.

use std::time::Duration;

use fastrand::Rng;

use super::super::{Limited, Time, TurnedAway};
use crate::delivery::attempt::{Accounting, DeliveryLimit};
use crate::delivery::backoff::Backoff;
use crate::delivery::flow::{Pace, Rate};
use crate::delivery::hold::HoldLimits;
use crate::delivery::policy::{DeadLetterRules, OnCap, OnFault, Policy, Reason, Reasons};

/// When every run begins.
pub(super) const ORIGIN: Time = ms(100_000);

/// What a host reads and records ahead.
pub(super) const AHEAD: Time = ms(20);

pub(super) const fn ms(n: u64) -> Time {
    Duration::from_millis(n)
}

/// What a message does to its handler.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Nature {
    /// It fails this often, then it is handled.
    Ack { nacks: u32 },
    /// It fails for ever.
    Never,
    /// Its handler does not want it.
    Drop,
    /// It is handled, and what its handler writes never fits.
    Unfit,
    /// Its host dies at its start, every time.
    Killer,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) nature: Nature,
    /// Starts charged before it came here.
    pub(super) header: u32,
    pub(super) published: Time,
    /// How long its handler takes.
    pub(super) takes: Time,
    /// What a failing handler asks for: a delay, the backoff, or nothing (it traps).
    pub(super) delay: Delay,
    /// How often its handler holds it before anything else.
    pub(super) holds: u32,
    /// How many calls its handler makes that the journal records.
    pub(super) calls: u32,
    /// Why the gate turns it away, if it does.
    pub(super) gate: Option<Gate>,
    /// A producer waits for it: its acknowledgement is an effect.
    pub(super) is_awaited: bool,
}

/// Why and when the gate turns a message away.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Gate {
    /// It is malformed: at each claim.
    Malformed,
    /// It was replayed for another group: at each claim.
    OtherGroup,
    /// Its body does not parse: before each start.
    Undecodable,
    /// It expires at this time: at each claim and before each start from then on.
    Expires(Time),
}

impl Gate {
    /// At a claim at this time.
    pub(super) fn at_claim(self, now: Time) -> Option<TurnedAway> {
        match self {
            Self::Malformed => Some(TurnedAway::Rejected(Reason::Malformed, String::new())),
            Self::OtherGroup => Some(TurnedAway::OtherGroup),
            Self::Expires(at) if now >= at => {
                Some(TurnedAway::Rejected(Reason::Expired, String::new()))
            }
            Self::Undecodable | Self::Expires(_) => None,
        }
    }

    /// Before a start at this time.
    pub(super) fn at_start(self, now: Time) -> Option<Reason> {
        match self {
            Self::Undecodable => Some(Reason::DecodeFailed),
            Self::Expires(at) if now >= at => Some(Reason::Expired),
            Self::Malformed | Self::OtherGroup | Self::Expires(_) => None,
        }
    }

    /// The reason of such a message's end; `None`: it is acknowledged.
    pub(super) fn reason(self) -> Option<Reason> {
        match self {
            Self::Malformed => Some(Reason::Malformed),
            Self::OtherGroup => None,
            Self::Undecodable => Some(Reason::DecodeFailed),
            Self::Expires(_) => Some(Reason::Expired),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Delay {
    Asked(Time),
    Backoff,
    Trap,
}

/// What becomes of a call that an earlier attempt may have made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Unknown {
    /// It is made again.
    Again,
    /// It is an error.
    Fail,
}

/// How likely each fault is, in thousandths.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// That one of those below happens, at each step of a host.
    pub(super) at_step: u32,
    /// At most so many in a run.
    pub(super) most: u32,
    /// Weights among them.
    pub(super) kill: u32,
    pub(super) pause: u32,
    pub(super) drain: u32,
    pub(super) cut: u32,
    pub(super) redis_away: u32,
    pub(super) dead_letters_refused: u32,
    pub(super) out_of_memory: u32,
    pub(super) parked_set_lost: u32,
    pub(super) trim: u32,
    pub(super) no_instance: u32,
    /// The operator changes the rules.
    pub(super) policy: u32,
    /// The operator pauses the queue for a while.
    pub(super) intake: u32,
    /// A client destroys the group, and perhaps makes it again.
    pub(super) group: u32,
    /// A client deletes a consumer: that of a host, or of parked deliveries.
    pub(super) consumer: u32,
    /// The operator cancels a message.
    pub(super) cancel: u32,
    /// The clock of the server jumps forward.
    pub(super) clock: u32,
    /// That a command or its reply is lost, per command.
    pub(super) lost: u32,
    /// That a command or its reply takes very long, per command.
    pub(super) slow: u32,
}

impl Faults {
    /// Nothing happens between a host and Redis, and no host stands still: no lease runs out.
    pub(super) fn is_calm(&self) -> bool {
        let may_happen = self.at_step * self.most > 0;
        let at_step = self.pause + self.cut + self.redis_away + self.clock;
        self.lost == 0 && self.slow == 0 && !(may_happen && at_step > 0)
    }
}

/// Other rules than those that a run begins and ends with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) cap: Option<u32>,
    pub(super) on_cap: OnCap,
    pub(super) has_dead_letter: bool,
    pub(super) backoff: Time,
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) hosts: usize,
    pub(super) concurrency: usize,
    pub(super) prefetch_max: usize,
    /// A fetch may come in parts. Without them, a seed makes the run that it made before there were any.
    pub(super) parts: bool,
    /// The set of parked deliveries keeps the record of what a host takes. The same.
    pub(super) records: bool,
    /// How much work a host reads and records ahead.
    pub(super) ahead: Time,
    pub(super) min_idle: Time,
    /// After how long a host gives up on a reply.
    pub(super) timeout: Time,
    /// How long a host that drains has.
    pub(super) drain_timeout: Time,
    pub(super) limit: DeliveryLimit,
    pub(super) on_cap: OnCap,
    /// The rules that the operator may change to, and back from.
    pub(super) changes: Vec<Change>,
    pub(super) plans: Vec<Plan>,
    pub(super) faults: Faults,
    /// What an attempt publishes happens with its acknowledgement.
    pub(super) has_effects: bool,
    /// Whether a call is made again whose answer is not known.
    pub(super) unknown: Unknown,
    /// Among how many keys messages choose the one that their handlers read and write; 0 = none does.
    pub(super) keys: usize,
    /// How often messages may start, if that is limited; by so many keys, or by none.
    pub(super) pace: Option<(Pace, usize)>,
    /// How many attempts there may be at once, if that is limited.
    pub(super) permits: Option<usize>,
    /// When the last fault has happened.
    pub(super) heal_at: Time,
    /// How long after that all must be settled.
    pub(super) patience: Time,
}

impl Scenario {
    pub(super) fn policy(&self) -> Policy {
        Policy {
            limit: self.limit,
            on_cap: self.on_cap,
            on_fault: OnFault::Requeue,
            has_dead_letter: self.on_cap == OnCap::DeadLetter,
            dead_letters: DeadLetterRules {
                // On purpose: also what died while there was a dead-letter queue.
                discarded: match self.on_cap {
                    OnCap::DeadLetter => Reasons::default(),
                    OnCap::Discard => Reasons::new(Reason::ALL),
                },
                ..DeadLetterRules::default()
            },
            backoff: Backoff {
                first: ms(40),
                factor: 2.0,
                max: ms(400),
                jitter: 0.2,
            },
        }
    }

    /// The rules after such a change; `None` = those of the beginning.
    pub(super) fn policy_after(&self, change: Option<&Change>) -> Policy {
        let policy = self.policy();
        let Some(change) = change else {
            return policy;
        };
        Policy {
            limit: DeliveryLimit {
                cap: change.cap,
                ..policy.limit
            },
            on_cap: change.on_cap,
            has_dead_letter: change.has_dead_letter,
            dead_letters: DeadLetterRules::default(),
            backoff: Backoff {
                first: change.backoff,
                ..policy.backoff
            },
            ..policy
        }
    }

    /// Every cap that may be in force.
    pub(super) fn caps(&self) -> impl Iterator<Item = Option<u32>> {
        let changed = self.changes.iter().map(|change| change.cap);
        std::iter::once(self.limit.cap).chain(changed)
    }

    /// Whether the cap may change.
    pub(super) fn cap_varies(&self) -> bool {
        self.caps().any(|cap| cap != self.limit.cap)
    }

    /// Starts that a message has here at most, by the highest cap that may be in force; and one
    /// more where a cap may come that leaves it just one: the count that Redis keeps then means
    /// something else.
    pub(super) fn budget(&self, plan: &Plan) -> Option<u32> {
        let budgets = self
            .caps()
            .map(|cap| Some(cap?.saturating_sub(plan.header)));
        let most = budgets.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(most + u32::from(self.may_recount(plan)))
    }

    /// Starts that a message has here at least, by the lowest cap that may be in force.
    pub(super) fn least_budget(&self, plan: &Plan) -> Option<u32> {
        let least = self.caps().flatten().min()?;
        Some(least.saturating_sub(plan.header))
    }

    /// Whether the count of this message may mean one thing before a change, and another behind it.
    pub(super) fn may_recount(&self, plan: &Plan) -> bool {
        let is_last =
            |cap: Option<u32>| cap.is_some_and(|cap| cap.saturating_sub(plan.header) == 1);
        self.cap_varies() && self.caps().any(is_last)
    }

    pub(super) fn has_killers(&self) -> bool {
        self.plans.iter().any(|p| p.nature == Nature::Killer)
    }

    /// A killer without a cap is never settled.
    pub(super) fn is_endless(&self, plan: &Plan) -> bool {
        self.limit.cap.is_none()
            && matches!(plan.nature, Nature::Killer | Nature::Never | Nature::Unfit)
    }

    /// Anything that may happen: hosts killed, paused, drained and cut off, replies lost, Redis
    /// away or full, killers among the messages.
    pub(super) fn mixed(rng: &mut Rng) -> Self {
        let mut scenario = Self::quiet(rng);
        let steps = [3, 10, 30];
        scenario.faults = Faults {
            at_step: steps[rng.usize(..steps.len())],
            most: rng.u32(0..10),
            kill: rng.u32(0..3),
            pause: rng.u32(0..3),
            drain: rng.u32(0..3),
            cut: rng.u32(0..2),
            redis_away: rng.u32(0..2),
            dead_letters_refused: rng.u32(0..2),
            out_of_memory: rng.u32(0..2),
            parked_set_lost: rng.u32(0..2),
            trim: u32::from(rng.u32(0..4) == 0),
            no_instance: u32::from(rng.u32(0..4) == 0),
            policy: 0,
            intake: 0,
            group: 0,
            consumer: 0,
            cancel: 0,
            clock: 0,
            lost: [0, 0, 20, 60][rng.usize(..4)],
            slow: [0, 0, 20][rng.usize(..3)],
        };
        let killers = [0, 0, 1, 2, 5, 10][rng.usize(..6)];
        if scenario.limit.cap.is_some() {
            scenario.add_killers(rng, killers);
        }
        scenario
    }

    /// The same, and the rules change meanwhile.
    pub(super) fn changing(rng: &mut Rng) -> Self {
        let mut scenario = Self::mixed(rng);
        scenario.faults.policy = rng.u32(1..6);
        scenario.faults.most += rng.u32(1..6);
        // Half of them change everything but the cap.
        let same = rng.bool();
        for _ in 0..rng.usize(1..=3) {
            let caps = [None, Some(1), Some(2), Some(3), Some(5), Some(8)];
            let cap = caps[rng.usize(..caps.len())];
            let on_cap = [OnCap::DeadLetter, OnCap::Discard][rng.usize(..2)];
            scenario.changes.push(Change {
                cap: if same { scenario.limit.cap } else { cap },
                on_cap,
                has_dead_letter: rng.u32(0..4) > 0,
                backoff: ms(rng.u64(0..400)),
            });
        }
        scenario
    }

    /// The same, and the operator pauses the queue meanwhile.
    pub(super) fn pausing(rng: &mut Rng) -> Self {
        let mut scenario = Self::changing(rng);
        scenario.faults.intake = rng.u32(1..6);
        scenario.faults.most += rng.u32(1..6);
        scenario
    }

    /// As [`Self::changing`], and the gate turns some of the messages away.
    pub(super) fn turning_away(rng: &mut Rng) -> Self {
        let mut scenario = Self::changing(rng);
        scenario.turn_away(rng);
        scenario
    }

    /// The same, and a client destroys the group meanwhile.
    pub(super) fn regrouping(rng: &mut Rng) -> Self {
        let mut scenario = Self::turning_away(rng);
        scenario.faults.group = rng.u32(3..9);
        scenario.faults.most += rng.u32(1..6);
        scenario
    }

    /// As [`Self::changing`], and a client deletes consumers meanwhile.
    pub(super) fn cleaning(rng: &mut Rng) -> Self {
        let mut scenario = Self::changing(rng);
        scenario.faults.consumer = rng.u32(2..9);
        scenario.faults.most += rng.u32(1..6);
        scenario
    }

    /// As [`Self::turning_away`], and attempts have effects.
    pub(super) fn acting(rng: &mut Rng) -> Self {
        Self {
            has_effects: true,
            ..Self::turning_away(rng)
        }
    }

    /// As [`Self::regrouping`], and producers wait for half of the messages.
    pub(super) fn awaited(rng: &mut Rng) -> Self {
        let mut scenario = Self::regrouping(rng);
        for plan in &mut scenario.plans {
            plan.is_awaited = rng.bool();
        }
        scenario
    }

    /// As [`Self::acting`], and the effects of some messages never fit.
    pub(super) fn unfit(rng: &mut Rng) -> Self {
        let mut scenario = Self::acting(rng);
        scenario.spoil();
        scenario
    }

    /// The effects of messages that would fail for ever never fit instead.
    pub(super) fn spoil(&mut self) {
        for plan in &mut self.plans {
            if plan.nature == Nature::Never {
                plan.nature = Nature::Unfit;
            }
        }
    }

    /// As [`Self::regrouping`], and attempts have effects.
    pub(super) fn acting_regrouped(rng: &mut Rng) -> Self {
        Self {
            has_effects: true,
            ..Self::regrouping(rng)
        }
    }

    /// The same, and attempts add to numbers that they have read.
    pub(super) fn counting(rng: &mut Rng) -> Self {
        Self {
            keys: rng.usize(1..=3),
            ..Self::acting(rng)
        }
    }

    /// As [`Self::mixed`], and handlers become slow: a host has read ahead what it does not start soon.
    pub(super) fn slowing(rng: &mut Rng) -> Self {
        let mut scenario = Self::mixed(rng);
        scenario.become_slow(rng);
        scenario
    }

    /// Many messages come before the others, and take little time.
    pub(super) fn become_slow(&mut self, rng: &mut Rng) {
        self.prefetch_max = rng.usize(8..=64);
        let slow = rng.usize(20..60);
        for place in 0..rng.usize(50..150) + slow {
            self.add_message(rng);
            let Some(mut plan) = self.plans.pop() else {
                return;
            };
            let is_quick = place >= slow;
            plan.published = Time::ZERO;
            plan.takes = if is_quick {
                ms(1)
            } else {
                ms(rng.u64(200..2000))
            };
            if is_quick {
                self.plans.insert(0, plan);
            } else {
                self.plans.push(plan);
            }
        }
        self.be_patient();
    }

    /// As [`Self::pausing`], and starts are limited.
    pub(super) fn limiting(rng: &mut Rng) -> Self {
        let mut scenario = Self::pausing(rng);
        scenario.limit_starts(rng);
        scenario
    }

    /// Without a key, or by some keys; and there are many messages.
    pub(super) fn limit_starts(&mut self, rng: &mut Rng) {
        let rate = Rate::parse(["5/s", "20/s"][rng.usize(..2)]).unwrap();
        let burst = rng.u32(1..=2);
        self.pace = Some((Pace { rate, burst }, [0, 0, 1, 3][rng.usize(..4)]));
        for _ in 0..rng.usize(40..80) {
            self.add_message(rng);
            if let Some(plan) = self.plans.last_mut() {
                plan.published = Time::ZERO;
                plan.takes = ms(rng.u64(1..20));
            }
        }
        self.be_patient();
    }

    /// As others, and there are few attempts at once, some of which take longer than a lease.
    pub(super) fn permitting(rng: &mut Rng) -> Self {
        let mut scenario = match rng.u32(0..6) {
            0 => Self::holding(rng),
            1 => Self::counting(rng),
            2 => Self::cancelling(rng),
            3 => Self::slowing(rng),
            _ => Self::pausing(rng),
        };
        scenario.limit_starts(rng);
        scenario.permit(rng);
        scenario
    }

    /// Few attempts at once.
    pub(super) fn permit(&mut self, rng: &mut Rng) {
        self.permits = Some(rng.usize(1..4));
        self.pace = self.pace.filter(|_| rng.bool());
        for _ in 0..3 {
            self.add_message(rng);
            if let Some(plan) = self.plans.last_mut() {
                plan.takes = self.min_idle * rng.u32(0..3);
            }
        }
        self.be_patient();
    }

    /// How starts are limited.
    pub(super) fn limited(&self) -> Limited {
        match (self.permits, self.pace) {
            (Some(_), _) => Limited::Permits,
            (None, Some(_)) => Limited::Starts,
            (None, None) => Limited::No,
        }
    }

    /// The number of the limit that a message has.
    pub(super) fn paced(&self, entry: usize) -> Option<(Pace, usize)> {
        self.pace
            .map(|(pace, keys)| (pace, entry.checked_rem(keys).unwrap_or(0)))
    }

    /// As [`Self::changing`], and handlers hold messages.
    pub(super) fn holding(rng: &mut Rng) -> Self {
        let mut scenario = Self::changing(rng);
        scenario.hold(rng);
        scenario
    }

    /// The same, and a client destroys the group, or deletes consumers.
    pub(super) fn holding_regrouped(rng: &mut Rng) -> Self {
        let mut scenario = Self::holding(rng);
        scenario.faults.group = rng.u32(0..5);
        scenario.faults.consumer = rng.u32(0..5);
        scenario.faults.most += rng.u32(1..6);
        scenario
    }

    /// As [`Self::holding`], and handlers make calls that a journal records.
    pub(super) fn journaling(rng: &mut Rng) -> Self {
        let mut scenario = Self::holding(rng);
        scenario.record_calls(rng);
        scenario
    }

    /// The same, and a client destroys the group, or deletes consumers.
    pub(super) fn journaling_regrouped(rng: &mut Rng) -> Self {
        let mut scenario = Self::holding_regrouped(rng);
        scenario.record_calls(rng);
        scenario
    }

    /// Handlers make up to four calls.
    pub(super) fn record_calls(&mut self, rng: &mut Rng) {
        // The acknowledgement takes the journal along, and so is checked.
        self.has_effects = true;
        self.unknown = [Unknown::Again, Unknown::Fail][rng.usize(..2)];
        for plan in &mut self.plans {
            plan.calls = rng.u32(0..5);
        }
    }

    /// With effects, holds and journals, or without: the operator cancels messages.
    pub(super) fn cancelling(rng: &mut Rng) -> Self {
        let mut scenario = match rng.bool() {
            true => Self::journaling(rng),
            false => Self::mixed(rng),
        };
        scenario.faults.at_step = scenario.faults.at_step.max(10);
        scenario.faults.most += 5;
        scenario.faults.cancel = rng.u32(2..10);
        scenario
    }

    /// As [`Self::changing`], and the clock of the server jumps.
    pub(super) fn jumping(rng: &mut Rng) -> Self {
        let mut scenario = Self::changing(rng);
        scenario.faults.at_step = scenario.faults.at_step.max(10);
        scenario.faults.most += 5;
        scenario.faults.clock = rng.u32(2..10);
        scenario
    }

    /// Handlers hold two messages of three, some of them more often than they may.
    pub(super) fn hold(&mut self, rng: &mut Rng) {
        self.limit.holds.max = rng.u32(1..8);
        for plan in &mut self.plans {
            if rng.u32(0..3) > 0 {
                plan.holds = rng.u32(1..6);
            }
        }
        self.patience *= 2;
    }

    /// The number that the handler of a message adds to.
    pub(super) fn key_of(&self, entry: usize) -> Option<usize> {
        entry.checked_rem(self.keys)
    }

    pub(super) fn turn_away(&mut self, rng: &mut Rng) {
        for plan in &mut self.plans {
            plan.gate = match rng.u32(0..10) {
                0 => Some(Gate::Malformed),
                1 => Some(Gate::OtherGroup),
                2 => Some(Gate::Undecodable),
                3 => Some(Gate::Expires(ORIGIN + ms(rng.u64(0..6000)))),
                _ => None,
            };
        }
    }

    /// Hosts and messages of every kind but killers, and no faults.
    pub(super) fn quiet(rng: &mut Rng) -> Self {
        let cap = [None, Some(1), Some(2), Some(3), Some(5)][rng.usize(..5)];
        let min_idle = ms(1000);
        let mut scenario = Self {
            hosts: rng.usize(1..=4),
            concurrency: rng.usize(1..=4),
            prefetch_max: rng.usize(1..=8),
            parts: true,
            records: true,
            // A copy: this draw came later than most seeds.
            ahead: [AHEAD, AHEAD * 10, AHEAD * 100][rng.clone().usize(..3)],
            min_idle,
            timeout: [min_idle / 10, min_idle / 2, min_idle * 2][rng.usize(..3)],
            drain_timeout: min_idle * rng.u32(1..=4),
            limit: DeliveryLimit {
                cap,
                accounting: if rng.u32(0..5) == 0 {
                    Accounting::Exact
                } else {
                    Accounting::Lazy
                },
                at_most_once: false,
                holds: HoldLimits::default(),
            },
            on_cap: if rng.u32(0..5) == 0 {
                OnCap::Discard
            } else {
                OnCap::DeadLetter
            },
            changes: Vec::new(),
            plans: Vec::new(),
            faults: Faults::default(),
            has_effects: false,
            unknown: Unknown::Again,
            keys: 0,
            pace: None,
            permits: None,
            heal_at: ms(rng.u64(3000..12_000)),
            patience: Time::ZERO,
        };
        for _ in 0..rng.usize(1..=20) {
            scenario.add_message(rng);
        }
        scenario.be_patient();
        scenario
    }

    /// Ten killers may each take an isolated run for each of their attempts.
    fn be_patient(&mut self) {
        let messages = u32::try_from(self.plans.len()).unwrap();
        self.patience = self.min_idle * (40 + 48 * messages);
    }

    pub(super) fn add_message(&mut self, rng: &mut Rng) {
        let nature = match rng.u32(0..10) {
            0..=4 => Nature::Ack { nacks: 0 },
            5..=6 => Nature::Ack {
                nacks: rng.u32(1..4),
            },
            7..=8 if self.limit.cap.is_some() => Nature::Never,
            7..=8 => Nature::Ack { nacks: 6 },
            _ => Nature::Drop,
        };
        self.add(rng, nature);
    }

    pub(super) fn add_killers(&mut self, rng: &mut Rng, killers: usize) {
        for _ in 0..killers {
            self.add(rng, Nature::Killer);
            // Among the others, not behind them.
            let (last, place) = (self.plans.len() - 1, rng.usize(..self.plans.len()));
            self.plans.swap(last, place);
        }
        self.be_patient();
    }

    fn add(&mut self, rng: &mut Rng, nature: Nature) {
        let min_idle = u64::try_from(self.min_idle.as_millis()).unwrap();
        self.plans.push(Plan {
            nature,
            header: if rng.u32(0..6) == 0 { rng.u32(1..4) } else { 0 },
            published: if rng.bool() {
                Time::ZERO
            } else {
                ms(rng.u64(..3 * min_idle))
            },
            takes: match rng.u32(0..10) {
                0..=6 => ms(rng.u64(0..30)),
                7..=8 => ms(rng.u64(..min_idle)),
                _ => ms(rng.u64(..4 * min_idle)),
            },
            delay: match rng.u32(0..4) {
                0 => Delay::Asked(Time::ZERO),
                1 => Delay::Asked(ms(rng.u64(1..300))),
                2 => Delay::Backoff,
                _ => Delay::Trap,
            },
            holds: 0,
            calls: 0,
            gate: None,
            is_awaited: false,
        });
    }
}
