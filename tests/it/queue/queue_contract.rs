//! The contract of queues at least once, on streams and on reliable lists: each test works a queue by
//! hand, through the trait.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use hostler::queue::{Backlog, Claim, Queue, Reply, SettleAction};

use crate::dead_letter::dlq_scene::{Found, Kind, Scene, Served, on_both};
use crate::scene::{
    bodies, dead_letter, discard, fetch, is_empty, is_refused, park, recorded, refused, requeue,
    settle, settled, settlement,
};

on_both! {
    a_waiting_fetch_wakes_for_a_message_and_for_an_interruption
    each_message_is_claimed_once_and_acknowledged_once
    a_settled_delivery_cannot_be_settled_again
    settlements_of_all_kinds_are_answered_in_their_order
    a_requeued_message_comes_back_with_its_count
    a_refused_dead_letter_leaves_the_delivery_unchanged
    dead_letters_of_one_call_are_whole_and_answered_one_by_one
    a_full_dead_letter_queue_drops_its_oldest_or_refuses_more
    scripts_that_the_server_forgot_are_loaded_again
    a_server_that_takes_no_writes_fails_the_probe
}

impl Scene {
    /// A host of the queue, and these messages, which the host has claimed.
    async fn reading(kind: Kind, bodies: &[&str]) -> (Self, Arc<dyn Queue>, Vec<Arc<Claim>>) {
        let scene = Self::new(kind).await;
        let host = scene.open(scene.own()).await;
        let claims = scene.read(&*host, bodies).await;
        (scene, host, claims)
    }

    /// Put messages and let a host claim them.
    async fn read(&self, host: &dyn Queue, bodies: &[&str]) -> Vec<Arc<Claim>> {
        for body in bodies {
            self.send(body).await;
        }
        let mut claims = Vec::new();
        while claims.len() < bodies.len() {
            let part = fetch(host, bodies.len() - claims.len()).await;
            assert!(!part.is_empty(), "{} of {}", claims.len(), bodies.len());
            claims.extend(part);
        }
        claims
    }
}

fn every_action() -> [SettleAction; 4] {
    let leave = SettleAction::Leave { keep: 1 };
    [requeue(1), leave, dead_letter(), discard()]
}

async fn a_waiting_fetch_wakes_for_a_message_and_for_an_interruption(kind: Kind) {
    let (scene, host, _) = Scene::reading(kind, &[]).await;
    let long = Duration::from_secs(60);
    let wait = |host: &Arc<dyn Queue>| {
        let host = Arc::clone(host);
        tokio::spawn(async move { host.fetch(5, long).await.unwrap().len() })
    };
    let begun = Instant::now();
    let waiting = wait(&host);
    scene.blocked(1).await;
    scene.send("a").await;
    assert_eq!(waiting.await.unwrap(), 1);
    let waiting = wait(&host);
    scene.blocked(1).await;
    host.interrupt().await.unwrap();
    assert_eq!(waiting.await.unwrap(), 0);

    // An interruption before a fetch ends the wait of the next fetch, and only of that one.
    host.interrupt().await.unwrap();
    assert!(host.fetch(5, long).await.unwrap().is_empty());
    assert!(begun.elapsed() < long);
    let (short, begun) = (Duration::from_millis(80), Instant::now());
    assert!(host.fetch(5, short).await.unwrap().is_empty());
    assert!(begun.elapsed() >= short);

    // A host that claims nothing leaves the message where it is, and the other host wakes.
    let other = scene.open(scene.own()).await;
    let waiting = [wait(&host), wait(&other)];
    scene.blocked(2).await;
    scene.send("b").await;
    scene.send("c").await;
    let mut claimed = 0;
    for waiting in waiting {
        claimed += waiting.await.unwrap();
        if claimed == 2 {
            break;
        }
    }
    assert_eq!(claimed, 2);
}

async fn each_message_is_claimed_once_and_acknowledged_once(kind: Kind) {
    let (scene, host, claims) = Scene::reading(kind, &["a", "b", "c"]).await;
    let other = scene.open(scene.own()).await;
    assert_ne!(host.consumer(), other.consumer());
    assert_eq!(bodies(&claims), ["a", "b", "c"], "in their order");
    assert!(fetch(&*other, 9).await.is_empty());
    scene.send("d").await;
    let backlog = Backlog {
        unread: true,
        pending: 3,
        outbox: 0,
    };
    assert_eq!(host.backlog().await.unwrap(), backlog);
    let none = host.fetch(0, Duration::from_secs(9)).await;
    assert!(none.unwrap().is_empty());
    // Acknowledged again, after a lost reply.
    for _ in 0..2 {
        host.acknowledge(&claims).await.unwrap();
    }
    host.acknowledge(&[]).await.unwrap();
    let last = fetch(&*other, 9).await;
    assert_eq!(bodies(&last), ["d"]);
    other.acknowledge(&last).await.unwrap();
    assert!(is_empty(&*host).await);
}

async fn a_settled_delivery_cannot_be_settled_again(kind: Kind) {
    let (scene, host, claims) = Scene::reading(kind, &["a"]).await;
    settled(&*host, &claims[0], 1, discard()).await;
    for action in every_action() {
        let reply = settle(&*host, &claims[0], 1, action.clone()).await;
        assert_eq!(reply, Reply::Gone, "{action:?}");
    }
    if let Kind::Stream = kind {
        // A list without a recovery set looks for what it holds only after something was taken from it.
        assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Gone]);
    }
    // A list knows only that the delivery is not in this host's processing list.
    let unknown = match kind {
        Kind::Stream => Reply::Gone,
        Kind::List => Reply::Stolen,
    };
    assert_eq!(recorded(&*host, &claims[0], 1, 2).await, unknown);
    assert!(is_empty(&*host).await);
    assert_eq!(scene.length(scene.dead_key()).await, 0);
}

async fn settlements_of_all_kinds_are_answered_in_their_order(kind: Kind) {
    let (_scene, host, claims) = Scene::reading(kind, &["a", "b", "c", "d", "e"]).await;
    host.acknowledge(&claims[1..2]).await.unwrap();
    let later = park(1, Duration::from_secs(9));
    let leave = SettleAction::Leave { keep: 0 };
    let actions = [dead_letter(), requeue(1), discard(), later, leave];
    let settlements: Vec<_> = (actions.into_iter().zip(&claims))
        .map(|(action, claim)| settlement(claim, 1, action))
        .collect();
    let replies = host.settle(&settlements).await.unwrap();
    let mut expected = vec![Reply::Done; 5];
    expected[1] = Reply::Gone;
    assert_eq!(replies, expected);
}

async fn a_requeued_message_comes_back_with_its_count(kind: Kind) {
    let (scene, host, claims) = Scene::reading(kind, &["ran", "handed back"]).await;
    let other = scene.open(scene.own()).await;
    settled(&*host, &claims[0], 1, requeue(1)).await;
    settled(&*host, &claims[1], 1, requeue(0)).await;
    // A requeue of a list is a message that waits, and one of a stream is parked.
    let mut back = fetch(&*other, 9).await;
    let due = other.take_due(9).await.unwrap().claims;
    back.extend(due.into_iter().map(Arc::new));
    back.sort_by_key(|claim| claim.message.body.len());
    assert_eq!(bodies(&back), ["ran", "handed back"]);
    let charges = |claim: &Claim| match kind {
        Kind::Stream => claim.native,
        Kind::List => claim.header,
    };
    assert_eq!((charges(&back[0]), charges(&back[1])), (1, 0));
    assert_eq!(back[0].message.id, claims[0].message.id);
}

async fn a_refused_dead_letter_leaves_the_delivery_unchanged(kind: Kind) {
    let (scene, host, claims) = Scene::reading(kind, &["a"]).await;
    let dead = scene.dead_key();
    scene.obstruct(dead).await;
    let why = refused(&*host, &claims[0], 1, dead_letter()).await;
    assert!(why.contains("WRONGTYPE"), "{why}");
    assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
    scene.delete(dead).await;
    settled(&*host, &claims[0], 1, dead_letter()).await;
    assert_eq!(scene.only_dead().await.body, "a");
}

/// One call names only what changes from a copy to the next one.
async fn dead_letters_of_one_call_are_whole_and_answered_one_by_one(kind: Kind) {
    let scene = Scene::new(kind).await;
    let large = |n: usize| format!("{n}").repeat(5000);
    let body = |n: usize| match n % 4 {
        0 => "all alike".to_owned(),
        1 => large(n),
        2 => String::new(),
        _ => large(7),
    };
    let number = |n: usize| n.to_string();
    for n in 0..60 {
        let number = number(n);
        let named = [("x-number", number.as_str()), ("x-kind", "named")];
        scene.put(scene.key(), body(n), &named[..n % 3]).await;
    }
    let host = scene.open(scene.own()).await;
    let mut claims = Vec::new();
    while claims.len() < 60 {
        let some = fetch(&*host, 60).await;
        assert!(!some.is_empty(), "{} are read", claims.len());
        claims.extend(some);
    }
    let gone: Vec<usize> = (0..60).filter(|n| n % 7 == 3).collect();
    for n in &gone {
        host.acknowledge(&claims[*n..=*n]).await.unwrap();
    }
    if kind == Kind::Stream {
        // Large parts of their copies would come from these entries.
        for claim in claims.iter().skip(1).step_by(8) {
            let id = hostler::wire::entry_id::entry_id(claim.id);
            scene.raw.ask(&format!("XDEL {} {id}", scene.key())).await;
        }
    }
    let one = |claim| settlement(claim, 1, dead_letter());
    let all: Vec<_> = claims.iter().rev().map(one).collect();
    let replies = host.settle(&all).await.unwrap();
    let dead = scene.dead().await;
    let mut found: HashMap<&str, &Found> = HashMap::new();
    for letter in &dead {
        let of = letter.header("x-dead-letter-source-id");
        assert!(found.insert(of, letter).is_none(), "{of} died twice");
    }
    for (n, reply) in (0..60).rev().zip(replies) {
        let letter = found.remove(&*claims[n].message.id);
        if gone.contains(&n) {
            assert_eq!((reply, letter.is_none()), (Reply::Gone, true), "{n}");
            continue;
        }
        let letter = letter.unwrap();
        assert_eq!((reply, &letter.body), (Reply::Done, &body(n)), "{n}");
        assert_eq!(letter.header("x-message-id"), &*claims[n].message.id);
        let told = ["x-number", "x-kind"].map(|name| letter.headers.find_str(name));
        let number = number(n);
        let expected = [Some(number.as_str()), Some("named")];
        assert!(
            told.iter().flatten().eq(expected[..n % 3].iter().flatten()),
            "{n}: {told:?}"
        );
    }
    assert!(found.is_empty());
    assert!(is_empty(&*host).await);
}

async fn a_full_dead_letter_queue_drops_its_oldest_or_refuses_more(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    let bounded = |on_full| Served {
        dead: DeadLetterQueue {
            max_len: Some(100),
            on_full,
            ..DeadLetterQueue::new(dead)
        },
        ..scene.own()
    };
    let all = |claims: &[Arc<Claim>]| -> Vec<_> {
        let one = |claim| settlement(claim, 1, dead_letter());
        claims.iter().map(one).collect()
    };
    let stop = scene.open(bounded(OnFull::Stop)).await;
    let claims = scene.read(&*stop, &["x"; 301]).await;
    let replies = stop.settle(&all(&claims)).await.unwrap();
    assert!(replies[..100].iter().all(|reply| *reply == Reply::Done));
    assert!(replies[100..].iter().all(is_refused));
    assert_eq!(scene.length(dead).await, 100);
    assert_eq!(stop.backlog().await.unwrap().pending, 201);

    let drop = scene.open(bounded(OnFull::DropOldest)).await;
    let claims = scene.read(&*drop, &["x"; 201]).await;
    let replies = drop.settle(&all(&claims)).await.unwrap();
    assert!(replies.iter().all(|reply| *reply == Reply::Done));
    let left = scene.length(dead).await;
    match kind {
        // Whole nodes of 100 entries.
        Kind::Stream => assert!((100..301).contains(&left), "{left}"),
        Kind::List => assert_eq!(left, 100),
    }
    for dropped in [301 - left, 0] {
        let done = drop.maintain().await.unwrap();
        assert_eq!(done.dead_letters_dropped, dropped);
    }
}

async fn scripts_that_the_server_forgot_are_loaded_again(kind: Kind) {
    let (scene, host, claims) = Scene::reading(kind, &["x"; 250]).await;
    let done = vec![Reply::Done; 250];
    for _ in 0..2 {
        scene.raw.ask("SCRIPT FLUSH").await;
        assert_eq!(host.renew(&claims).await.unwrap(), done);
        scene.raw.ask("SCRIPT FLUSH").await;
        assert!(host.take_due(9).await.unwrap().claims.is_empty());
    }
    scene.raw.ask("SCRIPT FLUSH").await;
    let all: Vec<_> = claims
        .iter()
        .map(|claim| settlement(claim, 1, dead_letter()))
        .collect();
    assert_eq!(host.settle(&all).await.unwrap(), done);
    assert_eq!(scene.length(scene.dead_key()).await, 250);
}

async fn a_server_that_takes_no_writes_fails_the_probe(kind: Kind) {
    let (scene, host, _) = Scene::reading(kind, &[]).await;
    host.probe().await.unwrap();
    let before = scene.dump().await;
    scene.raw.ask("REPLICAOF 127.0.0.1 1").await;
    let error = host.probe().await.unwrap_err();
    assert_eq!(error.code(), "READONLY");
    scene.raw.ask("REPLICAOF NO ONE").await;
    host.probe().await.unwrap();
    assert_eq!(scene.dump().await, before);
}
