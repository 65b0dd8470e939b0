//! `hostler compile-component`: not for people. The child that a host compiles in.

use std::path::PathBuf;

use crate::cli::exit::{Exit, Failure};
use crate::sandbox::{Compiler, compile};

/// Compile the component on stdin; a host's child
#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) fn run() -> Result<Exit, Failure> {
    compile::serve(std::io::stdin().lock(), std::io::stdout().lock())
        .map_err(|error| Failure::io("this command is a host's own: it did not compile", &error))?;
    Ok(Exit::Ok)
}

/// The compiler of this process: this very program, even if its file was replaced or removed
/// since it was started.
pub(super) fn compiler() -> Result<Compiler, Failure> {
    let running = PathBuf::from("/proc/self/exe");
    let program = match running.exists() {
        true => running,
        false => std::env::current_exe()
            .map_err(|error| Failure::io("cannot find the file of this program", &error))?,
    };
    Ok(Compiler::Child { program })
}
