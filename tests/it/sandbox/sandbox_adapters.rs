//! The hostile guests of `sandbox_hostile`, `sandbox_limits` and `sandbox_logs` through each adapter: a handler of
//! another host and a program have the limits and the faults of a native handler.

use std::time::Duration;

use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::grants::Grants;
use hostler::sandbox::{Limits, Sandbox, Settings};
use hostler_tests::adapters::Adapter;
use hostler_tests::rig::{Rig, message};

/// What a case comes to.
#[derive(Clone, Copy, Debug)]
enum Comes {
    /// A fault of this kind, whose detail has this part.
    Fault(FaultKind, &'static str),
    Ack,
    /// Again, after the backoff of the queue.
    Again,
    /// A drop whose reason has this many bytes.
    Dropped(usize),
    /// There is no such case in this world.
    #[expect(dead_code, reason = "it is for the reader of the table")]
    Never(Why),
}
use Comes::{Ack, Again, Dropped, Fault, Never};

/// Why a world has no such case.
#[derive(Clone, Copy, Debug)]
enum Why {
    /// WASIp1 has no handles but files, which need a grant: `granted_directories_are_read_and_never_written`.
    NoHandles,
    /// `reuse` is refused: `a_program_starts_fresh_for_each_message`.
    RunsOnce,
}

/// A body, with limits of its own, and what it comes to: for each adapter, but for those that are named.
struct Case {
    body: &'static str,
    limits: fn(&mut Limits),
    reuse: u32,
    comes: Comes,
    but: &'static [(Adapter, Comes)],
}

/// What most cases begin with. A machine with much to do must not reach a limit of time first.
const CASE: Case = Case {
    body: "",
    limits: |limits| {
        limits.cpu = Duration::from_secs(20);
        limits.wall = Duration::from_secs(120);
        limits.memory = 16 << 20;
    },
    reuse: 1,
    comes: Ack,
    but: &[],
};

const CPU: Comes = Fault(
    FaultKind::CpuTimeout,
    "ran for more than 100ms (limit `cpu`)",
);
/// A guest that computes for ever.
const COMPUTES: Case = Case {
    limits: |limits| {
        limits.cpu = Duration::from_millis(100);
        limits.wall = Duration::from_secs(120);
    },
    comes: CPU,
    ..CASE
};
const HANDLES: Comes = Fault(
    FaultKind::MemoryLimit,
    "more than 1000 resource handles (limit `handles`)",
);
const STACK: Comes = Fault(
    FaultKind::StackOverflow,
    "call stack of 524288 bytes exhausted (limit `stack`)",
);

const CASES: &[Case] = &[
    Case {
        body: "loop",
        ..COMPUTES
    },
    Case {
        body: "busy",
        ..COMPUTES
    },
    Case {
        body: "doze",
        ..COMPUTES
    },
    Case {
        body: "copy:8",
        ..COMPUTES
    },
    Case {
        body: "sleep:60000",
        // The message after it has this time, too.
        limits: |limits| limits.wall = Duration::from_secs(3),
        comes: Fault(
            FaultKind::WallTimeout,
            "no answer within 3s (limit `timeout`)",
        ),
        ..CASE
    },
    Case {
        body: "grow:32",
        comes: Fault(FaultKind::MemoryLimit, "requested "),
        ..CASE
    },
    Case {
        body: "recurse:100000000",
        comes: STACK,
        ..CASE
    },
    Case {
        body: "recurse-host:100000000",
        comes: STACK,
        ..CASE
    },
    Case {
        body: "trap",
        comes: Fault(FaultKind::Trap, "unreachable"),
        ..CASE
    },
    Case {
        body: "panic",
        comes: Fault(FaultKind::Trap, "asked to panic"),
        ..CASE
    },
    Case {
        body: "exit:3",
        comes: Fault(FaultKind::GuestExit, ""),
        ..CASE
    },
    Case {
        body: "random:65537",
        comes: Fault(FaultKind::Trap, "requested len 65537 exceeds limit 65536"),
        ..CASE
    },
    Case {
        body: "handles:1001",
        comes: HANDLES,
        but: &[(Adapter::Module, Never(Why::NoHandles))],
        ..CASE
    },
    Case {
        body: "leak:400",
        but: &[(Adapter::Module, Never(Why::NoHandles))],
        ..CASE
    },
    // Handles that a reused instance keeps: the second message has too many.
    Case {
        body: "leak:600",
        reuse: 100,
        comes: HANDLES,
        but: &[
            (Adapter::Run, Never(Why::RunsOnce)),
            (Adapter::Module, Never(Why::RunsOnce)),
        ],
        ..CASE
    },
    // A text of an answer that is too long. The trigger of Spin has none: its SDK writes it to stderr, as a program
    // does, and there is a limit of log lines.
    Case {
        body: "reply:2000000",
        comes: Fault(FaultKind::OutputLimit, "(limit `transfer`)"),
        but: &[
            (Adapter::Spin, Again),
            // Its code 65 arrives as 1.
            (Adapter::Run, Fault(FaultKind::GuestExit, "xxx")),
            (Adapter::Module, Dropped(256)),
        ],
        limits: |limits| {
            limits.cpu = Duration::from_secs(20);
            limits.wall = Duration::from_secs(120);
        },
        ..CASE
    },
];

/// Everything that the guests import is granted.
fn grants() -> Grants {
    crate::sandbox::worlds::settings().grants
}

fn rig(adapter: Adapter, limits: Limits, reuse: u32) -> Rig {
    let settings = Settings {
        limits,
        reuse,
        grants: grants(),
        ..Settings::default()
    };
    Rig::file(&adapter.guest(), &settings)
}

/// Run a case; returns what is wrong.
async fn run(adapter: Adapter, case: &Case) -> Result<(), String> {
    let named = case.but.iter().find(|(but, _)| *but == adapter);
    let comes = named.map_or(case.comes, |(_, comes)| *comes);
    if let Never(_) = comes {
        return Ok(());
    }
    let mut limits = Limits::default();
    (case.limits)(&mut limits);
    let most = limits.log_attempt;
    let mut rig = rig(adapter, limits, case.reuse);
    // Twice: the slot works after the first time. A reused instance faults the second time.
    for turn in 1..=2 {
        let report = rig.run(case.body).await;
        let lines = rig.lines();
        let is_it = match (&report.outcome, comes) {
            (Outcome::Ack, Fault(..)) if case.reuse > 1 => turn == 1,
            (Outcome::Fault(fault), Fault(kind, part)) => {
                fault.kind == kind && fault.detail.contains(part)
            }
            (Outcome::Ack, Ack) | (Outcome::NackRequeue(None), Again) => true,
            (Outcome::Drop(Some(reason)), Dropped(bytes)) => reason.len() == bytes,
            _ => false,
        };
        let logged: usize = lines.iter().map(String::len).sum();
        if !is_it || logged > most {
            let outcome = &report.outcome;
            return Err(format!(
                "{adapter:?}, {}: {outcome:?}, and {logged} bytes of log",
                case.body
            ));
        }
    }
    match rig.run("ack").await.outcome {
        Outcome::Ack => Ok(()),
        outcome => Err(format!("{adapter:?}, after {}: {outcome:?}", case.body)),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_hostile_guest_comes_to_the_same_through_each_adapter() {
    let tasks = Adapter::ALL.map(|adapter| {
        tokio::spawn(async move {
            let mut wrong = Vec::new();
            for case in CASES {
                wrong.extend(run(adapter, case).await.err());
            }
            wrong
        })
    });
    let mut wrong = Vec::new();
    for task in tasks {
        wrong.extend(task.await.unwrap());
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn what_a_guest_writes_is_bounded_and_escaped_through_each_adapter() {
    // A machine with much to do is slow.
    let limits = Limits {
        wall: Duration::from_secs(120),
        cpu: Duration::from_secs(20),
        ..Limits::default()
    };
    for adapter in Adapter::ALL {
        let mut rig = rig(adapter, limits.clone(), 1);
        let report = rig.run("long:1000000+ansi+half").await;
        let cut = format!("{} [cut]", "y".repeat(limits.log_line));
        let escaped = r"\u{1b}[31mred\u{1b}[0m\rforged\u{202e}\u{85}\u{0}";
        // A program has `half:TEXT`, which is empty here.
        let half = if adapter.is_program() {
            None
        } else {
            Some("half")
        };
        let expected: Vec<&str> = [&*cut, escaped].into_iter().chain(half).collect();
        assert_eq!(rig.lines(), expected, "{adapter:?}");
        assert!(report.log_bytes_dropped >= 990_000, "{adapter:?}");
        let report = rig.run("lines:5000").await;
        assert_eq!(report.outcome, Outcome::Ack, "{adapter:?}");
        assert!(report.log_bytes_dropped > 30_000, "{adapter:?}");
        assert!(rig.lines().len() <= 1_024, "{adapter:?}");
    }
}

#[tokio::test]
async fn no_adapter_gives_a_guest_files_or_a_network() {
    for adapter in Adapter::ALL {
        let mut rig = rig(adapter, Limits::default(), 1);
        let report = rig.run("world").await;
        let said = match report.outcome {
            // The native guest answers with it.
            Outcome::Drop(Some(reason)) => reason,
            _ => rig.lines().concat(),
        };
        for part in ["file=Err(", "dir=Err(", "write=Err(", "tcp=Err("] {
            assert!(said.contains(part), "{adapter:?}: {said}");
        }
        // A program has its name, and what it knows of the message.
        let own = match adapter.is_program() {
            true => "args=1 vars=6",
            false => "args=0 vars=0",
        };
        assert!(said.starts_with(own), "{adapter:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn very_many_headers_are_handled_or_fault_through_each_adapter() {
    let mut headers = Headers::default();
    for i in 0..50_000_u32 {
        headers.push(format!("h{i}"), "v");
    }
    let flooded = Message {
        headers,
        ..message("ack")
    };
    for adapter in Adapter::ALL {
        let mut rig = rig(adapter, Limits::default(), 1);
        match rig.call(&flooded, 1).await.outcome {
            Outcome::Ack => {}
            Outcome::Fault(fault) => {
                let kinds = [
                    FaultKind::MemoryLimit,
                    FaultKind::CpuTimeout,
                    FaultKind::WallTimeout,
                ];
                assert!(kinds.contains(&fault.kind), "{adapter:?}: {fault}");
            }
            outcome => panic!("{adapter:?}: {outcome:?}"),
        }
        assert_eq!(rig.run("ack").await.outcome, Outcome::Ack, "{adapter:?}");
    }
}

#[tokio::test]
async fn growing_past_the_table_limit_is_a_fault_through_each_adapter() {
    let settings = Settings {
        limits: Limits {
            table_elements: 1_000,
            ..Limits::default()
        },
        ..Settings::default()
    };
    for adapter in Adapter::ALL {
        let grow = |elements: u32| {
            let grow = format!("(table.grow $table (ref.null func) (i32.const {elements}))");
            let code = format!("(if (i32.eq {grow} (i32.const -1)) (then unreachable))");
            adapter.text("", "(table $table 10 funcref)", &code)
        };
        let mut rig = Rig::bytes(&grow(700), &settings);
        assert_eq!(rig.run("").await.outcome, Outcome::Ack, "{adapter:?}");
        let fault = Rig::bytes(&grow(5_000), &settings).fault("").await;
        assert_eq!(fault.kind, FaultKind::MemoryLimit, "{adapter:?}: {fault}");
        assert!(fault.detail.contains("(limit `table_elements`)"), "{fault}");
    }
}

/// A component that declares or does too much before its first message is refused, whatever its world is, with the
/// same words as a native handler.
#[test]
fn what_is_refused_of_a_native_handler_is_refused_of_each() {
    let settings = Settings {
        limits: Limits {
            wall: Duration::from_secs(120),
            cpu: Duration::from_millis(100),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let segment = format!("(func $g) (elem func {})", "$g ".repeat(10_001));
    let import =
        r#"(import "wasi:http/outgoing-handler@0.2.0" (instance (export "handle" (func))))"#;
    for (beside, items) in [
        ("", "(func $s unreachable) (start $s)"),
        ("", "(func $s (loop $l (br $l))) (start $s)"),
        ("", "(func $s (call $s)) (start $s)"),
        ("", "(memory $memory 2000)"),
        ("", "(table 200000 funcref)"),
        ("", &*segment),
        (import, ""),
    ] {
        let refusal = |adapter: Adapter| {
            let loaded = Sandbox::load_bytes(&adapter.text(beside, items, ""), &settings);
            loaded.expect_err("it is refused").to_string()
        };
        let native = refusal(Adapter::Native);
        for adapter in &Adapter::ALL[1..] {
            if *adapter == Adapter::Module && !beside.is_empty() {
                // `modules_that_are_no_programs_are_refused`.
                continue;
            }
            let said = refusal(*adapter);
            // The numbers differ: a component has what its own module declares, and a module what wraps it.
            let begin = |text: &str| {
                text.split(|c: char| c.is_ascii_digit())
                    .next()
                    .map(str::to_owned)
            };
            assert_eq!(begin(&said), begin(&native), "{adapter:?}: {said}");
        }
    }
}
