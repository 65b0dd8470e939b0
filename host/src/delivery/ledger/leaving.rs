//! Leases lost, streams deleted, hosts that stop: what happens to what is held.

use super::lanes::Mode;
use super::settling::ending_of;
use super::{Action, Ending, Key, Ledger, Note, Reply, State, Time};
use crate::delivery::rules::Rule;

impl<M> Ledger<M> {
    /// Leases were confirmed, or found lost.
    pub(super) fn confirmed(&mut self, now: Time, leased: Time, replies: Vec<(Key, Reply)>) {
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
                // A refusal says nothing about the lease.
                (Reply::Refused(_), _) => {}
                // Trimming is told once: to whoever asks later, the delivery is gone.
                (Reply::Trimmed, State::Settling { .. } | State::Recording { .. }) => {
                    held.lost = Some(Ending::Trimmed);
                }
                // Its own reply tells.
                (_, State::Settling { .. } | State::Recording { .. }) => {}
                (reply, State::Running { .. }) => {
                    if held.lost.is_none() {
                        held.lost = Some(ending_of(reply));
                        self.note(Note::LeaseLost(key));
                    }
                }
                (reply, State::Released) => {
                    if held.lost.is_none() {
                        held.lost = Some(ending_of(reply));
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

    pub(super) fn drain(&mut self) {
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
        if self.hands_back() {
            self.give_back_waiting();
        }
    }

    /// Hand back what waits here, and take back what the executor has not started.
    pub(super) fn give_back_waiting(&mut self) {
        for (key, state) in self.keys_and_states() {
            match state {
                State::Waiting if self.hands_back() => self.hand_back(key),
                State::Released => self.out.push(Action::Revoke(key)),
                State::Waiting
                | State::Recording { .. }
                | State::Running { .. }
                | State::Settling { .. }
                | State::Refused { .. } => {}
            }
        }
        if self.hands_back() {
            self.ready.clear();
            self.alone.clear();
        }
    }
}
