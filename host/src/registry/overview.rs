//! What queues hold, which hosts serve them, and what stops them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::{StreamExt, stream};
use serde::Serialize;

use crate::delivery::declared::declared;
use crate::queue::inspect::{self, Report};
use crate::queue::limits::WAITING_MAX;
use crate::queue::limits::seen::{self, LimitNow};
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::registry::{DEAD_LETTER, Listed, ListedKind, matching};
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;
use crate::schedule::{self, ScheduleSeen};
use crate::telemetry::limited::LimitShown;
use crate::telemetry::rules::DestinationSeen;

/// How many queues are read at a time.
const AT_A_TIME: usize = 32;
/// The most limits of a queue that are read.
const LIMITS_MAX: usize = 32;

declared! {
    /// What the hosts of a queue do.
    #[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum State (/// The word for it.
                    label -> &'static str) {
        /// No host says that it serves the queue.
        Unserved = "no hosts",
        /// A host runs no handler until an operator repairs it: its breaker is open, or no instance can be
        /// made.
        Stopped = "stopped",
        /// A host is not ready for another reason.
        NotReady = "not ready",
        /// The operator has paused the queue.
        Paused = "paused",
        /// A host has refused or given up a version of the handler; the version before serves.
        Refused = "version refused",
        /// All is well.
        Serving = "serving",
    }
}

impl State {
    /// What these hosts do: the worst of them counts. The reasons are for people.
    pub fn of(hosts: &[HostSeen]) -> (Self, Vec<String>) {
        let mut state = match hosts.is_empty() {
            true => Self::Unserved,
            false => Self::Serving,
        };
        let mut why = Vec::new();
        for host in hosts {
            let name = &host.consumer;
            let own = match (host.state(), &host.handler.refused) {
                ("stopped", _) => Self::Stopped,
                ("ready", _) if host.paused => Self::Paused,
                ("ready", Some(_)) => Self::Refused,
                ("ready", None) => Self::Serving,
                _ => Self::NotReady,
            };
            state = state.min(own);
            why.extend(host.trouble());
            if let Some(refused) = &host.handler.refused {
                why.push(format!(
                    "{name} refused {} at `{}`: {}",
                    refused.origin, refused.step, refused.reason
                ));
            }
            if let Some(refused) = &host.rules_refused {
                why.push(format!("{name} ignores new rules: {refused}"));
            }
        }
        (state, why)
    }
}

/// A destination of a rule with `adaptive`, over all hosts of a queue.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Destination {
    /// The sums over all hosts. It is closed for as long as on the host that closed it first.
    #[serde(flatten)]
    pub seen: DestinationSeen,
    /// The hosts that know it.
    pub hosts: u64,
    /// Those on which it is closed.
    pub closed_on: u64,
}

impl Destination {
    /// The destinations of these hosts.
    pub fn of(hosts: &[HostSeen]) -> Vec<Self> {
        let mut all = BTreeMap::<_, Self>::new();
        for seen in hosts.iter().flat_map(|host| &host.destinations) {
            let one = all.entry((&seen.rule, &seen.destination)).or_default();
            one.hosts += 1;
            one.closed_on += u64::from(seen.closed_ms.is_some());
            one.seen = DestinationSeen {
                rule: seen.rule.clone(),
                destination: seen.destination.clone(),
                in_flight: one.seen.in_flight + seen.in_flight,
                allowed: one.seen.allowed + seen.allowed,
                waiting: one.seen.waiting + seen.waiting,
                closed_ms: one.seen.closed_ms.max(seen.closed_ms),
                why: one.seen.why.take().or_else(|| seen.why.clone()),
            };
        }
        all.into_values().collect()
    }

    /// What is wrong with it, for people.
    pub fn trouble(&self) -> Option<String> {
        let seconds = self.seen.closed_ms? / 1000;
        let (closed, hosts) = (self.closed_on, self.hosts);
        let (name, why) = (&self.seen.destination, self.seen.why.as_deref());
        let why = why.unwrap_or_default();
        Some(format!(
            "{name} is closed on {closed} of {hosts} hosts, for {seconds} s: {why}"
        ))
    }
}

/// A limit of starts, over all hosts of a queue.
#[derive(Clone, Debug, Serialize)]
pub struct LimitSeen {
    /// What it allows.
    #[serde(flatten)]
    pub limit: LimitShown,
    /// How it is; `None` = it has a state for each key, or the user may not read it.
    pub now: Option<LimitNow>,
    /// For how long messages have had to wait for it, on the host where that is longest.
    pub limited_seconds: Option<u64>,
    /// The key that stops the queue: too many messages wait to let others pass.
    pub key: Option<String>,
}

impl LimitSeen {
    /// What is wrong, for people.
    pub fn trouble(&self) -> Option<String> {
        let (name, key) = (&self.limit.name, self.key.as_ref()?);
        Some(format!(
            "limit {name} stops the queue at key {key}: {WAITING_MAX} messages wait"
        ))
    }

    /// How it is, for people.
    pub fn state(&self) -> String {
        let waits = self.limited_seconds.map(|seconds| {
            let since = format!("messages wait since {seconds} s");
            match &self.key {
                Some(key) => format!("{since}, stopped at key {key}"),
                None => since,
            }
        });
        let now = self.now.map(|now| now.to_string());
        let all: Vec<_> = now.into_iter().chain(waits).collect();
        all.join("; ")
    }
}

/// The limits of these hosts, as they are now.
pub async fn limits(link: &Link, hosts: &[HostSeen]) -> Vec<LimitSeen> {
    let mut all = BTreeMap::new();
    for limit in hosts.iter().flat_map(|host| &host.limits) {
        all.entry(&limit.name).or_insert(limit);
    }
    let mut seen = Vec::new();
    for limit in all.into_values().take(LIMITS_MAX) {
        let pace = seen::pace(limit.rate.as_deref(), limit.burst);
        // It is shown where the user may read it.
        let now = match pace.filter(|_| limit.by.is_none()) {
            Some(pace) => seen::now(link, &limit.name, pace).await.ok(),
            None if limit.concurrency.is_some() => seen::running(link, &limit.name).await.ok(),
            None => None,
        };
        let limited = hosts.iter().flat_map(|host| &host.limited);
        let limited: Vec<_> = limited.filter(|one| one.limit == limit.name).collect();
        seen.push(LimitSeen {
            limit: limit.clone(),
            now,
            limited_seconds: limited.iter().map(|one| one.seconds).max(),
            key: limited.iter().find_map(|one| one.key.clone()),
        });
    }
    seen
}

/// A queue, and its hosts.
#[derive(Clone, Debug, Serialize)]
pub struct QueueSeen {
    /// The key, or the channel.
    pub queue: String,
    /// The word for its kind.
    pub kind: &'static str,
    /// The consumer group of a stream.
    pub group: Option<String>,
    /// What its hosts do.
    pub state: State,
    /// What stops it, for people.
    pub trouble: Vec<String>,
    /// The hosts that serve it.
    pub hosts: usize,
    /// Unread messages; `None` = Redis does not know.
    pub lag: Option<u64>,
    /// Deliveries that hosts hold, parked ones included.
    pub pending: u64,
    /// For how long the oldest of them has been in the queue, in milliseconds.
    pub oldest_pending_ms: Option<u64>,
    /// Messages that wait for their time.
    pub delayed: u64,
    /// Messages that have a journal.
    pub journals: u64,
    /// Messages that their handler has held, and that are not settled.
    pub on_hold: Option<u64>,
    /// Its schedules.
    pub schedules: Vec<ScheduleSeen>,
    /// Where its handlers send requests, by rules with `adaptive`.
    pub destinations: Vec<Destination>,
    /// Its limits of starts.
    pub limits: Vec<LimitSeen>,
    /// Attempts that ended in a second lately, on all hosts.
    pub attempts_per_second: Option<f64>,
    /// Attempts that run now.
    pub in_flight: u64,
    /// How long attempts took lately, in milliseconds: the slowest host's average.
    pub run_ms: Option<f64>,
    /// What 99 of 100 attempts lately did not exceed, in milliseconds: that of the slowest host.
    pub run_p99_ms: Option<f64>,
    /// Where dead letters go.
    pub dead_letter_key: Option<String>,
    /// How many there are.
    pub dead_letters: Option<u64>,
    /// When a host last served it, in epoch milliseconds; 0 = it is not listed.
    pub seen_ms: u64,
    /// Why this is incomplete.
    pub problem: Option<String>,
}

/// The listed queues whose names match a pattern (`*` any text, `?` any character), each as it is now.
pub async fn queues(connector: &Connector, pattern: Option<&str>) -> Result<Vec<QueueSeen>, Error> {
    let link = Arc::new(connector.link("queues"));
    let queues = matching(&link, pattern.unwrap_or("*")).await?;
    let looks = queues.into_iter().map(|queue| {
        let link = Arc::clone(&link);
        async move { look(&link, &queue).await.0 }
    });
    let seen = stream::iter(looks).buffered(AT_A_TIME);
    Ok(seen.collect().await)
}

/// One queue as it is now, with its hosts. A queue that cannot be read is left out, and reported.
pub async fn look(link: &Arc<Link>, queue: &Listed) -> (QueueSeen, Vec<HostSeen>, Report) {
    let store = Store::sharing(Arc::clone(link), &queue.queue);
    let mut problem = None;
    let mut hosts = match store.hosts().await {
        Ok(texts) => HostSeen::parse_all(&texts),
        Err(error) => {
            problem = Some(error.to_string());
            Vec::new()
        }
    };
    hosts.retain(|host| host.group == queue.group);
    let rules = hosts.iter().flat_map(|host| &host.rules);
    let told = rules.filter(|rule| rule.setting == DEAD_LETTER);
    let dead_letter = told
        .filter_map(|rule| rule.value.clone())
        .next()
        .or_else(|| queue.dead_letter.clone());
    let report = match queue.place().look(link, dead_letter.as_deref()).await {
        Ok(report) => report.unwrap_or_default(),
        Err(error) => {
            problem = Some(error.to_string());
            // A stream that is gone may leave dead letters behind.
            Report {
                dead_letters: length(link, dead_letter.as_deref(), queue.group.is_some()).await,
                ..Report::default()
            }
        }
    };
    let schedules = match queue.kind {
        ListedKind::Stream | ListedKind::List => {
            let store = schedule::Store::new(Arc::clone(link), &queue.queue);
            // They are shown where the user may read them.
            schedule::seen(&store).await.unwrap_or_default()
        }
        ListedKind::SimpleList | ListedKind::Channel => Vec::new(),
    };
    let (state, mut trouble) = State::of(&hosts);
    for one in &schedules {
        let problem = one.problem.iter();
        trouble.extend(problem.map(|why| format!("schedule {}: {why}", one.name)));
    }
    let destinations = Destination::of(&hosts);
    trouble.extend(destinations.iter().filter_map(Destination::trouble));
    let limits = limits(link, &hosts).await;
    trouble.extend(limits.iter().filter_map(LimitSeen::trouble));
    let rates = hosts.iter().filter_map(|host| host.attempts_per_second);
    let seen = QueueSeen {
        queue: queue.queue.clone(),
        kind: queue.kind.label(),
        group: queue.group.clone(),
        state,
        trouble,
        hosts: hosts.len(),
        lag: report.lag,
        pending: report.pending,
        oldest_pending_ms: report.oldest_pending_ms,
        delayed: report.delayed,
        journals: report.journals,
        on_hold: report.on_hold,
        schedules,
        destinations,
        limits,
        attempts_per_second: rates.reduce(|a, b| a + b),
        in_flight: hosts.iter().map(|host| host.in_flight).sum(),
        run_ms: hosts.iter().filter_map(|host| host.run_ms).reduce(f64::max),
        run_p99_ms: (hosts.iter().filter_map(|host| host.run_p99_ms)).reduce(f64::max),
        dead_letter_key: dead_letter,
        dead_letters: report.dead_letters,
        seen_ms: queue.seen_ms,
        problem,
    };
    (seen, hosts, report)
}

async fn length(link: &Link, key: Option<&str>, is_stream: bool) -> Option<u64> {
    let keys: Vec<String> = key.map(str::to_owned).into_iter().collect();
    let lengths = inspect::lengths(link, &keys, is_stream).await.ok()?;
    lengths.first().copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::versions::{RefusedSeen, VersionsSeen};

    fn host(not_ready: &[&str], paused: bool, refused: bool) -> HostSeen {
        let refused = refused.then(|| RefusedSeen {
            digest: "sha256:1".to_owned(),
            origin: "deploy 3".to_owned(),
            step: "imports".to_owned(),
            reason: "it imports what is not granted".to_owned(),
            at_ms: 1,
        });
        let handler = VersionsSeen {
            refused,
            ..VersionsSeen::default()
        };
        let host = serde_json::json!({
            "consumer": "web-1", "group": null, "hostler": "1.0.0", "at_ms": 0,
            "accepts_deploys": false, "not_ready": not_ready, "paused": paused,
            "handler": handler,
        });
        serde_json::from_value(host).unwrap()
    }

    #[test]
    fn a_destination_is_shown_once_for_all_hosts() {
        let hosts = [None, Some(3_000), Some(7_500)].map(|closed_ms| HostSeen {
            destinations: vec![DestinationSeen {
                rule: "api".to_owned(),
                destination: "api.test".to_owned(),
                allowed: if closed_ms.is_some() { 0 } else { 20 },
                closed_ms,
                why: closed_ms.map(|_| "status 503".to_owned()),
                ..DestinationSeen::default()
            }],
            ..host(&[], false, false)
        });
        let all = Destination::of(&hosts);
        let [one] = &all[..] else {
            panic!("{all:?}");
        };
        assert_eq!((one.hosts, one.closed_on, one.seen.allowed), (3, 2, 20));
        assert_eq!(
            one.trouble().unwrap(),
            "api.test is closed on 2 of 3 hosts, for 7 s: status 503"
        );
        assert_eq!(Destination::of(&hosts[..1])[0].trouble(), None);
    }

    #[test]
    fn the_worst_host_decides_the_state_of_a_queue() {
        let serving = || host(&[], false, false);
        for (others, state, reasons) in [
            (vec![], State::Serving, 0),
            (vec![host(&[], false, true)], State::Refused, 1),
            (vec![host(&[], true, false)], State::Paused, 0),
            (
                vec![host(&["redis-away: x"], true, true)],
                State::NotReady,
                2,
            ),
            (
                vec![
                    host(&["handler: it faults on everything"], false, false),
                    host(&["redis-away: x"], true, false),
                ],
                State::Stopped,
                2,
            ),
        ] {
            let mut hosts = others;
            hosts.push(serving());
            let (found, why) = State::of(&hosts);
            assert_eq!((found, why.len()), (state, reasons), "{why:?}");
        }
        assert_eq!(State::of(&[]).0, State::Unserved);
    }
}
