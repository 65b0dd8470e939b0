//! `hostler dev`: the inner loop of writing a handler.

use std::path::Path;
use std::sync::Arc;

use crate::cli::flags::{Developed, Flags, checked};
use crate::cli::text::one_line;
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::SummaryFormat;
use crate::host::Threads;
use crate::telemetry::logging;
use crate::workbench::dev::{Attempt, Event, Show, develop};

/// The configuration of a project.
const CONFIG: &str = "hostler.toml";

/// Build a handler, run it beside a private Redis, and swap it whenever a source changes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In a project, no flag is needed: the configuration is hostler.toml, and the
build command is its `dev.build`. Redis is a private server, also if the file
names another one; only `--redis` on the command line changes that.

Every attempt is printed on stdout: the message, the verdict, the log of the
handler. If a build fails, its output is printed and the last good version runs
on. A handler of batches gets batches of one message.

Examples:
  hostler new --lang go parcels && cd parcels && hostler dev
  hostler dev --json | jq .outcome

It prints the command that sends a message to it, from any folder. In the folder
of the project, this one does the same:
  hostler publish --redis embedded --stream orders \\
    --body '{\"id\":1,\"amount\":5}'")]
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
    let flags = args
        .flags
        .or_file(CONFIG, &variables)
        // Never a queue in production by accident.
        .or("redis", "embedded")
        // Every attempt is printed anyway.
        .or("log.level", "warn")
        .or("log.format", "pretty");
    let loaded = flags.collect(variables).config()?;
    let process = &loaded.value.process;
    logging::start(process.log_format, &process.log_level, None);
    let config = checked(Ok(loaded))?;
    // On the heap: the future of this is large.
    let developed = Threads::start()?
        .run(async |attempts| Box::pin(develop(&config, attempts, showing(args.json))).await)?;
    let Some((ended, summary)) = developed else {
        return Ok(Exit::Ok);
    };
    if config.process.summary == SummaryFormat::Json {
        output::json(&summary)?;
    }
    Ok(ended.into())
}

fn showing(json: bool) -> Show {
    Arc::new(move |event| match event {
        Event::Note(text) => output::people(&format!("dev: {text}\n")),
        Event::Output(text) => output::people(text),
        Event::Failed(error) => output::failure(&error.into()),
        Event::Attempt(attempt) => {
            // stdout cannot be written: the handler runs on.
            if let Err(failure) = output::either(json, attempt, text) {
                tracing::warn!("{}", failure.what);
            }
        }
    })
}

fn text(attempt: &Attempt<'_>) -> String {
    let mut text = format!(
        "{}  attempt {}  {}\n  {}  ({:.1?})",
        one_line(attempt.id),
        attempt.attempt,
        attempt.body,
        one_line(&attempt.verdict.to_string()),
        attempt.duration
    );
    text.extend(attempt.logs.iter().map(|line| format!("\n  | {line}")));
    text
}
