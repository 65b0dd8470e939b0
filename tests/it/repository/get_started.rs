//! The commands of README, of the pages of Start and of the pages of Do are followed to the letter: their blocks are
//! taken from the pages and run.
//!
//! A block of commands names its runs in the line before: `<!-- run: rust go -->`. The blocks of one run are one
//! script, in the order of the pages. A block `console` shows what its commands print. A block of TOML that begins with
//! `# NAME.toml` is a file for the runs of its page. `make dist-test` runs those that need a package.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use hostler_tests::host::{binary, cache_home};
use hostler_tests::redis::RedisOptions;

use crate::cli::cli_new::repository;

/// The pages, in the order in which they are read.
const PAGES: [&str; 11] = [
    "README.md",
    "docs/start/install.md",
    "docs/start/first-handler.md",
    "docs/start/your-redis.md",
    "docs/start/production.md",
    "docs/do/call-an-api.md",
    "docs/do/ship-a-version.md",
    "docs/do/why-it-died.md",
    "docs/do/move.md",
    "docs/do/limit-calls.md",
    "docs/do/limit-a-tenant.md",
];

/// The runs that need a package or other tools: `packaging/test` has a file for each.
const OF_PACKAGES: [&str; 10] = [
    "archive",
    "debian",
    "image",
    "kubernetes",
    "python",
    "source",
    "systemd",
    "ts",
    "wheel",
    "wheel-server",
];

/// The blocks of one run.
#[derive(Default)]
struct Script {
    /// Commands of a shell. They mark what the commands of `console` print.
    text: String,
    /// The lines that each command of `console` must print.
    shown: Vec<Vec<String>>,
    /// The files of the pages.
    files: BTreeMap<String, String>,
}

impl Script {
    fn add_console(&mut self, block: &str) {
        for line in block.lines() {
            if let Some(command) = line.strip_prefix("$ ") {
                let marked = format!("echo '{BEGIN}'\n{command}\necho '{END}'\n");
                self.text.push_str(&marked);
                self.shown.push(Vec::new());
            } else {
                let shown = self
                    .shown
                    .last_mut()
                    .expect("a console begins with a command");
                shown.push(line.to_owned());
            }
        }
    }
}

/// Lines around the output of a command that a page shows.
const BEGIN: &str = "-- a command of the page --";
const END: &str = "-- its end --";

/// The scripts, by run.
fn scripts() -> BTreeMap<String, Script> {
    let mut scripts: BTreeMap<String, Script> = BTreeMap::new();
    for page in PAGES {
        let text = std::fs::read_to_string(repository().join(page)).unwrap();
        let mut lines = text.lines();
        let (mut runs, mut of_page, mut files) = (None, BTreeSet::new(), BTreeMap::new());
        while let Some(line) = lines.next() {
            if let Some(named) = line.strip_prefix("<!-- run: ") {
                runs = named.strip_suffix(" -->");
                continue;
            }
            let Some(kind) = line.trim_start().strip_prefix("```") else {
                continue;
            };
            let block = lines.by_ref().take_while(|line| line.trim_start() != "```");
            let block: String = block.fold(String::new(), |mut block, line| {
                writeln!(block, "{line}").unwrap();
                block
            });
            let is_run =
                page.starts_with("docs/start") || runs.is_some() || page.starts_with("docs/do");
            if kind == "toml" {
                if let Some(name) = block
                    .lines()
                    .next()
                    .and_then(|line| line.strip_prefix("# "))
                {
                    files.insert(name.to_owned(), block.clone());
                }
            } else if (kind == "sh" || kind == "console") && is_run {
                let runs = runs
                    .take()
                    .unwrap_or_else(|| unreachable!("{page}: a block without a run"));
                for run in runs.split(' ') {
                    let script = scripts.entry(run.to_owned()).or_default();
                    match kind {
                        "console" => script.add_console(&block),
                        _ => script.text.push_str(&block),
                    }
                    of_page.insert(run.to_owned());
                }
            }
        }
        for run in of_page {
            let script = scripts.get_mut(&run).unwrap();
            script.files.extend(files.clone());
        }
    }
    scripts
}

/// A line without what differs from run to run: ids of entries, times, digests, and the width of columns.
fn plain(line: &str) -> String {
    let is_id = |word: &str| {
        let parts = word.split_once('-');
        parts.is_some_and(|(time, _)| time.len() > 9 && time.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_time = |word: &str| word.len() == 20 && word.starts_with("20") && word.ends_with('Z');
    let is_digest = |word: &str| {
        let digest = word.strip_prefix("sha256:").unwrap_or(word);
        digest.len() > 11 && digest.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let words = line.split_whitespace().map(|word| match word {
        _ if is_id(word) => "ID",
        _ if is_time(word) => "TIME",
        _ if is_digest(word) => "DIGEST",
        _ => word,
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Whether lines are those that a page shows. `...` stands for any lines, and at the end of a line for its rest.
fn fits(shown: &[String], printed: &[String]) -> bool {
    match shown.split_first() {
        None => printed.iter().all(String::is_empty),
        Some((line, rest)) if line == "..." => {
            (0..=printed.len()).any(|skipped| fits(rest, &printed[skipped..]))
        }
        Some((line, rest)) => printed.split_first().is_some_and(|(found, more)| {
            let is_same = match line.strip_suffix(" ...") {
                Some(begin) => found.starts_with(begin),
                None => line == found,
            };
            is_same && fits(rest, more)
        }),
    }
}

/// Each command of a console printed what its page shows.
fn printed_as_shown(run: &str, script: &Script, stdout: &str) {
    let begin = format!("{BEGIN}\n");
    let outputs = stdout.split(&begin).skip(1);
    let outputs: Vec<&str> = outputs
        .map(|rest| rest.split(END).next().unwrap())
        .collect();
    assert_eq!(outputs.len(), script.shown.len(), "{run}: {stdout}");
    for (shown, output) in script.shown.iter().zip(outputs) {
        let shown: Vec<_> = shown.iter().map(|line| plain(line)).collect();
        let printed: Vec<_> = output.lines().map(plain).collect();
        assert!(
            fits(&shown, &printed),
            "{run}: the page shows {shown:#?}, and this was printed: {printed:#?}"
        );
    }
}

/// Run a script in a new folder, as the shell of a user would; `variables` are set.
fn follow(run: &str, variables: &[(&str, &str)], prepared: impl FnOnce(&Path)) -> String {
    let script = scripts().remove(run).unwrap();
    let home = tempfile::tempdir().unwrap();
    let bin = home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(binary(), bin.join("hostler")).unwrap();
    let work = home.path().join("work");
    std::fs::create_dir(&work).unwrap();
    for (name, text) in &script.files {
        std::fs::write(work.join(name), text).unwrap();
    }
    prepared(&work);
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-eux", "-c", &script.text])
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
    printed_as_shown(run, &script, &stdout);
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
    let here = [
        "charge", "died", "go", "limit", "readme", "redis", "rust", "shell", "ship", "spin",
        "tenant",
    ];
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

/// A component that `make guests-test` builds, or an example, under this name.
fn component(work: &Path, built: &str, name: &str) {
    let folder = repository().join("guest-examples/rust/target/wasm32-wasip2/release");
    std::fs::copy(folder.join(built), work.join(name)).unwrap();
}

#[test]
fn the_commands_of_readme_print_what_it_shows() {
    follow("readme", &[], |_| {});
}

#[test]
fn a_charge_is_tried_again_as_the_page_says() {
    follow("charge", &[], |work| {
        component(work, "orders_charge_handler.wasm", "handler.wasm");
        std::fs::write(work.join("payments-key"), "none").unwrap();
    });
}

#[test]
fn a_version_is_shipped_as_the_page_says() {
    let printed = follow("ship", &[], |work| {
        component(work, "ack.wasm", "handler.wasm");
        component(work, "orders_handler.wasm", "new.wasm");
        let cases = repository().join("guest-examples/rust/cases.toml");
        std::fs::copy(cases, work.join("cases.toml")).unwrap();
    });
    assert!(
        printed.contains("version 1 of orders is sha256:"),
        "{printed}"
    );
    assert!(printed.contains("orders goes back to"), "{printed}");
}

#[test]
fn a_death_is_explained_and_cured_as_the_page_says() {
    follow("died", &[], |work| {
        component(work, "orders_handler.wasm", "handler.wasm");
        component(work, "ack.wasm", "fixed.wasm");
    });
}

#[test]
fn calls_and_tenants_are_limited_as_the_pages_say() {
    for (run, acked) in [("limit", 3), ("tenant", 4)] {
        let printed = follow(run, &[], |work| {
            component(work, "orders_handler.wasm", "handler.wasm");
        });
        assert!(printed.contains(&format!("\"acked\":{acked}")), "{printed}");
    }
}

#[test]
fn a_handler_of_spin_runs_as_the_page_says() {
    let printed = follow("spin", &[], |work| {
        component(work, "orders_spin.wasm", "orders.wasm")
    });
    assert!(printed.contains("fermyon:spin/inbound-redis"), "{printed}");
}

#[test]
fn the_code_of_the_pages_is_code_of_the_examples() {
    let read = |path: &str| std::fs::read_to_string(repository().join(path)).unwrap();
    for (page, kind, example) in [
        ("README.md", "rust", "sdk/rust/template/src/lib.rs"),
        ("docs/do/call-an-api.md", "ts", "jobs/ts/src/charge.ts"),
        (
            "docs/do/call-an-api.md",
            "python",
            "jobs/python/charge/handler.py",
        ),
        ("docs/do/call-an-api.md", "go", "jobs/go/charge/main.go"),
        (
            "docs/do/call-an-api.md",
            "rust",
            "jobs/rust/charge/src/lib.rs",
        ),
    ] {
        let page_text = read(page);
        let (_, block) = page_text.split_once(&format!("```{kind}\n")).unwrap();
        let (block, _) = block.split_once("```").unwrap();
        let source = read(&format!("guest-examples/{example}"));
        // A template has lines of parts between them.
        let mut of_source = source.lines();
        for line in block.lines() {
            let is_there = of_source.any(|found| found == line);
            assert!(is_there, "{page}: {example} has no `{line}` there");
        }
    }
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
