//! Rule 39: where starts are limited, each one is admitted first.
//!
//! ```text
//! ready --Admit--> asked --Granted--> admitted --(a slot is free)--> released
//!   ^                | Wait              | too late
//!   +----------------+-------------------+
//!                    | Later: parked until then, uncharged
//! ```
//!
//! What may not start yet is no attempt: it waits here, unstarted, or is parked. A host holds about as many messages as it
//! may start, so the others can have the rest.

use std::collections::VecDeque;
use std::time::Duration;

use super::held::State;
use super::{Action, Key, Ledger, Mode, Time};
use crate::delivery::attempt::Lane;
use crate::delivery::flow::ADMITTED_MS;
use crate::delivery::rules::Rule;

/// For how long an admission may wait for a slot.
const ADMITTED: Time = Time::from_millis(ADMITTED_MS);
/// How long a start may take that was admitted: its slot asks, and it is recorded. A later one is admitted anew.
pub(super) const STARTED: Time = Time::from_secs(1);
/// The longest pause between two requests: the limits may change meanwhile.
const PAUSE_MAX: Time = Time::from_secs(1);
/// The shortest one. Where a request failed, the pause is as long.
const PAUSE_MIN: Time = Time::from_millis(1);
const FAILED: Time = Time::from_millis(100);
/// Most messages in a request.
const ASKED_MAX: usize = 100;

/// Whether a message may start, by its limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Admission {
    /// Now.
    Granted,
    /// No message may start for so long, this one and those behind it.
    Wait(Duration),
    /// This one may start after so long: that start is reserved for it. Others may start now.
    Later(Duration),
}

/// What the ledger knows of the limits.
#[derive(Debug)]
pub(super) struct Admissions {
    /// Starts are limited.
    pub(super) is_limited: bool,
    /// What is asked for, until the answer comes.
    asked: Option<VecDeque<Key>>,
    /// What may start as soon as a slot is free, and since when.
    admitted: VecDeque<(Key, Time)>,
    /// Nothing is asked before this time.
    next: Time,
    /// About how many messages may start soon.
    window: usize,
}

impl Default for Admissions {
    fn default() -> Self {
        Self {
            is_limited: false,
            asked: None,
            admitted: VecDeque::new(),
            next: Time::ZERO,
            window: 1,
        }
    }
}

impl Admissions {
    /// Deliveries that wait here, and not in the ready queue. Some may be closed.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Key> {
        let asked = self.asked.iter().flatten().copied();
        asked.chain(self.admitted.iter().map(|&(key, _)| key))
    }
}

impl<J> Ledger<J> {
    /// Starts are limited from now on, or no longer.
    pub(super) fn limit(&mut self, is_limited: bool) {
        self.admissions.is_limited = is_limited && Rule::StartsAreAdmitted.holds();
        self.admissions.next = Time::ZERO;
        if !is_limited {
            let waiting: Vec<Key> = self.admissions.waiting().collect();
            self.wait_again(waiting);
            self.admissions = Admissions::default();
        }
    }

    /// Release what is admitted, and ask for more.
    pub(super) fn release_admitted(&mut self, now: Time) {
        let is_late = |&(_, at): &(Key, Time)| now.saturating_sub(at) >= ADMITTED;
        let late = self.admissions.admitted.iter().take_while(|of| is_late(of));
        let late = late.count();
        let late = self.admissions.admitted.drain(..late).map(|(key, _)| key);
        let late = late.collect();
        self.wait_again(late);
        while self.may_release()
            && self.holdings.counts().out() < self.startable()
            && let Some((key, at)) = self.admissions.admitted.pop_front()
        {
            if self.holdings.is_waiting(key) {
                if let Some(held) = self.holdings.find_mut(key) {
                    held.admitted = Some(at);
                }
                self.release_one(key);
            }
        }
        if now < self.admissions.next || !self.may_ask() {
            return;
        }
        self.forget_missed(now);
        let mut asked: VecDeque<Key> = self.unadmitted_suspect().into_iter().collect();
        let most = self.admissible();
        while asked.len() < most
            && let Some(key) = self.ready.pop_front()
        {
            if self.holdings.is_waiting(key) {
                asked.push_back(key);
            }
        }
        if !asked.is_empty() {
            self.out
                .push(Action::Admit(asked.iter().copied().collect()));
            self.admissions.asked = Some(asked);
        }
    }

    /// When [`Self::release_admitted`] has something to ask.
    pub(super) fn admission_deadline(&self) -> Option<Time> {
        let has_some =
            self.unadmitted_suspect().is_some() || self.admissible() > 0 && !self.ready.is_empty();
        let asks = self.admissions.is_limited && self.may_ask() && has_some;
        let asks = asks.then_some(self.admissions.next);
        // A suspect whose start is reserved.
        let suspects = self.isolated.iter().filter(|_| self.admissions.is_limited);
        let suspects = suspects.filter(|key| self.holdings.is_waiting(**key));
        let reserved = suspects.filter_map(|key| self.holdings.find(*key)?.admitted);
        let reserved = reserved.min().map(|at| at.max(self.admissions.next));
        let reserved = reserved.filter(|_| self.mode == Mode::Normal && self.may_ask());
        [asks, reserved].into_iter().flatten().min()
    }

    /// A suspect that could not run when it was its turn, because another one ran, is admitted anew.
    fn forget_missed(&mut self, now: Time) {
        if self.mode != Mode::Normal {
            return;
        }
        for key in self.isolated.iter().copied() {
            if let Some(held) = self.holdings.find_mut(key) {
                held.admitted = held.admitted.filter(|at| *at + STARTED > now);
            }
        }
    }

    fn may_ask(&self) -> bool {
        self.admissions.asked.is_none() && self.intake.is_online() && self.may_release()
    }

    fn may_release(&self) -> bool {
        self.is_open() && !self.is_trying() && !self.effects_are_refused()
    }

    /// For how many more messages there is a slot now, or soon.
    fn admissible(&self) -> usize {
        let soon = Self::within(self.intake.rate.per_second, ADMITTED);
        let taken = self.holdings.counts().out() + self.admissions.admitted.len();
        let most = self.startable().saturating_add(soon);
        most.saturating_sub(taken).min(ASKED_MAX)
    }

    /// A suspect is admitted before the host empties itself for it: that may take longer than an admission lasts. So this one
    /// lasts until the isolated run begins.
    fn unadmitted_suspect(&self) -> Option<Key> {
        let mut suspects = self.isolated.iter().copied();
        let is_next = |key: &Key| {
            self.holdings.is_waiting(*key)
                && self
                    .holdings
                    .find(*key)
                    .is_some_and(|held| held.admitted.is_none())
        };
        suspects.find(is_next).filter(|_| self.mode == Mode::Normal)
    }

    /// Whether this suspect might run isolated from this time on, by its limits.
    pub(super) fn is_admitted(&self, since: Time, key: Key) -> bool {
        let at = self.holdings.find(key).and_then(|held| held.admitted);
        !self.admissions.is_limited || at.is_some_and(|at| at <= since && since < at + STARTED)
    }

    /// Whether a delivery waits to be admitted, or for a slot.
    pub(super) fn waits_for_admission(&self) -> bool {
        self.admissions
            .waiting()
            .any(|key| self.holdings.is_waiting(key))
    }

    /// Back to the front of what is ready.
    fn wait_again(&mut self, keys: Vec<Key>) {
        for key in keys.into_iter().rev() {
            let is_normal = self
                .holdings
                .find(key)
                .is_some_and(|held| held.lane == Lane::Normal);
            if is_normal && self.holdings.is_waiting(key) {
                self.ready.push_front(key);
            }
        }
    }

    /// The answer to [`Action::Admit`], in the order of its deliveries. What has no answer is asked for again.
    pub(super) fn admitted(&mut self, now: Time, sent: Time, replies: &[Admission]) {
        let asked = self.admissions.asked.take().unwrap_or_default();
        // It took so long that the starts would come too late.
        let is_late = now.saturating_sub(sent) >= STARTED;
        let (mut passed, mut pause) = (0, replies.is_empty().then_some(FAILED));
        let mut again = Vec::new();
        for (place, key) in asked.into_iter().enumerate() {
            let admission = replies.get(place).copied();
            passed += usize::from(!matches!(admission, Some(Admission::Wait(_)) | None));
            let held = self.holdings.find_mut(key);
            let Some(held) = held.filter(|held| matches!(held.state, State::Waiting)) else {
                continue;
            };
            match (admission, held.lane) {
                (Some(Admission::Wait(wait)), _) => {
                    pause = pause.max(Some(wait.clamp(PAUSE_MIN, PAUSE_MAX)));
                    again.push(key);
                }
                (None, _) => again.push(key),
                (Some(Admission::Granted), Lane::Normal) if is_late => again.push(key),
                (Some(Admission::Granted), Lane::Isolated) => held.admitted = Some(now),
                (Some(Admission::Later(after)), Lane::Isolated) => {
                    held.admitted = Some(now + after)
                }
                (Some(Admission::Granted), Lane::Normal) => {
                    self.admissions.admitted.push_back((key, now));
                }
                (Some(Admission::Later(after)), Lane::Normal) => self.put_off(now, key, after),
            }
        }
        self.wait_again(again);
        self.admissions.window = match pause {
            Some(_) => passed.max(1),
            None => self.admissions.window.max(passed).saturating_mul(2),
        };
        self.admissions.next = now + pause.unwrap_or_default();
    }

    /// At least so many messages are held: those that run, and those that may start now.
    pub(super) fn least(&self) -> usize {
        let startable = self.startable();
        if !self.admissions.is_limited {
            return startable;
        }
        let running = self.holdings.counts().out();
        startable.min(running.saturating_add(self.admissions.window))
    }

    /// The start of a record was answered this late after its admission: it must be admitted anew.
    pub(super) fn is_admission_old(&self, now: Time, key: Key) -> bool {
        self.admissions.is_limited
            && self.holdings.find(key).is_some_and(|held| {
                let is_late = |at: Time| now.saturating_sub(at) >= STARTED;
                held.lane == Lane::Normal && held.admitted.is_none_or(is_late)
            })
    }
}
