//! `hostler new`: a project in each language is made, tested, built and run as its user would do it.

use std::path::{Path, PathBuf};
use std::process::Command;

use hostler_tests::command::{end, hostler};
use serde_json::Value as Json;

use crate::language_table::for_every_language;

for_every_language!(a_project_builds_and_passes_at_once);

/// No example has this name.
const NAME: &str = "parcel-desk";

async fn a_project_builds_and_passes_at_once(language: &str) {
    let home = tempfile::tempdir().unwrap();
    let made = end(hostler(["new", "--lang", language, NAME]).current_dir(home.path())).ok();
    let project = home.path().join(NAME);
    for file in made.stdout.lines() {
        assert!(home.path().join(file).is_file(), "{file}");
    }
    let (handler, test, build) = match language {
        "rust" => (
            "target/wasm32-wasip2/release/parcel_desk.wasm",
            "cargo test --release",
            "cargo build --release --target wasm32-wasip2",
        ),
        "js" | "ts" => ("handler.wasm", "npm install && npm test", "npm run build"),
        _ => ("handler.wasm", "make test", "make"),
    };
    for command in [test, build, &format!("hostler test {handler} cases.toml")] {
        assert!(made.stderr.contains(command), "{}", made.stderr);
    }
    shell(&project, test);
    shell(&project, build);

    // The table that comes with it, and one message more.
    let handler = match language {
        "rust" => repository().join("guest-examples/rust").join(handler),
        _ => project.join(handler),
    };
    let test = |arguments: &[&str]| {
        let mut command = hostler(["test", handler.to_str().unwrap(), "cases.toml"]);
        command
            .args([
                "--timeout",
                "50s",
                "--cpu",
                "50s",
                "--limit-compile-time",
                "10m",
            ])
            .args(arguments);
        end(command.current_dir(&project))
    };
    let tested = test(&["--json"]).ok();
    let last = tested.stdout.lines().last().unwrap();
    let sum: Json = serde_json::from_str(last).unwrap();
    assert_eq!(sum["failed"], 0, "{tested:?}");
    assert!(sum["passed"].as_u64().unwrap() >= 8, "{tested:?}");
    test(&["--reuse", "1000"]).ok();

    let checked = end(hostler(["check", "--config", "hostler.toml"]).current_dir(&project)).ok();
    assert!(checked.stdout.contains(NAME), "{checked:?}");
    // `hostler dev` builds it in the same way.
    let dev = |line: &&str| line.starts_with("dev.build") && line.contains(build);
    assert!(checked.stdout.lines().any(|line| dev(&line)), "{checked:?}");

    // Nothing is written over.
    let again = end(hostler(["new", "--lang", language, NAME]).current_dir(home.path()));
    assert_eq!(again.code, 64, "{again:?}");
    assert!(again.stderr.contains("is there already"), "{again:?}");
}

/// Run a line of what `hostler new` says, with the tools that the examples were built with.
fn shell(project: &Path, line: &str) {
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(project)
        // The dependencies are those of the example: compiled once.
        .env(
            "CARGO_TARGET_DIR",
            repository().join("guest-examples/rust/target"),
        )
        .env_remove("MAKEFLAGS")
        .env_remove("LANG")
        .env("TOOLCHAINS", repository().join(".toolchains"))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{line}:\n{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn repository() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().unwrap().to_owned()
}

#[test]
fn a_bad_name_or_language_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for name in ["../escape", "Capital", "-dash"] {
        let ended = end(hostler(["new", "--lang", "c", "--", name]).current_dir(home.path()));
        assert_eq!(ended.code, 64, "{ended:?}");
    }
    let ended = end(hostler(["new", "--lang", "cobol", "payroll"]).current_dir(home.path()));
    assert_eq!(ended.code, 64);
    assert!(
        ended.stderr.contains("python"),
        "it lists the languages: {ended:?}"
    );
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);
}
