//! A dead letter says why its message failed: the end of the log of the attempt, and a signature that it
//! shares with others of the same cause. On streams and on reliable lists.

use hostler::delivery::policy::Reason;
use hostler::wire::dead_letter::LOG;
use serde_json::{Value, json};

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};

on_both! {
    a_dead_letter_keeps_the_end_of_the_log_of_its_last_attempt
    the_log_that_is_kept_is_bounded_and_can_be_turned_off
    a_replayed_message_does_not_carry_the_log
    dead_letters_are_counted_by_their_causes_and_chosen_by_them
    one_cause_moves_and_the_others_stay
}

async fn one_cause_moves_and_the_others_stay(kind: Kind) {
    let scene = Scene::new(kind).await;
    let bodies = [
        "trap",
        "panic",
        "sleep:x",
        "text:a+exit:1",
        "recurse",
        "drop:no stock",
        "nack",
        "err:no answer+nack",
        "err:no item 7+nack",
    ];
    for body in bodies {
        for _ in 0..2 {
            scene.send(body).await;
        }
    }
    scene.binary().flag("max-deliveries", "1").finish().await;
    let groups = || scene.dlq("groups", &["--json"]).ok().json();
    let found = groups();
    let all = found["groups"].as_array().unwrap();
    assert_eq!(all.len(), bodies.len(), "{found}");
    assert!(all.iter().all(|group| group["count"] == 2), "{found}");
    let of = |part: &str| {
        let signature = |group: &&Value| group["signature"].as_str().unwrap().contains(part);
        let group = all
            .iter()
            .find(signature)
            .unwrap_or_else(|| panic!("{part} in {found}"));
        group["id"].as_str().unwrap().to_owned()
    };
    for cause in [
        "max-deliveries: nack-requeue",
        "nack-requeue: no answer",
        "nack-requeue: no item #",
    ] {
        assert!(
            all.iter().any(|group| group["signature"] == cause),
            "{cause} in {found}"
        );
    }
    let panic = of("asked to panic, at ");
    let purged = scene.dlq("purge", &["--signature", &panic, "--yes", "--json"]);
    assert_eq!(purged.ok().json()["purged"], 2);
    let trap = of("`unreachable` instruction executed, in ");
    let replayed = scene.dlq(
        "replay",
        &["--signature", &trap, "--to", "elsewhere", "--json"],
    );
    assert_eq!(replayed.ok().json()["replayed"], 2);
    let left = groups();
    assert_eq!(left["total"], 2 * (bodies.len() - 2), "{left}");
    let ids = left["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| &group["id"]);
    assert!(
        ids.into_iter()
            .all(|id| *id != panic.as_str() && *id != trap.as_str())
    );
}

fn lines(value: &Value) -> Vec<&str> {
    let lines = value.as_array().unwrap().iter();
    lines.map(|line| line.as_str().unwrap()).collect()
}

async fn a_dead_letter_keeps_the_end_of_the_log_of_its_last_attempt(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.send("text:hello+panic").await;
    scene.send("ack").await;
    let host = scene.binary().flags("max-deliveries=2 backoff-first=1ms");
    host.finish().await;
    let dead = scene.only_dead().await;
    let log = dead.header(LOG);
    // Of the second attempt alone.
    let id = dead.header("x-message-id");
    assert!(log.starts_with(&format!("start {id} 2\nhello\n")), "{log}");
    // The detail names the place of the panic, not what carries it out.
    let (_, place) = dead.detail().split_once(", in ").unwrap();
    assert!(
        !place.contains("std::") && !place.contains("panicking"),
        "{place}"
    );
    let (said, functions) = log.split_once("\nwasm backtrace:\n").unwrap();
    assert!(said.ends_with("\nasked to panic"), "{log}");
    assert!(functions.contains("panic"), "{log}");

    let peek = scene.dlq("peek", &[]).ok().stdout;
    assert!(peek.contains("\n  log:  asked to panic\n"), "{peek}");
    assert!(!peek.contains("backtrace"), "{peek}");
    let json = scene.dlq("peek", &["--json"]).ok().json();
    let entry = &json["entries"][0];
    assert_eq!(lines(&entry["log"]), log.lines().collect::<Vec<_>>());
    let id = entry["id"].as_str().unwrap();
    let shown = scene.dlq("show", &[id]).ok().stdout;
    assert!(
        shown.contains("log of the last attempt\n  | start "),
        "{shown}"
    );
    assert!(
        shown.contains("\n  | asked to panic\n  | wasm backtrace:\n"),
        "{shown}"
    );
    assert!(!shown.contains(LOG), "once, with its lines: {shown}");

    // A handler on trial shows the same of itself.
    let handler = hostler_tests::guests::guest("scripted")
        .display()
        .to_string();
    let trial = ["--handler", &handler, "--dry-run"];
    let text = scene.dlq("replay", &trial).ok().stdout;
    assert!(text.contains("\n  | asked to panic\n"), "{text}");
    let json = scene
        .dlq("replay", &[&trial[..], &["--json"]].concat())
        .ok();
    let first: Value = serde_json::from_str(json.stdout.lines().next().unwrap()).unwrap();
    assert!(lines(&first["log"]).contains(&"hello"), "{first}");
}

async fn the_log_that_is_kept_is_bounded_and_can_be_turned_off(kind: Kind) {
    let scene = Scene::new(kind).await;
    for (size, body) in [
        ("0B", "text:x+drop"),
        ("100B", "lines:500+drop"),
        ("64KiB", "drop"),
    ] {
        scene.send(body).await;
        let host = scene.binary().flag("dead-letter-log", size);
        host.finish().await;
    }
    let dead = scene.dead().await;
    assert_eq!(dead[0].header(LOG), "");
    assert!(dead[0].headers.find(LOG).is_none());
    let log = dead[1].header(LOG);
    assert!(log.len() <= 100 && log.ends_with("\nline 499"), "{log}");
    assert!(dead[2].header(LOG).starts_with("start "));
    let refused = scene.binary().flag("dead-letter-log", "65KiB").end().await;
    refused.expect_code(64);
}

async fn a_replayed_message_does_not_carry_the_log(kind: Kind) {
    let scene = Scene::new(kind).await;
    let kept = [(LOG, "one\ntwo"), ("x-unknown", "kept")];
    // A producer's own is not the log of an attempt.
    scene.put(scene.key(), "text:mine+drop", &kept).await;
    scene.binary().finish().await;
    let dead = scene.only_dead().await;
    let log = dead.header(LOG);
    assert!(log.ends_with("\nmine") && !log.contains("two"), "{log}");
    scene.dlq("replay", &[]).ok();
    let back = scene.all(scene.key()).await.pop().unwrap();
    assert!(back.headers.find(LOG).is_none(), "{back:?}");
    assert_eq!(back.header("x-unknown"), "kept");
    assert_eq!(back.detail(), dead.detail());
}

async fn dead_letters_are_counted_by_their_causes_and_chosen_by_them(kind: Kind) {
    let scene = Scene::new(kind).await;
    let of = |detail: &'static str| {
        [
            ("x-dead-letter-reason", "dropped"),
            ("x-dead-letter-detail", detail),
        ]
    };
    let trap = "trap: stderr: no item 5; wasm trap: wasm `unreachable` instruction executed, in shop::take < a";
    for _ in 0..3 {
        scene
            .put(scene.dead_key(), "a", &of("no customer 17"))
            .await;
        scene.put(scene.dead_key(), "b", &of("no customer 4")).await;
    }
    scene.put(scene.dead_key(), "c", &of(trap)).await;
    scene.letter("d", Reason::Expired).await;
    let json = scene.dlq("groups", &["--json"]).ok().json();
    assert_eq!((&json["total"], &json["others"]), (&json!(8), &json!(0)));
    let groups = json["groups"].as_array().unwrap();
    let first = &groups[0];
    assert_eq!(first["signature"], "dropped: no customer #");
    assert_eq!(
        (&first["count"], &first["reasons"]),
        (&json!(6), &json!({"dropped": 6}))
    );
    let find = |text: &str| groups.iter().find(|g| g["signature"] == text).unwrap();
    let fault = find("trap: no item #, in shop::take < a");
    assert_eq!(fault["count"], 1);
    assert_eq!(find("expired: no such customer")["count"], 1);
    let text = scene.dlq("groups", &["--limit", "1"]).ok().stdout;
    assert!(
        text.starts_with(&format!(
            "{}: 8 dead letters, 3 causes\n\n",
            scene.dead_key()
        )),
        "{text}"
    );
    assert!(
        text.contains("\n  dropped: no customer #\n\nother causes: 2\n"),
        "{text}"
    );

    // These two have the same id in 32 bits, as earlier versions wrote it.
    for detail in ["no aapej", "no abbqz"] {
        scene.put(scene.dead_key(), "e", &of(detail)).await;
    }
    let json = scene.dlq("groups", &["--json"]).ok().json();
    let groups = json["groups"].as_array().unwrap();
    let one = groups
        .iter()
        .find(|g| g["signature"] == "dropped: no aapej");
    let one = one.unwrap()["id"].as_str().unwrap();
    let short = scene.dlq("purge", &["--signature", "68274fa4", "--yes"]);
    assert_eq!(short.code, 64, "{short:?}");
    assert!(
        short.stderr.contains("this id is of an earlier version"),
        "{short:?}"
    );
    let purged = scene
        .dlq("purge", &["--signature", one, "--yes", "--json"])
        .ok()
        .json();
    assert_eq!(purged["purged"], 1);
    let other = ["--signature", "dropped: no abbqz", "--yes", "--json"];
    assert_eq!(scene.dlq("purge", &other).ok().json()["purged"], 1);

    let id = first["id"].as_str().unwrap();
    let purged = scene
        .dlq("purge", &["--signature", id, "--yes", "--json"])
        .ok()
        .json();
    assert_eq!(purged["purged"], 6);
    let fault = fault["signature"].as_str().unwrap();
    let replayed = scene
        .dlq(
            "replay",
            &["--signature", fault, "--to", "elsewhere", "--json"],
        )
        .ok()
        .json();
    assert_eq!(replayed["replayed"], 1);
    let none = scene.dlq("groups", &["--signature", id]).ok().stdout;
    assert_eq!(
        none,
        format!("{} has no such dead letters\n", scene.dead_key())
    );
    let left = scene.dlq("groups", &["--json"]).ok().json();
    assert_eq!(left["total"], 1);
}
