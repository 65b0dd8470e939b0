//! `hostler new --minimal` and `--world`: small projects build as their README says, and pass their tests.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hostler::delivery::outcome::Outcome;
use hostler::sandbox::{Limits, Start};
use hostler_tests::command::{end, hostler};
use hostler_tests::rig::Rig;

use crate::cli::cli_new::{repository, shell};
use crate::sandbox::sandbox_compile::by_child;

/// A new project, with the commands that `hostler new` names.
struct Project {
    folder: PathBuf,
    next: Vec<String>,
    _home: tempfile::TempDir,
}

impl Project {
    /// Those in Rust are built in one place: each has a name of its own.
    fn new(language: &str, name: &str, arguments: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let mut command = hostler(["new", "--lang", language, name]);
        let made = end(command.args(arguments).current_dir(home.path())).ok();
        for file in made.stdout.lines() {
            assert!(home.path().join(file).is_file(), "{file}");
        }
        let (_, next) = made.stderr.split_once("Next:\n").unwrap();
        Self {
            folder: home.path().join(name),
            next: next.lines().map(|line| line.trim().to_owned()).collect(),
            _home: home,
        }
    }

    fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).unwrap()
    }

    /// Run what `hostler new` says, from the build to `hostler test`.
    fn builds_and_passes(&self) {
        let test = self
            .next
            .iter()
            .find(|line| line.starts_with("hostler test "));
        let test = test.unwrap();
        for line in &self.next[1..] {
            match line.starts_with("hostler ") {
                true => break,
                false => {
                    assert!(self.text("README.md").contains(line), "README.md: {line}");
                    shell(&self.folder, line);
                }
            }
        }
        let mut arguments: Vec<&str> = test.split(' ').skip(1).collect();
        let built = match arguments[1].strip_prefix("target") {
            Some(path) => format!(
                "{}/guest-examples/rust/target{path}",
                repository().display()
            ),
            None => arguments[1].to_owned(),
        };
        let config = self.text("hostler.toml");
        assert!(
            config.contains(&format!("handler = \"{}\"", arguments[1])),
            "{config}"
        );
        arguments[1] = &built;
        arguments.extend([
            "--timeout",
            "50s",
            "--cpu",
            "50s",
            "--limit-compile-time",
            "10m",
        ]);
        end(hostler(arguments).current_dir(&self.folder)).ok();
    }
}

fn minimal(language: &str) {
    Project::new(language, "smallest", &["--minimal"]).builds_and_passes();
}

fn world(world: &str, language: &str) {
    let name = format!("{world}-desk");
    Project::new(language, &name, &["--world", world]).builds_and_passes();
}

macro_rules! tests {
    ($module:ident: $($name:ident($($argument:literal),*))*) => {
        mod $module {
            $(#[test]
            fn $name() {
                crate::cli::cli_new_small::$module($($argument),*);
            })*
        }
    };
}

tests!(minimal: rust("rust"));
tests!(world: a_program_in_rust("command", "rust"));

mod long {
    use super::*;

    tests!(minimal: js("js") ts("ts") go("go") python("python") c("c") cpp("cpp") zig("zig"));
    tests!(world: a_program_in_go("command", "go") a_program_in_c("command", "c") a_program_in_cpp("command", "cpp")
        a_program_in_zig("command", "zig") spin("spin", "rust") wasmcloud("wasmcloud", "rust"));

    #[test]
    fn a_go_project_may_have_the_name_of_a_package_or_of_the_language() {
        let home = tempfile::tempdir().unwrap();
        for name in ["fmt", "go"] {
            end(hostler(["new", "--lang", "go", name]).current_dir(home.path())).ok();
            shell(&home.path().join(name), "make && make test");
        }
    }

    #[tokio::test]
    async fn instances_in_go_begin_from_a_snapshot_and_draw_other_random_numbers() {
        let project = Project::new("go", "dice", &["--minimal"]);
        let main = project
            .text("main.go")
            .replace("import (", "import (\n\t\"fmt\"\n\t\"math/rand/v2\"")
            .replace(
                "{ hostler.Handle(handle)",
                "{\n\tfmt.Sprint(rand.Uint64())\n\thostler.Handle(handle)",
            )
            .replace("return nil", "fmt.Println(rand.Uint64())\n\treturn nil")
            .replace(
                "slog.Info(\"handled\", \"bytes\", len(body))",
                "slog.Debug(\"handled\")",
            );
        std::fs::write(project.folder.join("main.go"), main).unwrap();
        shell(&project.folder, "make");
        let settings = by_child(Limits {
            compile_time: Duration::from_secs(600),
            ..Limits::default()
        });
        let mut rig = Rig::file(&project.folder.join("handler.wasm"), &settings);
        let start = rig.sandbox.describe().start.clone();
        assert!(matches!(start, Start::Snapshot { .. }), "{start:?}");
        let mut drawn = BTreeSet::new();
        for _ in 0..3 {
            assert_eq!(rig.run("").await.outcome, Outcome::Ack);
            drawn.extend(rig.lines());
        }
        assert_eq!(drawn.len(), 3, "{drawn:?}");
    }
}

#[test]
fn a_minimal_project_has_a_queue_of_its_name_and_one_case() {
    for language in ["rust", "js", "ts", "python", "go", "c", "cpp", "zig"] {
        let project = Project::new(language, "smallest", &["--minimal"]);
        let config = project.text("hostler.toml");
        for line in ["stream = \"smallest\"", "key = \"smallest:dead\""] {
            assert!(config.contains(line), "{language}: {config}");
        }
        assert_eq!(project.text("cases.toml").matches("[[case]]").count(), 1);
        assert!(project.text("README.md").lines().count() <= 12);
    }
}

#[test]
fn a_handler_with_an_sdk_has_at_most_twelve_lines() {
    let begins_import = ["use ", "import ", "from ", "package "];
    for (language, file) in [
        ("rust", "src/lib.rs"),
        ("js", "src/handler.js"),
        ("ts", "src/handler.ts"),
        ("python", "handler.py"),
        ("go", "main.go"),
    ] {
        for (arguments, lines_max) in [(&[][..], 12), (&["--minimal"], 6)] {
            let text = Project::new(language, "short", arguments).text(file);
            // The tests of Rust stand below the handler.
            let text = text.split("#[cfg(test)]").next().unwrap();
            let mut lines = Vec::new();
            let mut is_import = false;
            for line in text.lines().map(str::trim) {
                let begins = begins_import.iter().any(|word| line.starts_with(word));
                is_import |= begins && (line.ends_with('(') || line.ends_with('{'));
                let is_code = line.contains(char::is_alphanumeric);
                if is_code
                    && !is_import
                    && !begins
                    && !line.starts_with("//")
                    && !line.starts_with("\"\"\"")
                {
                    lines.push(line);
                }
                is_import &= !line.starts_with([')', '}']);
            }
            assert!(
                (1..=lines_max).contains(&lines.len()),
                "{language}: {lines:#?}"
            );
        }
    }
}

#[test]
fn choices_that_no_project_has_are_refused() {
    let home = tempfile::tempdir().unwrap();
    for (arguments, said) in [
        (
            "--lang c --minimal --with http",
            "cannot be used with '--with",
        ),
        (
            "--lang c --world command --minimal",
            "without --minimal, --with and --raw",
        ),
        (
            "--lang go --world command --with http",
            "without --minimal, --with and --raw",
        ),
        (
            "--lang ts --engine quickjs --minimal",
            "a project without the SDK is not minimal",
        ),
        (
            "--lang go --engine quickjs",
            "`--engine` is for JavaScript and TypeScript",
        ),
        (
            "--lang js --world command",
            "it has one in: rust, go, c, cpp, zig",
        ),
        (
            "--lang python --world spin",
            "--world spin has no project in python",
        ),
        ("--lang go --world wasmcloud", "it has one in: rust"),
        (
            "--lang go --world lambda",
            "[possible values: hostler, command, spin, wasmcloud]",
        ),
    ] {
        let mut command = hostler(["new", "a"]);
        let ended = end(command.args(arguments.split(' ')).current_dir(home.path()));
        assert_eq!(ended.code, 64, "{arguments}: {ended:?}");
        assert!(ended.stderr.contains(said), "{arguments}: {ended:?}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}

/// Two projects need a tool that is not installed: both get it, and one folder stays.
#[test]
fn projects_install_a_tool_at_the_same_time() {
    let home = tempfile::tempdir().unwrap();
    let pip = home.path().join("python3");
    std::fs::write(&pip, SLOW_PIP).unwrap();
    shell(home.path(), "chmod +x python3");
    let tools = repository().join("guest-examples/toolchains.mk");
    let tool = Path::new("hostler/toolchains");
    let line = format!(
        "unset TOOLCHAINS; export XDG_DATA_HOME=$PWD/data PATH=\"$PWD:$PATH\" REAL=$(command -v python3)
        one() {{ make -s -f {} \"$PWD/data/{}/$1\" > $2 2>&1; }}
        one {ZIG} first & one {ZIG} second && wait $! && test -x data/{}/{ZIG}",
        tools.display(), tool.display(), tool.display()
    );
    let version = std::fs::read_to_string(&tools).unwrap();
    let (_, version) = version.split_once("ZIG_VERSION := ").unwrap();
    let version = version.lines().next().unwrap();
    shell(home.path(), &line.replace("VERSION", version));
    let installed = std::fs::read_dir(home.path().join("data").join(tool)).unwrap();
    assert_eq!(installed.count(), 1, "no half install stays");
}

const ZIG: &str = "zig-VERSION/ziglang/zig";

/// Stands in for pip: it installs a file, in a second. Everything else is python3.
const SLOW_PIP: &str = r#"#!/bin/sh
case "$*" in
*--version) exit 0 ;;
-m*pip*install*)
  while [ "$1" != --target ]; do shift; done
  mkdir -p "$2/ziglang" && sleep 1 && touch "$2/ziglang/zig" && chmod +x "$2/ziglang/zig" ;;
*) exec "$REAL" "$@" ;;
esac
"#;
