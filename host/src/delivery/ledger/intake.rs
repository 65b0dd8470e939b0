//! What is read next, and how much of it.
//!
//! The prefetch adapts: about [`AHEAD`] of work at the measured rate, at least the free slots, at
//! most `prefetch_max`. Slow handlers hoard nothing; fast ones read hundreds per round trip.

use super::{Action, Key, Ledger, Leftovers, Settings, State, Time};
use crate::delivery::rules::Rule;

/// How much work is read ahead.
const AHEAD: Time = Time::from_millis(20);

/// Over how long the rate of finished attempts is measured.
const RATE_WINDOW: Time = Time::from_millis(20);

/// Unconfirmed settlements beyond which nothing more is read: Redis is slower than the handler.
const SETTLING_MAX: usize = 8192;

/// Places beyond the prefetch that only orphans and due deliveries may take, so that a saturated
/// host still takes them.
const RESERVED: usize = 1;

/// One scan brings no more orphans than this: scripts work in bounded chunks.
const SCAN_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct Intake {
    offline_since: Option<Time>,
    fetching: bool,
    taking_due: bool,
    /// How many orphans were asked for, while the answer is out.
    taking_orphans: Option<usize>,
    renewing: bool,
    caught_up: bool,
    next_due: Time,
    next_orphans: Time,
    next_renewal: Time,
    due_scan: Time,
    rate: Rate,
}

/// Finished attempts per second: an exponential average over windows.
#[derive(Debug)]
struct Rate {
    since: Time,
    finished: u32,
    per_second: f64,
}

impl Intake {
    pub(super) fn new(now: Time, settings: &Settings) -> Self {
        Self {
            offline_since: None,
            fetching: false,
            taking_due: false,
            taking_orphans: None,
            renewing: false,
            caught_up: false,
            next_due: now,
            next_orphans: now,
            next_renewal: now + settings.min_idle / 3,
            due_scan: settings.due_scan,
            rate: Rate {
                since: now,
                finished: 0,
                per_second: 0.0,
            },
        }
    }

    pub(super) fn is_online(&self) -> bool {
        self.offline_since.is_none()
    }

    pub(super) fn is_fetching(&self) -> bool {
        self.fetching
    }

    pub(super) fn has_caught_up(&self) -> bool {
        self.caught_up
    }

    /// No answer is outstanding that could bring a delivery.
    pub(super) fn is_quiet(&self) -> bool {
        !self.fetching && !self.taking_due && self.taking_orphans.is_none()
    }

    pub(super) fn fetched(&mut self, asked: usize, got: usize) {
        self.fetching = false;
        self.caught_up = got < asked;
    }

    pub(super) fn due_taken(&mut self, now: Time, next: Option<Time>) {
        self.taking_due = false;
        self.next_due = now + next.unwrap_or(self.due_scan).min(self.due_scan);
    }

    /// Something was parked that is due so soon.
    pub(super) fn due_in(&mut self, now: Time, delay: Time) {
        self.next_due = self.next_due.min(now + delay);
    }

    /// A full answer means that there are more: they are asked for at once.
    pub(super) fn orphans_taken(&mut self, now: Time, got: usize) {
        let asked = self.taking_orphans.take();
        if got > 0 && asked.is_some_and(|asked| got >= asked.min(SCAN_MAX)) {
            self.next_orphans = now;
        }
    }

    pub(super) fn renewed(&mut self) {
        self.renewing = false;
    }

    pub(super) fn finished(&mut self, now: Time) {
        self.rate.finished += 1;
        self.rate.measure(now);
    }

    pub(super) fn offline(&mut self, now: Time) {
        if self.offline_since.is_none() {
            self.offline_since = Some(now);
        }
    }

    /// Rule 12: after a reconnect a host renews first, and looks for orphans half a `min_idle`
    /// later, so that the others can renew as well. Not after a moment that can have cost nobody
    /// a lease: a connection that breaks now and then must not put the look off for ever.
    pub(super) fn online(&mut self, now: Time, min_idle: Time) {
        if let Some(since) = self.offline_since.take() {
            self.next_renewal = now;
            if now.saturating_sub(since) >= min_idle / 6 {
                self.next_orphans = now + min_idle / 2;
            }
        }
    }

    pub(super) fn halted(&mut self) {
        self.caught_up = false;
    }
}

impl Rate {
    fn measure(&mut self, now: Time) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= RATE_WINDOW {
            let measured = f64::from(self.finished) / elapsed.as_secs_f64();
            self.per_second = (self.per_second + measured) / 2.0;
            self.since = now;
            self.finished = 0;
        }
    }
}

impl<M> Ledger<M> {
    /// One message shows whether an instance can be made again.
    pub(super) fn advance_halt(&mut self, now: Time) {
        if let Some(halt) = &mut self.halt {
            halt.probing |= halt.until <= now;
        }
    }

    pub(super) fn take_in(&mut self, now: Time) {
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
        if !self.is_open() {
            return;
        }
        self.intake.rate.measure(now);
        let target = self.target();
        let work = self.work();
        if !self.intake.fetching && self.counts.settling < SETTLING_MAX && !self.is_stopped() {
            let want = target.saturating_sub(work);
            // A free slot asks at once; with work at hand a larger batch is worth waiting for.
            if want > 0 && (work < self.capacity() || want >= target / 2) {
                self.intake.fetching = true;
                // The first look must not wait: whether there is normal traffic decides when a
                // suspect may run.
                let wait = self.intake.caught_up;
                self.out.push(Action::Fetch { want, wait });
            }
        }
        let room = self.room();
        if self.may_take_due() && now >= self.intake.next_due {
            self.intake.taking_due = true;
            self.out.push(Action::TakeDue { max: room });
        }
        if self.may_take_orphans() && now >= self.intake.next_orphans {
            self.intake.taking_orphans = Some(room);
            self.intake.next_orphans = now + self.settings.orphan_scan;
            self.out.push(Action::TakeOrphans { max: room });
        }
    }

    /// What the queue took off the server before it stopped taking: no server is needed for it.
    fn take_leftovers(&mut self) {
        let want = self.target().saturating_sub(self.work());
        if self.leftovers == Leftovers::Unknown && !self.intake.fetching && want > 0 {
            self.leftovers = Leftovers::Asked;
            self.intake.fetching = true;
            self.out.push(Action::Fetch { want, wait: false });
        }
    }

    /// The operator wants the queue to wait while a dead letter cannot be written.
    fn is_stopped(&self) -> bool {
        self.settings.policy.dead_letters.stop_when_refused && self.stuck > 0
    }

    fn may_take_due(&self) -> bool {
        !self.draining
            && self.is_open()
            && !self.is_stopped()
            && !self.intake.taking_due
            && self.room() > 0
    }

    fn may_take_orphans(&self) -> bool {
        let is_free = !self.is_stopped() && self.intake.taking_orphans.is_none() && self.room() > 0;
        !self.draining && self.is_open() && is_free && self.suspects() < self.settings.concurrency
    }

    /// How many orphans or due deliveries may come.
    fn room(&self) -> usize {
        let reserved = if Rule::ReservedSlot.holds() {
            RESERVED
        } else {
            0
        };
        (self.target() + reserved).saturating_sub(self.work())
    }

    pub(super) fn intake_deadline(&self) -> Option<Time> {
        let intake = &self.intake;
        if !intake.is_online() {
            return None;
        }
        // A host without room waits for an attempt to end, not for a time that has passed.
        let due = self.may_take_due().then_some(intake.next_due);
        let orphans = self.may_take_orphans().then_some(intake.next_orphans);
        let renewal = (!intake.renewing && !self.held.is_empty()).then_some(intake.next_renewal);
        let halt = self
            .halt
            .and_then(|halt| (!halt.probing).then_some(halt.until));
        [due, orphans, renewal, halt].into_iter().flatten().min()
    }

    /// How many deliveries to hold at most, what settles not counted.
    fn target(&self) -> usize {
        let ahead = self.intake.rate.per_second * AHEAD.as_secs_f64();
        // A rate is far below 2^52: the cast is exact enough, and saturates.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a non-negative rate; the cast saturates"
        )]
        let ahead = ahead as usize;
        if self.halt.is_some() {
            return 1;
        }
        let concurrency = self.settings.concurrency;
        ahead.clamp(self.capacity(), self.settings.prefetch_max.max(concurrency))
    }

    /// What all slots can take at once: more than one each, of a handler of batches, but no more
    /// than may be read ahead.
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

    /// What is held and not yet decided, the suspects that wait for their turn left out.
    pub(super) fn work(&self) -> usize {
        let counts = &self.counts;
        let all =
            counts.waiting + counts.released + counts.recording + counts.running + counts.refused;
        all.saturating_sub(self.suspects())
    }

    /// Leases of everything that may still be started, runs, or waits for its settlement.
    fn renew(&mut self, now: Time) {
        self.intake.next_renewal = now + self.settings.min_idle / 3;
        let keys: Vec<Key> = self
            .held
            .iter()
            .filter(|(_, held)| !matches!(held.state, State::Settling { .. }))
            .map(|(&id, held)| Key {
                id,
                generation: held.generation,
            })
            .collect();
        if !keys.is_empty() {
            self.intake.renewing = true;
            self.out.push(Action::Renew(keys));
        }
    }
}
