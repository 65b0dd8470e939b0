//! One delivery, from its claim to its settlement.

use std::time::Duration;

use super::held::{Held, LastRun, Missing, Sent, State};
use super::{
    Action, Closed, Delivery, HaltCause, Key, Ledger, Mode, Note, Origin, Reply, SettleAction,
    Time, TurnedAway,
};
use crate::delivery::attempt::{AttemptCounts, Lane, NextStart, Start};
use crate::delivery::backoff::Backoff;
use crate::delivery::message::DeliveryId;
use crate::delivery::outcome::{FaultKind, Outcome};
use crate::delivery::policy::{Disposition, Policy, Reason, decide};
use crate::delivery::rules::Rule;

/// How long a refused settlement waits before it is tried again.
const REFUSED: Backoff = Backoff::doubling(Duration::from_millis(100), Duration::from_secs(4));

/// How often a message runs again because what it read had changed, before that counts as a nack.
const RERUNS_MAX: u32 = 32;
/// How many of the last settled deliveries are known: more than a host settles while it looks for orphans, as a rule.
const SETTLED_KEPT: usize = 4096;

impl<J> Ledger<J> {
    // Claimed.

    pub(super) fn accept_all(&mut self, now: Time, leased: Time, deliveries: Vec<Delivery<J>>) {
        for delivery in deliveries {
            self.accept(now, leased, delivery);
        }
    }

    /// A delivery was claimed. Rule 4: if the host already holds its id, the claim replaces that
    /// holding, or waits until the holding ends. But if the lease of that holding surely lasts, the
    /// claim is the older one, and its answer came late. A fetch that was sent before that lease is older, too: a
    /// group hands out each entry once. A claim of what was parked is newer if it was sent after that holding began, and
    /// after its lease was last confirmed: another host had the delivery in between, and parked it. The clock of the server may
    /// have jumped, so the lease does not say that.
    fn accept(&mut self, now: Time, leased: Time, delivery: Delivery<J>) {
        let min_idle = self.settings.min_idle;
        let Some(old) = self.holdings.by_id(delivery.id) else {
            self.hold(now, leased, delivery);
            return;
        };
        let key = Key {
            id: delivery.id,
            generation: old.generation,
        };
        let (lasts, replaceable) = match old.state {
            State::Waiting => (true, true),
            State::Released { .. } | State::Recording { .. } | State::Running { .. } => {
                (true, false)
            }
            // This host has sent the delivery away, and it may have come back.
            State::Settling { .. } => (false, false),
            // The same, if a try had no answer. If not, each was refused, and it is still this host's. If it
            // was to end here, it stays given up.
            State::Refused { ref sent, .. } => (sent.ends() || !old.is_unanswered, true),
        };
        let is_released = matches!(old.state, State::Released { .. });
        let is_sure = old.lost.is_none() && old.successor.is_none() && !old.doubtful;
        let is_older = delivery.origin == Origin::Fresh && leased < old.leased;
        // Redis may hand out what this host holds again, while it does not know that the host has it: then the lease was
        // confirmed behind that.
        let is_newer = delivery.origin == Origin::Returned && leased > old.since.max(old.leased);
        let is_leased = is_older || now.saturating_sub(old.leased) < min_idle;
        if lasts && is_sure && is_leased && !is_newer {
            let key = self.holdings.next_key(delivery.id);
            self.superseded(key, delivery.job);
        } else if replaceable || (!is_released && !Rule::OneRunAtATime.holds()) {
            let delivery = delivery.again(old.least_native(), old.lane);
            self.close(now, key, Closed::Superseded);
            self.hold_again(now, leased, delivery);
        } else {
            old.successor = Some(Box::new((delivery, leased)));
            if is_released {
                self.out.push(Action::Revoke(key));
            }
        }
    }

    /// Hold a delivery that was claimed while this host held it. A settlement of the earlier holding
    /// may have come after the claim, and sent the delivery away again.
    fn hold_again(&mut self, now: Time, leased: Time, delivery: Delivery<J>) {
        let id = delivery.id;
        self.hold(now, leased, delivery);
        if let Some(held) = self.holdings.by_id(id) {
            held.doubtful = true;
            held.owned = None;
        }
    }

    fn hold(&mut self, now: Time, leased: Time, delivery: Delivery<J>) {
        let limit = self.settings.policy.limit;
        let fresh = delivery.origin == Origin::Fresh;
        // This host may have adopted an own one, and have settled it, or sent it away, since. An earlier attempt of
        // this host may have acknowledged late what it takes back now. And an earlier claim of what came to this host
        // again may have had its answer first, and its start may be recorded.
        let is_unsure = !fresh && self.may_be_older(&delivery, leased);
        let counts = AttemptCounts {
            header: delivery.header,
            native: delivery.native,
            held: delivery.held,
            fresh,
        };
        let lane = match delivery.origin {
            Origin::Orphan { .. } if Rule::SuspectsRunIsolated.holds() => limit.orphan_lane(counts),
            Origin::Fresh | Origin::Returned | Origin::Orphan { .. } => Lane::Normal,
        };
        let is_doubtful = now.saturating_sub(leased) >= self.settings.min_idle / 2
            || self.sent_away_again.is_some_and(|at| leased <= at)
            || is_unsure;
        let key = self.holdings.next_key(delivery.id);
        let held = Held {
            generation: key.generation,
            job: delivery.job,
            counts,
            before: if fresh { 0 } else { delivery.native },
            lane,
            state: State::Waiting,
            since: now,
            leased,
            owned: Some(leased).filter(|_| !is_doubtful),
            doubtful: is_doubtful,
            lost: None,
            missing: Missing::No,
            successor: None,
            was_refused: false,
            is_unanswered: false,
            is_checked: self.settings.checked_acks || delivery.is_awaited,
            last: LastRun {
                attempt: 0,
                lane,
                before: 0,
                is_void: false,
                reruns: 0,
            },
            admitted: None,
            reserved: None,
        };
        self.holdings.insert(delivery.id, held);
        let turned_away = delivery.turned_away;
        if let Some(turned_away) = turned_away.filter(|_| Rule::TurnedAwayNeverStarts.holds()) {
            let disposition = match turned_away {
                TurnedAway::Rejected(reason, detail) => {
                    let attempts = limit.attempts(counts);
                    self.settings.policy.turn_away(reason, detail, attempts)
                }
                TurnedAway::OtherGroup | TurnedAway::Duplicate => Disposition::Acknowledge,
            };
            self.dispose(now, key, disposition);
        } else if let NextStart::Exhausted { attempts } = limit.next_start(counts) {
            self.exhausted(now, key, attempts);
        } else if self.is_closing()
            || self.pauses(lane)
            || self.hands_back() && (self.is_halted() || self.is_tried())
        {
            self.hand_back(key);
        } else {
            self.enqueue(key, lane);
        }
    }

    fn enqueue(&mut self, key: Key, lane: Lane) {
        match lane {
            Lane::Normal => self.ready.push_back(key),
            // The suspects with the fewest charges run first: a message that keeps killing its hosts,
            // and that no cap ends, comes behind every innocent that it made a suspect.
            Lane::Isolated => {
                if let Some(held) = self.holdings.find_mut(key) {
                    // Rule 39: it is admitted anew.
                    held.admitted = None;
                }
                let charges = |key| self.holdings.find(key).map_or(0, |held| held.counts.native);
                let own = charges(key);
                let place = self.isolated.iter().position(|&other| charges(other) > own);
                let place = place.unwrap_or(self.isolated.len());
                self.isolated.insert(place, key);
            }
        }
    }

    fn exhausted(&mut self, now: Time, key: Key, attempts: u32) {
        let detail = "no start is left: its hosts died, or its retry-count header says so";
        let disposition = self.settings.policy.exhausted(attempts, detail.to_owned());
        self.dispose(now, key, disposition);
    }

    // From the executor to a start.

    /// A slot has the delivery, and waits. Rule 2: its start is recorded first. A first delivery comes
    /// here only if its lease must be confirmed.
    pub(super) fn slot_ready(&mut self, now: Time, key: Key) {
        let is_closing = self.is_closing();
        let is_released = |state: &State| matches!(state, State::Released { .. });
        let Some(held) = self.holdings.find_in(key, is_released) else {
            self.out.push(Action::Deny(key));
            return;
        };
        let lane = held.lane;
        // Recorded ahead, its lease has become too old: it goes back without its charge.
        let is_ahead = held.state.is_ahead();
        let is_lost = held.lost.is_some() || held.successor.is_some();
        if is_lost || is_closing || is_ahead || self.pauses(lane) {
            self.out.push(Action::Deny(key));
            self.revoked(now, key);
            return;
        }
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        if held.last.is_void {
            // Its start is recorded: owner and count are confirmed.
            let (attempt, record) = (held.last.attempt, None);
            self.record(key, Start { attempt, record }, false);
            return;
        }
        let is_sure = !held.doubtful && !self.is_old(now, held.leased);
        match self.settings.policy.limit.next_start(held.counts) {
            NextStart::Exhausted { attempts } => {
                self.out.push(Action::Deny(key));
                self.exhausted(now, key, attempts);
            }
            NextStart::Start(start) if start.record.is_some() && !is_sure => {
                // The count may have changed since this host read it.
                let record = None;
                self.record(key, Start { record, ..start }, false);
            }
            NextStart::Start(start) => self.record(key, start, false),
        }
    }

    /// Record a start. If there is nothing to write, confirm count and lease.
    pub(super) fn record(&mut self, key: Key, start: Start, is_ahead: bool) {
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        let expect = held.counts.native;
        let write = start.record.unwrap_or(expect);
        if !held.is_asked_back() {
            self.out.push(Action::Record { key, expect, write });
        }
        let state = State::Recording {
            start,
            write,
            is_ahead,
        };
        self.holdings.set(key, state);
    }

    /// Rule 12: a lease that was last confirmed this long ago may have ended since.
    fn is_old(&self, now: Time, leased: Time) -> bool {
        Rule::LeaseBeforeStart.holds() && now.saturating_sub(leased) >= self.settings.min_idle
    }

    pub(super) fn recorded(&mut self, now: Time, key: Key, leased: Time, reply: Reply) {
        let is_closing = self.is_closing();
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        let State::Recording {
            write,
            start,
            is_ahead,
        } = held.state
        else {
            return;
        };
        let lane = held.lane;
        let is_record = start.record.is_some();
        if self.bring_back(now, key, &reply) {
            return;
        }
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        // If an earlier record was written and its reply was lost, this one finds its count written.
        // That count is surely this host's own only while the lease cannot have ended. Otherwise it
        // may be the charge of a host that had the delivery in between.
        let is_unsure = is_record && self.is_old(now, held.leased);
        match reply {
            Reply::Done if is_unsure => {
                self.deny(key, is_ahead);
                self.close_or_succeed(now, key, Closed::Stolen);
            }
            // No start has used the written count: the successor may use it.
            Reply::Done if held.successor.is_some() => {
                self.deny(key, is_ahead);
                self.revoked(now, key);
            }
            Reply::Done => {
                let Some(held) = self.holdings.find_mut(key) else {
                    return;
                };
                held.counts.native = write;
                held.counts.fresh &= !is_record;
                held.leased = leased;
                held.owned = Some(leased);
                held.doubtful = false;
                held.missing = Missing::No;
                let (counts, is_void) = (held.counts, held.last.is_void);
                if is_record {
                    self.note(Note::Recorded);
                }
                if is_closing || is_ahead && (self.is_halted() || self.pauses(lane)) {
                    // Recorded, but not started: the hand-back restores the count.
                    self.deny(key, is_ahead);
                    self.revoked(now, key);
                } else if self.is_admission_old(now, key) {
                    self.deny(key, is_ahead);
                    if !self.close_if_lost(now, key) {
                        self.hand_back(key);
                    }
                } else if is_ahead {
                    self.give(key, Some(start.attempt), leased, true);
                } else if is_record {
                    self.start(key, start.attempt);
                } else if self.is_old(now, leased) {
                    self.record(key, start, false);
                } else if is_void {
                    self.start(key, start.attempt);
                } else {
                    match self.settings.policy.limit.next_start(counts) {
                        NextStart::Start(next) if next.record.is_some() => {
                            self.record(key, next, false);
                        }
                        NextStart::Start(_) => self.start(key, start.attempt),
                        // The cap was lowered after the slot asked.
                        NextStart::Exhausted { attempts } => {
                            self.out.push(Action::Deny(key));
                            self.exhausted(now, key, attempts);
                        }
                    }
                }
            }
            Reply::Refused(cause) => {
                let sent = Sent::Settlement(held.way_back());
                self.deny(key, is_ahead);
                self.refused(now, key, cause, sent, 0);
            }
            Reply::Duplicate => {
                self.deny(key, is_ahead);
                if !self.close_if_lost(now, key) {
                    self.dispose(now, key, Disposition::Acknowledge);
                }
            }
            Reply::Gone | Reply::Trimmed | Reply::Stolen | Reply::Changed | Reply::Unfit(_) => {
                self.deny(key, is_ahead);
                let how = self.closed_by(key, reply);
                self.close_or_succeed(now, key, how);
            }
        }
    }

    /// The slot that waits for this record, if one does, lets the delivery go.
    fn deny(&mut self, key: Key, is_ahead: bool) {
        if !is_ahead {
            self.out.push(Action::Deny(key));
        }
    }

    fn start(&mut self, key: Key, attempt: u32) {
        self.holdings.set(key, State::Running { attempt });
        self.out.push(Action::Go { key, attempt });
    }

    /// The slot could start the delivery, and did not: its record waited for other records of its
    /// batch, and its lease became too old. The delivery goes back as if it had not been recorded.
    /// Redis makes sure that this takes back only that charge, and only while the delivery is still
    /// this host's.
    pub(super) fn unstarted(&mut self, now: Time, key: Key) {
        let is_running = |state: &State| matches!(state, State::Running { .. });
        if self.holdings.find_in(key, is_running).is_some() && !self.close_if_lost(now, key) {
            self.hand_back(key);
        }
    }

    /// The delivery has not started, and comes back from the executor.
    pub(super) fn revoked(&mut self, now: Time, key: Key) {
        let is_here =
            |state: &State| matches!(state, State::Released { .. } | State::Recording { .. });
        let Some(held) = self.holdings.find_in(key, is_here) else {
            return;
        };
        // What is recorded ahead goes back, or it would stay charged while it waits.
        let (lane, is_ahead) = (held.lane, held.state.is_ahead());
        if self.close_if_lost(now, key) {
            return;
        }
        let goes_back = self.is_closing() || self.is_halted() || self.pauses(lane);
        let is_excess = lane == Lane::Normal && self.hands_back() && self.excess() > 0;
        if is_ahead || goes_back || is_excess {
            self.hand_back(key);
        } else {
            self.holdings.set(key, State::Waiting);
            self.enqueue(key, lane);
        }
    }

    /// An operator has taken the delivery off the queue. Later requests of this host for it find nothing.
    pub(super) fn cancelled(&mut self, now: Time, id: DeliveryId) {
        let Some(held) = self.holdings.by_id(id) else {
            return;
        };
        let generation = held.generation;
        let key = Key { id, generation };
        held.lost = Some(Closed::Cancelled);
        if let Some(successor) = held.successor.take() {
            self.superseded(key, successor.0.job);
        }
        match self.holdings.find(key).map(|held| &held.state) {
            Some(State::Waiting | State::Refused { .. }) => {
                self.close(now, key, Closed::Cancelled);
                self.suspect_done(now, key);
            }
            Some(State::Released { .. }) => {
                self.out.push(Action::Revoke(key));
                self.out.push(Action::Cut(key));
            }
            Some(State::Running { .. }) => self.out.push(Action::Cut(key)),
            // The answer of Redis ends it.
            Some(State::Recording { .. } | State::Settling { .. }) | None => {}
        }
    }

    /// An attempt was cut off.
    pub(super) fn cut_off(&mut self, now: Time, key: Key) {
        let has_run = |state: &State| {
            matches!(
                state,
                State::Running { .. }
                    | State::Released {
                        attempt: Some(_),
                        ..
                    }
            )
        };
        if self.holdings.find_in(key, has_run).is_some() {
            self.close_if_lost(now, key);
        }
    }

    /// Close a holding that another claim replaces, or whose lease was lost. Says whether it did.
    fn close_if_lost(&mut self, now: Time, key: Key) -> bool {
        let Some(held) = self.holdings.find(key) else {
            return false;
        };
        if held.successor.is_some() {
            self.close_or_succeed(now, key, Closed::Superseded);
        } else if let Some(how) = held.lost.clone() {
            self.close(now, key, how);
            self.suspect_done(now, key);
        } else {
            return false;
        }
        true
    }

    /// The gate turned the delivery away between its claim and its start.
    pub(super) fn turned_away(&mut self, now: Time, key: Key, reason: Reason, detail: String) {
        let is_released = |state: &State| matches!(state, State::Released { .. });
        let Some(held) = self.holdings.find_in(key, is_released) else {
            return;
        };
        if held.lost.is_some() || held.successor.is_some() || self.is_closing() {
            self.revoked(now, key);
            return;
        }
        let policy = &self.settings.policy;
        let mut counts = held.counts;
        if held.state.is_ahead() {
            // The recorded start does not happen.
            counts.native = held.before;
        }
        let attempts = policy.limit.attempts(counts);
        let disposition = policy.turn_away(reason, detail, attempts);
        self.dispose(now, key, disposition);
    }

    // After an attempt.

    pub(super) fn finished(
        &mut self,
        now: Time,
        key: Key,
        (outcome, told): (Outcome, Option<&str>),
        hold: Option<Duration>,
        is_current: bool,
        jitter: f64,
    ) {
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        // The rules may have changed since it started: its number stays.
        let (State::Running { attempt }
        | State::Released {
            attempt: Some(attempt),
            ..
        }) = held.state
        else {
            return;
        };
        // Where acks are checked, Redis knows whether one comes too late: unless the host knows it already.
        let is_cancelled = held.lost == Some(Closed::Cancelled);
        let is_acked = outcome == Outcome::Ack
            && !is_cancelled
            && (!self.checks_acks(key) || held.lost.is_none());
        if !is_acked && (held.lost.is_some() || held.successor.is_some()) {
            // Another holding or host decides about the delivery; Redis would refuse this outcome.
            let how = held.lost.clone().unwrap_or(Closed::Superseded);
            self.close_or_succeed(now, key, how);
            return;
        }
        if let Outcome::Fault(fault) = &outcome
            && fault.kind == FaultKind::Instantiation
        {
            if is_current {
                self.halt(now, HaltCause::Instance, fault.detail.clone());
            }
            // Rule 7: an isolated run ends when Redis has taken its message back.
            self.hand_back(key);
            if is_current {
                self.give_back_waiting();
            }
            return;
        }
        self.tried(now, key, &outcome, is_current);
        if let Some(held) = self.holdings.find_mut(key) {
            // The start is charged now. The delivery is no suspect any more: its handler has answered.
            held.counts.fresh = false;
            held.last = LastRun {
                attempt,
                lane: held.lane,
                before: held.before,
                is_void: false,
                reruns: match outcome {
                    Outcome::Ack => held.last.reruns,
                    _ => 0,
                },
            };
            held.before = held.counts.native;
            held.lane = Lane::Normal;
            held.admitted = None;
            held.reserved = None;
        }
        // Rule 31.
        if let (Some(after), Outcome::NackRequeue(_)) = (hold, &outcome)
            && let Some(counts) = self.holdings.find(key).map(|held| held.counts)
            && self.settings.policy.limit.may_hold(counts)
        {
            self.intake.due_in(now, after);
            let keep = counts.native;
            let hold = SettleAction::Hold {
                keep,
                after,
                attempt,
            };
            self.settle(key, hold);
            return;
        }
        let disposition = decide(&outcome, told, attempt, &self.settings.policy, jitter);
        self.dispose(now, key, disposition);
    }

    fn dispose(&mut self, now: Time, key: Key, disposition: Disposition) {
        match disposition {
            Disposition::Acknowledge if self.checks_acks(key) => {
                self.settle(key, SettleAction::Acknowledge);
            }
            Disposition::Acknowledge => self.send(key, Sent::Acknowledgement, 0),
            Disposition::Requeue { delay }
                if delay.is_zero()
                    && !self.draining
                    && !self.is_halted()
                    && !self.pauses(Lane::Normal) =>
            {
                // Rule 14: it stays here, behind what is ready; its next start is recorded.
                self.holdings.set(key, State::Waiting);
                self.ready.push_back(key);
                self.note(Note::RequeuedHere);
                self.suspect_done(now, key);
            }
            Disposition::Requeue { delay } => {
                self.intake.due_in(now, delay);
                let keep = self.holdings.find(key).map_or(0, |held| held.counts.native);
                self.settle(key, SettleAction::Park { keep, after: delay });
            }
            Disposition::DeadLetter(rejection) => {
                self.settle(key, SettleAction::DeadLetter(rejection));
            }
            Disposition::Discard(rejection) => self.settle(key, SettleAction::Discard(rejection)),
        }
    }

    /// Rule 22: a value that the attempt read has changed since, so it has had no effects. It runs again: its
    /// start is recorded, and stands for all its runs. Beyond [`RERUNS_MAX`] that is a nack.
    ///
    /// Rule 25: what is `unfit` to be written has had no effects either. That is a nack at once.
    fn void(&mut self, now: Time, key: Key, unfit: Option<String>) {
        let Some(held) = self.holdings.find_mut(key) else {
            return;
        };
        let gives_up = unfit.is_some() || held.last.reruns >= RERUNS_MAX;
        // It is as it was: no earlier try was carried out.
        held.is_unanswered = false;
        if gives_up {
            held.last.reruns = 0;
        } else {
            held.last.reruns += 1;
            if Rule::RerunsAreUncharged.holds() {
                held.last.is_void = true;
                held.before = held.last.before;
                // A suspect stays one: its last start may be at stake.
                held.lane = held.last.lane;
            }
        }
        let successor = held.successor.take();
        if std::mem::take(&mut held.was_refused) {
            self.holdings.stuck -= 1;
        }
        self.note(match unfit.clone() {
            Some(cause) => Note::Unfit { key, cause },
            None => Note::Changed { key, gives_up },
        });
        if let Some(successor) = successor {
            // Redis has just found owner and count as they were, so that claim was of this holding. If not, the
            // next start finds out.
            let other = self.holdings.next_key(key.id);
            self.superseded(other, successor.0.job);
        }
        if self.close_if_lost(now, key) {
            return;
        }
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        if gives_up {
            let attempt = held.last.attempt;
            // Nothing is random here: messages that meet again and again have other generations.
            let jitter = f64::from(u8::try_from(key.generation % 100).unwrap_or(0)) / 100.0;
            let policy = &self.settings.policy;
            let disposition = match unfit {
                Some(cause) => policy.unfit(cause, attempt, jitter),
                None => policy.changed_too_often(attempt, jitter),
            };
            self.dispose(now, key, disposition);
        } else if self.is_closing() || self.is_halted() || self.pauses(held.lane) {
            self.hand_back(key);
        } else {
            let lane = held.lane;
            self.holdings.set(key, State::Waiting);
            match self.mode {
                // Rule 7: its isolated run goes on.
                Mode::Isolated { key: suspect, .. } if suspect == key => {
                    match self.admissions.is_limited {
                        // Rule 39: its next start is admitted by itself, and nobody waits for that, empty.
                        true => self.hand_back(key),
                        false => drop(self.release_one(key)),
                    }
                }
                _ => self.enqueue(key, lane),
            }
        }
    }

    /// Rule 20: whether an acknowledgement is a settlement.
    fn checks_acks(&self, key: Key) -> bool {
        self.holdings.find(key).is_some_and(|held| {
            held.is_checked && (Rule::AcksWithEffectsAreChecked.holds() || held.lost.is_none())
        })
    }

    /// A delivery that did not start goes back to the queue, due now. If it cannot, it waits here instead.
    pub(super) fn hand_back(&mut self, key: Key) {
        if !self.hands_back() {
            self.holdings.set(key, State::Waiting);
            self.ready.push_front(key);
        } else if let Some(action) = self.holdings.find(key).map(Held::way_back) {
            self.settle(key, action);
        }
    }

    /// Rule 39: it may start after this time, and goes back until then.
    pub(super) fn put_off(&mut self, now: Time, key: Key, after: Duration) {
        let Some(SettleAction::HandBack { keep, .. }) = self.holdings.find(key).map(Held::way_back)
        else {
            return;
        };
        self.intake.due_in(now, after);
        self.settle(key, SettleAction::HandBack { keep, after });
    }

    fn settle(&mut self, key: Key, action: SettleAction) {
        self.send(key, Sent::Settlement(action), 0);
    }

    fn send(&mut self, key: Key, sent: Sent, tries: u32) {
        let action = sent.clone();
        let Some(held) = self.holdings.set(key, State::Settling { sent, tries }) else {
            return;
        };
        if !held.is_asked_back() {
            let count = held.counts.native;
            self.out.push(match action {
                Sent::Acknowledgement => Action::Acknowledge(key),
                Sent::Settlement(action) => Action::Settle { key, count, action },
            });
        }
    }

    pub(super) fn settled(&mut self, now: Time, key: Key, reply: Reply) {
        let Some(held) = self.holdings.find(key) else {
            return;
        };
        let State::Settling { sent, tries } = &held.state else {
            return;
        };
        let (sent, tries) = (sent.clone(), *tries);
        let is_repeated = held.is_unanswered;
        if sent != Sent::Acknowledgement && self.bring_back(now, key, &reply) {
            return;
        }
        let how = match (reply, sent) {
            // Its request found nothing.
            (_, _) if self.was_cancelled(key) => Closed::Cancelled,
            (Reply::Unfit(cause), Sent::Settlement(SettleAction::Acknowledge))
                if Rule::UnfitEffectsFail.holds() =>
            {
                self.void(now, key, Some(cause));
                return;
            }
            (Reply::Refused(_), Sent::Settlement(SettleAction::HandBack { .. }))
                if self.settings.policy.limit.at_most_once =>
            {
                // Nothing went back, and this is the only copy: it runs here.
                self.is_refused_back = true;
                self.hand_back(key);
                return;
            }
            (Reply::Refused(cause) | Reply::Unfit(cause), sent) => {
                let in_force = sent.clone().under(&self.settings.policy);
                if in_force == sent {
                    self.refused(now, key, cause, sent, tries);
                } else {
                    // The rules changed while it was under way: what they say was not tried yet.
                    self.send(key, in_force, tries);
                }
                return;
            }
            (Reply::Changed, Sent::Settlement(SettleAction::Acknowledge)) => {
                self.void(now, key, None);
                return;
            }
            // If an entry is trimmed after its handler has acknowledged it, nothing is lost.
            (Reply::Done | Reply::Trimmed | Reply::Gone, Sent::Acknowledgement) => {
                Closed::Acknowledged
            }
            // The group was made again without the delivery: no earlier try can have settled it there.
            (Reply::Done, Sent::Settlement(_)) if self.was_trimmed(key) => Closed::Trimmed,
            (Reply::Done, Sent::Settlement(action)) => Closed::Settled(action),
            // If another host had taken it over, it would be pending there. (On a stream, that host may
            // also have settled it since: only if a settlement had no answer for `min_idle`.)
            (Reply::Gone, Sent::Settlement(action)) if is_repeated && !self.was_trimmed(key) => {
                Closed::Settled(action)
            }
            (reply, _) => self.closed_by(key, reply),
        };
        let is_away = match &how {
            Closed::Stolen => true,
            // A claim of meanwhile may have come from where this host parked the delivery. If not,
            // Redis says so before the start.
            Closed::Settled(action) => action.parking().is_some(),
            _ => false,
        };
        if is_away {
            if is_repeated {
                self.sent_away_again = Some(now);
            }
            self.close_or_succeed(now, key, how);
            return;
        }
        // The delivery is settled for good, and so is a holding that came in between.
        if let Some(successor) = self.close(now, key, how) {
            self.superseded(key, successor.0.job);
        }
        self.suspect_done(now, key);
    }

    /// A try of a settlement had no answer. It may have been carried out, and so no later try takes a
    /// charge back. The delivery may be gone because of it.
    pub(super) fn unanswered(&mut self, key: Key) {
        let Some(held) = self.holdings.find_mut(key) else {
            return;
        };
        let count = held.counts.native;
        if let State::Settling {
            sent: Sent::Settlement(action),
            ..
        } = &mut held.state
        {
            *action = action.clone().again(count);
            held.is_unanswered = true;
        }
    }

    /// Redis refused to write a record or a settlement: try `sent` again later.
    fn refused(&mut self, now: Time, key: Key, cause: String, sent: Sent, tries: u32) {
        let tries = tries + 1;
        let wait = REFUSED.delay(tries, 0.0);
        let again = now + wait;
        let is_dead_letter = matches!(sent, Sent::Settlement(SettleAction::DeadLetter(_)));
        self.note(Note::SettlementRefused {
            key,
            cause,
            is_dead_letter,
            again: wait,
        });
        let has_effects = matches!(sent, Sent::Settlement(SettleAction::Acknowledge));
        self.holdings
            .set(key, State::Refused { sent, tries, again });
        if let Some(held) = self.holdings.find_mut(key)
            && !std::mem::replace(&mut held.was_refused, true)
        {
            self.holdings.stuck += 1;
            if has_effects {
                self.take_back_released();
            }
        }
        self.refused_due = Some(self.refused_due.map_or(again, |due| due.min(again)));
        // While effects are refused nothing starts: the isolated run goes on until they are accepted.
        if !has_effects {
            self.suspect_done(now, key);
        }
    }

    pub(super) fn retry_refused(&mut self, now: Time) {
        if self.refused_due.is_none_or(|due| due > now) || !self.intake.is_online() {
            return;
        }
        let mut due = Vec::new();
        let mut next: Option<Time> = None;
        for (key, held) in self.holdings.iter() {
            if let State::Refused { sent, tries, again } = &held.state {
                if *again <= now {
                    due.push((key, sent.clone(), *tries));
                } else {
                    next = Some(next.map_or(*again, |next| next.min(*again)));
                }
            }
        }
        self.refused_due = next;
        for (key, sent, tries) in due {
            self.send(key, sent, tries);
        }
    }

    /// How a holding closes after this reply. It may have been found trimmed before.
    fn closed_by(&self, key: Key, reply: Reply) -> Closed {
        match reply {
            _ if self.was_cancelled(key) => Closed::Cancelled,
            Reply::Gone if self.was_trimmed(key) => Closed::Trimmed,
            reply => closed_by(reply),
        }
    }

    fn was_cancelled(&self, key: Key) -> bool {
        let held = self.holdings.find(key);
        held.is_some_and(|held| held.lost == Some(Closed::Cancelled))
    }

    fn was_trimmed(&self, key: Key) -> bool {
        let held = self.holdings.find(key);
        held.is_some_and(|held| held.lost == Some(Closed::Trimmed))
    }

    /// Close a holding. Returns the claim of meanwhile.
    fn close(&mut self, now: Time, key: Key, how: Closed) -> Option<Box<(Delivery<J>, Time)>> {
        let held = self.holdings.remove(key)?;
        let job = held.job;
        let action = match &how {
            Closed::Settled(action) => Some(action),
            _ => None,
        };
        let kept = action.and_then(SettleAction::parking);
        if how != Closed::Superseded {
            self.note_settled(now, key.id, kept.map(|(kept, _)| kept));
        }
        self.out.push(Action::Closed { key, job, how });
        held.successor
    }

    fn superseded(&mut self, key: Key, job: J) {
        let how = Closed::Superseded;
        self.out.push(Action::Closed { key, job, how });
    }

    /// Close a holding; a claim of meanwhile takes its place.
    fn close_or_succeed(&mut self, now: Time, key: Key, how: Closed) {
        let successor = self.holdings.find_mut(key).and_then(|held| {
            let successor = held.successor.take()?;
            Some((successor, held.least_native(), held.lane))
        });
        if let Some((successor, native, lane)) = successor {
            let (delivery, leased) = *successor;
            let delivery = match how {
                // It may have gone back with a lower count.
                Closed::Settled(_) => delivery,
                _ => delivery.again(native, lane),
            };
            self.close(now, key, how);
            self.hold_again(now, leased, delivery);
        } else {
            self.close(now, key, how);
        }
        self.suspect_done(now, key);
    }

    /// This delivery went back with such a count, or is settled for good, or lost.
    fn note_settled(&mut self, now: Time, id: DeliveryId, kept: Option<u32>) {
        if self.settled_last.len() >= SETTLED_KEPT {
            self.settled_last.pop_front();
        }
        self.settled_last.push_back((now, id, kept));
    }

    /// Whether this claim may be older than the end of another holding of this host: that settled the delivery for good,
    /// lost it, or sent it away. What had its answer when the claim was sent came before. What was parked behind a claim
    /// has a count that the claim does not know.
    fn may_be_older(&self, delivery: &Delivery<J>, leased: Time) -> bool {
        let is_since = |(at, ..): &&(Time, DeliveryId, Option<u32>)| *at > leased;
        let is_older = |kept: Option<u32>| match delivery.origin {
            Origin::Fresh => false,
            Origin::Returned => kept.is_none_or(|kept| delivery.native < kept),
            Origin::Orphan { .. } => true,
        };
        let is_forgotten = self.settled_last.len() >= SETTLED_KEPT;
        let oldest = self.settled_last.front().filter(|_| is_forgotten);
        oldest.as_ref().is_some_and(is_since)
            || self
                .settled_last
                .iter()
                .rev()
                .take_while(is_since)
                .any(|&(_, id, kept)| id == delivery.id && is_older(kept))
    }

    // Everything that is held.

    /// Rule 26: a delivery is missing although its lease lasts, so no other host can have settled it. This host
    /// has not either. So it is not gone: this consumer was deleted, or an earlier owner has acknowledged it
    /// late. Says whether Redis is asked which.
    fn bring_back(&mut self, now: Time, key: Key, reply: &Reply) -> bool {
        let is_sure = self.lease_ends(key).is_some_and(|end| now < end) && self.hands_back();
        let Some(held) = self.holdings.find_mut(key) else {
            return false;
        };
        let is_known = held.lost.is_some() || held.is_unanswered || held.successor.is_some();
        if *reply != Reply::Gone
            || !is_sure
            || is_known
            || held.missing == Missing::Settled
            || !Rule::MissingIsBroughtBack.holds()
        {
            return false;
        }
        if std::mem::replace(&mut held.missing, Missing::Asked) == Missing::No {
            let count = held.counts.native;
            self.out.push(Action::BringBack { key, count });
        }
        true
    }

    /// Redis has looked for these deliveries: one that it does not hold now is not brought back again. `is_asked`: it was
    /// asked to bring them back.
    pub(super) fn looked_for(&mut self, replies: &[(Key, Reply)], is_asked: bool) {
        for (key, reply) in replies {
            if let Some(held) = self.holdings.find_mut(*key)
                && (is_asked || held.missing != Missing::Asked)
            {
                held.missing = match reply {
                    Reply::Done => Missing::No,
                    _ => Missing::Settled,
                };
            }
        }
    }

    /// Deliveries that were missing are held again, and what was under way goes on; or they are not.
    pub(super) fn brought_back(&mut self, now: Time, leased: Time, replies: Vec<(Key, Reply)>) {
        self.looked_for(&replies, true);
        for (key, reply) in replies {
            let Some(held) = self.holdings.find(key) else {
                continue;
            };
            match (held.state.clone(), reply) {
                // Rule 16: no try was carried out, so the rules in force decide, and not those of the first try.
                (State::Settling { sent, tries }, Reply::Done) => {
                    let in_force = sent.under(&self.settings.policy);
                    self.send(key, in_force, tries);
                }
                // A late one counts as well.
                (
                    State::Settling {
                        sent: sent @ Sent::Acknowledgement,
                        tries,
                    },
                    _,
                ) => self.send(key, sent, tries),
                (State::Recording { write, .. }, Reply::Done) => {
                    let expect = held.counts.native;
                    self.out.push(Action::Record { key, expect, write });
                }
                (State::Settling { .. }, reply) => self.settled(now, key, reply),
                (State::Recording { .. }, reply) => self.recorded(now, key, leased, reply),
                (_, reply) => self.confirmed(now, leased, vec![(key, reply)]),
            }
        }
    }

    /// Leases were confirmed, or found lost.
    pub(super) fn confirmed(&mut self, now: Time, leased: Time, replies: Vec<(Key, Reply)>) {
        let min_idle = self.settings.min_idle;
        let mut confirmed = 0;
        for (key, reply) in replies {
            let Some(held) = self.holdings.find_mut(key) else {
                continue;
            };
            let is_asking = matches!(held.state, State::Settling { .. } | State::Recording { .. });
            if !is_asking && self.bring_back(now, key, &reply) {
                continue;
            }
            let Some(held) = self.holdings.find_mut(key) else {
                continue;
            };
            match (reply, &held.state) {
                (Reply::Done, _) => {
                    confirmed += 1;
                    held.owned = held.owned.max(Some(leased));
                    // A lease that may have ended may have been with another host in between: then
                    // only a record that checks the count confirms it.
                    let is_sure = now.saturating_sub(held.leased) < min_idle;
                    if is_sure || !Rule::LeaseBeforeStart.holds() {
                        if held.missing == Missing::Settled {
                            held.missing = Missing::No;
                        }
                        held.leased = held.leased.max(leased);
                    }
                }
                // A refusal does not tell whether the lease lasts.
                (Reply::Refused(_), _) => {}
                // Redis reports a trimmed entry once. Later replies only say that it is gone.
                (Reply::Trimmed, State::Settling { .. } | State::Recording { .. }) => {
                    held.lost = Some(Closed::Trimmed);
                }
                // The reply to that request tells.
                (_, State::Settling { .. } | State::Recording { .. }) => {}
                // The record has confirmed a later lease than the one that this request asked for: it may have been
                // carried out before. The next one tells.
                (Reply::Stolen, State::Running { .. } | State::Released { .. })
                    if leased < held.leased =>
                {
                    self.intake.next_renewal = now;
                }
                (reply, State::Running { .. } | State::Released { .. }) => {
                    if held.lost.is_none() {
                        held.lost = Some(closed_by(reply));
                        let is_running = matches!(held.state, State::Running { .. });
                        self.out.push(match is_running {
                            true => Action::Note(Note::LeaseLost(key)),
                            false => Action::Revoke(key),
                        });
                    }
                }
                (reply, State::Waiting | State::Refused { .. }) => {
                    self.close(now, key, closed_by(reply));
                    self.suspect_done(now, key);
                }
            }
        }
        if confirmed > 0 {
            self.note(Note::LeasesRenewed(confirmed));
        }
    }

    /// New rules hold for every decision from now on. Refused settlements are tried again at once
    /// under the new rules: their dead letters may now go to another queue, or nowhere. A settlement
    /// that is under way follows the new rules if it is refused.
    pub(super) fn change_policy(&mut self, now: Time, policy: Policy) {
        self.settings.policy = policy;
        for held in self.holdings.iter_mut() {
            let State::Refused { sent, again, .. } = &mut held.state else {
                continue;
            };
            *again = now;
            self.refused_due = Some(now);
            *sent = sent.clone().under(&self.settings.policy);
        }
    }

    pub(super) fn drain(&mut self) {
        if self.draining {
            return;
        }
        self.draining = true;
        self.is_refused_back = false;
        if !matches!(self.mode, Mode::Isolated { .. }) {
            self.mode = Mode::Normal;
        }
        // Refused settlements get one more try at once.
        self.refused_due = Some(Time::ZERO);
        for held in self.holdings.iter_mut() {
            if let State::Refused { again, .. } = &mut held.state {
                *again = Time::ZERO;
            }
        }
        if self.intake.fetching.is_some() {
            self.out.push(Action::Interrupt);
        }
        if self.hands_back() {
            self.give_back_waiting();
        }
    }

    /// Paused: what has not started goes back with the count that it had, and running attempts end. An isolated
    /// run ends, too.
    pub(super) fn pause(&mut self, now: Time, paused: bool) {
        if std::mem::replace(&mut self.settings.paused, paused) == paused {
            return;
        }
        if !paused {
            self.intake.next_due = now;
            return;
        }
        if matches!(self.mode, Mode::Quiescing { .. }) {
            self.mode = Mode::Normal;
        }
        if self.intake.fetching.is_some() {
            self.out.push(Action::Interrupt);
        }
        for (key, state) in self.holdings.in_order().into_iter().rev() {
            let lane = self.holdings.find(key).map(|held| held.lane);
            if !lane.is_some_and(|lane| self.pauses(lane)) {
                continue;
            }
            match state {
                State::Waiting => self.hand_back(key),
                State::Released { .. } => self.out.push(Action::Revoke(key)),
                _ => {}
            }
        }
        if self.hands_back() {
            self.ready.clear();
        }
    }

    /// Take back what the executor has not started.
    fn take_back_released(&mut self) {
        for (key, state) in self.holdings.in_order() {
            if matches!(state, State::Released { .. }) {
                self.out.push(Action::Revoke(key));
            }
        }
    }

    /// Hand back what waits here, and take back what the executor has not started. The newest goes first: so the oldest
    /// one comes to the front of a list.
    pub(super) fn give_back_waiting(&mut self) {
        for (key, state) in self.holdings.in_order().into_iter().rev() {
            match state {
                State::Waiting if self.hands_back() => self.hand_back(key),
                State::Released { .. } => self.out.push(Action::Revoke(key)),
                _ => {}
            }
        }
        if self.hands_back() {
            self.ready.clear();
            self.isolated.clear();
        }
    }
}

impl<J> Delivery<J> {
    /// A delivery that was claimed while it was held. The claim may be older than that holding, and its
    /// answer late: so the counts that this host has written since, and its suspicion, stay.
    fn again(self, native: u32, lane: Lane) -> Self {
        let origin = match (lane, self.origin) {
            (Lane::Isolated, Origin::Fresh | Origin::Returned) => Origin::Orphan {
                idle: Duration::ZERO,
            },
            (Lane::Normal, Origin::Fresh) => Origin::Returned,
            (_, origin) => origin,
        };
        Self {
            native: native.max(self.native),
            origin,
            ..self
        }
    }
}

fn closed_by(reply: Reply) -> Closed {
    match reply {
        Reply::Gone | Reply::Done | Reply::Duplicate => Closed::Gone,
        Reply::Trimmed => Closed::Trimmed,
        Reply::Stolen | Reply::Changed | Reply::Unfit(_) | Reply::Refused(_) => Closed::Stolen,
    }
}
