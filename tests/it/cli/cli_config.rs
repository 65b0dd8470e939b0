//! `check --config`: all settings, and the source of each.

use std::path::PathBuf;

use hostler_tests::command::{end, hostler, run};
use tempfile::TempDir;

struct Configuration {
    _dir: TempDir,
    path: PathBuf,
}

impl Configuration {
    /// This text, and the handler that it names.
    fn of(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let handler = dir.path().join("billing.wasm");
        std::fs::write(&handler, "").unwrap();
        let path = dir.path().join("orders.toml");
        let text = text.replace("billing.wasm", handler.to_str().unwrap());
        std::fs::write(&path, text).unwrap();
        Self { _dir: dir, path }
    }

    fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

const ORDERS: &str = "\
redis = \"redis://app:hunter2@db:6379/0\"
stream = \"orders\"
group = \"billing\"
handler = \"billing.wasm\"
max_deliveries = 5
memory = \"32MiB\"

[dead_letter]
key = \"orders:dead\"
";

#[test]
fn check_shows_each_setting_with_its_source_and_no_secrets() {
    let file = Configuration::of(ORDERS);
    let mut command = hostler(["check", "--config", file.path(), "--reuse", "8"]);
    let ended = end(command.env("HOSTLER_CONCURRENCY", "4")).ok();
    assert_eq!(ended.stderr, "");
    let at = |n: u32| format!("{}:{n}", file.path());
    let lines = ended.stdout.lines();
    let lines: Vec<Vec<&str>> = lines.map(|l| l.split_whitespace().collect()).collect();
    for expected in [
        ["redis", "redis://app:***@db:6379/0", &at(1)],
        ["memory", "32MiB", &at(6)],
        ["dead_letter.key", "orders:dead", &at(9)],
        ["concurrency", "4", "HOSTLER_CONCURRENCY"],
        ["reuse", "8", "--reuse"],
        ["min_idle", "30s", "default"],
        ["admin", "-", "default"],
    ] {
        let mut lines = lines.iter();
        let line = lines.find(|line| line.first() == expected.first());
        assert_eq!(line.unwrap()[..3], expected);
    }
}

#[test]
fn check_shows_the_same_as_json() {
    let file = Configuration::of(ORDERS);
    let json = run(["check", "--config", file.path(), "--json"])
        .ok()
        .json();
    assert_eq!(json["ok"], true);
    assert_eq!(json["problems"].as_array().unwrap().len(), 0);
    let settings = json["settings"].as_array().unwrap();
    let setting = |key: &str| settings.iter().find(|s| s["key"] == key).unwrap();
    assert_eq!(setting("max_deliveries")["value"], "5");
    assert_eq!(setting("on_cap")["source"], "default");
    assert!(setting("list")["value"].is_null());
    assert!(!json.to_string().contains("hunter2"));
}

#[test]
fn a_variable_can_name_the_file() {
    let file = Configuration::of(ORDERS);
    let mut command = hostler(["check", "--json"]);
    let ended = end(command.env("HOSTLER_CONFIG", file.path())).ok();
    assert_eq!(ended.json()["ok"], true);
}

#[test]
fn check_shows_every_problem_with_its_line_also_as_json() {
    let file = Configuration::of(&format!("max_delivery = 5\nmin_idle = 30\n{ORDERS}"));
    let ended = run(["check", "--config", file.path(), "--json"]);
    assert_eq!(ended.code, 64);
    let at = |n: u32| format!("{}:{n}", file.path());
    assert_eq!(
        ended.stderr,
        format!(
            "error: the configuration has 2 problems\n\
            \x20 {}: unknown key `max_delivery`\n\
            \x20   hint: did you mean `max_deliveries`?\n\
            \x20 {}: `min_idle`: `30` has no unit\n\
            \x20   hint: write `30s` for seconds, or `30ms` for milliseconds\n",
            at(1),
            at(2)
        )
    );
    let json = ended.json();
    assert_eq!(json["ok"], false);
    assert_eq!(json["problems"][0]["source"], at(1));
    assert_eq!(
        json["problems"][1]["hint"],
        "write `30s` for seconds, or `30ms` for milliseconds"
    );
}

#[test]
fn a_syntax_error_shows_its_line_and_no_other_problem() {
    // The text after a missing quote or bracket looks wrong as well.
    for (line, right, broken) in [
        (1, "db:6379/0\"", "db:6379/0"),
        (1, "redis = \"", "redis = "),
        (3, "\"billing\"", "billing\""),
        (8, "[dead_letter]", "[dead_letter"),
    ] {
        let file = Configuration::of(&ORDERS.replace(right, broken));
        for flags in [&[][..], &["--max-deliveries", "3"]] {
            let ended = run(["check", "--config", file.path()].iter().chain(flags));
            assert_eq!(ended.code, 64);
            let error = format!("error: {}:{line}: ", file.path());
            assert!(ended.stderr.starts_with(&error), "{ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
            assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
        }
    }
}

#[test]
fn a_configuration_whose_handler_is_missing_is_not_right() {
    let file = Configuration::of(&format!("{ORDERS}\n[dev]\nbuild = \"make\"\n"));
    let handler = file.path.with_file_name("billing.wasm");
    run(["check", "--config", file.path()]).ok();
    std::fs::remove_file(&handler).unwrap();
    let ended = run(["check", "--config", file.path()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (64, ""), "{ended:?}");
    let (path, handler) = (file.path(), handler.display());
    let error = format!(
        "error: {path}:4: `handler`: cannot read {handler}: No such file or directory (os error 2)\n\
         hint: build it: make\n"
    );
    assert_eq!(ended.stderr, error);
    let json = run(["check", "--config", path, "--json"]);
    assert_eq!(json.code, 64);
    assert_eq!(json.json()["ok"], false);
    assert_eq!(json.json()["problems"][0]["source"], format!("{path}:4"));
}
