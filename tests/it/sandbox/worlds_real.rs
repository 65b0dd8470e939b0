//! Handlers that the libraries of other hosts have built, unchanged, on a queue.

use std::collections::BTreeMap;

use hostler_tests::checker::Look;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, HostOptions, Line};

use crate::outgoing::effects_publish::bodies;
use crate::scene;

type Scene = scene::Scene<()>;

const KEYS: &str = "{orders}:kv:";

/// A handler reads a key and writes it with its ack: until then others may read the old value.
const CHECKED: &str = r#"{"prefix":"{orders}:kv:","commit":"checked"}"#;

fn host(scene: &Scene, name: &str) -> HostOptions {
    HostOptions::new(&scene.server)
        .flag("handler", &guest(name).display().to_string())
        .flags("dead-letter=orders:dead max-deliveries=3 backoff-first=5ms")
}

/// What the handler writes, without repeats.
fn lines(ended: &Ended) -> Vec<(String, String)> {
    let guests = ended.log.iter();
    let guests = guests.filter(|line| line.text("target") == Some("guest"));
    let line = |line: &Line| {
        let text = |name| line.text(name).unwrap_or_default().to_owned();
        (text("level"), text("line"))
    };
    let mut lines: Vec<_> = guests.map(line).collect();
    lines.dedup();
    lines
}

#[tokio::test(flavor = "multi_thread")]
async fn the_template_of_spin_prints_what_is_text() {
    let scene = Scene::new().await;
    scene.raw.add("orders", "hello").await;
    let ended = host(&scene, "spin-print").finish().await;
    assert_eq!(ended.json()["acked"], 1);
    assert_eq!(lines(&ended), [("INFO".to_owned(), "hello".to_owned())]);

    let binary: [&[u8]; 5] = [b"XADD", b"orders", b"*", b"_payload", b"\xff"];
    scene.raw.ask_words(&binary).await;
    let ended = host(&scene, "spin-print").finish().await;
    let look = Look::at(&scene.raw).await;
    assert_eq!(look.dead.len(), 1);
    assert_eq!(look.dead[0].reason(), "max-deliveries");
    let (_, line) = &lines(&ended)[0];
    assert!(line.starts_with("invalid utf-8 sequence"), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_async_handler_of_spin_keeps_totals_with_its_variables_and_keys() {
    let scene = Scene::new().await;
    for body in ["ann 10", "bob 5", "ann 7", "ann 1000", "no order"] {
        scene.raw.add("orders", body).await;
    }
    let ended = host(&scene, "spin-totals")
        .flag("grant-config", r#"{"max_amount":"100"}"#)
        .flag("grant-key-value", CHECKED)
        .finish()
        .await;
    assert_eq!(ended.json()["acked"], 3);
    assert_eq!(scene.raw.text(&format!("GET {KEYS}ann")).await, "17");
    assert_eq!(scene.raw.text(&format!("GET {KEYS}bob")).await, "5");
    assert_eq!(Look::at(&scene.raw).await.dead.len(), 2);
    let said = lines(&ended);
    let refused = "ann orders 1000, the most is 100";
    assert!(said.iter().any(|(_, line)| line == refused), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_example_of_wasmcloud_answers_to_the_reply_to() {
    let scene = Scene::new().await;
    let with_reply_to = "XADD orders * _payload hello h:reply-to answers";
    scene.raw.ask(with_reply_to).await;
    scene.raw.add("orders", "nobody waits").await;
    scene
        .raw
        .ask(&with_reply_to.replace("answers", "elsewhere"))
        .await;
    let ended = host(&scene, "wasmcloud-echo")
        .flag("grant-publish", r#"{"answers":"stream:answers"}"#)
        .finish()
        .await;
    assert_eq!(bodies(&scene, "answers").await, ["hello"]);
    assert_eq!(ended.json()["acked"], 2);
    assert_eq!(Look::at(&scene.raw).await.dead.len(), 1);
    let said = lines(&ended);
    for (level, line) in [
        ("INFO", "message on orders"),
        ("WARN", "no reply-to: nothing is sent"),
        (
            "WARN",
            "the handler failed: no destination has this name; granted: answers",
        ),
    ] {
        let is_it = |said: &(String, String)| said.0 == level && said.1.ends_with(line);
        assert!(said.iter().any(is_it), "{line}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_of_wasmcloud_are_counted_and_invoiced_once_while_hosts_die() {
    const MESSAGES: usize = 90;
    let scene = Scene::new().await;
    let options = host(&scene, "wasmcloud-orders")
        .flag("grant-config", r#"{"invoices":"invoices"}"#)
        .flag("grant-publish", r#"{"invoices":"stream:invoices"}"#)
        .flag("grant-key-value", CHECKED)
        .flags("concurrency=4 min-idle=500ms max-deliveries=30");
    for number in 0..MESSAGES {
        scene.raw.add("orders", &format!("ann {number}")).await;
    }
    for kill in 1..=3 {
        let host = options.ready().await;
        host.logs_times("", 10 * kill).await;
        host.kill().await;
    }
    options.finish().await;
    let count = scene.raw.text(&format!("GET {KEYS}ann")).await;
    assert_eq!(count, MESSAGES.to_string());
    let mut invoices = BTreeMap::<String, usize>::new();
    for invoice in bodies(&scene, "invoices").await {
        let (number, amount) = invoice.split_once(": ").unwrap();
        *invoices.entry(number.to_owned()).or_default() += 1;
        *invoices.entry(amount.to_owned()).or_default() += 1;
    }
    assert_eq!(invoices.len(), 2 * MESSAGES);
    assert!(invoices.values().all(|times| *times == 1), "{invoices:?}");
    assert!(!scene.exists("orders:dead").await);
}
