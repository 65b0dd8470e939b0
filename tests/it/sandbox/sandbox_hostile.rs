//! Hostile guests beside honest ones: a hostile guest harms only its own messages.

use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Limits, Sandbox, Settings, TICK};
use hostler_tests::adapters::Adapter;
use hostler_tests::guests::handler;
use hostler_tests::rig::{Rig, message};

/// Two honest guests, and three hostile ones for each thread. A computing guest yields every 2 ms,
/// so it delays each step of the other guests of its thread by this time.
const SLOTS: usize = 8;
const HONEST: usize = 2;

fn settings() -> Settings {
    Settings {
        concurrency: SLOTS,
        limits: Limits {
            wall: Duration::from_millis(800),
            cpu: Duration::from_millis(200),
            memory: 16 << 20,
            log_rate: 64 << 10,
            ..Limits::default()
        },
        ..Settings::default()
    }
}

/// The actions of hostile guests, and the faults that they may cause.
const HOSTILE: [(&str, &[FaultKind]); 15] = [
    ("loop", &[FaultKind::CpuTimeout, FaultKind::WallTimeout]),
    ("doze", &[FaultKind::CpuTimeout, FaultKind::WallTimeout]),
    ("sleep:60000", &[FaultKind::WallTimeout]),
    ("copy:8", &[FaultKind::CpuTimeout, FaultKind::WallTimeout]),
    ("grow:32", &[FaultKind::MemoryLimit]),
    ("recurse:100000000", &[FaultKind::StackOverflow]),
    ("recurse-host:100000000", &[FaultKind::StackOverflow]),
    ("trap", &[FaultKind::Trap]),
    ("panic", &[FaultKind::Trap]),
    ("exit:1", &[FaultKind::GuestExit]),
    ("reply:2000000", &[FaultKind::OutputLimit]),
    ("handles:1001", &[FaultKind::MemoryLimit]),
    ("random:4000000000", &[FaultKind::Trap]),
    // Not a fault in itself, but it may take too long.
    (
        "lines:1000000",
        &[FaultKind::CpuTimeout, FaultKind::WallTimeout],
    ),
    ("ansi+long:1000000", &[]),
];

/// Run honest handlers, which wait like most handlers do, until the flag is set. Returns their
/// durations.
async fn honest(sandbox: &Sandbox, stop: &Arc<AtomicBool>) -> Vec<Duration> {
    let tasks: Vec<_> = (0..HONEST)
        .map(|_| {
            let mut rig = Rig::of(sandbox.clone());
            let stop = Arc::clone(stop);
            tokio::spawn(async move {
                let mut took = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let began = Instant::now();
                    assert_eq!(rig.run("sleep:50").await.outcome, Outcome::Ack);
                    took.push(began.elapsed());
                }
                took
            })
        })
        .collect();
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.expect("an honest message is handled"));
    }
    all
}

fn p99(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[(times.len() * 99).div_ceil(100) - 1]
}

/// Run each hostile guest in all other slots: in each slot through another adapter.
async fn hostilities(sandboxes: &[(Adapter, Sandbox)]) {
    for (body, kinds) in HOSTILE {
        let tasks: Vec<_> = sandboxes
            .iter()
            .map(|(adapter, sandbox)| {
                let (adapter, mut rig) = (*adapter, Rig::of(sandbox.clone()));
                tokio::spawn(async move { (adapter, rig.run(body).await.outcome) })
            })
            .collect();
        for task in tasks {
            let (adapter, outcome) = task.await.expect("the host lives");
            // `sandbox_adapters` knows what it comes to in the other worlds.
            if adapter != Adapter::Native {
                continue;
            }
            match outcome {
                Outcome::Fault(fault) => assert!(kinds.contains(&fault.kind), "{body}: {fault}"),
                outcome => {
                    let harmless = body.starts_with("lines") || body.starts_with("ansi");
                    assert!(harmless && outcome == Outcome::Ack, "{body}: {outcome:?}");
                }
            }
        }
    }
}

/// The resident memory of this process, in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.expect("a number of kB") << 10
}

mod measured {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn hostile_guests_do_not_slow_down_honest_ones() {
        let sandboxes = Adapter::ALL.map(|adapter| {
            let settings = Settings {
                grants: crate::sandbox::worlds::settings().grants,
                ..settings()
            };
            (adapter, Rig::file(&adapter.guest(), &settings).sandbox)
        });
        assert_eq!(sandboxes.len(), SLOTS - HONEST);
        let (_, sandbox) = &sandboxes[0];
        let before = resident();
        let mut seen = Vec::new();
        // Other tests may use the cores, so three tries are allowed: a defect of the sandbox would fail
        // each.
        for _ in 0..3 {
            let stop = Arc::new(AtomicBool::new(false));
            let quiet = async {
                tokio::time::sleep(Duration::from_secs(2)).await;
                stop.store(true, Ordering::Relaxed);
            };
            let (alone, ()) = tokio::join!(honest(sandbox, &stop), quiet);
            let stop = Arc::new(AtomicBool::new(false));
            let storm = async {
                hostilities(&sandboxes).await;
                stop.store(true, Ordering::Relaxed);
            };
            let (beside, ()) = tokio::join!(honest(sandbox, &stop), storm);
            assert!(alone.len() > 5 && beside.len() > 5);
            let (alone, beside) = (p99(alone), p99(beside));
            println!("{alone:?} alone, {beside:?} beside hostile ones");
            if beside <= 3 * alone {
                // The pool keeps the memory that it has mapped: the memory of each slot, and no more.
                let grown = resident().saturating_sub(before);
                let bound = (SLOTS as u64 + 2) * (16 << 20) + (256 << 20);
                assert!(grown < bound, "{grown} bytes more");
                return;
            }
            seen.push((alone, beside));
        }
        panic!("p99 of honest messages alone and beside hostile ones: {seen:?}");
    }

    #[tokio::test]
    async fn enormous_names_do_not_make_a_fault_slow() {
        // Four frames, each with a text of a megabyte.
        let name = enormous_name(6);
        let functions: String = (0_u32..4)
            .map(|n| {
                let body = match n {
                    0 => "unreachable".to_owned(),
                    n => format!("call $f{}", n - 1),
                };
                format!(r#"(func $f{n} (@name "{name}") {body})"#)
            })
            .collect();
        let bytes = handler(&functions, "call $f3 i32.const 0");
        let mut rig = Rig::bytes(&bytes, &Settings::default());
        let begun = Instant::now();
        for _ in 0..20 {
            let fault = rig.fault("").await;
            assert!(fault.detail.matches("a::f::<").count() == 4, "{fault}");
        }
        let each = begun.elapsed() / 20;
        assert!(each < Duration::from_millis(50), "{each:?} each");
    }

    /// The time between two yields of a computing guest delays each step of the other guests of its
    /// thread.
    #[tokio::test]
    async fn a_computing_guest_yields_more_often_than_once_per_tick() {
        let mut rig = Rig::scripted(&Settings::default());
        let mut seen = Vec::new();
        for _ in 0..10 {
            let began = Instant::now();
            let mut turns = 0;
            let mut running = Box::pin(rig.run("spin:300"));
            let report = poll_fn(|cx| {
                turns += 1;
                running.as_mut().poll(cx)
            });
            assert_eq!(report.await.outcome, Outcome::Ack);
            drop(running);
            let ticks = began.elapsed().as_millis() / TICK.as_millis();
            // The ticks alone would give one turn each. On a busy machine both the guest and the clock
            // get fewer turns.
            if turns > 2 * ticks {
                return;
            }
            seen.push((turns, ticks));
        }
        panic!("turns, and ticks: {seen:?}");
    }
}

/// A mangled name of some hundred bytes that stands for a text of this many levels of ten.
fn enormous_name(levels: u32) -> String {
    // A back reference, relative to the end of `_R`: a number in base 62, less one.
    let reference = |at: usize| {
        let digits: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
        let mut number = at - 1;
        let mut text = Vec::new();
        loop {
            text.insert(0, digits[number % 62]);
            number /= 62;
            if number == 0 {
                break;
            }
        }
        format!("B{}_", String::from_utf8(text).unwrap())
    };
    let mut name = "INvC1a1f".to_owned();
    let mut inner = "u".to_owned();
    for _ in 0..levels {
        let at = name.len();
        name.push_str(&format!("T{}E", inner.repeat(10)));
        inner = reference(at);
    }
    format!("_R{name}E")
}

#[tokio::test]
async fn the_names_in_a_fault_are_cut_while_they_are_written() {
    let name = enormous_name(3);
    let items = format!(r#"(func $f (@name "{name}") unreachable)"#);
    let mut rig = Rig::bytes(
        &handler(&items, "call $f i32.const 0"),
        &Settings::default(),
    );
    let detail = rig.fault("").await.detail;
    let (_, frames) = detail.split_once(", in ").expect("it has a trace");
    let first = frames.split(" < ").next().unwrap();
    assert!(first.starts_with("a::f::<((), (), ()"), "{detail}");
    assert_eq!(first.len(), 96, "{detail}");
}

#[tokio::test]
async fn a_million_headers_are_handled_or_fault() {
    let mut rig = Rig::scripted(&Settings::default());
    let mut headers = Headers::default();
    for i in 0..1_000_000_u32 {
        headers.push(format!("h{i}"), "v");
    }
    let flooded = Message {
        headers,
        ..message("ack")
    };
    let report = rig.call(&flooded, 1).await;
    match report.outcome {
        Outcome::Ack => {}
        Outcome::Fault(fault) => assert!(
            [
                FaultKind::MemoryLimit,
                FaultKind::CpuTimeout,
                FaultKind::WallTimeout
            ]
            .contains(&fault.kind),
            "{fault}"
        ),
        outcome => panic!("{outcome:?}"),
    }
    assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
}

#[tokio::test]
async fn too_many_outcomes_are_a_fault() {
    let mut rig = Rig::guest("batch", &Settings::default());
    let fault = rig.fault("more:1000000").await;
    assert!(
        [FaultKind::OutputLimit, FaultKind::MemoryLimit].contains(&fault.kind),
        "{fault}"
    );
    assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
}

/// At capacity messages wait for each resource of the pool; none fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn at_capacity_messages_wait() {
    let several = handler(
        "(memory $second 4) (memory $third 1) (table $table 100 funcref) (table $other 7 funcref)",
        "i32.const 0",
    );
    let small = Settings {
        concurrency: 3,
        ..Settings::default()
    };
    let component = Sandbox::load_bytes(&several, &small).unwrap();
    assert_eq!(component.describe().memories, 3);
    for sandbox in [component, Rig::scripted(&small).sandbox] {
        let calls: Vec<_> = (0..30)
            .map(|_| {
                let mut rig = Rig::of(sandbox.clone());
                tokio::spawn(async move { rig.run("sleep:20").await.outcome })
            })
            .collect();
        for call in calls {
            assert_eq!(call.await.unwrap(), Outcome::Ack);
        }
    }
}
