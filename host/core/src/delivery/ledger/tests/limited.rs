//! Starts that are limited.

use super::*;

/// A ledger whose starts are limited, with these deliveries.
fn limited(ids: Range<u128>) -> (Ledger<()>, Vec<Action<()>>) {
    let mut ledger = ledger();
    step(&mut ledger, Event::Limited(Limited::Starts));
    let actions = step(&mut ledger, fetched(ids));
    (ledger, actions)
}

fn asked(actions: &[Action<()>]) -> Vec<Key> {
    let asked = |action: &Action<()>| match action {
        Action::Admit { keys, .. } => keys.clone(),
        _ => Vec::new(),
    };
    actions.iter().flat_map(asked).collect()
}

fn admitted(replies: &[Admission]) -> Event<()> {
    Event::Admitted {
        sent: NOW,
        replies: Some(replies.to_vec()),
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
    let actions = step(&mut ledger, Event::Limited(Limited::No));
    assert_eq!(releases(&actions), keys);
    assert_eq!(asked(&step(&mut ledger, fetched(2..4))), []);
}

/// A record that is answered late is taken back: the start would come too late for its limit.
#[test]
fn a_start_that_is_recorded_late_goes_back_without_its_charge() {
    let mut ledger = ledger();
    step(&mut ledger, Event::Limited(Limited::Starts));
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

/// A ledger whose attempts need permits, with these deliveries, and what it says of its permits.
fn permitted(ids: Range<u128>) -> (Ledger<()>, Vec<Key>) {
    let mut ledger = ledger();
    step(&mut ledger, Event::Limited(Limited::Permits));
    let actions = step(&mut ledger, fetched(ids));
    assert_eq!(said(&actions), [0]);
    (ledger, asked(&actions))
}

/// How many permits it says it has, request by request.
fn said(actions: &[Action<()>]) -> Vec<usize> {
    let said = |action: &Action<()>| match action {
        Action::Admit { permits, .. } => Some(permits.held),
        _ => None,
    };
    actions.iter().filter_map(said).collect()
}

/// No request.
const NOTHING: [usize; 0] = [];

const FAILED: Event<()> = Event::Admitted {
    sent: NOW,
    replies: None,
};

#[test]
fn what_ends_gives_its_permit_back_and_what_waits_is_asked_for_at_once() {
    let (mut ledger, keys) = permitted(0..3);
    let wait = Admission::Wait(SECOND);
    let granted = Admission::Granted;
    let actions = step(&mut ledger, admitted(&[granted, granted, wait]));
    assert_eq!(releases(&actions), keys[..2]);
    assert_eq!(said(&actions), NOTHING);
    let actions = step(&mut ledger, finished(keys[0], Outcome::Ack));
    assert_eq!(
        (said(&actions), asked(&actions)),
        (vec![1], keys[2..].to_vec())
    );
    // Nothing waits: it is given back, and the host waits as long as it was told.
    step(&mut ledger, admitted(&[granted]));
    let actions = step(&mut ledger, finished(keys[1], Outcome::Ack));
    assert_eq!((said(&actions), asked(&actions)), (vec![1], vec![]));
    assert_eq!(said(&step(&mut ledger, admitted(&[]))), NOTHING);
}

#[test]
fn a_pause_and_a_drain_keep_no_permit() {
    for event in [Event::Paused(true), Event::Drain] {
        let (mut ledger, keys) = permitted(0..2);
        let wait = Admission::Wait(SECOND);
        step(&mut ledger, admitted(&[Admission::Granted, wait]));
        assert_eq!(handed_back(&step(&mut ledger, event)), [(keys[1], 0)]);
        step(&mut ledger, Event::Settled(keys[1], Reply::Done));
        let actions = step(&mut ledger, finished(keys[0], Outcome::Ack));
        assert_eq!((said(&actions), asked(&actions)), (vec![0], vec![]));
        step(&mut ledger, Event::Acknowledged(vec![keys[0]]));
        // A host that drains leaves when Redis knows; or when it cannot know.
        assert!(!ledger.is_drained());
        step(&mut ledger, FAILED);
        assert_eq!(said(&polled(&mut ledger, NOW + SECOND)), [0]);
        at(&mut ledger, NOW + SECOND, admitted(&[]));
        assert_eq!(said(&polled(&mut ledger, NOW + 9 * SECOND)), NOTHING);
    }
}

#[test]
fn a_host_says_again_and_again_how_many_permits_it_has() {
    let (mut ledger, keys) = permitted(0..1);
    step(&mut ledger, admitted(&[Admission::Granted]));
    let renewal = NOW + 10 * SECOND;
    assert_eq!(ledger.next_deadline().map(|at| at <= renewal), Some(true));
    assert_eq!(said(&polled(&mut ledger, renewal)), [1]);
    // Without an answer it says so again, and nothing starts by itself beyond the lease.
    assert_eq!(said(&at(&mut ledger, renewal, FAILED)), NOTHING);
    assert_eq!(said(&polled(&mut ledger, renewal + SECOND)), [1]);
    assert_eq!(ledger.leased(keys[0]), Some(NOW));
    // After a reconnect it says so at once.
    let actions = at(&mut ledger, renewal + SECOND, admitted(&[]));
    assert_eq!(said(&actions), NOTHING);
    at(&mut ledger, renewal + SECOND, Event::Offline);
    assert_eq!(said(&at(&mut ledger, renewal + SECOND, Event::Online)), [1]);
}

/// Redis may have granted what was not answered.
#[test]
fn a_permit_whose_answer_is_lost_is_given_back() {
    let (mut ledger, _) = permitted(0..1);
    step(&mut ledger, FAILED);
    step(&mut ledger, Event::Paused(true));
    assert_eq!(said(&polled(&mut ledger, NOW + SECOND)), [0]);
}
