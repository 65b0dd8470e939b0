//! What the tests of the built binary share: a server, and messages whose handlers are known.

use std::collections::BTreeMap;

use hostler_tests::checker::Look;
use hostler_tests::host::{Ended, Host, HostOptions};
use hostler_tests::redis::{RawRedis, RedisOptions, RedisServer, eventually};
use hostler_tests::witness::Witness;

/// A server, a connection to look behind the scenes, and what was published.
pub(crate) struct Scene {
    pub(crate) server: RedisServer,
    pub(crate) raw: RawRedis,
    pub(crate) published: BTreeMap<String, String>,
}

impl Scene {
    pub(crate) async fn new() -> Self {
        Self::with(RedisOptions::default()).await
    }

    pub(crate) async fn with(options: RedisOptions) -> Self {
        let server = options.start();
        let raw = server.raw().await;
        Self {
            server,
            raw,
            published: BTreeMap::new(),
        }
    }

    /// A host of the group `workers` of `orders`.
    pub(crate) fn host(&self) -> HostOptions {
        HostOptions::new(&self.server)
    }

    /// Publish a message whose handler does this.
    pub(crate) async fn publish(&mut self, body: &str) -> String {
        self.publish_with(body, &[]).await
    }

    /// The same, with headers.
    pub(crate) async fn publish_with(&mut self, body: &str, headers: &[(&str, &str)]) -> String {
        let names: Vec<String> = headers
            .iter()
            .map(|(name, _)| format!("h:{name}"))
            .collect();
        let mut words: Vec<&[u8]> = vec![b"XADD", b"orders", b"*", b"_payload", body.as_bytes()];
        for (name, (_, value)) in names.iter().zip(headers) {
            words.extend([name.as_bytes(), value.as_bytes()]);
        }
        let id = self.raw.ask_words(&words).await;
        let id: String = redis::from_redis_value(id).unwrap();
        self.published.insert(id.clone(), body.to_owned());
        id
    }

    /// Publish so many with the same body.
    pub(crate) async fn publish_all(&mut self, body: &str, count: usize) -> Vec<String> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.publish(body).await);
        }
        ids
    }

    /// A host of this stream only, with slow messages in its buffer, one of them running at least;
    /// and the slow ones. It reads ahead as its rate allows, so that comes out differently: in a
    /// few tries it always does.
    pub(crate) async fn host_with_a_buffer(
        &mut self,
        options: &HostOptions,
    ) -> (Host, Vec<String>) {
        for _ in 0..10 {
            self.raw.ask("DEL orders").await;
            self.published.clear();
            self.publish_all("ack", 300).await;
            let mut slow = Vec::new();
            for _ in 0..20 {
                self.publish("ack").await;
                slow.push(self.publish("sleep:300").await);
            }
            let host = options.ready().await;
            eventually("a slow one has started", || async {
                slow.iter().any(|id| host.witness().starts(id) > 0)
            })
            .await;
            let held = self.raw.pending("orders", "workers").await;
            let held: Vec<String> = held.into_iter().map(|held| held.id).collect();
            let witness = host.witness();
            let waits = |id: &&String| held.contains(id) && witness.starts(id) == 0;
            if slow.iter().filter(waits).count() >= 2 {
                return (host, slow);
            }
            host.kill().await;
        }
        panic!("no host ever reads ahead");
    }

    pub(crate) async fn look(&self) -> Look {
        Look::at(&self.raw).await
    }

    /// Wait until the group has nothing to do, and look once more.
    pub(crate) async fn emptied(&self) -> Look {
        eventually("the queue is empty", || async {
            self.look().await.is_empty()
        })
        .await;
        self.look().await
    }

    /// Nothing is lost and nothing is twice, as far as these hosts' witness goes.
    pub(crate) async fn check(&self, ended: &[Ended]) -> (Look, Witness) {
        let look = self.look().await;
        let witness = Witness::of_all(ended);
        look.check(&self.published, &witness);
        (look, witness)
    }
}
