//! Connects a host with the versions stored beside its queue. A host that accepts deploys follows the
//! requested version and records its verdicts. Every host publishes the versions that it runs.
//!
//! No message waits for any of this. While Redis is away, only news is delayed. If a host crashes
//! between a verdict and its record, the version has no verdict from it.
//!
//! A host begins where the fleet is: with the version that most hosts of the queue run, or, if there is
//! no other host, with the version that hosts kept last. From there it goes to the requested version, as
//! the others do.
//!
//! The requested version is a state, not a sequence of steps. A host polls it, and may miss any number
//! of requests: the last one alone decides.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxBuildHasher;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::redis::{Class, Error};
use crate::rollout::request::VersionRequest;
use crate::rollout::store::{Action, Fetched, Requested, Store, Stored};
use crate::rollout::verify::Step;
use crate::rollout::versions::{Kept, Origin, Rejected, Version, Versions};
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::histogram::Durations;
use crate::telemetry::limited::{LimitShown, LimitedSeen};
use crate::telemetry::rules::DestinationSeen;
use crate::telemetry::status::{ActiveRule, Status};
use crate::telemetry::versions::VersionsSeen;
use crate::telemetry::wall_clock_ms;

/// The time between two polls of the requested version.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// A host whose Redis answers notices a deploy within this time: one poll may come just before the
/// deploy, and the next one may take as long again.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(2 * POLL_EVERY.as_millis() < NOTICED_WITHIN.as_millis());
/// The time between two publications of a host's state, and the time until one expires.
const PUBLISH_EVERY: Duration = Duration::from_secs(5);
const PUBLISH_TTL: Duration = Duration::from_secs(15);
/// A rate is measured over this time at least.
const RATE_OVER: Duration = Duration::from_secs(2);
/// The most destinations, and limits, that are published.
const DESTINATIONS_MAX: usize = 16;
const LIMITS_MAX: usize = 32;
/// Changes within this time are published together.
const PUBLISH_PAUSE: Duration = Duration::from_millis(100);

/// Follows the requested version.
#[derive(Debug)]
pub struct Follower {
    store: Arc<Store>,
    versions: Arc<Versions>,
    /// The largest component that is fetched, in bytes.
    max: u64,
    /// The least duration of a canary's trial; `None` = no canaries.
    trial: Option<Duration>,
    /// The last request that was passed on.
    last: Option<Requested>,
    health: Health,
}

impl Follower {
    /// Follow the requested version of this queue. `max` is the largest component in bytes. `trial` is the
    /// least duration of a canary's trial; `None` = no canaries.
    pub fn new(
        store: Arc<Store>,
        versions: Arc<Versions>,
        max: u64,
        trial: Option<Duration>,
        health: Health,
    ) -> Self {
        Self {
            store,
            versions,
            max,
            trial,
            last: None,
            health,
        }
    }

    /// The requests at the start of a host, before its first message. It waits until Redis says which version is
    /// deployed: an older one must not handle messages meanwhile.
    pub async fn begin(&mut self) -> Vec<VersionRequest> {
        loop {
            match self.initial_requests().await {
                Ok(requests) => {
                    self.is_readable();
                    return requests;
                }
                Err(error) => self.is_unreadable(&error, "no message is read until it can be"),
            }
            sleep(POLL_EVERY).await;
        }
    }

    fn is_readable(&self) {
        if self.health.clear(Cause::VersionUnreadable) {
            info!("the deployed version can be read again");
        }
    }

    fn is_unreadable(&self, error: &Error, what_follows: &'static str) {
        let cause = Cause::VersionUnreadable;
        if self.health.impede(cause, error.with_hint()) {
            warn!(%error, hint = error.hint(), "the deployed version cannot be read: {what_follows}");
        }
    }

    /// The requests at the start of a host, if a stored version is requested, in their order: the version
    /// that the fleet runs, and the requested one. They win over the file.
    ///
    /// # Errors
    /// Redis failed.
    async fn initial_requests(&mut self) -> Result<Vec<VersionRequest>, Error> {
        let Some(requested) = self.store.requested().await? else {
            return Ok(Vec::new());
        };
        let mut requests = Vec::new();
        if requested.number > 0 {
            let wanted = self.store.stored(requested.number).await?;
            let fleet = self.fleet().await?;
            let is_settled = match &wanted {
                Some(wanted) => self.is_settled(&requested, wanted, &fleet).await?,
                None => false,
            };
            if !is_settled && let Some(base) = self.base(wanted.as_ref(), &fleet).await? {
                let (number, digest) = (base.number, &*base.digest);
                info!(
                    number,
                    digest, "starting with the version that the fleet runs"
                );
                requests.push(self.fetch(base.number, false).await?);
            }
            requests.push(self.fetch(requested.number, !is_settled).await?);
        }
        self.last = Some(requested);
        Ok(requests)
    }

    /// Whether a host that starts gives all messages to the requested version: it was promoted or rolled
    /// back to; or no host has rejected it, and most hosts run it, or one has kept it. Without other hosts, a
    /// version that was deployed within the duration of a trial is always tried.
    async fn is_settled(
        &self,
        requested: &Requested,
        wanted: &Stored,
        fleet: &Fleet,
    ) -> Result<bool, Error> {
        if requested.action != Action::Deploy {
            return Ok(true);
        }
        let verdicts = self.store.verdicts(std::slice::from_ref(wanted)).await?;
        let verdicts = verdicts.into_iter().next().unwrap_or_default();
        let is_old = self.trial.is_none_or(|trial| requested.age >= trial);
        Ok(verdicts.rejected.is_none() && fleet.runs(&wanted.digest)
            || verdicts.is_proven() && is_old)
    }

    /// The stored version that a host starts with, before it takes the requested one; `None` = its file.
    async fn base(&self, wanted: Option<&Stored>, fleet: &Fleet) -> Result<Option<Stored>, Error> {
        let is_wanted = |digest: &str| wanted.is_some_and(|wanted| *wanted.digest == *digest);
        let base = match fleet.most_run(|digest| !is_wanted(digest)) {
            // Not stored: the others run their files.
            Some(digest) => {
                let stored = self.store.report().await?.stored;
                stored.into_iter().find(|stored| stored.digest == digest)
            }
            None => {
                let kept = self.store.last_kept().await?;
                let verdicts = self.store.verdicts(kept.as_slice()).await?;
                kept.filter(|_| verdicts.iter().all(|verdicts| verdicts.rejected.is_none()))
            }
        };
        Ok(base.filter(|base| !is_wanted(&base.digest)))
    }

    /// The versions that the other hosts run.
    async fn fleet(&self) -> Result<Fleet, Error> {
        let mut fleet = Fleet::default();
        let hosts = match self.store.hosts().await {
            Ok(hosts) => hosts,
            // A host may serve without the right to see others.
            Err(error) if error.is_missing_right() => Vec::new(),
            Err(error) => return Err(error),
        };
        let hosts = HostSeen::parse_all(&hosts).into_iter();
        for host in hosts.filter(|host| host.accepts_deploys) {
            fleet.add(host.handler.current.digest);
        }
        Ok(fleet)
    }

    /// Pass on requests until the receiver is gone.
    pub async fn run(mut self, requests: mpsc::Sender<VersionRequest>) {
        loop {
            sleep(POLL_EVERY).await;
            match self.poll().await {
                Ok(None) => self.is_readable(),
                Ok(Some(request)) => {
                    self.is_readable();
                    if requests.send(request).await.is_err() {
                        return;
                    }
                }
                Err(error) => self.is_unreadable(&error, "this host keeps its version"),
            }
        }
    }

    async fn poll(&mut self) -> Result<Option<VersionRequest>, Error> {
        let Some(requested) = self.store.requested().await? else {
            // Redis has lost its data; the current version keeps running.
            self.last = None;
            return Ok(None);
        };
        let last = self.last.as_ref();
        if last.is_some_and(|last| last.token == requested.token) {
            return Ok(None);
        }
        let number = requested.number;
        info!(number, action = ?requested.action, "another version is requested");
        let request = match requested.action {
            Action::Promote if self.promotes_file_canary(&requested) => VersionRequest::PromoteFile,
            _ if number == 0 => VersionRequest::Withdraw,
            // A host without this canary takes the version too.
            Action::Promote | Action::RollBack => self.fetch(number, false).await?,
            Action::Deploy => self.fetch(number, true).await?,
        };
        self.last = Some(requested);
        Ok(Some(request))
    }

    /// Whether the canary to promote came from the file, after the deploy that this host knows.
    fn promotes_file_canary(&self, requested: &Requested) -> bool {
        let active = self.versions.active();
        let canary = active.canary.as_ref().map(|canary| canary.version.origin);
        let known = self.last.as_ref().map_or(0, |known| known.number);
        canary == Some(Origin::File) && [0, known].contains(&requested.number)
    }

    /// The request for a stored version. A version that is loaded is not fetched.
    async fn fetch(&self, number: u64, trial: bool) -> Result<VersionRequest, Error> {
        let origin = Origin::Deploy(number);
        let unusable = |digest: &str, step, reason| VersionRequest::Unusable {
            origin,
            digest: digest.into(),
            step,
            reason,
        };
        let Some(stored) = self.store.stored(number).await? else {
            let reason = "the version is no longer stored".to_owned();
            return Ok(unusable("", Step::Source, reason));
        };
        if let Some(Version { sandbox, .. }) = self.versions.loaded(&stored.digest) {
            let version = Version::new(sandbox, origin);
            return Ok(VersionRequest::Loaded { version, trial });
        }
        Ok(match self.store.fetch(&stored, self.max).await? {
            Fetched::Component(bytes) => VersionRequest::Component {
                origin,
                bytes,
                trial,
            },
            Fetched::TooLarge(reason) => unusable(&stored.digest, Step::Size, reason),
            Fetched::Damaged(reason) => unusable(&stored.digest, Step::Source, reason),
        })
    }
}

/// How many hosts run each version, by digest.
#[derive(Debug, Default)]
struct Fleet {
    running: HashMap<String, usize, FxBuildHasher>,
}

impl Fleet {
    fn add(&mut self, digest: String) {
        *self.running.entry(digest).or_default() += 1;
    }

    /// Whether more than half of the hosts run this version.
    fn runs(&self, digest: &str) -> bool {
        let all: usize = self.running.values().sum();
        let running = self.running.get(digest).copied().unwrap_or_default();
        2 * running > all
    }

    /// The version that most hosts run, of these.
    fn most_run(&self, of: impl Fn(&str) -> bool) -> Option<&str> {
        let running = self.running.iter().filter(|(digest, _)| of(digest));
        let most = running.max_by_key(|(digest, running)| (**running, *digest));
        most.map(|(digest, _)| digest.as_str())
    }
}

/// Record the verdicts of this host about deployed versions, under its name in the queue, until the
/// senders are gone. If Redis is away, the latest ones are recorded later.
pub async fn record_verdicts(
    store: Arc<Store>,
    name: String,
    mut rejected: watch::Receiver<Option<Rejected>>,
    mut kept: watch::Receiver<Option<Kept>>,
) {
    loop {
        tokio::select! {
            Ok(()) = rejected.changed() => {
                let rejected = rejected.borrow_and_update().clone();
                if let Some(Rejected { version, by, reason }) = rejected
                    && let Some(number) = version.deploy
                {
                    let text = format!("{name}: {}: {reason}", by.label());
                    record(&store, number, version.digest(), false, &text).await;
                }
            }
            Ok(()) = kept.changed() => {
                let kept = kept.borrow_and_update().clone();
                if let Some(Kept { deploy, digest }) = kept {
                    record(&store, deploy, &digest, true, &name).await;
                }
            }
            else => return,
        }
    }
}

/// Record a verdict, as soon as Redis takes it.
async fn record(store: &Store, number: u64, digest: &str, is_kept: bool, text: &str) {
    loop {
        match store.record_verdict(number, digest, is_kept, text).await {
            Ok(()) => return,
            Err(error) if error.class() == Class::Configuration => {
                warn!(%error, hint = error.hint(), number, "redis refuses to record the verdict about a deploy");
                return;
            }
            Err(error) => debug!(%error, "could not record the verdict about a deploy"),
        }
        sleep(POLL_EVERY).await;
    }
}

/// The published state of a host, for `inspect` and `versions`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct HostSeen {
    /// The name of the host in the queue.
    pub consumer: String,
    /// The consumer group, if the queue has groups.
    pub group: Option<String>,
    /// The version of hostler.
    pub hostler: String,
    /// The time of the publication, in epoch milliseconds.
    pub at_ms: u64,
    /// Whether the host accepts deploys.
    pub accepts_deploys: bool,
    /// Whether the host knows journals.
    #[serde(default)]
    pub knows_journals: bool,
    /// The queue is paused on this host.
    #[serde(default)]
    pub paused: bool,
    /// Attempts that ended in a second, lately; `None` = not known yet.
    #[serde(default)]
    pub attempts_per_second: Option<f64>,
    /// Attempts that run now.
    #[serde(default)]
    pub in_flight: u64,
    /// How long attempts took lately on average, in milliseconds; `None` = no attempts.
    #[serde(default)]
    pub run_ms: Option<f64>,
    /// The time that 99 of 100 attempts lately did not exceed, in milliseconds; `None` = no attempts.
    #[serde(default)]
    pub run_p99_ms: Option<f64>,
    /// The reasons why the host is not ready; empty = it is ready.
    pub not_ready: Vec<String>,
    /// The live settings that the host uses; empty if it is too old to say them.
    #[serde(default)]
    pub rules: Vec<ActiveRule>,
    /// Why the host ignores rules that it has read.
    #[serde(default)]
    pub rules_refused: Option<String>,
    /// The destinations of rules with `adaptive`: the closed ones first, and not too many.
    #[serde(default)]
    pub destinations: Vec<DestinationSeen>,
    /// The limits of starts.
    #[serde(default)]
    pub limits: Vec<LimitShown>,
    /// Those that keep messages waiting.
    #[serde(default)]
    pub limited: Vec<LimitedSeen>,
    /// The versions of the handler.
    pub handler: VersionsSeen,
}

impl HostSeen {
    /// The hosts in these texts. Texts of another version of hostler may not parse: they are left out.
    pub fn parse_all(texts: &[String]) -> Vec<Self> {
        let hosts = texts.iter().map(|text| serde_json::from_str(text));
        hosts.filter_map(Result::ok).collect()
    }

    /// `ready`; `stopped` if the host runs no handler until an operator repairs it; else `not ready`.
    pub fn state(&self) -> &'static str {
        // The label of the cause comes first.
        let stopped = |reason: &String| reason.split(':').next() == Some(Cause::Handler.label());
        if self.not_ready.is_empty() {
            "ready"
        } else if self.not_ready.iter().any(stopped) {
            "stopped"
        } else {
            "not ready"
        }
    }

    /// Why it is not ready, for people; `None` = it is ready.
    pub fn trouble(&self) -> Option<String> {
        let why = self.not_ready.join("; ");
        (!why.is_empty()).then(|| format!("{} is {}: {why}", self.consumer, self.state()))
    }
}

/// Publish the state of a host regularly, and when it changes, until `stop`.
pub async fn publish_host(
    store: Arc<Store>,
    mut host: HostSeen,
    (health, status): (Health, Status),
    counted: impl Fn() -> Counted,
    mut seen: watch::Receiver<VersionsSeen>,
    mut stop: watch::Receiver<bool>,
) {
    let mut refused = false;
    let mut rate = Rate::new(counted());
    loop {
        let mut counts = counted();
        host.in_flight = counts.in_flight;
        host.destinations = std::mem::take(&mut counts.destinations);
        host.limited = std::mem::take(&mut counts.limited);
        host.destinations.sort_by_key(|one| one.closed_ms.is_none());
        host.destinations.truncate(DESTINATIONS_MAX);
        let closed = closed(&host.destinations);
        rate.at(counts);
        host.attempts_per_second = rate.per_second;
        host.run_ms = rate.run_ms;
        host.run_p99_ms = rate.run_p99_ms;
        host.handler = seen.borrow_and_update().clone();
        host.at_ms = wall_clock_ms();
        let reasons = health.impediments();
        let shown = status.shown();
        let is_other = || {
            health.impediments() != reasons
                || status.shown().is_other_than(&shown)
                || self::closed(&counted().destinations) != closed
        };
        let texts = reasons.iter().map(|r| format!("{}: {}", r.cause, r.detail));
        host.not_ready = texts.collect();
        host.rules.clone_from(&shown.rules);
        host.limits.clone_from(&shown.limits);
        host.limits.truncate(LIMITS_MAX);
        host.rules_refused.clone_from(&shown.refused);
        host.paused = shown.paused;
        let text = serde_json::to_string(&host).unwrap_or_default();
        let published = store.publish_host(&host.consumer, Some(&text), PUBLISH_TTL);
        let failure = published.await.err();
        if let Some(error) = failure.as_ref().filter(|_| !refused) {
            debug!(%error, "could not publish the state of this host");
        }
        refused = failure.is_some();
        tokio::select! {
            () = async { drop(stop.wait_for(|stop| *stop).await) } => break,
            () = due(is_other) => {}
            Ok(()) = seen.changed() => sleep(PUBLISH_PAUSE).await,
        }
    }
    // The entry expires anyway, so do not wait long.
    let removing = store.publish_host(&host.consumer, None, PUBLISH_TTL);
    if timeout(PUBLISH_PAUSE * 5, removing).await.is_err() {
        debug!("could not remove the state of this host");
    }
}

/// How many destinations are closed.
fn closed(destinations: &[DestinationSeen]) -> usize {
    let closed = destinations.iter().filter(|one| one.closed_ms.is_some());
    closed.count().min(DESTINATIONS_MAX)
}

/// What a host counts, for its published state.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    /// Attempts that have ended.
    pub attempts: u64,
    /// Attempts that run now.
    pub in_flight: u64,
    /// How long attempts took.
    pub runs: Durations,
    /// The destinations of rules with `adaptive`.
    pub destinations: Vec<DestinationSeen>,
    /// The limits that keep messages waiting.
    pub limited: Vec<LimitedSeen>,
}

/// How fast counts grow.
#[derive(Debug)]
struct Rate {
    at: Instant,
    counts: Counted,
    per_second: Option<f64>,
    run_ms: Option<f64>,
    run_p99_ms: Option<f64>,
}

impl Rate {
    fn new(counts: Counted) -> Self {
        Self {
            at: Instant::now(),
            counts,
            per_second: None,
            run_ms: None,
            run_p99_ms: None,
        }
    }

    /// Take the counts of now, unless the last ones are too young to say more.
    fn at(&mut self, counts: Counted) {
        let elapsed = self.at.elapsed();
        if elapsed < RATE_OVER {
            return;
        }
        let one_digit = |number: f64| (number * 10.0).round() / 10.0;
        let more = counts.attempts.saturating_sub(self.counts.attempts) as f64;
        self.per_second = Some(one_digit(more / elapsed.as_secs_f64()));
        let runs = counts.runs.since(&self.counts.runs);
        let millis = |took: Duration| took.as_micros() as f64 / 1_000.0;
        self.run_ms = runs.average().map(millis);
        self.run_p99_ms = runs.quantile(0.99).map(millis);
        self.at = Instant::now();
        self.counts = counts;
    }
}

/// Wait until a publication is due: after a while, or soon after the state has changed.
async fn due(is_other: impl Fn() -> bool) {
    let begun = Instant::now();
    while begun.elapsed() < PUBLISH_EVERY {
        sleep(POLL_EVERY).await;
        if is_other() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fleet_runs_what_more_than_half_of_its_hosts_run() {
        let mut fleet = Fleet::default();
        assert!(!fleet.runs("new") && fleet.most_run(|_| true).is_none());
        for (digest, runs) in [("new", true), ("old", false), ("new", true), ("old", false)] {
            fleet.add(digest.to_owned());
            assert_eq!(fleet.runs("new"), runs, "{fleet:?}");
            assert!(!fleet.runs("other"));
        }
        fleet.add("old".to_owned());
        assert_eq!(fleet.most_run(|_| true), Some("old"));
        assert_eq!(fleet.most_run(|digest| digest != "old"), Some("new"));
    }

    fn host(not_ready: &[&str]) -> HostSeen {
        let host = serde_json::json!({
            "consumer": "web-1", "group": null, "hostler": "1.0.0", "at_ms": 0,
            "accepts_deploys": false, "not_ready": not_ready, "handler": VersionsSeen::default(),
        });
        // As a host writes it that does not know rules yet.
        serde_json::from_value(host).unwrap()
    }

    #[test]
    fn a_host_whose_handler_cannot_run_is_stopped() {
        let broken = "handler: 20 of the last 20 attempts faulted: trap";
        for (not_ready, state) in [
            (&[][..], "ready"),
            (&["redis-away: connection refused"], "not ready"),
            (&["redis-away: the handler: x", broken], "stopped"),
        ] {
            assert_eq!(host(not_ready).state(), state);
        }
        assert_eq!(host(&[]).trouble(), None);
        let trouble = host(&[broken]).trouble().unwrap();
        assert_eq!(trouble, format!("web-1 is stopped: {broken}"));
    }
}
