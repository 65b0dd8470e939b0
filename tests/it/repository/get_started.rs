//! The pages of Get started are followed to the letter: their command blocks are taken from the pages and run.
//!
//! A block of commands names its runs in the line before: `<!-- run: rust go -->`. The blocks of one run are one
//! script, in the order of the pages. `make dist-test` runs those that need a package.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use hostler_tests::host::{binary, cache_home};
use hostler_tests::redis::RedisOptions;

use crate::cli::cli_new::repository;

/// The pages, in the order in which they are read.
const PAGES: [&str; 4] = ["install", "first-handler", "your-redis", "production"];

/// The runs that need a package or other tools: `packaging/test` has a file for each.
const OF_PACKAGES: [&str; 9] = [
    "archive",
    "debian",
    "image",
    "kubernetes",
    "python",
    "source",
    "systemd",
    "ts",
    "wheel",
];

/// The scripts, by run.
fn scripts() -> BTreeMap<String, String> {
    let mut scripts: BTreeMap<String, String> = BTreeMap::new();
    for page in PAGES {
        let path = repository().join(format!("docs/start/{page}.md"));
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let mut runs = None;
        while let Some(line) = lines.next() {
            if let Some(named) = line.strip_prefix("<!-- run: ") {
                runs = named.strip_suffix(" -->");
            } else if line.starts_with("```sh") {
                let runs = runs
                    .take()
                    .unwrap_or_else(|| unreachable!("{page}: a block without a run"));
                let block = lines.by_ref().take_while(|line| *line != "```");
                let block: String = block.map(|line| format!("{line}\n")).collect();
                for run in runs.split(' ') {
                    scripts.entry(run.to_owned()).or_default().push_str(&block);
                }
            }
        }
    }
    scripts
}

/// Run a script in a new folder, as the shell of a user would; `variables` are set.
fn follow(
    run: &str,
    variables: &[(&str, &str)],
    prepared: impl FnOnce(&std::path::Path),
) -> String {
    let home = tempfile::tempdir().unwrap();
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(binary(), bin.join("hostler")).unwrap();
    let work = home.path().join("work");
    std::fs::create_dir(&work).unwrap();
    prepared(&work);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-eux", "-c", &scripts()[run]])
        .current_dir(&work)
        .env("PATH", path)
        .env("XDG_CACHE_HOME", cache_home())
        .env("TOOLCHAINS", repository().join(".toolchains"))
        .env_remove("CARGO_TARGET_DIR")
        // The files that the examples have built serve here, too.
        .env(
            "CARGO_BUILD_BUILD_DIR",
            repository().join("guest-examples/rust/target"),
        )
        .env_remove("MAKEFLAGS")
        .env_remove("LANG")
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{run}: {stdout}\n{stderr}");
    stdout
}

/// What the pages of the languages end with: two messages, of which one was dropped.
fn one_was_dropped(printed: &str) {
    assert!(printed.contains("\"acked\":1"), "{printed}");
    assert!(printed.contains("{\"dropped\":1}"), "{printed}");
    assert!(printed.contains("not an order"), "{printed}");
}

#[test]
fn every_block_is_run_by_some_test() {
    let here = ["go", "redis", "rust", "shell"];
    let known: BTreeSet<String> = here
        .iter()
        .chain(&OF_PACKAGES)
        .map(ToString::to_string)
        .collect();
    assert_eq!(scripts().into_keys().collect::<BTreeSet<_>>(), known);
    let tests = repository().join("packaging/test");
    let mut listed = String::new();
    for entry in std::fs::read_dir(tests).unwrap() {
        listed.push_str(&std::fs::read_to_string(entry.unwrap().path()).unwrap());
    }
    for run in OF_PACKAGES {
        assert!(listed.contains(&format!("follow {run}")), "{run}");
    }
}

#[test]
fn the_first_handler_in_rust_as_the_page_says() {
    one_was_dropped(&follow("rust", &[], |_| {}));
}

#[test]
fn your_redis_as_the_page_says() {
    let redis = RedisOptions::default().tcp().start();
    let url = format!("redis://127.0.0.1:{}", redis.port());
    let handler =
        repository().join("guest-examples/rust/target/wasm32-wasip2/release/orders_handler.wasm");
    let printed = follow("redis", &[("REDIS_URL", &url)], |work| {
        std::fs::copy(handler, work.join("handler.wasm")).unwrap();
    });
    assert!(printed.contains("\"attempts\":2"), "{printed}");
}

#[test]
fn completions_and_manual_pages_as_the_page_says() {
    let home = tempfile::tempdir().unwrap();
    follow("shell", &[("HOME", home.path().to_str().unwrap())], |_| {});
    for file in [
        "bash-completion/completions/hostler",
        "man/man1/hostler-run.1",
    ] {
        assert!(
            home.path().join(".local/share").join(file).is_file(),
            "{file}"
        );
    }
}

mod long {
    use super::*;

    #[test]
    fn the_first_handler_in_go_as_the_page_says() {
        one_was_dropped(&follow("go", &[], |_| {}));
    }
}
