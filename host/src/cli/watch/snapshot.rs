//! The state of a queue and its hosts at one moment.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cli::Failure;
use crate::cli::live_rules::LiveRules;
use crate::cli::named::FoundQueue;
use crate::cli::session::Session;
use crate::cli::versions::hosts_of;
use crate::dead_letter::DeadLetters;
use crate::queue::stream::PARKED_CONSUMER;
use crate::redis::connection::{Connector, Link};
use crate::registry::overview::{self, Destination, LimitSeen, QueueSeen};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;
use crate::schedule::{self, ScheduleSeen};
use crate::telemetry::wall_clock_ms;

/// What is wrong with another answer.
const NO_HOST: &str = "is not the admin server of a host";
/// How long a host has to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// The longest answer of a host.
const ANSWER_MAX: u64 = 1 << 20;
/// How often dead letters are counted by reason: counting reads all of them.
const REASONS_EVERY: Duration = Duration::from_secs(5);
/// How many hosts are asked at most.
const HOSTS_MAX: usize = 32;
/// How many recent faults are shown, of all hosts together.
const FAULTS_MAX: usize = 10;

/// The state of a queue. As JSON, one line.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct QueueSnapshot {
    /// When, in epoch milliseconds.
    pub(super) at_ms: u64,
    pub(super) key: String,
    pub(super) group: Option<String>,
    /// Unread messages; `null` = Redis does not know.
    pub(super) lag: Option<u64>,
    pub(super) pending: u64,
    pub(super) oldest_pending_ms: Option<u64>,
    pub(super) delayed: u64,
    /// Its schedules.
    pub(super) schedules: Vec<ScheduleSeen>,
    /// Messages added per second since the last snapshot; `null` = not known.
    pub(super) added_per_second: Option<f64>,
    /// Messages settled per second since the last snapshot; `null` = not known.
    pub(super) done_per_second: Option<f64>,
    /// The handlers that run, of all hosts that were asked.
    pub(super) in_flight: Option<u64>,
    /// Consumers or instances, as Redis knows them.
    pub(super) consumers: usize,
    pub(super) dead_letter_key: Option<String>,
    pub(super) dead_letters: Option<u64>,
    pub(super) dead_letter_max_len: Option<u64>,
    /// By reason; counted every few seconds.
    pub(super) dead_by_reason: BTreeMap<String, u64>,
    /// The hosts that are not ready, as they say in Redis.
    pub(super) not_ready: Vec<NotReady>,
    /// Where its handlers send requests, by rules with `adaptive`.
    pub(super) destinations: Vec<Destination>,
    /// Its limits of starts.
    pub(super) limits: Vec<LimitSeen>,
    /// The hosts that were asked.
    pub(super) hosts: Vec<HostSnapshot>,
    /// The recent faults, newest first.
    pub(super) faults: Vec<Fault>,
    /// Why this snapshot is incomplete.
    pub(super) trouble: Option<String>,
}

/// The queues that match a pattern. As JSON, one line.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QueuesSnapshot {
    /// When, in epoch milliseconds.
    pub(super) at_ms: u64,
    pub(super) pattern: String,
    pub(super) queues: Vec<QueueSeen>,
    /// Why this snapshot is incomplete.
    pub(super) trouble: Option<String>,
}

impl QueuesSnapshot {
    pub(super) async fn read(connector: &Connector, pattern: &str) -> Result<Self, Failure> {
        Ok(Self {
            at_ms: wall_clock_ms(),
            pattern: pattern.to_owned(),
            queues: overview::queues(connector, Some(pattern)).await?,
            trouble: None,
        })
    }
}

/// A host that is not ready.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct NotReady {
    /// Its name in the queue.
    pub(super) host: String,
    /// `stopped` or `not ready`.
    pub(super) state: &'static str,
    /// It, its state and the reasons, for people.
    pub(super) text: String,
}

/// The state of one host.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct HostSnapshot {
    pub(super) address: String,
    pub(super) handler: Option<String>,
    pub(super) in_flight: u64,
    pub(super) attempts: u64,
    pub(super) attempts_per_second: Option<f64>,
    /// The rules that it has read and ignores.
    pub(super) refused: Option<String>,
    /// Why it did not answer.
    pub(super) error: Option<String>,
}

/// An attempt that faulted.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Fault {
    pub(super) at_ms: u64,
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) detail: String,
}

/// The part of a host's `/status` that is used here.
#[derive(Deserialize)]
struct HostStatus {
    handler: Option<String>,
    refused: Option<String>,
    faults: Vec<Fault>,
    in_flight: u64,
    counters: Counters,
}

#[derive(Deserialize)]
struct Counters {
    attempts: u64,
}

/// The counts of the last snapshot: rates are differences to them.
#[derive(Default)]
struct LastCounts {
    at: Option<Instant>,
    added: Option<u64>,
    done: Option<u64>,
    attempts: BTreeMap<String, u64>,
}

/// Reads one snapshot after the other.
pub(super) struct SnapshotReader {
    connector: Connector,
    link: Arc<Link>,
    store: Store,
    /// Its dead-letter queue comes from the settings of this command; a policy may override it.
    found: FoundQueue,
    hosts: Vec<String>,
    last: LastCounts,
    reasons: Option<(Instant, BTreeMap<String, u64>)>,
}

impl SnapshotReader {
    pub(super) fn new(session: &Session, found: FoundQueue, mut hosts: Vec<String>) -> Self {
        hosts.truncate(HOSTS_MAX);
        Self {
            connector: session.connector.clone(),
            link: Arc::new(session.link("watch")),
            store: Store::new(session.link("hosts"), found.queue.name()),
            found,
            hosts,
            last: LastCounts::default(),
            reasons: None,
        }
    }

    pub(super) async fn read(&mut self) -> Result<QueueSnapshot, Failure> {
        let now = Instant::now();
        let policies = self.connector.link("policies");
        let queue = &self.found.queue;
        let told = hosts_of(&self.store, queue.group()).await;
        let rules = LiveRules::read(policies, &self.found, &told).await;
        let dead_letter = rules.dead_letter;
        let key = dead_letter.as_ref().map(|d| &*d.key);
        let seen = queue.place().look(&self.link, key).await?;
        let seen = seen.unwrap_or_default();
        let hosts = seen.consumers.iter().filter(|c| c.name != PARKED_CONSUMER);
        let mut snapshot = QueueSnapshot {
            at_ms: wall_clock_ms(),
            key: queue.name().to_string(),
            group: queue.group().map(str::to_owned),
            lag: seen.lag,
            pending: seen.pending,
            oldest_pending_ms: seen.oldest_pending_ms,
            delayed: seen.delayed,
            schedules: self.schedules().await,
            consumers: hosts.count(),
            dead_letter_key: key.map(str::to_owned),
            dead_letters: seen.dead_letters,
            dead_letter_max_len: dead_letter.as_ref().map(|d| d.max_len.get()),
            not_ready: told.iter().filter_map(not_ready).collect(),
            destinations: Destination::of(&told),
            limits: overview::limits(&self.link, &told).await,
            ..QueueSnapshot::default()
        };
        // How many messages were ever added and settled, as far as that is known.
        let added = seen.read.zip(seen.lag).map(|(read, lag)| read + lag);
        let done = seen.read.map(|read| read.saturating_sub(seen.pending));
        let since = self.last.at.replace(now);
        let seconds = since.map(|since| now.duration_since(since).as_secs_f64());
        snapshot.added_per_second = rate(self.last.added, added, seconds);
        snapshot.done_per_second = rate(self.last.done, done, seconds);
        (self.last.added, self.last.done) = (added, done);
        self.count_reasons(&mut snapshot).await;
        self.ask_hosts(&mut snapshot, seconds).await;
        Ok(snapshot)
    }

    /// They are shown where the user may read them.
    async fn schedules(&self) -> Vec<ScheduleSeen> {
        if self.found.queue.is_at_most_once() {
            return Vec::new();
        }
        let store = schedule::Store::new(Arc::clone(&self.link), self.found.queue.name());
        schedule::seen(&store).await.unwrap_or_default()
    }

    async fn count_reasons(&mut self, snapshot: &mut QueueSnapshot) {
        let Some(key) = snapshot.dead_letter_key.clone() else {
            return;
        };
        let is_fresh = |(at, _): &(Instant, _)| at.elapsed() < REASONS_EVERY;
        if !self.reasons.as_ref().is_some_and(is_fresh) {
            match DeadLetters::new(&self.connector, key).peek(0).await {
                Ok(peek) => self.reasons = Some((Instant::now(), peek.by_reason)),
                Err(error) => snapshot.trouble = Some(error.to_string()),
            }
        }
        if let Some((_, reasons)) = &self.reasons {
            snapshot.dead_by_reason.clone_from(reasons);
        }
    }

    async fn ask_hosts(&mut self, snapshot: &mut QueueSnapshot, seconds: Option<f64>) {
        let asked = self.hosts.iter().map(|address| host_status(address));
        let answers = futures_util::future::join_all(asked).await;
        for (address, answer) in self.hosts.iter().zip(answers) {
            let mut host = HostSnapshot {
                address: address.clone(),
                ..HostSnapshot::default()
            };
            match answer {
                Ok(status) => {
                    host.handler = status.handler;
                    host.refused = status.refused;
                    host.in_flight = status.in_flight;
                    host.attempts = status.counters.attempts;
                    let last = self.last.attempts.insert(address.clone(), host.attempts);
                    host.attempts_per_second = rate(last, Some(host.attempts), seconds);
                    *snapshot.in_flight.get_or_insert(0) += host.in_flight;
                    snapshot.faults.extend(status.faults);
                }
                Err(error) => host.error = Some(error),
            }
            snapshot.hosts.push(host);
        }
        let newest_first = |fault: &Fault| std::cmp::Reverse(fault.at_ms);
        snapshot.faults.sort_by_key(newest_first);
        snapshot.faults.truncate(FAULTS_MAX);
    }
}

fn not_ready(host: &HostSeen) -> Option<NotReady> {
    Some(NotReady {
        host: host.consumer.clone(),
        state: host.state(),
        text: host.trouble()?,
    })
}

/// The increase per second; `None` where the count went down: it was reset.
fn rate(last: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let more = now?.checked_sub(last?)?;
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    Some((more as f64 / seconds * 10.0).round() / 10.0)
}

async fn host_status(address: &str) -> Result<HostStatus, String> {
    match timeout(ANSWER_WITHIN, get(address, "/status")).await {
        Ok(answer) => {
            let body = answer.map_err(|error| error.to_string())?;
            serde_json::from_slice(&body).map_err(|_| NO_HOST.to_owned())
        }
        Err(_) => Err(format!("no answer within {} s", ANSWER_WITHIN.as_secs())),
    }
}

/// The body of a page of an admin server.
async fn get(address: &str, path: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_MAX).read_to_end(&mut answer).await?;
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let head_ok = answer.starts_with(b"HTTP/1.1 200 ");
    match end.filter(|_| head_ok) {
        Some(end) => Ok(answer.split_off(end + 4)),
        None => Err(std::io::Error::other(NO_HOST)),
    }
}
