//! `hostler test`: run a component against a table of messages, without Redis.

use std::path::PathBuf;

use serde::Serialize;

use crate::cli::flags::{Flags, Tested};
use crate::cli::{Exit, Failure, Variables, block_on, output};
use crate::workbench::test::{CaseResult, Table};

/// Run a component against a table of messages and expected outcomes, without Redis
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler test handler.wasm cases.toml
  hostler test handler.wasm cases.toml --reuse 100 --json

A table has one [[case]] for each message:
  [[case]]
  name = \"a payment that times out\"
  body = '{\"id\":1}'           or body_base64, or body_file; else empty
  headers = { tenant = \"7\" }  and id, queue, attempt, max_attempts, enqueued_ms
  outcome = \"nack-requeue\"    ack, nack-requeue, drop or fault
  delay = \"200ms\"             of a nack-requeue; a drop has reason = \"...\",
                            a fault has fault = \"trap\"
  log = [\"timed out\"]         each is part of a line that the handler writes
  [[case.published]]          what an ack publishes, in order; published = []
  to = \"invoices\"             is nothing. Nothing is written to Redis.
  json = { order = 1 }        or body, body_base64, body_file; else any body
  headers = { tenant = \"7\" }  among those that the handler sets
  delay = \"1m\"
  [[case.written]]            what an ack sets and deletes; written = []
  key = \"total\"              is nothing
  value = \"6\"               or json, value_base64, deleted = true; and ttl
  [case.reply]                what an ack replies; none = true is nothing
  json = { total = 42.5 }     or value, value_base64
  [case.key-value]            the values of keys before; others have none
  total = \"5\"
  [[case.journal]]            a value that an earlier attempt has remembered
  name = \"account\"
  json = { id = \"a-1\" }       or value, value_base64
  [[case.remembered]]         what is remembered after the attempt; same fields,
  name = \"account\"           remembered = [] is nothing
  [[case.http]]               a request that the handler must send
  request = \"POST https://pay.example.com/charges\"
  sends = '{\"id\":1}'          its body, if it must be this one
  status = 201                of the answer; also headers and body

With continues = true a case is the next attempt at the message of the case
before, and finds what that one has recorded. It has no message.
With a [[case.http]] no request of the table leaves this process. Without one,
requests go to the real servers. `--config FILE.toml` has the grants.

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
    let (settings, providers) = args.flags.collect(variables).sandbox_and_providers()?;
    let table = Table::read(&args.cases)?;
    let (mut passed, mut failed) = (0, 0);
    let mut running = table.load(&args.file, settings, providers)?;
    block_on(async {
        while let Some(result) = running.next().await {
            match result.objection {
                None => passed += 1,
                Some(_) => failed += 1,
            }
            output::either(args.json, &result.json(), |_| text(&result))?;
        }
        Ok(())
    })?;
    output::either(args.json, &Totals { passed, failed }, |_| {
        format!("{passed} passed, {failed} failed")
    })?;
    Ok(if failed == 0 { Exit::Ok } else { Exit::Failed })
}

/// The last line of `--json`.
#[derive(Serialize)]
struct Totals {
    passed: usize,
    failed: usize,
}

fn text(result: &CaseResult<'_>) -> String {
    let name = result.name;
    let Some(objection) = &result.objection else {
        return format!("ok    {name}");
    };
    let mut text = format!("FAIL  {name}: {objection}, got {}", result.outcome);
    let effects = result.effects();
    text.extend(effects.iter().map(|effect| format!("\n      {effect}")));
    text.extend(result.logs.iter().map(|line| format!("\n      | {line}")));
    text
}
