//! The table of messages of `language_table` in each world: the orders example, called as a handler of another host
//! and as a program, gives the verdicts of the native one, as far as its world has a word for them.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::Message;
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Limits, Settings};
use hostler_tests::adapters::Adapter;
use hostler_tests::guests::orders_program;
use hostler_tests::rig::{Rig, message};

use crate::sandbox::language_table::{Answer, Row, again, drawn, rows};

/// The verdicts that a world has words for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Words {
    /// Done, or again. The handler knows no attempt: it decides as at the first.
    DoneOrAgain,
    /// The same, and the body is text.
    TextDoneOrAgain,
    /// The exit codes 0, 75 and 65. The last line on stderr is the reason.
    Codes,
    /// A line on stderr: `hostler: nack 100ms`, `hostler: drop no order`.
    Lines,
    /// Exit code 0 or another one.
    Success,
}

impl Words {
    /// What the example in this world does for a row; `None` = a failed attempt.
    fn of(self, row: &Row) -> Option<Outcome> {
        let answer = match self {
            // The only rows of later attempts are payments that time out at the first.
            Self::DoneOrAgain | Self::TextDoneOrAgain if row.attempt > 1 => again(100),
            _ => row.answer.clone(),
        };
        let outcome = match answer {
            Answer::Is(outcome, _) => outcome,
            Answer::Draws(before) => Outcome::Drop(Some(before.to_owned())),
            Answer::Refuses => Outcome::Drop(Some("not an order".to_owned())),
            Answer::Trap => return None,
        };
        match (self, outcome) {
            (_, Outcome::Ack) => Some(Outcome::Ack),
            (Self::DoneOrAgain | Self::TextDoneOrAgain, _)
            | (Self::Codes, Outcome::NackRequeue(_)) => Some(Outcome::NackRequeue(None)),
            (Self::Success, _) => None,
            (Self::Codes | Self::Lines, Outcome::Drop(Some(reason))) => {
                // Its line breaks are escaped here, and real on stderr.
                match reason.rsplit_once(r"\n") {
                    None => Some(Outcome::Drop(Some(reason))),
                    Some(_) if self == Self::Lines => None,
                    Some((_, last)) => Some(Outcome::Drop(Some(last.to_owned()))),
                }
            }
            (_, outcome) => Some(outcome),
        }
    }

    /// What it logs for a row, if that is one line that can be compared.
    fn log(self, row: &Row) -> Option<String> {
        let is_text = std::str::from_utf8(&row.body).is_ok();
        let (attempt, answer) = match self {
            Self::TextDoneOrAgain if !is_text => return None,
            Self::DoneOrAgain | Self::TextDoneOrAgain if row.attempt > 1 => (1, again(100)),
            _ => (row.attempt, row.answer.clone()),
        };
        match answer {
            Answer::Is(_, log) if !log.contains(|c: char| c.is_control()) => {
                Some(format!("attempt {attempt}: {log}"))
            }
            _ => None,
        }
    }
}

/// What is wrong with this row.
async fn check(rig: &mut Rig, words: Words, row: &Row) -> Result<(), String> {
    let message = Message {
        body: Bytes::copy_from_slice(&row.body),
        headers: row.headers.clone(),
        ..message("")
    };
    let report = rig.call(&message, row.attempt).await;
    let lines = rig.lines();
    let is_it = match (&report.outcome, words.of(row)) {
        (Outcome::Fault(fault), None) => match fault.kind {
            // A program that panics ends with a code, in some languages.
            FaultKind::Trap => matches!(row.answer, Answer::Trap | Answer::Refuses),
            FaultKind::GuestExit => true,
            _ => false,
        },
        (Outcome::Fault(fault), _) => {
            matches!(row.answer, Answer::Refuses) && fault.kind == FaultKind::StackOverflow
        }
        (outcome, Some(Outcome::Drop(Some(before)))) if matches!(row.answer, Answer::Draws(_)) => {
            drawn(&before, outcome).is_some()
        }
        (outcome, expected) => Some(outcome) == expected.as_ref(),
    };
    if !is_it {
        return Err(format!("{:?}, {lines:?}", report.outcome));
    }
    match words.log(row) {
        Some(line) if !lines.contains(&line) => Err(format!("not `{line}`, but {lines:?}")),
        _ => Ok(()),
    }
}

fn settings() -> Settings {
    Settings {
        limits: Limits {
            // The machine may be slow.
            wall: Duration::from_secs(50),
            cpu: Duration::from_secs(50),
            compile_time: Duration::from_secs(600),
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// All rows, in fresh instances, and in a reused one where the world allows it.
async fn answers_as_far_as_it_can(file: &Path, words: Words) {
    let is_program = !matches!(words, Words::DoneOrAgain | Words::TextDoneOrAgain);
    let reuses: &[u32] = if is_program { &[1] } else { &[1, 1_000] };
    for reuse in reuses {
        let settings = Settings {
            reuse: *reuse,
            ..settings()
        };
        let mut rig = Rig::file(file, &settings);
        let mut wrong = Vec::new();
        for row in rows() {
            if let Err(got) = check(&mut rig, words, &row).await {
                wrong.push(format!("{}, attempt {}: {got}", row.name, row.attempt));
            }
        }
        let wrong = wrong.join("\n");
        assert!(wrong.is_empty(), "{words:?}, reuse {reuse}:\n{wrong}");
    }
}

/// Worlds and their handlers in Rust.
macro_rules! in_rust {
    ($($name:ident: $adapter:ident $words:ident;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                answers_as_far_as_it_can(&Adapter::$adapter.orders(), Words::$words).await;
            }
        )*
    };
}

in_rust! {
    rust_for_spin: Spin DoneOrAgain;
    rust_for_sqs: Sqs TextDoneOrAgain;
    rust_for_wasmcloud: Wasmcloud DoneOrAgain;
    rust_as_a_module: Module Codes;
    rust_as_a_component: Run Lines;
}

/// A program as its tool chain makes it.
async fn module(language: &str) {
    answers_as_far_as_it_can(&orders_program(language), Words::Codes).await;
}

/// The component that `wasm-tools component new` makes of it. Go has no such component: its allocator writes over the
/// state of the adapter.
async fn component(language: &str) {
    let module = std::fs::read(orders_program(language)).unwrap();
    let adapter = wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER;
    let encoder = wit_component::ComponentEncoder::default().module(&module);
    let encoder = encoder.unwrap().adapter("wasi_snapshot_preview1", adapter);
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("orders.wasm");
    std::fs::write(&file, encoder.unwrap().encode().unwrap()).unwrap();
    answers_as_far_as_it_can(&file, Words::Success).await;
}

macro_rules! programs_in {
    ($form:ident: $($language:ident)*) => {
        mod $form {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $language() {
                    super::$form(stringify!($language)).await;
                }
            )*
        }
    };
}

mod long {
    use super::{component, module};

    programs_in!(module: go c cpp zig);
    programs_in!(component: c cpp zig);
}
