//! `hostler new`: a project for a handler, ready to build and to test.

use std::fs;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use project::Files;
use templates::{Language, Part, World};

use crate::cli::config::Which;
use crate::cli::{Exit, Failure, Variables, output};

mod project;
mod templates;

/// The longest name of a project.
const NAME_MAX: usize = 64;

/// Write a project for a handler: source, tests, WIT, build file, configuration
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  hostler new --lang rust billing
  hostler new --lang python parcels && cd parcels && make
  hostler new --lang go shop --with http,publish,key-value
  hostler new --lang js parcels --minimal
  hostler new --lang c invoices --world command

The project is a small handler for orders with tests. It builds at once: change
it into your own. README.md names the tools that it needs; cases.toml is for
`hostler test`, hostler.toml for `hostler dev` and `hostler run`. Both name
their JSON Schemas, for editors.

With `--with` the handler charges an order by HTTP, publishes an invoice, keeps
a total for each customer, or reads a secret. hostler.toml has the grants.
With `--minimal` it acks every message, and there is nothing to remove.

Worlds other than `hostler` have a small project: `command` in Rust, Go, C, C++
and Zig, `spin` and `wasmcloud` in Rust.")]
pub(super) struct Args {
    /// The language
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,

    /// What the handler does besides answering, separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    with: Vec<Part>,

    /// A handler that acks every message, instead of the orders
    #[arg(long, conflicts_with = "with")]
    minimal: bool,

    /// What the handler is made for
    #[arg(long, value_name = "WORLD", default_value = "hostler")]
    world: World,

    /// The name of the project and of its new folder: small letters, digits and `-`
    #[arg(value_name = "NAME", value_parser = name)]
    name: String,
}

/// Check a name: every language's package manager must accept it.
fn name(text: &str) -> Result<String, &'static str> {
    let begins = text.starts_with(|c: char| c.is_ascii_lowercase());
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.len() > NAME_MAX {
        Err("it is longer than 64 characters")
    } else if !begins || !text.chars().all(good) || text.ends_with('-') {
        Err("a name is made of small letters, digits and `-`, and begins with a letter")
    } else {
        Ok(text.to_owned())
    }
}

pub(super) fn run(args: Args, _: Variables) -> Result<Exit, Failure> {
    if let Some(why) = args.lang.objection(&args.name) {
        let what = format!(
            "a project in this language cannot be `{}`: {why}",
            args.name
        );
        let hint = format!("give another name, such as {}-handler", args.name);
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
    let files = with_schemas(files(&args)?);
    let folder = PathBuf::from(&args.name);
    let cannot = |path: &Path, error: &std::io::Error| {
        Failure::io(format_args!("cannot write {}", path.display()), error)
    };
    if let Err(error) = fs::create_dir(&folder) {
        return Err(match error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                Failure::new(Exit::Usage, format_args!("{} is there already", args.name))
                    .hint("give another name: files are never overwritten")
            }
            _ => cannot(&folder, &error),
        });
    }
    for (path, content) in &files {
        let path = folder.join(path);
        let dir = path.parent().unwrap_or(&folder);
        fs::create_dir_all(dir)
            .and_then(|()| fs::write(&path, content))
            .map_err(|error| cannot(&path, &error))?;
    }
    for path in files.keys() {
        output::line(&folder.join(path).display().to_string())?;
    }
    let mut next = vec![format!("cd {}", args.name)];
    let has_tests = args.world == World::Hostler && !args.minimal;
    next.extend(args.lang.before_build(has_tests).map(str::to_owned));
    next.push(args.lang.build(args.world).to_owned());
    let handler = args.lang.handler(args.world, &args.name);
    // The handler needs its grants.
    let config = match args.with.is_empty() && args.world != World::Wasmcloud {
        true => "",
        false => " --config hostler.toml",
    };
    next.push(format!("hostler test {handler} cases.toml{config}"));
    next.push("hostler dev".to_owned());
    output::people(&format!("\nNext:\n  {}\n", next.join("\n  ")));
    Ok(Exit::Ok)
}

/// The same files with the schemas of the two that are written by hand, which name them in their first line:
/// editors then complete and check what this version of hostler reads.
fn with_schemas(mut files: Files) -> Files {
    let written = [
        ("hostler.toml", "schema/hostler.schema.json", Which::Hostler),
        ("cases.toml", "schema/cases.schema.json", Which::Cases),
    ];
    for (path, schema, which) in written {
        if let Some(text) = files.get_mut(path) {
            let line = format!("#:schema {schema}\n");
            text.splice(..0, line.into_bytes());
            files.insert(schema, which.schema().into_bytes());
        }
    }
    files
}

/// The files that were asked for.
fn files(args: &Args) -> Result<Files, Failure> {
    if args.world == World::Hostler {
        return Ok(match args.minimal {
            true => project::minimal(args.lang, &args.name),
            false => project::files(args.lang, &args.name, &args.with),
        });
    }
    let world = word(args.world);
    if args.minimal || !args.with.is_empty() {
        let what = format!("--world {world} has one project, without --minimal and --with");
        return Err(Failure::new(Exit::Usage, what));
    }
    if let Some(files) = args.world.project(args.lang) {
        return Ok(project::project(files, &args.name));
    }
    let languages = Language::value_variants().iter();
    let having = languages.filter(|language| args.world.project(**language).is_some());
    let names: Vec<_> = having.map(|language| word(*language)).collect();
    let what = format!("--world {world} has no project in {}", word(args.lang));
    let hint = format!("it has one in: {}", names.join(", "));
    Err(Failure::new(Exit::Usage, what).hint(hint))
}

/// The word for a value on the command line.
fn word(value: impl ValueEnum) -> String {
    let value = value.to_possible_value();
    value.map_or_else(String::new, |value| value.get_name().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_every_package_manager_accepts_are_accepted() {
        for good in ["a", "billing", "parcel-desk-2"] {
            assert_eq!(name(good).as_deref(), Ok(good));
        }
        for bad in ["", "Billing", "2nd", "-a", "a-", "a_b", "a/b", "../a", "ä"] {
            assert!(name(bad).is_err(), "{bad}");
        }
        assert!(name(&"a".repeat(65)).is_err());
    }
}
