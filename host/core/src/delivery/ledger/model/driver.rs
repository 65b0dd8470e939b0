//! The model of the driver: carries out what the ledger wants, call by call. A call is sent,
//! executed, answered and applied in steps of their own; each may be late, or never come.

use std::time::Duration;

use super::super::held::State;
use super::super::{
    Action, Admission, Closed, Delivery, Event, Key, Note, Permits, Reply, SettleAction, Time,
};
use super::audit::Cause;
use super::journal::{self, Intended};
use super::scenario::{Gate, Nature, ms};
use super::store::{Entry, Handed, HostId, Owner};
use super::world::{Job, LATELY, Step, World, entry_of};
use crate::delivery::message::DeliveryId;
use crate::delivery::rules::Rule;

/// How long a fetch waits.
const FETCH_WAIT: Time = Duration::from_millis(300);

#[derive(Clone, Debug)]
pub(super) enum Command {
    Fetch {
        want: usize,
        until: Time,
    },
    TakeDue {
        max: usize,
    },
    TakeOrphans {
        max: usize,
        /// What the host held when it sent this.
        held: Vec<DeliveryId>,
    },
    /// The other half of a look for orphans: own entries that are not held.
    Adopt {
        entries: Vec<Entry>,
        claimed: Vec<Delivery<Job>>,
        leased: Time,
    },
    /// A claim of orphans in two commands, as without [`Rule::ClaimsKeepCounts`].
    ClaimListed(Vec<(Entry, u32)>),
    Record {
        key: Key,
        expect: u32,
        write: u32,
        /// An earlier answer was lost.
        again: bool,
    },
    Acknowledge {
        key: Key,
        /// It may be another host's by now.
        is_late: bool,
    },
    Settle {
        key: Key,
        count: u32,
        action: SettleAction,
        /// An earlier answer was lost.
        again: bool,
    },
    Renew(Vec<Key>),
    /// Deliveries, and when their starts were reserved for; and the permits of others.
    Admit(Vec<(Entry, Option<Time>)>, Permits),
    Probe,
    /// Ask the journal before a call, and write its intent.
    Intend {
        call: journal::Call,
        count: u32,
    },
    /// Record the answer to a call.
    Answered {
        call: journal::Call,
        answer: u64,
        is_kept: bool,
    },
    /// Take back what is missing although its lease lasts.
    BringBack {
        key: Key,
        count: u32,
        /// When its lease ends.
        until: Time,
    },
    /// Make the group again, and take back what the host holds.
    Repair {
        held: Vec<(Key, u32)>,
        /// How many entries the host has seen.
        seen: usize,
    },
}

impl Command {
    /// Whether it is asked until it is answered.
    fn is_repeated(&self) -> bool {
        matches!(
            self,
            Self::Record { .. }
                | Self::Acknowledge { .. }
                | Self::Settle { .. }
                | Self::BringBack { .. }
                | Self::Intend { .. }
                | Self::Answered { .. }
        )
    }

    pub(super) fn is_weighty(&self) -> bool {
        !matches!(
            self,
            Self::TakeDue { .. }
                | Self::TakeOrphans { .. }
                | Self::Renew(_)
                | Self::Fetch { .. }
                | Self::Admit(..)
        )
    }
}

impl Command {
    /// What is asked if the answer was lost.
    fn again(self) -> Self {
        match self {
            Self::Settle {
                key, count, action, ..
            } => Self::Settle {
                key,
                count,
                action: action.again(count),
                again: true,
            },
            Self::Acknowledge { key, .. } => Self::Acknowledge { key, is_late: true },
            Self::Record {
                key, expect, write, ..
            } => Self::Record {
                key,
                expect,
                write,
                again: true,
            },
            other => other,
        }
    }
}

#[derive(Debug)]
pub(super) struct Call {
    pub(super) host: HostId,
    pub(super) command: Command,
    /// The mark of the group as its host knew it.
    mark: u64,
    sent: Time,
    /// Its host has gone on: what it does now, no host hears of.
    pub(super) given_up: bool,
    executed: bool,
    /// It is on the server already: the death of its host does not stop it.
    survives: bool,
    answer: Option<Answer>,
    /// A waiting fetch returns.
    interrupted: bool,
    waiting: bool,
    /// How long its answer takes.
    back: Time,
    /// When its host gives up on it.
    deadline: Time,
}

impl Call {
    /// It was carried out, and its answer, which may have messages, is on its way.
    pub(super) fn brings_messages(&self) -> bool {
        let claims = matches!(
            self.command,
            Command::Fetch { .. }
                | Command::TakeDue { .. }
                | Command::TakeOrphans { .. }
                | Command::Adopt { .. }
                | Command::ClaimListed(_)
        );
        self.executed && !self.given_up && claims
    }
}

#[derive(Debug)]
enum Answer {
    Claims {
        deliveries: Vec<Delivery<Job>>,
        next: Option<Time>,
    },
    Orphans {
        deliveries: Vec<Delivery<Job>>,
        own: Vec<Entry>,
    },
    Listed(Vec<(Entry, u32)>),
    /// When it was carried out, and what it allows.
    Admissions(Time, Vec<Admission>),
    Reply(Reply),
    Replies(Vec<(Key, Reply)>),
    Done,
    Repaired {
        mark: u64,
        replies: Vec<(Key, Reply)>,
    },
    Intended(Intended),
    /// The answer that the handler sees.
    Stands(Option<u64>),
    /// There is no such group, or it is another one.
    Missing,
}

impl World<'_> {
    pub(super) fn apply(&mut self, host: HostId, event: Event<Job>) {
        let is_online = self.hosts[host].cut_until.is_none() && !self.hosts[host].offline;
        if matches!(event, Event::Offline) && is_online {
            // It stood still until the connection was back.
            return;
        }
        self.trace(|| format!("host {host} <- {event:?}"));
        // The driver polls after every batch of events; leave to start goes out at once.
        let at_once = matches!(event, Event::Recorded { .. }) || self.rng.bool();
        let is_renewal = matches!(event, Event::Renewed { .. });
        let is_admission = matches!(event, Event::Admitted { .. });
        let now = self.now;
        let h = &mut self.hosts[host];
        if is_admission && now >= h.ledger.admissions.leased(now) + self.scenario.min_idle {
            h.lapsed = now;
        }
        h.ledger.apply(now, event);
        if is_renewal {
            for (key, _, leased) in &mut h.queue {
                *leased = h.ledger.leased(*key).map_or(*leased, |at| at.max(*leased));
            }
        }
        self.check_counts(host);
        if at_once {
            self.poll(host);
        } else {
            self.wake(host);
        }
    }

    /// Have the ledger polled soon.
    pub(super) fn wake(&mut self, host: HostId) {
        let delay = self.hop();
        self.poll_at(host, self.now + delay);
    }

    fn poll_at(&mut self, host: HostId, at: Time) {
        if self.hosts[host].next_poll.is_none_or(|next| at < next) {
            self.hosts[host].next_poll = Some(at);
            self.at(at, Step::Poll(host));
        }
    }

    pub(super) fn poll(&mut self, host: HostId) {
        let mut actions = Vec::new();
        let now = self.now;
        self.hosts[host].ledger.poll(now, &mut actions);
        self.check_counts(host);
        for action in actions {
            if !matches!(
                action,
                Action::TakeDue { .. } | Action::TakeOrphans { .. } | Action::Fetch { .. }
            ) {
                self.trace(|| format!("host {host} -> {action:?}"));
            }
            self.carry_out(host, action);
        }
        self.take(host);
        let h = &self.hosts[host];
        if h.draining && h.ledger.is_drained() {
            self.kill(host, Cause::Left);
        } else if let Some(at) = h.ledger.next_deadline() {
            if at <= now {
                let ledger = &h.ledger;
                let state = format!(
                    "{:?} {:?} {:?}",
                    ledger.holdings.counts(),
                    ledger.mode,
                    ledger.intake
                );
                self.audit
                    .violate(|| format!("host {host} polls for ever: {state}"));
            }
            self.poll_at(host, at);
        }
    }

    fn check_counts(&mut self, host: HostId) {
        let ledger = &self.hosts[host].ledger;
        let (counted, held) = (ledger.holdings.counts(), ledger.holdings.recounted());
        if counted != held {
            self.audit
                .violate(|| format!("host {host} counts {counted:?} and holds {held:?}"));
        }
    }

    fn carry_out(&mut self, host: HostId, action: Action<Job>) {
        match action {
            Action::Fetch { want, wait } => {
                let until = if wait {
                    self.now + FETCH_WAIT
                } else {
                    self.now
                };
                self.issue(host, Command::Fetch { want, until });
            }
            Action::Interrupt => self.interrupt(host),
            Action::TakeDue { max } => {
                self.issue(host, Command::TakeDue { max });
            }
            Action::TakeOrphans { max } => {
                let held = self.hosts[host].ledger.iter().map(|(key, ..)| key.id);
                let held = held.collect();
                self.issue(host, Command::TakeOrphans { max, held });
            }
            Action::Renew(keys) => self.issue(host, Command::Renew(keys)),
            Action::Admit { keys, permits } => {
                let reserved = &self.hosts[host].reserved;
                let asked = keys.into_iter().map(entry_of);
                let asked = asked.map(|entry| (entry, reserved.get(&entry).copied()));
                let asked = Command::Admit(asked.collect(), permits);
                self.issue(host, asked);
            }
            Action::Release {
                key,
                attempt,
                leased,
            } => self.hosts[host].queue.push_back((key, attempt, leased)),
            Action::Record { key, expect, write } => {
                let holdings = &self.hosts[host].ledger.holdings;
                let is_ahead = holdings.find_in(key, State::is_ahead).is_some();
                self.tale.ahead += u64::from(is_ahead);
                self.issue(
                    host,
                    Command::Record {
                        key,
                        expect,
                        write,
                        again: false,
                    },
                );
            }
            Action::Go { key, attempt } => {
                let (delay, now) = (self.hop(), self.now);
                self.after(delay, Step::Go(host, key, attempt, now));
            }
            Action::Deny(key) => {
                let delay = self.hop();
                self.after(delay, Step::Deny(host, key));
            }
            Action::Revoke(key) => {
                self.hosts[host].lost.insert(key);
                let queue = &mut self.hosts[host].queue;
                if let Some(place) = queue.iter().position(|(k, ..)| *k == key) {
                    queue.remove(place);
                    self.tell(host, Event::Revoked(key));
                }
            }
            Action::Cut(key) => self.cut_off(host, key),
            Action::Acknowledge(key) => {
                let is_late = !self.hosts[host].ledger.acks_plainly(self.now, key);
                self.issue(host, Command::Acknowledge { key, is_late });
            }
            Action::BringBack { key, count } => {
                let until = self.hosts[host].ledger.lease_ends(key);
                let until = until.unwrap_or_default();
                self.issue(host, Command::BringBack { key, count, until });
            }
            Action::Settle { key, count, action } => {
                let again = self.hosts[host].unanswered.contains(&key);
                if let SettleAction::Discard(rejection) = &action
                    && !again
                    && self.hosts[host].discards_on_its_own(rejection.reason)
                {
                    let reason = rejection.reason;
                    let said = || format!("discarded without a word of the operator: {reason}");
                    self.audit.violate(said);
                }
                let settle = Command::Settle {
                    key,
                    count,
                    action,
                    again,
                };
                self.issue(host, settle);
            }
            Action::Closed { key, job, how } => {
                let owner = self.store.pending.get(&job).map(|p| p.owner);
                if how == Closed::Superseded {
                    self.audit.superseded(host, job);
                }
                if how == Closed::Stolen && owner == Some(Owner::Host(host)) {
                    self.audit.let_go(job);
                }
                let known = self.hosts[host].lost.remove(&key);
                if how == Closed::Stolen && !known {
                    self.lost_lease(host, job);
                }
                let is_sent_away = matches!(
                    how,
                    Closed::Settled(
                        SettleAction::Park { .. }
                            | SettleAction::Hold { .. }
                            | SettleAction::HandBack { .. }
                            | SettleAction::Leave { .. }
                    )
                );
                let h = &self.hosts[host];
                let is_calm = h.disturbed + self.scenario.min_idle * 4 < self.now;
                let may_be_settled = matches!(how, Closed::Gone | Closed::Settled(_));
                // Nothing is brought back after a try without an answer, nor what was read once more.
                let is_unsure =
                    !is_calm || h.unanswered.contains(&key) || self.audit.was_unlisted_twice(job);
                if is_sent_away || how == Closed::Stolen || (may_be_settled && is_unsure) {
                    // Only Redis knows it, and the group may have gone in that moment; or a consumer, while
                    // no host can tell whether it was settled.
                    self.excuse([job]);
                }
            }
            Action::Note(Note::IsolatedRunBegan(_)) => self.check_share(host),
            Action::Note(Note::IsolatedRunEnded { took, .. }) => {
                self.hosts[host].share = (self.now, took);
            }
            Action::Note(Note::LeaseLost(key)) => {
                self.hosts[host].lost.insert(key);
                self.lost_lease(host, entry_of(key));
            }
            Action::Note(Note::Changed {
                key,
                gives_up: true,
            }) => self.audit.gave_up_running(host, entry_of(key)),
            Action::Note(Note::Unfit { key, .. }) => self.audit.lives[entry_of(key)].nacks += 1,
            Action::Note(_) => {}
        }
    }

    fn lost_lease(&mut self, host: HostId, entry: Entry) {
        let h = &self.hosts[host];
        if h.disturbed + self.scenario.min_idle * 4 < self.now {
            let owner = match self.store.pending.get(&entry).map(|p| p.owner) {
                Some(Owner::Host(other)) => Some(other),
                _ => None,
            };
            self.audit.lost_lease(host, entry, owner);
        }
    }

    pub(super) fn issue(&mut self, host: HostId, command: Command) {
        if let Command::BringBack { key, until, .. } = command
            && self.now >= until
        {
            // Another host may have settled it by now.
            let replies = vec![(key, Reply::Gone)];
            let leased = self.now;
            self.tell(host, Event::BroughtBack { leased, replies });
            return;
        }
        if self.hosts[host].cut_until.is_some() {
            self.fail(host, command);
            return;
        }
        let is_recovery = matches!(command, Command::Probe | Command::Repair { .. });
        if self.hosts[host].offline && !is_recovery {
            if command.is_repeated() {
                // It was not sent yet.
                self.hosts[host].backlog.push(command);
            } else {
                self.fail(host, command);
            }
            return;
        }
        let faults = self.scenario.faults;
        let id = self.token();
        let timeout = self.scenario.timeout;
        let wait = match command {
            Command::Fetch { until, .. } => until.saturating_sub(self.now),
            _ => Time::ZERO,
        };
        let deadline = self.now + wait + timeout;
        let most = if self.rng.u32(0..4) == 0 {
            ms(12)
        } else {
            ms(1)
        };
        let mut reach = self.jitter(most);
        let most = if self.rng.u32(0..4) == 0 {
            ms(12)
        } else {
            ms(1)
        };
        let mut back = self.jitter(most);
        let mut is_lost = false;
        if !self.healed && self.rng.u32(0..1000) < faults.lost {
            match self.rng.u32(0..3) {
                // It never reaches Redis.
                0 => is_lost = true,
                // Its answer never comes back.
                1 => {}
                // It reaches Redis when no host waits for it anymore.
                _ => reach = wait + timeout + self.jitter(self.scenario.min_idle),
            }
            let h = &mut self.hosts[host];
            h.disturbed = h.disturbed.max(deadline + self.scenario.min_idle * 2);
            self.after(deadline.saturating_sub(self.now), Step::GiveUp(id));
        } else if !self.healed && self.rng.u32(0..1000) < faults.slow {
            let late = self.jitter(self.scenario.min_idle * 2);
            if self.rng.bool() {
                reach = late;
            } else {
                back = late;
            }
            let h = &mut self.hosts[host];
            h.disturbed = h.disturbed.max(self.now + self.scenario.min_idle * 4);
            self.after(deadline.saturating_sub(self.now), Step::GiveUp(id));
        } else {
            // An answer in time takes this away again.
            self.after(deadline.saturating_sub(self.now), Step::GiveUp(id));
        }
        let survives = self.rng.bool();
        self.calls.insert(
            id,
            Call {
                host,
                command,
                mark: self.hosts[host].mark,
                sent: self.now,
                given_up: false,
                executed: false,
                survives,
                answer: None,
                interrupted: false,
                waiting: false,
                back,
                deadline,
            },
        );
        if !is_lost {
            self.after(reach, Step::Execute(id));
        }
    }

    /// Redis executes a call: one step, whatever it reads and writes.
    pub(super) fn execute(&mut self, id: u64) {
        let now = self.now;
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        let host = call.host;
        let alive = self.hosts[host].alive;
        if call.executed || (!alive && (!call.survives || call.waiting)) {
            return;
        }
        if let Command::Fetch { until, .. } = call.command
            && !self.store.has_unread()
            && self.store.group.is_some()
            && now < until
            && !call.interrupted
            && !call.given_up
        {
            if !call.waiting {
                call.waiting = true;
                self.at(until, Step::Execute(id));
            }
            return;
        }
        call.executed = true;
        match (call.given_up, &call.command) {
            // It may charge a delivery that its host has sent away by now.
            (true, Command::Record { key, .. }) => self.audit.let_go(entry_of(*key)),
            // It may end a delivery that has come back to its host by now.
            (true, Command::Settle { key, action, .. }) if !sends_away(action) => {
                self.audit.may_come_again(entry_of(*key));
            }
            // It may bring back a delivery that is settled by now.
            (given_up, Command::BringBack { key, until, .. }) if given_up || self.now >= *until => {
                self.audit.may_come_again(entry_of(*key));
            }
            _ => {}
        }
        let (command, mark) = (call.command.clone(), call.mark);
        let answer = self.perform_command(id, host, mark, &command);
        if !matches!(
            command,
            Command::TakeDue { .. }
                | Command::TakeOrphans { .. }
                | Command::Fetch { .. }
                | Command::Renew(_)
                | Command::Admit(..)
        ) {
            self.trace(|| format!("Redis, for host {host}: {command:?} = {answer:?}"));
        }
        match &answer {
            Answer::Reply(Reply::Refused(_)) => self.tale.refused += 1,
            Answer::Reply(Reply::Stolen) => self.tale.stolen += 1,
            _ => {}
        }
        let faults = self.scenario.faults;
        let lost = !self.healed && self.rng.u32(0..2000) < faults.lost;
        if let Some(call) = self.calls.get_mut(&id) {
            call.answer = Some(answer);
            if call.given_up {
                self.calls.remove(&id);
            } else if !lost {
                let back = call.back;
                self.after(back, Step::Answer(id));
            } else {
                let deadline = call.deadline;
                let h = &mut self.hosts[host];
                h.disturbed = h.disturbed.max(deadline);
            }
        }
    }

    /// Whether the group is missing for a command: or it is another one, and does not have what the
    /// command is about.
    fn is_missing(&self, mark: u64, command: &Command) -> bool {
        let is_gone = |key: &Key| !self.store.pending.contains_key(&entry_of(*key));
        let is_stranger = match command {
            Command::Acknowledge { is_late: false, .. }
            | Command::Repair { .. }
            | Command::Answered { .. } => return false,
            Command::Intend { call, .. } => is_gone(&call.key),
            Command::Record { key, .. }
            | Command::Settle { key, .. }
            | Command::BringBack { key, .. } => is_gone(key),
            Command::Renew(keys) => keys.iter().any(is_gone),
            _ => false,
        };
        self.store.group.is_none() || is_stranger && !self.store.is_known(mark)
    }

    fn perform_command(&mut self, id: u64, host: HostId, mark: u64, command: &Command) -> Answer {
        let now = self.now;
        let salt = self.rng.u64(..);
        if let Command::Settle { action, .. } = command
            && matches!(action, SettleAction::DeadLetter(_))
            && !self.hosts[host].rules.has_dead_letter
        {
            // The host sends nothing: it does not know where to.
            return Answer::Reply(Reply::Refused("no dead-letter key is set".to_owned()));
        }
        if self.is_missing(mark, command) {
            return Answer::Missing;
        }
        // Consumers are listed by name, and names are random.
        let order = |other: HostId| (other as u64 ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match command {
            Command::Fetch { want, .. } => {
                // All that the host wants, or a part of it.
                let want = *want as u64;
                let count = if self.scenario.parts && salt.is_multiple_of(4) {
                    1 + salt / 4 % want
                } else {
                    want
                };
                let count = usize::try_from(count).unwrap_or(usize::MAX);
                let handed = self.store.fetch(now, host, count);
                for h in &handed {
                    let plan = &self.scenario.plans[h.entry];
                    if !self.scenario.may_recount(plan) {
                        self.audit.raised(host, h.entry, plan.header, true);
                    }
                }
                Answer::Claims {
                    deliveries: self.deliveries(host, &handed),
                    next: None,
                }
            }
            Command::TakeDue { max } => {
                let taken = self.store.take_due(now, host, mark, *max);
                let Ok((handed, next)) = taken else {
                    return Answer::Missing;
                };
                Answer::Claims {
                    deliveries: self.deliveries(host, &handed),
                    next,
                }
            }
            Command::TakeOrphans { max, .. } if !Rule::ClaimsKeepCounts.holds() => {
                Answer::Listed(self.store.list_orphans(now, host, *max, order))
            }
            Command::TakeOrphans { max, .. } => {
                let handed = self.store.take_orphans(now, host, mark, *max, order);
                Answer::Orphans {
                    deliveries: self.deliveries(host, &handed),
                    own: self.store.own_idle(now, host),
                }
            }
            Command::ClaimListed(listed) => {
                let handed = self.store.claim_listed(now, host, listed);
                Answer::Orphans {
                    deliveries: self.deliveries(host, &handed),
                    own: self.store.own_idle(now, host),
                }
            }
            Command::Adopt { entries, .. } => {
                let handed = self.store.adopt(now, host, entries);
                Answer::Claims {
                    deliveries: self.deliveries(host, &handed),
                    next: None,
                }
            }
            Command::Record {
                key,
                expect,
                write,
                again,
            } => {
                let entry = entry_of(*key);
                let before = self.store.pending.get(&entry).map_or(0, |p| p.count);
                let reply = self
                    .store
                    .record(now, host, entry, (*expect, *write), *again);
                if reply == Reply::Done && before < *write {
                    let header = self.scenario.plans[entry].header;
                    self.audit.raised(host, entry, header, false);
                }
                Answer::Reply(reply)
            }
            Command::Acknowledge { key, is_late } => {
                let entry = entry_of(*key);
                let owner = self.store.pending.get(&entry).map(|p| p.owner);
                let is_again = self.store.due.contains_key(&entry);
                if !is_late && (owner != Some(Owner::Host(host)) || is_again) {
                    // The acknowledgement was on its way for longer than the lease. Its host may have taken the message
                    // again meanwhile, and then there is a record of that.
                    self.audit.may_come_again(entry);
                }
                self.store.acknowledge(host, entry, *is_late);
                self.audit.acknowledged_elsewhere(entry);
                Answer::Done
            }
            Command::BringBack { key, count, .. } => {
                let entry = entry_of(*key);
                let reply = self.store.readopt(now, host, entry, *count);
                if reply == Reply::Done {
                    self.audit.listed(entry);
                }
                Answer::Replies(vec![(*key, reply)])
            }
            Command::Settle {
                key,
                count,
                action,
                again,
            } => {
                let entry = entry_of(*key);
                let sends_away = sends_away(action);
                if sends_away && self.store.is_void(host, entry, id) {
                    return Answer::Reply(Reply::Refused("it was asked again since".to_owned()));
                }
                if sends_away && *again {
                    self.store.void_before(host, entry, id);
                }
                let read = self.hosts[host].read.get(&entry).copied();
                let plan = &self.scenario.plans[entry];
                // What no handler saw has no effects.
                let is_unfit = plan.nature == Nature::Unfit && plan.gate != Some(Gate::OtherGroup);
                let held = self.store.held(entry);
                let reply = self
                    .store
                    .settle(now, host, entry, *count, action, (read, is_unfit));
                let takes_back = matches!(
                    action,
                    SettleAction::HandBack { .. } | SettleAction::Leave { .. }
                );
                if takes_back && matches!(reply, Reply::Refused(_)) {
                    self.audit.not_taken_back(entry);
                }
                if reply == Reply::Changed {
                    self.tale.reruns += 1;
                    self.audit.voided(host, entry);
                }
                // However late it is carried out: the start is reserved for one time.
                if let SettleAction::HandBack { after, .. } = action
                    && !after.is_zero()
                    && let Some(at) = self.hosts[host].reserved.get(&entry)
                    && let Some(record) = self.store.due.get_mut(&entry)
                    && record.is_reserved
                {
                    record.at = *at;
                }
                if reply == Reply::Done {
                    match action {
                        SettleAction::HandBack { .. } | SettleAction::Leave { .. } if *again => {
                            self.audit.kept_its_charge(entry);
                        }
                        // Another host had it meanwhile, and has parked it: this hold is not counted.
                        SettleAction::Hold { .. } if self.store.held(entry) == held => {
                            self.audit.charged(entry);
                        }
                        SettleAction::Hold { .. } => {
                            self.audit.held(host, entry, held + 1);
                            if self.calls.get(&id).is_some_and(|call| call.given_up) {
                                self.audit.held_late(entry);
                            }
                            self.audit.parked(entry, false);
                        }
                        SettleAction::Park { keep, .. }
                        | SettleAction::HandBack { keep, .. }
                        | SettleAction::Leave { keep } => {
                            self.audit.parked(entry, keep == count);
                        }
                        SettleAction::Acknowledge
                        | SettleAction::DeadLetter(_)
                        | SettleAction::Discard(_) => {}
                    }
                }
                Answer::Reply(reply)
            }
            Command::Renew(keys) => Answer::Replies(
                keys.iter()
                    .map(|&key| (key, self.store.renew(now, host, entry_of(key))))
                    .collect(),
            ),
            Command::Admit(asked, permits) => {
                let admissions = self.store.admit(now, self.scenario, host, asked, *permits);
                Answer::Admissions(now, admissions)
            }
            Command::Probe => Answer::Done,
            Command::Intend { call, count } => {
                let unknown = self.scenario.unknown;
                Answer::Intended(self.store.intend(host, *count, call, unknown))
            }
            Command::Answered {
                call,
                answer,
                is_kept,
            } => Answer::Stands(self.perform_answered(*call, *answer, *is_kept)),
            Command::Repair { held, seen } => {
                let before = self.store.read;
                if self.store.group.is_none() {
                    self.made_again_by(Some(host));
                }
                let mark = self.store.repair(*seen);
                let readopted = |&(key, count)| {
                    let reply = self.store.readopt(now, host, entry_of(key), count);
                    (key, reply)
                };
                let replies = held.iter().map(readopted).collect();
                self.store.park_one_again(now);
                // The host has seen them in an earlier group than the last one.
                self.excuse(self.store.handed_out(before));
                Answer::Repaired { mark, replies }
            }
        }
    }

    fn deliveries(&mut self, host: HostId, handed: &[Handed]) -> Vec<Delivery<Job>> {
        for h in handed {
            self.trace(|| format!("Redis hands out {h:?} to host {host}"));
            self.audit.claimed(host, h);
            let reserved = &mut self.hosts[host].reserved;
            match h.reserved {
                Some(at) => reserved.insert(h.entry, at),
                None => reserved.remove(&h.entry),
            };
        }
        let (now, plans) = (self.now, &self.scenario.plans);
        handed
            .iter()
            .map(|h| Delivery {
                id: DeliveryId(h.entry as u128),
                origin: h.origin,
                header: plans[h.entry].header,
                native: h.native,
                held: h.held,
                turned_away: plans[h.entry].gate.and_then(|gate| gate.at_claim(now)),
                is_awaited: plans[h.entry].is_awaited,
                job: h.entry,
            })
            .collect()
    }

    /// The answer of a call arrives in time.
    pub(super) fn answer(&mut self, id: u64) {
        let arrives = |call: &Call| !call.given_up && call.answer.is_some();
        if !self.calls.get(&id).is_some_and(arrives) {
            return;
        }
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        let (host, leased) = (call.host, call.sent);
        let Some(answer) = call.answer else { return };
        if let Answer::Missing = answer {
            self.missing(host, call.command);
            return;
        }
        let event = match (call.command, answer) {
            (Command::Fetch { want, .. }, Answer::Claims { deliveries, .. }) => {
                let left = want.saturating_sub(deliveries.len());
                // The next part is asked for before the host takes this one in.
                let goes_on = self.scenario.parts && !deliveries.is_empty() && left > 0;
                let more = goes_on && self.rng.bool();
                if more {
                    let until = self.now;
                    self.issue(host, Command::Fetch { want: left, until });
                }
                let seen = deliveries.iter().map(|d| self.store.place_behind(d.job));
                let seen = seen.max().unwrap_or(0);
                let h = &mut self.hosts[host];
                h.seen = h.seen.max(seen);
                Event::Fetched {
                    leased,
                    deliveries,
                    more,
                }
            }
            (Command::TakeDue { .. }, Answer::Claims { deliveries, next }) => Event::DueTaken {
                leased,
                deliveries,
                next,
            },
            (Command::TakeOrphans { .. }, Answer::Listed(listed)) => {
                self.issue(host, Command::ClaimListed(listed));
                return;
            }
            (
                command @ (Command::TakeOrphans { .. } | Command::ClaimListed(_)),
                Answer::Orphans { deliveries, own },
            ) => {
                let ledger = &self.hosts[host].ledger;
                let holds = |entry: &Entry| {
                    let id = DeliveryId(*entry as u128);
                    match &command {
                        Command::TakeOrphans { held, .. } => held.contains(&id),
                        _ => ledger.holds(&id),
                    }
                };
                let entries: Vec<_> = own.into_iter().filter(|entry| !holds(entry)).collect();
                if !entries.is_empty() {
                    self.issue(
                        host,
                        Command::Adopt {
                            entries,
                            claimed: deliveries,
                            leased,
                        },
                    );
                    return;
                }
                Event::OrphansTaken { leased, deliveries }
            }
            (
                Command::Adopt {
                    claimed, leased, ..
                },
                Answer::Claims { deliveries, .. },
            ) => {
                let deliveries = claimed.into_iter().chain(deliveries).collect();
                Event::OrphansTaken { leased, deliveries }
            }
            (Command::Record { key, .. }, Answer::Reply(reply)) => {
                Event::Recorded { key, leased, reply }
            }
            (Command::Acknowledge { key, .. }, Answer::Done) => Event::Acknowledged(vec![key]),
            (Command::BringBack { .. }, Answer::Replies(replies)) => {
                Event::BroughtBack { leased, replies }
            }
            (Command::Settle { key, .. }, Answer::Reply(reply)) => {
                if matches!(reply, Reply::Changed | Reply::Unfit(_)) {
                    self.hosts[host].unanswered.remove(&key);
                }
                Event::Settled(key, reply)
            }
            (Command::Intend { call, .. }, Answer::Intended(intended)) => {
                self.intended(host, call, intended);
                return;
            }
            (Command::Answered { call, .. }, Answer::Stands(answer)) => {
                if Rule::AnswersAreRecordedFirst.holds() {
                    self.sees(host, call, answer);
                }
                return;
            }
            (Command::Probe, Answer::Done) => {
                self.probed(host);
                return;
            }
            (Command::Repair { .. }, Answer::Repaired { mark, replies }) => {
                self.repaired(host, leased, mark, replies);
                return;
            }
            (Command::Admit(asked, _), Answer::Admissions(at, replies)) => {
                let reserved = &mut self.hosts[host].reserved;
                for ((entry, _), admission) in asked.iter().zip(&replies) {
                    match *admission {
                        Admission::Granted => drop(reserved.remove(entry)),
                        Admission::Later(after) => drop(reserved.insert(*entry, at + after)),
                        Admission::Wait(_) => {}
                    }
                }
                let sent = leased;
                if self.now >= sent + LATELY {
                    self.hosts[host].asked_in_vain = self.now;
                }
                let replies = Some(replies);
                Event::Admitted { sent, replies }
            }
            (Command::Renew(_), Answer::Replies(replies)) => Event::Renewed { leased, replies },
            (command, answer) => unreachable!("{command:?} {answer:?}"),
        };
        self.apply(host, event);
    }

    /// The answer of a call does not come in time: nothing is known of it.
    pub(super) fn give_up(&mut self, id: u64) {
        let Some(call) = self.calls.get_mut(&id) else {
            return;
        };
        if call.given_up {
            return;
        }
        call.given_up = true;
        let (host, command) = (call.host, call.command.clone());
        if call.executed {
            self.calls.remove(&id);
        }
        self.fail(host, command);
    }

    /// Nothing is known of a command. What must be known is asked again.
    pub(super) fn fail(&mut self, host: HostId, command: Command) {
        let leased = self.now;
        let event = match command {
            Command::Fetch { .. } => {
                let now = self.now;
                let doubt = self.scenario.min_idle * 4 + self.scenario.timeout * 4;
                let h = &mut self.hosts[host];
                let from = h.read_from(now);
                h.unanswered_read = Some((from, now + doubt));
                Event::Fetched {
                    leased,
                    deliveries: Vec::new(),
                    more: false,
                }
            }
            Command::TakeDue { .. } => Event::DueTaken {
                leased,
                deliveries: Vec::new(),
                next: None,
            },
            Command::TakeOrphans { .. } | Command::ClaimListed(_) | Command::Adopt { .. } => {
                // What its first half has claimed is lost with it.
                Event::OrphansTaken {
                    leased,
                    deliveries: Vec::new(),
                }
            }
            Command::Renew(_) => Event::Renewed {
                leased,
                replies: Vec::new(),
            },
            Command::Admit(..) => {
                self.hosts[host].asked_in_vain = self.now;
                Event::Admitted {
                    sent: leased,
                    replies: None,
                }
            }
            Command::Probe | Command::Repair { .. } => {
                self.probe_later(host);
                return;
            }
            Command::Record { .. }
            | Command::Acknowledge { .. }
            | Command::Settle { .. }
            | Command::BringBack { .. }
            | Command::Intend { .. }
            | Command::Answered { .. } => {
                if let Command::Settle {
                    key, ref action, ..
                } = command
                {
                    // The worker says so before it repeats.
                    self.trace(|| format!("host {host} <- no answer for {key:?}"));
                    if let SettleAction::Hold { .. } = action {
                        self.audit.charged(entry_of(key));
                    }
                    let now = self.now;
                    let h = &mut self.hosts[host];
                    h.ledger.apply(now, Event::Unanswered(key));
                    h.unanswered.insert(key);
                }
                if self.hosts[host].cut_until.is_some() || self.hosts[host].offline {
                    self.hosts[host].backlog.push(command.again());
                } else {
                    self.issue(host, command.again());
                }
                return;
            }
        };
        self.tell(host, event);
    }

    /// The connection of a host is gone: what is under way may have been executed, or not.
    pub(super) fn cut(&mut self, host: HostId, length: Time) {
        let until = self.now + length;
        self.trace(|| format!("host {host} is cut off for {length:?}"));
        let h = &mut self.hosts[host];
        let was_cut = h.cut_until.is_some();
        let until = h.cut_until.map_or(until, |old| old.max(until));
        h.cut_until = Some(until);
        h.disturbed = h.disturbed.max(until + self.scenario.min_idle);
        if was_cut {
            return;
        }
        let mut under_way: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| call.host == host && !call.given_up)
            .map(|(&id, _)| id)
            .collect();
        under_way.sort_unstable();
        for id in under_way {
            if let Some(call) = self.calls.get_mut(&id) {
                // Still on its way: it arrives, or not.
                if !call.executed && (call.waiting || !call.survives) {
                    call.executed = true;
                }
            }
            let delay = self.hop();
            self.after(delay, Step::GiveUp(id));
            // Its answer is lost even if it was about to arrive.
            if let Some(call) = self.calls.get_mut(&id) {
                call.answer = None;
            }
        }
        self.tell(host, Event::Offline);
        self.after(length, Step::Reconnect(host));
    }

    pub(super) fn reconnect(&mut self, host: HostId) {
        if self.hosts[host]
            .cut_until
            .is_some_and(|until| until > self.now)
        {
            let until = self.hosts[host].cut_until.unwrap_or_default();
            self.at(until, Step::Reconnect(host));
            return;
        }
        self.hosts[host].cut_until = None;
        if self.hosts[host].offline {
            // Its probe tells.
            return;
        }
        self.apply(host, Event::Online);
        for command in std::mem::take(&mut self.hosts[host].backlog) {
            self.issue(host, command);
        }
    }

    fn interrupt(&mut self, host: HostId) {
        let mut fetches: Vec<_> = self
            .calls
            .iter_mut()
            .filter(|(_, call)| call.host == host && matches!(call.command, Command::Fetch { .. }))
            .map(|(&id, call)| {
                call.interrupted = true;
                id
            })
            .collect();
        fetches.sort_unstable();
        for id in fetches {
            let delay = self.hop();
            self.after(delay, Step::Execute(id));
        }
    }

    /// Something new is there for the fetches that wait.
    pub(super) fn wake_fetches(&mut self) {
        let mut waiting: Vec<_> = self
            .calls
            .iter()
            .filter(|(_, call)| call.waiting && !call.executed)
            .map(|(&id, _)| id)
            .collect();
        waiting.sort_unstable();
        for id in waiting {
            let delay = self.hop();
            self.after(delay, Step::Execute(id));
        }
    }
}

/// Whether a delivery goes to other hosts by this.
fn sends_away(action: &SettleAction) -> bool {
    matches!(
        action,
        SettleAction::Park { .. }
            | SettleAction::Hold { .. }
            | SettleAction::HandBack { .. }
            | SettleAction::Leave { .. }
    )
}
