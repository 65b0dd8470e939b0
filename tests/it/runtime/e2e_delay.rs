//! Delayed requeues: they are parked, and any host takes them when they are due.

use std::collections::BTreeMap;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use hostler_tests::command::run_line;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::{RedisOptions, eventually};
use hostler_tests::witness::Witness;

use crate::runtime::e2e_scene::Scene;
use crate::scene;

const PARKED: &str = "{orders}:parked:workers";

/// When each parked message is due, by id, in epoch milliseconds of the server (this machine).
async fn due(scene: &Scene) -> BTreeMap<String, u64> {
    let range = format!("ZRANGE {PARKED} 0 -1 WITHSCORES");
    let due: BTreeMap<String, f64> = redis::from_redis_value(scene.raw.ask(&range).await).unwrap();
    // The fraction says how often it started.
    let whole = |(id, at): (String, f64)| (id, at as u64);
    due.into_iter().map(whole).collect()
}

/// Wait until `count` messages are parked.
async fn parked(scene: &Scene, count: usize) {
    eventually("all are parked", async || due(scene).await.len() == count).await;
}

fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(now.as_millis()).unwrap()
}

#[tokio::test]
async fn a_delayed_message_is_parked_until_it_is_due() {
    const DELAY: u64 = 10_000;
    let mut scene = Scene::new().await;
    let host = scene.host().ready().await;
    let published = now_ms();
    let id = scene.publish(&format!("nack:{DELAY},ack")).await;
    let (mut due_at, mut pending) = (0, Vec::new());
    eventually("it is parked", async || {
        due_at = due(&scene).await.get(&id).copied().unwrap_or(0);
        pending = scene.raw.pending("orders", "workers").await;
        due_at > 0 && pending.iter().all(|held| held.consumer == "hostler:parked")
    })
    .await;
    let seen = now_ms();
    assert!((published + DELAY..=seen + DELAY).contains(&due_at));
    // No host holds it, and its one attempt stays counted.
    assert_eq!((pending.len(), pending[0].count), (1, 1));
    eventually("it comes back", async || host.witness().starts(&id) == 2).await;
    let came = now_ms();
    assert!(came >= due_at, "{} ms early", due_at - came);
    assert_eq!(host.witness().attempts(&id), [1, 2]);
    let ended = host.drained().await;
    assert_eq!(ended.json()["requeued"], 1);
    assert_eq!(ended.json()["acked"], 1);
}

/// It compares times: alone.
mod measured {
    use super::*;

    #[tokio::test]
    async fn a_delayed_message_comes_back_on_time() {
        let mut scene = Scene::new().await;
        let host = scene.host().ready().await;
        let mut lateness = Vec::new();
        for _ in 0..4 {
            let id = scene.publish("nack:500,ack").await;
            let mut due_at = 0;
            eventually("it was parked, and comes back", async || {
                due_at = due(&scene).await.get(&id).copied().unwrap_or(due_at);
                host.witness().starts(&id) == 2
            })
            .await;
            assert!(due_at > 0, "it was not seen parked");
            lateness.push(now_ms().saturating_sub(due_at));
        }
        // At most 100 ms on an idle machine. One of four attempts finds it idle enough.
        assert!(lateness.iter().any(|late| *late <= 100), "{lateness:?}");
        host.drained().await;
    }
}

#[tokio::test]
async fn the_backoff_grows_and_the_delay_of_a_handler_wins() {
    let mut scene = Scene::new().await;
    let host = scene
        .host()
        .flags("backoff-first=100ms backoff-factor=3 backoff-max=700ms")
        .flags("backoff-jitter=0 log-level=info,hostler=debug")
        .ready()
        .await;
    let backoff = scene.publish("nack,nack,nack,nack,ack").await;
    let own = scene.publish("nack:5,nack:250,ack").await;
    let month = 30 * 24 * 60 * 60 * 1000;
    let longest = scene.publish(&format!("nack:{month}")).await;
    eventually("both are handled", async || {
        host.witness().starts(&backoff) == 5 && host.witness().starts(&own) == 3
    })
    .await;
    eventually("the long one is parked", async || {
        due(&scene).await.contains_key(&longest)
    })
    .await;
    let wait = due(&scene).await[&longest] - now_ms();
    assert!((month - 60_000..=month).contains(&wait), "{wait} ms");
    let ended = host.drained().await;
    let delays = |id: &str| -> Vec<u64> {
        let of = |line: &&hostler_tests::host::Line| {
            line.message() == "requeued" && line.text("message_id") == Some(id)
        };
        let lines = ended.log.iter().filter(of);
        lines.filter_map(|line| line.number("delay_ms")).collect()
    };
    assert_eq!(delays(&backoff), [100, 300, 700, 700]);
    assert_eq!(delays(&own), [5, 250]);
}

#[tokio::test]
async fn a_delay_that_no_host_keeps_is_a_fault_and_is_not_shortened() {
    let mut scene = Scene::new().await;
    let too_long = 30 * 24 * 60 * 60 * 1000_u64 + 1;
    scene.publish(&format!("nack:{too_long}")).await;
    let host = scene.host().cap(2).flag("backoff-first", "5ms");
    let ended = host.finish().await;
    let faults = ended
        .log
        .iter()
        .filter(|l| l.message() == "the handler faulted");
    let details: Vec<_> = faults.filter_map(|line| line.text("detail")).collect();
    let said = "nack-requeue after 30days 1ms: the longest delay is 30days";
    assert_eq!(details, [said; 2]);
    scene.died(1, "reason", "max-deliveries").await;
    let detail = scene.header("orders:dead", "x-dead-letter-detail").await;
    assert!(detail.unwrap().contains(said));
}

#[tokio::test]
async fn parked_messages_of_a_dead_host_come_back_when_they_are_due() {
    let mut scene = Scene::new().await;
    // All are parked long before the first one is due, also on a busy machine.
    let ids = scene.publish_all("nack:10000,ack", 300).await;
    let options = scene.host().cap(2).flag("min-idle", "2s");
    let victim = options.ready().await;
    parked(&scene, 300).await;
    let due = due(&scene).await;
    let victim = victim.kill().await;
    let heir = options.finish().await;
    let (look, witness) = scene.check(&[victim, heir.clone()]).await;
    // Their second attempt is their last, so the death of the host has charged none.
    assert!(look.is_empty() && look.dead.is_empty());
    for id in &ids {
        assert_eq!(witness.attempts(id), [1, 2]);
        assert_eq!(heir.witness().attempts(id), [2]);
    }
    assert_eq!(heir.json()["acked"], 300);
    assert_eq!(heir.json()["orphans_recovered"], 0);
    assert!(!scene.exists(PARKED).await);
    assert!(now_ms() >= *due.values().max().unwrap());
}

#[tokio::test]
async fn a_parked_message_without_a_due_time_is_due_now() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("nack:3600000,ack", 20).await;
    let host = scene.host().ready().await;
    parked(&scene, 20).await;
    scene.delete(PARKED).await;
    scene.emptied().await;
    let ended = host.drained().await;
    for id in &ids {
        assert_eq!(ended.witness().attempts(id), [1, 2]);
    }
}

#[tokio::test]
async fn two_hosts_share_the_parked_messages() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("nack:150,nack:150,ack", 200).await;
    let options = scene.host().cap(3).flag("min-idle", "5s");
    let hosts = [options.ready().await, options.ready().await];
    scene.emptied().await;
    let mut ended = Vec::new();
    for host in hosts {
        ended.push(host.drained().await);
    }
    let (look, witness) = scene.check(&ended).await;
    assert!(look.dead.is_empty() && look.parked.is_empty());
    for id in &ids {
        assert_eq!(witness.attempts(id), [1, 2, 3]);
    }
    assert_eq!(witness, Witness::of_all(&ended));
}

#[tokio::test]
async fn two_groups_of_one_stream_do_not_affect_each_other() {
    let mut scene = Scene::new().await;
    let mut ids = scene.publish_all("nack:0", 20).await;
    ids.extend(scene.publish_all("nack:300", 20).await);
    ids.extend(scene.publish_all("nack", 20).await);
    // The guest that only acks is the example's: each of these is an order that it refuses, and
    // without a dead-letter key that is the end of it.
    let acking = hostler_tests::guests::guest("orders-handler");
    let nacks = scene.host().cap(3).flag("backoff-first", "20ms");
    let acks = scene
        .host()
        .flag("group", "other")
        .flag("handler", &acking.display().to_string())
        .flag("log-level", "info,hostler=debug");
    let (nacks, acks) = (nacks.ready().await, acks.ready().await);
    eventually("the one has given all up", async || {
        scene.raw.number("XLEN orders:dead").await == 60
    })
    .await;
    eventually("the other has nothing left", async || {
        scene.raw.pending("orders", "other").await.is_empty()
    })
    .await;
    // There are no copies.
    assert_eq!(scene.raw.number("XLEN orders").await, 60);
    let keys: Vec<String> = redis::from_redis_value(scene.raw.ask("KEYS *").await).unwrap();
    // Only the terms of its hosts.
    let of_other = keys.iter().filter(|key| key.contains(":other"));
    assert!(of_other.eq(["{orders}:min-idle:other"]), "{keys:?}");
    let (nacks, acks) = (nacks.drain().await, acks.drain().await);
    nacks.expect_code(0);
    acks.expect_code(0);
    for id in &ids {
        assert_eq!(nacks.witness().attempts(id), [1, 2, 3]);
    }
    assert_eq!(acks.json()["attempts"], 60);
    assert_eq!(acks.json()["requeued"], 0);
    assert_eq!(acks.json()["discarded"], 60);
    // Its guest says which attempt it is.
    let said: Vec<_> = acks
        .log
        .iter()
        .filter_map(|line| line.text("line"))
        .collect();
    assert_eq!(said.len(), 60);
    assert!(
        said.iter().all(|line| line.starts_with("attempt 1: ")),
        "{said:?}"
    );
    let look = scene.look().await;
    assert!(
        look.dead
            .iter()
            .all(|dead| dead.header("x-dead-letter-group") == Some("workers"))
    );
}

/// An idle host asks for what is due only after the server has announced a change, and sends few commands
/// altogether. Where the user may not get announcements, it asks all the time. Both take what is due.
#[tokio::test]
async fn an_idle_host_asks_for_what_is_due_only_after_a_change() {
    for is_told in [true, false] {
        let server = match is_told {
            true => RedisOptions::default(),
            false => scene::user("-client|tracking"),
        };
        let scene = scene::Scene::<()>::with(server).await;
        let url = match is_told {
            true => scene.url(),
            false => scene.user_url(),
        };
        let host = HostOptions::at(&url).ready().await;
        let asked = scene.calls("zrangebyscore").await;
        let (begun, before) = (Instant::now(), scene.raw.commands().await);
        let reads = scene.calls("xreadgroup").await;
        let mut own = 1;
        eventually("it has waited for a while", async || {
            own += 1;
            scene.calls("xreadgroup").await >= reads + 4
        })
        .await;
        let sent = scene.raw.commands().await - before - own - 1;
        let seconds = begun.elapsed().as_secs_f64();
        // It waited for eight seconds: eighty looks at two sets.
        let asked = scene.calls("zrangebyscore").await - asked;
        assert_eq!(asked < 30, is_told, "{asked}");
        // Those in scripts are among them, and those that end a start. Looks alone are twenty a second, on a machine
        // that has time for them.
        let is_quiet = sent as f64 / seconds < 15.0;
        assert!(is_quiet || !is_told, "{sent} commands in {seconds} s");
        let clients = scene.raw.text("CLIENT LIST").await;
        let of_host = |line: &&str| line.contains(" name=hostler");
        let connections = clients.lines().filter(of_host).count();
        assert!((3..=8).contains(&connections), "{clients}");
        let line = format!("publish --redis {url} --stream orders --body ack --delay 50ms");
        run_line(&line).ok();
        host.starts(1).await;
        host.drained().await;
    }
}
