//! One look at a queue and its hosts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::cli::connect::Passing;
use crate::cli::exit::Failure;
use crate::cli::flags::Sources;
use crate::cli::inspect::Ruled;
use crate::config::{DeadLetter, QueueKind};
use crate::dead_letter::DeadLetters;
use crate::queue::inspect::Report;
use crate::queue::stream::PARKED_CONSUMER;
use crate::redis::connection::{Connector, Link};
use crate::telemetry::wall_clock_ms;

/// How long a host has to answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest answer of a host.
const ANSWER_MAX: u64 = 1 << 20;
/// Counting dead letters by reason goes through all of them: no oftener than that.
const REASONS_EVERY: Duration = Duration::from_secs(5);
/// How many hosts are asked at most.
pub(super) const HOSTS_MAX: usize = 32;
/// The faults of late that are shown, of all hosts.
const FAULTS_MAX: usize = 10;

/// What there was to see. As JSON: one line.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Look {
    /// When, in epoch milliseconds.
    pub(super) at_ms: u64,
    pub(super) key: String,
    pub(super) group: Option<String>,
    /// What nobody has read; `null` = Redis does not know.
    pub(super) lag: Option<u64>,
    pub(super) pending: u64,
    pub(super) oldest_pending_ms: Option<u64>,
    pub(super) delayed: u64,
    /// Messages per second since the last look: added, and off the queue for good; `null` = not
    /// known.
    pub(super) added_per_second: Option<f64>,
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
    /// The hosts that were asked.
    pub(super) hosts: Vec<Host>,
    /// The faults of late, newest first.
    pub(super) faults: Vec<Fault>,
    /// Why this look is not whole.
    pub(super) trouble: Option<String>,
}

/// What a host says of itself.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Host {
    pub(super) address: String,
    pub(super) handler: Option<String>,
    pub(super) in_flight: u64,
    pub(super) attempts: u64,
    pub(super) attempts_per_second: Option<f64>,
    /// Rules that it has read and does not go by.
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

/// What we read of `/status`.
#[derive(Deserialize)]
struct Status {
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

/// What the next look is compared with.
#[derive(Default)]
struct Before {
    at: Option<Instant>,
    added: Option<u64>,
    done: Option<u64>,
    attempts: BTreeMap<String, u64>,
}

pub(super) struct Gatherer {
    connector: Connector,
    link: Link,
    sources: Sources,
    queue: QueueKind,
    /// As this command was told; a policy may know better.
    told: Option<DeadLetter>,
    hosts: Vec<String>,
    before: Before,
    reasons: Option<(Instant, BTreeMap<String, u64>)>,
}

impl Gatherer {
    pub(super) fn new(
        connector: &Connector,
        sources: Sources,
        queue: QueueKind,
        told: Option<DeadLetter>,
        mut hosts: Vec<String>,
    ) -> Self {
        hosts.truncate(HOSTS_MAX);
        Self {
            connector: connector.clone(),
            link: connector.link("watch"),
            sources,
            queue,
            told,
            hosts,
            before: Before::default(),
            reasons: None,
        }
    }

    pub(super) async fn look(&mut self) -> Result<Look, Failure> {
        let now = Instant::now();
        let policies = self.connector.link("policies");
        let ruled = Ruled::look(policies, &self.sources, &self.queue, self.told.clone()).await;
        let dead_letter = ruled.dead_letter;
        let key = dead_letter.as_ref().map(|d| &*d.key);
        let seen = self.queue.place().look(&self.link, key).await;
        let seen = seen.map_err(|error| error.failure())?.unwrap_or_default();
        let mut look = Look {
            at_ms: wall_clock_ms(),
            key: self.queue.name().to_string(),
            group: self.queue.group().map(str::to_owned),
            dead_letter_key: key.map(str::to_owned),
            dead_letter_max_len: dead_letter.as_ref().map(|d| d.max_len.get()),
            ..Look::default()
        };
        let (added, done) = depths(&mut look, &seen);
        let since = self.before.at.replace(now);
        let seconds = since.map(|since| now.duration_since(since).as_secs_f64());
        look.added_per_second = rate(self.before.added, added, seconds);
        look.done_per_second = rate(self.before.done, done, seconds);
        (self.before.added, self.before.done) = (added, done);
        self.count_reasons(&mut look).await;
        self.ask_hosts(&mut look, seconds).await;
        Ok(look)
    }

    async fn count_reasons(&mut self, look: &mut Look) {
        let Some(key) = look.dead_letter_key.clone() else {
            return;
        };
        let is_known = |(at, _): &(Instant, _)| at.elapsed() < REASONS_EVERY;
        if !self.reasons.as_ref().is_some_and(is_known) {
            match DeadLetters::new(&self.connector, key).peek(0).await {
                Ok(peek) => self.reasons = Some((Instant::now(), peek.by_reason)),
                Err(error) => look.trouble = Some(error.to_string()),
            }
        }
        if let Some((_, reasons)) = &self.reasons {
            look.dead_by_reason.clone_from(reasons);
        }
    }

    async fn ask_hosts(&mut self, look: &mut Look, seconds: Option<f64>) {
        let asked = self.hosts.iter().map(|address| status(address));
        let answers = futures_util::future::join_all(asked).await;
        for (address, answer) in self.hosts.iter().zip(answers) {
            let mut host = Host {
                address: address.clone(),
                ..Host::default()
            };
            match answer {
                Ok(status) => {
                    host.handler = status.handler;
                    host.refused = status.refused;
                    host.in_flight = status.in_flight;
                    host.attempts = status.counters.attempts;
                    let before = self.before.attempts.insert(address.clone(), host.attempts);
                    host.attempts_per_second = rate(before, Some(host.attempts), seconds);
                    *look.in_flight.get_or_insert(0) += host.in_flight;
                    look.faults.extend(status.faults);
                }
                Err(error) => host.error = Some(error),
            }
            look.hosts.push(host);
        }
        look.faults
            .sort_by_key(|fault| std::cmp::Reverse(fault.at_ms));
        look.faults.truncate(FAULTS_MAX);
    }
}

/// Fill in what waits; how many messages were ever added and done, as far as it is known.
fn depths(look: &mut Look, seen: &Report) -> (Option<u64>, Option<u64>) {
    look.lag = seen.lag;
    look.pending = seen.pending;
    look.oldest_pending_ms = seen.oldest_pending_ms;
    look.delayed = seen.delayed;
    look.dead_letters = seen.dead_letters;
    let hosts = seen.consumers.iter().filter(|c| c.name != PARKED_CONSUMER);
    look.consumers = hosts.count();
    let added = seen.read.zip(seen.lag).map(|(read, lag)| read + lag);
    let done = seen.read.map(|read| read.saturating_sub(seen.pending));
    (added, done)
}

/// What was counted in a second; a count that went down began anew.
fn rate(before: Option<u64>, now: Option<u64>, seconds: Option<f64>) -> Option<f64> {
    let more = now?.checked_sub(before?)?;
    let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
    Some((more as f64 / seconds * 10.0).round() / 10.0)
}

async fn status(address: &str) -> Result<Status, String> {
    let address = address.strip_prefix("http://").unwrap_or(address);
    let address = address.trim_end_matches('/');
    match timeout(PATIENCE, get(address, "/status")).await {
        Ok(answer) => {
            let body = answer.map_err(|error| error.to_string())?;
            serde_json::from_slice(&body).map_err(|_| "is no admin server of a host".to_owned())
        }
        Err(_) => Err(format!("no answer within {} s", PATIENCE.as_secs())),
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
        None => Err(std::io::Error::other("is no admin server of a host")),
    }
}
