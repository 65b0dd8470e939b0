//! What becomes of a deploy that hosts judged: for themselves, and for those that start later.

use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use serde_json::Value;

use crate::swap_deploy::{accepting, deploy, listed, of_queue, redis_ms};
use crate::swap_scene::{Scene, bodies, digest, runs, said, versions};

/// A canary decides as soon as it has been tried by so few messages.
fn trying(scene: &Scene) -> HostOptions {
    accepting(scene)
        .cap(1)
        .flag("canary", "50%")
        .flag("canary-window", "1s")
        .flag("canary-min-messages", "20")
        .flag("canary-max-excess", "50%")
        .flag("breaker", "off")
}

/// Publish until the host says this.
async fn publish_until(scene: &Scene, host: &Host, message: &str) {
    let mut rounds = 0;
    while said(host, message).is_empty() {
        scene.publish(bodies(200));
        scene.emptied().await;
        rounds += 1;
        assert!(rounds < 1_000, "no `{message}`");
    }
}

/// Wait until the newest version says this of itself, and until its window is over.
async fn recorded(scene: &Scene, field: &str) -> Value {
    eventually(
        "a verdict is recorded, and the window is over",
        async || {
            let stored = &listed(scene)["stored"][0];
            let age = redis_ms(scene).await - stored["at_ms"].as_u64().unwrap();
            !stored[field].is_null() && age > 2_500
        },
    )
    .await;
    listed(scene)["stored"][0].clone()
}

#[tokio::test]
async fn a_deploy_that_was_given_up_is_a_canary_for_every_host_that_starts() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    let host = trying(&scene).ready().await;
    deploy(&scene, &new).ok();
    host.logs("a canary begins").await;
    let decided = "the canary was rolled back: it fails more often";
    publish_until(&scene, &host, decided).await;
    // It is told why this host does not run what is wanted.
    eventually("it is shown as refused", async || {
        versions(&host)["refused"]["step"] == "canary"
    })
    .await;
    let refused = versions(&host)["refused"].clone();
    assert_eq!(refused["digest"], *digest(&new));
    assert_eq!(refused["origin"], "deploy 1");
    let stored = recorded(&scene, "given_up").await;
    let why = stored["given_up"].as_str().unwrap();
    assert!(why.contains("canary: it failed more often"), "{why}");
    assert!(stored["kept"].is_null(), "{stored}");
    assert_eq!(listed(&scene)["wanted"], 1);
    let people = of_queue(&scene, &["versions"]).ok().stdout;
    assert!(people.contains("wanted, given up by "), "{people}");

    // Old as it is, it gets a share of what the next host handles, and no more.
    let later = trying(&scene).ready().await;
    let lineup = versions(&later);
    assert_eq!(lineup["current"]["digest"], *digest(&old), "{lineup}");
    assert_eq!(lineup["canary"]["digest"], *digest(&new), "{lineup}");
    // Whoever promotes it, wants it.
    of_queue(&scene, &["promote"]).ok();
    for host in [&host, &later] {
        runs(host, &new).await;
        assert!(versions(host)["refused"].is_null());
    }
    let last = trying(&scene).ready().await;
    assert_eq!(versions(&last)["current"]["digest"], *digest(&new));
    for host in [host, later, last] {
        host.drain().await.expect_code(0);
    }
}

#[tokio::test]
async fn a_deploy_that_was_kept_is_taken_whole_by_every_host_that_starts() {
    let (old, new) = (good("old"), good("new"));
    let scene = Scene::new(&old).await;
    let host = trying(&scene).ready().await;
    deploy(&scene, &new).ok();
    host.logs("a canary begins").await;
    // Nobody has judged it yet, and its window is over.
    eventually("the window is over", async || {
        let at = listed(&scene)["stored"][0]["at_ms"].as_u64().unwrap();
        redis_ms(&scene).await - at > 2_500
    })
    .await;
    let early = trying(&scene).ready().await;
    assert_eq!(versions(&early)["canary"]["digest"], *digest(&new));
    early.drain().await.expect_code(0);

    publish_until(&scene, &host, "the canary was promoted").await;
    runs(&host, &new).await;
    let stored = recorded(&scene, "kept").await;
    assert!(stored["given_up"].is_null(), "{stored}");
    let later = trying(&scene).ready().await;
    let lineup = versions(&later);
    assert_eq!(lineup["current"]["digest"], *digest(&new), "{lineup}");
    assert!(lineup["canary"].is_null(), "{lineup}");
    assert!(said(&later, "a canary begins").is_empty());

    // The number says nothing: what Redis lost, it counts anew.
    scene.raw.ask("UNLINK {orders}:versions").await;
    deploy(&scene, &good("other")).ok();
    let stored = &listed(&scene)["stored"][0];
    assert_eq!(stored["version"], 1);
    assert!(stored["kept"].is_null(), "{stored}");
    for host in [host, later] {
        host.drain().await.expect_code(0);
    }
}

#[tokio::test]
async fn a_deploy_that_broke_says_why_it_does_not_run() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    let options = accepting(&scene)
        .cap(1)
        .flag("breaker-min-messages", "30")
        .flag("on-break", "rollback");
    let host = options.ready().await;
    deploy(&scene, &new).ok();
    runs(&host, &new).await;
    scene.publish(bodies(2_000));
    runs(&host, &old).await;
    eventually("it is shown as refused", async || {
        versions(&host)["refused"]["step"] == "breaker"
    })
    .await;
    assert_eq!(versions(&host)["refused"]["digest"], *digest(&new));
    eventually("it is recorded", async || {
        let stored = listed(&scene)["stored"][0].clone();
        let why = stored["given_up"].as_str();
        why.is_some_and(|why| why.contains("breaker: "))
    })
    .await;
    // One that tries new versions out tries this one, too.
    let later = trying(&scene).ready().await;
    assert_eq!(versions(&later)["current"]["digest"], *digest(&old));
    // A later version ends it.
    let fixed = good("fixed");
    deploy(&scene, &fixed).ok();
    runs(&host, &fixed).await;
    assert!(versions(&host)["refused"].is_null());
    for host in [host, later] {
        host.drain().await.expect_code(0);
    }
}
