//! `dlq purge|replay|export` take dead letters only, and leave queues alone. On streams and on reliable
//! lists.

use hostler::dead_letter::Filter;
use hostler::delivery::policy::Reason;
use hostler_tests::command::{Ended, run};
use serde_json::json;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::scene::user;

on_both! {
    a_queue_that_is_served_is_refused_by_every_command_that_takes_entries
    a_queue_whose_hosts_have_died_is_refused
    a_queue_can_be_named_as_one_that_is_served
    messages_among_dead_letters_stay_unless_they_are_named
    a_replayed_message_is_no_dead_letter_where_it_died
    peek_shows_one_reason_and_when_each_entry_died
}

/// `hostler dlq <command> <key> ...`
fn dlq(scene: &Scene, command: &str, key: &str, more: &[&str]) -> Ended {
    let url = scene.server.url();
    let first = ["dlq", command, "--redis", &url, key];
    run(first.iter().chain(more))
}

/// The commands that take entries, without a question.
const TAKING: [(&str, &[&str]); 3] = [("purge", &["--yes"]), ("replay", &[]), ("export", &[])];

async fn is_refused(scene: &Scene) {
    let key = scene.key();
    let before = scene.contents(key).await;
    for (command, more) in TAKING {
        let ended = dlq(scene, command, key, more);
        assert_eq!((ended.code, &*ended.stdout), (64, ""), "{ended:?}");
        let error = format!("error: `{key}` is a queue that is served: ");
        assert!(ended.stderr.starts_with(&error), "{ended:?}");
        assert!(ended.stderr.contains("--even-if-served"), "{ended:?}");
    }
    assert_eq!(scene.contents(key).await, before);
}

async fn a_queue_that_is_served_is_refused_by_every_command_that_takes_entries(kind: Kind) {
    let scene = Scene::new(kind).await;
    let host = scene
        .binary()
        .flags("concurrency=1 prefetch=1 timeout=1h")
        .ready()
        .await;
    scene.send("sleep:600000").await;
    host.starts(1).await;
    for body in ["a", "b", "c"] {
        scene.send(body).await;
    }
    is_refused(&scene).await;
    let length = scene.length(scene.key()).await;
    let peek = dlq(&scene, "peek", scene.key(), &[]).ok();
    let head = format!("{}: 0 dead letters, {length} other entries\n", scene.key());
    assert!(peek.stdout.starts_with(&head), "{peek:?}");
    assert!(
        peek.stderr.contains("is a queue that is served"),
        "{peek:?}"
    );
    host.kill().await;
}

async fn a_queue_whose_hosts_have_died_is_refused(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.send("sleep:60000").await;
    let host = scene.binary().ready().await;
    host.starts(1).await;
    host.kill().await;
    scene.send("a").await;
    // Nothing shows the host any more, but its held messages do.
    let key = scene.key();
    scene.delete(&format!("{{{key}}}:hosts")).await;
    is_refused(&scene).await;
    if kind == Kind::List {
        // Its other lists belong to the queue as well.
        let names = scene.raw.ask(&format!("KEYS {{{key}}}:processing:*")).await;
        let names: Vec<String> = redis::from_redis_value(names).unwrap();
        for name in names {
            let ended = dlq(&scene, "purge", &name, &["--yes", "--any-entry"]);
            assert_eq!(ended.code, 64, "{name}: {ended:?}");
        }
    }
}

async fn a_queue_can_be_named_as_one_that_is_served(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    scene.letter("1", Reason::Trap).await;
    // A host serves the dead letters.
    match kind {
        Kind::Stream => {
            scene
                .raw
                .ask(&format!("XGROUP CREATE {dead} repair 0"))
                .await
        }
        Kind::List => {
            scene
                .raw
                .ask(&format!("ZADD {{{dead}}}:instances 1 web-1"))
                .await
        }
    };
    assert_eq!(scene.dlq("purge", &["--yes"]).code, 64);
    let error = scene.letters().purge_all(Filter::default()).await;
    assert!(error.unwrap_err().to_string().contains("is served"));
    scene.dlq("purge", &["--yes", "--even-if-served"]).ok();
    assert_eq!(scene.length(dead).await, 0);

    // A host that shows itself is enough; one that has died is not.
    scene.delete(dead).await;
    scene.delete(&format!("{{{dead}}}:instances")).await;
    scene.letter("2", Reason::Trap).await;
    scene
        .raw
        .ask(&format!("ZADD {{{dead}}}:hosts 1 web-1"))
        .await;
    scene.raw.ask(&format!("SET {{{dead}}}:host:web-1 x")).await;
    let refused = scene.dlq("replay", &[]);
    assert!(
        refused.stderr.contains("the host `web-1` serves it"),
        "{refused:?}"
    );
    scene.delete(&format!("{{{dead}}}:host:web-1")).await;
    scene.dlq("replay", &[]).ok();
    assert_eq!(scene.bodies(scene.key()).await, ["2"]);
}

async fn messages_among_dead_letters_stay_unless_they_are_named(kind: Kind) {
    for (command, yes) in TAKING {
        let scene = Scene::new(kind).await;
        let dead = scene.dead_key();
        for n in ["1", "2"] {
            scene.letter(n, Reason::Trap).await;
            scene.put(dead, format!("plain {n}"), &[]).await;
        }
        let peek = scene.dlq("peek", &["--json"]).ok().json();
        assert_eq!(
            (&peek["total"], &peek["dead_letters"]),
            (&json!(4), &json!(2))
        );
        assert_eq!(peek["by_reason"], json!({"trap": 2, "unknown": 2}));

        let ended = scene.dlq(command, yes).ok();
        let note = format!("warning: left 2 entries of `{dead}` that are no dead letters");
        assert!(ended.stderr.contains(&note), "{ended:?}");
        let taken = |ended: &Ended| ended.stdout.matches("\"body\":\"plain").count();
        let left: &[&str] = match command {
            "export" => &["1", "plain 1", "2", "plain 2"],
            _ => &["plain 1", "plain 2"],
        };
        assert_eq!(scene.bodies(dead).await, left, "{command}");
        assert_eq!(taken(&ended), 0);

        // By name.
        let to = match command {
            "replay" => &["--to", "attic"][..],
            _ => &[],
        };
        let one = scene.dlq(
            command,
            &[yes, to, &["--reason", "unknown", "--limit", "1"]].concat(),
        );
        assert_eq!(one.ok().stderr, "", "{command}");
        let ended = scene
            .dlq(command, &[yes, to, &["--any-entry"]].concat())
            .ok();
        assert_eq!(ended.stderr, "", "{command}");
        match command {
            "export" => assert_eq!(taken(&ended), 2),
            _ => assert_eq!(scene.length(dead).await, 0, "{command}"),
        }
    }
}

async fn a_replayed_message_is_no_dead_letter_where_it_died(kind: Kind) {
    let scene = Scene::new(kind).await;
    let key = scene.key();
    scene.letter("1", Reason::Trap).await;
    scene.dlq("replay", &[]).ok();
    // No host has ever served the queue, so that nothing shows what it is.
    let before = scene.contents(key).await;
    for (command, yes) in TAKING {
        let ended = dlq(&scene, command, key, yes).ok();
        let note = format!("left one entry of `{key}` that is no dead letter");
        assert!(ended.stderr.contains(&note), "{command}: {ended:?}");
    }
    assert_eq!(scene.contents(key).await, before);
    let peek = dlq(&scene, "peek", key, &["--json"]).ok().json();
    assert_eq!(
        (&peek["total"], &peek["dead_letters"]),
        (&json!(1), &json!(0))
    );
    assert_eq!(peek["by_reason"], json!({"unknown": 1}));
    // In another queue than that where it died, it is one.
    scene.letter("2", Reason::Trap).await;
    scene.dlq("replay", &["--to", "attic"]).ok();
    dlq(&scene, "replay", "attic", &[]).ok();
    assert_eq!(scene.bodies(key).await, ["1", "2"]);
}

async fn peek_shows_one_reason_and_when_each_entry_died(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    // More than a page of others are in front.
    let died = 1_700_000_000_000;
    let id = scene
        .letter_of("the old one", Reason::Timeout, &[], died)
        .await;
    for n in 0..40 {
        scene.letter(&n.to_string(), Reason::Trap).await;
    }
    let peek = scene
        .dlq("peek", &["--reason", "timeout", "--json"])
        .ok()
        .json();
    assert_eq!(
        (&peek["total"], &peek["by_reason"]),
        (&json!(1), &json!({"timeout": 1}))
    );
    assert_eq!(peek["entries"].as_array().unwrap().len(), 1);
    assert_eq!(
        (&peek["entries"][0]["id"], &peek["entries"][0]["died_ms"]),
        (&json!(id), &json!(died))
    );
    let both = [
        "--reason", "timeout", "--reason", "trap", "--limit", "3", "--json",
    ];
    let peek = scene.dlq("peek", &both).ok().json();
    assert_eq!(
        (&peek["total"], peek["entries"].as_array().unwrap().len()),
        (&json!(41), 3)
    );

    let text = scene.dlq("peek", &["--reason", "timeout"]).ok().stdout;
    assert!(
        text.starts_with(&format!("{dead}: 1 dead letter\n")),
        "{text}"
    );
    for part in [
        &*id,
        "2023-11-14T22:13:20Z  timeout",
        "  why:  no such customer\n",
        "  body: the old one\n",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    let none = scene.dlq("peek", &["--reason", "oversize"]).ok().stdout;
    assert_eq!(none, format!("{dead} has no such entries\n"));

    // It fits on a terminal, whatever is in it.
    let long = "x".repeat(500);
    scene
        .letter_of(&long, Reason::MaxDeliveries, &[("x", &long)], 0)
        .await;
    let text = scene.dlq("peek", &["--limit", "50"]).ok().stdout;
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "{text}");
}

#[tokio::test]
async fn a_user_who_may_not_ask_who_serves_a_queue_still_gets_dead_letters() {
    let scene = Scene::with(Kind::Stream, user("-xinfo -zrange")).await;
    scene.letter("1", Reason::Trap).await;
    let url = scene.user_url();
    let words = ["dlq", "purge", "--redis", &url, scene.dead_key(), "--yes"];
    run(words).ok();
    assert_eq!(scene.length(scene.dead_key()).await, 0);
}
