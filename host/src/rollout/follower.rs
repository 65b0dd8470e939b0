//! What the host has to do with the versions stored beside its queue: it follows what is wanted, and
//! says what it found out about it, if it accepts deploys; and it shows what it runs.
//!
//! All this only looks, or says what no message waits for: while Redis is away nothing is lost but
//! news. A host that dies between a verdict and its record leaves a version that nobody has judged:
//! the next one that starts tries it with a share, which is what it then does without a verdict.
//!
//! What is wanted is a state, not a step from the one before: a host looks now and then, and may have
//! been away, so it can miss any number of requests. Whatever the last one was, it then does what a
//! host does that has heard them all.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, info, warn};

use crate::redis::{Class, Error};
use crate::rollout::request::VersionRequest;
use crate::rollout::store::{Action, Fetched, Store, Verdicts, Wanted};
use crate::rollout::verify::Step;
use crate::rollout::versions::{Origin, Verdict, Version, Versions};
use crate::telemetry::health::Health;
use crate::telemetry::versions::VersionsSeen;
use crate::telemetry::wall_clock_ms;

/// Between two looks at what is wanted.
const EVERY: Duration = Duration::from_millis(500);
/// A deploy is noticed within this time by a host whose Redis answers: one look may have come just
/// before it, and the next one is as much later as it takes to ask.
const NOTICED_WITHIN: Duration = Duration::from_secs(2);
const _: () = assert!(2 * EVERY.as_millis() < NOTICED_WITHIN.as_millis());
/// Between two times that a host shows itself, and for how long it then stands there.
const SHOW_EVERY: Duration = Duration::from_secs(5);
const SHOWN_FOR: Duration = Duration::from_secs(15);
/// Changes that come together are shown together.
const SHOW_PAUSE: Duration = Duration::from_millis(100);

/// Follows what is wanted.
#[derive(Debug)]
pub struct Follower {
    store: Arc<Store>,
    versions: Arc<Versions>,
    /// The largest component that is fetched, in bytes.
    max: u64,
    /// For how long a canary lasts at least, if there is one.
    trial: Option<Duration>,
    /// What was passed on last.
    followed: Option<Wanted>,
    refused: bool,
}

impl Follower {
    /// Follow what is wanted of this queue. `trial` is how long a canary lasts at least, if there is
    /// one.
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
            followed: None,
            refused: false,
        }
    }

    /// What is wanted when a host starts, if that is a stored version: it wins over the file.
    ///
    /// # Errors
    /// What Redis refuses: then nothing is known, and [`Follower::run`] asks again.
    pub async fn first(&mut self) -> Result<Option<VersionRequest>, Error> {
        let Some(wanted) = self.store.wanted().await? else {
            return Ok(None);
        };
        let request = match wanted.number {
            0 => None,
            _ => {
                let trial = self.is_on_trial(&wanted).await?;
                Some(self.fetch(&wanted, trial).await?)
            }
        };
        self.followed = Some(wanted);
        Ok(request)
    }

    /// Whether a host that starts tries this version with a share first, if it tries any: until
    /// somebody has promoted it, or gone back to it, or a host has kept it and none has given it up.
    /// How long ago it was deployed says nothing about that, only that it is too early for it.
    async fn is_on_trial(&self, wanted: &Wanted) -> Result<bool, Error> {
        let Some(trial) = self.trial else {
            return Ok(false);
        };
        if wanted.action != Action::Deploy || wanted.age < trial {
            return Ok(wanted.action == Action::Deploy);
        }
        let Some(stored) = self.store.stored(wanted.number).await? else {
            return Ok(false);
        };
        let verdicts = self.store.verdicts(&[stored]).await?;
        Ok(!verdicts.iter().any(Verdicts::is_proven))
    }

    /// Pass on whatever is wanted, until nobody listens.
    pub async fn run(mut self, requests: mpsc::Sender<VersionRequest>) {
        loop {
            sleep(EVERY).await;
            match self.look().await {
                Ok(None) => self.refused = false,
                Ok(Some(request)) => {
                    self.refused = false;
                    if requests.send(request).await.is_err() {
                        return;
                    }
                }
                // It is asked again, and the loop tells that Redis is away.
                Err(error) if error.class() != Class::Configuration => {
                    debug!(%error, "could not look at what is deployed");
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.refused, true) {
                        warn!(%error, "deploys are accepted, but redis refuses a look at them");
                    }
                }
            }
        }
    }

    async fn look(&mut self) -> Result<Option<VersionRequest>, Error> {
        let Some(wanted) = self.store.wanted().await? else {
            // Lost with its Redis: what runs goes on.
            self.followed = None;
            return Ok(None);
        };
        let followed = self.followed.as_ref();
        if followed.is_some_and(|followed| followed.token == wanted.token) {
            return Ok(None);
        }
        let number = wanted.number;
        info!(number, action = ?wanted.action, "another version is wanted");
        let request = match wanted.action {
            Action::Promote if self.means_the_file(&wanted) => VersionRequest::PromoteFile,
            _ if number == 0 => VersionRequest::Withdraw,
            // Its canary is kept; a host that has none takes the version all the same.
            Action::Promote | Action::RollBack => self.fetch(&wanted, false).await?,
            Action::Deploy => self.fetch(&wanted, true).await?,
        };
        self.followed = Some(wanted);
        Ok(Some(request))
    }

    /// Whether the canary to promote is one from the file: it came after the deploy, which this host
    /// knows.
    fn means_the_file(&self, wanted: &Wanted) -> bool {
        let active = self.versions.active();
        let canary = active.canary.as_ref().map(|canary| canary.version.origin);
        let known = self.followed.as_ref().map_or(0, |known| known.number);
        canary == Some(Origin::File) && [0, known].contains(&wanted.number)
    }

    /// The request for a stored version: at once, if it is at hand.
    async fn fetch(&self, wanted: &Wanted, trial: bool) -> Result<VersionRequest, Error> {
        let origin = Origin::Deploy(wanted.number);
        let unusable = |digest: &str, step, reason| VersionRequest::Unusable {
            origin,
            digest: digest.into(),
            step,
            reason,
        };
        let Some(stored) = self.store.stored(wanted.number).await? else {
            let reason = "it is not stored any more".to_owned();
            return Ok(unusable("", Step::Source, reason));
        };
        if let Some(Version { sandbox, .. }) = self.versions.at_hand(&stored.digest) {
            let version = Version { sandbox, origin };
            return Ok(VersionRequest::AtHand { version, trial });
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

/// Record what this host, of this name in the queue, finds out about deployed versions, for as long as
/// it can find out anything. What Redis does not take now is told again, or the next thing is.
pub async fn record(
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
                given_up,
            }) = verdict
            else {
                break;
            };
            let is_kept = given_up.is_none();
            let words = match given_up {
                None => name.clone(),
                Some((rule, reason)) => format!("{name}: {}: {reason}", rule.label()),
            };
            match store.judge(number, &digest, is_kept, &words).await {
                Ok(()) => break,
                Err(error) if error.class() == Class::Configuration => {
                    warn!(%error, number, "redis refuses what this host found out about a deploy");
                    break;
                }
                Err(error) => debug!(%error, "could not record what this host found out"),
            }
            sleep(EVERY).await;
        }
    }
}

/// What a host says of itself: for `inspect` and `versions`.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct HostSeen {
    /// Its name in the queue.
    pub consumer: String,
    /// The consumer group that it serves, if there are any.
    pub group: Option<String>,
    /// The version of hostler.
    pub hostler: String,
    /// When it said so, in epoch milliseconds.
    pub at_ms: u64,
    /// Whether it takes deploys.
    pub accepts_deploys: bool,
    /// Why it is not ready; empty = it is.
    pub not_ready: Vec<String>,
    /// The versions of its handler.
    pub handler: VersionsSeen,
}

/// Show what a host looks like, now and then and whenever its versions change, until `stop`.
pub async fn show(
    store: Arc<Store>,
    mut host: HostSeen,
    health: Health,
    mut seen: watch::Receiver<VersionsSeen>,
    mut stop: watch::Receiver<bool>,
) {
    let mut refused = false;
    loop {
        host.handler = seen.borrow_and_update().clone();
        host.at_ms = wall_clock_ms();
        let reasons = health.impediments();
        host.not_ready = reasons
            .into_iter()
            .map(|reason| format!("{}: {}", reason.cause, reason.detail))
            .collect();
        let text = serde_json::to_string(&host).unwrap_or_default();
        match store.show(&host.consumer, Some(&text), SHOWN_FOR).await {
            Ok(()) => refused = false,
            Err(error) => {
                if !std::mem::replace(&mut refused, true) {
                    debug!(%error, "could not show what this host runs");
                }
            }
        }
        tokio::select! {
            () = async { drop(stop.wait_for(|stop| *stop).await) } => break,
            () = sleep(SHOW_EVERY) => {}
            Ok(()) = seen.changed() => sleep(SHOW_PAUSE).await,
        }
    }
    // It lapses anyway: a Redis that is away keeps nobody.
    if timeout(SHOW_PAUSE * 5, store.show(&host.consumer, None, SHOWN_FOR))
        .await
        .is_err()
    {
        debug!("could not say that this host has left");
    }
}
