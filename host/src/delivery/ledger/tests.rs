//! Single steps that the model's worlds hardly reach.

use std::time::Duration;

use super::*;
use crate::delivery::attempt::Allowance;
use crate::delivery::backoff::Backoff;
use crate::delivery::outcome::Outcome;
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
        prefetch_max: 16,
        min_idle: Duration::from_secs(30),
        orphan_scan: Duration::from_secs(1),
        due_scan: Duration::from_millis(100),
    };
    Ledger::new(Time::ZERO, settings)
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
