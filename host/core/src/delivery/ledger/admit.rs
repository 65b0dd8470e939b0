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
//!
//! Rule 40: where the number of attempts at once is limited, each has a permit from its admission to its end. The host says how
//! many it has in each request, and Redis keeps that number: so no lost answer loses a permit, and what has ended is given
//! back by the next request. The permits of a host have one lease, which it renews by saying the number again.

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

/// How starts are limited.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Limited {
    /// Not at all.
    #[default]
    No,
    /// How many there are in a time.
    Starts,
    /// How many attempts there are at once. There may be other limits as well.
    Permits,
}

/// The permits of a host, as it says them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Permits {
    /// How many it has.
    pub held: usize,
    /// The number of the request: one that comes behind a later one says nothing.
    pub number: u64,
    /// How long their lease lasts.
    pub lease: Duration,
}

/// What the ledger knows of the limits.
#[derive(Debug)]
pub(super) struct Admissions {
    /// Starts are limited.
    pub(super) is_limited: bool,
    /// Attempts need permits.
    has_permits: bool,
    /// How many this host has, as it said last, and when that was answered: the request was sent at that time.
    said: usize,
    leased: Time,
    /// How many it has by now.
    held: usize,
    /// As many as Redis counts for it, at most.
    counted: usize,
    /// When it says the number again, and not before the second time.
    pub(super) next_renewal: Time,
    retry: Time,
    /// The last request has failed.
    pub(super) has_failed: bool,
    /// The number of the last request.
    number: u64,
    /// What is asked for, until the answer comes.
    asked: Option<VecDeque<Key>>,
    /// What may start as soon as a slot is free, and since when.
    admitted: VecDeque<(Key, Time)>,
    /// Suspects that are admitted, and wait for their isolated run.
    suspects: Vec<Key>,
    /// Nothing is asked before this time.
    next: Time,
    /// About how many messages may start soon.
    window: usize,
}

impl Default for Admissions {
    fn default() -> Self {
        Self {
            is_limited: false,
            has_permits: false,
            said: 0,
            leased: Time::ZERO,
            held: 0,
            counted: 0,
            next_renewal: Time::ZERO,
            retry: Time::ZERO,
            has_failed: false,
            number: 0,
            asked: None,
            admitted: VecDeque::new(),
            suspects: Vec::new(),
            next: Time::ZERO,
            window: 1,
        }
    }
}

impl Admissions {
    /// Whether an answer is to come.
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }

    /// Deliveries that wait here, and not in the ready queue. Some may be closed.
    pub(super) fn waiting(&self) -> impl Iterator<Item = Key> {
        let asked = self.asked.iter().flatten().copied();
        asked.chain(self.admitted.iter().map(|&(key, _)| key))
    }

    /// Until when a start is sure: as long as the lease of its delivery, and that of the permits.
    pub(super) fn leased(&self, delivery: Time) -> Time {
        match self.has_permits {
            true => delivery.min(self.leased),
            false => delivery,
        }
    }

    /// Whether the number of permits must be said now.
    fn must_say(&self, now: Time) -> bool {
        let is_less = self.held < self.counted;
        let has_some = self.held > 0 || self.counted > 0;
        let is_due = now >= self.next_renewal && has_some && Rule::PermitsAreRenewed.holds();
        self.has_permits && now >= self.retry && (is_less || is_due)
    }

    /// When that is.
    fn says_at(&self) -> Option<Time> {
        let has_some = self.held > 0 || self.counted > 0;
        let renews = has_some && Rule::PermitsAreRenewed.holds();
        let at = match self.held < self.counted {
            true => Some(self.retry),
            false => renews.then_some(self.next_renewal.max(self.retry)),
        };
        at.filter(|_| self.has_permits)
    }
}

impl<J> Ledger<J> {
    /// Starts are limited like this from now on.
    pub(super) fn limit(&mut self, now: Time, limited: Limited) {
        // Suspects that wait ask by these limits: an admission or a reserved start is one of the limits before.
        self.admissions.suspects.clear();
        let isolated: Vec<Key> = self.isolated.iter().copied().collect();
        for key in isolated {
            if let Some(held) = self.holdings.find_mut(key)
                && matches!(held.state, State::Waiting)
            {
                (held.admitted, held.reserved) = (None, None);
            }
        }
        if limited == Limited::No {
            let waiting: Vec<Key> = self.admissions.waiting().collect();
            self.wait_again(waiting);
            self.admissions = Admissions {
                // The answer to an earlier request may still come.
                asked: self.admissions.asked.take().map(|_| VecDeque::new()),
                number: self.admissions.number,
                ..Admissions::default()
            };
            return;
        }
        self.admissions.is_limited = Rule::StartsAreAdmitted.holds();
        self.admissions.next = Time::ZERO;
        self.admissions.has_permits = limited == Limited::Permits && self.admissions.is_limited;
        // What runs has a permit from now on, and Redis does not know.
        self.admissions.next_renewal = now;
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
        self.forget_missed(now);
        self.admissions.held = self.permits();
        let may_ask = self.may_ask() && now >= self.admissions.next;
        let must_say = self.admissions.must_say(now);
        if self.is_asking() || !(may_ask || must_say) {
            return;
        }
        // What has ended makes room for what waits, so it is asked for at once.
        let most = if self.may_ask() { self.admissible() } else { 0 };
        let suspect = self.unadmitted_suspect(now).filter(|_| self.may_ask());
        let mut asked: VecDeque<Key> = suspect.into_iter().collect();
        while asked.len() < most
            && let Some(key) = self.ready.pop_front()
        {
            if self.holdings.is_waiting(key) {
                asked.push_back(key);
            }
        }
        if asked.is_empty() && !must_say {
            return;
        }
        let lease = self.settings.min_idle;
        let admissions = &mut self.admissions;
        admissions.number += 1;
        admissions.said = admissions.held;
        admissions.next_renewal = now + lease / 3;
        self.out.push(Action::Admit {
            keys: asked.iter().copied().collect(),
            permits: Permits {
                held: admissions.held,
                number: admissions.number,
                lease,
            },
        });
        admissions.asked = Some(asked);
    }

    /// How many deliveries have a permit: those with the executor, and those that are admitted, and wait.
    fn permits(&self) -> usize {
        let admitted = self.admissions.admitted.iter().map(|(key, _)| key);
        let admitted = admitted.filter(|key| self.holdings.is_waiting(**key));
        self.holdings.counts().out() + admitted.count() + self.admissions.suspects.len()
    }

    /// When [`Self::release_admitted`] has something to ask, or to say.
    pub(super) fn admission_deadline(&self) -> Option<Time> {
        if !self.admissions.is_limited || self.is_asking() {
            return None;
        }
        let has_ready = self.admissible() > 0 && !self.ready.is_empty();
        let asks = (has_ready && self.may_ask()).then_some(self.admissions.next);
        let is_normal = self.mode == Mode::Normal && self.may_ask();
        let suspects = self.isolated.iter();
        let suspects = suspects.filter(|key| self.holdings.is_waiting(**key));
        let suspects = suspects.filter_map(|key| self.holdings.find(*key));
        // The next one to ask for, or one whose start is reserved.
        let asked = suspects.filter(|held| held.admitted.is_none());
        let asked = asked.map(|held| held.reserved.unwrap_or_default());
        let asked = asked.min().map(|at| at.max(self.admissions.next));
        let asked = asked.filter(|_| is_normal);
        // A permit that is not used goes back.
        let admitted = self.admissions.suspects.iter();
        let unused = admitted.filter_map(|key| Some(self.holdings.find(*key)?.admitted? + STARTED));
        let unused = unused.chain(
            self.admissions
                .admitted
                .front()
                .map(|(_, at)| *at + ADMITTED),
        );
        let is_quiescing = matches!(self.mode, Mode::Quiescing { .. });
        let unused = unused.min();
        let unused = unused.filter(|_| self.admissions.has_permits && !is_quiescing);
        [asks, asked, unused, self.admissions.says_at()]
            .into_iter()
            .flatten()
            .min()
    }

    /// A suspect that could not run when it was its turn, because another one ran, is admitted anew.
    fn forget_missed(&mut self, now: Time) {
        let since = match self.mode {
            Mode::Quiescing { since } => since,
            _ => now,
        };
        let mut suspects = std::mem::take(&mut self.admissions.suspects);
        suspects.retain(|key| {
            let is_kept = self.holdings.is_waiting(*key) && self.is_admitted(since, *key);
            if !is_kept
                && self.holdings.is_waiting(*key)
                && let Some(held) = self.holdings.find_mut(*key)
            {
                held.admitted = None;
            }
            is_kept
        });
        self.admissions.suspects = suspects;
    }

    /// Whether a request is under way, or cannot be sent.
    fn is_asking(&self) -> bool {
        self.admissions.is_asking() || !self.intake.is_online()
    }

    fn may_ask(&self) -> bool {
        !self.is_asking() && self.may_release()
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
    fn unadmitted_suspect(&self, now: Time) -> Option<Key> {
        let mut suspects = self.isolated.iter().copied();
        let is_next = |key: &Key| {
            let held = self.holdings.find(*key);
            let is_due = held.is_some_and(|held| held.reserved.is_none_or(|at| at <= now));
            let is_new = held.is_some_and(|held| held.admitted.is_none());
            self.holdings.is_waiting(*key) && is_new && is_due
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
    pub(super) fn admitted(&mut self, now: Time, sent: Time, replies: Option<&[Admission]>) {
        let asked = self.admissions.asked.take().unwrap_or_default();
        let granted = replies.map(|replies| {
            let granted = replies.iter().filter(|reply| **reply == Admission::Granted);
            granted.count()
        });
        let admissions = &mut self.admissions;
        admissions.has_failed = granted.is_none();
        match granted {
            Some(granted) => {
                admissions.counted = admissions.said + granted;
                admissions.leased = sent;
            }
            // Redis may have carried it out.
            None => {
                let most = admissions.said + asked.len();
                admissions.counted = admissions.counted.max(most);
                admissions.next_renewal = now;
                admissions.retry = now + FAILED;
            }
        }
        if asked.is_empty() {
            return;
        }
        // It took so long that the starts would come too late.
        let is_late = now.saturating_sub(sent) >= STARTED.min(self.settings.min_idle);
        let (mut passed, mut pause) = (0, replies.is_none().then_some(FAILED));
        let replies = replies.unwrap_or_default();
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
                (Some(Admission::Granted), _) if is_late => again.push(key),
                (Some(Admission::Granted), Lane::Isolated) => {
                    held.admitted = Some(now);
                    self.admissions.suspects.push(key);
                }
                (Some(Admission::Later(after)), Lane::Isolated) => {
                    held.reserved = Some(now + after);
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
        let lasts = |at: Time, time: Time| now.saturating_sub(at) < time;
        let is_permitted = lasts(self.admissions.leased(now), self.settings.min_idle);
        self.admissions.is_limited
            && self.holdings.find(key).is_some_and(|held| {
                let is_late = held.admitted.is_none_or(|at| !lasts(at, STARTED));
                !is_permitted || held.lane == Lane::Normal && is_late
            })
    }

    /// Whether Redis counts no permit for this host, as far as it can be told.
    pub(super) fn has_given_back(&self) -> bool {
        let admissions = &self.admissions;
        let is_said = admissions.counted == 0 && admissions.asked.is_none();
        !admissions.has_permits || is_said || admissions.has_failed || !self.intake.is_online()
    }
}
