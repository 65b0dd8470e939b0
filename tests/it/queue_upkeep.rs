//! Retention, consumers that are gone, repair, and what `inspect` reports.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::inspect::{self, Report};
use hostler::queue::stream::{PARKED_CONSUMER, Retention, StreamOptions};
use hostler::queue::{Backlog, Class, Queue, Repaired, Reply};

use crate::queue_scene::{
    DEAD, FENCES, GROUP, KEY, PARKED, Scene, connector, dead_letter, options, orphans, park,
    settle, text,
};

fn retaining(retention: Retention) -> StreamOptions {
    StreamOptions {
        retention,
        ..options()
    }
}

async fn length(scene: &Scene) -> i64 {
    scene.raw.number(&format!("XLEN {KEY}")).await
}

#[tokio::test]
async fn keep_trims_nothing() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &vec!["x"; 300]).await;
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 0);
    assert_eq!(length(&scene).await, 300);
}

#[tokio::test]
async fn acked_trims_behind_the_slowest_group() {
    let scene = Scene::new().await;
    let host = scene.host_with(retaining(Retention::Acked)).await;
    let slow = scene
        .host_with(StreamOptions {
            group: "slow".into(),
            ..options()
        })
        .await;
    let claims = scene.read(&host, &vec!["x"; 1000]).await;
    host.acknowledge(&claims).await.unwrap();
    // The other group has read nothing.
    assert_eq!(host.maintain().await.unwrap().trimmed, 0);
    let theirs: Vec<_> = slow.fetch(600, Duration::ZERO).await.unwrap();
    let theirs: Vec<_> = theirs.into_iter().map(Arc::new).collect();
    // It has read 600 and settled none, then all but the 251st.
    assert_eq!(host.maintain().await.unwrap().trimmed, 0);
    slow.acknowledge(&theirs[..250]).await.unwrap();
    slow.acknowledge(&theirs[251..]).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 250);
    assert_eq!(length(&scene).await, 750);
    slow.acknowledge(&theirs[250..251]).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 350);
    // What it has not read is still there for it.
    assert_eq!(slow.fetch(999, Duration::ZERO).await.unwrap().len(), 400);
}

#[tokio::test]
async fn acked_trims_everything_when_everything_is_done_and_numbers_stay_exact() {
    let scene = Scene::new().await;
    let host = scene.host_with(retaining(Retention::Acked)).await;
    // Sequence numbers beyond what a double can count.
    for id in [
        "5-18446744073709551600",
        "5-18446744073709551614",
        "5-18446744073709551615",
        "6-9007199254740993",
        "10-1",
    ] {
        scene.raw.ask(&format!("XADD {KEY} {id} _payload x")).await;
    }
    let claims = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    host.acknowledge(&claims[..1]).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 1);
    host.acknowledge(&claims[2..]).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 0);
    host.acknowledge(&claims[1..]).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 4);
    assert_eq!(length(&scene).await, 0);
    // The group goes on.
    scene.raw.ask(&format!("XADD {KEY} 11-1 _payload x")).await;
    assert_eq!(host.fetch(9, Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn acked_keeps_a_last_entry_that_no_number_comes_behind() {
    let scene = Scene::new().await;
    let host = scene.host_with(retaining(Retention::Acked)).await;
    for id in ["5-1", "5-18446744073709551615"] {
        scene.raw.ask(&format!("XADD {KEY} {id} _payload x")).await;
    }
    let claims = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 1);
    assert_eq!(length(&scene).await, 1);
    scene.raw.ask(&format!("XADD {KEY} 6-1 _payload x")).await;
    let claims = host.fetch(9, Duration::ZERO).await.unwrap();
    let claims: Vec<_> = claims.into_iter().map(Arc::new).collect();
    host.acknowledge(&claims).await.unwrap();
    assert_eq!(host.maintain().await.unwrap().trimmed, 2);
}

#[tokio::test]
async fn acked_trims_much_in_bounded_steps() {
    let scene = Scene::new().await;
    let host = scene.host_with(retaining(Retention::Acked)).await;
    let claims = scene.read(&host, &vec!["x"; 12_000]).await;
    host.acknowledge(&claims).await.unwrap();
    let first = host.maintain().await.unwrap().trimmed;
    assert!((1..=10_000).contains(&first), "{first}");
    let second = host.maintain().await.unwrap().trimmed;
    assert_eq!(first + second, 12_000);
}

#[tokio::test]
async fn maxlen_trims_what_is_done_and_says_when_it_cannot() {
    let scene = Scene::new().await;
    let host = scene.host_with(retaining(Retention::MaxLen(200))).await;
    let claims = scene.read(&host, &vec!["x"; 1000]).await;
    // All pending: nothing may go.
    let held = host.maintain().await.unwrap();
    assert_eq!((held.trimmed, held.held_back), (0, true));
    host.acknowledge(&claims[..500]).await.unwrap();
    let some = host.maintain().await.unwrap();
    assert!(some.trimmed > 300 && some.trimmed <= 500, "{some:?}");
    assert!(some.held_back);
    assert_eq!(host.renew(&claims[500..501]).await.unwrap(), [Reply::Done]);
    host.acknowledge(&claims[500..]).await.unwrap();
    let rest = host.maintain().await.unwrap();
    assert!(!rest.held_back, "{rest:?}");
    let left = length(&scene).await;
    assert!((200..300).contains(&left), "{left}");
    // Within the length, unread entries are no reason for a warning.
    scene.raw.add(KEY, "unread").await;
    assert!(!host.maintain().await.unwrap().held_back);
}

#[tokio::test]
async fn consumers_are_deleted_only_when_empty_and_long_gone() {
    let scene = Scene::new().await;
    let (dead, host) = (scene.host().await, scene.host().await);
    let claims = scene.read(&dead, &["a"]).await;
    scene
        .raw
        .ask(&format!("XGROUP CREATECONSUMER {KEY} {GROUP} fresh"))
        .await;
    // Nobody has been gone for an hour.
    assert_eq!(host.maintain().await.unwrap().consumers_removed, 0);
    // With something pending a consumer stays, and so does its delivery.
    dead.leave().await.unwrap();
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((dead.consumer().to_owned(), 1))
    );
    dead.acknowledge(&claims).await.unwrap();
    dead.leave().await.unwrap();
    dead.leave().await.unwrap();
    let report = report(&scene).await;
    let names: Vec<_> = report.consumers.iter().map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["fresh"]);
}

#[tokio::test]
async fn an_hour_of_absence_removes_an_empty_consumer() {
    // The server's clock cannot be turned: the script is asked as `maintain` asks it, with 0 ms.
    let scene = Scene::new().await;
    let host = scene.host().await;
    for name in ["empty", "holding"] {
        scene.raw.add(KEY, name).await;
        let read = format!("XREADGROUP GROUP {GROUP} {name} COUNT 1 STREAMS {KEY} >");
        scene.raw.ask(&read).await;
    }
    let pending = scene.raw.pending(KEY, GROUP).await;
    scene
        .raw
        .ask(&format!("XACK {KEY} {GROUP} {}", pending[0].id))
        .await;
    scene
        .raw
        .ask(&format!(
            "XGROUP CREATECONSUMER {KEY} {GROUP} {PARKED_CONSUMER}"
        ))
        .await;
    let script = hostler::redis::script::Script::Consumers.source();
    let words = |max: &'static str, only: &'static str| {
        let mut words: Vec<Vec<u8>> = ["EVAL", script, "2", KEY, FENCES, GROUP, "0", max, only]
            .iter()
            .map(|word| word.as_bytes().to_vec())
            .collect();
        words.push(host.consumer().as_bytes().to_vec());
        words.push(PARKED_CONSUMER.as_bytes().to_vec());
        words
    };
    let ask = |words: Vec<Vec<u8>>| {
        let raw = scene.raw.clone();
        async move {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            raw.ask_words(&words).await
        }
    };
    assert_eq!(ask(words("100", "nobody")).await, redis::Value::Int(0));
    assert_eq!(ask(words("0", "")).await, redis::Value::Int(0));
    assert_eq!(ask(words("100", "")).await, redis::Value::Int(1));
    let names: Vec<_> = report(&scene)
        .await
        .consumers
        .into_iter()
        .map(|c| c.name)
        .collect();
    assert_eq!(names, ["holding", PARKED_CONSUMER]);
    assert_eq!(scene.raw.pending(KEY, GROUP).await.len(), 1);
}

#[tokio::test]
async fn a_destroyed_group_goes_on_behind_what_was_seen() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["held", "parked", "acked"]).await;
    settle(&host, &claims[1], 1, park(1, Duration::from_secs(60))).await;
    host.acknowledge(&claims[2..]).await.unwrap();
    scene
        .raw
        .ask(&format!("XGROUP DESTROY {KEY} {GROUP}"))
        .await;
    scene.raw.add(KEY, "new").await;
    let error = host.fetch(1, Duration::ZERO).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let held = [(Arc::clone(&claims[0]), 4)];
    assert_eq!(host.repair(&held).await.unwrap().repaired, Repaired::Group);
    // A repeat after a lost reply.
    assert_eq!(host.repair(&held).await.unwrap().repaired, Repaired::Intact);
    assert_eq!(
        scene.held(claims[0].id).await,
        Some((host.consumer().to_owned(), 4))
    );
    assert_eq!(
        scene.held(claims[1].id).await,
        Some((PARKED_CONSUMER.to_owned(), 1))
    );
    assert_eq!(scene.held(claims[2].id).await, None);
    let new = host.fetch(9, Duration::ZERO).await.unwrap();
    assert_eq!(new.len(), 1);
    assert_eq!(new[0].message.body.as_ref(), b"new");
}

#[tokio::test]
async fn a_second_host_finds_the_repaired_group_and_holds_again_what_it_holds() {
    let scene = Scene::new().await;
    let (one, two) = (scene.host().await, scene.host().await);
    let first = scene.read(&one, &["a"]).await;
    let second = scene.read(&two, &["b"]).await;
    scene
        .raw
        .ask(&format!("XGROUP DESTROY {KEY} {GROUP}"))
        .await;
    let hold = |claim: &Arc<_>| [(Arc::clone(claim), 1)];
    assert_eq!(
        two.repair(&hold(&second[0])).await.unwrap().repaired,
        Repaired::Group
    );
    assert_eq!(
        one.repair(&hold(&first[0])).await.unwrap().repaired,
        Repaired::Intact
    );
    assert_eq!(scene.held(first[0].id).await.unwrap().0, one.consumer());
    assert_eq!(scene.held(second[0].id).await.unwrap().0, two.consumer());
    // What another host owns is not taken back.
    assert_eq!(
        one.repair(&hold(&second[0])).await.unwrap().repaired,
        Repaired::Intact
    );
    assert_eq!(scene.held(second[0].id).await.unwrap().0, two.consumer());
}

#[tokio::test]
async fn a_deleted_stream_is_made_again_and_read_from_its_beginning() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["held"]).await;
    scene.raw.ask(&format!("DEL {KEY}")).await;
    let held = [(Arc::clone(&claims[0]), 1)];
    assert_eq!(host.repair(&held).await.unwrap().repaired, Repaired::Stream);
    assert_eq!(host.backlog().await.unwrap(), Backlog::default());
    scene.raw.add(KEY, "new").await;
    assert_eq!(host.fetch(9, Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_stream_written_anew_with_smaller_ids_is_read_from_its_beginning() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["held"]).await;
    scene.raw.ask(&format!("DEL {KEY}")).await;
    scene
        .raw
        .ask(&format!("XADD {KEY} 7-1 _payload small"))
        .await;
    let held = [(Arc::clone(&claims[0]), 1)];
    assert_eq!(host.repair(&held).await.unwrap().repaired, Repaired::Group);
    let new = host.fetch(9, Duration::ZERO).await.unwrap();
    assert_eq!(new.len(), 1);
    assert_eq!(text(new[0].id), "7-1");
    assert_eq!(host.backlog().await.unwrap().pending, 1);
}

#[tokio::test]
async fn a_host_that_saw_nothing_repairs_from_where_the_group_was() {
    let scene = Scene::new().await;
    let one = scene.host().await;
    let claims = scene.read(&one, &["a", "b"]).await;
    one.acknowledge(&claims).await.unwrap();
    let two = scene.host().await;
    scene.raw.add(KEY, "c").await;
    scene
        .raw
        .ask(&format!("XGROUP DESTROY {KEY} {GROUP}"))
        .await;
    assert_eq!(two.repair(&[]).await.unwrap().repaired, Repaired::Group);
    assert_eq!(two.fetch(9, Duration::ZERO).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_fetch_that_waits_hears_of_the_deletion() {
    let scene = Scene::new().await;
    let host = Arc::new(scene.host().await);
    for command in [
        format!("XGROUP DESTROY {KEY} {GROUP}"),
        format!("DEL {KEY}"),
    ] {
        let waiting = tokio::spawn({
            let host = Arc::clone(&host);
            async move { host.fetch(1, Duration::from_secs(15)).await }
        });
        hostler_tests::redis::eventually("a client is blocked", || async {
            scene
                .raw
                .text("INFO clients")
                .await
                .contains("blocked_clients:1\r\n")
        })
        .await;
        scene.raw.ask(&command).await;
        let error = waiting.await.unwrap().unwrap_err();
        assert_eq!(error.class(), Class::Missing, "{command}: {error}");
        host.repair(&[]).await.unwrap();
    }
}

async fn report(scene: &Scene) -> Report {
    let link = connector(&scene.server.url()).link("inspect");
    inspect::stream(&link, KEY, GROUP, Some(DEAD))
        .await
        .unwrap()
}

#[tokio::test]
async fn inspect_reports_what_there_is() {
    let scene = Scene::new().await;
    let link = connector(&scene.server.url()).link("inspect");
    let error = inspect::stream(&link, KEY, GROUP, None).await.unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let host = scene.host().await;
    let error = inspect::stream(&link, KEY, "other", None)
        .await
        .unwrap_err();
    assert_eq!(error.class(), Class::Missing);
    let empty = report(&scene).await;
    assert_eq!(
        (empty.length, empty.pending, empty.oldest_pending_ms),
        (0, 0, None)
    );
    assert!(!empty.unread && empty.consumers.is_empty() && empty.next_due_ms.is_none());

    let claims = scene.read(&host, &["a", "b", "c"]).await;
    scene.raw.add(KEY, "unread").await;
    settle(&host, &claims[0], 1, dead_letter()).await;
    settle(&host, &claims[1], 1, park(1, Duration::from_secs(50))).await;
    let fast = scene
        .host_with(StreamOptions {
            group: "fast".into(),
            ..options()
        })
        .await;
    let all: Vec<_> = fast.fetch(9, Duration::ZERO).await.unwrap();
    let all: Vec<_> = all.into_iter().map(Arc::new).collect();
    fast.acknowledge(&all).await.unwrap();

    for url in [
        scene.server.url(),
        format!("{}?protocol=resp3", scene.server.url()),
    ] {
        let link = connector(&url).link("inspect");
        let report = inspect::stream(&link, KEY, GROUP, Some(DEAD))
            .await
            .unwrap();
        assert_eq!((report.length, report.pending, report.lag), (4, 2, Some(1)));
        assert!(report.unread && report.oldest_pending_ms.unwrap() < 60_000);
        assert_eq!((report.delayed, report.dead_letters), (1, Some(1)));
        let due = report.next_due_ms.unwrap();
        assert!(due > 20_000 && due <= 50_000, "{due}");
        let consumers: Vec<_> = report
            .consumers
            .iter()
            .map(|c| (c.name.as_str(), c.pending))
            .collect();
        assert_eq!(consumers, [(host.consumer(), 1), (PARKED_CONSUMER, 1)]);
        let groups: Vec<_> = report
            .groups
            .iter()
            .map(|g| (g.name.as_str(), g.pending, g.needs_from.as_str()))
            .collect();
        let (first, last) = (text(claims[1].id), text(all[3].id));
        assert_eq!(groups, [(GROUP, 2, first.as_str()), ("fast", 0, &last)]);
    }
    scene
        .raw
        .ask(&format!("ZADD {PARKED} 1 {}", text(claims[1].id)))
        .await;
    assert_eq!(report(&scene).await.next_due_ms, Some(0));
    assert_eq!(orphans(&host, 9).await.claims.len(), 0);
}

/// A queue is what the runtime hands around.
#[tokio::test]
async fn a_stream_queue_is_a_queue() {
    let scene = Scene::new().await;
    let queue: Arc<dyn Queue> = Arc::new(scene.host().await);
    assert_eq!(queue.backlog().await.unwrap(), Backlog::default());
    let shown = format!("{queue:?}");
    assert!(
        shown.contains("StreamQueue") && shown.contains(KEY),
        "{shown}"
    );
}
