//! The reliable list: deliveries of dead hosts, with a recovery set and without.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::{REDIS_DELIVERY_COUNT, REDIS_IDLE_MS};
use hostler::queue::list::{ListOptions, ListQueue};
use hostler::queue::{Origin, Queue, Reply, Sweep};
use hostler_tests::redis::eventually;

use crate::queue::list_scene::{
    CLAIMS, INSTANCES, Scene, entry, options, processing, recovering, value,
};
use crate::scene::{bodies, dead_letter, fetch, orphaned, recorded, requeue, settle, take_more};

#[tokio::test]
async fn without_a_recovery_set_every_host_recovers_what_dead_hosts_hold_whatever_their_name() {
    let scene = Scene::new().await;
    let named = |name: &str| ListOptions {
        consumer: name.to_owned(),
        ..options()
    };
    let host = scene.host_with(named("pod-1")).await;
    let stranger = scene.host_with(named("pod-2")).await;
    let values = ["fresh", "started", "same", "same"];
    let claims = scene.claim(&host, &values).await;
    let theirs = scene.claim(&stranger, &["theirs"]).await;
    // One start more than its hand-out stands for.
    assert_eq!(recorded(&host, &claims[1], 1, 2).await, Reply::Done);

    let heir = scene.host_with(named("pod-3")).await;
    assert!(orphaned(&heir, 9).await.is_empty(), "they live");
    assert_eq!(heir.observe().await.unwrap().unwrap().orphans, 0);
    scene.age(&host).await;
    assert_eq!(heir.observe().await.unwrap().unwrap().orphans, 4);
    let mut taken = orphaned(&heir, 3).await;
    assert_eq!(taken.len(), 3);
    taken.extend(orphaned(&heir, 9).await);
    assert_eq!(bodies(&taken), values);
    let counts = taken.iter().map(|c| c.message.headers.retry_count());
    assert!(counts.eq([1, 2, 1, 1]));
    for (claim, old) in taken.iter().zip(&claims) {
        assert!(matches!(claim.origin, Origin::Orphan { idle } if idle >= Duration::from_secs(29)));
        let headers = &claim.message.headers;
        assert_eq!(headers.find_str("x-hostler-crashes"), Some("1"));
        for name in [REDIS_IDLE_MS, REDIS_DELIVERY_COUNT] {
            assert!(headers.find(name).is_some(), "{name}");
        }
        assert_eq!(claim.message.id, old.message.id);
        assert_ne!(claim.id, old.id);
        assert_eq!(value(claim), &entry(claim)[16..]);
    }
    assert!(scene.processing(&host).await.is_empty());
    assert_eq!(scene.processing(&heir).await.len(), 4);
    assert_eq!(scene.processing(&stranger).await.len(), 1);
    assert!(orphaned(&heir, 9).await.is_empty());
    assert_eq!(heir.observe().await.unwrap().unwrap().orphans, 0);

    // The paused host wakes up. It learns from every request that it has lost its claims.
    assert!(fetch(&host, 1).await.is_empty());
    assert_eq!(host.renew(&claims).await.unwrap(), vec![Reply::Stolen; 4]);
    assert_eq!(recorded(&host, &claims[0], 1, 2).await, Reply::Stolen);
    for step in [dead_letter(), requeue(1)] {
        assert_eq!(settle(&host, &claims[0], 1, step).await, Reply::Gone);
    }
    assert_eq!(stranger.renew(&theirs).await.unwrap(), [Reply::Done]);
    assert_eq!(heir.renew(&taken).await.unwrap(), vec![Reply::Done; 4]);
}

#[tokio::test]
async fn with_a_recovery_set_every_host_recovers_orphans_of_all_hosts_each_once() {
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
    assert!(orphaned(&*sweepers[0], 9).await.is_empty());
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
                    let some = orphaned(&*sweeper, 7).await;
                    if some.is_empty() {
                        return taken;
                    }
                    taken.extend(some);
                }
            })
        })
        .collect();
    let mut found = Vec::new();
    for (sweep, sweeper) in sweeps.into_iter().zip(&sweepers) {
        let taken = sweep.await.unwrap();
        assert_eq!(scene.processing(sweeper).await.len(), taken.len());
        let renewed = sweeper.renew(&taken).await.unwrap();
        assert_eq!(renewed, vec![Reply::Done; taken.len()]);
        found.extend(bodies(&taken));
    }
    // An orphan that two sweepers met at the same time is with one of them, or still waits.
    for _ in 0..2 {
        found.extend(bodies(&orphaned(&*sweepers[0], 99).await));
    }
    found.sort();
    let mut expected = names.clone();
    expected.remove(7);
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(scene.processing(&host).await, [entry(&claims[7])]);
    assert_eq!(scene.recorded_claims().await, 200);
    let renewed = host.renew(&claims[6..8]).await.unwrap();
    assert_eq!(renewed, [Reply::Stolen, Reply::Done]);
}

#[tokio::test]
async fn a_deleted_recovery_set_strands_no_message() {
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let claims = scene.claim(&host, &["a", "b"]).await;
    scene.delete(CLAIMS).await;
    let sweeper = scene.recovering().await;
    assert!(orphaned(&sweeper, 9).await.is_empty());
    // Recorded as claimed now.
    assert_eq!(scene.recorded_claims().await, 2);
    scene.delete(CLAIMS).await;
    // A host that lives records its own again.
    assert_eq!(host.renew(&claims[..1]).await.unwrap(), [Reply::Done]);
    assert_eq!(scene.recorded_claims().await, 1);
    assert!(orphaned(&sweeper, 9).await.is_empty());
    scene.age_claims().await;
    assert_eq!(orphaned(&sweeper, 9).await.len(), 2);

    // A record without a delivery goes.
    scene.delete(&processing(sweeper.instance())).await;
    scene.age_claims().await;
    let third = scene.recovering().await;
    assert!(orphaned(&third, 9).await.is_empty());
    assert_eq!(scene.recorded_claims().await, 0);
}

#[tokio::test]
async fn an_expired_recovery_set_strands_no_message() {
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
        take_more(&heir, &mut taken).await >= 2
    })
    .await;
    assert_eq!(take_more(&heir, &mut taken).await, 2);
    let mut payloads = bodies(&taken);
    payloads.sort();
    assert_eq!(payloads, ["a", "b"]);
}

#[tokio::test]
async fn with_a_recovery_set_a_dead_host_is_recovered_also_where_the_set_does_not_know_its_claims()
{
    let scene = Scene::new().await;
    let host = scene.recovering().await;
    let others = scene.recovering().await;
    scene.claim(&host, &["a", "b"]).await;
    let claims = scene.claim(&others, &["c"]).await;
    scene.delete(CLAIMS).await;
    scene.age(&host).await;
    let heir = scene.recovering().await;
    assert_eq!(bodies(&orphaned(&heir, 9).await), ["a", "b"]);
    assert_eq!(others.renew(&claims).await.unwrap(), [Reply::Done]);
}

#[tokio::test]
async fn a_dead_host_is_found_behind_any_number_of_others_that_hold_nothing() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    scene.claim(&host, &["a"]).await;
    scene.age(&host).await;
    // One script looks at 1,000 of them.
    let then = (scene.now_ms().await - 120_000).to_string();
    let names: Vec<String> = (0..2_500).map(|n| format!("gone-{n:08x}")).collect();
    let mut words: Vec<&[u8]> = vec![b"ZADD", INSTANCES.as_bytes()];
    for name in &names {
        words.extend([then.as_bytes(), name.as_bytes()]);
    }
    scene.raw.ask_words(&words).await;
    let heir = scene.host().await;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(bodies(&orphaned(&heir, 9).await));
    }
    assert_eq!(found, ["a"]);
}

#[tokio::test]
async fn every_claim_and_renewal_prolongs_the_life_of_the_recovery_set() {
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
async fn recovered_deliveries_are_kept_when_the_key_of_another_instance_is_unreadable() {
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
    assert!(failed > 0, "the unreadable key is reported");
    let bodies: HashSet<_> = taken.iter().map(|c| &c.message.body[..]).collect();
    assert_eq!(bodies, HashSet::from([&b"one"[..], b"two"]));
    assert_eq!(scene.processing(&heir).await.len(), taken.len());
}

#[tokio::test]
async fn hundreds_of_instances_that_are_gone_are_removed_in_steps() {
    let scene = Scene::new().await;
    let host = scene.host().await;
    for number in 0..250 {
        scene
            .raw
            .ask(&format!("ZADD {INSTANCES} 1 gone-{number}"))
            .await;
    }
    for (removed, is_unfinished) in [(100, true), (100, true), (50, false)] {
        let done = host.maintain().await.unwrap();
        assert_eq!(done.consumers_removed, removed);
        assert_eq!(done.unfinished.contains(&Sweep::Consumers), is_unfinished);
    }
}

#[tokio::test]
async fn instances_that_are_gone_without_deliveries_are_removed() {
    let scene = Scene::new().await;
    let gone = scene.host().await;
    let holder = scene.host().await;
    scene.claim(&holder, &["a"]).await;
    for host in [&gone, &holder] {
        let old = format!("ZADD {INSTANCES} 1 {}", host.instance());
        scene.raw.ask(&old).await;
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

/// A stuck message is as old in the hands of its next host as it is.
#[tokio::test]
async fn the_oldest_value_counts_from_its_first_claim_also_in_other_hands() {
    for options in [options(), recovering()] {
        let scene = Scene::new().await;
        let host = scene.host_with(options.clone()).await;
        let age = async |host: &ListQueue| {
            let seen = host.observe().await.unwrap().unwrap();
            seen.oldest_pending
                .map(|age| i64::try_from(age.as_millis()).unwrap())
        };
        assert_eq!(age(&host).await, None);
        let before = scene.now_ms().await;
        scene.claim(&host, &["slow"]).await;
        let claimed = scene.now_ms().await;
        // Some time passes.
        eventually("it is a second old", async || {
            scene.now_ms().await >= claimed + 1_000
        })
        .await;
        scene.claim(&host, &["younger"]).await;
        scene.age(&host).await;
        scene.age_claims().await;
        let heir = scene.host_with(options.clone()).await;
        eventually("the heir has both", async || {
            orphaned(&heir, 9).await;
            scene.processing(&heir).await.len() == 2
        })
        .await;
        let least = scene.now_ms().await - claimed;
        let age = age(&heir).await.unwrap();
        // The host's idea of the server's time is a little behind.
        let most = scene.now_ms().await - before + 1_000;
        assert!((least..=most).contains(&age), "{least} {age} {most}");
    }
}
