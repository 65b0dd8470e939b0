//! The output of guests becomes bounded and escaped log lines.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::Outcome;
use hostler::sandbox::{Call, Limits, LogLine, LogSink, Settings, Stream};
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
    let mut rig = Rig::scripted(&Settings::default());
    let report = rig.run("lines:100000").await;
    assert_eq!(report.outcome, Outcome::Ack);
    assert!(rig.lines().len() <= 1024);
    assert!(report.log_bytes_dropped > 500_000);
}

#[tokio::test]
async fn log_bytes_per_second_are_limited_for_all_attempts_together() {
    let mut rig = Rig::scripted(&limited(Limits {
        log_rate: 64 * 50,
        ..Limits::default()
    }));
    let started = std::time::Instant::now();
    let mut kept = 0;
    for _ in 0..20 {
        rig.run("lines:20").await;
        kept += rig.capture.take().len();
    }
    // The lines of one second at once, and those of the time since.
    let allowed = 50.0 * (1.0 + started.elapsed().as_secs_f64());
    assert!((50..=allowed.ceil() as usize).contains(&kept), "{kept}");
}

/// The event for the line `hello` of a guest that gets this message.
async fn event(rig: &Rig, message: &Message) -> serde_json::Value {
    let events = Events::default();
    let kept = events.clone();
    let subscriber = tracing_subscriber::fmt().json();
    let subscriber = subscriber.with_writer(move || kept.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    let call = Call {
        message,
        attempt: 2,
        max_attempts: 0,
        cancelled: &Arc::new(AtomicBool::new(false)),
        logs: &LogSink::Tracing,
    };
    let mut slot = rig.sandbox.slot();
    rig.sandbox.call(&mut slot, call).await;
    drop(guard);
    let text = String::from_utf8(events.0.lock().unwrap().clone()).unwrap();
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
