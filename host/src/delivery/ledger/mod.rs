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
//! `docs/attempts.md` has the rules in words. In the order of a delivery's way: what is read next is
//! in [`intake`], what becomes of a claim in [`claiming`], who may run when in [`lanes`], what comes
//! before a start in [`starting`], what after it in [`settling`]; lost leases and stopping are in
//! [`leaving`], a handler that cannot be run in [`halting`].

mod claiming;
mod halting;
mod intake;
mod lanes;
mod leaving;
#[cfg(test)]
mod model;
mod settling;
mod starting;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{HashMap, VecDeque};

use rustc_hash::FxBuildHasher;

pub use types::{
    Action, Delivery, Ending, Event, HaltCause, Key, Note, Origin, Reply, Settings, SettleAction,
    Time, TurnedAway,
};

use crate::delivery::attempt::{Lane, Start, Tally};
use crate::delivery::message::DeliveryId;
use crate::delivery::policy::Policy;
use intake::Intake;
use lanes::Mode;

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
    /// What is left to take in, once a queue that forgets what it hands out drains.
    leftovers: Leftovers,
    halt: Option<Halt>,
    /// How many holdings were refused, those that are being tried again among them.
    stuck: usize,
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

/// What was taken off the queue, and not claimed yet, when the host began to drain: nobody else can
/// have it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Leftovers {
    /// There may be some.
    Unknown,
    /// They were asked for.
    Asked,
    /// There are none anymore.
    None,
}

/// The handler cannot be run.
#[derive(Clone, Copy, Debug)]
struct Halt {
    cause: HaltCause,
    /// When one message is tried.
    until: Time,
    /// It is being tried.
    probing: bool,
    tries: u32,
    /// What was held when it began has a generation up to this one: it says nothing about now.
    after: u64,
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
    /// We ourselves may have sent it away since it was claimed (the claim was answered so late
    /// that we may have adopted, run and parked it in between; or a settlement of an earlier
    /// holding came after it): nothing starts before Redis has confirmed owner and count.
    doubtful: bool,
    /// The lease was lost while it was with the executor: only an ack still counts.
    lost: Option<Ending>,
    /// The same delivery, claimed again while this holding could not be replaced.
    successor: Option<Box<(Delivery<M>, Time)>>,
    /// Redis would not write its settlement, and it is not settled yet.
    was_refused: bool,
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
    Settlement(SettleAction),
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
            leftovers: Leftovers::Unknown,
            halt: None,
            stuck: 0,
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

    /// What must be pending in Redis: everything that is held, but for what is being acknowledged.
    /// Key, native count, cargo.
    pub fn pending(&self) -> impl Iterator<Item = (Key, u32, &M)> {
        self.iter().filter(|(key, ..)| {
            let acknowledged = |state: &State| {
                matches!(
                    state,
                    State::Settling {
                        sent: Sent::Acknowledgement,
                        ..
                    }
                )
            };
            self.find_in(*key, acknowledged).is_none()
        })
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

    /// When the lease of this holding was last confirmed: a renewal that came too late to be sure
    /// does not count.
    pub fn leased(&self, key: Key) -> Option<Time> {
        self.find(key).map(|held| held.leased)
    }

    /// How many deliveries are held.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Whether Redis has refused a settlement that it has not carried out since. Looks at
    /// everything that is held.
    pub fn has_refused(&self) -> bool {
        self.held.values().any(|held| match held.state {
            State::Refused { .. } => true,
            State::Settling { tries, .. } => tries > 0,
            _ => false,
        })
    }

    /// Whether the drain is over: nothing is held, and nothing more can come.
    pub fn is_drained(&self) -> bool {
        let is_dry = self.hands_back() || self.leftovers == Leftovers::None;
        self.draining && self.held.is_empty() && self.intake.is_quiet() && is_dry
    }

    /// Whether what has not started can go back to the queue. Otherwise it is run, draining or not.
    fn hands_back(&self) -> bool {
        !self.settings.policy.allowance.at_most_once
    }

    /// Whether nothing may start anymore: the host drains, and what it holds goes back.
    fn is_closing(&self) -> bool {
        self.draining && self.hands_back()
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
                if self.leftovers == Leftovers::Asked {
                    self.leftovers = match deliveries.is_empty() {
                        true => Leftovers::None,
                        false => Leftovers::Unknown,
                    };
                }
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
                self.intake.orphans_taken(now, deliveries.len());
                if !deliveries.is_empty() {
                    self.note(Note::OrphansTaken(deliveries.len()));
                }
                self.accept_all(now, leased, deliveries);
            }
            Event::SlotReady(key) => self.slot_ready(now, key),
            Event::Recorded { key, leased, reply } => self.recorded(now, key, leased, reply),
            Event::Unstarted(key) => self.unstarted(now, key),
            Event::Revoked(key) => self.revoked(now, key),
            Event::TurnedAway {
                key,
                reason,
                detail,
            } => self.turned_away(now, key, reason, detail),
            Event::Finished {
                key,
                outcome,
                is_current,
                jitter,
            } => {
                self.intake.finished(now);
                self.finished(now, key, outcome, is_current, jitter);
            }
            Event::Acknowledged(keys) => {
                for key in keys {
                    self.settled(now, key, Reply::Done);
                }
            }
            Event::Settled(key, reply) => self.settled(now, key, reply),
            Event::Renewed { leased, replies } => {
                self.intake.renewed();
                self.confirmed(now, leased, replies);
            }
            Event::Offline => self.intake.offline(now),
            Event::Online => self.intake.online(now, self.settings.min_idle),
            Event::Readopted { leased, replies } => self.confirmed(now, leased, replies),
            Event::Broken { detail } => self.broken(now, detail),
            Event::HandlerChanged => self.resume(),
            Event::BatchChanged(batch) => self.settings.batch = batch,
            Event::Panicked { detail } => self.panicked(now, detail),
            Event::PolicyChanged(policy) => self.change_policy(now, *policy),
            Event::Drain => self.drain(),
        }
    }

    /// What to do now; empties itself into `out`.
    pub fn poll(&mut self, now: Time, out: &mut Vec<Action<M>>) {
        self.advance_halt(now);
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
            self.stuck -= usize::from(held.was_refused);
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
                Ending::Settled(_) => delivery,
                _ => delivery.again(native, lane),
            };
            self.end(key, ending);
            self.hold_again(now, leased, delivery);
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
