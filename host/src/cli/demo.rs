//! `hostler demo`: a queue at work, without a project and without a compiler.

use std::io::IsTerminal;

use crate::cli::flags::checked;
use crate::cli::{Exit, Failure, Variables, block_on, output, text};
use crate::config::{RedisAt, Sources};
use crate::host::Threads;
use crate::telemetry::logging;
use crate::workbench::demo::{self, Demo, Event, Pace};

/// Show a queue at work: a handler with a mistake, its dead letters, the correction
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Everything is built in: a producer of orders, a handler, its corrected version.
The demo serves a queue beside a private Redis, shows why orders died, tries the
correction, deploys it as a canary, and replays the dead letters. It takes half
a minute, and goes on until Ctrl-C, which ends all processes and removes the
folder. It opens no browser: it prints the address of the dashboard.

With --redis it uses a server of yours: the keys demo-orders, demo-orders:dead
and those that begin with {demo-orders}: . It refuses to begin if one of them is
there, and removes them at the end. Its folder does not have the password.

Exit codes: 0 it was shown, or Ctrl-C, 1 a step failed, 64 the server has keys
of a demo, 69 there is no server

Examples:
  hostler demo
  hostler demo --once
  hostler demo --redis redis://localhost --port 9401")]
pub(super) struct Args {
    /// A server of yours, instead of a private one
    #[arg(long, value_name = "URL", value_parser = text::parse::<RedisAt>)]
    redis: Option<RedisAt>,

    /// The port of the dashboard, on this machine only [default: any free one]
    #[arg(
        long,
        value_name = "PORT",
        default_value_t = 0,
        hide_default_value = true
    )]
    port: u16,

    /// End when everything is shown
    #[arg(long)]
    once: bool,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let threads = Threads::start()?;
    let stops = threads.listen()?;
    let given = match args.redis {
        Some(RedisAt::Url(url)) => Some(url),
        Some(RedisAt::Embedded) | None => None,
    };
    let url = given.as_ref().map_or("embedded", |url| url.expose());
    let variables = demo::variables(variables, given.is_some());
    let reach = Sources {
        file: None,
        is_beside: false,
        text: None,
        variables: variables.clone(),
        flags: vec![("redis", url.to_owned())],
    };
    let redis = checked(reach.collect().redis())?;
    // A signal is not lost meanwhile.
    let preparing = Box::pin(Demo::prepare(redis, given, variables, args.port));
    let (demo, connected) = threads.wait(preparing)?;
    let sources = demo.sources();
    let config = checked(sources.collect().config())?;
    let process = &config.process;
    logging::start(process.log_format, &process.log_level, None);
    let pace = Pace {
        is_read: std::io::stdout().is_terminal(),
        once: args.once,
    };
    let shown = threads.run(async |attempts| {
        let settings = (config, sources);
        Box::pin(demo.run(connected, settings, stops, attempts, pace, &show)).await
    });
    let removed = block_on(async { Ok(demo.remove_keys().await?) });
    let ended = shown?;
    removed?;
    Ok(ended.into())
}

fn show(event: Event<'_>) {
    let shown = match event {
        Event::Said(text) => output::line(text),
        Event::Ran { line, output } => {
            let mut text = format!("\n   $ {line}");
            text.extend(output.lines().map(|line| format!("\n   {line}")));
            output::line(&text)
        }
    };
    // stdout cannot be written: the dashboard is there still.
    if let Err(failure) = shown {
        tracing::warn!("{}", failure.what);
    }
}
