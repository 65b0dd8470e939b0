//! `hostler dlq`: what died, why, and the way back.
//!
//! - [`peek`], [`show`]: look, change nothing.
//! - [`replay`], [`purge`], [`export`]: take it back, away, along.
//! - [`filter`]: which entries are meant.
//! - [`trial`]: what another handler makes of them.

use clap::Subcommand;

use crate::cli::Variables;
use crate::cli::connect::{Connected, Passing, ask, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{self, Flags, Reach};
use crate::config::Redis;
use crate::dead_letter::{DeadLetters, Error};
use crate::delivery::text::printable;
use crate::wire::stream;

mod export;
pub(super) mod filter;
mod peek;
mod purge;
mod replay;
mod show;
mod trial;

/// Look into dead-letter queues, and bring messages back from them
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Peek(peek::Args),
    Show(show::Args),
    Replay(replay::Args),
    Purge(purge::Args),
    Export(export::Args),
}

impl Passing for Error {
    fn may_pass(&self) -> bool {
        matches!(self, Self::Redis(error) if error.may_pass())
    }

    fn failure(&self) -> Failure {
        match self {
            Self::Redis(error) => error.failure(),
            error => Failure::new(Exit::Usage, error),
        }
    }
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::Peek(args) => peek::run(args, variables),
        Command::Show(args) => show::run(args, variables),
        Command::Replay(args) => replay::run(args, variables),
        Command::Purge(args) => purge::run(args, variables),
        Command::Export(args) => export::run(args, variables),
    }
}

/// Do something with a dead-letter queue that can be reached.
fn with<T>(
    key: &str,
    flags: Flags<Reach>,
    variables: Variables,
    work: impl AsyncFnOnce(&DeadLetters) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let loaded = flags.collect(variables).redis()?;
    flags::warn(&loaded.warnings);
    ask(at(key, &loaded.value, stream::Options::default(), work))
}

/// The same inside of a runtime, for a server that is known, with entries read like this.
async fn at<T>(
    key: &str,
    redis: &Redis,
    reading: stream::Options,
    work: impl AsyncFnOnce(&DeadLetters) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let connected = Connected::new(redis, "dlq").await?;
    let letters = DeadLetters::new(&connected.connector, key).reading(reading);
    let link = connected.connector.link("reach");
    let reached = patiently(redis.wait, async || link.reach().await).await;
    let done = match reached {
        Ok(()) => work(&letters).await,
        Err(failure) => Err(failure),
    };
    connected.close().await;
    done
}

/// Why it did not work, for a command that asks once.
fn failed(error: Error) -> Failure {
    error.failure()
}

/// How much of a body or a text a table shows, in characters.
const SHOWN_MAX: usize = 60;

/// A text that somebody else wrote: on one line, without control characters, not too long.
pub(super) fn shown(text: &str) -> String {
    let mut shown = line(&text.chars().take(SHOWN_MAX).collect::<String>());
    if text.chars().nth(SHOWN_MAX).is_some() {
        shown.push('…');
    }
    shown
}

/// A text that somebody else wrote: on one line, without control characters.
pub(super) fn line(text: &str) -> String {
    printable(text).replace('\t', "\\t")
}
