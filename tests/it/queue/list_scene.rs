//! The scene of the tests of reliable lists: hosts that serve one list.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hostler::delivery::message::Headers;
use hostler::queue::Claim;
use hostler::queue::dead_letter_queue::DeadLetterQueue;
use hostler::queue::list::token::Token;
use hostler::queue::list::{ListOptions, ListQueue, Recovery};
use hostler::wire::{Raw, frame};
use hostler_tests::redis::eventually;

use crate::scene::{self, fetch};

/// The list, and the keys beside it.
pub(crate) const KEY: &str = "jobs";
pub(crate) const DEAD: &str = "jobs:dead";
pub(crate) const RETRY: &str = "{jobs}:retry";
pub(crate) const DELAYED: &str = "{jobs}:delayed";
pub(crate) const INSTANCES: &str = "{jobs}:instances";
pub(crate) const CLAIMS: &str = "jobs:claims";
/// A delivery becomes an orphan after this time. No test waits that long: tests set the idle time.
pub(crate) const MIN_IDLE: Duration = Duration::from_secs(30);

#[derive(Default)]
pub(crate) struct List;

pub(crate) type Scene = scene::Scene<List>;

impl Scene {
    pub(crate) async fn host(&self) -> ListQueue {
        self.host_with(options()).await
    }

    /// A host that records its claims in a recovery set.
    pub(crate) async fn recovering(&self) -> ListQueue {
        self.host_with(recovering()).await
    }

    pub(crate) async fn host_with(&self, options: ListOptions) -> ListQueue {
        let queue = ListQueue::open(self.connector(), options).await;
        queue.unwrap()
    }

    /// Push values as any producer does.
    pub(crate) async fn publish<V: AsRef<[u8]>>(&self, values: impl IntoIterator<Item = V>) {
        for value in values {
            self.push(KEY, value.as_ref()).await;
        }
    }

    /// Wait until no message waits, is held, or is parked.
    pub(crate) async fn emptied(&self) {
        eventually("all are settled", async || {
            let mut left = 0;
            for key in [
                "LLEN jobs",
                "ZCARD {jobs}:delayed",
                "ZCOUNT jobs:claims -inf (+inf",
            ] {
                left += self.raw.number(key).await;
            }
            left == 0
        })
        .await;
    }

    pub(crate) async fn recorded_claims(&self) -> i64 {
        // The member without an end says whose the set is.
        self.raw
            .number(&format!("ZCOUNT {CLAIMS} -inf (+inf"))
            .await
    }

    /// Push values and let a host claim them.
    pub(crate) async fn claim(&self, host: &ListQueue, values: &[&str]) -> Vec<Arc<Claim>> {
        self.publish(values).await;
        let claims = fetch(host, values.len()).await;
        assert_eq!(claims.len(), values.len());
        claims
    }

    /// The same for large values, which come a few at a time.
    pub(crate) async fn claim_all(&self, host: &ListQueue, values: &[&str]) -> Vec<Arc<Claim>> {
        self.publish(values).await;
        let mut claims = Vec::new();
        eventually("all are claimed", async || {
            claims.extend(fetch(host, values.len()).await);
            claims.len() == values.len()
        })
        .await;
        claims
    }

    pub(crate) async fn processing(&self, host: &ListQueue) -> Vec<Vec<u8>> {
        self.list(&processing(host.instance())).await
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
        let recorded = format!("ZRANGEBYSCORE {CLAIMS} -inf (+inf");
        let members: Vec<Vec<u8>> = redis::from_redis_value(self.raw.ask(&recorded).await).unwrap();
        for member in members {
            let words = [b"ZADD", CLAIMS.as_bytes(), then.as_bytes(), &member];
            self.raw.ask_words(&words).await;
        }
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

pub(crate) fn processing(instance: &str) -> String {
    format!("{{jobs}}:processing:{instance}")
}

/// The options without a recovery set, and with one.
pub(crate) fn both() -> [ListOptions; 2] {
    [options(), recovering()]
}

/// A framed value with this id.
pub(crate) fn message(id: &str, body: &str) -> Bytes {
    let headers = Headers::new(vec![("x-message-id".into(), id.to_owned().into())]);
    frame::encode(&headers, body.as_bytes()).unwrap()
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
