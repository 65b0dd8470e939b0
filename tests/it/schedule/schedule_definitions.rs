//! Definitions: of files that change and disagree, of the command line, paused ones, runs by hand.

use hostler::schedule::{CLI, Changed, Defined, definition};

use crate::scene::{Kind, on_both};
use crate::schedule::schedule_scene::{DAILY, DAY, FILE, Scene, YEARLY, defined, defined_as};

on_both! {
    a_rolling_deploy_removes_a_schedule
    a_paused_schedule_has_no_ticks_and_misses_none
    a_run_by_hand_is_one_message_beside_the_ticks
    nothing_is_left_of_the_last_schedule
}

async fn a_rolling_deploy_removes_a_schedule(kind: Kind) {
    let scene = Scene::on(kind).await;
    let (kept, gone) = (defined("kept", YEARLY), defined("gone", YEARLY));
    let old = [kept.clone(), gone];
    let mut hosts = [scene.starting(FILE, &old), scene.starting(FILE, &old)];
    for host in &mut hosts {
        host.settle().await.unwrap();
    }
    assert_eq!(scene.names().await, ["gone", "kept"]);
    // The deploy has reached one host. The other one goes on, and does not write its file again.
    hosts[0] = scene.starting(FILE, &[kept]);
    hosts[0].settle().await.unwrap();
    assert_eq!(scene.names().await, ["kept"]);
    scene.due("kept").await;
    hosts[1].settle().await.unwrap();
    assert_eq!(scene.names().await, ["kept"]);
    assert_eq!(scene.ids().await.len(), 1);
    // The last one goes, with a file that has none.
    let mut host = scene.starting(FILE, &[]);
    host.settle().await.unwrap();
    assert!(scene.names().await.is_empty());
}

/// The cron expression of a schedule.
async fn cron(scene: &Scene, name: &str) -> String {
    scene.seen(name).await.unwrap().cron
}

#[tokio::test]
async fn the_last_file_that_starts_wins_and_those_of_the_command_line_stay() {
    let scene = Scene::on(Kind::Stream).await;
    let store = scene.store();
    let start = async |file: &str, all: &[Defined]| {
        let of_file = |one: &Defined| {
            let known = one.definition.clone();
            Defined::new(&one.name, known, one.body.clone(), file)
        };
        let all: Vec<_> = all.iter().map(of_file).collect();
        scene.starting(file, &all).settle().await.unwrap();
    };
    start("a.toml", &[defined("both", DAILY), defined("of-a", DAILY)]).await;
    start("b.toml", &[defined("both", YEARLY), defined("of-b", DAILY)]).await;
    assert_eq!(scene.names().await, ["both", "of-a", "of-b"]);
    assert_eq!(cron(&scene, "both").await, YEARLY);
    start("a.toml", &[defined("both", DAILY)]).await;
    assert_eq!(scene.names().await, ["both", "of-b"]);
    assert_eq!(cron(&scene, "both").await, DAILY);

    let by_hand = |name: &str, cron: &str| {
        let one = defined(name, cron);
        Defined::new(name, one.definition, one.body, CLI)
    };
    let added = store.add(&by_hand("mine", YEARLY)).await.unwrap();
    assert!(added.taken.is_empty());
    // That of a file is not replaced; one of the command line is.
    assert_eq!(
        store.add(&by_hand("both", YEARLY)).await.unwrap().taken,
        ["both"]
    );
    assert!(
        store
            .add(&by_hand("mine", DAILY))
            .await
            .unwrap()
            .taken
            .is_empty()
    );
    assert_eq!(cron(&scene, "mine").await, DAILY);
    start("a.toml", &[defined("mine", YEARLY)]).await;
    assert_eq!(scene.names().await, ["mine", "of-b"]);
    assert_eq!(cron(&scene, "mine").await, DAILY);
}

#[tokio::test]
async fn a_file_for_which_there_is_no_room_is_written_as_soon_as_there_is() {
    let scene = Scene::on(Kind::Stream).await;
    let store = scene.store();
    let many = |count: usize| -> Vec<Defined> {
        let one = |n| {
            Defined::new(
                &format!("n{n}"),
                defined("n", YEARLY).definition,
                "x".into(),
                "b.toml",
            )
        };
        (0..count).map(one).collect()
    };
    assert!(!store.define("b.toml", &many(999)).await.unwrap().is_full);
    let mut host = scene.starting(FILE, &[defined("one", YEARLY), defined("two", YEARLY)]);
    host.settle().await.unwrap();
    host.settle().await.unwrap();
    assert_eq!(host.metrics.schedules_failing.get(), 2);
    assert_eq!(scene.names().await.len(), 999);
    // Others are published meanwhile.
    scene.due("n7").await;
    host.settle().await.unwrap();
    assert_eq!(scene.ids().await.len(), 1);
    assert!(!store.define("b.toml", &many(998)).await.unwrap().is_full);
    host.settle().await.unwrap();
    assert_eq!(host.metrics.schedules_failing.get(), 0);
    let names = scene.names().await;
    assert!(names.len() == 1000 && names.contains(&"two".to_owned()));
}

#[tokio::test]
async fn a_definition_with_another_time_has_another_next_tick_and_one_with_another_body_has_not() {
    let scene = Scene::on(Kind::Stream).await;
    scene.define(&[defined("nightly", YEARLY)]).await;
    let tick = scene.due("nightly").await;
    let other = defined_as("nightly", YEARLY, |known| {
        known.headers = [("tenant".to_owned(), "acme".to_owned())].into();
    });
    scene.define(&[other]).await;
    assert_eq!(scene.next("nightly").await, Some(tick));
    scene.define(&[defined("nightly", DAILY)]).await;
    let next = scene.next("nightly").await.unwrap();
    assert!(next > scene.now_ms().await && next % DAY == 9_000_000);
}

#[tokio::test]
async fn a_tick_of_a_definition_that_changes_meanwhile_is_not_published() {
    let scene = Scene::on(Kind::Stream).await;
    scene.define(&[defined("nightly", YEARLY)]).await;
    scene.due("nightly").await;
    let store = scene.store();
    assert_eq!(store.pause("nightly").await.unwrap(), Changed::Done);
    let mut host = scene.host();
    host.settle().await.unwrap();
    assert!(scene.ids().await.is_empty());
    assert_eq!(store.pause("unknown").await.unwrap(), Changed::Unknown);
    assert_eq!(store.resume("unknown").await.unwrap(), Changed::Unknown);
    assert_eq!(store.remove("unknown").await.unwrap(), Changed::Unknown);
    assert_eq!(store.run("unknown", "token").await.unwrap(), None);
}

async fn a_paused_schedule_has_no_ticks_and_misses_none(kind: Kind) {
    let scene = Scene::on(kind).await;
    scene.define(&[defined("nightly", DAILY)]).await;
    let next = scene.next("nightly").await;
    let store = scene.store();
    for _ in 0..2 {
        assert_eq!(store.pause("nightly").await.unwrap(), Changed::Done);
    }
    assert_eq!(scene.next("nightly").await, None);
    assert!(scene.seen("nightly").await.unwrap().paused);
    // A host that starts leaves it paused.
    let mut host = scene.starting(FILE, &[defined("nightly", DAILY)]);
    host.settle().await.unwrap();
    assert_eq!(scene.next("nightly").await, None);
    for _ in 0..2 {
        assert_eq!(store.resume("nightly").await.unwrap(), Changed::Done);
    }
    assert_eq!(scene.next("nightly").await, next);
    host.settle().await.unwrap();
    assert!(scene.ids().await.is_empty());
    let seen = scene.seen("nightly").await.unwrap();
    assert_eq!((seen.paused, seen.missed), (false, 0));
}

async fn a_run_by_hand_is_one_message_beside_the_ticks(kind: Kind) {
    let scene = Scene::on(kind).await;
    scene.define(&[defined("nightly", YEARLY)]).await;
    let store = scene.store();
    let next = scene.next("nightly").await;
    // Also while it is paused.
    store.pause("nightly").await.unwrap();
    let asked = store.run("nightly", "one").await.unwrap().unwrap();
    assert_eq!(store.run("nightly", "one").await.unwrap(), Some(asked));
    let mut host = scene.host();
    host.settle().await.unwrap();
    let id = definition::run_id("nightly", asked);
    assert_eq!(scene.ids().await, std::slice::from_ref(&id));
    // Its reply was lost, and it is asked for again.
    assert_eq!(store.run("nightly", "one").await.unwrap(), Some(asked));
    host.settle().await.unwrap();
    assert_eq!(scene.ids().await.len(), 1);
    store.resume("nightly").await.unwrap();
    assert_eq!(scene.next("nightly").await, next);
    assert_eq!(definition::origin(&id).unwrap().0, "nightly");
}

async fn nothing_is_left_of_the_last_schedule(kind: Kind) {
    let scene = Scene::on(kind).await;
    scene
        .define(&[defined("one", YEARLY), defined("two", DAILY)])
        .await;
    let store = scene.store();
    store.run("one", "token").await.unwrap();
    for name in ["one", "two"] {
        assert!(scene.exists(&scene.hash()).await);
        assert_eq!(store.remove(name).await.unwrap(), Changed::Done);
    }
    assert_eq!(scene.keys().await, 0);
}
