//! `hostler policy set|get|unset`.

use serde_json::json;

use crate::runtime::e2e_scene::Scene;

#[tokio::test]
async fn a_wrong_policy_is_refused_when_it_is_set() {
    let scene = Scene::new().await;
    scene.raw.ask("XADD orders * _payload x").await;
    scene.raw.ask("RPUSH letters x").await;
    for (settings, part) in [
        (&["max_deliveries=0"][..], "max_deliveries"),
        (&["max_deliveries"], "not a setting with a value"),
        (&["max_delivery=5"], "unknown setting `max_delivery`"),
        (&["memory=1MiB"], "cannot be set by a policy"),
        (&["redis=redis://:hunter2@db"], "cannot be set by a policy"),
        (&["queue.ttl=5"], "no unit"),
        (
            &["backoff.first=10s", "backoff.max=1s"],
            "is more than `backoff.max`",
        ),
        (&["dead_letter.key=orders"], "the queue itself"),
        (
            &["dead_letter.key=letters"],
            "holds a list, and the queue is a stream",
        ),
        (
            &["dead_letter.key=d", "dead_letter.routes=trap=letters"],
            "holds a list",
        ),
        (&["dead_letter.routes=nonsense=x"], "nonsense"),
        (&["on_cap=discard", "on_cap=dead-letter"], "given twice"),
    ] {
        let ended = scene.policy("set", &[&["--queue", "orders"], settings].concat());
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stderr.contains(part), "{part}: {ended:?}");
        assert!(!ended.stderr.contains("hunter2"), "{ended:?}");
        for key in ["{orders}:policy", "hostler:policies"] {
            assert!(!scene.exists(key).await, "{key}");
        }
    }
    // Wrong only together with a rule that is set already.
    scene.set(&["backoff.max=5s"]);
    let ended = scene.policy("set", &["--queue", "orders", "backoff.first=6s"]);
    assert_eq!(ended.code, 64, "{ended:?}");
    let nobody = scene.policy("set", &["max_deliveries=5"]);
    assert_eq!(nobody.code, 64);
    assert!(nobody.stderr.contains("--queue"), "{nobody:?}");
    // Valid, but perhaps incomplete.
    let hinted = scene
        .policy("set", &["--queue", "orders", "max_deliveries=5"])
        .ok();
    assert!(hinted.stderr.starts_with("warning: "), "{hinted:?}");
}

#[tokio::test]
async fn policy_get_shows_overridden_rules_and_unset_removes_rules() {
    let scene = Scene::new().await;
    let none = scene.policy("get", &[]).ok();
    let by_pattern = "no policy is set by pattern; `--queue KEY` shows those of one queue\n";
    assert_eq!(none.stdout, by_pattern);
    // A policy for a queue is not one by pattern, and the text does not deny it.
    scene.set(&["max_deliveries=3"]);
    assert_eq!(scene.policy("get", &[]).ok().stdout, by_pattern);
    let other = scene.policy("get", &["--queue", "other"]).ok();
    assert_eq!(other.stdout, "no policy is set for `other`\n");
    let pattern = ["--match", "orders*"];
    let rules = ["max_deliveries=7", "on_cap=discard"];
    scene.policy("set", &[&pattern[..], &rules].concat()).ok();
    scene.set(&["max_deliveries=3"]);
    let shown = scene.policy("get", &["--queue", "orders"]).ok().stdout;
    let lines: Vec<Vec<&str>> = (shown.lines())
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [
            &["setting", "value", "for"][..],
            &["max_deliveries", "3", "orders"],
            &["max_deliveries", "7", "orders*", "overridden"],
            &["on_cap", "discard", "orders*"],
        ]
    );
    // A wrong rule, which another program has written.
    let wrong = "HSET {orders}:policy max_deliveries many";
    scene.raw.ask(wrong).await;
    let json = scene.policy("get", &["--queue", "orders", "--json"]);
    let own = &json.ok().json()[0];
    for (name, value) in [
        ("value", json!("many")),
        ("for", json!("orders")),
        ("counts", json!(true)),
    ] {
        assert_eq!(own[name], value, "{name}");
    }
    assert!(own["problem"].as_str().unwrap().contains("many"), "{own}");

    let unset = || scene.policy("unset", &["--queue", "orders", "max_deliveries"]);
    let left = unset().ok();
    assert!(!left.stdout.contains("overridden"), "{left:?}");
    let nothing = unset().ok();
    let note = "none of these settings was set";
    assert!(nothing.stderr.contains(note), "{nothing:?}");
    let all = scene.policy("unset", &[&pattern[..], &["--all"]].concat());
    assert_eq!(all.ok().stdout, "no policy is set by `orders*`\n");
    for key in ["{orders}:policy", "hostler:policies"] {
        assert!(!scene.exists(key).await, "{key}");
    }
}
