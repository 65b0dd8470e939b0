//! The files that people write: their JSON Schemas accept what hostler reads, and refuse what it refuses.
//! Every TOML of the docs and of the examples passes.

use std::path::{Path, PathBuf};

use hostler_tests::command::{end, hostler, run};
use jsonschema::Validator;
use serde_json::Value as Json;

use crate::cli::cli_new::repository;

struct Schemas {
    hostler: Validator,
    cases: Validator,
}

impl Schemas {
    fn printed() -> Self {
        let printed = |which| {
            let schema: Json =
                serde_json::from_str(&run(["config", "schema", which]).ok().stdout).unwrap();
            jsonschema::validator_for(&schema).unwrap()
        };
        Self {
            hostler: printed("hostler"),
            cases: printed("cases"),
        }
    }

    /// The problems of a file, by its schema. A table of cases is known by its content.
    fn problems(&self, text: &str) -> Vec<String> {
        let value: toml::Value = toml::from_str(text).unwrap();
        let schema = match value.get("case") {
            Some(_) => &self.cases,
            None => &self.hostler,
        };
        let value = serde_json::to_value(value).unwrap();
        let problems = schema.iter_errors(&value);
        problems
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect()
    }
}

/// The files below a folder with one of these names, or this ending. Folders of builds are left out.
fn files(folder: &Path, is_wanted: &dyn Fn(&str) -> bool) -> Vec<PathBuf> {
    let skipped = ["target", "node_modules", "build", ".toolchains"];
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() && !skipped.contains(&name) {
            found.extend(files(&path, is_wanted));
        } else if path.is_file() && is_wanted(name) {
            found.push(path);
        }
    }
    found
}

/// The blocks of TOML in a page. Blocks of other tools say so in their first line.
fn blocks(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut open: Option<(usize, String)> = None;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        match &mut open {
            None if line.trim() == "```toml" => open = Some((indent, String::new())),
            None => {}
            Some(_) if line.trim() == "```" => found.extend(open.take().map(|(_, text)| text)),
            Some((indent, text)) => {
                text.push_str(line.get(*indent..).unwrap_or_default());
                text.push('\n');
            }
        }
    }
    found
}

#[test]
fn every_file_of_the_examples_and_every_block_of_the_docs_fits_the_schemas() {
    let schemas = Schemas::printed();
    let mut checked = 0;
    let mut check = |text: &str, place: &Path| {
        let problems = schemas.problems(text);
        assert!(
            problems.is_empty(),
            "{}: {problems:#?}\n{text}",
            place.display()
        );
        checked += 1;
    };
    let of_hostler = |name: &str| ["hostler.toml", "cases.toml"].contains(&name);
    for folder in ["guest-examples", "packaging", "tests"] {
        for path in files(&repository().join(folder), &of_hostler) {
            check(&std::fs::read_to_string(&path).unwrap(), &path);
        }
    }
    for folder in ["docs", "guest-examples", "packaging"] {
        for path in files(&repository().join(folder), &|name| name.ends_with(".md")) {
            for block in blocks(&std::fs::read_to_string(&path).unwrap()) {
                check(&block, &path);
            }
        }
    }
    assert!(checked > 60, "{checked}");
}

#[test]
fn a_project_names_the_schemas_of_its_files() {
    let schemas = Schemas::printed();
    let home = tempfile::tempdir().unwrap();
    let new = [
        "new",
        "--lang",
        "rust",
        "--with",
        "http,publish,key-value,secrets",
        "shop",
    ];
    end(hostler(new).current_dir(home.path())).ok();
    let project = home.path().join("shop");
    for (file, which) in [("hostler.toml", "hostler"), ("cases.toml", "cases")] {
        let text = std::fs::read_to_string(project.join(file)).unwrap();
        let schema = text
            .lines()
            .next()
            .unwrap()
            .strip_prefix("#:schema ")
            .unwrap();
        let kept = std::fs::read_to_string(project.join(schema)).unwrap();
        assert_eq!(kept, run(["config", "schema", which]).ok().stdout);
        assert_eq!(schemas.problems(&text), [""; 0], "{file}");
    }
}

#[test]
fn a_new_configuration_has_every_setting_and_is_right() {
    let schemas = Schemas::printed();
    let home = tempfile::tempdir().unwrap();
    let init = |arguments: &[&str]| {
        let mut command = hostler(["config", "init"]);
        end(command.args(arguments).current_dir(home.path()))
    };
    assert_eq!(init(&[]).ok().stdout, "hostler.toml\n");
    std::fs::write(home.path().join("handler.wasm"), "").unwrap();
    let mut check = hostler(["check", "--config", "hostler.toml"]);
    end(check.current_dir(home.path())).ok();

    // All settings at once do not go together, but each has the right form.
    let text = init(&["-"]).ok().stdout;
    let all: String = text
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(set) if !set.starts_with(' ') => format!("{set}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    assert_eq!(schemas.problems(&all), [""; 0]);
    let set: toml::Table = toml::from_str(&all).unwrap();
    let schema: Json = serde_json::from_str(&run(["config", "schema"]).ok().stdout).unwrap();
    let known = schema["properties"].as_object().unwrap().keys();
    assert!(known.eq(set.keys()), "{set:#?}");

    let again = init(&[]);
    assert_eq!(again.code, 64, "{again:?}");
    assert!(again.stderr.contains("is there already"), "{again:?}");
    let given = init(&["-", "--list", "jobs", "--reliable", "--concurrency", "4"])
        .ok()
        .stdout;
    for line in [
        "list = \"jobs\"",
        "reliable = true",
        "concurrency = 4",
        "#stream = \"orders\"",
    ] {
        assert!(given.lines().any(|found| found == line), "{line}: {given}");
    }
    let wrong = init(&["-", "--min-idle", "30"]);
    assert_eq!(wrong.code, 64);
    assert!(
        wrong.stderr.contains("`min_idle` `30` has no unit"),
        "{wrong:?}"
    );
    let secret = init(&["-", "--redis", "redis://:hunter2@db"]);
    assert_eq!(secret.code, 64);
    assert!(!format!("{secret:?}").contains("hunter2"), "{secret:?}");
}

/// Lines, and whether hostler reads them.
const LINES: &[(&str, bool)] = &[
    ("min_idle = \"30s\"", true),
    ("min_idle = \"1h 30m\"", true),
    ("min_idle = \"1.5s\"", true),
    ("min_idle = \"250 msec\"", true),
    ("min_idle = 30", false),
    ("min_idle = \"30\"", false),
    ("min_idle = \"30 parsecs\"", false),
    ("min_idel = \"30s\"", false),
    ("memory = \"64MiB\"", true),
    ("memory = \"64mib\"", true),
    ("memory = \"65_536 kB\"", true),
    ("memory = \"64\"", false),
    ("memory = \"6.4MiB\"", false),
    ("memory = \"64 XiB\"", false),
    ("concurrency = 16", true),
    ("concurrency = 0", false),
    ("concurrency = 4097", false),
    ("concurrency = \"16\"", false),
    ("queue.max_length = 9007199254740991", true),
    ("queue.max_length = 9007199254740992", false),
    ("backoff.factor = 1.5", true),
    ("backoff.factor = 2", true),
    ("backoff.factor = 0.5", false),
    ("snapshot = false", true),
    ("snapshot = \"no\"", false),
    ("retention = \"acked\"", true),
    ("retention = \"maxlen:1_000\"", true),
    ("retention = \"maxlen:0\"", false),
    ("retention = \"all\"", false),
    ("schedule.a = { cron = \"30 2 * * *\", catch_up = 3 }", true),
    (
        "schedule.a = { cron = \"@daily\", catch_up = \"none\" }",
        true,
    ),
    (
        "schedule.a = { cron = \"@daily\", catch_up = \"all\" }",
        false,
    ),
    (
        "schedule.a = { cron = \"@daily\", overlap = \"wait\" }",
        false,
    ),
    ("schedule.a = { zone = \"UTC\" }", false),
    ("group_start = 0", true),
    ("group_start = \"$\"", true),
    ("group_start = 1", false),
    ("on_fault = \"requeue\"", true),
    ("on_fault = \"retry\"", false),
    ("canary = \"0.5%\"", true),
    ("canary = \"half\"", false),
    ("breaker = \"off\"", true),
    ("breaker = \"50%\"", true),
    ("breaker = \"50\"", false),
    ("admin = 9400", true),
    ("admin = \":9400\"", true),
    ("admin = \"127.0.0.1:9400\"", true),
    ("admin = \"somewhere\"", false),
    ("handler_digest = \"sha256:zz\"", false),
    ("program.args = [\"-v\"]", true),
    ("program.args = [1]", false),
    ("program.exit_codes = { 3 = \"drop\" }", true),
    ("program.exit_codes = { 3 = \"die\" }", false),
    ("program.exit_codes = { three = \"drop\" }", false),
    ("program.stdout = \"log\"", true),
    ("program.stdout = \"file\"", false),
    ("grant.config = { region = \"eu\", size = 3 }", true),
    ("grant.config = { region = [] }", false),
    ("grant.secret.a = { file = \"/a\" }", true),
    (
        "grant.secret.a = { file = \"/a\", variable = \"A\" }",
        false,
    ),
    ("grant.secret.a = { path = \"/a\" }", false),
    ("grant.secret.a = \"hunter2\"", false),
    (
        "grant.http = [{ host = \"a.example\", port = 8443, methods = [\"GET\"] }]",
        true,
    ),
    (
        "grant.http = [{ host = \"a.example\", headers.x = \"y\", timeout = \"1s\" }]",
        true,
    ),
    (
        "grant.http = [{ host = \"a.example\", connections = 0 }]",
        false,
    ),
    ("grant.http = [{ path = \"/\" }]", false),
    (
        "grant.http = [{ host = \"a.example\", metods = [\"GET\"] }]",
        false,
    ),
    (
        "grant.http = [{ host = \"a.example\", scheme = \"ftp\" }]",
        false,
    ),
    ("grant.tcp = [{ host = \"db.example\", port = 5432 }]", true),
    ("grant.tcp = [{ host = \"db.example\" }]", false),
    (
        "grant.files = [{ path = \"/usr/lib\", at = \"/lib\" }]",
        true,
    ),
    ("grant.files = [{ path = \"lib\", at = \"/lib\" }]", false),
    (
        "grant.publish = { a = \"stream:a\", b = { to = \"list:b\", codec = \"json\" } }",
        true,
    ),
    ("grant.publish = { a = \"queue:a\" }", false),
    ("grant.publish = { a = { too = \"stream:a\" } }", false),
    (
        "grant.key-value = { prefix = \"{orders}:kv:\", commit = \"checked\" }",
        true,
    ),
    ("grant.key-value = { commit = \"checked\" }", false),
    (
        "grant.key-value = { prefix = \"{orders}:kv:\", commit = \"first\" }",
        false,
    ),
    ("selftest = [{ body = \"a\", expect = \"drop\" }]", true),
    ("selftest = [{ expect = \"drop\" }]", false),
    ("selftest = [{ body = \"a\", expect = \"fault\" }]", false),
];

#[test]
fn the_schema_and_hostler_agree_on_every_line() {
    let schemas = Schemas::printed();
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("h.wasm"), "").unwrap();
    let path = home.path().join("hostler.toml");
    for (line, is_right) in LINES {
        let file = format!(
            "{line}\nredis = \"embedded\"\nstream = \"orders\"\ngroup = \"g\"\nhandler = \"h.wasm\"\n[dead_letter]\nkey = \"orders:dead\"\n"
        );
        std::fs::write(&path, &file).unwrap();
        let mut check = hostler(["check", "--json", "--config", "hostler.toml"]);
        let checked = end(check.current_dir(home.path()));
        let checked: Json = serde_json::from_str(&checked.stdout).unwrap();
        let key = line.split([' ', '.']).next().unwrap();
        let problems: Vec<&Json> = checked["problems"].as_array().unwrap().iter().collect();
        let is_read = !problems.iter().any(|problem| {
            let of_line = problem["source"]
                .as_str()
                .is_some_and(|s| s.ends_with("hostler.toml:1"));
            of_line && problem["what"].as_str().unwrap().contains(key)
        });
        assert_eq!(is_read, *is_right, "{line}: {problems:?}");
        let problems = schemas.problems(&file);
        assert_eq!(problems.is_empty(), *is_right, "{line}: {problems:?}");
    }
}

#[test]
fn the_schema_of_cases_names_what_is_wrong() {
    let schemas = Schemas::printed();
    for (case, is_right) in [
        ("outcome = \"ack\"", true),
        (
            "outcome = \"ack\"\nkey-value = { a = \"1\" }\nwritten = []",
            true,
        ),
        (
            "outcome = \"ack\"\npublished = [{ to = \"a\", json = { b = [1, true] } }]",
            true,
        ),
        ("outcome = \"nack\"", false),
        ("body = \"x\"", false),
        ("outcome = \"ack\"\nattempt = 0", false),
        ("outcome = \"ack\"\nbdy = \"x\"", false),
        ("outcome = \"ack\"\nhttp = [{ status = 200 }]", false),
    ] {
        let problems = schemas.problems(&format!("[[case]]\n{case}\n"));
        assert_eq!(problems.is_empty(), is_right, "{case}: {problems:?}");
    }
}
