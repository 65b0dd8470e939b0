//! A handler that cannot be run: no instance of it can be made, or it faults on everything. Intake
//! stops, what is held goes back uncharged, and one message is tried at growing intervals.

use std::time::Duration;

use super::{Halt, HaltCause, Key, Ledger, Note, Time};
use crate::delivery::outcome::Outcome;

impl<M> Ledger<M> {
    /// Whether it has stopped because the handler cannot be run.
    pub fn cannot_run(&self) -> bool {
        self.halt.is_some()
    }

    /// Whether the version that runs has been found to be unfit: a shortage of instances may pass.
    pub fn needs_another_version(&self) -> bool {
        let unfit = |cause| matches!(cause, HaltCause::Broken | HaltCause::Panics);
        self.halt.is_some_and(|halt| unfit(halt.cause))
    }

    /// Whether this holding is tried to see whether a handler that faulted on everything works.
    pub fn is_probe(&self, key: Key) -> bool {
        self.halt.is_some_and(|halt| {
            // What ran before says nothing about now.
            let is_new = key.generation > halt.after || !self.hands_back();
            halt.cause == HaltCause::Broken && halt.probing && is_new
        })
    }

    /// An attempt has ended while the handler counts as one that cannot be run. Only the version that
    /// serves shows that it can be; one that faults on any version is enough for now.
    pub(super) fn tried(&mut self, now: Time, key: Key, outcome: &Outcome, is_current: bool) {
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

    /// The handler faults on everything.
    pub(super) fn broken(&mut self, now: Time, detail: String) {
        if self.halt.is_none() && !self.draining {
            self.halt(now, HaltCause::Broken, detail);
            self.give_back_waiting();
        }
    }

    /// Messages make the host panic. Whatever it was stopped for before: this lasts.
    pub(super) fn panicked(&mut self, now: Time, detail: String) {
        self.halt = None;
        self.halt(now, HaltCause::Panics, detail);
        self.give_back_waiting();
    }

    /// The handler can be run, or another one runs.
    pub(super) fn resume(&mut self) {
        if self.halt.take().is_some() {
            self.note(Note::Resumed);
        }
    }

    /// Intake stops, and one message is tried at growing intervals.
    pub(super) fn halt(&mut self, now: Time, cause: HaltCause, detail: String) {
        let tries = self.halt.map_or(0, |halt| halt.tries);
        let again = match cause {
            HaltCause::Panics => cause.pause_max(),
            HaltCause::Instance | HaltCause::Broken => cause
                .pause_max()
                .min(Duration::from_secs(1) * 2u32.pow(tries.min(5))),
        };
        // Several slots fail at once: that is one halt.
        if self.halt.is_none_or(|halt| halt.probing) {
            self.halt = Some(Halt {
                cause,
                until: now.saturating_add(again),
                probing: false,
                tries: tries + 1,
                after: self.generation,
            });
            self.note(Note::Halted {
                cause,
                detail,
                again,
            });
            self.intake.halted();
        }
    }

    /// Whether nothing is to be started, not even to see whether the handler can be run.
    pub(super) fn is_halted(&self) -> bool {
        self.halt.is_some_and(|halt| !halt.probing)
    }

    /// Whether one message is being tried, and the others wait for what comes of it.
    pub(super) fn is_trying(&self) -> bool {
        let counts = &self.counts;
        self.halt.is_some() && counts.released + counts.recording + counts.running > 0
    }

    /// Whether a message is held already that shows whether the handler can be run: one at a time.
    pub(super) fn is_tried(&self) -> bool {
        self.halt.is_some() && self.work() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Action, Delivery, Event, Origin, Settings, SettleAction};
    use super::*;
    use crate::delivery::attempt::Allowance;
    use crate::delivery::backoff::Backoff;
    use crate::delivery::message::DeliveryId;
    use crate::delivery::outcome::{Fault, FaultKind};
    use crate::delivery::policy::{DeadLetterRules, OnCap, OnFault, Policy};

    const NOW: Time = Time::from_millis(1);

    fn ledger() -> Ledger<()> {
        Ledger::new(Time::ZERO, settings())
    }

    /// A ledger of a queue that forgets what it hands out.
    fn forgetful() -> Ledger<()> {
        let mut settings = settings();
        settings.policy = settings.policy.at_most_once();
        Ledger::new(Time::ZERO, settings)
    }

    fn settings() -> Settings {
        Settings {
            policy: Policy {
                allowance: Allowance::default(),
                on_cap: OnCap::DeadLetter,
                on_fault: OnFault::Requeue,
                has_dead_letter: true,
                dead_letters: DeadLetterRules::default(),
                backoff: Backoff::default(),
            },
            concurrency: 4,
            prefetch_max: 16,
            min_idle: Duration::from_secs(30),
            orphan_scan: Duration::from_secs(1),
            due_scan: Duration::from_millis(100),
            batch: 1,
        }
    }

    fn step(ledger: &mut Ledger<()>, event: Event<()>) -> Vec<Action<()>> {
        at(ledger, NOW, event)
    }

    fn finished(key: Key, outcome: Outcome) -> Event<()> {
        Event::Finished {
            key,
            outcome,
            is_current: true,
            jitter: 0.5,
        }
    }

    /// The same, on a canary.
    fn finished_aside(key: Key, outcome: Outcome) -> Event<()> {
        Event::Finished {
            key,
            outcome,
            is_current: false,
            jitter: 0.5,
        }
    }

    /// So many fresh deliveries, with ids from this one on.
    fn fetched(first: u128, count: u128) -> Event<()> {
        let delivery = |id| Delivery {
            id: DeliveryId(id),
            origin: Origin::Fresh,
            header: 0,
            native: 1,
            turned_away: None,
            cargo: (),
        };
        Event::Fetched {
            asked: 16,
            leased: NOW,
            deliveries: (first..first + count).map(delivery).collect(),
        }
    }

    fn at(ledger: &mut Ledger<()>, now: Time, event: Event<()>) -> Vec<Action<()>> {
        let mut actions = Vec::new();
        ledger.apply(now, event);
        ledger.poll(now, &mut actions);
        actions
    }

    fn releases(actions: &[Action<()>]) -> Vec<Key> {
        let keys = actions.iter().filter_map(|action| match action {
            Action::Release { key, .. } => Some(*key),
            _ => None,
        });
        keys.collect()
    }

    /// What goes back, and with which count.
    fn handed_back(actions: &[Action<()>]) -> Vec<(Key, u32)> {
        let parted = actions.iter().filter_map(|action| match action {
            Action::Settle {
                key,
                action: SettleAction::HandBack { keep },
                ..
            } => Some((*key, *keep)),
            _ => None,
        });
        parted.collect()
    }

    fn halted(actions: &[Action<()>]) -> Option<Duration> {
        actions.iter().find_map(|action| match action {
            Action::Note(Note::Halted {
                cause: HaltCause::Broken,
                again,
                ..
            }) => Some(*again),
            _ => None,
        })
    }

    fn fetches(actions: &[Action<()>]) -> usize {
        let fetches = actions.iter().filter_map(|action| match action {
            Action::Fetch { want, .. } => Some(*want),
            _ => None,
        });
        fetches.sum()
    }

    fn trap() -> Outcome {
        Outcome::Fault(Fault::new(FaultKind::Trap, "unreachable"))
    }

    fn broken() -> Event<()> {
        Event::Broken {
            detail: "it faults on everything".to_owned(),
        }
    }

    #[test]
    fn a_broken_handler_stops_intake_and_what_has_not_started_goes_back_uncharged() {
        let mut ledger = ledger();
        let keys = releases(&step(&mut ledger, fetched(1, 6)));
        assert_eq!(keys.len(), 6);
        let actions = step(&mut ledger, broken());
        assert_eq!(halted(&actions), Some(Duration::from_secs(1)));
        let revoked = actions
            .iter()
            .filter(|action| matches!(action, Action::Revoke(_)))
            .count();
        assert_eq!(revoked, 6);
        // Five had not started, one runs: it ends, and is charged.
        let mut back = Vec::new();
        for key in &keys[1..] {
            back.extend(handed_back(&step(&mut ledger, Event::Revoked(*key))));
        }
        assert_eq!(back.len(), 5);
        assert!(back.iter().all(|(_, keep)| *keep == 0));
        let actions = step(
            &mut ledger,
            finished(keys[0], Outcome::NackRequeue(Some(Duration::ZERO))),
        );
        assert!(actions.iter().any(|action| matches!(
            action,
            Action::Settle {
                action: SettleAction::Park { keep: 1, .. },
                ..
            }
        )));
        assert_eq!(fetches(&actions), 0);
        // What a fetch brings that was under way goes back as well.
        let actions = step(&mut ledger, fetched(10, 3));
        assert_eq!(handed_back(&actions).len(), 3);
        assert!(releases(&actions).is_empty());
    }

    #[test]
    fn one_message_at_a_time_is_tried_at_growing_intervals_until_it_works() {
        let mut ledger = ledger();
        step(&mut ledger, broken());
        // An answer that was under way when it stopped.
        step(&mut ledger, fetched(1, 0));
        let mut now = NOW;
        let mut pauses = Vec::new();
        let mut pause = Duration::from_secs(1);
        for round in 0..7 {
            let early = now + pause - Duration::from_millis(1);
            let mut actions = Vec::new();
            ledger.poll(early, &mut actions);
            assert_eq!(fetches(&actions), 0, "round {round}");
            now += pause;
            ledger.poll(now, &mut actions);
            assert_eq!(fetches(&actions), 1, "round {round}");
            let actions = at(&mut ledger, now, fetched(100 + 10 * round, 2));
            let tried = releases(&actions);
            assert_eq!(tried.len(), 1, "one is tried");
            assert_eq!(handed_back(&actions).len(), 1, "the other goes back");
            let actions = at(&mut ledger, now, finished(tried[0], trap()));
            pause = halted(&actions).expect("it is still broken");
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [2, 4, 8, 16, 30, 30, 30]);
        now += pause;
        let mut actions = Vec::new();
        ledger.poll(now, &mut actions);
        let tried = releases(&at(&mut ledger, now, fetched(200, 1)));
        let actions = at(&mut ledger, now, finished(tried[0], Outcome::Ack));
        assert!(matches!(actions[0], Action::Note(Note::Resumed)));
        assert!(!ledger.cannot_run());
        assert!(fetches(&actions) > 1);
    }

    #[test]
    fn a_canary_that_works_does_not_show_that_the_version_that_serves_does() {
        let mut ledger = ledger();
        step(&mut ledger, broken());
        step(&mut ledger, fetched(1, 0));
        let later = NOW + Duration::from_secs(1);
        ledger.poll(later, &mut Vec::new());
        let tried = releases(&at(&mut ledger, later, fetched(10, 1)));
        assert!(ledger.is_probe(tried[0]));
        let actions = at(&mut ledger, later, finished_aside(tried[0], Outcome::Ack));
        assert!(ledger.cannot_run());
        assert!(actions.iter().any(|a| matches!(a, Action::Acknowledge(_))));
        // Another one is tried at once.
        assert_eq!(fetches(&actions), 1);
        let tried = releases(&at(&mut ledger, later, fetched(20, 1)));
        // One that faults is charged: the next one waits its time, whichever version that was.
        let actions = at(&mut ledger, later, finished_aside(tried[0], trap()));
        assert_eq!(halted(&actions), Some(Duration::from_secs(2)));
        assert_eq!(fetches(&actions), 0);
        let later = later + Duration::from_secs(2);
        ledger.poll(later, &mut Vec::new());
        let tried = releases(&at(&mut ledger, later, fetched(30, 1)));
        at(&mut ledger, later, finished(tried[0], Outcome::Ack));
        assert!(!ledger.cannot_run());
    }

    #[test]
    fn a_canary_without_instances_hands_back_its_message_and_stops_nothing() {
        let mut ledger = ledger();
        let keys = releases(&step(&mut ledger, fetched(1, 3)));
        let fault = || Outcome::Fault(Fault::new(FaultKind::Instantiation, "no memory"));
        let actions = step(&mut ledger, finished_aside(keys[0], fault()));
        assert_eq!(handed_back(&actions), [(keys[0], 0)]);
        assert!(!actions.iter().any(|a| matches!(a, Action::Revoke(_))));
        assert!(!ledger.cannot_run());
        let actions = step(&mut ledger, finished(keys[1], fault()));
        assert!(ledger.cannot_run());
        let revoked = |a: &Action<()>| matches!(a, Action::Revoke(key) if *key == keys[2]);
        assert!(actions.iter().any(revoked));
        // And one that works there shows nothing about the version that has none.
        let later = NOW + Duration::from_secs(4);
        ledger.poll(later, &mut Vec::new());
        let tried = releases(&at(&mut ledger, later, fetched(10, 1)));
        for key in tried {
            at(&mut ledger, later, finished_aside(key, Outcome::Ack));
        }
        assert!(ledger.cannot_run());
    }

    #[test]
    fn what_is_held_follows_how_many_one_call_takes() {
        for (batch, want) in [(1, 4), (3, 12), (100, 16)] {
            let mut ledger = ledger();
            let actions = step(&mut ledger, Event::BatchChanged(batch));
            assert_eq!(fetches(&actions), want);
        }
    }

    #[test]
    fn what_started_before_says_nothing_about_a_broken_handler() {
        let mut ledger = ledger();
        let keys = releases(&step(&mut ledger, fetched(1, 2)));
        step(&mut ledger, broken());
        step(&mut ledger, finished(keys[0], Outcome::Ack));
        assert!(ledger.cannot_run());
        let later = NOW + Duration::from_secs(2);
        ledger.poll(later, &mut Vec::new());
        at(&mut ledger, later, finished(keys[1], trap()));
        assert!(ledger.cannot_run());
        // Another version is tried at once.
        let actions = at(&mut ledger, later, Event::HandlerChanged);
        assert!(matches!(actions[0], Action::Note(Note::Resumed)));
        assert!(!ledger.cannot_run());
    }

    #[test]
    fn panics_of_the_host_stop_it_until_another_version_runs() {
        let mut ledger = ledger();
        let keys = releases(&step(&mut ledger, fetched(1, 3)));
        let actions = step(
            &mut ledger,
            Event::Panicked {
                detail: "three of them".to_owned(),
            },
        );
        let is_halt = |action: &Action<()>| {
            matches!(
                action,
                Action::Note(Note::Halted {
                    cause: HaltCause::Panics,
                    ..
                })
            )
        };
        assert!(actions.iter().any(is_halt));
        let back = step(&mut ledger, Event::Revoked(keys[1]));
        assert_eq!(handed_back(&back), [(keys[1], 0)]);
        // What ran meanwhile ends, and says nothing about the next one.
        let acked = step(&mut ledger, finished(keys[0], Outcome::Ack));
        assert!(acked.iter().any(|a| matches!(a, Action::Acknowledge(_))));
        let later = NOW + Duration::from_secs(1_000_000_000);
        let actions = at(&mut ledger, later, fetched(10, 1));
        assert_eq!(handed_back(&actions).len(), 1);
        assert!(ledger.cannot_run() && fetches(&actions) == 0);
        let actions = at(&mut ledger, later, Event::HandlerChanged);
        assert!(matches!(actions[0], Action::Note(Note::Resumed)));
    }

    #[test]
    fn without_a_way_back_what_is_held_waits_and_is_tried_one_by_one() {
        let mut ledger = forgetful();
        let keys = releases(&step(&mut ledger, fetched(1, 3)));
        step(&mut ledger, broken());
        for key in &keys {
            let actions = step(&mut ledger, Event::Revoked(*key));
            assert!(handed_back(&actions).is_empty());
            assert!(releases(&actions).is_empty());
        }
        assert_eq!(ledger.len(), 3);
        let later = NOW + Duration::from_secs(1);
        let mut actions = Vec::new();
        ledger.poll(later, &mut actions);
        let tried = releases(&actions);
        assert_eq!(tried.len(), 1);
        let actions = at(&mut ledger, later, finished(tried[0], Outcome::Ack));
        assert!(!ledger.cannot_run());
        assert_eq!(releases(&actions).len(), 2);
    }
}
