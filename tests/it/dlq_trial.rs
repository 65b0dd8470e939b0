//! `hostler dlq replay --handler`: what another handler makes of the dead letters, before any of
//! them moves.

use harness::guests::guest;
use hostler_tests as harness;
use serde_json::{Value, json};

use crate::dlq_commands::{DEAD, Scene};

fn handler() -> String {
    guest("scripted").display().to_string()
}

/// Each line of JSON.
fn lines(text: &str) -> Vec<Value> {
    let lines = text.lines();
    lines.map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The bodies of a stream, in order.
fn bodies(scene: &Scene, key: &str) -> Vec<String> {
    let body = |fields: &Vec<Vec<u8>>| String::from_utf8(fields[1].clone()).unwrap();
    scene.entries(key).iter().map(body).collect()
}

#[test]
fn verdicts_are_told_and_nothing_changes() {
    let scene = Scene::new();
    let ids = [
        scene.letter(b"ack", "timeout", &[]),
        scene.letter(b"nack:50", "max-deliveries", &[]),
        scene.letter(b"drop:no such customer", "timeout", &[]),
        scene.letter(b"trap", "max-deliveries", &[]),
        // Its attempts are reset, as they are in a replayed copy.
        scene.letter(b"ack,trap", "max-deliveries", &[(b"h:x-retry-count", b"1")]),
        // Over the limits that are given.
        scene.letter(b"grow:100", "memory-limit", &[]),
        scene.letter(b"loop", "timeout", &[]),
        scene.letter(&[b'x'; 2000], "oversize", &[]),
        scene.letter(b"ack", "oversize", &[]),
    ];
    let before = scene.dump();
    assert_eq!(before.len(), 1);
    let handler = handler();
    let tried = |more: &[&str]| {
        let limits = ["--memory", "16MiB", "--cpu", "1s", "--max-payload", "1000B"];
        let mut words = vec!["--handler", &handler, "--dry-run"];
        words.extend(limits.iter().chain(more));
        scene.run("replay", &words).ok().stdout
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
    assert_eq!(scene.dump(), before);
}

#[test]
fn only_what_it_acks_is_replayed() {
    let scene = Scene::new();
    for (body, reason) in [
        ("ack", "timeout"),
        ("trap", "timeout"),
        ("text:two", "trap"),
        ("drop", "trap"),
        ("ack+three", "malformed"),
    ] {
        scene.letter(body.as_bytes(), reason, &[]);
    }
    let handler = handler();
    let only = |more: &[&str]| {
        let mut words = vec!["--handler", &handler, "--only-acked"];
        words.extend(more);
        scene.run("replay", &words).ok().stdout
    };
    let before = scene.dump();
    let planned = lines(&only(&["--dry-run", "--json"]));
    let expected = json!({"replayed": 3, "targets": {"orders": 3}, "skipped": {},
                          "refusal": null, "dry_run": true});
    assert_eq!(planned.last().unwrap()["replay"], expected);
    assert_eq!(scene.dump(), before);

    let text = only(&["--limit", "1"]);
    let end = "\n\nreplayed 1\n\nto orders  1\n";
    assert!(text.ends_with(end), "{text}");
    assert_eq!(bodies(&scene, "orders"), ["ack"]);
    only(&[]);
    assert_eq!(bodies(&scene, "orders"), ["ack", "text:two", "ack+three"]);
    assert_eq!(bodies(&scene, DEAD), ["trap", "drop"]);
}

#[test]
fn what_is_asked_for_must_be_clear() {
    let scene = Scene::new();
    let handler = handler();
    let unclear = scene.run("replay", &["--handler", &handler]);
    assert_eq!(unclear.code, 64);
    assert!(unclear.stderr.contains("`--only-acked`"), "{unclear:?}");
    let alone = scene.run("replay", &["--only-acked"]);
    assert_eq!(alone.code, 64);
    assert!(alone.stderr.contains("--handler"), "{alone:?}");
    let dir = tempfile::tempdir().unwrap();
    let broken = dir.path().join("broken.wasm");
    std::fs::write(&broken, b"no component").unwrap();
    let broken = broken.display().to_string();
    let refused = scene.run("replay", &["--handler", &broken, "--dry-run"]);
    assert_eq!(refused.code, 65, "{refused:?}");
}
