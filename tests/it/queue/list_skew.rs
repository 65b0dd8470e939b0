//! Hosts whose clocks are wrong by hours. Hosts take the time from the server: for every score, and
//! for the expiry of messages, in queues of every kind.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hostler::delivery::message::Headers;
use hostler::queue::Queue;
use hostler::wire::frame;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::skew::Skewed;
use hostler_tests::witness::Witness;

use crate::queue::list_scene::{
    CLAIMS, DEAD, DELAYED, INSTANCES, KEY, Scene, both, framed, processing,
};
use crate::scene::orphaned;

const HOUR_MS: i64 = 3_600_000;
/// Where clocks are, in hours.
const SKEWS: [i64; 3] = [7, -7, 0];
/// Scores may differ this much from the server's time. The wrong clocks differ by more.
const TOLERANCE_MS: i64 = HOUR_MS;

fn list(scene: &Scene) -> HostOptions {
    HostOptions::new(&scene.server)
        .without("stream")
        .without("group")
        .flag("list", KEY)
        .flag("reliable", "true")
        .flag("recovery-zset", CLAIMS)
        .flag("dead-letter", DEAD)
        .flags("min-idle=3s orphan-scan=100ms ttl=1h timeout=1m")
}

fn value(id: &str, expires_at_ms: Option<i64>, body: &str) -> Vec<u8> {
    let mut headers = vec![("x-message-id".into(), id.to_owned().into())];
    if let Some(at) = expires_at_ms {
        headers.push(("x-expires-at".into(), at.to_string().into()));
    }
    let value = frame::encode(&Headers::new(headers), body.as_bytes()).unwrap();
    value.to_vec()
}

/// Every score of a sorted set.
async fn scores(scene: &Scene, key: &str) -> Vec<i64> {
    let range = format!("ZRANGE {key} 0 -1 WITHSCORES");
    let reply = scene.raw.ask(&range).await;
    let pairs: Vec<(Vec<u8>, f64)> = redis::from_redis_value(reply).unwrap();
    let scores = pairs.into_iter().map(|(_, score)| score);
    scores.filter(|s| s.is_finite()).map(|s| s as i64).collect()
}

/// All scores are near the server's time, and at most `ahead_ms` ahead of it.
async fn are_of_the_server(scene: &Scene, key: &str, ahead_ms: i64) {
    let now = scene.now_ms().await;
    for score in scores(scene, key).await {
        let late = score - now;
        assert!(
            (-TOLERANCE_MS..=ahead_ms + TOLERANCE_MS).contains(&late),
            "{key}: {late} ms from now"
        );
    }
}

fn warns_of_its_clock(host: &Host) -> bool {
    host.count(|line| line.message().contains("the server's counts")) > 0
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_cost_no_lease_no_delay_and_no_message() {
    let scene = Scene::new().await;
    let skewed = Skewed::new();
    let now = scene.now_ms().await;
    let mut hosts = Vec::new();
    for (n, hours) in SKEWS.into_iter().enumerate() {
        let options = list(&scene)
            .flag("consumer", &format!("h{n}"))
            .flags("concurrency=4 prefetch=4 recovery-ttl=60s max-deliveries=4");
        hosts.push(skewed.turn(options, hours).ready().await);
    }
    for (host, hours) in hosts.iter().zip(SKEWS) {
        // The log may be behind the host.
        eventually("a host warns of its clock, if that is wrong", async || {
            warns_of_its_clock(host) == (hours != 0)
        })
        .await;
    }
    // Each host parks some, and runs some for longer than `min_idle`.
    let mut ids = Vec::new();
    for n in 0..45 {
        let (id, body) = match n % 3 {
            0 => (format!("long{n}"), "sleep:7500"),
            1 => (format!("late{n}"), "sleep:100+nack:10000,ack"),
            _ => (format!("soon{n}"), "sleep:100+nack:20,ack"),
        };
        let expires = (n % 2 == 0).then_some(now + HOUR_MS);
        scene.publish([&value(&id, expires, body)]).await;
        ids.push(id);
    }
    for host in &hosts {
        host.starts(5).await;
    }
    eventually("some wait for their time", async || {
        scores(&scene, DELAYED).await.len() >= 3
    })
    .await;
    let waiting = scores(&scene, DELAYED).await;
    let now = scene.now_ms().await;
    for due in waiting {
        // None is overdue by much, and none is due later than its handler asked for.
        let wait = due - now;
        assert!((-TOLERANCE_MS..=10_000).contains(&wait), "due in {wait} ms");
    }
    are_of_the_server(&scene, CLAIMS, 0).await;
    are_of_the_server(&scene, INSTANCES, 0).await;
    let ttl = scene.raw.number(&format!("PTTL {CLAIMS}")).await;
    assert!((1..=60_000).contains(&ttl), "{ttl}");

    // The host whose clock is ahead dies. Its messages come back, once; the others keep theirs.
    let dead = hosts.remove(0);
    let instance = dead.consumer();
    let dead = dead.kill().await;
    let orphans = i64::try_from(scene.list(&processing(&instance)).await.len()).unwrap();
    scene.emptied().await;
    let (mut ended, mut recovered, mut acked) = (vec![dead], 0, 0);
    for host in hosts {
        let host = host.drained().await;
        let summary = host.json();
        recovered += summary["orphans_recovered"].as_i64().unwrap();
        acked += summary["acked"].as_i64().unwrap();
        ended.push(host);
    }
    assert_eq!(recovered, orphans);
    assert!(acked > 0 && scene.list(DEAD).await.is_empty());
    let witness = Witness::of_all(&ended);
    // The dead host is charged with an attempt of each message that it held, started or not: that message
    // starts once more, or once less.
    let mut differ = 0;
    for id in &ids {
        let planned = 1 + i64::from(!id.starts_with("long"));
        let starts = i64::try_from(witness.starts(id)).unwrap();
        assert!(starts >= 1, "{id} never started");
        assert!((starts - planned).abs() <= 1, "{id}: {starts} starts");
        differ += (starts - planned).abs();
    }
    assert!(differ <= orphans, "{differ} differ, {orphans} orphans");
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_expire_by_the_clock_of_the_server() {
    let skewed = Skewed::new();
    for hours in SKEWS {
        let scene = Scene::new().await;
        let now = scene.now_ms().await;
        for (id, at, body) in [
            ("over", Some(now - 1), "ack"),
            ("good", Some(now + HOUR_MS), "ack"),
            // Its time to live begins at its first claim; it is claimed twice.
            ("again", None, "nack:1,ack"),
        ] {
            scene.publish([&value(id, at, body)]).await;
        }
        let host = skewed.turn(list(&scene), hours).until_empty();
        host.finish().await;
        let dead = scene.list(DEAD).await;
        assert_eq!(dead.len(), 1, "{hours} hours");
        let (headers, _) = framed(&dead[0]);
        assert_eq!(headers.find_str("x-message-id"), Some("over"));
        assert_eq!(headers.find_str("x-dead-letter-reason"), Some("expired"));
        // The server's clock dates its death, too.
        let death: serde_json::Value =
            serde_json::from_str(headers.find_str("x-death").unwrap()).unwrap();
        let died = death[0]["last-time"].as_i64().unwrap();
        assert!((died - now).abs() < TOLERANCE_MS, "{}", died - now);

        // A stream says when its messages were enqueued.
        scene.raw.add("orders", "ack").await;
        let past = now - 2 * HOUR_MS;
        let old = format!("XADD old {past}-0 _payload ack");
        scene.raw.ask(&old).await;
        for (stream, acked) in [("orders", 1), ("old", 0)] {
            let host = HostOptions::new(&scene.server)
                .flag("stream", stream)
                .flags("dead-letter=orders:dead ttl=1h");
            let ended = skewed.turn(host, hours).finish().await;
            assert_eq!(ended.json()["acked"], acked, "{stream}, {hours} hours");
        }
        assert_eq!(scene.raw.number("XLEN orders:dead").await, 1);
    }
}

/// A simple list and a channel keep nothing that could say when a message came.
#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_kept_nowhere_expire_by_the_clock_of_the_server() {
    let skewed = Skewed::new();
    for hours in SKEWS {
        let scene = Scene::new().await;
        let now = scene.now_ms().await;
        let (over, good) = (now - 1, now + HOUR_MS);
        let values = [("over", over), ("good", good)].map(|(id, at)| value(id, Some(at), "ack"));
        let none = || {
            let host = HostOptions::new(&scene.server);
            host.without("stream").without("group")
        };
        scene.publish([&values[0], &values[1]]).await;
        let host = skewed.turn(none().flag("list", KEY), hours);
        let ended = host.finish().await;
        assert_eq!(ended.json()["acked"], 1, "a list, {hours} hours");
        assert_eq!(ended.json()["discarded"], 1, "a list, {hours} hours");

        // The time to live of a channel's message begins when it comes.
        let host = none().flags("channel=news ttl=1h").admin();
        let host = skewed.turn(host, hours).ready().await;
        assert_eq!(warns_of_its_clock(&host), hours != 0);
        for value in &values {
            let words = [b"PUBLISH".as_slice(), b"news", value];
            scene.raw.ask_words(&words).await;
        }
        host.starts(1).await;
        let ended = host.drained().await;
        assert_eq!(ended.json()["acked"], 1, "a channel, {hours} hours");
        assert_eq!(ended.json()["discarded"], 1, "a channel, {hours} hours");
    }
}

/// The clock of the host is the last resort.
#[tokio::test]
async fn a_host_that_may_not_read_the_clock_of_the_server_says_so() {
    let scene = Scene::with_user("-time").await;
    let host = HostOptions::at(&scene.user_url());
    let host = host.without("stream").without("group").flag("list", KEY);
    let host = host.ready().await;
    host.logs("messages expire by the clock of this machine")
        .await;
    scene.publish([&value("m", None, "ack")]).await;
    host.starts(1).await;
    assert_eq!(host.drained().await.json()["acked"], 1);
}

/// A queue that tests serve with a `min_idle` of one second.
fn brief<O>(options: O, set: impl FnOnce(&mut O, Duration)) -> O {
    let mut options = options;
    set(&mut options, Duration::from_secs(1));
    options
}

/// The orphans of `host` are here in time, although the clock of the server went back by an hour.
async fn are_found(heir: &impl Queue, begun: Instant) {
    let mut found = Vec::new();
    eventually("the orphans are found", async || {
        found.extend(orphaned(heir, 9).await);
        found.len() >= 2
    })
    .await;
    assert_eq!(found.len(), 2);
    assert!(begun.elapsed() >= Duration::from_millis(500), "too early");
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_stream_do_not_wait_for_a_clock_that_was_set_back() {
    use crate::queue::queue_scene::{Scene, options};
    let skewed = Skewed::new();
    for notices in [true, false] {
        let scene = Scene::with(skewed.server()).await;
        let options = || brief(options(), |options, time| options.min_idle = time);
        let host = scene.host_with(options()).await;
        // One that was there before; the other one only comes when the clock is wrong.
        let before = scene.host_with(options()).await;
        assert!(orphaned(&before, 9).await.is_empty());
        scene.read(&host, &["a", "b"]).await;
        let begun = Instant::now();
        skewed.set(-3600);
        let heir = match notices {
            true => before,
            false => scene.host_with(options()).await,
        };
        heir.maintain().await.unwrap();
        assert!(orphaned(&heir, 9).await.is_empty());
        are_found(&heir, begun).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_of_a_list_do_not_wait_for_a_clock_that_was_set_back() {
    let skewed = Skewed::new();
    for options in both() {
        let scene = Scene::with(skewed.server()).await;
        let options = || brief(options.clone(), |options, time| options.min_idle = time);
        let host = scene.host_with(options()).await;
        scene.claim(&host, &["a", "b"]).await;
        let begun = Instant::now();
        skewed.set(-3600);
        let heir = scene.host_with(options()).await;
        assert!(orphaned(&heir, 9).await.is_empty());
        are_found(&heir, begun).await;
    }
}

/// A file that reads the clock of this machine must be listed here, with a reason.
#[test]
fn only_listed_files_of_the_queues_read_the_clock_of_this_machine() {
    let rooms = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../host");
    let mut found = Vec::new();
    let of_queues = ["src/queue", "src/outgoing", "src/calls", "publish", "redis"];
    let mut open: Vec<PathBuf> = of_queues.iter().map(|room| rooms.join(room)).collect();
    while let Some(dir) = open.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|e| e == "rs")
                && ["SystemTime", "machine_ms"]
                    .iter()
                    .any(|clock| std::fs::read_to_string(&path).unwrap().contains(clock))
            {
                let path = path.strip_prefix(&rooms).unwrap();
                found.push(path.display().to_string());
            }
        }
    }
    found.sort();
    let allowed = [
        // The time of publication.
        "publish/src/outgoing.rs",
        // The name of the function that reads it.
        "redis/src/lib.rs",
        // Before the first answer of the server, and to compare both clocks.
        "redis/src/server_time.rs",
    ];
    assert_eq!(found, allowed);
}
