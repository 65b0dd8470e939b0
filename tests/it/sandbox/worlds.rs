//! Handlers that were written for other hosts, called directly: what they see, what their answers mean, what
//! they may import, and which components are refused.

use std::collections::BTreeMap;

use bytes::Bytes;
use hostler::delivery::effect::{Outlet, Outlets};
use hostler::delivery::key_value::KeyRules;
use hostler::delivery::message::{Headers, Message};
use hostler::delivery::outcome::{FaultKind, Outcome};
use hostler::grants::configuration::rules::Values;
use hostler::grants::{Grants, Provided};
use hostler::sandbox::{Limits, Sandbox, Settings, World};
use hostler_tests::adapters::Adapter;
use hostler_tests::command::run;
use hostler_tests::guests::{component, guest};
use hostler_tests::rig::{Rig, fault, message};

/// The guests, and the interface of each.
const GUESTS: [(&str, &str); 3] = [
    ("foreign-spin", "fermyon:spin/inbound-redis"),
    ("foreign-sqs", "fermyon:spin-sqs@2.0.0"),
    ("foreign-wasmcloud", "wasmcloud:messaging/handler@0.2.0"),
];

/// Everything that the guests import is granted.
pub(crate) fn settings() -> Settings {
    let values = [("region", "eu"), ("apiKey", "k"), ("empty", "")];
    let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let outlet = |takes_headers| Outlet {
        takes_delays: false,
        takes_headers,
    };
    let outlets = [("invoices", outlet(true)), ("raw", outlet(false))];
    let outlets = outlets.map(|(name, outlet)| (name.to_owned(), outlet));
    Settings {
        limits: Limits {
            memory: 8 << 20,
            cpu: std::time::Duration::from_millis(200),
            ..Limits::default()
        },
        grants: Grants {
            config: Some(Values::from(BTreeMap::from(values))),
            publish: Some(Outlets::new(BTreeMap::from(outlets))),
            key_value: Some(KeyRules {
                prefix: "{orders}:kv:".into(),
                value_max: 100,
                checked: false,
                journal: false,
            }),
            journal: None,
            provided: Provided::default(),
            files: Vec::new(),
        },
        ..Settings::default()
    }
}

fn rig(name: &str) -> Rig {
    Rig::guest(name, &settings())
}

/// What the guest writes for a message that it acks.
async fn said(rig: &mut Rig, body: &str) -> Vec<String> {
    let report = rig.run(body).await;
    assert_eq!(report.outcome, Outcome::Ack, "{body}");
    rig.lines()
}

#[tokio::test]
async fn a_handler_of_each_world_acks_and_nacks() {
    for (name, interface) in GUESTS {
        let mut rig = rig(name);
        let description = rig.sandbox.describe();
        assert_eq!(description.interface, interface);
        assert_eq!(description.world, World::Message);
        assert_eq!(rig.run("ack").await.outcome, Outcome::Ack, "{name}");
        assert_eq!(rig.run("").await.outcome, Outcome::Ack, "{name}");
        let again = rig.run("err:no\u{1b} stock").await.outcome;
        assert_eq!(again, Outcome::NackRequeue(None), "{name}");
        // The text is seen: Spin's SDK writes it to stderr, the other worlds return it.
        let expected = match name {
            "foreign-spin" => "no\\u{1b} stock",
            _ => "warn: the handler failed: no\\u{1b} stock",
        };
        assert_eq!(rig.lines(), [expected], "{name}");
    }
}

#[tokio::test]
async fn the_text_of_an_error_is_bounded() {
    for (name, _) in &GUESTS[1..] {
        let mut rig = rig(name);
        let long = format!("err:{}", "x".repeat(20_000));
        let again = rig.run(&long).await.outcome;
        assert_eq!(again, Outcome::NackRequeue(None), "{name}");
        let lines = rig.lines();
        let line_max = Limits::default().log_line;
        assert!(lines[0].len() <= line_max + 16, "{}", lines[0].len());
    }
}

#[tokio::test]
async fn a_fault_in_each_world_is_that_of_a_native_handler() {
    for (name, _) in GUESTS {
        let mut rig = rig(name);
        for (body, kind) in [
            ("trap", FaultKind::Trap),
            ("grow:32", FaultKind::MemoryLimit),
            ("loop", FaultKind::CpuTimeout),
            ("what is this", FaultKind::Trap),
        ] {
            let fault = rig.fault(body).await;
            assert_eq!(fault.kind, kind, "{name}: {body}: {fault}");
        }
        assert_eq!(rig.run("ack").await.outcome, Outcome::Ack, "{name}");
    }
    // An answer is bounded like any other data from a guest. That of the Redis trigger has no text.
    for (name, _) in &GUESTS[1..] {
        let large = format!("err:{}", "x".repeat(2 << 20));
        let fault = rig(name).fault(&large).await;
        assert_eq!(fault.kind, FaultKind::OutputLimit, "{name}: {fault}");
    }
}

/// A component for one of the worlds. It answers each message with these bytes.
fn answering(adapter: Adapter, answer: &str) -> Vec<u8> {
    let items = format!(
        r#"(data (i32.const 8) "{answer}")
        (data (i32.const 40) "\ff\fe")"#
    );
    adapter.text("", &items, "")
}

#[tokio::test]
async fn an_answer_that_is_not_valid_is_a_fault_in_each_world() {
    // A result: its case, and at 4 (of Spin's Redis trigger at 1) what it carries. Text at 40 is not UTF-8.
    let outside = r"\f0\ff\ff\ff\10\00\00\00";
    let not_text = r"\28\00\00\00\02\00\00\00";
    let other = r"\01\00\00\00\00\00\00\00";
    for (adapter, good, bad) in [
        (
            Adapter::Spin,
            r"\00",
            vec![r"\02".to_owned(), r"\01\09".to_owned()],
        ),
        (
            Adapter::Sqs,
            r"\00\00\00\00\00",
            vec![
                r"\00\00\00\00\07".to_owned(),
                r"\01\00\00\00\01".to_owned(),
                format!("{other}{outside}"),
                format!("{other}{not_text}"),
            ],
        ),
        (
            Adapter::Wasmcloud,
            r"\00",
            vec![
                r"\02".to_owned(),
                format!(r"\01\00\00\00{outside}"),
                format!(r"\01\00\00\00{not_text}"),
            ],
        ),
    ] {
        let mut rig = Rig::bytes(&answering(adapter, good), &settings());
        assert_eq!(rig.run("x").await.outcome, Outcome::Ack, "{adapter:?}");
        for answer in bad {
            let mut rig = Rig::bytes(&answering(adapter, &answer), &settings());
            let fault = rig.fault("x").await;
            let kind = FaultKind::BadOutcome;
            assert_eq!(fault.kind, kind, "{adapter:?} {answer}: {fault}");
        }
    }
}

#[tokio::test]
async fn an_instance_of_each_world_is_fresh_or_reused_as_configured() {
    for (name, _) in GUESTS {
        let mut fresh = rig(name);
        assert_eq!(said(&mut fresh, "count").await, ["1"], "{name}");
        assert_eq!(said(&mut fresh, "count").await, ["1"], "{name}");
        let reusing = Settings {
            reuse: 1_000,
            ..settings()
        };
        let mut reused = Rig::guest(name, &reusing);
        assert_eq!(said(&mut reused, "count").await, ["1"], "{name}");
        assert_eq!(
            reused.run("err:x").await.outcome,
            Outcome::NackRequeue(None)
        );
        reused.lines();
        assert_eq!(said(&mut reused, "count").await, ["3"], "{name}");
        reused.fault("trap").await;
        assert_eq!(said(&mut reused, "count").await, ["1"], "{name}");
    }
}

#[tokio::test]
async fn a_body_that_is_not_text_arrives_unchanged_or_not_at_all() {
    let binary = Message {
        body: Bytes::from_static(b"a\xff\0b"),
        ..message("")
    };
    for (name, outcome, line) in [
        ("foreign-spin", Outcome::Ack, "4 bytes"),
        ("foreign-wasmcloud", Outcome::Ack, "4 bytes"),
        (
            "foreign-sqs",
            Outcome::NackRequeue(None),
            "warn: the handler failed: did not run: the body is not UTF-8, and a message of SQS is text",
        ),
    ] {
        let mut rig = rig(name);
        assert_eq!(rig.call(&binary, 1).await.outcome, outcome, "{name}");
        assert_eq!(rig.lines(), [line], "{name}");
    }
}

#[tokio::test]
async fn a_large_body_arrives() {
    for (name, _) in GUESTS {
        let mut rig = rig(name);
        let body = format!("ack+say:{}", "x".repeat(1 << 20));
        assert_eq!(rig.run(&body).await.outcome, Outcome::Ack, "{name}");
    }
}

/// A message with headers: a repeated one, one with other bytes than text, and a reply-to.
fn with_headers(body: &str) -> Message {
    let mut headers = Headers::default();
    headers.push("X-Tenant", "acme");
    headers.push("x-tenant", "a guest does not see the second value");
    headers.push("bytes", Bytes::from_static(b"a\xffb"));
    headers.push("Reply-To", "answers");
    Message {
        headers,
        ..message(body)
    }
}

#[tokio::test]
async fn a_message_of_sqs_has_an_id_attributes_and_a_body() {
    let mut rig = rig("foreign-sqs");
    let report = rig.call(&with_headers("echo"), 1).await;
    assert_eq!(report.outcome, Outcome::Ack);
    let attribute = |name: &str, value: &str| {
        format!(
            "MessageAttribute {{ name: \"{name}\", data-type: None, \
             value: MessageAttributeValue::Str(\"{value}\") }}"
        )
    };
    let attributes = [
        attribute("x-tenant", "acme"),
        attribute("bytes", "a\u{fffd}b"),
        attribute("reply-to", "answers"),
    ];
    let expected = format!(
        "Message {{ id: Some(\"1-1\"), message-attributes: [{}], body: Some(\"echo\") }}",
        attributes.join(", ")
    );
    assert_eq!(rig.lines(), [expected]);
    let left = rig.run("leave").await.outcome;
    assert_eq!(left, Outcome::NackRequeue(None));
    assert_eq!(rig.lines(), [""; 0]);
}

#[tokio::test]
async fn a_message_of_wasmcloud_has_the_queue_as_subject_and_a_reply_to() {
    let mut rig = rig("foreign-wasmcloud");
    assert_eq!(said(&mut rig, "echo").await, ["orders None"]);
    rig.call(&with_headers("echo"), 1).await;
    assert_eq!(rig.lines(), ["orders Some(\"answers\")"]);
}

#[tokio::test]
async fn what_a_handler_of_wasmcloud_publishes_is_an_effect_of_its_ack() {
    let mut rig = rig("foreign-wasmcloud");
    let report = rig.run("publish:invoices:one+ask:invoices:answers").await;
    let effects = report.effects.expect("it acks");
    let published = effects.publications();
    assert_eq!(published.len(), 2);
    assert_eq!(&*published[0].to, "invoices");
    assert_eq!(&published[0].body[..], b"one");
    assert!(published[0].headers.is_empty());
    assert_eq!(published[1].headers.find_str("reply-to"), Some("answers"));
    assert_eq!(rig.lines(), ["Ok(())", "Ok(())"]);

    let report = rig.run("publish:invoices:one+err:no").await;
    assert_eq!((report.effects, report.discarded), (None, 1));
    rig.lines();

    let lines = said(&mut rig, "publish:other:x+ask:raw:to+publish:raw:x").await;
    assert_eq!(
        lines,
        [
            "Err(\"no destination has this name; granted: invoices, raw\")",
            "Err(\"messages to this destination are raw: they have no headers\")",
            "Ok(())",
        ]
    );
}

#[tokio::test]
async fn values_of_the_operator_reach_handlers_of_other_hosts() {
    let mut wasmcloud = rig("foreign-wasmcloud");
    let lines = said(&mut wasmcloud, "config:region+config:other").await;
    assert_eq!(lines, ["Ok(Some(\"eu\"))", "Ok(None)"]);
    let mut spin = rig("foreign-spin");
    let lines = said(&mut spin, "var:region+var:empty+var:other+var:apiKey").await;
    assert_eq!(
        lines,
        [
            "Ok(\"eu\")",
            "Ok(\"\")",
            "Err(Error::Undefined(\"other\"))",
            // A name that Spin does not allow, although the operator has given it a value.
            "Err(Error::InvalidName(\"apiKey\"))",
        ]
    );
}

#[tokio::test]
async fn a_handler_of_spin_writes_keys_with_its_ack() {
    let mut rig = rig("foreign-spin");
    let report = rig.run("set:a=1+get:a+has:a+delete:a+get:a+set:b=2").await;
    let effects = report.effects.expect("it acks");
    let keys: Vec<&str> = effects.written().map(|(key, _)| key).collect();
    assert_eq!(keys, ["{orders}:kv:a", "{orders}:kv:b"]);
    assert_eq!(
        rig.lines(),
        [
            "Ok(())",
            "Ok(Some(\"1\"))",
            "Ok(true)",
            "Ok(())",
            "Ok(None)",
            "Ok(())"
        ]
    );
    let large = format!("set:a={}", "x".repeat(101));
    let lines = said(&mut rig, &format!("open:default+open:other+{large}")).await;
    assert_eq!(lines[..2], ["Ok(())", "Err(Error::NoSuchStore)"]);
    assert!(lines[2].starts_with("Err(Error::Other("), "{}", lines[2]);
}

/// The refusal of these bytes.
fn refusal(bytes: &[u8]) -> String {
    let error = Sandbox::load_bytes(bytes, &settings()).expect_err("it is refused");
    error.to_string()
}

/// A component with these imports, whose function takes and returns nothing, exported by these items.
fn exporting(imports: &str, exports: &str) -> Vec<u8> {
    component(&format!(
        r#"(component {imports}
            (core module $m (func (export "f")))
            (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f")))
            (instance $handle (export "handle" (func $f)))
            (instance $handle-message (export "handle-message" (func $f)))
            {exports})"#
    ))
}

const SPIN: &str = r#"(export "fermyon:spin/inbound-redis" (instance $handle-message))"#;
const WASMCLOUD: &str =
    r#"(export "wasmcloud:messaging/handler@0.2.0" (instance $handle-message))"#;
const NATIVE: &str = r#"(export "hostler:handler/message-handler@1.0.0" (instance $handle))"#;
const SQS: &str = r#"(export "handle-queue-message" (func $f))"#;
const SQS_TYPES: &str = r#"(import "fermyon:spin-sqs/sqs-types@2.0.0" (instance))"#;

#[test]
fn a_component_for_two_worlds_is_refused_by_name() {
    let spin = "fermyon:spin/inbound-redis";
    let wasmcloud = "wasmcloud:messaging/handler@0.2.0";
    let native = "hostler:handler/message-handler@1.0.0";
    let sqs = "fermyon:spin-sqs@2.0.0";
    for (exports, names) in [
        ([SPIN, WASMCLOUD], [spin, wasmcloud]),
        ([NATIVE, SPIN], [native, spin]),
        ([WASMCLOUD, NATIVE], [wasmcloud, native]),
        ([SQS, NATIVE], [native, sqs]),
    ] {
        let said = refusal(&exporting(SQS_TYPES, &exports.concat()));
        let [first, second] = names;
        let message =
            format!("exports more than one handler: {first}, {second}; export exactly one");
        assert_eq!(said, message);
    }
}

#[test]
fn a_component_for_no_world_is_refused_with_what_would_be_one() {
    // Without the types of its package the function may be anybody's.
    let said = refusal(&exporting("", SQS));
    for part in [
        "exports no handler: found handle-queue-message, expected hostler:handler/message-handler@1",
        "fermyon:spin/inbound-redis, fermyon:spin-sqs@2 or wasmcloud:messaging/handler@0.2",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn another_version_or_type_of_a_world_is_refused() {
    for (name, expected) in [
        (
            "fermyon:spin/inbound-redis@2.0.0",
            "fermyon:spin/inbound-redis without a version",
        ),
        (
            "wasmcloud:messaging/handler@0.1.0",
            "wasmcloud:messaging/handler@0.2",
        ),
    ] {
        let export = format!("(export \"{name}\" (instance $handle-message))");
        let remedy = "rebuild it against that version, or use the host it was made for";
        assert_eq!(
            refusal(&exporting("", &export)),
            format!("exports {name}, expected {expected}; {remedy}")
        );
    }
    for (imports, export, function, host) in [
        (
            "",
            SPIN,
            "fermyon:spin/inbound-redis#handle-message",
            "Spin",
        ),
        (
            SQS_TYPES,
            SQS,
            "fermyon:spin-sqs@2.0.0#handle-queue-message",
            "Spin",
        ),
        (
            "",
            WASMCLOUD,
            "wasmcloud:messaging/handler@0.2.0#handle-message",
            "wasmCloud",
        ),
    ] {
        let said = refusal(&exporting(imports, export));
        let begin = format!("exports {function} with another type than this host's: ");
        let end = format!("; rebuild it against {host}'s WIT");
        assert!(said.starts_with(&begin) && said.ends_with(&end), "{said}");
    }
    let empty = r#"(instance $e) (export "wasmcloud:messaging/handler@0.2.0" (instance $e))"#;
    let said = refusal(&exporting("", empty));
    assert!(said.contains("the interface lacks the function"), "{said}");
}

#[test]
fn a_world_with_async_functions_is_refused_with_the_way_out() {
    for (imports, name, remedy) in [
        (
            "",
            "spin:redis/inbound-redis@3.0.0",
            "build it with spin-sdk 5",
        ),
        (
            "",
            "wasmcloud:messaging/handler@0.3.0",
            "build it against wasmcloud:messaging@0.2.0",
        ),
        (
            r#"(import "spin:sqs/sqs-types@3.0.0" (instance))"#,
            "spin:sqs/sqs-types@3.0.0",
            "build it against the WIT of fermyon:spin-sqs@2.0.0",
        ),
    ] {
        let export = match imports {
            "" => format!("(export \"{name}\" (instance $handle-message))"),
            _ => SQS.to_owned(),
        };
        let why = "this host calls a handler synchronously, and has no WASI 0.3";
        assert_eq!(
            refusal(&exporting(imports, &export)),
            format!("is for {name}, whose function is `async`: {why}; {remedy}")
        );
    }
    // A component inside another one may have any names.
    let inner = r#"(component (instance $i)
        (component (instance $n) (export "spin:redis/inbound-redis@3.0.0" (instance $n)))
        (export "other" (instance $i)))"#;
    let said = refusal(&component(inner));
    assert!(said.starts_with("exports no handler: "), "{said}");
}

#[test]
fn a_request_to_others_is_refused_by_name_and_publish_alone_is_not() {
    let imports = r#"(import "wasmcloud:messaging/consumer@0.2.0" (instance
        (export "publish" (func)) (export "request" (func))))"#;
    assert_eq!(
        refusal(&exporting(imports, WASMCLOUD)),
        "imports interfaces that it is not granted: wasmcloud:messaging/consumer@0.2.0#request (this host \
         does not have it); build it without the imports that this host does not have"
    );
    // The guest's WIT has `request`, but the guest does not use it.
    rig("foreign-wasmcloud");
}

#[test]
fn imports_of_other_hosts_need_their_grants() {
    let refused = |name: &str| {
        let error = Sandbox::load(&guest(name), &Settings::default());
        error.expect_err("it is refused").to_string()
    };
    let said = refused("foreign-spin");
    for part in [
        "fermyon:spin/variables@2.0.0 (needs the grant `config`)",
        "fermyon:spin/key-value@2.0.0 (needs the grant `key-value`)",
        "[grant.config]\nname = \"value\"",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let said = refused("foreign-wasmcloud");
    for part in [
        "wasmcloud:messaging/consumer@0.2.0 (needs the grant `publish`)",
        "wasi:config/store@0.2.0-draft (needs the grant `config`)",
        "[grant.publish]\nname = \"stream:key\"",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let redis = r#"(import "fermyon:spin/redis@2.0.0" (instance))"#;
    let said = refusal(&exporting(redis, SPIN));
    let part = "fermyon:spin/redis@2.0.0 (this host does not have it)";
    assert!(said.contains(part), "{said}");
}

#[test]
fn check_invoke_test_and_bench_take_a_foreign_handler() {
    let file = guest("foreign-sqs").display().to_string();
    let check = run(["check", &file]).ok();
    assert!(check.stdout.contains("fermyon:spin-sqs@2.0.0"), "{check:?}");
    assert!(!check.stdout.contains("unknown to this host"), "{check:?}");
    let invoke = run(["invoke", &file, "--body", "say:hello", "--json"]).ok();
    assert_eq!(invoke.json()["outcome"], "ack", "{invoke:?}");
    let dir = tempfile::tempdir().unwrap();
    let cases = dir.path().join("cases.toml");
    let table = "[[case]]\nname = \"left\"\nbody = \"leave\"\noutcome = \"nack-requeue\"\n";
    std::fs::write(&cases, table).unwrap();
    run(["test", &file, &cases.display().to_string()]).ok();
    let body = dir.path().join("body");
    std::fs::write(&body, "ack").unwrap();
    let bench = format!(
        "bench --in-process {file} --body-file {} --messages 50 --repeat 2 --json",
        body.display()
    );
    let bench = run(bench.split(' ')).ok();
    let interface = &bench.json()["interface"];
    assert_eq!(interface, "fermyon:spin-sqs@2.0.0", "{bench:?}");
}

#[test]
fn the_configurations_that_the_docs_show_are_accepted() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/do/move.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let blocks = docs.split("```toml\n").skip(1);
    let blocks: Vec<&str> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(blocks.len(), 1);
    let dir = tempfile::tempdir().unwrap();
    let handler = format!("handler = \"{}\"", guest("foreign-sqs").display());
    for block in blocks {
        // A block in a numbered step is indented.
        let lines = block.lines().map(str::trim_start).map(|line| match line {
            _ if line.starts_with("handler = ") => &handler,
            _ => line,
        });
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        let file = dir.path().join("hostler.toml");
        std::fs::write(&file, text).unwrap();
        run(["check", "--config", &file.display().to_string()]).ok();
    }
}

#[tokio::test]
async fn a_fault_quotes_the_last_line_of_a_foreign_handler() {
    let mut rig = rig("foreign-wasmcloud");
    let fault = fault(rig.run("what is this").await);
    let part = "no action `what is this`";
    assert!(fault.detail.contains(part), "{fault}");
}
