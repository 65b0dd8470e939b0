use proptest::prelude::*;

use super::*;
use crate::delivery::policy::Reason;

fn rejection(reason: Reason, handled: bool) -> Rejection {
    Rejection {
        reason,
        detail: String::new(),
        attempts: 1,
        handled,
    }
}

#[derive(Clone, Debug)]
enum Event {
    Death {
        queue: String,
        reason: Reason,
        handled: bool,
    },
    Replay,
}

fn event(queues: u8) -> impl Strategy<Value = Event> {
    let reasons = [Reason::MaxDeliveries, Reason::Expired, Reason::Dropped];
    prop_oneof![
        12 => (0..queues, prop::sample::select(reasons.to_vec()), prop::bool::weighted(0.2))
            .prop_map(|(queue, reason, handled)| Event::Death {
                queue: format!("q{queue}"),
                reason,
                handled,
            }),
        1 => Just(Event::Replay),
    ]
}

/// The rule, word for word, over every death there ever was.
fn cycles(past: &[Event], target: &str) -> bool {
    past.iter()
        .rev()
        .take_while(|event| matches!(event, Event::Death { handled: false, .. }))
        .any(|event| matches!(event, Event::Death { queue, .. } if queue == target))
}

fn follow(past: &[Event]) -> History {
    let mut history = History::default();
    for (now, event) in past.iter().enumerate() {
        match event {
            Event::Death {
                queue,
                reason,
                handled,
            } => history.record(queue, &rejection(*reason, *handled), now as u64, None),
            Event::Replay => history.replay(),
        }
    }
    history
}

/// Text of up to `most` characters, of every width. A part of it repeats: to draw each character
/// takes most of a test's time.
pub(crate) fn text(most: usize) -> impl Strategy<Value = String> {
    (".{0,20}", 0..=most / 20).prop_map(|(part, times)| part.repeat(times))
}

proptest! {
    #[test]
    fn the_merged_history_answers_as_the_whole_one_would(past in prop::collection::vec(event(6), 0..60)) {
        let history = follow(&past);
        for target in 0..7 {
            let target = format!("q{target}");
            prop_assert_eq!(history.cycles_to(&target), cycles(&past, &target), "to {}", target);
        }
    }

    #[test]
    fn records_count_every_death_once(past in prop::collection::vec(event(6), 0..60)) {
        let history = follow(&past);
        let deaths = past.iter().filter(|e| matches!(e, Event::Death { .. })).count() as u64;
        prop_assert_eq!(history.records().iter().map(|d| d.count).sum::<u64>(), deaths);
        // Most recent first, each {queue, reason} once.
        prop_assert!(history.records().windows(2).all(|w| w[0].last_ms > w[1].last_ms));
        for (i, death) in history.records().iter().enumerate() {
            prop_assert_eq!(history.find(&death.queue, &death.reason), Some(i));
            prop_assert!(death.first_ms <= death.last_ms);
        }
    }

    #[test]
    fn every_way_without_a_rejection_ends(route in prop::collection::vec(0_u32..500, 200)) {
        let mut history = History::default();
        let ended = route.iter().position(|queue| {
            let target = format!("q{queue}");
            if history.cycles_to(&target) {
                return true;
            }
            history.record(&target, &rejection(Reason::Expired, false), 1, None);
            false
        });
        prop_assert!(ended.is_some_and(|steps| steps <= RECORDS_MAX + 1), "{:?}", ended);
    }

    #[test]
    fn bounded_whatever_is_written(
        written in prop::collection::vec((text(2000), text(100), any::<[u64; 3]>(), any::<bool>()), 0..80),
        queue in text(3000),
    ) {
        let mut history = History::new(written.into_iter().map(|(queue, reason, n, unrejected)| Death {
            queue,
            reason,
            count: n[0],
            first_ms: n[1],
            last_ms: n[2],
            original_expiration: None,
            unrejected,
        }));
        let fits = |history: &History| {
            history.records().len() <= RECORDS_MAX
                && history.records().iter().map(Death::weight).sum::<usize>() <= BYTES_MAX
        };
        prop_assert!(fits(&history));
        history.record(&queue, &rejection(Reason::Trap, true), 7, None);
        prop_assert!(fits(&history));
        let newest = &history.records()[0];
        prop_assert!(queue.starts_with(&newest.queue) && newest.last_ms == 7);
        // However long the name is, the queue is recognized.
        history.record(&queue, &rejection(Reason::Expired, false), 8, None);
        prop_assert!(history.cycles_to(&queue));
    }
}

#[test]
fn two_queues_that_feed_each_other() {
    let mut history = History::default();
    history.record("a", &rejection(Reason::Expired, false), 1, None);
    assert!(!history.cycles_to("b"));
    history.record("b", &rejection(Reason::Expired, false), 2, None);
    assert!(history.cycles_to("a"));
}

#[test]
fn a_waiting_room_behind_a_handler_is_no_cycle() {
    let mut history = History::default();
    for round in 0..100 {
        history.record("work", &rejection(Reason::Dropped, true), round, None);
        assert!(!history.cycles_to("wait"));
        history.record("wait", &rejection(Reason::Expired, false), round, None);
        assert!(!history.cycles_to("work"));
    }
    assert_eq!(history.records().len(), 2);
    assert_eq!(history.records()[1].count, 100);
}

#[test]
fn a_queue_that_feeds_itself() {
    let mut history = History::default();
    history.record("a", &rejection(Reason::MaxLen, false), 1, None);
    assert!(history.cycles_to("a"));
    history.record("a", &rejection(Reason::Dropped, true), 2, None);
    assert!(!history.cycles_to("a"));
}

#[test]
fn a_replay_starts_anew() {
    let mut history = History::default();
    history.record("a", &rejection(Reason::Expired, false), 1, None);
    history.replay();
    assert!(!history.cycles_to("a"));
    assert_eq!(history.records()[0].count, 1);
}

#[test]
fn the_expiration_is_kept_through_later_deaths() {
    let mut history = History::default();
    history.record("a", &rejection(Reason::Expired, false), 10, Some(9));
    history.record("a", &rejection(Reason::Expired, false), 20, None);
    let death = &history.records()[0];
    assert_eq!((death.count, death.first_ms, death.last_ms), (2, 10, 20));
    assert_eq!(death.original_expiration, Some(9));
}
