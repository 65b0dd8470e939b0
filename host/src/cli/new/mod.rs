//! `hostler new`: a project for a handler, ready to build and to test.

use std::fs;
use std::path::{Path, PathBuf};

use templates::{Language, Part};

use crate::cli::exit::{Exit, Failure};
use crate::cli::output;

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

The project is a small handler for orders with tests. It builds at once: change
it into your own. README.md names the tools that it needs; cases.toml is for
`hostler test`, hostler.toml for `hostler dev` and `hostler run`.

With `--with` the handler charges an order by HTTP, publishes an invoice, keeps
a total for each customer, or reads a secret. hostler.toml has the grants.")]
pub(super) struct Args {
    /// The language
    #[arg(long, value_name = "LANGUAGE")]
    lang: Language,

    /// What the handler does besides answering, separated by commas
    #[arg(long, value_name = "PARTS", value_delimiter = ',')]
    with: Vec<Part>,

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

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    if let Some(why) = args.lang.objection(&args.name) {
        let what = format!(
            "a project in this language cannot be `{}`: {why}",
            args.name
        );
        let hint = format!("give another name, such as {}-handler", args.name);
        return Err(Failure::new(Exit::Usage, what).hint(hint));
    }
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
    let files = project::files(args.lang, &args.name, &args.with);
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
    let (test, build) = args.lang.commands();
    let handler = args.lang.handler(&args.name);
    // The handler needs its grants.
    let config = match args.with.is_empty() {
        true => "",
        false => " --config hostler.toml",
    };
    output::people(&format!(
        "\nNext:\n  cd {}\n  {test}\n  {build}\n  hostler test {handler} cases.toml{config}\n  hostler dev\n",
        args.name
    ));
    Ok(Exit::Ok)
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
