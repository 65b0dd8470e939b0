//! Hosts of one queue with different settings: no message runs twice for that.

use std::time::Duration;

use hostler::queue::list::{ListOptions, ListQueue, Recovery};
use hostler::queue::stream::StreamOptions;
use hostler::queue::{Queue, Reply};
use hostler_tests::command;
use hostler_tests::host::HostOptions;
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;

use crate::queue::list_scene::{self, CLAIMS, DEAD, KEY, processing, recovering};
use crate::queue::queue_scene;
use crate::scene::{bodies, connector, orphaned};

const MESSAGES: usize = 4;
const OTHER_MIN_IDLE: &str = "the hosts of this queue have different values of min_idle";
const OTHER_SET: &str = "the hosts of this queue have different values of recovery_zset";

/// A host of the queue in this form: `"stream"`, `"list"` (without a recovery set), `"recovering"`.
fn host(scene: &list_scene::Scene, form: &str, min_idle: &str) -> HostOptions {
    let options = HostOptions::new(&scene.server)
        .flags("concurrency=1 prefetch=1 timeout=30s orphan-scan=50ms consumer=host")
        .flag("min-idle", min_idle);
    match form {
        "stream" => options,
        form => {
            let list = options.without("stream").without("group");
            let list = list.flag("list", KEY).flag("reliable", "true");
            match form {
                "recovering" => list.flag("recovery-zset", CLAIMS),
                _ => list,
            }
        }
    }
}

async fn publish(scene: &list_scene::Scene, form: &str, body: &str) {
    match form {
        "stream" => drop(scene.raw.add("orders", body).await),
        _ => scene.publish([body]).await,
    }
}

/// The first host runs a message for long; another one comes meanwhile, and both run more. Every message
/// runs once.
async fn runs_once(forms: [&str; 2], min_idles: [&str; 2], warning: &str) {
    let scene = list_scene::Scene::new().await;
    let what = format!("{forms:?} {min_idles:?}");
    // Longer than the shorter lease.
    let body = match min_idles[0] == min_idles[1] {
        true => "sleep:7500",
        false => "sleep:2500",
    };
    let first = host(&scene, forms[0], min_idles[0]).ready().await;
    publish(&scene, forms[0], body).await;
    first.starts(1).await;
    let second = host(&scene, forms[1], min_idles[1]).ready().await;
    for _ in 1..MESSAGES {
        publish(&scene, forms[0], body).await;
    }
    second.starts(1).await;
    let hosts = [first, second];
    eventually("all have started", async || {
        Witness::so_far(&hosts).total() >= MESSAGES
    })
    .await;
    let mut ended = Vec::new();
    for host in hosts {
        ended.push(host.drained().await);
    }
    let sum = |of: &str| {
        let counts = ended.iter().map(|host| host.json()[of].as_u64().unwrap());
        counts.sum::<u64>()
    };
    assert_eq!(sum("acked"), MESSAGES as u64, "{what}");
    assert_eq!(sum("attempts"), MESSAGES as u64, "{what}");
    assert_eq!(sum("orphans_recovered"), 0, "{what}");
    for host in &ended {
        let warns = host.count(|line| line.message().starts_with(warning));
        assert!(warns >= 1, "{what}: {:?}", host.log);
    }
    // The last one leaves nothing behind but its name in the list of all queues.
    let left = 1 + i64::from(forms[0] == "stream");
    assert_eq!(scene.keys().await, left, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_runs_once_on_hosts_of_a_stream_with_different_min_idles() {
    runs_once(["stream"; 2], ["30s", "300ms"], OTHER_MIN_IDLE).await;
    runs_once(["stream"; 2], ["300ms", "30s"], OTHER_MIN_IDLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_runs_once_on_hosts_of_a_list_with_different_min_idles() {
    for form in ["list", "recovering"] {
        runs_once([form; 2], ["30s", "300ms"], OTHER_MIN_IDLE).await;
        runs_once([form; 2], ["300ms", "30s"], OTHER_MIN_IDLE).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_runs_once_while_a_recovery_set_is_switched_on_host_by_host() {
    tokio::join!(
        runs_once(["list", "recovering"], ["3s"; 2], OTHER_SET),
        runs_once(["recovering", "list"], ["3s"; 2], OTHER_SET),
    );
}

#[tokio::test]
async fn an_orphan_waits_for_the_longest_min_idle_of_a_live_host() {
    let scene = queue_scene::Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a"]).await;
    let heir = scene.host().await;
    scene.age(&host, claims[0].id, 1).await;
    let terms = "{orders}:min-idle:workers";
    let patient = StreamOptions {
        min_idle: Duration::from_secs(600),
        ..queue_scene::options()
    };
    let patient = scene.host_with(patient).await;
    assert!(orphaned(&heir, 9).await.is_empty(), "idle for a minute");
    assert!(scene.raw.number(&format!("PTTL {terms}")).await > 1_200_000);
    // Terms that were configured differently, of a host that is gone, hold no longer.
    let name = patient.consumer().to_owned();
    drop(patient);
    let then = scene.now_ms().await - 1;
    scene
        .raw
        .ask_words(&[
            b"ZADD",
            terms.as_bytes(),
            then.to_string().as_bytes(),
            format!("600000 0: {name}").as_bytes(),
        ])
        .await;
    assert_eq!(bodies(&orphaned(&heir, 9).await), ["a"]);
    assert_eq!(scene.raw.number(&format!("ZCARD {terms}")).await, 2);
    host.leave().await.unwrap();
    heir.leave().await.unwrap();
    scene.assert_absent(&[terms]).await;
}

#[tokio::test]
async fn a_key_of_the_wrong_type_stops_the_look_for_orphans_only() {
    let scene = queue_scene::Scene::new().await;
    let host = scene.host().await;
    let claims = scene.read(&host, &["a", "b"]).await;
    let terms = "{orders}:min-idle:workers";
    scene.delete(terms).await;
    scene.obstruct(terms).await;
    assert_eq!(
        host.renew(&claims).await.unwrap(),
        [Reply::Done, Reply::Done]
    );
    host.maintain().await.unwrap();
    host.probe().await.unwrap();
    let refused = host.take_orphans(9, &|_| false).await.unwrap_err();
    assert!(refused.to_string().contains("WRONGTYPE"), "{refused}");
}

#[tokio::test]
async fn in_a_list_whose_hosts_go_without_the_recovery_set_dead_hosts_are_found() {
    let scene = list_scene::Scene::new().await;
    let with_set = scene.recovering().await;
    scene.claim(&with_set, &["a"]).await;
    let without = scene.host().await;
    let theirs = scene.claim(&without, &["b"]).await;
    let heir = scene.recovering().await;
    assert!(orphaned(&heir, 9).await.is_empty());
    // Its own records are too old, but the host lives: it may have lost them to a host without the set.
    scene.age_claims().await;
    assert!(orphaned(&heir, 9).await.is_empty());
    scene.age(&with_set).await;
    scene.age(&without).await;
    let mut found = bodies(&orphaned(&heir, 9).await);
    found.extend(bodies(&orphaned(&heir, 9).await));
    found.sort();
    assert_eq!(found, ["a", "b"]);
    assert_eq!(without.renew(&theirs).await.unwrap(), [Reply::Stolen]);
}

fn other_list() -> ListOptions {
    ListOptions {
        recovery: Some(Recovery {
            key: CLAIMS.to_owned(),
            ttl: None,
        }),
        ..ListOptions::new("mails")
    }
}

#[tokio::test]
async fn two_lists_cannot_share_a_recovery_set() {
    let scene = list_scene::Scene::new().await;
    let host = scene.recovering().await;
    scene.claim(&host, &["a"]).await;
    let refused = ListQueue::open(scene.connector(), other_list()).await;
    let refused = refused.unwrap_err();
    let text = refused.to_string();
    assert_eq!(
        text,
        "the recovery set `jobs:claims` belongs to the queue `jobs`"
    );
    assert!(refused.hint().unwrap().contains("a key of its own"));
    // The message of a host that is gone is not forgotten.
    scene.age(&host).await;
    scene.age_claims().await;
    let heir = scene.recovering().await;
    let claims = orphaned(&heir, 9).await;
    assert_eq!(bodies(&claims), ["a"]);
    heir.acknowledge(&claims).await.unwrap();
    host.leave().await.unwrap();
    heir.leave().await.unwrap();
    // When all have left, and nothing is held, it belongs to no queue.
    let other = ListQueue::open(scene.connector(), other_list())
        .await
        .unwrap();
    let line = format!(
        "run --redis {} --list {KEY} --reliable --recovery-zset {CLAIMS} --dead-letter {DEAD} --handler {}",
        scene.url(),
        hostler_tests::guests::guest("ack").display()
    );
    let ended = command::run_line(&line);
    assert_eq!(ended.code, 64, "{ended:?}");
    assert!(
        ended.stderr.contains("belongs to the queue `mails`"),
        "{ended:?}"
    );
    drop(other);
}

#[tokio::test]
async fn a_recovery_set_that_another_list_has_taken_meanwhile_is_left_alone() {
    let scene = list_scene::Scene::new().await;
    let host = scene.recovering().await;
    scene.claim(&host, &["a"]).await;
    // An operator deletes it, and starts a host of another list.
    scene.delete(CLAIMS).await;
    let link = connector(&scene.url());
    let other = ListQueue::open(link, other_list()).await.unwrap();
    scene.push("mails", b"theirs").await;
    assert_eq!(crate::scene::fetch(&other, 9).await.len(), 1);
    scene.age_claims().await;
    let third = scene.host_with(recovering());
    // No host of the first list starts, and the one that runs takes nothing.
    drop(third);
    let refused = host.take_orphans(9, &|_| false).await.unwrap_err();
    assert!(
        refused.to_string().contains("belongs to `mails`"),
        "{refused}"
    );
    assert_eq!(scene.recorded_claims().await, 1);
    assert_eq!(scene.list(&processing(host.instance())).await.len(), 1);
}
