//! One broken history for each promise: the checker must catch it. And good histories, with and without
//! faults, in which nothing is wrong.

use super::*;
use crate::history::{Dead, Drain, Exit, Harvest, Sample, Sent, Settings};
use crate::script::Script;

const CAP: u32 = 3;

fn settings() -> Settings {
    Settings {
        kind: Kind::Stream,
        cap: CAP,
        concurrency: 4,
        prefetch: 16,
        min_idle_ms: 2_000,
        backoff_max_ms: 1_000,
        drain_timeout_ms: 5_000,
        ordered: false,
        fresh_instances: true,
        versions: [0, 1].into(),
        host_rss_kib: 100_000,
        host_fds: 100,
        slope_kib: 1_024,
        drain_queue_ms: 60_000,
        aborts: false,
        redis_kib: 100_000,
        least_rate: 0,
    }
}

/// Four messages: one acknowledges, one fails once, one is dropped, one always fails.
fn good() -> History {
    let scripts = [
        Script::always(Answer::Ack),
        Script::of(&[Answer::Nack(0), Answer::Ack]),
        Script::always(Answer::Count),
        Script::always(Answer::Trap),
    ];
    let sent = |script: Script| Sent {
        script,
        at_ms: 100,
        published: Published::Ok,
    };
    let mut history = History {
        settings: settings(),
        messages: scripts.map(sent).to_vec(),
        events: Vec::new(),
        faults: Vec::new(),
        drains: vec![Drain {
            host: 0,
            at_ms: 9_000,
            ended_ms: 9_500,
            code: Some(0),
            unstarted: false,
        }],
        exits: Vec::new(),
        steps: BTreeMap::new(),
        samples: vec![Sample {
            at_ms: 500,
            hosts: vec![(0, 60_000, 20)],
            redis_kib: 9_000,
        }],
        healed_ms: 200,
        drained_ms: Some(4_000),
        harvest: Harvest {
            acked: Some(2),
            ..Harvest::default()
        },
    };
    for (message, attempt, at_ms) in [
        (0, 1, 200),
        (1, 1, 210),
        (1, 2, 300),
        (2, 1, 310),
        (3, 1, 320),
        (3, 2, 420),
        (3, 3, 520),
    ] {
        runs(&mut history, 0, message, attempt, at_ms);
    }
    let dropped = letter(&history, 2, "dropped", 1);
    let given_up = letter(&history, 3, "max-deliveries", CAP);
    history.harvest.dead = vec![dropped, given_up];
    history
}

fn starts_at(history: &mut History, host: u16, message: u32, attempt: u32, at_ms: u64) {
    let what = What::Start;
    history.events.push(Event {
        at_ms,
        host,
        message,
        attempt,
        what,
    });
}

/// An attempt that gets to its end.
fn runs(history: &mut History, host: u16, message: u32, attempt: u32, at_ms: u64) {
    starts_at(history, host, message, attempt, at_ms);
    let what = What::End;
    let at_ms = at_ms + 5;
    history.events.push(Event {
        at_ms,
        host,
        message,
        attempt,
        what,
    });
}

fn letter(history: &History, message: u32, reason: &str, attempts: u32) -> Dead {
    let body = history.messages[message as usize].script.body();
    Dead {
        message,
        reason: reason.to_owned(),
        attempts,
        detail: "1".to_owned(),
        length: u32::try_from(body.len()).unwrap(),
        crc: crc32fast::hash(&body),
    }
}

fn fault(kind: FaultKind, host: Option<u16>, at_ms: u64, until_ms: u64) -> Fault {
    Fault {
        at_ms,
        until_ms,
        kind,
        host,
        forgets_ms: match kind {
            FaultKind::PowerLoss | FaultKind::Failover => 1_000,
            _ => 0,
        },
    }
}

/// Break a good history; this promise, and no other one, must be broken then.
#[track_caller]
fn breaks(invariant: Invariant, spoil: impl FnOnce(&mut History)) -> Judgement {
    let mut history = good();
    spoil(&mut history);
    let judgement = check(&history);
    let broken: BTreeSet<Invariant> = judgement.violations.iter().map(|v| v.invariant).collect();
    assert_eq!(broken, [invariant].into(), "{:?}", judgement.violations);
    judgement
}

#[track_caller]
fn holds(spoil: impl FnOnce(&mut History)) -> Judgement {
    let mut history = good();
    spoil(&mut history);
    let judgement = check(&history);
    assert!(judgement.is_valid(), "{:?}", judgement.violations);
    judgement
}

#[test]
fn a_good_history_is_valid() {
    let counts = holds(|_| {}).counts;
    let wanted = Counts {
        ok: 4,
        starts: 7,
        acked: 2,
        dead: 2,
        rate: 1,
        ..Counts::default()
    };
    assert_eq!(counts, wanted);
}

#[test]
fn i1_a_confirmed_message_that_never_started_is_lost() {
    let judgement = breaks(Invariant::NoLoss, |history| {
        history.events.retain(|event| event.message != 0);
        history.harvest.acked = None;
    });
    assert_eq!(judgement.counts.lost, 1);
    assert_eq!(judgement.violations[0].message, Some(0));
}

#[test]
fn i1_a_queue_that_is_not_drained_is_a_loss() {
    breaks(Invariant::NoLoss, |history| {
        history.harvest.waiting = vec![0];
        history.harvest.acked = Some(2);
    });
    breaks(Invariant::NoLoss, |history| history.drained_ms = None);
}

#[test]
fn i1_only_what_was_published_shortly_before_a_power_loss_may_be_destroyed() {
    let lose = |history: &mut History| {
        history.events.retain(|event| event.message != 0);
        history.harvest.kept = Some([1, 2, 3].into());
        history.harvest.acked = None;
    };
    let judgement = holds(|history| {
        lose(history);
        history.faults = vec![fault(FaultKind::PowerLoss, None, 1_000, 1_200)];
    });
    assert_eq!((judgement.counts.destroyed, judgement.counts.lost), (1, 0));
    // Too late to have destroyed it.
    breaks(Invariant::NoLoss, |history| {
        lose(history);
        history.faults = vec![fault(FaultKind::PowerLoss, None, 1_200, 1_300)];
    });
    // The server still has it: it is not destroyed, but forgotten.
    breaks(Invariant::NoLoss, |history| {
        lose(history);
        history.harvest.kept = Some([0, 1, 2, 3].into());
        history.faults = vec![fault(FaultKind::PowerLoss, None, 1_000, 1_200)];
    });
    // A kill of the server destroys nothing.
    breaks(Invariant::NoLoss, |history| {
        lose(history);
        history.faults = vec![fault(FaultKind::KillRedis, None, 1_000, 1_200)];
    });
}

#[test]
fn i2_what_nobody_has_published_is_unexpected() {
    let judgement = breaks(Invariant::NothingFromNowhere, |history| {
        history.harvest.strangers = vec!["1-1".to_owned()];
    });
    assert_eq!(judgement.counts.unexpected, 1);
    breaks(Invariant::NothingFromNowhere, |history| {
        runs(history, 0, 9, 1, 400);
    });
    breaks(Invariant::NothingFromNowhere, |history| {
        let mut dead = history.harvest.dead[0].clone();
        dead.message = 9;
        history.harvest.dead.push(dead);
        history.harvest.acked = None;
    });
}

#[test]
fn i2_what_redis_has_refused_does_not_come_out() {
    let judgement = breaks(Invariant::NothingFromNowhere, |history| {
        history.messages[0].published = Published::Failed;
        history.harvest.acked = None;
    });
    assert_eq!(judgement.counts.unexpected, 1);
}

#[test]
fn a_publish_without_an_answer_may_come_out_or_not() {
    let judgement = holds(|history| history.messages[0].published = Published::Unknown);
    assert_eq!(
        (judgement.counts.unknown, judgement.counts.recovered),
        (1, 1)
    );
    let judgement = holds(|history| {
        history.messages[0].published = Published::Unknown;
        history.events.retain(|event| event.message != 0);
        history.harvest.acked = Some(1);
    });
    assert_eq!(
        (judgement.counts.unknown, judgement.counts.recovered),
        (1, 0)
    );
}

#[test]
fn i3_nothing_leaves_without_a_verdict() {
    // Its handler has started, and has not answered.
    let unanswered = |history: &mut History| {
        history
            .events
            .retain(|event| event.message != 0 || event.what == What::Start);
        history.harvest.acked = None;
    };
    let judgement = breaks(Invariant::VerdictFirst, unanswered);
    assert_eq!(judgement.counts.lost, 1);
    // Nor if it is not known whether it was published.
    breaks(Invariant::VerdictFirst, |history| {
        unanswered(history);
        history.messages[0].published = Published::Unknown;
    });
    // Its handler wanted another attempt.
    breaks(Invariant::VerdictFirst, |history| {
        history
            .events
            .retain(|event| event.message != 1 || event.attempt != 2);
        history.harvest.acked = None;
    });
    // It was dead-lettered as dropped before its handler has answered.
    breaks(Invariant::VerdictFirst, |history| {
        history
            .events
            .retain(|event| event.message != 2 || event.what == What::Start);
    });
}

#[test]
fn i4_a_message_that_has_not_failed_runs_again_only_after_a_fault_under_it() {
    let again = |history: &mut History| {
        runs(history, 1, 0, 2, 5_000);
        history.harvest.acked = None;
    };
    let judgement = breaks(Invariant::Duplicates, again);
    assert_eq!(judgement.counts.duplicated, 1);
    assert_eq!(judgement.counts.unexplained, 1);
    // The host that ran it was killed.
    let judgement = holds(|history| {
        again(history);
        history.faults = vec![fault(FaultKind::KillHost, Some(0), 300, 300)];
    });
    assert_eq!(
        (judgement.counts.duplicated, judgement.counts.unexplained),
        (1, 0)
    );
    // Another host was; or a fault that interrupts nothing; or one that came later.
    for innocent in [
        fault(FaultKind::KillHost, Some(1), 300, 300),
        fault(FaultKind::Swap, None, 300, 300),
        fault(FaultKind::KillRedis, None, 6_000, 6_100),
    ] {
        breaks(Invariant::Duplicates, |history| {
            again(history);
            history.faults = vec![innocent];
        });
    }
}

#[test]
fn i4_no_more_runs_again_than_was_under_way() {
    breaks(Invariant::Duplicates, |history| {
        history.faults = vec![fault(FaultKind::KillHost, Some(0), 300, 300)];
        for number in 4..2_000 {
            history.messages.push(history.messages[0].clone());
            runs(history, 0, number, 1, 250);
            runs(history, 1, number, 2, 3_000);
        }
        history.harvest.acked = None;
    });
}

#[test]
fn i4_a_queue_at_most_once_runs_nothing_twice() {
    breaks(Invariant::Duplicates, |history| {
        at_most_once(history, Kind::SimpleList);
        runs(history, 1, 0, 1, 900);
        history.faults = vec![fault(FaultKind::KillHost, Some(0), 300, 300)];
    });
    // Each host of a channel gets every message, once.
    holds(|history| {
        at_most_once(history, Kind::Channel);
        runs(history, 1, 0, 1, 900);
    });
}

fn at_most_once(history: &mut History, kind: Kind) {
    history.settings.kind = kind;
    history.harvest = Harvest::default();
    history.events.retain(|event| event.attempt == 1);
}

#[test]
fn i1_a_queue_at_most_once_loses_nothing_without_a_fault() {
    for kind in [Kind::SimpleList, Kind::Channel] {
        let lose = |history: &mut History| {
            at_most_once(history, kind);
            history.events.retain(|event| event.message != 0);
        };
        breaks(Invariant::NoLoss, lose);
        let judgement = holds(|history| {
            lose(history);
            history.faults = vec![fault(FaultKind::KillHost, Some(0), 300, 300)];
        });
        assert_eq!(judgement.counts.lost, 1);
    }
}

#[test]
fn i5_starts_never_exceed_the_cap() {
    breaks(Invariant::Cap, |history| {
        runs(history, 0, 3, CAP + 1, 620);
    });
}

#[test]
fn i5_no_two_starts_have_one_number() {
    let twice = |history: &mut History| {
        runs(history, 0, 1, 1, 250);
        history.harvest.acked = None;
    };
    breaks(Invariant::Cap, twice);
    // A server that has forgotten a count may give the number again.
    holds(|history| {
        twice(history);
        history.faults = vec![fault(FaultKind::PowerLoss, None, 220, 240)];
    });
}

#[test]
fn i6_nothing_is_given_up_with_attempts_left() {
    // Two failures only.
    breaks(Invariant::NoInnocent, |history| {
        history
            .events
            .retain(|event| event.message != 3 || event.attempt < 3);
    });
    // The record says so itself.
    breaks(Invariant::NoInnocent, |history| {
        history.harvest.dead[1].attempts = 2
    });
    // It never started.
    breaks(Invariant::NoInnocent, |history| {
        history.events.retain(|event| event.message != 3);
        history.faults = vec![fault(FaultKind::KillHost, Some(0), 300, 300); 3];
    });
}

#[test]
fn i6_an_innocent_is_given_up_only_if_faults_took_all_its_attempts() {
    let innocent = |history: &mut History, kills: u64| {
        history.events.retain(|event| event.message != 0);
        for attempt in 1..=CAP {
            starts_at(history, 0, 0, attempt, 200 + u64::from(attempt) * 100);
        }
        let dead = letter(history, 0, "max-deliveries", CAP);
        history.harvest.dead.push(dead);
        history.harvest.acked = None;
        let kill = |n| fault(FaultKind::KillHost, Some(0), 250 + n * 100, 250 + n * 100);
        history.faults = (0..kills).map(kill).collect();
    };
    let judgement = holds(|history| innocent(history, 3));
    assert_eq!(judgement.counts.dead_early, 1);
    let judgement = breaks(Invariant::NoInnocent, |history| innocent(history, 2));
    assert_eq!(judgement.violations[0].message, Some(0));
}

#[test]
fn i6_a_host_without_cpu_may_lose_an_attempt_for_each_lease() {
    let innocent = |history: &mut History, until_ms: u64| {
        history.events.retain(|event| event.message != 0);
        for attempt in 1..=CAP {
            starts_at(history, 0, 0, attempt, 200 + u64::from(attempt) * 2_000);
        }
        let dead = letter(history, 0, "max-deliveries", CAP);
        history.harvest.dead.push(dead);
        history.harvest.acked = None;
        history.faults = vec![fault(FaultKind::Starved, None, 100, until_ms)];
    };
    holds(|history| innocent(history, 7_000));
    breaks(Invariant::NoInnocent, |history| innocent(history, 3_000));
}

#[test]
fn i7_a_dead_letter_is_what_was_published_once() {
    breaks(Invariant::Fidelity, |history| {
        history.harvest.dead[0].crc ^= 1
    });
    breaks(Invariant::Fidelity, |history| {
        history.harvest.dead[0].reason = "expired".to_owned();
    });
    breaks(Invariant::Fidelity, |history| {
        let copy = history.harvest.dead[0].clone();
        history.harvest.dead.push(copy);
        history.harvest.acked = None;
    });
    breaks(Invariant::Fidelity, |history| {
        history.messages[2].script = Script::of(&[Answer::Nack(0), Answer::Count]);
        let mut dead = letter(history, 2, "dropped", 1);
        dead.attempts = 1;
        history.harvest.dead[0] = dead;
        runs(history, 0, 2, 2, 700);
    });
}

#[test]
fn i8_a_message_is_settled_once() {
    // A dead letter that is still in the queue, which is not empty then.
    let mut history = good();
    history.harvest.waiting = vec![2];
    let judgement = check(&history);
    let broken: BTreeSet<Invariant> = judgement.violations.iter().map(|v| v.invariant).collect();
    assert!(broken.contains(&Invariant::OneSettlement), "{broken:?}");
    // Hosts that have acknowledged more than there was.
    breaks(Invariant::OneSettlement, |history| {
        history.harvest.acked = Some(3)
    });
}

#[test]
fn i9_memory_and_descriptors_are_bounded() {
    breaks(Invariant::Bounds, |history| {
        history.samples[0].hosts[0].1 = 100_001;
    });
    breaks(Invariant::Bounds, |history| {
        history.samples[0].hosts[0].2 = 101
    });
    breaks(Invariant::Bounds, |history| {
        history.samples[0].redis_kib = 100_001;
    });
    let grows = |history: &mut History, kib: u64| {
        let at = |minute: u64| Sample {
            at_ms: minute * 60_000,
            hosts: vec![(0, 60_000 + minute * kib, 20)],
            redis_kib: 9_000,
        };
        history.samples = (0..60).map(at).collect();
    };
    breaks(Invariant::Bounds, |history| grows(history, 200));
    holds(|history| grows(history, 100));
    // Slots keep memory: a host grows to its size.
    holds(|history| {
        grows(history, 1_000);
        for sample in &mut history.samples {
            sample.hosts[0].1 = sample.hosts[0].1.min(85_000);
        }
    });
}

#[test]
fn i10_work_goes_on_after_a_fault() {
    breaks(Invariant::Liveness, |history| {
        history.faults = vec![fault(FaultKind::PauseRedis, None, 600, 700)];
        history.messages.push(history.messages[0].clone());
        runs(history, 0, 4, 1, 700 + 16_001);
        history.drains.clear();
    });
    breaks(Invariant::Liveness, |history| {
        history.drained_ms = Some(history.healed_ms + 60_001);
    });
    // From the first start, at 200, to the end, at 4,000.
    let ended = good().events.iter().filter(|e| e.what == What::End).count() as u64;
    let rate = ended * 1_000 / 3_800;
    let judgement = holds(|history| history.settings.least_rate = rate);
    assert_eq!(judgement.counts.rate, rate);
    breaks(Invariant::Liveness, |history| {
        history.settings.least_rate = rate + 1;
    });
    // Time without a CPU does not count, and counts once.
    let slow = |history: &mut History, until_ms| {
        history.drained_ms = Some(history.healed_ms + 70_000);
        let starved = |host| fault(FaultKind::Starved, host, 1_000, until_ms);
        history.faults = vec![starved(Some(0)), starved(Some(1)), starved(None)];
    };
    holds(|history| slow(history, 12_000));
    breaks(Invariant::Liveness, |history| slow(history, 8_000));
    // Nothing was there to do.
    let judgement = holds(|history| {
        history.faults = vec![fault(FaultKind::PauseRedis, None, 600, 700)];
        let mut late = history.messages[0].clone();
        late.at_ms = 30_000;
        history.messages.push(late);
        runs(history, 0, 4, 1, 30_100);
        history.drains.clear();
    });
    assert_eq!(judgement.counts.recovery_ms, 0);
}

#[test]
fn i11_a_host_that_is_told_to_stop_does_so_in_time() {
    breaks(Invariant::Shutdown, |history| {
        history.drains[0].ended_ms = 16_001
    });
    breaks(Invariant::Shutdown, |history| history.drains[0].code = None);
    breaks(Invariant::Shutdown, |history| {
        history.drains[0].code = Some(75)
    });
    breaks(Invariant::Shutdown, |history| {
        history.messages.push(history.messages[0].clone());
        runs(history, 0, 4, 1, 10_001);
        history.harvest.acked = Some(3);
    });
    // A host of a queue at most once runs what it has in hand.
    holds(|history| {
        at_most_once(history, Kind::SimpleList);
        history.messages.push(history.messages[0].clone());
        runs(history, 0, 4, 1, 10_001);
    });
    // It was over its time, and says so.
    holds(|history| {
        history.drains[0].code = Some(75);
        history.drains[0].ended_ms = 14_100;
    });
}

#[test]
fn i11_a_host_ends_by_itself_only_if_a_message_kills_it() {
    let exits = |history: &mut History| {
        history.exits = vec![Exit {
            host: 0,
            at_ms: 700,
            how: "SIGABRT".to_owned(),
            aborted: true,
            code: None,
        }];
    };
    breaks(Invariant::Shutdown, exits);
    holds(|history| {
        exits(history);
        history.messages[3].script.kills_host = true;
        let letter = letter(history, 3, "max-deliveries", CAP);
        history.harvest.dead[1] = letter;
    });
}

#[test]
fn i11_a_host_that_has_not_begun_may_be_ended_by_the_signal() {
    holds(|history| {
        history.drains[0].code = None;
        history.drains[0].unstarted = true;
    });
}

#[test]
fn i11_a_host_that_starts_with_a_bad_handler_refuses_it() {
    let exits = |history: &mut History, code| {
        history.exits = vec![Exit {
            host: 0,
            at_ms: 700,
            how: format!("exit status: {code}"),
            aborted: false,
            code: Some(code),
        }];
    };
    let bad = fault(FaultKind::BadSwap, None, 500, 800);
    breaks(Invariant::Shutdown, |history| exits(history, 65));
    breaks(Invariant::Shutdown, |history| {
        exits(history, 70);
        history.faults.push(bad);
    });
    holds(|history| {
        exits(history, 65);
        history.faults.push(bad);
    });
}

#[test]
fn i12_an_attempt_runs_in_one_accepted_version() {
    let says = |history: &mut History, version| {
        history.events.push(Event {
            at_ms: 201,
            host: 0,
            message: 0,
            attempt: 1,
            what: What::Version(version),
        });
    };
    holds(|history| says(history, 1));
    breaks(Invariant::Swap, |history| {
        says(history, 0);
        says(history, 1);
    });
    breaks(Invariant::Swap, |history| says(history, 2));
}

#[test]
fn i13_one_slot_handles_messages_in_their_order() {
    holds(|history| history.settings.ordered = true);
    breaks(Invariant::Order, |history| {
        history.settings.ordered = true;
        history.events.swap(0, 2);
        history.events.swap(1, 3);
    });
}

#[test]
fn i14_a_fresh_instance_has_seen_no_other_message() {
    breaks(Invariant::Isolation, |history| {
        history.harvest.dead[0].detail = "2".to_owned();
    });
    // Instances that serve several messages may say so.
    holds(|history| {
        history.settings.fresh_instances = false;
        history.harvest.dead[0].detail = "2".to_owned();
    });
}

#[test]
fn i15_a_password_appears_nowhere() {
    breaks(Invariant::Secrets, |history| {
        history.harvest.leaks = vec!["the log of host 0".to_owned()];
    });
}

#[test]
fn a_failing_attempt_that_ends_late_is_no_reason_for_an_earlier_start() {
    breaks(Invariant::Duplicates, |history| {
        // Attempt 2 starts while attempt 1 runs.
        for event in &mut history.events {
            if (event.message, event.attempt, event.what) == (1, 1, What::End) {
                event.at_ms = 350;
            }
        }
    });
}
