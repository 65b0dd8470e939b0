//! Replays that are interrupted or run at the same time, in a slot and across slots: no message is lost
//! or moved twice, and each move that was begun is finished. On streams and on reliable lists.

use std::collections::BTreeMap;

use hostler::dead_letter::scripts;
use hostler::dead_letter::{DeadLetters, Error, Filter, ReplayOptions, Replayed, Skip};
use hostler::redis::script::Script;
use hostler_tests::command::{Host, hostler};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::{PATIENCE, RedisOptions, eventually};
use nix::sys::signal::Signal;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::scene::user;

on_both! {
    two_replays_at_once_across_slots_move_nothing_twice
    an_entry_that_another_replay_moves_is_left_and_reported
    the_next_replay_finishes_an_interrupted_move_once
    a_replay_with_another_target_finishes_an_interrupted_move
    a_former_owner_writes_no_second_copy
    a_former_owner_ends_no_hold_but_its_own
    the_same_replay_finishes_its_interrupted_move_at_once
    a_replay_that_is_killed_leaves_no_entry_half_moved_in_a_slot
    a_replay_that_is_killed_leaves_no_entry_half_moved_across_slots
    an_interrupted_replay_says_how_far_it_came_in_a_slot
    an_interrupted_replay_says_how_far_it_came_across_slots
    a_replay_without_its_rights_leaves_no_copy
}

async fn across(kind: Kind) -> Scene {
    Scene::across_slots(kind, RedisOptions::default()).await
}

async fn replay_to(letters: &DeadLetters, to: Option<&str>) -> Result<Replayed, Error> {
    let options = ReplayOptions {
        to: to.map(str::to_owned),
        ..ReplayOptions::default()
    };
    letters.replay_all(Filter::default(), options).await
}

async fn replay(letters: &DeadLetters) -> Replayed {
    replay_to(letters, None).await.unwrap()
}

fn skipped(report: &Replayed) -> Vec<(Skip, u64)> {
    report.skipped.iter().map(|(skip, n)| (*skip, *n)).collect()
}

/// The bodies of both queues together, each once.
async fn each_once(scene: &Scene, count: usize) {
    let mut all = scene.bodies(scene.key()).await;
    all.extend(scene.bodies(scene.dead_key()).await);
    let mut numbers: Vec<usize> = all.iter().map(|body| body.parse().unwrap()).collect();
    numbers.sort_unstable();
    let expected: Vec<usize> = (0..count).collect();
    assert_eq!(numbers, expected);
}

/// The records of moves that are under way, as Redis has them.
async fn moving(scene: &Scene) -> Vec<String> {
    let pattern = format!("KEYS {{{}}}:moving:*", scene.dead_key());
    redis::from_redis_value(scene.raw.ask(&pattern).await).unwrap()
}

/// Set the time until which replays hold their entries.
async fn hold_until(scene: &Scene, epoch_ms: u64) {
    for key in moving(scene).await {
        scene.raw.ask(&format!("HSET {key} until {epoch_ms}")).await;
    }
}

async fn let_holds_lapse(scene: &Scene) {
    hold_until(scene, 1).await;
}

async fn let_holds_last(scene: &Scene) {
    hold_until(scene, 9_999_999_999_999).await;
}

async fn two_replays_at_once_across_slots_move_nothing_twice(kind: Kind) {
    let scene = across(kind).await;
    scene.numbered(300).await;
    let (one, two) = (scene.letters(), scene.letters());
    let (one, two) = tokio::join!(replay(&one), replay(&two));
    assert_eq!(one.replayed + two.replayed, 300, "{one:?} {two:?}");
    for skip in skipped(&one).into_iter().chain(skipped(&two)) {
        assert!(matches!(skip.0, Skip::Gone | Skip::Moving), "{skip:?}");
    }
    each_once(&scene, 300).await;
    assert_eq!(scene.length(scene.key()).await, 300);
    let left = u64::from(kind == Kind::Stream);
    let keys = u64::try_from(scene.raw.number("DBSIZE").await).unwrap();
    assert_eq!(keys, 1 + left, "no record is left");
}

async fn an_entry_that_another_replay_moves_is_left_and_reported(kind: Kind) {
    let scene = across(kind).await;
    scene.numbered(100).await;
    interrupt(&scene, &scripts::MOVE_COPY).await;
    let_holds_last(&scene).await;
    // The interrupted replay might go on. The entry that is left is counted once, however many pages
    // there are.
    let report = replay(&scene.letters()).await;
    assert_eq!(
        (report.replayed, skipped(&report)),
        (99, vec![(Skip::Moving, 1)])
    );
    assert_eq!(
        scene.bodies(scene.dead_key()).await,
        ["0"],
        "it is still there"
    );
    let shown = scene.dlq("replay", &[]).ok().stdout;
    assert!(
        shown.contains("left  1  being moved by another replay"),
        "{shown}"
    );
    let shown = scene.dlq("replay", &["--json"]).ok().json();
    assert_eq!(shown["skipped"], serde_json::json!({"moving": 1}));
    assert_eq!(shown["replayed"], 0);
}

/// Let a replay of the oldest entry die right after this step, which Redis has done.
async fn interrupt(scene: &Scene, step: &'static Script) {
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    let letters = scene.letters_at(&proxy.url());
    // Redis would refuse a script that is not loaded.
    for script in scripts::ALL {
        let load = [b"SCRIPT", b"LOAD".as_slice(), script.source().as_bytes()];
        scene.raw.ask_words(&load).await;
    }
    let digest = redis::Script::new(step.source()).get_hash().to_owned();
    proxy.cut_reply(digest, 0);
    let options = ReplayOptions {
        limit: Some(1),
        ..ReplayOptions::default()
    };
    let cut = letters.replay_all(Filter::default(), options).await;
    assert!(matches!(cut, Err(Error::Redis(_))), "{cut:?}");
    assert_eq!(proxy.replies_cut(), 1);
}

async fn the_next_replay_finishes_an_interrupted_move_once(kind: Kind) {
    for step in [
        &scripts::MOVE_HOLD,
        &scripts::MOVE_COPY,
        &scripts::MOVE_DONE,
    ] {
        let scene = across(kind).await;
        scene.numbered(3).await;
        interrupt(&scene, step).await;
        let is_copied = u64::from(step.name() != scripts::MOVE_HOLD.name());
        let is_there = u64::from(step.name() != scripts::MOVE_DONE.name());
        assert_eq!(scene.length(scene.key()).await, is_copied, "{step:?}");
        assert_eq!(
            scene.length(scene.dead_key()).await,
            2 + is_there,
            "{step:?}"
        );
        let_holds_lapse(&scene).await;
        let report = replay(&scene.letters()).await;
        assert_eq!(report.replayed, 2 + is_there, "{step:?}");
        assert_eq!(skipped(&report), []);
        each_once(&scene, 3).await;
        assert_eq!(scene.length(scene.key()).await, 3);
        assert!(moving(&scene).await.is_empty());
        // Records of finished moves expire.
        let pattern = format!("KEYS {{{}}}:moved:*", scene.key());
        let records: Vec<String> = redis::from_redis_value(scene.raw.ask(&pattern).await).unwrap();
        assert_eq!(records.len(), 1, "{step:?}");
        for record in records {
            assert!(scene.raw.number(&format!("PTTL {record}")).await > 0);
        }
    }
}

async fn a_replay_with_another_target_finishes_an_interrupted_move(kind: Kind) {
    for step in [&scripts::MOVE_HOLD, &scripts::MOVE_COPY] {
        for in_a_slot in [false, true] {
            let scene = across(kind).await;
            // In a slot, one script could move it.
            let attic = match in_a_slot {
                false => "attic".to_owned(),
                true => format!("{{{}}}:attic", scene.dead_key()),
            };
            scene.numbered(1).await;
            interrupt(&scene, step).await;
            let_holds_last(&scene).await;
            let early = replay_to(&scene.letters(), Some(&attic)).await.unwrap();
            assert_eq!(
                (early.replayed, skipped(&early)),
                (0, vec![(Skip::Moving, 1)])
            );
            let_holds_lapse(&scene).await;
            let report = replay_to(&scene.letters(), Some(&attic)).await.unwrap();
            // A copy that was written stays; else the entry goes to the new target.
            let is_copied = step.name() == scripts::MOVE_COPY.name();
            let to = match is_copied {
                true => scene.key().to_owned(),
                false => attic.clone(),
            };
            assert_eq!(report.targets, BTreeMap::from([(to, 1)]), "{step:?}");
            assert_eq!(scene.length(scene.key()).await, u64::from(is_copied));
            assert_eq!(scene.length(&attic).await, u64::from(!is_copied));
            assert_eq!(scene.length(scene.dead_key()).await, 0);
        }
    }
}

/// A replay stood still after it had held an entry. Another one took up the move, and ended it, to the
/// same target or to another one. Then the copy of the first one arrives.
async fn a_former_owner_writes_no_second_copy(kind: Kind) {
    for to in [None, Some("attic")] {
        let scene = across(kind).await;
        scene.numbered(1).await;
        interrupt(&scene, &scripts::MOVE_HOLD).await;
        let held = moving(&scene).await.remove(0);
        let token = scene.raw.text(&format!("HGET {held} token")).await;
        let_holds_lapse(&scene).await;
        let report = replay_to(&scene.letters(), to).await.unwrap();
        let target = to.unwrap_or(scene.key());
        assert_eq!(report.targets, BTreeMap::from([(target.to_owned(), 1)]));

        let record = format!("{{{}}}:moved:{token}", scene.key());
        let digest = redis::Script::new(scripts::MOVE_COPY.source())
            .get_hash()
            .to_owned();
        let late = ["EVALSHA", &digest, "2", scene.key(), &record, "60000"];
        let copy = match kind {
            Kind::Stream => &["XADD", "_payload", "0"][..],
            Kind::List => &["LPUSH", "0"],
        };
        let words: Vec<&[u8]> = late
            .iter()
            .chain(copy)
            .map(|word| word.as_bytes())
            .collect();
        scene.raw.ask_words(&words).await;
        let copies = scene.length(scene.key()).await + scene.length("attic").await;
        assert_eq!(copies, 1, "to {to:?}");
    }
}

/// A replay stands still between its hold and its copy, which Redis then refuses. Meanwhile another one
/// may have taken up the move.
async fn a_former_owner_ends_no_hold_but_its_own(kind: Kind) {
    let rule = match kind {
        Kind::Stream => "-xadd",
        Kind::List => "-lpush",
    };
    for is_former in [false, true] {
        let scene = Scene::across_slots(kind, user(rule)).await;
        scene.numbered(1).await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
        let url = scene.user_url().replace(&scene.url(), &proxy.url());
        let letters = scene.letters_at(&url);
        let digest = redis::Script::new(scripts::MOVE_COPY.source())
            .get_hash()
            .to_owned();
        proxy.pause_at(digest);
        let (report, ()) = tokio::join!(replay(&letters), async {
            eventually("its copy is on the way", async || proxy.is_paused()).await;
            let held = moving(&scene).await;
            assert_eq!(held.len(), 1);
            if is_former {
                let taken_up = format!("HSET {} owner another", held[0]);
                scene.raw.ask(&taken_up).await;
            }
            proxy.resume();
        });
        assert_eq!(skipped(&report), [(Skip::Refused, 1)]);
        assert_eq!(moving(&scene).await.len(), usize::from(is_former));
        assert_eq!(scene.length(scene.dead_key()).await, 1);
    }
}

async fn the_same_replay_finishes_its_interrupted_move_at_once(kind: Kind) {
    let scene = across(kind).await;
    scene.numbered(3).await;
    let proxy = Proxy::to_socket(&scene.server.socket(), 1).unwrap();
    let letters = scene.letters_at(&proxy.url());
    let mut scan = letters.scan(Filter::default()).await.unwrap();
    let entries = scan.next().await.unwrap().unwrap();
    let mut replay = letters.replay(ReplayOptions::default());
    replay.send(&entries[..1]).await.unwrap();
    let digest = redis::Script::new(scripts::MOVE_COPY.source())
        .get_hash()
        .to_owned();
    proxy.cut_reply(digest, 0);
    assert!(replay.send(&entries[1..]).await.is_err());
    replay.send(&entries[1..]).await.unwrap();
    assert_eq!(
        (replay.report().replayed, skipped(replay.report())),
        (3, vec![])
    );
    each_once(&scene, 3).await;
    assert_eq!(scene.length(scene.key()).await, 3);
}

async fn a_replay_that_is_killed_leaves_no_entry_half_moved_in_a_slot(kind: Kind) {
    killed(Scene::new(kind).await, 5000).await;
}

async fn a_replay_that_is_killed_leaves_no_entry_half_moved_across_slots(kind: Kind) {
    killed(across(kind).await, 1500).await;
}

/// Kill one replay after the other in the middle of its work.
async fn killed(scene: Scene, count: usize) {
    scene.numbered(count).await;
    let mut killed = 0;
    for round in 0..6_u64 {
        let before = scene.length(scene.key()).await;
        let mut running = Host::spawn(hostler(scene.words("replay", &[])));
        let begun = std::time::Instant::now();
        loop {
            let moved = scene.length(scene.key()).await - before;
            if moved > 7 * round || scene.length(scene.dead_key()).await == 0 {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", running.stderr());
        }
        running.kill();
        killed += u64::from(scene.length(scene.dead_key()).await > 0);
        let_holds_lapse(&scene).await;
    }
    assert!(killed > 0, "none was killed in the middle of its work");
    // Redis carries out the last request of a killed replay.
    eventually("all are moved", async || {
        let_holds_lapse(&scene).await;
        replay(&scene.letters()).await;
        scene.length(scene.dead_key()).await == 0
    })
    .await;
    each_once(&scene, count).await;
    assert_eq!(scene.length(scene.key()).await, count as u64);
}

async fn an_interrupted_replay_says_how_far_it_came_in_a_slot(kind: Kind) {
    interrupted(Scene::new(kind).await).await;
}

async fn an_interrupted_replay_says_how_far_it_came_across_slots(kind: Kind) {
    interrupted(across(kind).await).await;
}

async fn interrupted(scene: Scene) {
    scene.numbered(300).await;
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let before = scene.length(scene.key()).await;
        let words = scene.words("replay", &["--rate", "10", "--json"]);
        let mut running = Host::spawn(hostler(words));
        eventually("some are moved", async || {
            scene.length(scene.key()).await > before
        })
        .await;
        running.signal(signal);
        let ended = running.end();
        assert_eq!(ended.code, code, "{ended:?}");
        let moved = scene.length(scene.key()).await;
        assert_eq!(ended.json()["replayed"], moved - before);
        assert_eq!(scene.length(scene.dead_key()).await, 300 - moved);
        each_once(&scene, 300).await;
        assert!(moving(&scene).await.is_empty(), "nothing is half moved");
    }
}

async fn a_replay_without_its_rights_leaves_no_copy(kind: Kind) {
    let rules = match kind {
        Kind::Stream => ["-xdel", "-set", "-hset"],
        Kind::List => ["-lrem", "-set", "-hset"],
    };
    for rule in rules {
        let scene = Scene::across_slots(kind, user(rule)).await;
        scene.numbered(3).await;
        for _ in 0..2 {
            let report = replay(&scene.letters_at(&scene.user_url())).await;
            assert_eq!(skipped(&report), [(Skip::Refused, 3)], "{rule}");
            let why = report.refusal.unwrap();
            assert!(why.contains("NOPERM"), "{why}");
        }
        assert_eq!(scene.length(scene.key()).await, 0, "no copies: {rule}");
        let report = replay(&scene.letters()).await;
        assert_eq!(report.replayed, 3, "nothing is held: {rule}");
    }
}
