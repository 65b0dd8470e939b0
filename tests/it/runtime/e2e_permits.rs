//! Limits of attempts at once, end to end: while hosts are killed, stand still, and lose their server.
//!
//! Messages write when they begin and end, and the logs of all hosts have one clock. An attempt begins before its line, and
//! ends behind its line: so what is counted here ran at that time.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use hostler_tests::command::run;
use hostler_tests::host::{Host, HostOptions, Line};
use hostler_tests::redis::{RawRedis, eventually};
use hostler_tests::sentinel::Watched;
use serde_json::{Value as Json, json};

use crate::redis::cluster::Servers;
use crate::runtime::e2e_scene::{Scene, serving};
use crate::scene::{Kind, on_both};

on_both! {
    attempts_at_once_are_limited_over_all_hosts
    a_pause_and_a_drain_keep_no_permit
}

const MIN_IDLE: Duration = Duration::from_secs(3);

/// A host of the queue, with so many attempts at once over all hosts, and with more slots than that.
fn limited(url: &str, kind: Kind, most: usize) -> HostOptions {
    let limits = json!([{"name": "calls", "concurrency": most}]).to_string();
    serving(url, kind, "scripted")
        .flag("flow-limit", &limits)
        .flags("backoff-first=5ms min-idle=3s concurrency=16")
        .cap(100)
}

/// The body of a message whose handler runs for so long.
fn body(number: usize, ms: u64) -> String {
    format!("text:begin-{number}+sleep:{ms}+text:end-{number}")
}

async fn publish(raw: &RawRedis, kind: Kind, count: usize, ms: u64) {
    for number in 0..count {
        let body = body(number, ms);
        match kind {
            Kind::Stream => drop(raw.add("orders", &body).await),
            Kind::List => drop(raw.ask(&format!("LPUSH orders {body}")).await),
        }
    }
}

/// What hosts have run: the log of each, and when its permits may have gone.
#[derive(Default)]
struct Ran(Vec<(Vec<Line>, Option<SystemTime>)>);

impl Ran {
    fn add(&mut self, log: Vec<Line>, lost: Option<SystemTime>) {
        self.0.push((log, lost));
    }

    /// The most attempts at once.
    fn most(&self) -> usize {
        let mut steps = Vec::new();
        for (log, lost) in &self.0 {
            let mut running = BTreeMap::new();
            let mut run = |from: SystemTime, until: SystemTime| {
                // Attempts that ran then may run on without a permit.
                let until = lost.map_or(until, |lost| match from < lost {
                    true => until.min(lost),
                    false => until,
                });
                if from < until {
                    steps.extend([(from, 1), (until, -1)]);
                }
            };
            let mut last = None;
            for line in log {
                let at = line.text("timestamp").map(humantime::parse_rfc3339);
                let Some(Ok(at)) = at else { continue };
                last = Some(at);
                let text = line.text("line").unwrap_or_default();
                if let Some(number) = text.strip_prefix("begin-") {
                    running.insert(number.to_owned(), at);
                } else if let Some(number) = text.strip_prefix("end-")
                    && let Some(from) = running.remove(number)
                {
                    run(from, at);
                }
            }
            for from in running.into_values() {
                run(from, last.unwrap_or(from));
            }
        }
        // One that ends makes room for one that begins at that time.
        steps.sort_unstable();
        let (mut now, mut most) = (0_i32, 0);
        for (_, step) in steps {
            now += step;
            most = most.max(now);
        }
        usize::try_from(most).unwrap()
    }
}

async fn handled(hosts: &[Host], count: usize) {
    let acked = "hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"}";
    eventually("all are handled", async || {
        let acked = hosts.iter().map(|host| host.metric(acked));
        acked.sum::<u64>() >= count as u64
    })
    .await;
}

/// Nobody has a permit.
async fn all_return(raw: &RawRedis) {
    eventually("all permits return", async || {
        raw.number("EXISTS {hostler:limits}::calls").await == 0
    })
    .await;
}

async fn attempts_at_once_are_limited_over_all_hosts(kind: Kind) {
    let scene = Scene::new().await;
    publish(&scene.raw, kind, 60, 30).await;
    let options = limited(&scene.server.url(), kind, 3);
    let hosts: Vec<Host> = (0..4).map(|_| options.start()).collect();
    for host in &hosts {
        host.logs("ready").await;
    }
    handled(&hosts, 60).await;
    let mut ran = Ran::default();
    for host in hosts {
        let ended = host.drained().await;
        // What waits is no attempt, no retry and no failure.
        assert_eq!(ended.json()["requeued"], 0);
        assert_eq!(ended.json()["attempts"], ended.json()["acked"]);
        ran.add(ended.log.clone(), None);
    }
    assert_eq!(ran.most(), 3);
    // They have given all back.
    assert_eq!(scene.raw.number("EXISTS {hostler:limits}::calls").await, 0);
}

async fn a_pause_and_a_drain_keep_no_permit(kind: Kind) {
    let scene = Scene::new().await;
    publish(&scene.raw, kind, 3, 1).await;
    let url = scene.server.url();
    let options = limited(&url, kind, 1);
    // This one has the only permit, and will not end.
    let word = match kind {
        Kind::Stream => {
            scene.raw.add("others", "sleep:1000000").await;
            "stream"
        }
        Kind::List => {
            scene.raw.ask("LPUSH others sleep:1000000").await;
            "list"
        }
    };
    let other = options.clone().flag(word, "others").flags("timeout=1h");
    let other = other.ready().await;
    other.starts(1).await;
    let host = options.ready().await;
    let waits = async || host.metric("hostler_limited_total") > 0;
    eventually("messages wait", waits).await;
    eventually("`queues` says how many run", async || {
        let seen = run(["queues", "--redis", &url, "--json"]).ok().json();
        let limits = |queue: &Json| queue["limits"][0]["now"]["running"] == 1;
        seen.as_array().unwrap().iter().any(limits)
    })
    .await;
    run(["pause", "--redis", &url, "--queue", "orders"]).ok();
    eventually("it holds nothing", async || {
        host.metric("hostler_held") == 0
    })
    .await;
    run(["resume", "--redis", &url, "--queue", "orders"]).ok();
    eventually("it holds something", async || {
        host.metric("hostler_held") > 0
    })
    .await;
    let ended = host.drained().await;
    assert_eq!(ended.json()["attempts"], 0);
    let host = options.ready().await;
    other.kill().await;
    handled(&[host], 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_is_changed_while_hosts_run() {
    let scene = Scene::new().await;
    publish(&scene.raw, Kind::Stream, 600, 100).await;
    let url = scene.server.url();
    let options = limited(&url, Kind::Stream, 1).without("flow-limit");
    let set = |most: usize| {
        let limits = json!([{"name": "calls", "concurrency": most}]);
        let limits = format!("flow.limit={limits}");
        run([
            "policy", "set", "--redis", &url, "--queue", "orders", &limits,
        ])
        .ok();
    };
    set(6);
    let hosts = [options.ready().await, options.ready().await];
    let held = async || {
        let fields = scene.raw.ask("HVALS {hostler:limits}::calls").await;
        let fields: Vec<String> = redis::from_redis_value(fields).unwrap();
        let held = fields.iter().map(|field| {
            let held = field.split(' ').nth(1).unwrap();
            held.parse::<usize>().unwrap()
        });
        held.sum::<usize>()
    };
    eventually("all permits are used", async || held().await == 6).await;
    set(1);
    for host in &hosts {
        host.logs("rules changed").await;
    }
    eventually("one is used", async || held().await == 1).await;
    let lowered = SystemTime::now();
    let so_far = || -> usize { hosts.iter().map(|host| host.witness().total()).sum() };
    let before = so_far();
    eventually("the others come one by one", async || so_far() > before + 5).await;
    let raised = SystemTime::now();
    set(100);
    handled(&hosts, 600).await;
    let mut between = Ran::default();
    for host in hosts {
        let is_between = |line: &&Line| {
            let at = line.text("timestamp").map(humantime::parse_rfc3339);
            at.is_some_and(|at| at.is_ok_and(|at| lowered <= at && at <= raised))
        };
        let log = host.log();
        between.add(log.iter().filter(is_between).cloned().collect(), None);
    }
    assert_eq!(between.most(), 1);
}

/// Hosts that die or stand still, while others wait for their permits.
async fn hosts_fail(hosts: usize, most: usize, messages: usize, rounds: usize) {
    let scene = Scene::new().await;
    publish(&scene.raw, Kind::Stream, messages, 100).await;
    let options = limited(&scene.server.url(), Kind::Stream, most);
    let mut ran = Ran::default();
    let mut running = Vec::new();
    for _ in 0..hosts {
        running.push(options.ready().await);
    }
    for round in 0..rounds {
        running[0].starts(1).await;
        let now = SystemTime::now();
        let host = running.remove(0);
        if round % 2 == 0 {
            ran.add(host.kill().await.log, Some(now));
        } else {
            // The lease of its permits was said anew at most a third of it ago.
            let lost = now + MIN_IDLE / 3;
            host.pause().await;
            eventually("its permits are free", async || {
                let names = scene.raw.ask("HKEYS {hostler:limits}::calls").await;
                let names: Vec<String> = redis::from_redis_value(names).unwrap();
                !names.contains(&host.consumer())
            })
            .await;
            host.resume();
            ran.add(host.drain().await.log, Some(lost));
        }
        running.push(options.ready().await);
    }
    let look = scene.emptied().await;
    assert_eq!(look.dead, []);
    for host in running {
        ran.add(host.drained().await.log, None);
    }
    assert_eq!(ran.most(), most);
    all_return(&scene.raw).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_die_or_stand_still_give_their_permits_back_and_never_too_early() {
    hosts_fail(4, 5, 300, 2).await;
}

/// The primary dies, and no permit is granted twice: each was confirmed by a replica.
async fn primaries_fail(hosts: usize, most: usize, messages: usize, rounds: usize) {
    let mut servers = Servers::Watched(Box::new(Watched::start().await));
    let raw = servers.at("orders").await;
    publish(&raw, Kind::Stream, messages, 100).await;
    let options =
        limited(&servers.url(), Kind::Stream, most).flags("durability=replica wait-redis=20s");
    let running: Vec<Host> = (0..hosts).map(|_| options.start()).collect();
    for _ in 0..rounds {
        let so_far = || -> usize { running.iter().map(|host| host.witness().total()).sum() };
        let before = so_far();
        eventually("they run something", async || so_far() > before + most).await;
        let old = servers.owner("orders").await;
        servers.server(old).kill();
        servers.replaced("orders", old).await;
        servers.server(old).restart();
        servers.healed().await;
    }
    handled(&running, messages).await;
    let mut ran = Ran::default();
    for host in running {
        ran.add(host.drained().await.log, None);
    }
    assert_eq!(ran.most(), most);
    all_return(&servers.at("orders").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_is_replaced_grants_no_permit_twice() {
    primaries_fail(4, 5, 300, 1).await;
}

mod long {
    /// As the issue shows it.
    #[tokio::test(flavor = "multi_thread")]
    async fn fifty_attempts_at_once_over_four_hosts_that_fail() {
        super::hosts_fail(4, 50, 10_000, 10).await;
        super::primaries_fail(4, 50, 5_000, 3).await;
    }
}
