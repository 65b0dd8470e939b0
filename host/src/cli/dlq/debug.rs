//! `hostler dlq debug`: run the last attempt of a dead letter again, offline.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::letter::{Letter, missing};
use crate::cli::flags::{Deploying, Flags};
use crate::cli::session::{Session, ask_at, block_on};
use crate::cli::text::{cut, one_line};
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::Collected;
use crate::dead_letter::{DeadLetters, Entry};
use crate::delivery::recording::{Ended, Exchange, Watch};
use crate::host::component;
use crate::rollout::store::{Fetched, Store};
use crate::sandbox::Settings;
use crate::wire::line::{self, Line};
use crate::wire::stream;
use crate::workbench::again::{Again, Recorded, Verdict};
use crate::workbench::message::{BODY_MAX, read};

/// How much of an answer is shown.
const ANSWER_MAX: usize = 60;
/// The time of an attempt that a person steps through.
const STEPPING: Duration = Duration::from_secs(24 * 60 * 60);

/// Run the last attempt of a dead letter again, offline, with its recorded answers
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The dead letter needs a recording: `recording = \"full\"` in `[dead_letter]`.
Nothing is asked outside: every answer comes from the recording, in its order.
Limits and grants are those of the file of the queue (--config).

Without --handler, the component of the attempt runs, as it is stored in Redis:
does the same fault come again? With another component: does it ack?
\"cannot tell\" = it asked for something that is not recorded.

Examples:
  hostler dlq debug --redis redis://localhost orders:dead 1700000000000-0
  hostler dlq debug --redis redis://localhost orders:dead 1700000000000-0 \\
    --handler fixed.wasm
  hostler dlq export --redis redis://localhost orders:dead > dead.jsonl
  hostler dlq debug orders:dead 1700000000000-0 --from dead.jsonl \\
    --handler orders.wasm

Exit codes: 0 the same fault again, or the other component acks; 1 another
outcome, or it does not ack; 2 cannot tell; 64 usage, 65 bad component")]
pub(super) struct Args {
    #[command(flatten)]
    source: Source,

    /// Read the entry from this file of `hostler dlq export`, without Redis: KEY is any name
    #[arg(long, value_name = "FILE", requires = "handler")]
    from: Option<PathBuf>,

    /// The component: that of the attempt, or another one
    #[arg(long, value_name = "FILE.wasm")]
    handler: Option<PathBuf>,

    /// Stop at each call of the host until a line comes from stdin
    #[arg(long)]
    step: bool,
}

/// A dead letter, and how its attempt runs again.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Source {
    #[command(flatten)]
    pub(super) letter: Letter,

    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) flags: Flags<Deploying>,
}

/// The shape of `--json`.
#[derive(Serialize)]
struct Shown<'a> {
    verdict: &'static str,
    why: &'a [String],
    recorded: Outcome<'a>,
    now: Outcome<'a>,
    calls: &'a [Exchange],
    log: Vec<&'a str>,
    backtrace: &'a [String],
}

#[derive(Serialize)]
struct Outcome<'a> {
    handler: &'a str,
    #[serde(flatten)]
    ended: &'a Ended,
}

/// A component that runs the attempt again.
pub(super) struct Component {
    pub(super) path: PathBuf,
    pub(super) bytes: Vec<u8>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let (entry, component, settings) = match &args.from {
        Some(file) => {
            let settings = args.source.flags.clone().collect(variables).sandbox()?;
            let entry = exported(file, args.source.letter.id())?;
            let path = args.handler.clone().unwrap_or_default();
            (entry, from_file(path, &settings)?, settings)
        }
        None => of_redis(&args, variables)?,
    };
    let recorded = Recorded::of(&entry)?;
    let mut patient = settings.clone();
    if args.step {
        patient.limits.wall = STEPPING;
    }
    let watch = args.step.then(stepping);
    let again = block_on(async {
        let mut again = again(&recorded, &component, &patient, watch).await?;
        if again.ended.fault.is_some() && hostler_components::has_lines(&component.bytes) {
            add_lines(&mut again, &recorded, &component, &settings).await;
        }
        Ok(again)
    })?;
    let digest = component.digest();
    let shown = Shown {
        verdict: again.verdict.label(),
        why: &again.why,
        recorded: Outcome {
            handler: recorded.handler(),
            ended: recorded.ended(),
        },
        now: Outcome {
            handler: &digest,
            ended: &again.ended,
        },
        calls: recorded.calls(),
        log: again.lines.iter().map(|line| line.text.as_str()).collect(),
        backtrace: &again.backtrace,
    };
    output::either(args.source.json, &shown, |_| text(&recorded, &again))?;
    Ok(exit(again.verdict))
}

/// The exit code of a verdict.
fn exit(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Same | Verdict::Passes => Exit::Ok,
        Verdict::Differs | Verdict::Fails => Exit::Failed,
        Verdict::CannotTell => Exit::CannotTell,
    }
}

impl Component {
    fn digest(&self) -> String {
        crate::rollout::verify::digest(&self.bytes).to_string()
    }
}

/// Run it again. Blocks while the component is compiled.
pub(super) async fn again(
    recorded: &Recorded,
    component: &Component,
    settings: &Settings,
    watch: Option<Watch>,
) -> Result<Again, Failure> {
    let settings = Recorded::offline(settings);
    let sandbox = component::load_bytes(&component.path, &component.bytes, &settings)?;
    Ok(recorded.run(&sandbox, watch).await)
}

/// Name lines of source in the backtrace. The verdict is that of the code that hosts run; this run has other code.
async fn add_lines(
    again: &mut Again,
    recorded: &Recorded,
    component: &Component,
    settings: &Settings,
) {
    let settings = Recorded::with_lines(settings);
    // Without lines, the functions stay.
    let Ok(sandbox) = component::load_bytes(&component.path, &component.bytes, &settings) else {
        return;
    };
    let placed = recorded.run(&sandbox, None).await;
    if placed.ended.fault == again.ended.fault && !placed.backtrace.is_empty() {
        again.backtrace = placed.backtrace;
    }
}

fn from_file(path: PathBuf, settings: &Settings) -> Result<Component, Failure> {
    let bytes = component::read(&path, settings.limits.component)?;
    Ok(Component { path, bytes })
}

/// The entry, and the component: that of the flag, or the stored one that ran.
fn of_redis(args: &Args, variables: Variables) -> Result<(Entry, Component, Settings), Failure> {
    let Source { letter, flags, .. } = args.source.clone();
    let (key, id) = letter.named(&flags, &variables)?;
    let (redis, settings) = flags.load(variables, Collected::redis_and_sandbox)?;
    let (entry, stored) = ask_at(&redis, "dlq", async |session| {
        let entry = find(session, &key, &id).await?;
        let stored = match &args.handler {
            Some(_) => None,
            None => Some(stored(session, &entry, &settings).await?),
        };
        Ok((entry, stored))
    })?;
    let component = match (stored, &args.handler) {
        (Some(component), _) => component,
        (None, path) => from_file(path.clone().unwrap_or_default(), &settings)?,
    };
    Ok((entry, component, settings))
}

/// The entry with this id.
pub(super) async fn find(session: &Session, key: &str, id: &str) -> Result<Entry, Failure> {
    let found = DeadLetters::new(&session.connector, key).find(id).await?;
    found.ok_or_else(|| missing(key, id))
}

/// The component of the attempt, if it is stored.
async fn stored(
    session: &Session,
    entry: &Entry,
    settings: &Settings,
) -> Result<Component, Failure> {
    let digest = entry.handler.as_deref().unwrap_or_default();
    let missing = |why: String| {
        let what = format!("its handler {digest} {why}");
        Failure::new(Exit::Usage, what).hint("name the component with `--handler`")
    };
    let queue = entry.source.as_deref().unwrap_or_default();
    let store = Store::new(session.link("versions"), queue);
    let versions = session.retry(async || store.report().await).await?.stored;
    let version = versions.iter().find(|stored| stored.digest == digest);
    let version = version.ok_or_else(|| missing(format!("is not stored for `{queue}`")))?;
    let max = settings.limits.component;
    match session
        .retry(async || store.fetch(version, max).await)
        .await?
    {
        Fetched::Component(bytes) => Ok(Component {
            path: format!("version {}", version.number).into(),
            bytes,
        }),
        Fetched::TooLarge(why) | Fetched::Damaged(why) => Err(missing(why)),
    }
}

/// The entry with this id in a file of `dlq export`.
fn exported(file: &Path, id: &str) -> Result<Entry, Failure> {
    #[derive(serde::Deserialize)]
    struct Named {
        id: Option<String>,
    }
    let bytes = read(file, BODY_MAX)?;
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let is_it = |line: &&[u8]| {
        let named: Option<Named> = serde_json::from_slice(line).ok();
        named.and_then(|named| named.id).as_deref() == Some(id)
    };
    let what = || format!("{} has no entry {id}", file.display());
    let found = lines.find(is_it);
    let found = found.ok_or_else(|| Failure::new(Exit::Usage, what()))?;
    let options = stream::Options::default();
    let read = line::read(found).map_err(|error| Failure::new(Exit::Usage, error))?;
    let fields = match read {
        Line::Message(body, headers) => stream::encode(body, &headers, &options.body_field),
        Line::Fields(fields) => fields,
    };
    Ok(Entry::new(id.to_owned(), fields, &options))
}

/// Shows each call, and waits for a line.
fn stepping() -> Watch {
    Box::new(|number, ask, recorded| {
        let answer = recorded.map_or_else(|| "not recorded".to_owned(), answer);
        output::people(&format!("call {number}: {} -> {answer}\n", ask.shown));
        // The end of stdin goes on.
        std::io::stdin().read_line(&mut String::new()).ok();
    })
}

/// An answer in a few words.
fn answer(exchange: &Exchange) -> String {
    let answer = &exchange.answer;
    let status = answer.pointer("/Ok/status");
    match (answer, status, answer.get("Err")) {
        (Value::Null, ..) => "no answer".to_owned(),
        (_, Some(status), _) => {
            let body = answer.pointer("/Ok/body").and_then(Value::as_str);
            cut(
                &format!("{status} {}", body.unwrap_or_default()),
                ANSWER_MAX,
            )
        }
        (_, None, Some(error)) => cut(&format!("error: {error}"), ANSWER_MAX),
        (answer, None, None) => {
            let value = answer.get("Ok").unwrap_or(answer);
            cut(&value.to_string(), ANSWER_MAX)
        }
    }
}

fn text(recorded: &Recorded, again: &Again) -> String {
    let facts = [
        ["verdict".to_owned(), verdict(again.verdict).to_owned()],
        ["recorded".to_owned(), recorded.ended().to_string()],
        ["now".to_owned(), again.ended.to_string()],
    ];
    let mut parts = vec![output::table(facts)];
    if !again.why.is_empty() {
        let lines = again.why.iter().map(|line| format!("- {}", one_line(line)));
        parts.push(lines.collect::<Vec<_>>().join("\n"));
    }
    if !recorded.calls().is_empty() {
        let rows = recorded.calls().iter().map(|call| {
            [
                format!("{} ms", call.at_ms),
                one_line(&call.ask.shown),
                one_line(&answer(call)),
                format!("{} ms", call.ms),
            ]
        });
        parts.push(output::titled(
            ["at", "recorded call", "answer", "took"],
            rows,
        ));
    }
    let lines = again.lines.iter();
    let mut lines: Vec<String> = lines
        .map(|line| format!("{} | {}", line.stream.label(), one_line(&line.text)))
        .collect();
    lines.extend(again.backtrace.iter().map(|line| one_line(line)));
    if !lines.is_empty() {
        parts.push(lines.join("\n"));
    }
    parts.join("\n\n")
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Same => "the same again",
        Verdict::Differs => "it differs",
        other => other.label(),
    }
}
