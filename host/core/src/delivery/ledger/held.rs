//! What a host holds, and in which state each delivery is.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use rustc_hash::FxBuildHasher;

use super::{Closed, Delivery, Key, SettleAction, Time};
use crate::delivery::attempt::{AttemptCounts, Lane, Start};
use crate::delivery::message::DeliveryId;
use crate::delivery::policy::Policy;
use crate::delivery::rules::Rule;

/// One holding of a delivery.
#[derive(Debug)]
pub(super) struct Held<J> {
    pub(super) generation: u64,
    pub(super) job: J,
    pub(super) counts: AttemptCounts,
    /// The native count from before this delivery. A hand-back restores it.
    pub(super) before: u32,
    pub(super) lane: Lane,
    pub(super) state: State,
    /// When the answer to its claim came.
    pub(super) since: Time,
    /// When the lease was last confirmed.
    pub(super) leased: Time,
    /// When Redis last said that this host has the delivery, behind all that could have sent it away: `None` = not yet.
    pub(super) owned: Option<Time>,
    /// This host may have sent the delivery away since it was claimed: the answer to the claim came
    /// so late that the host may have adopted, run and parked it in between, or a settlement of an
    /// earlier holding came after the claim. Nothing starts before Redis confirms owner and count.
    pub(super) doubtful: bool,
    /// The lease was lost while the executor had the delivery: only an ack still counts.
    pub(super) lost: Option<Closed>,
    /// Whether Redis did not find it although its lease lasts.
    pub(super) missing: Missing,
    /// The same delivery, claimed again while this holding could not be replaced.
    pub(super) successor: Option<Box<(Delivery<J>, Time)>>,
    /// Redis refused to write its settlement, and it is not settled yet.
    pub(super) was_refused: bool,
    /// A try of its settlement had no answer, and may have been carried out.
    pub(super) is_unanswered: bool,
    /// Rule 20: its acknowledgement is a settlement.
    pub(super) is_checked: bool,
    /// Rule 22: its last run, whose acknowledgement Redis may find to be void.
    pub(super) last: LastRun,
    /// Rule 39: when its next start was admitted.
    pub(super) admitted: Option<Time>,
    /// The start of this suspect is reserved for then: it is asked for again.
    pub(super) reserved: Option<Time>,
}

/// What is known of a delivery that Redis did not find although its lease lasts.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Missing {
    No,
    /// Redis is asked to bring it back.
    Asked,
    /// It is not brought back: it may be settled.
    Settled,
}

/// A run that the handler has acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastRun {
    pub(super) attempt: u32,
    pub(super) lane: Lane,
    /// The native count from before its start.
    pub(super) before: u32,
    /// It is void: the delivery runs again as the same attempt.
    pub(super) is_void: bool,
    /// How often the delivery ran again.
    pub(super) reruns: u32,
}

#[derive(Clone, Debug)]
pub(super) enum State {
    Waiting,
    /// Given to the executor. It may start this attempt without asking.
    Released {
        attempt: Option<u32>,
        /// Its place among all that were given to the executor: slots take them in this order.
        place: u64,
        /// Its start was recorded before a slot was free for it.
        is_ahead: bool,
    },
    Recording {
        start: Start,
        write: u32,
        /// No slot waits for it: the executor gets the delivery after the record.
        is_ahead: bool,
    },
    Running {
        attempt: u32,
    },
    Settling {
        sent: Sent,
        tries: u32,
    },
    Refused {
        sent: Sent,
        tries: u32,
        again: Time,
    },
}

impl State {
    /// Whether the start is recorded, or being recorded, and no slot has asked for it.
    pub(super) fn is_ahead(&self) -> bool {
        matches!(
            self,
            Self::Released { is_ahead: true, .. } | Self::Recording { is_ahead: true, .. }
        )
    }
}

/// What was sent to settle a delivery.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Sent {
    Acknowledgement,
    Settlement(SettleAction),
}

impl Sent {
    /// Whether it takes the delivery out of the group. The others send it away, to come back.
    pub(super) fn ends(&self) -> bool {
        match self {
            Self::Acknowledgement => true,
            Self::Settlement(action) => match action {
                SettleAction::Acknowledge
                | SettleAction::DeadLetter(_)
                | SettleAction::Discard(_) => true,
                SettleAction::Park { .. }
                | SettleAction::Hold { .. }
                | SettleAction::HandBack { .. }
                | SettleAction::Leave { .. } => false,
            },
        }
    }

    /// Rule 16: the same by the rules in force. A message that was given up goes where they say.
    pub(super) fn under(self, policy: &Policy) -> Self {
        match self {
            Self::Settlement(SettleAction::DeadLetter(why) | SettleAction::Discard(why))
                if Rule::SettlementsFollowTheRules.holds() =>
            {
                Self::Settlement(match policy.discards(why.reason) {
                    true => SettleAction::Discard(why),
                    false => SettleAction::DeadLetter(why),
                })
            }
            sent => sent,
        }
    }
}

/// How many holdings are in which state.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct StateCounts {
    pub(super) waiting: usize,
    pub(super) released: usize,
    pub(super) recording: usize,
    pub(super) running: usize,
    pub(super) settling: usize,
    pub(super) refused: usize,
    /// Released or recording, and recorded before a slot is free for them.
    pub(super) ahead: usize,
}

/// All holdings of a host.
#[derive(Debug)]
pub(super) struct Holdings<J> {
    held: HashMap<DeliveryId, Held<J>, FxBuildHasher>,
    generation: u64,
    counts: StateCounts,
    /// How many holdings were refused, including those that are being tried again.
    pub(super) stuck: usize,
}

impl<J> Default for Holdings<J> {
    fn default() -> Self {
        Self {
            held: HashMap::default(),
            generation: 0,
            counts: StateCounts::default(),
            stuck: 0,
        }
    }
}

impl<J> Holdings<J> {
    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    pub(super) fn counts(&self) -> StateCounts {
        self.counts
    }

    /// The generation of the newest holding.
    pub(super) fn newest(&self) -> u64 {
        self.generation
    }

    /// A key for the next holding of this delivery.
    pub(super) fn next_key(&mut self, id: DeliveryId) -> Key {
        self.generation += 1;
        let generation = self.generation;
        Key { id, generation }
    }

    pub(super) fn insert(&mut self, id: DeliveryId, held: Held<J>) {
        self.counts.add(&held.state);
        self.held.insert(id, held);
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<Held<J>> {
        let Entry::Occupied(entry) = self.held.entry(key.id) else {
            return None;
        };
        if entry.get().generation != key.generation {
            return None;
        }
        let held = entry.remove();
        self.counts.subtract(&held.state);
        self.stuck -= usize::from(held.was_refused);
        Some(held)
    }

    /// Whatever holding of this delivery there is.
    pub(super) fn by_id(&mut self, id: DeliveryId) -> Option<&mut Held<J>> {
        self.held.get_mut(&id)
    }

    pub(super) fn contains(&self, id: DeliveryId) -> bool {
        self.held.contains_key(&id)
    }

    pub(super) fn find(&self, key: Key) -> Option<&Held<J>> {
        let held = self.held.get(&key.id);
        held.filter(|held| held.generation == key.generation)
    }

    pub(super) fn find_mut(&mut self, key: Key) -> Option<&mut Held<J>> {
        let held = self.held.get_mut(&key.id);
        held.filter(|held| held.generation == key.generation)
    }

    /// The holding, if its state is one of these.
    pub(super) fn find_in(&self, key: Key, is: impl Fn(&State) -> bool) -> Option<&Held<J>> {
        self.find(key).filter(|held| is(&held.state))
    }

    pub(super) fn is_waiting(&self, key: Key) -> bool {
        self.find_in(key, |state| matches!(state, State::Waiting))
            .is_some()
    }

    /// Whether it waits, and its last run is void.
    pub(super) fn waits_to_run_again(&self, key: Key) -> bool {
        self.is_waiting(key) && self.find(key).is_some_and(|held| held.last.is_void)
    }

    /// The holding is in this state now.
    pub(super) fn set(&mut self, key: Key, state: State) -> Option<&Held<J>> {
        let held = self.held.get_mut(&key.id)?;
        debug_assert_eq!(held.generation, key.generation);
        self.counts.subtract(&held.state);
        self.counts.add(&state);
        held.state = state;
        Some(held)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Key, &Held<J>)> {
        self.held.iter().map(|(&id, held)| {
            let generation = held.generation;
            (Key { id, generation }, held)
        })
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Held<J>> {
        self.held.values_mut()
    }

    /// Keys and states, the oldest holding first.
    pub(super) fn in_order(&self) -> Vec<(Key, State)> {
        let mut all: Vec<_> = self.iter().map(|(key, h)| (key, h.state.clone())).collect();
        all.sort_unstable_by_key(|(key, _)| key.generation);
        all
    }

    /// What the executor may not have started, in normal traffic: what it starts last comes first.
    pub(super) fn last_released(&self) -> Vec<Key> {
        let mut all: Vec<(u64, Key)> = self.iter().filter_map(released).collect();
        all.sort_unstable_by_key(|(place, _)| Reverse(*place));
        all.into_iter().map(|(_, key)| key).collect()
    }

    /// The counts, counted again.
    #[cfg(test)]
    pub(super) fn recounted(&self) -> StateCounts {
        let mut counts = StateCounts::default();
        for held in self.held.values() {
            counts.add(&held.state);
        }
        counts
    }

    /// Settlements that were sent once, and have no answer.
    pub(super) fn unconfirmed(&self) -> usize {
        if self.counts.settling == 0 {
            return 0;
        }
        let is_first = |held: &&Held<J>| matches!(held.state, State::Settling { tries: 0, .. });
        self.held.values().filter(is_first).count()
    }
}

fn released<J>((key, held): (Key, &Held<J>)) -> Option<(u64, Key)> {
    // The others are asked for already.
    let is_wanted = held.lane == Lane::Normal && held.lost.is_none() && held.successor.is_none();
    match held.state {
        State::Released { place, .. } if is_wanted => Some((place, key)),
        _ => None,
    }
}

impl<J> Held<J> {
    /// Redis is asked to bring it back. Until it answers nothing else is asked about it: a repeated request may bring
    /// back what is settled meanwhile.
    pub(super) fn is_asked_back(&self) -> bool {
        self.missing == Missing::Asked
    }

    /// Whether its acknowledgement was refused, and is not settled yet.
    pub(super) fn waits_with_effects(&self) -> bool {
        use State::{Refused, Settling};
        let sent = match &self.state {
            Refused { sent, .. } | Settling { sent, .. } if self.was_refused => sent,
            _ => return false,
        };
        matches!(sent, Sent::Settlement(SettleAction::Acknowledge))
    }

    /// How a delivery that did not start goes back. Rule 5: hostler parks it with the count that it
    /// had before. Rule 8: a suspect that must run isolated is left, so that it keeps the mark; also
    /// with the count from before, or a record without a start would use up its last start.
    pub(super) fn way_back(&self) -> SettleAction {
        let keep = if Rule::HandBackUncharged.holds() {
            self.before
        } else {
            self.counts.native
        };
        match self.lane {
            Lane::Isolated if Rule::SuspectsAreLeftOnDrain.holds() => SettleAction::Leave { keep },
            Lane::Normal | Lane::Isolated => {
                let after = Time::ZERO;
                SettleAction::HandBack { keep, after }
            }
        }
    }

    /// The native count that a claim of meanwhile has at least: the one of this holding, unless a hand-back without an
    /// answer may have lowered it.
    pub(super) fn least_native(&self) -> u32 {
        let is_back = |sent: &Sent| {
            let Sent::Settlement(action) = sent else {
                return false;
            };
            matches!(
                action,
                SettleAction::HandBack { .. } | SettleAction::Leave { .. }
            )
        };
        match &self.state {
            State::Settling { sent, .. } | State::Refused { sent, .. }
                if self.is_unanswered && is_back(sent) =>
            {
                0
            }
            _ => self.counts.native,
        }
    }
}

impl StateCounts {
    /// With the executor: released, recording or running.
    pub(super) fn out(&self) -> usize {
        self.released + self.recording + self.running
    }

    fn add(&mut self, state: &State) {
        *self.of(state) += 1;
        self.ahead += usize::from(state.is_ahead());
    }

    fn subtract(&mut self, state: &State) {
        *self.of(state) -= 1;
        self.ahead -= usize::from(state.is_ahead());
    }

    fn of(&mut self, state: &State) -> &mut usize {
        match state {
            State::Waiting => &mut self.waiting,
            State::Released { .. } => &mut self.released,
            State::Recording { .. } => &mut self.recording,
            State::Running { .. } => &mut self.running,
            State::Settling { .. } => &mut self.settling,
            State::Refused { .. } => &mut self.refused,
        }
    }
}
