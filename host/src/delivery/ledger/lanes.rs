//! Who may run when: normal traffic, and suspects that run alone on their host.
//!
//! ```text
//! Normal --(a suspect waits, and normal traffic had its share)--> Quiescing
//! Quiescing --(nothing in flight, settlements confirmed)--> Alone
//! Alone --(its settlement is confirmed, or refused)--> Normal
//! ```

use super::{Action, Key, Ledger, Note, State, Time};
use crate::delivery::attempt::Standing;
use crate::delivery::rules::Rule;

/// How long a host that starts serves normal traffic before its first suspect, unless there is
/// none: longer than any claim and a short handler take, so that a message that kills its host at
/// once cannot keep a crash-looping host from everything else.
const FIRST_SHARE: Time = Time::from_millis(500);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Mode {
    /// Normal traffic runs.
    Normal,
    /// Normal traffic runs, and no suspect before this.
    Share { until: Time },
    /// Intake has paused; what is in flight ends.
    Quiescing { since: Time },
    /// One suspect runs.
    Alone { key: Key, since: Time },
}

impl Mode {
    /// Rule 9: a fresh host serves normal traffic before its first suspect.
    pub(super) fn new(now: Time) -> Self {
        if Rule::FairShare.holds() {
            Self::Share {
                until: now + FIRST_SHARE,
            }
        } else {
            Self::Normal
        }
    }
}

impl<M> Ledger<M> {
    /// Whether normal traffic may start, and new messages be read.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.mode, Mode::Normal | Mode::Share { .. })
            && !self.is_closing()
            && self.halt.is_none_or(|halt| halt.probing)
    }

    /// Suspects that wait for their run alone.
    pub(super) fn suspects(&self) -> usize {
        self.alone.len()
    }

    pub(super) fn advance_lanes(&mut self, now: Time) {
        if let Mode::Share { until } = self.mode
            && (now >= until || self.is_idle())
        {
            self.mode = Mode::Normal;
        }
        if self.mode == Mode::Normal && self.is_open() && self.has_suspect() {
            self.mode = Mode::Quiescing { since: now };
            if self.intake.is_fetching() {
                self.out.push(Action::Interrupt);
            }
        }
        if let Mode::Quiescing { since } = self.mode
            && self.in_flight() == 0
        {
            self.begin_alone(now, since);
        }
    }

    pub(super) fn lanes_deadline(&self) -> Option<Time> {
        match self.mode {
            Mode::Share { until } if !self.alone.is_empty() => Some(until),
            _ => None,
        }
    }

    /// Give the executor what is ready. Those that need a record keep their turn, and their slot
    /// asks before it starts.
    pub(super) fn release(&mut self) {
        if !self.is_open() {
            return;
        }
        while !self.is_trying()
            && let Some(key) = self.ready.pop_front()
        {
            self.release_one(key);
        }
    }

    /// Rule 7 and 9: the run alone is over (confirmed, refused, or it went another way); normal
    /// traffic gets at least as long as intake had paused.
    pub(super) fn suspect_done(&mut self, now: Time, key: Key) {
        if let Mode::Alone {
            key: suspect,
            since,
        } = self.mode
            && suspect == key
        {
            let took = now.saturating_sub(since);
            self.note(Note::AloneEnded { key, took });
            self.mode = if Rule::FairShare.holds() {
                Mode::Share { until: now + took }
            } else {
                Mode::Normal
            };
        }
    }

    fn release_one(&mut self, key: Key) {
        let allowance = self.settings.policy.allowance;
        let Some(held) = self.find_in(key, |state| matches!(state, State::Waiting)) else {
            return;
        };
        let leased = held.leased;
        let attempt = match allowance.standing(held.tally) {
            Standing::Start(start) if start.record.is_none() && !held.doubtful => {
                Some(start.attempt)
            }
            Standing::Start(_) | Standing::Exhausted { .. } => None,
        };
        self.set(key, State::Released);
        self.out.push(Action::Release {
            key,
            attempt,
            leased,
        });
    }

    fn begin_alone(&mut self, now: Time, since: Time) {
        while let Some(key) = self.alone.pop_front() {
            if self.is_waiting(key) {
                self.mode = Mode::Alone { key, since };
                self.note(Note::AloneBegan(key));
                self.release_one(key);
                return;
            }
        }
        // They all went another way meanwhile.
        self.mode = Mode::Share {
            until: now + now.saturating_sub(since),
        };
    }

    fn has_suspect(&mut self) -> bool {
        while let Some(&key) = self.alone.front() {
            if self.is_waiting(key) {
                return true;
            }
            self.alone.pop_front();
        }
        false
    }

    fn is_waiting(&self, key: Key) -> bool {
        self.find_in(key, |state| matches!(state, State::Waiting))
            .is_some()
    }

    /// Rule 7: starts being recorded and settlements not yet confirmed count as in flight; one
    /// that Redis refused does not, or a full dead-letter queue would stop every suspect.
    fn in_flight(&self) -> usize {
        let counts = &self.counts;
        let settling = if Rule::AloneAwaitsSettlements.holds() {
            self.unconfirmed()
        } else {
            0
        };
        counts.released + counts.recording + counts.running + settling
    }

    /// Settlements under way for the first time.
    fn unconfirmed(&self) -> usize {
        if self.counts.settling == 0 {
            return 0;
        }
        self.held
            .values()
            .filter(|held| matches!(held.state, State::Settling { tries: 0, .. }))
            .count()
    }

    /// Nothing normal to do: the last fetch found less than it asked for, and nothing is held
    /// but suspects.
    fn is_idle(&self) -> bool {
        self.intake.has_caught_up() && self.in_flight() == 0 && self.ready.is_empty()
    }
}
