//! From the executor to a start: the record comes first, and the lease must be sure.

use super::settling::REFUSED_FIRST;
use super::{Action, Ending, Key, Ledger, Note, Reply, Sent, State, Time};
use crate::delivery::attempt::{Standing, Start};
use crate::delivery::policy::Reason;
use crate::delivery::rules::Rule;

impl<M> Ledger<M> {
    /// A slot holds the delivery. Rule 2: its start is recorded first; a first delivery comes
    /// here only if its lease must be confirmed.
    pub(super) fn slot_ready(&mut self, now: Time, key: Key) {
        let allowance = self.settings.policy.allowance;
        let closing = self.is_closing();
        let Some(held) = self.find_in(key, |state| matches!(state, State::Released)) else {
            self.out.push(Action::Deny(key));
            return;
        };
        if held.lost.is_some() || closing || held.successor.is_some() {
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
    pub(super) fn record(&mut self, key: Key, start: Start) {
        let Some(expect) = self.find(key).map(|held| held.tally.native) else {
            return;
        };
        let write = start.record.unwrap_or(expect);
        self.set(key, State::Recording { start, write });
        self.out.push(Action::Record { key, expect, write });
    }

    /// Rule 12: a lease that was confirmed so long ago may have run out since.
    pub(super) fn is_old(&self, now: Time, leased: Time) -> bool {
        Rule::LeaseBeforeStart.holds() && now.saturating_sub(leased) >= self.settings.min_idle
    }

    pub(super) fn recorded(&mut self, now: Time, key: Key, leased: Time, reply: Reply) {
        let allowance = self.settings.policy.allowance;
        let closing = self.is_closing();
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
                if closing {
                    // Written down, but not started: the hand-back restores the count.
                    self.out.push(Action::Deny(key));
                    self.revoked(now, key);
                } else if is_record {
                    self.started(key);
                } else if self.is_old(now, leased) {
                    self.record(key, start);
                } else {
                    match allowance.standing(tally) {
                        Standing::Start(start) if start.record.is_some() => self.record(key, start),
                        Standing::Start(_) => self.started(key),
                        // A lower cap holds since it asked.
                        Standing::Exhausted { attempts } => {
                            self.out.push(Action::Deny(key));
                            self.exhausted(now, key, attempts);
                        }
                    }
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
                    let sent = Sent::Settlement(held.way_back());
                    self.refuse(key, sent, 1, now + REFUSED_FIRST);
                }
                self.suspect_done(now, key);
            }
            Reply::Gone | Reply::Trimmed | Reply::Stolen => {
                self.out.push(Action::Deny(key));
                let ending = self.ending(key, reply);
                self.end_or_succeed(now, key, ending);
            }
        }
    }

    pub(super) fn started(&mut self, key: Key) {
        if let Some(held) = self.find(key)
            && let State::Recording { start, .. } = held.state
        {
            let attempt = start.attempt;
            self.set(key, State::Running { attempt });
            self.out.push(Action::Go { key, attempt });
        }
    }

    /// It has leave, and did not start: its record waited for others of its batch, and its lease ran
    /// out meanwhile. It goes back as if it had not been recorded: Redis sees to it that this takes
    /// back no charge but that one, of a delivery that is still ours.
    pub(super) fn unstarted(&mut self, now: Time, key: Key) {
        let Some(held) = self.find_in(key, |state| matches!(state, State::Running { .. })) else {
            return;
        };
        if held.successor.is_some() {
            self.end_or_succeed(now, key, Ending::Superseded);
        } else if let Some(ending) = held.lost.clone() {
            self.end(key, ending);
            self.suspect_done(now, key);
        } else {
            self.hand_back(key);
        }
    }

    /// It has not started, and comes back from the executor.
    pub(super) fn revoked(&mut self, now: Time, key: Key) {
        let closing = self.is_closing();
        let halted = self.is_halted();
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
        } else if closing || halted {
            self.hand_back(key);
        } else {
            let lane = held.lane;
            self.set(key, State::Waiting);
            self.enqueue(key, lane);
        }
    }

    /// Its time passed between the claim and the start.
    pub(super) fn turned_away(&mut self, now: Time, key: Key, reason: Reason, detail: String) {
        let allowance = self.settings.policy.allowance;
        let Some(held) = self.find_in(key, |state| matches!(state, State::Released)) else {
            return;
        };
        if held.lost.is_some() || held.successor.is_some() || self.is_closing() {
            self.revoked(now, key);
            return;
        }
        let attempts = allowance.attempts(held.tally);
        let disposition = self.settings.policy.turn_away(reason, detail, attempts);
        self.dispose(now, key, disposition);
    }
}
