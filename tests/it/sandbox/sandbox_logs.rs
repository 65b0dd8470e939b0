//! The output of guests becomes bounded and escaped log lines.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use hostler::delivery::hold::HoldRoom;
use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::Outcome;
use hostler::delivery::trace::Traced;
use hostler::sandbox::{Call, Cancelled, Limits, LogLine, LogSink, Settings, Stream};
use hostler_tests::guests::{HANDLE, exporting};
use hostler_tests::rig::{Rig, message};

fn limited(limits: Limits) -> Settings {
    Settings {
        limits,
        ..Settings::default()
    }
}

#[tokio::test]
async fn each_line_is_one_event() {
    let mut rig = Rig::scripted(&Settings::default());
    rig.run("text:hello+text:two  words\t.+half").await;
    let lines = rig.capture.take();
    let texts = ["start 1-1 1", "hello", "two  words\t.", "half"];
    let expected = texts.map(|text| LogLine {
        stream: Stream::Stdout,
        text: text.to_owned(),
    });
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_panic_message_is_logged() {
    let mut rig = Rig::scripted(&Settings::default());
    rig.run("panic").await;
    let lines = rig.capture.take();
    let panic = LogLine {
        stream: Stream::Stderr,
        text: "asked to panic".to_owned(),
    };
    assert!(lines.contains(&panic), "{lines:?}");
}

#[tokio::test]
async fn lines_of_a_reused_instance_belong_to_their_attempt() {
    let mut rig = Rig::scripted(&Settings {
        reuse: 10,
        ..Settings::default()
    });
    for attempt in 1..=3 {
        let message = Message {
            id: format!("{attempt}-0").into(),
            ..message("half")
        };
        rig.call(&message, attempt).await;
        let texts: Vec<_> = rig.capture.take().into_iter().map(|l| l.text).collect();
        assert_eq!(
            texts,
            [format!("start {attempt}-0 {attempt}"), "half".into()]
        );
    }
}

#[tokio::test]
async fn terminal_control_characters_are_escaped() {
    let mut rig = Rig::scripted(&Settings::default());
    rig.run("ansi").await;
    assert_eq!(
        rig.lines(),
        ["\\u{1b}[31mred\\u{1b}[0m\\rforged\\u{202e}\\u{85}\\u{0}"]
    );
}

#[tokio::test]
async fn control_characters_in_a_drop_reason_are_escaped() {
    let mut rig = Rig::scripted(&limited(Limits {
        outcome_text: 24,
        ..Limits::default()
    }));
    let escaped = rig.reason("drop:\u{1b}[31mred\u{9b}0m\tx").await;
    assert_eq!(escaped, "\\u{1b}[31mred\\u{9b}0m\tx");
    // The escaped text is cut too.
    let escaped = rig.reason("drop:\n\r\u{202e}\u{202e}\u{202e}").await;
    assert_eq!(escaped, "\\n\\r\\u{202e}\\u{202e}\\u{2");
}

#[tokio::test]
async fn long_lines_are_cut() {
    let mut rig = Rig::scripted(&limited(Limits {
        log_line: 100,
        ..Limits::default()
    }));
    let report = rig.run("long:100+long:101+long:30000+text:after").await;
    let whole = "y".repeat(100);
    let cut = format!("{whole} [cut]");
    assert_eq!(rig.lines(), [&*whole, &cut, &cut, "after"]);
    assert_eq!(report.log_bytes_dropped, 1 + 29_900);
    assert_eq!(report.outcome, Outcome::Ack);
}

#[tokio::test]
async fn log_bytes_per_attempt_are_limited() {
    let mut rig = Rig::scripted(&limited(Limits {
        log_attempt: 6400,
        ..Limits::default()
    }));
    // A line counts as at least 64 bytes: 100 lines, and one of them is the start line.
    let report = rig.run("lines:1000").await;
    assert_eq!(report.outcome, Outcome::Ack);
    let lines = rig.lines();
    assert_eq!(lines.len(), 99);
    assert_eq!(lines[98], "line 98");
    let written: usize = (0..1000).map(|i| format!("line {i}").len()).sum();
    let kept: usize = lines.iter().map(String::len).sum();
    assert_eq!(report.log_bytes_dropped, (written - kept) as u64);
    // The next attempt has its own limit.
    rig.run("lines:3").await;
    assert_eq!(rig.lines().len(), 3);
}

#[tokio::test]
async fn a_flood_of_lines_is_not_a_fault() {
    // An unoptimized host on a busy machine takes seconds.
    let limits = Limits {
        wall: Duration::from_secs(50),
        cpu: Duration::from_secs(50),
        ..Limits::default()
    };
    let mut rig = Rig::scripted(&Settings {
        limits,
        ..Settings::default()
    });
    let report = rig.run("lines:100000").await;
    assert_eq!(report.outcome, Outcome::Ack);
    assert!(rig.lines().len() <= 1024);
    assert!(report.log_bytes_dropped > 500_000);
}

#[tokio::test]
async fn log_bytes_per_second_are_limited_for_all_attempts_together() {
    // The event of a short line counts 352 bytes and the line and the id.
    const EVENT: usize = 400;
    let mut rig = Rig::scripted(&limited(Limits {
        log_rate: EVENT * 50,
        ..Limits::default()
    }));
    let started = std::time::Instant::now();
    let mut kept = 0;
    for _ in 0..20 {
        rig.run("lines:20").await;
        kept += rig.capture.take().len();
    }
    // The lines of one second at once, and those of the time since.
    let allowed = 1.2 * 50.0 * (1.0 + started.elapsed().as_secs_f64());
    assert!((50..=allowed.ceil() as usize).contains(&kept), "{kept}");
}

#[tokio::test]
async fn a_line_is_cut_where_its_escaped_text_is_too_long() {
    // Each character is written with six.
    let mut rig = Rig::bytes(
        &writing(&"\u{1b}".repeat(20)),
        &limited(Limits {
            log_line: 50,
            ..Limits::default()
        }),
    );
    let report = rig.run("").await;
    assert_eq!(rig.lines(), [format!("{}\\u [cut]", "\\u{1b}".repeat(8))]);
    assert_eq!(report.log_bytes_dropped, 20 * 6 - 50);
}

/// The bytes of the log, for a second at most, of a guest that writes this line again and again.
async fn logged(line: &str, id: &str, rate: usize) -> (usize, f64) {
    let rig = Rig::bytes(
        &writing(line),
        &limited(Limits {
            log_rate: rate,
            log_attempt: 1 << 30,
            ..Limits::default()
        }),
    );
    let message = Message {
        id: id.into(),
        ..message("")
    };
    let begun = std::time::Instant::now();
    let written = events(async || {
        let mut slot = rig.sandbox.slot();
        for _ in 0..300 {
            rig.sandbox.call(&mut slot, to_the_log(&message)).await;
        }
    })
    .await;
    (written.len(), begun.elapsed().as_secs_f64())
}

#[tokio::test]
async fn the_log_of_guests_stays_within_its_rate_whatever_they_write() {
    const RATE: usize = 64 << 10;
    let long = "1-1".repeat(500);
    for (line, id) in [
        ("x", "1-1"),
        (&*"\u{1b}\u{202e}\"\\".repeat(200), "1-1"),
        ("x", &*long),
    ] {
        let (written, seconds) = logged(line, id, RATE).await;
        // A line about what was dropped comes once a second.
        let allowed = (RATE + 1_000) as f64 * (1.0 + seconds);
        assert!(written > RATE / 2, "{written} bytes");
        assert!((written as f64) < allowed, "{written} bytes in {seconds} s");
    }
}

/// A handler that writes this line to stdout, and acknowledges.
fn writing(line: &str) -> Vec<u8> {
    let bytes: String = line.bytes().map(|byte| format!("\\{byte:02x}")).collect();
    let size = line.len() + 1;
    let text = format!(
        r#"(import "wasi:io/error@0.2.0" (instance $errors (export "error" (type (sub resource)))))
        (alias export $errors "error" (type $error))
        (import "wasi:io/streams@0.2.0" (instance $streams
            (export "output-stream" (type $output (sub resource)))
            (alias outer 1 $error (type $outer))
            (export "error" (type $e (eq $outer)))
            (type $own (own $e))
            (type $failure (variant (case "last-operation-failed" $own) (case "closed")))
            (export "stream-error" (type $stream-error (eq $failure)))
            (type $stream (borrow $output))
            (type $bytes (list u8))
            (export "[method]output-stream.blocking-write-and-flush" (func
                (param "self" $stream) (param "contents" $bytes)
                (result (result (error $stream-error)))))))
        (alias export $streams "output-stream" (type $output))
        (import "wasi:cli/stdout@0.2.0" (instance $stdout
            (alias outer 1 $output (type $outer))
            (export "output-stream" (type $o (eq $outer)))
            (type $own (own $o))
            (export "get-stdout" (func (result $own)))))
        (core module $base
            (memory (export "memory") 1)
            (data (i32.const 2048) "{bytes}\0a")
            (func (export "realloc") (param i32 i32 i32 i32) (result i32) i32.const 1024))
        (core instance $base (instantiate $base))
        (alias core export $base "memory" (core memory $memory))
        (alias core export $base "realloc" (core func $realloc))
        (core func $get (canon lower (func $stdout "get-stdout")))
        (core func $write (canon lower
            (func $streams "[method]output-stream.blocking-write-and-flush") (memory $memory)))
        (core func $drop (canon resource.drop $output))
        (core module $main
            (import "host" "get" (func $get (result i32)))
            (import "host" "write" (func $write (param i32 i32 i32 i32)))
            (import "host" "drop" (func $drop (param i32)))
            (func (export "handle") {core} (local $out i32)
                (local.set $out (call $get))
                (call $write (local.get $out) (i32.const 2048) (i32.const {size}) (i32.const 512))
                (call $drop (local.get $out))
                i32.const 0))
        (core instance $core (instantiate $main (with "host" (instance
            (export "get" (func $get)) (export "write" (func $write)) (export "drop" (func $drop))))))
        (alias core export $core "handle" (core func $run))"#,
        core = HANDLE.core,
    );
    exporting(&HANDLE, "1.0.0", &text)
}

/// What is logged meanwhile, as lines of JSON.
async fn events(run: impl AsyncFnOnce()) -> String {
    let events = Events::default();
    let kept = events.clone();
    let subscriber = tracing_subscriber::fmt().json();
    let subscriber = subscriber.with_writer(move || kept.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    run().await;
    drop(guard);
    let written = events.0.lock().unwrap().clone();
    String::from_utf8(written).unwrap()
}

/// The second attempt of this message, whose output is logged.
fn to_the_log(message: &Message) -> Call<'_> {
    static CANCELLED: LazyLock<Arc<Cancelled>> = LazyLock::new(Arc::default);
    Call {
        message,
        attempt: 2,
        max_attempts: 0,
        cancelled: &CANCELLED,
        logs: &LogSink::Tracing,
        trace: Traced::default(),
        began: std::time::Instant::now(),
        journal: None,
        room: HoldRoom::default(),
    }
}

/// The event for the line `hello` of a guest that gets this message.
async fn event(rig: &Rig, message: &Message) -> serde_json::Value {
    let text = events(async || {
        let mut slot = rig.sandbox.slot();
        rig.sandbox.call(&mut slot, to_the_log(message)).await;
    })
    .await;
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .find(|event: &serde_json::Value| event["fields"]["line"] == "hello")
        .unwrap()
}

#[tokio::test]
async fn without_a_capture_lines_are_tracing_events() {
    let rig = Rig::scripted(&Settings::default());
    let event = event(&rig, &message("text:hello")).await;
    assert_eq!(event["target"], "guest");
    assert_eq!(event["level"], "INFO");
    let fields = event["fields"].as_object().unwrap();
    assert_eq!(fields["stream"], "stdout");
    assert_eq!(fields["message_id"], "1-1");
    assert_eq!(fields["attempt"], 2);
    assert_eq!(fields["handler"], &**rig.sandbox.digest());
    for none in ["batch", "trace_id", "span_id"] {
        assert!(!fields.contains_key(none), "{none}: {event}");
    }
}

#[tokio::test]
async fn lines_carry_the_trace_of_their_message() {
    let rig = Rig::scripted(&Settings::default());
    let traced = |traceparent: &str| {
        let mut headers = Headers::default();
        headers.push("traceparent", traceparent.to_owned());
        Message {
            headers,
            ..message("text:hello")
        }
    };
    let valid = traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let event_of = event(&rig, &valid).await;
    let fields = &event_of["fields"];
    assert_eq!(fields["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(fields["span_id"], "00f067aa0ba902b7");
    // A forged header does not reach the log.
    let forged = traced("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\n{}");
    let event_of = event(&rig, &forged).await;
    assert_eq!(event_of["fields"].get("trace_id"), None, "{event_of}");
}

/// The output of a subscriber.
#[derive(Clone, Default)]
struct Events(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Events {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let mut written = self.0.lock().expect("nobody panics while writing");
        written.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
