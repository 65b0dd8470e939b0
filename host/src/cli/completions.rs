//! `hostler completions`: a completion script for a shell.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::{Cli, Exit, Failure, Variables, output};

/// Print a completion script for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler completions bash > /etc/bash_completion.d/hostler
  hostler completions zsh > \"${fpath[1]}/_hostler\"
  hostler completions fish > ~/.config/fish/completions/hostler.fish")]
pub(super) struct Args {
    /// The shell
    shell: Shell,
}

pub(super) fn run(args: Args, _: Variables) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "hostler", &mut script);
    output::data(&script)?;
    Ok(Exit::Ok)
}
