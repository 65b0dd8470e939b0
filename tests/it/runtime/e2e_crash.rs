//! Hosts that die, and messages that kill them.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use fastrand::Rng;
use hostler_tests::host::{Ended, Host, HostOptions, Line};
use hostler_tests::redis::{RawRedis, eventually};
use hostler_tests::witness::Witness;
use nix::sys::signal::Signal;

use crate::runtime::e2e_scene::{Scene, starts_since};

const ABORT: &str = "x-hostler-test-abort";

/// Start a host again after each message that killed it, until the queue is empty.
pub(crate) async fn supervised(raw: &RawRedis, options: &HostOptions) -> Vec<Ended> {
    let mut ended: Vec<Ended> = Vec::new();
    loop {
        let host = options.end().await;
        let aborted = host.signal() == Some(Signal::SIGABRT);
        if !aborted {
            host.expect_code(0);
        }
        ended.push(host);
        if !aborted {
            return ended;
        }
        assert!(ended.len() < 30, "a message kills its hosts for ever");
        expire(raw).await;
    }
}

/// The leases of dead hosts end now. So leases can be long, and a slow host keeps its own.
pub(crate) async fn expire(raw: &RawRedis) {
    let pending = raw.pending("orders", "workers").await;
    for held in pending
        .iter()
        .filter(|held| held.consumer != "hostler:parked")
    {
        let (consumer, id, count) = (&held.consumer, &held.id, held.count);
        let claim = format!(
            "XCLAIM orders workers {consumer} 0 {id} IDLE 3600000 RETRYCOUNT {count} JUSTID"
        );
        raw.ask(&claim).await;
    }
}

/// A message that kills its host at every start, with innocents before and behind it.
async fn one_killer(cap: u32, point: &str) {
    let mut scene = Scene::new().await;
    let before = scene.publish_all("sleep:20", 8).await;
    let killer = scene.publish_with("ack", &[(ABORT, point)]).await;
    let mut behind = scene.publish_all("sleep:20", 8).await;
    if cap >= 5 {
        // With five starts, a message that has nacked once is safe.
        behind.extend(scene.publish_all("nack:0,sleep:20", 4).await);
    }
    let host = scene.host().cap(cap).flag("concurrency", "4").until_empty();
    let ended = supervised(&scene.raw, &host).await;
    let kills = ended.len() - 1;
    assert_eq!(kills, cap as usize, "each start kills, and there are {cap}");
    let (look, witness) = scene.check(&ended).await;
    if point == "verdict" {
        let wanted: Vec<u32> = (1..=cap).collect();
        assert_eq!(witness.attempts(&killer), wanted);
    } else {
        assert_eq!(witness.starts(&killer), 0, "it dies before the guest");
    }
    let dead = look.dead_letters_of(&killer)[0];
    assert_eq!(dead.reason(), "max-deliveries");
    let attempts = cap.to_string();
    assert_eq!(dead.header("x-dead-letter-attempts"), Some(&*attempts));
    assert_eq!(dead.header(ABORT), Some(point));
    for id in before.iter().chain(&behind) {
        assert!(witness.starts(id) <= cap as usize, "{id}");
        let dead = look.dead_letters_of(id).len();
        if cap >= 2 {
            assert_eq!(dead, 0, "the innocent {id} is dead-lettered");
            assert!(witness.starts(id) >= 1, "{id}");
        }
    }
    assert!(look.is_empty());
}

#[tokio::test]
async fn a_message_that_kills_its_host_starts_max_deliveries_times() {
    for (cap, point) in [(1, "start"), (1, "verdict"), (2, "start"), (2, "verdict")] {
        one_killer(cap, point).await;
    }
}

#[tokio::test]
async fn a_message_that_kills_its_host_five_times_dead_letters_no_neighbour() {
    one_killer(5, "verdict").await;
}

#[tokio::test]
async fn neighbours_of_messages_that_kill_their_hosts_are_not_dead_lettered() {
    const CAP: u32 = 3;
    let mut scene = Scene::new().await;
    let mut killers = Vec::new();
    let mut innocents = Vec::new();
    for _ in 0..3 {
        innocents.extend(scene.publish_all("sleep:10", 6).await);
        killers.push(scene.publish_with("ack", &[(ABORT, "verdict")]).await);
        // One retry of their own, beside the killers.
        innocents.extend(scene.publish_all("nack:0,sleep:10", 1).await);
    }
    let host = scene.host().cap(CAP).flag("concurrency", "4").until_empty();
    let ended = supervised(&scene.raw, &host).await;
    let (look, witness) = scene.check(&ended).await;
    for id in &killers {
        // The deliveries before it is suspected may have been charged without a start: another killer was faster.
        let starts = witness.starts(id);
        assert!((1..=CAP as usize).contains(&starts), "{id}: {starts}");
        assert_eq!(look.dead_letters_of(id)[0].reason(), "max-deliveries");
    }
    for id in &innocents {
        assert!(witness.starts(id) <= CAP as usize);
    }
    let plain = |id: &&String| scene.published[*id] == "sleep:10";
    for id in innocents.iter().filter(plain) {
        let dead = look.dead_letters_of(id).len();
        assert_eq!(dead, 0, "the innocent {id} is dead-lettered");
    }
}

/// The ids of the messages that this consumer holds.
async fn held_by(scene: &Scene, consumer: &str) -> BTreeSet<String> {
    let pending = scene.raw.pending("orders", "workers").await;
    pending
        .into_iter()
        .filter(|held| held.consumer == consumer)
        .map(|held| held.id)
        .collect()
}

#[tokio::test]
async fn killing_one_of_three_hosts_loses_no_message() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut scene = Scene::new().await;
    let bodies = [
        "ack",
        "sleep:3",
        "nack:0,ack",
        "sleep:10",
        "nack:50,sleep:3",
    ];
    for _ in 0..2500 {
        scene.publish(random.choice(bodies).unwrap()).await;
    }
    scene.raw.ask("XGROUP CREATE orders workers $").await;
    let options = scene.host().cap(5).flags("concurrency=8 min-idle=3s");
    let mut hosts: Vec<Host> = Vec::new();
    for _ in 0..3 {
        hosts.push(options.ready().await);
    }
    // All three wait, and a new message wakes them: none has done all before the others begin.
    scene.raw.ask("XGROUP SETID orders workers 0").await;
    scene.publish("ack").await;
    let when = random.usize(200..1500);
    eventually("the hosts are at work", async || {
        Witness::so_far(&hosts).total() >= when
            && hosts.iter().all(|host| host.witness().total() > 20)
    })
    .await;
    let victim = hosts.swap_remove(random.usize(..hosts.len()));
    let consumer = victim.consumer();
    let victim = victim.kill().await;
    assert_eq!(victim.signal(), Some(Signal::SIGKILL));
    let held = held_by(&scene, &consumer).await;
    let mut ended = vec![victim];
    scene.emptied().await;
    for host in hosts {
        ended.push(host.drained().await);
    }
    let (look, witness) = scene.check(&ended).await;
    assert!(look.is_empty() && look.dead.is_empty(), "{:?}", look.dead);
    for (id, body) in &scene.published {
        let wanted = if body.contains("nack") { 2 } else { 1 };
        let starts = witness.starts(id);
        // Only messages that the victim held may start once more.
        let most = wanted + usize::from(held.contains(id));
        assert!(
            (1..=most).contains(&starts),
            "{id} ({body}): {starts}, held {}",
            held.contains(id)
        );
    }
    assert!(witness.repeated().is_empty(), "two starts with one number");
    let recovered: u64 = ended[1..]
        .iter()
        .map(|host| host.json()["orphans_recovered"].as_u64().unwrap())
        .sum();
    assert_eq!(recovered, held.len() as u64);
}

#[tokio::test]
async fn an_orphan_has_headers_with_its_count_and_idle_time() {
    let mut scene = Scene::new().await;
    let id = scene.publish("sleep:60000,echo").await;
    let options = scene.host().dead_letter().flags("min-idle=2s timeout=2m");
    let victim = options.ready().await;
    victim.starts(1).await;
    victim.kill().await;
    let ended = options.finish().await;
    assert_eq!(ended.witness().attempts(&id), [2]);
    assert_eq!(ended.json()["orphans_recovered"], 1);
    let look = scene.look().await;
    let dead = look.dead_letters_of(&id)[0];
    let said = dead.header("x-dead-letter-detail").unwrap();
    assert!(said.contains("attempt=2"), "{said}");
    assert!(said.contains("redis-delivery-count=1"), "{said}");
    let idle = said.split("redis-idle-ms=").nth(1).unwrap();
    let idle: u64 = idle.split(['|', ']']).next().unwrap().parse().unwrap();
    assert!(idle >= 2000, "{idle}");
    // They describe one delivery, so its dead letter has none.
    assert_eq!(dead.header("redis-idle-ms"), None);
    assert_eq!(dead.header("redis-delivery-count"), None);
}

#[tokio::test]
async fn a_paused_host_steals_nothing_back_and_settles_nothing_twice() {
    let mut scene = Scene::new().await;
    // First attempts that end while their host is paused, one of them with a drop; and a second
    // attempt that still runs when the first host wakes up. All leave a busy machine some time.
    let id = scene.publish("sleep:4000+drop,sleep:6000").await;
    let at_once = scene.publish("sleep:4000+nack:0,ack").await;
    let later = scene.publish("sleep:4000+nack:3600000,ack").await;
    let acked = scene.publish("sleep:4000,sleep:10").await;
    let options = scene.host().cap(5).flags("min-idle=5s timeout=1m").admin();
    let paused = options.ready().await;
    paused.starts(4).await;
    paused.pause().await;

    let held = held_by(&scene, &paused.consumer()).await;
    assert_eq!(held.len(), 4, "the pause came too late");
    let other = options.ready().await;
    other.starts(4).await;
    paused.resume();
    eventually("the sleeper sees what it has lost", async || {
        paused.metric("hostler_steals_total") >= 1
    })
    .await;
    // The message that still runs stays with the other host.
    let holders = scene.raw.pending("orders", "workers").await;
    for held in &holders {
        assert_eq!(held.consumer, other.consumer(), "{held:?}");
        assert_eq!(held.count, 2, "{held:?}");
    }
    eventually("the other host has handled them", async || {
        scene.look().await.is_empty()
    })
    .await;
    let paused = paused.drain().await;
    let other = other.drain().await;
    paused.expect_code(0);
    other.expect_code(0);
    let witness = Witness::of_all([&paused, &other]);
    for id in [&id, &at_once, &later, &acked] {
        assert_eq!(witness.attempts(id), [1, 2], "{id}");
    }
    let look = scene.look().await;
    assert!(look.is_empty() && look.dead.is_empty() && look.parked.is_empty());
    assert_eq!(paused.json()["dead_lettered"], serde_json::json!({}));
    // A requeue at once is decided without Redis.
    assert!(paused.json()["requeued"].as_u64() <= Some(1));
    assert_eq!(other.json()["acked"], 4);
    assert_eq!(other.json()["requeued"], 0);
    assert_eq!(other.json()["orphans_recovered"], 4);
}

/// A host with slow messages in its buffer that was paused while one of them ran: so nothing was about to start.
async fn paused_in_an_attempt(scene: &mut Scene, options: &HostOptions) -> (Host, Vec<String>) {
    const TAKES: Duration = Duration::from_secs(2);
    for _ in 0..10 {
        let (host, slow) = scene.host_with_a_buffer(options, "sleep:2000").await;
        host.pause().await;
        let lines = host.log();
        let mut starts = lines.iter().filter(|line| line.start().is_some());
        let last = starts.next_back().and_then(|line| line.text("timestamp"));
        let last = humantime::parse_rfc3339(last.unwrap()).unwrap();
        if last + TAKES / 2 > SystemTime::now() {
            return (host, slow);
        }
        host.kill().await;
    }
    panic!("each attempt had ended before its host was paused");
}

#[tokio::test]
async fn no_attempt_starts_on_an_expired_lease() {
    let mut scene = Scene::new().await;
    let options = scene.host().cap(5).flags("concurrency=1 min-idle=3s");
    let (paused, slow) = paused_in_an_attempt(&mut scene, &options).await;
    // Redis has now carried out the last request of the paused host.
    scene.raw.ask("PING").await;
    let held = held_by(&scene, &paused.consumer()).await;
    let other = options.clone().flag("concurrency", "8").ready().await;
    eventually("the other host has taken over", async || {
        held_by(&scene, &paused.consumer()).await.is_empty()
    })
    .await;
    let resumed = SystemTime::now();
    paused.resume();
    scene.emptied().await;
    let ended = [paused.drain().await, other.drain().await];
    let (look, witness) = scene.check(&ended).await;
    assert!(look.dead.is_empty());
    let later = starts_since(&ended[0], resumed);
    for id in &held {
        let (ours, others) = (ended[0].witness().starts(id), ended[1].witness().starts(id));
        assert_eq!(later.starts(id), 0, "{id} started on an expired lease");
        // A message whose attempt had ended when its host was paused may be acknowledged late, before the
        // other host starts it.
        assert!(
            others == 1 || ours == 1 && others == 0,
            "{id}: {ours}, {others}"
        );
    }
    // Only the message that ran when its host was paused may have run on the other host as well.
    let twice = |id: &&String| witness.starts(id) > 1;
    let twice: Vec<_> = slow.iter().filter(twice).collect();
    assert!(twice.len() <= 1, "{twice:?}");
    assert!(
        twice
            .iter()
            .all(|id| held.contains(*id) && witness.starts(id) == 2)
    );
    assert!(witness.repeated().is_empty(), "two starts with one number");
}

#[tokio::test]
async fn orphans_of_many_dead_consumers_are_found() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("ack", 60).await;
    scene.raw.ask("XGROUP CREATE orders workers 0").await;
    for n in 0..60 {
        let read = format!("XREADGROUP GROUP workers gone-{n} COUNT 1 STREAMS orders >");
        scene.raw.ask(&read).await;
    }
    expire(&scene.raw).await;
    let options = scene.host().cap(3).until_empty();
    let ended = options.finish().await;
    for id in &ids {
        // The dead host may have started it, so its delivery is charged.
        assert_eq!(ended.witness().attempts(id), [2]);
    }
    assert_eq!(ended.json()["orphans_recovered"], 60);
    assert_eq!(ended.json()["acked"], 60);
}

/// A message that a dead host has left behind with this many charges.
async fn left_behind(scene: &mut Scene, body: &str, charges: u32) -> String {
    let id = scene.publish(body).await;
    let made = scene.raw.try_ask("XGROUP CREATE orders workers 0").await;
    assert!(made.is_ok(), "it is the first of its stream");
    let read = "XREADGROUP GROUP workers gone COUNT 1 STREAMS orders >";
    scene.raw.ask(read).await;
    let claim = format!("XCLAIM orders workers gone 0 {id} IDLE 3600000 RETRYCOUNT {charges}");
    scene.raw.ask(&claim).await;
    id
}

#[tokio::test]
async fn a_suspect_runs_by_itself() {
    let mut scene = Scene::new().await;
    let suspect = left_behind(&mut scene, "sleep:300", 2).await;
    scene.publish_all("sleep:15", 300).await;
    let options = scene.host().cap(5).flag("concurrency", "4").until_empty();
    let ended = options.finish().await;
    let (_, witness) = scene.check(std::slice::from_ref(&ended)).await;
    assert_eq!(witness.attempts(&suspect), [3]);
    let position = |message: &str| {
        let mut lines = ended.log.iter();
        lines
            .position(|line| line.message().starts_with(message))
            .unwrap()
    };
    let (from, to) = (
        position("runs isolated"),
        position("the isolated run has ended"),
    );
    let starts: Vec<_> = ended.log[from..to]
        .iter()
        .filter_map(|line| line.start())
        .collect();
    assert_eq!(starts, [(&*suspect, 3)], "something ran beside it");
    // Normal traffic came first, and went on behind.
    let normal = |lines: &[Line]| lines.iter().filter_map(Line::start).count();
    assert!(normal(&ended.log[..from]) > 0 && normal(&ended.log[to..]) > 0);
}

#[tokio::test]
async fn a_suspect_that_waits_when_its_host_drains_stays_a_suspect() {
    let mut scene = Scene::new().await;
    let suspect = left_behind(&mut scene, "ack", 2).await;
    // It must wait for this one.
    let slow = scene.publish("sleep:8000").await;
    let options = scene.host().cap(5).flags("min-idle=3s timeout=1m");
    let host = options.ready().await;
    host.starts(1).await;
    host.logs("recovered orphans").await;
    let consumer = host.consumer();
    let first = host.drained().await;
    assert_eq!(first.witness().attempts(&slow), [1]);
    assert_eq!(first.witness().starts(&suspect), 0, "it did not wait");
    // It is not parked: the next host must see that it is a suspect.
    let held = &scene.raw.pending("orders", "workers").await[0];
    assert_eq!((&held.consumer, held.count), (&consumer, 2));
    assert!(held.idle_ms >= 3000, "{held:?}");
    let second = options.finish().await;
    assert_eq!(
        second.count(|line| line.message() == "recovered orphans"),
        1
    );
    assert_eq!(
        second.count(|line| line.message().starts_with("runs isolated")),
        1
    );
    assert_eq!(second.witness().attempts(&suspect), [3]);
}

#[tokio::test]
async fn a_saturated_host_still_takes_orphans_and_due_messages() {
    let mut scene = Scene::new().await;
    let orphan = left_behind(&mut scene, "ack", 1).await;
    let parked = scene.publish("nack:300,ack").await;
    let backlog = scene.publish_all("sleep:80", 80).await;
    let options = scene
        .host()
        .cap(5)
        .flags("concurrency=1 min-idle=5s")
        .until_empty();
    let ended = options.finish().await;
    let starts: Vec<_> = ended.log.iter().filter_map(Line::start).collect();
    let position = |id: &str, attempt| {
        let position = starts.iter().position(|start| *start == (id, attempt));
        position.expect("it is started")
    };
    let last = position(&backlog[79], 1);
    assert!(
        position(&orphan, 2) < last,
        "the orphan waited for the whole backlog"
    );
    assert!(
        position(&parked, 2) < last,
        "the parked message waited for the whole backlog"
    );
}
