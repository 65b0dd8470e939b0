//! Replies that are cut on their way, at any byte: Redis has done it, the host does not know, and
//! asks again.

use std::sync::Arc;
use std::time::Duration;

use hostler::queue::stream::{PARKED_CONSUMER, StreamQueue};
use hostler::queue::{Backlog, Claim, Class, Queue, Record, Reply, Settlement, Step};
use hostler_tests::proxy::Proxy;
use hostler_tests::redis::eventually;

use crate::queue_scene::{
    DEAD, FENCES, KEY, PARKED, Scene, connector, dead_letter, holds_nothing, options, park, settle,
};

/// Where replies are cut: before the first byte, inside, and wherever a short reply has an end.
const CUTS: [u64; 9] = [0, 1, 2, 3, 4, 5, 7, 11, 40];

struct Cut {
    scene: Scene,
    proxy: Proxy,
    host: StreamQueue,
}

impl Cut {
    async fn new() -> Self {
        let scene = Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let host = StreamQueue::open(connector(&proxy.url()), options())
            .await
            .unwrap();
        Self { scene, proxy, host }
    }

    /// A claim, with both connections open and the scripts loaded.
    async fn claim(&self) -> Arc<Claim> {
        let claims = self
            .scene
            .read(&self.host, &["a body that is not so short"])
            .await;
        self.host.renew(&claims).await.unwrap();
        Arc::clone(&claims[0])
    }

    /// Cut the reply to the next script.
    fn cut_script(&self, after: u64) {
        self.proxy.cut_reply("EVALSHA", after);
    }

    /// Nothing is cut any more, whatever was planned; both connections are new.
    async fn heal(&self) {
        self.proxy.cut_reply("no request has this in it", 0);
        let opened = self.host.connections_opened();
        self.proxy.cut();
        eventually("both connections are new", || async {
            let both = [
                self.host.backlog().await.is_ok(),
                self.host.fetch(1, Duration::ZERO).await.is_ok(),
            ];
            both == [true, true] && self.host.connections_opened() >= opened + 2
        })
        .await;
    }

    /// At least the cuts inside the shortest reply took place.
    fn assert_cut(&self, at_least: u64) {
        let cut = self.proxy.replies_cut();
        assert!(cut >= at_least, "only {cut} replies were cut");
    }

    /// Settle with a reply that is cut, then again.
    async fn settle(&self, after: u64, step: Step) -> (Arc<Claim>, Reply) {
        let claim = self.claim().await;
        let settlement = [Settlement {
            claim: Arc::clone(&claim),
            count: 1,
            step,
        }];
        self.cut_script(after);
        let first = self.host.settle(&settlement).await;
        self.heal().await;
        match first {
            // The reply was shorter than that.
            Ok(replies) => return (claim, replies[0].clone()),
            Err(error) => assert_eq!(error.class(), Class::Reconnect, "{error}"),
        }
        let replies = self.host.settle(&settlement).await.unwrap();
        (claim, replies[0].clone())
    }
}

#[tokio::test]
async fn a_dead_letter_is_copied_once() {
    let cut = Cut::new().await;
    for (n, after) in CUTS.into_iter().enumerate() {
        let (claim, reply) = cut.settle(after, dead_letter()).await;
        assert!(
            matches!(reply, Reply::Gone | Reply::Done),
            "{after}: {reply:?}"
        );
        assert_eq!(cut.scene.held(claim.id).await, None);
        let copies = cut.scene.raw.number(&format!("XLEN {DEAD}")).await;
        assert_eq!(usize::try_from(copies).unwrap(), n + 1, "cut after {after}");
    }
    cut.assert_cut(8);
}

#[tokio::test]
async fn a_park_is_done_once_and_said_to_be_done() {
    let cut = Cut::new().await;
    for (n, after) in CUTS.into_iter().enumerate() {
        let (claim, reply) = cut.settle(after, park(1, Duration::from_secs(60))).await;
        assert_eq!(reply, Reply::Done, "cut after {after}");
        let parked = Some((PARKED_CONSUMER.to_owned(), 1));
        assert_eq!(cut.scene.held(claim.id).await, parked);
        let due = cut.scene.raw.number(&format!("ZCARD {PARKED}")).await;
        assert_eq!(usize::try_from(due).unwrap(), n + 1);
    }
    cut.assert_cut(8);
}

#[tokio::test]
async fn a_discard_and_a_departure_are_done() {
    let cut = Cut::new().await;
    for after in CUTS {
        let (claim, reply) = cut.settle(after, Step::Discard).await;
        assert!(
            matches!(reply, Reply::Gone | Reply::Done),
            "{after}: {reply:?}"
        );
        assert_eq!(cut.scene.held(claim.id).await, None);
        let (claim, reply) = cut.settle(after, Step::Leave { keep: 0 }).await;
        assert_eq!(reply, Reply::Done, "cut after {after}");
        assert_eq!(cut.scene.held(claim.id).await.unwrap().1, 0);
    }
    cut.assert_cut(16);
}

#[tokio::test]
async fn a_start_is_recorded_once() {
    let cut = Cut::new().await;
    for after in CUTS {
        let claim = cut.claim().await;
        let record = [Record {
            claim: Arc::clone(&claim),
            expect: 1,
            write: 2,
        }];
        cut.cut_script(after);
        let first = cut.host.record(&record).await;
        cut.heal().await;
        if first.is_err() {
            assert_eq!(cut.host.record(&record).await.unwrap(), [Reply::Done]);
        }
        assert_eq!(
            cut.scene.held(claim.id).await.unwrap().1,
            2,
            "cut after {after}"
        );
    }
    cut.assert_cut(8);
}

#[tokio::test]
async fn what_a_lost_reply_claimed_is_found_again() {
    let cut = Cut::new().await;
    for after in CUTS {
        // Fetched, and taken back when due.
        cut.claim().await;
        cut.scene.raw.add(KEY, "fetched").await;
        cut.proxy.cut_reply("XREADGROUP", after);
        assert!(cut.host.fetch(9, Duration::ZERO).await.is_err());
        cut.heal().await;
        let (_, reply) = cut.settle(1000, park(1, Duration::ZERO)).await;
        assert_eq!(reply, Reply::Done);
        cut.cut_script(after);
        assert!(cut.host.take_due(9).await.is_err());
        cut.heal().await;
        for pending in cut.scene.raw.pending(KEY, "g").await {
            let id = &pending.id;
            let owner = &pending.consumer;
            assert_eq!((owner.as_str(), pending.count), (cut.host.consumer(), 1));
            let age = format!("XCLAIM {KEY} g {owner} 0 {id} IDLE 60000 RETRYCOUNT 1 JUSTID");
            cut.scene.raw.ask(&age).await;
        }
        let found = cut.host.take_orphans(9, &holds_nothing).await.unwrap();
        assert_eq!(found.claims.len(), 3, "cut after {after}");
        assert!(found.claims.iter().all(|claim| claim.native == 1));
        let found: Vec<_> = found.claims.into_iter().map(Arc::new).collect();
        cut.proxy.cut_reply("XACK", after);
        let first = cut.host.acknowledge(&found).await;
        cut.heal().await;
        if first.is_err() {
            cut.host.acknowledge(&found).await.unwrap();
        }
        assert_eq!(cut.host.backlog().await.unwrap(), Backlog::default());
    }
    cut.assert_cut(16);
}

#[tokio::test]
async fn what_was_asked_again_is_void_when_it_comes_late() {
    for step in [park(1, Duration::ZERO), Step::Leave { keep: 1 }] {
        let scene = Scene::new().await;
        let proxy = Proxy::to_socket(&scene.server.socket(), 7).unwrap();
        let deadline = Duration::from_secs(1);
        let connector = connector(&proxy.url()).with_deadline(deadline);
        let host = StreamQueue::open(connector, options()).await.unwrap();
        // One that is answered voids nothing.
        let claim = scene.read(&host, &["another"]).await.remove(0);
        assert_eq!(settle(&host, &claim, 1, step.clone()).await, Reply::Done);
        host.acknowledge(&[claim]).await.unwrap();
        assert_eq!(scene.raw.number(&format!("EXISTS {FENCES}")).await, 0);

        let claim = scene.read(&host, &["asked twice"]).await.remove(0);
        let settlement = [Settlement {
            claim: Arc::clone(&claim),
            count: 1,
            step: step.clone(),
        }];
        proxy.stall();
        let error = host.settle(&settlement).await.unwrap_err();
        assert_eq!(error.class(), Class::Reconnect, "{error}");
        eventually("it is asked again, and done", async || {
            host.settle(&settlement)
                .await
                .is_ok_and(|replies| replies == [Reply::Done])
        })
        .await;
        // It comes back here, with the same count.
        let mut back = Vec::new();
        eventually("it is here again", async || {
            back = match &step {
                Step::Park { .. } => host.take_due(9).await,
                _ => host.take_orphans(9, &holds_nothing).await,
            }
            .map_or(Vec::new(), |taken| taken.claims);
            !back.is_empty()
        })
        .await;
        let ours = Some((host.consumer().to_owned(), 1));
        assert_eq!((back[0].id, back[0].native), (claim.id, 1));
        assert_eq!(scene.held(claim.id).await, ours);

        // And now the first one comes.
        let errors = scene.raw.text("INFO errorstats").await;
        assert!(!errors.contains("errorstat_VOID"), "{errors}");
        proxy.release();
        eventually("it has come", async || {
            let errors = scene.raw.text("INFO errorstats").await;
            errors.contains("errorstat_VOID:count=1")
        })
        .await;
        assert_eq!(scene.held(claim.id).await, ours);
        assert_eq!(scene.raw.number(&format!("EXISTS {PARKED}")).await, 0);
        let record = [Record {
            claim: Arc::clone(&claim),
            expect: 1,
            write: 2,
        }];
        eventually("its start is recorded", async || {
            host.record(&record)
                .await
                .is_ok_and(|replies| replies == [Reply::Done])
        })
        .await;

        // The name goes with the host.
        assert_eq!(scene.raw.number(&format!("ZCARD {FENCES}")).await, 1);
        host.acknowledge(&[claim]).await.unwrap();
        host.leave().await.unwrap();
        assert_eq!(scene.raw.number(&format!("EXISTS {FENCES}")).await, 0);
    }
}
