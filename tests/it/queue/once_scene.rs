//! Shared by the tests of at-most-once queues: a server, and hosts in this process.

use std::sync::Arc;
use std::time::Duration;

use hostler::delivery::message::Headers;
use hostler::delivery::policy::Policy;
use hostler::queue::kind::QueueOptions;
use hostler::queue::{Claim, Queue};
use hostler::runtime::Settings;
use hostler::wire::frame;

/// Longer than any test; no test waits this long.
pub(crate) const LONG: Duration = Duration::from_secs(40);

/// A server with an at-most-once queue.
pub(crate) type Scene = crate::scene::Scene<Once>;

#[derive(Default)]
pub(crate) struct Once;

impl Scene {
    pub(crate) async fn open(&self, options: QueueOptions) -> Arc<dyn Queue> {
        options.open(self.connector()).await.unwrap()
    }
}

/// The policy of an at-least-once queue: the parts that an at-most-once queue cannot honour must
/// have no effect.
pub(crate) fn settings(concurrency: usize) -> Settings {
    let mut settings = Settings::new(Policy::default());
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
