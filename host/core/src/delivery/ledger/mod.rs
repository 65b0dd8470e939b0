//! Every delivery that this host holds, from claim to settlement. Only the ledger changes that state.
//!
//! [`Ledger::apply`] takes what happened, [`Ledger::poll`] returns what to do. Time is an argument.
//! The ledger does not wait, reads no clock and does not know Redis. So a test can drive any number
//! of hosts through crashes, pauses and lost replies (`model.rs`), with the code that runs in
//! production.
//!
//! ```text
//!            claimed
//!               |
//!   Waiting: in the ready queue, or in the queue of isolated suspects
//!               |          | Record: a later start, while attempts are short
//!               | Release  +--> Recording, no slot waits
//!               |                 | Recorded -> Release
//!   Released: with the executor; a first or a recorded start may begin at any time
//!               | SlotReady (all others: a slot waits with the delivery)
//!   Recording: the start is being written to Redis
//!               | Recorded -> Go
//!   Running
//!               | Finished -> decide
//!   Settling --- confirmed ---> closed
//!      \--- refused ---> Refused: tried again later, without running the handler
//! ```
//!
//! Invariants:
//! - Every start except the first one of a fresh delivery is recorded in Redis before it happens.
//! - A delivery has at most one running attempt here.
//! - The ledger forgets a delivery only after Redis said what became of it.
//! - The prefetch, the concurrency and a few reserved places bound how much a host holds. Messages that do not start
//!   soon go back.
//!
//! `docs/attempts.md` has the rules in words. This file decides what a host reads and what may run
//! now; `steps` takes one delivery from its claim to its settlement, `admit` knows whether its start is limited.

mod admit;
mod held;
mod intake;
#[cfg(test)]
mod model;
mod steps;
#[cfg(test)]
mod tests;
mod types;

use std::collections::VecDeque;
use std::time::Duration;

pub use admit::{Admission, Limited, Permits};
pub use types::{
    Action, Closed, Delivery, Event, HaltCause, Key, Note, Origin, Reply, Settings, SettleAction,
    Time, TurnedAway,
};

use crate::delivery::attempt::{Lane, NextStart};
use crate::delivery::backoff::Backoff;
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::Outcome;
use crate::delivery::policy::Policy;
use crate::delivery::rules::Rule;
use admit::Admissions;
use held::{Held, Holdings, Sent, State};
use intake::Intake;

/// With more unconfirmed settlements than this, the host reads nothing: Redis is slower than the
/// handler.
const SETTLING_MAX: usize = 8192;

/// A place beyond the prefetch that only orphans and due deliveries may take, so that a saturated host still takes
/// them.
const FOR_DUE: usize = 1;

/// The same with another place, which only orphans may take: due deliveries, of which there may always be more, never
/// keep them out.
const FOR_ORPHANS: usize = 2;

/// A starting host serves normal traffic for this long before its first suspect, if there is any
/// traffic. This is longer than a claim and a short handler take: so a message that kills its host at
/// once cannot keep a crash-looping host from all other work.
const FIRST_SHARE: Time = Time::from_millis(500);

/// See the module.
#[derive(Debug)]
pub struct Ledger<J> {
    settings: Settings,
    holdings: Holdings<J>,
    /// Deliveries that may run, in their order. Keys of closed holdings are skipped.
    ready: VecDeque<Key>,
    /// Starts are being recorded ahead, until there are enough of them: so a request has many.
    records_ahead: bool,
    /// How many deliveries the executor was given.
    released: u64,
    /// Slots in which handlers run, and for how many messages.
    occupied: (usize, usize),
    /// An at-most-once queue did not take something back.
    is_refused_back: bool,
    /// Suspects that must run isolated, those with the fewest charges first.
    isolated: VecDeque<Key>,
    mode: Mode,
    intake: Intake,
    admissions: Admissions,
    draining: bool,
    leftovers: Leftovers,
    halt: Option<Halt>,
    /// No refused settlement is due before this time.
    refused_due: Option<Time>,
    /// When a repeated settlement last sent a delivery away. It may have come after a claim whose answer is still
    /// on its way.
    sent_away_again: Option<Time>,
    /// What was closed last, with the times, and the count with which it went back: `None` = it is settled for good, or
    /// lost.
    settled_last: VecDeque<(Time, DeliveryId, Option<u32>)>,
    out: Vec<Action<J>>,
}

/// What may run now: normal traffic, or one suspect that runs isolated on its host.
///
/// ```text
/// Normal --(a suspect waits, and normal traffic had its share)--> Quiescing
/// Quiescing --(nothing in flight, settlements confirmed)--> Isolated
/// Isolated --(its settlement is confirmed, or refused)--> Share
/// Share --(the time is over, or there is no traffic)--> Normal
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mode {
    /// Normal traffic runs.
    Normal,
    /// Normal traffic runs, and no suspect before this time.
    Share { until: Time },
    /// Intake has paused; what is in flight ends.
    Quiescing { since: Time },
    /// One suspect runs.
    Isolated { key: Key, since: Time },
}

/// While a host with an at-most-once queue drains: messages that it took off the queue and has not
/// claimed. No other host can get them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Leftovers {
    /// There may be some.
    Unknown,
    /// The ledger has asked for them.
    Asked,
    /// There are none left.
    None,
}

/// The handler cannot be run: no instance of it can be made, it faults on everything, or it makes the
/// host panic. Intake stops, held deliveries go back uncharged, and one message is tried at growing
/// intervals.
#[derive(Clone, Copy, Debug)]
struct Halt {
    cause: HaltCause,
    /// When one message is tried.
    until: Time,
    /// It is being tried.
    probing: bool,
    tries: u32,
    /// Holdings up to this generation were claimed before the halt: their outcome does not tell
    /// whether the handler works now.
    after: u64,
}

impl<J> Ledger<J> {
    /// An empty ledger of a host that starts now.
    pub fn new(now: Time, settings: Settings) -> Self {
        // Rule 9: a starting host serves normal traffic before its first suspect.
        let mode = if Rule::FairShare.holds() {
            let until = now + FIRST_SHARE;
            Mode::Share { until }
        } else {
            Mode::Normal
        };
        Self {
            intake: Intake::new(now, &settings),
            admissions: Admissions::default(),
            mode,
            settings,
            holdings: Holdings::default(),
            ready: VecDeque::new(),
            records_ahead: false,
            released: 0,
            occupied: (0, 0),
            is_refused_back: false,
            isolated: VecDeque::new(),
            draining: false,
            leftovers: Leftovers::Unknown,
            halt: None,
            refused_due: None,
            settled_last: VecDeque::new(),
            sent_away_again: None,
            out: Vec::new(),
        }
    }

    /// The caller's own value for a held delivery.
    pub fn job(&self, key: Key) -> Option<&J> {
        self.holdings.find(key).map(|held| &held.job)
    }

    /// The same, to change it.
    pub fn job_mut(&mut self, key: Key) -> Option<&mut J> {
        self.holdings.find_mut(key).map(|held| &mut held.job)
    }

    /// Whether this host holds a delivery with this id.
    pub fn holds(&self, id: &DeliveryId) -> bool {
        self.holdings.contains(*id)
    }

    /// The deliveries that must be pending in Redis: all held ones, except those that are being
    /// acknowledged. Key, native count, job.
    pub fn pending(&self) -> impl Iterator<Item = (Key, u32, &J)> {
        let held = self.holdings.iter().filter(|(_, held)| match held.state {
            State::Settling { ref sent, .. } => !matches!(sent, Sent::Acknowledgement),
            _ => true,
        });
        held.map(|(key, held)| (key, held.counts.native, &held.job))
    }

    /// All held deliveries: key, native count, job.
    pub fn iter(&self) -> impl Iterator<Item = (Key, u32, &J)> {
        let held = self.holdings.iter();
        held.map(|(key, held)| (key, held.counts.native, &held.job))
    }

    /// When the lease of this holding was last confirmed. A renewal that came too late to be sure
    /// does not count.
    pub fn leased(&self, key: Key) -> Option<Time> {
        let held = self.holdings.find(key)?;
        Some(self.admissions.leased(held.leased))
    }

    /// Until when no other host can have taken it, if this host still has it: `None` = no host knows.
    pub fn lease_ends(&self, key: Key) -> Option<Time> {
        let held = self.holdings.find(key)?;
        held.owned.map(|owned| owned + self.settings.min_idle)
    }

    /// Whether an acknowledgement of this delivery needs no check: no other host can have taken it up to now, and it
    /// has no record among the parked deliveries, because it started here.
    pub fn acks_plainly(&self, now: Time, key: Key) -> bool {
        let has_started = |held: &Held<J>| held.counts.fresh || held.last.attempt > 0;
        self.is_sure(now, key) && self.holdings.find(key).is_some_and(has_started)
    }

    /// Whether no other host can have taken this delivery up to now.
    fn is_sure(&self, now: Time, key: Key) -> bool {
        self.holdings.find(key).is_some_and(|held| {
            held.lost.is_none() && now.saturating_sub(held.leased) < self.settings.min_idle
        })
    }

    /// How many deliveries are held.
    pub fn len(&self) -> usize {
        self.holdings.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether Redis has refused a settlement and has not carried it out since. Looks at every held
    /// delivery.
    pub fn has_refused(&self) -> bool {
        let is_refused = |state: &State| match state {
            State::Refused { .. } => true,
            State::Settling { tries, .. } => *tries > 0,
            _ => false,
        };
        self.holdings
            .iter()
            .any(|(_, held)| is_refused(&held.state))
    }

    /// Whether the drain is over: nothing is held, and nothing more can come.
    pub fn is_drained(&self) -> bool {
        let is_dry = self.hands_back() || self.leftovers == Leftovers::None;
        self.draining
            && self.is_empty()
            && self.intake.is_quiet()
            && is_dry
            && self.has_given_back()
    }

    /// The operator's rules in force.
    pub fn policy(&self) -> &Policy {
        &self.settings.policy
    }

    /// Take in what happened. [`Ledger::poll`] returns what follows from it.
    pub fn apply(&mut self, now: Time, event: Event<J>) {
        match event {
            Event::Fetched {
                leased,
                deliveries,
                more,
            } => {
                self.intake.fetched(deliveries.len(), more);
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
            Event::Cancelled(ids) => ids.into_iter().for_each(|id| self.cancelled(now, id)),
            Event::CutOff(key) => self.cut_off(now, key),
            Event::TurnedAway {
                key,
                reason,
                detail,
            } => self.turned_away(now, key, reason, detail),
            Event::Finished {
                key,
                outcome,
                told,
                hold,
                acts,
                is_current,
                jitter,
            } => {
                self.intake.finished(now);
                if acts && let Some(held) = self.holdings.find_mut(key) {
                    held.is_checked = true;
                }
                let ended = (outcome, told.as_deref());
                self.finished(now, key, ended, hold, is_current, jitter);
            }
            Event::Acknowledged(keys) => {
                for key in keys {
                    self.settled(now, key, Reply::Done);
                }
            }
            Event::Settled(key, reply) => self.settled(now, key, reply),
            Event::Unanswered(key) => self.unanswered(key),
            Event::Renewed { leased, replies } => {
                self.intake.renewing = false;
                self.confirmed(now, leased, replies);
            }
            Event::Offline => self.intake.offline(now),
            Event::Online => {
                self.intake.online(now, self.settings.min_idle);
                self.admissions.next_renewal = now;
                if self.is_closing() {
                    self.give_back_waiting();
                }
            }
            Event::Readopted { leased, replies } => {
                self.looked_for(&replies, false);
                self.confirmed(now, leased, replies);
            }
            Event::BroughtBack { leased, replies } => self.brought_back(now, leased, replies),
            Event::Broken { detail } => {
                if self.halt.is_none() && !self.draining {
                    self.halt(now, HaltCause::Broken, detail);
                    self.give_back_waiting();
                }
            }
            Event::Panicked { detail } => {
                // This halt lasts, even if the handler was halted before for another cause.
                self.halt = None;
                self.halt(now, HaltCause::Panics, detail);
                self.give_back_waiting();
            }
            Event::HandlerChanged => self.resume(),
            Event::BatchChanged(batch) => self.settings.batch = batch,
            Event::PolicyChanged(policy) => self.change_policy(now, *policy),
            Event::Paused(paused) => self.pause(now, paused),
            Event::Limited(limited) => self.limit(now, limited),
            Event::Admitted { sent, replies } => self.admitted(now, sent, replies.as_deref()),
            Event::Drain => self.drain(),
        }
    }

    /// From now on, each message that comes runs here: the queue has no others.
    pub fn keep_all(&mut self) {
        self.settings.takes_back = false;
    }

    /// Handlers run in this many slots, for this many messages.
    pub fn occupied(&mut self, slots: usize, messages: usize) {
        self.occupied = (slots, messages);
    }

    /// Append to `out` what to do now.
    pub fn poll(&mut self, now: Time, out: &mut Vec<Action<J>>) {
        if let Some(halt) = &mut self.halt {
            halt.probing |= halt.until <= now;
        }
        self.retry_refused(now);
        self.advance_mode(now);
        self.give_back_excess(now);
        self.release(now);
        self.take_in(now);
        out.append(&mut self.out);
    }

    /// When [`Ledger::poll`] has something to do although nothing happens before.
    pub fn next_deadline(&self) -> Option<Time> {
        // Without Redis nothing can be tried again: its return is an event.
        let refused = self.refused_due.filter(|_| self.intake.is_online());
        let share = match self.mode {
            Mode::Share { until } if !self.isolated.is_empty() => Some(until),
            _ => None,
        };
        // An attempt that does not end is no event.
        let is_early = self.intake.is_online() && self.hands_back() && self.holds_more_than_start();
        let window = is_early.then(|| self.intake.rate.ends());
        let admission = self.admission_deadline();
        [refused, share, window, admission, self.intake_deadline()]
            .into_iter()
            .flatten()
            .min()
    }

    fn note(&mut self, note: Note) {
        self.out.push(Action::Note(note));
    }

    /// Whether a delivery that has not started can go back to the queue. If not, the host runs it,
    /// draining or not.
    ///
    /// A message that an at-most-once queue handed out is nowhere else. While the server is away, or after it refused to take
    /// something back, the host runs what it has: that loses nothing.
    fn hands_back(&self) -> bool {
        let is_only_copy = self.settings.policy.limit.at_most_once;
        let may_fail = !self.intake.is_online() || self.is_refused_back;
        self.settings.takes_back && !(is_only_copy && may_fail)
    }

    /// Whether nothing may start anymore: the host drains and hands back what it holds.
    fn is_closing(&self) -> bool {
        self.draining && self.hands_back()
    }

    /// Whether the operator has paused the queue: nothing is read, and what can go back goes back.
    pub fn is_paused(&self) -> bool {
        self.settings.paused
    }

    /// Whether a delivery in this lane goes back because the queue is paused. Rule 8: a suspect that must run
    /// isolated keeps its mark, so it stays here, with its lease renewed.
    fn pauses(&self, lane: Lane) -> bool {
        self.settings.paused && self.hands_back() && lane == Lane::Normal
    }

    /// Whether normal traffic may start, and new messages may be read. A paused host that cannot hand back what
    /// it holds runs it, and reads nothing.
    fn is_open(&self) -> bool {
        matches!(self.mode, Mode::Normal | Mode::Share { .. })
            && !self.is_closing()
            && !self.is_halted()
            && !self.pauses(Lane::Normal)
    }

    // What to read.

    fn take_in(&mut self, now: Time) {
        if self.draining && !self.hands_back() {
            self.take_leftovers();
            return;
        }
        if !self.intake.is_online() {
            return;
        }
        if !self.intake.renewing && now >= self.intake.next_renewal {
            self.renew(now);
        }
        if !self.is_open() || self.settings.paused {
            return;
        }
        let target = self.target();
        let work = self.work();
        let settling = self.holdings.counts().settling;
        if self.intake.fetching.is_none() && settling < SETTLING_MAX && !self.is_stopped() {
            let want = target.saturating_sub(work);
            // For a free slot the host asks at once; with work at hand it waits for a larger batch.
            if want > 0 && (work < self.capacity() || want >= target / 2) {
                // The first fetch must not wait: whether there is normal traffic decides when a
                // suspect may run.
                let wait = self.intake.caught_up;
                self.intake.fetch(want, wait);
                self.out.push(Action::Fetch { want, wait });
            }
        }
        if self.may_take_due() && now >= self.intake.next_due {
            let max = self.room_for_due();
            self.intake.taking_due = Some(max);
            self.out.push(Action::TakeDue { max });
        }
        if self.may_take_orphans() && now >= self.intake.next_orphans {
            let max = self.room_for_orphans();
            self.intake.taking_orphans = Some(max);
            self.intake.next_orphans = now + self.settings.orphan_scan;
            self.out.push(Action::TakeOrphans { max });
        }
    }

    /// Take what the queue took off the server before it stopped. This needs no server.
    fn take_leftovers(&mut self) {
        let want = self.target().saturating_sub(self.work());
        if self.leftovers == Leftovers::Unknown && self.intake.fetching.is_none() && want > 0 {
            self.leftovers = Leftovers::Asked;
            self.intake.fetch(want, false);
            self.out.push(Action::Fetch { want, wait: false });
        }
    }

    /// Whether the queue waits because a dead letter cannot be written, as the operator configured.
    fn is_stopped(&self) -> bool {
        self.holdings.stuck > 0
            && (self.settings.policy.dead_letters.stop_when_refused || self.effects_are_refused())
    }

    /// Whether Redis refused the effects of an attempt: those of the next one would wait as well.
    fn effects_are_refused(&self) -> bool {
        self.holdings.stuck > 0
            && self
                .holdings
                .iter()
                .any(|(_, held)| held.waits_with_effects())
    }

    fn may_take(&self) -> bool {
        !self.draining && self.is_open() && !self.is_stopped()
    }

    fn may_take_due(&self) -> bool {
        self.intake.taking_due.is_none() && self.may_take() && self.room_for_due() > 0
    }

    fn may_take_orphans(&self) -> bool {
        self.intake.taking_orphans.is_none()
            && self.isolated.len() < self.settings.concurrency
            && self.may_take()
            && self.room_for_orphans() > 0
    }

    /// How many due deliveries may come.
    fn room_for_due(&self) -> usize {
        self.room(FOR_DUE).saturating_sub(self.intake.coming())
    }

    /// How many orphans may come.
    fn room_for_orphans(&self) -> usize {
        let coming = self.intake.coming() + self.intake.taking_due.unwrap_or(0);
        self.room(FOR_ORPHANS).saturating_sub(coming)
    }

    fn room(&self, reserved: usize) -> usize {
        let reserved = reserved * usize::from(Rule::ReservedSlot.holds());
        (self.target() + reserved).saturating_sub(self.work())
    }

    fn intake_deadline(&self) -> Option<Time> {
        let intake = &self.intake;
        if !intake.is_online() {
            return None;
        }
        // A host without room waits for an attempt to end, not for a time that has passed.
        let due = self.may_take_due().then_some(intake.next_due);
        let orphans = self.may_take_orphans().then_some(intake.next_orphans);
        let renewal = (!intake.renewing && !self.is_empty()).then_some(intake.next_renewal);
        let halt = self.halt.filter(|halt| !halt.probing);
        let halt = halt.map(|halt| halt.until);
        [due, orphans, renewal, halt].into_iter().flatten().min()
    }

    /// How many deliveries to hold at most, not counting those that settle: about those that end soon, at least
    /// those that may start now, and at most `prefetch_max`. So a slow handler holds few messages, and a fast one reads
    /// hundreds in a round trip.
    fn target(&self) -> usize {
        if self.halt.is_some() {
            return 1;
        }
        let concurrency = self.settings.concurrency;
        self.soon(self.intake.rate.per_second)
            .clamp(self.least(), self.settings.prefetch_max.max(concurrency))
    }

    /// How many messages run, and may start now.
    fn startable(&self) -> usize {
        let capacity = self.capacity();
        if !self.is_open() {
            // A suspect runs isolated, or is about to: nothing else may start.
            return self.holdings.counts().out().min(capacity);
        }
        let (slots, messages) = self.occupied;
        if messages > self.holdings.counts().out() {
            // A call has ended since they were counted.
            return capacity;
        }
        let free = self.settings.concurrency.saturating_sub(slots);
        capacity.min(messages.saturating_add(free.saturating_mul(self.settings.batch)))
    }

    // What goes back.

    /// Rule 30: when attempts become slow, messages that do not start soon go back, the newest first.
    ///
    /// The rate changes from window to window, and what goes back costs Redis two scripts. So only what is more than
    /// twice of what ends soon goes back, by the better one of two windows: after three windows at the latest.
    fn give_back_excess(&mut self, now: Time) {
        if !self.holds_more_than_start() {
            self.intake.rate.idle();
        }
        self.intake.rate.measure(now);
        let Some(latest) = self.intake.rate.latest() else {
            return;
        };
        let is_wanted = self.intake.is_online() && self.hands_back() && self.halt.is_none();
        let most = self.soon(latest).saturating_mul(2);
        if !is_wanted || !self.holds_more_than_start() || self.unfinished() <= most {
            return;
        }
        if !Rule::ExcessGoesBack.holds() {
            return;
        }
        let rate = &mut self.intake.rate.per_second;
        *rate = rate.min(latest);
        let mut excess = self.excess();
        while excess > 0
            && let Some(key) = self.ready.pop_back()
        {
            if self.holdings.is_waiting(key) {
                self.hand_back(key);
                excess -= 1;
            }
        }
        if excess > 0 {
            let last = self.holdings.last_released().into_iter().take(excess);
            self.out.extend(last.map(Action::Revoke));
        }
    }

    /// How many deliveries are beyond what the host should hold.
    fn excess(&self) -> usize {
        self.unfinished().saturating_sub(self.target())
    }

    /// Whether some of what the host holds may have to wait for an attempt to end. Messages in reserved places may.
    fn holds_more_than_start(&self) -> bool {
        self.unfinished() > self.least() + FOR_ORPHANS
    }

    /// How many deliveries wait for their attempt, or for its end, not counting suspects that wait for their turn.
    fn unfinished(&self) -> usize {
        self.work() - self.holdings.counts().refused
    }

    /// How many attempts end in [`Settings::ahead`] at this rate.
    fn soon(&self, per_second: f64) -> usize {
        Self::within(per_second, self.settings.ahead)
    }

    /// How many attempts end in a time at this rate.
    fn within(per_second: f64, time: Time) -> usize {
        let ahead = per_second * time.as_secs_f64();
        // A rate is far below 2^52: the cast is exact enough, and saturates.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a non-negative rate; the cast saturates, also where it is infinite"
        )]
        let ahead = ahead as usize;
        ahead
    }

    /// What all slots can take at once: several deliveries each if the handler takes batches, but no
    /// more than the prefetch allows.
    fn capacity(&self) -> usize {
        let Settings {
            concurrency,
            batch,
            prefetch_max,
            ..
        } = self.settings;
        concurrency
            .saturating_mul(batch)
            .min(prefetch_max.max(concurrency))
    }

    /// How many held deliveries are not decided yet, not counting suspects that wait for their turn.
    fn work(&self) -> usize {
        let counts = self.holdings.counts();
        // Keys of closed holdings may be among them.
        let suspects = self.isolated.iter();
        let suspects = suspects.filter(|key| self.holdings.is_waiting(**key));
        counts.waiting + counts.out() + counts.refused - suspects.count()
    }

    /// Renew the lease of every delivery that may start, runs, or waits for its settlement.
    fn renew(&mut self, now: Time) {
        self.intake.next_renewal = now + self.settings.min_idle / 3;
        let held = self.holdings.iter();
        let keys: Vec<Key> = held
            .filter(|(_, held)| !matches!(held.state, State::Settling { .. }))
            .map(|(key, _)| key)
            .collect();
        if !keys.is_empty() {
            self.intake.renewing = true;
            self.out.push(Action::Renew(keys));
        }
    }

    // What may run.

    fn advance_mode(&mut self, now: Time) {
        if let Mode::Share { until } = self.mode
            && (now >= until || self.is_idle())
        {
            self.mode = Mode::Normal;
        }
        if self.mode == Mode::Normal && self.is_open() && self.has_suspect(now) {
            self.mode = Mode::Quiescing { since: now };
            if self.intake.fetching.is_some() {
                self.out.push(Action::Interrupt);
            }
        }
        // A suspect may end this host, and a message whose effects wait would be charged for that.
        if let Mode::Quiescing { since } = self.mode {
            self.hand_back_reruns();
            if self.in_flight() == 0 && !self.effects_are_refused() {
                self.begin_isolated_run(now, since);
            }
        }
    }

    /// Rule 7: a message that waits to run again is charged, and a suspect may end this host. It goes
    /// back without its charge.
    fn hand_back_reruns(&mut self) {
        if !self.settings.checked_acks {
            return;
        }
        let is_rerun = |&key: &Key| self.holdings.waits_to_run_again(key);
        let waiting = self.ready.iter().copied().chain(self.admissions.waiting());
        let reruns: Vec<Key> = waiting.filter(is_rerun).collect();
        if !reruns.is_empty() {
            self.ready.retain(|key| !reruns.contains(key));
            for key in reruns {
                self.hand_back(key);
            }
        }
    }

    fn begin_isolated_run(&mut self, now: Time, since: Time) {
        self.isolated.retain(|key| self.holdings.is_waiting(*key));
        let mut suspects = self.isolated.iter();
        let first = suspects.position(|key| self.is_admitted(since, *key));
        if let Some(key) = first.and_then(|place| self.isolated.remove(place)) {
            self.mode = Mode::Isolated { key, since };
            self.note(Note::IsolatedRunBegan(key));
            self.release_one(key);
            return;
        }
        // All suspects were closed meanwhile.
        self.share(now, now.saturating_sub(since));
    }

    /// Rule 9: normal traffic gets so much time, if there is any. What came while intake paused is not known yet.
    fn share(&mut self, now: Time, time: Time) {
        self.mode = Mode::Share { until: now + time };
        self.intake.caught_up = false;
        self.intake.found_nothing = false;
        self.intake.due_in(now, Time::ZERO);
    }

    /// Rules 7 and 9: the isolated run is over (confirmed, refused, or the delivery went another way).
    /// Normal traffic gets at least as long as intake had paused.
    fn suspect_done(&mut self, now: Time, key: Key) {
        if let Mode::Isolated {
            key: suspect,
            since,
        } = self.mode
            && suspect == key
        {
            let took = now.saturating_sub(since);
            self.note(Note::IsolatedRunEnded { key, took });
            self.mode = Mode::Normal;
            if Rule::FairShare.holds() {
                self.share(now, took);
            }
        }
    }

    /// Whether a suspect waits for its run, and may start.
    fn has_suspect(&mut self, now: Time) -> bool {
        while let Some(key) = self.isolated.front()
            && !self.holdings.is_waiting(*key)
        {
            self.isolated.pop_front();
        }
        let mut suspects = self.isolated.iter();
        suspects.any(|key| self.holdings.is_waiting(*key) && self.is_admitted(now, *key))
    }

    /// Rule 7: records and unconfirmed settlements count as in flight. A settlement that Redis refused
    /// does not: otherwise a full dead-letter queue would stop every suspect.
    fn in_flight(&self) -> usize {
        let settling = if Rule::IsolationAwaitsSettlements.holds() {
            self.holdings.unconfirmed()
        } else {
            0
        };
        self.holdings.counts().out() + settling
    }

    /// Whether there is no normal traffic: the last fetch brought nothing, no due delivery is asked for, and the host
    /// holds only suspects.
    fn is_idle(&self) -> bool {
        let is_coming = self.intake.taking_due.is_some();
        let is_waiting = !self.ready.is_empty() || self.waits_for_admission();
        self.intake.found_nothing && !is_coming && self.in_flight() == 0 && !is_waiting
    }

    /// Give the executor what is ready. While attempts are short, a start that needs a record is recorded
    /// first, together with others. While they are long, its slot asks before it starts, so that a crash charges few.
    fn release(&mut self, now: Time) {
        if self.admissions.is_limited {
            return self.release_admitted(now);
        }
        if !self.is_open() {
            return;
        }
        while !self.is_trying()
            && !self.effects_are_refused()
            && let Some(&key) = self.ready.front()
            && self.release_one(key)
        {
            self.ready.pop_front();
        }
    }

    /// Give the executor a delivery that waits, or record its start ahead. False: it must wait until fewer starts
    /// are recorded ahead.
    fn release_one(&mut self, key: Key) -> bool {
        let is_waiting = |state: &State| matches!(state, State::Waiting);
        let Some(held) = self.holdings.find_in(key, is_waiting) else {
            return true;
        };
        let leased = held.leased;
        let start = match self.settings.policy.limit.next_start(held.counts) {
            NextStart::Start(start) if !held.doubtful && !held.last.is_void => Some(start),
            NextStart::Start(_) | NextStart::Exhausted { .. } => None,
        };
        let attempt = match start {
            Some(start) if start.record.is_none() => Some(start.attempt),
            Some(start) if self.may_record_ahead(key) => {
                let has_room = self.has_room_ahead();
                if has_room {
                    self.record(key, start, true);
                }
                return has_room;
            }
            Some(_) | None => None,
        };
        self.give(key, attempt, self.admissions.leased(leased), false);
        true
    }

    /// Whether the next start of this delivery may be recorded before a slot is free for it.
    fn may_record_ahead(&self, key: Key) -> bool {
        let is_allowed = self.holdings.find(key).is_some_and(|held| {
            let limit = self.settings.policy.limit;
            held.lane == Lane::Normal && limit.may_record_ahead(held.counts.header)
        });
        let is_allowed = is_allowed && !self.admissions.is_limited;
        is_allowed && self.halt.is_none() && self.recorded_ahead_max() >= 2 * self.capacity()
    }

    /// How many starts may be recorded before a slot is free for them: about those that begin soon. A crash charges
    /// them.
    fn recorded_ahead_max(&self) -> usize {
        let soon = self.soon(self.intake.rate.per_second);
        soon.min(self.settings.prefetch_max)
    }

    /// Whether another start may be recorded ahead. When there were enough, half of them must begin first.
    fn has_room_ahead(&mut self) -> bool {
        let max = self.recorded_ahead_max();
        let bound = if self.records_ahead { max } else { max / 2 };
        self.records_ahead = self.holdings.counts().ahead < bound;
        self.records_ahead
    }

    /// Give this delivery to the executor.
    fn give(&mut self, key: Key, attempt: Option<u32>, leased: Time, is_ahead: bool) {
        self.released += 1;
        let state = State::Released {
            attempt,
            place: self.released,
            is_ahead,
        };
        self.holdings.set(key, state);
        self.out.push(Action::Release {
            key,
            attempt,
            leased,
        });
    }

    // Whether the handler can be run.

    /// Whether the host has stopped because the handler cannot be run.
    pub fn cannot_run(&self) -> bool {
        self.halt.is_some()
    }

    /// Whether the running version is unfit. A shortage of instances does not count: it may pass.
    pub fn needs_another_version(&self) -> bool {
        let unfit = |cause| matches!(cause, HaltCause::Broken | HaltCause::Panics);
        self.halt.is_some_and(|halt| unfit(halt.cause))
    }

    /// Whether this holding tests if a handler that faulted on everything works now.
    pub fn is_probe(&self, key: Key) -> bool {
        self.halt.is_some_and(|halt| {
            let is_new = key.generation > halt.after || !self.hands_back();
            halt.cause == HaltCause::Broken && halt.probing && is_new
        })
    }

    /// An attempt ended while the handler counts as one that cannot be run. Only a success of the
    /// current version ends the halt; a fault of any version prolongs it.
    fn tried(&mut self, now: Time, key: Key, outcome: &Outcome, is_current: bool) {
        let Some(halt) = self.halt else {
            return;
        };
        match (halt.cause, outcome) {
            (HaltCause::Panics, _) => {}
            (HaltCause::Broken, _) if !self.is_probe(key) => {}
            (HaltCause::Broken, Outcome::Fault(fault)) => {
                let detail = format!("the message that was tried faulted: {fault}");
                self.halt(now, HaltCause::Broken, detail);
            }
            _ if is_current => self.resume(),
            _ => {}
        }
    }

    /// The handler can be run, or another one runs.
    fn resume(&mut self) {
        if self.halt.take().is_some() {
            self.note(Note::Resumed);
        }
    }

    /// Stop intake, and try one message at growing intervals.
    fn halt(&mut self, now: Time, cause: HaltCause, detail: String) {
        let tries = self.halt.map_or(0, |halt| halt.tries) + 1;
        let second = Duration::from_secs(1);
        let again = match cause {
            HaltCause::Panics => Duration::MAX,
            // A try charges no message.
            HaltCause::Instance => Backoff::doubling(second, 4 * second).delay(tries, 0.0),
            // Each try is an attempt, and is charged.
            HaltCause::Broken => Backoff::doubling(second, 30 * second).delay(tries, 0.0),
        };
        // Several slots fail at once: that is one halt.
        if self.halt.is_none_or(|halt| halt.probing) {
            self.halt = Some(Halt {
                cause,
                until: now.saturating_add(again),
                probing: false,
                tries,
                after: self.holdings.newest(),
            });
            self.note(Note::Halted {
                cause,
                detail,
                again,
            });
            self.intake.caught_up = false;
        }
    }

    /// Whether nothing may start, not even a message that is tried.
    fn is_halted(&self) -> bool {
        self.halt.is_some_and(|halt| !halt.probing)
    }

    /// Whether one message is being tried, and the others wait for its outcome.
    fn is_trying(&self) -> bool {
        self.halt.is_some() && self.holdings.counts().out() > 0
    }

    /// Whether the host already holds a message to try: it tries one at a time.
    fn is_tried(&self) -> bool {
        self.halt.is_some() && self.work() > 1
    }
}
