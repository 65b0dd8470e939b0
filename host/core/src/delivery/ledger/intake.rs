//! Which requests for deliveries are under way, and when the next one is due.

use super::{Settings, Time};

/// Over how long the rate of finished attempts is measured.
pub(super) const RATE_WINDOW: Time = Time::from_millis(20);

/// The scripts return at most this many orphans in one scan.
const SCAN_MAX: usize = 100;

#[derive(Debug)]
pub(super) struct Intake {
    offline_since: Option<Time>,
    /// How many messages a fetch asked for and has not brought, until its last part comes.
    pub(super) fetching: Option<usize>,
    /// That fetch waits for messages: there are none.
    fetch_waits: bool,
    /// How many due deliveries were asked for, until the answer comes.
    pub(super) taking_due: Option<usize>,
    /// How many orphans were asked for, until the answer comes.
    pub(super) taking_orphans: Option<usize>,
    pub(super) renewing: bool,
    /// The last fetch brought less than it asked for.
    pub(super) caught_up: bool,
    /// It brought nothing.
    pub(super) found_nothing: bool,
    pub(super) next_due: Time,
    pub(super) next_orphans: Time,
    pub(super) next_renewal: Time,
    due_scan: Time,
    pub(super) rate: Rate,
}

/// Finished attempts per second: an exponential average over windows.
#[derive(Debug)]
pub(super) struct Rate {
    since: Time,
    finished: u32,
    pub(super) per_second: f64,
    /// What the last two windows measured, the newer one first. A window in which slots had nothing to do does not
    /// tell how fast they are: it counts as infinitely fast.
    windows: [f64; 2],
    /// Slots had nothing to do in this window, or may have had nothing.
    is_idle: bool,
    /// A window has ended since the ledger last looked.
    is_new: bool,
}

impl Intake {
    pub(super) fn new(now: Time, settings: &Settings) -> Self {
        Self {
            offline_since: None,
            fetching: None,
            fetch_waits: false,
            taking_due: None,
            taking_orphans: None,
            renewing: false,
            caught_up: false,
            found_nothing: false,
            next_due: now,
            next_orphans: now,
            next_renewal: now + settings.min_idle / 3,
            due_scan: settings.due_scan,
            rate: Rate {
                since: now,
                finished: 0,
                per_second: 0.0,
                windows: [f64::INFINITY; 2],
                is_idle: true,
                is_new: false,
            },
        }
    }

    pub(super) fn is_online(&self) -> bool {
        self.offline_since.is_none()
    }

    /// No answer is outstanding that could bring a delivery.
    pub(super) fn is_quiet(&self) -> bool {
        self.fetching.is_none() && self.taking_due.is_none() && self.taking_orphans.is_none()
    }

    /// So many messages are asked for.
    pub(super) fn fetch(&mut self, want: usize, waits: bool) {
        self.fetching = Some(want);
        self.fetch_waits = waits;
    }

    /// How many messages a fetch is about to bring.
    pub(super) fn coming(&self) -> usize {
        self.fetching.filter(|_| !self.fetch_waits).unwrap_or(0)
    }

    pub(super) fn fetched(&mut self, got: usize, more: bool) {
        let left = self.fetching.map(|asked| asked.saturating_sub(got));
        self.caught_up = !more && left.is_some_and(|left| left > 0);
        self.found_nothing = self.caught_up && got == 0;
        self.fetching = left.filter(|_| more);
        self.fetch_waits = false;
    }

    pub(super) fn due_taken(&mut self, now: Time, next: Option<Time>) {
        self.taking_due = None;
        self.next_due = now + next.unwrap_or(self.due_scan).min(self.due_scan);
    }

    /// A delivery was parked that is due after this delay.
    pub(super) fn due_in(&mut self, now: Time, delay: Time) {
        self.next_due = self.next_due.min(now + delay);
    }

    /// A full answer means that there are more: the host asks for them at once.
    pub(super) fn orphans_taken(&mut self, now: Time, got: usize) {
        let asked = self.taking_orphans.take();
        if got > 0 && asked.is_some_and(|asked| got >= asked.min(SCAN_MAX)) {
            self.next_orphans = now;
        }
    }

    pub(super) fn finished(&mut self, now: Time) {
        self.rate.finished += 1;
        self.rate.measure(now);
    }

    pub(super) fn offline(&mut self, now: Time) {
        self.offline_since.get_or_insert(now);
    }

    /// Rule 12: after a reconnect a host renews first. It looks for orphans half a `min_idle` later,
    /// so that the other hosts can renew as well. A disconnection that is too short to have cost
    /// anybody a lease changes nothing: otherwise a connection that often breaks would put off the
    /// scan for ever.
    pub(super) fn online(&mut self, now: Time, min_idle: Time) {
        if let Some(since) = self.offline_since.take() {
            self.next_renewal = now;
            if now.saturating_sub(since) >= min_idle / 6 {
                self.next_orphans = now + min_idle / 2;
            }
        }
    }
}

impl Rate {
    pub(super) fn measure(&mut self, now: Time) {
        let elapsed = now.saturating_sub(self.since);
        if elapsed >= RATE_WINDOW {
            let measured = f64::from(self.finished) / elapsed.as_secs_f64();
            self.per_second = (self.per_second + measured) / 2.0;
            let tells = !std::mem::take(&mut self.is_idle);
            let speed = if tells { measured } else { f64::INFINITY };
            self.windows = [speed, self.windows[0]];
            self.is_new = true;
            self.since = now;
            self.finished = 0;
        }
    }

    /// When this window ends.
    pub(super) fn ends(&self) -> Time {
        self.since + RATE_WINDOW
    }

    /// Slots have nothing to do now.
    pub(super) fn idle(&mut self) {
        self.is_idle = true;
    }

    /// The better rate of the last two windows, if a window has ended since the last call. An attempt that does not
    /// end counts at once: there is one less in each window.
    pub(super) fn latest(&mut self) -> Option<f64> {
        let [last, before] = self.windows;
        std::mem::take(&mut self.is_new).then_some(last.max(before))
    }
}
