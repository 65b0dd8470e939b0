//! What the tests of queues at most once share: a server, and hosts in this process.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::attempt::Allowance;
use hostler::delivery::backoff::Backoff;
use hostler::delivery::message::Headers;
use hostler::delivery::policy::{DeadLetterRules, OnCap, OnFault, Policy};
use hostler::queue::kind::QueueOptions;
use hostler::queue::{Claim, Queue};
use hostler::runtime::Settings;
use hostler::wire::frame;
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer};

use crate::queue_scene::connector;

/// Longer than any test, and not waited for.
pub(crate) const LONG: Duration = Duration::from_secs(40);

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

    pub(crate) async fn open(&self, options: QueueOptions) -> Arc<dyn Queue> {
        options.open(connector(&self.server.url())).await.unwrap()
    }
}

/// As an operator of a queue at least once has them: what cannot be honoured must not matter.
pub(crate) fn settings(concurrency: usize) -> Settings {
    let mut settings = Settings::new(Policy {
        allowance: Allowance::default(),
        on_cap: OnCap::DeadLetter,
        on_fault: OnFault::Requeue,
        has_dead_letter: false,
        dead_letters: DeadLetterRules::default(),
        backoff: Backoff::default(),
    });
    settings.ledger.concurrency = concurrency;
    settings
}

pub(crate) fn bodies(claims: &[Claim]) -> Vec<String> {
    let body = |claim: &Claim| String::from_utf8_lossy(&claim.message.body).into_owned();
    claims.iter().map(body).collect()
}

/// A framed value with this id.
pub(crate) fn value(id: &str, body: &str) -> Vec<u8> {
    let headers = Headers::new(vec![("x-message-id".into(), id.to_owned().into())]);
    frame::encode(&headers, body.as_bytes()).unwrap().to_vec()
}
