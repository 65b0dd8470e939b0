//! `hostler invoke`: run a handler once, without Redis.

use std::fmt;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Serialize, Serializer};

use crate::cli::flags::{Flags, Sandboxed};
use crate::cli::message::{Body, Header, header, headers};
use crate::cli::{Exit, Failure, Variables, block_on, effects, output, text};
use crate::config::Value;
use crate::delivery::message::{MESSAGE_ID, Message};
use crate::delivery::outcome::Outcome;
use crate::delivery::trace::Traced;
use crate::host::component;
use crate::sandbox::{Call, Capture, LogLine, LogSink, Report, Sandbox, Slot};

/// Why there is no attempt 0.
pub(super) const ATTEMPTS_FROM_1: &str = "attempts count from 1";

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

    /// The most attempts of the message, as the handler sees it; 0 = no limit
    #[arg(long, value_name = "N", default_value = "0")]
    max_attempts: u32,

    /// The message's id; a header x-message-id wins
    #[arg(long, value_name = "ID", default_value = "0-1")]
    id: String,

    /// The name of the queue, as the handler sees it
    #[arg(long, value_name = "NAME", default_value = "invoke")]
    queue: String,

    /// Print one line of JSON
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
    let attempts = (args.attempt.get(), args.max_attempts);
    let (report, lines) = block_on(async {
        let slot = &mut sandbox.slot();
        Ok(call(&sandbox, slot, &message, attempts).await)
    })?;
    let verdict = Verdict::new(&report.outcome);
    let invoked = Invoked {
        verdict,
        duration_us: text::micros(report.duration),
        memory_bytes: report.memory_bytes,
        effects: effects::Effects::of(&report, prefix),
        logs: lines.iter().map(|line| line.text.as_str()).collect(),
    };
    output::either(args.json, &invoked, |_| {
        shown(&verdict, &report, prefix, &lines)
    })?;
    Ok(match &report.outcome {
        Outcome::Ack => Exit::Ok,
        Outcome::NackRequeue(_) => Exit::NackRequeue,
        Outcome::Drop(_) => Exit::Drop,
        Outcome::Fault(_) => Exit::Fault,
    })
}

/// Call the handler with a message: with the number of the attempt, and the most attempts. Also what it has logged.
pub(super) async fn call(
    sandbox: &Sandbox,
    slot: &mut Slot,
    message: &Message,
    (attempt, max_attempts): (u32, u32),
) -> (Report, Vec<LogLine>) {
    let capture = Capture::default();
    let call = Call {
        message,
        attempt,
        max_attempts,
        cancelled: &Arc::default(),
        logs: &LogSink::Capture(capture.clone()),
        trace: Traced::default(),
        began: std::time::Instant::now(),
    };
    (sandbox.call(slot, call).await, capture.take())
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

/// An outcome in words. As JSON, the delay is in milliseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub(super) struct Verdict<'a> {
    /// `ack`, `nack-requeue`, `drop` or `fault`.
    pub(super) outcome: &'static str,
    /// The delay that the handler asks for.
    #[serde(rename = "delay_ms", serialize_with = "as_millis")]
    pub(super) delay: Option<Duration>,
    /// The handler's reason, or the detail of the fault.
    pub(super) reason: Option<&'a str>,
    /// The kind of fault.
    pub(super) fault: Option<&'a str>,
}

fn as_millis<S: Serializer>(delay: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
    delay.map(text::millis).serialize(serializer)
}

impl<'a> Verdict<'a> {
    pub(super) fn new(outcome: &'a Outcome) -> Self {
        let plain = |outcome| Self {
            outcome,
            ..Self::default()
        };
        match outcome {
            Outcome::Ack => plain("ack"),
            Outcome::NackRequeue(delay) => Self {
                delay: *delay,
                ..plain("nack-requeue")
            },
            Outcome::Drop(reason) => Self {
                reason: reason.as_deref(),
                ..plain("drop")
            },
            Outcome::Fault(fault) => Self {
                reason: Some(&fault.detail),
                fault: Some(fault.kind.label()),
                ..plain("fault")
            },
        }
    }
}

impl fmt::Display for Verdict<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.outcome)?;
        if let Some(fault) = self.fault {
            write!(f, " ({fault})")?;
        }
        if let Some(delay) = self.delay {
            write!(f, " after {}", delay.show())?;
        }
        if let Some(reason) = self.reason {
            write!(f, ": {reason}")?;
        }
        Ok(())
    }
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
