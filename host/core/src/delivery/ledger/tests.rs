//! Single steps that the model's worlds hardly reach.

mod limited;
mod recorded_ahead;

use std::ops::Range;
use std::time::Duration;

use super::*;
use crate::delivery::attempt::DeliveryLimit;
use crate::delivery::hold::HoldLimits;
use crate::delivery::outcome::{Fault, FaultKind, Outcome};
use crate::delivery::policy::{OnCap, Reason, Reasons};

const NOW: Time = Time::from_millis(1);

fn settings() -> Settings {
    Settings {
        policy: Policy {
            has_dead_letter: true,
            ..Policy::default()
        },
        checked_acks: false,
        paused: false,
        takes_back: true,
        concurrency: 4,
        batch: 1,
        prefetch_max: 16,
        ahead: Duration::from_millis(20),
        min_idle: Duration::from_secs(30),
        orphan_scan: Duration::from_secs(1),
        due_scan: Duration::from_millis(100),
    }
}

fn ledger() -> Ledger<()> {
    Ledger::new(Time::ZERO, settings())
}

/// A ledger of a queue that forgets what it hands out, and takes nothing back.
fn at_most_once(concurrency: usize) -> Ledger<()> {
    forgetful(concurrency, false)
}

/// A ledger of a queue that forgets what it hands out, and may take back what has not started.
fn forgetful(concurrency: usize, takes_back: bool) -> Ledger<()> {
    let settings = settings();
    let policy = settings.policy.at_most_once();
    let settings = Settings {
        policy,
        takes_back,
        checked_acks: false,
        concurrency,
        ..settings
    };
    Ledger::new(Time::ZERO, settings)
}

fn at(ledger: &mut Ledger<()>, now: Time, event: Event<()>) -> Vec<Action<()>> {
    ledger.apply(now, event);
    polled(ledger, now)
}

fn step(ledger: &mut Ledger<()>, event: Event<()>) -> Vec<Action<()>> {
    at(ledger, NOW, event)
}

fn polled(ledger: &mut Ledger<()>, now: Time) -> Vec<Action<()>> {
    let mut actions = Vec::new();
    ledger.poll(now, &mut actions);
    actions
}

/// Fresh deliveries with these ids.
fn fetched(ids: Range<u128>) -> Event<()> {
    fetched_at(NOW, ids)
}

fn fetched_at(leased: Time, ids: Range<u128>) -> Event<()> {
    let deliveries = ids.map(|id| Delivery {
        id: DeliveryId(id),
        origin: Origin::Fresh,
        header: 0,
        native: 1,
        held: 0,
        turned_away: None,
        is_awaited: false,
        job: (),
    });
    Event::Fetched {
        leased,
        deliveries: deliveries.collect(),
        more: false,
    }
}

/// A part of a fetch, behind which another one comes.
fn part(ids: Range<u128>) -> Event<()> {
    match fetched(ids) {
        Event::Fetched {
            leased, deliveries, ..
        } => Event::Fetched {
            leased,
            deliveries,
            more: true,
        },
        event => event,
    }
}

fn finished(key: Key, outcome: Outcome) -> Event<()> {
    Event::Finished {
        key,
        outcome,
        told: None,
        hold: None,
        acts: false,
        is_current: true,
        jitter: 0.5,
    }
}

/// The end of an attempt on a canary.
fn finished_on_canary(key: Key, outcome: Outcome) -> Event<()> {
    Event::Finished {
        key,
        outcome,
        told: None,
        hold: None,
        acts: false,
        is_current: false,
        jitter: 0.5,
    }
}

fn renewed(key: Key, reply: Reply) -> Event<()> {
    Event::Renewed {
        leased: NOW,
        replies: vec![(key, reply)],
    }
}

fn broken() -> Event<()> {
    Event::Broken {
        detail: "it faults on everything".to_owned(),
    }
}

fn trap() -> Outcome {
    Outcome::Fault(Fault::new(FaultKind::Trap, "unreachable"))
}

fn no_instance() -> Outcome {
    Outcome::Fault(Fault::new(FaultKind::Instantiation, "no memory"))
}

/// A first delivery that is with the executor.
fn released(ledger: &mut Ledger<()>) -> Key {
    releases(&step(ledger, fetched(1..2)))[0]
}

fn releases(actions: &[Action<()>]) -> Vec<Key> {
    let release = |action: &Action<()>| match action {
        Action::Release { key, .. } => Some(*key),
        _ => None,
    };
    actions.iter().filter_map(release).collect()
}

/// The fetches asked for: how many messages each wants, and whether it may wait.
fn fetches(actions: &[Action<()>]) -> Vec<(usize, bool)> {
    let fetch = |action: &Action<()>| match action {
        Action::Fetch { want, wait } => Some((*want, *wait)),
        _ => None,
    };
    actions.iter().filter_map(fetch).collect()
}

/// The deliveries that are handed back, and the counts they keep.
fn handed_back(actions: &[Action<()>]) -> Vec<(Key, u32)> {
    let back = |action: &Action<()>| match action {
        Action::Settle {
            key,
            action: SettleAction::HandBack { keep, .. },
            ..
        } => Some((*key, *keep)),
        _ => None,
    };
    actions.iter().filter_map(back).collect()
}

fn revoked(actions: &[Action<()>]) -> Vec<Key> {
    let revoke = |action: &Action<()>| match action {
        Action::Revoke(key) => Some(*key),
        _ => None,
    };
    actions.iter().filter_map(revoke).collect()
}

fn closed(actions: &[Action<()>]) -> Vec<&Closed> {
    let closed = actions.iter().filter_map(|action| match action {
        Action::Closed { how, .. } => Some(how),
        _ => None,
    });
    closed.collect()
}

fn halted(actions: &[Action<()>], of: HaltCause) -> Option<Duration> {
    actions.iter().find_map(|action| match action {
        Action::Note(Note::Halted { cause, again, .. }) if *cause == of => Some(*again),
        _ => None,
    })
}

fn acknowledges(actions: &[Action<()>]) -> bool {
    actions.iter().any(|a| matches!(a, Action::Acknowledge(_)))
}

fn resumes(actions: &[Action<()>]) -> bool {
    matches!(actions[0], Action::Note(Note::Resumed))
}

#[test]
fn a_draining_host_runs_what_cannot_go_back() {
    let mut ledger = at_most_once(1);
    let keys = releases(&step(&mut ledger, fetched(1..3)));
    assert_eq!(keys.len(), 2);
    let (leased, deliveries) = (NOW, Vec::new());
    step(&mut ledger, Event::OrphansTaken { leased, deliveries });
    let actions = step(&mut ledger, Event::Drain);
    // Nothing is taken back from the executor, and nothing is handed back.
    let goes_back =
        |action: &Action<()>| matches!(action, Action::Revoke(_) | Action::Settle { .. });
    assert!(!actions.iter().any(goes_back), "{actions:?}");
    let mut left = keys;
    let mut asked = 0;
    let mut brought = 3..5;
    for _ in 0..20 {
        let mut actions = polled(&mut ledger, NOW);
        while let Some(key) = left.pop() {
            actions.extend(step(&mut ledger, finished(key, Outcome::NackRequeue(None))));
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
    let mut ledger = at_most_once(1);
    let key = released(&mut ledger);
    let actions = step(&mut ledger, finished(key, no_instance()));
    assert!(releases(&actions).is_empty() && fetches(&actions).is_empty());
    assert_eq!(ledger.len(), 1);
    let actions = polled(&mut ledger, NOW + Duration::from_secs(2));
    assert_eq!(releases(&actions).len(), 1);
}

#[test]
fn a_paused_host_hands_back_what_has_not_started_and_reads_nothing() {
    let mut ledger = ledger();
    let keys = releases(&step(&mut ledger, fetched(1..4)));
    // A slot has this one, and asks for its second start.
    step(
        &mut ledger,
        finished(keys[0], Outcome::NackRequeue(Some(Duration::ZERO))),
    );
    let actions = step(&mut ledger, Event::Paused(true));
    let interrupts = |action: &Action<()>| matches!(action, Action::Interrupt);
    assert!(actions.iter().any(interrupts), "{actions:?}");
    let mut back: Vec<_> = revoked(&actions);
    assert!(back.contains(&keys[1]) && back.contains(&keys[2]));
    // The first one runs already: it cannot be taken back, and ends.
    back.retain(|key| *key != keys[1]);
    for key in back {
        let actions = step(&mut ledger, Event::Revoked(key));
        let keep = u32::from(key == keys[0]);
        assert_eq!(handed_back(&actions), [(key, keep)]);
        step(&mut ledger, Event::Settled(key, Reply::Done));
    }
    assert_eq!(ledger.len(), 1, "{ledger:?}");
    assert!(acknowledges(&step(
        &mut ledger,
        finished(keys[1], Outcome::Ack)
    )));
    step(&mut ledger, Event::Acknowledged(vec![keys[1]]));
    // What a late answer brings goes back as well, with the count from before.
    let actions = step(&mut ledger, fetched(20..22));
    let kept: Vec<u32> = handed_back(&actions)
        .into_iter()
        .map(|(_, keep)| keep)
        .collect();
    assert_eq!(kept, [0, 0]);
    let late = polled(&mut ledger, NOW + Duration::from_secs(60));
    let asks = |action: &Action<()>| {
        matches!(
            action,
            Action::Fetch { .. }
                | Action::TakeDue { .. }
                | Action::TakeOrphans { .. }
                | Action::Release { .. }
        )
    };
    assert!(!late.iter().any(asks), "{late:?}");
    let actions = step(&mut ledger, Event::Paused(false));
    assert_eq!(fetches(&actions).len(), 1);
}

#[test]
fn a_paused_host_that_cannot_hand_back_runs_what_it_holds_and_reads_nothing() {
    let mut ledger = at_most_once(4);
    let keys = releases(&step(&mut ledger, fetched(1..3)));
    let actions = step(&mut ledger, Event::Paused(true));
    assert!(revoked(&actions).is_empty() && handed_back(&actions).is_empty());
    // What a late answer brings runs as well.
    let late = step(&mut ledger, fetched(20..21));
    assert_eq!(releases(&late).len(), 1, "{late:?}");
    for key in keys.into_iter().chain(releases(&late)) {
        step(&mut ledger, finished(key, Outcome::Ack));
        step(&mut ledger, Event::Acknowledged(vec![key]));
    }
    assert_eq!(ledger.len(), 0, "{ledger:?}");
    let late = polled(&mut ledger, NOW + Duration::from_secs(60));
    assert!(fetches(&late).is_empty(), "{late:?}");
    let actions = step(&mut ledger, Event::Paused(false));
    assert_eq!(fetches(&actions).len(), 1);
}

#[test]
fn while_paused_a_nack_goes_to_redis_and_a_suspect_keeps_its_mark() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, Event::Paused(true));
    let at_once = Outcome::NackRequeue(Some(Duration::ZERO));
    let actions = step(&mut ledger, finished(key, at_once));
    let parks = |action: &Action<()>| {
        let Action::Settle { action, .. } = action else {
            return false;
        };
        matches!(action, SettleAction::Park { keep: 1, .. })
    };
    assert!(actions.iter().any(parks), "{actions:?}");
    step(&mut ledger, Event::Settled(key, Reply::Done));
    let orphan = Delivery {
        id: DeliveryId(9),
        origin: Origin::Orphan {
            idle: Duration::ZERO,
        },
        header: 0,
        native: 3,
        held: 0,
        turned_away: None,
        is_awaited: false,
        job: (),
    };
    let orphans = Event::OrphansTaken {
        leased: NOW,
        deliveries: vec![orphan],
    };
    let actions = step(&mut ledger, orphans);
    assert!(handed_back(&actions).is_empty() && releases(&actions).is_empty());
    assert_eq!(ledger.len(), 1);
    let later = NOW + Duration::from_secs(2);
    let actions = at(&mut ledger, later, Event::Paused(false));
    // It runs isolated now.
    assert_eq!(releases(&actions).len(), 1, "{actions:?}");
}

#[test]
fn a_trimmed_delivery_does_not_close_as_gone() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, renewed(key, Reply::Trimmed));
    // The renewal took it off the pending list: the next one finds nothing.
    step(&mut ledger, renewed(key, Reply::Gone));
    let actions = step(&mut ledger, finished(key, Outcome::NackRequeue(None)));
    assert_eq!(closed(&actions), [&Closed::Trimmed]);
}

#[test]
fn trimming_found_while_a_delivery_settles_is_kept() {
    for (outcome, how) in [
        (Outcome::NackRequeue(None), Closed::Trimmed),
        (Outcome::Drop(None), Closed::Trimmed),
        // It was handled: nothing is lost.
        (Outcome::Ack, Closed::Acknowledged),
    ] {
        let mut ledger = ledger();
        let key = released(&mut ledger);
        step(&mut ledger, finished(key, outcome));
        step(&mut ledger, renewed(key, Reply::Trimmed));
        let actions = step(&mut ledger, Event::Settled(key, Reply::Gone));
        assert_eq!(closed(&actions), [&how]);
    }
}

#[test]
fn a_stolen_delivery_stays_stolen() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, renewed(key, Reply::Stolen));
    step(&mut ledger, renewed(key, Reply::Gone));
    let actions = step(&mut ledger, finished(key, Outcome::Drop(None)));
    assert_eq!(closed(&actions), [&Closed::Stolen]);
}

#[test]
fn a_broken_handler_stops_intake_and_unstarted_deliveries_go_back_uncharged() {
    let mut ledger = ledger();
    let keys = releases(&step(&mut ledger, fetched(1..7)));
    assert_eq!(keys.len(), 6);
    let actions = step(&mut ledger, broken());
    let pause = halted(&actions, HaltCause::Broken);
    assert_eq!(pause, Some(Duration::from_secs(1)));
    assert_eq!(revoked(&actions).len(), 6);
    // Five had not started, one runs: it ends, and is charged.
    let mut back = Vec::new();
    for key in &keys[1..] {
        back.extend(handed_back(&step(&mut ledger, Event::Revoked(*key))));
    }
    assert_eq!(back.len(), 5);
    assert!(back.iter().all(|(_, keep)| *keep == 0));
    let at_once = Outcome::NackRequeue(Some(Duration::ZERO));
    let actions = step(&mut ledger, finished(keys[0], at_once));
    assert!(actions.iter().any(|action| matches!(
        action,
        Action::Settle {
            action: SettleAction::Park { keep: 1, .. },
            ..
        }
    )));
    assert_eq!(fetches(&actions), []);
    // A fetch was under way: what it brings goes back as well.
    let actions = step(&mut ledger, fetched(10..13));
    assert_eq!(handed_back(&actions).len(), 3);
    assert!(releases(&actions).is_empty());
}

#[test]
fn a_fetch_is_over_after_its_last_part() {
    let mut ledger = ledger();
    assert_eq!(fetches(&polled(&mut ledger, NOW)), [(4, false)]);
    let actions = step(&mut ledger, part(1..3));
    let keys = releases(&actions);
    assert_eq!((keys.len(), fetches(&actions)), (2, vec![]));
    for key in keys {
        let actions = step(&mut ledger, finished(key, Outcome::Ack));
        assert_eq!(
            fetches(&actions),
            [],
            "there is room, and the fetch goes on"
        );
        step(&mut ledger, Event::Acknowledged(vec![key]));
    }
    // As much as it wanted: there may be more, so the next one does not wait.
    let actions = step(&mut ledger, fetched(3..5));
    assert_eq!(fetches(&actions), [(2, false)]);
    // Less than it wanted: the next one waits.
    step(&mut ledger, part(5..6));
    let actions = step(&mut ledger, fetched(6..6));
    assert_eq!(fetches(&actions), [(1, true)]);
}

#[test]
fn a_host_is_drained_after_the_last_part_of_its_fetch() {
    let mut ledger = ledger();
    polled(&mut ledger, NOW);
    let key = releases(&step(&mut ledger, part(1..2)))[0];
    step(&mut ledger, finished(key, Outcome::Ack));
    step(&mut ledger, Event::Acknowledged(vec![key]));
    let nothing = Event::DueTaken {
        leased: NOW,
        deliveries: Vec::new(),
        next: None,
    };
    step(&mut ledger, nothing);
    let nothing = Event::OrphansTaken {
        leased: NOW,
        deliveries: Vec::new(),
    };
    step(&mut ledger, nothing);
    step(&mut ledger, Event::Drain);
    assert!(ledger.is_empty() && !ledger.is_drained());
    let back = handed_back(&step(&mut ledger, part(2..3)));
    step(&mut ledger, Event::Settled(back[0].0, Reply::Done));
    assert!(ledger.is_empty() && !ledger.is_drained());
    step(&mut ledger, fetched(3..3));
    assert!(ledger.is_drained());
}

/// Without an answer, a settlement is sent again. It may come after a claim of the same delivery.
#[test]
fn a_claim_from_before_a_repeated_settlement_is_confirmed_before_it_is_recorded() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, finished(key, Outcome::NackRequeue(None)));
    step(&mut ledger, Event::Unanswered(key));
    let settled = NOW + Duration::from_millis(5);
    at(&mut ledger, settled, Event::Settled(key, Reply::Done));
    // The first one is lost when the second one is asked for.
    for (leased, writes) in [(NOW, 2), (settled + 2 * NOW, 3)] {
        let returned = Delivery {
            id: key.id,
            origin: Origin::Returned,
            header: 0,
            native: 2,
            held: 0,
            turned_away: None,
            is_awaited: false,
            job: (),
        };
        let taken = Event::DueTaken {
            leased,
            deliveries: vec![returned],
            next: None,
        };
        let now = leased.max(settled) + 2 * NOW;
        let key = releases(&at(&mut ledger, now, taken))[0];
        let actions = at(&mut ledger, now, Event::SlotReady(key));
        let written = actions.iter().find_map(|action| match action {
            Action::Record { expect, write, .. } => Some((*expect, *write)),
            _ => None,
        });
        assert_eq!(written, Some((2, writes)), "{actions:?}");
        let stolen = Event::Recorded {
            key,
            leased: now,
            reply: Reply::Stolen,
        };
        at(&mut ledger, now, stolen);
    }
}

/// The first try has taken the charge back, and the delivery has come again before the host knows that.
#[test]
fn a_claim_behind_a_hand_back_without_an_answer_keeps_its_own_count() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    let back = handed_back(&step(&mut ledger, finished(key, no_instance())));
    assert_eq!(back, [(key, 0)]);
    let returned = Delivery {
        id: key.id,
        origin: Origin::Returned,
        header: 0,
        native: 0,
        held: 0,
        turned_away: None,
        is_awaited: false,
        job: (),
    };
    let taken = Event::DueTaken {
        leased: NOW,
        deliveries: vec![returned],
        next: None,
    };
    step(&mut ledger, taken);
    step(&mut ledger, Event::Unanswered(key));
    step(&mut ledger, Event::Settled(key, Reply::Stolen));
    let counts: Vec<u32> = ledger
        .holdings
        .iter()
        .map(|(_, held)| held.counts.native)
        .collect();
    assert_eq!(counts, [0]);
}

/// An earlier attempt of this host acknowledges late what the host takes back at that moment. A claim like that is not
/// brought back: else the message would be handled once more.
#[test]
fn a_claim_from_before_a_final_settlement_is_confirmed_and_not_brought_back() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    let _ = step(&mut ledger, finished(key, Outcome::Ack));
    let settled = NOW + Duration::from_millis(1);
    let _ = at(&mut ledger, settled, Event::Acknowledged(vec![key]));
    let returned = |leased, id| Event::DueTaken {
        leased,
        deliveries: vec![Delivery {
            id: DeliveryId(id),
            origin: Origin::Returned,
            header: 0,
            native: 2,
            held: 0,
            turned_away: None,
            is_awaited: false,
            job: (),
        }],
        next: None,
    };
    let other = key.id.0 + 1;
    for (id, is_brought_back) in [(key.id.0, false), (other, true)] {
        let now = NOW + Duration::from_millis(2);
        let actions = at(&mut ledger, now, returned(NOW, id));
        let key = releases(&actions)[0];
        let asked = at(&mut ledger, now, Event::SlotReady(key));
        let write = if is_brought_back { 3 } else { 2 };
        let asks = |action: &Action<()>| matches!(action, Action::Record { expect: 2, write: w, .. } if *w == write);
        assert!(asked.iter().any(asks), "{asked:?}");
        let gone = Event::Recorded {
            key,
            leased: now,
            reply: Reply::Gone,
        };
        let actions = at(&mut ledger, now, gone);
        let back = |action: &Action<()>| matches!(action, Action::BringBack { .. });
        assert_eq!(actions.iter().any(back), is_brought_back, "{actions:?}");
    }
}

/// The answer to a claim comes behind the end of a later holding, whose start was recorded: its count is too low.
#[test]
fn a_claim_from_before_a_recorded_start_is_confirmed_before_it_is_recorded() {
    for (kept, write) in [(2, 3), (3, 2)] {
        let mut ledger = ledger();
        let key = released(&mut ledger);
        step(&mut ledger, finished(key, Outcome::NackRequeue(None)));
        let parked = SettleAction::Park {
            keep: kept,
            after: Duration::ZERO,
        };
        let state = State::Settling {
            sent: Sent::Settlement(parked),
            tries: 0,
        };
        ledger.holdings.set(key, state);
        let later = NOW + Duration::from_millis(1);
        at(&mut ledger, later, Event::Settled(key, Reply::Done));
        let taken = Event::DueTaken {
            leased: NOW,
            deliveries: vec![Delivery {
                id: key.id,
                origin: Origin::Returned,
                header: 0,
                native: 2,
                held: 0,
                turned_away: None,
                is_awaited: false,
                job: (),
            }],
            next: None,
        };
        let key = releases(&at(&mut ledger, later, taken))[0];
        let actions = at(&mut ledger, later, Event::SlotReady(key));
        let asks = |action: &Action<()>| matches!(action, Action::Record { expect: 2, write: w, .. } if *w == write);
        assert!(actions.iter().any(asks), "{actions:?}");
    }
}

/// The clock of the server jumps, another host takes the delivery over and parks it, and this host takes it: a record without an
/// answer then finds the count that the other host has written.
#[test]
fn a_start_is_not_recorded_by_what_another_host_wrote_before_it_parked_the_delivery() {
    let ms = Duration::from_millis;
    let returned = |leased, native| Event::DueTaken {
        leased,
        deliveries: vec![Delivery {
            id: DeliveryId(1),
            origin: Origin::Returned,
            header: 0,
            native,
            held: 0,
            turned_away: None,
            is_awaited: false,
            job: (),
        }],
        next: None,
    };
    // The second claim was sent before the first one had its answer, or behind it.
    for (sent, is_newer) in [(ms(2), false), (ms(4), true)] {
        let mut ledger = ledger();
        let key = releases(&at(&mut ledger, ms(3), returned(ms(1), 1)))[0];
        at(&mut ledger, ms(3), Event::SlotReady(key));
        at(&mut ledger, ms(5), returned(sent, 2));
        let done = Event::Recorded {
            key,
            leased: ms(5),
            reply: Reply::Done,
        };
        let actions = at(&mut ledger, ms(6), done);
        let goes = |action: &Action<()>| matches!(action, Action::Go { .. });
        assert_eq!(actions.iter().any(goes), !is_newer, "{actions:?}");
        if is_newer {
            let key = releases(&actions)[0];
            let actions = at(&mut ledger, ms(6), Event::SlotReady(key));
            let asks = |action: &Action<()>| matches!(action, Action::Record { expect: 2, .. });
            assert!(actions.iter().any(asks), "{actions:?}");
        }
    }
}

/// A renewal confirms that a delivery is this host's, also one whose count is not sure.
#[test]
fn a_doubtful_delivery_is_brought_back_behind_a_renewal() {
    for is_renewed in [false, true] {
        let mut ledger = ledger();
        let key = released(&mut ledger);
        if let Some(held) = ledger.holdings.find_mut(key) {
            held.doubtful = true;
            held.owned = None;
        }
        if is_renewed {
            step(&mut ledger, renewed(key, Reply::Done));
        }
        let actions = step(&mut ledger, renewed(key, Reply::Gone));
        let back = |action: &Action<()>| matches!(action, Action::BringBack { .. });
        assert_eq!(actions.iter().any(back), is_renewed, "{actions:?}");
    }
}

/// Rule 16: a settlement that was not carried out follows the rules in force when its delivery is brought back.
#[test]
fn a_settlement_behind_a_return_follows_the_rules_in_force() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, finished(key, Outcome::Drop(None)));
    step(&mut ledger, Event::Settled(key, Reply::Gone));
    let discards = |ledger: &mut Ledger<()>, is: bool| {
        let reasons = if is {
            Reasons::new(Reason::ALL)
        } else {
            Reasons::default()
        };
        let mut policy = ledger.policy().clone();
        policy.has_dead_letter = true;
        policy.dead_letters.discarded = reasons;
        step(ledger, Event::PolicyChanged(Box::new(policy)));
    };
    discards(&mut ledger, true);
    let replies = vec![(key, Reply::Done)];
    let back = Event::BroughtBack {
        leased: NOW,
        replies,
    };
    let actions = step(&mut ledger, back);
    let is_discard = |action: &Action<()>| {
        matches!(
            action,
            Action::Settle {
                action: SettleAction::Discard(_),
                ..
            }
        )
    };
    assert!(actions.iter().any(is_discard), "{actions:?}");
}

#[test]
fn a_held_start_is_not_charged_unless_its_answer_is_lost_or_it_is_one_too_many() {
    let limit = DeliveryLimit {
        cap: Some(3),
        holds: HoldLimits {
            max: 1,
            ..HoldLimits::default()
        },
        ..DeliveryLimit::default()
    };
    let policy = Policy {
        limit,
        ..settings().policy
    };
    for held in [0, 1] {
        let mut ledger = Ledger::new(
            Time::ZERO,
            Settings {
                policy: policy.clone(),
                ..settings()
            },
        );
        let deliveries = vec![Delivery {
            id: DeliveryId(1),
            origin: Origin::Returned,
            header: 0,
            native: 1,
            held,
            turned_away: None,
            is_awaited: false,
            job: (),
        }];
        let due = Event::DueTaken {
            leased: NOW,
            deliveries,
            next: None,
        };
        let key = releases(&step(&mut ledger, due))[0];
        let _ = step(&mut ledger, Event::SlotReady(key));
        let recorded = Event::Recorded {
            key,
            leased: NOW,
            reply: Reply::Done,
        };
        let goes = step(&mut ledger, recorded);
        // The count of 1 is a start that was charged, or one that was held.
        let go = |action: &Action<()>| matches!(action, Action::Go { attempt, .. } if *attempt == 2 - held);
        assert!(goes.iter().any(go), "{goes:?}");
        let after = Duration::from_secs(1);
        let asks = Event::Finished {
            key,
            outcome: Outcome::NackRequeue(None),
            told: None,
            hold: Some(after),
            acts: false,
            is_current: true,
            jitter: 0.5,
        };
        let actions = step(&mut ledger, asks);
        let holds = |action: &Action<()>| {
            let hold = SettleAction::Hold {
                keep: 2,
                after,
                attempt: 2,
            };
            matches!(action, Action::Settle { count: 2, action, .. } if *action == hold)
        };
        assert_eq!(actions.iter().any(holds), held == 0, "{actions:?}");
    }
    let hold = SettleAction::Hold {
        keep: 2,
        after: Duration::ZERO,
        attempt: 2,
    };
    let park = SettleAction::Park {
        keep: 2,
        after: Duration::ZERO,
    };
    assert_eq!(hold.again(2), park);
}

#[test]
fn a_broken_handler_is_tried_with_one_message_at_growing_intervals() {
    let mut ledger = ledger();
    step(&mut ledger, broken());
    // An answer that was under way when it stopped.
    step(&mut ledger, fetched(1..1));
    let mut now = NOW;
    let mut pauses = Vec::new();
    let mut pause = Duration::from_secs(1);
    for round in 0..7 {
        let early = now + pause - Duration::from_millis(1);
        assert_eq!(fetches(&polled(&mut ledger, early)), [], "round {round}");
        now += pause;
        let asked = fetches(&polled(&mut ledger, now));
        assert_eq!((asked.len(), asked[0].0), (1, 1), "round {round}");
        let first = 100 + 10 * round;
        let actions = at(&mut ledger, now, fetched_at(now, first..first + 2));
        let tried = releases(&actions);
        assert_eq!(tried.len(), 1, "one is tried");
        assert_eq!(handed_back(&actions).len(), 1, "the other goes back");
        let actions = at(&mut ledger, now, finished(tried[0], trap()));
        pause = halted(&actions, HaltCause::Broken).expect("it is still broken");
        pauses.push(pause.as_secs());
    }
    assert_eq!(pauses, [2, 4, 8, 16, 30, 30, 30]);
    now += pause;
    polled(&mut ledger, now);
    let tried = releases(&at(&mut ledger, now, fetched_at(now, 200..201)));
    let actions = at(&mut ledger, now, finished(tried[0], Outcome::Ack));
    assert!(resumes(&actions) && !ledger.cannot_run());
    assert!(fetches(&actions)[0].0 > 1);
}

#[test]
fn a_working_canary_does_not_show_that_the_current_version_works() {
    let mut ledger = ledger();
    step(&mut ledger, broken());
    step(&mut ledger, fetched(1..1));
    let later = NOW + Duration::from_secs(1);
    polled(&mut ledger, later);
    let tried = releases(&at(&mut ledger, later, fetched(10..11)));
    assert!(ledger.is_probe(tried[0]));
    let acked = finished_on_canary(tried[0], Outcome::Ack);
    let actions = at(&mut ledger, later, acked);
    assert!(ledger.cannot_run() && acknowledges(&actions));
    // Another one is tried at once.
    assert_eq!(fetches(&actions)[0].0, 1);
    let tried = releases(&at(&mut ledger, later, fetched(20..21)));
    // A message that faults is charged. So the next one waits, no matter which version ran.
    let actions = at(&mut ledger, later, finished_on_canary(tried[0], trap()));
    let pause = halted(&actions, HaltCause::Broken);
    assert_eq!(pause, Some(Duration::from_secs(2)));
    assert_eq!(fetches(&actions), []);
    let later = later + Duration::from_secs(2);
    polled(&mut ledger, later);
    let tried = releases(&at(&mut ledger, later, fetched(30..31)));
    at(&mut ledger, later, finished(tried[0], Outcome::Ack));
    assert!(!ledger.cannot_run());
}

#[test]
fn a_canary_without_instances_hands_back_its_message_and_stops_nothing() {
    let mut ledger = ledger();
    let keys = releases(&step(&mut ledger, fetched(1..4)));
    let actions = step(&mut ledger, finished_on_canary(keys[0], no_instance()));
    assert_eq!(handed_back(&actions), [(keys[0], 0)]);
    assert!(revoked(&actions).is_empty() && !ledger.cannot_run());
    let actions = step(&mut ledger, finished(keys[1], no_instance()));
    assert!(ledger.cannot_run() && revoked(&actions).contains(&keys[2]));
    // A success of the canary does not show that the current version has instances.
    let later = NOW + Duration::from_secs(4);
    polled(&mut ledger, later);
    let tried = releases(&at(&mut ledger, later, fetched(10..11)));
    for key in tried {
        at(&mut ledger, later, finished_on_canary(key, Outcome::Ack));
    }
    assert!(ledger.cannot_run());
}

#[test]
fn a_host_holds_as_many_messages_as_its_calls_take() {
    for (batch, want) in [(1, 4), (3, 12), (100, 16)] {
        let mut ledger = ledger();
        let actions = step(&mut ledger, Event::BatchChanged(batch));
        assert_eq!(fetches(&actions), [(want, false)]);
    }
}

#[test]
fn attempts_from_before_a_halt_do_not_end_it() {
    let mut ledger = ledger();
    let keys = releases(&step(&mut ledger, fetched(1..3)));
    step(&mut ledger, broken());
    step(&mut ledger, finished(keys[0], Outcome::Ack));
    assert!(ledger.cannot_run());
    let later = NOW + Duration::from_secs(2);
    polled(&mut ledger, later);
    at(&mut ledger, later, finished(keys[1], trap()));
    assert!(ledger.cannot_run());
    // Another version is tried at once.
    let actions = at(&mut ledger, later, Event::HandlerChanged);
    assert!(resumes(&actions) && !ledger.cannot_run());
}

#[test]
fn panics_of_the_host_stop_it_until_another_version_runs() {
    let mut ledger = ledger();
    let keys = releases(&step(&mut ledger, fetched(1..4)));
    let detail = "three of them".to_owned();
    let actions = step(&mut ledger, Event::Panicked { detail });
    assert!(halted(&actions, HaltCause::Panics).is_some());
    let back = step(&mut ledger, Event::Revoked(keys[1]));
    assert_eq!(handed_back(&back), [(keys[1], 0)]);
    // An attempt that ran meanwhile ends, and does not end the halt.
    let acked = step(&mut ledger, finished(keys[0], Outcome::Ack));
    assert!(acknowledges(&acked));
    let later = NOW + Duration::from_secs(1_000_000_000);
    let actions = at(&mut ledger, later, fetched(10..11));
    assert_eq!(handed_back(&actions).len(), 1);
    assert!(ledger.cannot_run() && fetches(&actions).is_empty());
    assert!(resumes(&at(&mut ledger, later, Event::HandlerChanged)));
}

#[test]
fn in_an_at_most_once_queue_held_messages_wait_and_are_tried_one_by_one() {
    let mut ledger = at_most_once(4);
    let keys = releases(&step(&mut ledger, fetched(1..4)));
    step(&mut ledger, broken());
    for key in &keys {
        let actions = step(&mut ledger, Event::Revoked(*key));
        assert!(handed_back(&actions).is_empty() && releases(&actions).is_empty());
    }
    assert_eq!(ledger.len(), 3);
    let later = NOW + Duration::from_secs(1);
    let tried = releases(&polled(&mut ledger, later));
    assert_eq!(tried.len(), 1);
    let actions = at(&mut ledger, later, finished(tried[0], Outcome::Ack));
    assert!(!ledger.cannot_run());
    assert_eq!(releases(&actions).len(), 2);
}

/// How these actions settle deliveries.
fn settles(actions: &[Action<()>]) -> Vec<SettleAction> {
    let settle = |action: &Action<()>| match action {
        Action::Settle { action, .. } => Some(action.clone()),
        _ => None,
    };
    actions.iter().filter_map(settle).collect()
}

/// The rules that this change makes of those in force.
fn changed(ledger: &Ledger<()>, change: impl FnOnce(&mut Policy)) -> Event<()> {
    let mut policy = ledger.policy().clone();
    change(&mut policy);
    Event::PolicyChanged(Box::new(policy))
}

fn refused() -> Reply {
    Reply::Refused("no dead-letter key is set".to_owned())
}

#[test]
fn a_dead_letter_under_way_is_discarded_when_the_dead_letter_key_is_taken_away() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    let sent = step(&mut ledger, finished(key, Outcome::Drop(None)));
    assert!(
        matches!(settles(&sent)[..], [SettleAction::DeadLetter(_)]),
        "{sent:?}"
    );
    let none = changed(&ledger, |policy| policy.has_dead_letter = false);
    assert!(settles(&step(&mut ledger, none)).is_empty());
    // At once, and without a refusal: the rules in force were not tried yet.
    let again = step(&mut ledger, Event::Settled(key, refused()));
    assert!(
        matches!(settles(&again)[..], [SettleAction::Discard(_)]),
        "{again:?}"
    );
    let is_refusal = |action: &Action<()>| matches!(action, Action::Note(_));
    assert!(!again.iter().any(is_refusal), "{again:?}");
    let done = step(&mut ledger, Event::Settled(key, Reply::Done));
    assert!(
        matches!(
            closed(&done)[..],
            [Closed::Settled(SettleAction::Discard(_))]
        ),
        "{done:?}"
    );
}

#[test]
fn a_refused_settlement_follows_each_change_of_the_rules() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, finished(key, Outcome::Drop(None)));
    assert!(settles(&step(&mut ledger, Event::Settled(key, refused()))).is_empty());
    for has_dead_letter in [false, true, false, true] {
        let rules = changed(&ledger, |policy| policy.has_dead_letter = has_dead_letter);
        let sent = step(&mut ledger, rules);
        let is_copied = matches!(settles(&sent)[..], [SettleAction::DeadLetter(_)]);
        assert_eq!(is_copied, has_dead_letter, "{sent:?}");
        let is_discarded = matches!(settles(&sent)[..], [SettleAction::Discard(_)]);
        assert_eq!(is_discarded, !has_dead_letter, "{sent:?}");
        assert!(settles(&step(&mut ledger, Event::Settled(key, refused()))).is_empty());
    }
    let rules = changed(&ledger, |policy| {
        policy.dead_letters.discarded = Reasons::new([Reason::Dropped]);
    });
    let sent = step(&mut ledger, rules);
    assert!(
        matches!(settles(&sent)[..], [SettleAction::Discard(_)]),
        "{sent:?}"
    );
}

#[test]
fn a_message_given_up_at_its_cap_follows_a_change_of_on_cap() {
    let mut ledger = ledger();
    let capped = changed(&ledger, |policy| policy.limit.cap = Some(1));
    step(&mut ledger, capped);
    let key = released(&mut ledger);
    // The last start is recorded first.
    step(&mut ledger, Event::SlotReady(key));
    let recorded = Event::Recorded {
        key,
        leased: NOW,
        reply: Reply::Done,
    };
    step(&mut ledger, recorded);
    let sent = step(&mut ledger, finished(key, Outcome::NackRequeue(None)));
    assert!(
        matches!(settles(&sent)[..], [SettleAction::DeadLetter(_)]),
        "{sent:?}"
    );
    let discards = changed(&ledger, |policy| policy.on_cap = OnCap::Discard);
    step(&mut ledger, discards);
    let again = step(&mut ledger, Event::Settled(key, refused()));
    assert!(
        matches!(settles(&again)[..], [SettleAction::Discard(_)]),
        "{again:?}"
    );
}

#[test]
fn an_old_claim_that_arrives_late_does_not_change_why_a_message_was_given_up() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    step(&mut ledger, finished(key, Outcome::Drop(None)));
    step(&mut ledger, Event::Settled(key, refused()));
    // An answer to a claim from before: the delivery is still this host's.
    let late = step(&mut ledger, fetched(1..2));
    assert!(releases(&late).is_empty(), "{late:?}");
    let rules = changed(&ledger, |policy| policy.on_cap = OnCap::Discard);
    let sent = step(&mut ledger, rules);
    let reasons: Vec<_> = settles(&sent)
        .into_iter()
        .filter_map(|action| match action {
            SettleAction::DeadLetter(why) | SettleAction::Discard(why) => Some(why.reason),
            _ => None,
        })
        .collect();
    assert_eq!(reasons, [Reason::Dropped], "{sent:?}");
}

/// What the attempt read had changed: it runs again as the same attempt, and nothing is charged.
#[test]
fn a_message_whose_values_changed_runs_again_uncharged_and_not_for_ever() {
    let mut ledger = Ledger::new(
        Time::ZERO,
        Settings {
            checked_acks: true,
            ..settings()
        },
    );
    let key = released(&mut ledger);
    let mut actions = step(&mut ledger, finished(key, Outcome::Ack));
    let mut reruns = 0;
    loop {
        let settles = actions.iter().any(|action| {
            let acks = |action: &SettleAction| *action == SettleAction::Acknowledge;
            matches!(action, Action::Settle { count: 1, action, .. } if acks(action))
        });
        assert!(settles, "{actions:?}");
        actions = step(&mut ledger, Event::Settled(key, Reply::Changed));
        if releases(&actions).is_empty() {
            break;
        }
        reruns += 1;
        // Its start is recorded: owner and count are confirmed only.
        let asked = step(&mut ledger, Event::SlotReady(key));
        let confirms = |action: &Action<()>| {
            matches!(
                action,
                Action::Record {
                    expect: 1,
                    write: 1,
                    ..
                }
            )
        };
        assert!(asked.iter().any(confirms), "{asked:?}");
        let recorded = Event::Recorded {
            key,
            leased: NOW,
            reply: Reply::Done,
        };
        let goes = step(&mut ledger, recorded);
        let go = |action: &Action<()>| matches!(action, Action::Go { attempt: 1, .. });
        assert!(goes.iter().any(go), "{goes:?}");
        actions = step(&mut ledger, finished(key, Outcome::Ack));
    }
    assert_eq!(reruns, 32);
    // It counts as a nack, with its backoff.
    let parks = |action: &Action<()>| {
        matches!(
            action,
            Action::Settle {
                action: SettleAction::Park { keep: 1, .. },
                ..
            }
        )
    };
    assert!(actions.iter().any(parks), "{actions:?}");
}

/// What an attempt writes has another type: that is a failure of the attempt, and the queue goes on.
#[test]
fn effects_that_do_not_fit_are_a_nack_at_once() {
    for (cap, parks) in [(None, true), (Some(1), false)] {
        let mut ledger = Ledger::new(
            Time::ZERO,
            Settings {
                checked_acks: true,
                ..settings()
            },
        );
        let key = released(&mut ledger);
        step(&mut ledger, finished(key, Outcome::Ack));
        let rules = changed(&ledger, |policy| policy.limit.cap = cap);
        step(&mut ledger, rules);
        let reply = Reply::Unfit("k is a list".to_owned());
        let actions = step(&mut ledger, Event::Settled(key, reply));
        let is_right = |action: &Action<()>| match action {
            Action::Settle { action, .. } => match action {
                SettleAction::Park { .. } => parks,
                SettleAction::DeadLetter(rejection) => {
                    !parks && rejection.detail.ends_with("do not fit: k is a list")
                }
                _ => false,
            },
            _ => false,
        };
        assert!(actions.iter().any(is_right), "{cap:?}: {actions:?}");
        assert!(!ledger.has_refused());
    }
}

/// A drain hands it back as if the attempt had not been.
#[test]
fn a_message_whose_values_changed_goes_back_uncharged_on_drain() {
    let mut ledger = Ledger::new(
        Time::ZERO,
        Settings {
            checked_acks: true,
            ..settings()
        },
    );
    let key = released(&mut ledger);
    step(&mut ledger, finished(key, Outcome::Ack));
    step(&mut ledger, Event::Drain);
    let actions = step(&mut ledger, Event::Settled(key, Reply::Changed));
    let goes_back = |action: &Action<()>| {
        matches!(
            action,
            Action::Settle {
                count: 1,
                action: SettleAction::HandBack { keep: 0, .. },
                ..
            }
        )
    };
    assert!(actions.iter().any(goes_back), "{actions:?}");
}

/// After this, two windows in which slots had work are over.
const SLOW: Time = Time::from_millis(70);

/// Poll after each window until the host has become slow.
fn become_slow(ledger: &mut Ledger<()>) -> Vec<Action<()>> {
    let mut actions = Vec::new();
    for after in [25, 50, 70] {
        actions.extend(polled(ledger, Time::from_millis(after)));
    }
    actions
}

#[test]
fn a_host_that_becomes_slow_takes_back_the_newest_uncharged() {
    let mut ledger = ledger();
    let keys = releases(&step(&mut ledger, fetched(1..11)));
    assert_eq!(keys.len(), 10);
    let actions = become_slow(&mut ledger);
    let newest: Vec<Key> = keys[4..].iter().rev().copied().collect();
    assert_eq!(revoked(&actions), newest);
    let actions = at(&mut ledger, SLOW, Event::Revoked(newest[0]));
    assert_eq!(handed_back(&actions), [(newest[0], 0)]);
    // It looks again although nothing happens.
    let next = ledger.next_deadline().unwrap();
    assert!(next <= SLOW + Time::from_millis(20), "{next:?}");
}

#[test]
fn a_host_that_holds_what_its_slots_take_gives_nothing_back() {
    let mut ledger = ledger();
    step(&mut ledger, fetched(1..7));
    assert_eq!(revoked(&become_slow(&mut ledger)), []);
}

/// A slow call of a few messages does not keep room for a full batch of its slot.
#[test]
fn slots_that_run_small_batches_keep_no_others_waiting_here() {
    let settings = Settings {
        concurrency: 2,
        batch: 8,
        ..settings()
    };
    let mut ledger = Ledger::new(Time::ZERO, settings);
    let keys = releases(&step(&mut ledger, fetched(1..15)));
    assert_eq!(keys.len(), 14);
    ledger.occupied(2, 4);
    assert_eq!(revoked(&become_slow(&mut ledger)).len(), 10);
}

#[test]
fn what_an_at_most_once_queue_takes_back_leaves_and_what_it_refuses_runs_here() {
    let mut ledger = forgetful(1, true);
    let keys = releases(&step(&mut ledger, fetched(1..4)));
    let actions = step(&mut ledger, Event::Drain);
    let newest: Vec<Key> = keys.iter().rev().copied().collect();
    assert_eq!(revoked(&actions), newest);
    // A slot has the first one.
    for key in &newest[..2] {
        let actions = step(&mut ledger, Event::Revoked(*key));
        assert_eq!(handed_back(&actions), [(*key, 0)]);
    }
    step(&mut ledger, Event::Settled(newest[0], Reply::Done));
    let refused = Reply::Refused("no right".to_owned());
    let actions = step(&mut ledger, Event::Settled(newest[1], refused));
    assert_eq!(releases(&actions), [newest[1]]);
    for key in [keys[0], newest[1]] {
        let actions = step(&mut ledger, finished(key, Outcome::Ack));
        assert!(acknowledges(&actions));
        step(&mut ledger, Event::Acknowledged(vec![key]));
    }
    assert!(ledger.is_empty(), "{ledger:?}");
}

/// A host that ends because its queue is empty took the last values while it looked.
#[test]
fn what_comes_after_the_queue_was_found_empty_runs_here() {
    let mut ledger = forgetful(2, true);
    ledger.keep_all();
    step(&mut ledger, Event::Drain);
    let keys = releases(&step(&mut ledger, fetched(1..3)));
    assert_eq!(keys.len(), 2);
}

/// While the server is away nothing can go back: a host that stops runs what it has, as long as that lasts.
#[test]
fn a_draining_host_runs_the_only_copies_while_the_server_is_away() {
    let mut ledger = forgetful(1, true);
    step(&mut ledger, Event::Offline);
    let keys = releases(&step(&mut ledger, fetched(1..3)));
    let actions = step(&mut ledger, Event::Drain);
    assert!(revoked(&actions).is_empty() && handed_back(&actions).is_empty());
    assert_eq!(revoked(&step(&mut ledger, Event::Online)).len(), keys.len());
}

/// Its start is not recorded: it ends as what is found at its claim.
#[test]
fn a_duplicate_that_is_found_before_a_late_start_does_not_start() {
    let mut ledger = ledger();
    let key = released(&mut ledger);
    let actions = step(&mut ledger, Event::SlotReady(key));
    let asks = |action: &Action<()>| matches!(action, Action::Record { expect, write, .. } if expect == write);
    assert!(actions.iter().any(asks), "{actions:?}");
    let (leased, reply) = (NOW, Reply::Duplicate);
    let actions = step(&mut ledger, Event::Recorded { key, leased, reply });
    let denies = |action: &Action<()>| matches!(action, Action::Deny(_));
    assert!(
        actions.iter().any(denies) && acknowledges(&actions),
        "{actions:?}"
    );
}

/// There may always be more due deliveries: the place of orphans is not theirs.
#[test]
fn due_deliveries_leave_the_place_of_orphans_free() {
    let mut ledger = ledger();
    let busy = step(&mut ledger, fetched(1..5));
    let due = Delivery {
        id: DeliveryId(9),
        origin: Origin::Returned,
        header: 0,
        native: 1,
        held: 0,
        turned_away: None,
        is_awaited: false,
        job: (),
    };
    assert!(busy.iter().any(|a| matches!(a, Action::TakeDue { max: 1 })));
    let (leased, deliveries, next) = (NOW, vec![due], Some(Duration::ZERO));
    step(
        &mut ledger,
        Event::DueTaken {
            leased,
            deliveries,
            next,
        },
    );
    let deliveries = Vec::new();
    step(&mut ledger, Event::OrphansTaken { leased, deliveries });
    let later = polled(&mut ledger, NOW + Duration::from_secs(2));
    let takes_due = |action: &Action<()>| matches!(action, Action::TakeDue { .. });
    let takes_orphans = |action: &Action<()>| matches!(action, Action::TakeOrphans { max: 1 });
    assert!(later.iter().any(takes_orphans), "{later:?}");
    assert!(!later.iter().any(takes_due), "{later:?}");
}
