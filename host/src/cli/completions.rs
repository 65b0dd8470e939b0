//! `hostler completions`: a completion script for a shell.

use clap_complete::Shell;

use crate::cli::{Exit, Failure, Variables, command, output};

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
    clap_complete::generate(args.shell, &mut command(), "hostler", &mut script);
    output::data(&script)?;
    Ok(Exit::Ok)
}
