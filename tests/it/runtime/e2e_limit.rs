//! Limits of starts, end to end: over hosts, queues and attempts, and for each key.

use std::time::{Duration, Instant, SystemTime};

use hostler_tests::command::run;
use hostler_tests::host::{Host, HostOptions, Line};
use hostler_tests::redis::eventually;
use hostler_tests::skew::Skewed;
use hostler_tests::witness::Witness;
use serde_json::json;

use crate::runtime::e2e_scene::{Published, Scene, serving};
use crate::scene::{Kind, on_both};

on_both! {
    tenants_over_their_limit_hold_up_no_other_and_come_in_their_turn
    a_pause_and_a_drain_wait_for_no_limit
}

/// A host of the queue with this limit.
fn limited(scene: &Scene, limits: &serde_json::Value) -> HostOptions {
    limited_on(scene, Kind::Stream, limits)
}

fn limited_on(scene: &Scene, kind: Kind, limits: &serde_json::Value) -> HostOptions {
    serving(&scene.server.url(), kind, "scripted")
        .directory(scene.server.dir())
        .flag("flow-limit", &limits.to_string())
        .flags("backoff-first=5ms min-idle=3s")
}

fn set(scene: &Scene, limits: &serde_json::Value) {
    let limits = format!("flow.limit={limits}");
    run([
        "policy",
        "set",
        "--redis",
        &scene.server.url(),
        "--queue",
        "orders",
        &limits,
    ])
    .ok();
}

/// Messages have asked to start, and wait.
async fn waits(hosts: &[Host]) {
    eventually("messages wait", async || {
        hosts
            .iter()
            .any(|host| host.metric("hostler_limited_total") > 0)
    })
    .await;
}

/// All have run, once, and were not charged for waiting.
fn ran_once(witness: &Witness, ids: &[String]) {
    for id in ids {
        assert_eq!(witness.attempts(id), [1], "{id}");
    }
}

/// `count` starts take this time at least, whatever machine they are on: one that is late is not lost.
fn takes(count: usize, burst: usize, per_second: usize) -> Duration {
    let paid = u32::try_from(count - burst - 1).unwrap();
    Duration::from_secs(1) * paid / u32::try_from(per_second).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_hosts_start_no_more_than_their_limit_allows() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("ack", 150).await;
    let options = limited(&scene, &json!([{"name": "api", "rate": "100/s"}]));
    let begin = Instant::now();
    let hosts: Vec<Host> = (0..4).map(|_| options.start()).collect();
    eventually("all have started", async || {
        Witness::so_far(&hosts).total() >= ids.len()
    })
    .await;
    assert!(
        begin.elapsed() >= takes(ids.len(), 2, 100),
        "{:?}",
        begin.elapsed()
    );
    scene.emptied().await;
    waits(&hosts).await;
    let mut ended = Vec::new();
    for host in hosts {
        ended.push(host.drained().await);
    }
    ran_once(&Witness::of_all(&ended), &ids);
}

/// When these hosts have started messages, by the times in their logs: they have one clock, that of the server.
fn times<'a>(logs: impl IntoIterator<Item = &'a [Line]>) -> Vec<SystemTime> {
    let starts = logs.into_iter().flatten();
    let starts = starts.filter(|line| line.start().is_some());
    let at = |line: &Line| humantime::parse_rfc3339(line.text("timestamp")?).ok();
    let mut times: Vec<SystemTime> = starts.filter_map(at).collect();
    times.sort_unstable();
    times
}

/// The largest part of this rate that so many starts in a row have used.
fn used(times: &[SystemTime], count: usize, per_second: f64) -> f64 {
    let uses = times.windows(count).map(|some| {
        let took = some[count - 1].duration_since(some[0]).unwrap();
        (count - 1) as f64 / (per_second * took.as_secs_f64())
    });
    uses.fold(0.0, f64::max)
}

/// The most starts in a second.
fn most_in_a_second(times: &[SystemTime]) -> usize {
    let counts = times.iter().enumerate().map(|(place, from)| {
        let is_within = |at: &&SystemTime| at.duration_since(*from).unwrap().as_secs() == 0;
        times[place..].iter().take_while(is_within).count()
    });
    counts.max().unwrap_or(0)
}

/// No second has more than 5 % more than the rate, beside the burst and a start that was late. Its line may be written a tenth of
/// a second late.
fn keeps_to(times: &[SystemTime], per_second: usize, burst: usize) {
    let rate = per_second as f64;
    let allowed = rate * 1.05 + rate / 10.0 + burst as f64 + 1.0;
    let most = most_in_a_second(times);
    assert!(most as f64 <= allowed, "{most} of {allowed}");
}

/// At least 95 % of the rate are used: of some seconds, because other work on the machine may stop all hosts for a while.
async fn uses_its_limit(hosts: usize, per_second: usize) {
    let mut scene = Scene::new().await;
    let options = limited(
        &scene,
        &json!([{"name": "api", "rate": format!("{per_second}/s")}]),
    );
    let hosts: Vec<Host> = (0..hosts).map(|_| options.start()).collect();
    let rate = per_second as f64;
    let some = 3 * per_second;
    let logs = || hosts.iter().map(Host::log).collect::<Vec<_>>();
    eventually("the limit is used", async || {
        // There is always something to do.
        while scene.published.len() < Witness::so_far(&hosts).total() + some {
            scene.publish_all("ack", per_second).await;
        }
        used(&times(logs().iter().map(Vec::as_slice)), some, rate) >= 0.95
    })
    .await;
    let mut ended = Vec::new();
    for host in hosts {
        ended.push(host.drained().await);
    }
    let witness = Witness::of_all(&ended);
    assert_eq!(witness.repeated(), [""; 0]);
    let times = times(ended.iter().map(|ended| &ended.log[..]));
    keeps_to(&times, per_second, (per_second / 50).max(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_host_uses_its_limit() {
    for per_second in [5, 20, 100] {
        uses_its_limit(1, per_second).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_hosts_use_their_limit() {
    for per_second in [5, 20, 100] {
        uses_its_limit(4, per_second).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hosts_that_die_take_no_starts_beyond_their_limit() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("ack", 150).await;
    let options = limited(&scene, &json!([{"name": "api", "rate": "100/s"}])).cap(9);
    let begin = Instant::now();
    let mut hosts: Vec<Host> = (0..4).map(|_| options.start()).collect();
    let mut ended = Vec::new();
    for number in 1..=3 {
        eventually("some have started", async || {
            Witness::so_far(&hosts).total() > 5 * number
        })
        .await;
        ended.push(hosts.remove(0).kill().await);
        hosts.push(options.start());
    }
    let look = scene.emptied().await;
    let took = begin.elapsed();
    assert_eq!(look.dead, [], "{look:?}");
    for host in hosts {
        ended.push(host.drained().await);
    }
    let (_, witness) = scene.check(&ended).await;
    assert!(witness.total() >= ids.len());
    // Some of the last starts may be those of killed hosts, which did not end.
    assert!(took >= takes(ids.len(), 2, 100), "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_is_raised_while_hosts_run_lets_start_what_waits() {
    let mut scene = Scene::new().await;
    let ids = scene.publish_all("ack", 20).await;
    let options = limited(&scene, &json!([])).without("flow-limit");
    set(&scene, &json!([{"name": "api", "rate": "1/h", "burst": 3}]));
    let hosts = [options.ready().await, options.ready().await];
    waits(&hosts).await;
    eventually("three start", async || Witness::so_far(&hosts).total() == 3).await;
    // The others are held by no host beyond what may start, and are not charged: what was handed back has no count.
    let held = scene.raw.pending("orders", "workers").await;
    assert!(
        held.len() <= 8 && held.iter().all(|held| held.count <= 1),
        "{held:?}"
    );
    set(
        &scene,
        &json!([{"name": "api", "rate": "1000/s", "burst": 100}]),
    );
    scene.emptied().await;
    ran_once(&Witness::so_far(&hosts), &ids);
}

#[tokio::test(flavor = "multi_thread")]
async fn queues_that_name_the_same_limit_share_it() {
    let mut scene = Scene::new().await;
    scene.publish_all("ack", 4).await;
    for _ in 0..4 {
        scene.raw.add("invoices", "ack").await;
    }
    let options = limited(&scene, &json!([{"name": "api", "rate": "1/h", "burst": 3}]));
    let hosts = [
        options.ready().await,
        options.flag("stream", "invoices").ready().await,
    ];
    for host in &hosts {
        waits(std::slice::from_ref(host)).await;
    }
    eventually("three start", async || Witness::so_far(&hosts).total() == 3).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_need_a_start_of_their_own() {
    let mut scene = Scene::new().await;
    let id = scene.publish("nack,nack,nack,ack").await;
    let options = limited(&scene, &json!([{"name": "api", "rate": "1/h", "burst": 3}]));
    let host = options.ready().await;
    waits(std::slice::from_ref(&host)).await;
    assert_eq!(host.witness().attempts(&id), [1, 2, 3]);
    // Another host goes on, with the same count.
    host.drained().await;
    let host = options.without("flow-limit").ready().await;
    scene.emptied().await;
    assert_eq!(host.witness().attempts(&id), [4]);
}

async fn a_pause_and_a_drain_wait_for_no_limit(kind: Kind) {
    let scene = Scene::new().await;
    let limits = json!([{"name": "api", "rate": "1/h"}]);
    let options = limited_on(&scene, kind, &limits);
    let add = async |body: &str| match kind {
        Kind::Stream => drop(scene.raw.add("orders", body).await),
        Kind::List => drop(scene.raw.ask(&format!("LPUSH orders {body}")).await),
    };
    for _ in 0..3 {
        add("ack").await;
    }
    let host = options.ready().await;
    waits(std::slice::from_ref(&host)).await;
    host.starts(1).await;
    let url = scene.server.url();
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
    assert_eq!(ended.json()["acked"], 1);
    let ended = options.without("flow-limit").until_empty().finish().await;
    assert_eq!(ended.json()["acked"], 2);
    assert!(
        ended
            .log
            .iter()
            .filter_map(|line| line.start())
            .all(|(_, attempt)| attempt == 1)
    );
}

async fn tenants_over_their_limit_hold_up_no_other_and_come_in_their_turn(kind: Kind) {
    let scene = Scene::new().await;
    let limits = json!([{"name": "tenants", "rate": "10/s", "burst": 1, "by": "json:/tenant"}]);
    let options = limited_on(&scene, kind, &limits).flag("handler", &ack());
    let begin = Instant::now();
    let add = async |tenant: &str| {
        let body = json!({ "tenant": tenant }).to_string();
        match kind {
            Kind::Stream => drop(scene.raw.add("orders", &body).await),
            Kind::List => {
                let words: [&[u8]; 3] = [b"LPUSH", b"orders", body.as_bytes()];
                drop(scene.raw.ask_words(&words).await);
            }
        }
    };
    for _ in 0..30 {
        add("large").await;
    }
    for number in 0..10 {
        add(&format!("small{number}")).await;
    }
    let host = options.ready().await;
    let acked =
        async || host.metric("hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"}");
    eventually("all are handled", async || acked().await == 40).await;
    assert!(begin.elapsed() >= takes(30, 1, 10), "{:?}", begin.elapsed());
    assert!(host.metric("hostler_limited_total") > 0);
    let ended = host.drained().await;
    assert_eq!(ended.json()["attempts"], 40);
    assert_eq!(ended.json()["requeued"], 0);
}

fn ack() -> String {
    hostler_tests::guests::guest("ack").display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_for_its_key_is_found_shown_and_cancelled() {
    let mut scene = Scene::new().await;
    let limits = json!([{"name": "tenants", "rate": "1/h", "burst": 1, "by": "header:tenant"}]);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(scene.publish_with("ack", &[("tenant", "a")]).await);
    }
    let other = scene.publish_with("ack", &[("tenant", "b")]).await;
    let host = limited(&scene, &limits).ready().await;
    let inspect = [
        "inspect",
        "--json",
        "--redis",
        &scene.server.url(),
        "--stream",
        "orders",
    ];
    let inspect = || {
        run(inspect.iter().chain(&["--group", "workers"]))
            .ok()
            .json()
    };
    eventually("two wait", async || inspect()["delayed"] == 2).await;
    host.starts(2).await;
    ran_once(&host.witness(), &[ids[0].clone(), other]);
    let url = scene.server.url();
    eventually("the queue is listed", async || {
        run(["trace", &ids[1], "--redis", &url]).code == 0
    })
    .await;
    let traced = run(["trace", &ids[1], "--json", "--redis", &url])
        .ok()
        .json();
    let found = &traced["found"][0];
    assert_eq!(
        (&found["state"], &found["attempts"]),
        (&"delayed".into(), &0.into())
    );
    assert_eq!(found["is_reserved"], true, "{found}");
    eventually("its limit and its key are shown", async || {
        let text = run(["trace", &ids[1], "--redis", &url]).ok().stdout;
        text.contains("waits for limit tenants, key a, starts in 59m")
    })
    .await;
    let shown = inspect();
    let limit = &shown["limits"][0];
    assert_eq!(
        (&limit["name"], &limit["rate"], &limit["by"]),
        (&"tenants".into(), &"1/h".into(), &"header:tenant".into())
    );
    for id in &ids[1..] {
        run([
            "cancel", id, "--redis", &url, "--queue", "orders", "--group", "workers",
        ])
        .ok();
    }
    assert_eq!(inspect()["delayed"], 0);
    assert_eq!(inspect()["pending"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_set_back_stops_no_queue() {
    let skewed = Skewed::new();
    let mut scene = Scene::of(Published::default(), skewed.server()).await;
    let ids = scene.publish_all("ack", 20).await;
    let options = limited(&scene, &json!([{"name": "api", "rate": "20/s"}]));
    let hosts = [options.ready().await, options.ready().await];
    eventually("some have started", async || {
        Witness::so_far(&hosts).total() > 4
    })
    .await;
    skewed.set(-3600);
    eventually("all have started", async || {
        Witness::so_far(&hosts).total() == ids.len()
    })
    .await;
}

#[test]
fn a_limit_that_cannot_be_is_named() {
    for (limits, told) in [
        (json!([{"name": "api", "rate": "100"}]), "is no rate"),
        (json!([{"name": "a b", "rate": "1/s"}]), "letters, digits"),
        (
            json!([{"name": "api", "rate": "1/s"}, {"name": "api", "rate": "2/s"}]),
            "is there twice",
        ),
        (
            json!([{"name": "api", "rate": "1/s", "by": "tenant"}]),
            "neither `header:NAME`",
        ),
        (
            json!([{"name": "a", "rate": "1/s", "by": "header:a"}, {"name": "b", "rate": "1/s", "by": "header:b"}]),
            "one limit with a key",
        ),
        (json!([{"name": "api"}]), "neither `rate` nor `concurrency`"),
        (
            json!([{"name": "api", "rate": "1/s", "concurrency": 5}]),
            "write two limits",
        ),
        (
            json!([{"name": "api", "concurrency": 5, "by": "header:a"}]),
            "several streams in one process",
        ),
        (
            json!([{"name": "api", "concurrency": 5, "units": "header:a"}]),
            "are of a `rate`",
        ),
        (
            json!([{"name": "api", "concurrency": 0}]),
            "between 1 and 1000000",
        ),
    ] {
        let limits = limits.to_string();
        let flags = [
            "run",
            "--redis",
            "redis://localhost:1",
            "--stream",
            "orders",
            "--group",
            "g",
        ];
        let ended = run(flags
            .iter()
            .chain(&["--handler", "h.wasm", "--flow-limit", &limits]));
        assert_eq!(ended.code, 64, "{ended:?}");
        assert!(ended.stderr.contains(told), "{told}: {}", ended.stderr);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_that_keeps_messages_waiting_is_shown_where_people_look() {
    let mut scene = Scene::new().await;
    scene.publish_all("ack", 3).await;
    let limits = json!([{"name": "api", "rate": "1/h", "burst": 1}]);
    let host = limited(&scene, &limits).ready().await;
    waits(std::slice::from_ref(&host)).await;
    let series = "hostler_limited_for_seconds{limit=\"api\",key=\"\"}";
    eventually("its metric", async || {
        hostler_tests::host::without_queue(&host.metrics()).contains(series)
    })
    .await;
    let (status, ready) = host.get("/ready");
    let ready: serde_json::Value = serde_json::from_str(&ready).unwrap();
    assert_eq!(
        (status, &ready["limited"][0]["limit"]),
        (200, &"api".into())
    );
    let url = scene.server.url();
    let of = ["--redis", &url, "--stream", "orders", "--group", "workers"];
    eventually("`inspect` says since when", async || {
        let shown = run([&["inspect"], &of[..]].concat()).ok().stdout;
        let next = shown.contains("1/h, burst 1") && shown.contains("the next starts in");
        next && shown.contains("messages wait since")
    })
    .await;
    let watched = run([&["watch", "--count", "1"], &of[..]].concat())
        .ok()
        .stdout;
    assert!(watched.contains("limit api: the next starts"), "{watched}");
    let queues = run(["queues", "--redis", &url, "--json"]).ok().json();
    assert_eq!(queues[0]["limits"][0]["name"], "api", "{queues}");
    // Nobody waits: nothing is shown any more.
    set(&scene, &json!([]));
    host.drained().await;
}

mod long {
    use super::*;

    /// A host is killed every other second. Only what it had is charged.
    #[tokio::test(flavor = "multi_thread")]
    async fn hosts_that_are_killed_all_the_time_use_their_limit_and_no_more() {
        let mut scene = Scene::new().await;
        let ids = scene.publish_all("ack", 3000).await;
        let options = limited(&scene, &json!([{"name": "api", "rate": "100/s"}])).cap(9);
        let mut hosts: Vec<Host> = (0..4).map(|_| options.start()).collect();
        let mut ended = Vec::new();
        let begin = Instant::now();
        for number in 1..=10 {
            let next = Duration::from_secs(2 * number);
            eventually("two seconds are over", async || begin.elapsed() >= next).await;
            ended.push(hosts.remove(0).kill().await);
            hosts.push(options.start());
        }
        let look = scene.emptied().await;
        assert_eq!(look.dead, [], "{look:?}");
        for host in hosts {
            ended.push(host.drained().await);
        }
        let (_, witness) = scene.check(&ended).await;
        // A host has what runs and what may start soon, and takes what is due and orphans.
        let charged = ids.iter().filter(|id| witness.attempts(id) != [1]).count();
        assert!(charged <= 10 * 8, "{charged}");
        let times = times(ended.iter().map(|ended| &ended.log[..]));
        keeps_to(&times, 100, 2);
        let used = used(&times, 1000, 100.0);
        assert!(used >= 0.95, "{used}");
    }

    /// A burst comes at once, and then what the rate allows.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_burst_comes_at_once() {
        let mut scene = Scene::new().await;
        let ids = scene.publish_all("ack", 150).await;
        let limits = json!([{"name": "api", "rate": "600/min", "burst": 50}]);
        let options = limited(&scene, &limits);
        let begin = Instant::now();
        let mut hosts = Vec::new();
        for _ in 0..4 {
            hosts.push(options.ready().await);
        }
        scene.emptied().await;
        assert!(
            begin.elapsed() >= takes(150, 50, 10),
            "{:?}",
            begin.elapsed()
        );
        let mut ended = Vec::new();
        for host in hosts {
            ended.push(host.drained().await);
        }
        ran_once(&Witness::of_all(&ended), &ids);
        let times = times(ended.iter().map(|ended| &ended.log[..]));
        keeps_to(&times, 10, 50);
    }
}
