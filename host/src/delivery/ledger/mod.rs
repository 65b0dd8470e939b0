//! Every delivery this host holds, from claim to settlement: the one owner of that state.
//!
//! [`Ledger::apply`] takes what happened, [`Ledger::poll`] gives what to do; time is an argument,
//! and nothing here waits, reads a clock or knows Redis. So a test can drive any number of hosts
//! through crashes, pauses and lost replies (`model.rs`), with the very code that runs.
//!
//! ```text
//!            claimed
//!               |
//!   Waiting: ready queue, or the queue of those who must run alone
//!               | Release
//!   Released: with the executor; a first delivery may start at any time
//!               | SlotReady (all others: a slot is kept for them)
//!   Recording: the start is being written down
//!               | Recorded -> Go
//!   Running
//!               | Finished -> decide
//!   Settling --- confirmed ---> ended
//!      \--- refused ---> Refused, tried again later, the handler not run meanwhile
//! ```
//!
//! Invariants: a start other than a fresh delivery's first is durable before it happens; a
//! delivery has at most one attempt running here; nothing is forgotten before Redis said what
//! became of it; what this host holds is bounded by the prefetch, the concurrency and a few
//! reserved places.
//!
//! `docs/attempts.md` has the rules in words. Who may run when is in [`lanes`], what is read next
//! in [`intake`].

mod intake;
mod lanes;
#[cfg(test)]
mod model;
mod types;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use rustc_hash::FxBuildHasher;

pub use types::{
    Action, Delivery, Ending, Event, Key, Note, Origin, Parting, Reply, Settings, Time,
};

use crate::delivery::attempt::{Lane, Standing, Start, Tally};
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::{Disposition, Policy, Reason, decide};
use crate::delivery::rules::Rule;
use intake::Intake;
use lanes::Mode;

/// How long a refused settlement waits before its first retry; doubled up to [`REFUSED_MAX`].
const REFUSED_FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two tries of a refused settlement.
const REFUSED_MAX: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub struct Ledger<M> {
    settings: Settings,
    held: HashMap<DeliveryId, Held<M>, FxBuildHasher>,
    generation: u64,
    /// Deliveries in their turn; entries whose holding has ended are passed over.
    ready: VecDeque<Key>,
    /// Suspects that must run alone, those with the fewest charges first.
    alone: VecDeque<Key>,
    counts: Counts,
    mode: Mode,
    intake: Intake,
    draining: bool,
    halt: Option<Halt>,
    /// No refused settlement is due before.
    refused_due: Option<Time>,
    out: Vec<Action<M>>,
}

/// How many holdings are in which state: kept by [`Ledger::set`], so that nothing is counted twice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Counts {
    waiting: usize,
    released: usize,
    recording: usize,
    running: usize,
    settling: usize,
    refused: usize,
}

/// No instance of the handler can be made.
#[derive(Clone, Copy, Debug)]
struct Halt {
    /// When one message is tried.
    until: Time,
    /// It is being tried.
    probing: bool,
    tries: u32,
}

#[derive(Debug)]
struct Held<M> {
    generation: u64,
    cargo: M,
    tally: Tally,
    /// The native count from before this delivery: what a hand-back restores.
    before: u32,
    lane: Lane,
    state: State,
    /// When the lease was last confirmed.
    leased: Time,
    /// The claim was answered so late that we may have adopted, run and sent away the same
    /// delivery in between: nothing starts before Redis has confirmed owner and count.
    doubtful: bool,
    /// The lease was lost while it was with the executor: only an ack still counts.
    lost: Option<Ending>,
    /// The same delivery, claimed again while this holding could not be replaced.
    successor: Option<Box<(Delivery<M>, Time)>>,
}

#[derive(Clone, Debug)]
enum State {
    Waiting,
    Released,
    Recording { start: Start, write: u32 },
    Running { attempt: u32 },
    Settling { sent: Sent, tries: u32 },
    Refused { sent: Sent, tries: u32, again: Time },
}

#[derive(Clone, Debug)]
enum Sent {
    Acknowledgement,
    Parting(Parting),
}

impl<M> Ledger<M> {
    /// An empty ledger of a host that starts now.
    pub fn new(now: Time, settings: Settings) -> Self {
        Self {
            intake: Intake::new(now, &settings),
            mode: Mode::new(now),
            settings,
            held: HashMap::default(),
            generation: 0,
            ready: VecDeque::new(),
            alone: VecDeque::new(),
            counts: Counts::default(),
            draining: false,
            halt: None,
            refused_due: None,
            out: Vec::new(),
        }
    }

    /// The caller's own for a delivery that is held.
    pub fn cargo(&self, key: Key) -> Option<&M> {
        self.find(key).map(|held| &held.cargo)
    }

    /// Whether this host holds a delivery with this id.
    pub fn holds(&self, id: &DeliveryId) -> bool {
        self.held.contains_key(id)
    }

    /// Everything that is held: key, native count, cargo.
    pub fn iter(&self) -> impl Iterator<Item = (Key, u32, &M)> {
        self.held.iter().map(|(&id, held)| {
            let key = Key {
                id,
                generation: held.generation,
            };
            (key, held.tally.native, &held.cargo)
        })
    }

    /// How many deliveries are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Attempts running now, as far as the executor has told.
    pub fn running(&self) -> usize {
        self.counts.running + self.counts.recording
    }

    /// Settlements that Redis has refused and that wait for their next try.
    pub fn refused(&self) -> usize {
        self.counts.refused
    }

    /// Whether the drain is over: nothing is held, and nothing more can come.
    pub fn is_drained(&self) -> bool {
        self.draining && self.held.is_empty() && self.intake.is_quiet()
    }

    /// The operator's rules in force.
    pub fn policy(&self) -> &Policy {
        &self.settings.policy
    }

    /// Take in what happened. What follows from it comes out of [`Ledger::poll`].
    pub fn apply(&mut self, now: Time, event: Event<M>) {
        match event {
            Event::Fetched {
                asked,
                leased,
                deliveries,
            } => {
                self.intake.fetched(asked, deliveries.len());
                self.accept_all(now, leased, deliveries);
            }
            Event::DueTaken {
                leased,
                deliveries,
                next,
            } => {
                self.intake.due_taken(now, next);
                self.accept_all(now, leased, deliveries);
            }
            Event::OrphansTaken { leased, deliveries } => {
                self.intake.orphans_taken();
                if !deliveries.is_empty() {
                    self.note(Note::OrphansTaken(deliveries.len()));
                }
                self.accept_all(now, leased, deliveries);
            }
            Event::SlotReady(key) => self.slot_ready(now, key),
            Event::Recorded { key, leased, reply } => self.recorded(now, key, leased, reply),
            Event::Revoked(key) => self.revoked(now, key),
            Event::TurnedAway {
                key,
                reason,
                detail,
            } => self.turned_away(now, key, reason, detail),
            Event::Finished {
                key,
                outcome,
                jitter,
            } => {
                self.intake.finished(now);
                self.finished(now, key, outcome, jitter);
            }
            Event::Acknowledged(keys) => {
                for key in keys {
                    self.settled(now, key, Reply::Done);
                }
            }
            Event::Settled(key, reply) => self.settled(now, key, reply),
            Event::Renewed { leased, replies } => self.renewed(now, leased, replies),
            Event::Offline => self.intake.offline(),
            Event::Online => self.intake.online(now, self.settings.min_idle),
            Event::StreamLost => self.stream_lost(),
            Event::PolicyChanged(policy) => self.settings.policy = *policy,
            Event::Drain => self.drain(),
        }
    }

    /// What to do now; empties itself into `out`.
    pub fn poll(&mut self, now: Time, out: &mut Vec<Action<M>>) {
        self.retry_refused(now);
        self.advance_lanes(now);
        self.release();
        self.take_in(now);
        out.append(&mut self.out);
    }

    /// When [`Ledger::poll`] has something to do even if nothing happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        // Without Redis nothing can be tried again: its return is an event.
        let refused = self.refused_due.filter(|_| self.intake.is_online());
        [refused, self.lanes_deadline(), self.intake_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn accept_all(&mut self, now: Time, leased: Time, deliveries: Vec<Delivery<M>>) {
        for delivery in deliveries {
            self.accept(now, leased, delivery);
        }
    }

    /// A delivery has been claimed. Rule 4: if its id is held already, it replaces that holding,
    /// or waits for the end of what cannot be replaced; unless that holding is surely ours still:
    /// then the claim is the older one, and its answer comes late.
    fn accept(&mut self, now: Time, leased: Time, delivery: Delivery<M>) {
        let min_idle = self.settings.min_idle;
        let Some(old) = self.held.get_mut(&delivery.id) else {
            self.hold(now, leased, delivery);
            return;
        };
        let is_with_us = match old.state {
            State::Waiting | State::Released | State::Recording { .. } | State::Running { .. } => {
                old.lost.is_none() && old.successor.is_none() && !old.doubtful
            }
            // We have sent it away, and it may have come back.
            State::Settling { .. } | State::Refused { .. } => false,
        };
        if is_with_us && now.saturating_sub(old.leased) < min_idle {
            self.generation += 1;
            self.out.push(Action::Ended {
                key: Key {
                    id: delivery.id,
                    generation: self.generation,
                },
                cargo: delivery.cargo,
                ending: Ending::Superseded,
            });
            return;
        }
        let key = Key {
            id: delivery.id,
            generation: old.generation,
        };
        let replaceable = match old.state {
            State::Waiting | State::Refused { .. } => true,
            State::Released => {
                self.out.push(Action::Revoke(key));
                false
            }
            State::Recording { .. } | State::Running { .. } | State::Settling { .. } => {
                !Rule::OneRunAtATime.holds()
            }
        };
        if replaceable {
            let delivery = delivery.again(old.tally.native, old.lane);
            self.end(key, Ending::Superseded);
            self.hold(now, leased, delivery);
        } else {
            old.successor = Some(Box::new((delivery, leased)));
        }
    }

    fn hold(&mut self, now: Time, leased: Time, delivery: Delivery<M>) {
        let allowance = self.settings.policy.allowance;
        let fresh = delivery.origin == Origin::Fresh;
        let tally = Tally {
            header: delivery.header,
            native: delivery.native,
            fresh,
        };
        let lane = match delivery.origin {
            Origin::Orphan { .. } if Rule::SuspectsRunAlone.holds() => allowance.orphan_lane(tally),
            Origin::Fresh | Origin::Returned | Origin::Orphan { .. } => Lane::Normal,
        };
        self.generation += 1;
        let key = Key {
            id: delivery.id,
            generation: self.generation,
        };
        self.held.insert(
            delivery.id,
            Held {
                generation: self.generation,
                cargo: delivery.cargo,
                tally,
                before: if fresh { 0 } else { delivery.native },
                lane,
                state: State::Waiting,
                leased,
                doubtful: now.saturating_sub(leased) >= self.settings.min_idle / 2,
                lost: None,
                successor: None,
            },
        );
        self.counts.waiting += 1;
        if let Some((reason, detail)) = delivery.turned_away {
            let attempts = allowance.attempts(tally);
            let disposition = self.settings.policy.turn_away(reason, detail, attempts);
            self.dispose(now, key, disposition);
        } else if let Standing::Exhausted { attempts } = allowance.standing(tally) {
            self.exhausted(now, key, attempts);
        } else if self.draining {
            self.hand_back(key);
        } else {
            self.enqueue(key, lane);
        }
    }

    fn enqueue(&mut self, key: Key, lane: Lane) {
        match lane {
            Lane::Normal => self.ready.push_back(key),
            Lane::Alone => self.alone.insert(self.alone_place(key), key),
        }
    }

    /// Those with the fewest charges run first: a message that kills its host time and again, and
    /// that no cap ends, comes behind every innocent that it has made a suspect.
    fn alone_place(&self, key: Key) -> usize {
        let charges = |key| self.find(key).map_or(0, |held| held.tally.native);
        let own = charges(key);
        let more = |&other: &Key| charges(other) > own;
        self.alone.iter().position(more).unwrap_or(self.alone.len())
    }

    fn exhausted(&mut self, now: Time, key: Key, attempts: u32) {
        let detail = "no start is left: its hosts died, or its retry-count header says so";
        let disposition = self.settings.policy.exhausted(attempts, detail.to_owned());
        self.dispose(now, key, disposition);
    }

    /// A slot holds the delivery. Rule 2: its start is recorded first; a first delivery comes
    /// here only if its lease must be confirmed.
    fn slot_ready(&mut self, now: Time, key: Key) {
        let allowance = self.settings.policy.allowance;
        let draining = self.draining;
        let Some(held) = self.find_in(key, |state| matches!(state, State::Released)) else {
            self.out.push(Action::Deny(key));
            return;
        };
        if held.lost.is_some() || draining || held.successor.is_some() {
            self.out.push(Action::Deny(key));
            self.revoked(now, key);
            return;
        }
        let is_sure = !held.doubtful && !self.is_old(now, held.leased);
        match allowance.standing(held.tally) {
            Standing::Exhausted { attempts } => {
                self.out.push(Action::Deny(key));
                self.exhausted(now, key, attempts);
            }
            Standing::Start(start) if start.record.is_some() && !is_sure => {
                // The count may have moved on since we read it.
                let record = None;
                self.record(key, Start { record, ..start });
            }
            Standing::Start(start) => self.record(key, start),
        }
    }

    /// Write down a start; or, if there is nothing to write, confirm count and lease.
    fn record(&mut self, key: Key, start: Start) {
        let Some(expect) = self.find(key).map(|held| held.tally.native) else {
            return;
        };
        let write = start.record.unwrap_or(expect);
        self.set(key, State::Recording { start, write });
        self.out.push(Action::Record { key, expect, write });
    }

    /// Rule 12: a lease that was confirmed so long ago may have run out since.
    fn is_old(&self, now: Time, leased: Time) -> bool {
        Rule::LeaseBeforeStart.holds() && now.saturating_sub(leased) >= self.settings.min_idle
    }

    fn recorded(&mut self, now: Time, key: Key, leased: Time, reply: Reply) {
        let allowance = self.settings.policy.allowance;
        let draining = self.draining;
        let Some(held) = self.find_in(key, |state| matches!(state, State::Recording { .. })) else {
            return;
        };
        let State::Recording { write, start } = held.state else {
            return;
        };
        let is_record = start.record.is_some();
        // A record that repeats one whose reply was lost finds its count written already. Only
        // while the lease cannot have run out is that count surely ours, and not the charge of a
        // host that had the delivery in between.
        let is_unsure = is_record && self.is_old(now, held.leased);
        match reply {
            Reply::Done if is_unsure => {
                self.out.push(Action::Deny(key));
                self.end_or_succeed(now, key, Ending::Stolen);
            }
            // What was written is the successor's to use: no start has used it.
            Reply::Done if held.successor.is_some() => {
                self.out.push(Action::Deny(key));
                self.revoked(now, key);
            }
            Reply::Done => {
                let Some(held) = self.find_mut(key) else {
                    return;
                };
                held.tally.native = write;
                held.tally.fresh &= !is_record;
                held.leased = leased;
                held.doubtful = false;
                let tally = held.tally;
                if is_record {
                    self.note(Note::Recorded);
                }
                if draining {
                    // Written down, but not started: the hand-back restores the count.
                    self.out.push(Action::Deny(key));
                    self.revoked(now, key);
                } else if is_record {
                    self.started(key);
                } else if self.is_old(now, leased) {
                    self.record(key, start);
                } else if let Standing::Start(start) = allowance.standing(tally)
                    && start.record.is_some()
                {
                    self.record(key, start);
                } else {
                    self.started(key);
                }
            }
            Reply::Refused(cause) => {
                self.out.push(Action::Deny(key));
                self.note(Note::SettlementRefused {
                    key,
                    cause,
                    again: REFUSED_FIRST,
                });
                if let Some(held) = self.find(key) {
                    let sent = Sent::Parting(held.way_back());
                    self.refuse(key, sent, 1, now + REFUSED_FIRST);
                }
                self.suspect_done(now, key);
            }
            Reply::Gone | Reply::Trimmed | Reply::Stolen => {
                self.out.push(Action::Deny(key));
                self.end_or_succeed(now, key, ending_of(reply));
            }
        }
    }

    fn started(&mut self, key: Key) {
        if let Some(held) = self.find(key)
            && let State::Recording { start, .. } = held.state
        {
            let attempt = start.attempt;
            self.set(key, State::Running { attempt });
            self.out.push(Action::Go { key, attempt });
        }
    }

    /// It has not started, and comes back from the executor.
    fn revoked(&mut self, now: Time, key: Key) {
        let draining = self.draining;
        let halted = self.halt.is_some_and(|halt| !halt.probing);
        let Some(held) = self.find_in(key, |state| {
            matches!(state, State::Released | State::Recording { .. })
        }) else {
            return;
        };
        if held.successor.is_some() {
            self.end_or_succeed(now, key, Ending::Superseded);
        } else if let Some(ending) = held.lost.clone() {
            self.end(key, ending);
            self.suspect_done(now, key);
        } else if draining || halted {
            self.hand_back(key);
        } else {
            let lane = held.lane;
            self.set(key, State::Waiting);
            self.enqueue(key, lane);
        }
    }

    /// Its time passed between the claim and the start.
    fn turned_away(&mut self, now: Time, key: Key, reason: Reason, detail: String) {
        let allowance = self.settings.policy.allowance;
        let Some(held) = self.find_in(key, |state| matches!(state, State::Released)) else {
            return;
        };
        if held.lost.is_some() || held.successor.is_some() || self.draining {
            self.revoked(now, key);
            return;
        }
        let attempts = allowance.attempts(held.tally);
        let disposition = self.settings.policy.turn_away(reason, detail, attempts);
        self.dispose(now, key, disposition);
    }

    fn finished(&mut self, now: Time, key: Key, outcome: Outcome, jitter: f64) {
        let allowance = self.settings.policy.allowance;
        let Some(held) = self.find_in(key, |state| {
            matches!(state, State::Released | State::Running { .. })
        }) else {
            return;
        };
        let attempt = match (&held.state, allowance.standing(held.tally)) {
            (State::Running { attempt }, _) => *attempt,
            (_, Standing::Start(start)) => start.attempt,
            (_, Standing::Exhausted { attempts }) => attempts,
        };
        let acked = outcome == Outcome::Ack;
        if !acked && (held.lost.is_some() || held.successor.is_some()) {
            // Somebody else decides about it now; ours would be refused.
            let ending = held.lost.clone().unwrap_or(Ending::Superseded);
            self.end_or_succeed(now, key, ending);
            return;
        }
        if let Outcome::Fault(fault) = &outcome
            && fault.kind == FaultKind::Instantiation
        {
            self.halted(now, key, fault.detail.clone());
            return;
        }
        if self.halt.take().is_some() {
            self.note(Note::Resumed);
        }
        if let Some(held) = self.find_mut(key) {
            // The start is charged now; without a suspicion from here on.
            held.tally.fresh = false;
            held.before = held.tally.native;
            held.lane = Lane::Normal;
        }
        let disposition = decide(&outcome, attempt, &self.settings.policy, jitter);
        self.dispose(now, key, disposition);
    }

    /// No instance: no attempt. What is held goes back without a charge, and one message is
    /// tried at growing intervals.
    fn halted(&mut self, now: Time, key: Key, detail: String) {
        let tries = self.halt.map_or(0, |halt| halt.tries);
        let again = REFUSED_MAX.min(Duration::from_secs(1) * 2u32.pow(tries.min(5)));
        // Several slots fail at once: that is one halt.
        if self.halt.is_none_or(|halt| halt.probing) {
            self.halt = Some(Halt {
                until: now + again,
                probing: false,
                tries: tries + 1,
            });
            self.note(Note::Halted { detail, again });
            self.intake.halted();
        }
        self.hand_back(key);
        self.give_back_waiting();
        self.suspect_done(now, key);
    }

    fn dispose(&mut self, now: Time, key: Key, disposition: Disposition) {
        match disposition {
            Disposition::Acknowledge => {
                let (sent, tries) = (Sent::Acknowledgement, 0);
                self.set(key, State::Settling { sent, tries });
                self.out.push(Action::Acknowledge(key));
            }
            Disposition::Requeue { delay } if delay.is_zero() && !self.draining => {
                // Rule 14: it stays here, behind what is ready; its next start is recorded.
                self.set(key, State::Waiting);
                self.ready.push_back(key);
                self.note(Note::RequeuedHere);
                self.suspect_done(now, key);
            }
            Disposition::Requeue { delay } => {
                self.intake.due_in(now, delay);
                let keep = self.find(key).map_or(0, |held| held.tally.native);
                self.part(key, Parting::Park { keep, after: delay }, 0);
            }
            Disposition::DeadLetter(rejection) => {
                self.part(key, Parting::DeadLetter(rejection), 0);
            }
            Disposition::Discard(rejection) => self.part(key, Parting::Discard(rejection), 0),
        }
    }

    /// What never started in this delivery goes back, due now.
    fn hand_back(&mut self, key: Key) {
        if let Some(held) = self.find(key) {
            let parting = held.way_back();
            self.part(key, parting, 0);
        }
    }

    fn part(&mut self, key: Key, parting: Parting, tries: u32) {
        let Some(count) = self.find(key).map(|held| held.tally.native) else {
            return;
        };
        let sent = Sent::Parting(parting.clone());
        self.set(key, State::Settling { sent, tries });
        self.out.push(Action::Settle {
            key,
            count,
            parting,
        });
    }

    fn settled(&mut self, now: Time, key: Key, reply: Reply) {
        let Some(held) = self.find_in(key, |state| matches!(state, State::Settling { .. })) else {
            return;
        };
        let State::Settling { sent, tries } = held.state.clone() else {
            return;
        };
        let ending = match reply {
            Reply::Refused(cause) => {
                let again = (REFUSED_FIRST * 2u32.pow(tries.min(16))).min(REFUSED_MAX);
                self.note(Note::SettlementRefused { key, cause, again });
                self.refuse(key, sent, tries + 1, now + again);
                self.suspect_done(now, key);
                return;
            }
            Reply::Done => match sent {
                Sent::Acknowledgement => Ending::Acknowledged,
                Sent::Parting(parting) => Ending::Parted(parting),
            },
            // An entry that is trimmed after its handler was done is no loss.
            Reply::Trimmed | Reply::Gone if matches!(sent, Sent::Acknowledgement) => {
                Ending::Acknowledged
            }
            Reply::Gone | Reply::Trimmed | Reply::Stolen => ending_of(reply),
        };
        if ending == Ending::Stolen {
            self.end_or_succeed(now, key, ending);
            return;
        }
        if matches!(
            ending,
            Ending::Parted(Parting::Park { .. } | Parting::HandBack { .. })
        ) {
            // What was claimed meanwhile may have come from where we parked it. If not, the
            // record before its start finds that out.
            self.end_or_succeed(now, key, ending);
            return;
        }
        // Settled for good: a holding that came in between is settled with it.
        let successor = self.find_mut(key).and_then(|held| held.successor.take());
        self.end(key, ending);
        if let Some(successor) = successor {
            let (delivery, _) = *successor;
            self.out.push(Action::Ended {
                key,
                cargo: delivery.cargo,
                ending: Ending::Superseded,
            });
        }
        self.suspect_done(now, key);
    }

    fn refuse(&mut self, key: Key, sent: Sent, tries: u32, again: Time) {
        self.set(key, State::Refused { sent, tries, again });
        self.refused_due = Some(self.refused_due.map_or(again, |due| due.min(again)));
    }

    fn retry_refused(&mut self, now: Time) {
        if self.refused_due.is_none_or(|due| due > now) || !self.intake.is_online() {
            return;
        }
        let due: Vec<(Key, Sent, u32)> = self
            .held
            .iter()
            .filter_map(|(&id, held)| match &held.state {
                State::Refused { sent, tries, again } if *again <= now => {
                    let generation = held.generation;
                    Some((Key { id, generation }, sent.clone(), *tries))
                }
                _ => None,
            })
            .collect();
        self.refused_due = self
            .held
            .values()
            .filter_map(|held| match held.state {
                State::Refused { again, .. } if again > now => Some(again),
                _ => None,
            })
            .min();
        for (key, sent, tries) in due {
            match sent {
                Sent::Parting(parting) => self.part(key, parting, tries),
                Sent::Acknowledgement => {
                    self.set(key, State::Settling { sent, tries });
                    self.out.push(Action::Acknowledge(key));
                }
            }
        }
    }

    fn renewed(&mut self, now: Time, leased: Time, replies: Vec<(Key, Reply)>) {
        self.intake.renewed();
        let min_idle = self.settings.min_idle;
        let mut confirmed = 0;
        for (key, reply) in replies {
            let Some(held) = self.find_mut(key) else {
                continue;
            };
            match (reply, &held.state) {
                (Reply::Done, _) => {
                    confirmed += 1;
                    // Once it may have run out, it may have been with another host in between:
                    // then only a record that checks the count confirms it.
                    let is_sure = now.saturating_sub(held.leased) < min_idle;
                    if is_sure || !Rule::LeaseBeforeStart.holds() {
                        held.leased = held.leased.max(leased);
                    }
                }
                // Its own reply tells; and a refusal says nothing about the lease.
                (_, State::Settling { .. } | State::Recording { .. }) | (Reply::Refused(_), _) => {}
                (reply, State::Running { .. }) => {
                    let was_lost = held.lost.replace(ending_of(reply)).is_some();
                    if !was_lost {
                        self.note(Note::LeaseLost(key));
                    }
                }
                (reply, State::Released) => {
                    let was_lost = held.lost.replace(ending_of(reply)).is_some();
                    if !was_lost {
                        self.out.push(Action::Revoke(key));
                    }
                }
                (reply, State::Waiting | State::Refused { .. }) => {
                    self.end(key, ending_of(reply));
                    self.suspect_done(now, key);
                }
            }
        }
        if confirmed > 0 {
            self.note(Note::LeasesRenewed(confirmed));
        }
    }

    /// The stream was deleted: there is nothing left to settle for what has not started.
    fn stream_lost(&mut self) {
        for (key, state) in self.keys_and_states() {
            match state {
                State::Waiting | State::Refused { .. } => self.end(key, Ending::Trimmed),
                State::Released => {
                    if let Some(held) = self.find_mut(key) {
                        held.lost = Some(Ending::Trimmed);
                    }
                    self.out.push(Action::Revoke(key));
                }
                State::Recording { .. } | State::Running { .. } | State::Settling { .. } => {}
            }
        }
    }

    fn drain(&mut self) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.mode = match self.mode {
            Mode::Alone { .. } => self.mode,
            Mode::Normal | Mode::Share { .. } | Mode::Quiescing { .. } => Mode::Normal,
        };
        // What was refused gets one more try at once.
        self.refused_due = Some(Time::ZERO);
        for held in self.held.values_mut() {
            if let State::Refused { again, .. } = &mut held.state {
                *again = Time::ZERO;
            }
        }
        if self.intake.is_fetching() {
            self.out.push(Action::Interrupt);
        }
        self.give_back_waiting();
    }

    /// Hand back what waits here, and take back what the executor has not started.
    fn give_back_waiting(&mut self) {
        for (key, state) in self.keys_and_states() {
            match state {
                State::Waiting => self.hand_back(key),
                State::Released => self.out.push(Action::Revoke(key)),
                State::Recording { .. }
                | State::Running { .. }
                | State::Settling { .. }
                | State::Refused { .. } => {}
            }
        }
        self.ready.clear();
        self.alone.clear();
    }

    fn keys_and_states(&self) -> Vec<(Key, State)> {
        let mut all: Vec<_> = self
            .held
            .iter()
            .map(|(&id, held)| {
                let generation = held.generation;
                (Key { id, generation }, held.state.clone())
            })
            .collect();
        all.sort_unstable_by_key(|(key, _)| key.generation);
        all
    }

    fn end(&mut self, key: Key, ending: Ending) {
        if self.find(key).is_none() {
            return;
        }
        if let Some(held) = self.held.remove(&key.id) {
            *self.counts.of(&held.state) -= 1;
            let cargo = held.cargo;
            self.out.push(Action::Ended { key, cargo, ending });
        }
    }

    /// End a holding; what was claimed again meanwhile takes its place.
    fn end_or_succeed(&mut self, now: Time, key: Key, ending: Ending) {
        let successor = self.find_mut(key).and_then(|held| {
            let successor = held.successor.take()?;
            Some((successor, held.tally.native, held.lane))
        });
        if let Some((successor, native, lane)) = successor {
            let (delivery, leased) = *successor;
            let delivery = match ending {
                // It may have gone back with a lower count.
                Ending::Parted(_) => delivery,
                _ => delivery.again(native, lane),
            };
            self.end(key, ending);
            self.hold(now, leased, delivery);
        } else {
            self.end(key, ending);
        }
        self.suspect_done(now, key);
    }

    fn set(&mut self, key: Key, state: State) {
        if let Some(held) = self.held.get_mut(&key.id) {
            debug_assert_eq!(held.generation, key.generation);
            *self.counts.of(&held.state) -= 1;
            *self.counts.of(&state) += 1;
            held.state = state;
        }
    }

    fn find(&self, key: Key) -> Option<&Held<M>> {
        self.held
            .get(&key.id)
            .filter(|held| held.generation == key.generation)
    }

    fn find_mut(&mut self, key: Key) -> Option<&mut Held<M>> {
        self.held
            .get_mut(&key.id)
            .filter(|held| held.generation == key.generation)
    }

    fn find_in(&self, key: Key, state: impl Fn(&State) -> bool) -> Option<&Held<M>> {
        self.find(key).filter(|held| state(&held.state))
    }

    fn note(&mut self, note: Note) {
        self.out.push(Action::Note(note));
    }
}

impl<M> Held<M> {
    /// Rule 5: what never started in this delivery is parked with the count it had before. Rule 8:
    /// but a suspect that must run alone is left, so that the mark stays; it too with the count
    /// from before, or a record without a start would use up its last one.
    fn way_back(&self) -> Parting {
        let keep = if Rule::HandBackUncharged.holds() {
            self.before
        } else {
            self.tally.native
        };
        match self.lane {
            Lane::Alone if Rule::SuspectsAreLeftOnDrain.holds() => Parting::Leave { keep },
            Lane::Normal | Lane::Alone => Parting::HandBack { keep },
        }
    }
}

impl<M> Delivery<M> {
    /// Claimed while it was held. The claim may be older than that holding, and its answer late:
    /// what this host has written down or suspects since counts too.
    fn again(self, native: u32, lane: Lane) -> Self {
        let origin = match (lane, self.origin) {
            (Lane::Alone, Origin::Fresh | Origin::Returned) => Origin::Orphan {
                idle: Duration::ZERO,
            },
            (Lane::Normal, Origin::Fresh) => Origin::Returned,
            (_, origin) => origin,
        };
        let native = native.max(self.native);
        Self {
            native,
            origin,
            ..self
        }
    }
}

impl Counts {
    fn of(&mut self, state: &State) -> &mut usize {
        match state {
            State::Waiting => &mut self.waiting,
            State::Released => &mut self.released,
            State::Recording { .. } => &mut self.recording,
            State::Running { .. } => &mut self.running,
            State::Settling { .. } => &mut self.settling,
            State::Refused { .. } => &mut self.refused,
        }
    }
}

fn ending_of(reply: Reply) -> Ending {
    match reply {
        Reply::Gone | Reply::Done => Ending::Gone,
        Reply::Trimmed => Ending::Trimmed,
        Reply::Stolen | Reply::Refused(_) => Ending::Stolen,
    }
}
