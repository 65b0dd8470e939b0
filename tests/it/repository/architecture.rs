//! The rooms of the code: which crates and rooms each may use, and that no files use each other in a
//! circle.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A word that only some rooms may use, and why.
struct WordRule {
    word: &'static str,
    rooms: &'static [&'static str],
    why: &'static str,
}

const WORD_RULES: &[WordRule] = &[
    WordRule {
        word: "redis::",
        rooms: &[
            "redis",
            "publish",
            "calls",
            "key_values",
            "outgoing",
            "queue",
            "dead_letter",
            "policies",
            "rollout",
            "registry",
            "schedule",
        ],
        why: "only `redis` and the rooms that stand on it know the client",
    },
    WordRule {
        word: "wasmtime",
        rooms: &["sandbox", "compiler", "components", LINKS],
        why: "only the rooms that call, compile and link guests know wasmtime",
    },
    WordRule {
        word: "axum::",
        rooms: &["admin", "ui"],
        why: "only `admin` and `ui` serve HTTP",
    },
    WordRule {
        word: "hyper",
        rooms: &["grants", "telemetry", "admin"],
        why: "only `grants` and `telemetry` send HTTP requests, and only `admin` serves them",
    },
    WordRule {
        word: "opentelemetry_proto",
        rooms: &["telemetry"],
        why: "only `telemetry` knows the protocol of collectors",
    },
    WordRule {
        word: "clap::",
        rooms: &["cli", "config"],
        why: "only `cli` and `config` know the command line",
    },
    WordRule {
        word: "QueueKind::",
        rooms: &["config"],
        why: "only `config` and `queue` tell kinds of queues apart",
    },
    WordRule {
        word: "QueueOptions::",
        rooms: &["queue", "config", "host", "workbench"],
        why: "only `config` and `queue` tell kinds of queues apart",
    },
    WordRule {
        word: "anyhow::",
        rooms: &["cli", "main.rs"],
        why: "a module has its own error type; `anyhow` is for `cli` and `main`",
    },
];

/// The rooms that each room may use. A room that is missing here may use all others.
const MAY_USE: &[(&str, &[&str])] = &[
    ("delivery", &[]),
    ("wire", &["delivery"]),
    ("regular_file", &[]),
    ("clock", &[]),
    ("tls", &[]),
    ("file_watch", &["regular_file"]),
    ("redis", &["delivery", "wire"]),
    ("publish", &["delivery", "wire", "redis"]),
    ("embedded", &["redis"]),
    ("calls", &["delivery", "wire", "redis"]),
    ("key_values", &["delivery", "redis"]),
    (
        "outgoing",
        &["delivery", "wire", "redis", "publish", "calls"],
    ),
    (
        "queue",
        &[
            "delivery", "wire", "redis", "publish", "calls", "outgoing", "clock",
        ],
    ),
    ("dead_letter", &["delivery", "wire", "redis", "calls"]),
    (
        "schedule",
        &[
            "delivery",
            "wire",
            "redis",
            "publish",
            "outgoing",
            "telemetry",
            "values",
        ],
    ),
    ("policies", &["delivery", "wire", "redis"]),
    ("components", &["delivery"]),
    ("values", &["delivery"]),
    (
        "grants",
        &[
            "components",
            "delivery",
            "wire",
            "redis",
            "key_values",
            "telemetry",
            "tls",
            "publish",
            "values",
        ],
    ),
    ("sandbox", &["components", "delivery", "grants"]),
    (LINKS, &["delivery", "grants", "sandbox"]),
    (
        "compiler",
        &[
            "components",
            "delivery",
            "grants",
            LINKS,
            "sandbox",
            "regular_file",
        ],
    ),
    ("telemetry", &["delivery", "redis", "tls"]),
    (
        "rollout",
        &[
            "delivery",
            "wire",
            "redis",
            "components",
            "compiler",
            "sandbox",
            "telemetry",
            "file_watch",
        ],
    ),
    (
        "registry",
        &[
            "delivery",
            "wire",
            "redis",
            "publish",
            "queue",
            "dead_letter",
            "policies",
            "rollout",
            "telemetry",
            "schedule",
        ],
    ),
    (
        "runtime",
        &[
            "delivery",
            "wire",
            "redis",
            "queue",
            "grants",
            "sandbox",
            "rollout",
            "telemetry",
            "clock",
        ],
    ),
    ("admin", &["telemetry"]),
    (
        "ui",
        &[
            "delivery",
            "redis",
            "config",
            "dead_letter",
            "policies",
            "policy_change",
            "registry",
            "rollout",
            "telemetry",
            "trial",
            "wire",
            "schedule",
        ],
    ),
    ("policy_change", &["redis", "policies", "config"]),
    (
        "trial",
        &[
            "delivery",
            "wire",
            "dead_letter",
            "grants",
            "sandbox",
            "telemetry",
            "config",
        ],
    ),
    (
        "config",
        &[
            "delivery",
            "wire",
            "redis",
            "publish",
            "outgoing",
            "queue",
            "grants",
            "sandbox",
            "rollout",
            "runtime",
            "telemetry",
            "regular_file",
            "values",
            "schedule",
        ],
    ),
    (
        "host",
        &[
            "delivery",
            "wire",
            "redis",
            "embedded",
            "queue",
            "grants",
            "sandbox",
            "compiler",
            "rollout",
            "runtime",
            "telemetry",
            "admin",
            "config",
            "policies",
            "policy_change",
            "registry",
            "ui",
            "file_watch",
            "schedule",
        ],
    ),
    (
        "workbench",
        &[
            "delivery",
            "wire",
            "redis",
            "queue",
            "publish",
            "dead_letter",
            "sandbox",
            "grants",
            "registry",
            "rollout",
            "runtime",
            "telemetry",
            "config",
            "host",
            "file_watch",
            "values",
        ],
    ),
];

/// Files over this many lines are listed: each should still hold one idea.
const LONG: usize = 800;

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

/// The links of grants, which know WebAssembly: they stand above `sandbox`, and the rest of `grants` below it.
const LINKS: &str = "grants::link";

/// A crate of the workspace whose sources are looked at.
struct Crate {
    name: &'static str,
    sources: &'static str,
    /// The room of the host that it is; that of the core and of the host: none, as they hold several.
    room: &'static str,
}

const CRATES: &[Crate] = &[
    Crate {
        name: "hostler",
        sources: "../host/src",
        room: "",
    },
    Crate {
        name: "hostler_core",
        sources: "../host/core/src",
        room: "",
    },
    Crate {
        name: "hostler_components",
        sources: "../host/components/src",
        room: "components",
    },
    Crate {
        name: "hostler_redis",
        sources: "../host/redis/src",
        room: "redis",
    },
    Crate {
        name: "hostler_publish",
        sources: "../host/publish/src",
        room: "publish",
    },
];

impl Crate {
    fn sources(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.sources)
    }

    /// The module at its root.
    fn root(&self) -> Module {
        let room = Some(self.room.to_owned()).filter(|room| !room.is_empty());
        room.into_iter().collect()
    }

    /// The one that has this module.
    fn of(module: &Module) -> &'static Self {
        let mut leaves = CRATES.iter().filter(|one| !one.room.is_empty());
        let found = leaves.find(|one| module.starts_with(&one.root()));
        found.unwrap_or(&CRATES[0])
    }
}

/// The path of a file below the sources of its crate, or below the room that the crate is.
fn relative(path: &Path) -> PathBuf {
    let below = |one: &Crate| {
        let path = path.strip_prefix(one.sources()).ok()?;
        Some(Path::new(one.room).join(path))
    };
    CRATES.iter().find_map(below).unwrap()
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
    let relative = relative(path).with_extension("");
    let names = relative.components();
    let names: Module = names
        .map(|name| name.as_os_str().to_string_lossy().into_owned())
        .collect();
    room(&names)
}

/// The room of a module.
fn room(module: &Module) -> String {
    match &*module[0] {
        "grants" if module.iter().any(|name| name == "link") => LINKS.to_owned(),
        room => room.to_owned(),
    }
}

/// Tests, and the model that they use, which stands beside what it models.
fn is_model(path: &Path) -> bool {
    path.ends_with("ledger/model.rs")
        || path.ends_with("tests.rs")
        || path.components().any(|c| c.as_os_str() == "model")
}

fn all() -> Vec<PathBuf> {
    let mut all = Vec::new();
    for one in CRATES {
        files(&one.sources(), &mut all);
    }
    assert!(all.len() > 30, "where is the source?");
    all
}

#[test]
fn crates_are_used_in_their_rooms_only() {
    let mut broken = Vec::new();
    for path in all() {
        let room = room_of(&path);
        for rule in WORD_RULES {
            if rule.rooms.iter().any(|r| r.trim_end_matches(".rs") == room) {
                continue;
            }
            for (n, line) in code(&path) {
                // The beginning of a path: `crate::redis::` names our own room.
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
fn rooms_use_the_rooms_below_them_only() {
    let modules = modules();
    let mut broken = Vec::new();
    for (module, file) in &modules {
        if module.is_empty() {
            continue;
        }
        let room = room(module);
        let Some((_, below)) = MAY_USE.iter().find(|(name, _)| *name == room) else {
            continue;
        };
        for used in uses(module, &file.code, &modules) {
            let other = self::room(&used);
            if other != room && !below.contains(&other.as_str()) {
                broken.push(format!("{}: {room} uses {other}", file.path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    let modules = modules();
    // A module and its submodules are one idea: a submodule may use the module that declares it.
    let arrows: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .filter(|(module, _)| !module.is_empty())
        .map(|(module, file)| {
            let mut used = uses(module, &file.code, &modules);
            used.retain(|other| !module.starts_with(other));
            (module, used)
        })
        .collect();
    // A node that cannot be reached from itself is in no circle.
    let circles: Vec<String> = arrows
        .keys()
        .filter(|start| {
            let mut seen = BTreeSet::new();
            let mut open: Vec<&Module> = arrows[*start].iter().collect();
            while let Some(module) = open.pop() {
                if module == **start {
                    return true;
                }
                if seen.insert(module) {
                    open.extend(arrows.get(module).into_iter().flatten());
                }
            }
            false
        })
        .map(|module| format!("{} uses {:?}", module.join("::"), arrows[*module]))
        .collect();
    assert!(circles.is_empty(), "{}", circles.join("\n"));
}

/// The path of a module below the crate: `["queue", "stream"]`.
type Module = Vec<String>;

/// A file and its code: without comments and tests.
struct Source {
    path: PathBuf,
    code: String,
}

fn modules() -> BTreeMap<Module, Source> {
    let files = all().into_iter().filter(|path| !is_model(path));
    files
        .map(|path| {
            let relative = relative(&path).with_extension("");
            let mut module: Module = relative
                .components()
                .map(|part| part.as_os_str().to_string_lossy().into_owned())
                .collect();
            module.pop_if(|last| last == "mod");
            if module.len() == Crate::of(&module).root().len() + 1 {
                module.pop_if(|last| last == "lib" || last == "main");
            }
            let code: Vec<String> = code(&path).into_iter().map(|(_, line)| line).collect();
            let code = code.join("\n");
            (module, Source { path, code })
        })
        .collect()
}

/// The modules that the code of `module` names: by `use`, or in a path.
fn uses(module: &Module, code: &str, modules: &BTreeMap<Module, Source>) -> BTreeSet<Module> {
    let mut paths = Vec::new();
    for statement in code.split("use ").skip(1) {
        if let Some((tree, _)) = statement.split_once(';') {
            expand(&[], tree, &mut paths);
        }
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    for word in code.split(|c: char| !is_name(c)) {
        if word.contains("::") {
            paths.push(word.split("::").map(str::to_owned).collect());
        }
    }
    let mut used = BTreeSet::new();
    for path in paths {
        let mut names = path.as_slice();
        let mut found: Module = match names.first().map(String::as_str) {
            Some("crate") => Crate::of(module).root(),
            Some("self" | "super") => module.clone(),
            Some(name) if let Some(other) = CRATES.iter().find(|one| one.name == name) => {
                names = &names[1..];
                other.root()
            }
            // A child of this module, or something outside the crates.
            Some(name) => {
                let child: Module = module.iter().cloned().chain([name.to_owned()]).collect();
                if !modules.contains_key(&child) {
                    continue;
                }
                names = &names[1..];
                child
            }
            None => continue,
        };
        for name in names {
            let mut next = found.clone();
            match name.as_str() {
                "crate" | "self" => continue,
                "super" => drop(next.pop()),
                name => next.push(name.to_owned()),
            }
            if name != "super" && !modules.contains_key(&next) {
                break;
            }
            found = next;
        }
        if !found.is_empty() && found != *module {
            used.insert(found);
        }
    }
    used
}

/// The paths of a tree of `use`: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(prefix: &[String], tree: &str, paths: &mut Vec<Vec<String>>) {
    let (mut depth, mut begin) = (0, 0);
    let ends = tree.char_indices().chain([(tree.len(), ',')]);
    for (at, c) in ends {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = tree[begin..at].trim();
                begin = at + 1;
                let (head, group) = part.split_once('{').unwrap_or((part, ""));
                let names = head
                    .split("::")
                    .map(|name| name.split(' ').next().unwrap_or(""));
                let names = names.filter(|name| !name.is_empty()).map(str::to_owned);
                let path: Vec<String> = prefix.iter().cloned().chain(names).collect();
                if group.is_empty() {
                    paths.push(path);
                } else {
                    expand(&path, group.trim_end().trim_end_matches('}'), paths);
                }
            }
            _ => {}
        }
    }
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

/// A guide, not a rule: a long file may still hold one idea, and nothing is split for its length only.
#[test]
fn long_files_are_listed() {
    for path in all() {
        let lines = code(&path).len();
        if lines > LONG && !is_model(&path) {
            println!("{lines} lines: {}", path.display());
        }
    }
}

/// What a Rust service builds that publishes: the crates below `hostler-publish`.
#[test]
fn a_producer_builds_little() {
    const MOST: usize = 130;
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml");
    let tree = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build"])
        .args(["--package", "hostler-publish", "--prefix", "none"])
        .args(["--format", "{p}", "--manifest-path"])
        .arg(manifest)
        .output()
        .unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let tree = String::from_utf8(tree.stdout).unwrap();
    let name_and_version = |line: &str| {
        let mut words = line.split(' ');
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    };
    let crates: BTreeSet<(String, String)> = tree.lines().filter_map(name_and_version).collect();
    let has = |name: &str| crates.iter().any(|(known, _)| known == name);
    assert!(has("hostler-redis") && has("tokio"), "{crates:?}");
    for heavy in ["hostler", "wasmtime", "ratatui", "axum", "clap"] {
        assert!(!has(heavy), "{heavy}");
    }
    assert!(crates.len() < MOST, "{}: {crates:?}", crates.len());
}
