//! How a host comes by new versions of its handler: from the file, and from deploys if it accepts
//! them; and how it shows what it runs.

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::warn;

use crate::cli::compile_component;
use crate::cli::connect::Connected;
use crate::cli::exit::Failure;
use crate::config::Config;
use crate::file_watch::FileWatch;
use crate::rollout::follower::{Follower, HostSeen, publish_host, record_verdicts};
use crate::rollout::handler_file::watch_file;
use crate::rollout::request::Reload;
use crate::rollout::store::Store;
use crate::rollout::swap::{self, Swapper};
use crate::rollout::versions::{Verdict, Versions};
use crate::sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::versions::VersionsSeen;

/// New versions of the handler that may wait to be looked at.
const REQUESTS_MAX: usize = 4;

/// What takes new versions: runs for as long as the threads of attempts live.
pub(super) struct Swapping {
    seen: watch::Receiver<VersionsSeen>,
    verdicts: watch::Receiver<Option<Verdict>>,
    store: Arc<Store>,
}

impl Swapping {
    /// Take new versions, the deployed one first: hashing and checking them must not keep the loop
    /// from its leases, so all this is done on the threads of attempts.
    pub(super) async fn start(
        config: &Config,
        connected: &Connected,
        versions: &Arc<Versions>,
        loaded: &[u8],
        metrics: &Arc<Metrics>,
        health: &Health,
        attempts: &Handle,
    ) -> Result<Self, Failure> {
        let canary = config.swap.canary.as_ref();
        let settings = swap::Settings {
            sandbox: sandbox::Settings {
                compiler: compile_component::compiler()?,
                ..config.sandbox.clone()
            },
            terms: config.swap.terms.clone(),
            canary: canary.map(|(share, _)| *share),
        };
        let max = config.sandbox.limits.component;
        let mut swapper = Swapper::new(
            Arc::clone(versions),
            settings,
            Arc::clone(metrics),
            health.clone(),
        );
        let seen = swapper.seen();
        let link = connected.connector.link("versions");
        let store = Arc::new(Store::new(link, config.queue.name()));
        let (requests, inbox) = mpsc::channel(REQUESTS_MAX);
        let (reload, reloads) = mpsc::channel(1);
        swapper = swapper.with_reload(reload.clone());
        if config.swap.accept_deploys {
            let trial = canary.map(|(_, rule)| rule.window);
            let mut follower = Follower::new(Arc::clone(&store), Arc::clone(versions), max, trial);
            match follower.initial_request().await {
                Ok(Some(request)) => swapper.apply_first(request).await,
                Ok(None) => {}
                // Asked again, while the version of the file runs.
                Err(error) => warn!(%error, "could not look at what is deployed"),
            }
            attempts.spawn(follower.run(requests.clone()));
        }
        // What was loaded at the start is no change.
        let watch = FileWatch::new(config.handler.file.clone(), max).knowing(loaded);
        attempts.spawn(swapper.run(inbox));
        attempts.spawn(watch_file(watch, requests, reloads));
        let mut hangups = signal(SignalKind::hangup())
            .map_err(|error| Failure::io("cannot wait for signals", &error))?;
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                // One that is not heard yet stands for this one as well.
                let _waiting = reload.try_send(Reload::Trial).is_err();
            }
        });
        let verdicts = versions.verdicts();
        Ok(Self {
            seen,
            verdicts,
            store,
        })
    }

    /// Show what this host runs, under its name in the queue, until `stop`; and record what it finds
    /// out about what is deployed.
    pub(super) fn show(
        &self,
        config: &Config,
        consumer: &str,
        health: &Health,
        stop: watch::Receiver<bool>,
    ) -> JoinHandle<()> {
        let host = HostSeen {
            consumer: consumer.to_owned(),
            group: config.queue.group().map(str::to_owned),
            hostler: env!("CARGO_PKG_VERSION").to_owned(),
            at_ms: 0,
            accepts_deploys: config.swap.accept_deploys,
            not_ready: Vec::new(),
            handler: VersionsSeen::default(),
        };
        let store = Arc::clone(&self.store);
        if config.swap.accept_deploys {
            let (name, verdicts) = (consumer.to_owned(), self.verdicts.clone());
            tokio::spawn(record_verdicts(Arc::clone(&store), name, verdicts));
        }
        tokio::spawn(publish_host(
            store,
            host,
            health.clone(),
            self.seen.clone(),
            stop,
        ))
    }
}
