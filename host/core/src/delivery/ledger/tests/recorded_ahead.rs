//! Starts that are recorded before a slot is free for them.

use super::*;
use crate::delivery::attempt::{Accounting, DeliveryLimit};

const LATER: Time = Time::from_millis(30);

/// Eight messages, whose first attempts took 30 ms together, and failed.
fn failed(settings: Settings) -> (Ledger<()>, Vec<Action<()>>) {
    let mut ledger = Ledger::new(Time::ZERO, settings);
    let keys = releases(&step(&mut ledger, fetched(1..9)));
    assert_eq!(keys.len(), 8);
    for key in keys {
        ledger.apply(LATER, finished(key, Outcome::NackRequeue(Some(Time::ZERO))));
    }
    let actions = polled(&mut ledger, LATER);
    (ledger, actions)
}

/// A host that works far ahead.
fn quick() -> Settings {
    Settings {
        ahead: Duration::from_secs(60),
        ..settings()
    }
}

fn records(actions: &[Action<()>]) -> Vec<(Key, u32, u32)> {
    let record = |action: &Action<()>| match *action {
        Action::Record { key, expect, write } => Some((key, expect, write)),
        _ => None,
    };
    actions.iter().filter_map(record).collect()
}

fn recorded(key: Key, leased: Time, reply: Reply) -> Event<()> {
    Event::Recorded { key, leased, reply }
}

/// The starts that the executor may make without asking.
fn starts(actions: &[Action<()>]) -> Vec<(Key, u32)> {
    let start = |action: &Action<()>| match *action {
        Action::Release {
            key,
            attempt: Some(attempt),
            ..
        } => Some((key, attempt)),
        _ => None,
    };
    actions.iter().filter_map(start).collect()
}

fn denied(actions: &[Action<()>]) -> bool {
    let is_deny = |action: &Action<()>| matches!(action, Action::Deny(_));
    actions.iter().any(is_deny)
}

/// The first of the failed messages, whose second start is recorded.
fn one_recorded(settings: Settings) -> (Ledger<()>, Key) {
    let (mut ledger, actions) = failed(settings);
    let (key, ..) = records(&actions)[0];
    let actions = at(&mut ledger, LATER, recorded(key, LATER, Reply::Done));
    assert_eq!(starts(&actions), [(key, 2)]);
    (ledger, key)
}

#[test]
fn while_attempts_are_short_starts_are_recorded_together_before_slots_are_free() {
    let (mut ledger, actions) = failed(quick());
    let records = records(&actions);
    assert_eq!(records.len(), 8);
    assert!(releases(&actions).is_empty(), "{actions:?}");
    for &(key, expect, write) in &records {
        assert_eq!((expect, write), (1, 2));
        ledger.apply(LATER, recorded(key, LATER, Reply::Done));
    }
    let keys = records.into_iter().map(|(key, ..)| (key, 2));
    assert_eq!(
        starts(&polled(&mut ledger, LATER)),
        keys.collect::<Vec<_>>()
    );
}

#[test]
fn while_attempts_are_long_their_slots_ask() {
    // Eight in 30 ms: fewer than twice the slots in the next 20 ms.
    let (mut ledger, actions) = failed(settings());
    assert!(records(&actions).is_empty());
    let keys = releases(&actions);
    assert_eq!((keys.len(), starts(&actions).len()), (8, 0));
    let actions = at(&mut ledger, LATER, Event::SlotReady(keys[0]));
    assert_eq!(records(&actions), [(keys[0], 1, 2)]);
}

#[test]
fn exact_accounting_and_a_cap_of_one_exclude_records_ahead() {
    let exact = DeliveryLimit {
        accounting: Accounting::Exact,
        ..DeliveryLimit::default()
    };
    let last = DeliveryLimit {
        cap: Some(1),
        ..DeliveryLimit::default()
    };
    for limit in [exact, last] {
        let policy = Policy {
            limit,
            ..settings().policy
        };
        let mut ledger = Ledger::new(Time::ZERO, Settings { policy, ..quick() });
        ledger.intake.rate.per_second = 1e6;
        let actions = step(&mut ledger, fetched(1..9));
        assert!(records(&actions).is_empty(), "{limit:?}");
        assert_eq!((releases(&actions).len(), starts(&actions).len()), (8, 0));
    }
}

#[test]
fn no_more_starts_are_recorded_ahead_than_the_prefetch_allows_and_half_begin_before_the_next_ones()
{
    let mut ledger = Ledger::new(Time::ZERO, quick());
    ledger.intake.rate.per_second = 1e6;
    // Taken back from a host that parked them.
    let deliveries = (1..41).map(|id| Delivery {
        id: DeliveryId(id),
        origin: Origin::Returned,
        header: 0,
        native: 1,
        held: 0,
        turned_away: None,
        is_awaited: false,
        job: (),
    });
    let event = Event::DueTaken {
        leased: NOW,
        deliveries: deliveries.collect(),
        next: None,
    };
    let first = records(&step(&mut ledger, event));
    assert_eq!(first.len(), 16);
    for &(key, ..) in &first {
        ledger.apply(NOW, recorded(key, NOW, Reply::Done));
    }
    let mut more = Vec::new();
    for (begun, &(key, ..)) in first.iter().enumerate() {
        let actions = at(&mut ledger, NOW, finished(key, Outcome::Ack));
        more.extend(records(&actions));
        assert_eq!(more.is_empty(), begun < 8, "{begun}");
    }
    assert!(more.len() <= 16 && more.len() >= 8, "{more:?}");
}

#[test]
fn what_is_recorded_ahead_goes_back_with_its_count_from_before() {
    // The host drains, or the operator pauses the queue.
    for event in [Event::Drain, Event::Paused(true)] {
        let (mut ledger, key) = one_recorded(quick());
        let (other, ..) = records(&failed(quick()).1)[1];
        let actions = at(&mut ledger, LATER, event.clone());
        assert!(revoked(&actions).contains(&key), "{event:?}");
        let actions = at(&mut ledger, LATER, Event::Revoked(key));
        assert_eq!(handed_back(&actions), [(key, 1)], "{event:?}");
        // Its record was under way.
        let actions = at(&mut ledger, LATER, recorded(other, LATER, Reply::Done));
        assert_eq!(handed_back(&actions), [(other, 1)], "{event:?}");
        assert!(!denied(&actions));
    }
}

#[test]
fn a_message_recorded_ahead_whose_lease_is_too_old_goes_back() {
    // Its lease was confirmed too long ago.
    let (mut ledger, key) = one_recorded(quick());
    let actions = at(&mut ledger, LATER, Event::SlotReady(key));
    assert!(denied(&actions));
    assert_eq!(handed_back(&actions), [(key, 1)]);
}

#[test]
fn a_message_whose_record_ahead_redis_refuses_goes_back() {
    let (mut ledger, actions) = failed(quick());
    let (key, ..) = records(&actions)[0];
    let refusal = Reply::Refused("OOM".to_owned());
    let actions = at(&mut ledger, LATER, recorded(key, LATER, refusal));
    assert!(!denied(&actions) && starts(&actions).is_empty());
    let later = LATER + Time::from_secs(1);
    assert_eq!(handed_back(&polled(&mut ledger, later)), [(key, 1)]);
}

#[test]
fn a_message_that_expires_after_its_record_is_not_charged_for_it() {
    let (mut ledger, key) = one_recorded(quick());
    let event = Event::TurnedAway {
        key,
        reason: Reason::Expired,
        detail: "it expired".to_owned(),
    };
    let actions = at(&mut ledger, LATER, event);
    let settled = actions.iter().find_map(|action| match action {
        Action::Settle { count, action, .. } => Some((*count, action.clone())),
        _ => None,
    });
    let (count, SettleAction::DeadLetter(rejection)) = settled.expect("it is settled") else {
        panic!("no dead letter: {actions:?}");
    };
    assert_eq!((count, rejection.attempts), (2, 1));
}
