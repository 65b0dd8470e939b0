//! A configuration file that names every setting: those that are set, and all others as comments.

use serde_json::Value as Json;

use crate::config::file_schema::typed;
use crate::config::setting::Definition;
use crate::config::settings::{SECTIONS, find};

/// The longest line of a comment.
const WIDTH: usize = 96;

/// What the file says first.
const HEAD: &str = "\
# The configuration of one queue of hostler. Every setting is here. A line that begins with `#` and a
# key is a default or an example: remove the `#` to set it.
# `hostler check --config FILE` checks the file. `hostler run --config FILE` serves the queue.
# `hostler config schema` prints the JSON Schema of this file for editors.
";

/// The file. `set` has the keys that are set, and their texts. All others are comments: with the default,
/// or with an example.
pub fn commented(set: &[(&str, String)]) -> String {
    let mut file = HEAD.to_owned();
    for section in SECTIONS {
        let line = "-".repeat(WIDTH.saturating_sub(section.title.len() + 6));
        file.push_str(&format!("\n# --- {} {line}\n", section.title));
        for setting in section.settings.iter().filter(|s| !s.is_variable_only()) {
            let text = set.iter().find(|(key, _)| *key == setting.key());
            file.push('\n');
            file.push_str(&entry(*setting, text.map(|(_, text)| text.as_str())));
        }
    }
    file
}

/// One setting: its meaning, and a line that sets it.
fn entry(setting: &dyn Definition, text: Option<&str>) -> String {
    let mut meaning = setting.meaning().to_owned();
    if let Some((low, high)) = setting.range() {
        meaning.push_str(&format!(" The range is {low} to {high}."));
    }
    match setting.default() {
        Some(default) => meaning.push_str(&format!(" Default: {default}.")),
        None => meaning.push_str(&format!(" If it is not set: {}.", setting.unset())),
    }
    let mut entry = comment(&meaning);
    let (mark, value) = match text {
        Some(text) => ("", typed(setting.shape(), text)),
        None => ("#", example(setting)),
    };
    // A table is written with its keys dotted: lines stay independent of each other.
    let value = match toml::Value::try_from(value) {
        Ok(value) => value.to_string(),
        Err(_) => "{}".to_owned(),
    };
    entry.push_str(&format!("{mark}{} = {value}\n", setting.key()));
    entry
}

/// A value that the setting accepts: its default, or an example.
fn example(setting: &dyn Definition) -> Json {
    let text = setting.default().or_else(|| example_of(setting.key()));
    let text = text.unwrap_or_else(|| example_of_type(setting.type_name()));
    typed(setting.shape(), text)
}

/// Examples of settings that have no default and whose type does not say enough.
fn example_of(key: &str) -> Option<&'static str> {
    let examples = [
        ("redis", "redis://127.0.0.1:6379"),
        ("redis_password_file", "/etc/hostler/redis.password"),
        ("redis_ca", "/etc/hostler/ca.pem"),
        ("redis_cert", "/etc/hostler/client.pem"),
        ("redis_key", "/etc/hostler/client.key"),
        ("redis_sentinel_user", "hostler"),
        (
            "redis_sentinel_password_file",
            "/etc/hostler/sentinel.password",
        ),
        ("stream", "orders"),
        ("group", "billing"),
        ("list", "jobs"),
        ("recovery_zset", "{jobs}:claims"),
        ("recovery_ttl", "1h"),
        ("channel", "news"),
        ("pattern", "news.*"),
        ("sharded_channel", "news"),
        ("consumer", "billing-1"),
        ("handler", "handler.wasm"),
        ("compile_cache", "/var/cache/hostler"),
        ("selftest", r#"[{"body":"{}","expect":"ack"}]"#),
        ("codec", "json"),
        ("max_deliveries", "5"),
        ("queue.max_length", "1000000"),
        ("dead_letter.key", "orders:dead"),
        ("dead_letter.routes", "timeout=orders:slow, expired=discard"),
        ("dead_letter.cycle_key", "{orders}:cycle"),
        ("dedup.window", "1h"),
        ("dedup.key", "x-order-id"),
        ("grant.config", r#"{"region":"eu"}"#),
        (
            "grant.secret",
            r#"{"stripe":{"file":"/etc/hostler/stripe"}}"#,
        ),
        (
            "grant.http",
            r#"[{"host":"api.example.com","path":"/v1","methods":["POST"]}]"#,
        ),
        ("grant.tcp", r#"[{"host":"db.example.com","port":5432}]"#),
        (
            "grant.files",
            r#"[{"path":"/usr/lib/python3","at":"/lib"}]"#,
        ),
        (
            "grant.publish",
            r#"{"invoices":"stream:{orders}:invoices"}"#,
        ),
        ("schedule", r#"{"nightly":{"cron":"30 2 * * *"}}"#),
        ("grant.key-value", r#"{"prefix":"{orders}:kv:"}"#),
        ("grant.journal", "{}"),
        ("flow.limit", r#"[{"name":"payments","rate":"100/s"}]"#),
        ("otlp.endpoint", "http://localhost:4317"),
        ("otlp.headers_file", "/etc/hostler/otlp"),
        ("otlp.ca", "/etc/hostler/ca.pem"),
        ("dev.build", "make"),
    ];
    let found = examples.iter().find(|(known, _)| *known == key);
    found.map(|(_, text)| *text)
}

/// An example of a type.
fn example_of_type(name: &str) -> &'static str {
    match name {
        "duration" => "1h",
        "size" => "32MiB",
        "share" => "10%",
        "positive integer" | "integer" | "number" => "100",
        "address" => "127.0.0.1:9400",
        "digest" => "sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "header names" => "x-tenant",
        _ => "NAME",
    }
}

/// A text as lines of a comment.
fn comment(text: &str) -> String {
    let mut lines = String::new();
    let mut line = "#".to_owned();
    for word in text.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && line.len() > 1 {
            lines.push_str(&line);
            lines.push('\n');
            line.truncate(1);
        }
        line.push(' ');
        line.push_str(word);
    }
    lines.push_str(&line);
    lines.push('\n');
    lines
}

/// The settings of a new file that names none: a stream on this machine.
pub fn usual() -> Vec<(&'static str, String)> {
    let keys = ["redis", "stream", "group", "handler"];
    let settings = keys.iter().filter_map(|key| find(key));
    let text = |setting: &dyn Definition| example_of(setting.key()).unwrap_or_default().to_owned();
    settings
        .map(|setting| (setting.key(), text(setting)))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::settings;

    #[test]
    fn every_line_of_a_new_file_can_be_used_as_it_is() {
        let file = commented(&[]);
        let lines: Vec<&str> = file
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| !line.starts_with(' '))
            .collect();
        let in_files = settings::all().filter(|s| !s.is_variable_only());
        assert_eq!(lines.len(), in_files.count());
        for line in lines {
            let path = Path::new("hostler.toml");
            let (values, problems) = crate::config::file::parse(path, line.to_owned());
            assert!(
                problems.is_empty() && values.len() == 1,
                "{line}: {problems:?}"
            );
            for value in values {
                let text = value
                    .text
                    .unwrap_or_else(|error| unreachable!("{line}: {error:?}"));
                let shown = value.setting.show(&text);
                assert!(shown.is_ok(), "{line}: {shown:?}");
            }
        }
    }

    #[test]
    fn what_is_set_is_no_comment() {
        let file = commented(&[
            ("concurrency", "4".to_owned()),
            ("stream", "a\"b".to_owned()),
        ]);
        assert!(file.contains("\nconcurrency = 4\n"), "{file}");
        assert!(file.contains("\nstream = 'a\"b'\n"), "{file}");
        assert!(file.contains("\n#group = \"billing\"\n"), "{file}");
        assert!(file.lines().all(|line| line.chars().count() <= 120));
    }

    #[test]
    fn the_usual_file_serves_a_stream() {
        let keys: Vec<_> = usual().into_iter().map(|(key, _)| key).collect();
        assert_eq!(keys, ["redis", "stream", "group", "handler"]);
    }
}
