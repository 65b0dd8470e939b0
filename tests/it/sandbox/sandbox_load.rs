//! Components that are refused, and the reasons.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::grants::Need;
use hostler::sandbox::{Allocation, Limits, LoadError, Sandbox, Settings, WASMTIME_VERSION};
use hostler_tests::guests::{component, guest, handler, handler_version};
use hostler_tests::rig::Rig;
use nix::sys::resource::{Resource, setrlimit};
use tempfile::NamedTempFile;

use crate::sandbox::sandbox_compile::by_child;

const MIB: usize = 1 << 20;

/// The error of loading these bytes.
fn refusal(bytes: &[u8], settings: &Settings) -> String {
    let file = NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), bytes).expect("it can be written");
    let error = Sandbox::load(file.path(), settings).expect_err("it is refused");
    // The same error without a file.
    let in_memory = Sandbox::load_bytes(bytes, settings).expect_err("it is refused");
    assert_eq!(error.to_string(), in_memory.to_string());
    error.to_string()
}

fn refused(bytes: &[u8], message: &str) {
    assert_eq!(refusal(bytes, &Settings::default()), message);
}

/// The same for the beginning of the error, and a part of it.
fn refused_with(bytes: &[u8], begin: &str, part: &str) {
    let error = refusal(bytes, &Settings::default());
    assert!(error.starts_with(begin) && error.contains(part), "{error}");
}

/// A component with an empty instance, exported under these names.
fn exporting_nothing(names: &[&str]) -> Vec<u8> {
    let exports = names
        .iter()
        .map(|name| format!("(export \"{name}\" (instance $i))"));
    let exports: String = exports.collect();
    component(&format!("(component (instance $i) {exports})"))
}

/// A component with these imports, whose handler takes and returns nothing.
fn importing(imports: &str) -> Vec<u8> {
    component(&format!(
        r#"(component {imports}
            (core module $m (func (export "handle")))
            (core instance $i (instantiate $m))
            (func $handle (canon lift (core func $i "handle")))
            (instance $i (export "handle" (func $handle)))
            (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#
    ))
}

fn with_limits(limits: Limits) -> Settings {
    Settings {
        limits,
        ..Settings::default()
    }
}

#[test]
fn an_unreadable_file_is_refused() {
    let error = Sandbox::load("/nowhere/x.wasm".as_ref(), &Settings::default()).unwrap_err();
    assert!(matches!(error, LoadError::Read(_)));
    assert_eq!(
        error.to_string(),
        "can't be read: No such file or directory (os error 2)"
    );
    let error = Sandbox::load("/".as_ref(), &Settings::default()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "can't be read: Is a directory (os error 21)"
    );
}

#[test]
fn a_file_that_is_not_wasm_is_refused() {
    for (bytes, begin) in [
        (&b""[..], "nothing (the file is empty)"),
        (b"#!/bin/sh\n", "`23 21 2f 62 69 6e 2f 73`"),
        (b"\0asm\x0e\0\x01\0", "`00 61 73 6d 0e 00 01 00`"),
    ] {
        let component = "a component starts with `00 61 73 6d 0d 00 01 00`";
        let message = format!("is not WebAssembly: it starts with {begin}; {component}");
        refused(bytes, &message);
    }
}

#[test]
fn a_core_module_is_refused() {
    refused(
        &component("(module)"),
        "is a core WebAssembly module, and no program: it does not export `_start`; build a program, or build \
         for wasm32-wasip2, or wrap it with `wasm-tools component new`",
    );
}

#[test]
fn a_truncated_file_is_refused_with_its_length() {
    let whole = fs::read(guest("scripted")).unwrap();
    refused(
        b"\0as",
        "is truncated: a section ends at byte 8, the file ends at byte 3; copy it again",
    );
    for kept in [9, 10, 1000, whole.len() / 2, whole.len() - 1] {
        let end = format!(", the file ends at byte {kept}; copy it again");
        let begin = "is truncated: a section ends at byte ";
        refused_with(&whole[..kept], begin, &end);
    }
}

#[test]
fn damaged_files_are_refused_or_run_within_limits() {
    let whole = handler("", "i32.const 0");
    // Each byte is changed once. A component that loads must answer within its limits.
    let settings = with_limits(Limits {
        wall: Duration::from_millis(200),
        ..Limits::default()
    });
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let mut refusals = 0;
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        match Sandbox::load_bytes(&damaged, &settings) {
            Err(_) => refusals += 1,
            Ok(sandbox) => {
                runtime.block_on(Rig::of(sandbox).run("x"));
            }
        }
    }
    assert!(refusals > whole.len() / 4, "{refusals}");
}

#[test]
fn an_invalid_component_is_refused() {
    let mut bytes = component("(component)");
    bytes.extend([0x0b, 1, 0xff]);
    refused_with(&bytes, "is not a valid component: ", "");
}

#[test]
fn precompiled_code_is_refused() {
    let mut config = wasmtime::Config::new();
    config.concurrency_support(false).epoch_interruption(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let code = engine
        .precompile_component(&handler("", "i32.const 0"))
        .unwrap();
    refused(
        &code,
        "is precompiled code (.cwasm), which is never loaded; use the .wasm file that it was made from",
    );
}

#[test]
fn a_component_without_a_handler_is_refused() {
    const EXPECTED: &str = "expected hostler:handler/message-handler@1 or hostler:handler/batch-handler@1, or of \
        other hosts fermyon:spin/inbound-redis, fermyon:spin-sqs@2 or wasmcloud:messaging/handler@0.2, or of \
        programs wasi:cli/run@0.2; build it against hostler's WIT, world `handler` or `batch`";
    refused(
        &component("(component)"),
        &format!("exports no handler: found nothing, {EXPECTED}"),
    );
    let other = r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func $run (canon lift (core func $i "run")))
        (instance $run (export "run" (func $run)))
        (export "wasi:http/incoming-handler@0.2.6" (instance $run))
        (export "other" (func $run)))"#;
    refused(
        &component(other),
        &format!("exports no handler: found wasi:http/incoming-handler@0.2.6, other, {EXPECTED}"),
    );
}

#[test]
fn a_handler_of_another_major_version_is_refused() {
    let message = handler_version("2.0.0", "", "i32.const 0");
    let early = handler_version("0.1.0", "", "i32.const 0");
    let batch = exporting_nothing(&["hostler:handler/batch-handler@2.0.0"]);
    for (bytes, name) in [
        (message, "message-handler@2.0.0"),
        (early, "message-handler@0.1.0"),
        (batch, "batch-handler@2.0.0"),
    ] {
        let (interface, _) = name.split_once('@').unwrap();
        let wanted = format!("expected hostler:handler/{interface}@1");
        let remedy = "rebuild it against that version, or use the host it was made for";
        let message = format!("exports hostler:handler/{name}, {wanted}; {remedy}");
        refused(&bytes, &message);
    }
}

#[tokio::test]
async fn handlers_of_later_minor_versions_run() {
    let bytes = handler_version("1.7.3", "", "i32.const 0");
    let mut rig = Rig::bytes(&bytes, &Settings::default());
    assert_eq!(rig.run("").await.outcome, Outcome::Ack);
}

#[test]
fn a_component_with_two_handlers_is_refused() {
    let first = "hostler:handler/message-handler@1.0.0";
    let later = "hostler:handler/message-handler@2.0.0";
    for second in [later, "hostler:handler/batch-handler@1.0.0"] {
        let names = format!("{first}, {second}");
        let message = format!("exports more than one handler: {names}; export exactly one");
        refused(&exporting_nothing(&[first, second]), &message);
    }
}

#[test]
fn a_handler_of_another_type_is_refused() {
    let lacks = "the interface lacks the function; rebuild it against hostler's WIT";
    for (name, function) in [
        ("hostler:handler/message-handler@1.0.0", "handle"),
        ("hostler:handler/batch-handler@1.0.0", "handle-batch"),
    ] {
        let begin = format!("exports {name}#{function} with another type than this host's: ");
        refused(&exporting_nothing(&[name]), &format!("{begin}{lacks}"));
        if function == "handle" {
            let part = "expected 1-tuple, found 0-tuple";
            refused_with(&importing(""), &begin, part);
        }
    }
}

#[test]
fn imports_without_a_grant_are_refused_by_name() {
    let imports = r#"(import "wasi:http/outgoing-handler@0.2.6" (instance))
        (import "wasi:clocks/wall-clock@0.2.0" (instance))
        (import "hostler:handler/delivery@2.0.0" (instance))
        (import "hostler:handler/publisher@1.0.0" (instance))
        (import "secret:plans/x" (instance))"#;
    // Exports are checked before imports.
    let name = "hostler:handler/message-handler@1.0.0";
    let export = format!("(instance $i) (export \"{name}\" (instance $i))");
    let lacking = component(&format!("(component {imports} {export})"));
    refused_with(&lacking, "exports ", "the interface lacks the function");
    refused(
        &importing(imports),
        "imports interfaces that it is not granted: \
         wasi:http/outgoing-handler@0.2.6 (needs the grant `http`), \
         hostler:handler/delivery@2.0.0 (this host does not have it), \
         hostler:handler/publisher@1.0.0 (needs the grant `publish`), \
         secret:plans/x (this host does not have it); \
         build it without the imports that this host does not have",
    );
}

#[test]
fn an_import_of_another_type_is_refused() {
    let name = "hostler:handler/delivery@1.0.0";
    let function = r#"(export "deadline-ms" (func (result string)))"#;
    let other = importing(&format!("(import \"{name}\" (instance {function}))"));
    refused_with(&other, "imports an interface of another type: ", name);
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let bytes = handler("", "i32.const 0");
    let limited = |component| {
        with_limits(Limits {
            component,
            ..Limits::default()
        })
    };
    let size = bytes.len() as u64;
    assert!(Sandbox::load_bytes(&bytes, &limited(size)).is_ok());
    let limit = size - 1;
    let bound = format!("the limit of {limit} bytes for a component (limit `component`)");
    let message = format!("is {size} bytes, more than {bound}");
    assert_eq!(refusal(&bytes, &limited(limit)), message);
}

#[test]
fn a_component_that_needs_too_much_at_start_is_refused() {
    let limited = |memory, table_elements| {
        with_limits(Limits {
            memory,
            table_elements,
            ..Limits::default()
        })
    };
    let memory = handler("(memory $memory 161)", "i32.const 0");
    assert!(Sandbox::load_bytes(&memory, &limited(161 << 16, 10)).is_ok());
    assert_eq!(
        refusal(&memory, &limited(160 << 16, 10)),
        "needs 10551296 bytes of linear memory, the limit is 10485760 (limit `memory`)"
    );
    let table = handler("(table 500 funcref)", "i32.const 0");
    assert!(Sandbox::load_bytes(&table, &limited(MIB, 500)).is_ok());
    assert_eq!(
        refusal(&table, &limited(MIB, 499)),
        "needs 500 table elements, the limit is 499 (limit `table_elements`)"
    );
    let huge = handler("(memory $memory 65536)", "i32.const 0");
    refused(
        &huge,
        "needs 4294967296 bytes of linear memory, the limit is 67108864 (limit `memory`)",
    );
}

#[test]
fn a_component_that_fails_at_start_is_refused() {
    let starts = [
        (
            "unreachable",
            "instantiation: trap: wasm trap: wasm `unreachable` instruction executed",
        ),
        (
            "(loop (br 0))",
            "instantiation: cpu-timeout: ran for more than 100ms (limit `cpu`)",
        ),
        (
            "(if (i32.eq (memory.grow $memory (i32.const 2000)) (i32.const -1)) (then unreachable))",
            "instantiation: memory-limit: requested 131137536 bytes of linear memory, the limit is \
             67108864 (limit `memory`)",
        ),
        (
            "call $start",
            "instantiation: stack-overflow: call stack of 524288 bytes exhausted (limit `stack`)",
        ),
    ];
    let settings = with_limits(Limits {
        cpu: Duration::from_millis(100),
        ..Limits::default()
    });
    for (body, fault) in starts {
        let items = format!("(start $start) (func $start {body})");
        let message = refusal(&handler(&items, "i32.const 0"), &settings);
        let begin = format!("does not start: {fault}");
        assert!(message.starts_with(&begin), "{message}");
        // A child that compiles also tries, and says the same.
        let child = by_child(settings.limits.clone());
        assert_eq!(refusal(&handler(&items, "i32.const 0"), &child), message);
    }
    // Each memory is within the limit; together they are not.
    let memories = handler(&"(memory 500)".repeat(3), "i32.const 0");
    let begin = "does not start: instantiation: memory-limit: requested ";
    refused_with(&memories, begin, "");
}

#[tokio::test]
async fn an_instance_that_fails_to_start_later_is_an_instantiation_fault() {
    let bytes = handler(
        "(start $start) (func $start (if (call $is-cancelled) (then unreachable)))",
        "i32.const 0",
    );
    let mut rig = Rig::bytes(&bytes, &Settings::default());
    assert_eq!(rig.run("").await.outcome, Outcome::Ack);
    rig.cancelled.store(true, Ordering::Relaxed);
    let fault = rig.fault("").await;
    assert_eq!(fault.kind, FaultKind::Instantiation);
    assert!(fault.detail.starts_with("trap: "), "{}", fault.detail);
    rig.cancelled.store(false, Ordering::Relaxed);
    assert_eq!(rig.run("").await.outcome, Outcome::Ack);
}

#[test]
fn a_description_names_interface_size_and_imports() {
    let path = guest("scripted");
    let sandbox = Sandbox::load(&path, &Settings::default()).unwrap();
    let description = sandbox.describe();
    let interface = "hostler:handler/message-handler@1.2.0";
    assert_eq!(description.interface, interface);
    assert_eq!(description.exports, [interface]);
    assert_eq!(description.size, fs::metadata(&path).unwrap().len());
    assert!(description.memory_initial >= MIB as u64);
    assert!(description.pooling);
    let need = |name: &str| {
        let mut imports = description.imports.iter();
        let import = imports.find(|import| import.name.starts_with(name))?;
        Some(import.need.clone())
    };
    assert_eq!(need("hostler:handler/delivery@1.2.0"), Some(Need::Nothing));
    assert_eq!(need("wasi:filesystem/preopens@0.2"), Some(Need::Inert));
    assert_eq!(need("wasi:clocks/monotonic-clock@0.2"), Some(Need::Nothing));

    let digest = sandbox.digest();
    assert_eq!(digest.len(), "sha256:".len() + 64);
    assert!(digest.starts_with("sha256:"));
    let again = Sandbox::load(&path, &Settings::default()).unwrap();
    assert_eq!(again.digest(), digest);
}

#[tokio::test]
async fn odd_and_huge_limits_work() {
    let bytes = handler("", "i32.const 0");
    for (memory, stack) in [(100_001, 100_001), (usize::MAX, 1 << 24)] {
        for allocation in [Allocation::Auto, Allocation::OnDemand] {
            let settings = Settings {
                allocation,
                concurrency: 1,
                limits: Limits {
                    memory,
                    stack,
                    ..Limits::default()
                },
                ..Settings::default()
            };
            let mut rig = Rig::bytes(&bytes, &settings);
            let is_pooling = allocation == Allocation::Auto;
            assert_eq!(rig.sandbox.describe().pooling, is_pooling);
            assert_eq!(rig.run("").await.outcome, Outcome::Ack);
        }
    }
    let no_stack = with_limits(Limits {
        stack: 0,
        ..Limits::default()
    });
    assert_eq!(
        refusal(&bytes, &no_stack),
        "can't be run here: max_wasm_stack size cannot be zero"
    );
}

#[test]
fn little_address_space_is_enough() {
    const CHILD: &str = "HOSTLER_TEST_LITTLE_ADDRESS_SPACE";
    if std::env::var_os(CHILD).is_none() {
        // A process cannot raise its limits again: the test runs itself as a child.
        let child = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "sandbox::sandbox_load::little_address_space_is_enough",
            ])
            .env(CHILD, "")
            .output()
            .unwrap();
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success(), "{output}");
        assert!(output.contains("1 passed"), "{output}");
        return;
    }
    setrlimit(Resource::RLIMIT_AS, 2 << 30, 2 << 30).unwrap();
    let mut rig = Rig::bytes(&fs::read(guest("scripted")).unwrap(), &Settings::default());
    assert!(!rig.sandbox.describe().pooling);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
        assert_eq!(rig.run("grow:40").await.outcome, Outcome::Ack);
        assert_eq!(rig.fault("grow:64").await.kind, FaultKind::MemoryLimit);
    });
}

#[test]
fn loading_works_inside_an_async_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let bytes = handler("", "i32.const 0");
    let load = async { Sandbox::load_bytes(&bytes, &Settings::default()) };
    assert!(runtime.block_on(load).is_ok());
}

#[test]
fn the_version_of_wasmtime_matches_the_lock_file() {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap();
    let entry = format!("name = \"wasmtime\"\nversion = \"{WASMTIME_VERSION}\"");
    assert!(lock.contains(&entry), "WASMTIME_VERSION is stale");
}

#[test]
fn the_mended_wasmtime_is_the_one_that_is_built() {
    for lock in ["Cargo.lock", "tests/fuzz/Cargo.lock"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(lock);
        let text = fs::read_to_string(path).unwrap();
        // A crate in a folder has no source there.
        let entry = format!("name = \"wasmtime\"\nversion = \"{WASMTIME_VERSION}\"\ndependencies");
        assert!(text.contains(&entry), "{lock}: vendor/README.md");
    }
}
