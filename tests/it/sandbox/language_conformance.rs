//! The example handlers give the same verdicts in every language: in a fresh instance for each
//! message, and in one that is used again.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::hold::HoldRoom;
use hostler::delivery::message::Message;
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::delivery::trace::Traced;
use hostler::sandbox::{Call, Limits, LogSink, Settings, Start};
use hostler_components::{component_of, program};
use hostler_tests::guests::language;
use hostler_tests::rig::{Rig, message};
use wasmparser::{Parser, Payload};

use crate::sandbox::language_table::{Answer, Row, drawn, for_every_language, rows};
use crate::sandbox::sandbox_compile::by_child;

for_every_language!(answers_as_the_table_says);

mod draws {
    use super::draws_other_numbers_in_each_instance;
    use crate::sandbox::language_table::for_every_language;

    for_every_language!(draws_other_numbers_in_each_instance);
}

mod merged {
    use super::is_compiled_as_few_core_modules;
    use crate::sandbox::language_table::for_every_language;

    for_every_language!(is_compiled_as_few_core_modules);
}

/// The modules that the tools of a language link together are one module. One or two stay that need what
/// depends on it.
async fn is_compiled_as_few_core_modules(name: &str) {
    let bytes = std::fs::read(language(name)).unwrap();
    let core_modules = |component: &[u8]| {
        let parts = Parser::new(0).parse_all(component);
        let modules = parts.filter(|part| matches!(part, Ok(Payload::ModuleSection { .. })));
        modules.count()
    };
    let has = core_modules(&program::component_of(&bytes).unwrap());
    let compiled = core_modules(&component_of(&bytes).unwrap());
    println!("{name}: {has} core modules, {compiled} compiled");
    assert!(
        compiled < has && compiled <= 3,
        "{name}: {compiled} of {has}"
    );
}

/// Numbers that repeat are keys that repeat: two messages would get the same id of a payment.
async fn draws_other_numbers_in_each_instance(name: &str) {
    let mut numbers = Vec::new();
    for (reuse, snapshot) in [(1, true), (1, false), (1_000, true)] {
        let mut rig = rig(name, reuse, snapshot);
        let row = rows().into_iter().find_map(|row| match row.answer {
            Answer::Draws(before) => Some((message_of(&row), before)),
            _ => None,
        });
        let (message, before) = row.unwrap();
        for _ in 0..4 {
            let outcome = rig.call(&message, 1).await.outcome;
            let number = drawn(before, &outcome);
            numbers.push(number.unwrap_or_else(|| panic!("{outcome:?}")).to_owned());
        }
    }
    let different: BTreeSet<_> = numbers.iter().collect();
    assert_eq!(different.len(), numbers.len(), "{name}: {numbers:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rust_batch_answers_each_message_alone_and_all_in_one_call() {
    let mut rig = rig("rust-batch", 1, true);
    let mut messages = Vec::new();
    for row in rows() {
        let report = rig.call(&message_of(&row), row.attempt).await;
        match (row.answer.clone(), report.outcome) {
            (Answer::Is(expected, _), got) => assert_eq!(got, expected, "{}", row.name),
            (Answer::Trap, Outcome::Fault(fault)) => assert_eq!(fault.kind, FaultKind::Trap),
            (Answer::Draws(before), got) => assert!(drawn(before, &got).is_some(), "{got:?}"),
            (Answer::Refuses, Outcome::Drop(_)) => {}
            (_, got) => panic!("{}: {got:?}", row.name),
        }
        if let Answer::Is(expected, _) = row.answer.clone() {
            messages.push((message_of(&row), row.attempt, expected));
        }
    }
    let cancelled = Arc::default();
    let expected: Vec<Outcome> = messages
        .iter()
        .map(|(_, _, outcome)| outcome.clone())
        .collect();
    let calls: Vec<_> = messages
        .iter()
        .map(|(message, attempt, _)| Call {
            message,
            attempt: *attempt,
            max_attempts: 5,
            cancelled: &cancelled,
            logs: &LogSink::Tracing,
            trace: Traced::default(),
            began: std::time::Instant::now(),
            journal: None,
            room: HoldRoom::default(),
        })
        .collect();
    let report = rig.sandbox.call_batch(&mut rig.slot, &calls).await;
    assert_eq!(report.answer.unwrap(), expected);
}

async fn answers_as_the_table_says(name: &str) {
    for (reuse, snapshot) in [(1, true), (1, false), (1_000, true)] {
        let mut rig = rig(name, reuse, snapshot);
        if rig.sandbox.describe().start == Start::Short && !snapshot {
            // The same as before.
            continue;
        }
        let mut wrong = Vec::new();
        for row in rows() {
            if let Err(got) = check(&mut rig, &row).await {
                wrong.push(format!("{}, attempt {}: {got}", row.name, row.attempt));
            }
        }
        assert!(
            wrong.is_empty(),
            "{name}, reuse {reuse}, snapshot {snapshot}:\n{}",
            wrong.join("\n")
        );
    }
}

fn rig(name: &str, reuse: u32, snapshot: bool) -> Rig {
    let settings = Settings {
        reuse,
        snapshot,
        ..by_child(Limits {
            // The machine may be slow.
            wall: Duration::from_secs(50),
            cpu: Duration::from_secs(50),
            compile_time: Duration::from_secs(600),
            ..Limits::default()
        })
    };
    Rig::file(&language(name), &settings)
}

fn message_of(row: &Row) -> Message {
    Message {
        body: Bytes::copy_from_slice(&row.body),
        headers: row.headers.clone(),
        ..message("")
    }
}

async fn check(rig: &mut Rig, row: &Row) -> Result<(), String> {
    let report = rig.call(&message_of(row), row.attempt).await;
    let lines = rig.lines();
    match (&row.answer, &report.outcome) {
        (Answer::Is(expected, log), got) if expected == got => {
            // A log shows control characters in another way.
            let line = format!("attempt {}: {log}", row.attempt);
            let plain = !log.contains(|c: char| c.is_control());
            if plain && !lines.iter().any(|logged| logged.ends_with(&line)) {
                return Err(format!("it did not log `{line}`, but {lines:?}"));
            }
            Ok(())
        }
        (Answer::Trap, Outcome::Fault(fault)) if fault.kind == FaultKind::Trap => {
            // Causes differ by their functions, in every language.
            let is_placed = [", at ", ", in "]
                .iter()
                .any(|mark| fault.detail.contains(mark));
            is_placed
                .then_some(())
                .ok_or_else(|| format!("no place: {fault}"))
        }
        (Answer::Draws(before), got) if drawn(before, got).is_some() => Ok(()),
        (Answer::Refuses, Outcome::Drop(Some(reason))) if reason == "not an order" => Ok(()),
        (Answer::Refuses, Outcome::Fault(fault)) if fault.kind == FaultKind::StackOverflow => {
            Ok(())
        }
        (_, got) => Err(format!("{got:?}, {lines:?}")),
    }
}
