//! `hostler run`: the host of one queue.

use std::path::Path;

use tracing::{info, warn};

use crate::cli::flags::{All, Flags};
use crate::cli::{Exit, Failure, Variables, named, output};
use crate::config::{FILE_MAX, SummaryFormat, Value};
use crate::file_watch::{FileWatch, REST};
use crate::host::{Ended, Threads, serve};
use crate::telemetry::logging;
use crate::telemetry::otlp::{self, Telemetry};

/// Serve a queue: call the handler with each message, and settle it as the handler says
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hostler run --redis URL --stream KEY --group NAME --handler FILE.wasm\n       \
                      hostler run --redis URL --list KEY [--reliable] --handler FILE.wasm\n       \
                      hostler run --redis URL --channel NAME --handler FILE.wasm\n       \
                      hostler run --queue NAME --handler FILE.wasm\n       \
                      hostler run --config FILE.toml [FLAGS]",
    after_help = "\
Every flag is also a variable (--min-idle is HOSTLER_MIN_IDLE) and a key of the
configuration file (min_idle): see docs/configuration.md. A flag wins over a
variable, and a variable wins over the file.

Examples:
  hostler run --redis redis://localhost --stream orders --group billing \\
    --handler billing.wasm
  hostler run --redis embedded --stream orders --group g --handler h.wasm \\
    --until-empty --summary json
  hostler run --redis redis://localhost --list jobs --reliable \\
    --recovery-zset {jobs}:claims --handler h.wasm
  hostler run --redis redis://localhost --pattern 'news.*' --handler h.wasm \\
    --on-overflow drop-oldest
  hostler run --config orders.toml --max-deliveries 5 --dead-letter orders:dead

SIGTERM or Ctrl-C drains the host: it stops reading, finishes the attempts that
have started, hands back the other messages, and exits with 0. A second signal
ends it at once.
Exit codes: 0 drained or empty, 64 usage or configuration, 65 bad component,
69 Redis does not answer, 75 the time for draining (or --until-empty) was over"
)]
pub(super) struct Args {
    /// Serve this queue, which hosts serve or served lately: the same kind, and the same group
    #[arg(long, value_name = "QUEUE")]
    queue: Option<String>,

    #[command(flatten)]
    flags: Flags<All>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    // First of all: a signal that comes while the host starts stops it like any other.
    let threads = Threads::start()?;
    let mut stops = threads.listen()?;
    let flags = match &args.queue {
        Some(name) => named::served(args.flags, &variables, name)?,
        None => args.flags,
    };
    let mut sources = flags.sources(variables);
    if let Some(path) = &sources.file {
        // Half of a file may be right for itself, and lack what keeps messages.
        let read = threads.wait(async {
            tokio::select! {
                content = FileWatch::rested(path, FILE_MAX, || being_written(path)) => Some(content),
                _ = stops.next() => None,
            }
        });
        let Some(content) = read else {
            return Ok(Exit::Ok);
        };
        // What cannot be read is reported below, with every other problem.
        sources.text = content.and_then(|content| String::from_utf8(content).ok());
    }
    let loaded = sources.collect().config()?;
    let config = loaded.value;
    let queue = otlp::Queue {
        name: config.queue.name(),
        group: config.queue.group(),
    };
    let telemetry = config.telemetry.as_ref();
    let telemetry = telemetry.map(|settings| Telemetry::start(settings, queue));
    let mut telemetry = telemetry.transpose()?;
    let process = &config.process;
    let collector = telemetry.as_ref().and_then(Telemetry::log_layer);
    logging::start(process.log_format, &process.log_level, collector);
    if let Some(settings) = &config.telemetry {
        let (endpoint, sample) = (&settings.endpoint, settings.sample);
        info!(%endpoint, sample, "sends telemetry");
    }
    for problem in &loaded.warnings {
        warn!(hint = problem.hint, "{problem}");
    }
    let summary = config.process.summary;
    let served = threads.run(async |attempts| {
        // The future is large: on the heap it is not copied about.
        Box::pin(serve(config, sources, stops, attempts, telemetry.as_mut())).await
    });
    // A second signal ends it at once.
    let is_forced = matches!(&served, Ok(served) if matches!(served.ended, Ended::Forced(_)));
    if let Some(telemetry) = telemetry.filter(|_| !is_forced) {
        telemetry.close();
    }
    let served = served?;
    if let (SummaryFormat::Json, Some(counted)) = (summary, &served.summary) {
        output::json(counted)?;
    }
    Ok(served.ended.into())
}

fn being_written(path: &Path) {
    let what = format!(
        "{} is being written: waiting until it has not changed for {}",
        path.display(),
        REST.show()
    );
    output::warning(&what, None);
}
