//! What must hold, message by message: checked while a run goes on, and at its end.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{Origin, Time};
use super::scenario::{Gate, Nature, Scenario};
use super::store::{Entry, Fate, Handed, HostId, Store};
use crate::delivery::attempt::{Accounting, DeliveryLimit};
use crate::delivery::policy::Reason;
use crate::delivery::rules::Rule;

/// The life of one message as an onlooker sees it.
#[derive(Clone, Debug, Default)]
pub(super) struct Life {
    pub(super) starts: u32,
    /// The numbers of its attempts.
    numbers: BTreeSet<u32>,
    /// Attempts that asked for another one.
    pub(super) nacks: u32,
    /// How often its handler has asked for a hold, and how often Redis has counted one.
    pub(super) asked: u32,
    pub(super) held: u32,
    pub(super) acked: bool,
    pub(super) dropped: bool,
    /// The hosts whose last start was void, and does not count: what it read had changed.
    void: BTreeSet<HostId>,
    /// The number of the last start on each host.
    last: BTreeMap<HostId, u32>,
    /// Where it runs now, and since when.
    pub(super) runs: Vec<(HostId, Time)>,
    pub(super) fate: Option<Fate>,
    /// No host knows it any more: it went with its group.
    pub(super) excused: bool,
    /// Its line in the pending list went with a consumer that a client deleted.
    unlisted: bool,
    /// It was settled in a way that may bring it again: what holds for a message that is settled once does not
    /// hold for it.
    pub(super) again: bool,
    copies: u32,
    /// How often it came to another owner: read as new, or taken by another host than the last one. The last
    /// one may believe that it still has the message: its lease may have ended, or the answer to its park
    /// may be lost.
    owners: u32,
    /// Who took it last.
    owner: Option<HostId>,
    /// How often its effects happened.
    acted: u32,
    /// A charge that no start has used yet, and whose it is.
    open: Option<HostId>,
    /// Charges that no start has ever used.
    pub(super) wasted: u32,
    /// Times an owner was lost after it had charged the message.
    pub(super) orphaned: u32,
    /// Of these: from outside while it ran isolated, or by a lease that ran out.
    pub(super) outside: u32,
    /// Redis refused to take its charge back: should its host die now, then the charge is no host's fault.
    kept: bool,
    /// Its host claimed it again before the start that the open charge is for: no hand-back lowers that count.
    superseded: bool,
}

impl Life {
    fn has_ended(&self) -> bool {
        self.fate.is_some() || self.excused
    }
}

/// Why a process is gone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Cause {
    /// The test ended it.
    Outside,
    /// This message did.
    Killer(Entry),
    /// It left, drained.
    Left,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Death {
    pub(super) cause: Cause,
    /// The suspect that ran isolated then.
    pub(super) isolated: Option<Entry>,
}

#[derive(Debug)]
pub(super) struct Audit {
    pub(super) lives: Vec<Life>,
    pub(super) deaths: BTreeMap<HostId, Death>,
    pub(super) violation: Option<String>,
    /// The group was destroyed in this run: counts and owners went with it. From then on only this must
    /// hold: no message is lost that anybody knows, and each ends as its handler or the gate said.
    pub(super) regrouped: bool,
    limit: DeliveryLimit,
    /// How many starts of each limit are not paid for, and since when that holds.
    unpaid: BTreeMap<usize, (Time, f64)>,
}

/// For how long a start that was admitted may be under way: the answer, a free slot, its record; and for how long a
/// reserved one is kept before that.
const ADMITTED: Time = Time::from_millis(3_100);

/// What is known of a start beyond the message.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin {
    pub(super) host: HostId,
    pub(super) entry: Entry,
    pub(super) attempt: u32,
    pub(super) at: Time,
    /// The host stood still since it last confirmed the lease.
    pub(super) frozen: bool,
}

impl Audit {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            lives: vec![Life::default(); scenario.plans.len()],
            deaths: BTreeMap::new(),
            violation: None,
            regrouped: false,
            limit: scenario.limit,
            unpaid: BTreeMap::new(),
        }
    }

    pub(super) fn violate(&mut self, what: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(what());
        }
    }

    pub(super) fn require(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.violate(what);
        }
    }

    /// Whether handing out such a message is free: the count that Redis keeps runs one ahead of
    /// its starts.
    fn runs_ahead(&self, header: u32) -> bool {
        let budget = self.limit.cap.map(|cap| cap.saturating_sub(header));
        self.limit.accounting == Accounting::Exact || budget == Some(1)
    }

    /// The count of an entry was raised: a charge that awaits its start.
    pub(super) fn raised(&mut self, host: HostId, entry: Entry, header: u32, first: bool) {
        if first && self.runs_ahead(header) {
            return;
        }
        let life = &mut self.lives[entry];
        // The lease of the last charge was lost, and its host has the delivery again.
        life.wasted += u32::from(life.open.replace(host).is_some());
        life.superseded = false;
    }

    /// A later claim replaced the holding of a host.
    pub(super) fn superseded(&mut self, host: HostId, entry: Entry) {
        let life = &mut self.lives[entry];
        life.superseded = life.open == Some(host);
    }

    /// What an attempt read had changed before its acknowledgement: as if it had not started.
    pub(super) fn voided(&mut self, host: HostId, entry: Entry) {
        let life = &mut self.lives[entry];
        // The same answer may come to a repeat.
        if life.void.insert(host) {
            life.starts -= 1;
            life.numbers.remove(&life.last[&host]);
            life.open = Some(host);
        }
    }

    /// Its attempt ended with a hold, which Redis has counted: as if it had not started.
    pub(super) fn held(&mut self, host: HostId, entry: Entry, held: u32) {
        let life = &mut self.lives[entry];
        life.held = held;
        let is_first = life.starts > 0;
        life.starts = life.starts.saturating_sub(1);
        if let Some(number) = life.last.get(&host) {
            life.numbers.remove(number);
        }
        self.require(is_first || self.regrouped, || {
            format!("message {entry}: it was held more often than it started")
        });
        let most = self.limit.holds.max;
        self.require(held <= most || self.regrouped, || {
            format!("message {entry}: held {held} times of {most}")
        });
    }

    /// Redis carried out a hold that its host had given up on: it was charged until now, and the message may have been
    /// given up meanwhile.
    pub(super) fn held_late(&mut self, entry: Entry) {
        self.lives[entry].wasted += 1;
    }

    /// A hold has no answer: it is charged.
    pub(super) fn charged(&mut self, entry: Entry) {
        let life = &mut self.lives[entry];
        life.nacks += 1;
        life.outside += 1;
    }

    /// It did so too often: that is a failure.
    pub(super) fn gave_up_running(&mut self, host: HostId, entry: Entry) {
        let life = &mut self.lives[entry];
        life.void.remove(&host);
        life.starts += 1;
        life.nacks += 1;
        life.numbers.insert(life.last[&host]);
        life.open = None;
    }

    /// Whether its line went with a group and with a consumer.
    pub(super) fn was_unlisted_twice(&self, entry: Entry) -> bool {
        self.regrouped && self.lives[entry].unlisted
    }

    /// Its line went with a deleted consumer.
    pub(super) fn unlisted(&mut self, entry: Entry) {
        self.lives[entry].unlisted = true;
    }

    /// It is pending again.
    pub(super) fn listed(&mut self, entry: Entry) {
        self.lives[entry].unlisted = false;
    }

    /// It may come once more although it is settled: an ending that came very late, or the record of a claim whose
    /// host died, was not known to anybody.
    pub(super) fn may_come_again(&mut self, entry: Entry) {
        self.lives[entry].again = true;
    }

    /// If no host knows it any more, it need not end.
    pub(super) fn excuse(&mut self, entry: Entry, is_known: bool) {
        let life = &mut self.lives[entry];
        life.excused |= !is_known && (self.regrouped || life.unlisted);
    }

    /// It went back with a count that says so, or with the count that it had.
    pub(super) fn parked(&mut self, entry: Entry, is_count_kept: bool) {
        if std::mem::take(&mut self.lives[entry].superseded) && is_count_kept {
            self.kept_its_charge(entry);
        }
        self.lives[entry].open = None;
        self.lives[entry].kept = false;
    }

    /// Redis refused to take back the charge of a delivery that did not start.
    pub(super) fn not_taken_back(&mut self, entry: Entry) {
        self.lives[entry].kept = true;
    }

    /// A host finds that it does not own a delivery anymore.
    pub(super) fn lost_lease(&mut self, host: HostId, entry: Entry, now_of: Option<HostId>) {
        let is_other = now_of.is_some_and(|owner| owner != host);
        self.require(!is_other || self.regrouped, || {
            format!(
                "message {entry}: host {host} lost its lease to {now_of:?}, and nothing had kept it from renewing"
            )
        });
    }

    /// It went back, and because an answer was lost no host knows whether its charge was used.
    pub(super) fn kept_its_charge(&mut self, entry: Entry) {
        let life = &mut self.lives[entry];
        if life.open.take().is_some() {
            life.wasted += 1;
            life.orphaned += 1;
            life.outside += 1;
        }
    }

    /// A charge is lost with a lease: a host leaves to a scan what it no longer trusts, or Redis
    /// executes a record that its host has given up on.
    pub(super) fn let_go(&mut self, entry: Entry) {
        self.lives[entry].outside += 1;
    }

    pub(super) fn claimed(&mut self, host: HostId, handed: &Handed) {
        let life = &mut self.lives[handed.entry];
        life.unlisted = false;
        let is_claimed = handed.from.is_some_and(|(from, _)| from != host);
        let is_other = life.owner.replace(host) != Some(host) || is_claimed;
        let is_new = handed.origin == Origin::Fresh;
        life.owners += u32::from(is_new || is_other);
        let Some((from, raised)) = handed.from else {
            return;
        };
        let death = self.deaths.get(&from).copied();
        let life = &mut self.lives[handed.entry];
        if life.open.take().is_some() {
            life.wasted += 1;
        }
        let is_kept = std::mem::take(&mut life.kept);
        if !raised {
            return;
        }
        life.orphaned += 1;
        let outside = match death {
            None => true,
            Some(death) => {
                death.isolated == Some(handed.entry) && death.cause != Cause::Killer(handed.entry)
            }
        };
        if outside || is_kept || from == host {
            life.outside += 1;
        }
    }

    pub(super) fn started(
        &mut self,
        scenario: &Scenario,
        store: &Store,
        begin: Begin,
        lease_may_be_lost: impl Fn(HostId, Time) -> bool,
    ) {
        let Begin {
            host,
            entry,
            attempt,
            frozen,
            ..
        } = begin;
        let plan = &scenario.plans[entry];
        // Where a count may mean two things, it is the weaker one.
        let may_recount = scenario.may_recount(plan);
        let runs_ahead = self.runs_ahead(plan.header) && Rule::LastStartIsTwo.holds();
        let ahead = u32::from(runs_ahead && !scenario.cap_varies());
        let life = &mut self.lives[entry];
        life.starts += 1;
        life.void.remove(&host);
        life.last.insert(host, attempt);
        if life.open == Some(host) {
            life.open = None;
            life.superseded = false;
        }
        let is_new = life.numbers.insert(attempt);
        let is_twice = life.runs.iter().any(|&(other, _)| other == host);
        let starts = life.starts;
        let runs = life.runs.clone();
        let fate = life.fate;
        let (is_unlisted, is_again) = (life.unlisted, life.again);
        life.runs.push((host, begin.at));

        self.require(!is_twice, || {
            format!("message {entry}: two attempts at once on host {host}")
        });
        let is_welcome = matches!(plan.gate, None | Some(Gate::Expires(_)));
        self.require(is_welcome, || {
            format!("message {entry}: it starts, and the gate turned it away")
        });
        if self.regrouped || is_again {
            return;
        }
        self.require(is_new || may_recount, || {
            format!("message {entry}: two starts were both attempt {attempt}")
        });
        if let Some(budget) = scenario.budget(plan) {
            self.require(starts <= budget, || {
                format!("message {entry}: start {starts} of {budget}")
            });
        }
        self.require(attempt > plan.header, || {
            format!(
                "message {entry}: attempt {attempt} after {} before",
                plan.header
            )
        });
        if let Some(pending) = store.pending.get(&entry) {
            let charged = pending.count.saturating_sub(ahead + store.held(entry));
            self.require(starts <= charged, || {
                format!("message {entry}: {starts} starts, and Redis knows of {charged}")
            });
        }
        let owned = store
            .pending
            .get(&entry)
            .is_some_and(|p| p.owner == super::store::Owner::Host(host));
        // A late ack counts, whichever host owns the message by then.
        let settled = fate == Some(Fate::Acknowledged) || store.deleted.contains(&entry);
        // The note may come after the start: the attempt is void.
        let settled = settled || fate == Some(Fate::Cancelled);
        self.require(owned || frozen || settled || is_unlisted, || {
            format!("message {entry}: host {host} started it and did not own it ({fate:?})")
        });
        for (other, since) in runs {
            self.require(lease_may_be_lost(other, since) || frozen, || {
                format!("message {entry}: runs on hosts {other} and {host}, and no lease ran out")
            });
        }
    }

    /// No more starts than their limit allows. A suspect is admitted before its host empties itself for it, so one start of
    /// each host may be late.
    pub(super) fn paced(&mut self, scenario: &Scenario, entry: Entry, now: Time) {
        let Some((pace, limit)) = scenario.paced(entry) else {
            return;
        };
        let per_second = f64::from(pace.rate.count());
        let (since, unpaid) = self.unpaid.get(&limit).copied().unwrap_or((now, 0.0));
        let paid = now.saturating_sub(since).as_secs_f64() * per_second;
        let unpaid = (unpaid - paid).max(0.0) + 1.0;
        self.unpaid.insert(limit, (now, unpaid));
        // One that was late is not lost.
        let late = ADMITTED.as_secs_f64() * per_second + 1.0;
        let most = f64::from(pace.burst) + late + f64::from(u8::try_from(scenario.hosts).unwrap());
        self.require(unpaid <= most, || {
            format!("message {entry}: {unpaid} starts at once, and {most} are allowed")
        });
    }

    /// An acknowledgement came to a group that does not have the delivery: it was made again, or another
    /// host has settled it.
    pub(super) fn acknowledged_elsewhere(&mut self, entry: Entry) {
        let life = &mut self.lives[entry];
        if self.regrouped || life.unlisted {
            life.fate.get_or_insert(Fate::Acknowledged);
        }
    }

    pub(super) fn settled(&mut self, scenario: &Scenario, entry: Entry, fate: Fate) {
        let life = &mut self.lives[entry];
        let before = life.fate.replace(fate);
        life.copies += u32::from(matches!(fate, Fate::DeadLettered(..)));
        life.acted += u32::from(fate == Fate::Acted);
        let life = life.clone();
        // The record of a delivery may be found after the delivery: both say that its entry is gone.
        let is_same = before == Some(Fate::Trimmed) && fate == Fate::Trimmed;
        let is_first = (before.is_none() || is_same) && life.copies <= 1;
        self.require(is_first || self.regrouped || life.again, || {
            format!("message {entry}: settled twice, {before:?} and {fate:?}")
        });
        // One that is read once more, from a group that was made again, may run once more.
        self.require(life.acted <= life.owners || life.again, || {
            format!("message {entry}: its effects happened twice: {life:?}")
        });
        let gate = scenario.plans[entry].gate;
        match fate {
            Fate::Acknowledged if scenario.has_effects || scenario.plans[entry].is_awaited => {
                self.violate(|| format!("message {entry}: acknowledged without its effects"));
            }
            Fate::Acknowledged | Fate::Acted => self
                .require(life.acked || gate == Some(Gate::OtherGroup), || {
                    format!("message {entry}: acknowledged, and its handler never said so")
                }),
            Fate::Trimmed | Fate::Cancelled => {}
            Fate::DeadLettered(reason, attempts) | Fate::Discarded(reason, attempts) => {
                match reason {
                    Reason::Dropped => self.require(life.dropped, || {
                        format!("message {entry}: dropped, and its handler never said so")
                    }),
                    Reason::MaxDeliveries => self.given_up(scenario, entry, attempts, &life),
                    other => self.require(gate.and_then(Gate::reason) == Some(other), || {
                        format!("message {entry}: given up as {other}")
                    }),
                }
            }
        }
    }

    /// No start was left. It must have had them all, and must not be innocent.
    fn given_up(&mut self, scenario: &Scenario, entry: Entry, attempts: u32, life: &Life) {
        let plan = &scenario.plans[entry];
        let Some(budget) = scenario.least_budget(plan) else {
            self.violate(|| format!("message {entry}: given up without a cap"));
            return;
        };
        // Under a cap that has come down it may have had more attempts than that already.
        let varies = scenario.cap_varies();
        let is_cap = |cap: u32| {
            let cap = cap.max(plan.header);
            attempts == cap || (varies && attempts > cap)
        };
        self.require(scenario.caps().flatten().any(is_cap), || {
            format!("message {entry}: given up after {attempts} attempts, and no cap says so")
        });
        if self.regrouped || life.again {
            return;
        }
        self.require(life.starts + life.wasted >= budget, || {
            format!(
                "message {entry}: given up after {} starts of {budget}, and {} charges without one",
                life.starts, life.wasted
            )
        });
        self.require(life.nacks + life.orphaned >= budget, || {
            format!(
                "message {entry}: given up after {} failures and {} lost owners of {budget}",
                life.nacks, life.orphaned
            )
        });
        if let Nature::Ack { nacks } = plan.nature {
            // A hold sends it back among the others like a failure, and so does a call that fails.
            let nacks = match plan.holds + plan.calls {
                0 => nacks,
                _ => life.nacks + life.asked,
            };
            let harmed = if !scenario.has_killers() {
                false
            } else if nacks == 0 {
                // A suspect that has one start left by a cap that comes later may run already.
                let least = if scenario.cap_varies() { 3 } else { 2 };
                budget >= least && life.outside < budget.saturating_sub(2).max(1)
            } else {
                budget >= 2 * nacks + 3 && life.outside < budget - 2 * nacks - 2
            };
            // One that its handler has dropped is not one that it would acknowledge.
            self.require(!harmed || life.dropped, || {
                format!("message {entry}: innocent, and given up: {life:?}")
            });
        }
    }

    /// An isolated suspect has ended its host: no other message may be charged for that.
    pub(super) fn killed_isolated(&mut self, killer: Entry, beside: &[Entry]) {
        self.require(beside.is_empty() || self.regrouped, || {
            format!("message {killer} ran isolated, and ended its host beside {beside:?}")
        });
    }

    /// Everything has been settled that can be.
    pub(super) fn is_done(&self, scenario: &Scenario) -> bool {
        // The last message ends last, as a rule.
        self.lives
            .iter()
            .zip(&scenario.plans)
            .rev()
            .all(|(life, plan)| life.has_ended() || scenario.is_endless(plan))
    }

    pub(super) fn finish(&mut self, scenario: &Scenario, store: &Store, now: Time) {
        let calm = scenario.faults.is_calm();
        for (key, (number, added)) in &store.numbers {
            self.require(number == added, || {
                format!("number {key}: {number} after {added} additions: an update is lost")
            });
        }
        let kills = scenario.faults.kill > 0 || scenario.has_killers();
        for (entry, life) in self.lives.clone().into_iter().enumerate() {
            if scenario.is_endless(&scenario.plans[entry]) {
                continue;
            }
            self.require(life.has_ended(), || {
                let pending = store.pending.get(&entry);
                format!("message {entry}: not settled at {now:?}: {pending:?} {life:?}")
            });
            if calm && !kills && scenario.faults.drain == 0 && !self.regrouped {
                self.require(life.wasted == 0, || {
                    format!("message {entry}: charged without a start, and no host died: {life:?}")
                });
            }
        }
    }
}
