//! Connects a host with the versions stored beside its queue. A host that accepts deploys follows the
//! requested version and records its verdicts. Every host publishes the versions that it runs.
//!
//! No message waits for any of this. While Redis is away, only news is delayed. If a host crashes
//! between a verdict and its record, the version has no verdict, and the next host that starts tries
//! it as a canary.
//!
//! The requested version is a state, not a sequence of steps. A host polls it, and may miss any number
//! of requests: the last one alone decides.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::redis::{Class, Error};
use crate::rollout::request::VersionRequest;
use crate::rollout::store::{Action, Fetched, Requested, Store, Verdicts};
use crate::rollout::verify::Step;
use crate::rollout::versions::{Origin, Verdict, Version, Versions};
use crate::telemetry::health::{Cause, Health};
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
    refused: bool,
}

impl Follower {
    /// Follow the requested version of this queue. `max` is the largest component in bytes. `trial` is the
    /// least duration of a canary's trial; `None` = no canaries.
    pub fn new(
        store: Arc<Store>,
        versions: Arc<Versions>,
        max: u64,
        trial: Option<Duration>,
    ) -> Self {
        Self {
            store,
            versions,
            max,
            trial,
            last: None,
            refused: false,
        }
    }

    /// The request at the start of a host, if a stored version is requested. It wins over the file.
    ///
    /// # Errors
    /// Redis failed. [`Follower::run`] tries again.
    pub async fn initial_request(&mut self) -> Result<Option<VersionRequest>, Error> {
        let Some(requested) = self.store.requested().await? else {
            return Ok(None);
        };
        let request = match requested.number {
            0 => None,
            _ => {
                let trial = self.is_on_trial(&requested).await?;
                Some(self.fetch(&requested, trial).await?)
            }
        };
        self.last = Some(requested);
        Ok(request)
    }

    /// Whether a host that starts tries this version as a canary. It does until the version was promoted
    /// or rolled back to, or a host has kept it and no host has rejected it. A version
    /// that was deployed within the duration of a trial is always tried.
    async fn is_on_trial(&self, requested: &Requested) -> Result<bool, Error> {
        let Some(trial) = self.trial else {
            return Ok(false);
        };
        if requested.action != Action::Deploy || requested.age < trial {
            return Ok(requested.action == Action::Deploy);
        }
        let Some(stored) = self.store.stored(requested.number).await? else {
            return Ok(false);
        };
        let verdicts = self.store.verdicts(&[stored]).await?;
        Ok(!verdicts.iter().any(Verdicts::is_proven))
    }

    /// Pass on requests until the receiver is gone.
    pub async fn run(mut self, requests: mpsc::Sender<VersionRequest>) {
        loop {
            sleep(POLL_EVERY).await;
            match self.poll().await {
                Ok(None) => self.refused = false,
                Ok(Some(request)) => {
                    self.refused = false;
                    if requests.send(request).await.is_err() {
                        return;
                    }
                }
                // Tried again; the loop reports that Redis is away.
                Err(error) if error.class() != Class::Configuration => {
                    debug!(%error, "could not read the requested version");
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.refused, true) {
                        warn!(%error, "deploys are accepted, but redis refuses to read them");
                    }
                }
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
            Action::Promote | Action::RollBack => self.fetch(&requested, false).await?,
            Action::Deploy => self.fetch(&requested, true).await?,
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
    async fn fetch(&self, requested: &Requested, trial: bool) -> Result<VersionRequest, Error> {
        let origin = Origin::Deploy(requested.number);
        let unusable = |digest: &str, step, reason| VersionRequest::Unusable {
            origin,
            digest: digest.into(),
            step,
            reason,
        };
        let Some(stored) = self.store.stored(requested.number).await? else {
            let reason = "the version is no longer stored".to_owned();
            return Ok(unusable("", Step::Source, reason));
        };
        if let Some(Version { sandbox, .. }) = self.versions.loaded(&stored.digest) {
            let version = Version { sandbox, origin };
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

/// Record the verdicts of this host about deployed versions, under its name in the queue, until the
/// sender is gone. If Redis is away, the latest verdict is recorded later.
pub async fn record_verdicts(
    store: Arc<Store>,
    name: String,
    mut verdicts: watch::Receiver<Option<Verdict>>,
) {
    while verdicts.changed().await.is_ok() {
        loop {
            let verdict = verdicts.borrow_and_update().clone();
            let Some(Verdict {
                digest,
                origin: Origin::Deploy(number),
                rejected,
            }) = verdict
            else {
                break;
            };
            let is_kept = rejected.is_none();
            let text = match rejected {
                None => name.clone(),
                Some((by, reason)) => format!("{name}: {}: {reason}", by.label()),
            };
            match store.record_verdict(number, &digest, is_kept, &text).await {
                Ok(()) => break,
                Err(error) if error.class() == Class::Configuration => {
                    warn!(%error, number, "redis refuses to record the verdict about a deploy");
                    break;
                }
                Err(error) => debug!(%error, "could not record the verdict about a deploy"),
            }
            sleep(POLL_EVERY).await;
        }
    }
}

/// The published state of a host, for `inspect` and `versions`.
#[derive(Clone, Debug, Deserialize, Serialize)]
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
    /// The reasons why the host is not ready; empty = it is ready.
    pub not_ready: Vec<String>,
    /// The live settings that the host goes by; empty if it is too old to say them.
    #[serde(default)]
    pub rules: Vec<ActiveRule>,
    /// Why the host ignores rules that it has read.
    #[serde(default)]
    pub rules_refused: Option<String>,
    /// The versions of the handler.
    pub handler: VersionsSeen,
}

impl HostSeen {
    /// `ready`; `stopped` if the host runs no handler until somebody mends it; else `not ready`.
    pub fn state(&self) -> &'static str {
        let stopped = |reason: &String| cause_of(reason) == Cause::Handler.label();
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

/// The label at the begin of a reason.
fn cause_of(reason: &str) -> &str {
    reason.split_once(':').map_or(reason, |(cause, _)| cause)
}

/// Publish the state of a host regularly, and when it changes, until `stop`.
pub async fn publish_host(
    store: Arc<Store>,
    mut host: HostSeen,
    (health, status): (Health, Status),
    mut seen: watch::Receiver<VersionsSeen>,
    mut stop: watch::Receiver<bool>,
) {
    let mut refused = false;
    loop {
        host.handler = seen.borrow_and_update().clone();
        host.at_ms = wall_clock_ms();
        let reasons = health.impediments();
        let shown = status.shown();
        let is_other = || health.impediments() != reasons || status.shown().is_other_than(&shown);
        host.not_ready = reasons
            .iter()
            .map(|reason| format!("{}: {}", reason.cause, reason.detail))
            .collect();
        host.rules.clone_from(&shown.rules);
        host.rules_refused.clone_from(&shown.refused);
        let text = serde_json::to_string(&host).unwrap_or_default();
        match store
            .publish_host(&host.consumer, Some(&text), PUBLISH_TTL)
            .await
        {
            Ok(()) => refused = false,
            Err(error) => {
                if !std::mem::replace(&mut refused, true) {
                    debug!(%error, "could not publish the state of this host");
                }
            }
        }
        tokio::select! {
            () = async { drop(stop.wait_for(|stop| *stop).await) } => break,
            () = due(is_other) => {}
            Ok(()) = seen.changed() => sleep(PUBLISH_PAUSE).await,
        }
    }
    // The entry expires anyway, so do not wait long.
    if timeout(
        PUBLISH_PAUSE * 5,
        store.publish_host(&host.consumer, None, PUBLISH_TTL),
    )
    .await
    .is_err()
    {
        debug!("could not remove the state of this host");
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
