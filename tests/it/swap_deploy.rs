//! Versions that are stored beside the queue.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use hostler_tests::command::{self, Ended};
use hostler_tests::guests::{guest, variant};
use hostler_tests::host::{Host, HostOptions, Line};
use hostler_tests::redis::{RawRedis, RedisOptions, eventually};
use hostler_tests::versions::{bad, good};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::security_user::documented_user;
use crate::swap_scene::{Scene, bodies, digest, refuses, runs, said, versions};

fn scripted(tag: &str) -> Vec<u8> {
    variant(&std::fs::read(guest("scripted")).unwrap(), tag)
}

/// A file with this in it.
pub(crate) fn written(dir: &Path, component: &[u8]) -> PathBuf {
    let path = dir.join(format!("{}.wasm", &digest(component)[7..]));
    std::fs::write(&path, component).unwrap();
    path
}

pub(crate) fn of_queue(scene: &Scene, arguments: &[&str]) -> Ended {
    let url = scene.server.url();
    let queue = ["--redis", &url, "--queue-key", "orders"];
    command::run(arguments.iter().chain(&queue))
}

pub(crate) fn deploy(scene: &Scene, component: &[u8]) -> Ended {
    let file = written(scene.server.dir(), component);
    let file = file.display().to_string();
    of_queue(
        scene,
        &["deploy", &file, "--unchecked", "--json", "--by", "ann"],
    )
}

pub(crate) fn listed(scene: &Scene) -> Value {
    of_queue(scene, &["versions", "--json"]).ok().json()
}

/// The clock of Redis, in epoch milliseconds.
pub(crate) async fn redis_ms(scene: &Scene) -> u64 {
    let (seconds, micros): (String, String) =
        redis::from_redis_value(scene.raw.ask("TIME").await).unwrap();
    seconds.parse::<u64>().unwrap() * 1_000 + micros.parse::<u64>().unwrap() / 1_000
}

/// How often Redis was asked this command.
async fn asked(scene: &Scene, command: &str) -> u64 {
    let stats = scene.raw.text("INFO commandstats").await;
    let begin = format!("cmdstat_{command}:calls=");
    let line = stats.lines().find_map(|line| line.strip_prefix(&begin));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

pub(crate) fn accepting(scene: &Scene) -> HostOptions {
    scene.host().flag("accept-deploys", "true")
}

#[tokio::test]
async fn a_deploy_reaches_every_host_that_accepts_it_and_those_that_start_later() {
    let first = scripted("file");
    let scene = Scene::new(&first).await;
    let (one, two) = (
        accepting(&scene).ready().await,
        accepting(&scene).ready().await,
    );
    let deaf = scene.host().ready().await;
    let next = scripted("deployed");
    eventually("three hosts show themselves", async || {
        listed(&scene)["hosts"].as_array().unwrap().len() == 3
    })
    .await;
    let before = redis_ms(&scene).await;
    let deployed = deploy(&scene, &next).ok();
    assert_eq!(deployed.stderr, "");
    let deployed = deployed.json();
    assert_eq!(deployed["version"], 1);
    assert_eq!(deployed["digest"], *digest(&next));
    for host in [&one, &two] {
        runs(host, &next).await;
        assert_eq!(versions(host)["current"]["origin"], "deploy 1");
    }
    let later = accepting(&scene).ready().await;
    // Before its first message.
    assert_eq!(versions(&later)["current"]["digest"], *digest(&next));
    assert_eq!(versions(&deaf)["current"]["digest"], *digest(&first));

    // What is stored, and what each host runs.
    eventually("all hosts show themselves", async || {
        listed(&scene)["hosts"].as_array().unwrap().len() == 4
    })
    .await;
    let list = listed(&scene);
    assert_eq!(
        (&list["wanted"], &list["before"]),
        (&1.into(), &Value::Null)
    );
    assert_eq!(list["stored"][0]["by"], "ann");
    let at = list["stored"][0]["at_ms"].as_u64().unwrap();
    assert!(before <= at && at <= redis_ms(&scene).await, "{list}");
    assert_eq!(list["stored"][0]["size_bytes"], next.len());
    let runs_it = list["hosts"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|host| host["handler"]["current"]["digest"] == *digest(&next))
        .count();
    assert_eq!(runs_it, 3);
    let url = scene.server.url();
    let inspect = [
        "inspect", "--redis", &url, "--stream", "orders", "--group", "workers",
    ];
    let report = command::run(inspect.iter().chain(&["--json"])).ok().json();
    assert_eq!(report["hosts"].as_array().unwrap().len(), 4);
    assert!(command::run(inspect).ok().stdout.contains("deploy 1"));
    let people = of_queue(&scene, &["versions"]).ok().stdout;
    assert!(
        people.contains("wanted") && people.contains("ann"),
        "{people}"
    );

    // A host that leaves is not shown any more.
    for host in [one, two, later, deaf] {
        host.drain().await.expect_code(0);
    }
    assert!(listed(&scene)["hosts"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_rollback_goes_back_at_once_and_compiles_nothing() {
    let scene = Scene::new(&scripted("file")).await;
    let host = accepting(&scene).ready().await;
    let (one, two) = (scripted("one"), scripted("two"));
    deploy(&scene, &one).ok();
    runs(&host, &one).await;
    deploy(&scene, &two).ok();
    runs(&host, &two).await;
    let verified = said(&host, "verifying a new version").len();
    assert_eq!(verified, 2);
    of_queue(&scene, &["rollback"]).ok();
    runs(&host, &one).await;
    // It can be taken back.
    of_queue(&scene, &["rollback"]).ok();
    runs(&host, &two).await;
    assert_eq!(said(&host, "verifying a new version").len(), verified);
    // To one that is not there.
    let refused = of_queue(&scene, &["rollback", "--to", "9"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    // The same again is no swap.
    let swaps = host.metric("hostler_swaps_total");
    deploy(&scene, &two).ok();
    eventually("the host has heard of it", async || {
        said(&host, "another version is wanted").len() == 5
    })
    .await;
    assert_eq!(host.metric("hostler_swaps_total"), swaps);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn without_a_version_before_each_host_goes_back_to_what_it_ran() {
    let first = scripted("file");
    let scene = Scene::new(&first).await;
    let host = accepting(&scene).ready().await;
    let next = scripted("next");
    deploy(&scene, &next).ok();
    runs(&host, &next).await;
    let said = of_queue(&scene, &["rollback"]).ok().stdout;
    assert!(said.contains("what each host ran before"), "{said}");
    runs(&host, &first).await;
    // One that starts now takes its file.
    let later = accepting(&scene).ready().await;
    assert_eq!(versions(&later)["current"]["origin"], "file");
    for host in [host, later] {
        host.drain().await.expect_code(0);
    }
}

#[tokio::test]
async fn a_bad_deploy_is_refused_here_and_by_every_host() {
    let first = scripted("good");
    let scene = Scene::new(&first).await;
    let host = accepting(&scene).ready().await;
    let whole = scripted("half");
    let half = &whole[..whole.len() / 2];
    let file = written(scene.server.dir(), half).display().to_string();
    let refused = of_queue(&scene, &["deploy", &file]);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(listed(&scene)["wanted"].is_null());
    // Whoever insists stores it; no host takes it.
    deploy(&scene, half).ok();
    let why = refuses(&host, half).await;
    assert_eq!(
        (&why["step"], &why["origin"]),
        (&"format".into(), &"deploy 1".into())
    );
    eventually("inspect shows it", async || {
        let list = listed(&scene);
        list["hosts"][0]["handler"]["refused"]["step"] == "format"
    })
    .await;
    // One that starts now does not, either.
    let later = accepting(&scene).ready().await;
    assert_eq!(versions(&later)["current"]["digest"], *digest(&first));
    assert_eq!(versions(&later)["refused"]["step"], "format");
    // What is damaged where it is stored is not even looked at.
    let fine = scripted("fine");
    deploy(&scene, &fine).ok();
    runs(&host, &fine).await;
    scene
        .raw
        .ask("SETRANGE {orders}:version:2 100 damaged")
        .await;
    let damaged = accepting(&scene).ready().await;
    assert_eq!(versions(&damaged)["current"]["digest"], *digest(&first));
    assert_eq!(versions(&damaged)["refused"]["step"], "source");
    for host in [host, later, damaged] {
        host.drain().await.expect_code(0);
    }
}

#[tokio::test]
async fn what_is_deployed_comes_in_pieces_and_has_a_size_that_is_allowed() {
    let scene = Scene::new(&good("small")).await;
    let host = accepting(&scene)
        .flag("limit-component", "64KiB")
        .ready()
        .await;
    let large = variant(&scripted("large"), &"x".repeat(3 << 20));
    let file = written(scene.server.dir(), &large).display().to_string();
    // Too large for whoever deploys it: nothing is stored.
    let refused = of_queue(&scene, &["deploy", &file, "--limit-component", "64KiB"]);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.stderr.contains("65536"), "{refused:?}");
    assert!(listed(&scene)["wanted"].is_null());
    assert_eq!(asked(&scene, "setrange").await, 0);
    // Stored in pieces of a mebibyte, and read back.
    deploy(&scene, &large).ok();
    let pieces = large.len().div_ceil(1 << 20) as u64;
    assert!(pieces > 3);
    assert_eq!(asked(&scene, "setrange").await, pieces);
    let read = asked(&scene, "getrange").await;
    assert!(read >= pieces);
    // Too large for this host: it does not even fetch it.
    let why = refuses(&host, &large).await;
    assert_eq!(
        (&why["step"], &why["origin"]),
        (&"size".into(), &"deploy 1".into())
    );
    assert_eq!(asked(&scene, "getrange").await, read);
    // Not for this one.
    let other = accepting(&scene).ready().await;
    assert_eq!(versions(&other)["current"]["digest"], *digest(&large));
    assert!(asked(&scene, "getrange").await >= read + pieces);
    for host in [host, other] {
        host.drain().await.expect_code(0);
    }
}

#[tokio::test]
async fn a_pin_keeps_other_deploys_out_and_sighup_goes_back_to_the_file() {
    let (first, next) = (scripted("file"), scripted("next"));
    let scene = Scene::new(&first).await;
    let pinned = accepting(&scene).flag("handler-digest", &digest(&first));
    let pinned = pinned.ready().await;
    let host = accepting(&scene).ready().await;
    deploy(&scene, &next).ok();
    assert_eq!(refuses(&pinned, &next).await["step"], "digest");
    assert_eq!(versions(&pinned)["current"]["digest"], *digest(&first));
    assert!(said(&pinned, "verifying a new version").is_empty());
    // The last word: what the file holds is wished for, though it has not changed.
    runs(&host, &next).await;
    host.signal(Signal::SIGHUP);
    runs(&host, &first).await;
    assert_eq!(versions(&host)["current"]["origin"], "file");
    for host in [host, pinned] {
        host.drain().await.expect_code(0);
    }
}

/// Since when a host's log says so, in epoch milliseconds.
fn logged_at(line: &Line) -> u64 {
    let at = humantime::parse_rfc3339(line.text("timestamp").unwrap()).unwrap();
    let since = at.duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// By how much this process comes too late when it wants to wait for ten milliseconds, at worst, in
/// milliseconds, while `during` runs: what the machine makes everybody wait.
async fn stalled<T>(during: impl Future<Output = T>) -> (T, u64) {
    let mut worst = Duration::ZERO;
    let mut during = std::pin::pin!(during);
    loop {
        let begun = Instant::now();
        tokio::select! {
            biased;
            done = &mut during => {
                return (done, u64::try_from(worst.as_millis()).unwrap());
            }
            () = tokio::time::sleep(Duration::from_millis(10)) => worst = worst.max(begun.elapsed()),
        }
    }
}

/// From the deploy, by the clock of Redis, to the switch, by the host's log: on this machine, both
/// clocks are one.
#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_is_taken_within_two_seconds() {
    let scene = Scene::new(&good("file")).await;
    let cache = scene.server.dir().join("cache").display().to_string();
    let options = accepting(&scene).flag("compile-cache", &cache);
    let host = options.ready().await;
    let mut took = Vec::new();
    // A machine that stands still for that long says nothing about the host.
    let (few, many, bearable) = (5, 60, 200);
    for number in 1..=many {
        let next = good(&format!("v{number}"));
        // Compiled beforehand: how long that takes is the component's affair.
        let file = written(scene.server.dir(), &next).display().to_string();
        command::run(["check", &file, "--compile-cache", &cache]).ok();
        let deployed = tokio::task::spawn_blocking({
            let url = scene.server.url();
            move || {
                let queue = ["--redis", &url, "--queue-key", "orders"];
                command::run(["deploy", &file, "--unchecked"].iter().chain(&queue)).ok();
            }
        });
        let run = async {
            deployed.await.unwrap();
            runs(&host, &next).await;
        };
        let ((), stall) = stalled(run).await;
        let list = listed(&scene);
        let at = list["stored"][0]["at_ms"].as_u64().unwrap();
        let swapped = said(&host, "swapped");
        let line = swapped.last().unwrap();
        assert_eq!(line.text("to"), Some(&*digest(&next)));
        if stall <= bearable {
            took.push(logged_at(line).saturating_sub(at));
        }
        if took.len() == few {
            break;
        }
    }
    took.sort_unstable();
    println!("from deploy to switch, in ms: {took:?}");
    assert!(
        took.len() == few,
        "this machine never ran for long: {took:?}"
    );
    assert!(took[few / 2] < 2_000, "{took:?}");
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_canary_is_promoted_and_given_up_by_hand() {
    let scene = Scene::new(&good("old")).await;
    let options = accepting(&scene).flag("canary", "10%");
    let host = options.ready().await;
    let (one, two) = (good("one"), bad("two"));
    deploy(&scene, &one).ok();
    host.logs("a canary begins").await;
    // Young as it is, it is a canary for a host that starts as well.
    let later = options.ready().await;
    assert_eq!(versions(&later)["canary"]["digest"], *digest(&one));
    of_queue(&scene, &["promote"]).ok();
    for host in [&host, &later] {
        runs(host, &one).await;
        assert!(versions(host)["canary"].is_null());
    }
    deploy(&scene, &two).ok();
    host.logs_times("a canary begins", 2).await;
    of_queue(&scene, &["rollback"]).ok();
    eventually("the canary is given up", async || {
        versions(&host)["canary"].is_null()
    })
    .await;
    assert_eq!(versions(&host)["current"]["digest"], *digest(&one));
    for host in [host, later] {
        host.drain().await.expect_code(0);
    }
}

/// What a host misses while it stands still, it makes up for: what is wanted is a state.
#[tokio::test]
async fn a_host_that_missed_a_deploy_takes_it_when_it_is_promoted() {
    let scene = Scene::new(&good("old")).await;
    let trying = accepting(&scene).flag("canary", "10%").ready().await;
    let plain = accepting(&scene).ready().await;
    let one = good("one");
    for host in [&trying, &plain] {
        host.pause().await;
    }
    deploy(&scene, &one).ok();
    of_queue(&scene, &["promote"]).ok();
    for host in [&trying, &plain] {
        host.signal(Signal::SIGCONT);
        runs(host, &one).await;
        assert!(versions(host)["canary"].is_null());
        assert!(said(host, "a canary begins").is_empty());
    }
    for host in [trying, plain] {
        host.drain().await.expect_code(0);
    }
}

#[tokio::test]
async fn a_rollback_of_the_only_deploy_leaves_hosts_alone_that_never_ran_it() {
    let (first, second) = (good("first"), good("second"));
    let scene = Scene::new(&first).await;
    let host = accepting(&scene).ready().await;
    scene.put(&second);
    runs(&host, &second).await;
    host.pause().await;
    deploy(&scene, &good("deployed")).ok();
    of_queue(&scene, &["rollback"]).ok();
    host.signal(Signal::SIGCONT);
    host.logs("another version is wanted").await;
    // Later wishes are carried out later.
    let next = good("next");
    deploy(&scene, &next).ok();
    runs(&host, &next).await;
    let previous = versions(&host)["previous"].clone();
    assert_eq!(previous["digest"], *digest(&second), "{previous}");
    assert_eq!(host.metric("hostler_swaps_total"), 2);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_host_that_missed_the_way_back_to_its_file_still_finds_it() {
    let first = good("first");
    let scene = Scene::new(&first).await;
    let host = accepting(&scene).ready().await;
    let (one, two) = (good("one"), good("two"));
    deploy(&scene, &one).ok();
    runs(&host, &one).await;
    host.pause().await;
    of_queue(&scene, &["rollback"]).ok();
    deploy(&scene, &two).ok();
    host.signal(Signal::SIGCONT);
    runs(&host, &two).await;
    // What ran before is `one`, which was taken back.
    of_queue(&scene, &["rollback"]).ok();
    runs(&host, &first).await;
    assert_eq!(versions(&host)["current"]["origin"], "file");
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_rollback_to_the_canary_takes_it_whole() {
    let scene = Scene::new(&good("old")).await;
    let host = accepting(&scene).flag("canary", "10%").ready().await;
    let one = good("one");
    deploy(&scene, &one).ok();
    host.logs("a canary begins").await;
    of_queue(&scene, &["rollback", "--to", "1"]).ok();
    runs(&host, &one).await;
    assert!(versions(&host)["canary"].is_null());
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_canary_from_the_file_is_promoted_by_hand_and_one_that_is_deployed_is_not_meant() {
    let scene = Scene::new(&good("old")).await;
    let host = accepting(&scene).flag("canary", "10%").ready().await;
    let one = good("one");
    deploy(&scene, &one).ok();
    host.logs("a canary begins").await;
    of_queue(&scene, &["promote"]).ok();
    runs(&host, &one).await;
    let file = good("file");
    scene.put(&file);
    host.logs_times("a canary begins", 2).await;
    of_queue(&scene, &["promote"]).ok();
    runs(&host, &file).await;
    host.drain().await.expect_code(0);
}

/// A Redis without persistence counts from the start again.
#[tokio::test]
async fn a_deploy_after_redis_lost_its_data_is_no_old_one() {
    let scene = Scene::new(&good("file")).await;
    let host = accepting(&scene).ready().await;
    let (one, other) = (good("one"), good("other"));
    deploy(&scene, &one).ok();
    runs(&host, &one).await;
    // Lost, and deployed again, between two looks.
    host.pause().await;
    let lost = "UNLINK {orders}:versions {orders}:version:1";
    assert_eq!(scene.raw.number(lost).await, 2);
    let deployed = deploy(&scene, &other).ok().json();
    assert_eq!(deployed["version"], 1);
    host.signal(Signal::SIGCONT);
    runs(&host, &other).await;
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_queue_without_deploys_has_nothing_to_go_back_to_or_to_promote() {
    let scene = Scene::new(&good("one")).await;
    for command in [&["rollback"][..], &["rollback", "--to", "1"], &["promote"]] {
        let refused = of_queue(&scene, command);
        assert_eq!(refused.code, 64, "{refused:?}");
        let what = "nothing was ever deployed to orders";
        assert!(refused.stderr.contains(what), "{refused:?}");
    }
    // A mistyped key is not made a queue with versions.
    assert_eq!(scene.raw.number("EXISTS {orders}:versions").await, 0);
}

/// Wait until it says that its file is gone, put it there again, and wait until it has seen that.
async fn away_and_back(scene: &Scene, host: &Host) {
    let content = std::fs::read(&scene.file).unwrap();
    std::fs::remove_file(&scene.file).unwrap();
    eventually("its file is gone", async || {
        versions(host)["refused"]["step"] == "source"
    })
    .await;
    scene.put(&content);
    eventually("its file is back", async || {
        versions(host)["refused"].is_null()
    })
    .await;
}

#[tokio::test]
async fn a_file_that_was_away_and_is_what_it_was_undoes_no_deploy() {
    let first = good("file");
    let scene = Scene::new(&first).await;
    let host = accepting(&scene).ready().await;
    let next = good("deployed");
    deploy(&scene, &next).ok();
    runs(&host, &next).await;
    away_and_back(&scene, &host).await;
    // A wish that it had made would be carried out before this one.
    let later = good("later");
    deploy(&scene, &later).ok();
    runs(&host, &later).await;
    assert_eq!(host.metric("hostler_swaps_total"), 2);
    // Other content is a change, as ever.
    std::fs::remove_file(&scene.file).unwrap();
    eventually("its file is gone", async || {
        versions(&host)["refused"]["step"] == "source"
    })
    .await;
    let other = good("other");
    scene.put(&other);
    runs(&host, &other).await;
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_file_that_was_away_and_is_what_it_was_ends_no_trial() {
    let scene = Scene::new(&good("file")).await;
    let host = accepting(&scene).flag("canary", "10%").ready().await;
    let next = good("deployed");
    deploy(&scene, &next).ok();
    host.logs("a canary begins").await;
    away_and_back(&scene, &host).await;
    host.logs("the handler's file can be read again, and is what it was")
        .await;
    of_queue(&scene, &["promote"]).ok();
    runs(&host, &next).await;
    assert!(said(&host, "the canary was given up by hand").is_empty());
    assert_eq!(said(&host, "the canary was promoted by hand").len(), 1);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn only_the_newest_versions_are_kept() {
    let scene = Scene::new(&good("file")).await;
    for number in 1..=13 {
        // What hosts found out about one goes with it.
        for word in ["kept", "given-up"] {
            let judged = format!("SET {{orders}}:version:{number}:{word} x");
            scene.raw.ask(&judged).await;
        }
        let deployed = deploy(&scene, &good(&format!("v{number}"))).ok();
        assert_eq!(deployed.json()["version"], number);
        // Whoever deploys hears that nobody takes it.
        assert!(deployed.stderr.contains("no host of orders takes deploys"));
    }
    let list = listed(&scene);
    let numbers: Vec<_> = list["stored"]
        .as_array()
        .unwrap()
        .iter()
        .map(|stored| stored["version"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, (4..=13).rev().collect::<Vec<_>>());
    assert_eq!(scene.raw.number("EXISTS {orders}:version:3").await, 0);
    for word in ["kept", "given-up"] {
        for (version, there) in [(3, 0), (4, 1)] {
            let look = format!("EXISTS {{orders}}:version:{version}:{word}");
            assert_eq!(scene.raw.number(&look).await, there, "{look}");
        }
    }
    assert_eq!(scene.raw.number("EXISTS {orders}:version:4").await, 1);
    // What was wanted before stays, however old it is.
    of_queue(&scene, &["rollback", "--to", "4"]).ok();
    deploy(&scene, &good("v14")).ok();
    assert_eq!(listed(&scene)["before"], 4);
    assert_eq!(scene.raw.number("EXISTS {orders}:version:4").await, 1);
}

/// A deploy that dies, a Redis that forgets: no part of a component is ever wanted.
#[tokio::test]
async fn a_deploy_that_dies_leaves_nothing_that_is_run() {
    let scene = Scene::new(&good("file")).await;
    let large = variant(&scripted("large"), &"x".repeat(3 << 20));
    let file = written(scene.server.dir(), &large).display().to_string();
    let url = scene.server.url();
    let arguments = [
        "deploy",
        &file,
        "--unchecked",
        "--redis",
        &url,
        "--queue-key",
        "orders",
    ];
    let host = accepting(&scene).ready().await;
    let mut stored = 0;
    for pause in 0..30 {
        let mut child = command::hostler(arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Anywhere between its start and its end.
        tokio::time::sleep(Duration::from_millis(pause * 4)).await;
        drop(child.kill());
        drop(child.wait());
        let list = listed(&scene);
        for version in list["stored"].as_array().unwrap() {
            assert_eq!(version["digest"], *digest(&large));
            let number = &version["version"];
            let length = scene
                .raw
                .number(&format!("STRLEN {{orders}}:version:{number}"))
                .await;
            assert_eq!(usize::try_from(length).unwrap(), large.len());
        }
        stored = list["stored"].as_array().unwrap().len();
    }
    if stored == 0 {
        command::run(arguments).ok();
    }
    runs(&host, &large).await;
    assert!(said(&host, "a new version was refused; what runs goes on").is_empty());
    host.drain().await.expect_code(0);
}

/// Three hosts of one version are replaced, one after the other, by hosts of another, under load.
#[tokio::test]
async fn a_rolling_upgrade_loses_and_repeats_nothing() {
    let (old, new) = (scripted("old"), scripted("new"));
    let scene = Scene::new(&old).await;
    let other = written(scene.server.dir(), &new);
    let renewed = scene.host().flag("handler", &other.display().to_string());
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(scene.host().ready().await);
    }
    let mut ended = Vec::new();
    let mut published = 0;
    for _ in 0..3 {
        published += scene.publish(vec!["sleep:2+ack".to_owned(); 1_000]);
        let host = hosts.remove(0);
        host.signal(Signal::SIGTERM);
        hosts.push(renewed.ready().await);
        published += scene.publish(vec!["nack:1,ack".to_owned(); 200]);
        ended.push(host.ended().await);
    }
    scene.emptied().await;
    for host in hosts {
        ended.push(host.drain().await);
    }
    let mut acked = 0;
    let mut attempts = 0;
    for ended in &ended {
        let summary = ended.expect_code(0).json();
        acked += summary["acked"].as_u64().unwrap();
        attempts += summary["attempts"].as_u64().unwrap();
    }
    assert_eq!(acked, published as u64);
    // One more for each that asked for it, and not one else.
    assert_eq!(attempts, published as u64 + 600);
    assert!(bodies(1).len() == 1 && scene.dead().await.is_empty());
}

/// The users of `docs/security.md`: one that deploys, one that serves and takes it.
#[tokio::test]
async fn the_documented_users_can_deploy_and_take_it_and_do_nothing_worse() {
    let options = RedisOptions::default()
        .user(&documented_user("hostler-orders"))
        .user(&documented_user("deployer"));
    let first = scripted("file");
    let scene = Scene::on(options, &first).await;
    let url = scene.server.url();
    let as_user = |name: &str| {
        let sign = if url.contains('?') { '&' } else { '?' };
        format!("{url}{sign}user={name}&pass=change-me")
    };
    scene
        .raw
        .ask("XGROUP CREATE orders workers 0 MKSTREAM")
        .await;
    let host = accepting(&scene).flag("redis", &as_user("hostler-orders"));
    let host = host.ready().await;
    let next = scripted("next");
    let file = written(scene.server.dir(), &next).display().to_string();
    let deployer = as_user("deployer");
    let queue = ["--redis", &deployer, "--queue-key", "orders"];
    let deploy = ["deploy", &file, "--unchecked"];
    command::run(deploy.iter().chain(&queue)).ok();
    runs(&host, &next).await;
    command::run(["rollback"].iter().chain(&queue)).ok();
    runs(&host, &first).await;
    command::run(["promote"].iter().chain(&queue)).ok();
    let list = command::run(["versions", "--json"].iter().chain(&queue));
    let list = list.ok().json();
    assert_eq!(list["hosts"].as_array().unwrap().len(), 1);
    let confined = RawRedis::open(&deployer).await.unwrap();
    for worse in [
        "XADD orders * a b",
        "DEL orders",
        "GET {orders}:other",
        "FLUSHALL",
    ] {
        let refused = confined.try_ask(worse).await.unwrap_err();
        assert!(refused.to_string().contains("NoPerm"), "{worse}: {refused}");
    }
    host.drain().await.expect_code(0);
}
