//! Redis refuses a dead letter. The message stays pending. The refusal is logged and counted. The host
//! tries again with growing waits, and does not run the handler again.

use std::time::{Duration, Instant};

use hostler_tests::host::{Ended, Host, HostOptions};
use hostler_tests::redis::eventually;
use serde_json::json;

use crate::runtime::e2e_scene::Scene;

const REFUSALS: &str = "hostler_settlements_refused_total";

fn refusing(scene: &Scene) -> HostOptions {
    scene
        .host()
        .cap(3)
        .flags("min-idle=3s backoff-first=5ms timeout=1m")
        .admin()
}

/// While Redis refuses `id` for this cause, it is pending, logged, counted, and tried again ever more
/// rarely.
async fn check_refused(scene: &mut Scene, host: &Host, id: &str, starts: usize, cause: &str) {
    host.logs("redis refuses a settlement; it stays pending")
        .await;
    let begun = Instant::now();
    let first = host.metric(REFUSALS);
    eventually("it is tried again", async || {
        host.metric(REFUSALS) >= first + 4
    })
    .await;
    let (status, ready) = host.get("/ready");
    assert_eq!(status, 503, "{ready}");
    assert!(ready.contains("dead-letters-refused"), "{ready}");
    assert!(ready.contains(cause), "{ready}");
    // 100 ms, 200 ms, 400 ms, ...: at most ten tries a second on the way there.
    let tries = host.metric(REFUSALS) - first;
    let most = 6 + begun.elapsed().as_millis() / 100;
    assert!(
        u128::from(tries) <= most,
        "{tries} in {:?}",
        begun.elapsed()
    );
    // After more than the time of a lease it still belongs to this host.
    let wait = Duration::from_millis(4000).saturating_sub(begun.elapsed());
    tokio::time::sleep(wait).await;
    let held = scene.raw.pending("orders", "workers").await;
    let held: Vec<_> = held.iter().filter(|held| held.id == id).collect();
    assert_eq!(held.len(), 1, "it is no longer pending");
    assert_eq!(held[0].consumer, host.consumer());
    assert_eq!(host.witness().starts(id), starts, "it has run again");
    let log = host.log();
    let logged: Vec<_> = log
        .iter()
        .filter(|line| line.message().starts_with("redis refuses a settlement"))
        .collect();
    assert!(logged.iter().all(|line| line.text("message_id").is_some()));
    let said = logged[0].text("cause").unwrap();
    assert!(said.contains(cause), "{said}");
    assert!(logged.len() as u64 <= host.metric(REFUSALS));
}

/// The cause has ended.
async fn check_recovered(scene: &Scene, host: Host, id: &str, starts: usize) -> Ended {
    host.logs("redis takes settlements again").await;
    eventually("nothing is pending", async || scene.look().await.is_empty()).await;
    assert_eq!(host.get("/ready").0, 200);
    let ended = host.drained().await;
    let (look, witness) = scene.check(std::slice::from_ref(&ended)).await;
    assert_eq!(look.dead_letters_of(id).len(), 1);
    assert_eq!(witness.starts(id), starts);
    ended
}

#[tokio::test]
async fn a_dead_letter_key_of_another_type_keeps_the_message_pending() {
    let mut scene = Scene::new().await;
    let host = refusing(&scene).ready().await;
    scene.raw.ask("SET orders:dead mine").await;
    let id = scene.publish("drop:no").await;
    check_refused(&mut scene, &host, &id, 1, "WRONGTYPE").await;
    // A message at its cap waits as well. One that acknowledges does not.
    let capped = scene.publish("nack:0").await;
    let acked = scene.publish("ack").await;
    eventually("the ack is done", || async {
        let pending = scene.raw.pending("orders", "workers").await;
        host.witness().starts(&acked) == 1 && pending.iter().all(|held| held.id != acked)
    })
    .await;
    eventually("the cap is reached", async || {
        host.witness().starts(&capped) == 3
    })
    .await;
    assert_eq!(scene.raw.text("GET orders:dead").await, "mine");
    scene.raw.ask("DEL orders:dead").await;
    let ended = check_recovered(&scene, host, &id, 1).await;
    assert_eq!(ended.witness().attempts(&capped), [1, 2, 3]);
    let wanted = json!({"dropped": 1, "max-deliveries": 1});
    assert_eq!(ended.json()["dead_lettered"], wanted);
    assert_eq!(ended.json()["acked"], 1);
}

#[tokio::test]
async fn a_missing_right_to_the_dead_letter_key_keeps_the_message_pending() {
    let mut scene = Scene::with_user("").await;
    let url = scene.user_url();
    let host = refusing(&scene).flag("redis", &url).ready().await;
    scene.rights("resetkeys ~orders ~{orders}:*").await;
    let id = scene.publish("nack:0,nack:0,nack:0").await;
    check_refused(&mut scene, &host, &id, 3, "NOPERM").await;
    scene.rights("~orders:dead").await;
    let ended = check_recovered(&scene, host, &id, 3).await;
    assert_eq!(ended.json()["dead_lettered"], json!({"max-deliveries": 1}));
}

#[tokio::test]
async fn a_redis_without_memory_keeps_the_message_pending() {
    let mut scene = Scene::new().await;
    let host = refusing(&scene).ready().await;
    // They end when Redis has no memory any more.
    let id = scene.publish("sleep:4000+drop:no").await;
    let acked = scene.publish("sleep:4000").await;
    let parked = scene.publish("sleep:4000+nack:50,ack").await;
    let at_once = scene.publish("sleep:4000+nack:0,ack").await;
    host.starts(4).await;
    scene.out_of_memory(true).await;
    eventually("acknowledging needs no memory", || async {
        let pending = scene.raw.pending("orders", "workers").await;
        pending.iter().all(|held| held.id != acked)
    })
    .await;
    check_refused(&mut scene, &host, &id, 1, "OOM").await;
    // A parked message is no dead letter.
    let (_, ready) = host.get("/ready");
    assert!(ready.contains("settlements-refused"), "{ready}");
    assert!(ready.contains("raise `maxmemory`"), "{ready}");
    // It could not be parked. It does not run again either.
    assert_eq!(host.witness().attempts(&parked), [1]);
    scene.out_of_memory(false).await;
    let ended = check_recovered(&scene, host, &id, 1).await;
    assert_eq!(ended.witness().attempts(&parked), [1, 2]);
    assert_eq!(ended.witness().attempts(&at_once), [1, 2]);
    assert_eq!(ended.json()["acked"], 3);
    assert_eq!(ended.json()["dead_lettered"], json!({"dropped": 1}));
}

#[tokio::test]
async fn a_message_that_is_refused_during_a_drain_is_left_to_other_hosts() {
    let mut scene = Scene::new().await;
    let options = refusing(&scene).flag("drain-timeout", "500ms");
    let host = options.ready().await;
    scene.raw.ask("SET orders:dead mine").await;
    let id = scene.publish("drop:no").await;
    host.logs("redis refuses a settlement; it stays pending")
        .await;
    let ended = host.drain().await;
    // The exit code says that a message could not be settled.
    ended.expect_code(75);
    assert_eq!(scene.raw.pending("orders", "workers").await.len(), 1);
    scene.raw.ask("DEL orders:dead").await;
    let heir = options.finish().await;
    let (look, _) = scene.check(&[ended, heir]).await;
    assert_eq!(look.dead_letters_of(&id).len(), 1);
}

#[tokio::test]
async fn a_full_dead_letter_queue_drops_its_oldest_or_stops_the_queue() {
    let mut scene = Scene::new().await;
    let options = refusing(&scene).flag("dead-letter-max-len", "5");
    scene.publish_all("drop", 5).await;
    options.clone().finish().await;
    let host = options
        .clone()
        .flag("dead-letter-on-full", "stop")
        .ready()
        .await;
    let id = scene.publish("drop").await;
    check_refused(&mut scene, &host, &id, 1, "full").await;
    scene.raw.ask("XTRIM orders:dead MAXLEN 0").await;
    scene.published.retain(|published, _| *published == id);
    check_recovered(&scene, host, &id, 1).await;

    // Dropping is approximate: whole nodes of the stream, of 100 entries.
    scene.publish_all("drop", 250).await;
    let host = options.ready().await;
    eventually("nothing is left to do", async || {
        scene.look().await.is_empty()
    })
    .await;
    let length = scene.raw.number("XLEN orders:dead").await;
    assert!((5..=110).contains(&length), "{length}");
    host.logs("the dead-letter queue is full: its oldest entries were dropped")
        .await;
    eventually("they are counted", async || {
        let dropped = host.metric("hostler_dead_letters_trimmed_total");
        i64::try_from(dropped).unwrap() == 251 - length
    })
    .await;
    host.drained().await;
}
