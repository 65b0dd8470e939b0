//! `hostler compile-component`: the child process in which a host compiles. Not for people.

use crate::cli::{Exit, Failure, Variables};
use crate::compiler;

/// Compile the component on stdin; started by a host
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run(_: Args, _: Variables) -> Result<Exit, Failure> {
    compiler::serve(std::io::stdin().lock(), std::io::stdout().lock()).map_err(|error| {
        Failure::io("this command is for hosts only: it did not compile", &error)
    })?;
    Ok(Exit::Ok)
}
