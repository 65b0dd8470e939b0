//! Deploys: versions that are stored beside the queue.

use std::time::{Duration, Instant, UNIX_EPOCH};

use hostler_tests::command;
use hostler_tests::guests::variant;
use hostler_tests::host::{Host, Line};
use hostler_tests::redis::{RawRedis, RedisOptions, eventually};
use hostler_tests::versions::{bad, good};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::redis::security_user::{confined_url, documented_user};
use crate::rollout::swap_scene::{
    COMPILES, Scene, begins_canary, canary, current, digest, drain_all, ends_canary, refuses, runs,
    said, scripted, versions,
};

/// Wait until this many hosts are listed.
async fn hosts_listed(scene: &Scene, count: usize) {
    eventually("the hosts are listed", async || {
        scene.listed()["hosts"].as_array().unwrap().len() == count
    })
    .await;
}

/// A component of several mebibytes.
fn large() -> Vec<u8> {
    variant(&scripted("large"), &"x".repeat(3 << 20))
}

#[tokio::test]
async fn a_deploy_reaches_all_accepting_hosts_and_those_that_start_later() {
    let first = scripted("file");
    let scene = Scene::new(&first).await;
    let accepting = scene.accepting();
    let (one, two) = (accepting.ready().await, accepting.ready().await);
    let deaf = scene.host().ready().await;
    let next = scripted("deployed");
    hosts_listed(&scene, 3).await;
    let before = scene.now_ms().await;
    let deployed = scene.try_deploy(&next).ok();
    assert_eq!(deployed.stderr, "");
    let deployed = deployed.json();
    assert_eq!(deployed["version"], 1);
    assert_eq!(deployed["digest"], *digest(&next));
    for host in [&one, &two] {
        runs(host, &next).await;
        assert_eq!(versions(host)["current"]["origin"], "deploy 1");
    }
    // A host that starts now runs the deploy before its first message.
    let later = accepting.ready().await;
    assert_eq!(current(&later), *digest(&next));
    assert_eq!(current(&deaf), *digest(&first));

    // `versions` and `inspect` show the stored versions and the version of each host.
    let runs_it = |host: &&Value| host["handler"]["current"]["digest"] == *digest(&next);
    eventually("each host has reported its version", async || {
        let list = scene.listed();
        let hosts = list["hosts"].as_array().unwrap();
        hosts.len() == 4 && hosts.iter().filter(runs_it).count() == 3
    })
    .await;
    let list = scene.listed();
    let wanted = (&list["wanted"], &list["before"]);
    assert_eq!(wanted, (&1.into(), &Value::Null));
    assert_eq!(list["stored"][0]["by"], "ann");
    let at = list["stored"][0]["at_ms"].as_i64().unwrap();
    assert!(before <= at && at <= scene.now_ms().await, "{list}");
    assert_eq!(list["stored"][0]["size_bytes"], next.len());
    let url = scene.url();
    let group = ["--stream", "orders", "--group", "workers"];
    let inspect = [&["inspect", "--redis", &url], &group[..]].concat();
    let report = command::run(inspect.iter().chain(&["--json"])).ok().json();
    assert_eq!(report["hosts"].as_array().unwrap().len(), 4);
    assert!(command::run(inspect).ok().stdout.contains("deploy 1"));
    let people = scene.command(&["versions"]).ok().stdout;
    assert!(
        people.contains("wanted") && people.contains("ann"),
        "{people}"
    );

    // A host that leaves is not listed any more.
    drain_all([one, two, later, deaf]).await;
    assert!(scene.listed()["hosts"].as_array().unwrap().is_empty());
}

#[tokio::test]
async fn a_rollback_takes_effect_without_compiling() {
    let scene = Scene::new(&scripted("file")).await;
    let host = scene.accepting().flags(COMPILES).ready().await;
    let (one, two) = (scripted("one"), scripted("two"));
    scene.deploy(&one);
    runs(&host, &one).await;
    scene.deploy(&two);
    runs(&host, &two).await;
    host.logs_times("verifying a new version", 2).await;
    let verified = said(&host, "verifying a new version").len();
    assert_eq!(verified, 2);
    scene.command(&["rollback"]).ok();
    runs(&host, &one).await;
    // A second rollback undoes the first.
    scene.command(&["rollback"]).ok();
    runs(&host, &two).await;
    assert_eq!(said(&host, "verifying a new version").len(), verified);
    // A rollback to a version that does not exist.
    let refused = scene.command(&["rollback", "--to", "9"]);
    assert_eq!(refused.code, 64, "{refused:?}");
    // A deploy of the running version swaps nothing.
    let swaps = host.metric("hostler_swaps_total");
    scene.deploy(&two);
    eventually("the host has seen the deploy", async || {
        said(&host, "another version is requested").len() == 5
    })
    .await;
    assert_eq!(host.metric("hostler_swaps_total"), swaps);
    host.drained().await;
}

#[tokio::test]
async fn a_rollback_of_the_first_deploy_returns_each_host_to_its_earlier_version() {
    let first = scripted("file");
    let scene = Scene::new(&first).await;
    let host = scene.accepting().ready().await;
    let next = scripted("next");
    scene.deploy(&next);
    runs(&host, &next).await;
    let said = scene.command(&["rollback"]).ok().stdout;
    assert!(said.contains("what each host ran before"), "{said}");
    runs(&host, &first).await;
    // A host that starts now runs its file.
    let later = scene.accepting().ready().await;
    assert_eq!(versions(&later)["current"]["origin"], "file");
    drain_all([host, later]).await;
}

#[tokio::test]
async fn a_bad_deploy_is_refused_by_the_command_and_by_every_host() {
    let first = scripted("good");
    let scene = Scene::new(&first).await;
    let host = scene.accepting().ready().await;
    let whole = scripted("half");
    let half = &whole[..whole.len() / 2];
    let refused = scene.command(&["deploy", &scene.written(half)]);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(scene.listed()["wanted"].is_null());
    // `--unchecked` stores it, but no host takes it.
    scene.deploy(half);
    let why = refuses(&host, half).await;
    assert_eq!(why["step"], "format");
    assert_eq!(why["origin"], "deploy 1");
    eventually("the refusal is listed", async || {
        let list = scene.listed();
        list["hosts"][0]["handler"]["refused"]["step"] == "format"
    })
    .await;
    // A host that starts now refuses it too.
    let later = scene.accepting().ready().await;
    assert_eq!(current(&later), *digest(&first));
    assert_eq!(versions(&later)["refused"]["step"], "format");
    // A stored version that is damaged is not even parsed.
    let fine = scripted("fine");
    scene.deploy(&fine);
    runs(&host, &fine).await;
    let damage = "SETRANGE {orders}:version:2 100 damaged";
    scene.raw.ask(damage).await;
    let damaged = scene.accepting().ready().await;
    assert_eq!(current(&damaged), *digest(&first));
    assert_eq!(versions(&damaged)["refused"]["step"], "source");
    drain_all([host, later, damaged]).await;
}

#[tokio::test]
async fn deploys_are_stored_in_pieces_and_limited_in_size() {
    let scene = Scene::new(&good("small")).await;
    let limited = scene.accepting().flag("limit-component", "64KiB");
    let host = limited.ready().await;
    let large = large();
    let file = scene.written(&large);
    // Too large for the command: it stores nothing.
    let refused = scene.command(&["deploy", &file, "--limit-component", "64KiB"]);
    assert_eq!(refused.code, 65, "{refused:?}");
    assert!(refused.stderr.contains("65536"), "{refused:?}");
    assert!(scene.listed()["wanted"].is_null());
    assert_eq!(scene.calls("setrange").await, 0);
    // The command stores it in pieces of a mebibyte, and reads it back.
    scene.deploy(&large);
    let pieces = large.len().div_ceil(1 << 20) as u64;
    assert!(pieces > 3);
    assert_eq!(scene.calls("setrange").await, pieces);
    let read = scene.calls("getrange").await;
    assert!(read >= pieces);
    // Too large for this host: it does not even fetch it.
    let why = refuses(&host, &large).await;
    assert_eq!(why["step"], "size");
    assert_eq!(why["origin"], "deploy 1");
    assert_eq!(scene.calls("getrange").await, read);
    // A host without this limit takes it.
    let other = scene.accepting().ready().await;
    assert_eq!(current(&other), *digest(&large));
    assert!(scene.calls("getrange").await >= read + pieces);
    drain_all([host, other]).await;
}

#[tokio::test]
async fn a_pinned_host_refuses_deploys_and_sighup_returns_to_the_file() {
    let (first, next) = (scripted("file"), scripted("next"));
    let scene = Scene::new(&first).await;
    let pinned = scene.accepting().flag("handler-digest", &digest(&first));
    let pinned = pinned.ready().await;
    let host = scene.accepting().ready().await;
    scene.deploy(&next);
    assert_eq!(refuses(&pinned, &next).await["step"], "digest");
    assert_eq!(current(&pinned), *digest(&first));
    assert!(said(&pinned, "verifying a new version").is_empty());
    // SIGHUP requests the version in the file, although the file has not changed.
    runs(&host, &next).await;
    host.signal(Signal::SIGHUP);
    runs(&host, &first).await;
    assert_eq!(versions(&host)["current"]["origin"], "file");
    drain_all([host, pinned]).await;
}

/// It compares times: alone.
mod measured {
    use super::*;

    /// When a host wrote this line, in epoch milliseconds.
    fn logged_at(line: &Line) -> u64 {
        let at = humantime::parse_rfc3339(line.text("timestamp").unwrap()).unwrap();
        let since = at.duration_since(UNIX_EPOCH).unwrap();
        u64::try_from(since.as_millis()).unwrap()
    }

    /// Run `during`, and measure how long a wait of ten milliseconds takes at most meanwhile, in
    /// milliseconds: the delay that the machine imposes on all processes.
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

    /// The time from the deploy, by the clock of Redis, to the switch, by the host's log: both are the
    /// clock of this machine.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_deploy_is_taken_within_two_seconds() {
        let scene = Scene::new(&good("file")).await;
        let cache = scene.server.dir().join("cache").display().to_string();
        let options = scene.accepting().flag("compile-cache", &cache);
        let host = options.ready().await;
        let mut took = Vec::new();
        // A machine that stands still for longer than `bearable` milliseconds gives no result.
        let (few, many, bearable) = (3, 30, 200);
        for number in 1..=many {
            let next = good(&format!("v{number}"));
            // Compiled beforehand: the time of a compilation depends on the component.
            let file = scene.written(&next);
            command::run(["check", &file, "--compile-cache", &cache]).ok();
            let deployed = tokio::task::spawn_blocking({
                let url = scene.url();
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
            let list = scene.listed();
            let at = list["stored"][0]["at_ms"].as_u64().unwrap();
            let wanted = digest(&next);
            let is_logged = |line: &Line| line.text("to") == Some(&*wanted);
            // The host reports the new version before it logs the switch.
            eventually("the switch is logged", async || {
                said(&host, "swapped").last().is_some_and(is_logged)
            })
            .await;
            let swapped = said(&host, "swapped");
            let line = swapped.last().unwrap();
            if stall <= bearable {
                took.push(logged_at(line).saturating_sub(at));
            }
            if took.len() == few {
                break;
            }
        }
        took.sort_unstable();
        println!("from deploy to switch, in ms: {took:?}");
        assert_eq!(took.len(), few, "this machine stood still often: {took:?}");
        assert!(took[few / 2] < 2_000, "{took:?}");
        host.drained().await;
    }
}

#[tokio::test]
async fn a_canary_can_be_promoted_and_rolled_back_by_hand() {
    let scene = Scene::new(&good("old")).await;
    let options = scene.accepting().flag("canary", "10%");
    let host = options.ready().await;
    let (one, two) = (good("one"), bad("two"));
    scene.deploy(&one);
    begins_canary(&host).await;
    // It is still a canary for a host that starts now.
    let later = options.ready().await;
    assert_eq!(canary(&later), *digest(&one));
    scene.command(&["promote"]).ok();
    for host in [&host, &later] {
        runs(host, &one).await;
        assert!(canary(host).is_null());
    }
    scene.deploy(&two);
    host.logs_times("a canary begins", 2).await;
    scene.command(&["rollback"]).ok();
    ends_canary(&host).await;
    assert_eq!(current(&host), *digest(&one));
    drain_all([host, later]).await;
}

/// The wanted version is a state, not an event: a host catches up after a pause.
#[tokio::test]
async fn a_paused_host_takes_a_promoted_deploy_when_it_continues() {
    let scene = Scene::new(&good("old")).await;
    let trying = scene.accepting().flag("canary", "10%").ready().await;
    let plain = scene.accepting().ready().await;
    let one = good("one");
    for host in [&trying, &plain] {
        host.pause().await;
    }
    scene.deploy(&one);
    scene.command(&["promote"]).ok();
    for host in [&trying, &plain] {
        host.signal(Signal::SIGCONT);
        runs(host, &one).await;
        assert!(canary(host).is_null());
        assert!(said(host, "a canary begins").is_empty());
    }
    drain_all([trying, plain]).await;
}

#[tokio::test]
async fn a_rollback_of_the_only_deploy_does_not_affect_hosts_that_never_ran_it() {
    let (first, second) = (good("first"), good("second"));
    let scene = Scene::new(&first).await;
    let host = scene.accepting().ready().await;
    scene.put(&second);
    runs(&host, &second).await;
    host.pause().await;
    scene.deploy(&good("deployed"));
    scene.command(&["rollback"]).ok();
    host.signal(Signal::SIGCONT);
    host.logs("another version is requested").await;
    // The host processes requests in order.
    let next = good("next");
    scene.deploy(&next);
    runs(&host, &next).await;
    let previous = versions(&host)["previous"].clone();
    assert_eq!(previous["digest"], *digest(&second), "{previous}");
    assert_eq!(host.metric("hostler_swaps_total"), 2);
    host.drained().await;
}

#[tokio::test]
async fn a_host_that_missed_a_rollback_to_its_file_can_still_return_to_it() {
    let first = good("first");
    let scene = Scene::new(&first).await;
    let host = scene.accepting().ready().await;
    let (one, two) = (good("one"), good("two"));
    scene.deploy(&one);
    runs(&host, &one).await;
    host.pause().await;
    scene.command(&["rollback"]).ok();
    scene.deploy(&two);
    host.signal(Signal::SIGCONT);
    runs(&host, &two).await;
    // The version before is `one`, which was rolled back.
    scene.command(&["rollback"]).ok();
    runs(&host, &first).await;
    assert_eq!(versions(&host)["current"]["origin"], "file");
    host.drained().await;
}

#[tokio::test]
async fn a_rollback_to_the_canary_promotes_it() {
    let scene = Scene::new(&good("old")).await;
    let host = scene.accepting().flag("canary", "10%").ready().await;
    let one = good("one");
    scene.deploy(&one);
    begins_canary(&host).await;
    scene.command(&["rollback", "--to", "1"]).ok();
    runs(&host, &one).await;
    ends_canary(&host).await;
    host.drained().await;
}

#[tokio::test]
async fn promote_applies_to_deployed_canaries_and_to_canaries_from_the_file() {
    let scene = Scene::new(&good("old")).await;
    let host = scene.accepting().flag("canary", "10%").ready().await;
    let one = good("one");
    scene.deploy(&one);
    begins_canary(&host).await;
    scene.command(&["promote"]).ok();
    runs(&host, &one).await;
    let file = good("file");
    scene.put(&file);
    host.logs_times("a canary begins", 2).await;
    scene.command(&["promote"]).ok();
    runs(&host, &file).await;
    eventually("a canary is missed", async || {
        let again = scene.command(&["promote"]).ok().stdout;
        again.starts_with("no host of orders has a canary")
    })
    .await;
    host.drained().await;
}

/// After a data loss, Redis counts versions from 1 again.
#[tokio::test]
async fn a_deploy_whose_number_repeats_after_a_data_loss_is_taken() {
    let scene = Scene::new(&good("file")).await;
    let host = scene.accepting().ready().await;
    let (one, other) = (good("one"), good("other"));
    scene.deploy(&one);
    runs(&host, &one).await;
    // The data is lost, and a version is deployed, between two polls.
    host.pause().await;
    let lost = "UNLINK {orders}:versions {orders}:version:1";
    assert_eq!(scene.raw.number(lost).await, 2);
    let deployed = scene.try_deploy(&other).ok().json();
    assert_eq!(deployed["version"], 1);
    host.signal(Signal::SIGCONT);
    runs(&host, &other).await;
    host.drained().await;
}

#[tokio::test]
async fn rollback_and_promote_are_refused_without_deploys() {
    let scene = Scene::new(&good("one")).await;
    for command in [&["rollback"][..], &["rollback", "--to", "1"], &["promote"]] {
        let refused = scene.command(command);
        assert_eq!(refused.code, 64, "{refused:?}");
        let what = "nothing was ever deployed to orders";
        assert!(refused.stderr.contains(what), "{refused:?}");
    }
    // The command does not create versions for a mistyped key.
    assert_eq!(scene.raw.number("EXISTS {orders}:versions").await, 0);
}

/// Remove the handler's file, and wait until the host reports it.
async fn remove_file(scene: &Scene, host: &Host) {
    std::fs::remove_file(&scene.file).unwrap();
    eventually("its file is gone", async || {
        versions(host)["refused"]["step"] == "source"
    })
    .await;
}

/// Remove the handler's file and restore it; wait until the host has seen both.
async fn away_and_back(scene: &Scene, host: &Host) {
    let content = std::fs::read(&scene.file).unwrap();
    remove_file(scene, host).await;
    scene.put(&content);
    eventually("its file is back", async || {
        versions(host)["refused"].is_null()
    })
    .await;
}

#[tokio::test]
async fn a_file_that_reappears_unchanged_does_not_undo_a_deploy() {
    let first = good("file");
    let scene = Scene::new(&first).await;
    let host = scene.accepting().ready().await;
    let next = good("deployed");
    scene.deploy(&next);
    runs(&host, &next).await;
    away_and_back(&scene, &host).await;
    // A request for the file's version would be processed before this deploy.
    let later = good("later");
    scene.deploy(&later);
    runs(&host, &later).await;
    assert_eq!(host.metric("hostler_swaps_total"), 2);
    // A file that reappears with other content is a change.
    remove_file(&scene, &host).await;
    let other = good("other");
    scene.put(&other);
    runs(&host, &other).await;
    host.drained().await;
}

#[tokio::test]
async fn a_file_that_reappears_unchanged_does_not_end_a_canary() {
    let scene = Scene::new(&good("file")).await;
    let host = scene.accepting().flag("canary", "10%").ready().await;
    let next = good("deployed");
    scene.deploy(&next);
    begins_canary(&host).await;
    away_and_back(&scene, &host).await;
    host.logs("the handler's file is readable again and has not changed")
        .await;
    scene.command(&["promote"]).ok();
    runs(&host, &next).await;
    // The host reports the new version before it logs the promotion.
    host.logs("the canary was promoted by hand").await;
    assert!(said(&host, "the canary was cancelled by hand").is_empty());
    assert_eq!(said(&host, "the canary was promoted by hand").len(), 1);
    host.drained().await;
}

#[tokio::test]
async fn only_the_ten_newest_versions_are_stored() {
    let scene = Scene::new(&good("file")).await;
    for number in 1..=13 {
        // The verdicts of hosts are removed with their version.
        for word in ["kept", "given-up"] {
            let judged = format!("SET {{orders}}:version:{number}:{word} x");
            scene.raw.ask(&judged).await;
        }
        let deployed = scene.try_deploy(&good(&format!("v{number}"))).ok();
        assert_eq!(deployed.json()["version"], number);
        // The command warns that no host takes the deploy.
        assert!(deployed.stderr.contains("no host of orders takes deploys"));
    }
    let list = scene.listed();
    let stored = list["stored"].as_array().unwrap().iter();
    let numbers = stored.map(|stored| stored["version"].as_u64().unwrap());
    assert!(numbers.eq((4..=13).rev()), "{list}");
    for (version, is_stored) in [(3, false), (4, true)] {
        for word in ["", ":kept", ":given-up"] {
            let key = format!("{{orders}}:version:{version}{word}");
            assert_eq!(scene.exists(&key).await, is_stored, "{key}");
        }
    }
    // The previous version stays at any age.
    scene.command(&["rollback", "--to", "4"]).ok();
    scene.deploy(&good("v14"));
    assert_eq!(scene.listed()["before"], 4);
    assert!(scene.exists("{orders}:version:4").await);
}
#[tokio::test]
async fn a_deploy_that_dies_leaves_no_partial_version() {
    let scene = Scene::new(&good("file")).await;
    let large = large();
    let (file, url) = (scene.written(&large), scene.url());
    let queue = ["--redis", &url, "--queue-key", "orders"];
    let arguments = [&["deploy", &file, "--unchecked"], &queue[..]].concat();
    let host = scene.accepting().ready().await;
    let mut stored = 0;
    for pause in 0..30 {
        let mut child = command::hostler(&arguments)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // Anywhere between its start and its end.
        tokio::time::sleep(Duration::from_millis(pause * 4)).await;
        drop(child.kill());
        drop(child.wait());
        let list = scene.listed();
        for version in list["stored"].as_array().unwrap() {
            assert_eq!(version["digest"], *digest(&large));
            let number = &version["version"];
            let length = format!("STRLEN {{orders}}:version:{number}");
            let length = scene.raw.number(&length).await;
            assert_eq!(usize::try_from(length).unwrap(), large.len());
        }
        stored = list["stored"].as_array().unwrap().len();
    }
    if stored == 0 {
        command::run(arguments).ok();
    }
    runs(&host, &large).await;
    assert!(said(&host, "a new version was refused; the current one stays").is_empty());
    host.drained().await;
}

/// Under load, three hosts of one version are replaced one after the other by hosts of another
/// version.
#[tokio::test]
async fn a_rolling_upgrade_loses_and_repeats_nothing() {
    let (old, new) = (scripted("old"), scripted("new"));
    let scene = Scene::new(&old).await;
    let renewed = scene.host().flag("handler", &scene.written(&new));
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
    // 600 messages asked for a second attempt.
    assert_eq!(attempts, published as u64 + 600);
    assert!(scene.dead().await.is_empty());
}

/// The users of `docs/security.md`: one deploys, the other serves and takes the deploy.
#[tokio::test]
async fn the_documented_users_can_deploy_and_serve_and_nothing_else() {
    let options = RedisOptions::default()
        .user(&documented_user("hostler-orders"))
        .user(&documented_user("deployer"));
    let first = scripted("file");
    let scene = Scene::on(options, &first).await;
    let create = "XGROUP CREATE orders workers 0 MKSTREAM";
    scene.raw.ask(create).await;
    let server = confined_url(&scene.server, "hostler-orders");
    let host = scene.accepting().flag("redis", &server).ready().await;
    let next = scripted("next");
    let file = scene.written(&next);
    let deployer = confined_url(&scene.server, "deployer");
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
    host.drained().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deploy_that_waits_ends_with_the_verdict_of_all_hosts() {
    let scene = Scene::new(&scripted("file")).await;
    let wait = |component: &[u8], limit: &str| {
        let file = scene.written(component);
        scene.command(&["deploy", &file, "--unchecked", limit, "--json"])
    };
    let nobody = wait(&scripted("zero"), "--wait=30s");
    assert_eq!(nobody.code, 69, "{nobody:?}");
    assert_eq!(nobody.json()["verdict"], "no-hosts");
    let hosts = [
        scene.accepting().ready().await,
        scene.accepting().ready().await,
    ];
    let taken = wait(&scripted("one"), "--wait");
    assert_eq!(taken.code, 0, "{taken:?}");
    let json = taken.json();
    assert_eq!(
        (&json["verdict"], json["hosts"].as_array().unwrap().len()),
        (&"taken".into(), 2)
    );
    for host in &hosts {
        assert_eq!(
            versions(host)["current"]["digest"],
            *digest(&scripted("one"))
        );
    }
    let back = scene.command(&["rollback", "--wait=30s", "--json"]).ok();
    let json = back.json();
    assert_eq!(
        (&json["version"], &json["verdict"]),
        (&1.into(), &"taken".into())
    );
    assert_eq!(json["hosts"].as_array().unwrap().len(), 2);
    scene.command(&["rollback", "--wait=30s"]).ok();
    // The second time, the refusal of the first time does not count.
    for _ in 0..2 {
        let refused = wait(b"no component", "--wait=30s");
        assert_eq!(refused.code, 65, "{refused:?}");
        let json = refused.json();
        assert_eq!(json["verdict"], "refused");
        assert!(
            json["hosts"][0]["why"].as_str().unwrap().contains("format"),
            "{json}"
        );
    }
    drain_all(hosts).await;
    // A canary that gets no messages is on trial for long.
    let options = scene.accepting().flags("canary=50% canary-window=1h");
    let host = options.ready().await;
    scene.deploy(&scripted("two"));
    begins_canary(&host).await;
    let undecided = wait(&scripted("two"), "--wait=5s");
    assert_eq!(undecided.code, 75, "{undecided:?}");
    let json = undecided.json();
    assert!(
        json["hosts"][0]["why"]
            .as_str()
            .unwrap()
            .contains("on trial with 50%"),
        "{json}"
    );
    host.drained().await;
}
