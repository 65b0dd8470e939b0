//! Single steps that the model's worlds hardly reach.

use std::time::Duration;

use super::*;
use crate::delivery::attempt::Allowance;
use crate::delivery::backoff::Backoff;
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::policy::{OnCap, OnFault};

const NOW: Time = Time::from_millis(1);

fn ledger() -> Ledger<()> {
    let policy = Policy {
        allowance: Allowance::default(),
        on_cap: OnCap::DeadLetter,
        on_fault: OnFault::Requeue,
        has_dead_letter: true,
        dead_letters: crate::delivery::policy::DeadLetterRules::default(),
        backoff: Backoff::default(),
    };
    let settings = Settings {
        policy,
        concurrency: 4,
        batch: 1,
        prefetch_max: 16,
        min_idle: Duration::from_secs(30),
        orphan_scan: Duration::from_secs(1),
        due_scan: Duration::from_millis(100),
    };
    Ledger::new(Time::ZERO, settings)
}

/// A ledger of a queue that forgets what it hands out.
fn forgetful() -> Ledger<()> {
    let Ledger { mut settings, .. } = ledger();
    settings.policy = settings.policy.at_most_once();
    settings.concurrency = 1;
    Ledger::new(Time::ZERO, settings)
}

fn fetched(ids: std::ops::Range<u128>) -> Event<()> {
    let deliveries = ids.map(|id| Delivery {
        id: DeliveryId(id),
        origin: Origin::Fresh,
        header: 0,
        native: 1,
        turned_away: None,
        cargo: (),
    });
    Event::Fetched {
        asked: 4,
        leased: NOW,
        deliveries: deliveries.collect(),
    }
}

fn releases(actions: &[Action<()>]) -> Vec<Key> {
    let release = |action: &Action<()>| match action {
        Action::Release { key, .. } => Some(*key),
        _ => None,
    };
    actions.iter().filter_map(release).collect()
}

/// The fetches asked for: whether they may wait.
fn fetches(actions: &[Action<()>]) -> Vec<bool> {
    let fetch = |action: &Action<()>| match action {
        Action::Fetch { wait, .. } => Some(*wait),
        _ => None,
    };
    actions.iter().filter_map(fetch).collect()
}

#[test]
fn what_cannot_go_back_is_run_before_the_drain_is_over() {
    let mut ledger = forgetful();
    let keys = releases(&step(&mut ledger, fetched(1..3)));
    assert_eq!(keys.len(), 2);
    let actions = step(&mut ledger, Event::Drain);
    // Nothing is taken back from the executor, and nothing is handed back.
    let goes_back =
        |action: &Action<()>| matches!(action, Action::Revoke(_) | Action::Settle { .. });
    assert!(!actions.iter().any(goes_back), "{actions:?}");
    let mut left = keys;
    let mut asked = 0;
    let mut brought = 3..5;
    for _ in 0..20 {
        let mut actions = Vec::new();
        ledger.poll(NOW, &mut actions);
        while let Some(key) = left.pop() {
            let finished = Event::Finished {
                key,
                outcome: Outcome::NackRequeue(None),
                is_current: true,
                jitter: 0.5,
            };
            actions.extend(step(&mut ledger, finished));
        }
        for action in std::mem::take(&mut actions) {
            match action {
                Action::Settle { key, action, .. } => {
                    assert!(matches!(action, SettleAction::Discard(_)), "{action:?}");
                    actions.extend(step(&mut ledger, Event::Settled(key, Reply::Done)));
                }
                Action::Fetch { wait, .. } => {
                    assert!(!wait, "the server gives nothing more");
                    asked += 1;
                    let more = std::mem::replace(&mut brought, 0..0);
                    actions.extend(step(&mut ledger, fetched(more)));
                }
                _ => {}
            }
        }
        left = releases(&actions);
    }
    assert!(asked >= 2, "asked until there was nothing");
    assert!(ledger.is_drained());
}

#[test]
fn without_an_instance_what_cannot_go_back_waits() {
    let mut ledger = forgetful();
    let keys = releases(&step(&mut ledger, fetched(1..2)));
    let fault = Fault::new(FaultKind::Instantiation, "no memory");
    let finished = Event::Finished {
        key: keys[0],
        outcome: Outcome::Fault(fault),
        is_current: true,
        jitter: 0.5,
    };
    let actions = step(&mut ledger, finished);
    assert!(releases(&actions).is_empty() && fetches(&actions).is_empty());
    assert_eq!(ledger.len(), 1);
    let mut actions = Vec::new();
    ledger.poll(NOW + Duration::from_secs(2), &mut actions);
    assert_eq!(releases(&actions).len(), 1);
}

fn step(ledger: &mut Ledger<()>, event: Event<()>) -> Vec<Action<()>> {
    let mut actions = Vec::new();
    ledger.apply(NOW, event);
    ledger.poll(NOW, &mut actions);
    actions
}

/// A first delivery that is with the executor.
fn released(ledger: &mut Ledger<()>) -> Key {
    let delivery = Delivery {
        id: DeliveryId(1),
        origin: Origin::Fresh,
        header: 0,
        native: 1,
        turned_away: None,
        cargo: (),
    };
    let fetched = Event::Fetched {
        asked: 1,
        leased: NOW,
        deliveries: vec![delivery],
    };
    let actions = step(ledger, fetched);
    let key = actions.iter().find_map(|action| match action {
        Action::Release { key, .. } => Some(*key),
        _ => None,
    });
    key.expect("it is released")
}

fn renewed(key: Key, reply: Reply) -> Event<()> {
    Event::Renewed {
        leased: NOW,
        replies: vec![(key, reply)],
    }
}

fn finished(key: Key, outcome: Outcome) -> Event<()> {
    Event::Finished {
        key,
        outcome,
        is_current: true,
        jitter: 0.5,
    }
}

fn endings(actions: &[Action<()>]) -> Vec<&Ending> {
    let endings = actions.iter().filter_map(|action| match action {
        Action::Ended { ending, .. } => Some(ending),
        _ => None,
    });
    endings.collect()
}

#[test]
fn what_was_found_trimmed_does_not_end_as_gone() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, renewed(key, Reply::Trimmed));
    // The renewal took it off the pending list: the next one finds nothing.
    step(&mut ledger, renewed(key, Reply::Gone));
    let actions = step(&mut ledger, finished(key, Outcome::NackRequeue(None)));
    assert_eq!(endings(&actions), [&Ending::Trimmed]);
}

#[test]
fn trimming_found_while_it_settles_is_not_forgotten() {
    for (outcome, ending) in [
        (Outcome::NackRequeue(None), Ending::Trimmed),
        (Outcome::Drop(None), Ending::Trimmed),
        // It was handled: nothing is lost.
        (Outcome::Ack, Ending::Acknowledged),
    ] {
        let mut ledger = ledger();
        let key = released(&mut ledger);
        step(&mut ledger, finished(key, outcome));
        step(&mut ledger, renewed(key, Reply::Trimmed));
        let actions = step(&mut ledger, Event::Settled(key, Reply::Gone));
        assert_eq!(endings(&actions), [&ending]);
    }
}

#[test]
fn what_was_stolen_stays_stolen() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, renewed(key, Reply::Stolen));
    step(&mut ledger, renewed(key, Reply::Gone));
    let actions = step(&mut ledger, finished(key, Outcome::Drop(None)));
    assert_eq!(endings(&actions), [&Ending::Stolen]);
}
