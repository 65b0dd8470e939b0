//! `hostler dlq peek|show|replay|purge|export`, by the built binary. On streams and on reliable lists.

use hostler::delivery::policy::Reason;
use hostler_tests::command::fed;
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Letter, Scene, on_both};
use crate::scene::DEAD;

on_both! {
    peek_and_show_print_entries_whole
    replay_prints_what_it_moved_and_what_it_left
    a_key_of_another_type_is_refused_by_every_command
    peek_tells_a_missing_key_from_an_empty_queue
}

async fn peek_and_show_print_entries_whole(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.letter("older", Reason::Dropped).await;
    let expires = "1700000002000";
    let letter = Letter {
        headers: &[("X-Tenant", "7"), ("x-expires-at", expires)],
        source_id: Some("7-1"),
        died_ms: match kind {
            // Ids of streams grow.
            Kind::Stream => 0,
            Kind::List => 1_700_000_000_000,
        },
        ..Letter::of(Reason::Trap)
    };
    let id = scene.die("line one\nline \x1b[31mtwo", letter).await;
    let peek = scene.dlq("peek", &["--json"]).ok().json();
    assert_eq!(peek["total"], 2);
    assert_eq!(peek["by_reason"], json!({"trap": 1, "dropped": 1}));
    let newest = &peek["entries"][0];
    assert_eq!(
        (&newest["id"], &newest["attempts"]),
        (&json!(id), &json!(3))
    );
    assert_eq!(
        (&newest["source"], &newest["source_id"]),
        (&json!(scene.key()), &json!("7-1"))
    );

    let shown = scene.dlq("show", &[&id]).ok().stdout;
    for part in [
        "reason    trap",
        "detail    no such customer",
        "X-Tenant",
        "line one\nline \\u{1b}[31mtwo\n",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let json = scene.dlq("show", &[&id, "--json"]).ok().json();
    assert_eq!(json["id"], id);
    assert_eq!(json["body"], "line one\nline \u{1b}[31mtwo");
    assert_eq!(json["history"][0]["count"], 1);
    assert_eq!(json["history"][0]["queue"], scene.key());

    let missing = scene.dlq("show", &["1-1"]);
    assert_eq!(missing.code, 64);
    let dead = scene.dead_key();
    let error = format!("error: `{dead}` has no entry 1-1\nhint: ");
    assert!(missing.stderr.starts_with(&error), "{missing:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn show_prints_the_times_of_a_history() {
    let scene = Scene::new(Kind::Stream).await;
    let history = r#"[{"queue":"orders","reason":"trap","count":2,"first-time":1700000000000,"last-time":1700000001000,"original-expiration":1700000002000}]"#;
    let headers = [
        ("x-dead-letter-reason", "trap"),
        ("x-dead-letter-detail", "boom"),
        ("x-death", history),
    ];
    scene.put(DEAD, "x", &headers).await;
    let id = scene.raw.entries(DEAD).await.remove(0).0;
    let shown = scene.dlq("show", &[&id]).ok().stdout;
    for part in [
        "reason  trap",
        "detail  boom",
        "2023-11-14T22:13:20.000Z",
        "2023-11-14T22:13:22.000Z",
    ] {
        assert!(shown.contains(part), "{part} in\n{shown}");
    }
    let json = scene.dlq("show", &[&id, "--json"]).ok().json();
    let record = &json["history"][0];
    assert_eq!(record["count"], 2);
    assert_eq!(record["original_expiration_ms"], 1_700_000_002_000_u64);
    let nonsense = scene.dlq("show", &["x"]);
    assert_eq!(nonsense.code, 64);
    let error = "error: `x` is not an id of an entry";
    assert!(nonsense.stderr.starts_with(error), "{nonsense:?}");
}

async fn replay_prints_what_it_moved_and_what_it_left(kind: Kind) {
    let scene = Scene::new(kind).await;
    let (key, dead) = (scene.key(), scene.dead_key());
    scene.letter("1", Reason::Timeout).await;
    scene.letter("2", Reason::Trap).await;
    let replayed = [("x-replayed", "3")];
    scene.letter_of("3", Reason::Trap, &replayed, 0).await;
    let planned = scene.dlq("replay", &["--dry-run", "--json"]).ok().json();
    assert_eq!(
        planned,
        json!({"replayed": 2, "targets": {key: 2}, "skipped": {"max-replays": 1},
               "refusal": null, "dry_run": true})
    );
    let some = ["--reason", "timeout", "--rate", "5/s"];
    let text = scene.dlq("replay", &some).ok().stdout;
    assert_eq!(text, format!("replayed 1\n\nto {key}  1\n"));
    let text = scene.dlq("replay", &[]).ok().stdout;
    let begin = format!("replayed 1\n\nto {key}  1\n\nleft  1  replayed 3 times already: ");
    assert!(text.starts_with(&begin), "{text}");
    let attic = ["--max-replays", "4", "--to", "attic"];
    let text = scene.dlq("replay", &attic).ok().stdout;
    assert_eq!(text, "replayed 1\n\nto attic  1\n");
    assert_eq!(scene.length(key).await, 2);
    assert_eq!(scene.length("attic").await, 1);
    assert_eq!(scene.length(dead).await, 0);
    let wrong = scene.dlq("replay", &["--reason", "timeuot"]);
    assert_eq!((wrong.code, wrong.stdout.as_str()), (64, ""));
    assert!(
        wrong.stderr.contains("did you mean `timeout`?"),
        "{wrong:?}"
    );
    // A reason that is nothing like those of hostler may come from another program.
    let none = scene.dlq("replay", &["--reason", "zzz"]).ok();
    assert_eq!(none.stdout, "replayed 0\n");
    let warning = "warning: no entry died for `zzz`";
    assert!(none.stderr.contains(warning), "{none:?}");
    let itself = scene.dlq("replay", &["--to", dead, "--dry-run"]);
    assert_eq!((itself.code, itself.stdout.as_str()), (64, ""));
    assert!(
        itself.stderr.contains("is the dead-letter queue itself"),
        "{itself:?}"
    );

    scene.delete(key).await;
    scene.obstruct(key).await;
    scene.letter("4", Reason::Trap).await;
    let refused = scene.dlq("replay", &[]);
    assert_eq!(refused.code, 64);
    assert!(refused.stdout.contains("left  1  refused by redis"));
    let error = "error: redis would not take 1 of them back: ";
    assert!(refused.stderr.starts_with(error), "{refused:?}");
    for wrong in [["--rate", "0"], ["--rate", "x"], ["--older-than", "5"]] {
        assert_eq!(scene.dlq("replay", &wrong).code, 64, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn publish_takes_exported_lines_where_the_queue_can_hold_them() {
    let scene = Scene::new(Kind::Stream).await;
    scene.letter("plain", Reason::Trap).await;
    let odd: [&[u8]; 7] = [b"XADD", DEAD.as_bytes(), b"*", b"a", b"1", b"a", b"\xff"];
    scene.raw.ask_words(&odd).await;
    let lines = scene.dlq("export", &["--any-entry"]).ok().stdout;
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["body"], &first["reason"]),
        (&json!("plain"), &json!("trap"))
    );
    let unknown = scene.dlq("export", &["--reason", "unknown"]).ok().stdout;
    assert_eq!(unknown.lines().count(), 1);

    let url = scene.url();
    let to =
        |flag, key| ["publish", "--redis", &url, "--lines", "--json", flag, key].map(str::to_owned);
    let publish = to("--stream", "again");
    let published = fed(&publish, lines.as_bytes()).ok();
    assert_eq!(published.stdout.lines().count(), 2);
    assert!(published.stdout.starts_with("{\"id\":\""));

    // A header of the command line is added.
    let header = ["--header", "batch=1"].map(str::to_owned);
    let with = publish.iter().chain(&header);
    let ended = fed(with, b"{\"body\":\"b\",\"headers\":{\"a\":\"1\"}}\n").ok();
    assert_eq!(ended.stdout.lines().count(), 1);
    let last = scene.contents("again").await.pop().unwrap();
    assert_eq!(
        last,
        ["_payload", "b", "h:a", "1", "h:batch", "1"].map(|text| text.as_bytes())
    );
    // A list takes messages, but no bare fields.
    let bare = lines.lines().last().unwrap();
    let refused = fed(to("--list", "jobs"), bare.as_bytes());
    assert_eq!(refused.code, 64);
    assert!(refused.stderr.contains("only a stream can hold it"));

    let wrong = fed(&publish, b"{\"body\":\"one\"}\nhello\n");
    assert_eq!((wrong.code, wrong.stdout.lines().count()), (64, 1));
    let error = "error: line 2 of stdin is not a message in JSON: expected value at column 1\n";
    assert!(wrong.stderr.starts_with(error), "{wrong:?}");
}

async fn a_key_of_another_type_is_refused_by_every_command(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    scene.obstruct(dead).await;
    for command in ["peek", "replay", "purge", "export"] {
        let ended = scene.dlq(command, &[]);
        assert_eq!(ended.code, 64, "{command}: {ended:?}");
        let error = format!("`{dead}` is neither a stream nor a list");
        assert!(ended.stderr.contains(&error), "{command}: {ended:?}");
    }
}

async fn peek_tells_a_missing_key_from_an_empty_queue(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    for more in [&[][..], &["--json"]] {
        let missing = scene.dlq("peek", more);
        assert_eq!((missing.code, missing.stdout.as_str()), (64, ""));
        let error = format!("error: there is no key `{dead}`\n");
        assert!(missing.stderr.starts_with(&error), "{missing:?}");
    }
    scene.letter("1", Reason::Trap).await;
    scene.dlq("purge", &["--yes"]).ok();
    let emptied = scene.dlq("peek", &[]);
    match kind {
        Kind::Stream => assert_eq!(emptied.ok().stdout, format!("{dead} is empty\n")),
        // Redis deletes a list with its last entry.
        Kind::List => assert_eq!(emptied.code, 64, "{emptied:?}"),
    }
}
