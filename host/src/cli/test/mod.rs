//! `hostler test`: run a component against a table of messages, without Redis.

use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::cli::flags::{Flags, Tested};
use crate::cli::invoke::{Verdict, call};
use crate::cli::{Exit, Failure, Variables, block_on, effects, output};
use crate::host::component;
use crate::sandbox::{Sandbox, Slot};

mod answers;
mod cases;
mod content;
mod published;
mod written;

use answers::Answers;
use cases::Case;
pub(super) use cases::table_schema as schema;

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
  [case.key-value]            the values of keys before; others have none
  total = \"5\"
  [[case.http]]               a request that the handler must send
  request = \"POST https://pay.example.com/charges\"
  sends = '{\"id\":1}'          its body, if it must be this one
  status = 201                of the answer; also headers and body

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
    let (mut settings, mut providers) = args.flags.collect(variables).sandbox_and_providers()?;
    settings.concurrency = 1;
    let cases = cases::read(&args.cases)?;
    let answers = Answers::default();
    if let Some(providers) = &mut providers
        && cases.iter().any(|case| !case.http.is_empty())
    {
        *providers = providers.answered_by(answers.answering());
        settings.grants.provided = providers.provided();
    }
    let keys = settings.grants.key_value.as_ref();
    let prefix = keys.map(|keys| Arc::clone(&keys.prefix));
    if let Some(case) = cases.iter().find(|case| !case.key_value.is_empty())
        && prefix.is_none()
    {
        let name = &case.name;
        let what = format!("the case `{name}` has `key-value`, which is not granted");
        let hint = "write `[grant.key-value]` in a file, and name it with `--config`";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    let prefix = prefix.unwrap_or_default();
    let sandbox = component::load(&args.file, &settings)?;
    // One slot: with `--reuse`, a case sees the state that earlier cases have left.
    let mut slot = sandbox.slot();
    let passed = block_on(async {
        let mut passed = 0;
        for case in &cases {
            answers.begin(&case.http);
            if let Some(providers) = &providers {
                let values = case.key_value.iter();
                providers
                    .try_with(values.map(|(key, value)| (format!("{prefix}{key}"), value.clone())));
            }
            let good = try_case(&sandbox, &mut slot, (case, &prefix), &answers, args.json).await?;
            passed += usize::from(good);
        }
        Ok(passed)
    })?;
    let failed = cases.len() - passed;
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

/// The other lines.
#[derive(Serialize)]
struct CaseResult<'a> {
    name: &'a str,
    passed: bool,
    /// What is wrong.
    objection: Option<&'a str>,
    /// The outcome of the handler.
    outcome: &'a str,
    #[serde(flatten)]
    effects: effects::Effects<'a>,
    logs: &'a [String],
}

async fn try_case(
    sandbox: &Sandbox,
    slot: &mut Slot,
    (case, prefix): (&Case, &str),
    answers: &Answers,
    json: bool,
) -> Result<bool, Failure> {
    let attempts = (case.attempt, case.max_attempts);
    let (report, lines) = call(sandbox, slot, &case.message, attempts).await;
    let lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    let outcome = Verdict::new(&report.outcome).to_string();
    let objection = case.objection(&report, prefix, &lines);
    let objection = objection.or_else(|| answers.objection());
    let passed = objection.is_none();
    let result = CaseResult {
        name: &case.name,
        passed,
        objection: objection.as_deref(),
        outcome: &outcome,
        effects: effects::Effects::of(&report, prefix),
        logs: &lines,
    };
    output::either(json, &result, |_| match &objection {
        None => format!("ok    {}", case.name),
        Some(objection) => {
            let name = &case.name;
            let mut text = format!("FAIL  {name}: {objection}, got {outcome}");
            let effects = effects::lines(&report, prefix);
            text.extend(effects.iter().map(|effect| format!("\n      {effect}")));
            text.extend(lines.iter().map(|line| format!("\n      | {line}")));
            text
        }
    })?;
    Ok(passed)
}
