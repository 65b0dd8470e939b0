//! The example handlers give the same verdicts in every language: in a fresh instance for each
//! message, and in one that is used again.

use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::Message;
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Cache, Limits, Sandbox, Settings};
use hostler_tests::guests::language;
use hostler_tests::host::binary;
use hostler_tests::rig::{Rig, message};

use crate::language_table::{Answer, Row, for_every_language, rows};

for_every_language!(answers_as_the_table_says);

async fn answers_as_the_table_says(name: &str) {
    for reuse in [1, 1_000] {
        let settings = Settings {
            reuse,
            limits: Limits {
                // Whoever runs the tests may be slow.
                wall: Duration::from_secs(50),
                cpu: Duration::from_secs(50),
                compile_time: Duration::from_secs(600),
                ..Limits::default()
            },
            cache: Some(Cache {
                dir: binary().with_file_name("test-cache"),
                max_bytes: 1 << 30,
            }),
            ..Settings::default()
        };
        let sandbox = Sandbox::load(&language(name), &settings).unwrap();
        let mut rig = Rig::of(sandbox);
        let mut wrong = Vec::new();
        for row in rows() {
            if let Err(got) = check(&mut rig, &row).await {
                wrong.push(format!("{}, attempt {}: {got}", row.name, row.attempt));
            }
        }
        assert!(
            wrong.is_empty(),
            "{name}, reuse {reuse}:\n{}",
            wrong.join("\n")
        );
    }
}

async fn check(rig: &mut Rig, row: &Row) -> Result<(), String> {
    let message = Message {
        body: Bytes::copy_from_slice(&row.body),
        headers: row.headers.clone(),
        ..message("")
    };
    let report = rig.call(&message, row.attempt).await;
    let lines = rig.lines();
    match (&row.answer, &report.outcome) {
        (Answer::Is(expected, log), got) if expected == got => {
            // Line breaks and what can't be printed look different in a log.
            let line = format!("attempt {}: {log}", row.attempt);
            let plain = !log.contains(|c: char| c.is_control());
            if plain && !lines.iter().any(|logged| logged.ends_with(&line)) {
                return Err(format!("it did not log `{line}`, but {lines:?}"));
            }
            Ok(())
        }
        (Answer::Trap, Outcome::Fault(fault)) if fault.kind == FaultKind::Trap => Ok(()),
        (Answer::Refuses, Outcome::Drop(Some(reason))) if reason == "not an order" => Ok(()),
        (Answer::Refuses, Outcome::Fault(fault)) if fault.kind == FaultKind::StackOverflow => {
            Ok(())
        }
        (_, got) => Err(format!("{got:?}, {lines:?}")),
    }
}
