//! Leases are renewed for as long as a host holds a message.

use std::time::{Instant, SystemTime};

use hostler_tests::redis::eventually;
use hostler_tests::skew::Skewed;
use hostler_tests::witness::Witness;

use crate::runtime::e2e_scene::{Scene, starts_since};

#[tokio::test]
async fn a_handler_that_sleeps_four_times_min_idle_runs_once() {
    let mut scene = Scene::new().await;
    let options = scene
        .host()
        .cap(3)
        .flags("min-idle=3s timeout=1m concurrency=2")
        .admin();
    let hosts = [options.ready().await, options.ready().await];
    let ids = scene.publish_all("sleep:12000", 6).await;
    eventually("both are at work", async || {
        hosts.iter().all(|host| host.witness().total() >= 1)
    })
    .await;
    scene.emptied().await;
    for host in &hosts {
        assert!(host.metric("hostler_lease_renewals_total") >= 4);
        assert_eq!(host.metric("hostler_leases_lost_total"), 0);
    }
    let mut ended = Vec::new();
    for host in hosts {
        ended.push(host.drained().await);
    }
    let (look, witness) = scene.check(&ended).await;
    assert!(look.dead.is_empty());
    for id in &ids {
        assert_eq!(witness.attempts(id), [1], "{id}");
    }
    for host in &ended {
        assert_eq!(host.json()["orphans_recovered"], 0);
    }
}

/// Other tests would take cores from its hosts.
mod measured {
    use super::*;

    #[tokio::test]
    async fn handlers_that_keep_all_cores_busy_keep_their_leases() {
        let mut scene = Scene::new().await;
        // More than there are cores. Each runs far longer than a lease.
        let cores = std::thread::available_parallelism().unwrap().get();
        let ids = scene.publish_all("spin:2500", cores + 2).await;
        let options = scene
            .host()
            .cap(3)
            .flags("min-idle=1500ms timeout=1m cpu=1m");
        let hosts = [options.ready().await, options.ready().await];
        scene.emptied().await;
        let mut ended = Vec::new();
        for host in hosts {
            ended.push(host.drained().await);
        }
        let witness = Witness::of_all(&ended);
        for id in &ids {
            assert_eq!(witness.attempts(id), [1], "{id}");
        }
    }
}

#[tokio::test]
async fn a_message_in_the_buffer_keeps_its_lease() {
    let mut scene = Scene::new().await;
    let options = scene.host().cap(3).flags("min-idle=3s concurrency=1");
    let (host, slow) = scene.host_with_a_buffer(&options, "sleep:300").await;
    let other = options.ready().await;
    scene.emptied().await;
    let ended = [host.drain().await, other.drain().await];
    let (_, witness) = scene.check(&ended).await;
    for id in &slow {
        assert_eq!(witness.attempts(id), [1], "{id}");
    }
    for host in &ended {
        assert_eq!(host.expect_code(0).json()["orphans_recovered"], 0);
    }
}

/// The monotonic clock stands still in a suspended machine. By that clock, the leases are young.
#[tokio::test]
async fn a_machine_that_was_suspended_starts_nothing_that_others_have() {
    let mut scene = Scene::new().await;
    let skewed = Skewed::new();
    let options = scene.host().flags("min-idle=3s concurrency=1");
    let suspendable = skewed.suspendable(options.clone());
    let (host, slow) = scene.host_with_a_buffer(&suspendable, "sleep:300").await;
    let since = Instant::now();
    host.pause().await;
    let other = options.flag("concurrency", "20").ready().await;
    scene.emptied().await;
    other.drain().await.expect_code(0);
    skewed.suspended(since.elapsed());
    let resumed = SystemTime::now();
    host.resume();
    // It comes behind all that the host had read.
    let last = scene.publish("ack").await;
    eventually("the host goes on", async || {
        host.witness().starts(&last) == 1
    })
    .await;
    let ended = host.drain().await;
    ended.expect_code(0);
    let later = starts_since(&ended, resumed);
    for id in &slow {
        assert_eq!(later.starts(id), 0, "{id}");
    }
}
