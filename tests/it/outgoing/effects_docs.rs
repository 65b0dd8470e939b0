//! The projects of `hostler new --with` make each call in each language as the docs show it. Those
//! are built and run by `cli_new_with`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::cli::cli_new::repository;

/// A language as its folder, and its lines that call `publish`, `fetch`, `get`, `set`, `delete`,
/// `increment` and `secrets.get`.
const CALLS: [(&str, [&str; 7]); 8] = [
    (
        "rust",
        [
            "publisher::publish(",
            "http::fetch(",
            "key_value::get(",
            "key_value::set(",
            "key_value::delete(",
            "key_value::increment(",
            "secrets::get(",
        ],
    ),
    ("js", JS),
    ("ts", JS),
    (
        "python",
        [
            "publisher.publish(",
            "http.fetch(",
            "key_value.get(",
            "key_value.set(",
            "key_value.delete(",
            "key_value.increment(",
            "secrets.get(",
        ],
    ),
    (
        "go",
        [
            "_publisher.Publish(",
            "_http.Fetch(",
            "_key_value.Get(",
            "_key_value.Set(",
            "_key_value.Delete(",
            "_key_value.Increment(",
            "_secrets.Get(",
        ],
    ),
    ("c", C),
    ("cpp", C),
    ("zig", C),
];

const JS: [&str; 7] = [
    "publisher.publish(",
    "http.fetch(",
    "keyValue.get(",
    "keyValue.set(",
    "keyValue.delete(",
    "keyValue.increment(",
    "secrets.get(",
];

const C: [&str; 7] = [
    "_publisher_publish(",
    "_http_fetch(",
    "_key_value_get(",
    "_key_value_set(",
    "_key_value_delete(",
    "_key_value_increment(",
    "_secrets_get(",
];

#[test]
fn each_call_is_shown_in_each_language_as_the_projects_have_it() {
    for (language, calls) in CALLS {
        let (title, mark) = match language {
            "js" | "ts" => ("### Calls of QuickJS", "js"),
            "python" => ("## Python", language),
            "go" => ("## Go", language),
            "rust" => ("## Rust", language),
            _ => ("## C, C++, Zig", language),
        };
        let docs = repository().join("docs/languages/raw.md");
        let docs = std::fs::read_to_string(docs).unwrap();
        let (_, section) = docs.split_once(&format!("\n{title}\n")).unwrap();
        let (_, block) = section.split_once(&format!("```{mark}\n")).unwrap();
        let (block, _) = block.split_once("```").unwrap();
        for call in calls {
            assert!(block.contains(call), "{language} has no `{call}`");
        }
        let folder = repository().join("guest-examples/with").join(language);
        let project = lines(&folder);
        for line in block.lines().map(str::trim) {
            assert!(
                line.is_empty() || project.contains(line),
                "{language}: no project has `{line}`"
            );
        }
    }
}

/// The lines of all files of a folder, without their indents.
fn lines(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<PathBuf> = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).unwrap();
            open.extend(entries.map(|entry| entry.unwrap().path()));
        } else {
            let text = std::fs::read_to_string(path).unwrap();
            found.extend(text.lines().map(|line| line.trim().to_owned()));
        }
    }
    found
}
