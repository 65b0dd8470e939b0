//! The verdicts of hosts on a deploy: their effect on these hosts, and on hosts that start later.

use hostler_tests::guests::variant;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use serde_json::Value;

use crate::rollout::swap_scene::{
    Scene, bodies, canary, component_of, current, digest, drain_all, runs, said, versions,
};

/// A host whose canary is decided after few messages.
fn trying(scene: &Scene) -> HostOptions {
    let canary = "canary=50% canary-window=1s canary-min-messages=20 canary-max-excess=50%";
    scene
        .accepting()
        .cap(1)
        .flags(canary)
        .flag("breaker", "off")
}

/// A host that tries each version with a fifth of the messages.
fn careful(scene: &Scene) -> HostOptions {
    scene.accepting().cap(1).flag("canary", "20%")
}

/// It begins with this version, for all messages.
fn begins_with(host: &Host, component: &[u8]) {
    assert_eq!(current(host), *digest(component));
    assert!(canary(host).is_null(), "{}", versions(host));
}

/// Wait until a host has recorded that it kept the newest version.
async fn is_kept(scene: &Scene) {
    eventually("the version is kept", async || {
        !newest(scene)["kept"].is_null()
    })
    .await;
}

/// The newest version that is stored.
fn newest(scene: &Scene) -> Value {
    scene.listed()["stored"][0].clone()
}

/// Whether the window of the newest version is over.
async fn is_old(scene: &Scene) -> bool {
    let at = newest(scene)["at_ms"].as_i64().unwrap();
    scene.now_ms().await - at > 2_500
}

/// Wait until the newest version has this verdict, and until its window is over.
async fn recorded(scene: &Scene, verdict: &str) -> Value {
    let what = "a verdict is recorded, and the window is over";
    eventually(what, async || {
        !newest(scene)[verdict].is_null() && is_old(scene).await
    })
    .await;
    newest(scene)
}

/// Wait until the host shows this reason for not running the deploy.
async fn shows_refusal(host: &Host, step: &str, component: &[u8]) {
    eventually("the deploy is shown as refused", async || {
        versions(host)["refused"]["step"] == step
    })
    .await;
    assert_eq!(versions(host)["refused"]["digest"], *digest(component));
}

#[tokio::test]
async fn a_rolled_back_deploy_is_a_canary_for_hosts_that_start_later() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    let host = trying(&scene).ready().await;
    scene.deploy(&new);
    host.logs("a canary begins").await;
    let decided = "the canary was rolled back: it fails more often";
    scene.publish_until(&host, decided, 200).await;
    // The host shows why it does not run the wanted version.
    shows_refusal(&host, "canary", &new).await;
    assert_eq!(versions(&host)["refused"]["origin"], "deploy 1");
    let stored = recorded(&scene, "given_up").await;
    let why = stored["given_up"].as_str().unwrap();
    assert!(why.contains("canary: it failed more often"), "{why}");
    assert!(stored["kept"].is_null(), "{stored}");
    assert_eq!(scene.listed()["wanted"], 1);
    let people = scene.command(&["versions"]).ok().stdout;
    assert!(people.contains("wanted, given up by "), "{people}");

    // Its window is over, but a host that starts now tries it with a share of the messages only.
    let later = trying(&scene).ready().await;
    assert_eq!(current(&later), *digest(&old));
    assert_eq!(canary(&later), *digest(&new));
    // `promote` overrules the verdict.
    scene.command(&["promote"]).ok();
    for host in [&host, &later] {
        runs(host, &new).await;
        assert!(versions(host)["refused"].is_null());
    }
    let last = trying(&scene).ready().await;
    assert_eq!(current(&last), *digest(&new));
    drain_all([host, later, last]).await;
}

#[tokio::test]
async fn a_promoted_deploy_is_not_a_canary_for_hosts_that_start_later() {
    let (old, new) = (good("old"), good("new"));
    let scene = Scene::new(&old).await;
    let host = trying(&scene).ready().await;
    scene.deploy(&new);
    host.logs("a canary begins").await;
    // Its window is over, and it has no verdict yet.
    eventually("the window is over", async || is_old(&scene).await).await;
    let early = trying(&scene).ready().await;
    assert_eq!(canary(&early), *digest(&new));
    early.drained().await;

    let decided = "the canary was promoted";
    scene.publish_until(&host, decided, 200).await;
    runs(&host, &new).await;
    let stored = recorded(&scene, "kept").await;
    assert!(stored["given_up"].is_null(), "{stored}");
    let later = trying(&scene).ready().await;
    assert_eq!(current(&later), *digest(&new));
    assert!(canary(&later).is_null());
    assert!(said(&later, "a canary begins").is_empty());

    // After a data loss the numbers repeat: a verdict belongs to a digest, not to a number.
    scene.raw.ask("UNLINK {orders}:versions").await;
    scene.deploy(&good("other"));
    let stored = &scene.listed()["stored"][0];
    assert_eq!(stored["version"], 1);
    assert!(stored["kept"].is_null(), "{stored}");
    drain_all([host, later]).await;
}

/// Its attempts ask for another one, which counts as a failure, unless they hold their messages.
#[tokio::test]
async fn a_canary_that_holds_its_messages_does_not_fail() {
    for (body, decided) in [
        ("wait:2000:200", "the canary was promoted"),
        ("nack", "the canary was rolled back: it fails more often"),
    ] {
        let (old, new) = (good("old"), variant(&component_of("holding"), "new"));
        let scene = Scene::new(&old).await;
        let host = trying(&scene).flag("hold-max-age", "1h").ready().await;
        scene.deploy(&new);
        host.logs("a canary begins").await;
        eventually("the canary is decided", async || {
            scene.publish((0..50).map(|_| body.to_owned()));
            host.count(|line| line.message().starts_with("the canary was ")) > 0
        })
        .await;
        assert_eq!(said(&host, decided).len(), 1, "{:?}", host.log().last());
        match body {
            "nack" => assert_eq!(host.metric("hostler_holds_total"), 0),
            _ => assert!(host.metric("hostler_holds_total") > 20),
        }
        drain_all([host]).await;
    }
}

#[tokio::test]
async fn a_broken_deploy_reports_why_it_does_not_run() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    let options = scene.accepting().cap(1);
    let options = options.flags("breaker-min-messages=30 on-break=rollback");
    let host = options.ready().await;
    scene.deploy(&new);
    runs(&host, &new).await;
    scene.publish(bodies(2_000));
    runs(&host, &old).await;
    shows_refusal(&host, "breaker", &new).await;
    eventually("the verdict is recorded", async || {
        let stored = scene.listed()["stored"][0].clone();
        let why = stored["given_up"].as_str();
        why.is_some_and(|why| why.contains("breaker: "))
    })
    .await;
    // A host with canaries tries the version as a canary.
    let later = trying(&scene).ready().await;
    assert_eq!(current(&later), *digest(&old));
    // A later version clears the refusal.
    let fixed = good("fixed");
    scene.deploy(&fixed);
    runs(&host, &fixed).await;
    assert!(versions(&host)["refused"].is_null());
    drain_all([host, later]).await;
}

/// A buggy file, and a fix that every host took for all messages because the queue was stopped.
#[tokio::test]
async fn a_fix_that_all_hosts_run_is_kept_and_is_no_canary_after_a_restart() {
    let (buggy, fix) = (bad("buggy"), good("fix"));
    let scene = Scene::new(&buggy).await;
    let options = careful(&scene).flags("canary-window=1s breaker-min-messages=20");
    let hosts = [options.ready().await, options.ready().await];
    scene.publish(bodies(1_000));
    for host in &hosts {
        host.logs("the handler faults on everything: stopped").await;
    }
    scene.deploy(&fix);
    for host in &hosts {
        runs(host, &fix).await;
    }
    scene.emptied().await;
    is_kept(&scene).await;
    eventually("its window is over", async || is_old(&scene).await).await;
    // No host is left to say what runs.
    drain_all(hosts).await;
    for _ in 0..2 {
        let host = careful(&scene).flag("canary-window", "1s").ready().await;
        begins_with(&host, &fix);
        assert!(said(&host, "a canary begins").is_empty());
        drain_all([host]).await;
    }
}

#[tokio::test]
async fn a_version_that_handled_nothing_is_not_kept() {
    let scene = Scene::new(&good("file")).await;
    let options = scene.accepting().flag("canary-window", "100ms");
    let host = options.ready().await;
    let new = good("new");
    scene.deploy(&new);
    runs(&host, &new).await;
    eventually("its window is over", async || is_old(&scene).await).await;
    assert!(newest(&scene)["kept"].is_null());
    scene.publish(bodies(1));
    is_kept(&scene).await;
    let kept = newest(&scene)["kept"].clone();
    assert_eq!(kept, *host.consumer());
    // The same bytes under a new number are kept as well: the host runs them already.
    scene.deploy(&new);
    assert!(newest(&scene)["kept"].is_null());
    eventually("it was requested", async || {
        said(&host, "this version already runs").len() == 1
    })
    .await;
    scene.publish(bodies(1));
    is_kept(&scene).await;
    drain_all([host]).await;
}

/// No host has judged the version yet: the window is five minutes.
#[tokio::test]
async fn a_host_that_starts_gives_all_messages_to_the_version_that_most_hosts_run() {
    let (buggy, fix) = (bad("buggy"), good("fix"));
    let scene = Scene::new(&buggy).await;
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(scene.accepting().ready().await);
    }
    scene.deploy(&fix);
    eventually("the fleet runs it", async || {
        let list = scene.listed();
        let hosts = list["hosts"].as_array().unwrap().iter();
        let runs = hosts.filter(|host| host["handler"]["current"]["digest"] == *digest(&fix));
        runs.count() == 3
    })
    .await;
    // One after the other.
    for n in 0..3 {
        hosts.remove(0).drained().await;
        let host = careful(&scene).ready().await;
        begins_with(&host, &fix);
        hosts.push(host);
        eventually("it is listed", async || {
            scene.listed()["hosts"].as_array().unwrap().len() == 3
        })
        .await;
        assert!(newest(&scene)["kept"].is_null(), "{n}");
    }
    drain_all(hosts).await;
}

#[tokio::test]
async fn a_host_that_starts_tries_a_new_version_beside_the_one_that_the_fleet_runs() {
    let (buggy, fix, new) = (bad("buggy"), good("fix"), good("new"));
    let scene = Scene::new(&buggy).await;
    let host = careful(&scene).ready().await;
    scene.deploy(&fix);
    scene.command(&["promote"]).ok();
    runs(&host, &fix).await;
    scene.deploy(&new);
    eventually("it is on trial", async || {
        let list = scene.listed();
        list["hosts"][0]["handler"]["canary"]["digest"] == *digest(&new)
    })
    .await;
    let is_beside = |host: &Host| {
        assert_eq!(current(host), *digest(&fix));
        assert_eq!(canary(host), *digest(&new));
    };
    let later = careful(&scene).ready().await;
    is_beside(&later);
    drain_all([host, later]).await;
    // No host is left: an operator chose the fix.
    let alone = careful(&scene).ready().await;
    is_beside(&alone);
    // Nor does a version that every host refuses send a host that starts back to its file.
    scene.deploy(b"no component");
    eventually("it is refused", async || {
        versions(&alone)["refused"]["step"] == "format"
    })
    .await;
    drain_all([alone]).await;
    let last = scene.accepting().ready().await;
    begins_with(&last, &fix);
    assert_eq!(versions(&last)["refused"]["step"], "format");
    drain_all([last]).await;
}

#[tokio::test]
async fn the_version_that_hosts_kept_is_stored_for_as_long_as_it_is_the_last_one() {
    let scene = Scene::new(&good("file")).await;
    let fix = good("fix");
    scene.deploy(&fix);
    scene.command(&["promote"]).ok();
    for number in 2..=13 {
        scene.deploy(&bad(&format!("v{number}")));
    }
    let host = careful(&scene).ready().await;
    assert_eq!(current(&host), *digest(&fix));
    drain_all([host]).await;
}

/// The file brought the version first. It stays the version of the file, but the deploy has the verdict.
#[tokio::test]
async fn the_verdict_on_a_deploy_that_is_already_the_canary_of_the_file_is_recorded() {
    for (new, verdict, decision) in [
        (
            bad("new"),
            "given_up",
            "the canary was rolled back: it fails more often",
        ),
        (good("new"), "kept", "the canary was promoted"),
    ] {
        let scene = Scene::new(&good("old")).await;
        let host = trying(&scene).ready().await;
        scene.put(&new);
        host.logs("a canary begins").await;
        scene.deploy(&new);
        host.logs("another version is requested").await;
        scene.publish_until(&host, decision, 200).await;
        let stored = recorded(&scene, verdict).await;
        assert_eq!(stored["version"], 1);
        drain_all([host]).await;
    }
}
