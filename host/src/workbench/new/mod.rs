//! A project for a handler, ready to build and to test.

mod project;
mod templates;

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use crate::config;
use crate::workbench::{Error, test};

use project::Files;
pub use templates::{Choice, Engine, Language, Part, World};

/// The longest name of a project.
const NAME_MAX: usize = 64;

/// A project that is asked for.
#[derive(Clone, Debug)]
pub struct Project {
    /// Its name, and that of its folder.
    pub name: String,
    /// The language.
    pub lang: Language,
    /// What the handler is made for.
    pub world: World,
    /// What it does besides answering.
    pub with: Vec<Part>,
    /// It acks every message.
    pub minimal: bool,
    /// It has the bindings of the WIT alone, without the SDK of the language.
    pub raw: bool,
}

/// Check a name: every language's package manager must accept it.
///
/// # Errors
/// One would not.
pub fn checked_name(text: &str) -> Result<String, &'static str> {
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

impl Project {
    /// Write its files into a new folder. Returns their paths.
    ///
    /// # Errors
    /// There is no such project, the folder is there, or a file cannot be written.
    pub fn write(&self) -> Result<Vec<PathBuf>, Error> {
        if let Some(why) = self.lang.objection(&self.name) {
            return Err(Error::usage_with(
                format_args!(
                    "a project in this language cannot be `{}`: {why}",
                    self.name
                ),
                format!("give another name, such as {}-handler", self.name),
            ));
        }
        let mut files = with_schemas(self.files()?);
        files.insert("AGENTS.md", self.agents().into_bytes());
        let folder = PathBuf::from(&self.name);
        if let Err(error) = fs::create_dir(&folder) {
            return Err(match error.kind() {
                ErrorKind::AlreadyExists => Error::usage_with(
                    format_args!("{} is there already", self.name),
                    "give another name: files are never overwritten",
                ),
                _ => Error::unwritten(&folder)(error),
            });
        }
        for (path, content) in &files {
            let path = folder.join(path);
            let dir = path.parent().unwrap_or(&folder);
            fs::create_dir_all(dir)
                .and_then(|()| fs::write(&path, content))
                .map_err(Error::unwritten(&path))?;
        }
        Ok(files.keys().map(|path| folder.join(path)).collect())
    }

    /// The commands that come next, from the folder in which it was written.
    pub fn next(&self) -> Vec<String> {
        let mut next = vec![format!("cd {}", self.name)];
        // The tests of these run the component.
        let tests_component = !self.raw && matches!(self.lang, Language::Js | Language::Ts);
        let has_tests = self.world == World::Hostler && !self.minimal && !tests_component;
        next.extend(self.lang.before_build(has_tests).map(str::to_owned));
        next.push(self.lang.build(self.world).to_owned());
        let handler = self.lang.handler(self.world, &self.name);
        next.push(format!("hostler test {handler} cases.toml"));
        next.push("hostler dev".to_owned());
        next
    }

    /// How to build, test and run it, for a coding agent.
    fn agents(&self) -> String {
        let next = self.next();
        // Those between the change of the folder and `hostler dev`, which does not end.
        let commands = next[1..next.len() - 1].join("\n    ");
        let queue = if self.minimal { &self.name } else { "orders" };
        include_str!("AGENTS.md")
            .replace("NAME", &self.name)
            .replace("COMMANDS", &commands)
            .replace("HANDLER", &self.lang.handler(self.world, &self.name))
            .replace("QUEUE", queue)
    }

    fn files(&self) -> Result<Files, Error> {
        let (lang, world) = (self.lang, self.world);
        if world == World::Hostler {
            let template = lang.template();
            return Ok(match template.filter(|_| !self.raw) {
                Some(template) => {
                    project::with_sdk(lang, template, &self.name, &self.with, self.minimal)
                }
                None if self.minimal && template.is_some() => {
                    let what = "a project without the SDK is not minimal";
                    return Err(Error::usage_with(what, "leave out `--minimal`"));
                }
                None if self.minimal => project::minimal(lang, &self.name),
                None => project::files(lang, &self.name, &self.with),
            });
        }
        let word = world.word();
        if self.minimal || self.raw || !self.with.is_empty() {
            return Err(Error::usage(format_args!(
                "--world {word} has one project, without --minimal, --with and --raw"
            )));
        }
        if let Some(files) = world.project(lang) {
            return Ok(project::project(files, &self.name));
        }
        let having = Language::ALL.iter();
        let having = having.filter(|lang| world.project(**lang).is_some());
        let names: Vec<_> = having.map(|lang| lang.word()).collect();
        Err(Error::usage_with(
            format_args!("--world {word} has no project in {}", lang.word()),
            format!("it has one in: {}", names.join(", ")),
        ))
    }
}

/// The same files with the schemas of the two that are written by hand, which name them in their first line:
/// editors then complete and check what this version of hostler reads.
fn with_schemas(mut files: Files) -> Files {
    let written = [
        (
            "hostler.toml",
            "schema/hostler.schema.json",
            config::file_schema as fn() -> _,
        ),
        ("cases.toml", "schema/cases.schema.json", test::table_schema),
    ];
    for (path, schema, made) in written {
        if let Some(text) = files.get_mut(path) {
            let line = format!("#:schema {schema}\n");
            text.splice(..0, line.into_bytes());
            files.insert(schema, format!("{:#}\n", made()).into_bytes());
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_project_says_how_an_agent_builds_tests_and_runs_it() {
        let kinds = [(false, false), (true, false), (false, true)];
        let mut said = 0;
        for (lang, world) in Language::ALL
            .iter()
            .flat_map(|lang| World::ALL.iter().map(move |world| (*lang, *world)))
        {
            for (minimal, raw) in kinds {
                let name = "parcel-desk".to_owned();
                let with = Vec::new();
                let project = Project {
                    name,
                    lang,
                    world,
                    with,
                    minimal,
                    raw,
                };
                let Ok(files) = project.files() else { continue };
                let agents = project.agents();
                let handler = lang.handler(world, "parcel-desk");
                let config = String::from_utf8_lossy(&files["hostler.toml"]);
                assert!(
                    config.contains(&format!("handler = \"{handler}\"")),
                    "{config}"
                );
                let (_, key) = config.split_once("key = \"").unwrap();
                let key = key.split('"').next().unwrap();
                for line in [
                    lang.build(world).to_owned(),
                    format!("hostler test {handler} cases.toml"),
                    format!("hostler invoke {handler} --body '{{}}'"),
                    format!("hostler dlq groups {key}"),
                ] {
                    assert!(
                        agents.contains(&format!("    {line}\n")),
                        "{lang:?}: {line}: {agents}"
                    );
                }
                said += 1;
            }
        }
        assert!(said > 25, "{said}");
    }

    #[test]
    fn only_names_that_every_package_manager_accepts_are_accepted() {
        for good in ["a", "billing", "parcel-desk-2"] {
            assert_eq!(checked_name(good).as_deref(), Ok(good));
        }
        for bad in ["", "Billing", "2nd", "-a", "a-", "a_b", "a/b", "../a", "ä"] {
            assert!(checked_name(bad).is_err(), "{bad}");
        }
        assert!(checked_name(&"a".repeat(65)).is_err());
    }
}
