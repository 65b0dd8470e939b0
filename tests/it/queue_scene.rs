//! What the tests of the stream queue share: a server, and hosts that join its group.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::DeliveryId;
use hostler::delivery::policy::{Reason, Rejection};
use hostler::queue::dead_letter_queue::{DeadLetterQueue, OnFull};
use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::queue::{Claim, Queue, Reply, Settlement, Step, Taken};
use hostler::redis::connection::Connector;
use hostler::redis::target::{PasswordSource, Target, TlsFiles};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer};

/// The stream, the group and the dead-letter queue of most tests.
pub(crate) const KEY: &str = "orders";
pub(crate) const GROUP: &str = "g";
pub(crate) const DEAD: &str = "orders:dead";
pub(crate) const PARKED: &str = "{orders}:parked:g";
pub(crate) const FENCES: &str = "{orders}:fences:g";
/// After how long a delivery is an orphan: nothing gets there by waiting in these tests.
pub(crate) const MIN_IDLE: Duration = Duration::from_secs(30);

/// A server and a connection to look behind the scenes.
pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    pub(crate) raw: RawRedis,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(RedisOptions::default()).await
    }

    pub(crate) async fn with(options: RedisOptions) -> Self {
        let server = options.start();
        let raw = server.raw().await;
        Self { server, raw }
    }

    /// A host that serves the group of most tests.
    pub(crate) async fn host(&self) -> StreamQueue {
        self.host_with(options()).await
    }

    pub(crate) async fn host_with(&self, options: StreamOptions) -> StreamQueue {
        StreamQueue::open(connector(&self.server.url()), options)
            .await
            .unwrap()
    }

    /// Add messages and let a host read them.
    pub(crate) async fn read(&self, host: &StreamQueue, bodies: &[&str]) -> Vec<Arc<Claim>> {
        for body in bodies {
            self.raw.add(KEY, body).await;
        }
        let claims = host.fetch(bodies.len(), Duration::ZERO).await.unwrap();
        assert_eq!(claims.len(), bodies.len());
        claims.into_iter().map(Arc::new).collect()
    }

    /// Make a delivery look as if nobody had renewed it for a minute.
    pub(crate) async fn age(&self, host: &StreamQueue, id: DeliveryId, count: u32) {
        self.give(host.consumer(), id, count, 60_000).await;
    }

    /// Hand a delivery to a consumer, with this count and idle time.
    pub(crate) async fn give(&self, consumer: &str, id: DeliveryId, count: u32, idle_ms: u64) {
        let id = text(id);
        self.raw
            .ask(&format!(
                "XCLAIM {KEY} {GROUP} {consumer} 0 {id} IDLE {idle_ms} RETRYCOUNT {count} JUSTID"
            ))
            .await;
    }

    /// Owner and count of a pending delivery.
    pub(crate) async fn held(&self, id: DeliveryId) -> Option<(String, u32)> {
        let id = text(id);
        let pending = self.raw.pending(KEY, GROUP).await;
        let held = pending.into_iter().find(|held| held.id == id)?;
        Some((held.consumer, held.count))
    }
}

pub(crate) fn connector(url: &str) -> Connector {
    let target = Target::parse(url, PasswordSource::Url, TlsFiles::default()).unwrap();
    Connector::new(target, "test")
}

pub(crate) fn options() -> StreamOptions {
    StreamOptions {
        consumer: "host".to_owned(),
        min_idle: MIN_IDLE,
        dead_letter: Some(DeadLetterQueue {
            key: DEAD.to_owned(),
            max_len: None,
            on_full: OnFull::DropOldest,
            routes: hostler::queue::dead_letter_queue::Routes::default(),
        }),
        ..StreamOptions::new(KEY, GROUP)
    }
}

pub(crate) fn text(id: DeliveryId) -> String {
    hostler::queue::stream::entry_id(id)
}

/// A host that holds nothing it knows of.
pub(crate) fn holds_nothing(_: &DeliveryId) -> bool {
    false
}

pub(crate) async fn orphans(host: &StreamQueue, max: usize) -> Taken {
    host.take_orphans(max, &holds_nothing).await.unwrap()
}

pub(crate) async fn settle(
    host: &StreamQueue,
    claim: &Arc<Claim>,
    count: u32,
    step: Step,
) -> Reply {
    let settlement = Settlement {
        claim: Arc::clone(claim),
        count,
        step,
    };
    let mut replies = host.settle(&[settlement]).await.unwrap();
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

pub(crate) fn park(keep: u32, after: Duration) -> Step {
    Step::Park { keep, after }
}

pub(crate) fn dead_letter() -> Step {
    Step::DeadLetter {
        rejection: Rejection {
            reason: Reason::Dropped,
            detail: "no such product".to_owned(),
            attempts: 1,
            handled: true,
        },
        handler: "sha256:aa".into(),
        expires_at_ms: None,
    }
}

pub(crate) fn is_refused(reply: &Reply) -> bool {
    matches!(reply, Reply::Refused(_))
}

/// The value of a field, or of a header's field, in an entry that a test read back.
pub(crate) fn field<'a>(fields: &'a [Vec<u8>], name: &str) -> Option<&'a [u8]> {
    fields
        .chunks(2)
        .find(|pair| pair[0] == name.as_bytes())
        .map(|pair| pair[1].as_slice())
}

pub(crate) fn body(claim: &Claim) -> &Bytes {
    &claim.message.body
}
