//! Canary and breaker in special cases: at the start of a host, on a stopped queue, with a version
//! that hangs, with a message that always comes back, with a batch handler.

use hostler::delivery::message::Headers;
use hostler::rollout::canary::Share;
use hostler::wire::frame;
use hostler_tests::guests::variant;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::versions::{bad, good};
use serde_json::Value;

use crate::dead_letter::dlq_scene::{Kind, on_both};
use crate::rollout::swap_scene::{
    Scene, bodies, canary, component_of, current, digest, runs, said, scripted,
};
use crate::runtime::e2e_sandbox::moody;

on_both! {
    one_poisonous_message_does_not_decide_a_canary
}

const STOPPED: &str = "the handler faults on everything: stopped";
const TAKEN_WHOLE: &str = "the canary was promoted: the queue is stopped";
const AGAIN: &str = "the handler is run again";

/// A host that tries each version with half of the messages, and never decides.
fn trying(scene: &Scene) -> HostOptions {
    let options = scene.host().cap(1);
    options.flags("canary=50% canary-min-messages=1000000")
}

/// Such a host, with the version `old`, that tries the version `new`.
async fn trial(old: &[u8], new: &[u8]) -> (Scene, Host) {
    let scene = Scene::new(old).await;
    let host = trying(&scene).ready().await;
    scene.put(new);
    host.logs("a canary begins").await;
    (scene, host)
}

fn status(host: &Host) -> Value {
    let (_, body) = host.get("/status");
    serde_json::from_str(&body).unwrap()
}

/// Stop the host: it has acknowledged all these messages, but for the dead letters.
async fn drained(scene: &Scene, host: Host, published: usize) {
    let dead = scene.dead().await.len();
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], published - dead);
}

#[tokio::test]
async fn a_canary_at_start_is_evaluated_like_any_other() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    scene.deploy(&new);
    let options = trying(&scene).flag("accept-deploys", "true");
    let options = options.flags("canary-min-messages=20 breaker=off");
    let host = options.ready().await;
    assert_eq!(current(&host), *digest(&old));
    assert_eq!(canary(&host), *digest(&new));
    let series = format!("hostler_canary_info{{digest=\"{}\"}}", digest(&new));
    assert_eq!(host.metric(&series), 1);
    scene.publish(bodies(500));
    let decision = "the canary was rolled back: it fails more often";
    host.logs(decision).await;
    scene.emptied().await;
    assert!(canary(&host).is_null());
    assert_eq!(status(&host)["handler"], *digest(&old));
    host.drained().await;
}

#[tokio::test]
async fn a_host_that_starts_with_a_deploy_reports_it_everywhere() {
    let (old, new) = (good("old"), good("new"));
    let scene = Scene::new(&old).await;
    scene.deploy(&new);
    let host = scene.accepting().ready().await;
    assert_eq!(current(&host), *digest(&new));
    assert_eq!(status(&host)["handler"], *digest(&new));
    let series = format!("hostler_handler_info{{digest=\"{}\"}}", digest(&new));
    assert_eq!(host.metric(&series), 1);
    host.drained().await;
}

#[tokio::test]
async fn a_fix_is_promoted_at_once_when_the_breaker_has_stopped_the_queue() {
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
    assert!(scene.dead().await.len() < published);
    drained(&scene, host, published).await;
}

#[tokio::test]
async fn a_fix_is_promoted_at_once_when_panics_have_stopped_the_queue() {
    let scene = Scene::new(&component_of("saboteur")).await;
    let options = trying(&scene).flags("concurrency=1 prefetch=4");
    let host = options.ready().await;
    scene.publish(vec!["host-panic".to_owned(); 50]);
    host.logs("the host panics: stopped").await;
    scene.put(&good("fixed"));
    host.logs(TAKEN_WHOLE).await;
    host.logs(AGAIN).await;
    scene.emptied().await;
    // Three panics stop the queue. The host may run what it holds until it notices the third one.
    let dead = scene.dead().await.len();
    assert!((3..=3 + 5).contains(&dead), "{dead}");
    assert_eq!(host.get("/ready").0, 200);
    drained(&scene, host, 50).await;
}

#[tokio::test]
async fn a_working_canary_replaces_a_version_that_faults_on_everything() {
    let scene = Scene::new(&bad("old")).await;
    let options = trying(&scene).flag("breaker-min-messages", "30");
    let host = options.ready().await;
    let new = good("new");
    scene.put(&new);
    host.logs("a canary begins").await;
    // Half of the messages succeed. They do not close the breaker that the other half opens.
    let published = scene.publish(bodies(2_000));
    host.logs(TAKEN_WHOLE).await;
    host.logs(AGAIN).await;
    scene.emptied().await;
    assert_eq!(host.metric("hostler_breaker_opened_total"), 1);
    assert_eq!(current(&host), *digest(&new));
    assert_eq!(said(&host, AGAIN).len(), 1);
    drained(&scene, host, published).await;
}

#[tokio::test]
async fn a_canary_that_faults_on_everything_is_rolled_back_without_a_comparison() {
    let old = good("old");
    let (scene, host) = trial(&old, &bad("new")).await;
    scene.publish(bodies(1_000));
    let decision = "the canary was rolled back: it faults on everything";
    host.logs(decision).await;
    scene.emptied().await;
    assert_eq!(current(&host), *digest(&old));
    assert!(said(&host, STOPPED).is_empty());
    host.drained().await;
}

#[tokio::test]
async fn a_canary_that_makes_the_host_panic_is_rolled_back_and_the_queue_goes_on() {
    let (scene, host) = trial(&good("old"), &component_of("saboteur")).await;
    scene.publish(vec!["host-panic".to_owned(); 40]);
    let decision = "the canary was rolled back: the host panics";
    host.logs(decision).await;
    scene.emptied().await;
    assert!(said(&host, "the host panics: stopped").is_empty());
    assert_eq!(host.get("/ready").0, 200);
    host.drained().await;
}

#[tokio::test]
async fn a_canary_without_instances_is_rolled_back_and_the_queue_goes_on() {
    let (scene, host) = trial(&good("old"), &moody()).await;
    let trace = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let traced: [&[u8]; 7] = [
        b"XADD",
        b"orders",
        b"*",
        b"_payload",
        b"x",
        b"h:traceparent",
        trace,
    ];
    for _ in 0..50 {
        scene.raw.ask_words(&traced).await;
    }
    let decision = "the canary was rolled back: no instance of it can be made";
    host.logs(decision).await;
    scene.emptied().await;
    assert!(said(&host, "no instance of the handler: stopped").is_empty());
    // With a delivery limit of one, each message that was charged would be a dead letter.
    assert_eq!(scene.dead().await.len(), 0);
    drained(&scene, host, 50).await;
}

/// A list gives a message that comes back after a delay another delivery id.
async fn one_poisonous_message_does_not_decide_a_canary(kind: Kind) {
    let old = component_of("scripted");
    let scene = Scene::new(&old).await;
    let flags = "canary=50% canary-window=2s canary-min-messages=50 breaker=off";
    let options = match kind {
        Kind::Stream => scene.host(),
        Kind::List => {
            let list = scene.host().without("stream").without("group");
            list.flags("list=jobs reliable=true")
        }
    };
    let host = options.flags(flags).ready().await;
    scene.put(&variant(&old, "new"));
    host.logs("a canary begins").await;
    // A message on the side of the canary that always comes back at once.
    let share = Share::from_basis_points(5_000).unwrap();
    let often = match kind {
        Kind::Stream => {
            while !share.has(&scene.raw.add("orders", "nack:0").await) {}
            1_000
        }
        Kind::List => {
            let mut ids = (0..).map(|n| format!("poison-{n}"));
            let id = ids.find(|id| share.has(id)).unwrap();
            let headers = Headers::new(vec![("x-message-id".into(), id.into())]);
            let value = frame::encode(&headers, b"nack:1").unwrap();
            scene.push("jobs", &value).await;
            300
        }
    };
    let attempts = "hostler_version_attempts_total{version=\"canary\",outcome=\"nack-requeue\"}";
    eventually("it has come back often", async || {
        host.metric(attempts) > often
    })
    .await;
    match kind {
        Kind::Stream => drop(scene.publish(vec!["ack".to_owned(); 400])),
        Kind::List => {
            for _ in 0..400 {
                scene.push("jobs", b"ack").await;
            }
        }
    }
    host.logs("the canary was promoted").await;
    let rolled_back = "the canary was rolled back";
    let decided = host.count(|line| line.message().starts_with(rolled_back));
    assert_eq!(decided, 0);
    if kind == Kind::Stream {
        let line = &said(&host, "the canary was promoted")[0];
        let messages = line.number("messages").unwrap();
        assert!(messages <= 401, "{messages} of 401 were tried on it");
    }
    host.drained().await;
}

#[tokio::test]
async fn a_version_that_hangs_stops_the_queue() {
    for body in ["loop", "sleep:600000"] {
        let scene = Scene::new(&component_of("scripted")).await;
        // Counts and proportions are the defaults; the times are a tenth of the defaults.
        let options = scene.host().cap(1);
        let options = options.flags("timeout=500ms cpu=200ms breaker-window=1s");
        let host = options.ready().await;
        let published = scene.publish(vec![body.to_owned(); 300]);
        host.logs(STOPPED).await;
        eventually("it holds nothing", async || {
            host.metric("hostler_held") == 0
        })
        .await;
        assert_eq!(host.metric("hostler_breaker_opened_total"), 1);
        // Fifty messages, the messages that ran beside the last of them, and one for each try
        // since.
        let tries = said(&host, STOPPED).len() + 1;
        let dead = scene.dead().await.len();
        assert!(dead <= 50 + 17 + tries, "{dead} of {published}");
        let fixed = good("fixed");
        scene.put(&fixed);
        runs(&host, &fixed).await;
        scene.emptied().await;
        drained(&scene, host, published).await;
    }
}

#[tokio::test]
async fn after_a_swap_to_a_batch_handler_every_slot_handles_batches() {
    let scene = Scene::new(&component_of("scripted")).await;
    let options = scene.host().flags("concurrency=4 batch-size=8");
    let host = options.ready().await;
    let batches = component_of("batch");
    scene.put(&batches);
    runs(&host, &batches).await;
    let published = scene.publish(vec!["sleep:50".to_owned(); 600]);
    // More than sixteen messages are at least three batches of eight.
    eventually("several batches run at a time", async || {
        host.metric("hostler_in_flight") > 16
    })
    .await;
    scene.emptied().await;
    // After a swap back, the host reads ahead for single calls again.
    let one = scripted("one");
    scene.put(&one);
    runs(&host, &one).await;
    let held = scene.publish(vec!["sleep:300".to_owned(); 60]);
    eventually("every slot is busy", async || {
        host.metric("hostler_in_flight") == 4
    })
    .await;
    assert!(host.metric("hostler_held") < 8 * 4);
    scene.emptied().await;
    assert!(scene.dead().await.is_empty());
    drained(&scene, host, published + held).await;
}

/// Nearly all messages belong to the canary, which faults on everything. The current version works again.
#[tokio::test]
async fn a_stopped_queue_tries_both_versions_whatever_the_share_is() {
    let old = component_of("scripted");
    let scene = Scene::new(&old).await;
    let options = scene.host().cap(1);
    let host = options
        .flags("canary=99.99% canary-min-messages=1000000 breaker-min-messages=2")
        .ready()
        .await;
    let new = bad("new");
    scene.put(&new);
    host.logs("a canary begins").await;
    // Two messages on the side of the current version open its breaker.
    let share = Share::from_basis_points(9_999).unwrap();
    let mut ids = (1..).map(|n| format!("{n}-1"));
    let mut faulted = Vec::new();
    for _ in 0..2 {
        let id = ids.find(|id| !share.has(id)).unwrap();
        scene
            .raw
            .ask(&format!("XADD orders {id} _payload trap"))
            .await;
        faulted.push(id);
    }
    host.logs(STOPPED).await;
    let published = scene.publish(vec!["ack".to_owned(); 20]);
    host.logs(AGAIN).await;
    scene.emptied().await;
    // Then the canary faults on everything, and is given up.
    host.logs("the canary was rolled back: it faults on everything")
        .await;
    assert_eq!(current(&host), *digest(&old));
    let dead = scene.dead().await.len();
    let held = 1 + 2 + 16;
    assert!(dead <= faulted.len() + held, "{dead} of {published}");
    drained(&scene, host, published + faulted.len()).await;
}
