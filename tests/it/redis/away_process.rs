//! The built binary while Redis is away: it uses little CPU time, logs little, and names the cause.

use std::time::{Duration, Instant};

use hostler_tests::host::{Host, HostOptions, Line};
use hostler_tests::redis::{RedisOptions, RedisServer, eventually, eventually_or};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::redis::away_scene::Scene;

/// A host is watched for this long.
const WINDOW: Duration = Duration::from_secs(4);
/// Linux counts the CPU time of processes in hundredths of a second.
const TICK: Duration = Duration::from_millis(10);
/// Of a core.
const CPU_MAX_PERCENT: u128 = 20;

/// The CPU time of a process so far.
fn cpu(host: &Host) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", host.pid())).unwrap();
    // The fields after the name: state, ppid, ..., with utime and stime as the 12th and 13th.
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let fields: Vec<&str> = rest.split(' ').collect();
    let ticks: u32 = fields[11..13]
        .iter()
        .map(|f| f.parse::<u32>().unwrap())
        .sum();
    TICK * ticks
}

/// Lines of the host itself, not of its guests.
fn lines(host: &Host) -> usize {
    host.count(|line| line.text("target") != Some("guest"))
}

/// The host has logged at most one line a second, and one at each end of the time.
fn assert_quiet(host: &Host, before: usize, took: Duration) {
    let logged = lines(host) - before;
    let most = usize::try_from(took.as_secs()).unwrap() + 2;
    let log: Vec<String> = host.log().iter().map(|line| line.raw.clone()).collect();
    assert!(
        logged <= most,
        "{logged} lines in {took:?}:\n{}",
        log.join("\n")
    );
}

struct Watch {
    begun: Instant,
    cpu: Duration,
    lines: usize,
}

impl Watch {
    fn begin(host: &Host) -> Self {
        Self {
            begun: Instant::now(),
            cpu: cpu(host),
            lines: lines(host),
        }
    }

    /// The host is not ready for this cause during the whole window. It has used little CPU time and
    /// logged little.
    async fn end(self, host: &Host, cause: &str, detail: &str) {
        let not_ready = || {
            let (status, body) = host.get("/ready");
            status == 503 && body.contains(cause) && body.contains(detail)
        };
        eventually(&format!("{cause}: {detail}"), async || not_ready()).await;
        while self.begun.elapsed() < WINDOW {
            let (status, body) = host.get("/ready");
            assert_eq!(status, 503, "{body}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let took = self.begun.elapsed();
        let used = cpu(host) - self.cpu;
        assert!(
            used.as_nanos() * 100 < took.as_nanos() * CPU_MAX_PERCENT,
            "{used:?} of CPU time in {took:?}"
        );
        assert_quiet(host, self.lines, took);
        let says = |line: &&Line| line.raw.contains(detail);
        eventually("the log names the cause", async || host.count(says) > 0).await;
    }
}

/// The cause ends now.
async fn recovers(host: &Host) {
    let what = || format!("the host recovers: {}", host.get("/ready").1);
    eventually_or(what, async || host.get("/ready").0 == 200).await;
}

/// The host serves again, and drains with exit code 0.
async fn serves(server: &RedisServer, host: Host) {
    let raw = server.raw().await;
    for _ in 0..10 {
        raw.add("orders", "ack").await;
    }
    let series = "hostler_dispositions_total{disposition=\"acknowledge\",reason=\"\"}";
    eventually("it serves", async || host.metric(series) == 10).await;
    host.logs("redis is back").await;
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_server_costs_little_and_is_logged_once() {
    let mut server = RedisOptions::default().appendonly().start();
    let host = HostOptions::new(&server).admin().ready().await;
    let watch = Watch::begin(&host);
    server.kill();
    watch.end(&host, "redis-away", "redis at").await;
    assert_eq!(host.count(|line| line.message() == "redis is away"), 1);
    server.restart();
    recovers(&host).await;
    eventually("both connections are new", async || {
        host.metric("hostler_reconnects_total") >= 2
    })
    .await;
    serves(&server, host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_server_costs_little() {
    let server = RedisServer::start();
    let host = HostOptions::new(&server).admin().ready().await;
    let signal = |signal| {
        let pid = i32::try_from(server.pid()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    };
    signal(Signal::SIGSTOP);
    // Before the deadline of a command, the server might be slow only.
    host.logs("redis is away").await;
    let watch = Watch::begin(&host);
    watch.end(&host, "redis-away", "did not answer").await;
    signal(Signal::SIGCONT);
    recovers(&host).await;
    assert!(host.metric("hostler_redis_errors_total{code=\"deadline\"}") >= 2);
    serves(&server, host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_costs_little() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let host = HostOptions::new(&server).admin().ready().await;
    let watch = Watch::begin(&host);
    raw.ask("REPLICAOF 127.0.0.1 1").await;
    watch.end(&host, "redis-away", "READONLY").await;
    raw.ask("REPLICAOF NO ONE").await;
    recovers(&host).await;
    serves(&server, host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_right_costs_little_and_is_never_ready() {
    let scene = Scene::with_user("").await;
    let host = HostOptions::at(&scene.user_url()).admin().ready().await;
    let watch = Watch::begin(&host);
    scene.rights("-xreadgroup").await;
    watch.end(&host, "redis-configuration", "xreadgroup").await;
    scene.rights("+xreadgroup").await;
    recovers(&host).await;
    assert!(host.log().iter().all(|line| !line.raw.contains("secret")));
    assert!(!host.get("/metrics").1.contains("secret"));
    serves(&scene.server, host).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_memory_costs_little() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let host = HostOptions::new(&server)
        .dead_letter()
        .flag("timeout", "1m")
        .admin()
        .ready()
        .await;
    for _ in 0..12 {
        raw.add("orders", "sleep:3000+drop").await;
    }
    host.starts(12).await;
    raw.ask("CONFIG SET maxmemory 1").await;
    let watch = Watch::begin(&host);
    watch.end(&host, "dead-letters-refused", "OOM").await;
    raw.ask("CONFIG SET maxmemory 0").await;
    let series = "hostler_dispositions_total{disposition=\"dead-letter\",reason=\"dropped\"}";
    eventually("they are dead-lettered", async || host.metric(series) == 12).await;
    recovers(&host).await;
    assert_eq!(raw.number("XLEN orders:dead").await, 12);
    assert_eq!(host.witness().total(), 12);
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_losses_are_logged_in_one_line_a_second() {
    let server = RedisServer::start();
    let raw = server.raw().await;
    let host = HostOptions::new(&server)
        .flags("concurrency=200 min-idle=3s timeout=1m")
        .admin()
        .ready()
        .await;
    for _ in 0..200 {
        raw.add("orders", "sleep:10000+nack").await;
    }
    host.starts(200).await;
    let (before, begun) = (lines(&host), Instant::now());
    raw.ask("DEL orders").await;
    eventually("all are counted", async || {
        host.metric("hostler_trimmed_pending_total") == 200
    })
    .await;
    assert_eq!(host.metric("hostler_groups_recreated_total"), 1);
    // Away, made again, back: once each.
    assert_quiet(&host, before, begun.elapsed() + Duration::from_secs(3));
    recovers(&host).await;
    host.drained().await;
}
