//! New versions of a running host's handler: from its file, and from deploys if the host accepts
//! them. Also shows what the host runs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::OptionFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use crate::config::Config;
use crate::file_watch::FileWatch;
use crate::host::{Error, ReloadSignals, component};
use crate::redis::connection::Connector;
use crate::rollout::follower::{Counted, Follower, HostSeen, publish_host, record_verdicts};
use crate::rollout::handler_file::watch_file;
use crate::rollout::request::{Reload, VersionRequest};
use crate::rollout::store::Store;
use crate::rollout::swap::{self, Swapper};
use crate::rollout::versions::{Origin, Versions};
use crate::sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::status::Status;
use crate::telemetry::versions::VersionsSeen;

/// How many version requests may wait to be verified.
const REQUESTS_MAX: usize = 4;
/// Between two polls of a file that a build has just written.
const BUILT_EVERY: Duration = Duration::from_millis(20);

/// The tasks that take new versions. They run for as long as the threads of attempts.
pub struct Rollout {
    seen: watch::Receiver<VersionsSeen>,
    versions: Arc<Versions>,
    store: Arc<Store>,
}

impl Rollout {
    /// Take the version that the fleet runs, and the deployed one, if there are any. Then follow the file
    /// and the deploys. `loaded` is what the file held at the start: it is freed here, a component may be large.
    /// `builds` notifies of a new file; without it, each change of the file is a new version.
    ///
    /// Versions are hashed and verified on the threads of attempts, so that the loop can renew its
    /// leases meanwhile.
    pub async fn start(
        config: &Config,
        connector: &Connector,
        versions: &Arc<Versions>,
        (loaded, builds): (Vec<u8>, Option<Arc<Notify>>),
        metrics: &Arc<Metrics>,
        health: &Health,
        attempts: &Handle,
    ) -> Result<Self, Error> {
        let canary = config.swap.canary.as_ref();
        let settings = swap::Settings {
            sandbox: sandbox::Settings {
                compiler: component::compiler()?,
                ..config.sandbox.clone()
            },
            terms: config.swap.terms.clone(),
            canary: canary.map(|(share, _)| *share),
        };
        let max = config.sandbox.limits.component;
        let (reload, reloads) = mpsc::channel(1);
        let mut swapper = Swapper::new(
            Arc::clone(versions),
            settings,
            Arc::clone(metrics),
            health.clone(),
        )
        .with_reload(reload.clone());
        let seen = swapper.seen();
        let store = Arc::new(Store::new(connector.link("versions"), config.queue.name()));
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        if config.swap.accept_deploys {
            let trial = canary.map(|(_, rule)| rule.window);
            let (store, versions, health) =
                (Arc::clone(&store), Arc::clone(versions), health.clone());
            let mut follower = Follower::new(store, versions, max, trial, health);
            for request in follower.begin().await {
                swapper.apply_first(request).await;
            }
            attempts.spawn(follower.run(requests.clone()));
        }
        if builds.is_some() && versions.active().current.origin != Origin::File {
            // The component built now wins over an earlier deploy.
            let bytes = loaded.clone();
            let built = VersionRequest::Component {
                origin: Origin::File,
                bytes,
                trial: false,
            };
            swapper.apply_first(built).await;
        }
        // The file as it was loaded at the start is not a change.
        let mut file = FileWatch::new(config.handler.file.clone(), max).with_known_content(&loaded);
        drop(loaded);
        if builds.is_some() {
            file = file.every(BUILT_EVERY);
        }
        attempts.spawn(swapper.run(inbox));
        attempts.spawn(watch_file(file, builds.is_none(), requests, reloads));
        let mut hangups = ReloadSignals::listen()?;
        tokio::spawn(async move {
            loop {
                let built = OptionFuture::from(builds.as_ref().map(|builds| builds.notified()));
                let how = tokio::select! {
                    () = hangups.next() => Reload::Trial,
                    Some(()) = built => Reload::Whole,
                };
                // If the channel is full, the reload that waits there serves this one as well.
                let _waiting = reload.try_send(how).is_err();
            }
        });
        Ok(Self {
            seen,
            versions: Arc::clone(versions),
            store,
        })
    }

    /// Show what this host runs and which rules it uses, under its name in the queue, until `stop`; record its
    /// verdicts on deployed versions.
    pub fn show(
        &self,
        config: &Config,
        consumer: &str,
        (health, status): (&Health, &Status),
        metrics: &Arc<Metrics>,
        stop: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let host = HostSeen {
            consumer: consumer.to_owned(),
            group: config.queue.group().map(str::to_owned),
            hostler: env!("CARGO_PKG_VERSION").to_owned(),
            accepts_deploys: config.swap.accept_deploys,
            knows_journals: true,
            ..HostSeen::default()
        };
        let store = Arc::clone(&self.store);
        if config.swap.accept_deploys {
            let (rejected, kept) = (self.versions.rejected(), self.versions.kept());
            let recording =
                record_verdicts(Arc::clone(&store), consumer.to_owned(), rejected, kept);
            tokio::spawn(recording);
        }
        let metrics = Arc::clone(metrics);
        let counted = move || Counted {
            attempts: metrics.attempts_ended(),
            in_flight: u64::try_from(metrics.in_flight.get()).unwrap_or_default(),
            runs: metrics.handler_seconds.durations(),
            destinations: metrics.destinations(),
            limited: metrics.limited_for_seconds.seen(Instant::now()),
        };
        tokio::spawn(publish_host(
            store,
            host,
            (health.clone(), status.clone()),
            counted,
            self.seen.clone(),
            stop,
        ))
    }
}
