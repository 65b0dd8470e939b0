//! Canary and breaker: handlers that fail at known rates.

use hostler_tests::checker::DeadLetter;
use hostler_tests::command::run;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::{eventually, eventually_or};
use hostler_tests::versions::{Failing, bad, failing, good};

use crate::rollout::swap_scene::{
    Scene, begins_canary, bodies, component_of, current, digest, ends_canary, runs, said, versions,
};

/// The number of messages that a host holds at most here: 32, and one that is due. At most this
/// many attempts end after the deciding attempt, before the host notices the decision.
const HELD: u64 = 32 + 1;

fn attempts(host: &Host, version: &str, outcome: &str) -> u64 {
    host.metric(&format!(
        "hostler_version_attempts_total{{version=\"{version}\",outcome=\"{outcome}\"}}"
    ))
}

/// The number of messages that must have been tried on a canary.
const MIN: u64 = 60;

fn trying(scene: &Scene) -> HostOptions {
    let canary = "canary=20% canary-window=1s canary-max-excess=10%";
    let options = scene.host().cap(2).flags(canary);
    let options = options.flags("prefetch=32 breaker=off");
    options.flag("canary-min-messages", &MIN.to_string())
}

#[tokio::test]
async fn a_canary_that_fails_more_often_is_rolled_back_after_few_messages() {
    for how in [Failing::Trap, Failing::Nack] {
        // The rates differ so much that the least number of messages decides.
        let old = failing(5, how, "old");
        let new = failing(90, how, "new");
        let scene = Scene::new(&old).await;
        // Each message has one attempt: the counts are numbers of messages.
        let host = trying(&scene).cap(1).ready().await;
        scene.put(&new);
        begins_canary(&host).await;
        assert_eq!(versions(&host)["canary"]["share"], "20%");
        let message = "the canary was rolled back: it fails more often";
        let published = scene.publish_until(&host, message, 1_000).await;
        // No message after the decision is tried on the canary.
        let total = published + scene.publish(bodies(1_000));
        scene.emptied().await;
        let [fine, nacks, faults] =
            ["ack", "nack-requeue", "fault"].map(|o| attempts(&host, "canary", o));
        let (seen, failed) = (fine + nacks + faults, nacks + faults);
        assert!(seen >= MIN, "{seen} messages decided");
        assert!(seen <= MIN + HELD, "{seen} of {published} saw it");
        let dead = scene.dead().await;
        let of = |component: &[u8]| {
            let digest = digest(component);
            let is_of = |dead: &&_| of_handler(dead) == digest;
            dead.iter().filter(is_of).count()
        };
        // Its dead letters are the messages that it failed. Attempts that end after the rollback are
        // not counted for the canary.
        let its = of(&new) as u64;
        assert!((failed..=failed + HELD).contains(&its), "{its}, {failed}");
        assert!(failed <= MIN + HELD, "{failed} dead letters");
        // The old version fails one message in twenty.
        let its = of(&old);
        assert!(its <= total / 20 && its > total / 40, "{its} of {total}");
        assert_eq!(current(&host), *digest(&old));
        ends_canary(&host).await;
        let series = "hostler_canary_decisions_total{decision=\"rollback\"}";
        assert_eq!(host.metric(series), 1);
        let summary = host.drain().await;
        assert_eq!(summary.expect_code(0).json()["swaps"], 0);
    }
}

fn of_handler(dead: &DeadLetter) -> &str {
    dead.header("x-dead-letter-handler").unwrap_or_default()
}

#[tokio::test]
async fn a_canary_that_fails_no_more_often_is_promoted() {
    let old = failing(5, Failing::Nack, "old");
    let new = failing(5, Failing::Nack, "new");
    let scene = Scene::new(&old).await;
    // Equal rates never differ by this much.
    let options = trying(&scene).flag("canary-max-excess", "40%");
    let host = options.ready().await;
    scene.put(&new);
    begins_canary(&host).await;
    let decision = "the canary was promoted";
    scene.publish_until(&host, decision, 1_000).await;
    runs(&host, &new).await;
    ends_canary(&host).await;
    assert_eq!(versions(&host)["previous"]["digest"], *digest(&old));
    let outcomes = ["ack", "nack-requeue"].map(|outcome| attempts(&host, "canary", outcome));
    let tried: u64 = outcomes.iter().sum();
    assert!(tried >= MIN, "{tried}");
    // The file returns to the old version: the host follows at once.
    scene.put(&old);
    runs(&host, &old).await;
    host.drained().await;
}

/// The number of different messages that must have faulted.
const FAULTED: u64 = 30;

/// Whether `inspect`, `versions` and `watch` say that the host is stopped.
async fn says_stopped(scene: &Scene, stopped: bool) {
    let url = scene.url();
    let queue = ["--redis", &url, "--stream", "orders", "--group", "workers"];
    let inspect = || run(["inspect"].iter().chain(&queue)).ok().stdout;
    let watch = || {
        run(["watch", "--count", "1"].iter().chain(&queue))
            .ok()
            .stdout
    };
    let versions = || scene.command(&["versions"]).ok().stdout;
    let all = || [inspect(), versions(), watch()];
    let says = |text: &String| text.contains(" is stopped: handler: ") && text.contains("faulted");
    let what = || format!("stopped: {stopped}: {:#?}", all());
    eventually_or(what, async || {
        all().iter().all(|text| says(text) == stopped)
    })
    .await;
    let states = scene.listed()["hosts"][0]["not_ready"].clone();
    assert_eq!(states.as_array().unwrap().is_empty(), !stopped, "{states}");
}

fn breaker(scene: &Scene) -> HostOptions {
    let options = scene.host().cap(1).flag("prefetch", "32");
    options.flag("breaker-min-messages", &FAULTED.to_string())
}

#[tokio::test]
async fn a_version_that_faults_on_everything_stops_the_queue_until_a_new_version() {
    let scene = Scene::new(&good("old")).await;
    let host = breaker(&scene).ready().await;
    let new = bad("new");
    scene.put(&new);
    runs(&host, &new).await;
    let published = scene.publish(bodies(5_000));
    host.logs("the handler faults on everything: stopped").await;
    // The host hands back the messages that it holds.
    eventually("it holds nothing", async || {
        host.metric("hostler_held") == 0
    })
    .await;
    let (status, ready) = host.get("/ready");
    assert_eq!(status, 503);
    assert!(ready.contains("\"cause\":\"handler\""), "{ready}");
    assert!(ready.contains("faulted"), "{ready}");
    says_stopped(&scene, true).await;
    // The host tries one message, and then waits longer.
    host.logs_times("the handler faults on everything: stopped", 3)
        .await;
    let stops = said(&host, "the handler faults on everything: stopped");
    let pauses = stops.iter().map(|line| line.number("again_ms").unwrap());
    assert!(pauses.take(3).eq([1_000, 2_000, 4_000]));
    // The tried messages are charged too: one for each further stop, and one that may be running.
    let dead = scene.dead().await.len() as u64;
    let tried = said(&host, "the handler faults on everything: stopped").len() as u64;
    assert!(dead >= FAULTED, "{dead} dead letters");
    assert!(dead <= FAULTED + HELD + tried, "{dead} dead letters");

    let fixed = good("fixed");
    scene.put(&fixed);
    runs(&host, &fixed).await;
    host.logs("the handler is run again").await;
    says_stopped(&scene, false).await;
    scene.emptied().await;
    let dead = scene.dead().await.len();
    let (status, _) = host.get("/ready");
    assert_eq!(status, 200);
    let ended = host.drain().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(summary["acked"], published - dead);
    assert_eq!(summary["attempts"], published);
}

#[tokio::test]
async fn a_stopped_queue_resumes_when_one_message_succeeds() {
    let scene = Scene::new(&failing(1, Failing::Trap, "picky")).await;
    // Enough bad messages for the stop and the first try: the second try succeeds.
    scene.publish(vec!["\0".to_owned(); 31]);
    let options = breaker(&scene).flag("concurrency", "1");
    let host = options.ready().await;
    host.logs("the handler faults on everything: stopped").await;
    scene.publish(vec!["x".to_owned(); 200]);
    host.logs("the handler is run again").await;
    scene.emptied().await;
    assert_eq!(scene.dead().await.len(), 31);
    let ended = host.drain().await;
    assert_eq!(ended.expect_code(0).json()["acked"], 200);
}

#[tokio::test]
async fn a_broken_version_is_rolled_back_automatically() {
    let (old, new) = (good("old"), bad("new"));
    let scene = Scene::new(&old).await;
    let options = breaker(&scene).flag("on-break", "rollback");
    let host = options.ready().await;
    scene.put(&new);
    runs(&host, &new).await;
    let published = scene.publish(bodies(5_000));
    runs(&host, &old).await;
    host.logs("rolled back: the handler faults on everything")
        .await;
    scene.emptied().await;
    let dead = scene.dead().await;
    assert!(dead.len() as u64 <= FAULTED + HELD, "{}", dead.len());
    assert!(dead.iter().all(|dead| of_handler(dead) == digest(&new)));
    assert_eq!(host.metric("hostler_breaker_opened_total"), 1);
    let ended = host.drain().await;
    let summary = ended.expect_code(0).json();
    assert_eq!(summary["acked"], published - dead.len());
    assert_eq!(summary["swaps"], 2);
}

#[tokio::test]
async fn a_few_poisonous_messages_do_not_stop_the_queue() {
    let scene = Scene::new(&component_of("scripted")).await;
    let options = scene.host();
    let options = options.flags("breaker-min-messages=5 backoff-max=5ms");
    let host = options.ready().await;
    scene.publish(vec!["trap".to_owned(); 4]);
    let faults = "hostler_faults_total{kind=\"trap\"}";
    eventually("they fault many times", async || host.metric(faults) > 200).await;
    assert_eq!(host.metric("hostler_breaker_opened_total"), 0);
    host.drained().await;
}
