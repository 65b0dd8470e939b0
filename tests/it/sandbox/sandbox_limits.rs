//! Every limit: an attempt within it, and an attempt beyond it.

use std::time::{Duration, Instant};

use hostler::delivery::outcome::{Fault, FaultKind, Outcome};
use hostler::rollout::verify::{Refusal, Step};
use hostler::sandbox::{Allocation, Limits, LoadError, Sandbox, Settings};
use hostler_tests::guests::{handler, handler_beside};
use hostler_tests::rig::Rig;

const MIB: usize = 1 << 20;

fn limited(limits: Limits) -> Settings {
    Settings {
        limits,
        ..Settings::default()
    }
}

/// One body stays within the limit, and another one exceeds it.
async fn pair(rig: &mut Rig, bodies: [&str; 2], kind: FaultKind, detail: &str) {
    let [within, beyond] = bodies;
    let report = rig.run(within).await;
    assert_eq!(report.outcome, Outcome::Ack, "{within}");
    let fault = rig.fault(beyond).await;
    assert_eq!(fault.kind, kind, "{beyond}: {}", fault.detail);
    let begins = fault.detail.starts_with(detail);
    assert!(begins, "{beyond}: {}", fault.detail);
    // The slot works after the fault.
    let report = rig.run(within).await;
    assert_eq!(report.outcome, Outcome::Ack, "{within} after {beyond}");
}

/// The outcome of one message.
async fn outcome(bytes: &[u8], settings: &Settings) -> Outcome {
    Rig::bytes(bytes, settings).run("").await.outcome
}

/// The fault of one message.
async fn fault(bytes: &[u8], settings: &Settings) -> Fault {
    Rig::bytes(bytes, settings).fault("").await
}

#[tokio::test]
async fn an_attempt_past_the_timeout_is_a_wall_timeout() {
    let mut rig = Rig::scripted(&limited(Limits {
        wall: Duration::from_millis(1_500),
        ..Limits::default()
    }));
    let detail = "no answer within 1.5s (limit `timeout`)";
    let bodies = ["sleep:100", "sleep:60000"];
    pair(&mut rig, bodies, FaultKind::WallTimeout, detail).await;
    let started = Instant::now();
    rig.fault("sleep:60000").await;
    assert!(started.elapsed() >= Duration::from_millis(1_500));
    // The shorter limit ends a loop.
    let fault = rig.fault("loop").await;
    assert_eq!(fault.kind, FaultKind::WallTimeout);
}

#[tokio::test]
async fn an_attempt_past_the_cpu_limit_is_a_cpu_timeout() {
    let mut rig = Rig::scripted(&limited(Limits {
        cpu: Duration::from_millis(300),
        ..Limits::default()
    }));
    let detail = "ran for more than 300ms (limit `cpu`)";
    let bodies = ["spin:50", "loop"];
    pair(&mut rig, bodies, FaultKind::CpuTimeout, detail).await;
    let started = Instant::now();
    rig.fault("loop").await;
    assert!(started.elapsed() >= Duration::from_millis(280));
}

#[tokio::test]
async fn waiting_uses_no_cpu_time() {
    let mut rig = Rig::scripted(&limited(Limits {
        cpu: Duration::from_millis(150),
        ..Limits::default()
    }));
    assert_eq!(rig.run("sleep:600+spin:20").await.outcome, Outcome::Ack);
    // Short waits do not hide the time that a guest computes.
    let fault = rig.fault("doze").await;
    assert_eq!(fault.kind, FaultKind::CpuTimeout);
}

#[tokio::test]
async fn bulk_instructions_use_cpu_time() {
    let mut rig = Rig::scripted(&limited(Limits {
        cpu: Duration::from_millis(200),
        ..Limits::default()
    }));
    let fault = rig.fault("copy:32").await;
    assert_eq!(fault.kind, FaultKind::CpuTimeout);
}

#[tokio::test]
async fn growing_past_the_memory_limit_is_a_fault() {
    for allocation in [Allocation::Auto, Allocation::OnDemand] {
        let mut rig = Rig::scripted(&Settings {
            allocation,
            limits: Limits {
                memory: 16 * MIB,
                ..Limits::default()
            },
            ..Settings::default()
        });
        let is_pooling = allocation == Allocation::Auto;
        assert_eq!(rig.sandbox.describe().pooling, is_pooling);
        let bodies = ["grow:8", "grow:32"];
        pair(&mut rig, bodies, FaultKind::MemoryLimit, "requested ").await;
        let small = rig.run("ack").await.memory_bytes;
        let large = rig.run("grow:8").await.memory_bytes;
        assert!(small >= MIB && large >= small + 8 * MIB && large <= 16 * MIB);
    }
}

#[tokio::test]
async fn a_guest_that_copes_with_denied_memory_does_not_fault() {
    let bytes = handler(
        "",
        "(drop (memory.grow $memory (i32.const 30000))) i32.const 0",
    );
    let mut rig = Rig::bytes(&bytes, &Settings::default());
    let report = rig.run("").await;
    assert_eq!(report.outcome, Outcome::Ack);
    assert_eq!(report.memory_bytes, 64 << 10);
}

#[tokio::test]
async fn all_memories_share_one_limit() {
    let bytes = handler(
        "(memory $second 1)",
        "(if (i32.eq (memory.grow $memory (i32.const 500)) (i32.const -1)) (then unreachable))
         (if (i32.eq (memory.grow $second (i32.const 600)) (i32.const -1)) (then unreachable))
         i32.const 0",
    );
    let fault = fault(&bytes, &Settings::default()).await;
    assert_eq!(fault.kind, FaultKind::MemoryLimit);
    let (wanted, limit) = (1102 * (64 << 10), 64 * MIB);
    let detail =
        format!("requested {wanted} bytes of linear memory, the limit is {limit} (limit `memory`)");
    assert_eq!(fault.detail, detail);
    let roomy = limited(Limits {
        memory: 128 * MIB,
        ..Limits::default()
    });
    assert_eq!(outcome(&bytes, &roomy).await, Outcome::Ack);
}

#[tokio::test]
async fn growing_past_the_table_limit_is_a_fault() {
    let grow = |elements: u32| {
        let body = format!(
            "(if (i32.eq (table.grow $table (ref.null func) (i32.const {elements}))
                         (i32.const -1))
                 (then unreachable))
             i32.const 0"
        );
        handler("(table $table 10 funcref)", &body)
    };
    let settings = limited(Limits {
        table_elements: 1000,
        ..Limits::default()
    });
    assert_eq!(outcome(&grow(900), &settings).await, Outcome::Ack);
    let fault = fault(&grow(991), &settings).await;
    assert_eq!(fault.kind, FaultKind::MemoryLimit);
    assert_eq!(
        fault.detail,
        "requested 1001 table elements, the limit is 1000 (limit `table_elements`)"
    );
}

#[tokio::test]
async fn overflowing_the_stack_is_a_fault() {
    let mut rig = Rig::scripted(&Settings::default());
    let detail = "call stack of 524288 bytes exhausted (limit `stack`)";
    for bodies in [
        ["recurse:1000", "recurse:100000000"],
        ["recurse-host:1000", "recurse-host:100000000"],
    ] {
        pair(&mut rig, bodies, FaultKind::StackOverflow, detail).await;
    }
    let [mut small, mut large] = [64 << 10, 4 * MIB].map(|stack| {
        Rig::scripted(&limited(Limits {
            stack,
            ..Limits::default()
        }))
    });
    let deep = "recurse:20000";
    assert_eq!(small.fault(deep).await.kind, FaultKind::StackOverflow);
    assert_eq!(large.run(deep).await.outcome, Outcome::Ack);
}

#[tokio::test]
async fn a_long_reason_is_cut_and_too_much_transfer_is_a_fault() {
    let mut rig = Rig::scripted(&limited(Limits {
        transfer: 100_000,
        outcome_text: 1000,
        ..Limits::default()
    }));
    assert_eq!(rig.reason("reply:1000").await, "x".repeat(1000));
    // A reason longer than `outcome_text` is cut; one longer than `transfer` is a fault.
    assert_eq!(rig.reason("reply:99000").await, "x".repeat(1000));
    let fault = rig.fault("reply:100001").await;
    assert_eq!(fault.kind, FaultKind::OutputLimit);
    let detail = "more than 100000 bytes handed to the host in one call (limit `transfer`)";
    assert!(fault.detail.starts_with(detail), "{fault}");
}

#[tokio::test]
async fn a_reason_is_cut_between_characters() {
    let mut rig = Rig::scripted(&limited(Limits {
        outcome_text: 3,
        ..Limits::default()
    }));
    assert_eq!(rig.reason("drop:aéé").await, "aé");
    assert_eq!(rig.reason("drop:éé").await, "é");
}

#[tokio::test]
async fn too_many_handles_are_a_fault() {
    let mut rig = Rig::scripted(&Settings::default());
    let bodies = ["handles:400", "handles:1001"];
    let detail = "more than 1000 resource handles (limit `handles`)";
    pair(&mut rig, bodies, FaultKind::MemoryLimit, detail).await;
}

#[tokio::test]
async fn leaked_handles_are_freed_with_their_instance() {
    // An instance that is not reused takes its handles with it.
    let mut rig = Rig::scripted(&Settings::default());
    for _ in 0..5 {
        assert_eq!(rig.run("leak:400").await.outcome, Outcome::Ack);
    }
    // A reused instance keeps them until it reaches the limit.
    let mut rig = Rig::scripted(&Settings {
        reuse: 100,
        ..Settings::default()
    });
    assert_eq!(rig.run("leak:400").await.outcome, Outcome::Ack);
    assert_eq!(rig.fault("leak:400").await.kind, FaultKind::MemoryLimit);
    let report = rig.run("leak:400").await;
    assert_eq!(report.outcome, Outcome::Ack);
    assert!(report.fresh);
    // Handles that were given back do not count.
    for _ in 0..5 {
        assert!(!rig.run("handles:1").await.fresh);
    }
    let mut rig = Rig::scripted(&Settings {
        reuse: 100,
        ..Settings::default()
    });
    for _ in 0..5 {
        assert_eq!(rig.run("handles:400").await.outcome, Outcome::Ack);
    }
}

#[tokio::test]
async fn asking_for_too_many_random_bytes_is_a_trap() {
    let mut rig = Rig::scripted(&Settings::default());
    let bodies = ["random:65536", "random:65537"];
    let detail = "requested len 65537 exceeds limit 65536";
    pair(&mut rig, bodies, FaultKind::Trap, detail).await;
}

#[tokio::test]
async fn an_invalid_answer_is_a_bad_outcome() {
    // An unknown case of the variant.
    let invalid = handler(
        r#"(data (memory $memory) (i32.const 0) "\03")"#,
        "i32.const 0",
    );
    // A reason that is not UTF-8.
    let not_text = handler(
        r#"(data (memory $memory) (i32.const 0)
            "\02\00\00\00\00\00\00\00" "\01\00\00\00" "\20\00\00\00" "\02\00\00\00\00\00\00\00"
            "\00\00\00\00\00\00\00\00" "\ff\fe")"#,
        "i32.const 0",
    );
    // An outcome outside of the memory.
    let outside = handler("", "i32.const 65528");
    for (bytes, detail) in [
        (invalid, "unexpected discriminant: 3"),
        (not_text, "invalid utf-8"),
        (outside, "pointer out of bounds of memory"),
    ] {
        let fault = fault(&bytes, &Settings::default()).await;
        assert_eq!(fault.kind, FaultKind::BadOutcome, "{fault}");
        assert!(fault.detail.contains(detail), "{}", fault.detail);
    }
}

#[tokio::test]
async fn the_longest_delay_is_passed_on() {
    // 2,592,000,000 milliseconds.
    let month = handler(
        r#"(data (memory $memory) (i32.const 0)
            "\01\00\00\00\00\00\00\00" "\01\00\00\00\00\00\00\00"
            "\00\c8\7e\9a\00\00\00\00")"#,
        "i32.const 0",
    );
    let longest = Duration::from_hours(30 * 24);
    let outcome = outcome(&month, &Settings::default()).await;
    assert_eq!(outcome, Outcome::NackRequeue(Some(longest)));
}

/// A component with additional core instances, each with this many globals.
fn crowd(instances: usize, globals: usize) -> Vec<u8> {
    let globals = "(global (mut i64) (i64.const 1))".repeat(globals);
    let instances = "(core instance (instantiate $crowd))".repeat(instances);
    handler_beside(&format!("(core module $crowd {globals}) {instances}"))
}

/// Memory from a pool, and memory mapped for each instance.
fn both_allocations() -> [Settings; 2] {
    [Allocation::Auto, Allocation::OnDemand].map(|allocation| Settings {
        allocation,
        ..Settings::default()
    })
}

#[tokio::test]
async fn an_instance_that_needs_too_much_beside_its_memory_is_refused() {
    for settings in both_allocations() {
        let outcome = outcome(&crowd(40, 20_000), &settings).await;
        assert_eq!(outcome, Outcome::Ack);
        // 80 instances of 20,000 globals of 16 bytes.
        let refused = Sandbox::load_bytes(&crowd(80, 20_000), &settings).unwrap_err();
        assert!(
            matches!(refused, LoadError::InstanceTooLarge { .. }),
            "{refused}"
        );
        let text = refused.to_string();
        assert!(text.contains("16777216 bytes"), "{text}");
        assert_eq!(Refusal::from(refused).step(), Step::Limits);
    }
}

#[tokio::test]
async fn too_many_core_instances_are_refused() {
    for settings in both_allocations() {
        let outcome = outcome(&crowd(200, 1), &settings).await;
        assert_eq!(outcome, Outcome::Ack);
        let refused = Sandbox::load_bytes(&crowd(300, 1), &settings).unwrap_err();
        assert!(
            matches!(refused, LoadError::InstanceTooLarge { .. }),
            "{refused}"
        );
        let text = refused.to_string();
        assert!(text.contains("core module instances"), "{text}");
        assert!(text.contains("maximum of 256"), "{text}");
        assert_eq!(Refusal::from(refused).step(), Step::Limits);
    }
}

/// What is loaded, or the refusal.
async fn loaded(bytes: &[u8], settings: &Settings) -> Result<Outcome, String> {
    match Sandbox::load_bytes(bytes, settings) {
        Ok(sandbox) => Ok(Rig::of(sandbox).run("").await.outcome),
        Err(refusal) => {
            let text = refusal.to_string();
            assert_eq!(Refusal::from(refusal).step(), Step::Limits, "{text}");
            Err(text)
        }
    }
}

fn many(number: u32, what: &str, limit: u32) -> Result<Outcome, String> {
    Err(format!(
        "has {number} {what}, the limit is {limit}; build it with fewer"
    ))
}

#[tokio::test]
async fn too_many_memories_and_tables_are_refused() {
    for settings in both_allocations() {
        // The handler has a memory of its own.
        let memories = |more| handler(&r#"(memory 1)"#.repeat(more), "i32.const 0");
        assert_eq!(loaded(&memories(31), &settings).await, Ok(Outcome::Ack));
        let refused = loaded(&memories(32), &settings).await;
        assert_eq!(refused, many(33, "linear memories", 32));
        // In several instances of one module.
        let instances = |count| {
            let module = r#"(core module $two (memory 1) (memory (data "x")))"#;
            let instance = "(core instance (instantiate $two))";
            handler_beside(&format!("{module}{}", instance.repeat(count)))
        };
        assert_eq!(loaded(&instances(15), &settings).await, Ok(Outcome::Ack));
        let refused = loaded(&instances(495), &settings).await;
        assert_eq!(refused, many(991, "linear memories", 32));

        let tables = |count| handler(&"(table 1 funcref)".repeat(count), "i32.const 0");
        assert_eq!(loaded(&tables(64), &settings).await, Ok(Outcome::Ack));
        let refused = loaded(&tables(65), &settings).await;
        assert_eq!(refused, many(65, "tables", 64));
    }
}

#[tokio::test]
async fn too_many_elements_in_passive_segments_are_refused() {
    let segment = |items: usize| format!("(elem func {})", "$f ".repeat(items));
    let module = |segments: &[usize]| {
        let segments: String = segments.iter().map(|items| segment(*items)).collect();
        format!("(core module (func $f) {segments})")
    };
    let settings = Settings::default();
    let many_in_one = handler_beside(&module(&[4_000, 0, 6_000]));
    assert_eq!(loaded(&many_in_one, &settings).await, Ok(Outcome::Ack));
    let one_more = handler_beside(&format!("{}{}", module(&[10_000]), module(&[1])));
    let refused = loaded(&one_more, &settings).await;
    assert_eq!(
        refused,
        many(10_001, "elements in passive segments", 10_000)
    );
    // Elements of other segments are in tables, which have a limit.
    let active = format!(
        "(table 20000 funcref) (func $f) (elem (i32.const 0) func {})",
        "$f ".repeat(20_000)
    );
    let active = handler(&active, "i32.const 0");
    assert_eq!(loaded(&active, &settings).await, Ok(Outcome::Ack));
}

#[tokio::test]
async fn too_many_types_are_refused() {
    let types =
        |count: usize| handler_beside(&format!("(core module {})", "(type (func))".repeat(count)));
    let settings = Settings::default();
    assert_eq!(loaded(&types(49_900), &settings).await, Ok(Outcome::Ack));
    let refused = loaded(&types(766_000), &settings).await.unwrap_err();
    assert!(refused.starts_with("has 7660"), "{refused}");
    assert!(refused.contains(" types, the limit is 50000;"), "{refused}");
}

#[tokio::test]
async fn modules_that_are_never_instantiated_hold_no_file_descriptors() {
    let modules = r#"(core module (memory 1) (data (i32.const 0) "x"))"#.repeat(500);
    let files = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = files();
    let outcome = outcome(&handler_beside(&modules), &Settings::default()).await;
    assert_eq!(outcome, Outcome::Ack);
    // Other tests of this process open and close some files too.
    assert!(files() < before + 400, "{before} before, {} now", files());
}
