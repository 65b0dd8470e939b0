//! Snapshots: instances begin after the start of their component, and answer as if each had run it.

use std::time::Duration;

use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Cache, Limits, LoadError, Sandbox, Settings, Start};
use hostler_tests::guests::{HANDLE, exporting, guest, handler, language};
use hostler_tests::rig::Rig;

use crate::sandbox::sandbox_compile::{by_child, refusal};

/// A start that counts to 100,000, in `$count`, and then does `more`.
fn counting(more: &str) -> String {
    format!(
        "(global $count (mut i32) (i32.const 0))
         (func $start
            (loop $again
                (global.set $count (i32.add (global.get $count) (i32.const 1)))
                (br_if $again (i32.lt_u (global.get $count) (i32.const 100000))))
            {more})
         (start $start)"
    )
}

/// The body of a handler that answers with a delay: an expression of type `i64`, in milliseconds.
fn answering(delay: &str) -> String {
    format!(
        "(i32.store8 (i32.const 64) (i32.const 1))
         (i32.store8 (i32.const 72) (i32.const 1))
         (i64.store (i32.const 80) {delay})
         (i32.const 64)"
    )
}

/// A handler whose core module imports functions of WASI: their declarations in the component, the
/// declarations in the module, what it imports from, and its items.
fn importing(component: &str, module: &str, from: &str, items: &str, delay: &str) -> Vec<u8> {
    let core = HANDLE.core;
    let body = answering(delay);
    exporting(
        &HANDLE,
        "1.0.0",
        &format!(
            r#"{component}
            (core module $module
                {module}
                (memory $memory 1)
                (export "memory" (memory $memory))
                (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024)
                {items}
                (func (export "handle") {core} {body}))
            (core instance $core (instantiate $module (with "host" (instance {from}))))
            (alias core export $core "handle" (core func $run))
            (alias core export $core "memory" (core memory $memory))
            (alias core export $core "realloc" (core func $realloc))"#
        ),
    )
}

/// A handler that reads a random number, by `$random`, with these items.
fn random(items: &str, delay: &str) -> Vec<u8> {
    importing(
        r#"(import "wasi:random/random@0.2.0" (instance $from
               (export "get-random-u64" (func (result u64)))))
           (core func $random (canon lower (func $from "get-random-u64")))"#,
        r#"(import "host" "random" (func $random (result i64)))"#,
        r#"(export "random" (func $random))"#,
        items,
        delay,
    )
}

/// A handler that opens standard output, by `$open`, and closes a stream, by `$close`.
fn opening(items: &str, delay: &str) -> Vec<u8> {
    importing(
        r#"(import "wasi:io/streams@0.2.0" (instance $streams
               (export "output-stream" (type (sub resource)))))
           (alias export $streams "output-stream" (type $stream))
           (import "wasi:cli/stdout@0.2.0" (instance $stdout
               (alias outer 1 $stream (type $outer))
               (export "output-stream" (type $inner (eq $outer)))
               (export "get-stdout" (func (result (own $inner))))))
           (core func $open (canon lower (func $stdout "get-stdout")))
           (core func $close (canon resource.drop $stream))"#,
        r#"(import "host" "open" (func $open (result i32)))
           (import "host" "close" (func $close (param i32)))"#,
        r#"(export "open" (func $open)) (export "close" (func $close))"#,
        items,
        delay,
    )
}

/// With and without snapshots.
fn both() -> [Settings; 2] {
    [true, false].map(|snapshot| Settings {
        snapshot,
        ..by_child(Limits::default())
    })
}

fn start_of(bytes: &[u8]) -> Start {
    let sandbox = Sandbox::load_bytes(bytes, &by_child(Limits::default()));
    sandbox.expect("it loads").describe().start.clone()
}

fn reason(start: &Start) -> &str {
    match start {
        Start::Whole { reason } => reason,
        Start::Short | Start::Snapshot { .. } => "none",
    }
}

/// The delays that two fresh instances answer with, in milliseconds.
async fn delays(rig: &mut Rig) -> [u128; 2] {
    let mut delays = [0; 2];
    for delay in &mut delays {
        match rig.run("").await.outcome {
            Outcome::NackRequeue(Some(asked)) => *delay = asked.as_millis(),
            other => unreachable!("not a delay: {other:?}"),
        }
    }
    delays
}

#[tokio::test]
async fn instances_begin_after_the_start_and_share_nothing() {
    // The answer shows what it counts, writes and grows at the start and in the call.
    let start = counting(
        "(i64.store (i32.const 128) (i64.const 40))
         (drop (memory.grow (i32.const 2)))",
    );
    let answer = "(i64.add (i64.load (i32.const 128))
        (i64.add (i64.extend_i32_u (global.get $count))
                 (i64.mul (i64.const 1000000) (i64.extend_i32_u (memory.size)))))";
    let changes = "(i64.store (i32.const 128) (i64.add (i64.load (i32.const 128)) (i64.const 1)))
        (global.set $count (i32.add (global.get $count) (i32.const 1)))
        (drop (memory.grow (i32.const 1)))";
    let bytes = handler(&start, &format!("{changes} {}", answering(answer)));
    let [with, without] = both();
    let mut rig = Rig::bytes(&bytes, &with);
    let Start::Snapshot { instructions } = rig.sandbox.describe().start else {
        panic!("{:?}", rig.sandbox.describe().start);
    };
    assert!(
        (500_000..2_000_000).contains(&instructions),
        "{instructions}"
    );
    assert_eq!(rig.sandbox.describe().memory_initial, 3 << 16);
    assert_eq!(delays(&mut rig).await, [4_100_042; 2]);

    let mut rig = Rig::bytes(&bytes, &without);
    let start = &rig.sandbox.describe().start;
    assert_eq!(reason(start), "the setting `snapshot` is off");
    assert_eq!(delays(&mut rig).await, [4_100_042; 2]);
}

#[tokio::test]
async fn data_segments_that_the_start_or_the_code_uses_are_in_the_snapshot() {
    let items = |late: &str| {
        let start = counting("(i32.store8 (i32.const 257) (i32.const 2))");
        format!("(data (i32.const 256) \"\\01\") (data (i32.const 259) \"\\04\") {late} {start}")
    };
    let answer = answering("(i64.extend_i32_u (i32.load (i32.const 256)))");
    let passive = "(data $late \"\\03\")";
    let copies = "(memory.init $late (i32.const 258) (i32.const 0) (i32.const 1))";
    let cases = [
        (handler(&items(""), &answer), 0x0400_0201),
        (handler(&items(passive), &answer), 0x0400_0201),
        (
            handler(&items(passive), &format!("{copies} {answer}")),
            0x0403_0201,
        ),
    ];
    for (bytes, expected) in cases {
        for settings in both() {
            let mut rig = Rig::bytes(&bytes, &settings);
            let from_snapshot = matches!(rig.sandbox.describe().start, Start::Snapshot { .. });
            assert_eq!(from_snapshot, settings.snapshot);
            assert_eq!(delays(&mut rig).await, [expected; 2], "{from_snapshot}");
        }
    }
}

#[tokio::test]
async fn an_instance_opens_the_streams_of_the_start_again() {
    // The handle of the second stream comes from the start, and that of the third from the call.
    let start = counting("(drop (call $open)) (global.set $stream (call $open))");
    let items = format!("(global $stream (mut i32) (i32.const 0)) {start}");
    let answer = "(block (result i64)
        (call $close (global.get $stream))
        (i64.extend_i32_u (i32.add (i32.mul (call $open) (i32.const 10)) (global.get $stream))))";
    let bytes = opening(&items, answer);
    for settings in both() {
        let mut rig = Rig::bytes(&bytes, &settings);
        let from_snapshot = matches!(rig.sandbox.describe().start, Start::Snapshot { .. });
        assert_eq!(from_snapshot, settings.snapshot);
        // The number of a closed handle is used again.
        assert_eq!(delays(&mut rig).await, [22; 2], "{from_snapshot}");
    }
}

#[tokio::test]
async fn a_component_that_resumes_draws_random_numbers_in_each_instance() {
    let start = counting("(global.set $seed (call $random))");
    let items = format!(
        "(global $seed (mut i64) (i64.const 0))
         {start}
         (func (export \"hostler_resume\")
            (if (i32.ne (global.get $count) (i32.const 100000)) (then unreachable))
            (global.set $seed (call $random)))"
    );
    let answer = "(i64.shr_u (global.get $seed) (i64.const 33))";
    let mut rig = Rig::bytes(&random(&items, answer), &by_child(Limits::default()));
    assert!(matches!(
        rig.sandbox.describe().start,
        Start::Snapshot { .. }
    ));
    let [one, other] = delays(&mut rig).await;
    assert_ne!(one, other);
}

#[test]
fn what_a_start_must_not_do_is_done_in_each_instance() {
    let ack = "i32.const 0";
    let cases = [
        (
            random(&counting("(drop (call $random))"), "(i64.const 0)"),
            "its start calls wasi:random/random@0.2.0#get-random-u64",
        ),
        (
            handler(&counting("(drop (call $is-cancelled))"), ack),
            "its start calls hostler:handler/delivery@1.0.0#is-cancelled",
        ),
        (
            opening(&counting("(call $close (call $open))"), "(i64.const 0)"),
            "its start closes a stream",
        ),
        (
            opening(
                &counting(&"(drop (call $open))".repeat(17)),
                "(i64.const 0)",
            ),
            "its start opens more than 16 streams",
        ),
        (
            handler(
                &format!(
                    "(table $table 1 funcref)
                     {}",
                    counting("(table.set $table (i32.const 0) (ref.null func))")
                ),
                ack,
            ),
            "unsupported `table.set` instruction",
        ),
        (
            handler(&counting("(drop (memory.grow (i32.const 1023)))"), ack),
            "its memory cannot be read: ",
        ),
    ];
    for (bytes, expected) in cases {
        let start = start_of(&bytes);
        assert!(
            reason(&start).starts_with(expected),
            "{expected}: {start:?}"
        );
    }
}

#[test]
fn a_short_start_and_none_need_no_snapshot() {
    assert_eq!(start_of(&handler("", "i32.const 0")), Start::Short);
    let short = handler("(func $start) (start $start)", "i32.const 0");
    assert_eq!(start_of(&short), Start::Short);
}

#[test]
fn a_start_that_fails_is_the_same_fault_as_without_a_snapshot() {
    let limits = Limits {
        cpu: Duration::from_millis(100),
        ..Limits::default()
    };
    let fault = |start: &str| {
        let settings = by_child(limits.clone());
        match refusal(&handler(&counting(start), "i32.const 0"), &settings) {
            LoadError::Start(fault) => fault.kind,
            other => panic!("{other}"),
        }
    };
    assert_eq!(fault("unreachable"), FaultKind::Instantiation);
    assert_eq!(
        fault("(loop $for-ever (br $for-ever))"),
        FaultKind::Instantiation
    );
}

#[test]
fn the_cache_knows_how_instances_start() {
    let place = tempfile::tempdir().unwrap();
    let bytes = handler(&counting(""), "i32.const 0");
    for again in [false, true] {
        for settings in both() {
            let settings = Settings {
                cache: Some(Cache {
                    dir: place.path().join("cache"),
                    max_bytes: 1 << 30,
                }),
                ..settings
            };
            let sandbox = Sandbox::load_bytes(&bytes, &settings).unwrap();
            let description = sandbox.describe();
            assert_eq!(description.cached, again, "{:?}", description.start);
            let from_snapshot = matches!(description.start, Start::Snapshot { .. });
            assert_eq!(from_snapshot, settings.snapshot);
        }
    }
}

#[test]
fn programs_and_other_languages_have_short_starts() {
    let limits = Limits {
        compile_time: Duration::from_secs(600),
        ..Limits::default()
    };
    for file in [guest("program"), guest("orders-handler"), language("c")] {
        let rig = Rig::file(&file, &by_child(limits.clone()));
        assert_eq!(rig.sandbox.describe().start, Start::Short, "{file:?}");
    }
}

mod long {
    use super::*;

    #[test]
    fn instances_of_the_example_in_go_begin_from_a_snapshot() {
        let settings = by_child(Limits {
            compile_time: Duration::from_secs(600),
            ..Limits::default()
        });
        let rig = Rig::file(&language("go"), &settings);
        let start = &rig.sandbox.describe().start;
        assert!(matches!(start, Start::Snapshot { .. }), "{start:?}");
    }
}
