//! `hostler dev`: the inner loop of writing a handler. Builds the handler, runs it beside a private
//! Redis, prints every attempt, and builds and swaps whenever a source changes.
//!
//! A version is replaced only by one that was built and loaded. If a build fails, the error is printed
//! and the last good version runs on.

use std::path::Path;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::cli::flags::{Developed, Flags, checked};
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::{Config, SummaryFormat};
use crate::host::settings::{loop_settings, queue_options};
use crate::host::{self, Connected, Ended, StopSignals, Threads};
use crate::rollout::versions::{Origin, Versions};
use crate::runtime::Driver;
use crate::sandbox::Sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::logging;
use crate::telemetry::metrics::Metrics;

use builder::DevBuilder;
use tracing_handler::TracingHandler;

mod build_command;
mod builder;
mod sources;
mod tracing_handler;

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
    Threads::start()?.run(async |attempts| Box::pin(develop(&config, args.json, attempts)).await)
}

async fn develop(config: &Config, json: bool, attempts: &Handle) -> Result<Exit, Failure> {
    let mut stops = StopSignals::listen()?;
    let mut builder = DevBuilder::new(config);
    let sandbox = tokio::select! {
        sandbox = builder.next() => sandbox,
        _ = stops.next() => return Ok(Exit::Ok),
    };
    let connected = Connected::new(&config.redis, "dev").await?;
    let ended = Box::pin(serve(
        config, json, attempts, &connected, &mut stops, builder, sandbox,
    ))
    .await;
    connected.close().await;
    Ok(ended?.into())
}

async fn serve(
    config: &Config,
    json: bool,
    attempts: &Handle,
    connected: &Connected,
    stops: &mut StopSignals,
    mut builder: DevBuilder<'_>,
    sandbox: Sandbox,
) -> Result<Ended, Failure> {
    let health = Health::default();
    let options = queue_options(config);
    let Some(queue) = host::open_queue(config, connected, options, &health, stops).await? else {
        return Ok(Ended::Done);
    };
    let metrics = Arc::new(Metrics::new(config.queue.name(), config.queue.group()));
    metrics.handler(Arc::clone(sandbox.digest()));
    let (kind, name, digest) = (config.queue.kind(), config.queue.name(), sandbox.digest());
    say(&format!("serving the {kind} `{name}` with {digest}"));
    // `embedded` is another server in another folder; this URL is right everywhere.
    let url = connected.connector.target().url();
    say(&format!(
        "send a message: hostler publish --redis {url} --{kind} {name} --body '...'"
    ));
    let versions = Arc::new(Versions::new(sandbox, Origin::File));
    let driver = Driver::new(
        queue,
        &Arc::new(TracingHandler::new(Arc::clone(&versions), json)),
        // No batching: each message is printed by itself.
        loop_settings(config),
        Arc::clone(&metrics),
        health,
        attempts,
    );
    // The only control message is the drain.
    let (control, commands) = mpsc::channel(1);
    let ended = tokio::select! {
        ended = host::drive(driver, control, commands, stops) => ended,
        never = builder.follow(&versions) => match never {},
    };
    if config.process.summary == SummaryFormat::Json {
        output::json(&metrics.summary())?;
    }
    Ok(ended)
}

fn say(text: &str) {
    output::people(&format!("dev: {text}\n"));
}
