//! Canary and breaker where they meet something else: the start of a host, a queue that is stopped, a
//! version that hangs, one message that comes back all the time, another kind of handler.

use hostler::delivery::message::Headers;
use hostler::rollout::canary::Share;
use hostler::wire::frame;
use hostler_tests::guests::{guest, variant};
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use serde_json::Value;

use crate::e2e_sandbox::moody;
use crate::swap_deploy::deploy;
use crate::swap_scene::{Scene, bodies, digest, runs, said, versions};

const STOPPED: &str = "the handler faults on everything: stopped";
const TAKEN_WHOLE: &str = "the canary was promoted: the queue is stopped";
const AGAIN: &str = "the handler is run again";

/// A host that tries each version with half of the messages, and gets to no decision.
fn trying(scene: &Scene) -> HostOptions {
    scene
        .host()
        .cap(1)
        .flag("canary", "50%")
        .flag("canary-min-messages", "1000000")
}

fn status(host: &Host) -> Value {
    let (_, body) = host.get("/status");
    serde_json::from_str(&body).unwrap()
}

/// Publish one, and say its id.
async fn publish_one(scene: &Scene, body: &str, headers: &[(&str, &str)]) -> String {
    let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"_payload", body.as_bytes()];
    for (name, value) in headers {
        words.extend([name.as_bytes(), value.as_bytes()]);
    }
    redis::from_redis_value(scene.raw.ask_words(&words).await).unwrap()
}

#[tokio::test]
async fn a_canary_of_the_start_is_judged_as_any_other() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    deploy(&scene, &new).ok();
    let options = trying(&scene)
        .flag("accept-deploys", "true")
        .flag("canary-min-messages", "20")
        .flag("breaker", "off");
    let host = options.ready().await;
    let now = versions(&host);
    assert_eq!(now["current"]["digest"], *digest(&old));
    assert_eq!(now["canary"]["digest"], *digest(&new));
    let series = format!("hostler_canary_info{{digest=\"{}\"}}", digest(&new));
    assert_eq!(host.metric(&series), 1);
    scene.publish(bodies(500));
    host.logs("the canary was rolled back: it fails more often")
        .await;
    scene.emptied().await;
    assert!(versions(&host)["canary"].is_null());
    assert_eq!(status(&host)["handler"], *digest(&old));
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_host_that_starts_with_a_deploy_says_so_everywhere() {
    let (old, new) = (good("old"), good("new"));
    let scene = Scene::new(&old).await;
    deploy(&scene, &new).ok();
    let options = scene.host().flag("accept-deploys", "true");
    let host = options.ready().await;
    assert_eq!(versions(&host)["current"]["digest"], *digest(&new));
    assert_eq!(status(&host)["handler"], *digest(&new));
    let series = format!("hostler_handler_info{{digest=\"{}\"}}", digest(&new));
    assert_eq!(host.metric(&series), 1);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_fix_is_no_canary_where_the_breaker_has_stopped_the_queue() {
    let scene = Scene::new(&bad("old")).await;
    let host = trying(&scene).ready().await;
    let published = scene.publish(bodies(1_000));
    host.logs(STOPPED).await;
    let fixed = good("fixed");
    scene.put(&fixed);
    host.logs(TAKEN_WHOLE).await;
    runs(&host, &fixed).await;
    host.logs(AGAIN).await;
    scene.emptied().await;
    let dead = scene.dead().await.len();
    assert!(dead < published, "{dead}");
    let summary = host.drain().await;
    assert_eq!(summary.expect_code(0).json()["acked"], published - dead);
}

#[tokio::test]
async fn a_fix_is_no_canary_where_panics_have_stopped_the_queue() {
    let scene = Scene::new(&std::fs::read(guest("saboteur")).unwrap()).await;
    let host = trying(&scene)
        .flag("concurrency", "1")
        .flag("prefetch", "4")
        .ready()
        .await;
    scene.publish(vec!["host-panic".to_owned(); 50]);
    host.logs("the host panics: stopped").await;
    let fixed = good("fixed");
    scene.put(&fixed);
    host.logs(TAKEN_WHOLE).await;
    host.logs(AGAIN).await;
    scene.emptied().await;
    // Three, and what it held when the third one was heard of.
    let dead = scene.dead().await.len();
    assert!((3..=3 + 5).contains(&dead), "{dead}");
    assert_eq!(host.get("/ready").0, 200);
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], 50 - dead);
}

#[tokio::test]
async fn a_canary_that_works_takes_over_from_a_version_that_faults_on_everything() {
    let scene = Scene::new(&bad("old")).await;
    let host = trying(&scene)
        .flag("breaker-min-messages", "30")
        .ready()
        .await;
    let new = good("new");
    scene.put(&new);
    host.logs("a canary begins").await;
    // Half of them is well, and opens nothing again that the other half has closed.
    let published = scene.publish(bodies(2_000));
    host.logs(TAKEN_WHOLE).await;
    host.logs(AGAIN).await;
    scene.emptied().await;
    assert_eq!(host.metric("hostler_breaker_opened_total"), 1);
    assert_eq!(said(&host, AGAIN).len(), 1);
    assert_eq!(versions(&host)["current"]["digest"], *digest(&new));
    let dead = scene.dead().await.len();
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], published - dead);
}

#[tokio::test]
async fn a_canary_that_faults_on_everything_goes_without_a_comparison() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    let host = trying(&scene).ready().await;
    scene.put(&new);
    host.logs("a canary begins").await;
    scene.publish(bodies(1_000));
    host.logs("the canary was rolled back: it faults on everything")
        .await;
    scene.emptied().await;
    assert_eq!(versions(&host)["current"]["digest"], *digest(&old));
    assert!(said(&host, STOPPED).is_empty());
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_canary_that_makes_the_host_panic_goes_and_the_queue_does_not_stop() {
    let scene = Scene::new(&good("old")).await;
    let host = trying(&scene).ready().await;
    scene.put(&std::fs::read(guest("saboteur")).unwrap());
    host.logs("a canary begins").await;
    scene.publish(vec!["host-panic".to_owned(); 40]);
    host.logs("the canary was rolled back: the host panics")
        .await;
    scene.emptied().await;
    assert!(said(&host, "the host panics: stopped").is_empty());
    assert_eq!(host.get("/ready").0, 200);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_canary_without_instances_goes_and_the_queue_does_not_stop() {
    let old = good("old");
    let scene = Scene::new(&old).await;
    let host = trying(&scene).ready().await;
    let new = moody();
    scene.put(&new);
    host.logs("a canary begins").await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for _ in 0..50 {
        publish_one(&scene, "x", &[("h:traceparent", trace)]).await;
    }
    host.logs("the canary was rolled back: no instance of it can be made")
        .await;
    scene.emptied().await;
    assert!(said(&host, "no instance of the handler: stopped").is_empty());
    // At a cap of one a charge would have been the last one.
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], 50);
    assert_eq!(scene.dead().await.len(), 0);
}

#[tokio::test]
async fn one_poisonous_message_does_not_decide_a_canary() {
    let old = std::fs::read(guest("scripted")).unwrap();
    let new = variant(&old, "new");
    let scene = Scene::new(&old).await;
    let host = scene
        .host()
        .flag("canary", "50%")
        .flag("canary-window", "2s")
        .flag("canary-min-messages", "50")
        .flag("breaker", "off")
        .ready()
        .await;
    scene.put(&new);
    host.logs("a canary begins").await;
    // One that comes back at once, for ever, on the canary's side.
    let share = Share::from_basis_points(5_000).unwrap();
    while !share.has(&publish_one(&scene, "nack:0", &[]).await) {}
    let attempts = "hostler_version_attempts_total{version=\"canary\",outcome=\"nack-requeue\"}";
    eventually("it has come back often", async || {
        host.metric(attempts) > 1_000
    })
    .await;
    scene.publish(vec!["ack".to_owned(); 400]);
    host.logs("the canary was promoted").await;
    let decided = host.count(|line| line.message().starts_with("the canary was rolled back"));
    assert_eq!(decided, 0);
    let line = &said(&host, "the canary was promoted")[0];
    let messages = line.number("messages").unwrap();
    assert!(messages <= 401, "{messages} of 401 were tried on it");
    host.drain().await.expect_code(0);
}

/// A list gives what comes back after a delay as another delivery.
#[tokio::test]
async fn one_poisonous_message_of_a_list_does_not_decide_a_canary() {
    let old = std::fs::read(guest("scripted")).unwrap();
    let scene = Scene::new(&old).await;
    let host = scene
        .host()
        .without("stream")
        .without("group")
        .flag("list", "jobs")
        .flag("reliable", "true")
        .flag("canary", "50%")
        .flag("canary-window", "2s")
        .flag("canary-min-messages", "50")
        .flag("breaker", "off")
        .ready()
        .await;
    scene.put(&variant(&old, "new"));
    host.logs("a canary begins").await;
    let share = Share::from_basis_points(5_000).unwrap();
    let id = (0..)
        .map(|n| format!("poison-{n}"))
        .find(|id| share.has(id));
    let headers = Headers::new(vec![("x-message-id".into(), id.unwrap().into())]);
    let value = frame::encode(&headers, b"nack:1").unwrap();
    scene.raw.ask_words(&[b"LPUSH", b"jobs", &value]).await;
    let came_back = "hostler_version_attempts_total{version=\"canary\",outcome=\"nack-requeue\"}";
    eventually("it has come back often", async || {
        host.metric(came_back) > 300
    })
    .await;
    for _ in 0..400 {
        scene.raw.ask("LPUSH jobs ack").await;
    }
    host.logs("the canary was promoted").await;
    let decided = host.count(|line| line.message().starts_with("the canary was rolled back"));
    assert_eq!(decided, 0);
    host.drain().await.expect_code(0);
}

#[tokio::test]
async fn a_version_that_hangs_stops_the_queue() {
    for body in ["loop", "sleep:600000"] {
        let scene = Scene::new(&std::fs::read(guest("scripted")).unwrap()).await;
        // Counts and proportions are the defaults; the times are a tenth of them.
        let host = scene
            .host()
            .cap(1)
            .flag("timeout", "500ms")
            .flag("cpu", "200ms")
            .flag("breaker-window", "1s")
            .ready()
            .await;
        let published = scene.publish(vec![body.to_owned(); 300]);
        host.logs(STOPPED).await;
        eventually("it holds nothing", async || {
            host.metric("hostler_held") == 0
        })
        .await;
        assert_eq!(host.metric("hostler_breaker_opened_total"), 1);
        // Fifty, those that ran beside the last one, and one for each try since.
        let tries = said(&host, STOPPED).len() as u64 + 1;
        let dead = scene.dead().await.len();
        assert!(dead as u64 <= 50 + 17 + tries, "{dead} of {published}");
        let fixed = good("fixed");
        scene.put(&fixed);
        runs(&host, &fixed).await;
        scene.emptied().await;
        let dead = scene.dead().await.len();
        let ended = host.drain().await;
        assert_eq!(ended.expect_code(0).json()["acked"], published - dead);
    }
}

#[tokio::test]
async fn after_a_swap_to_a_handler_of_batches_every_slot_has_one() {
    let scene = Scene::new(&std::fs::read(guest("scripted")).unwrap()).await;
    let host = scene
        .host()
        .flag("concurrency", "4")
        .flag("batch-size", "8")
        .ready()
        .await;
    let batches = std::fs::read(guest("batch")).unwrap();
    scene.put(&batches);
    runs(&host, &batches).await;
    let published = scene.publish(vec!["sleep:50".to_owned(); 600]);
    // Four batches of eight: one alone would be eight.
    eventually("several batches run at a time", async || {
        host.metric("hostler_in_flight") > 16
    })
    .await;
    scene.emptied().await;
    // And back: what is read ahead is for single calls again.
    let one = variant(&std::fs::read(guest("scripted")).unwrap(), "one");
    scene.put(&one);
    runs(&host, &one).await;
    let held = scene.publish(vec!["sleep:300".to_owned(); 60]);
    eventually("every slot is busy", async || {
        host.metric("hostler_in_flight") == 4
    })
    .await;
    assert!(host.metric("hostler_held") < 8 * 4);
    scene.emptied().await;
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], published + held);
}
