//! The rooms of the code keep to themselves: who may know Redis, wasmtime and the terminal.

use std::path::{Path, PathBuf};

/// A word that only some rooms may use, and why.
struct Rule {
    word: &'static str,
    rooms: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        word: "redis::",
        rooms: &["queue", "dead_letter"],
        why: "only `queue` knows Redis",
    },
    Rule {
        word: "wasmtime",
        rooms: &["sandbox"],
        why: "only `sandbox` knows wasmtime",
    },
    Rule {
        word: "axum::",
        rooms: &["admin"],
        why: "only `admin` knows HTTP",
    },
    Rule {
        word: "clap::",
        rooms: &["cli", "config"],
        why: "only `cli` and `config` know the command line",
    },
    Rule {
        word: "QueueKind::",
        rooms: &["config"],
        why: "only `queue` tells kinds of queues apart, once they were read",
    },
    Rule {
        word: "QueueOptions::",
        rooms: &["queue", "config", "cli"],
        why: "only `queue` tells kinds of queues apart, once they were read",
    },
    Rule {
        word: "anyhow::",
        rooms: &["cli", "main.rs"],
        why: "a module has its own error type; `anyhow` is for `cli` and `main`",
    },
];

/// `room` may not use anything of `crate::others`.
const WALLS: &[(&str, &[&str])] = &[
    (
        "delivery",
        &[
            "queue",
            "sandbox",
            "runtime",
            "wire",
            "config",
            "telemetry",
            "admin",
            "cli",
            "dead_letter",
        ],
    ),
    (
        "wire",
        &[
            "queue",
            "sandbox",
            "runtime",
            "config",
            "telemetry",
            "admin",
            "cli",
            "dead_letter",
        ],
    ),
    (
        "queue",
        &["sandbox", "runtime", "config", "telemetry", "admin", "cli"],
    ),
    (
        "sandbox",
        &[
            "queue",
            "wire",
            "runtime",
            "config",
            "telemetry",
            "admin",
            "cli",
            "dead_letter",
        ],
    ),
    ("runtime", &["config", "admin", "cli"]),
    (
        "dead_letter",
        &["runtime", "sandbox", "config", "telemetry", "admin", "cli"],
    ),
    (
        "publish",
        &["runtime", "sandbox", "config", "telemetry", "admin", "cli"],
    ),
    (
        "telemetry",
        &["runtime", "sandbox", "config", "admin", "cli"],
    ),
];

/// What a pure room may not touch: a clock, I/O, tasks, randomness.
const IMPURE: &[&str] = &[
    "std::fs",
    "std::net",
    "std::env",
    "std::process",
    "tokio",
    "SystemTime",
    "Instant::now",
    "fastrand",
    "tracing::",
];

fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../host/src")
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

/// Code lines of a file: neither comments nor what only tests see.
fn code(path: &Path) -> Vec<(usize, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.split("//").next().unwrap_or("").to_owned()))
        .scan(false, |in_tests, (n, line)| {
            *in_tests |= line.trim() == "mod tests {";
            (!*in_tests).then_some((n, line))
        })
        .collect()
}

fn room_of(path: &Path) -> String {
    let relative = path.strip_prefix(source()).unwrap();
    relative
        .components()
        .next()
        .unwrap()
        .as_os_str()
        .to_string_lossy()
        .trim_end_matches(".rs")
        .to_owned()
}

/// Tests, and the model that they use, which stands beside what it models.
fn is_model(path: &Path) -> bool {
    path.ends_with("ledger/model.rs")
        || path.ends_with("tests.rs")
        || path.components().any(|c| c.as_os_str() == "model")
}

fn all() -> Vec<PathBuf> {
    let mut all = Vec::new();
    files(&source(), &mut all);
    assert!(all.len() > 30, "where is the source?");
    all
}

#[test]
fn words_stay_in_their_rooms() {
    let mut broken = Vec::new();
    for path in all() {
        let room = room_of(&path);
        for rule in RULES {
            if rule.rooms.iter().any(|r| r.trim_end_matches(".rs") == room) {
                continue;
            }
            for (n, line) in code(&path) {
                // A path segment, not the end of another word (`crate::queue::redis::` is none).
                let found = line.match_indices(rule.word).any(|(i, _)| {
                    !line[..i].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == ':')
                });
                if found {
                    broken.push(format!("{}:{n}: {}", path.display(), rule.why));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn rooms_do_not_look_over_their_walls() {
    let mut broken = Vec::new();
    for path in all() {
        let room = room_of(&path);
        let Some((_, others)) = WALLS.iter().find(|(r, _)| *r == room) else {
            continue;
        };
        for (n, line) in code(&path) {
            for other in *others {
                if line.contains(&format!("crate::{other}")) {
                    broken.push(format!("{}:{n}: {room} uses {other}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_core_is_pure() {
    let mut broken = Vec::new();
    for path in all() {
        let room = room_of(&path);
        if room != "delivery" && room != "wire" {
            continue;
        }
        if is_model(&path) {
            continue;
        }
        for (n, line) in code(&path) {
            for word in IMPURE {
                if line.contains(word) {
                    broken.push(format!("{}:{n}: {word} in {room}", path.display()));
                }
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn a_file_is_one_thing() {
    // Long files are not forbidden, but few: each is named here with its length at most.
    let mut long = Vec::new();
    for path in all() {
        if is_model(&path) {
            continue;
        }
        let lines = code(&path).len();
        if lines > 500 {
            long.push(format!("{} ({lines} lines)", path.display()));
        }
    }
    assert!(long.is_empty(), "split by purpose:\n{}", long.join("\n"));
}
