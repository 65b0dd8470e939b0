//! The public API of dead letters, as a program uses it: everything that the commands do. On streams
//! and on reliable lists.

use hostler::dead_letter::{DeadLetters, Error, Filter, ReplayOptions};
use hostler::delivery::policy::Reason;

use crate::dead_letter::dlq_scene::{Kind, Scene, on_both};
use crate::scene::DEAD;

on_both! {
    peek_show_replay_purge_and_export
}

fn only(reason: &str) -> Filter {
    Filter {
        reasons: vec![reason.to_owned()],
        ..Filter::default()
    }
}

async fn peek_show_replay_purge_and_export(kind: Kind) {
    let scene = Scene::new(kind).await;
    for n in 0..300 {
        scene.letter(&n.to_string(), Reason::Timeout).await;
    }
    let trapped = scene.letter("bad", Reason::Trap).await;
    for body in ["a", "b"] {
        scene.letter(body, Reason::Dropped).await;
    }
    let letters = DeadLetters::connect(&scene.server.url(), scene.dead_key()).unwrap();

    let peek = letters.peek(1).await.unwrap();
    assert_eq!((peek.total, peek.by_reason["timeout"]), (303, 300));
    assert_eq!(peek.entries[0].body, "b");

    let shown = letters.find(&trapped).await.unwrap().unwrap();
    assert_eq!(
        (shown.reason.as_deref(), &shown.body[..]),
        (Some("trap"), &b"bad"[..])
    );

    let mut scan = letters.scan(only("dropped")).await.unwrap();
    let mut exported = Vec::new();
    while let Some(entries) = scan.next().await.unwrap() {
        exported.extend(entries.iter().map(hostler::dead_letter::Entry::line));
    }
    assert_eq!(exported.len(), 2);
    assert!(exported[0].contains("\"body\":\"a\""), "{}", exported[0]);

    let options = ReplayOptions {
        limit: Some(290),
        rate: std::num::NonZeroU32::new(100_000),
        ..ReplayOptions::default()
    };
    let replayed = letters.replay_all(only("timeout"), options).await.unwrap();
    assert_eq!(replayed.replayed, 290);
    assert_eq!(scene.length(scene.key()).await, 290);

    let purged = letters.purge_all(only("timeout")).await.unwrap();
    assert_eq!(purged, 10);
    assert_eq!(letters.length().await.unwrap(), 3);
}

#[tokio::test]
async fn wrong_urls_servers_and_keys_are_told_apart() {
    let scene = Scene::new(Kind::Stream).await;
    let wrong = DeadLetters::connect("http://localhost", DEAD).unwrap_err();
    assert!(matches!(wrong, Error::Url(_)), "{wrong}");
    let away = DeadLetters::connect("redis://127.0.0.1:1", DEAD).unwrap();
    assert!(matches!(away.peek(1).await, Err(Error::Redis(_))));
    scene.obstruct(DEAD).await;
    let other = DeadLetters::connect(&scene.url(), DEAD).unwrap();
    assert!(matches!(other.peek(1).await, Err(Error::NoStream { .. })));
}
