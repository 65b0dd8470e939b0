//! What the tests of reliable lists share: a server, and hosts that serve its list.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::{DeliveryId, Headers};
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::list::token::Token;
use hostler::queue::list::{ListOptions, ListQueue, Recovery};
use hostler::queue::{Claim, Queue, Record, Reply, Settlement, Step};
use hostler::wire::{Raw, frame};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer};

use crate::queue_scene::connector;

/// The list, and the keys beside it.
pub(crate) const KEY: &str = "jobs";
pub(crate) const DEAD: &str = "jobs:dead";
pub(crate) const RETRY: &str = "{jobs}:retry";
pub(crate) const DELAYED: &str = "{jobs}:delayed";
pub(crate) const INSTANCES: &str = "{jobs}:instances";
pub(crate) const CLAIMS: &str = "jobs:claims";
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

    pub(crate) async fn host(&self) -> ListQueue {
        self.host_with(options()).await
    }

    /// A host that records its claims in a recovery set.
    pub(crate) async fn recovering(&self) -> ListQueue {
        self.host_with(recovering()).await
    }

    pub(crate) async fn host_with(&self, options: ListOptions) -> ListQueue {
        ListQueue::open(connector(&self.server.url()), options)
            .await
            .unwrap()
    }

    /// Push values as any producer does.
    pub(crate) async fn push(&self, values: &[&[u8]]) {
        for value in values {
            self.raw.ask_words(&[b"LPUSH", KEY.as_bytes(), value]).await;
        }
    }

    /// Push values and let a host claim them.
    pub(crate) async fn claim(&self, host: &ListQueue, values: &[&str]) -> Vec<Arc<Claim>> {
        let values: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
        self.push(&values).await;
        let claims = host.fetch(values.len(), Duration::ZERO).await.unwrap();
        assert_eq!(claims.len(), values.len());
        claims.into_iter().map(Arc::new).collect()
    }

    /// The values of a list, left to right.
    pub(crate) async fn list(&self, key: &str) -> Vec<Vec<u8>> {
        let value = self.raw.ask(&format!("LRANGE {key} 0 -1")).await;
        redis::from_redis_value(value).unwrap()
    }

    pub(crate) async fn processing(&self, host: &ListQueue) -> Vec<Vec<u8>> {
        self.list(&format!("{{jobs}}:processing:{}", host.instance()))
            .await
    }

    /// The starts recorded for a delivery.
    pub(crate) async fn mark(&self, host: &ListQueue, claim: &Claim) -> Option<String> {
        let key = format!("{{jobs}}:started:{}", host.instance());
        let token = claim.id.0.to_be_bytes();
        let mark = self.raw.ask_words(&[b"HGET", key.as_bytes(), &token]).await;
        redis::from_redis_value(mark).unwrap()
    }

    /// Make an instance look as if it had not been seen for a minute.
    pub(crate) async fn age(&self, host: &ListQueue) {
        let then = self.now_ms().await - 60_000;
        let instance = host.instance();
        self.raw
            .ask(&format!("ZADD {INSTANCES} {then} {instance}"))
            .await;
    }

    /// Make every recorded claim look as if it had not been renewed for a minute.
    pub(crate) async fn age_claims(&self) {
        let then = (self.now_ms().await - 60_000).to_string();
        let members: Vec<Vec<u8>> =
            redis::from_redis_value(self.raw.ask(&format!("ZRANGE {CLAIMS} 0 -1")).await).unwrap();
        for member in members {
            let words = [b"ZADD", CLAIMS.as_bytes(), then.as_bytes(), &member];
            self.raw.ask_words(&words).await;
        }
    }

    pub(crate) async fn now_ms(&self) -> i64 {
        let time = self.raw.ask("TIME").await;
        let (seconds, micros): (i64, i64) = redis::from_redis_value(time).unwrap();
        seconds * 1000 + micros / 1000
    }
}

pub(crate) fn options() -> ListOptions {
    ListOptions {
        consumer: "host".to_owned(),
        min_idle: MIN_IDLE,
        dead_letter: Some(DeadLetterQueue::new(DEAD)),
        ..ListOptions::new(KEY)
    }
}

pub(crate) fn recovering() -> ListOptions {
    ListOptions {
        recovery: Some(Recovery {
            key: CLAIMS.to_owned(),
            ttl: None,
        }),
        ..options()
    }
}

/// Take orphans as a host that holds nothing.
pub(crate) async fn orphans(host: &ListQueue, max: usize) -> Vec<Arc<Claim>> {
    let taken = host.take_orphans(max, &|_: &DeliveryId| false).await;
    taken.unwrap().claims.into_iter().map(Arc::new).collect()
}

pub(crate) async fn settle(host: &ListQueue, claim: &Arc<Claim>, count: u32, step: Step) -> Reply {
    let settlement = Settlement {
        claim: Arc::clone(claim),
        count,
        step,
    };
    let mut replies = host.settle(&[settlement]).await.unwrap();
    assert_eq!(replies.len(), 1);
    replies.remove(0)
}

/// Record the start that this native count stands for.
pub(crate) async fn record(host: &ListQueue, claim: &Arc<Claim>, expect: u32, write: u32) -> Reply {
    let record = Record {
        claim: Arc::clone(claim),
        expect,
        write,
    };
    host.record(&[record]).await.unwrap().remove(0)
}

pub(crate) fn value(claim: &Claim) -> &Bytes {
    match &claim.raw {
        Raw::Value(value) => value,
        Raw::Fields(_) => panic!("a list's raw form is a value"),
    }
}

/// Its entry on a processing list.
pub(crate) fn entry(claim: &Claim) -> Vec<u8> {
    [&claim.id.0.to_be_bytes()[..], value(claim)].concat()
}

pub(crate) fn token(claim: &Claim) -> String {
    Token::of(claim.id).to_string()
}

/// Headers and payload of a framed value.
pub(crate) fn framed(value: &[u8]) -> (Headers, Bytes) {
    frame::decode(&Bytes::copy_from_slice(value)).expect("the value is a frame")
}
