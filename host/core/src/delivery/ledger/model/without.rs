//! Each rule taken out, in a world that needs it: what it is there for must go wrong.

use fastrand::Rng;

use super::super::Time;
use super::scenario::{AHEAD, Change, Delay, Faults, Nature, Plan, Scenario, ms};
use super::world::run;
use super::{holds, seeds, setting};
use crate::delivery::attempt::Accounting;
use crate::delivery::policy::OnCap;
use crate::delivery::rules::Rule;

/// How many runs a rule's world gets to show what breaks without it, and that nothing does with it.
const RUNS: u64 = 400;

/// Without `rule` a promise breaks that sounds like this; with it, none does.
fn breaks(rule: Rule, told: &str, make: impl Fn(&mut Rng) -> Scenario) {
    if setting("HOSTLER_MODEL_SEED").is_some() {
        // Only that run: with the rule, then without it.
        holds(1, &make);
        Rule::taken_out(Some(rule), || holds(1, &make));
        return;
    }
    let is_survey = setting("HOSTLER_MODEL_RUNS").is_some();
    let (mut runs, mut broken, mut fitting) = (0, 0, 0);
    let mut first = None;
    for seed in seeds(RUNS) {
        let scenario = make(&mut Rng::with_seed(seed));
        let without = Rule::taken_out(Some(rule), || run(&scenario, seed, false));
        runs += 1;
        if let Err(violation) = without {
            broken += 1;
            let fits = violation.what.contains(told);
            if first.is_none() || (fits && fitting == 0) {
                first = Some((seed, violation.what));
            }
            fitting += u64::from(fits);
        }
        if fitting > 0 && !is_survey {
            break;
        }
    }
    println!(
        "without {rule:?}: {broken} of {runs} runs break a promise, {fitting} with \"{told}\"; first {first:?}"
    );
    assert!(
        fitting > 0,
        "nothing breaks without {rule:?} in {runs} runs ({broken} others)"
    );
    holds(RUNS / 16, make);
}

/// Messages and hosts of every kind, lazy accounting, a cap of 2 to 5, and these faults.
fn world(rng: &mut Rng, faults: Faults) -> Scenario {
    let mut scenario = Scenario::quiet(rng);
    scenario.limit.cap = Some([2, 3, 5][rng.usize(..3)]);
    scenario.limit.accounting = Accounting::Lazy;
    for plan in &mut scenario.plans {
        if plan.nature == (Nature::Ack { nacks: 6 }) {
            plan.nature = Nature::Never;
        }
    }
    scenario.faults = Faults {
        at_step: 20,
        most: 10,
        ..faults
    };
    scenario
}

fn drains() -> Faults {
    Faults {
        drain: 1,
        ..Faults::default()
    }
}

#[test]
fn a_last_start_that_is_not_2_never_happens() {
    breaks(
        Rule::LastStartIsTwo,
        "given up after 0 starts of 1",
        |rng| {
            let mut scenario = world(
                rng,
                Faults {
                    kill: 1,
                    ..Faults::default()
                },
            );
            scenario.limit.cap = Some(1);
            scenario
        },
    );
}

#[test]
fn a_record_without_a_check_takes_deliveries_back() {
    breaks(Rule::RecordsCheck, "two starts were both", |rng| {
        let mut scenario = world(
            rng,
            Faults {
                pause: 3,
                kill: 1,
                ..Faults::default()
            },
        );
        scenario.hosts = 3;
        scenario
    });
}

#[test]
fn a_claim_in_two_commands_erases_a_charge() {
    breaks(Rule::ClaimsKeepCounts, "two starts were both", |rng| {
        let mut scenario = world(
            rng,
            Faults {
                pause: 2,
                kill: 2,
                slow: 100,
                ..Faults::default()
            },
        );
        scenario.timeout = scenario.min_idle * 2;
        scenario.hosts = 4;
        scenario.add_killers(rng, 3);
        scenario
    });
}

#[test]
fn a_delivery_that_comes_again_runs_twice_on_one_host() {
    breaks(Rule::OneRunAtATime, "two attempts at once on host", |rng| {
        let mut scenario = world(
            rng,
            Faults {
                cut: 2,
                kill: 1,
                ..Faults::default()
            },
        );
        // A host is cut off while it runs them, the next one dies with them, and the first is back.
        scenario.hosts = 2;
        scenario.limit.cap = Some(5);
        scenario.faults.at_step = 150;
        scenario.faults.most = 30;
        scenario.heal_at = ms(30_000);
        scenario.plans.truncate(4);
        for plan in &mut scenario.plans {
            plan.header = 0;
            plan.published = Time::ZERO;
            plan.takes = scenario.min_idle * rng.u32(6..16);
        }
        scenario
    });
}

#[test]
fn a_hand_back_with_a_charge_gives_up_what_never_ran() {
    breaks(Rule::HandBackUncharged, "given up after", |rng| {
        let mut scenario = world(rng, drains());
        scenario.faults.at_step = 60;
        scenario
    });
}

#[test]
fn suspects_among_others_take_innocents_with_them() {
    breaks(Rule::SuspectsRunIsolated, "innocent", |rng| {
        let mut scenario = world(rng, Faults::default());
        scenario.add_killers(rng, 3);
        scenario
    });
}

#[test]
fn an_isolated_run_waits_for_open_settlements() {
    breaks(
        Rule::IsolationAwaitsSettlements,
        "ended its host beside",
        |rng| {
            let mut scenario = world(rng, Faults::default());
            scenario.add_killers(rng, 3);
            scenario
        },
    );
}

#[test]
fn a_suspect_parked_on_drain_loses_its_mark() {
    breaks(Rule::SuspectsAreLeftOnDrain, "innocent", |rng| {
        let mut scenario = world(rng, drains());
        scenario.add_killers(rng, 3);
        scenario.faults.at_step = 40;
        scenario
    });
}

#[test]
fn without_a_fair_share_killers_keep_a_host_from_everything_else() {
    breaks(Rule::FairShare, "had no share", |rng| {
        let mut scenario = world(rng, Faults::default());
        scenario.limit.cap = None;
        scenario.hosts = 1;
        scenario.plans.retain(|plan| plan.nature != Nature::Never);
        scenario.add_killers(rng, 5);
        scenario.patience = scenario.min_idle * 200;
        scenario
    });
}

#[test]
fn without_a_reserved_slot_a_saturated_host_takes_no_orphans() {
    breaks(Rule::ReservedSlot, "not settled", |rng| {
        let mut scenario = world(
            rng,
            Faults {
                kill: 1,
                ..Faults::default()
            },
        );
        scenario.limit.cap = None;
        scenario.hosts = 1;
        scenario.faults.most = 1;
        scenario.faults.at_step = 200;
        scenario.prefetch_max = scenario.concurrency;
        scenario.heal_at = ms(3000);
        scenario.patience = scenario.min_idle * 60;
        // One host dies with what is handled at length; the next one finds as many messages as it
        // has slots that fail for ever, and want to run again at once.
        scenario.plans.clear();
        for _ in 0..scenario.concurrency {
            let plan = Plan {
                nature: Nature::Ack { nacks: 0 },
                header: 0,
                published: Time::ZERO,
                takes: ms(2500),
                delay: Delay::Backoff,
                holds: 0,
                calls: 0,
                gate: None,
                is_awaited: false,
            };
            scenario.plans.push(plan);
            scenario.plans.push(Plan {
                nature: Nature::Never,
                published: ms(300),
                takes: ms(20),
                delay: Delay::Asked(Time::ZERO),
                ..plan
            });
        }
        scenario
    });
}

#[test]
fn what_nobody_adopts_is_stranded() {
    breaks(Rule::AdoptUnknown, "not settled", |rng| {
        world(
            rng,
            Faults {
                lost: 60,
                ..Faults::default()
            },
        )
    });
}

#[test]
fn what_a_dead_host_held_is_stranded_if_no_host_has_its_name() {
    breaks(Rule::OrphansOfEveryName, "not settled", |rng| {
        world(
            rng,
            Faults {
                kill: 1,
                ..Faults::default()
            },
        )
    });
}

#[test]
fn a_renewal_without_a_check_steals() {
    breaks(
        Rule::RenewalChecks,
        "nothing had kept it from renewing",
        |rng| {
            let mut scenario = world(
                rng,
                Faults {
                    pause: 1,
                    ..Faults::default()
                },
            );
            scenario.hosts = 3;
            for plan in &mut scenario.plans {
                plan.takes = scenario.min_idle * rng.u32(1..6);
            }
            scenario
        },
    );
}

#[test]
fn a_start_on_an_old_lease_is_a_start_of_what_another_host_owns() {
    breaks(Rule::LeaseBeforeStart, "did not own it", |rng| {
        let mut scenario = world(
            rng,
            Faults {
                cut: 1,
                ..Faults::default()
            },
        );
        scenario.hosts = 4;
        scenario.concurrency = 4;
        scenario.prefetch_max = 16;
        scenario.limit.cap = Some(5);
        scenario.faults.at_step = 6;
        scenario.faults.most = 3;
        // Fast ones, so that a host reads ahead; then slow ones, so that those wait.
        let fast = rng.usize(40..120);
        scenario.plans = (0..fast + rng.usize(8..20))
            .map(|place| Plan {
                nature: Nature::Ack { nacks: 0 },
                header: 0,
                published: Time::ZERO,
                takes: if place < fast { ms(1) } else { ms(2000) },
                delay: Delay::Backoff,
                holds: 0,
                calls: 0,
                gate: None,
                is_awaited: false,
            })
            .collect();
        scenario
    });
}

#[test]
fn what_was_parked_and_lost_its_due_time_is_stranded() {
    breaks(Rule::StrandedParkedAreDue, "not settled", |rng| {
        world(
            rng,
            Faults {
                parked_set_lost: 1,
                ..Faults::default()
            },
        )
    });
}

#[test]
fn a_settlement_that_keeps_to_the_old_rules_is_refused_for_ever() {
    breaks(Rule::SettlementsFollowTheRules, "not settled", |rng| {
        let mut scenario = world(
            rng,
            Faults {
                policy: 2,
                dead_letters_refused: 1,
                slow: 100,
                ..Faults::default()
            },
        );
        // There is a dead-letter queue for a while; it may be full, or far away.
        scenario.on_cap = OnCap::Discard;
        scenario.changes.push(Change {
            cap: scenario.limit.cap,
            on_cap: OnCap::DeadLetter,
            has_dead_letter: true,
            backoff: ms(40),
        });
        scenario
    });
}

#[test]
fn a_key_that_is_taken_away_discards_messages() {
    breaks(
        Rule::TakingTheKeyDiscardsNothing,
        "discarded without a word",
        |rng| {
            let mut scenario = world(
                rng,
                Faults {
                    policy: 2,
                    ..Faults::default()
                },
            );
            scenario.on_cap = OnCap::DeadLetter;
            scenario.changes.push(Change {
                cap: scenario.limit.cap,
                on_cap: OnCap::DeadLetter,
                has_dead_letter: false,
                backoff: ms(40),
            });
            scenario
        },
    );
}

#[test]
fn what_the_gate_turned_away_starts() {
    breaks(
        Rule::TurnedAwayNeverStarts,
        "the gate turned it away",
        |rng| {
            let mut scenario = world(rng, Faults::default());
            scenario.turn_away(rng);
            scenario
        },
    );
}

/// The group is destroyed now and then, and nothing else happens.
fn regrouped(rng: &mut Rng) -> Scenario {
    let faults = Faults {
        group: 1,
        ..Faults::default()
    };
    let mut scenario = world(rng, faults);
    scenario.hosts = rng.usize(2..=4);
    scenario
}

#[test]
fn what_is_gone_from_another_group_is_lost() {
    breaks(Rule::GoneIsProven, "not settled", regrouped);
}

#[test]
fn a_host_that_does_not_repair_what_others_made_settles_nothing() {
    breaks(Rule::RepairBeforeSettling, "not settled", |rng| {
        let mut scenario = regrouped(rng);
        // It asks again and again, and hears that there is another group.
        scenario.patience = scenario.min_idle * 100;
        scenario
    });
}

#[test]
fn what_was_parked_in_an_earlier_group_is_lost() {
    breaks(Rule::ParkedAgain, "not settled", regrouped);
}

#[test]
fn what_another_host_has_taken_and_settled_comes_again_when_the_clock_of_the_server_jumps() {
    breaks(Rule::TakeoversAreNoted, "message", |rng| {
        let faults = Faults {
            clock: 1,
            ..Faults::default()
        };
        let mut scenario = world(rng, faults);
        scenario.hosts = rng.usize(2..=4);
        scenario
    });
}

/// Consumers are deleted now and then, and nothing else happens.
fn cleaned(rng: &mut Rng) -> Scenario {
    let faults = Faults {
        consumer: 1,
        ..Faults::default()
    };
    let mut scenario = world(rng, faults);
    scenario.hosts = rng.usize(2..=4);
    scenario
}

#[test]
fn what_was_parked_by_a_deleted_consumer_is_lost() {
    breaks(Rule::ParkedAgain, "not settled", cleaned);
}

#[test]
fn what_is_missing_for_a_host_whose_consumer_was_deleted_is_lost() {
    breaks(Rule::MissingIsBroughtBack, "not settled", cleaned);
}

#[test]
fn what_was_acknowledged_late_comes_again() {
    breaks(Rule::LateAcksAreNoted, "message", |rng| {
        let faults = Faults {
            pause: 3,
            cut: 1,
            ..Faults::default()
        };
        world(rng, faults)
    });
}

#[test]
fn what_was_cancelled_comes_again() {
    breaks(Rule::CancelsAreNoted, "settled twice", |rng| {
        let faults = Faults {
            cancel: 3,
            ..Faults::default()
        };
        world(rng, faults)
    });
}

/// The group is destroyed now and then, and answers are lost.
fn unanswered(rng: &mut Rng) -> Scenario {
    let mut scenario = regrouped(rng);
    scenario.faults.lost = 60;
    scenario
}

#[test]
fn what_was_taken_without_an_answer_is_lost_with_the_group() {
    breaks(Rule::RecordsOutliveAnswers, "not settled", unanswered);
}

#[test]
fn what_was_read_without_an_answer_is_lost_with_the_group() {
    breaks(Rule::UnansweredReadsComeAgain, "not settled", |rng| {
        let mut scenario = unanswered(rng);
        scenario.hosts = 1;
        scenario.plans.iter_mut().for_each(|plan| plan.header = 0);
        scenario
    });
}

#[test]
fn what_was_acknowledged_with_effects_in_an_earlier_group_happens_twice() {
    breaks(Rule::ActedStaysSettled, "effects happened twice", |rng| {
        let mut scenario = regrouped(rng);
        scenario.has_effects = true;
        scenario.faults.lost = 60;
        scenario.faults.slow = 20;
        scenario
    });
}

#[test]
fn a_late_ack_without_its_effects_voids_those_of_the_next_owner() {
    breaks(
        Rule::AcksWithEffectsAreChecked,
        "acknowledged without its effects",
        |rng| {
            let faults = Faults {
                pause: 3,
                cut: 1,
                ..Faults::default()
            };
            let mut scenario = world(rng, faults);
            scenario.has_effects = true;
            scenario
        },
    );
}

#[test]
fn of_two_updates_of_an_old_value_one_is_lost() {
    breaks(Rule::ValuesAreCompared, "an update is lost", |rng| {
        let mut scenario = world(rng, Faults::default());
        (scenario.has_effects, scenario.keys) = (true, 1);
        scenario
    });
}

#[test]
fn a_message_whose_values_change_is_given_up_without_a_failure() {
    breaks(Rule::RerunsAreUncharged, "given up after", |rng| {
        let mut scenario = world(rng, Faults::default());
        (scenario.has_effects, scenario.keys) = (true, 1);
        scenario
    });
}

#[test]
fn messages_that_are_not_admitted_start_at_once() {
    breaks(Rule::StartsAreAdmitted, "starts at once", |rng| {
        let mut scenario = world(rng, Faults::default());
        scenario.limit_starts(rng);
        scenario
    });
}

/// Few attempts at once, some of which take longer than a lease.
fn permitted(rng: &mut Rng, faults: Faults) -> Scenario {
    let mut scenario = world(rng, faults);
    scenario.hosts = 3;
    scenario.permit(rng);
    scenario.pace = None;
    scenario
}

#[test]
fn permits_that_are_not_renewed_end_before_their_attempts() {
    breaks(Rule::PermitsAreRenewed, "attempts at once", |rng| {
        permitted(rng, Faults::default())
    });
}

#[test]
fn a_request_that_comes_late_takes_permits_from_attempts_that_run() {
    breaks(Rule::LaterNumbersStand, "attempts at once", |rng| {
        let mut scenario = permitted(
            rng,
            Faults {
                cut: 2,
                lost: 60,
                slow: 60,
                ..Faults::default()
            },
        );
        scenario.timeout = scenario.min_idle / 10;
        scenario
    });
}

#[test]
fn effects_that_never_fit_stop_the_queue() {
    breaks(Rule::UnfitEffectsFail, "not settled", |rng| {
        let mut scenario = world(rng, Faults::default());
        scenario.has_effects = true;
        scenario.spoil();
        scenario
    });
}

#[test]
fn a_host_that_becomes_slow_keeps_what_others_could_run() {
    breaks(Rule::ExcessGoesBack, "messages since", |rng| {
        let mut scenario = world(rng, Faults::default());
        scenario.become_slow(rng);
        scenario.ahead = AHEAD;
        scenario
    });
}

/// It takes several things at once to need this rule: few runs do, and this is one of them.
#[test]
fn what_was_asked_again_and_comes_late_sends_away_what_the_host_believes_to_have() {
    let seed = 489;
    let rng = &mut Rng::with_seed(seed);
    let mut scenario = world(
        rng,
        Faults {
            pause: 2,
            cut: 2,
            policy: 3,
            lost: 60,
            slow: 80,
            ..Faults::default()
        },
    );
    scenario.faults.at_step = 30;
    scenario.timeout = scenario.min_idle / 10;
    scenario.hosts = 4;
    scenario.ahead = AHEAD;
    scenario.limit.cap = Some(5);
    for plan in &mut scenario.plans {
        plan.nature = Nature::Ack { nacks: 3 };
        plan.delay = Delay::Asked(ms(1));
        plan.takes = ms(2);
        plan.header = 0;
    }
    scenario.changes.push(Change {
        cap: Some(8),
        on_cap: OnCap::DeadLetter,
        has_dead_letter: true,
        backoff: ms(0),
    });
    let without = Rule::taken_out(Some(Rule::RepeatsVoid), || run(&scenario, seed, false));
    let what = without.expect_err("a promise breaks without it").what;
    assert!(what.contains("two starts were both"), "{what}");
    run(&scenario, seed, false).expect("no promise breaks with it");
}

/// Hosts are killed, stand still and lose answers, and messages are held.
fn held(rng: &mut Rng) -> Scenario {
    let faults = Faults {
        kill: 1,
        pause: 2,
        cut: 2,
        lost: 60,
        slow: 40,
        ..Faults::default()
    };
    let mut scenario = world(rng, faults);
    scenario.hosts = 3;
    scenario.timeout = scenario.min_idle / 10;
    scenario.hold(rng);
    scenario
}

#[test]
fn what_is_held_is_given_up_although_it_did_not_fail() {
    breaks(Rule::HoldsAreFree, "given up after", |rng| {
        let mut scenario = held(rng);
        scenario.faults = Faults::default();
        scenario.limit.holds.max = 9;
        scenario
    });
}

#[test]
fn a_hold_that_is_counted_twice_starts_a_message_too_often() {
    breaks(Rule::UnansweredHoldsAreCharged, "message", held);
}

/// The same, and handlers make calls.
fn journaled(rng: &mut Rng) -> Scenario {
    let mut scenario = held(rng);
    scenario.record_calls(rng);
    scenario
}

#[test]
fn a_call_without_an_intent_is_made_again_after_a_crash() {
    breaks(Rule::IntentsComeFirst, "leaves once too often", |rng| {
        let mut scenario = journaled(rng);
        scenario.unknown = super::scenario::Unknown::Fail;
        scenario
    });
}

#[test]
fn an_answer_that_the_handler_saw_first_is_lost_with_its_host() {
    breaks(
        Rule::AnswersAreRecordedFirst,
        "leaves once too often",
        journaled,
    );
}

#[test]
fn an_answer_that_comes_late_changes_what_a_handler_saw() {
    breaks(Rule::FirstAnswerStands, "has two answers", journaled);
}

#[test]
fn an_intent_that_its_first_writer_removes_loses_the_answer_of_the_next_attempt() {
    breaks(Rule::OpenIntentsStay, "is not recorded", |rng| {
        let mut scenario = journaled(rng);
        scenario.unknown = super::scenario::Unknown::Again;
        scenario
    });
}

#[test]
fn a_message_that_leaves_without_its_journal_strands_it() {
    breaks(Rule::ExitsTakeTheJournal, "its journal stays", journaled);
}
