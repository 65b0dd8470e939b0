//! `hostler man`: the manual pages, made from the definition of the commands.

use std::fs;
use std::path::PathBuf;

use crate::cli::{Exit, Failure, Variables, command, output};

/// Write the manual pages of all commands to a folder
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler man /usr/local/share/man/man1
  hostler man pages && man ./pages/hostler-run.1

There is one page for each command: hostler.1, hostler-run.1,
hostler-dlq-peek.1, ... Files of these names are written over.")]
pub(super) struct Args {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

pub(super) fn run(args: Args, _: Variables) -> Result<Exit, Failure> {
    let cannot = |error: std::io::Error| {
        Failure::io(
            format_args!("cannot write to {}", args.dir.display()),
            &error,
        )
    };
    fs::create_dir_all(&args.dir).map_err(cannot)?;
    // The long version has several lines: a page shows the short one.
    let command = command().long_version(None);
    clap_mangen::generate_to(command, &args.dir).map_err(cannot)?;
    let mut pages = Vec::new();
    for entry in fs::read_dir(&args.dir).map_err(cannot)? {
        let path = entry.map_err(cannot)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.starts_with("hostler") && name.ends_with(".1")) {
            pages.push(path);
        }
    }
    pages.sort();
    for page in pages {
        output::line(&page.display().to_string())?;
    }
    Ok(Exit::Ok)
}
