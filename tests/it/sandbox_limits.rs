//! Every limit, obeyed and violated.

use std::time::{Duration, Instant};

use hostler::delivery::outcome::{FaultKind, Outcome};
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

/// One body that stays within its limit, and one that does not.
async fn pair(rig: &mut Rig, obeyed: &str, violated: &str, kind: FaultKind, detail: &str) {
    let report = rig.run(obeyed).await;
    assert_eq!(report.outcome, Outcome::Ack, "{obeyed}");
    let fault = rig.fault(violated).await;
    assert_eq!(fault.kind, kind, "{violated}: {}", fault.detail);
    assert!(
        fault.detail.starts_with(detail),
        "{violated}: {}",
        fault.detail
    );
    // And the host is none the worse for it.
    let report = rig.run(obeyed).await;
    assert_eq!(report.outcome, Outcome::Ack, "{obeyed} after {violated}");
}

#[tokio::test]
async fn wall_time() {
    let mut rig = Rig::scripted(&limited(Limits {
        wall: Duration::from_millis(500),
        ..Limits::default()
    }));
    let detail = "no answer within 500ms (limit `timeout`)";
    pair(
        &mut rig,
        "sleep:100",
        "sleep:60000",
        FaultKind::WallTimeout,
        detail,
    )
    .await;
    let started = Instant::now();
    rig.fault("sleep:60000").await;
    assert!(started.elapsed() >= Duration::from_millis(500));
    // A loop is ended by whichever limit is the shorter.
    let fault = rig.fault("loop").await;
    assert_eq!(fault.kind, FaultKind::WallTimeout);
}

#[tokio::test]
async fn cpu_time() {
    let mut rig = Rig::scripted(&limited(Limits {
        cpu: Duration::from_millis(300),
        ..Limits::default()
    }));
    let detail = "ran for more than 300ms (limit `cpu`)";
    pair(&mut rig, "spin:50", "loop", FaultKind::CpuTimeout, detail).await;
    let started = Instant::now();
    rig.fault("loop").await;
    assert!(started.elapsed() >= Duration::from_millis(280));
}

#[tokio::test]
async fn cpu_time_is_not_spent_by_waiting() {
    let mut rig = Rig::scripted(&limited(Limits {
        cpu: Duration::from_millis(150),
        ..Limits::default()
    }));
    assert_eq!(rig.run("sleep:600+spin:20").await.outcome, Outcome::Ack);
    // But waiting in between does not hide what is spent.
    let fault = rig.fault("doze").await;
    assert_eq!(fault.kind, FaultKind::CpuTimeout);
}

#[tokio::test]
async fn cpu_time_of_bulk_instructions() {
    let mut rig = Rig::scripted(&limited(Limits {
        cpu: Duration::from_millis(200),
        ..Limits::default()
    }));
    let fault = rig.fault("copy:32").await;
    assert_eq!(fault.kind, FaultKind::CpuTimeout);
}

#[tokio::test]
async fn memory() {
    for allocation in [Allocation::Auto, Allocation::OnDemand] {
        let mut rig = Rig::scripted(&Settings {
            allocation,
            limits: Limits {
                memory: 16 * MIB,
                ..Limits::default()
            },
            ..Settings::default()
        });
        assert_eq!(
            rig.sandbox.describe().pooling,
            allocation == Allocation::Auto
        );
        pair(
            &mut rig,
            "grow:8",
            "grow:32",
            FaultKind::MemoryLimit,
            "wanted ",
        )
        .await;
        let small = rig.run("ack").await.memory_bytes;
        let large = rig.run("grow:8").await.memory_bytes;
        assert!(small >= MIB && large >= small + 8 * MIB && large <= 16 * MIB);
    }
}

#[tokio::test]
async fn memory_that_is_denied_and_done_without_is_no_fault() {
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
async fn all_memories_count_together() {
    let bytes = handler(
        "(memory $second 1)",
        "(if (i32.eq (memory.grow $memory (i32.const 500)) (i32.const -1)) (then unreachable))
         (if (i32.eq (memory.grow $second (i32.const 600)) (i32.const -1)) (then unreachable))
         i32.const 0",
    );
    let report = Rig::bytes(&bytes, &Settings::default()).run("").await;
    let Outcome::Fault(fault) = report.outcome else {
        panic!("{report:?}");
    };
    assert_eq!(fault.kind, FaultKind::MemoryLimit);
    assert_eq!(
        fault.detail,
        format!(
            "wanted {} bytes of linear memory, may have {} (limit `memory`)",
            1102 * (64 << 10),
            64 * MIB
        )
    );
    let roomy = limited(Limits {
        memory: 128 * MIB,
        ..Limits::default()
    });
    assert_eq!(
        Rig::bytes(&bytes, &roomy).run("").await.outcome,
        Outcome::Ack
    );
}

#[tokio::test]
async fn tables() {
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
    let mut obeyed = Rig::bytes(&grow(900), &settings);
    assert_eq!(obeyed.run("").await.outcome, Outcome::Ack);
    let fault = Rig::bytes(&grow(991), &settings).fault("").await;
    assert_eq!(fault.kind, FaultKind::MemoryLimit);
    assert_eq!(
        fault.detail,
        "wanted 1001 table elements, may have 1000 (limit `table_elements`)"
    );
}

#[tokio::test]
async fn stack() {
    let mut rig = Rig::scripted(&Settings::default());
    pair(
        &mut rig,
        "recurse:1000",
        "recurse:100000000",
        FaultKind::StackOverflow,
        "call stack of 524288 bytes exhausted (limit `stack`)",
    )
    .await;
    pair(
        &mut rig,
        "recurse-host:1000",
        "recurse-host:100000000",
        FaultKind::StackOverflow,
        "call stack of 524288 bytes exhausted (limit `stack`)",
    )
    .await;
    let mut small = Rig::scripted(&limited(Limits {
        stack: 64 << 10,
        ..Limits::default()
    }));
    let mut large = Rig::scripted(&limited(Limits {
        stack: 4 * MIB,
        ..Limits::default()
    }));
    let deep = "recurse:20000";
    assert_eq!(small.fault(deep).await.kind, FaultKind::StackOverflow);
    assert_eq!(large.run(deep).await.outcome, Outcome::Ack);
}

#[tokio::test]
async fn transfer_and_text_of_an_answer() {
    let mut rig = Rig::scripted(&limited(Limits {
        transfer: 100_000,
        outcome_text: 1000,
        ..Limits::default()
    }));
    assert_eq!(rig.reason("reply:1000").await, "x".repeat(1000));
    // Too long for people: cut. Too long for the host: a fault.
    assert_eq!(rig.reason("reply:99000").await, "x".repeat(1000));
    let fault = rig.fault("reply:100001").await;
    assert_eq!(fault.kind, FaultKind::OutputLimit);
    assert!(
        fault.detail.starts_with(
            "more than 100000 bytes handed to the host in one call (limit `transfer`)"
        ),
        "{}",
        fault.detail
    );
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
async fn handles() {
    let mut rig = Rig::scripted(&Settings::default());
    pair(
        &mut rig,
        "handles:400",
        "handles:1001",
        FaultKind::MemoryLimit,
        "more than 1000 resource handles (limit `handles`)",
    )
    .await;
}

#[tokio::test]
async fn handles_that_are_leaked() {
    // They go with their instance.
    let mut rig = Rig::scripted(&Settings::default());
    for _ in 0..5 {
        assert_eq!(rig.run("leak:400").await.outcome, Outcome::Ack);
    }
    // An instance that is reused holds them until it may hold no more.
    let mut rig = Rig::scripted(&Settings {
        reuse: 100,
        ..Settings::default()
    });
    assert_eq!(rig.run("leak:400").await.outcome, Outcome::Ack);
    assert_eq!(rig.fault("leak:400").await.kind, FaultKind::MemoryLimit);
    let report = rig.run("leak:400").await;
    assert_eq!(report.outcome, Outcome::Ack);
    assert!(report.fresh);
    // What was given back does not count.
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
async fn random_bytes() {
    let mut rig = Rig::scripted(&Settings::default());
    pair(
        &mut rig,
        "random:65536",
        "random:65537",
        FaultKind::Trap,
        "requested len 65537 exceeds limit 65536",
    )
    .await;
}

#[tokio::test]
async fn answers_that_are_none() {
    // A case that the variant does not have.
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
        let fault = Rig::bytes(&bytes, &Settings::default()).fault("").await;
        assert_eq!(fault.kind, FaultKind::BadOutcome, "{}", fault.detail);
        assert!(fault.detail.contains(detail), "{}", fault.detail);
    }
}

#[tokio::test]
async fn long_delays_are_passed_on() {
    let forever = handler(
        r#"(data (memory $memory) (i32.const 0)
            "\01\00\00\00\00\00\00\00" "\01\00\00\00\00\00\00\00"
            "\ff\ff\ff\ff\ff\ff\ff\ff")"#,
        "i32.const 0",
    );
    let report = Rig::bytes(&forever, &Settings::default()).run("").await;
    assert_eq!(
        report.outcome,
        Outcome::NackRequeue(Some(Duration::from_millis(u64::MAX)))
    );
}

/// A component with so many core instances beside its handler's, each with so many globals.
fn crowd(instances: usize, globals: usize) -> Vec<u8> {
    let globals = "(global (mut i64) (i64.const 1))".repeat(globals);
    let instances = "(core instance (instantiate $crowd))".repeat(instances);
    handler_beside(&format!("(core module $crowd {globals}) {instances}"))
}

/// Memory for every instance of its own, or from a pool.
fn both_allocations() -> [Settings; 2] {
    [Allocation::Auto, Allocation::OnDemand].map(|allocation| Settings {
        allocation,
        ..Settings::default()
    })
}

#[tokio::test]
async fn what_an_instance_takes_beside_its_memory() {
    for settings in both_allocations() {
        let report = Rig::bytes(&crowd(40, 20_000), &settings).run("").await;
        assert_eq!(report.outcome, Outcome::Ack);
        // 80 instances of 20,000 globals of 16 bytes.
        let refused = Sandbox::load_bytes(&crowd(80, 20_000), &settings).unwrap_err();
        assert!(matches!(refused, LoadError::TooMuch { .. }), "{refused}");
        let text = refused.to_string();
        assert!(text.contains("16777216 bytes"), "{text}");
        assert_eq!(Refusal::from(refused).step(), Step::Limits);
    }
}

#[tokio::test]
async fn core_instances() {
    for settings in both_allocations() {
        let report = Rig::bytes(&crowd(200, 1), &settings).run("").await;
        assert_eq!(report.outcome, Outcome::Ack);
        let refused = Sandbox::load_bytes(&crowd(300, 1), &settings).unwrap_err();
        assert!(matches!(refused, LoadError::Start(_)), "{refused}");
        assert!(refused.to_string().contains("instance count"), "{refused}");
    }
}

#[tokio::test]
async fn modules_that_are_never_instantiated_hold_no_files() {
    let modules = r#"(core module (memory 1) (data (i32.const 0) "x"))"#.repeat(500);
    let files = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    let before = files();
    let report = Rig::bytes(&handler_beside(&modules), &Settings::default())
        .run("")
        .await;
    assert_eq!(report.outcome, Outcome::Ack);
    // Other tests of this process open and close some as well.
    assert!(files() < before + 400, "{before} before, {} now", files());
}
