//! The scene of the tests of the built binary: messages say what their handler does with them.

use std::collections::BTreeMap;
use std::time::SystemTime;

use hostler::publish::{Destination, Inbox, List, Stream};
use hostler_tests::checker::Look;
use hostler_tests::guests::guest;
use hostler_tests::host::{Ended, Host, HostOptions, Line};
use hostler_tests::redis::eventually;
use hostler_tests::witness::Witness;

use crate::scene::{self, Kind, connector};

/// The messages that a test has published: what the handler does with each, by id.
#[derive(Default)]
pub(crate) struct Published {
    pub(crate) published: BTreeMap<String, String>,
}

pub(crate) type Scene = scene::Scene<Published>;

/// The stream or the reliable list `orders`.
pub(crate) fn orders(kind: Kind) -> Destination {
    match kind {
        Kind::Stream => Stream::new("orders").into(),
        Kind::List => List::new("orders").reliable().into(),
    }
}

/// An inbox for messages to it.
pub(crate) fn inbox(url: &str, kind: Kind) -> Inbox {
    Inbox::new(&connector(url), orders(kind), None).unwrap()
}

/// A host of it with this guest, and with dead letters.
pub(crate) fn serving(url: &str, kind: Kind, name: &str) -> HostOptions {
    let options = HostOptions::at(url)
        .flag("handler", &guest(name).display().to_string())
        .flag("dead-letter", "orders:dead")
        .admin();
    match kind {
        Kind::Stream => options,
        Kind::List => options
            .without("stream")
            .without("group")
            .flags("list=orders reliable=true"),
    }
}

/// The starts of a host from this time on, by the times in its log: what a test has read of a log may be behind the
/// host.
pub(crate) fn starts_since(ended: &Ended, time: SystemTime) -> Witness {
    let is_later = |line: &&Line| {
        let at = line.text("timestamp").map(humantime::parse_rfc3339);
        at.is_some_and(|at| at.is_ok_and(|at| at >= time))
    };
    let later: Vec<Line> = ended.log.iter().filter(is_later).cloned().collect();
    Witness::of([later.as_slice()])
}

impl Scene {
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

    /// Publish `count` messages with the same body.
    pub(crate) async fn publish_all(&mut self, body: &str, count: usize) -> Vec<String> {
        let mut ids = Vec::with_capacity(count);
        for _ in 0..count {
            ids.push(self.publish(body).await);
        }
        ids
    }

    /// A host with slow messages that do this in its buffer, at least one of which runs, and at least one waits; and
    /// the ids of the slow messages. It reads ahead further than others. What was in the stream is gone.
    pub(crate) async fn host_with_a_buffer(
        &mut self,
        options: &HostOptions,
        slow: &str,
    ) -> (Host, Vec<String>) {
        self.raw.ask("DEL orders").await;
        self.published.clear();
        self.publish_all("ack", 30).await;
        let slow = self.publish_all(slow, 20).await;
        let options = options.clone().variable("TEST_READ_AHEAD_MS", "60000");
        let host = options.ready().await;
        eventually("one runs, and one waits", async || {
            let held = self.raw.pending("orders", "workers").await.into_iter();
            let held = held.filter(|held| held.consumer == host.consumer());
            let held: Vec<String> = held.map(|held| held.id).collect();
            let witness = host.witness();
            let waits = |id: &&String| held.contains(id) && witness.starts(id) == 0;
            let has_started = |id: &&String| witness.starts(id) > 0;
            slow.iter().any(|id| has_started(&id)) && slow.iter().any(|id| waits(&id))
        })
        .await;
        (host, slow)
    }

    pub(crate) async fn look(&self) -> Look {
        Look::at(&self.raw).await
    }

    /// Wait until the group has nothing to do; what is there then.
    pub(crate) async fn emptied(&self) -> Look {
        eventually("the queue is empty", async || self.look().await.is_empty()).await;
        self.look().await
    }

    /// Check that no message is lost and none is in two places, by the starts that these hosts have
    /// logged.
    pub(crate) async fn check(&self, ended: &[Ended]) -> (Look, Witness) {
        let look = self.look().await;
        let witness = Witness::of_all(ended);
        look.check(&self.published, &witness);
        (look, witness)
    }
}
