//! `hostler watch` without a terminal: one line per update.

use hostler_tests::command::run;
use hostler_tests::redis::eventually;
use serde_json::{Value, json};

use crate::runtime::e2e_scene::Scene;

fn updates(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[tokio::test]
async fn lines_show_waiting_running_and_dead_messages() {
    let mut scene = Scene::new().await;
    let options = scene.host().cap(1).admin().flag("concurrency", "2");
    let host = options.ready().await;
    for body in ["drop", "drop", "trap", "ack"] {
        scene.publish(body).await;
    }
    scene.emptied().await;
    let slow = scene.publish("sleep:3000+sleep:1000").await;
    eventually("the slow one runs", async || {
        host.witness().starts(&slow) > 0
    })
    .await;
    let address = host
        .log()
        .iter()
        .find_map(|line| line.text("address").map(str::to_owned))
        .unwrap();
    let url = scene.server.url();
    let queue = [
        "--stream=orders",
        "--group=workers",
        "--dead-letter=orders:dead",
    ];
    let watch = [&["watch", "--redis", &url, "--every=100ms"], &queue[..]].concat();

    let words = [&watch[..], &["--json", "--count", "2", "--admin", &address]].concat();
    let updates = updates(&run(words).ok().stdout);
    assert_eq!(updates.len(), 2);
    let last = &updates[1];
    assert_eq!(last["key"], "orders");
    assert_eq!(last["lag"], 0);
    assert_eq!(last["dead_letters"], 3);
    let reasons = json!({"dropped": 2, "max-deliveries": 1});
    assert_eq!(last["dead_by_reason"], reasons);
    assert!(last["added_per_second"].as_f64().is_some(), "{last}");
    assert!(last["done_per_second"].as_f64().is_some(), "{last}");
    let report = &last["hosts"][0];
    assert!(report["handler"].as_str().unwrap().starts_with("sha256:"));
    assert!(report["attempts"].as_u64().unwrap() >= 4, "{report}");
    assert_eq!(report["error"], Value::Null);
    assert_eq!(last["faults"].as_array().unwrap().len(), 1);
    assert_eq!(last["faults"][0]["kind"], "trap");
    assert!(last["in_flight"].as_u64().is_some());

    // A host that does not answer does not affect the rest.
    let words = [&watch[..], &["--count", "1", "--admin", "127.0.0.1:1"]].concat();
    let text = run(words).ok().stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in [
        "  orders  unread 0  ",
        "  dead 3 (dropped 2, max-deliveries 1)",
        "1 host does not answer",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn watch_works_on_a_list_and_refuses_a_missing_queue() {
    let scene = Scene::new().await;
    scene.raw.ask("RPUSH jobs a b c").await;
    let url = scene.server.url();
    let watch = ["watch", "--redis", &url, "--count=1", "--json"];
    let list = [&watch[..], &["--list=jobs", "--reliable"]].concat();
    let updates = updates(&run(&list).ok().stdout);
    assert_eq!(updates[0]["lag"], 3);
    let missing = run(watch.iter().chain(&["--stream=none", "--group=g"]));
    assert_eq!(missing.code, 64, "{missing:?}");
    let often = run(list.iter().chain(&["--every", "1ms"]));
    assert_eq!(often.code, 64, "{often:?}");
}
