//! `hostler dlq replay --handler`: another handler is tried on the dead letters before any of them
//! moves. On streams and on reliable lists.

use hostler::delivery::policy::Reason;
use hostler_tests::guests::guest;
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};

on_both! {
    a_trial_shows_verdicts_and_changes_nothing
    with_only_acked_only_acknowledged_messages_are_replayed
    unclear_commands_are_refused
    the_handler_sees_the_message_that_a_replay_would_bring
}

fn handler() -> String {
    guest("scripted").display().to_string()
}

/// Each line of JSON.
fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

async fn a_trial_shows_verdicts_and_changes_nothing(kind: Kind) {
    let scene = Scene::new(kind).await;
    let long = "x".repeat(2000);
    let mut ids = Vec::new();
    for (body, reason, headers) in [
        ("ack", Reason::Timeout, &[][..]),
        ("nack:50", Reason::MaxDeliveries, &[]),
        ("drop:no such customer", Reason::Timeout, &[]),
        ("trap", Reason::MaxDeliveries, &[]),
        // Its attempts are reset, as they are in a replayed copy.
        ("ack,trap", Reason::MaxDeliveries, &[("x-retry-count", "1")]),
        // Over the limits that are given.
        ("grow:100", Reason::MemoryLimit, &[]),
        ("loop", Reason::Timeout, &[]),
        (&*long, Reason::Oversize, &[]),
        ("ack", Reason::Oversize, &[]),
    ] {
        ids.push(scene.letter_of(body, reason, headers, 0).await);
    }
    let before = scene.dump().await;
    assert_eq!(before.len(), 1);
    let handler = handler();
    let tried = |more: &[&str]| {
        // On a busy machine one second of a core takes long.
        let limits = "--memory 16MiB --cpu 1s --timeout 110s --max-payload 1000B";
        let mut words = vec!["--handler", &handler, "--dry-run"];
        words.extend(limits.split(' ').chain(more.iter().copied()));
        scene.dlq("replay", &words).ok().stdout
    };

    let json = lines(&tried(&["--json"]));
    let (last, each) = json.split_last().unwrap();
    let expected = [
        ("timeout", "ack", Value::Null),
        ("max-deliveries", "nack-requeue", Value::Null),
        ("timeout", "drop", Value::Null),
        ("max-deliveries", "fault", json!("trap")),
        ("max-deliveries", "ack", Value::Null),
        ("memory-limit", "fault", json!("memory-limit")),
        ("timeout", "fault", json!("cpu-timeout")),
        ("oversize", "oversize", Value::Null),
        ("oversize", "ack", Value::Null),
    ];
    assert_eq!(each.len(), expected.len());
    for ((line, id), (reason, verdict, fault)) in each.iter().zip(&ids).zip(expected) {
        assert_eq!(line["id"], **id);
        assert_eq!(line["reason"], reason, "{line}");
        assert_eq!(line["verdict"], verdict, "{line}");
        assert_eq!(line["fault"], fault, "{line}");
    }
    assert_eq!(each[2]["detail"], "no such customer");
    assert_eq!(last["tried"], 9);
    assert!(last["handler"].as_str().unwrap().starts_with("sha256:"));
    assert_eq!(
        last["verdicts"],
        json!({
            "max-deliveries": {"ack": 1, "fault (trap)": 1, "nack-requeue": 1},
            "memory-limit": {"fault (memory-limit)": 1},
            "oversize": {"ack": 1, "oversize": 1},
            "timeout": {"ack": 1, "drop": 1, "fault (cpu-timeout)": 1},
        })
    );
    assert_eq!(last["replay"], Value::Null);

    let text = tried(&["--limit", "3"]);
    let (each, table) = text.split_once("\n\n").unwrap();
    let each: Vec<&str> = each.lines().collect();
    assert_eq!(each[0], format!("{}  timeout -> ack", ids[0]));
    assert_eq!(
        each[2],
        format!("{}  timeout -> drop  no such customer", ids[2])
    );
    assert!(each[3].starts_with("tried 3 with sha256:"), "{text}");
    assert_eq!(
        table,
        "died for        now           count\n\
         max-deliveries  nack-requeue  1\n\
         timeout         ack           1\n\
         timeout         drop          1\n"
    );
    assert_eq!(scene.dump().await, before);
}

async fn with_only_acked_only_acknowledged_messages_are_replayed(kind: Kind) {
    let scene = Scene::new(kind).await;
    let (key, dead) = (scene.key(), scene.dead_key());
    for (body, reason) in [
        ("ack", Reason::Timeout),
        ("trap", Reason::Timeout),
        ("text:two", Reason::Trap),
        ("drop", Reason::Trap),
        ("ack+three", Reason::Malformed),
    ] {
        scene.letter(body, reason).await;
    }
    let handler = handler();
    let only = |more: &[&str]| {
        let mut words = vec!["--handler", &handler, "--only-acked"];
        words.extend(more);
        scene.dlq("replay", &words).ok().stdout
    };
    let before = scene.dump().await;
    let planned = lines(&only(&["--dry-run", "--json"]));
    let expected = json!({"replayed": 3, "targets": {key: 3}, "skipped": {},
                          "refusal": null, "dry_run": true});
    assert_eq!(planned.last().unwrap()["replay"], expected);
    assert_eq!(scene.dump().await, before);

    let text = only(&["--limit", "1"]);
    let end = format!("\n\nreplayed 1\n\nto {key}  1\n");
    assert!(text.ends_with(&end), "{text}");
    assert_eq!(scene.bodies(key).await, ["ack"]);
    only(&[]);
    assert_eq!(scene.bodies(key).await, ["ack", "text:two", "ack+three"]);
    assert_eq!(scene.bodies(dead).await, ["trap", "drop"]);
}

async fn unclear_commands_are_refused(kind: Kind) {
    let scene = Scene::new(kind).await;
    let handler = handler();
    let unclear = scene.dlq("replay", &["--handler", &handler]);
    assert_eq!(unclear.code, 64);
    assert!(unclear.stderr.contains("`--only-acked`"), "{unclear:?}");
    let alone = scene.dlq("replay", &["--only-acked"]);
    assert_eq!(alone.code, 64);
    assert!(alone.stderr.contains("--handler"), "{alone:?}");
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.wasm");
    std::fs::write(&broken, b"no component").unwrap();
    let broken = broken.display().to_string();
    let refused = scene.dlq("replay", &["--handler", &broken, "--dry-run"]);
    assert_eq!(refused.code, 65, "{refused:?}");
}

async fn the_handler_sees_the_message_that_a_replay_would_bring(kind: Kind) {
    let scene = Scene::new(kind).await;
    let headers = [("X-Tenant", "Acme"), ("x-message-id", "m1")];
    scene.letter_of("echo", Reason::Trap, &headers, 0).await;
    let handler = handler();
    let tried = |more: &[&str]| {
        let words = ["--handler", &handler, "--dry-run", "--json"];
        let tried = scene.dlq("replay", &[&words[..], more].concat());
        lines(&tried.ok().stdout)
    };
    let verdicts = tried(&["--max-deliveries", "7"]);
    let seen = verdicts[0]["detail"].as_str().unwrap();
    let begin = format!("id=m1 queue={} attempt=1 max=7 ", scene.key());
    assert!(seen.starts_with(&begin), "{seen}");
    assert!(
        seen.contains("x-tenant=Acme") && seen.contains("x-replayed=1"),
        "{seen}"
    );
    // A list's values are read as they are, however streams are read.
    let verdicts = tried(&["--body-field", "data", "--missing-body", "malformed"]);
    let expected = match kind {
        Kind::Stream => "malformed",
        Kind::List => "drop",
    };
    assert_eq!(verdicts[0]["verdict"], expected);
}
