//! Starts that are limited.

use super::*;

/// A ledger whose starts are limited, with these deliveries.
fn limited(ids: Range<u128>) -> (Ledger<()>, Vec<Action<()>>) {
    let mut ledger = ledger();
    step(&mut ledger, Event::Limited(true));
    let actions = step(&mut ledger, fetched(ids));
    (ledger, actions)
}

fn asked(actions: &[Action<()>]) -> Vec<Key> {
    let asked = |action: &Action<()>| match action {
        Action::Admit(keys) => keys.clone(),
        _ => Vec::new(),
    };
    actions.iter().flat_map(asked).collect()
}

fn admitted(replies: &[Admission]) -> Event<()> {
    Event::Admitted {
        sent: NOW,
        replies: replies.to_vec(),
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn each_start_is_asked_for_and_what_must_wait_is_asked_for_again() {
    let (mut ledger, actions) = limited(0..3);
    assert_eq!(releases(&actions), []);
    let keys = asked(&actions);
    assert_eq!(keys.len(), 3);
    let wait = Admission::Wait(SECOND / 2);
    let actions = step(&mut ledger, admitted(&[Admission::Granted, wait, wait]));
    assert_eq!(releases(&actions), keys[..1]);
    assert_eq!(asked(&polled(&mut ledger, NOW)), []);
    let then = NOW + SECOND / 2;
    assert_eq!(ledger.next_deadline().map(|at| at <= then), Some(true));
    assert_eq!(asked(&polled(&mut ledger, then)), keys[1..]);
}

#[test]
fn an_admission_is_good_for_a_moment_and_for_free_slots_only() {
    let (mut ledger, actions) = limited(0..4);
    let keys = asked(&actions);
    let actions = step(&mut ledger, admitted(&[Admission::Granted; 4]));
    assert_eq!(releases(&actions), keys);
    // All slots are taken.
    assert_eq!(asked(&step(&mut ledger, fetched(4..6))), []);
    let next = asked(&step(&mut ledger, finished(keys[0], Outcome::Ack)));
    assert_eq!(next.len(), 1);
    // The answer took too long.
    let actions = at(&mut ledger, NOW + SECOND, admitted(&[Admission::Granted]));
    assert_eq!(releases(&actions), []);
    assert_eq!(asked(&actions), next);
}

#[test]
fn what_a_key_stops_goes_back_uncharged_until_its_start() {
    let (mut ledger, actions) = limited(0..2);
    let keys = asked(&actions);
    let later = Admission::Later(SECOND);
    let actions = step(&mut ledger, admitted(&[later, Admission::Granted]));
    assert_eq!(releases(&actions), keys[1..]);
    assert_eq!(handed_back(&actions), [(keys[0], 0)]);
    let after = actions.iter().find_map(|action| match action {
        Action::Settle { action, .. } => action.parking(),
        _ => None,
    });
    assert_eq!(after, Some((0, SECOND)));
}

#[test]
fn a_host_that_may_start_one_message_asks_for_few() {
    let (mut ledger, actions) = limited(0..2);
    assert_eq!(asked(&actions).len(), 2);
    let wait = Admission::Wait(SECOND);
    let actions = step(&mut ledger, admitted(&[Admission::Granted, wait]));
    // One runs, and one waits: there is no room for a third one.
    assert_eq!(fetches(&actions), []);
    // A drain waits for no limit.
    let actions = step(&mut ledger, Event::Drain);
    assert_eq!(handed_back(&actions).len(), 1);
}

#[test]
fn without_limits_nothing_is_asked() {
    let (mut ledger, actions) = limited(0..2);
    let keys = asked(&actions);
    let actions = step(&mut ledger, Event::Limited(false));
    assert_eq!(releases(&actions), keys);
    assert_eq!(asked(&step(&mut ledger, fetched(2..4))), []);
}

/// A record that is answered late is taken back: the start would come too late for its limit.
#[test]
fn a_start_that_is_recorded_late_goes_back_without_its_charge() {
    let mut ledger = ledger();
    step(&mut ledger, Event::Limited(true));
    let returned = Delivery {
        origin: Origin::Returned,
        native: 1,
        ..match fetched(0..1) {
            Event::Fetched { mut deliveries, .. } => deliveries.remove(0),
            _ => unreachable!("it is a fetch"),
        }
    };
    let event = Event::DueTaken {
        leased: NOW,
        deliveries: vec![returned],
        next: None,
    };
    let keys = asked(&step(&mut ledger, event));
    let actions = step(&mut ledger, admitted(&[Admission::Granted]));
    assert_eq!(releases(&actions), keys);
    step(&mut ledger, Event::SlotReady(keys[0]));
    let late = NOW + 2 * SECOND;
    let recorded = Event::Recorded {
        key: keys[0],
        leased: late,
        reply: Reply::Done,
    };
    let actions = at(&mut ledger, late, recorded);
    assert_eq!(handed_back(&actions), [(keys[0], 1)]);
}
