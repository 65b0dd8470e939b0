//! Dead letters of lists: counted, shown, brought back, deleted, exported, each whole and once.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use hostler::dead_letter::{DeadLetters, Filter, ReplayOptions, Replayed, Skip};
use hostler::delivery::message::Headers;
use hostler::delivery::policy::{Reason, Rejection};
use hostler::wire::dead_letter::{Context, list_headers};
use hostler::wire::{envelope, frame};
use hostler_tests::command::{fed, run};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};
use serde_json::{Value, json};

use crate::list_scene::{DEAD, KEY, framed};
use crate::queue_scene::connector;

struct Scene {
    server: RedisServer,
    raw: RawRedis,
}

impl Scene {
    async fn new() -> Self {
        Self::on(RedisServer::start()).await
    }

    async fn on(server: RedisServer) -> Self {
        let raw = server.raw().await;
        Self { server, raw }
    }

    fn letters(&self) -> DeadLetters {
        DeadLetters::new(&connector(&self.server.url()), DEAD)
    }

    async fn push(&self, key: &str, value: &[u8]) {
        self.raw.ask_words(&[b"LPUSH", key.as_bytes(), value]).await;
    }

    /// A dead letter, as a host writes it.
    async fn die(&self, body: &str, reason: Reason) {
        self.push(DEAD, &letter(body, KEY, reason, 1000)).await;
    }

    /// The values of a list, oldest first.
    async fn values(&self, key: &str) -> Vec<Vec<u8>> {
        let value = self.raw.ask(&format!("LRANGE {key} 0 -1")).await;
        let mut values: Vec<Vec<u8>> = redis::from_redis_value(value).unwrap();
        values.reverse();
        values
    }

    /// The bodies of framed values, oldest first.
    async fn bodies(&self, key: &str) -> Vec<String> {
        let body = |value: &Vec<u8>| String::from_utf8_lossy(&framed(value).1).into_owned();
        self.values(key).await.iter().map(body).collect()
    }

    fn dlq(&self, command: &str, more: &[&str]) -> Vec<String> {
        let url = self.server.url();
        let first = ["dlq", command, "--redis", &url, DEAD];
        let words = first.iter().chain(more);
        words.map(|word| (*word).to_owned()).collect()
    }
}

fn letter(body: &str, source: &str, reason: Reason, now_ms: u64) -> Bytes {
    let rejection = Rejection {
        reason,
        detail: "no such customer".to_owned(),
        attempts: 3,
        handled: true,
    };
    let context = Context {
        source,
        source_id: &format!("token-of-{body}"),
        group: None,
        rejection: &rejection,
        handler: "sha256:abc",
        now_ms,
        expires_at_ms: None,
    };
    let headers = Headers::new(vec![
        ("X-Tenant".into(), "7".into()),
        ("x-retry-count".into(), "2".into()),
        ("number".into(), body.to_owned().into()),
    ]);
    frame::encode(&list_headers(&headers, &context), body.as_bytes()).unwrap()
}

async fn replay_all(letters: &DeadLetters) -> Replayed {
    let (filter, options) = (Filter::default(), ReplayOptions::default());
    letters.replay_all(filter, options).await.unwrap()
}

fn numbers(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

#[tokio::test]
async fn what_is_there_goes_back_whole_and_in_order() {
    let scene = Scene::new().await;
    for n in 0..700 {
        scene.die(&n.to_string(), Reason::Dropped).await;
    }
    let letters = scene.letters();
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let mut replay = letters.replay(ReplayOptions::default());
    let mut late = 0;
    while let Some(entries) = scan.next().await.unwrap() {
        replay.send(&entries).await.unwrap();
        // What dies meanwhile is not meant.
        scene.die(&format!("late {late}"), Reason::Dropped).await;
        late += 1;
    }
    assert_eq!(replay.report().replayed, 700);
    assert_eq!(
        replay.report().targets,
        BTreeMap::from([(KEY.to_owned(), 700)])
    );
    assert_eq!(scene.bodies(KEY).await, numbers(0..700), "oldest first");
    assert_eq!(scene.values(DEAD).await.len(), late);

    let (headers, payload) = framed(&scene.values(KEY).await[5]);
    assert_eq!(payload, "5");
    assert_eq!(headers.find_str("x-tenant"), Some("7"));
    assert_eq!(headers.find_str("x-replayed"), Some("1"));
    assert_eq!(headers.find_str("x-message-id"), Some("token-of-5"));
    assert_eq!(
        headers.find_str("x-retry-count"),
        None,
        "attempts start anew"
    );
    assert_eq!(headers.find_str("x-first-death-reason"), Some("dropped"));
    assert!(headers.find_str("x-death").unwrap().contains("\"count\":1"));
}

#[tokio::test]
async fn filters_choose_and_the_rest_stays_where_it_was() {
    let scene = Scene::new().await;
    for n in 0..600 {
        let reason = [Reason::Dropped, Reason::Trap, Reason::Timeout][n % 3];
        scene.die(&n.to_string(), reason).await;
    }
    let letters = scene.letters();
    let reason = Filter {
        reasons: vec!["trap".to_owned()],
        ..Filter::default()
    };
    let some = ReplayOptions {
        limit: Some(150),
        ..ReplayOptions::default()
    };
    let report = letters.replay_all(reason.clone(), some).await.unwrap();
    assert_eq!(report.replayed, 150);
    let traps: Vec<String> = (0..200).map(|n| (3 * n + 1).to_string()).collect();
    assert_eq!(scene.bodies(KEY).await, traps[..150]);
    let report = letters.replay_all(reason, ReplayOptions::default()).await;
    assert_eq!(report.unwrap().replayed, 50);
    assert_eq!(scene.bodies(KEY).await, traps);
    let rest: Vec<String> = numbers(0..600)
        .into_iter()
        .filter(|n| !traps.contains(n))
        .collect();
    assert_eq!(scene.bodies(DEAD).await, rest);

    let header = |value: &str| Filter {
        headers: vec![("NUMBER".to_owned(), value.to_owned())],
        ..Filter::default()
    };
    let to = ReplayOptions {
        to: Some("attic".to_owned()),
        ..ReplayOptions::default()
    };
    let report = letters.replay_all(header("300"), to.clone()).await.unwrap();
    assert_eq!(report.targets, BTreeMap::from([("attic".to_owned(), 1)]));
    let peek = letters.peek(1).await.unwrap();
    assert_eq!(peek.total, 399);
    assert_eq!(peek.by_reason["dropped"], 199);
    let newest = peek.entries[0].clone();
    assert_eq!(newest.body, "599");
    let id = Filter {
        ids: vec![newest.id.clone(), "nobody".to_owned()],
        ..Filter::default()
    };
    assert_eq!(letters.find(&newest.id).await.unwrap(), Some(newest));
    assert_eq!(letters.replay_all(id, to).await.unwrap().replayed, 1);
    assert_eq!(scene.bodies("attic").await, ["300", "599"]);
    let purged = letters.purge_all(header("597")).await.unwrap();
    assert_eq!((purged, letters.length().await.unwrap()), (1, 397));
    assert_eq!(letters.purge_all(Filter::default()).await.unwrap(), 397);
    assert_eq!(scene.raw.number(&format!("EXISTS {DEAD}")).await, 0);
}

#[tokio::test]
async fn age_is_told_by_the_last_death() {
    let scene = Scene::new().await;
    let time = scene.raw.ask("TIME").await;
    let (seconds, _): (u64, u64) = redis::from_redis_value(time).unwrap();
    for (age, body) in [(7200, "old"), (60, "young")] {
        let died = (seconds - age) * 1000;
        scene
            .push(DEAD, &letter(body, KEY, Reason::Trap, died))
            .await;
    }
    scene.push(DEAD, b"nobody knows").await;
    let filter = Filter {
        older_than: Some(Duration::from_secs(3600)),
        ..Filter::default()
    };
    let letters = scene.letters();
    let report = letters.replay_all(filter, ReplayOptions::default());
    assert_eq!(report.await.unwrap().replayed, 1);
    assert_eq!(scene.bodies(KEY).await, ["old"]);
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let scene = Scene::new().await;
    for n in 0..40 {
        scene.die(&n.to_string(), Reason::Trap).await;
    }
    let before = scene.values(DEAD).await;
    let options = ReplayOptions {
        dry_run: true,
        ..ReplayOptions::default()
    };
    let report = scene.letters().replay_all(Filter::default(), options).await;
    assert_eq!(report.unwrap().replayed, 40);
    assert_eq!(scene.values(DEAD).await, before);
    assert_eq!(scene.raw.number("DBSIZE").await, 1);
}

#[tokio::test]
async fn what_cannot_go_back_does_not_block_what_can() {
    let scene = Scene::new().await;
    scene.raw.ask("SET text x").await;
    let mut tired = framed(&letter("tired", KEY, Reason::Trap, 1)).0;
    tired.push("x-replayed", "3".to_owned());
    for n in 0..50 {
        scene
            .push(DEAD, &letter(&n.to_string(), "text", Reason::Trap, 1))
            .await;
        scene.push(DEAD, b"somebody's own").await;
    }
    scene
        .push(DEAD, &frame::encode(&tired, b"tired").unwrap())
        .await;
    scene.die("last", Reason::Trap).await;
    let report = replay_all(&scene.letters()).await;
    assert_eq!(report.replayed, 1, "{report:?}");
    let skipped = [
        (Skip::MaxReplays, 1),
        (Skip::NoSource, 50),
        (Skip::Refused, 50),
    ];
    assert_eq!(report.skipped, BTreeMap::from(skipped));
    assert!(report.refusal.unwrap().contains("WRONGTYPE"));
    assert_eq!(scene.values(DEAD).await.len(), 101);
    // Told where to, they go, equal ones as often as they are there.
    let options = ReplayOptions {
        to: Some("attic".to_owned()),
        max_replays: 10,
        ..ReplayOptions::default()
    };
    let report = scene.letters().replay_all(Filter::default(), options).await;
    assert_eq!(report.unwrap().replayed, 101);
    let attic = scene.bodies("attic").await;
    let own = attic.iter().filter(|body| *body == "somebody's own");
    assert_eq!((own.count(), attic.len()), (50, 101));
}

#[tokio::test]
async fn equal_values_are_told_apart_by_their_number() {
    let scene = Scene::new().await;
    for _ in 0..700 {
        scene.push(DEAD, b"x").await;
    }
    let letters = scene.letters();
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let mut seen = 0;
    while let Some(entries) = scan.next().await.unwrap() {
        seen += entries.len();
        // Every other one goes.
        let some: Vec<_> = entries.iter().step_by(2).cloned().collect();
        letters.delete(&some).await.unwrap();
    }
    assert_eq!(seen, 700);
    let left = letters.purge_all(Filter::default()).await.unwrap();
    assert!((340..=350).contains(&left), "{left}");
}

/// Dead letters are trimmed, or moved by somebody else, while a walk is under way.
#[tokio::test]
async fn what_others_remove_meanwhile_makes_a_walk_skip_nothing() {
    let scene = Scene::new().await;
    for n in 0..900 {
        scene.die(&n.to_string(), Reason::Trap).await;
    }
    let (letters, other) = (scene.letters(), scene.letters());
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let mut seen = HashSet::new();
    let mut trimmed = 0;
    while let Some(entries) = scan.next().await.unwrap() {
        seen.extend(
            entries
                .iter()
                .map(|e| String::from_utf8_lossy(&e.body).into_owned()),
        );
        // From the end, as a bound does, and from the middle, as a replay does.
        scene.raw.ask(&format!("LTRIM {DEAD} 0 -8")).await;
        trimmed += 7;
        if let Some(entry) = entries.last() {
            other.delete(std::slice::from_ref(entry)).await.unwrap();
        }
        scene.die(&format!("new {trimmed}"), Reason::Trap).await;
    }
    let expected: HashSet<String> = numbers(0..900).into_iter().collect();
    assert!(
        expected.is_subset(&seen),
        "{:?}",
        expected.difference(&seen)
    );
    assert!(!seen.iter().any(|body| body.starts_with("new")));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_at_a_time_move_nothing_twice() {
    let scene = Scene::new().await;
    for n in 0..2000 {
        scene.die(&n.to_string(), Reason::Trap).await;
    }
    let (one, two) = (scene.letters(), scene.letters());
    let (one, two) = tokio::join!(replay_all(&one), replay_all(&two));
    assert_eq!(one.replayed + two.replayed, 2000);
    let moved = scene.bodies(KEY).await;
    assert_eq!(moved.len(), 2000);
    assert_eq!(moved.iter().collect::<HashSet<_>>().len(), 2000);
    assert_eq!(scene.raw.number(&format!("EXISTS {DEAD}")).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_up_at_any_time_it_leaves_no_entry_half_moved() {
    let scene = Scene::new().await;
    for n in 0..3000 {
        scene.die(&n.to_string(), Reason::Trap).await;
    }
    for round in 0..40_u64 {
        let letters = scene.letters();
        let some = tokio::time::timeout(Duration::from_micros(round * 300), replay_all(&letters));
        if some.await.is_ok() {
            break;
        }
    }
    replay_all(&scene.letters()).await;
    eventually("all are moved", || async {
        scene.raw.number(&format!("LLEN {DEAD}")).await == 0
    })
    .await;
    let moved = scene.bodies(KEY).await;
    assert_eq!(moved.len(), 3000);
    assert_eq!(moved.iter().collect::<HashSet<_>>().len(), 3000);
}

#[tokio::test]
async fn a_full_redis_and_a_missing_right_leave_everything_where_it_is() {
    let rules = "app on >secret ~* &* +@all -lrem";
    let scene = Scene::on(RedisOptions::default().user(rules).start()).await;
    for n in 0..5 {
        scene.die(&n.to_string(), Reason::Trap).await;
    }
    scene.raw.ask("CONFIG SET maxmemory 1").await;
    let all = scene.letters();
    let failed = all.replay_all(Filter::default(), ReplayOptions::default());
    assert!(failed.await.unwrap_err().to_string().contains("OOM"));
    scene.raw.ask("CONFIG SET maxmemory 0").await;
    assert_eq!(scene.raw.number("EXISTS jobs").await, 0);

    let url = format!("{}?user=app&pass=secret", scene.server.url());
    let report = replay_all(&DeadLetters::new(&connector(&url), DEAD)).await;
    assert_eq!(report.skipped, BTreeMap::from([(Skip::Refused, 5)]));
    assert_eq!(
        scene.raw.number("EXISTS jobs").await,
        0,
        "no copies pile up"
    );
    assert_eq!(replay_all(&all).await.replayed, 5);
}

#[tokio::test]
async fn envelopes_stay_envelopes_and_raw_values_keep_their_history_beside_the_list() {
    let scene = Scene::new().await;
    let dead = letter("a", KEY, Reason::Trap, 1);
    let (mut headers, payload) = framed(&dead);
    scene
        .push(DEAD, &envelope::encode(&headers, &payload).unwrap())
        .await;
    headers.push("x-dead-letter-framing", "raw".to_owned());
    scene
        .push(DEAD, &frame::encode(&headers, b"raw").unwrap())
        .await;
    // It looks like an envelope, and is none of ours.
    scene
        .push(DEAD, b"{\"headers\":{},\"payload\":\"p\"}")
        .await;
    let report = replay_all(&scene.letters()).await;
    assert_eq!(report.skipped, BTreeMap::from([(Skip::NoSource, 1)]));
    let (headers, payload) = envelope::decode(&scene.values(KEY).await[0]).unwrap();
    assert_eq!(
        (headers.find_str("x-replayed"), &payload[..]),
        (Some("1"), &b"a"[..])
    );
    let (headers, payload) = framed(&scene.values("{jobs}:retry").await[0]);
    assert_eq!(
        (headers.find_str("x-replayed"), &payload[..]),
        (Some("1"), &b"raw"[..])
    );
    assert_eq!(headers.find_str("x-dead-letter-framing"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands() {
    let scene = Scene::new().await;
    for (body, reason) in [
        ("1", Reason::Trap),
        ("2", Reason::Dropped),
        ("3", Reason::Trap),
    ] {
        scene.die(body, reason).await;
    }
    let before = scene.values(DEAD).await;
    let peek = run(scene.dlq("peek", &["--json"])).ok().json();
    assert_eq!(peek["total"], 3);
    assert_eq!(peek["by_reason"], json!({"trap": 2, "dropped": 1}));
    let newest = &peek["entries"][0];
    assert_eq!(
        (&newest["body"], &newest["attempts"]),
        (&json!("3"), &json!(3))
    );
    assert_eq!(
        (&newest["source"], &newest["source_id"]),
        (&json!(KEY), &json!("token-of-3"))
    );
    let id = newest["id"].as_str().unwrap();
    let shown = run(scene.dlq("show", &[id, "--json"])).ok().json();
    assert_eq!(
        (&shown["body"], &shown["reason"]),
        (&json!("3"), &json!("trap"))
    );
    assert_eq!(shown["history"][0]["queue"], KEY);
    let text = run(scene.dlq("show", &[id])).ok().stdout;
    assert!(text.contains("1970-01-01T00:00:01.000Z"), "{text}");
    assert_eq!(run(scene.dlq("show", &["nobody"])).code, 64);

    // There and back, byte for byte.
    let lines = run(scene.dlq("export", &[])).ok().stdout;
    let first: Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!(
        (&first["body"], &first["reason"]),
        (&json!("1"), &json!("trap"))
    );
    let url = scene.server.url();
    let publish = [
        "publish", "--redis", &url, "--lines", "--json", "--list", "again",
    ];
    fed(publish, lines.as_bytes()).ok();
    assert_eq!(scene.values("again").await, before);

    let planned = run(scene.dlq("purge", &["--dry-run"])).ok().stdout;
    assert_eq!(planned, "would delete 3\n\ndropped  1\ntrap     2\n");
    assert_eq!(run(scene.dlq("purge", &[])).code, 64, "it asks");
    let purged = run(scene.dlq("purge", &["--reason", "dropped", "--yes", "--json"]));
    assert_eq!(purged.ok().json()["purged"], 1);
    let replayed = run(scene.dlq("replay", &["--json", "--limit", "1"]))
        .ok()
        .json();
    assert_eq!(replayed["targets"], json!({"jobs": 1}));
    assert_eq!(scene.bodies(DEAD).await, ["3"]);
}
