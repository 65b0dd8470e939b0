//! `hostler config`: what may stand in the files of hostler.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde_json::Value as Json;

use crate::cli::flags::{Developed, Flags};
use crate::cli::{Exit, Failure, Variables, output};
use crate::config::{self, RedisUrl};
use crate::workbench::test;

/// Write a configuration with every setting, or print the JSON Schemas of the files
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(InitArgs),
    Schema(SchemaArgs),
}

/// Write a configuration file that has every setting, most of them as comments
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler config init
  hostler config init orders.toml --redis redis://db:6379 --stream orders \\
    --group billing --handler billing.wasm --max-deliveries 5
  hostler config init - --list jobs --reliable | less

The flags are set in the file. Without a queue it serves the stream `orders`.
A file that is there already stays as it is. The file holds no password: write
`--redis-password-file`, or set HOSTLER_REDIS_PASSWORD.")]
struct InitArgs {
    /// The new file; `-` = stdout
    #[arg(value_name = "FILE", default_value = "hostler.toml")]
    file: PathBuf,

    #[command(flatten)]
    flags: Flags<Developed>,
}

/// Print the JSON Schema of a file, for editors and for checks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler config schema > hostler.schema.json
  hostler config schema cases > cases.schema.json

An editor with support for TOML (taplo, Tombi, Even Better TOML) completes and
checks a file whose first line names its schema:
  #:schema hostler.schema.json")]
struct SchemaArgs {
    /// The file: `hostler` = hostler.toml, `cases` = the table of `hostler test`
    #[arg(value_name = "WHICH", default_value = "hostler")]
    which: Which,
}

/// A file that has a schema.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(super) enum Which {
    /// hostler.toml
    Hostler,
    /// cases.toml
    Cases,
}

impl Which {
    /// The schema, as it is written to a file.
    pub(super) fn schema(self) -> String {
        let schema: Json = match self {
            Self::Hostler => config::file_schema(),
            Self::Cases => test::table_schema(),
        };
        format!("{schema:#}\n")
    }
}

pub(super) fn run(args: Args, _: Variables) -> Result<Exit, Failure> {
    match args.command {
        Command::Init(args) => init(&args),
        Command::Schema(args) => {
            output::data(args.which.schema().as_bytes())?;
            Ok(Exit::Ok)
        }
    }
}

fn init(args: &InitArgs) -> Result<Exit, Failure> {
    let given = args.flags.given();
    let file = config::commented(&settings(given)?);
    if args.file == Path::new("-") {
        output::data(file.as_bytes())?;
        return Ok(Exit::Ok);
    }
    let shown = args.file.display();
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&args.file)
        .and_then(|mut open| open.write_all(file.as_bytes()));
    match written {
        Ok(()) => {
            output::line(&shown.to_string())?;
            output::people(&format!(
                "\nNext:\n  hostler check --config {shown}\n  hostler run --config {shown}\n"
            ));
            Ok(Exit::Ok)
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let what = format_args!("{shown} is there already");
            let hint = "give another name: files are never overwritten";
            Err(Failure::new(Exit::Usage, what).hint(hint))
        }
        Err(error) => Err(Failure::io(format_args!("cannot write {shown}"), &error)),
    }
}

/// The settings of the file: those that are given, and what a host needs besides.
fn settings(given: &[(&'static str, String)]) -> Result<Vec<(&'static str, String)>, Failure> {
    for (key, text) in given {
        // A wrong value would make a file that no command reads.
        let setting = config::settings::find(key);
        if let Some(Err(invalid)) = setting.map(|setting| setting.show(text)) {
            let failure = Failure::new(Exit::Usage, format_args!("`{key}` {}", invalid.what));
            return Err(match invalid.hint {
                Some(hint) => failure.hint(hint),
                None => failure,
            });
        }
        let has_password = RedisUrl::parse(text).is_ok_and(|url| url.has_password());
        if *key == "redis" && has_password {
            let hint = "write the password to a file, and give `--redis-password-file FILE`";
            return Err(Failure::new(Exit::Usage, "`redis` holds a password").hint(hint));
        }
    }
    let mut set = given.to_vec();
    let queues = ["stream", "list", "channel", "pattern", "sharded_channel"];
    let has = |key: &str| given.iter().any(|(given, _)| *given == key);
    let other_queue = queues.iter().skip(1).any(|queue| has(queue));
    for (key, text) in config::usual_settings() {
        let is_of_streams = ["stream", "group"].contains(&key);
        let is_meant = !is_of_streams || !other_queue;
        if is_meant && !has(key) {
            set.push((key, text));
        }
    }
    Ok(set)
}
