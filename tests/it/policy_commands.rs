//! `hostler policy set|get|unset`, and what `inspect` says of rules.

use serde_json::json;

use crate::e2e_scene::Scene;

#[tokio::test]
async fn what_is_wrong_is_refused_where_it_is_set() {
    let scene = Scene::new().await;
    scene.raw.ask("XADD orders * _payload x").await;
    scene.raw.ask("RPUSH letters x").await;
    for (settings, part) in [
        (&["max_deliveries=0"][..], "max_deliveries"),
        (&["max_deliveries"], "no setting with a value"),
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
        assert_eq!(
            scene
                .raw
                .number("EXISTS {orders}:policy hostler:policies")
                .await,
            0
        );
    }
    // Wrong only together with what is there already.
    scene.set(&["backoff.max=5s"]);
    let ended = scene.policy("set", &["--queue", "orders", "backoff.first=6s"]);
    assert_eq!(ended.code, 64, "{ended:?}");
    let nobody = scene.policy("set", &["max_deliveries=5"]);
    assert_eq!(nobody.code, 64);
    assert!(nobody.stderr.contains("--queue"), "{nobody:?}");
    // Right, but perhaps not enough.
    let hinted = scene
        .policy("set", &["--queue", "orders", "max_deliveries=5"])
        .ok();
    assert!(hinted.stderr.starts_with("warning: "), "{hinted:?}");
}

#[tokio::test]
async fn rules_are_shown_overruled_and_taken_back() {
    let scene = Scene::new().await;
    let none = scene.policy("get", &[]).ok();
    assert_eq!(none.stdout, "no policy is set\n");
    let pattern = ["--match", "orders*"];
    scene
        .policy(
            "set",
            &[&pattern[..], &["max_deliveries=7", "on_cap=discard"]].concat(),
        )
        .ok();
    scene.set(&["max_deliveries=3"]);
    let shown = scene.policy("get", &["--queue", "orders"]).ok().stdout;
    let lines: Vec<Vec<&str>> = shown
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(
        lines,
        [
            &["setting", "value", "for"][..],
            &["max_deliveries", "3", "orders"],
            &["max_deliveries", "7", "orders*", "overruled"],
            &["on_cap", "discard", "orders*"],
        ]
    );
    // Nobody's rule, that only somebody else can have written.
    scene
        .raw
        .ask("HSET {orders}:policy max_deliveries many")
        .await;
    let json = scene
        .policy("get", &["--queue", "orders", "--json"])
        .ok()
        .json();
    let own = &json.as_array().unwrap()[0];
    assert_eq!(
        (&own["value"], &own["for"], &own["counts"]),
        (&json!("many"), &json!("orders"), &json!(true))
    );
    assert!(own["problem"].as_str().unwrap().contains("many"), "{own}");

    let left = scene
        .policy("unset", &["--queue", "orders", "max_deliveries"])
        .ok();
    assert!(!left.stdout.contains("overruled"), "{left:?}");
    let nothing = scene
        .policy("unset", &["--queue", "orders", "max_deliveries"])
        .ok();
    assert!(
        nothing.stderr.contains("nothing of that was set"),
        "{nothing:?}"
    );
    let all = scene
        .policy("unset", &[&pattern[..], &["--all"]].concat())
        .ok();
    assert_eq!(all.stdout, "no policy is set\n");
    assert_eq!(
        scene
            .raw
            .number("EXISTS hostler:policies {orders}:policy")
            .await,
        0
    );
}
