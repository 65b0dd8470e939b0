//! `hostler test`: a component against a table of messages, without Redis.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Tested};
use crate::cli::invoke::Verdict;
use crate::cli::{Variables, check, output};
use crate::sandbox::{Call, Capture, LogSink, Sandbox, Slot};

mod cases;

use cases::Case;

/// Run a component against a table of messages and expected outcomes, without Redis
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler test handler.wasm cases.toml
  hostler test handler.wasm cases.toml --reuse 100 --json

A table has one [[case]] for each message:
  [[case]]
  name = \"a payment that times out\"
  body = '{\"id\":1}'             or body_base64, or body_file; without any it is empty
  headers = { tenant = \"7\" }    and id, queue, attempt, max_attempts, enqueued_ms
  outcome = \"nack-requeue\"      ack, nack-requeue, drop or fault
  delay = \"200ms\"               of a nack-requeue; reason = \"...\" of a drop, fault = \"trap\"
  log = [\"timed out\"]           each is part of a line that the handler writes

Exit codes: 0 all passed, 1 one did not; 64 usage, 65 bad component")]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    /// The table
    #[arg(value_name = "CASES.toml")]
    cases: PathBuf,

    /// Print one line of JSON for each case, and one for all
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Tested>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let mut settings = args.flags.collect(variables).sandbox()?;
    settings.concurrency = 1;
    let cases = cases::read(&args.cases)?;
    let sandbox = check::load(&args.file, &settings)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    // One slot: with `--reuse` a case sees what those before it have left behind.
    let mut slot = sandbox.slot();
    let (mut passed, mut failed) = (0, 0);
    for case in &cases {
        let good = runtime.block_on(try_case(&sandbox, &mut slot, case, args.json))?;
        *if good { &mut passed } else { &mut failed } += 1;
    }
    if args.json {
        output::json(&Sum { passed, failed })?;
    } else {
        output::line(&format!("{passed} passed, {failed} failed"))?;
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Sum {
    passed: usize,
    failed: usize,
}

/// The other lines.
#[derive(Serialize)]
struct Tried<'a> {
    name: &'a str,
    passed: bool,
    /// What was wrong.
    objection: Option<&'a str>,
    /// What the handler made of it.
    outcome: &'a str,
    logs: &'a [String],
}

async fn try_case(
    sandbox: &Sandbox,
    slot: &mut Slot,
    case: &Case,
    json: bool,
) -> Result<bool, Failure> {
    let capture = Capture::default();
    let call = Call {
        message: &case.message,
        attempt: case.attempt,
        max_attempts: case.max_attempts,
        cancelled: &Arc::default(),
        logs: &LogSink::Capture(capture.clone()),
    };
    let report = sandbox.call(slot, call).await;
    let lines = capture.take().into_iter().map(|line| line.text);
    let lines: Vec<String> = lines.collect();
    let outcome = Verdict::new(&report.outcome).to_string();
    let objection = case.objection(&report.outcome, &lines);
    let passed = objection.is_none();
    if json {
        output::json(&Tried {
            name: &case.name,
            passed,
            objection: objection.as_deref(),
            outcome: &outcome,
            logs: &lines,
        })?;
    } else {
        let mut text = match &objection {
            None => format!("ok    {}", case.name),
            Some(objection) => format!("FAIL  {}: {objection}, got {outcome}", case.name),
        };
        if objection.is_some() {
            for line in &lines {
                text.push_str(&format!("\n      | {line}"));
            }
        }
        output::line(&text)?;
    }
    Ok(passed)
}
