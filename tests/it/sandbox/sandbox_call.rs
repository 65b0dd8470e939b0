//! Calls of a handler: the message that the guest sees, its outcomes, and the reuse of its
//! instance.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::join_all;
use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::sandbox::{Limits, Sandbox, Settings};
use hostler_tests::guests::handler;
use hostler_tests::redis::eventually;
use hostler_tests::rig::{Rig, fault, message};

fn reused(reuse: u32) -> Settings {
    Settings {
        reuse,
        ..Settings::default()
    }
}

fn dropped(reason: &str) -> Outcome {
    Outcome::Drop(Some(reason.to_owned()))
}

/// The outcomes of calls that run at the same time, each in a slot of its own.
async fn at_once(sandbox: &Sandbox, calls: usize, body: &'static str) -> Vec<Outcome> {
    let calls = (0..calls).map(|_| {
        let mut rig = Rig::of(sandbox.clone());
        tokio::spawn(async move { rig.run(body).await.outcome })
    });
    // Each call must be spawned before the first one is awaited.
    let calls: Vec<_> = calls.collect();
    let mut outcomes = Vec::new();
    for call in calls {
        outcomes.push(call.await.unwrap());
    }
    outcomes
}

#[tokio::test]
async fn answers_become_outcomes() {
    let mut rig = Rig::scripted(&Settings::default());
    let again = |ms| Outcome::NackRequeue(Some(Duration::from_millis(ms)));
    let cases = [
        ("ack", Outcome::Ack),
        ("nack", Outcome::NackRequeue(None)),
        ("nack:0", again(0)),
        ("nack:1500", again(1500)),
        ("nack:2592000000", again(2_592_000_000)),
        ("drop", Outcome::Drop(None)),
        ("drop:unwanted", dropped("unwanted")),
    ];
    for (body, outcome) in cases {
        assert_eq!(rig.run(body).await.outcome, outcome, "{body}");
    }
}

#[tokio::test]
async fn a_guest_sees_the_number_of_the_attempt() {
    let mut rig = Rig::scripted(&Settings::default());
    let message = message("nack,nack:7;ack");
    let mut outcomes = Vec::new();
    for attempt in 1..=4 {
        outcomes.push(rig.call(&message, attempt).await.outcome);
    }
    let again = |delay| Outcome::NackRequeue(delay);
    let seven = Some(Duration::from_millis(7));
    let expected = [again(None), again(seven), Outcome::Ack, Outcome::Ack];
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn a_guest_sees_the_whole_message() {
    let mut rig = Rig::scripted(&Settings::default());
    let mut headers = Headers::default();
    headers.push("X-Tenant", "acme");
    headers.push("x-tenant", "a guest does not see the second value");
    headers.push("bytes", Bytes::from_static(b"a\xffb"));
    headers.push(Bytes::from_static(b"n\xffAME"), "");
    let message = Message {
        id: "1700000000000-7".into(),
        queue: "orders:éü".into(),
        headers,
        enqueued_ms: 1_700_000_000_000,
        ..message("echo")
    };
    let report = rig.call(&message, 3).await;
    let expected = dropped(
        "id=1700000000000-7 queue=orders:éü attempt=3 max=5 enqueued=1700000000000 body=4 \
         headers=[x-tenant=acme|bytes=a\u{fffd}b|n\u{fffd}ame=]",
    );
    assert_eq!(report.outcome, expected);
}

#[tokio::test]
async fn many_headers_are_deduplicated_by_name() {
    let mut rig = Rig::scripted(&Settings::default());
    let mut headers = Headers::default();
    for i in 0..40 {
        headers.push(format!("H{}", i % 20), i.to_string());
    }
    let many = Message {
        headers,
        ..message("echo")
    };
    let report = rig.call(&many, 1).await;
    let Outcome::Drop(Some(reason)) = report.outcome else {
        panic!("{report:?}");
    };
    let expected: Vec<_> = (0..20).map(|i| format!("h{i}={i}")).collect();
    let end = format!("headers=[{}]", expected.join("|"));
    assert!(reason.ends_with(&end), "{reason}");
}

#[tokio::test]
async fn a_guest_can_ask_for_its_deadline_cancellation_and_trace() {
    let mut rig = Rig::scripted(&Settings::default());
    let left: u64 = rig.reason("sleep:50+deadline").await.parse().unwrap();
    assert!((1..=4950).contains(&left), "{left} of 5000 ms are left");

    assert_eq!(rig.reason("cancelled").await, "false");
    rig.cancelled.store(true, Ordering::Relaxed);
    assert_eq!(rig.reason("cancelled").await, "true");

    assert_eq!(rig.reason("trace").await, "(None, None)");
    let mut headers = Headers::default();
    headers.push("Traceparent", "00-4bf9-00f0-01");
    headers.push("tracestate", "vendor=1");
    let traced = Message {
        headers,
        ..message("trace")
    };
    let trace = "(Some(\"00-4bf9-00f0-01\"), Some(\"vendor=1\"))";
    assert_eq!(rig.call(&traced, 1).await.outcome, dropped(trace));
}

#[tokio::test]
async fn a_running_guest_notices_that_the_host_stops() {
    let mut rig = Rig::scripted(&Settings::default());
    let cancelled = Arc::clone(&rig.cancelled);
    let running = rig.run("wait-cancelled+drop:stopped");
    let stop = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        cancelled.store(true, Ordering::Relaxed);
    };
    let (report, ()) = tokio::join!(running, stop);
    assert_eq!(report.outcome, dropped("stopped"));
}

#[tokio::test]
async fn a_guest_has_time_and_randomness_and_nothing_else() {
    let mut rig = Rig::scripted(&Settings::default());
    let seconds: u64 = rig.reason("clock").await.parse().unwrap();
    assert!(seconds > 1_700_000_000, "{seconds}");
    assert_eq!(rig.run("random:64").await.outcome, Outcome::Ack);
    let world = rig.reason("world").await;
    assert!(world.starts_with("args=0 vars=0 file=Err("), "{world}");
    assert!(!world.contains("Ok("), "{world}");
}

#[tokio::test]
async fn a_fresh_instance_remembers_nothing() {
    let mut rig = Rig::scripted(&reused(1));
    for _ in 0..3 {
        let report = rig.run("count").await;
        assert_eq!(report.outcome, dropped("1"));
        assert!(report.fresh);
    }
}

#[tokio::test]
async fn a_reused_instance_serves_as_many_messages_as_configured() {
    let mut rig = Rig::scripted(&reused(3));
    let mut counts = Vec::new();
    let mut fresh = Vec::new();
    for _ in 0..7 {
        let report = rig.run("count").await;
        fresh.push(report.fresh);
        match report.outcome {
            Outcome::Drop(Some(count)) => counts.push(count),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(counts, ["1", "2", "3", "1", "2", "3", "1"]);
    assert_eq!(fresh, [true, false, false, true, false, false, true]);
}

#[tokio::test]
async fn slots_replace_their_instances_at_different_times() {
    const REUSE: u32 = 50;
    let sandbox = Rig::scripted(&reused(REUSE)).sandbox;
    let mut lifetimes = Vec::new();
    for _ in 0..8 {
        let mut rig = Rig::of(sandbox.clone());
        assert!(rig.run("ack").await.fresh);
        let mut lifetime = 1;
        while !rig.run("ack").await.fresh {
            lifetime += 1;
        }
        assert!((40..=REUSE).contains(&lifetime), "{lifetime}");
        lifetimes.push(lifetime);
    }
    // They are all equal by chance in one of a billion runs.
    let first = lifetimes[0];
    let differ = lifetimes.iter().any(|other| *other != first);
    assert!(differ, "{lifetimes:?}");
}

#[tokio::test]
async fn an_instance_that_has_grown_is_not_reused() {
    let mut rig = Rig::scripted(&Settings {
        reuse: 1000,
        reuse_memory: Some(8 << 20),
        ..Settings::default()
    });
    assert_eq!(rig.reason("grow:2+count").await, "1");
    assert_eq!(rig.reason("grow:2+count").await, "2");
    // The instance answers, and is dropped: linear memory never shrinks.
    let grown = rig.run("grow:16+count").await;
    assert_eq!(grown.outcome, dropped("3"));
    assert!(grown.memory_bytes > 16 << 20);
    let next = rig.run("count").await;
    assert_eq!(next.outcome, dropped("1"));
    assert!(next.fresh && next.memory_bytes < 8 << 20, "{next:?}");
    // The default is half of the memory limit.
    let mut rig = Rig::scripted(&Settings {
        limits: Limits {
            memory: 16 << 20,
            ..Limits::default()
        },
        ..reused(1000)
    });
    assert_eq!(rig.reason("count").await, "1");
    assert_eq!(rig.reason("grow:4+count").await, "2");
    assert_eq!(rig.reason("grow:10+count").await, "3");
    assert_eq!(rig.reason("count").await, "1");
}

#[tokio::test]
async fn an_instance_that_is_large_from_the_start_is_reused() {
    let mut rig = Rig::scripted(&Settings {
        reuse: 1000,
        reuse_memory: Some(64 << 10),
        ..Settings::default()
    });
    assert!(rig.run("ack").await.memory_bytes > 64 << 10);
    assert!(!rig.run("ack").await.fresh);
}

#[tokio::test]
async fn an_idle_instance_is_dropped_after_the_idle_timeout() {
    let mut rig = Rig::scripted(&Settings {
        reuse: 1000,
        reuse_idle: Duration::from_millis(100),
        ..Settings::default()
    });
    assert_eq!(rig.slot.idle_timeout(), None);
    rig.run("ack").await;
    assert_eq!(rig.slot.idle_timeout(), Some(Duration::from_millis(100)));
    // The owner of the slot ends the idle instance; otherwise the next call does.
    rig.slot.on_idle();
    assert_eq!(rig.slot.idle_timeout(), None);
    assert!(rig.run("ack").await.fresh);
    tokio::time::sleep(Duration::from_millis(110)).await;
    assert!(rig.run("ack").await.fresh);
    let mut patient = Rig::scripted(&reused(1000));
    patient.run("ack").await;
    tokio::time::sleep(Duration::from_millis(110)).await;
    assert!(!patient.run("ack").await.fresh);
}

#[tokio::test]
async fn an_instance_is_not_reused_after_a_fault() {
    let mut rig = Rig::scripted(&Settings {
        reuse: 100,
        limits: Limits {
            wall: Duration::from_secs(12),
            cpu: Duration::from_millis(800),
            memory: 8 << 20,
            ..Limits::default()
        },
        ..Settings::default()
    });
    let faults = [
        ("trap", FaultKind::Trap),
        ("panic", FaultKind::Trap),
        ("exit:1", FaultKind::GuestExit),
        ("loop", FaultKind::CpuTimeout),
        ("sleep:60000", FaultKind::WallTimeout),
        ("grow:9", FaultKind::MemoryLimit),
        ("recurse:100000000", FaultKind::StackOverflow),
        ("reply:2000000", FaultKind::OutputLimit),
    ];
    for (body, kind) in faults {
        assert_eq!(rig.reason("count").await, "1", "before {body}");
        assert_eq!(rig.fault(body).await.kind, kind, "{body}");
    }
    assert_eq!(rig.reason("count").await, "1");
    assert_eq!(rig.reason("count").await, "2");
}

#[tokio::test]
async fn limits_start_anew_for_each_message_of_a_reused_instance() {
    let mut rig = Rig::scripted(&Settings {
        reuse: 100,
        limits: Limits {
            wall: Duration::from_secs(2),
            cpu: Duration::from_secs(1),
            ..Limits::default()
        },
        ..Settings::default()
    });
    // All messages together use far more than the limits of one attempt.
    for i in 1..=20 {
        let report = rig.run("spin:60+sleep:60+count").await;
        assert_eq!(report.outcome, dropped(&i.to_string()));
    }
}

#[tokio::test]
async fn a_dropped_call_drops_its_instance() {
    let mut rig = Rig::scripted(&reused(100));
    assert_eq!(rig.reason("count").await, "1");
    let dropped = tokio::time::timeout(Duration::from_secs(4), rig.run("count+sleep:4500")).await;
    assert!(dropped.is_ok(), "`count` answers at once");
    let dropped = tokio::time::timeout(Duration::from_millis(30), rig.run("sleep:4000")).await;
    assert!(dropped.is_err(), "it sleeps for longer");
    assert_eq!(rig.reason("count").await, "1");
}

#[tokio::test]
async fn dropping_a_call_ends_its_busy_loop() {
    let mut rig = Rig::scripted(&Settings::default());
    let dropped = tokio::time::timeout(Duration::from_millis(50), rig.run("loop")).await;
    assert!(dropped.is_err());
    assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
}

#[tokio::test]
async fn a_panic_of_the_host_is_a_fault_of_the_attempt() {
    let mut rig = Rig::guest("saboteur", &reused(100));
    assert_eq!(rig.reason("count").await, "1");
    let fault = rig.fault("host-panic").await;
    assert_eq!(fault.kind, FaultKind::HostPanic);
    assert_eq!(fault.detail, "a guest called the fault point");
    // The host and the slot go on; the instance is gone.
    assert_eq!(rig.reason("count").await, "1");
    assert_eq!(rig.reason("count").await, "2");
}

#[tokio::test]
async fn a_trap_names_the_function() {
    let mut rig = Rig::scripted(&Settings::default());
    let trap = rig.fault("trap").await;
    assert_eq!(trap.kind, FaultKind::Trap);
    let detail = "wasm trap: wasm `unreachable` instruction executed, in script::";
    assert!(trap.detail.starts_with(detail), "{trap}");
    let exit = rig.fault("exit:1").await;
    assert_eq!(exit.kind, FaultKind::GuestExit);
    let detail = "exited with status 1 instead of answering";
    assert!(exit.detail.starts_with(detail), "{exit}");
}

#[tokio::test]
async fn a_crash_quotes_the_error_and_the_place_that_the_guest_wrote_to_stderr() {
    let mut rig = Rig::scripted(&reused(100));
    let panic = rig.fault("panic").await;
    assert_eq!(panic.kind, FaultKind::Trap);
    let (told, trap) = panic.detail.split_once("; ").unwrap();
    let (message, place) = told.split_once(", at ").unwrap();
    assert_eq!(message, "stderr: asked to panic");
    assert!(place.contains("lib.rs:"), "{panic}");
    let detail = "wasm trap: wasm `unreachable` instruction executed, in ";
    assert!(trap.starts_with(detail), "{panic}");
    // The guest chooses the text: it is bounded, and acts on no terminal.
    let long = "x".repeat(2_000);
    let hostile = rig.fault(&format!("sleep:\u{1b}[31m\u{202e}{long}")).await;
    let detail = "stderr: `sleep` needs a number, not `\\u{1b}[31m\\u{202e}xxx";
    assert!(hostile.detail.starts_with(detail), "{hostile}");
    assert!(hostile.detail.matches('x').count() < 300, "{hostile}");
    assert!(hostile.detail.contains("; wasm trap: "), "{hostile}");
    // The line of one attempt is not that of the next.
    let trap = rig.fault("trap").await;
    assert!(trap.detail.starts_with("wasm trap: "), "{trap}");
}

#[tokio::test]
async fn function_names_in_a_trap_are_bounded_and_escaped() {
    let long = "n".repeat(5_000);
    let items = format!(
        r#"(func $a (@name "\1b[31mred\0a{long}") unreachable)
           (func $b (@name "b{long}") call $a)
           (func $c (@name "c{long}") call $b)
           (func $d (@name "d") call $c)
           (func $e (@name "e") call $d)"#
    );
    let bytes = handler(&items, "call $e i32.const 0");
    let fault = Rig::bytes(&bytes, &Settings::default()).fault("").await;
    assert_eq!(fault.kind, FaultKind::Trap);
    // The innermost four names, each cut to 96 bytes.
    let cut = |name: &str| format!("{name}{}", "n".repeat(96 - name.len()));
    let names = [&cut("\\u{1b}[31mred\\n"), &cut("b"), &cut("c"), "d"].join(" < ");
    assert_eq!(
        fault.detail,
        format!("wasm trap: wasm `unreachable` instruction executed, in {names}")
    );
}

#[tokio::test]
async fn a_slot_can_change_its_handler() {
    let settings = reused(100);
    let mut rig = Rig::scripted(&settings);
    assert_eq!(rig.reason("count").await, "1");
    assert_eq!(rig.reason("count").await, "2");
    rig.sandbox = Rig::guest("saboteur", &settings).sandbox;
    assert_eq!(rig.reason("count").await, "1");
    assert_eq!(rig.reason("count").await, "2");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sleeping_guests_occupy_no_thread() {
    const GUESTS: usize = 256;
    let settings = Settings {
        concurrency: GUESTS,
        limits: Limits {
            wall: Duration::from_secs(50),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let sandbox = Rig::scripted(&settings).sandbox;
    let started = Instant::now();
    let outcomes = at_once(&sandbox, GUESTS, "sleep:2000").await;
    assert_eq!(outcomes, vec![Outcome::Ack; GUESTS]);
    let one_after_the_other = Duration::from_secs(2) * (GUESTS as u32 / 2);
    assert!(started.elapsed() < one_after_the_other / 2);
}

/// A thread takes instances from the pools of the others when its own is full: one thread can use all of them.
#[tokio::test]
async fn one_thread_gets_an_instance_for_each_slot() {
    const GUESTS: usize = 8;
    let settings = Settings {
        concurrency: GUESTS,
        limits: Limits {
            wall: Duration::from_secs(50),
            cpu: Duration::from_secs(50),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let sandbox = Rig::scripted(&settings).sandbox;
    let mut rigs: Vec<Rig> = (0..GUESTS).map(|_| Rig::of(sandbox.clone())).collect();
    let flags: Vec<_> = rigs.iter().map(|rig| Arc::clone(&rig.cancelled)).collect();
    let captures: Vec<_> = rigs.iter().map(|rig| rig.capture.clone()).collect();
    let calls = join_all(rigs.iter_mut().map(|rig| rig.run("wait-cancelled")));
    let stop = async {
        let mut begun = 0;
        // Each writes one line when it starts. One that had to wait for an instance would not.
        eventually("all run at the same time", async || {
            begun += captures
                .iter()
                .map(|lines| lines.take().len())
                .sum::<usize>();
            begun == GUESTS
        })
        .await;
        for cancelled in &flags {
            cancelled.store(true, Ordering::Relaxed);
        }
    };
    let (reports, ()) = tokio::join!(calls, stop);
    assert!(reports.iter().all(|report| report.outcome == Outcome::Ack));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn looping_guests_do_not_starve_others() {
    let sandbox = Rig::scripted(&Settings::default()).sandbox;
    let loops: Vec<_> = (0..8)
        .map(|_| {
            let mut rig = Rig::of(sandbox.clone());
            tokio::spawn(async move { fault(rig.run("loop").await).kind })
        })
        .collect();
    let mut honest = Rig::of(sandbox);
    let mut served = 0;
    while !loops.iter().any(tokio::task::JoinHandle::is_finished) {
        assert_eq!(honest.run("ack").await.outcome, Outcome::Ack);
        tokio::task::yield_now().await;
        served += 1;
    }
    assert!(served > 10, "{served} messages beside the loops");
    for ended in loops {
        let kind = ended.await.unwrap();
        let is_timeout = matches!(kind, FaultKind::CpuTimeout | FaultKind::WallTimeout);
        assert!(is_timeout, "{kind:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_wait_for_a_free_instance() {
    let sandbox = Rig::scripted(&Settings {
        concurrency: 1,
        ..Settings::default()
    })
    .sandbox;
    let outcomes = at_once(&sandbox, 12, "sleep:100").await;
    assert_eq!(outcomes, vec![Outcome::Ack; 12]);
}
