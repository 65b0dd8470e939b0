//! The verdicts of hosts on a deploy: their effect on these hosts, and on hosts that start later.

use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use serde_json::Value;

use crate::swap_scene::{Scene, bodies, canary, current, digest, drain_all, runs, said, versions};

/// A host whose canary is decided after few messages.
fn trying(scene: &Scene) -> HostOptions {
    let canary = "canary=50% canary-window=1s canary-min-messages=20 canary-max-excess=50%";
    scene
        .accepting()
        .cap(1)
        .flags(canary)
        .flag("breaker", "off")
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
