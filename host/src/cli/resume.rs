//! `hostler resume`: end a pause.

use crate::cli::Variables;
use crate::cli::{Exit, Failure, pause};

/// Resume paused queues
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Every host of the queue follows within two seconds.

Examples:
  hostler resume --redis redis://localhost --queue orders
  hostler resume --redis redis://localhost --match 'orders.*'")]
pub(super) struct Args {
    #[command(flatten)]
    shared: pause::Args,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    pause::tell(args.shared, variables, "resume", false)
}
