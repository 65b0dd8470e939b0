//! The commands: parse the command line, call the other rooms, print. Only this room prints, and only
//! this room knows exit codes.
//!
//! One file per command, and:
//!
//! - [`flags`]: flags made from the settings.
//! - [`session`]: connecting to Redis, for every command that needs it.
//! - [`exit`], [`output`], [`text`], `progress`: how results, errors and progress are shown.
//!
//! stdout is data, machine-readable with `--json`; stderr is for people.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::builder::{Resettable, StyledStr};
use clap::{Arg, ArgAction, CommandFactory, FromArgMatches, Parser};

// What most commands begin with.
use exit::{Exit, Failure};
use flags::{Common, Flags, Reach};
use session::{ask, ask_at, block_on};

use crate::compiler;
use crate::config::RedisUrl;

mod about;
mod bench;
mod cancel;
mod check;
mod compile_component;
mod completions;
mod config;
mod confirm;
mod demo;
mod deploy;
mod dev;
mod dlq;
pub mod exit;
mod flags;
mod inspect;
mod invoke;
mod live_rules;
mod man;
mod message;
mod named;
mod new;
mod output;
mod parts;
mod pause;
mod policy;
mod progress;
mod promote;
mod publish;
mod queues;
mod resume;
mod rollback;
mod rolled_out;
mod run;
mod schedule;
mod session;
mod test;
mod text;
mod trace;
mod ui;
mod versions;
mod watch;

/// The environment of the process at its start.
pub type Variables = Vec<(OsString, OsString)>;

/// Host message handlers compiled to WebAssembly beside a Redis queue.
#[derive(Debug, Parser)]
#[command(
    name = "hostler",
    version = about::SHORT,
    long_version = about::long(),
    max_term_width = 100,
    subcommand_required = true,
    arg_required_else_help = true,
    propagate_version = true,
    after_help = format!("{EXAMPLES}\n\n{}", exit::table()),
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  hostler demo                             a queue at work, in half a minute
  hostler new --lang rust billing          a project that builds at once
  hostler dev                              build, run, watch and swap a handler
  hostler test handler.wasm cases.toml     a table of messages and outcomes
  hostler publish --redis embedded --stream orders --body '{\"id\":1}'
  hostler run --redis embedded --stream orders --group billing \\
    --handler handler.wasm
  hostler queues --redis embedded          every queue, and what stops it
  hostler dlq groups --redis embedded orders:dead    why messages died
  hostler ui --redis embedded              the dashboard";

/// The commands: each is a variant of `Command`, with the arguments and the function `run` of its module.
macro_rules! commands {
    ($($(#[$meta:meta])* $name:ident: $module:ident,)+) => {
        #[derive(Debug, clap::Subcommand)]
        enum Command {
            $($(#[$meta])* $name($module::Args),)+
        }

        impl Command {
            fn run(self, variables: Variables) -> Result<Exit, Failure> {
                match self {
                    $(Self::$name(args) => $module::run(args, variables),)+
                }
            }
        }
    };
}
use commands;

macro_rules! groups {
    ($($title:literal { $($(#[$meta:meta])* $name:ident: $module:ident,)+ })+) => {
        commands! { $($($(#[$meta])* $name: $module,)+)+ }

        /// The groups, with the names of their commands.
        const GROUPS: &[(&str, &[&str])] = &[$(($title, &[$(stringify!($module)),+])),+];
    };
}

groups! {
    "Write a handler" {
        Demo: demo,
        New: new,
        Dev: dev,
        Check: check,
        Invoke: invoke,
        Test: test,
        Bench: bench,
    }
    "Serve a queue" {
        Run: run,
        Publish: publish,
        Schedule: schedule,
        Config: config,
        Completions: completions,
        Man: man,
    }
    "Look at a queue" {
        Queues: queues,
        Inspect: inspect,
        Watch: watch,
        Trace: trace,
        Ui: ui,
        Versions: versions,
        Parts: parts,
    }
    "Act on a queue" {
        Dlq: dlq,
        Cancel: cancel,
        Pause: pause,
        Resume: resume,
        Policy: policy,
        Deploy: deploy,
        Promote: promote,
        Rollback: rollback,
        #[command(name = compiler::COMMAND, hide = true)]
        CompileComponent: compile_component,
    }
}

/// The commands, with two flags for help: in short, and with everything.
fn command() -> clap::Command {
    let help = |name: &'static str, action| Arg::new(name).long(name).action(action).global(true);
    let all = "Print help with every flag, and more on each";
    Cli::command()
        .disable_help_flag(true)
        .arg(
            help("help", ArgAction::HelpShort)
                .short('h')
                .help("Print help"),
        )
        .arg(help("help-all", ArgAction::HelpLong).help(all))
}

/// The same for people: examples before flags, and the commands in groups.
fn helpful() -> clap::Command {
    let command = command();
    let row = |name: &&str| {
        let about = command.find_subcommand(name)?.get_about()?;
        Some(format!("  {name:<12} {about}\n"))
    };
    let group = |(title, names): &(&str, &[&str])| {
        let rows: String = names.iter().filter_map(row).collect();
        format!("{title}:\n{rows}\n")
    };
    let groups: String = GROUPS.iter().map(group).collect();
    let template = HELP.replace("{all-args}", &format!("{groups}Options:\n{{options}}"));
    examples_first(command).help_template(template)
}

/// The order of a help text.
const HELP: &str = "\
{about-with-newline}
{usage-heading} {usage}

{before-help}{all-args}{after-help}";

fn examples_first(command: clap::Command) -> clap::Command {
    let text = command.get_after_help().map(ToString::to_string);
    let (examples, rest): (Vec<&str>, Vec<&str>) = text
        .iter()
        .flat_map(|text| text.split("\n\n"))
        .partition(|part| part.starts_with("Examples:"));
    let [examples, rest] = [examples, rest].map(|parts| match parts.is_empty() {
        true => Resettable::Reset,
        false => Resettable::Value(StyledStr::from(parts.join("\n\n"))),
    });
    command
        .before_help(examples)
        .after_help(rest)
        .help_template(HELP)
        .mut_subcommands(examples_first)
}

/// Run the command of these arguments.
pub fn main(arguments: Vec<OsString>, variables: Variables) -> ExitCode {
    match catch_unwind(AssertUnwindSafe(|| run(arguments, variables))) {
        Ok(Ok(exit)) => exit.into(),
        Ok(Err(failure)) => {
            output::failure(&failure);
            failure.exit.into()
        }
        // The panic hook has printed the place.
        Err(_) => {
            output::failure(
                &Failure::new(Exit::Bug, "this is a bug of hostler")
                    .hint("please report it, with the lines above and what you did"),
            );
            Exit::Bug.into()
        }
    }
}

fn run(arguments: Vec<OsString>, variables: Variables) -> Result<Exit, Failure> {
    let parsed = helpful()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Cli::from_arg_matches(&matches));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => {
            // It repeats arguments: without their passwords.
            let message = error.render();
            let [plain, coloured] =
                [message.to_string(), message.ansi().to_string()].map(|text| mask_urls(&text));
            output::usage(&plain, &coloured, &arguments);
            return Ok(Exit::Usage);
        }
        // The output of `--help` and `--version` is data.
        Err(error) => {
            let text = error.render();
            let text = match output::is_terminal() {
                true => text.ansi().to_string(),
                false => text.to_string(),
            };
            output::data(mask_urls(&text).as_bytes())?;
            return Ok(Exit::Ok);
        }
    };
    cli.command.run(variables)
}

/// The files of the JSON Schemas, for the docs.
#[cfg(test)]
pub(crate) fn schemas() -> [(&'static str, String); 2] {
    [
        ("hostler.schema.json", config::Which::Hostler.schema()),
        ("cases.schema.json", config::Which::Cases.schema()),
    ]
}

/// Mask every URL with credentials in a text.
fn mask_urls(text: &str) -> String {
    let masked = |word: &str| match word.contains("://") && word.contains('@') {
        true => {
            let url = word.trim_matches(['\'', '"', '`', ',', '.', ':']);
            word.replace(url, &RedisUrl::mask(url))
        }
        false => word.to_owned(),
    };
    text.split_inclusive([' ', '\n'])
        .map(masked)
        .collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_of_the_commands_is_sound() {
        helpful().debug_assert();
    }

    #[test]
    fn every_command_is_in_a_group() {
        let command = Cli::command();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        let mut grouped = GROUPS.iter().flat_map(|(_, names)| *names);
        for command in shown {
            let name = command.get_name();
            assert!(grouped.any(|grouped| *grouped == name), "{name}");
        }
        assert_eq!(GROUPS.len(), 4);
    }

    #[test]
    fn no_line_of_a_help_text_is_too_long_for_a_terminal() {
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            for line in command
                .get_after_help()
                .map(ToString::to_string)
                .iter()
                .flat_map(|h| h.lines())
            {
                assert!(line.chars().count() <= 80, "{}: {line}", command.get_name());
            }
            open.extend(command.get_subcommands().cloned());
        }
    }

    #[test]
    fn an_example_of_several_lines_can_be_pasted_as_one_command() {
        let mut open = vec![Cli::command()];
        let mut continued = 0;
        while let Some(command) = open.pop() {
            let help = command.get_after_help().map(ToString::to_string);
            let help = help.unwrap_or_default();
            let mut lines = help.lines().peekable();
            while let Some(line) = lines.next() {
                let is_cut = line.ends_with('\\');
                if is_cut || line.trim_start().starts_with("hostler ") {
                    let is_more = lines.peek().is_some_and(|next| next.starts_with("    "));
                    assert_eq!(is_cut, is_more, "{}: {line}", command.get_name());
                    continued += u32::from(is_more);
                }
            }
            open.extend(command.get_subcommands().cloned());
        }
        assert!(continued > 10, "{continued}");
    }

    #[test]
    fn urls_in_messages_are_masked() {
        let text = "error: unexpected argument 'redis://:hunter2@db/0' found\n";
        assert_eq!(
            mask_urls(text),
            "error: unexpected argument 'redis://:***@db/0' found\n"
        );
        assert_eq!(
            mask_urls("see https://example.com for @you\n"),
            "see https://example.com for @you\n"
        );
    }
}
