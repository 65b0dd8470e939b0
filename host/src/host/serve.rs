//! Serve one queue: everything between a checked configuration and the end of the loop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::OptionFuture;
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc, watch};
use tracing::{info, warn};

use crate::admin;
use crate::config::{Config, Sources, Value};
use crate::host::config_watcher::ConfigWatcher;
use crate::host::connect::{Connected, retry};
use crate::host::rollout::Rollout;
use crate::host::settings::{live_rules, loop_settings, queue_options};
use crate::host::signals::{StopSignal, StopSignals};
use crate::host::{Error, component, descriptors, listing, schedules, supervisor};
use crate::queue::kind::QueueOptions;
use crate::queue::startup::StartError;
use crate::queue::{Guarantee, Queue};
use crate::redis::connection::Connector;
use crate::rollout::follower::HostSeen;
use crate::rollout::store::Store;
use crate::rollout::versions::{Origin, Versions};
use crate::runtime::sandboxed::Sandboxed;
use crate::runtime::{self, Control, Driver, Handler};
use crate::sandbox::Sandbox;
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::metrics::{Metrics, Summary};
use crate::telemetry::otlp::Telemetry;
use crate::telemetry::otlp::tracer::Place;
use crate::telemetry::status::{self, Status};
use crate::ui::Ui;

/// How long a drained host waits until it has removed itself from the list of hosts.
const UNLIST_MAX: Duration = Duration::from_millis(500);
/// How many control messages may wait for the loop.
const CONTROLS_MAX: usize = 4;

/// How a host ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Ended {
    /// It drained, or the queue was empty, or it was stopped before it had read anything.
    Done,
    /// The time for draining, or for `until_empty`, was over.
    TimedOut,
    /// A second signal ended it at once.
    Forced(StopSignal),
}

/// What a host did.
#[derive(Debug)]
pub struct Served {
    /// How it ended.
    pub ended: Ended,
    /// What it counted; `None` = it was stopped before it had read anything.
    pub summary: Option<Summary>,
}

impl Served {
    const NOTHING: Self = Self::unread(Ended::Done);

    /// It has read nothing.
    const fn unread(ended: Ended) -> Self {
        Self {
            ended,
            summary: None,
        }
    }
}

/// Wait for what a host must know before its first message. A signal ends the wait, and so does the end of
/// `until_empty`'s patience. Nothing has been read yet: there is nothing to drain.
async fn unless_stopped<T>(
    waiting: impl Future<Output = T>,
    patience: Option<Duration>,
    stops: &mut StopSignals,
) -> Result<T, Ended> {
    let late = OptionFuture::from(patience.map(tokio::time::sleep));
    tokio::select! {
        known = waiting => Ok(known),
        Some(()) = late => Err(Ended::TimedOut),
        _ = stops.next() => Err(Ended::Done),
    }
}

/// What a host begins with.
pub struct Begin<W> {
    /// The handler, and the bytes of its file.
    pub handler: (Sandbox, Vec<u8>),
    /// Notified when a build has written the handler's file, which is read then only; `None` = it is read whenever it
    /// changes.
    pub builds: Option<Arc<Notify>>,
    /// Makes what the slots run.
    pub wrap: W,
}

/// A host before its first message.
#[derive(Debug)]
pub struct Beginning<'a> {
    /// The rules.
    pub config: &'a Config,
    /// The digest of the version that it begins with.
    pub digest: Arc<str>,
    /// The URL of Redis, without credentials.
    pub redis: String,
    /// The address of the admin server, if there is one.
    pub admin: Option<SocketAddr>,
}

/// Load the handler of this configuration, and serve its queue until a signal or an empty queue ends
/// it. `sources` are read again whenever the file or a policy changes. `telemetry` gets what the host does.
pub async fn serve(
    config: Config,
    sources: Sources,
    mut stops: StopSignals,
    attempts: &Handle,
    telemetry: Option<&mut Telemetry>,
) -> Result<Served, Error> {
    let loading = config.clone();
    let loading = attempts.spawn_blocking(move || component::load_handler(&loading));
    let handler = tokio::select! {
        biased;
        // Nothing has been read yet: there is nothing to drain.
        _ = stops.next() => return Ok(Served::NOTHING),
        loaded = loading => loaded.map_err(|error| Error::System {
            what: "cannot load the handler",
            source: std::io::Error::other(error),
        })??,
    };
    let begin = Begin {
        handler,
        builds: None,
        wrap: |handler, _: &Beginning<'_>| handler,
    };
    // Large: it is moved less.
    Box::pin(serve_with(
        config, sources, stops, attempts, telemetry, begin,
    ))
    .await
}

/// The same with a handler that is loaded.
pub async fn serve_with<H: Handler>(
    config: Config,
    sources: Sources,
    mut stops: StopSignals,
    attempts: &Handle,
    mut telemetry: Option<&mut Telemetry>,
    begin: Begin<impl FnOnce(Sandboxed, &Beginning<'_>) -> H>,
) -> Result<Served, Error> {
    descriptors::check(&config)?;
    let metrics = Arc::new(Metrics::new(config.queue.name(), config.queue.group()));
    let health = Health::default();
    tokio::spawn(supervisor::follow(health.clone()));
    let status = Status::default();
    metrics.handler(Arc::clone(begin.handler.0.digest()));
    if let Some(providers) = &config.providers {
        metrics.follow(providers.counts());
    }
    if let Some(telemetry) = &mut telemetry {
        telemetry.follow(&metrics, &health);
    }
    let mut serving = None;
    if let Some(address) = config.process.admin {
        let bound = admin::bind(address).await?;
        info!(address = %bound.address(), "serving /metrics, /live and /ready");
        serving = Some(bound);
    }
    let mut connected = Connected::new(&config.redis, "run").await?;
    connected.watch();
    let admin = serving.as_ref().map(admin::Bound::address);
    if let Some(bound) = serving {
        let dashboard = config.process.ui.as_ref().map(|dashboard| {
            let ui = Ui::new(connected.connector.clone(), dashboard.token.clone(), None);
            tokio::spawn(ui.clone().observe());
            ui.router()
        });
        let (health, status) = (health.clone(), status.clone());
        tokio::spawn(bound.serve(Arc::clone(&metrics), health, status, dashboard));
    }
    let host = Host {
        connected: &connected,
        metrics,
        health,
        status,
        attempts,
        telemetry: telemetry.as_deref(),
        admin,
    };
    let served = Box::pin(host.serve(config, sources, begin, &mut stops)).await;
    connected.close().await;
    served
}

struct Host<'a> {
    connected: &'a Connected,
    metrics: Arc<Metrics>,
    health: Health,
    status: Status,
    attempts: &'a Handle,
    telemetry: Option<&'a Telemetry>,
    admin: Option<SocketAddr>,
}

impl Host<'_> {
    async fn serve<H: Handler>(
        self,
        mut config: Config,
        sources: Sources,
        begin: Begin<impl FnOnce(Sandboxed, &Beginning<'_>) -> H>,
        stops: &mut StopSignals,
    ) -> Result<Served, Error> {
        let (sandbox, file) = begin.handler;
        let connector = &self.connected.connector;
        if let Some(providers) = &config.providers {
            providers.connect(connector);
        }
        let keeper = schedules::keeper(&config, &sources, connector, &self.metrics)?;
        let options = queue_options(&config);
        let opened = open_queue(
            &config,
            self.connected,
            options.clone(),
            &self.health,
            stops,
        );
        let Some(queue) = opened.await? else {
            return Ok(Served::NOTHING);
        };
        if config.journal.is_some() {
            refuse_old_hosts(connector, config.queue.name()).await?;
        }
        let patience = config.process.until_empty_timeout;
        let shown = (&self.health, &self.status);
        let mut watcher = ConfigWatcher::new(sources, &config, &options, connector, shown);
        config = match Box::pin(unless_stopped(watcher.begin(config), patience, stops)).await {
            Ok(config) => config,
            Err(ended) => return Ok(Served::unread(ended)),
        };
        queue.adopt(live_rules(&config, &queue_options(&config)).queue);
        announce(&config, &*queue, &sandbox);
        self.status.handler(sandbox.digest());
        self.status.serves(status::Served {
            key: config.queue.name().to_string(),
            group: config.queue.group().map(str::to_owned),
            consumer: queue.consumer().to_owned(),
        });
        let versions = Arc::new(Versions::new(sandbox, Origin::File));
        let rollout = Rollout::start(
            &config,
            connector,
            &versions,
            (file, begin.builds),
            &self.metrics,
            &self.health,
            self.attempts,
        );
        let rollout = match unless_stopped(rollout, patience, stops).await {
            Ok(rollout) => rollout?,
            Err(ended) => return Ok(Served::unread(ended)),
        };
        let (drained, until_drained) = watch::channel(false);
        let shown = (&self.health, &self.status);
        self.attempts.spawn(listing::keep_listed(
            connector.link("queues"),
            &config,
            self.status.clone(),
        ));
        if let Some(keeper) = keeper {
            self.attempts.spawn(keeper.keep());
        }
        let metrics = &self.metrics;
        let shown = rollout.show(&config, queue.consumer(), shown, metrics, until_drained);
        let place = Place {
            queue: Arc::clone(config.queue.name()),
            group: config.queue.group().map(Arc::from),
            consumer: queue.consumer().into(),
        };
        let tracer = self.telemetry.and_then(|telemetry| telemetry.tracer(place));
        let beginning = Beginning {
            config: &config,
            digest: versions.digest(),
            redis: connector.target().url(),
            admin: self.admin,
        };
        let handler = Sandboxed::of(versions)
            .gathering(config.batching)
            .traced_by(tracer);
        let handler = (begin.wrap)(handler, &beginning);
        let (control, commands) = mpsc::channel(CONTROLS_MAX);
        self.attempts.spawn(watcher.run(control.clone()));
        let driver = Driver::new(
            queue,
            &Arc::new(handler),
            loop_settings(&config),
            Arc::clone(&self.metrics),
            self.health,
            self.attempts,
        )
        .showing(self.status);
        // Large: it is moved less.
        let ended = Box::pin(drive(driver, control, commands, stops)).await;
        drained.send_replace(true);
        // Where Redis does not answer, the entry in the list of hosts expires by itself.
        let _ended = tokio::time::timeout(UNLIST_MAX, shown).await.is_ok();
        Ok(Served {
            ended,
            summary: Some(self.metrics.summary()),
        })
    }
}

/// Recorded calls are recorded for all hosts of the queue: none of them may be too old to know journals.
async fn refuse_old_hosts(connector: &Connector, queue: &str) -> Result<(), Error> {
    let store = Store::new(connector.link("versions"), queue);
    let hosts = store.hosts().await;
    let hosts = hosts.map_err(|error| StartError::from_error(error, queue))?;
    let hosts = HostSeen::parse_all(&hosts);
    match hosts.into_iter().find(|host| !host.knows_journals) {
        Some(host) => Err(StartError::OldHost(host.consumer).into()),
        None => Ok(()),
    }
}

/// Check and open the queue, with the configured patience; `None` = a signal came first.
async fn open_queue(
    config: &Config,
    connected: &Connected,
    options: QueueOptions,
    health: &Health,
    stops: &mut StopSignals,
) -> Result<Option<Arc<dyn Queue>>, Error> {
    let connector = &connected.connector;
    let try_once = async || {
        let warnings = options.check(connector).await?;
        let queue = options.clone().open(connector.clone()).await?;
        Ok::<_, StartError>((queue, warnings))
    };
    let opened = retry(config.redis.wait, async || {
        let opened = try_once().await;
        match &opened {
            Ok(_) => health.clear(Cause::RedisAway),
            Err(error) => health.impede(Cause::RedisAway, error.to_string()),
        };
        opened
    });
    let (queue, warnings) = tokio::select! {
        opened = opened => opened?,
        // Nothing has been read yet: there is nothing to drain.
        _ = stops.next() => return Ok(None),
    };
    for warning in warnings {
        warn!("{warning}");
    }
    Ok(Some(queue))
}

/// Run the loop until it ends. The first signal drains it, the second one ends it at once.
async fn drive(
    driver: Driver,
    control: mpsc::Sender<Control>,
    commands: mpsc::Receiver<Control>,
    stops: &mut StopSignals,
) -> Ended {
    let running = driver.run(commands);
    tokio::pin!(running);
    let mut stopping = false;
    loop {
        tokio::select! {
            exit = &mut running => return match exit {
                runtime::Exit::Drained => Ended::Done,
                runtime::Exit::TimedOut { .. } | runtime::Exit::NotEmpty => Ended::TimedOut,
            },
            signal = stops.next() => {
                if stopping {
                    return Ended::Forced(signal);
                }
                stopping = true;
                supervisor::stopping();
                let control = control.clone();
                tokio::spawn(async move {
                    // The channel is closed when the loop is already stopping.
                    if control.send(Control::Drain).await.is_err() {
                        info!("already stopping");
                    }
                });
            }
        }
    }
}

/// The guarantee of a queue without acknowledgements, for its handler.
const AT_MOST_ONCE: &str = "at most once: nack-requeue, drop and faults cannot be honoured, their \
                            messages are lost; so is what this host holds if it dies";

/// Log the rules that apply from now on.
fn announce(config: &Config, queue: &dyn Queue, sandbox: &Sandbox) {
    let policy = &config.policy;
    let limits = &config.sandbox.limits;
    let at_least_once = queue.guarantee() != Guarantee::AtMostOnce;
    let guarantee = match at_least_once {
        true => "at least once",
        false => AT_MOST_ONCE,
    };
    // These settings mean nothing to a queue without acknowledgements.
    let only_kept = |text: String| at_least_once.then_some(text);
    let dead_letter = config.dead_letter.as_ref().filter(|_| at_least_once);
    info!(
        queue = %config.queue.name(),
        kind = config.queue.kind(),
        group = config.queue.group(),
        consumer = queue.consumer(),
        handler = %sandbox.digest(),
        interface = sandbox.describe().interface,
        guarantee,
        max_deliveries = policy.limit.cap.filter(|_| at_least_once),
        on_cap = only_kept(policy.on_cap.show()),
        on_fault = only_kept(policy.on_fault.show()),
        dead_letter = dead_letter.map(|d| &*d.key),
        dead_letter_max_len = dead_letter.map(|d| d.max_len.get()),
        concurrency = config.sandbox.concurrency,
        reuse = config.sandbox.reuse,
        timeout = limits.wall.show(),
        cpu = limits.cpu.show(),
        memory = limits.memory,
        min_idle = only_kept(config.min_idle.show()),
        retention = only_kept(config.retention.show()),
        drain_timeout = config.process.drain_timeout.show(),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
}
