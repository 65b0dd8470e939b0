//! Shared by the tests of the stream queue: a server, and hosts that join its group.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::DeliveryId;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::queue::{Claim, Queue, SettleAction, Settlement};
use hostler_tests::redis::Pending;

pub(crate) use crate::scene::{DEAD, GROUP, KEY, connector, dead_letter, is_refused, park};
use crate::scene::{fetch, settlement, shared};

pub(crate) const PARKED: &str = "{orders}:parked:workers";
pub(crate) const FENCES: &str = "{orders}:fences:workers";
/// A delivery becomes an orphan after this time. No test waits that long: tests set the idle time.
pub(crate) const MIN_IDLE: Duration = Duration::from_secs(30);

/// A server with a stream.
pub(crate) type Scene = crate::scene::Scene<Stream>;

#[derive(Default)]
pub(crate) struct Stream;

impl Scene {
    /// A server, a host of [`GROUP`], and these messages, which the host has read.
    pub(crate) async fn reading(bodies: &[&str]) -> (Self, StreamQueue, Vec<Arc<Claim>>) {
        let scene = Self::new().await;
        let host = scene.host().await;
        let claims = scene.read(&host, bodies).await;
        (scene, host, claims)
    }

    /// A host of [`GROUP`].
    pub(crate) async fn host(&self) -> StreamQueue {
        self.host_with(options()).await
    }

    /// A host of another group.
    pub(crate) async fn host_of(&self, group: &str) -> StreamQueue {
        let group = group.to_owned();
        self.host_with(StreamOptions { group, ..options() }).await
    }

    pub(crate) async fn host_with(&self, options: StreamOptions) -> StreamQueue {
        let queue = StreamQueue::open(self.connector(), options).await;
        queue.unwrap()
    }

    /// Add messages and let a host read them.
    pub(crate) async fn read(&self, host: &StreamQueue, bodies: &[&str]) -> Vec<Arc<Claim>> {
        for body in bodies {
            self.raw.add(KEY, body).await;
        }
        // One request stops after some bytes.
        let mut claims = Vec::new();
        while claims.len() < bodies.len() {
            let more = fetch(host, bodies.len() - claims.len()).await;
            assert!(!more.is_empty());
            claims.extend(more);
        }
        claims
    }

    /// Make a delivery look as if its host had not renewed it for a minute.
    pub(crate) async fn age(&self, host: &StreamQueue, id: DeliveryId, count: u32) {
        self.give(host.consumer(), id, count, 60_000).await;
    }

    /// Give a delivery to a consumer, with this count and idle time.
    pub(crate) async fn give(&self, consumer: &str, id: DeliveryId, count: u32, idle_ms: u64) {
        self.give_entry(consumer, &text(id), count, idle_ms).await;
    }

    pub(crate) async fn give_entry(&self, consumer: &str, id: &str, count: u32, idle_ms: u64) {
        let claim = format!("XCLAIM {KEY} {GROUP} {consumer} 0 {id} IDLE {idle_ms}");
        let claim = format!("{claim} RETRYCOUNT {count} JUSTID");
        self.raw.ask(&claim).await;
    }

    pub(crate) async fn pending(&self) -> Vec<Pending> {
        self.raw.pending(KEY, GROUP).await
    }

    /// Owner and count of a pending delivery.
    pub(crate) async fn held(&self, id: DeliveryId) -> Option<(String, u32)> {
        let id = text(id);
        let pending = self.pending().await;
        let held = pending.into_iter().find(|held| held.id == id)?;
        Some((held.consumer, held.count))
    }

    /// Assert that a consumer holds the delivery, with this count.
    pub(crate) async fn assert_held(&self, id: DeliveryId, consumer: &str, count: u32) {
        assert_eq!(self.held(id).await, Some((consumer.to_owned(), count)));
    }

    /// Assert that none of these keys exists.
    pub(crate) async fn assert_absent(&self, keys: &[&str]) {
        for key in keys {
            assert!(!self.exists(key).await, "{key}");
        }
    }

    /// Delete all entries; pending ones stay pending.
    pub(crate) async fn trim_all(&self) {
        self.raw.ask(&format!("XTRIM {KEY} MAXLEN 0")).await;
    }

    pub(crate) async fn destroy_group(&self) {
        let destroy = format!("XGROUP DESTROY {KEY} {GROUP}");
        self.raw.ask(&destroy).await;
    }

    /// The number of entries of a stream.
    pub(crate) async fn length(&self, key: &str) -> i64 {
        self.raw.number(&format!("XLEN {key}")).await
    }

    /// The number of deliveries that wait for their due time.
    pub(crate) async fn parked(&self) -> i64 {
        self.raw.number(&format!("ZCARD {PARKED}")).await
    }
}

pub(crate) fn options() -> StreamOptions {
    StreamOptions {
        consumer: "host".to_owned(),
        min_idle: MIN_IDLE,
        dead_letter: Some(DeadLetterQueue::new(DEAD)),
        ..StreamOptions::new(KEY, GROUP)
    }
}

pub(crate) fn text(id: DeliveryId) -> String {
    hostler::wire::entry_id::entry_id(id)
}

pub(crate) fn body(claim: &Claim) -> &[u8] {
    &claim.message.body
}

/// The same step for each of these claims, after one delivery.
pub(crate) fn settlements(claims: &[Arc<Claim>], step: &SettleAction) -> Vec<Settlement> {
    let one = |claim| settlement(claim, 1, step.clone());
    claims.iter().map(one).collect()
}

/// Take deliveries that are due.
pub(crate) async fn due(host: &impl Queue, max: usize) -> Vec<Arc<Claim>> {
    shared(host.take_due(max).await.unwrap().claims)
}

/// Take orphans as a host that holds these deliveries.
pub(crate) async fn orphans_beside(
    host: &impl Queue,
    max: usize,
    held: &[DeliveryId],
) -> Vec<Claim> {
    let taken = host.take_orphans(max, &|id| held.contains(id)).await;
    taken.unwrap().claims
}

/// The value of a field of an entry; the field of a header is called `h:<name>`.
pub(crate) fn field<'a>(fields: &'a [Vec<u8>], name: &str) -> Option<&'a [u8]> {
    let mut pairs = fields.chunks(2);
    let pair = pairs.find(|pair| pair[0] == name.as_bytes())?;
    Some(&pair[1])
}
