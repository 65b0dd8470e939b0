//! `hostler dev`: the inner loop of whoever writes a handler. It builds, runs the handler beside a
//! private Redis, watches the sources, builds again and swaps; and tells every attempt.
//!
//! The version that runs is replaced only by one that was built and loaded; whatever fails is told,
//! and the last good one runs on.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::cli::connect::Connected;
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Developed, Flags};
use crate::cli::run::{self, Stops};
use crate::cli::threads::Threads;
use crate::cli::{Variables, check, output};
use crate::config::{Config, SummaryFormat};
use crate::rollout::versions::{Origin, Version, Versions};
use crate::runtime::Driver;
use crate::sandbox::Sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::logging;
use crate::telemetry::metrics::Metrics;

use build::Built;
use sources::{Snapshot, Sources};
use told::Told;

mod build;
mod sources;
mod told;

/// The configuration of a project.
const CONFIG: &str = "hostler.toml";
/// Between two looks at the sources.
const EVERY: Duration = Duration::from_millis(200);

/// After so many builds that were due to the one before only, what they write is no source.
const ROUNDS: u32 = 4;

/// Build a handler, run it beside a private Redis, and swap it whenever a source changes
#[derive(Debug, clap::Args)]
#[command(after_help = "\
In a project, without any flag: the configuration is hostler.toml, the build command its `dev.build`,
and Redis is a private server whatever the file says, unless `--redis` is given here.

Every attempt is told on stdout: the message, the verdict, what the handler logged. A build that
fails is told, and the last good version runs on. A handler of batches gets batches of one.

Examples:
  hostler new --lang go parcels && cd parcels && hostler dev
  hostler dev --json | jq .outcome
  hostler publish --redis embedded --stream orders --body '{\"id\":1,\"amount\":5}'   in another terminal")]
pub(super) struct Args {
    /// Print one line of JSON for each attempt
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    flags: Flags<Developed>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let flags = args
        .flags
        .or_file(CONFIG, &variables)
        // Never by accident on a queue that others live by.
        .or("redis", "embedded")
        // Every attempt is told already.
        .or("log.level", "warn")
        .or("log.format", "pretty");
    let loaded = flags.collect(variables).config()?;
    let config = loaded.value;
    logging::start(config.process.log_format, &config.process.log_level);
    for problem in &loaded.warnings {
        output::warning(&problem.to_string(), problem.hint.as_deref());
    }
    Threads::start()?.run(async |attempts| develop(&config, args.json, attempts).await)
}

async fn develop(
    config: &Config,
    json: bool,
    attempts: &tokio::runtime::Handle,
) -> Result<Exit, Failure> {
    let options = run::queue_options(config);
    let mut stops = Stops::listen()?;
    let mut workshop = Workshop::new(config);
    let sandbox = tokio::select! {
        sandbox = workshop.next() => sandbox,
        _ = stops.next() => return Ok(Exit::Ok),
    };
    let connected = Connected::new(&config.redis, "dev").await?;
    let health = Health::default();
    let opened = tokio::select! {
        opened = run::open(config, &connected, options, &health) => opened,
        _ = stops.next() => {
            connected.close().await;
            return Ok(Exit::Ok);
        }
    };
    let queue = match opened {
        Ok(queue) => queue,
        Err(failure) => {
            connected.close().await;
            return Err(failure);
        }
    };
    let metrics = Arc::new(Metrics::new(config.queue.name(), config.queue.group()));
    metrics.handler(Arc::clone(sandbox.digest()));
    serving(config, sandbox.digest());
    let versions = Arc::new(Versions::new(sandbox, Origin::File));
    let driver = Driver::new(
        queue,
        &Arc::new(Told::new(Arc::clone(&versions), json)),
        // Each message is told for itself: a handler of batches gets batches of one.
        run::settings(config),
        Arc::clone(&metrics),
        health,
        attempts,
    );
    // Nothing but its end is ever told to it.
    let (control, commands) = mpsc::channel(1);
    let exit = tokio::select! {
        exit = run::drive(driver, control, commands, &mut stops) => exit,
        never = workshop.keep(&versions) => match never {},
    };
    if config.process.summary == SummaryFormat::Json {
        output::json(&metrics.summary())?;
    }
    connected.close().await;
    Ok(exit)
}

fn serving(config: &Config, digest: &str) {
    let (kind, name) = (config.queue.kind(), config.queue.name());
    output::people(&format!(
        "dev: serving the {kind} `{name}` with {digest}\n\
         dev: send it something: hostler publish --redis embedded --{kind} {name} --body '...'\n"
    ));
}

fn say(text: &str) {
    output::people(&format!("dev: {text}\n"));
}

/// Where versions come from: the sources, the build, the handler's file.
struct Workshop<'a> {
    config: &'a Config,
    sources: Sources,
    /// The sources at the beginning of the last build.
    seen: Snapshot,
    /// What changed during the last build.
    during: BTreeSet<PathBuf>,
    /// How many builds in a row were due to what changed during the one before, and nothing else.
    rounds: u32,
    /// What was made of the handler's file last.
    known: Option<Arc<str>>,
}

impl<'a> Workshop<'a> {
    fn new(config: &'a Config) -> Self {
        let file = &config.handler.file;
        let development = &config.development;
        let sources = match &development.build {
            Some(_) => Sources::new(&development.watch, file),
            // Its folder is not ours: only the file counts.
            None => Sources::file(file),
        };
        Self {
            config,
            sources,
            seen: Snapshot::default(),
            during: BTreeSet::new(),
            rounds: 0,
            known: None,
        }
    }

    /// Build and load until there is a version other than the last one.
    async fn next(&mut self) -> Sandbox {
        loop {
            if let Some(sandbox) = self.make().await {
                return sandbox;
            }
            self.changed().await;
        }
    }

    /// Keep what runs up with the sources.
    async fn keep(&mut self, versions: &Versions) -> Infallible {
        loop {
            self.changed().await;
            if let Some(sandbox) = self.make().await {
                let digest = Arc::clone(sandbox.digest());
                let origin = Origin::File;
                versions.switch(Version { sandbox, origin });
                say(&format!("swapped, {digest} runs from now on"));
            } else {
                say(&format!("{} runs on", versions.digest()));
            }
        }
    }

    /// Wait until the sources are others than at the last build, and nobody is writing.
    async fn changed(&mut self) {
        loop {
            sleep(EVERY).await;
            let now = self.look().await;
            if now == self.seen {
                continue;
            }
            sleep(EVERY).await;
            if self.look().await == now {
                return;
            }
        }
    }

    async fn look(&self) -> Snapshot {
        let sources = self.sources.clone();
        spawn_blocking(move || sources.look())
            .await
            .unwrap_or_default()
    }

    /// Build and load once. What goes wrong is told.
    async fn make(&mut self) -> Option<Sandbox> {
        let before = self.look().await;
        let touched = before.changed_since(&self.seen);
        self.seen = before;
        let in_turn = !touched.is_empty() && touched == self.during;
        self.rounds = if in_turn { self.rounds + 1 } else { 0 };
        if let Some(command) = &self.config.development.build {
            say(&format!("building: {command}"));
            let built = build::build(command).await;
            self.set_apart().await;
            match built {
                Built::Well(time) => say(&format!("built in {time:.1?}")),
                Built::Badly(how, output) => {
                    output::people(&output);
                    say(&format!("the build failed ({how})"));
                    return None;
                }
            }
        }
        self.load().await
    }

    /// What changed during the build is built once more; but what every build writes is no source,
    /// else they would never end.
    async fn set_apart(&mut self) {
        let during = self.look().await.changed_since(&self.seen);
        if self.rounds >= ROUNDS && during == self.during {
            let names: Vec<_> = during.iter().map(|path| path.to_string_lossy()).collect();
            say(&format!(
                "no longer watched, as every build writes it: {}",
                names.join(", ")
            ));
            self.sources.without(during);
            self.during.clear();
            self.seen = self.look().await;
        } else {
            self.during = during;
        }
    }

    async fn load(&mut self) -> Option<Sandbox> {
        let (file, settings) = (
            self.config.handler.file.clone(),
            self.config.sandbox.clone(),
        );
        let loading = spawn_blocking(move || check::load(&file, &settings));
        match loading.await {
            Ok(Ok(sandbox)) if self.known.as_ref() == Some(sandbox.digest()) => {
                say("the same component as before");
                None
            }
            Ok(Ok(sandbox)) => {
                self.known = Some(Arc::clone(sandbox.digest()));
                Some(sandbox)
            }
            Ok(Err(failure)) => {
                output::failure(&failure);
                None
            }
            Err(error) => {
                say(&format!("the component was not loaded: {error}"));
                None
            }
        }
    }
}
