//! An attempt has ended, or there is none: decide, settle, and try again what Redis refused.

use std::time::Duration;

use super::{
    Action, Ending, HaltCause, Held, Key, Ledger, Note, Reply, Sent, SettleAction, State, Time,
};
use crate::delivery::attempt::{Lane, Standing};
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::{Disposition, Policy, decide};
use crate::delivery::rules::Rule;

/// How long a refused settlement waits before its first retry; doubled up to [`REFUSED_MAX`].
pub(super) const REFUSED_FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two tries of a refused settlement.
const REFUSED_MAX: Duration = Duration::from_secs(4);

impl<M> Ledger<M> {
    pub(super) fn finished(
        &mut self,
        now: Time,
        key: Key,
        outcome: Outcome,
        is_current: bool,
        jitter: f64,
    ) {
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
            if is_current {
                self.halt(now, HaltCause::Instance, fault.detail.clone());
            }
            self.hand_back(key);
            if is_current {
                self.give_back_waiting();
            }
            self.suspect_done(now, key);
            return;
        }
        self.tried(now, key, &outcome, is_current);
        if let Some(held) = self.find_mut(key) {
            // The start is charged now; without a suspicion from here on.
            held.tally.fresh = false;
            held.before = held.tally.native;
            held.lane = Lane::Normal;
        }
        let disposition = decide(&outcome, attempt, &self.settings.policy, jitter);
        self.dispose(now, key, disposition);
    }

    pub(super) fn dispose(&mut self, now: Time, key: Key, disposition: Disposition) {
        match disposition {
            Disposition::Acknowledge => {
                let (sent, tries) = (Sent::Acknowledgement, 0);
                self.set(key, State::Settling { sent, tries });
                self.out.push(Action::Acknowledge(key));
            }
            Disposition::Requeue { delay }
                if delay.is_zero() && !self.draining && !self.is_halted() =>
            {
                // Rule 14: it stays here, behind what is ready; its next start is recorded.
                self.set(key, State::Waiting);
                self.ready.push_back(key);
                self.note(Note::RequeuedHere);
                self.suspect_done(now, key);
            }
            Disposition::Requeue { delay } => {
                self.intake.due_in(now, delay);
                let keep = self.find(key).map_or(0, |held| held.tally.native);
                self.part(key, SettleAction::Park { keep, after: delay }, 0);
            }
            Disposition::DeadLetter(rejection) => {
                self.part(key, SettleAction::DeadLetter(rejection), 0);
            }
            Disposition::Discard(rejection) => self.part(key, SettleAction::Discard(rejection), 0),
        }
    }

    /// What never started in this delivery goes back, due now; or waits, where nothing goes back.
    pub(super) fn hand_back(&mut self, key: Key) {
        if !self.hands_back() {
            self.set(key, State::Waiting);
            self.ready.push_front(key);
            return;
        }
        if let Some(held) = self.find(key) {
            let action = held.way_back();
            self.part(key, action, 0);
        }
    }

    pub(super) fn part(&mut self, key: Key, action: SettleAction, tries: u32) {
        let Some(count) = self.find(key).map(|held| held.tally.native) else {
            return;
        };
        let sent = Sent::Settlement(action.clone());
        self.set(key, State::Settling { sent, tries });
        self.out.push(Action::Settle { key, count, action });
    }

    pub(super) fn settled(&mut self, now: Time, key: Key, reply: Reply) {
        let Some(held) = self.find_in(key, |state| matches!(state, State::Settling { .. })) else {
            return;
        };
        let State::Settling { sent, tries } = held.state.clone() else {
            return;
        };
        let ending = match (reply, sent) {
            (Reply::Refused(cause), sent) => {
                let again = (REFUSED_FIRST * 2u32.pow(tries.min(16))).min(REFUSED_MAX);
                self.note(Note::SettlementRefused { key, cause, again });
                self.refuse(key, sent, tries + 1, now + again);
                self.suspect_done(now, key);
                return;
            }
            // An entry that is trimmed after its handler was done is no loss.
            (Reply::Done | Reply::Trimmed | Reply::Gone, Sent::Acknowledgement) => {
                Ending::Acknowledged
            }
            // Its group was made again without it: no earlier try can have done it there.
            (Reply::Done, Sent::Settlement(_)) if self.was_trimmed(key) => Ending::Trimmed,
            (Reply::Done, Sent::Settlement(action)) => Ending::Settled(action),
            (reply, _) => self.ending(key, reply),
        };
        if ending == Ending::Stolen {
            self.end_or_succeed(now, key, ending);
            return;
        }
        if matches!(
            ending,
            Ending::Settled(SettleAction::Park { .. } | SettleAction::HandBack { .. })
        ) {
            // What was claimed meanwhile may have come from where we parked it. If not, Redis
            // says so before its start.
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

    /// What a reply means for a holding that may have been found trimmed before.
    pub(super) fn ending(&self, key: Key, reply: Reply) -> Ending {
        match reply {
            Reply::Gone if self.was_trimmed(key) => Ending::Trimmed,
            reply => ending_of(reply),
        }
    }

    fn was_trimmed(&self, key: Key) -> bool {
        self.find(key)
            .is_some_and(|held| held.lost == Some(Ending::Trimmed))
    }

    pub(super) fn refuse(&mut self, key: Key, sent: Sent, tries: u32, again: Time) {
        self.set(key, State::Refused { sent, tries, again });
        let first = self
            .find_mut(key)
            .map(|held| !std::mem::replace(&mut held.was_refused, true));
        if first == Some(true) {
            self.stuck += 1;
        }
        self.refused_due = Some(self.refused_due.map_or(again, |due| due.min(again)));
    }

    /// Other rules hold, for everything that is decided from now on. What was given up and could
    /// not be carried out is tried again at once, as they have it: a dead-letter queue that could
    /// not be written may be another one now.
    pub(super) fn change_policy(&mut self, now: Time, policy: Policy) {
        self.settings.policy = policy;
        for held in self.held.values_mut() {
            let State::Refused { sent, again, .. } = &mut held.state else {
                continue;
            };
            *again = now;
            self.refused_due = Some(now);
            if let Sent::Settlement(SettleAction::DeadLetter(rejection)) = sent
                && let Disposition::Discard(rejection) =
                    self.settings.policy.dead_letter(rejection.clone())
            {
                *sent = Sent::Settlement(SettleAction::Discard(rejection));
            }
        }
    }

    pub(super) fn retry_refused(&mut self, now: Time) {
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
                Sent::Settlement(action) => self.part(key, action, tries),
                Sent::Acknowledgement => {
                    self.set(key, State::Settling { sent, tries });
                    self.out.push(Action::Acknowledge(key));
                }
            }
        }
    }
}

impl<M> Held<M> {
    /// Rule 5: what never started in this delivery is parked with the count it had before. Rule 8:
    /// but a suspect that must run alone is left, so that the mark stays; it too with the count
    /// from before, or a record without a start would use up its last one.
    pub(super) fn way_back(&self) -> SettleAction {
        let keep = if Rule::HandBackUncharged.holds() {
            self.before
        } else {
            self.tally.native
        };
        match self.lane {
            Lane::Alone if Rule::SuspectsAreLeftOnDrain.holds() => SettleAction::Leave { keep },
            Lane::Normal | Lane::Alone => SettleAction::HandBack { keep },
        }
    }
}

pub(super) fn ending_of(reply: Reply) -> Ending {
    match reply {
        Reply::Gone | Reply::Done => Ending::Gone,
        Reply::Trimmed => Ending::Trimmed,
        Reply::Stolen | Reply::Refused(_) => Ending::Stolen,
    }
}
