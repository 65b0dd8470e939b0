//! One message for a tick, whatever hosts and servers do.

use std::collections::BTreeSet;
use std::time::Duration;

use hostler::publish::{Codec, Destination, List, Stream};
use hostler::schedule::{definition, zone_data};
use hostler_tests::redis::RedisOptions;
use hostler_tests::skew::Skewed;

use crate::scene::{Kind, cluster, on_both};
use crate::schedule::schedule_scene::{
    DAILY, DAY, Host, Place, Scene, YEARLY, all_settle, defined, defined_as,
};

on_both! {
    the_message_of_a_tick_has_its_id_its_body_and_its_headers
    two_hosts_publish_one_message_for_a_tick
    eight_hosts_publish_one_message_for_a_tick
    a_week_down_publishes_what_catch_up_says
    a_restart_of_redis_and_of_hosts_loses_no_tick
}

/// The id of the message of a tick.
fn id(name: &str, tick: i64) -> String {
    definition::id(name, u64::try_from(tick).unwrap())
}

async fn the_message_of_a_tick_has_its_id_its_body_and_its_headers(kind: Kind) {
    let scene = Scene::on(kind).await;
    let tenant = defined_as("nightly", DAILY, |known| {
        known.headers = [("tenant".to_owned(), "acme".to_owned())].into();
    });
    scene.define(&[tenant]).await;
    let next = scene.next("nightly").await.unwrap();
    // 2:30 of the next day, or of today.
    assert_eq!(next % DAY, 9_000_000);
    scene.back("nightly", DAY).await;
    // It is less late than a minute only if the test runs at 2:30: it is caught up.
    let mut host = scene.host();
    host.settle().await.unwrap();
    let expected = (id("nightly", next - DAY), "nightly".to_owned());
    assert_eq!(scene.messages().await, std::slice::from_ref(&expected));
    assert_eq!(scene.next("nightly").await, Some(next));
    let whole = match kind {
        Kind::Stream => format!("{:?}", scene.raw.entries("orders").await),
        Kind::List => String::from_utf8_lossy(&scene.list("jobs").await[0]).into_owned(),
    };
    let bytes = format!("{:?}", b"acme");
    assert!(
        whole.contains("acme") || whole.contains(&bytes[1..bytes.len() - 1]),
        "{whole}"
    );

    let seen = scene.seen("nightly").await.unwrap();
    assert_eq!((seen.published, seen.last_id), (1, Some(expected.0)));
    assert_eq!(seen.next_ms.len(), 3);
    // Nothing is due any more.
    let wait = host.settle().await.unwrap();
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
    assert_eq!(scene.ids().await.len(), 1);
}

async fn two_hosts_publish_one_message_for_a_tick(kind: Kind) {
    hosts_publish_one_message_for_a_tick(kind, 2).await;
}

async fn eight_hosts_publish_one_message_for_a_tick(kind: Kind) {
    hosts_publish_one_message_for_a_tick(kind, 8).await;
}

async fn hosts_publish_one_message_for_a_tick(kind: Kind, hosts: usize) {
    let scene = Scene::on(kind).await;
    scene
        .define(&[defined("a", YEARLY), defined("b", YEARLY)])
        .await;
    let mut hosts: Vec<Host> = (0..hosts).map(|_| scene.host()).collect();
    let mut expected = Vec::new();
    let now = scene.now_ms().await / 1000 * 1000;
    for n in 0..10 {
        for name in ["a", "b"] {
            let tick = now - n * 1000;
            scene.set_next(name, tick).await;
            expected.push(id(name, tick));
        }
        all_settle(&mut hosts).await;
    }
    let mut ids = scene.ids().await;
    ids.sort();
    expected.sort();
    assert_eq!(ids, expected);
    let counted: u64 = hosts
        .iter()
        .map(|host| host.metrics.schedule_ticks.get())
        .sum();
    assert_eq!(counted, 20);
}

async fn a_week_down_publishes_what_catch_up_says(kind: Kind) {
    for (catch_up, published) in [("none", 0), ("last", 1), ("3", 3), ("1000", 8)] {
        let scene = Scene::on(kind).await;
        let daily = defined_as("nightly", DAILY, |known| {
            catch_up.clone_into(&mut known.catch_up)
        });
        scene.define(&[daily]).await;
        let next = scene.next("nightly").await.unwrap();
        // Eight ticks: the last one was within the last day.
        scene.back("nightly", 8 * DAY).await;
        let mut hosts = [scene.host(), scene.host()];
        all_settle(&mut hosts).await;
        let expected = (1..=published)
            .rev()
            .map(|day| id("nightly", next - day * DAY));
        assert_eq!(
            scene.ids().await,
            expected.collect::<Vec<_>>(),
            "{catch_up}"
        );
        assert_eq!(scene.next("nightly").await, Some(next));
        let seen = scene.seen("nightly").await.unwrap();
        assert_eq!((seen.missed, seen.published), (8, published.unsigned_abs()));
        let missed: u64 = hosts
            .iter()
            .map(|host| host.metrics.schedule_missed.get())
            .sum();
        assert_eq!(missed, 8);
    }
}

/// A later look goes on where the one before has stopped.
#[tokio::test]
async fn many_missed_ticks_are_published_in_order_and_once() {
    let scene = Scene::on(Kind::Stream).await;
    let all = defined_as("often", "* * * * *", |known| {
        "250".clone_into(&mut known.catch_up)
    });
    scene.define(&[all]).await;
    let next = scene.next("often").await.unwrap();
    scene.back("often", 7 * DAY).await;
    let mut hosts: Vec<Host> = (0..4).map(|_| scene.host()).collect();
    all_settle(&mut hosts).await;
    let ids = scene.ids().await;
    // Those of the last minutes are on time.
    assert!((250..=253).contains(&ids.len()), "{}", ids.len());
    assert!(ids.is_sorted());
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    assert!(scene.next("often").await.unwrap() >= next);
}

async fn a_restart_of_redis_and_of_hosts_loses_no_tick(kind: Kind) {
    let to = match kind {
        Kind::Stream => Stream::new("orders").into(),
        Kind::List => List::new("jobs").reliable().into(),
    };
    let options = RedisOptions::default()
        .appendonly()
        .set("appendfsync", "always");
    let mut scene = Scene::of(Place { to }, options).await;
    scene.define(&[defined("nightly", YEARLY)]).await;
    let tick = scene.due("nightly").await;
    scene.server.kill();
    scene.server.restart();
    scene.reconnect().await;
    // A host starts with the same file: the tick is still due.
    let mut hosts = [
        scene.starting("orders.toml", &[defined("nightly", YEARLY)]),
        scene.host(),
    ];
    all_settle(&mut hosts).await;
    assert_eq!(scene.ids().await, [id("nightly", tick)]);
    scene.server.kill();
    scene.server.restart();
    scene.reconnect().await;
    let mut again = scene.starting("orders.toml", &[defined("nightly", YEARLY)]);
    again.settle().await.unwrap();
    assert_eq!(scene.ids().await.len(), 1);
}

#[tokio::test]
async fn a_clock_of_the_server_that_is_set_back_repeats_no_tick() {
    let skewed = Skewed::new();
    let to = Stream::new("orders").into();
    let scene = Scene::of(Place { to }, skewed.server()).await;
    scene.define(&[defined("often", "* * * * *")]).await;
    let mut hosts = [scene.host(), scene.host()];
    skewed.set(3_600);
    all_settle(&mut hosts).await;
    let before = scene.ids().await;
    assert!(!before.is_empty());
    for back in [0, -3_600, 1_800] {
        skewed.set(back);
        all_settle(&mut hosts).await;
    }
    assert_eq!(scene.ids().await, before);
}

#[tokio::test]
async fn a_tick_is_skipped_while_the_group_has_not_settled_the_message_before() {
    let scene = Scene::on(Kind::Stream).await;
    scene
        .raw
        .ask("XGROUP CREATE orders workers 0 MKSTREAM")
        .await;
    scene.raw.ask("XGROUP CREATE orders others 0").await;
    let skips = defined_as("report", YEARLY, |known| {
        known.skip_in = Some("workers".to_owned())
    });
    scene.define(&[skips]).await;
    let mut host = scene.host();
    let mut tick = async |expected: usize| {
        scene.due("report").await;
        host.settle().await.unwrap();
        assert_eq!(scene.ids().await.len(), expected);
    };
    tick(1).await;
    // Unread.
    tick(1).await;
    // Another group does not count.
    let read = |group: &str| format!("XREADGROUP GROUP {group} c STREAMS orders >");
    scene.raw.ask(&read("others")).await;
    let first = scene.raw.entries("orders").await[0].0.clone();
    scene.raw.ask(&format!("XACK orders others {first}")).await;
    tick(1).await;
    // Pending, and settled.
    scene.raw.ask(&read("workers")).await;
    tick(1).await;
    scene.raw.ask(&format!("XACK orders workers {first}")).await;
    tick(2).await;
    // It is trimmed before it is read: nobody will settle it.
    scene.raw.ask("XTRIM orders MAXLEN 0").await;
    tick(1).await;
    let seen = scene.seen("report").await.unwrap();
    assert_eq!((seen.published, seen.skipped), (3, 3));
    assert_eq!(host.metrics.schedule_skipped.get(), 3);
}

#[tokio::test]
async fn a_zone_that_is_gone_is_named_and_stops_no_other() {
    let scene = Scene::on(Kind::Stream).await;
    let lost = defined_as("lost", DAILY, |known| {
        "Europe/Atlantis".clone_into(&mut known.zone)
    });
    scene.define(&[lost, defined("good", YEARLY)]).await;
    scene.set_next("lost", 1_000).await;
    let good = scene.due("good").await;
    let mut host = scene.host();
    for _ in 0..3 {
        host.settle().await.unwrap();
    }
    assert_eq!(scene.ids().await, [id("good", good)]);
    assert_eq!(host.metrics.schedules_failing.get(), 1);
    assert!(host.metrics.schedule_overdue_seconds.get() > 60.0);
    let problem = scene.seen("lost").await.unwrap().problem.unwrap();
    assert!(problem.contains("`Europe/Atlantis`"), "{problem}");
    // A later definition is good.
    scene.define(&[defined("lost", YEARLY)]).await;
    host.settle().await.unwrap();
    assert!(scene.next("lost").await.unwrap() > scene.now_ms().await);
}

#[tokio::test]
async fn a_tick_that_redis_refuses_stays_due_and_stops_no_other() {
    let scene = Scene::on(Kind::Stream).await;
    scene.define(&[defined("nightly", YEARLY)]).await;
    let tick = scene.due("nightly").await;
    scene.obstruct("orders").await;
    let mut host = scene.host();
    let wait = host.settle().await.unwrap();
    assert_eq!(wait, Duration::from_secs(1));
    assert_eq!(host.metrics.schedules_failing.get(), 1);
    assert_eq!(scene.next("nightly").await, Some(tick));
    scene.delete("orders").await;
    // A full server refuses it as well.
    scene.out_of_memory(true).await;
    host.settle().await.unwrap_err();
    scene.out_of_memory(false).await;
    host.settle().await.unwrap();
    assert_eq!(scene.ids().await, [id("nightly", tick)]);
    assert_eq!(host.metrics.schedules_failing.get(), 0);
}

#[tokio::test]
async fn newer_zone_data_computes_the_next_ticks_again() {
    let scene = Scene::on(Kind::Stream).await;
    scene
        .define(&[defined("nightly", DAILY), defined("other", YEARLY)])
        .await;
    let next = scene.next("nightly").await.unwrap();
    // An older host has computed another one.
    scene.set_next("nightly", next + 3_600_000).await;
    let older = format!("HSET {} zones 2020a", scene.hash());
    scene.raw.ask(&older).await;
    let mut host = scene.host();
    host.settle().await.unwrap();
    assert_eq!(scene.next("nightly").await, Some(next));
    let zones = format!("HGET {} zones", scene.hash());
    assert_eq!(scene.raw.text(&zones).await, zone_data());
    // Newer than this host: it leaves them.
    scene.set_next("nightly", next + 3_600_000).await;
    let newer = format!("HSET {} zones 9999z", scene.hash());
    scene.raw.ask(&newer).await;
    host.settle().await.unwrap();
    assert_eq!(scene.next("nightly").await, Some(next + 3_600_000));
}

#[tokio::test]
async fn values_of_every_framing_have_the_id_of_the_tick() {
    for codec in [Codec::Frame, Codec::Json] {
        let scene = Scene::to(List::new("jobs").codec(codec).reliable().into()).await;
        scene.define(&[defined("nightly", YEARLY)]).await;
        let tick = scene.due("nightly").await;
        scene.host().settle().await.unwrap();
        let expected = (id("nightly", tick), "nightly".to_owned());
        assert_eq!(scene.messages().await, [expected]);
    }
    // A raw value has no place for an id: it goes the way of a delayed message.
    let to: Destination = List::new("jobs").codec(Codec::Raw).reliable().into();
    let scene = Scene::to(to).await;
    scene.define(&[defined("nightly", YEARLY)]).await;
    let tick = scene.due("nightly").await;
    scene.host().settle().await.unwrap();
    let delayed = scene.raw.ask("ZRANGE {jobs}:delayed 0 -1").await;
    let delayed: Vec<Vec<u8>> = redis::from_redis_value(delayed).unwrap();
    assert_eq!(delayed.len(), 1);
    let text = String::from_utf8_lossy(&delayed[0]);
    assert!(text.contains(&id("nightly", tick)), "{text}");
}

#[tokio::test]
async fn all_keys_of_schedules_are_in_the_slot_of_the_queue() {
    for queue in ["orders", "{eu}:orders"] {
        let to = Stream::new(queue).into();
        let scene = Scene::of(Place { to }, cluster(RedisOptions::default())).await;
        scene.take_all_slots().await;
        let store = scene.store();
        let one = [defined("nightly", YEARLY)];
        store.define("orders.toml", &one).await.unwrap();
        let (_, all) = store.all().await.unwrap();
        assert_eq!(all.len(), 1);
        assert!(store.run("nightly", "token").await.unwrap().is_some());
        let mut host = scene.host();
        host.settle().await.unwrap();
        assert_eq!(scene.ids().await.len(), 1);
        store.pause("nightly").await.unwrap();
        store.resume("nightly").await.unwrap();
        store.remove("nightly").await.unwrap();
        assert_eq!(scene.keys().await, 1, "only the queue is left");
    }
}

#[tokio::test]
async fn a_queue_without_schedules_costs_one_look() {
    let scene = Scene::on(Kind::Stream).await;
    let mut host = scene.host();
    // Connecting, and loading the scripts.
    host.keeper.round().await.unwrap();
    let calls = scene.calls("evalsha").await;
    let writes = scene.keys().await;
    assert_eq!(host.keeper.round().await.unwrap(), Duration::from_secs(15));
    assert_eq!(scene.calls("evalsha").await, calls + 1);
    assert_eq!((writes, scene.keys().await), (0, 0));
    // A file without schedules writes nothing either.
    let mut other = scene.starting("orders.toml", &[]);
    assert_eq!(other.keeper.round().await.unwrap(), Duration::from_secs(15));
    assert_eq!(scene.keys().await, 0);
}
