//! `hostler dev`: the inner loop of writing a handler.

use std::path::Path;
use std::sync::Arc;

use crate::cli::flags::{CONFIG, Developed, Flags, checked};
use crate::cli::text::one_line;
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::{EMBEDDED_DIR, Server, SummaryFormat};
use crate::host::{Beginning, Threads};
use crate::telemetry::logging;
use crate::workbench::dev::{Attempt, Event, Show, develop};

/// Swaps are shown. A fault is not, because every attempt is printed.
const LOG_LEVEL: &str =
    "warn,hostler::rollout::swap=info,hostler::runtime::reporter[{detail}]=error";

/// Build a handler, run it beside a private Redis, and swap it whenever a source changes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In a project, no flag is needed: the configuration is hostler.toml, and the
build command is its `dev.build`. Redis is a private server, also if the file
names another one; only `--redis` on the command line changes that.

It is a host like any other: other commands see it, pause it, set its policies
and deploy to it. In the folder of the project they reach its private server by
themselves. The dashboard is served, unless `ui` is false.

Every attempt is printed on stdout: the message, the verdict, the log of the
handler; of faults with one cause, only the first as a whole. If a build fails,
its output is printed and the last version runs on. A handler of batches gets
batches of one message.

Examples:
  hostler new --lang go parcels && cd parcels && hostler dev
  hostler dev --json | jq .outcome

It prints the command that sends a message to it, from any folder. In the folder
of the project, this one does the same:
  hostler publish --body '{\"id\":1,\"amount\":5}'")]
pub(super) struct Args {
    /// Print one line of JSON for each attempt
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Developed>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    if !args.flags.names_file(&variables) && !Path::new(CONFIG).exists() {
        let what = format!("there is no {CONFIG} in this folder");
        let hint = "run it in a project; `hostler new --lang LANGUAGE NAME` makes one";
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    let threads = Threads::start()?;
    let stops = threads.listen()?;
    // Never a queue in production by accident.
    let is_private = args.flags.flag("redis").is_none();
    let sources = args
        .flags
        .or_file(CONFIG, &variables)
        .or("redis", "embedded")
        .or("log.level", LOG_LEVEL)
        .or("log.format", "pretty")
        .or_unset("accept_deploys", "true", &variables)
        .or_unset("ui", "true", &variables)
        .or_unset("admin", "127.0.0.1:0", &variables)
        .sources(variables);
    let loaded = sources.collect().config()?;
    let process = &loaded.value.process;
    logging::start(process.log_format, &process.log_level, None);
    let mut config = checked(Ok(loaded))?;
    if is_private {
        // Commands in that folder find it.
        config.redis.server = Server::Embedded(config.development.folder.join(EMBEDDED_DIR));
    }
    let summary = config.process.summary;
    let show = showing(args.json);
    // On the heap: the future of this is large.
    let served = threads
        .run(async |attempts| Box::pin(develop(config, sources, stops, attempts, show)).await)?;
    if let (SummaryFormat::Json, Some(counted)) = (summary, &served.summary) {
        output::json(counted)?;
    }
    Ok(served.ended.into())
}

fn showing(json: bool) -> Show {
    Arc::new(move |event| match event {
        Event::Note(text) => output::people(&format!("dev: {text}\n")),
        Event::Output(text) => output::people(text),
        Event::Failed(error) => output::failure(&error.into()),
        Event::Serving(host) => output::people(&serving(host)),
        Event::Attempt(attempt) => {
            // stdout cannot be written: the handler runs on.
            if let Err(failure) = output::either(json, attempt, text) {
                tracing::warn!("{}", failure.what);
            }
        }
    })
}

fn serving(host: &Beginning<'_>) -> String {
    let (kind, name) = (host.config.queue.kind(), host.config.queue.name());
    let mut text = format!("dev: serving the {kind} `{name}` with {}\n", host.digest);
    // `embedded` is another server in another folder; this URL is right everywhere.
    text.push_str(&format!(
        "dev: send a message: hostler publish --redis {} --{kind} {name} --body '...'\n",
        host.redis
    ));
    if let Some(address) = host.admin.filter(|_| host.config.process.ui.is_some()) {
        text.push_str(&format!("dev: dashboard: http://{address}/ui\n"));
    }
    text
}

fn text(attempt: &Attempt<'_>) -> String {
    let head = format!(
        "{}  attempt {}  {}",
        one_line(attempt.id),
        attempt.attempt,
        attempt.body
    );
    if attempt.same_cause > 1 {
        let (outcome, times) = (attempt.verdict.outcome, attempt.same_cause);
        return format!("{head}  {outcome}, {times} times for this cause");
    }
    let verdict = one_line(&attempt.verdict.to_string());
    let mut text = format!("{head}\n  {verdict}  ({:.1?})", attempt.duration);
    text.extend(attempt.logs.iter().map(|line| format!("\n  | {line}")));
    text
}
