//! `hostler watch` where no terminal is: a line for each look.

use hostler_tests::command::run;
use hostler_tests::redis::eventually;
use serde_json::Value;

use crate::e2e_scene::Scene;

fn looks(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

#[tokio::test]
async fn lines_tell_what_waits_what_runs_and_what_died() {
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
    let watch = [
        "watch",
        "--redis",
        &url,
        "--stream",
        "orders",
        "--group",
        "workers",
        "--dead-letter",
        "orders:dead",
        "--every",
        "100ms",
    ];

    let words = [&watch[..], &["--json", "--count", "2", "--admin", &address]].concat();
    let looks = looks(&run(words).ok().stdout);
    assert_eq!(looks.len(), 2);
    let last = &looks[1];
    assert_eq!(last["key"], "orders");
    assert_eq!(last["lag"], 0);
    assert_eq!(last["dead_letters"], 3);
    assert_eq!(last["dead_by_reason"]["dropped"], 2);
    assert_eq!(last["dead_by_reason"]["max-deliveries"], 1);
    assert!(last["added_per_second"].as_f64().is_some(), "{last}");
    assert!(last["done_per_second"].as_f64().is_some(), "{last}");
    let told = &last["hosts"][0];
    assert!(told["handler"].as_str().unwrap().starts_with("sha256:"));
    assert!(told["attempts"].as_u64().unwrap() >= 4, "{told}");
    assert_eq!(told["error"], Value::Null);
    assert_eq!(last["faults"].as_array().unwrap().len(), 1);
    assert_eq!(last["faults"][0]["kind"], "trap");
    assert!(last["in_flight"].as_u64().is_some());

    // A host that does not answer takes nothing from the rest.
    let words = [&watch[..], &["--count", "1", "--admin", "127.0.0.1:1"]].concat();
    let text = run(words).ok().stdout;
    assert_eq!(text.lines().count(), 1, "{text}");
    for part in [
        "  orders  unread 0  ",
        "  dead 3 (dropped 2, max-deliveries 1)",
        "1 hosts do not answer",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_list_is_watched_and_a_queue_that_is_not_there_is_told() {
    let scene = Scene::new().await;
    scene.raw.ask("RPUSH jobs a b c").await;
    let url = scene.server.url();
    let list = [
        "watch",
        "--redis",
        &url,
        "--list",
        "jobs",
        "--reliable",
        "--json",
        "--count",
        "1",
    ];
    let looks = looks(&run(list).ok().stdout);
    assert_eq!(looks[0]["lag"], 3);
    let nothing = [
        "watch", "--redis", &url, "--stream", "none", "--group", "g", "--count", "1",
    ];
    let ended = run(nothing);
    assert_eq!(ended.code, 64, "{ended:?}");
    let often = run(list.iter().chain(&["--every", "1ms"]));
    assert_eq!(often.code, 64, "{often:?}");
}
