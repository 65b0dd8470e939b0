//! A queue with schedules. No test waits for a tick: tests set the next one back.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use hostler::publish::{Codec, Destination, List, Stream};
use hostler::redis::Error;
use hostler::redis::connection::Connector;
use hostler::schedule::{Defined, Definition, Keeper, OfFile, ScheduleSeen, Store, seen};
use hostler::telemetry::metrics::Metrics;
use hostler::wire::list::{self, Framing};
use hostler_tests::redis::RedisOptions;

use crate::scene::{self, Kind};

/// A day, in milliseconds.
pub(crate) const DAY: i64 = 86_400_000;
/// Once a day.
pub(crate) const DAILY: &str = "30 2 * * *";
/// A time that does not come while a test runs.
pub(crate) const YEARLY: &str = "0 0 1 1 *";
/// The source of most definitions.
pub(crate) const FILE: &str = "orders.toml";

pub(crate) type Scene = scene::Scene<Place>;

/// Where the messages go.
pub(crate) struct Place {
    pub(crate) to: Destination,
}

/// A host, as far as it publishes ticks.
pub(crate) struct Host {
    pub(crate) keeper: Keeper,
    pub(crate) metrics: Arc<Metrics>,
}

impl Host {
    /// Look until nothing is due.
    pub(crate) async fn settle(&mut self) -> Result<Duration, Error> {
        loop {
            let wait = self.keeper.round().await?;
            if !wait.is_zero() {
                return Ok(wait);
            }
        }
    }
}

impl Scene {
    pub(crate) async fn on(kind: Kind) -> Self {
        Self::to(match kind {
            Kind::Stream => Stream::new("orders").into(),
            Kind::List => List::new("jobs").reliable().into(),
        })
        .await
    }

    pub(crate) async fn to(to: Destination) -> Self {
        Self::of(Place { to }, RedisOptions::default()).await
    }

    pub(crate) fn queue(&self) -> &str {
        self.to.name()
    }

    pub(crate) fn store(&self) -> Store {
        self.store_at(&self.connector())
    }

    pub(crate) fn store_at(&self, connector: &Connector) -> Store {
        let link = connector.link("schedules").of(self.queue());
        Store::new(Arc::new(link), self.queue())
    }

    /// A host whose file has no schedules.
    pub(crate) fn host(&self) -> Host {
        self.host_at(&self.connector(), None)
    }

    /// A host that starts with this file.
    pub(crate) fn starting(&self, source: &str, defined: &[Defined]) -> Host {
        let file = OfFile {
            source: source.to_owned(),
            defined: defined.to_vec(),
        };
        self.host_at(&self.connector(), Some(file))
    }

    pub(crate) fn host_at(&self, connector: &Connector, file: Option<OfFile>) -> Host {
        let link = connector.link("schedules").of(self.queue());
        let metrics = Arc::new(Metrics::default());
        let to = self.to.clone();
        let keeper = Keeper::new(Arc::new(link), to, file, Arc::clone(&metrics));
        Host { keeper, metrics }
    }

    /// Write the definitions of [`FILE`].
    pub(crate) async fn define(&self, defined: &[Defined]) {
        let written = self.store().define(FILE, defined).await.unwrap();
        assert!(!written.is_full && written.taken.is_empty(), "{written:?}");
    }

    fn tag(&self) -> String {
        match self.queue().contains('{') {
            true => self.queue().to_owned(),
            false => format!("{{{}}}", self.queue()),
        }
    }

    pub(crate) fn hash(&self) -> String {
        format!("{}:schedules", self.tag())
    }

    pub(crate) fn ticks(&self) -> String {
        format!("{}:ticks", self.tag())
    }

    /// The next tick of a schedule.
    pub(crate) async fn next(&self, name: &str) -> Option<i64> {
        let score = format!("ZSCORE {} {name}", self.ticks());
        let score = redis::from_redis_value::<Option<String>>(self.raw.ask(&score).await);
        score.unwrap().map(|text| text.parse().unwrap())
    }

    pub(crate) async fn set_next(&self, name: &str, tick: i64) {
        let set = format!("ZADD {} {tick} {name}", self.ticks());
        self.raw.ask(&set).await;
    }

    /// Set the next tick back.
    pub(crate) async fn back(&self, name: &str, ms: i64) {
        let next = self.next(name).await.unwrap();
        self.set_next(name, next - ms).await;
    }

    /// Let a schedule be due now. Returns the tick.
    pub(crate) async fn due(&self, name: &str) -> i64 {
        let tick = self.now_ms().await / 1000 * 1000;
        self.set_next(name, tick).await;
        tick
    }

    /// The messages, the oldest first: their ids and bodies.
    pub(crate) async fn messages(&self) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        match &self.to {
            Destination::List(to) => {
                let mut values = self.list(&to.key).await;
                values.reverse();
                let framing = match to.codec {
                    Codec::Json => Framing::Json,
                    Codec::Frame | Codec::Raw => Framing::Auto,
                };
                let message = |value: Vec<u8>| {
                    let (headers, body) = list::parts(&Bytes::from(value), framing).unwrap();
                    let id = headers.find_str("x-message-id").unwrap_or_default();
                    (id.to_owned(), text(&body))
                };
                values.into_iter().map(message).collect()
            }
            to => {
                let entries = self.raw.entries(to.name()).await;
                let entries = entries.into_iter().map(|(_, fields)| {
                    let find = |name: &str| {
                        let mut pairs = fields.chunks(2);
                        let pair = pairs.find(|pair| pair[0] == name.as_bytes());
                        pair.map(|pair| text(&pair[1])).unwrap_or_default()
                    };
                    (find("h:x-message-id"), find("_payload"))
                });
                entries.collect()
            }
        }
    }

    pub(crate) async fn ids(&self) -> Vec<String> {
        let messages = self.messages().await.into_iter();
        messages.map(|(id, _)| id).collect()
    }

    pub(crate) async fn seen(&self, name: &str) -> Option<ScheduleSeen> {
        let all = seen(&self.store()).await.unwrap();
        all.into_iter().find(|one| one.name == name)
    }

    pub(crate) async fn names(&self) -> Vec<String> {
        let all = seen(&self.store()).await.unwrap().into_iter();
        all.map(|one| one.name).collect()
    }
}

/// All hosts look at the same time, until nothing is due.
pub(crate) async fn all_settle(hosts: &mut [Host]) {
    for done in join_all(hosts.iter_mut().map(Host::settle)).await {
        done.unwrap();
    }
}

/// A schedule of [`FILE`] with its name as the body.
pub(crate) fn defined(name: &str, cron: &str) -> Defined {
    defined_as(name, cron, |_| ())
}

pub(crate) fn defined_as(name: &str, cron: &str, change: impl FnOnce(&mut Definition)) -> Defined {
    let mut definition = Definition {
        cron: cron.to_owned(),
        zone: "UTC".to_owned(),
        catch_up: "last".to_owned(),
        ..Definition::default()
    };
    change(&mut definition);
    Defined::new(name, definition, Bytes::from(name.to_owned()), FILE)
}
