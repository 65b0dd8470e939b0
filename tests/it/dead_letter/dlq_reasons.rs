//! Every reason for which a message dies, routes, cycles, histories, and targets that refuse dead
//! letters. On streams and on reliable lists.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::policy::{DeadLetterRules, Reason, Reasons};
use hostler::queue::Queue;
use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull, Routes};
use hostler::runtime::{Exit, Settings};
use hostler::telemetry::health::Cause;
use hostler::telemetry::wall_clock_ms;
use hostler::wire::codec::BodyCodec;
use hostler_tests::command::run;
use hostler_tests::redis::{RedisOptions, eventually};
use serde_json::json;

use crate::dead_letter::dlq_scene::{
    Found, Kind, Scene, Served, on_both, running, three, until_empty,
};

on_both! {
    a_message_expires_by_its_header_at_the_claim
    an_expiry_in_seconds_is_malformed_and_not_expired
    an_expiry_that_is_not_a_number_is_malformed
    a_message_expires_while_its_delay_lasts
    a_message_expires_in_the_buffer_of_a_busy_host
    a_message_expires_by_the_time_to_live_of_the_queue
    an_oversize_message_starts_no_handler
    a_body_that_does_not_decode_starts_no_handler
    a_malformed_message_starts_no_handler_and_stays_whole
    the_oldest_unread_messages_beyond_the_length_are_dead_lettered
    messages_over_the_length_stay_unread_while_their_target_refuses_them
    a_host_is_not_ready_while_dead_letters_over_the_length_are_refused
    a_running_host_cuts_its_queue_and_counts_it
    each_final_outcome_and_fault_has_its_reason
    settings_keep_unfit_messages_from_the_handler
    faults_are_failed_attempts_by_default
    reasons_have_routes_and_trimming_is_counted
    inspect_shows_how_full_every_target_is
    cycles_of_one_two_and_three_queues_end
    a_cycle_is_counted_and_logged_with_its_history
    a_rejection_or_a_replay_in_between_is_no_cycle
    a_damaged_history_is_survived_and_counted
    a_full_dead_letter_queue_stops_the_queue_until_there_is_room
    while_its_target_refuses_it_a_message_stays_and_does_not_run_again
    across_slots_a_dead_letter_is_copied_before_it_is_removed
}

/// In September 2001: the least time in epoch milliseconds.
const PAST: &str = "1000000000000";

/// It died for this reason, and no handler was started.
fn died_unstarted(dead: &Found, reason: &str) {
    assert_eq!((dead.reason(), dead.attempts()), (reason, "0"), "{dead:?}");
}

async fn a_message_expires_by_its_header_at_the_claim(kind: Kind) {
    let scene = Scene::new(kind).await;
    let headers = [("x-expires-at", PAST)];
    scene.put(scene.key(), "ack", &headers).await;
    scene.serve(scene.own(), three()).await;
    let dead = scene.only_dead().await;
    died_unstarted(&dead, "expired");
    assert!(dead.detail().starts_with("expired "), "{dead:?}");
    assert!(scene.script.starts().is_empty());
    assert_eq!(dead.header("x-expires-at"), "", "it cannot expire again");
    let original = &dead.deaths()[0]["original-expiration"];
    assert_eq!(original.to_string(), PAST);
}

/// It would be over before it came, whatever the producer meant: the producer must know.
async fn an_expiry_in_seconds_is_malformed_and_not_expired(kind: Kind) {
    let scene = Scene::new(kind).await;
    let in_an_hour = wall_clock_ms() / 1000 + 3600;
    let headers = [("x-expires-at", &*in_an_hour.to_string())];
    scene.put(scene.key(), "ack", &headers).await;
    scene.serve(scene.own(), three()).await;
    let dead = scene.only_dead().await;
    died_unstarted(&dead, "malformed");
    let said = format!("`x-expires-at` is {in_an_hour}: it is in epoch milliseconds");
    assert!(dead.detail().starts_with(&said), "{dead:?}");
}

/// It would never expire, although its producer wants it to.
async fn an_expiry_that_is_not_a_number_is_malformed(kind: Kind) {
    for expiry in ["soon", "2026-01-01T00:00:00Z", "-1", ""] {
        let scene = Scene::new(kind).await;
        scene
            .put(scene.key(), "ack", &[("x-expires-at", expiry)])
            .await;
        scene.serve(scene.own(), three()).await;
        let dead = scene.only_dead().await;
        died_unstarted(&dead, "malformed");
        let said = "`x-expires-at` is not a number: it is in epoch milliseconds";
        assert_eq!(dead.detail(), said, "{expiry}");
    }
}

async fn a_message_expires_while_its_delay_lasts(kind: Kind) {
    let scene = Scene::new(kind).await;
    // Time enough for its first start, also on a busy machine.
    let soon = (wall_clock_ms() + 5000).to_string();
    let headers = [("x-expires-at", &*soon)];
    scene.put(scene.key(), "nack:6000,ack", &headers).await;
    scene.serve(scene.own(), three()).await;
    let dead = scene.only_dead().await;
    assert_eq!((dead.reason(), dead.attempts()), ("expired", "1"));
    assert_eq!(scene.script.starts().len(), 1);
}

async fn a_message_expires_in_the_buffer_of_a_busy_host(kind: Kind) {
    let scene = Scene::new(kind).await;
    let mut settings = three();
    settings.ledger.concurrency = 1;
    // Fast ones first, so that the host claims ahead. The claimed messages then wait behind a slow
    // one, longer than they live.
    for _ in 0..200 {
        scene.send("ack").await;
    }
    scene.send("sleep:3000").await;
    let soon = (wall_clock_ms() + 2000).to_string();
    for _ in 0..20 {
        let headers = [("x-expires-at", &*soon)];
        scene.put(scene.key(), "ack,late", &headers).await;
    }
    let metrics = scene.serve(scene.own(), settings).await;
    let dead = scene.dead().await;
    assert_eq!(dead.len(), 20);
    for dead in &dead {
        died_unstarted(dead, "expired");
        assert_eq!(dead.body, "ack,late");
    }
    assert_eq!(metrics.summary().acked, 201, "a started handler goes on");
}

/// A stream's entry says how old it is. A list's value does not: its time begins with the first
/// claim, and goes on through requeues.
async fn a_message_expires_by_the_time_to_live_of_the_queue(kind: Kind) {
    let scene = Scene::new(kind).await;
    let served = Served {
        ttl: Some(Duration::from_secs(2)),
        ..scene.own()
    };
    let begun = wall_clock_ms();
    scene.send("nack:900").await;
    scene.serve(served, until_empty(running(Some(50)))).await;
    let dead = scene.only_dead().await;
    assert_eq!(dead.reason(), "expired", "{dead:?}");
    // 0 s, 0.9 s, 1.8 s and no later.
    let attempts: u32 = dead.attempts().parse().unwrap();
    assert!(attempts <= 3, "{attempts}");
    assert_eq!(scene.script.starts().len(), attempts as usize);
    // Its history says when, though it carried no limit of its own.
    let expired = dead.deaths()[0]["original-expiration"].as_u64().unwrap();
    assert!(
        expired >= begun + 2000 && expired <= wall_clock_ms(),
        "{dead:?}"
    );
    if kind == Kind::Stream {
        let (enqueued, _) = dead
            .header("x-dead-letter-source-id")
            .split_once('-')
            .unwrap();
        assert_eq!(expired, enqueued.parse::<u64>().unwrap() + 2000);
    }
}

async fn an_oversize_message_starts_no_handler(kind: Kind) {
    let scene = Scene::new(kind).await;
    let mut settings = three();
    settings.gate.payload_max = 10;
    scene.send("ack,ack,ack").await;
    scene.send("ack,ack,nk").await;
    let metrics = scene.serve(scene.own(), settings).await;
    let dead = scene.only_dead().await;
    died_unstarted(&dead, "oversize");
    assert_eq!(dead.body, "ack,ack,ack", "byte for byte");
    assert_eq!(dead.detail(), "the body has 11 bytes, 10 are allowed");
    assert_eq!(metrics.summary().acked, 1);
}

async fn a_body_that_does_not_decode_starts_no_handler(kind: Kind) {
    for (codec, right, wrong) in [
        (BodyCodec::Json, &b"[\"ack\"]"[..], &b"[\"ack\""[..]),
        (BodyCodec::MsgPack, b"\x01", b"\x01ack"),
        (BodyCodec::Utf8, "äck".as_bytes(), b"ack\xff"),
    ] {
        let scene = Scene::new(kind).await;
        let mut settings = three();
        settings.gate.codec = Some(codec);
        scene.send(right).await;
        scene.send(wrong).await;
        let metrics = scene.serve(scene.own(), settings).await;
        let dead = scene.only_dead().await;
        died_unstarted(&dead, "decode-failed");
        assert_eq!(dead.body, String::from_utf8_lossy(wrong));
        assert_eq!(scene.script.starts().len(), 1, "{codec:?}");
        assert_eq!(metrics.summary().dead_lettered["decode-failed"], 1);
    }
}

async fn a_malformed_message_starts_no_handler_and_stays_whole(kind: Kind) {
    let scene = Scene::new(kind).await;
    let mut settings = three();
    settings.gate.required = vec!["x-tenant".to_owned()];
    scene.put(scene.key(), "ack", &[("other", "7")]).await;
    scene.put(scene.key(), "ack", &[("X-Tenant", "7")]).await;
    // A value that is no message is kept whole.
    match kind {
        Kind::Stream => drop(scene.raw.ask("XADD orders * a 1 a 2").await),
        Kind::List => scene.push("jobs", b"{\"no\":\"frame\"}").await,
    }
    let served = Served {
        strict: true,
        ..scene.own()
    };
    let metrics = scene.serve(served, settings).await;
    let dead = scene.dead().await;
    assert_eq!(dead.len(), 2);
    for dead in &dead {
        died_unstarted(dead, "malformed");
    }
    assert_eq!(dead[0].detail(), "the header `x-tenant` is missing");
    match kind {
        Kind::Stream => assert_eq!(dead[1].fields[..4], *b"a1a2"),
        Kind::List => assert_eq!(dead[1].body, "{\"no\":\"frame\"}"),
    }
    let summary = metrics.summary();
    assert_eq!((summary.attempts, summary.acked), (1, 1));
}

fn at_most(scene: &Scene, length: u64) -> Served {
    Served {
        max_length: Some(length),
        ..scene.own()
    }
}

/// How many messages are unread.
async fn unread(scene: &Scene, queue: &dyn Queue) -> u64 {
    match scene.kind {
        Kind::List => scene.length(scene.key()).await,
        // A stream is never trimmed: it still has entries that were read.
        Kind::Stream => {
            let pending = queue.backlog().await.unwrap().pending;
            let done = scene.length(scene.dead_key()).await;
            scene.length(scene.key()).await - pending - done
        }
    }
}

async fn the_oldest_unread_messages_beyond_the_length_are_dead_lettered(kind: Kind) {
    let scene = Scene::new(kind).await;
    for n in 0..500 {
        scene.send(n.to_string()).await;
    }
    let mut hosts = Vec::new();
    for _ in 0..3 {
        hosts.push(scene.open(at_most(&scene, 100)).await);
    }
    // Pending messages are not counted, and not touched.
    assert_eq!(hosts[0].fetch(40, Duration::ZERO).await.unwrap().len(), 40);
    let cut = futures_util::future::join_all(hosts.iter().map(|host| host.maintain())).await;
    let cut: u64 = cut.into_iter().map(|done| done.unwrap().overflowed).sum();
    assert_eq!(cut, 360, "several hosts cut no more than is over");
    assert_eq!(hosts[0].backlog().await.unwrap().pending, 40);
    assert_eq!(unread(&scene, &*hosts[0]).await, 100);
    if kind == Kind::Stream {
        assert_eq!(scene.length("orders").await, 500, "never trimmed");
    }
    let dead = scene.dead().await;
    died_unstarted(&dead[0], "maxlen");
    let detail = dead[0].detail();
    assert!(
        detail.contains("more than 100 messages were unread"),
        "{detail}"
    );
    let mut bodies: Vec<u32> = dead.iter().map(|dead| dead.body.parse().unwrap()).collect();
    bodies.sort_unstable();
    assert!(
        bodies.into_iter().eq(40..400),
        "the oldest, the newest are kept"
    );
}

async fn messages_over_the_length_stay_unread_while_their_target_refuses_them(kind: Kind) {
    let scene = Scene::new(kind).await;
    for n in 0..150 {
        scene.send(n.to_string()).await;
    }
    let queue = scene.open(at_most(&scene, 20)).await;
    let mut full = at_most(&scene, 20);
    full.dead = DeadLetterQueue {
        max_len: Some(1),
        on_full: OnFull::Stop,
        ..DeadLetterQueue::new("full")
    };
    let full = scene.open(full).await;
    scene.put("full", "in the way", &[]).await;
    let refused = async |queue: &dyn Queue, part: &str| {
        let done = queue.maintain().await.unwrap();
        assert_eq!((done.overflowed, done.overflows), (0, false));
        let why = done.dead_letters_refused.unwrap();
        assert!(why.contains(part), "{why}");
    };
    let dead = scene.dead_key();
    scene.obstruct(dead).await;
    for _ in 0..3 {
        refused(&*queue, "WRONGTYPE").await;
        refused(&*full, "dead-letter queue is full").await;
    }
    scene.delete(dead).await;
    assert_eq!(
        queue.backlog().await.unwrap().pending,
        0,
        "nothing is claimed"
    );
    assert_eq!(unread(&scene, &*queue).await, 150);

    let done = queue.maintain().await.unwrap();
    assert_eq!((done.overflowed, done.dead_letters_refused), (130, None));
    let bodies = scene.bodies(dead).await;
    assert!(
        bodies.into_iter().eq((0..130).map(|n| n.to_string())),
        "in their order"
    );
    assert_eq!(unread(&scene, &*queue).await, 20);
}

async fn a_host_is_not_ready_while_dead_letters_over_the_length_are_refused(kind: Kind) {
    let scene = Scene::new(kind).await;
    for _ in 0..100 {
        scene.send("sleep:60000").await;
    }
    let dead_key = scene.dead_key();
    scene.obstruct(dead_key).await;
    let mut settings = running(Some(3));
    settings.ledger.concurrency = 1;
    settings.ledger.prefetch_max = 2;
    let host = scene.start(at_most(&scene, 20), settings).await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    eventually("the refusal is shown", async || {
        let all = health.impediments();
        let refused = all.iter().find(|i| i.cause == Cause::DeadLettersRefused);
        refused.is_some_and(|refused| refused.detail.contains("WRONGTYPE"))
    })
    .await;
    scene.delete(dead_key).await;
    eventually("it is ready again", async || health.is_ready()).await;
    let dead = metrics.summary().dead_lettered["maxlen"];
    assert!((70..=80).contains(&dead), "{dead}");
    assert_eq!(scene.length(dead_key).await, dead);
    assert_eq!(scene.script.starts().len(), 1, "the one that fits");
    host.crash();
}

async fn a_running_host_cuts_its_queue_and_counts_it(kind: Kind) {
    let scene = Scene::new(kind).await;
    for _ in 0..400 {
        scene.send("sleep:5").await;
    }
    let mut settings = three();
    settings.ledger.concurrency = 1;
    settings.ledger.prefetch_max = 2;
    let metrics = scene.serve(at_most(&scene, 20), settings).await;
    let summary = metrics.summary();
    let dead = summary.dead_lettered.get("maxlen").copied().unwrap_or(0);
    assert!(dead > 0, "the length is checked before all is read");
    assert_eq!(summary.acked + dead, 400);
    assert_eq!(scene.length(scene.dead_key()).await, dead);
}

/// Only a component can fault. Here faults are dead-lettered at once.
async fn each_final_outcome_and_fault_has_its_reason(kind: Kind) {
    let scene = Scene::new(kind).await;
    for body in ["trap", "sleep:60000", "grow:100000000", "drop:no", "nack:0"] {
        scene.send(body).await;
    }
    let ended = scene
        .binary()
        .flags("max-deliveries=2 on-fault=dead-letter timeout=4s cpu=4s memory=16MiB")
        .finish()
        .await;
    assert_eq!(
        ended.json()["dead_lettered"],
        json!({"trap": 1, "timeout": 1, "memory-limit": 1, "dropped": 1, "max-deliveries": 1})
    );
    for dead in scene.dead().await {
        let (expected, attempts) = match &*dead.body {
            "trap" => ("trap", "1"),
            "sleep:60000" => ("timeout", "1"),
            "drop:no" => ("dropped", "1"),
            "nack:0" => ("max-deliveries", "2"),
            _ => ("memory-limit", "1"),
        };
        assert_eq!((dead.reason(), dead.attempts()), (expected, attempts));
        assert!(dead.header("x-dead-letter-handler").starts_with("sha256:"));
        if dead.body == "drop:no" {
            assert_eq!(dead.detail(), "no");
        }
    }
}

async fn settings_keep_unfit_messages_from_the_handler(kind: Kind) {
    let scene = Scene::new(kind).await;
    let key = scene.key();
    let tenant = ("x-tenant", "7");
    scene.put(key, "ack", &[tenant]).await;
    scene.put(key, "x".repeat(2000), &[tenant]).await;
    scene.put(key, b"ack\xff", &[tenant]).await;
    scene.put(key, "ack", &[("other", "7")]).await;
    let past = ("x-expires-at", PAST);
    let later = (wall_clock_ms() + 3_600_000).to_string();
    let later = ("x-expires-at", &*later);
    scene.put(key, "ack", &[tenant, past]).await;
    scene.put(key, "ack", &[tenant, later]).await;
    let options = match kind {
        Kind::Stream => scene.binary().flag("missing-body", "malformed"),
        Kind::List => scene.binary().flag("framing", "frame"),
    };
    match kind {
        Kind::Stream => drop(scene.raw.ask("XADD orders * id 1").await),
        Kind::List => scene.push(key, b"no frame").await,
    }
    let ended = options
        .flags("max-payload=1KB codec=utf8 require-headers=x-tenant")
        .finish()
        .await;
    let summary = ended.json();
    assert_eq!(
        (&summary["attempts"], &summary["acked"]),
        (&json!(2), &json!(2))
    );
    assert_eq!(
        summary["dead_lettered"],
        json!({"oversize": 1, "decode-failed": 1, "malformed": 2, "expired": 1})
    );
    let dead = scene.dead().await;
    assert!(dead.iter().all(|dead| dead.attempts() == "0"), "{dead:?}");
    let is_whole = |dead: &Found| match kind {
        Kind::Stream => dead.fields.starts_with(b"id1"),
        Kind::List => dead.body == "no frame",
    };
    assert!(dead.iter().any(is_whole), "{dead:?}");
}

/// After the last attempt the dead letter names the last fault.
async fn faults_are_failed_attempts_by_default(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.send("trap").await;
    scene.send("trap,ack").await;
    let ended = scene
        .binary()
        .flags("max-deliveries=2 backoff-first=5ms")
        .finish()
        .await;
    assert_eq!(ended.json()["acked"], 1);
    let dead = scene.only_dead().await;
    assert_eq!((dead.reason(), dead.attempts()), ("max-deliveries", "2"));
    assert!(dead.detail().contains("trap"), "{dead:?}");
}

async fn reasons_have_routes_and_trimming_is_counted(kind: Kind) {
    let scene = Scene::new(kind).await;
    let mut served = scene.own();
    served.dead.max_len = Some(5);
    served.dead.routes.by_reason = BTreeMap::from([(Reason::Dropped, "unwanted".to_owned())]);
    let mut rules = running(Some(3));
    rules.ledger.policy.dead_letters.discarded = Reasons::new([Reason::Expired]);
    for _ in 0..300 {
        scene.send("drop").await;
    }
    scene.send("nack:1").await;
    let headers = [("x-expires-at", PAST)];
    scene.put(scene.key(), "ack", &headers).await;
    let host = scene.start(served, rules).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("all are settled", async || {
        let summary = metrics.summary();
        summary.dead_lettered.values().sum::<u64>() + summary.discarded == 302
    })
    .await;
    // A list exactly; a stream in whole nodes.
    let left = scene.length("unwanted").await;
    match kind {
        Kind::Stream => assert!((5..=105).contains(&left), "{left}"),
        Kind::List => assert_eq!(left, 5),
    }
    eventually("the trimming is counted", async || {
        metrics.dead_letters_trimmed.get() == 300 - left
    })
    .await;
    host.drain().await;
    let unwanted = scene.all("unwanted").await;
    assert!(unwanted.iter().all(|dead| dead.reason() == "dropped"));
    let dead = scene.only_dead().await;
    assert_eq!((dead.reason(), dead.attempts()), ("max-deliveries", "3"));
    let summary = metrics.summary();
    assert_eq!(
        (summary.discarded, summary.dead_lettered["dropped"]),
        (1, 300)
    );
}

async fn inspect_shows_how_full_every_target_is(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    if kind == Kind::Stream {
        scene
            .raw
            .ask("XGROUP CREATE orders workers 0 MKSTREAM")
            .await;
    }
    scene.letter("x", Reason::Trap).await;
    for _ in 0..3 {
        scene.put("slow", "x", &[]).await;
    }
    let more = [
        "--dead-letter",
        dead,
        "--dead-letter-routes",
        "timeout=slow",
    ];
    let more = [&more[..], &["--dead-letter-max-len", "4"]].concat();
    let text = run(scene.inspecting(&more)).ok().stdout;
    for row in [
        format!("1 of 4 in {dead} (25 % full)"),
        "3 of 4 in slow (75 % full)".to_owned(),
        format!("0 of 4 in {{{}}}:cycle (0 % full)", scene.key()),
    ] {
        assert!(text.contains(&row), "{row} in\n{text}");
    }
    let json = run(scene.inspecting(&[&more[..], &["--json"]].concat()))
        .ok()
        .json();
    assert_eq!(
        json["dead_letter_targets"][1],
        json!({"key": "slow", "length": 3, "max_len": 4})
    );
}

#[test]
fn reasons_without_a_route_go_to_the_key() {
    let queue = DeadLetterQueue {
        routes: Routes {
            by_reason: BTreeMap::from([(Reason::Trap, "traps".to_owned())]),
            ..Routes::default()
        },
        ..DeadLetterQueue::new("dead")
    };
    assert_eq!(queue.target(Reason::Trap), "traps");
    assert_eq!(queue.target(Reason::Dropped), "dead");
    assert_eq!(queue.targets("orders"), ["dead", "traps", "{orders}:cycle"]);
}

/// Every message dies without a start: a cycle turns as fast as it can.
fn unseen() -> Settings {
    let mut settings = three();
    settings.gate.required = vec!["x-nobody-has-it".to_owned()];
    settings
}

/// One message has ended in this cycle key, and has died in these queues.
async fn ended_in(scene: &Scene, cycle: &str, queues: &[&str]) {
    let ended = scene.all(cycle).await;
    assert_eq!(ended.len(), 1, "{cycle}");
    let deaths = ended[0].deaths();
    for queue in queues {
        let deaths = deaths.as_array().unwrap();
        assert!(
            deaths.iter().any(|death| death["queue"] == *queue),
            "{deaths:?}"
        );
    }
}

async fn cycles_of_one_two_and_three_queues_end(kind: Kind) {
    let scene = Scene::new(kind).await;
    scene.put("a", "x", &[]).await;
    scene.serve(Served::new("a", "b"), unseen()).await;
    assert_eq!(scene.length("b").await, 1);
    scene.raw.ask("DEL a").await;
    let metrics = scene.serve(Served::new("b", "a"), unseen()).await;
    assert_eq!(scene.length("a").await, 0, "not back again");
    ended_in(&scene, "{b}:cycle", &["a", "b"]).await;
    assert_eq!(metrics.summary().dead_lettered["malformed"], 1);

    scene.put("p", "x", &[]).await;
    scene.serve(Served::new("p", "q"), unseen()).await;
    scene.raw.ask("DEL p").await;
    scene.serve(Served::new("q", "r"), unseen()).await;
    let mut last = Served::new("r", "p");
    last.dead.routes.cycle = Some("rounds".to_owned());
    scene.serve(last, unseen()).await;
    assert_eq!(scene.length("p").await, 0);
    ended_in(&scene, "rounds", &["p", "q", "r"]).await;

    let mut own = Served::new("self", scene.dead_key());
    own.dead.routes.by_reason = BTreeMap::from([(Reason::Malformed, "self".to_owned())]);
    scene.put("self", "x", &[]).await;
    let settings = Settings {
        until_empty: None,
        ..unseen()
    };
    let host = scene.start(own, settings).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("the cycle is counted", async || metrics.cycles.get() == 1).await;
    host.drain().await;
    let stays = u64::from(kind == Kind::Stream);
    assert_eq!(scene.length("self").await, stays);
    ended_in(&scene, "{self}:cycle", &["self"]).await;
}

async fn a_cycle_is_counted_and_logged_with_its_history(kind: Kind) {
    let scene = Scene::new(kind).await;
    let host = scene
        .binary()
        .flag("dead-letter-routes", &format!("malformed={}", scene.key()))
        .flag("require-headers", "x-nobody-has-it")
        .admin()
        .ready()
        .await;
    scene.send("x").await;
    host.logs("ended a cycle").await;
    let log = host.log();
    let line = log
        .iter()
        .find(|line| line.message().starts_with("ended a cycle"));
    let history: serde_json::Value =
        serde_json::from_str(line.unwrap().text("history").unwrap()).unwrap();
    assert_eq!(history[0]["queue"], scene.key());
    assert_eq!(
        (&history[0]["reason"], &history[0]["count"]),
        (&json!("malformed"), &json!(1))
    );
    eventually("it is counted", async || {
        host.metric("hostler_cycles_total") == 1
    })
    .await;
    host.drained().await;
}

/// A history over hops with rejections, requeues and replays.
async fn a_rejection_or_a_replay_in_between_is_no_cycle(kind: Kind) {
    let scene = Scene::new(kind).await;
    let newest = async |key: &str| scene.all(key).await.pop().unwrap();
    scene.put("a", "nack:1,drop", &[]).await;
    for _ in 0..3 {
        scene.serve(Served::new("a", "b"), three()).await;
        scene.serve(Served::new("b", "a"), unseen()).await;
    }
    assert_eq!(scene.raw.number("EXISTS {a}:cycle {b}:cycle").await, 0);
    let back = newest("a").await;
    let deaths = back.deaths();
    assert_eq!(deaths.as_array().unwrap().len(), 2);
    for (record, queue, reason) in [(&deaths[0], "b", "malformed"), (&deaths[1], "a", "dropped")] {
        assert_eq!(
            (&record["queue"], &record["reason"]),
            (&json!(queue), &json!(reason))
        );
        assert_eq!(record["count"], 3);
        assert!(record["first-time"].as_u64() < record["last-time"].as_u64());
    }
    let first = ["queue", "reason"].map(|part| back.header(&format!("x-first-death-{part}")));
    let last = ["queue", "reason"].map(|part| back.header(&format!("x-last-death-{part}")));
    assert_eq!((first, last), (["a", "dropped"], ["b", "malformed"]));

    // It has died in b without a start, so it may not go there again. A replay is no cycle, and the
    // counts go on.
    scene.serve(Served::new("a", "b"), unseen()).await;
    assert_eq!(scene.length("{a}:cycle").await, 1, "without one it ends");
    let before = scene.length("b").await;
    let connector = crate::queue::queue_scene::connector(&scene.server.url());
    let letters = hostler::dead_letter::DeadLetters::new(&connector, "{a}:cycle");
    let replayed = letters.replay_all(Default::default(), Default::default());
    assert_eq!(replayed.await.unwrap().replayed, 1);
    scene.serve(Served::new("a", "b"), unseen()).await;
    assert_eq!(scene.length("b").await, before + 1);
    let again = newest("b").await;
    assert_eq!(again.header("x-replayed"), "1");
    assert_eq!(again.header("x-first-death-reason"), "dropped");
    let deaths = again.deaths();
    assert_eq!(
        (&deaths[0]["queue"], &deaths[0]["count"]),
        (&json!("a"), &json!(2))
    );
}

async fn a_damaged_history_is_survived_and_counted(kind: Kind) {
    let scene = Scene::new(kind).await;
    let huge = format!(
        "[{}]",
        vec![r#"{"queue":"q","reason":"r"}"#; 5000].join(",")
    );
    let half = r#"[{"queue":"q","reason":"r"},7]"#;
    let many: Vec<String> = (0..100)
        .map(|n| format!(r#"{{"queue":"q{n}","reason":"r","unrejected":true}}"#))
        .collect();
    let many = format!("[{}]", many.join(","));
    let damaged = ["", "[[", "\u{0}", "{\"queue\":\"q\"}", "[7]", &huge, half];
    for death in damaged.iter().chain(&[&*many]) {
        let headers = [("x-death", *death)];
        scene.put(scene.key(), "drop", &headers).await;
    }
    let host = scene.start(scene.own(), running(Some(3))).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("they are counted", async || {
        metrics.histories_damaged.get() == 7 && scene.length(scene.dead_key()).await == 8
    })
    .await;
    host.drain().await;
    for dead in scene.dead().await {
        let deaths = dead.deaths();
        assert_eq!(deaths[0]["queue"], scene.key());
        assert!(deaths.as_array().unwrap().len() <= 32);
        assert!(dead.header("x-death").len() <= 48 * 1024);
    }
    let text = metrics.render(&hostler::telemetry::health::Health::default());
    assert!(text.contains("hostler_histories_damaged_total 7"), "{text}");
}

async fn a_full_dead_letter_queue_stops_the_queue_until_there_is_room(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    scene.put(dead, "in the way", &[]).await;
    scene.send("drop").await;
    for _ in 0..1000 {
        scene.send("sleep:5").await;
    }
    let mut served = scene.own();
    served.dead.max_len = Some(1);
    served.dead.on_full = OnFull::Stop;
    let mut rules = three();
    rules.ledger.concurrency = 4;
    rules.ledger.prefetch_max = 16;
    rules.ledger.policy.dead_letters = DeadLetterRules {
        stop_when_refused: true,
        ..DeadLetterRules::default()
    };
    let host = scene.start(served, rules).await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    eventually("it was refused three times", async || {
        metrics.settlements_refused.get() >= 3
    })
    .await;
    let why = format!("{:?}", health.impediments());
    assert!(why.contains("dead-letter queue is full"), "{why}");
    // The messages that it holds are handled. It reads no more, also not while it tries the dead
    // letter again.
    eventually("it was refused again", async || {
        metrics.settlements_refused.get() >= 5
    })
    .await;
    let acked = metrics.summary().acked;
    assert!(acked < 100, "it goes on reading: {acked}");
    let dropped = scene.script.starts()[0].0.clone();
    assert_eq!(scene.script.starts_of(&dropped), 1, "no handler runs again");

    scene.delete(dead).await;
    assert_eq!(host.ended().await, Exit::Drained);
    assert_eq!(metrics.summary().acked, 1000);
    assert_eq!(metrics.summary().dead_lettered["dropped"], 1);
}

async fn while_its_target_refuses_it_a_message_stays_and_does_not_run_again(kind: Kind) {
    let scene = Scene::new(kind).await;
    let dead = scene.dead_key();
    scene.send("drop").await;
    scene.obstruct(dead).await;
    let host = scene.start(scene.own(), running(Some(3))).await;
    let (health, metrics) = (host.health.clone(), Arc::clone(&host.metrics));
    eventually("it was refused three times", async || {
        metrics.settlements_refused.get() >= 3
    })
    .await;
    let why = format!("{:?}", health.impediments());
    assert!(why.contains("WRONGTYPE"), "{why}");
    assert!(!health.is_ready());
    assert_eq!(scene.script.starts().len(), 1);
    // Others are handled meanwhile.
    scene.send("ack").await;
    eventually("another one is handled", async || {
        metrics.summary().acked == 1
    })
    .await;
    scene.delete(dead).await;
    eventually("it is ready again", async || health.is_ready()).await;
    assert_eq!(host.drain().await, Exit::Drained);
    assert_eq!(scene.script.starts().len(), 2);
    assert_eq!(scene.only_dead().await.reason(), "dropped");
}

async fn across_slots_a_dead_letter_is_copied_before_it_is_removed(kind: Kind) {
    let options = RedisOptions::default()
        .set("slowlog-log-slower-than", "0")
        .set("slowlog-max-len", "10000");
    let scene = Scene::across_slots(kind, options).await;
    let mut served = scene.own();
    served.dead.max_len = Some(3);
    for body in ["drop", "ack", "nack:1", "drop", "drop"] {
        scene.send(body).await;
    }
    let metrics = scene.serve(served, three()).await;
    let summary = metrics.summary();
    assert_eq!((summary.acked, summary.dead_lettered["dropped"]), (1, 3));
    // Bounded as well: a stream approximately.
    let kept = match kind {
        Kind::Stream => 4,
        Kind::List => 3,
    };
    assert_eq!(scene.length(scene.dead_key()).await, kept);
    let log = format!("{:?}", scene.raw.ask("SLOWLOG GET -1").await);
    // The newest comes first: behind the last copy stands a removal.
    let copy = match kind {
        Kind::Stream => log.find("XADD").unwrap(),
        Kind::List => log.find("LPUSH").unwrap(),
    };
    let removal = log.find("EVALSHA").unwrap();
    assert!(removal < copy, "{}", &log[..copy.min(4000)]);

    // The same with a target that refuses it.
    let dead = scene.dead_key();
    scene.delete(dead).await;
    scene.obstruct(dead).await;
    scene.send("drop").await;
    let host = scene.start(scene.own(), three()).await;
    let metrics = Arc::clone(&host.metrics);
    eventually("it was refused", async || {
        metrics.settlements_refused.get() >= 2
    })
    .await;
    scene.delete(dead).await;
    assert_eq!(host.ended().await, Exit::Drained);
    assert_eq!(scene.only_dead().await.reason(), "dropped");
}
