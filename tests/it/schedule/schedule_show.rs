//! Hosts with wrong clocks are killed at random, and a schedule comes each second: each tick is one message.
//!
//! `HOSTLER_SCHEDULE_TICKS=600` is the long show, with eight hosts.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hostler::schedule::definition;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{RawRedis, RedisServer, eventually, eventually_or};
use hostler_tests::sentinel::Watched;
use hostler_tests::skew::Skewed;
use tokio::time::{Instant, sleep};

use crate::schedule::schedule_scene::{Place, Scene, defined_as};

/// How many ticks there are, and how many hosts.
fn size() -> (usize, usize) {
    let ticks = std::env::var("HOSTLER_SCHEDULE_TICKS").ok();
    match ticks.and_then(|ticks| ticks.parse().ok()) {
        Some(ticks) => (ticks, 8),
        None => (10, 3),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_second_is_one_message_while_hosts_with_wrong_clocks_are_killed() {
    let (wanted, count) = size();
    let skewed = Skewed::new();
    let server = RedisServer::start();
    let raw = server.raw().await;
    let to = hostler::publish::Stream::new("orders").into();
    let own = Place { to };
    let scene = Scene { server, raw, own };
    // Ticks that a slow machine misses are published as well.
    let each = defined_as("each", "* * * * * *", |known| {
        "1000".clone_into(&mut known.catch_up)
    });
    scene.define(&[each]).await;
    let first = scene.next("each").await.unwrap();
    let options = |place: usize| {
        // Five minutes apart.
        let seconds = (i64::try_from(place).unwrap() - 4) * 300;
        skewed.turn_by(HostOptions::new(&scene.server), seconds)
    };
    let mut hosts: Vec<Host> = (0..count).map(|place| options(place).start()).collect();
    let begun = Instant::now();
    let patience = Duration::from_secs(120 + 2 * wanted as u64);
    while scene.ids().await.len() < wanted {
        assert!(begun.elapsed() < patience, "{:?}", scene.ids().await);
        // One host is killed each time, and another one starts.
        let place = fastrand::usize(..count);
        let dead = std::mem::replace(&mut hosts[place], options(place).start());
        dead.kill().await;
        sleep(Duration::from_millis(fastrand::u64(200..2_000))).await;
    }
    let ids = scene.ids().await;
    let mut published: BTreeMap<String, usize> = BTreeMap::new();
    for id in &ids {
        *published.entry(id.clone()).or_default() += 1;
    }
    let twice: Vec<_> = published.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for tick in 0..wanted {
        let tick = u64::try_from(first).unwrap() + 1_000 * tick as u64;
        let id = definition::id("each", tick);
        assert!(published.contains_key(&id), "{id} is missing of {wanted}");
    }
    // All of them are handled, too: the queue is as any other.
    let what = || format!("{wanted} messages are handled");
    eventually_or(what, async || {
        let starts: usize = hosts
            .iter()
            .map(|host| host.count(|line| line.start().is_some()))
            .sum();
        starts > 0
    })
    .await;
}

/// The ids of the entries, in order.
async fn ids(raw: &RawRedis) -> Vec<String> {
    let entries = raw.entries("orders").await.into_iter();
    let id = |(_, fields): (_, Vec<Vec<u8>>)| {
        let place = fields.iter().position(|name| name == b"h:x-message-id")?;
        Some(String::from_utf8_lossy(&fields[place + 1]).into_owned())
    };
    entries.filter_map(id).collect()
}

/// What a failed primary had published alone comes again, with the same id: on the server that is left, each second
/// is there once.
#[tokio::test(flavor = "multi_thread")]
async fn each_second_is_one_message_after_a_failover() {
    let mut watched = Watched::start().await;
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("orders.toml");
    let each = "[schedule.each]\ncron = \"* * * * * *\"\ncatch_up = \"1000\"\nbody = \"ack\"\n";
    std::fs::write(&config, each).unwrap();
    let options = HostOptions::at(&watched.url()).flag("config", &config.display().to_string());
    let hosts = [options.ready().await, options.ready().await];
    let old = watched.primary().await;
    let raw = watched.servers[old].raw().await;
    eventually("ticks are published", async || ids(&raw).await.len() >= 3).await;
    watched.servers[old].kill();
    watched.replaced(old).await;
    watched.servers[old].restart();
    let primary = watched.primary().await;
    let raw = watched.servers[primary].raw().await;
    let before = ids(&raw).await.len();
    eventually("more ticks are published", async || {
        ids(&raw).await.len() >= before + 3
    })
    .await;
    let found = ids(&raw).await;
    let first = humantime::parse_rfc3339(found[0].strip_prefix("cron:each:").unwrap()).unwrap();
    let first = first.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let first = u64::try_from(first.as_millis()).unwrap();
    let wanted = (0..).map(|n| definition::id("each", first + 1_000 * n));
    let wanted: Vec<String> = wanted.take(found.len()).collect();
    assert_eq!(found, wanted);
    for host in hosts {
        host.drained().await;
    }
}
