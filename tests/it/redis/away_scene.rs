//! The scene of the tests of a Redis that comes and goes: a host with a native handler, a load with a
//! known end, and the deadline of recovery.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hostler::queue::stream::{StreamOptions, StreamQueue};
use hostler::runtime::Settings;
use hostler::telemetry::health::{Cause, Health};
use hostler::telemetry::metrics::Metrics;
use hostler_tests::inprocess::{Host, Script};
use hostler_tests::redis::{PATIENCE, eventually, eventually_or};

use crate::scene::{self, connector, running, stream_options};
pub(crate) use crate::scene::{DEAD, GROUP, KEY};

/// A host recovers this soon after the cause has ended.
pub(crate) const RECOVERY: Duration = Duration::from_secs(5);

/// Settings of a host.
#[derive(Clone, Debug)]
pub(crate) struct How {
    /// The deadline of each command.
    pub(crate) deadline: Duration,
    pub(crate) min_idle: Duration,
    pub(crate) cap: Option<u32>,
}

impl Default for How {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(5),
            min_idle: Duration::from_secs(30),
            cap: None,
        }
    }
}

impl How {
    /// A host finds its own lost claims again after half of this time.
    pub(crate) fn min_idle(min_idle: Duration) -> Self {
        Self {
            min_idle,
            ..Self::default()
        }
    }
}

#[derive(Default)]
pub(crate) struct Away;

pub(crate) type Scene = scene::Scene<Away>;

impl Scene {
    pub(crate) async fn destroy_group(&self) {
        let destroy = format!("XGROUP DESTROY {KEY} {GROUP}");
        self.raw.ask(&destroy).await;
    }

    /// A host on the server itself, once it is ready.
    pub(crate) async fn host(&self, how: &How) -> Watched {
        Watched::start(&self.server.url(), how).await
    }

    /// Add `n` messages, with these bodies in turn.
    pub(crate) async fn load(&self, bodies: &[&'static str], n: usize) -> Load {
        let mut load = Load::default();
        for body in bodies.iter().cycle().take(n) {
            let id = self.raw.add(KEY, body).await;
            load.messages.insert(id, *body);
        }
        load
    }
}

/// Bodies of every kind of ending: at once, after a while, at the second attempt, later, never.
pub(crate) const MIXED: &[&str] = &[
    "ack",
    "sleep:20",
    "nack,ack",
    "sleep:20",
    "nack:30,ack",
    "drop",
    "ack",
];
/// The same without delays: no message is parked.
pub(crate) const MIXED_HERE: &[&str] =
    &["ack", "sleep:20", "nack:0,ack", "sleep:20", "drop", "ack"];

/// Messages, and their known ends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Body by id.
    pub(crate) messages: BTreeMap<String, &'static str>,
}

impl Load {
    pub(crate) fn drops(&self) -> u64 {
        self.count(|body| body == "drop")
    }

    pub(crate) fn acks(&self) -> u64 {
        self.count(|body| body != "drop")
    }

    fn count(&self, such: impl Fn(&str) -> bool) -> u64 {
        self.messages.values().filter(|body| such(body)).count() as u64
    }

    /// How many starts a message needs.
    fn starts(body: &str) -> usize {
        body.split(',').count()
    }

    /// How many starts all messages need.
    pub(crate) fn starts_of_all(&self) -> usize {
        self.messages.values().map(|body| Self::starts(body)).sum()
    }

    /// Wait until all are settled. Check that none is lost, and that none is dead-lettered twice.
    ///
    /// A server that comes back with older data has lost acknowledgements: messages then end more than once.
    pub(crate) async fn settles_at_least_once(&self, scene: &Scene, host: &Watched) {
        eventually("everything is settled", || async {
            let summary = host.metrics.summary();
            let dead: u64 = summary.dead_lettered.values().sum();
            summary.acked >= self.acks() && dead >= self.drops()
        })
        .await;
        eventually("nothing is pending", || async {
            scene.raw.pending(KEY, GROUP).await.is_empty()
        })
        .await;
        let summary = host.metrics.summary();
        assert_eq!(summary.dead_lettered.len(), usize::from(self.drops() > 0));
        assert_eq!(summary.discarded, 0);
        assert_eq!(host.metrics.trimmed_pending.get(), 0);
        self.is_dead_lettered_once(scene).await;
        let starts = host.script.starts();
        for id in self.messages.keys() {
            assert!(starts.iter().any(|(started, _)| started == id), "{id}");
        }
    }

    /// As [`Load::settles_at_least_once`], and the counters agree with the messages.
    pub(crate) async fn settles(&self, scene: &Scene, host: &Watched) {
        self.settles_at_least_once(scene, host).await;
        let summary = host.metrics.summary();
        assert_eq!(summary.acked, self.acks(), "{summary:?}");
        let dead = summary.dead_lettered.get("dropped").copied();
        assert_eq!(dead.unwrap_or_default(), self.drops(), "{summary:?}");
    }

    /// As [`Load::settles`], and no message was started more often than needed.
    pub(crate) async fn settles_without_a_repeat(&self, scene: &Scene, host: &Watched) {
        self.settles(scene, host).await;
        for (id, body) in &self.messages {
            let starts = host.script.starts_of(id);
            assert_eq!(starts, Self::starts(body), "{id} {body}");
        }
    }

    /// Each dropped message has one dead letter, and no other message has any.
    pub(crate) async fn is_dead_lettered_once(&self, scene: &Scene) {
        let copies = sources(scene).await;
        let once: BTreeSet<&String> = copies.iter().collect();
        assert_eq!(once.len(), copies.len(), "two copies of one message");
        let drops = self.messages.iter().filter(|(_, body)| **body == "drop");
        let drops: BTreeSet<&String> = drops.map(|(id, _)| id).collect();
        assert_eq!(once, drops);
    }
}

/// The ids of the messages that have a dead-letter copy, one for each copy.
pub(crate) async fn sources(scene: &Scene) -> Vec<String> {
    let entries = scene.raw.entries(DEAD).await;
    entries
        .into_iter()
        .map(|(_, fields)| {
            let field = fields
                .chunks(2)
                .find(|pair| pair[0] == b"h:x-dead-letter-source-id");
            String::from_utf8(field.unwrap()[1].clone()).unwrap()
        })
        .collect()
}

/// A host in this process, its metrics and its health.
pub(crate) struct Watched {
    host: Option<Host>,
    pub(crate) script: Arc<Script>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) health: Health,
}

impl Watched {
    /// Start one, and wait until it is ready.
    pub(crate) async fn start(url: &str, how: &How) -> Self {
        let watched = Self::starting(url, how).await;
        watched.is_ready("it has started").await;
        watched
    }

    /// Start one.
    pub(crate) async fn starting(url: &str, how: &How) -> Self {
        let connector = connector(url).with_deadline(how.deadline);
        let queue = StreamQueue::open(connector, options(how)).await.unwrap();
        let script = Arc::new(Script::default());
        let host = Host::on(Arc::new(queue), settings(how), &script);
        Self {
            script,
            metrics: Arc::clone(&host.metrics),
            health: host.health.clone(),
            host: Some(host),
        }
    }

    async fn is_ready(&self, what: &str) {
        eventually(what, async || self.health.is_ready()).await;
    }

    /// Wait until it is not ready for this cause, with this in its detail.
    pub(crate) async fn is_not_ready(&self, cause: Cause, detail: &str) {
        eventually(&format!("not ready: {cause}, {detail}"), || async {
            let standing = self.health.impediments();
            standing
                .iter()
                .any(|i| i.cause == cause && i.detail.contains(detail))
        })
        .await;
    }

    /// The cause ends now. Wait until the host is ready.
    pub(crate) async fn recovers(&self) {
        let what = || format!("the host recovers: {:?}", self.health.impediments());
        eventually_or(what, async || self.health.is_ready()).await;
    }

    /// Wait until `n` starts were made.
    pub(crate) async fn has_started(&self, n: usize) {
        eventually(&format!("{n} starts"), async || {
            self.script.starts().len() >= n
        })
        .await;
    }

    /// A counter, as it is scraped: `hostler_reconnects_total`.
    pub(crate) fn counter(&self, series: &str) -> u64 {
        let text = self.metrics.render(&self.health);
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no series {series}"))
            .parse()
            .unwrap()
    }

    /// Errors of Redis with this code.
    pub(crate) fn errors(&self, code: &str) -> u64 {
        self.counter(&format!("hostler_redis_errors_total{{code=\"{code}\"}}"))
    }

    /// Errors of Redis with any code.
    pub(crate) fn all_errors(&self) -> u64 {
        let text = self.metrics.render(&self.health);
        text.lines()
            .filter(|line| line.starts_with("hostler_redis_errors_total{"))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
            .sum()
    }

    pub(crate) fn reconnects(&self) -> u64 {
        self.counter("hostler_reconnects_total")
    }

    /// Drain it; it must end as drained.
    pub(crate) async fn drains(mut self) {
        let host = self.host.take().unwrap();
        let exit = tokio::time::timeout(PATIENCE, host.drain()).await.unwrap();
        assert_eq!(exit, hostler::runtime::Exit::Drained);
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            host.crash();
        }
    }
}

pub(crate) fn options(how: &How) -> StreamOptions {
    StreamOptions {
        consumer: "host".to_owned(),
        min_idle: how.min_idle,
        ..stream_options()
    }
}

fn settings(how: &How) -> Settings {
    let mut settings = running(how.cap);
    settings.ledger.min_idle = how.min_idle;
    settings
}
