//! The stream or the group is deleted under a running host. It is made again once and counted, and
//! every message that Redis still has is settled.

use std::time::Duration;

use hostler::telemetry::health::Cause;
use hostler::telemetry::metrics::Summary;
use hostler_tests::redis::eventually;

use crate::away_scene::{GROUP, How, KEY, Load, MIXED, MIXED_HERE, Scene, Watched};

#[tokio::test(flavor = "multi_thread")]
async fn a_group_destroyed_under_load_is_made_again_and_loses_no_message() {
    let scene = Scene::new().await;
    let host = scene.host(&How::min_idle(Duration::from_secs(2))).await;
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
    let load = scene.load(&["sleep:700"], 32).await;
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
    accounts_for_all_it_claimed(&host, || host.metrics.queue_wait_seconds.count()).await;
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
