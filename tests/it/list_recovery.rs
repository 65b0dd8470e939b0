//! The reliable list: what dead hosts leave, with a recovery set and without.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::{REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use hostler::queue::list::ListOptions;
use hostler::queue::{Origin, Queue, Reply};
use hostler_tests::redis::eventually;

use crate::list_scene::{
    CLAIMS, INSTANCES, Scene, entry, options, orphans, record, recovering, settle, value,
};
use crate::queue_scene::{dead_letter, park};

#[tokio::test]
async fn without_a_recovery_set_a_start_recovers_earlier_ones_of_its_name() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    let stranger = scene
        .host_with(ListOptions {
            consumer: "other".to_owned(),
            ..options()
        })
        .await;
    let claims = scene
        .claim(&host, &["fresh", "started", "same", "same"])
        .await;
    let theirs = scene.claim(&stranger, &["theirs"]).await;
    // One start more than its hand-out stands for.
    assert_eq!(record(&host, &claims[1], 1, 2).await, Reply::Done);

    let heir = scene.host().await;
    assert!(orphans(&heir, 9).await.is_empty(), "they live");
    scene.age(&host).await;
    scene.age(&stranger).await;
    let mut taken = orphans(&heir, 3).await;
    assert_eq!(taken.len(), 3);
    taken.extend(orphans(&heir, 9).await);
    let seen: Vec<_> = taken
        .iter()
        .map(|c| (&c.message.body[..], c.message.headers.retry_count()))
        .collect();
    assert_eq!(
        seen,
        [
            (&b"fresh"[..], 1),
            (b"started", 2),
            (b"same", 1),
            (b"same", 1)
        ]
    );
    for (claim, old) in taken.iter().zip(&claims) {
        assert!(matches!(claim.origin, Origin::Orphan { idle } if idle >= Duration::from_secs(29)));
        let headers = &claim.message.headers;
        assert_eq!(headers.find_str("x-hostler-crashes"), Some("1"));
        assert!(
            headers.find(REDIS_IDLE_MS).is_some() && headers.find(REDIS_DELIVERY_COUNT).is_some()
        );
        assert_eq!(claim.message.id, old.message.id);
        assert_ne!(claim.id, old.id);
        assert_eq!(value(claim), &entry(claim)[16..]);
    }
    assert!(scene.processing(&host).await.is_empty());
    assert_eq!(scene.processing(&heir).await.len(), 4);
    assert_eq!(scene.processing(&stranger).await.len(), 1);
    assert!(orphans(&heir, 9).await.is_empty());

    // The paused hosts wake up: one finds out what it lost, whatever it does first.
    assert!(host.fetch(1, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(host.renew(&claims).await.unwrap(), vec![Reply::Stolen; 4]);
    assert_eq!(record(&host, &claims[0], 1, 2).await, Reply::Stolen);
    assert_eq!(
        settle(&host, &claims[0], 1, dead_letter()).await,
        Reply::Gone
    );
    assert_eq!(
        settle(&host, &claims[0], 1, park(1, Duration::ZERO)).await,
        Reply::Gone
    );
    assert_eq!(stranger.renew(&theirs).await.unwrap(), [Reply::Done]);
    assert_eq!(heir.renew(&taken).await.unwrap(), vec![Reply::Done; 4]);
}

#[tokio::test]
async fn with_a_recovery_set_every_host_recovers_for_all_and_each_orphan_once() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let names: Vec<String> = (0..200).map(|n| format!("m{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let claims = scene.claim(&host, &names).await;
    let mut sweepers = Vec::new();
    for n in 0..4 {
        let options = ListOptions {
            consumer: format!("sweeper{n}"),
            ..recovering()
        };
        sweepers.push(Arc::new(scene.host_with(options).await));
    }
    assert!(orphans(&sweepers[0], 9).await.is_empty());
    scene.age_claims().await;
    // One that its host still renews is not taken.
    assert_eq!(host.renew(&claims[7..8]).await.unwrap(), [Reply::Done]);
    let sweeps: Vec<_> = sweepers
        .iter()
        .map(|sweeper| {
            let sweeper = Arc::clone(sweeper);
            tokio::spawn(async move {
                let mut taken = Vec::new();
                loop {
                    let some = orphans(&sweeper, 7).await;
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(some);
                }
            })
        })
        .collect();
    let mut bodies = Vec::new();
    for (sweep, sweeper) in sweeps.into_iter().zip(&sweepers) {
        let taken = sweep.await.unwrap();
        assert_eq!(scene.processing(sweeper).await.len(), taken.len());
        assert_eq!(
            sweeper.renew(&taken).await.unwrap(),
            vec![Reply::Done; taken.len()]
        );
        bodies.extend(taken.iter().map(|c| c.message.body.to_vec()));
    }
    // What two sweepers met at the same time is with one of them, or still waits.
    bodies.extend(
        orphans(&sweepers[0], 99)
            .await
            .iter()
            .map(|c| c.message.body.to_vec()),
    );
    bodies.extend(
        orphans(&sweepers[0], 99)
            .await
            .iter()
            .map(|c| c.message.body.to_vec()),
    );
    bodies.sort();
    let mut expected: Vec<_> = names.iter().map(|n| n.as_bytes().to_vec()).collect();
    expected.remove(7);
    expected.sort();
    assert_eq!(bodies, expected);
    assert_eq!(scene.processing(&host).await, [entry(&claims[7])]);
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 200);
    assert_eq!(
        host.renew(&claims[6..8]).await.unwrap(),
        [Reply::Stolen, Reply::Done]
    );
}

#[tokio::test]
async fn a_recovery_set_that_is_gone_strands_nothing() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let claims = scene.claim(&host, &["a", "b"]).await;
    scene.raw.ask(&format!("DEL {CLAIMS}")).await;
    let sweeper = scene.recovering().await;
    assert!(orphans(&sweeper, 9).await.is_empty());
    // Recorded as claimed now.
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 2);
    scene.raw.ask(&format!("DEL {CLAIMS}")).await;
    // A host that lives records its own again.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.raw.number(&format!("ZCARD {CLAIMS}")).await, 1);
    assert!(orphans(&sweeper, 9).await.is_empty());
    scene.age_claims().await;
    assert_eq!(orphans(&sweeper, 9).await.len(), 2);

    // A record that nothing belongs to goes.
    scene
        .raw
        .ask(&format!("DEL {{jobs}}:processing:{}", sweeper.instance()))
        .await;
    scene.age_claims().await;
    let third = scene.recovering().await;
    assert!(orphans(&third, 9).await.is_empty());
    assert_eq!(scene.raw.number(&format!("EXISTS {CLAIMS}")).await, 0);
}

#[tokio::test]
async fn a_recovery_set_that_expires_strands_nothing() {
    let scene = Scene::new().await;
    let mut options = recovering();
    options.min_idle = Duration::from_millis(300);
    options.recovery.as_mut().unwrap().ttl = Some(Duration::from_millis(400));
    let dead = scene.host_with(options.clone()).await;
    scene.claim(&dead, &["a", "b"]).await;
    drop(dead);
    // The time to live is the server's to keep.
    eventually("the recovery set expires", async || {
        scene.raw.number(&format!("EXISTS {CLAIMS}")).await == 0
    })
    .await;
    let heir = scene.host_with(options).await;
    let mut taken = Vec::new();
    eventually("all are recovered", async || {
        taken.extend(orphans(&heir, 9).await);
        taken.len() >= 2
    })
    .await;
    let mut payloads: Vec<_> = taken.iter().map(|c| c.message.body.clone()).collect();
    payloads.sort();
    assert_eq!(payloads, ["a", "b"]);
    assert!(orphans(&heir, 9).await.is_empty());
}

#[tokio::test]
async fn the_recovery_set_lives_as_long_as_somebody_claims_or_renews() {
    let scene = Scene::new().await;
    let mut options = recovering();
    options.recovery.as_mut().unwrap().ttl = Some(Duration::from_secs(100));
    let host = scene.host_with(options).await;
    let claims = scene.claim(&host, &["a"]).await;
    for again in 0..2 {
        let ttl = scene.raw.number(&format!("PTTL {CLAIMS}")).await;
        assert!((90_000..=100_000).contains(&ttl), "{ttl}");
        scene.raw.ask(&format!("PEXPIRE {CLAIMS} 5000")).await;
        if again == 0 {
            assert_eq!(host.renew(&claims).await.unwrap(), [Reply::Done]);
        } else {
            scene.claim(&host, &["b"]).await;
        }
    }
    let ttl = scene.raw.number(&format!("PTTL {CLAIMS}")).await;
    assert!((90_000..=100_000).contains(&ttl), "{ttl}");
}

#[tokio::test]
async fn what_was_taken_over_is_kept_when_another_instance_cannot_be_looked_at() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    scene.claim(&host, &["one", "two"]).await;
    let then = scene.now_ms().await - 60_000;
    let (base, _) = host.instance().rsplit_once('-').unwrap();
    for command in [
        format!("ZADD {INSTANCES} {then} {base}-00000000"),
        format!("SET {{jobs}}:processing:{base}-00000000 text"),
    ] {
        scene.raw.ask(&command).await;
    }
    scene.age(&host).await;
    let heir = scene.host().await;
    let (mut taken, mut failed) = (Vec::new(), 0);
    // Each scan begins with another instance.
    for _ in 0..4 {
        match heir.take_orphans(9, &|_| false).await {
            Ok(found) => taken.extend(found.claims),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 0, "nobody is told of the other key");
    let bodies: HashSet<_> = taken.iter().map(|c| &c.message.body[..]).collect();
    assert_eq!(bodies, HashSet::from([&b"one"[..], b"two"]));
    assert_eq!(scene.processing(&heir).await.len(), taken.len());
}

#[tokio::test]
async fn instances_that_are_gone_are_forgotten() {
    let scene = Scene::new().await;
    let gone = scene.host().await;
    let holder = scene.host().await;
    scene.claim(&holder, &["a"]).await;
    for host in [&gone, &holder] {
        let instance = host.instance();
        scene
            .raw
            .ask(&format!("ZADD {INSTANCES} 1 {instance}"))
            .await;
    }
    let host = scene.host().await;
    assert_eq!(host.maintain().await.unwrap().consumers_removed, 1);
    assert_eq!(scene.raw.number(&format!("ZCARD {INSTANCES}")).await, 2);
    // One that leaves with something on its processing list stays known.
    holder.leave().await.unwrap();
    assert_eq!(scene.raw.number(&format!("ZCARD {INSTANCES}")).await, 2);
    host.leave().await.unwrap();
    assert_eq!(scene.raw.number(&format!("ZCARD {INSTANCES}")).await, 1);
}
