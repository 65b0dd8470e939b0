//! What is not run as a handler, and what is said about it.

use std::fs;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Allocation, Limits, LoadError, Need, Sandbox, Settings, WASMTIME_VERSION};
use hostler_tests::guests::{component, guest, handler, handler_version};
use hostler_tests::rig::Rig;
use nix::sys::resource::{Resource, setrlimit};
use tempfile::NamedTempFile;

const MIB: usize = 1 << 20;

/// What loading this says.
fn refusal(bytes: &[u8], settings: &Settings) -> String {
    let file = NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), bytes).expect("it can be written");
    let error = Sandbox::load(file.path(), settings).expect_err("it is refused");
    // The same without a file.
    let in_memory = Sandbox::load_bytes(bytes, settings).expect_err("it is refused");
    assert_eq!(error.to_string(), in_memory.to_string());
    error.to_string()
}

fn refused(bytes: &[u8], message: &str) {
    assert_eq!(refusal(bytes, &Settings::default()), message);
}

#[test]
fn a_missing_file() {
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
fn what_is_not_wasm() {
    refused(
        b"",
        "is not WebAssembly: it starts with nothing (the file is empty), a component with \
         `00 61 73 6d 0d 00 01 00`",
    );
    refused(
        b"#!/bin/sh\n",
        "is not WebAssembly: it starts with `23 21 2f 62 69 6e 2f 73`, a component with \
         `00 61 73 6d 0d 00 01 00`",
    );
    refused(
        b"\0asm\x0e\0\x01\0",
        "is not WebAssembly: it starts with `00 61 73 6d 0e 00 01 00`, a component with \
         `00 61 73 6d 0d 00 01 00`",
    );
}

#[test]
fn a_core_module() {
    refused(
        &component("(module)"),
        "is a core WebAssembly module, not a component; build for wasm32-wasip2, or wrap it with \
         `wasm-tools component new`",
    );
}

#[test]
fn a_truncated_file_wherever_it_ends() {
    let whole = fs::read(guest("scripted")).unwrap();
    refused(
        b"\0as",
        "is truncated: a section ends at byte 8, the file at byte 3; copy it again",
    );
    for kept in [9, 10, 1000, whole.len() / 2, whole.len() - 1] {
        let message = refusal(&whole[..kept], &Settings::default());
        assert!(
            message.starts_with("is truncated: a section ends at byte ")
                && message.ends_with(&format!(", the file at byte {kept}; copy it again")),
            "{message}"
        );
    }
}

#[test]
fn damaged_files_never_do_worse_than_being_refused() {
    let whole = handler("", "i32.const 0");
    // Every byte, changed: whatever loads must also answer within its limits.
    let settings = Settings {
        limits: Limits {
            wall: Duration::from_millis(200),
            ..Limits::default()
        },
        ..Settings::default()
    };
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
fn an_invalid_component() {
    let mut bytes = component("(component)");
    bytes.extend([0x0b, 1, 0xff]);
    let message = refusal(&bytes, &Settings::default());
    assert!(
        message.starts_with("is not a valid component: "),
        "{message}"
    );
}

#[test]
fn precompiled_code_whatever_its_name() {
    let mut config = wasmtime::Config::new();
    config.concurrency_support(false).epoch_interruption(true);
    let engine = wasmtime::Engine::new(&config).unwrap();
    let code = engine
        .precompile_component(&handler("", "i32.const 0"))
        .unwrap();
    refused(
        &code,
        "is precompiled code (.cwasm), which is never loaded; give the .wasm it was made from",
    );
}

#[test]
fn a_component_without_a_handler() {
    refused(
        &component("(component)"),
        "exports no handler: found nothing, wanted hostler:handler/message-handler@1 or \
         hostler:handler/batch-handler@1; build it against hostler's WIT, world `handler` or `batch`",
    );
    let other = r#"(component
        (core module $m (func (export "run")))
        (core instance $i (instantiate $m))
        (func $run (canon lift (core func $i "run")))
        (instance $run (export "run" (func $run)))
        (export "wasi:cli/run@0.2.6" (instance $run))
        (export "other" (func $run)))"#;
    refused(
        &component(other),
        "exports no handler: found wasi:cli/run@0.2.6, other, wanted \
         hostler:handler/message-handler@1 or hostler:handler/batch-handler@1; build it against \
         hostler's WIT, world `handler` or `batch`",
    );
}

#[test]
fn a_handler_of_another_major_version() {
    refused(
        &handler_version("2.0.0", "", "i32.const 0"),
        "exports hostler:handler/message-handler@2.0.0, wanted hostler:handler/message-handler@1 \
         or hostler:handler/batch-handler@1; \
         rebuild it against this host's WIT, or use the host it was made for",
    );
    refused(
        &handler_version("0.1.0", "", "i32.const 0"),
        "exports hostler:handler/message-handler@0.1.0, wanted hostler:handler/message-handler@1 \
         or hostler:handler/batch-handler@1; \
         rebuild it against this host's WIT, or use the host it was made for",
    );
}

#[tokio::test]
async fn later_minor_versions_run() {
    let bytes = handler_version("1.7.3", "", "i32.const 0");
    let mut rig = Rig::bytes(&bytes, &Settings::default());
    assert_eq!(rig.run("").await.outcome, Outcome::Ack);
}

#[test]
fn two_handlers() {
    let two = r#"(component
        (instance $i)
        (export "hostler:handler/message-handler@1.0.0" (instance $i))
        (export "hostler:handler/message-handler@2.0.0" (instance $i)))"#;
    refused(
        &component(two),
        "exports more than one handler: hostler:handler/message-handler@1.0.0, \
         hostler:handler/message-handler@2.0.0; export exactly one",
    );
}

#[test]
fn two_kinds_of_handlers() {
    let both = r#"(component
        (instance $i)
        (export "hostler:handler/message-handler@1.0.0" (instance $i))
        (export "hostler:handler/batch-handler@1.0.0" (instance $i)))"#;
    refused(
        &component(both),
        "exports more than one handler: hostler:handler/message-handler@1.0.0, \
         hostler:handler/batch-handler@1.0.0; export exactly one",
    );
}

#[test]
fn a_handler_of_batches_of_another_type() {
    let lacking = r#"(component
        (instance $i)
        (export "hostler:handler/batch-handler@1.0.0" (instance $i)))"#;
    refused(
        &component(lacking),
        "exports hostler:handler/batch-handler@1.0.0#handle-batch with another type than this \
         host's: the interface lacks the function; rebuild it against hostler's WIT",
    );
    let other = lacking.replace("@1.0.0", "@2.0.0");
    refused(
        &component(&other),
        "exports hostler:handler/batch-handler@2.0.0, wanted hostler:handler/message-handler@1 or \
         hostler:handler/batch-handler@1; rebuild it against this host's WIT, or use the host it \
         was made for",
    );
}

#[test]
fn a_handler_of_another_type() {
    let lacking = r#"(component
        (instance $i)
        (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#;
    refused(
        &component(lacking),
        "exports hostler:handler/message-handler@1.0.0#handle with another type than this host's: \
         the interface lacks the function; rebuild it against hostler's WIT",
    );
    let other = r#"(component
        (core module $m (func (export "handle")))
        (core instance $i (instantiate $m))
        (func $handle (canon lift (core func $i "handle")))
        (instance $i (export "handle" (func $handle)))
        (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#;
    let message = refusal(&component(other), &Settings::default());
    assert!(
        message.starts_with(
            "exports hostler:handler/message-handler@1.0.0#handle with another type than this \
             host's: "
        ) && message.contains("expected 1-tuple, found 0-tuple"),
        "{message}"
    );
}

#[test]
fn imports_that_are_not_granted() {
    let greedy = r#"(component
        (import "wasi:http/outgoing-handler@0.2.6" (instance))
        (import "wasi:clocks/wall-clock@0.2.0" (instance))
        (import "hostler:handler/delivery@2.0.0" (instance))
        (import "hostler:handler/publisher@1.0.0" (instance))
        (import "secret:plans/x" (instance))
        (instance $i)
        (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#;
    // What it exports comes first: this one has no function.
    let message = refusal(&component(greedy), &Settings::default());
    assert!(
        message.contains("the interface lacks the function"),
        "{message}"
    );

    let greedy = greedy.replace(
        "(instance $i)\n",
        r#"(core module $m (func (export "handle")))
        (core instance $i (instantiate $m))
        (func $handle (canon lift (core func $i "handle")))
        (instance $i (export "handle" (func $handle)))
"#,
    );
    refused(
        &component(&greedy),
        "imports what it is not granted: \
         wasi:http/outgoing-handler@0.2.6 (needs the grant `http`, which this host does not have), \
         hostler:handler/delivery@2.0.0 (this host does not have it), \
         hostler:handler/publisher@1.0.0 (needs the grant `publisher`, which this host does not have), \
         secret:plans/x (this host does not have it)",
    );
}

#[test]
fn an_import_in_another_form() {
    let other = r#"(component
        (import "hostler:handler/delivery@1.0.0" (instance
            (export "deadline-ms" (func (result string)))))
        (core module $m (func (export "handle")))
        (core instance $i (instantiate $m))
        (func $handle (canon lift (core func $i "handle")))
        (instance $i (export "handle" (func $handle)))
        (export "hostler:handler/message-handler@1.0.0" (instance $i)))"#;
    let message = refusal(&component(other), &Settings::default());
    assert!(
        message.starts_with("imports what this host has in another form: "),
        "{message}"
    );
    assert!(
        message.contains("hostler:handler/delivery@1.0.0"),
        "{message}"
    );
}

#[test]
fn a_file_that_is_too_large() {
    let bytes = handler("", "i32.const 0");
    let limited = |component| Settings {
        limits: Limits {
            component,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let size = bytes.len() as u64;
    assert!(Sandbox::load_bytes(&bytes, &limited(size)).is_ok());
    assert_eq!(
        refusal(&bytes, &limited(size - 1)),
        format!(
            "is {size} bytes, more than the limit of {} bytes for a component (limit `component`)",
            size - 1
        )
    );
}

#[test]
fn a_component_that_needs_too_much_to_start() {
    let limited = |memory, table_elements| Settings {
        limits: Limits {
            memory,
            table_elements,
            ..Limits::default()
        },
        ..Settings::default()
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
    assert_eq!(
        refusal(&huge, &Settings::default()),
        "needs 4294967296 bytes of linear memory, the limit is 67108864 (limit `memory`)"
    );
}

#[test]
fn a_component_that_does_not_start() {
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
            "instantiation: memory-limit: wanted 131137536 bytes of linear memory, may have \
             67108864 (limit `memory`)",
        ),
        (
            "call $start",
            "instantiation: stack-overflow: call stack of 524288 bytes exhausted (limit `stack`)",
        ),
    ];
    let settings = Settings {
        limits: Limits {
            cpu: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    };
    for (body, fault) in starts {
        let bytes = handler(
            &format!("(start $start) (func $start {body})"),
            "i32.const 0",
        );
        let message = refusal(&bytes, &settings);
        assert!(
            message.starts_with(&format!("does not start: {fault}")),
            "{message}"
        );
    }
    // Many memories, each within the limit, all together not.
    let memories = "(memory 500)".repeat(3);
    let message = refusal(&handler(&memories, "i32.const 0"), &Settings::default());
    assert!(
        message.starts_with("does not start: instantiation: memory-limit: wanted "),
        "{message}"
    );
}

#[tokio::test]
async fn instances_that_stop_starting_later_are_no_attempts() {
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
fn a_description_says_what_a_component_is() {
    let path = guest("scripted");
    let sandbox = Sandbox::load(&path, &Settings::default()).unwrap();
    let description = sandbox.describe();
    assert_eq!(
        description.interface,
        "hostler:handler/message-handler@1.0.0"
    );
    assert_eq!(
        description.exports,
        std::slice::from_ref(&description.interface)
    );
    assert_eq!(description.size, fs::metadata(&path).unwrap().len());
    assert!(description.memory_initial >= MIB as u64);
    assert!(description.pooling);
    let need = |name: &str| {
        description
            .imports
            .iter()
            .find(|import| import.name.starts_with(name))
            .map(|import| import.need.clone())
    };
    assert_eq!(need("hostler:handler/delivery@1.0.0"), Some(Need::Nothing));
    assert_eq!(need("wasi:filesystem/preopens@0.2"), Some(Need::Inert));
    assert_eq!(need("wasi:clocks/monotonic-clock@0.2"), Some(Need::Nothing));

    let digest = sandbox.digest();
    assert_eq!(digest.len(), "sha256:".len() + 64);
    assert!(digest.starts_with("sha256:"));
    let again = Sandbox::load(&path, &Settings::default()).unwrap();
    assert_eq!(again.digest(), digest);
}

#[tokio::test]
async fn odd_limits_work() {
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
            assert_eq!(
                rig.sandbox.describe().pooling,
                allocation == Allocation::Auto
            );
            assert_eq!(rig.run("").await.outcome, Outcome::Ack);
        }
    }
    let no_stack = Settings {
        limits: Limits {
            stack: 0,
            ..Limits::default()
        },
        ..Settings::default()
    };
    assert_eq!(
        refusal(&bytes, &no_stack),
        "can't be run here: max_wasm_stack size cannot be zero"
    );
}

#[test]
fn little_address_space_is_enough() {
    const CHILD: &str = "HOSTLER_TEST_LITTLE_ADDRESS_SPACE";
    if std::env::var_os(CHILD).is_none() {
        // Limits last: they are a process's own.
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "sandbox_load::little_address_space_is_enough"])
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
fn loading_works_inside_of_an_async_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let loaded = runtime
        .block_on(async { Sandbox::load_bytes(&handler("", "i32.const 0"), &Settings::default()) });
    assert!(loaded.is_ok());
}

#[test]
fn the_version_of_wasmtime_is_the_one_in_the_lock_file() {
    let lock = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock");
    let lock = fs::read_to_string(lock).unwrap();
    let entry = format!("name = \"wasmtime\"\nversion = \"{WASMTIME_VERSION}\"");
    assert!(lock.contains(&entry), "WASMTIME_VERSION is stale");
}
