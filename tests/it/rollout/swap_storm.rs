//! Swaps under load: many swaps of every kind, and swaps while hosts and servers die.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hostler_tests::guests::{handler, marked};
use hostler_tests::host::{Ended, Host, Line};
use hostler_tests::redis::{RawRedis, RedisOptions, eventually};
use hostler_tests::witness::Witness;
use nix::sys::signal::Signal;
use tokio::task::JoinHandle;

use crate::rollout::swap_scene::{COMPILES, Scene, component_of, digest, refuses, runs};

/// Report the version, wait, report it again, and acknowledge.
const BODY: &str = "version+sleep:2+version+ack";

/// The size of the storm: large with `HOSTLER_STORM=full`, else each kind of swap, once by the file and once by a
/// deploy.
struct Size {
    swaps: usize,
    messages: usize,
}

fn size() -> Size {
    let is_full = std::env::var_os("HOSTLER_STORM").is_some_and(|size| size == "full");
    let (swaps, messages) = if is_full { (200, 20_000) } else { (10, 500) };
    Size { swaps, messages }
}

/// The guest `scripted`, which reports this number as its version.
fn version(number: usize) -> Vec<u8> {
    marked(&component_of("scripted"), number)
}

/// A handler that acknowledges, and whose compilation takes long.
pub(crate) fn slow(number: usize) -> Vec<u8> {
    let step = "(local.set 0 (i32.rotl (i32.mul (local.get 0) (i32.const 31)) (local.get 0)))";
    let function = format!(
        "(func (param i32) (result i32) {} (local.get 0))",
        step.repeat(40)
    );
    let data = format!("(data (i32.const 512) \"slow {number}\")");
    handler(&format!("{data}{}", function.repeat(200)), "(i32.const 0)")
}

/// Publish at a steady rate until the flag is set; the task returns the number of messages.
pub(crate) fn publisher_of(
    scene: &Scene,
    body: &'static str,
    rate: u64,
    least: usize,
) -> (Arc<AtomicBool>, JoinHandle<usize>) {
    let words = vec!["XADD", "orders", "*", "_payload", body];
    publisher(scene, words, rate, least)
}

/// The same with this command.
pub(crate) fn publisher(
    scene: &Scene,
    words: Vec<&'static str>,
    rate: u64,
    least: usize,
) -> (Arc<AtomicBool>, JoinHandle<usize>) {
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let url = scene.url();
    let task = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_micros(1_000_000 / rate));
        let mut published = 0;
        let mut raw = None;
        while published < least || !stopped.load(Ordering::Relaxed) {
            ticks.tick().await;
            // A server that is away gets its message after it has returned.
            if raw.is_none() {
                raw = RawRedis::open(&url).await.ok();
            }
            let Some(open) = &raw else { continue };
            let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
            match open.try_ask_words(&words).await {
                Ok(_) => published += 1,
                Err(_) => raw = None,
            }
        }
        published
    });
    (stop, task)
}

/// The reports of each attempt, by message and attempt: the digest and the version.
pub(crate) type Sayings = BTreeMap<(String, u64), Vec<(String, String)>>;

/// The versions that each attempt reports, with the digest that its host logs.
pub(crate) fn sayings(ended: &[Ended]) -> Sayings {
    let mut sayings = Sayings::new();
    let lines = ended.iter().flat_map(|ended| &ended.log);
    for line in lines.filter(|line| line.text("target") == Some("guest")) {
        if let Some(version) = line.text("line").and_then(|l| l.strip_prefix("version ")) {
            let of = |name| Line::text(line, name).unwrap_or_default().to_owned();
            let attempt = line.number("attempt").unwrap_or_default();
            let saying = (of("handler"), version.to_owned());
            sayings
                .entry((of("message_id"), attempt))
                .or_default()
                .push(saying);
        }
    }
    sayings
}

/// No attempt saw two versions, and each saw the version that its host logs.
pub(crate) fn check(sayings: &Sayings, known: &BTreeMap<String, usize>) {
    assert!(!sayings.is_empty());
    for (attempt, said) in sayings {
        assert!(said.iter().all(|s| *s == said[0]), "{attempt:?}: {said:?}");
        let (digest, version) = &said[0];
        let wanted = known.get(digest).map(|number| format!("{number:010}"));
        assert_eq!(wanted.as_deref(), Some(&**version), "{attempt:?}: {digest}");
    }
}

#[tokio::test]
async fn a_storm_of_swaps_loses_nothing_and_repeats_nothing() {
    let size = size();
    let scene = Scene::new(&version(0)).await;
    let host = scene.accepting().flag("reuse", "50").flags(COMPILES);
    let host = host.ready().await;
    let (stop, publishing) = publisher_of(&scene, BODY, 100, size.messages);
    let mut known = BTreeMap::from([(digest(&version(0)), 0)]);
    let (mut taken, mut refused, mut again) = (0, 0, 0);
    let mut current = version(0);
    let put = |component: &[u8], by_file: bool| {
        if by_file {
            scene.put(component);
        } else {
            scene.deploy(component);
        }
    };
    for number in 1..=size.swaps {
        let by_file = number % 2 == 0;
        match number % 5 {
            // A good version.
            0 | 1 => {
                current = version(number);
                known.insert(digest(&current), number);
                put(&current, by_file);
                runs(&host, &current).await;
                taken += 1;
            }
            // A truncated version.
            2 => {
                let whole = version(number);
                let half = &whole[..whole.len() * 2 / 3];
                put(half, by_file);
                assert_eq!(refuses(&host, half).await["step"], "format");
                refused += 1;
            }
            // A version that is slow to compile, or one that does not start.
            3 if by_file => {
                let data = format!("(data (i32.const 512) \"{number}\")");
                let items = format!("(func $s unreachable) (start $s) {data}");
                let bad = handler(&items, "(i32.const 0)");
                put(&bad, by_file);
                assert_eq!(refuses(&host, &bad).await["step"], "instance");
                refused += 1;
            }
            3 => {
                current = slow(number);
                put(&current, by_file);
                runs(&host, &current).await;
                taken += 1;
            }
            // The same version again.
            _ => {
                put(&current, by_file);
                again += 1;
                host.logs_times("this version already runs", again).await;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    let published = publishing.await.unwrap();
    scene.emptied().await;
    let ended = host.drain().await;
    let wrong = |line: &&Line| line.message() == "a new version was refused; the current one stays";
    assert_eq!(ended.count(wrong), refused);
    let summary = ended.expect_code(0).json();
    assert_eq!(summary["swaps"], taken);
    assert_eq!(summary["acked"], published);
    assert_eq!(summary["attempts"], published);
    let ended = [ended];
    let sayings = sayings(&ended);
    assert!(sayings.values().all(|said| said.len() == 2));
    check(&sayings, &known);
    assert!(Witness::of_all(&ended).repeated().is_empty());
}

#[tokio::test]
async fn hosts_never_run_a_partial_version_when_hosts_and_servers_die_during_deploys() {
    let server = RedisOptions::default().set("appendfsync", "always");
    let mut scene = Scene::on(server.appendonly(), &version(0)).await;
    let options = scene.accepting().flag("min-idle", "1s");
    // The server may die while a host starts.
    let options = options.flag("wait-redis", "60s");
    let mut known = BTreeMap::from([(digest(&version(0)), 0)]);
    let mut hosts: Vec<Host> = vec![options.ready().await, options.ready().await];
    let mut ended = Vec::new();
    let (stop, publishing) = publisher_of(&scene, BODY, 50, 0);
    let mut last = version(0);
    for number in 1..=8 {
        last = version(number);
        known.insert(digest(&last), number);
        let deployed = scene.try_deploy(&last);
        match number % 4 {
            // A host dies while it reads, fetches or verifies the deploy, or just after it took it.
            0 | 2 => {
                hosts[0].logs("ready").await;
                ended.push(hosts.remove(0).kill().await);
                hosts.push(options.start());
            }
            3 => {
                scene.server.kill();
                scene.server.restart();
            }
            _ => {}
        }
        if deployed.code != 0 {
            // The server may still start, and it syncs each write: a busy disk makes it slow.
            eventually("the version is deployed", async || {
                scene.try_deploy(&last).code == 0
            })
            .await;
        }
    }
    for host in &hosts {
        host.logs("ready").await;
        runs(host, &last).await;
    }
    stop.store(true, Ordering::Relaxed);
    let published = publishing.await.unwrap();
    scene.reconnect().await;
    scene.emptied().await;
    for host in hosts {
        host.signal(Signal::SIGTERM);
        ended.push(host.ended().await);
    }
    let sayings = sayings(&ended);
    // The end of the log of a killed host is missing.
    check(&sayings, &known);
    let wrong = |line: &&Line| line.message() == "a new version was refused; the current one stays";
    let refusals: usize = ended.iter().map(|ended| ended.count(wrong)).sum();
    assert_eq!(refusals, 0);
    let handled: BTreeSet<&String> = sayings.keys().map(|(id, _)| id).collect();
    let handled = handled.len();
    assert!(handled >= published, "{handled} of {published}");
    eventually("nothing is left", async || {
        !scene.exists("orders:dead").await
    })
    .await;
}
