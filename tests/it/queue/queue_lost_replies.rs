//! Replies that are cut at any byte: Redis has carried out the command, the host does not know it,
//! and repeats the command.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::effect::{Budget, EffectLimits, Effects, Outlet, Outlets, Publication};
use hostler::delivery::message::Headers;
use hostler::publish::Destination;
use hostler::queue::stream::{PARKED_CONSUMER, StreamOptions, StreamQueue};
use hostler::queue::{Claim, Queue, Reply, SettleAction, Settlement};
use hostler::redis::Class;
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::queue::queue_scene::{
    DEAD, FENCES, KEY, PARKED, Scene, connector, dead_letter, options, park, text,
};
use crate::queue::queue_stream::read_wide;
use crate::scene::{
    discard, holds_nothing, is_empty, orphaned, record, repeated, requeue, settled, settlement,
};

/// Where replies are cut: before the first byte, inside, and at each end that a short reply has.
const CUTS: [u64; 9] = [0, 1, 2, 3, 4, 5, 7, 9, 40];

struct Cut {
    scene: Scene,
    proxy: Proxy,
    host: StreamQueue,
}

impl Cut {
    async fn new() -> Self {
        Self::with(options()).await
    }

    async fn with(options: StreamOptions) -> Self {
        let scene = Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let host = StreamQueue::open(connector(&proxy.url()), options).await;
        let host = host.unwrap();
        Self { scene, proxy, host }
    }

    /// A claim; both connections are open and the scripts are loaded.
    async fn claim(&self) -> Arc<Claim> {
        let body = "a body that is not so short";
        let claims = self.scene.read(&self.host, &[body]).await;
        self.host.renew(&claims).await.unwrap();
        Arc::clone(&claims[0])
    }

    /// Cut the reply to the next script.
    fn cut_script(&self, after: u64) {
        self.proxy.cut_reply("EVALSHA", after);
    }

    /// Take back a planned cut, and open both connections anew.
    async fn heal(&self) {
        self.proxy.cut_reply("no request contains this", 0);
        let opened = self.host.contact().connections_opened;
        self.proxy.cut();
        eventually("both connections are new", || async {
            let both = [
                self.host.backlog().await.is_ok(),
                self.host.fetch(1, Duration::ZERO).await.is_ok(),
            ];
            both == [true, true] && self.host.contact().connections_opened >= opened + 2
        })
        .await;
    }

    /// At least this many replies were cut: the cuts inside the shortest reply.
    fn assert_cut(&self, at_least: u64) {
        let cut = self.proxy.replies_cut();
        assert!(cut >= at_least, "only {cut} replies were cut");
    }

    /// Settle with a reply that is cut, and then again.
    async fn settle(&self, after: u64, step: SettleAction) -> (Arc<Claim>, Reply) {
        let claim = self.claim().await;
        let reply = self.settle_claim(&claim, "EVALSHA", after, step).await;
        (claim, reply)
    }

    /// The same for this claim: the reply to the request that contains this word is cut.
    async fn settle_claim(
        &self,
        claim: &Arc<Claim>,
        word: &str,
        after: u64,
        step: SettleAction,
    ) -> Reply {
        let settlement = [settlement(claim, 1, step)];
        self.proxy.cut_reply(word, after);
        let first = self.host.settle(&settlement).await;
        self.heal().await;
        match first {
            // The reply was shorter than the cut.
            Ok(replies) => return replies[0].clone(),
            Err(error) => assert_eq!(error.class(), Class::Reconnect, "{error}"),
        }
        self.host.settle(&settlement).await.unwrap().remove(0)
    }

    /// The same for a step that removes the delivery.
    async fn remove(&self, after: u64, step: SettleAction) {
        let (claim, reply) = self.settle(after, step).await;
        let is_removed = matches!(reply, Reply::Gone | Reply::Done);
        assert!(is_removed, "cut after {after}: {reply:?}");
        assert_eq!(self.scene.held(claim.id).await, None);
    }
}

#[tokio::test]
async fn a_repeated_dead_letter_is_copied_once() {
    let cut = Cut::new().await;
    for (copies, after) in (1..).zip(CUTS) {
        cut.remove(after, dead_letter()).await;
        assert_eq!(cut.scene.length(DEAD).await, copies, "cut after {after}");
    }
    cut.assert_cut(8);
}

/// More fields than a script can pass to a command: a transaction copies them.
#[tokio::test]
async fn a_repeated_dead_letter_with_very_many_fields_is_copied_once() {
    let cut = Cut::new().await;
    for (copies, after) in (1..).zip(CUTS) {
        let claim = read_wide(&cut.scene, &cut.host, 20_000).await;
        let reply = cut
            .settle_claim(&claim, "MULTI", after, dead_letter())
            .await;
        let is_removed = matches!(reply, Reply::Gone | Reply::Done);
        assert!(is_removed, "cut after {after}: {reply:?}");
        assert_eq!(cut.scene.held(claim.id).await, None);
        assert_eq!(cut.scene.length(DEAD).await, copies, "cut after {after}");
    }
    cut.assert_cut(8);
}

/// An acknowledgement that publishes to `invoices`.
fn acting(claim: &Arc<Claim>) -> Settlement {
    let outlet = Outlet {
        takes_delays: true,
        takes_headers: true,
    };
    let outlets = Outlets::new([("invoices".to_owned(), outlet)].into());
    let mut effects = Effects::new(&Budget::default());
    let publication = Publication {
        to: Arc::from("invoices"),
        body: "x".into(),
        headers: Headers::default(),
        delay: None,
        trace: None,
    };
    let limits = EffectLimits::default();
    effects
        .publish(&outlets, &limits, &claim.message, publication)
        .unwrap();
    Settlement {
        effects: Some(Arc::new(effects)),
        ..settlement(claim, 1, SettleAction::Acknowledge)
    }
}

/// Whether the acknowledgement was carried out before the group was deleted, or not, only Redis knows: the
/// new group gets back what was not.
#[tokio::test]
async fn effects_happen_once_if_their_answer_is_lost_and_the_group_is_deleted() {
    let outlets = [("invoices".to_owned(), Destination::stream("invoices"))].into();
    let cut = Cut::with(StreamOptions {
        outlets: Arc::new(outlets),
        ..options()
    })
    .await;
    let mut published = 0;
    for after in [0, 4] {
        let claims = [cut.claim().await, cut.claim().await, cut.claim().await];
        let [first, second, third] = [&claims[0], &claims[1], &claims[2]].map(acting);
        // The last request but one says nothing about the next.
        let replies = cut.host.settle(&[first]).await.unwrap();
        assert_eq!(replies, [Reply::Done]);
        cut.cut_script(after);
        let again = second.clone();
        let lost = cut.host.settle(&[second]).await.unwrap_err();
        assert_eq!(lost.class(), Class::Reconnect, "{lost}");
        cut.heal().await;
        cut.scene.raw.ask("XGROUP DESTROY orders workers").await;
        let request = [again, third];
        let missing = cut.host.settle(&request).await.unwrap_err();
        assert_eq!(missing.class(), Class::Missing, "{missing}");
        let held = [1, 2].map(|n| (Arc::clone(&claims[n]), 1));
        let repair = cut.host.repair(&held).await.unwrap();
        assert_eq!(repair.held, [Reply::Gone, Reply::Done]);
        let replies = cut.host.settle(&request).await.unwrap();
        assert_eq!(replies, [Reply::Gone, Reply::Done]);
        published += 3;
        assert_eq!(cut.scene.length("invoices").await, published, "{after}");
        cut.scene.assert_absent(&["{orders}:parked:workers"]).await;
    }
    cut.assert_cut(2);
}

#[tokio::test]
async fn a_repeated_park_happens_once_and_succeeds() {
    let cut = Cut::new().await;
    for (parked, after) in (1..).zip(CUTS) {
        let (claim, reply) = cut.settle(after, park(1, Duration::from_secs(60))).await;
        assert_eq!(reply, Reply::Done, "cut after {after}");
        cut.scene.assert_held(claim.id, PARKED_CONSUMER, 1).await;
        assert_eq!(cut.scene.parked().await, parked);
    }
    cut.assert_cut(8);
}

#[tokio::test]
async fn a_repeated_discard_and_a_repeated_departure_succeed() {
    let cut = Cut::new().await;
    for after in CUTS {
        cut.remove(after, discard()).await;
        let (claim, reply) = cut.settle(after, SettleAction::Leave { keep: 0 }).await;
        assert_eq!(reply, Reply::Done, "cut after {after}");
        assert_eq!(cut.scene.held(claim.id).await.unwrap().1, 0);
    }
    cut.assert_cut(16);
}

#[tokio::test]
async fn a_repeated_start_is_recorded_once() {
    let cut = Cut::new().await;
    for after in CUTS {
        let claim = cut.claim().await;
        let record = [record(&claim, 1, 2)];
        cut.cut_script(after);
        let first = cut.host.record(&record).await;
        cut.heal().await;
        if first.is_err() {
            let again = record.map(repeated);
            assert_eq!(cut.host.record(&again).await.unwrap(), [Reply::Done]);
        }
        let (_, count) = cut.scene.held(claim.id).await.unwrap();
        assert_eq!(count, 2, "cut after {after}");
    }
    cut.assert_cut(8);
}

#[tokio::test]
async fn claims_whose_replies_were_lost_are_found_again() {
    let cut = Cut::new().await;
    let Cut { scene, proxy, host } = &cut;
    for after in CUTS {
        // One claim by a fetch, and one by taking a due delivery.
        cut.claim().await;
        scene.raw.add(KEY, "fetched").await;
        // By a plain command, and after a lost reply by script.
        proxy.cut_reply(host.consumer(), after);
        assert!(host.fetch(9, Duration::ZERO).await.is_err());
        cut.heal().await;
        let (_, reply) = cut.settle(1000, requeue(1)).await;
        assert_eq!(reply, Reply::Done);
        cut.cut_script(after);
        assert!(host.take_due(9).await.is_err());
        cut.heal().await;
        for pending in scene.pending().await {
            let owner = &*pending.consumer;
            assert_eq!((owner, pending.count), (host.consumer(), 1));
            scene.give_entry(owner, &pending.id, 1, 60_000).await;
        }
        let found = orphaned(host, 9).await;
        assert_eq!(found.len(), 3, "cut after {after}");
        assert!(found.iter().all(|claim| claim.native == 1));
        proxy.cut_reply("XACK", after);
        let first = host.acknowledge(&found).await;
        cut.heal().await;
        if first.is_err() {
            host.acknowledge(&found).await.unwrap();
        }
        assert!(is_empty(host).await);
    }
    cut.assert_cut(16);
}

/// Parked messages that a host has taken without an answer, and then a client destroys the group.
#[tokio::test]
async fn what_was_taken_without_an_answer_outlives_its_group() {
    for after in [0, 5, 40] {
        let cut = Cut::new().await;
        let Cut { scene, host, .. } = &cut;
        let (claim, reply) = cut.settle(1000, park(3, Duration::ZERO)).await;
        assert_eq!(reply, Reply::Done);
        let other = scene.host().await;
        cut.cut_script(after);
        assert!(host.take_due(9).await.is_err());
        cut.heal().await;
        scene.assert_held(claim.id, host.consumer(), 3).await;
        scene.destroy_group().await;
        other.repair(&[]).await.unwrap();
        // Its record says when a host must look.
        let id = text(claim.id);
        let due = scene.raw.text(&format!("ZSCORE {PARKED} {id}")).await;
        let (ms, count) = due.split_once('.').unwrap();
        assert!(ms.parse::<i64>().unwrap() > scene.now_ms().await);
        scene
            .raw
            .ask(&format!(
                "ZADD {PARKED} {}.{count} {id}",
                scene.now_ms().await - 1
            ))
            .await;
        let taken = other.take_due(9).await.unwrap();
        assert_eq!(taken.claims.len(), 1, "cut after {after}");
        assert_eq!((taken.claims[0].id, taken.claims[0].native), (claim.id, 3));
        let taken = [record(&claim, 3, 4)];
        assert_eq!(other.record(&taken).await.unwrap(), [Reply::Done]);
        assert_eq!(scene.parked().await, 0);
        cut.assert_cut(1);
    }
}

/// A host has read messages without an answer and others with one, and then a client destroys the group.
#[tokio::test]
async fn what_was_read_without_an_answer_is_read_again_after_its_group_is_destroyed() {
    for by_script in [false, true] {
        let cut = Cut::new().await;
        let Cut { scene, proxy, host } = &cut;
        if !by_script {
            let claim = cut.claim().await;
            host.acknowledge(&[claim]).await.unwrap();
        }
        scene.raw.add(KEY, "unanswered").await;
        proxy.cut_reply(host.consumer(), 5);
        assert!(host.fetch(9, Duration::ZERO).await.is_err());
        cut.heal().await;
        let claims = scene.read(host, &["answered"]).await;
        host.acknowledge(&claims).await.unwrap();
        scene.destroy_group().await;
        host.repair(&[]).await.unwrap();
        let again = host.fetch(9, Duration::ZERO).await.unwrap();
        let bodies: Vec<_> = again.iter().map(|claim| &claim.message.body[..]).collect();
        assert_eq!(bodies, [&b"unanswered"[..], b"answered"]);
        cut.assert_cut(1);
    }
}

/// The first fetch of a host uses a script, the next ones a plain command.
#[tokio::test]
async fn claims_of_a_first_fetch_are_found_again() {
    for after in [0, 40] {
        let cut = Cut::new().await;
        cut.scene.raw.add(KEY, "fetched").await;
        cut.cut_script(after);
        assert!(cut.host.fetch(9, Duration::ZERO).await.is_err());
        cut.heal().await;
        let pending = cut.scene.pending().await.remove(0);
        let owner = &*pending.consumer;
        cut.scene.give_entry(owner, &pending.id, 1, 60_000).await;
        let found = orphaned(&cut.host, 9).await;
        assert_eq!(found.len(), 1, "cut after {after}");
        cut.host.acknowledge(&found).await.unwrap();
        assert!(is_empty(&cut.host).await);
        cut.assert_cut(1);
    }
}

#[tokio::test]
async fn a_delayed_command_is_void_after_its_repeat_was_carried_out() {
    for step in [requeue(1), SettleAction::Leave { keep: 1 }] {
        let scene = Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let deadline = Duration::from_secs(2);
        let connector = connector(&proxy.url()).with_deadline(deadline);
        let host = StreamQueue::open(connector, options()).await.unwrap();
        // A command that is answered makes no other command void.
        let claim = scene.read(&host, &["another"]).await.remove(0);
        settled(&host, &claim, 1, step.clone()).await;
        host.acknowledge(&[claim]).await.unwrap();
        scene.assert_absent(&[FENCES]).await;

        let claim = scene.read(&host, &["asked twice"]).await.remove(0);
        let settlement = [settlement(&claim, 1, step.clone())];
        proxy.stall();
        let error = host.settle(&settlement).await.unwrap_err();
        assert_eq!(error.class(), Class::Reconnect, "{error}");
        eventually("the repeat is carried out", async || {
            let replies = host.settle(&settlement).await;
            replies.is_ok_and(|replies| replies == [Reply::Done])
        })
        .await;
        // The delivery comes back to this host, with the same count.
        let mut back = Vec::new();
        eventually("the delivery is back", async || {
            let taken = match &step {
                SettleAction::Park { .. } => host.take_due(9).await,
                _ => host.take_orphans(9, &holds_nothing).await,
            };
            back = taken.map_or(Vec::new(), |taken| taken.claims);
            !back.is_empty()
        })
        .await;
        assert_eq!((back[0].id, back[0].native), (claim.id, 1));
        scene.assert_held(claim.id, host.consumer(), 1).await;

        // Now the first command arrives.
        let errors = async || scene.raw.text("INFO errorstats").await;
        assert!(!errors().await.contains("errorstat_VOID"));
        proxy.release();
        eventually("the first command arrives", async || {
            errors().await.contains("errorstat_VOID:count=1")
        })
        .await;
        scene.assert_held(claim.id, host.consumer(), 1).await;
        let record = [repeated(record(&claim, 1, 2))];
        eventually("its start is recorded", async || {
            let replies = host.record(&record).await;
            replies.is_ok_and(|replies| replies == [Reply::Done])
        })
        .await;
        scene.assert_absent(&[PARKED]).await;

        // The name of the host is removed when it leaves.
        let fences = scene.raw.number(&format!("ZCARD {FENCES}")).await;
        assert_eq!(fences, 1);
        host.acknowledge(&[claim]).await.unwrap();
        host.leave().await.unwrap();
        scene.assert_absent(&[FENCES]).await;
    }
}

/// Settlements and housekeeping send deliveries away at the same time: the length limit hands back what
/// the dead-letter queue refuses.
#[tokio::test]
async fn calls_at_the_same_time_do_not_void_each_other() {
    let (scene, host, claims) = Scene::reading(&["a", "b", "c", "d"]).await;
    let later = park(1, Duration::from_secs(60));
    for pair in claims.chunks(2) {
        let [one, other] = [0, 1].map(|n| [settlement(&pair[n], 1, later.clone())]);
        let (one, other) = tokio::join!(host.settle(&one), host.settle(&other));
        assert_eq!(
            (one.unwrap(), other.unwrap()),
            (vec![Reply::Done], vec![Reply::Done])
        );
    }
    assert_eq!(scene.parked().await, 4);
    // Every call was answered, so none was voided.
    scene.assert_absent(&[FENCES]).await;
    let errors = scene.raw.text("INFO errorstats").await;
    assert!(!errors.contains("errorstat_VOID"), "{errors}");
}
