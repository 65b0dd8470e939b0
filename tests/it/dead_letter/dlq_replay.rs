//! Replays of dead letters: each message goes back whole, once and in order, and only to where it
//! belongs. On streams and on reliable lists.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::dead_letter::{DeadLetters, Error, Filter, ReplayOptions, Replayed, Skip};
use hostler::delivery::message::Headers;
use hostler::delivery::policy::Reason;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::telemetry::metrics::Metrics;
use hostler::wire::{envelope, frame};
use hostler_tests::inprocess::Host;
use hostler_tests::redis::eventually;

use crate::dead_letter::dlq_scene::{Found, Kind, Letter, Scene, on_both, running, until_empty};
use crate::scene::{DEAD, user};

on_both! {
    dead_letters_go_back_whole_and_in_order
    unlike_dead_letters_go_back_in_order
    an_entry_that_is_sent_twice_goes_back_once
    filters_choose_and_the_rest_stays_where_it_was
    age_is_counted_from_the_last_death
    a_dry_run_changes_nothing
    an_entry_that_cannot_go_back_does_not_block_the_others
    a_full_redis_and_a_missing_right_leave_everything_where_it_is
    two_replays_at_once_move_nothing_twice
    a_cancelled_replay_leaves_no_entry_half_moved
}

async fn replay_all(letters: &DeadLetters) -> Replayed {
    replay(letters, Filter::default(), ReplayOptions::default()).await
}

async fn replay(letters: &DeadLetters, filter: Filter, options: ReplayOptions) -> Replayed {
    letters.replay_all(filter, options).await.unwrap()
}

/// Also what is no dead letter.
fn any() -> Filter {
    Filter {
        any_entry: true,
        ..Filter::default()
    }
}

fn reason(reason: &str) -> Filter {
    Filter {
        reasons: vec![reason.to_owned()],
        ..Filter::default()
    }
}

fn header(name: &str, value: &str) -> Filter {
    Filter {
        headers: vec![(name.to_owned(), value.to_owned())],
        ..Filter::default()
    }
}

fn ids<'a>(ids: impl IntoIterator<Item = &'a str>) -> Filter {
    Filter {
        ids: ids.into_iter().map(str::to_owned).collect(),
        ..Filter::default()
    }
}

fn at_most(limit: u64) -> ReplayOptions {
    ReplayOptions {
        limit: Some(limit),
        ..ReplayOptions::default()
    }
}

/// To another queue, however often it was replayed before.
fn to_the_attic() -> ReplayOptions {
    ReplayOptions {
        to: Some("attic".to_owned()),
        max_replays: 10,
        ..ReplayOptions::default()
    }
}

fn numbers(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|n| n.to_string()).collect()
}

/// Each of `count` numbered messages is back in its queue, once.
async fn each_is_back_once(scene: &Scene, count: usize) {
    let moved = scene.bodies(scene.key()).await;
    assert_eq!(moved.len(), count);
    assert_eq!(moved.iter().collect::<HashSet<_>>().len(), count);
    assert_eq!(scene.length(scene.dead_key()).await, 0);
}

async fn dead_letters_go_back_whole_and_in_order(kind: Kind) {
    let scene = Scene::new(kind).await;
    let (key, dead) = (scene.key(), scene.dead_key());
    let letter = Letter {
        headers: &[("X-Tenant", "7"), ("x-retry-count", "2")],
        source_id: Some("7-1"),
        ..Letter::of(Reason::Dropped)
    };
    for n in 0..700 {
        scene.die(n.to_string(), letter).await;
    }
    let letters = scene.letters();
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let mut replay = letters.replay(ReplayOptions::default());
    let mut late = 0;
    while let Some(entries) = scan.next().await.unwrap() {
        replay.send(&entries).await.unwrap();
        // The replay leaves messages that die meanwhile.
        scene.letter(&format!("late {late}"), Reason::Dropped).await;
        late += 1;
    }
    let report = replay.report();
    assert_eq!((report.replayed, report.skipped.len()), (700, 0));
    assert_eq!(report.targets, BTreeMap::from([(key.to_owned(), 700)]));
    assert_eq!(scene.bodies(key).await, numbers(0..700), "oldest first");
    assert_eq!(scene.length(dead).await, late);

    let back = scene.all(key).await.remove(5);
    assert_eq!(back.body, "5");
    for (name, value) in [
        ("x-tenant", "7"),
        ("x-message-id", "7-1"),
        ("x-replayed", "1"),
        ("x-first-death-reason", "dropped"),
        // Attempts start anew.
        ("x-retry-count", ""),
        ("x-only-group", ""),
    ] {
        assert_eq!(back.header(name), value, "{name}");
    }
    assert_eq!(back.deaths()[0]["count"], 1);
}

/// One script moves those in a row that have the same fields and the same queue.
async fn unlike_dead_letters_go_back_in_order(kind: Kind) {
    let scene = Scene::new(kind).await;
    let large = "x".repeat(5000);
    let sets: [&[(&str, &str)]; 3] = [&[], &[("tenant", "7")], &[("note", &large), ("z", "")]];
    for n in 0..250 {
        let letter = Letter {
            headers: sets[n % 7 % 3],
            ..Letter::of(Reason::Trap)
        };
        scene.die(n.to_string(), letter).await;
    }
    assert_eq!(replay_all(&scene.letters()).await.replayed, 250);
    let back = scene.all(scene.key()).await;
    for (n, found) in back.iter().enumerate() {
        assert_eq!(found.body, n.to_string());
        assert_eq!(found.header("x-replayed"), "1");
        for set in sets {
            for &(name, value) in set {
                let is_there = sets[n % 7 % 3].contains(&(name, value));
                let expected = if is_there { value } else { "" };
                assert_eq!(found.header(name), expected, "{n}");
            }
        }
    }
    assert_eq!(back.len(), 250);
    assert_eq!(scene.length(scene.dead_key()).await, 0);
}

async fn an_entry_that_is_sent_twice_goes_back_once(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.numbered(3).await;
    let letters = scene.letters();
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let entries = scan.next().await.unwrap().unwrap();
    let twice: Vec<_> = entries.iter().chain(&entries).cloned().collect();
    let mut replay = letters.replay(ReplayOptions::default());
    replay.send(&twice).await.unwrap();
    let report = replay.report();
    assert_eq!((report.replayed, report.skipped[&Skip::Gone]), (3, 3));
    each_is_back_once(&scene, 3).await;
}

async fn filters_choose_and_the_rest_stays_where_it_was(kind: Kind) {
    let scene = Scene::new(kind).await;
    let (key, dead) = (scene.key(), scene.dead_key());
    let mut all = Vec::new();
    for n in 0..600_usize {
        let reason = [Reason::Dropped, Reason::Trap, Reason::Timeout][n % 3];
        let number = n.to_string();
        let headers = [("X-Tenant", "7"), ("number", &*number)];
        all.push(scene.letter_of(&number, reason, &headers, 0).await);
    }
    let letters = scene.letters();
    // Every condition of a filter must hold; one of its reasons, one of its ids.
    let some_ids = ids([&*all[4], &all[1], &all[2], "1-1"]);
    let traps = Filter {
        reasons: vec!["trap".to_owned()],
        ..some_ids
    };
    assert_eq!(replay(&letters, traps, at_most(9)).await.replayed, 2);
    assert_eq!(
        replay(&letters, reason("trap"), at_most(148))
            .await
            .replayed,
        148
    );
    let traps: Vec<String> = (0..200).map(|n| (3 * n + 1).to_string()).collect();
    assert_eq!(scene.bodies(key).await, traps[..150], "oldest first");
    let rest = replay(&letters, reason("trap"), ReplayOptions::default()).await;
    assert_eq!(rest.replayed, 50);
    assert_eq!(scene.bodies(key).await, traps);
    let mut rest = numbers(0..600);
    rest.retain(|number| !traps.contains(number));
    assert_eq!(scene.bodies(dead).await, rest);

    let nobody = header("X-Tenant", "8");
    assert_eq!(
        replay(&letters, nobody, to_the_attic()).await,
        Replayed::default()
    );
    let report = replay(&letters, header("NUMBER", "300"), to_the_attic()).await;
    assert_eq!(report.targets, BTreeMap::from([("attic".to_owned(), 1)]));
    let peek = letters.peek(1).await.unwrap();
    assert_eq!((peek.total, peek.by_reason["dropped"]), (399, 199));
    let newest = peek.entries[0].clone();
    assert_eq!(newest.body, "599");
    assert_eq!(
        letters.find(&newest.id).await.unwrap(),
        Some(newest.clone())
    );
    let newest = ids([&*newest.id, "1-1"]);
    assert_eq!(replay(&letters, newest, to_the_attic()).await.replayed, 1);
    assert_eq!(scene.bodies("attic").await, ["300", "599"]);
    let purged = letters.purge_all(header("number", "597")).await.unwrap();
    assert_eq!((purged, letters.length().await.unwrap()), (1, 397));
    assert_eq!(letters.purge_all(Filter::default()).await.unwrap(), 397);
    assert_eq!(scene.length(dead).await, 0);
    if kind == Kind::Stream {
        let wrong = letters.scan(ids(["x"])).await;
        assert!(matches!(wrong, Err(Error::NoId { .. })));
    }
}

async fn age_is_counted_from_the_last_death(kind: Kind) {
    let scene = Scene::new(kind).await;
    let now = u64::try_from(scene.now_ms().await).unwrap();
    for (age_ms, body) in [(7_200_000, "old"), (7_200_000, "too"), (60_000, "young")] {
        let died = now - age_ms;
        scene.letter_of(body, Reason::Trap, &[], died).await;
    }
    scene.put(scene.dead_key(), "no dead letter", &[]).await;
    let filter = Filter {
        older_than: Some(Duration::from_secs(3600)),
        ..Filter::default()
    };
    let report = replay(&scene.letters(), filter, ReplayOptions::default()).await;
    assert_eq!((report.replayed, report.skipped.len()), (2, 0));
    assert_eq!(scene.bodies(scene.key()).await, ["old", "too"]);
}

async fn a_dry_run_changes_nothing(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.numbered(40).await;
    let before = scene.dump().await;
    assert_eq!(before.len(), 1);
    let options = ReplayOptions {
        dry_run: true,
        ..ReplayOptions::default()
    };
    let report = replay(&scene.letters(), Filter::default(), options).await;
    assert_eq!((report.replayed, report.dry_run), (40, true));
    assert_eq!(scene.dump().await, before);
}

async fn an_entry_that_cannot_go_back_does_not_block_the_others(kind: Kind) {
    let scene = Scene::new(kind).await;
    let (key, dead) = (scene.key(), scene.dead_key());
    scene.obstruct("text").await;
    let typed = Letter {
        source: Some("text"),
        ..Letter::of(Reason::Trap)
    };
    for n in 0..50 {
        scene.die(n.to_string(), typed).await;
        scene.put(dead, "no dead letter", &[]).await;
    }
    let replayed = [("x-replayed", "3")];
    scene.letter_of("tired", Reason::Trap, &replayed, 0).await;
    scene.letter("last", Reason::Trap).await;
    let report = replay(&scene.letters(), any(), ReplayOptions::default()).await;
    assert_eq!(report.replayed, 1, "{report:?}");
    let skipped = [
        (Skip::MaxReplays, 1),
        (Skip::NoSource, 50),
        (Skip::Refused, 50),
    ];
    assert_eq!(report.skipped, BTreeMap::from(skipped));
    assert!(report.refusal.unwrap().contains("WRONGTYPE"));
    assert_eq!(scene.bodies(key).await, ["last"]);
    assert_eq!(scene.length(dead).await, 101);
    // With another target they go; equal ones as often as they are there.
    let report = replay(&scene.letters(), any(), to_the_attic()).await;
    assert_eq!((report.replayed, report.skipped.len()), (101, 0));
    let attic = scene.bodies("attic").await;
    let foreign = attic.iter().filter(|body| *body == "no dead letter");
    assert_eq!((foreign.count(), attic.len()), (50, 101));
}

async fn a_full_redis_and_a_missing_right_leave_everything_where_it_is(kind: Kind) {
    let lacks = match kind {
        Kind::Stream => "-xdel",
        Kind::List => "-lrem",
    };
    let scene = Scene::with(kind, user(lacks)).await;
    scene.numbered(5).await;
    let all = scene.letters();
    scene.out_of_memory(true).await;
    let failed = all.replay_all(Filter::default(), ReplayOptions::default());
    assert!(failed.await.unwrap_err().to_string().contains("OOM"));
    scene.out_of_memory(false).await;
    assert!(!scene.exists(scene.key()).await);

    let report = replay_all(&scene.letters_at(&scene.user_url())).await;
    assert_eq!(report.skipped, BTreeMap::from([(Skip::Refused, 5)]));
    assert!(report.refusal.unwrap().contains(&lacks[1..]));
    assert!(!scene.exists(scene.key()).await, "no copies pile up");
    assert_eq!(replay_all(&all).await.replayed, 5);
}

async fn two_replays_at_once_move_nothing_twice(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.numbered(2000).await;
    let (one, two) = (scene.letters(), scene.letters());
    let (one, two) = tokio::join!(replay_all(&one), replay_all(&two));
    assert_eq!(one.replayed + two.replayed, 2000);
    each_is_back_once(&scene, 2000).await;
}

async fn a_cancelled_replay_leaves_no_entry_half_moved(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.numbered(3000).await;
    for round in 0..40_u64 {
        let letters = scene.letters();
        let some = tokio::time::timeout(Duration::from_micros(round * 300), replay_all(&letters));
        if some.await.is_ok() {
            break;
        }
    }
    replay_all(&scene.letters()).await;
    // Redis carries out the requests of a cancelled replay, although no client waits for the
    // answer.
    eventually("all are moved", async || {
        scene.length(scene.dead_key()).await == 0
    })
    .await;
    each_is_back_once(&scene, 3000).await;
}

/// Only entries of streams have fields beside a body, and groups.
#[tokio::test]
async fn entries_of_any_shape_go_back_whole_and_one_of_a_missing_group_stays() {
    let scene = Scene::new(Kind::Stream).await;
    scene.raw.ask("XGROUP CREATE shared mine $ MKSTREAM").await;
    scene.raw.ask("XGROUP CREATE shared yours $").await;
    // No message, and yet whole: repeated fields, bytes, no body.
    let death = [
        ("h:x-dead-letter-source", "orders"),
        ("h:x-dead-letter-group", "workers"),
    ];
    let death = death.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
    let odd = [("a", &b"\xff\0"[..]), ("a", b"2")];
    let odd = odd.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
    let wide: Vec<_> = (0..5000)
        .map(|n| (format!("field-{n}").into(), Bytes::from("v")))
        .collect();
    for fields in [&odd[..], &wide] {
        scene.add(DEAD, "*", &[fields, &death].concat()).await;
    }
    let orphaned = Letter {
        source: Some("shared"),
        group: "gone",
        ..Letter::of(Reason::Trap)
    };
    scene.die("orphaned", orphaned).await;
    let report = replay(&scene.letters(), any(), ReplayOptions::default()).await;
    assert_eq!(report.replayed, 2, "{report:?}");
    assert_eq!(report.skipped, BTreeMap::from([(Skip::GroupGone, 1)]));
    let back = scene.contents("orders").await;
    assert_eq!(back[0][..4], [&b"a"[..], b"\xff\0", b"a", b"2"]);
    assert_eq!(back[1][9998], b"field-4999");
    assert_eq!(scene.keys().await, 3, "no record is left");
    assert_eq!(
        replay(&scene.letters(), Filter::default(), to_the_attic())
            .await
            .replayed,
        1
    );
    assert_eq!(scene.bodies("attic").await, ["orphaned"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_groups_only_the_one_it_died_in_runs_a_replayed_message() {
    let scene = Scene::new(Kind::Stream).await;
    let serve = async |group: &str| -> Arc<Metrics> {
        let options = StreamOptions {
            dead_letter: Some(DeadLetterQueue::new(DEAD)),
            ..StreamOptions::new("orders", group)
        };
        let mut settings = until_empty(running(Some(1)));
        settings.gate.group = Some(group.into());
        let queue = StreamQueue::open(scene.connector(), options).await.unwrap();
        let host = Host::on(Arc::new(queue), settings, &scene.script);
        let metrics = Arc::clone(&host.metrics);
        host.ended().await;
        metrics
    };
    scene.raw.ask("XGROUP CREATE orders mine 0 MKSTREAM").await;
    scene.raw.ask("XGROUP CREATE orders yours 0").await;
    scene.send("drop").await;
    // Both drop it: two dead letters of one message, one for each group.
    serve("mine").await;
    serve("yours").await;
    let mut dead = scene.raw.entries(DEAD).await;
    assert_eq!(dead.len(), 2);
    let yours = ids([&*dead.remove(1).0]);
    let report = replay(&scene.letters(), yours, ReplayOptions::default()).await;
    assert_eq!(report.replayed, 1);

    let starts = scene.script.starts().len();
    let metrics = serve("mine").await;
    assert_eq!(scene.script.starts().len(), starts, "not run");
    assert_eq!(metrics.other_group.get(), 1);
    assert!(scene.raw.pending("orders", "mine").await.is_empty());
    let metrics = serve("yours").await;
    assert_eq!(scene.script.starts().len(), starts + 1);
    assert_eq!(
        scene.script.starts().last().unwrap().1,
        1,
        "attempt 1 again"
    );
    assert_eq!(metrics.other_group.get(), 0);
    let again = scene.dead().await.pop().unwrap();
    assert_eq!(again.header("x-replayed"), "1");
    assert_eq!(again.deaths()[0]["count"], 2);
    assert_eq!(again.header("x-only-group"), "");
}

/// Entries of a list are distinguished by their bytes and their number.
#[tokio::test]
async fn equal_values_of_a_list_are_distinct_entries() {
    let scene = Scene::new(Kind::List).await;
    for _ in 0..700 {
        scene.push(scene.dead_key(), b"x").await;
    }
    let letters = scene.letters();
    let mut scan = letters.scan(any()).await.unwrap();
    let mut seen = 0;
    while let Some(entries) = scan.next().await.unwrap() {
        seen += entries.len();
        // Every other one goes.
        let some: Vec<_> = entries.iter().step_by(2).cloned().collect();
        letters.delete(&some).await.unwrap();
    }
    assert_eq!(seen, 700);
    let left = letters.purge_all(any()).await.unwrap();
    assert!((340..=350).contains(&left), "{left}");
}

/// The positions in a list shift while a client trims it, or moves its entries.
#[tokio::test]
async fn a_scan_of_a_list_skips_nothing_while_others_remove_entries() {
    let scene = Scene::new(Kind::List).await;
    let dead = scene.dead_key();
    scene.numbered(900).await;
    let (letters, other) = (scene.letters(), scene.letters());
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let mut seen = HashSet::new();
    while let Some(entries) = scan.next().await.unwrap() {
        let bodies = entries
            .iter()
            .map(|e| String::from_utf8_lossy(&e.body).into_owned());
        seen.extend(bodies);
        // From the end, as a bound does, and from the middle, as a replay does.
        scene.raw.ask(&format!("LTRIM {dead} 0 -8")).await;
        if let Some(entry) = entries.last() {
            other.delete(std::slice::from_ref(entry)).await.unwrap();
        }
        scene.letter("new", Reason::Trap).await;
    }
    assert_eq!(seen, numbers(0..900).into_iter().collect());
}

#[tokio::test]
async fn envelopes_stay_envelopes_and_raw_values_keep_their_history_beside_the_list() {
    let scene = Scene::new(Kind::List).await;
    let dead = scene.dead_key();
    scene.letter("a", Reason::Trap).await;
    let Found {
        mut headers, body, ..
    } = scene.only_dead().await;
    scene.delete(dead).await;
    let envelope = envelope::encode(&headers, body.as_bytes()).unwrap();
    scene.push(dead, &envelope).await;
    headers.push("x-dead-letter-framing", "raw".to_owned());
    scene
        .push(dead, &frame::encode(&headers, b"raw").unwrap())
        .await;
    // It looks like an envelope of a dead letter, but has no headers.
    scene
        .push(dead, b"{\"headers\":{},\"payload\":\"p\"}")
        .await;
    let report = replay(&scene.letters(), any(), ReplayOptions::default()).await;
    assert_eq!(report.skipped, BTreeMap::from([(Skip::NoSource, 1)]));
    let replayed = |value: Option<(Headers, Bytes)>, body: &str| {
        let (headers, payload) = value.unwrap();
        assert_eq!(
            (headers.find_str("x-replayed"), &payload[..]),
            (Some("1"), body.as_bytes())
        );
        assert_eq!(headers.find_str("x-dead-letter-framing"), None);
    };
    replayed(envelope::decode(&scene.values(scene.key()).await[0]), "a");
    replayed(frame::decode(&scene.values("{jobs}:retry").await[0]), "raw");
}
