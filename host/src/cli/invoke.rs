//! `hostler invoke`: run a handler once, without Redis.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::cli::flags::{Flags, Sandboxed};
use crate::cli::message::{Body, Header, header};
use crate::cli::{Exit, Failure, Variables, block_on, output, text};
use crate::delivery::message::{MESSAGE_ID, Message};
use crate::delivery::outcome::Outcome;
use crate::host::component;
use crate::sandbox::{LogLine, Report};
use crate::workbench::attempt::{ATTEMPTS_FROM_1, Verdict, call};
use crate::workbench::effects;
use crate::workbench::message::headers;

/// Run a handler once with one message, without Redis
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler invoke handler.wasm --body '{\"id\":1,\"amount\":5}'
  hostler invoke handler.wasm --body-file o.json --header tenant=a --attempt 3
  echo hello | hostler invoke handler.wasm --body-file - --json
  hostler invoke handler.wasm --config hostler.toml --body '{\"id\":1}'

With the grants of a configuration it shows what an ack would publish and set.
Redis is not used: no key has a value. HTTP requests are sent.

Exit codes: 0 ack, 10 nack-requeue, 11 drop, 12 fault; 64 usage,
65 bad component")]
pub(super) struct Args {
    /// The component
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    #[command(flatten)]
    body: Body,

    /// A header, `name=value`; may be repeated
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<Header>,

    /// The number of the attempt, as the handler sees it
    #[arg(long, value_name = "N", default_value = "1", value_parser = attempt)]
    attempt: NonZeroU32,

    /// Play this number of attempts in sequence, until one acks or drops: each finds the records of those before it
    #[arg(long, value_name = "N", default_value = "1", value_parser = attempt)]
    attempts: NonZeroU32,

    /// The most attempts of the message, as the handler sees it; 0 = no limit
    #[arg(long, value_name = "N", default_value = "0")]
    max_attempts: u32,

    /// The message's id; a header x-message-id wins
    #[arg(long, value_name = "ID", default_value = "0-1")]
    id: String,

    /// The name of the queue, as the handler sees it
    #[arg(long, value_name = "NAME", default_value = "invoke")]
    queue: String,

    /// Print one line of JSON for each attempt
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Sandboxed>,
}

/// Parse the number of an attempt.
fn attempt(text: &str) -> Result<NonZeroU32, String> {
    match text {
        "0" => Err(ATTEMPTS_FROM_1.to_owned()),
        text => text::parse(text),
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let body = args.body.read()?.unwrap_or_default();
    let mut settings = args.flags.collect(variables).sandbox()?;
    settings.concurrency = 1;
    let sandbox = component::load(&args.file, &settings)?;
    let keys = settings.grants.key_value.as_ref();
    let prefix = keys.map_or("", |keys| &*keys.prefix);
    let headers = headers(args.headers);
    let id = headers.find_str(MESSAGE_ID).unwrap_or(&args.id);
    let message = Message {
        id: id.into(),
        queue: args.queue.into(),
        body,
        headers,
        enqueued_ms: 0,
    };
    let played = block_on(async {
        let (slot, journal) = (&mut sandbox.slot(), Arc::default());
        let first = args.attempt.get();
        let mut played = Vec::new();
        let mut number = first;
        for _ in 0..args.attempts.get() {
            let attempts = (number, args.max_attempts);
            let (report, lines) = call(&sandbox, slot, &message, attempts, &journal).await;
            let is_last = matches!(report.outcome, Outcome::Ack | Outcome::Drop(_));
            // A held start is another start of the same attempt.
            let is_held = matches!(report.hold, Some(Ok(_)));
            number = number.saturating_add(u32::from(!is_held));
            played.push((report, lines));
            if is_last {
                break;
            }
        }
        Ok(played)
    })?;
    let mut exit = Exit::Ok;
    for (report, lines) in &played {
        exit = show(report, lines, prefix, args.json)?;
    }
    Ok(exit)
}

/// Print what became of an attempt.
fn show(report: &Report, lines: &[LogLine], prefix: &str, as_json: bool) -> Result<Exit, Failure> {
    let verdict = Verdict::of(report);
    let invoked = Invoked {
        verdict,
        duration_us: text::micros(report.duration),
        memory_bytes: report.memory_bytes,
        effects: effects::Effects::of(report, prefix),
        logs: lines.iter().map(|line| line.text.as_str()).collect(),
    };
    output::either(as_json, &invoked, |_| {
        shown(&verdict, report, prefix, lines)
    })?;
    Ok(match &report.outcome {
        Outcome::Ack => Exit::Ok,
        Outcome::NackRequeue(_) => Exit::NackRequeue,
        Outcome::Drop(_) => Exit::Drop,
        Outcome::Fault(_) => Exit::Fault,
    })
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Invoked<'a> {
    #[serde(flatten)]
    verdict: Verdict<'a>,
    duration_us: u64,
    memory_bytes: usize,
    #[serde(flatten)]
    effects: effects::Effects<'a>,
    logs: Vec<&'a str>,
}

fn shown(verdict: &Verdict<'_>, report: &Report, prefix: &str, lines: &[LogLine]) -> String {
    let facts = [
        ["outcome".to_owned(), verdict.to_string()],
        ["time".to_owned(), format!("{:.1?}", report.duration)],
        ["memory".to_owned(), text::size(report.memory_bytes as u64)],
    ];
    let mut text = output::table(facts);
    let effects = effects::lines(report, prefix);
    text.extend(effects.iter().map(|effect| format!("\n{effect}")));
    let line = |line: &LogLine| format!("\n{} | {}", line.stream.label(), line.text);
    text.extend(lines.iter().map(line));
    if report.log_bytes_dropped > 0 {
        let dropped = report.log_bytes_dropped;
        text.push_str(&format!("\n({dropped} more bytes were dropped)"));
    }
    text
}
