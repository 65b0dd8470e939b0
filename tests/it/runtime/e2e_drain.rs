//! Stopping: started attempts end, other messages go back without a charge.

use fastrand::Rng;
use hostler_tests::host::Ended;
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;
use nix::sys::signal::Signal;
use serde_json::json;

use crate::runtime::e2e_scene::Scene;

const SUMMARY_OF_NOTHING: &str = r#"{"attempts":0,"acked":0,"requeued":0,"discarded":0,"dead_lettered":{},"faults":{},"orphans_recovered":0,"swaps":0}"#;

async fn drain_costs_nothing(cap: u32) {
    let mut scene = Scene::new().await;
    let options = scene.host().cap(cap).flag("concurrency", "2");
    let (host, slow) = scene.host_with_a_buffer(&options, "sleep:300").await;
    let consumer = host.consumer();
    let first = host.drained().await;
    // No host holds a message, and the messages that have not started have no charge.
    for held in scene.raw.pending("orders", "workers").await {
        assert_eq!(held.consumer, "hostler:parked", "{held:?}");
        assert_eq!(held.count, 0, "{held:?}");
    }
    let consumers = scene.raw.ask("XINFO CONSUMERS orders workers").await;
    let consumers = format!("{consumers:?}");
    assert!(
        !consumers.contains(&consumer),
        "its consumer is left behind"
    );
    let started = first.witness();
    let acked = first.json()["acked"].as_u64().unwrap();
    assert_eq!(
        acked,
        started.total() as u64,
        "the started attempts have ended"
    );
    assert!(slow.iter().any(|id| started.starts(id) == 0));
    let second = options.finish().await;
    assert_eq!(second.json()["orphans_recovered"], 0);
    let (look, witness) = scene.check(&[first, second]).await;
    assert!(look.is_empty() && look.dead.is_empty());
    for id in scene.published.keys() {
        assert_eq!(witness.attempts(id), [1], "{id}");
    }
}

#[tokio::test]
async fn a_drain_hands_back_unstarted_messages_without_a_charge() {
    // At a cap of one, a charge would end the message.
    drain_costs_nothing(1).await;
    drain_costs_nothing(2).await;
}

#[tokio::test]
async fn a_drain_past_its_deadline_leaves_running_messages_to_other_hosts() {
    let mut scene = Scene::new().await;
    let stuck = scene.publish("sleep:600000,ack").await;
    let done = scene.publish("sleep:200").await;
    let options = scene
        .host()
        .cap(2)
        .flags("timeout=1h min-idle=3s drain-timeout=5s");
    let host = options.ready().await;
    host.starts(2).await;
    let first = host.drain().await;
    first.expect_code(75);
    assert_eq!(first.json()["acked"], 1);
    let heir = options.finish().await;
    assert_eq!(heir.json()["orphans_recovered"], 1);
    let (look, witness) = scene.check(&[first, heir]).await;
    assert!(look.dead.is_empty());
    assert_eq!(witness.attempts(&stuck), [1, 2]);
    assert_eq!(witness.attempts(&done), [1]);
}

#[tokio::test]
async fn a_second_signal_ends_at_once_and_loses_nothing() {
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut scene = Scene::new().await;
        let id = scene.publish("sleep:600000,ack").await;
        let options = scene.host().cap(2).flags("min-idle=3s timeout=1h");
        let host = options.ready().await;
        host.starts(1).await;
        host.signal(Signal::SIGTERM);
        host.logs("draining").await;
        host.signal(signal);
        let first = host.ended().await;
        first.expect_code(code);
        let heir = options.finish().await;
        let (_, witness) = scene.check(&[first, heir]).await;
        assert_eq!(witness.attempts(&id), [1, 2]);
    }
}

#[tokio::test]
async fn a_handler_sees_that_its_host_stops() {
    let mut scene = Scene::new().await;
    let cancelled = scene.publish("wait-cancelled+drop:told").await;
    let nacks = scene.publish("wait-cancelled+nack:0,ack").await;
    let delays = scene.publish("wait-cancelled+nack:50,ack").await;
    let options = scene.host().cap(2).flags("timeout=1h drain-timeout=50s");
    let host = options.ready().await;
    host.starts(3).await;
    let first = host.drained().await;
    // A requeue keeps its charge, also on another host.
    for held in scene.raw.pending("orders", "workers").await {
        assert_eq!((held.consumer.as_str(), held.count), ("hostler:parked", 1));
    }
    let heir = options.finish().await;
    assert_eq!(first.json()["requeued"], 2);
    assert_eq!(first.json()["dead_lettered"], json!({"dropped": 1}));
    let (look, witness) = scene.check(&[first, heir]).await;
    assert_eq!(witness.attempts(&cancelled), [1]);
    assert_eq!(witness.attempts(&nacks), [1, 2]);
    assert_eq!(witness.attempts(&delays), [1, 2]);
    let dead = look.dead_letters_of(&cancelled)[0];
    assert_eq!(dead.header("x-dead-letter-detail"), Some("told"));
}

#[tokio::test]
async fn an_idle_host_stops_at_once() {
    let scene = Scene::new().await;
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let host = scene.host().ready().await;
        let begun = std::time::Instant::now();
        host.signal(signal);
        let ended = host.ended().await;
        ended.expect_code(0);
        assert_eq!(ended.stdout, format!("{SUMMARY_OF_NOTHING}\n"));
        println!("stopped after {:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn a_host_can_be_stopped_before_its_first_message() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("ack", 100).await;
    let mut ended = Vec::new();
    for pause in [0, 50, 150, 250, 400] {
        let host = scene.host().cap(1).start();
        // Before the host handles signals, a signal ends it.
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        host.signal(Signal::SIGTERM);
        let host = host.ended().await;
        let in_peace = host.code() == Some(0);
        assert!(
            in_peace || host.signal() == Some(Signal::SIGTERM),
            "{:?}",
            host.status
        );
        ended.push(host);
    }
    ended.push(scene.host().cap(1).until_empty().end().await);
    let (look, witness) = scene.check(&ended).await;
    assert!(look.is_empty() && look.dead.is_empty());
    assert!(ids.iter().all(|id| witness.attempts(id) == [1]));
}

#[tokio::test]
async fn rolling_restarts_under_load_repeat_no_attempt() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = Rng::with_seed(seed);
    let mut scene = Scene::new().await;
    let bodies = [
        "ack",
        "ack",
        "sleep:5",
        "sleep:40",
        "nack:0,ack",
        "nack:30,ack",
    ];
    for _ in 0..1500 {
        scene.publish(random.choice(bodies).unwrap()).await;
    }
    // A message that is charged once too often ends in the dead-letter queue.
    let options = scene.host().cap(2).flags("concurrency=4 min-idle=10s");
    let mut ended: Vec<Ended> = Vec::new();
    let mut hosts = vec![options.ready().await];
    for _ in 0..5 {
        let most = random.usize(50..200);
        hosts.push(options.start());
        let old = hosts.remove(0);
        old.logs("ready").await;
        let before = old.witness().total();
        eventually("the old one works, or has nothing to do", async || {
            old.witness().total() >= before + most || scene.look().await.is_empty()
        })
        .await;
        ended.push(old.drain().await);
    }
    scene.emptied().await;
    for host in hosts {
        host.logs("ready").await;
        ended.push(host.drain().await);
    }
    for host in &ended {
        host.expect_code(0);
        assert_eq!(host.json()["orphans_recovered"], 0);
    }
    let (look, witness) = scene.check(&ended).await;
    assert!(look.dead.is_empty(), "{:?}", look.dead);
    for (id, body) in &scene.published {
        let wanted = if body.contains("nack") {
            &[1, 2][..]
        } else {
            &[1]
        };
        assert_eq!(witness.attempts(id), wanted, "{id} ({body})");
    }
    let acked: u64 = ended
        .iter()
        .map(|host| host.json()["acked"].as_u64().unwrap())
        .sum();
    assert_eq!(acked, 1500);
}

#[tokio::test]
async fn until_empty_waits_for_messages_of_other_hosts_and_parked_messages() {
    let mut scene = Scene::new().await;
    let slow = scene.publish("sleep:1200").await;
    let other = scene.host().ready().await;
    other.starts(1).await;
    let parked = scene.publish("nack:900,ack").await;
    let ended = scene.host().finish().await;
    let look = scene.look().await;
    assert!(look.is_empty() && look.parked.is_empty(), "{look:?}");
    let other = other.drain().await;
    let witness = Witness::of_all([&other, &ended]);
    assert_eq!(witness.attempts(&slow), [1]);
    assert_eq!(witness.attempts(&parked), [1, 2]);
}

#[tokio::test]
async fn until_empty_ends_on_an_empty_queue_and_fails_at_its_timeout() {
    let mut scene = Scene::new().await;
    let ended = scene.host().finish().await;
    assert_eq!(ended.stdout, format!("{SUMMARY_OF_NOTHING}\n"));
    let id = scene.publish("nack:3600000").await;
    let ended = scene
        .host()
        .until_empty()
        .flag("until-empty-timeout", "5s")
        .end()
        .await;
    ended.expect_code(75);
    assert_eq!(ended.witness().attempts(&id), [1]);
    assert_eq!(ended.json()["requeued"], 1);
    let look = scene.look().await;
    assert_eq!(look.parked, [id]);
}
