//! `hostler dlq show`: one whole entry.

use bytes::Bytes;
use serde::Serialize;

use super::letter::{Letter, missing};
use super::{log_line, with_letters};
use crate::cli::text::{UNKNOWN, one_line, one_line_of, or_dash, size, time};
use crate::cli::{Common, Exit, Failure, Reach, Variables, output};
use crate::dead_letter::{Entry, groups};
use crate::delivery::death::Death;
use crate::delivery::evidence::Calls;
use crate::queue::journal::Recorded;
use crate::wire::dead_letter::{CALLS, LOG, RECORDING};

/// Show one whole entry: why it died, its history, its headers, its body
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler dlq show --redis redis://localhost orders:dead 1700000000000-0
  hostler dlq show --redis redis://localhost orders:dead 1700000000000-0 \\
    --json | jq -r .body")]
pub(super) struct Args {
    #[command(flatten)]
    letter: Letter,

    #[command(flatten)]
    common: Common<Reach>,
}

/// The shape of `--json`: the entry as in `peek`, and its history.
#[derive(Serialize)]
struct WholeEntry<'a> {
    #[serde(flatten)]
    entry: &'a Entry,
    history: Vec<Record<'a>>,
    journal: Vec<Recorded>,
}

#[derive(Serialize)]
struct Record<'a> {
    queue: &'a str,
    reason: &'a str,
    count: u64,
    first_ms: u64,
    last_ms: u64,
    original_expiration_ms: Option<u64>,
}

impl<'a> From<&'a Death> for Record<'a> {
    fn from(death: &'a Death) -> Self {
        Self {
            queue: &death.queue,
            reason: &death.reason,
            count: death.count,
            first_ms: death.first_ms,
            last_ms: death.last_ms,
            original_expiration_ms: death.original_expiration,
        }
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let (key, id) = args.letter.named(&args.common.flags, &variables)?;
    let found = with_letters(&key, args.common.flags, variables, async |letters| {
        Ok(letters.find(&id).await?)
    })?;
    let Some(entry) = found else {
        return Err(missing(&key, &id));
    };
    let history = entry.history();
    let whole = WholeEntry {
        entry: &entry,
        history: history.records().iter().map(Record::from).collect(),
        journal: entry.records().into_iter().map(Recorded::from).collect(),
    };
    output::either(args.common.json, &whole, |whole| {
        text(&key, &entry, history.records(), &whole.journal)
    })
}

/// The table of the records of a message.
pub(in crate::cli) fn recorded(records: &[Recorded]) -> String {
    let rows = records.iter().map(|record| {
        [
            one_line(&record.name),
            record.status.clone(),
            record.bytes.to_string(),
            time(record.at_ms),
        ]
    });
    output::titled(["recorded call", "status", "bytes", "made"], rows)
}

/// The calls of the last attempt, in the order of their begins.
fn timeline(calls: &Calls) -> Option<String> {
    let rows = calls.calls.iter().map(|call| {
        let failed = call.error.as_deref();
        let status = call.status.map(|status| status.to_string());
        let replayed = call.replayed.then_some("(recorded)");
        let answer = [status.as_deref(), failed, replayed];
        [
            format!("{} ms", call.at_ms),
            one_line(&format!("{} {}", call.name, call.target)),
            one_line(&answer.into_iter().flatten().collect::<Vec<_>>().join(" ")),
            format!("{} ms", call.ms),
            or_dash(call.bytes),
        ]
    });
    let titles = ["at", "call of the last attempt", "answer", "took", "bytes"];
    let table = (!calls.calls.is_empty()).then(|| output::titled(titles, rows))?;
    Some(match calls.before {
        0 => table,
        before => format!("{table}\n({before} calls before these are not kept)"),
    })
}

fn text(key: &str, entry: &Entry, history: &[Death], journal: &[Recorded]) -> String {
    let shown =
        |text: &Option<String>| text.as_deref().map_or_else(|| UNKNOWN.to_owned(), one_line);
    let pair = |(name, value): &(Bytes, Bytes)| [name, value].map(|text| one_line_of(text));
    let facts = [
        ["id", &entry.id],
        ["died", &time(entry.died_ms())],
        ["reason", &shown(&entry.reason)],
        ["detail", &shown(&entry.detail)],
        ["attempts", &or_dash(entry.attempts)],
        ["source", &shown(&entry.source)],
        ["id there", &shown(&entry.source_id)],
        ["group", &shown(&entry.group)],
        ["handler", &shown(&entry.handler)],
        ["cause", &groups::id_of(&entry.signature_in(key))],
    ];
    let recording = entry.headers.find(RECORDING);
    let recording = recording.map(|text| {
        let size = size(text.len() as u64);
        [
            "recording".to_owned(),
            format!("{size}: `hostler dlq debug` runs the attempt again"),
        ]
    });
    let known = facts.iter().filter(|[_, value]| *value != UNKNOWN);
    let known = known.map(|fact| fact.map(str::to_owned)).chain(recording);
    let mut parts = vec![output::table(known)];
    if !history.is_empty() {
        let rows = history.iter().map(|death| {
            [
                one_line(&death.queue),
                one_line(&death.reason),
                death.count.to_string(),
                time(death.first_ms),
                time(death.last_ms),
                or_dash(death.original_expiration.map(time)),
            ]
        });
        let titles = ["died in", "for", "times", "first", "last", "would expire"];
        parts.push(output::titled(titles, rows));
    }
    if !journal.is_empty() {
        parts.push(recorded(journal));
    }
    if !entry.headers.is_empty() {
        // These have lines of their own, below. Calls that cannot be read stay here, as they are.
        let has_calls = !entry.calls().calls.is_empty();
        let has_lines = [(LOG, true), (CALLS, has_calls), (RECORDING, true)];
        let is_below = |name: &[u8]| {
            has_lines
                .iter()
                .any(|(below, is_read)| *is_read && name.eq_ignore_ascii_case(below.as_bytes()))
        };
        let rows = entry.headers.iter().filter(|(name, _)| !is_below(name));
        parts.push(output::table(rows.map(pair)));
    }
    parts.extend(timeline(&entry.calls()));
    let log = entry.log();
    if !log.is_empty() {
        let lines: Vec<String> = log.iter().map(|line| log_line(line)).collect();
        parts.push(format!("log of the last attempt\n{}", lines.join("\n")));
    }
    match (&entry.defect, str::from_utf8(&entry.body)) {
        (Some(defect), _) => {
            parts.push(format!("not a message: {}", one_line(defect)));
            parts.push(output::table(entry.fields.iter().map(pair)));
        }
        // The body is shown whole: its lines stay lines.
        (None, Ok(body)) => {
            let lines: Vec<String> = body.split('\n').map(one_line).collect();
            parts.push(lines.join("\n"));
        }
        (None, Err(_)) => {
            let size = entry.body.len();
            let text = "bytes that are not text: --json has them as body_base64";
            parts.push(format!("({size} {text})"));
        }
    }
    parts.join("\n\n")
}
