//! `hostler dlq`: look at dead letters, and bring them back.
//!
//! - [`peek`], [`show`]: read only.
//! - [`replay`], [`purge`], [`export`]: move, delete, copy out.
//! - [`filter`]: the flags that choose entries.
//! - [`trial`]: the verdicts of another handler on them.

use clap::Subcommand;

use crate::cli::Variables;
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{Flags, Reach};
use crate::cli::session::ask;
use crate::dead_letter::DeadLetters;

mod export;
mod filter;
mod peek;
mod purge;
mod replay;
mod show;
mod trial;

/// Look at dead letters, and bring messages back from them
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

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::Peek(args) => peek::run(args, variables),
        Command::Show(args) => show::run(args, variables),
        Command::Replay(args) => replay::run(args, variables),
        Command::Purge(args) => purge::run(args, variables),
        Command::Export(args) => export::run(args, variables),
    }
}

/// Work on the dead-letter queue with this key.
fn with_letters<T>(
    key: &str,
    flags: Flags<Reach>,
    variables: Variables,
    work: impl AsyncFnOnce(&DeadLetters) -> Result<T, Failure>,
) -> Result<T, Failure> {
    ask(flags, variables, "dlq", async |session| {
        work(&DeadLetters::new(&session.connector, key)).await
    })
}

/// Keep at most `max` entries of a batch that was read.
fn truncate<T>(entries: &mut Vec<T>, max: u64) {
    entries.truncate(usize::try_from(max).unwrap_or(usize::MAX));
}
