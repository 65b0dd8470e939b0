//! Canary and breaker: handlers that fail at known rates.

use hostler_tests::guests::guest;
use hostler_tests::host::{Host, HostOptions};
use hostler_tests::redis::eventually;
use hostler_tests::versions::{Failing, bad, failing, good};

use crate::swap_scene::{Scene, bodies, digest, runs, said, versions};

/// What a host may hold at a time here, and one place more that is kept for what is due: as many
/// attempts may end after the one that decides, and no more are begun before it is heard of.
const HELD: u64 = 32 + 1;

fn attempts(host: &Host, version: &str, outcome: &str) -> u64 {
    host.metric(&format!(
        "hostler_version_attempts_total{{version=\"{version}\",outcome=\"{outcome}\"}}"
    ))
}

/// Messages that a canary must have been tried on.
const MIN: u64 = 60;

fn canary(scene: &Scene) -> HostOptions {
    scene
        .host()
        .cap(2)
        .flag("prefetch", "32")
        .flag("canary", "20%")
        .flag("canary-window", "1s")
        .flag("canary-min-messages", &MIN.to_string())
        .flag("canary-max-excess", "10%")
        .flag("breaker", "off")
}

/// Publish until the host says this.
async fn publish_until(scene: &Scene, host: &Host, message: &str) -> usize {
    let mut published = 0;
    let decided = "the canary was ";
    while host.count(|line| line.message().starts_with(decided)) == 0 {
        published += scene.publish(bodies(1_000));
        scene.emptied().await;
        assert!(published < 200_000, "no `{message}` after {published}");
    }
    assert_eq!(said(host, message).len(), 1, "{:?}", host.log().last());
    published
}

#[tokio::test]
async fn a_canary_that_fails_more_often_is_rolled_back_before_it_does_much_harm() {
    for how in [Failing::Trap, Failing::Nack] {
        // So often that no chance keeps it longer than the least number of messages.
        let old = failing(5, how, "old");
        let new = failing(90, how, "new");
        let scene = Scene::new(&old).await;
        // Each attempt is a message's only one: what is counted is messages.
        let host = canary(&scene).cap(1).ready().await;
        scene.put(&new);
        host.logs("a canary begins").await;
        assert_eq!(versions(&host)["canary"]["share"], "20%");
        let message = "the canary was rolled back: it fails more often";
        let published = publish_until(&scene, &host, message).await;
        // Another thousand after that: none of them sees it.
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
        // Those that it failed at, and nothing else, are its dead letters.
        assert_eq!(of(&new) as u64, failed);
        assert!(failed <= MIN + HELD, "{failed} dead letters");
        // One in twenty is what the old one makes of them.
        let its = of(&old);
        assert!(its <= total / 20 && its > total / 40, "{its} of {total}");
        let now = versions(&host);
        assert_eq!(now["current"]["digest"], *digest(&old));
        assert!(now["canary"].is_null());
        let series = "hostler_canary_decisions_total{decision=\"rollback\"}";
        assert_eq!(host.metric(series), 1);
        let summary = host.drain().await;
        assert_eq!(summary.expect_code(0).json()["swaps"], 0);
    }
}

fn of_handler(dead: &hostler_tests::checker::DeadLetter) -> &str {
    dead.header("x-dead-letter-handler").unwrap_or_default()
}

#[tokio::test]
async fn a_canary_that_does_as_well_is_promoted() {
    let old = failing(5, Failing::Nack, "old");
    let new = failing(5, Failing::Nack, "new");
    let scene = Scene::new(&old).await;
    // What chance makes of equal rates is far from this.
    let options = canary(&scene).flag("canary-max-excess", "40%");
    let host = options.ready().await;
    scene.put(&new);
    host.logs("a canary begins").await;
    publish_until(&scene, &host, "the canary was promoted").await;
    runs(&host, &new).await;
    let now = versions(&host);
    assert!(now["canary"].is_null());
    assert_eq!(now["previous"]["digest"], *digest(&old));
    let ours: u64 = ["ack", "nack-requeue"]
        .map(|o| attempts(&host, "canary", o))
        .iter()
        .sum();
    assert!(ours >= MIN, "{ours}");
    // The file goes back: so does the host, at once.
    scene.put(&old);
    runs(&host, &old).await;
    host.drain().await.expect_code(0);
}

/// Different messages that must have faulted.
const FAULTED: u64 = 30;

fn breaker(scene: &Scene) -> HostOptions {
    let options = scene.host().cap(1).flag("prefetch", "32");
    options.flag("breaker-min-messages", &FAULTED.to_string())
}

#[tokio::test]
async fn a_version_that_faults_on_everything_stops_the_queue_until_another_one_comes() {
    let scene = Scene::new(&good("old")).await;
    let host = breaker(&scene).ready().await;
    let new = bad("new");
    scene.put(&new);
    runs(&host, &new).await;
    let published = scene.publish(bodies(5_000));
    host.logs("the handler faults on everything: stopped").await;
    // What it holds goes back.
    eventually("it holds nothing", async || {
        host.metric("hostler_held") == 0
    })
    .await;
    let (status, ready) = host.get("/ready");
    assert_eq!(status, 503);
    assert!(ready.contains("\"cause\":\"handler\""), "{ready}");
    assert!(ready.contains("faulted"), "{ready}");
    // It tries one, and then waits for longer.
    host.logs_times("the handler faults on everything: stopped", 3)
        .await;
    let pauses: Vec<u64> = said(&host, "the handler faults on everything: stopped")
        .iter()
        .take(3)
        .map(|line| line.number("again_ms").unwrap())
        .collect();
    assert_eq!(pauses, [1_000, 2_000, 4_000]);
    // What it tries is charged as well: one for each time it says so, but for the first, and one that
    // it may be at.
    let dead = scene.dead().await.len() as u64;
    let tried = said(&host, "the handler faults on everything: stopped").len() as u64;
    assert!(dead >= FAULTED, "{dead} dead letters");
    assert!(dead <= FAULTED + HELD + tried, "{dead} dead letters");

    let fixed = good("fixed");
    scene.put(&fixed);
    runs(&host, &fixed).await;
    host.logs("the handler is run again").await;
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
async fn a_stopped_queue_goes_on_when_one_message_works() {
    let scene = Scene::new(&failing(1, Failing::Trap, "picky")).await;
    // As many as it takes, and one for the first try: the second try is a good one.
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
async fn a_broken_version_goes_back_to_the_one_before_by_itself() {
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
async fn a_few_poisonous_messages_stop_nothing() {
    let scene = Scene::new(&std::fs::read(guest("scripted")).unwrap()).await;
    let options = scene
        .host()
        .flag("breaker-min-messages", "5")
        .flag("backoff-max", "5ms");
    let host = options.ready().await;
    scene.publish(vec!["trap".to_owned(); 4]);
    let faults = "hostler_faults_total{kind=\"trap\"}";
    eventually("they fault time and again", async || {
        host.metric(faults) > 200
    })
    .await;
    assert_eq!(host.metric("hostler_breaker_opened_total"), 0);
    host.drain().await.expect_code(0);
}
