//! The stream or the group is deleted under a running host. It is made again once and counted, and
//! every message that Redis still has is settled.

use std::collections::BTreeSet;
use std::time::Duration;

use hostler::telemetry::health::Cause;
use hostler::telemetry::metrics::Summary;
use hostler_tests::redis::eventually;

use crate::redis::away_scene::{GROUP, How, KEY, Load, MIXED, MIXED_HERE, Scene, Watched, sources};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_destroyed_under_load_is_made_again_and_loses_no_message() {
    let scene = Scene::new().await;
    let host = scene.host(&How::min_idle(Duration::from_secs(4))).await;
    let load = scene.load(MIXED, 420).await;
    host.has_started(60).await;
    scene.destroy_group().await;
    eventually("the group is made again", async || {
        host.metrics.groups_recreated.get() == 1
    })
    .await;
    host.recovers().await;
    // The messages that it held, the parked ones, and the unread ones.
    load.settles_without_a_repeat(&scene, &host).await;
    assert_eq!(host.metrics.groups_recreated.get(), 1);
    assert!(host.errors("NOGROUP") > 0);
    assert!(host.errors("NOGROUP") < 20, "a hot loop");
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_keep_their_messages_when_their_group_is_destroyed() {
    let scene = Scene::new().await;
    let how = How::default();
    let one = scene.host(&how).await;
    let two = scene.host(&how).await;
    // They run until the group is there again, also on a busy machine: one that has ended may start again.
    let load = scene.load(&["sleep:8000"], 32).await;
    let started = || one.script.starts().len() + two.script.starts().len();
    eventually("both are busy", async || {
        !one.script.starts().is_empty() && !two.script.starts().is_empty() && started() == 32
    })
    .await;
    scene.destroy_group().await;
    eventually("nothing is pending", || async {
        let group = format!("XPENDING {KEY} {GROUP}");
        scene.raw.try_ask(&group).await.is_ok()
            && one.metrics.held.get() + two.metrics.held.get() == 0
            && scene.raw.pending(KEY, GROUP).await.is_empty()
    })
    .await;
    one.recovers().await;
    two.recovers().await;
    let acked = one.metrics.summary().acked + two.metrics.summary().acked;
    assert!(acked >= load.acks());
    // The new group begins behind the last message of the host that made it. Later messages of the
    // other host are read again. No host starts again a message that it holds.
    for host in [&one, &two] {
        for (id, _) in host.script.starts() {
            assert_eq!(host.script.starts_of(&id), 1, "{id}");
        }
    }
    let again = one.metrics.groups_recreated.get() + two.metrics.groups_recreated.get();
    assert_eq!(again, 1, "one of them made it again");
    one.drains().await;
    two.drains().await;
}

/// Bodies that end in the dead-letter queue after a while, in no certain order. All run before the first one
/// ends, also on a busy machine.
const DROPS: &[&str] = &[
    "drop:2600",
    "drop:2900",
    "drop:2300",
    "drop:2700",
    "drop:2500",
];

/// Every dropped message of this load is in the dead-letter queue.
async fn is_dead_lettered(scene: &Scene, load: &Load) {
    eventually("each message is in the dead-letter queue", async || {
        let copied: BTreeSet<String> = sources(scene).await.into_iter().collect();
        load.messages.keys().all(|id| copied.contains(id))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_hosts_dead_letter_what_ran_when_their_group_was_destroyed() {
    let scene = Scene::new().await;
    let how = How::default();
    let hosts = [scene.host(&how).await, scene.host(&how).await];
    let load = scene.load(DROPS, 32).await;
    let started = || -> usize { hosts.iter().map(|h| h.script.starts().len()).sum() };
    eventually("all run", async || started() == 32).await;
    assert!(hosts.iter().all(|host| !host.script.starts().is_empty()));
    scene.destroy_group().await;
    is_dead_lettered(&scene, &load).await;
    nothing_is_pending(&scene).await;
    for host in hosts {
        host.recovers().await;
        assert_eq!(host.metrics.gone.get(), 0);
        host.drains().await;
    }
}

async fn nothing_is_pending(scene: &Scene) {
    eventually("nothing is pending", async || {
        scene.raw.pending(KEY, GROUP).await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_message_is_lost_when_the_group_of_two_hosts_is_destroyed_under_load() {
    let scene = Scene::new().await;
    let how = How::min_idle(Duration::from_secs(2));
    let hosts = [scene.host(&how).await, scene.host(&how).await];
    // At the second attempt, some of them after a wait.
    let bodies = &["nack:0,drop", "nack:30,drop", "drop", "sleep:5", "drop:20"];
    let mut load = Load::default();
    for _ in 0..4 {
        load.messages.extend(scene.load(bodies, 500).await.messages);
        scene.destroy_group().await;
        eventually("the group is made again", async || {
            let group = format!("XPENDING {KEY} {GROUP}");
            scene.raw.try_ask(&group).await.is_ok()
        })
        .await;
    }
    let drops = |body: &str| body.contains("drop");
    eventually("each message has its end", async || {
        let copied: BTreeSet<String> = sources(&scene).await.into_iter().collect();
        let starts: Vec<_> = hosts.iter().flat_map(|h| h.script.starts()).collect();
        let started: BTreeSet<&String> = starts.iter().map(|(id, _)| id).collect();
        load.messages.iter().all(|(id, body)| match drops(body) {
            true => copied.contains(id),
            false => started.contains(id),
        })
    })
    .await;
    nothing_is_pending(&scene).await;
    for host in hosts {
        host.drains().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_finds_out_by_itself_that_others_made_its_group_again() {
    // Behind the messages that it holds, and before them: then it reads them again.
    for start in ["$", "0"] {
        let scene = Scene::new().await;
        let host = scene.host(&How::default()).await;
        let load = scene.load(DROPS, 8).await;
        host.has_started(8).await;
        // At no moment is there no group: the host learns nothing of it, before it settles something.
        let again = "redis.call('XGROUP', 'DESTROY', KEYS[1], ARGV[1]) \
                     redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], ARGV[2])";
        let words = ["EVAL", again, "1", KEY, GROUP, start].map(str::as_bytes);
        scene.raw.ask_words(&words).await;
        is_dead_lettered(&scene, &load).await;
        nothing_is_pending(&scene).await;
        assert_eq!(sources(&scene).await.len(), load.messages.len());
        host.recovers().await;
        assert_eq!(host.metrics.gone.get(), 0);
        host.drains().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_starts_while_the_group_is_missing_loses_nothing_of_the_others() {
    let scene = Scene::new().await;
    let how = How::default();
    let first = scene.host(&how).await;
    let load = scene.load(DROPS, 8).await;
    first.has_started(8).await;
    // Whichever of them asks first makes the group.
    scene.destroy_group().await;
    let second = scene.host(&how).await;
    is_dead_lettered(&scene, &load).await;
    nothing_is_pending(&scene).await;
    first.recovers().await;
    first.drains().await;
    second.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_program_settles_is_counted() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let load = scene.load(&["drop:3000"], 4).await;
    host.has_started(4).await;
    // Without the deletion, it would look like a deleted consumer: the host would bring the messages back.
    let settle = "redis.call('XACK', KEYS[1], unpack(ARGV)) \
                  redis.call('XDEL', KEYS[1], unpack(ARGV, 2))";
    let ids = load.messages.keys().map(String::as_bytes);
    let words = ["EVAL", settle, "1", KEY, GROUP].map(str::as_bytes);
    scene
        .raw
        .ask_words(&words.into_iter().chain(ids).collect::<Vec<_>>())
        .await;
    eventually("each is counted", async || {
        host.metrics.trimmed_pending.get() == 4
    })
    .await;
    assert!(sources(&scene).await.is_empty());
    assert!(host.health.is_ready());
    host.drains().await;
}

/// More than one script parks again.
const PARKED: usize = 13_000;

#[tokio::test(flavor = "multi_thread")]
async fn all_parked_messages_come_back_after_their_group_was_destroyed() {
    let scene = Scene::new().await;
    // By hosts that are gone.
    let park = "for _ = 1, ARGV[2] do redis.call('XADD', KEYS[1], '*', '_payload', 'ack') end \
                redis.call('XGROUP', 'CREATE', KEYS[1], ARGV[1], 0) \
                redis.call('XREADGROUP', 'GROUP', ARGV[1], 'hostler:parked', 'COUNT', ARGV[2], \
                    'STREAMS', KEYS[1], '>') \
                for _, held in ipairs(redis.call('XPENDING', KEYS[1], ARGV[1], '-', '+', ARGV[2])) do \
                    redis.call('ZADD', KEYS[2], 9e15, held[1]) \
                end";
    let (parked, count) = (format!("{{{KEY}}}:parked:{GROUP}"), PARKED.to_string());
    let words = ["EVAL", park, "2", KEY, &parked, GROUP, &count].map(str::as_bytes);
    scene.raw.ask_words(&words).await;
    let host = scene.host(&How::default()).await;
    scene.destroy_group().await;
    eventually("the group is made again", async || {
        host.metrics.groups_recreated.get() == 1
    })
    .await;
    host.recovers().await;
    let pending = scene.raw.pending(KEY, GROUP).await;
    assert!(pending.iter().all(|p| p.consumer == "hostler:parked"));
    assert_eq!(pending.len(), PARKED);
    let now = format!("ZUNIONSTORE {parked} 1 {parked} WEIGHTS 0");
    scene.raw.ask(&now).await;
    eventually("each has run", async || {
        host.metrics.summary().acked == PARKED as u64
    })
    .await;
    assert_eq!(host.script.starts().len(), PARKED);
    assert!(!scene.exists(&parked).await);
    host.drains().await;
}

/// Every message that the host had claimed is acknowledged, dead-lettered, or counted as lost.
async fn accounts_for_all_it_claimed(host: &Watched, claimed: impl Fn() -> u64) {
    let ended = || {
        let summary = host.metrics.summary();
        let dead: u64 = summary.dead_lettered.values().sum();
        summary.acked + dead + host.metrics.trimmed_pending.get()
    };
    eventually("everything claimed has an end", async || {
        host.metrics.held.get() == 0 && ended() == claimed()
    })
    .await;
}

fn dropped(summary: &Summary) -> u64 {
    let dropped = summary.dead_lettered.get("dropped");
    dropped.copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_deleted_under_load_is_made_again() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    let lost = scene.load(MIXED_HERE, 420).await;
    host.has_started(60).await;
    scene.delete(KEY).await;
    eventually("the stream is made again", async || {
        host.metrics.groups_recreated.get() == 1
    })
    .await;
    host.recovers().await;
    // Without parked messages, the histogram has one observation for each claim.
    accounts_for_all_it_claimed(&host, || {
        host.metrics.queue_wait_seconds.durations().count()
    })
    .await;
    assert!(host.metrics.trimmed_pending.get() < lost.messages.len() as u64);
    let before = host.metrics.summary();
    let after = scene.load(MIXED, 70).await;
    eventually("the later messages are settled", || async {
        let summary = host.metrics.summary();
        summary.acked == before.acked + after.acks()
            && dropped(&summary) == dropped(&before) + after.drops()
    })
    .await;
    assert!(scene.raw.pending(KEY, GROUP).await.is_empty());
    assert_eq!(host.metrics.groups_recreated.get(), 1);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flushall_under_load_loses_no_later_message() {
    let scene = Scene::new().await;
    let host = scene.host(&How::default()).await;
    // Held and waiting at the flush.
    scene.load(&["sleep:100"], 64).await;
    host.has_started(16).await;
    scene.raw.ask("FLUSHALL").await;
    // The producer goes on at once: the stream exists again before the host notices.
    let after = scene.load(MIXED, 140).await;
    eventually("the group is made again", async || {
        host.metrics.groups_recreated.get() == 1
    })
    .await;
    host.recovers().await;
    eventually("the later messages are settled", || async {
        let starts = host.script.starts();
        let all_started = |load: &Load| {
            load.messages
                .keys()
                .all(|id| starts.iter().any(|(started, _)| started == id))
        };
        all_started(&after) && host.metrics.held.get() == 0
    })
    .await;
    eventually("nothing is pending", async || {
        scene.raw.pending(KEY, GROUP).await.is_empty()
    })
    .await;
    after.is_dead_lettered_once(&scene).await;
    for (id, body) in &after.messages {
        assert_eq!(host.script.starts_of(id), body.split(',').count(), "{id}");
    }
    // Of the 64, those that had started acked; the others were lost with the stream, and counted.
    let summary = host.metrics.summary();
    let lost = host.metrics.trimmed_pending.get();
    assert_eq!(summary.dead_lettered["dropped"], after.drops());
    let early = summary.acked - after.acks();
    assert!(early >= 16 && early + lost <= 64, "{early} {lost}");
    assert_eq!(host.metrics.groups_recreated.get(), 1);
    host.drains().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_without_the_right_to_make_its_group_again_waits_for_it() {
    let scene = Scene::with_user("").await;
    let host = Watched::start(&scene.user_url(), &How::default()).await;
    scene.rights("-xgroup").await;
    scene.delete(KEY).await;
    host.is_not_ready(Cause::RedisConfiguration, "repair").await;
    let errors = host.all_errors();
    eventually("it is tried again", async || host.all_errors() > errors + 2).await;
    scene.rights("+xgroup").await;
    host.recovers().await;
    let load = scene.load(MIXED, 70).await;
    load.settles_without_a_repeat(&scene, &host).await;
    assert_eq!(host.metrics.groups_recreated.get(), 1);
    host.drains().await;
}
