//! Programs as handlers, in the sandbox: modules with `_start`, and components that export `wasi:cli/run`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::effect::{Outlet, Outlets};
use hostler::delivery::message::Headers;
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::grants::Grants;
use hostler::grants::files::rules::Directory;
use hostler::sandbox::{ExitCodes, Limits, Meaning, Program, Sandbox, Settings, Stdout, World};
use hostler_tests::guests::{component, guest_module, program};
use hostler_tests::rig::{Rig, message};
use wasm_encoder::{
    ExportKind, ExportSection, MemorySection, MemoryType, Module, RawSection, SectionId,
};

/// The guest `program` as a module, with these settings.
fn module(settings: &Settings) -> Rig {
    Rig::file(&guest_module("program"), settings)
}

fn dropped(reason: &str) -> Outcome {
    Outcome::Drop(Some(reason.to_owned()))
}

#[tokio::test]
async fn exit_codes_of_a_module_are_outcomes() {
    let mut rig = module(&Settings::default());
    let description = rig.sandbox.describe();
    assert_eq!(description.world, World::Message);
    assert!(description.interface.starts_with("wasi:cli/run@0.2."));
    assert_eq!(description.exit_codes, Some(ExitCodes::All));
    for (body, outcome) in [
        ("", Outcome::Ack),
        ("ack", Outcome::Ack),
        ("exit:0", Outcome::Ack),
        ("nack", Outcome::NackRequeue(None)),
        ("drop:no such customer", dropped("no such customer")),
        ("err:first+err:the last+exit:65", dropped("the last")),
        ("half:no newline+exit:65", dropped("no newline")),
    ] {
        assert_eq!(rig.run(body).await.outcome, outcome, "{body}");
    }
    for (body, status) in [
        ("exit:1", 1),
        ("exit:74", 74),
        ("exit:300", 300),
        ("fail", 1),
    ] {
        let fault = rig.fault(&format!("err:why+{body}")).await;
        assert_eq!(fault.kind, FaultKind::GuestExit, "{body}");
        let said = format!(
            "stderr: why; exited with status {status}, which `program.exit_codes` does not name"
        );
        assert_eq!(fault.detail, said, "{body}");
    }
}

#[tokio::test]
async fn exit_codes_have_the_meanings_of_the_configuration() {
    let mut program = Program::default();
    program.exit_codes.insert(3, Meaning::Drop);
    program.exit_codes.insert(75, Meaning::Fail);
    let settings = Settings {
        program,
        ..Settings::default()
    };
    let mut rig = module(&settings);
    assert_eq!(rig.run("err:odd+exit:3").await.outcome, dropped("odd"));
    assert_eq!(rig.fault("nack").await.kind, FaultKind::GuestExit);
    assert_eq!(rig.run("exit:0").await.outcome, Outcome::Ack);
}

#[tokio::test]
async fn a_component_that_only_fails_may_say_more_in_its_last_line() {
    let mut rig = Rig::guest("program", &Settings::default());
    let description = rig.sandbox.describe();
    assert_eq!(description.exit_codes, Some(ExitCodes::ZeroOrOne));
    for (body, outcome) in [
        ("ack", Outcome::Ack),
        (
            "err:hostler: nack 5s+fail",
            Outcome::NackRequeue(Some(Duration::from_secs(5))),
        ),
        ("err:hostler: nack+exit:1", Outcome::NackRequeue(None)),
        ("half:hostler: drop too old+exit:7", dropped("too old")),
    ] {
        assert_eq!(rig.run(body).await.outcome, outcome, "{body}");
    }
    // Code 75 arrives as 1, and this line is not the last one.
    let fault = rig.fault("err:hostler: nack+err:other+nack").await;
    assert_eq!(fault.kind, FaultKind::GuestExit);
    assert!(fault.detail.contains("exited with status 1,"), "{fault}");
    // Where codes arrive, the line has no meaning.
    let fault = module(&Settings::default())
        .fault("err:hostler: nack+exit:1")
        .await;
    assert_eq!(fault.kind, FaultKind::GuestExit);
}

#[tokio::test]
async fn a_program_gets_the_message_by_stdin_and_variables() {
    let settings = Settings {
        program: Program {
            args: vec!["--region".to_owned(), "eu west".to_owned()],
            ..Program::default()
        },
        ..Settings::default()
    };
    for mut rig in [module(&settings), Rig::guest("program", &settings)] {
        let mut message = message("");
        let headers = [
            ("X-Tenant", "Zoë"),
            ("a-b", "1"),
            ("a.b", "2"),
            ("nul", "\0"),
        ];
        let headers = headers
            .map(|(name, value)| (Bytes::from(name), Bytes::copy_from_slice(value.as_bytes())));
        message.headers = Headers::new(headers.into_iter().collect());
        for (body, line) in [
            ("args", r#"["handler", "--region", "eu west"]"#),
            ("variable:HOSTLER_MESSAGE_ID", r#"Some("1-1")"#),
            ("variable:HOSTLER_QUEUE", r#"Some("orders")"#),
            ("variable:HOSTLER_ATTEMPT", r#"Some("3")"#),
            ("variable:HOSTLER_MAX_ATTEMPTS", r#"Some("5")"#),
            ("variable:HOSTLER_HEADER_X_TENANT", r#"Some("Zoë")"#),
            ("variable:HOSTLER_HEADER_A_B", "None"),
            ("variable:HOSTLER_HEADERS_LEFT_OUT", r#"Some("3")"#),
            // Nothing of the host's own.
            ("variable:PATH", "None"),
            ("input", "5 bytes"),
        ] {
            message.body = Bytes::from(body);
            assert_eq!(rig.call(&message, 3).await.outcome, Outcome::Ack, "{body}");
            assert_eq!(rig.lines(), [line], "{body}");
        }
    }
}

#[tokio::test]
async fn large_inputs_and_many_headers_arrive() {
    let mut rig = module(&Settings {
        limits: Limits {
            wall: Duration::from_secs(60),
            cpu: Duration::from_secs(60),
            ..Limits::default()
        },
        ..Settings::default()
    });
    let mut message = message("");
    let body = format!("input;{}", "x".repeat(3 << 20));
    message.body = Bytes::from(body.into_bytes());
    let length = message.body.len();
    let headers = (0..500).map(|n| (Bytes::from(format!("x-{n}")), Bytes::from("v".repeat(1000))));
    message.headers = Headers::new(headers.collect());
    assert_eq!(rig.call(&message, 1).await.outcome, Outcome::Ack);
    assert_eq!(rig.lines(), [format!("{length} bytes")]);
    message.body = Bytes::from("variable:HOSTLER_HEADER_X_499");
    assert_eq!(rig.call(&message, 1).await.outcome, Outcome::Ack);
    assert_eq!(rig.lines(), [format!("Some({:?})", "v".repeat(1000))]);
    // More than the adapter of WASIp1 can list: some are left out, and counted.
    let headers = (0..50_000).map(|n| (Bytes::from(format!("x-{n}")), Bytes::from("v")));
    message.headers = Headers::new(headers.collect());
    message.body = Bytes::from("variable:HOSTLER_HEADERS_LEFT_OUT");
    assert_eq!(rig.call(&message, 1).await.outcome, Outcome::Ack);
    assert_eq!(rig.lines(), [r#"Some("48000")"#]);
}

#[tokio::test]
async fn a_program_starts_fresh_for_each_message() {
    let mut rig = module(&Settings::default());
    for _ in 0..3 {
        assert!(rig.run("ack").await.fresh);
    }
    let settings = Settings {
        reuse: 2,
        ..Settings::default()
    };
    let error = Sandbox::load(&guest_module("program"), &settings).unwrap_err();
    assert_eq!(
        error.to_string(),
        "is a program, and a program runs once in an instance: `reuse` is 2, set it to 1"
    );
}

/// The destinations `invoices` and nothing else.
fn publishing(stdout: &str) -> Settings {
    let outlet = Outlet {
        takes_delays: true,
        takes_headers: true,
    };
    let outlets = BTreeMap::from([("invoices".to_owned(), outlet)]);
    Settings {
        grants: Grants {
            publish: Some(Outlets::new(outlets)),
            ..Grants::default()
        },
        program: Program {
            stdout: Stdout::Publish(stdout.to_owned()),
            ..Program::default()
        },
        ..Settings::default()
    }
}

#[tokio::test]
async fn stdout_is_published_with_the_ack() {
    let mut rig = module(&publishing("invoices"));
    let report = rig.run("out:one+out:two+err:logged").await;
    assert_eq!(report.outcome, Outcome::Ack);
    let effects = report.effects.expect("it publishes");
    let [publication] = effects.publications() else {
        panic!("{effects:?}");
    };
    assert_eq!(&*publication.to, "invoices");
    assert_eq!(&publication.body[..], b"one\ntwo\n");
    assert_eq!(rig.lines(), ["logged"]);
    // Nothing is published without an ack, or without output.
    for body in ["out:one+nack", "out:one+exit:3", "ack", "out:one+trap"] {
        let report = rig.run(body).await;
        assert!(report.effects.is_none(), "{body}: {:?}", report.effects);
    }
    let fault = rig.fault("fill:5000000").await;
    assert_eq!(fault.kind, FaultKind::OutputLimit, "{fault}");
    assert!(
        fault.detail.contains("limit `publish.max_bytes`"),
        "{fault}"
    );
}

#[test]
fn stdout_needs_a_destination_that_is_granted() {
    let error = Sandbox::load(&guest_module("program"), &publishing("jobs")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "is a program, and its stdout goes to `jobs` (`program.stdout`), which is not in `[grant.publish]`: \
         write `jobs = \"stream:key\"` there"
    );
}

#[tokio::test]
async fn granted_directories_are_read_and_never_written() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_path_buf();
    std::fs::create_dir(path.join("inner")).unwrap();
    std::fs::write(path.join("inner/hello"), "hello from a file").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join("inner/escape")).unwrap();
    let settings = |path: PathBuf| Settings {
        grants: Grants {
            files: vec![Directory {
                path,
                at: "/files".to_owned(),
            }],
            ..Grants::default()
        },
        ..Settings::default()
    };
    for mut rig in [
        module(&settings(path.join("inner"))),
        Rig::guest("program", &settings(path.join("inner"))),
    ] {
        for (body, line) in [
            ("read:/files/hello", "hello from a file"),
            ("list:/files", r#"["escape", "hello"]"#),
        ] {
            assert_eq!(rig.run(body).await.outcome, Outcome::Ack);
            assert_eq!(rig.lines(), [line], "{body}");
        }
        for body in [
            "write:/files/new",
            "write:/files/hello",
            "read:/files/escape",
            "read:/files/../outside",
            "read:/etc/passwd",
            "list:/",
        ] {
            assert_eq!(rig.run(body).await.outcome, Outcome::Ack);
            let lines = rig.lines();
            assert!(lines[0].contains("(os error "), "{body}: {lines:?}");
        }
        // Each is a descriptor of the host.
        let report = rig.run("open:1000").await;
        let lines = rig.lines();
        let few = lines.first().and_then(|line| line.strip_suffix(" files"));
        let few = few.and_then(|few| few.parse::<u32>().ok());
        assert!(
            few.is_some_and(|few| few < 64) || report.outcome != Outcome::Ack,
            "{lines:?} {report:?}"
        );
        if let Outcome::Fault(fault) = &report.outcome {
            let said = "more than 64 open files, directories and sockets";
            assert!(fault.detail.contains(said), "{fault}");
        }
    }
    assert_eq!(std::fs::read_dir(path.join("inner")).unwrap().count(), 2);
    let gone = settings(path.join("gone"));
    let error = Sandbox::load(&guest_module("program"), &gone).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("of `[[grant.files]]` cannot be read"),
        "{error}"
    );
}

#[tokio::test]
async fn without_a_grant_a_program_has_no_files() {
    let mut rig = module(&Settings::default());
    for body in ["read:/etc/passwd", "list:/", "write:/x"] {
        assert_eq!(rig.run(body).await.outcome, Outcome::Ack);
        let lines = rig.lines();
        assert!(
            lines[0].contains("pre-opened") || lines[0].contains("(os error "),
            "{lines:?}"
        );
    }
}

#[tokio::test]
async fn hostile_programs_stay_within_their_limits() {
    for mut rig in [
        module(&Settings::default()),
        Rig::guest("program", &Settings::default()),
    ] {
        // Output over the limits is dropped and counted, on both streams.
        for body in ["fill:8000000", "lines:200000"] {
            let report = rig.run(body).await;
            let bounded = report.log_bytes_dropped > 1_000_000;
            assert!(
                bounded || report.outcome != Outcome::Ack,
                "{body}: {report:?}"
            );
            let kept: usize = rig.lines().iter().map(String::len).sum();
            assert!(kept <= Limits::default().log_attempt, "{body}: {kept}");
        }
        // Input that it reads again and again is there once.
        assert_eq!(rig.run("input;x").await.outcome, Outcome::Ack);
        assert_eq!(rig.lines(), ["7 bytes"]);
        for _ in 0..3 {
            assert_eq!(rig.run("ack").await.outcome, Outcome::Ack);
        }
    }
}

/// A module that writes over all its memory, between its calls of WASI, as allocators may.
fn greedy(memory: &str, code: &str) -> Vec<u8> {
    component(&format!(
        r#"(module
            (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
            (memory (export "memory") {memory})
            (func $check (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))
            (func $call (call $check (i32.eqz (call $random_get (i32.const 0) (i32.const 16)))))
            (func $is-all (param $end i32) (local $at i32)
                (local.set $at (i32.const 16))
                (loop $next
                    (call $check (i32.eq (i32.load8_u (local.get $at)) (i32.const 170)))
                    (local.set $at (i32.add (local.get $at) (i32.const 1)))
                    (br_if $next (i32.lt_u (local.get $at) (local.get $end)))))
            (func $fill
                (memory.fill (i32.const 0) (i32.const 170) (i32.mul (memory.size) (i32.const 65536))))
            (func $grows (param $pages i32) (param $before i32)
                (call $check (i32.eq (memory.grow (local.get $pages)) (local.get $before)))
                (call $call)
                (call $fill)
                (call $call)
                (call $is-all (i32.mul (memory.size) (i32.const 65536))))
            (func (export "_start") {code}))"#
    ))
}

#[tokio::test]
async fn the_memory_of_a_module_is_in_one_piece() {
    let settings = |pages: usize| Settings {
        limits: Limits {
            memory: pages << 16,
            ..Limits::default()
        },
        ..Settings::default()
    };
    let grows = "(call $fill) (call $grows (i32.const 0) (i32.const 2))
        (call $grows (i32.const 3) (i32.const 2)) (call $grows (i32.const 1) (i32.const 5))
        (call $grows (i32.const 8) (i32.const 6))";
    let denied = "(call $check (i32.eq (memory.grow (i32.const 1)) (i32.const -1)))";
    let mut rig = Rig::bytes(&greedy("2", &format!("{grows} {denied}")), &settings(16));
    for _ in 0..2 {
        assert_eq!(rig.run("").await.outcome, Outcome::Ack);
    }
    // Its own maximum is kept, and is no limit of the host.
    let bounded = greedy(
        "2 6",
        "(call $grows (i32.const 4) (i32.const 2))
        (call $check (i32.ne (memory.grow (i32.const 1)) (i32.const -1)))",
    );
    let fault = Rig::bytes(&bounded, &settings(16)).fault("").await;
    assert_eq!(fault.kind, FaultKind::Trap, "{fault}");
    for (pages, code) in [
        // A page more than there is.
        (15, grows),
        // The adapter has no room.
        (3, "(call $call)"),
    ] {
        let mut rig = Rig::bytes(&greedy("2", code), &settings(pages));
        let fault = rig.fault("").await;
        assert_eq!(fault.kind, FaultKind::MemoryLimit, "{fault}");
        assert!(fault.detail.contains("(limit `memory`)"), "{fault}");
    }
}

#[test]
fn modules_that_declare_too_much_are_refused() {
    let start = r#"(func (export "_start"))"#;
    let functions = "(func)".repeat(20) + start;
    let passive = format!("(module {functions} (elem func {}))", "0 ".repeat(20_000));
    let memories = "(memory 1)".repeat(60);
    let memories = format!(r#"(module (memory (export "memory") 1) {memories} {start})"#);
    let memory = format!(r#"(module (memory (export "memory") 60000) {start})"#);
    let table = format!(r#"(module (memory (export "memory") 1) (table 9000000 funcref) {start})"#);
    for (text, part) in [
        (&passive, "elements in passive segments"),
        (&memories, "linear memories"),
        (&memory, "bytes of linear memory"),
        (&table, "table elements"),
    ] {
        let error = Sandbox::load_bytes(&component(text), &Settings::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn damaged_modules_are_refused_or_run() {
    let whole = std::fs::read(guest_module("program")).unwrap();
    for end in [9, 100, whole.len() / 2, whole.len() - 1] {
        let error = Sandbox::load_bytes(&whole[..end], &Settings::default()).unwrap_err();
        assert!(error.to_string().starts_with("is truncated"), "{error}");
    }
    let small = component(
        r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
        (memory (export "memory") 1)
        (func (export "_start") (call $exit (i32.const 75))))"#,
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let settings = Settings {
        limits: Limits {
            wall: Duration::from_millis(200),
            ..Limits::default()
        },
        ..Settings::default()
    };
    let (mut refused, mut ran) = (0, 0);
    for at in 0..small.len() {
        let mut damaged = small.clone();
        damaged[at] ^= 1 << (at % 8);
        match Sandbox::load_bytes(&damaged, &settings) {
            Err(_) => refused += 1,
            Ok(sandbox) => {
                runtime.block_on(Rig::of(sandbox).run("x"));
                ran += 1;
            }
        }
    }
    assert!(refused > 0 && ran > 0, "{refused} {ran}");
    // A section that claims to have four billion entries.
    for id in [SectionId::Type, SectionId::Function, SectionId::Global] {
        let mut module = Module::new();
        let data = [0xff, 0xff, 0xff, 0xff, 0x0f];
        let mut memories = MemorySection::new();
        memories.memory(MemoryType {
            minimum: 1,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        });
        module.section(&RawSection {
            id: id as u8,
            data: &data,
        });
        let mut exports = ExportSection::new();
        exports.export("_start", ExportKind::Func, 0);
        module.section(&memories).section(&exports);
        Sandbox::load_bytes(&module.finish(), &settings).expect_err("it is refused");
    }
}

#[test]
fn modules_that_are_no_programs_are_refused() {
    for (text, part) in [
        ("(module)", "no program: it does not export `_start`"),
        (
            r#"(module (func (export "_start") (param i32)))"#,
            "is not a valid component",
        ),
        (
            r#"(module (import "env" "log" (func)) (func (export "_start")))"#,
            "is not a valid component",
        ),
        (
            r#"(module (import "wasi_snapshot_preview1" "no_such" (func)) (func (export "_start")))"#,
            "is not a valid component",
        ),
        (
            r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func)) (func (export "_start")))"#,
            "is not a valid component",
        ),
    ] {
        let error = Sandbox::load_bytes(&component(text), &Settings::default()).unwrap_err();
        assert!(error.to_string().contains(part), "{text}: {error}");
    }
}

#[tokio::test]
async fn codes_of_a_component_that_hands_them_over_arrive() {
    let text = r#"(component
        (import "wasi:cli/exit@0.2.12" (instance $exit
            (export "exit-with-code" (func (param "status-code" u8)))))
        (core func $exit (canon lower (func $exit "exit-with-code")))
        (core module $m
            (import "host" "exit" (func $exit (param i32)))
            (func (export "run") (result i32) (call $exit (i32.const 75)) unreachable))
        (core instance $i (instantiate $m
            (with "host" (instance (export "exit" (func $exit))))))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $run-i (export "run" (func $run)))
        (export "wasi:cli/run@0.2.12" (instance $run-i)))"#;
    let mut rig = Rig::bytes(&component(text), &Settings::default());
    assert_eq!(rig.sandbox.describe().exit_codes, Some(ExitCodes::All));
    assert_eq!(rig.run("").await.outcome, Outcome::NackRequeue(None));
}

#[test]
fn a_component_that_exports_run_is_a_program() {
    let text = r#"(component
        (core module $m
            (memory (export "memory") 1)
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) unreachable)
            (func (export "run") (result i32) i32.const 0))
        (core instance $i (instantiate $m))
        (func $run (result (result)) (canon lift (core func $i "run")))
        (instance $run-i (export "run" (func $run)))
        (export "wasi:cli/run@0.2.0" (instance $run-i)))"#;
    let sandbox = Sandbox::load_bytes(&component(text), &Settings::default()).unwrap();
    assert_eq!(sandbox.describe().exit_codes, Some(ExitCodes::ZeroOrOne));
    let text = text.replace("@0.2.0", "@0.3.0");
    let error = Sandbox::load_bytes(&component(&text), &Settings::default()).unwrap_err();
    assert!(
        error.to_string().starts_with("exports wasi:cli/run@0.3.0"),
        "{error}"
    );
}

/// The same program in a language: what its own tool chain makes, without bindings.
async fn invoices(language: &str) {
    let mut rig = Rig::file(&program(language), &publishing("invoices"));
    assert_eq!(rig.sandbox.describe().exit_codes, Some(ExitCodes::All));
    let report = rig.run("A-1 250\n").await;
    assert_eq!(report.outcome, Outcome::Ack, "{report:?}");
    let effects = report.effects.expect("it publishes");
    assert_eq!(&effects.publications()[0].body[..], b"invoice A-1 250\n");
    let outcome = rig.run("A-2 0").await.outcome;
    assert_eq!(outcome, Outcome::NackRequeue(None));
    assert_eq!(rig.lines(), ["order A-2 has no amount yet"]);
    let reason = "not an order: it needs an id and an amount";
    assert_eq!(rig.run("what is this?").await.outcome, dropped(reason));
    let reason = "not an order: the amount is not a number";
    assert_eq!(rig.run("A-3 many").await.outcome, dropped(reason));
    let fault = rig.fault("A-4 crash").await;
    assert!(fault.detail.contains("stderr: "), "{fault}");
}

macro_rules! in_languages {
    ($($language:ident)*) => {
        $(
            #[tokio::test]
            async fn $language() {
                invoices(stringify!($language)).await;
            }
        )*
    };
}

in_languages!(rust);

mod long {
    use super::invoices;

    in_languages!(go c cpp zig);
}
