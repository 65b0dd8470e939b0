//! The example that charges orders by HTTP and publishes invoices, as its folder has it, while hosts are
//! killed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hostler_tests::checker::DeadLetter;
use hostler_tests::command::{end, hostler};
use hostler_tests::guests::guest;
use hostler_tests::redis::eventually;
use payments::{Call, Done};
use serde_json::Value as Json;

use crate::runtime::e2e_scene::Scene;

/// What the server wants to hear.
const CREDENTIAL: &str = "s3cr3t-of-the-payments";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-examples/rust-charge")
}

/// The cards of ten orders in a row: most are good.
const CARDS: [&str; 10] = [
    "good",
    "busy",
    "good",
    "lost-answer",
    "good",
    "declined",
    "good",
    "good",
    "cancelled",
    "good",
];

/// What a card ends with.
fn is_charged(card: &str) -> bool {
    ["good", "busy", "lost-answer"].contains(&card)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_acked_order_has_one_charge_and_one_invoice_whichever_host_dies() {
    const ORDERS: usize = 240;
    const KILLS: usize = 4;
    let mut scene = Scene::new().await;
    // The server charges at once, and answers later: hosts die between a charge and its ack.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let calls = Arc::<Mutex<Vec<Call>>>::default();
    let book = Arc::clone(&calls);
    // So many calls are answered, and those behind them wait.
    let answered = Arc::<AtomicUsize>::default();
    let gate = Arc::clone(&answered);
    payments::serve(listener, CREDENTIAL, move |call| {
        let number = {
            let mut book = book.lock().unwrap();
            book.push(call.clone());
            book.len()
        };
        while number > gate.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
    });

    let mut orders = BTreeMap::new();
    for number in 0..ORDERS {
        let card = match number {
            17 => "bank-down",
            _ => CARDS[number % CARDS.len()],
        };
        let order = format!("o-{number}");
        let status = if card == "cancelled" { card } else { "paid" };
        let body = format!(
            r#"{{"id":"{order}","amount":9.5,"currency":"EUR","card":"{card}","status":"{status}"}}"#
        );
        orders.insert(order, (card, scene.publish(&body).await));
    }

    let text = std::fs::read_to_string(folder().join("hostler.toml")).unwrap();
    assert!(text.contains("port = 8089"));
    let config = scene.server.dir().join("hostler.toml");
    std::fs::write(&config, text.replace("8089", &port)).unwrap();
    let options = scene
        .host()
        .flag("config", &config.display().to_string())
        .flag(
            "handler",
            &guest("orders-charge-handler").display().to_string(),
        )
        .flags("max-deliveries=8 backoff-first=5ms min-idle=1s concurrency=8 timeout=1m")
        .variable("PAYMENTS_KEY", CREDENTIAL);
    let mut hosts = VecDeque::new();
    for _ in 0..3 {
        hosts.push_back(options.ready().await);
    }
    for kill in 1..=KILLS {
        let before = kill * ORDERS / (KILLS + 2);
        answered.store(before, Ordering::SeqCst);
        // More than two hosts have slots: so each waits for an answer.
        eventually("the host that dies waits for answers", async || {
            calls.lock().unwrap().len() > before + 2 * 8
        })
        .await;
        hosts.pop_front().unwrap().kill().await;
        hosts.push_back(options.ready().await);
    }
    answered.store(usize::MAX, Ordering::SeqCst);
    for host in hosts {
        host.kill().await;
    }
    options.finish().await;

    // No order is charged twice, and only those that can be. All calls for an order have one key.
    let calls = calls.lock().unwrap().clone();
    let done = |what: Done| {
        let those = calls.iter().filter(move |call| call.done == what);
        those.map(|call| call.order.clone()).collect::<Vec<_>>()
    };
    let mut charged = done(Done::Charged);
    charged.sort();
    let wanted = orders.iter().filter(|(_, (card, _))| is_charged(card));
    let wanted: BTreeSet<String> = wanted.map(|(order, _)| order.clone()).collect();
    assert_eq!(charged, Vec::from_iter(wanted.clone()));
    for call in &calls {
        let (_, id) = &orders[&call.order];
        assert_eq!(call.key, format!("orders/workers/{id}#1"));
    }
    // Each lost answer, and each host that died between charge and ack.
    let lost = orders.values().filter(|(card, _)| *card == "lost-answer");
    assert!(done(Done::Repeated).len() > lost.count());

    // Each of them has one invoice, from the message of its order.
    let mut invoices = BTreeMap::new();
    for invoice in DeadLetter::all(&scene.raw, "invoices").await {
        let body: Json = serde_json::from_slice(invoice.field(b"_payload").unwrap()).unwrap();
        let order = body["order"].as_str().unwrap().to_owned();
        assert_eq!(invoice.header("x-correlation-id"), Some(&*orders[&order].1));
        assert!(body["charge"].as_str().unwrap().starts_with("ch_"));
        assert!(invoices.insert(order, ()).is_none(), "{body}");
    }
    assert_eq!(invoices.into_keys().collect::<BTreeSet<_>>(), wanted);

    // The others are dead letters, and nothing is left.
    let look = scene.look().await;
    assert!(look.is_empty());
    for (card, id) in orders.values().filter(|(card, _)| !is_charged(card)) {
        let dead = look.dead_letters_of(id);
        let reason = match *card {
            "bank-down" => "max-deliveries",
            _ => "dropped",
        };
        assert_eq!((dead.len(), dead[0].reason()), (1, reason), "{card}");
    }
    let dead = DeadLetter::all(&scene.raw, "orders:dead").await;
    assert_eq!(dead.len() + wanted.len(), ORDERS);
}

#[test]
fn its_cases_pass() {
    let folder = folder();
    let mut testing = hostler(["test", "--config", "hostler.toml", "--json"]);
    testing
        .arg(guest("orders-charge-handler"))
        .arg("cases.toml")
        .current_dir(folder)
        .env("PAYMENTS_KEY", CREDENTIAL);
    let tested = end(&mut testing).ok();
    let last: Json = serde_json::from_str(tested.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["failed"], 0, "{tested:?}");
}
