//! Hostile guests and files: what they do to themselves, and to those beside them.
//!
//! The random ones are as many as the variable `FUZZ_CASES` says; `make fuzz` says more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hostler::delivery::message::Headers;
use hostler::delivery::message::Message;
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Compiler, Limits, LoadError, Sandbox, Settings};
use hostler_tests::guests::{component, guest, handler, handler_of};
use hostler_tests::host::binary;
use hostler_tests::rig::{Rig, message};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use wasm_smith::{Component, Module};

/// Slots of honest messages, and of hostile ones.
const SLOTS: usize = 8;

/// How many random cases, if nobody says more.
fn cases(default: u32) -> u32 {
    let given = std::env::var("FUZZ_CASES").ok();
    given.map_or(default, |text| text.parse().expect("`FUZZ_CASES` is a number"))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

/// Short, so that whatever loops does not loop for long.
fn impatient() -> Settings {
    Settings {
        concurrency: 1,
        limits: Limits {
            cpu: Duration::from_millis(30),
            wall: Duration::from_secs(20),
            compile_time: Duration::from_secs(20),
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// Whatever a guest does, it does to itself: the host does not panic over it.
fn harmless(outcome: &Outcome) {
    if let Outcome::Fault(fault) = outcome {
        assert_ne!(fault.kind, FaultKind::HostPanic, "{}", fault.detail);
    }
}

fn properties(cases: u32) -> TestRunner {
    TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    })
}

#[test]
fn random_bytes_are_refused() {
    let honest = handler("", "i32.const 0");
    let random = prop::collection::vec(any::<u8>(), 0..2_000);
    let parts = (0..4_u8, any::<prop::sample::Index>(), random);
    let runtime = runtime();
    properties(cases(300))
        .run(&parts, |(kind, at, bytes)| {
            let file = match kind {
                0 => bytes,
                1 => [b"\0asm\x0d\0\x01\0", &bytes[..]].concat(),
                2 => [b"\0asm\x01\0\0\0", &bytes[..]].concat(),
                // A handler with something else in the middle.
                _ => {
                    let at = at.index(honest.len());
                    let rest = honest.get(at + bytes.len()..).unwrap_or_default();
                    [&honest[..at], &bytes[..], rest].concat()
                }
            };
            // Refused, all but always; and what loads must be a handler.
            if let Ok(sandbox) = Sandbox::load_bytes(&file, &impatient()) {
                harmless(&runtime.block_on(Rig::of(sandbox).run("x")).outcome);
            }
            Ok(())
        })
        .unwrap();
}

#[test]
fn random_components_are_compiled_within_bounds_or_refused() {
    let settings = Settings {
        compiler: Compiler::Child { program: binary() },
        ..impatient()
    };
    let mut compiled = 0;
    let number = cases(40);
    for seed in 0..number {
        let mut rng = fastrand::Rng::with_seed(u64::from(seed));
        let bytes: Vec<u8> = (0..20_000).map(|_| rng.u8(..)).collect();
        let config = wasm_smith::Config {
            max_components: 4,
            ..wasm_smith::Config::default()
        };
        let mut source = arbitrary::Unstructured::new(&bytes);
        let Ok(component) = Component::new(config, &mut source) else {
            continue;
        };
        match Sandbox::load_bytes(&component.to_bytes(), &settings) {
            // By what it exports or imports, so it was compiled.
            Err(
                LoadError::NoHandler { .. }
                | LoadError::OtherVersion { .. }
                | LoadError::Ambiguous { .. }
                | LoadError::NotGranted { .. }
                | LoadError::NeedsMore { .. },
            ) => compiled += 1,
            // It uses what this host does not offer, or too much of the compiler.
            Err(
                LoadError::Invalid { .. }
                | LoadError::CompileTime { .. }
                | LoadError::CompileMemory { .. }
                | LoadError::CodeTooLarge { .. },
            ) => {}
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(compiled > number / 8, "{compiled} of {number}");
}

#[test]
fn random_code_is_contained() {
    // What a handler exports, as an example of what to generate.
    let shape = wat::parse_str(
        r#"(module
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "handle")
                (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32 i64) (result i32) unreachable)
            (memory (export "memory") 1))"#,
    )
    .unwrap();
    let mut kinds = std::collections::BTreeMap::new();
    let runtime = runtime();
    for seed in 0..cases(60) {
        let mut rng = fastrand::Rng::with_seed(u64::from(seed));
        let bytes: Vec<u8> = (0..6_000).map(|_| rng.u8(..)).collect();
        let config = wasm_smith::Config {
            exports: Some(shape.clone()),
            max_imports: 0,
            max_memories: 1,
            memory_max_size_is_required: false,
            min_memories: 1,
            ..wasm_smith::Config::default()
        };
        let mut source = arbitrary::Unstructured::new(&bytes);
        let module = Module::new(config, &mut source).unwrap().to_bytes();
        let end = match Sandbox::load_bytes(&handler_of(&module), &impatient()) {
            Ok(sandbox) => {
                let outcome = runtime.block_on(Rig::of(sandbox).run("body")).outcome;
                harmless(&outcome);
                match outcome {
                    Outcome::Fault(fault) => fault.kind.label().to_owned(),
                    other => format!("{other:?}"),
                }
            }
            Err(LoadError::Start(fault)) => {
                assert_ne!(fault.kind, FaultKind::HostPanic, "{}", fault.detail);
                "does not start".to_owned()
            }
            Err(LoadError::Invalid { .. } | LoadError::NeedsMore { .. }) => "refused".to_owned(),
            Err(error) => panic!("seed {seed}: {error}"),
        };
        *kinds.entry(end).or_insert(0) += 1;
    }
    // Else nothing of it ever ran.
    assert!(kinds.keys().any(|kind| kind != "refused"), "{kinds:?}");
    println!("{kinds:?}");
}

#[test]
fn random_answers_are_outcomes_or_faults() {
    let settings = impatient();
    let runtime = runtime();
    let answers = (
        prop::collection::vec(any::<u8>(), 24),
        0..70_000_u32,
        any::<bool>(),
    );
    properties(cases(150))
        .run(&answers, |(mut bytes, address, is_variant)| {
            if is_variant {
                // A case that there is, with random contents.
                bytes[0] %= 3;
                bytes[8] %= 2;
            }
            let text: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
            // Where the answer is, or somewhere else.
            let address = if is_variant { 2_048 } else { address };
            let items = format!(r#"(data (memory $memory) (i32.const 2048) "{text}")"#);
            let bytes = handler(&items, &format!("i32.const {address}"));
            let sandbox = Sandbox::load_bytes(&bytes, &settings).unwrap();
            let outcome = runtime.block_on(Rig::of(sandbox).run("x")).outcome;
            match &outcome {
                Outcome::Drop(Some(reason)) => assert!(reason.len() <= 1 << 10),
                Outcome::Fault(fault) => assert!(
                    matches!(
                        fault.kind,
                        FaultKind::BadOutcome | FaultKind::OutputLimit | FaultKind::Trap
                    ),
                    "{fault}"
                ),
                _ => {}
            }
            harmless(&outcome);
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_million_headers() {
    let with = |count: u32| {
        let mut headers = Headers::default();
        for i in 0..count {
            headers.push(format!("h{i}"), "");
        }
        Message {
            headers,
            ..message("ack")
        }
    };
    let mut rig = Rig::scripted(&Settings {
        limits: Limits {
            cpu: Duration::from_secs(40),
            wall: Duration::from_secs(50),
            ..Limits::default()
        },
        ..Settings::default()
    });
    assert_eq!(rig.call(&with(10_000), 1).await.outcome, Outcome::Ack);
    // More than its memory has room for.
    let report = rig.call(&with(1_000_000), 1).await;
    let Outcome::Fault(fault) = report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(fault.kind, FaultKind::MemoryLimit, "{}", fault.detail);
    assert!(report.memory_bytes <= 64 << 20);
    assert_eq!(rig.call(&with(10_000), 1).await.outcome, Outcome::Ack);
}

#[test]
fn a_component_that_nests_deeply_or_repeats_itself() {
    let nested = |depth: usize| {
        let text = format!(
            "{}{}",
            "(component ".repeat(depth),
            ")".repeat(depth)
        );
        component(&text)
    };
    let settings = Settings {
        compiler: Compiler::Child { program: binary() },
        ..impatient()
    };
    let error = Sandbox::load_bytes(&nested(90), &settings).unwrap_err();
    assert!(matches!(error, LoadError::NoHandler { .. }), "{error}");
    let error = Sandbox::load_bytes(&nested(400), &settings).unwrap_err();
    assert!(matches!(error, LoadError::Invalid { .. }), "{error}");

    // Instances of instances: ten levels, each of which makes the one below ten times.
    let mut text = "(component $c0 (core module $m (memory 1)) (core instance (instantiate $m)))"
        .to_owned();
    for level in 1..=9 {
        let below = level - 1;
        let made = format!("(instance (instantiate $c{below}))").repeat(10);
        text = format!("(component $c{level} {text} {made})");
    }
    let error = Sandbox::load_bytes(&component(&text), &settings).unwrap_err();
    assert!(
        !matches!(error, LoadError::CompilerCrashed { .. }),
        "{error}"
    );
}

/// Honest messages in their slots, for each of which is noted how long it took.
async fn honest(sandbox: &Sandbox) -> Vec<Duration> {
    const MESSAGES: usize = 40;
    let slots: Vec<_> = (0..SLOTS)
        .map(|_| {
            let mut rig = Rig::of(sandbox.clone());
            tokio::spawn(async move {
                let mut took = Vec::with_capacity(MESSAGES);
                for _ in 0..MESSAGES {
                    let pause = Duration::from_micros(fastrand::u64(0..40_000));
                    tokio::time::sleep(pause).await;
                    let begun = Instant::now();
                    assert_eq!(rig.run("spin:1").await.outcome, Outcome::Ack);
                    took.push(begun.elapsed());
                }
                took
            })
        })
        .collect();
    let mut all = Vec::with_capacity(SLOTS * MESSAGES);
    for slot in slots {
        all.extend(slot.await.unwrap());
    }
    all
}

/// The 99th percentile of honest messages, while as many slots again have these, one after the
/// other.
async fn p99_beside(sandbox: &Sandbox, body: &'static str) -> Duration {
    let stop = Arc::new(AtomicBool::new(false));
    let others: Vec<_> = (0..SLOTS)
        .map(|_| {
            let mut rig = Rig::of(sandbox.clone());
            let stop = Arc::clone(&stop);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    rig.run(body).await;
                }
            })
        })
        .collect();
    let mut took = honest(sandbox).await;
    stop.store(true, Ordering::Relaxed);
    for other in others {
        other.await.unwrap();
    }
    took.sort();
    took[took.len() * 99 / 100]
}

/// Of two runs on a full host, one with honest messages alone, one half of them hostile, the
/// second has the first's latency, three times at most. Other programs disturb both, so the two
/// are side by side, and repeated where they were disturbed.
#[test]
fn honest_messages_do_not_feel_hostile_ones() {
    let settings = Settings {
        limits: Limits {
            cpu: Duration::from_millis(200),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let sandbox = Sandbox::load(&guest("scripted"), &settings).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let hostile = [
        "loop",
        "doze",
        "copy:8",
        "grow:70",
        "recurse:100000000",
        "recurse-host:100000000",
        "lines:1000000",
        "reply:3000000",
        "handles:100000",
        "trap",
        "exit:1",
    ];
    runtime.block_on(async {
        for body in hostile {
            let mut seen = Vec::new();
            let is_kept = loop {
                let alone = p99_beside(&sandbox, "spin:1").await;
                let beside = p99_beside(&sandbox, body).await;
                seen.push((alone, beside));
                if beside <= alone * 3 {
                    break true;
                }
                if seen.len() == 5 {
                    break false;
                }
            };
            assert!(is_kept, "{body}: {seen:?}");
        }
    });
}
