//! The filters of `replay`, `purge` and `export`, the rate of a replay, the limit of replays, and the
//! question of `purge`. On streams and on reliable lists.

use std::time::{Duration, Instant};

use hostler::delivery::policy::Reason;
use hostler::telemetry::wall_clock_ms;
use hostler_tests::command::{Ended, fed};
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};

on_both! {
    every_filter_means_the_same_with_every_command
    a_replay_keeps_its_rate
    a_message_that_was_replayed_too_often_stays
    exported_messages_can_be_published_again_whole
    purge_asks_before_it_deletes
}

/// Six that died one hour after the other, the last of them just now; their ids.
async fn six(scene: &Scene) -> Vec<String> {
    let now = wall_clock_ms();
    let mut ids = Vec::new();
    for n in 0..6_u64 {
        let reason = [Reason::Dropped, Reason::Timeout, Reason::Trap][n as usize % 3];
        let tenant = ["7", "8"][n as usize % 2];
        let headers = [("X-Tenant", tenant), ("x-region", "eu"), ("n", "1")];
        let died = now - (5 - n) * 3_600_000;
        let id = scene.letter_of(n.to_string(), reason, &headers, died).await;
        ids.push(id);
    }
    ids
}

/// The bodies that a command has printed or removed, oldest first.
async fn chosen(scene: &Scene, command: &str, ended: &Ended) -> Vec<String> {
    if command == "export" {
        let lines = ended.stdout.lines();
        let body = |line| {
            let line: Value = serde_json::from_str(line).unwrap();
            line["body"].as_str().unwrap().to_owned()
        };
        return lines.map(body).collect();
    }
    let left = scene.bodies(scene.dead_key()).await;
    let all = (0..6).map(|n| n.to_string());
    all.filter(|body| !left.contains(body)).collect()
}

async fn every_filter_means_the_same_with_every_command(kind: Kind) {
    for command in ["export", "replay", "purge"] {
        for (filter, expected) in [
            (&["--reason", "timeout"][..], &["1", "4"][..]),
            (
                &["--reason", "timeout", "--reason", "trap"],
                &["1", "2", "4", "5"],
            ),
            (&["--id", "ID3", "--id", "ID1"], &["1", "3"]),
            (&["--older-than", "210m"], &["0", "1"]),
            (&["--header", "x-tenant=7"], &["0", "2", "4"]),
            (
                &["--header", "x-tenant=7", "--header", "X-Region=eu"],
                &["0", "2", "4"],
            ),
            (&["--header", "x-tenant=7", "--header", "x-region=us"], &[]),
            (&["--limit", "2"], &["0", "1"]),
            (
                &[
                    "--reason",
                    "trap",
                    "--header",
                    "x-tenant=8",
                    "--older-than",
                    "5m",
                ],
                &[],
            ),
            (&["--reason", "trap", "--header", "x-tenant=8"], &["5"]),
            (
                &[
                    "--header",
                    "x-tenant=8",
                    "--limit",
                    "2",
                    "--older-than",
                    "30m",
                ],
                &["1", "3"],
            ),
            (&[], &["0", "1", "2", "3", "4", "5"]),
        ] {
            let scene = Scene::new(kind).await;
            let ids = six(&scene).await;
            let mut words: Vec<&str> = filter.to_vec();
            for word in &mut words {
                if let Some(n) = word.strip_prefix("ID") {
                    *word = &ids[n.parse::<usize>().unwrap()];
                }
            }
            // A dry run changes nothing.
            if command != "export" {
                let dry = [&words[..], &["--dry-run", "--json"]].concat();
                let planned = scene.dlq(command, &dry).ok().json();
                let count = match command {
                    "replay" => &planned["replayed"],
                    _ => &planned["purged"],
                };
                assert_eq!(*count, expected.len(), "{command} {filter:?}: {planned}");
                assert_eq!(scene.length(scene.dead_key()).await, 6);
                assert_eq!(scene.raw.number("DBSIZE").await, 1);
            }
            if command == "purge" {
                words.push("--yes");
            }
            let ended = scene.dlq(command, &words).ok();
            let chosen = chosen(&scene, command, &ended).await;
            assert_eq!(chosen, *expected, "{command} {filter:?}: {ended:?}");
            let back = scene.bodies(scene.key()).await;
            match command {
                "replay" => assert_eq!(back, *expected, "oldest first"),
                _ => assert!(back.is_empty()),
            }
        }
    }
}

async fn a_replay_keeps_its_rate(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.numbered(40).await;
    let begun = Instant::now();
    let ended = scene.dlq("replay", &["--rate", "50/s", "--json"]).ok();
    // Five at once every 100 ms: never faster than asked for.
    assert!(
        begun.elapsed() >= Duration::from_millis(700),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(ended.json()["replayed"], 40);
    assert_eq!(scene.length(scene.key()).await, 40);
}

async fn a_message_that_was_replayed_too_often_stays(kind: Kind) {
    let scene = Scene::new(kind).await;
    let key = scene.key();
    scene.letter("x", Reason::Trap).await;
    // The cause stays, so it comes back each time.
    for times in 1..=4 {
        let ended = scene.dlq("replay", &["--json"]).ok().json();
        if times == 4 {
            assert_eq!(ended["skipped"], json!({"max-replays": 1}));
            break;
        }
        assert_eq!(ended["replayed"], 1, "{times}");
        let back = scene.all(key).await.pop().unwrap();
        assert_eq!(back.header("x-replayed"), times.to_string());
        let mut settings = crate::dead_letter::dlq_scene::three();
        settings.gate.required = vec!["x-nobody-has-it".to_owned()];
        scene.serve(scene.own(), settings).await;
        let dead = scene.only_dead().await;
        assert_eq!(dead.header("x-replayed"), times.to_string());
        assert_eq!(dead.deaths()[0]["reason"], "malformed");
        assert_eq!(dead.deaths()[0]["count"], times);
        assert_eq!(dead.header("x-first-death-reason"), "trap");
    }
    let cycle = format!("EXISTS {{{key}}}:cycle");
    assert_eq!(scene.raw.number(&cycle).await, 0, "a replay is no cycle");
    let text = scene.dlq("replay", &[]).ok().stdout;
    assert!(text.contains("left  1  replayed 3 times already"), "{text}");
    let before = scene.length(key).await;
    let more = scene.dlq("replay", &["--max-replays", "4", "--json"]).ok();
    assert_eq!(more.json()["replayed"], 1);
    assert_eq!(scene.length(key).await, before + 1);
}

async fn exported_messages_can_be_published_again_whole(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    six(&scene).await;
    let twice = [("X-Tenant", "7"), ("x-tenant", "8"), ("x-death", "[[")];
    scene
        .letter_of(b"\xff\0bytes\n", Reason::Trap, &twice, 0)
        .await;
    scene.put(dead, "", &[("no", "dead letter")]).await;
    match kind {
        // A message with fields between its headers, and none at all.
        Kind::Stream => {
            let odd: [&[&[u8]]; 2] = [
                &[
                    b"_payload",
                    b"",
                    b"between",
                    b"the headers",
                    b"h:a",
                    b"\xfe",
                ],
                &[b"a", b"1", b"a", b"\xff"],
            ];
            for fields in odd {
                let words = [&[b"XADD", dead.as_bytes(), b"*"], fields].concat();
                scene.raw.ask_words(&words).await;
            }
        }
        Kind::List => {}
    }
    let before = scene.contents(dead).await;
    let lines = scene.dlq("export", &["--any-entry"]).ok().stdout;
    assert_eq!(lines.lines().count(), before.len());
    let url = scene.server.url();
    let flag = match kind {
        Kind::Stream => "--stream",
        Kind::List => "--list",
    };
    let publish = [
        "publish", "--redis", &url, "--lines", "--json", flag, "again",
    ];
    fed(publish, lines.as_bytes()).ok();
    assert_eq!(scene.contents("again").await, before);
    assert_eq!(scene.contents(dead).await, before, "it changes nothing");
}

async fn purge_asks_before_it_deletes(kind: Kind) {
    let scene = Scene::new(kind).await;
    let ids = six(&scene).await;
    let planned = scene.dlq("purge", &["--dry-run"]).ok().stdout;
    assert_eq!(
        planned,
        "would delete 6\n\ndropped  2\ntimeout  2\ntrap     2\n"
    );
    let unanswered = scene.dlq("purge", &[]);
    assert_eq!(unanswered.code, 64);
    assert!(
        unanswered.stderr.contains("delete these 6 for good? [y/N]"),
        "{unanswered:?}"
    );
    assert!(
        unanswered.stderr.contains("hint: give `--yes`"),
        "{unanswered:?}"
    );
    let no = fed(scene.words("purge", &[]), b"n\n").ok();
    assert_eq!(
        (no.stdout.as_str(), scene.length(scene.dead_key()).await),
        ("", 6)
    );
    let yes = fed(scene.words("purge", &["--id", &ids[4]]), b"y\n").ok();
    assert_eq!(yes.stdout, "deleted 1\n\ntimeout  1\n");
    let all = scene.dlq("purge", &["--yes", "--json"]).ok().json();
    let by_reason = json!({"dropped": 2, "timeout": 1, "trap": 2});
    assert_eq!(
        all,
        json!({"purged": 5, "by_reason": by_reason, "dry_run": false})
    );
    assert_eq!(scene.length(scene.dead_key()).await, 0);
}
