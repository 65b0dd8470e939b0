//! Versions that are stored beside the queue.

use std::path::{Path, PathBuf};

use hostler_tests::command::{self, Ended};
use hostler_tests::guests::{guest, variant};
use hostler_tests::host::HostOptions;
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

fn of_queue(scene: &Scene, arguments: &[&str]) -> Ended {
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

fn listed(scene: &Scene) -> Value {
    of_queue(scene, &["versions", "--json"]).ok().json()
}

fn accepting(scene: &Scene) -> HostOptions {
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
    let deployed = deploy(&scene, &next).ok().json();
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

#[tokio::test]
async fn only_the_newest_versions_are_kept() {
    let scene = Scene::new(&good("file")).await;
    for number in 1..=13 {
        let deployed = deploy(&scene, &good(&format!("v{number}"))).ok().json();
        assert_eq!(deployed["version"], number);
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
        tokio::time::sleep(std::time::Duration::from_millis(pause * 4)).await;
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
