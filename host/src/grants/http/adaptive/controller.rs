//! How many calls may be in flight to one destination, and when it is closed. Pure: the time and random numbers are
//! arguments.
//!
//! ```text
//! open --(failures in a row, `Retry-After`)--> closed --(its time is over: one call)--> probing
//!   ^                                            ^                                       |  |
//!   |                                            +------------------(it fails)-----------+  |
//!   +-------------------------------------------------------(it is answered)----------------+
//! ```
//!
//! While it is open, each round of answers allows one call more, and a refusal takes a tenth: *additive increase,
//! multiplicative decrease*. A number of calls that was refused is remembered, and tried again only after many answers, so that few calls
//! are refused. Random numbers spread the tries of several hosts.

use std::time::{Duration, Instant};

/// The calls in flight with which a destination begins. Until the first refusal they double with each round.
const BEGIN: f64 = 5.0;
/// So many failures in a row close a destination.
pub(super) const FAILURES_MAX: u32 = 5;
/// For how long a destination is closed that does not say so itself: this long at first, then twice as long each time.
const CLOSED_MIN: Duration = Duration::from_secs(1);
const CLOSED_MAX: Duration = Duration::from_secs(4);
/// A closed destination that gets no call for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_secs(60);
/// The longest `Retry-After` that is followed.
pub(super) const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);
/// The time of a closed destination is up to this part longer, at random.
const JITTER: f64 = 0.25;
/// What is left after a refusal; and after one soon behind another.
const LESS: f64 = 0.9;
const MUCH_LESS: f64 = 0.7;
/// A number of calls that was refused is tried again after so many rounds, and so many answers, at least.
const ROUNDS: f64 = 10.0;
const ANSWERS_MIN: f64 = 60.0;
/// The fewest answers whose latency is compared with the usual one.
const SAMPLES: f64 = 50.0;
/// Answers that take more than this times the usual are as a refusal.
const SLOW: f64 = 3.0;
/// The share of a round of faster answers in what is usual.
const FASTER: f64 = 1.0 / 16.0;

/// What the end of a call says about its destination.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Sign {
    /// It answers, after this time, if that says something.
    Answered(Option<Duration>),
    /// It wants fewer calls; none for this long.
    Busy(Option<Duration>),
    /// It does not do its work; and wants no calls for this long.
    Failed(Option<Duration>),
    /// Nothing.
    Nothing,
}

/// The answer to a call that wants to be sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Asked {
    /// It is sent.
    Go(Ticket),
    /// It waits.
    Wait,
    /// It is refused: the destination is closed.
    Closed,
}

/// A call that was sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Ticket {
    era: u64,
    began: Instant,
    is_probe: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Open,
    Closed {
        since: Instant,
        until: Instant,
        times: u32,
    },
    /// One call is on its way.
    Probing {
        since: Instant,
        times: u32,
    },
}

/// See the module.
#[derive(Debug)]
pub(super) struct Controller {
    most: f64,
    window: f64,
    /// No more than so many are sent, until they are tried.
    ceiling: f64,
    /// By how many calls the next try raises the ceiling.
    step: f64,
    /// The window doubles with each round.
    is_beginning: bool,
    /// Answers since the window has shrunk, and the number of them that allows a try.
    calm: f64,
    try_at: f64,
    in_flight: usize,
    /// When as many were in flight as may be.
    full: Option<Instant>,
    /// Each change for the worse begins another one. Calls of an earlier one say nothing new.
    era: u64,
    failures: u32,
    state: State,
    /// The sum of the latencies of this round, their number, and how many it has.
    round: (Duration, f64, f64),
    /// The usual latency, in seconds.
    usual: Option<f64>,
    /// The last round was slow: the window does not grow.
    is_slow: bool,
}

impl Controller {
    /// An open destination, with this number of calls in flight at most.
    pub(super) fn new(most: usize) -> Self {
        let most = most as f64;
        Self {
            most,
            window: BEGIN.min(most),
            ceiling: most,
            step: 1.0,
            is_beginning: true,
            calm: 0.0,
            try_at: 0.0,
            in_flight: 0,
            full: None,
            era: 0,
            failures: 0,
            state: State::Open,
            round: (Duration::ZERO, 0.0, SAMPLES),
            usual: None,
            is_slow: false,
        }
    }

    /// The calls in flight.
    pub(super) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// How many may be in flight; 0 = it is closed.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is from 1 to the number of the rule"
    )]
    pub(super) fn allowed(&self) -> usize {
        match self.state {
            State::Open => self.window as usize,
            State::Closed { .. } => 0,
            State::Probing { .. } => 1,
        }
    }

    /// Since when it is closed, if it is.
    pub(super) fn closed_since(&self) -> Option<Instant> {
        match self.state {
            State::Open => None,
            State::Closed { since, .. } | State::Probing { since, .. } => Some(since),
        }
    }

    /// Whether nothing is known that would be missed: it is open, or nobody has tried it for long.
    pub(super) fn is_forgettable(&self, now: Instant) -> bool {
        match self.state {
            State::Open => true,
            State::Closed { until, .. } => now >= until + FORGOTTEN,
            State::Probing { .. } => false,
        }
    }

    /// For how long a message is held whose call was refused: until the destination may be open again, and longer where it is closed for
    /// long, so that few messages of a long outage use up their holds.
    pub(super) fn hold(&self, now: Instant) -> Duration {
        let left = match self.state {
            State::Closed { until, .. } => until.saturating_duration_since(now),
            State::Open | State::Probing { .. } => Duration::ZERO,
        };
        let since = self.closed_since().unwrap_or(now);
        let closed_for = now.saturating_duration_since(since);
        left.max(closed_for / 8).max(CLOSED_MIN)
    }

    /// A call wants to be sent.
    pub(super) fn ask(&mut self, now: Instant) -> Asked {
        let is_probe = match self.state {
            State::Closed { until, .. } if now < until => return Asked::Closed,
            State::Closed { since, times, .. } => {
                self.state = State::Probing { since, times };
                true
            }
            // The one on its way may take as long as a call may: no other waits for it in its slot.
            State::Probing { .. } => return Asked::Closed,
            State::Open if self.in_flight >= self.allowed() => return Asked::Wait,
            State::Open => false,
        };
        self.in_flight += 1;
        if self.in_flight >= self.allowed() {
            self.full = Some(now);
        }
        Asked::Go(Ticket {
            era: self.era,
            began: now,
            is_probe,
        })
    }

    /// What a call says, once. It is in flight still. `random`: from 0 to 1.
    pub(super) fn says(&mut self, now: Instant, ticket: Ticket, sign: Sign, random: f64) {
        let is_new = ticket.era == self.era;
        match (sign, self.state) {
            (Sign::Nothing, State::Probing { since, times }) if ticket.is_probe && is_new => {
                // The next call is the probe.
                let until = now;
                self.state = State::Closed {
                    since,
                    until,
                    times,
                };
            }
            (Sign::Nothing, _) => {}
            (Sign::Answered(_), State::Probing { .. }) if ticket.is_probe && is_new => {
                self.state = State::Open;
                self.is_beginning = true;
                self.is_slow = false;
                self.begin_round();
            }
            (Sign::Answered(took), State::Open) => self.answered(ticket, took, random),
            (Sign::Answered(_), _) => {}
            (Sign::Busy(pause) | Sign::Failed(pause), State::Open) => {
                let is_alone = self.window < 2.0;
                let is_busy = matches!(sign, Sign::Busy(_));
                if is_new {
                    let used = self.window.min(self.in_flight as f64);
                    self.shrink(used, is_busy, random);
                }
                // Fewer calls than one are none.
                self.failures += u32::from(!is_busy || is_alone);
                if pause.is_some() || self.failures >= FAILURES_MAX {
                    self.close(now, pause, random);
                }
            }
            (Sign::Busy(pause) | Sign::Failed(pause), State::Probing { .. }) => {
                if ticket.is_probe && is_new {
                    self.close(now, pause, random);
                }
            }
            (
                Sign::Busy(pause) | Sign::Failed(pause),
                State::Closed {
                    since,
                    until,
                    times,
                },
            ) => {
                if let Some(pause) = pause {
                    let until = until.max(now + pause.min(RETRY_AFTER_MAX));
                    self.state = State::Closed {
                        since,
                        until,
                        times,
                    };
                }
            }
        }
    }

    /// A call is no longer in flight.
    pub(super) fn left(&mut self) {
        self.in_flight -= 1;
    }

    fn answered(&mut self, ticket: Ticket, took: Option<Duration>, random: f64) {
        self.failures = 0;
        if ticket.era != self.era {
            return;
        }
        self.calm += 1.0;
        if took.is_some_and(|took| self.ends_slow_round(took)) {
            self.shrink(self.window, false, random);
            self.is_slow = true;
            return;
        }
        // It says nothing about more calls than there were beside it.
        if self.is_slow || self.full.is_none_or(|full| full < ticket.began) {
            return;
        }
        if self.window < self.ceiling {
            let more = if self.is_beginning {
                1.0
            } else {
                1.0 / self.window
            };
            self.window = (self.window + more).min(self.ceiling);
        } else if self.calm >= self.try_at {
            self.is_beginning = false;
            self.ceiling = (self.ceiling + self.step).min(self.most);
            self.step *= 2.0;
            self.try_later(random);
        }
    }

    fn try_later(&mut self, random: f64) {
        let answers = (ROUNDS * self.window).max(ANSWERS_MIN);
        self.try_at = self.calm + answers * (1.0 + random / 2.0);
    }

    fn begin_round(&mut self) {
        self.round = (Duration::ZERO, 0.0, self.window.max(SAMPLES));
    }

    /// Whether a round of answers has ended that were slow because of their number.
    ///
    /// What is usual rises only where few calls are slow as well: so it does not follow a line that grows with the calls.
    fn ends_slow_round(&mut self, took: Duration) -> bool {
        let (sum, count, size) = &mut self.round;
        *sum += took;
        *count += 1.0;
        if *count < *size {
            return false;
        }
        let mean = sum.as_secs_f64() / *count;
        self.begin_round();
        let usual = *self.usual.get_or_insert(mean);
        let is_slow = mean > SLOW * usual;
        let is_few = self.window <= BEGIN;
        if mean < usual {
            self.usual = Some(usual + (mean - usual) * FASTER);
        } else if is_slow && is_few {
            self.usual = Some(mean);
            self.is_beginning = true;
        }
        self.is_slow &= is_slow && !is_few;
        is_slow && !is_few
    }

    /// Allow fewer calls than were used. `is_refused`: one of so many was refused.
    fn shrink(&mut self, used: f64, is_refused: bool, random: f64) {
        let used = used.max(1.0);
        if is_refused {
            self.ceiling = (used - 1.0).max(1.0);
        }
        let left = if self.is_slow || self.calm < self.window {
            MUCH_LESS
        } else {
            LESS
        };
        self.window = (used * left).max(1.0).min(self.ceiling);
        (self.step, self.calm) = (1.0, 0.0);
        self.is_beginning = false;
        self.try_later(random);
        self.era += 1;
        self.begin_round();
    }

    fn close(&mut self, now: Instant, pause: Option<Duration>, random: f64) {
        let (since, times) = match self.state {
            State::Open => (now, 0),
            State::Closed { since, times, .. } | State::Probing { since, times } => {
                (since, times.saturating_add(1))
            }
        };
        let usual = CLOSED_MIN.saturating_mul(1 << times.min(8)).min(CLOSED_MAX);
        let pause = pause.map_or(usual, |pause| pause.min(RETRY_AFTER_MAX));
        self.state = State::Closed {
            since,
            until: now + pause.mul_f64(1.0 + JITTER * random),
            times,
        };
        self.window = 1.0;
        self.failures = 0;
        self.era += 1;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const SECOND: Duration = Duration::from_secs(1);

    fn go(controller: &mut Controller, now: Instant) -> Ticket {
        match controller.ask(now) {
            Asked::Go(ticket) => ticket,
            other => panic!("{other:?}"),
        }
    }

    /// A call, and its end.
    fn call(controller: &mut Controller, now: Instant, sign: Sign) {
        let ticket = go(controller, now);
        controller.says(now, ticket, sign, 0.5);
        controller.left();
    }

    fn closed(now: Instant) -> Controller {
        let mut controller = Controller::new(20);
        for _ in 0..FAILURES_MAX {
            call(&mut controller, now, Sign::Failed(None));
        }
        assert_eq!(controller.ask(now), Asked::Closed);
        controller
    }

    #[test]
    fn failures_in_a_row_close_a_destination_and_others_do_not() {
        let now = Instant::now();
        let mut controller = Controller::new(20);
        for _ in 0..100 {
            for _ in 1..FAILURES_MAX {
                call(&mut controller, now, Sign::Failed(None));
            }
            call(&mut controller, now, Sign::Answered(None));
        }
        assert_eq!(controller.closed_since(), None);
        closed(now);
    }

    #[test]
    fn one_call_tries_a_closed_destination_and_no_other_waits_for_it() {
        let now = Instant::now();
        let mut controller = closed(now);
        assert_eq!(
            controller.ask(now + 1000 * MS),
            Asked::Closed,
            "it is jittered"
        );
        let late = now + 1250 * MS;
        let probe = go(&mut controller, late);
        assert_eq!(controller.ask(late + 60 * SECOND), Asked::Closed);
        assert_eq!(controller.allowed(), 1);
        // It fails: the next time is twice as long, and never longer than four seconds.
        controller.says(late, probe, Sign::Failed(None), 0.0);
        controller.left();
        assert_eq!(controller.ask(late + 1999 * MS), Asked::Closed);
        let mut now = late + 2 * SECOND;
        for _ in 0..50 {
            let probe = go(&mut controller, now);
            controller.says(now, probe, Sign::Failed(None), 0.0);
            controller.left();
            assert_eq!(controller.ask(now + CLOSED_MAX - MS), Asked::Closed);
            now += CLOSED_MAX;
        }
        // Its attempt ends first: the next call is the probe.
        let probe = go(&mut controller, now);
        controller.says(now, probe, Sign::Nothing, 0.0);
        controller.left();
        let probe = go(&mut controller, now);
        controller.says(now, probe, Sign::Answered(None), 0.0);
        controller.left();
        assert_eq!((controller.closed_since(), controller.allowed()), (None, 1));
    }

    #[test]
    fn retry_after_is_followed_and_bounded() {
        let now = Instant::now();
        for sign in [Sign::Busy, Sign::Failed] {
            let mut controller = Controller::new(20);
            call(&mut controller, now, sign(Some(30 * SECOND)));
            assert_eq!(controller.ask(now + 30 * SECOND - MS), Asked::Closed);
            assert!(matches!(
                controller.ask(now + 38 * SECOND),
                Asked::Go(Ticket { is_probe: true, .. })
            ));
            let mut controller = Controller::new(20);
            call(&mut controller, now, sign(Some(Duration::MAX)));
            let most = RETRY_AFTER_MAX.mul_f64(1.0 + JITTER);
            assert!(matches!(controller.ask(now + most), Asked::Go(_)));
        }
    }

    #[test]
    fn messages_of_an_outage_of_a_day_do_not_use_up_their_holds() {
        let now = Instant::now();
        let controller = closed(now);
        let day = 24 * 3600 * SECOND;
        let (mut held, mut holds) = (Duration::ZERO, 0);
        while held < day {
            held += controller.hold(now + held);
            holds += 1;
        }
        assert!(holds < 100, "{holds}");
        assert!(controller.hold(now + 60 * SECOND) < 8 * SECOND);
    }

    /// A server with this number of places, and of calls that each takes 20 steps, for so many steps: how many calls it
    /// answered, and how many it refused.
    fn served(controller: &mut Controller, places: usize, steps: u32, seed: u64) -> (u32, u32) {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = Instant::now();
        let mut calls: Vec<(Ticket, Instant)> = Vec::new();
        let (mut answered, mut refused) = (0, 0);
        for _ in 0..steps {
            now += MS;
            let (ended, going): (Vec<_>, Vec<_>) = calls
                .into_iter()
                .partition(|(_, began)| now - *began >= 20 * MS);
            calls = going;
            for (ticket, began) in ended {
                let took = Sign::Answered(Some(now - began));
                controller.says(now, ticket, took, random.f64());
                controller.left();
                answered += 1;
            }
            while let Asked::Go(ticket) = controller.ask(now) {
                if calls.len() < places {
                    calls.push((ticket, now));
                } else {
                    controller.says(now, ticket, Sign::Busy(None), random.f64());
                    controller.left();
                    refused += 1;
                }
            }
        }
        for (ticket, _) in calls {
            controller.says(now, ticket, Sign::Nothing, 0.0);
            controller.left();
        }
        (answered, refused)
    }

    #[test]
    fn a_server_with_few_places_is_used_and_refuses_few_calls() {
        for places in [1, 2, 5, 20, 100] {
            let mut controller = Controller::new(256);
            let (answered, refused) = served(&mut controller, places, 20_000, places as u64);
            let most = u32::try_from(places).unwrap() * 1_000;
            assert!(answered * 10 >= most * 9, "{places}: {answered} of {most}");
            assert!(
                refused * 50 <= answered,
                "{places}: {refused} of {answered}"
            );
        }
    }

    #[test]
    fn a_server_that_gets_more_places_is_used_soon() {
        let mut controller = Controller::new(256);
        served(&mut controller, 10, 5_000, 1);
        served(&mut controller, 100, 5_000, 2);
        let (answered, _) = served(&mut controller, 100, 1_000, 3);
        assert!(answered >= 4_500, "{answered}");
    }

    #[test]
    fn answers_that_take_longer_with_each_call_bound_the_calls() {
        let mut controller = Controller::new(256);
        let mut now = Instant::now();
        // Twenty places, and a line before them without an end.
        for _ in 0..2_000 {
            let mut calls = Vec::new();
            while let Asked::Go(ticket) = controller.ask(now) {
                calls.push(ticket);
            }
            let took = MS * 50 * u32::try_from(calls.len().div_ceil(20)).unwrap();
            now += took;
            for ticket in calls {
                controller.says(now, ticket, Sign::Answered(Some(took)), 0.5);
                controller.left();
            }
        }
        assert!((20..=100).contains(&controller.allowed()), "{controller:?}");
        // It takes four times as long, whatever the number of calls: that is usual from then on.
        let mut most = 0;
        for _ in 0..200 {
            let mut calls = Vec::new();
            while let Asked::Go(ticket) = controller.ask(now) {
                calls.push(ticket);
            }
            now += MS * 200;
            for ticket in calls {
                controller.says(now, ticket, Sign::Answered(Some(MS * 200)), 0.5);
                controller.left();
            }
            most = controller.allowed();
        }
        assert!(most >= 40, "{controller:?}");
    }

    #[derive(Clone, Debug)]
    enum Turn {
        Ask,
        Says(usize, Sign),
        Wait(u64),
    }

    fn turns() -> impl Strategy<Value = Vec<Turn>> {
        let pause = prop::option::of((0_u64..10_000_000).prop_map(Duration::from_millis));
        let took = (0_u64..10_000).prop_map(Duration::from_millis);
        let sign = prop_oneof![
            4 => prop::option::of(took).prop_map(Sign::Answered),
            1 => pause.clone().prop_map(Sign::Busy),
            2 => Just(Sign::Failed(None)),
            1 => pause.prop_map(Sign::Failed),
            1 => Just(Sign::Nothing),
        ];
        let turn = prop_oneof![
            4 => Just(Turn::Ask),
            4 => (any::<usize>(), sign).prop_map(|(which, sign)| Turn::Says(which, sign)),
            2 => (0_u64..5_000).prop_map(Turn::Wait),
        ];
        prop::collection::vec(turn, 1..400)
    }

    proptest! {
        #[test]
        fn whatever_happens_calls_are_bounded_one_probe_is_under_way_and_it_opens_again(
            most in 1_usize..50,
            turns in turns(),
        ) {
            let mut now = Instant::now();
            let mut controller = Controller::new(most);
            let mut calls: Vec<Ticket> = Vec::new();
            for turn in turns {
                match turn {
                    Turn::Wait(ms) => now += Duration::from_millis(ms),
                    Turn::Ask => {
                        let was_closed = controller.closed_since().is_some();
                        if let Asked::Go(ticket) = controller.ask(now) {
                            prop_assert_eq!(ticket.is_probe, was_closed);
                            calls.push(ticket);
                        }
                    }
                    Turn::Says(which, sign) if !calls.is_empty() => {
                        let ticket = calls.swap_remove(which % calls.len());
                        controller.says(now, ticket, sign, 0.5);
                        controller.left();
                    }
                    Turn::Says(..) => {}
                }
                let open = controller.closed_since().is_none();
                prop_assert!(!open || (1..=most).contains(&controller.allowed()));
                prop_assert!((1.0..=most as f64).contains(&controller.window));
                prop_assert!((1.0..=most as f64).contains(&controller.ceiling));
                prop_assert_eq!(controller.in_flight(), calls.len());
                let is_probe = |ticket: &&Ticket| ticket.is_probe && ticket.era == controller.era;
                let probes = calls.iter().filter(is_probe).count();
                let is_probing = matches!(controller.state, State::Probing { .. });
                prop_assert!(open || probes == usize::from(is_probing));
            }
            // Whatever has happened, answers open it.
            for ticket in calls {
                controller.says(now, ticket, Sign::Nothing, 0.5);
                controller.left();
            }
            now += RETRY_AFTER_MAX * 2;
            call(&mut controller, now, Sign::Answered(None));
            prop_assert!(controller.closed_since().is_none());
        }
    }
}
