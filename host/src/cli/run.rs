//! `hostler run`: the host of one queue.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tracing::{info, warn};

use crate::admin;
use crate::cli::connect::{Connected, patiently};
use crate::cli::exit::{Exit, Failure};
use crate::cli::flags::{All, Flags, Sources};
use crate::cli::keeper::Keeper;
use crate::cli::threads::Threads;
use crate::cli::{Variables, check, output};
use crate::config::{Config, SummaryFormat, Value};
use crate::delivery::ledger;
use crate::queue::kind::QueueOptions;
use crate::queue::{Guarantee, Queue};
use crate::redis::startup::StartError;
use crate::rollout::verify;
use crate::rollout::versions::{Origin, Versions};
use crate::runtime::sandboxed::Sandboxed;
use crate::runtime::{self, Control, Driver, Rules, UntilEmpty, gate};
use crate::sandbox::Sandbox;
use crate::telemetry::health::{Cause, Health};
use crate::telemetry::logging;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::status::{Served, Status};

mod swapping;

use swapping::Swapping;

/// How long a host that has drained waits to say that it has left.
const LEAVING_MAX: Duration = Duration::from_millis(500);
/// What may wait to be told to the loop.
const CONTROLS_MAX: usize = 4;

/// Serve a queue: hand each message to the handler, and do what it says
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "hostler run --redis URL --stream KEY --group NAME --handler FILE.wasm [FLAGS]\n       \
                      hostler run --redis URL --list KEY [--reliable] --handler FILE.wasm [FLAGS]\n       \
                      hostler run --redis URL --channel NAME --handler FILE.wasm [FLAGS]\n       \
                      hostler run --config FILE.toml [FLAGS]",
    after_help = "\
Every flag is also a variable (--min-idle is HOSTLER_MIN_IDLE) and a key of the configuration file
(min_idle); docs/configuration.md lists them. A flag wins over a variable, a variable over the file.

Examples:
  hostler run --redis redis://localhost --stream orders --group billing --handler billing.wasm
  hostler run --redis embedded --stream orders --group g --handler h.wasm --until-empty --summary json
  hostler run --redis redis://localhost --list jobs --reliable --recovery-zset jobs:claims --handler h.wasm
  hostler run --redis redis://localhost --pattern 'news.*' --handler h.wasm --on-overflow drop-oldest
  hostler run --config orders.toml --max-deliveries 5 --dead-letter orders:dead

SIGTERM or Ctrl-C: stop reading, end what has started, hand back the rest, exit 0. Again: end at once.
Exit codes: 0 drained or empty, 64 usage or configuration, 65 bad component, 69 Redis not there,
75 the time for draining (or --until-empty) was over"
)]
pub(super) struct Args {
    #[command(flatten)]
    flags: Flags<All>,
}

pub(super) fn run(args: Args, variables: Variables) -> Result<Exit, Failure> {
    let sources = args.flags.sources(variables);
    let loaded = sources.collect(None, Vec::new()).config()?;
    let config = loaded.value;
    logging::start(config.process.log_format, &config.process.log_level);
    for problem in &loaded.warnings {
        warn!(hint = problem.hint, "{problem}");
    }
    let options = queue_options(&config);
    let loaded = load(&config)?;

    Threads::start()?.run(async |attempts| {
        // Large: it is moved about less.
        Box::pin(serve(config, sources, options, loaded, attempts)).await
    })
}

/// The handler's file: what it holds, and what that is.
fn load(config: &Config) -> Result<(Sandbox, Vec<u8>), Failure> {
    let file = &config.handler.file;
    let bytes = check::read(file, config.sandbox.limits.component)?;
    let sandbox = check::load_bytes(file, &bytes, &config.sandbox)?;
    let digest = sandbox.digest();
    match &config.handler.digest {
        Some(wanted) if wanted.as_str() != &**digest => {
            let file = file.display();
            let wanted = wanted.as_str();
            let what = format!("{file} is {digest}, but `handler_digest` accepts only {wanted}");
            Err(Failure::new(Exit::Component, what).hint("deploy that version, or change the pin"))
        }
        _ => {
            let tested = verify::selftest(&sandbox, &config.swap.terms.selftests);
            tested.map_err(|refusal| {
                let what = format!("{}: {refusal}", config.handler.file.display());
                Failure::new(Exit::Component, what)
                    .hint("correct the handler, or its `[[selftest]]`")
            })?;
            Ok((sandbox, bytes))
        }
    }
}

async fn serve(
    mut config: Config,
    sources: Sources,
    options: QueueOptions,
    (sandbox, file): (Sandbox, Vec<u8>),
    attempts: &Handle,
) -> Result<Exit, Failure> {
    let mut stops = Stops::listen()?;
    let metrics = Arc::new(Metrics::new(config.queue.name(), config.queue.group()));
    let health = Health::default();
    let status = Status::default();
    metrics.handler(Arc::clone(sandbox.digest()));
    if let Some(address) = config.process.admin {
        let bound = admin::bind(address)
            .await
            .map_err(|error| Failure::new(Exit::Usage, error).hint("give another `--admin`"))?;
        info!(address = %bound.address(), "serving /metrics, /live and /ready");
        tokio::spawn(bound.serve(Arc::clone(&metrics), health.clone(), status.clone()));
    }
    let connected = Connected::new(&config.redis, "run").await?;
    let opened = tokio::select! {
        opened = open(&config, &connected, options.clone(), &health) => opened,
        // Nothing has been read yet: there is nothing to drain.
        _ = stops.next() => {
            connected.close().await;
            return Ok(Exit::Ok);
        }
    };
    let queue = match opened {
        Ok(queue) => queue,
        Err(failure) => {
            connected.close().await;
            return Err(failure);
        }
    };
    let mut keeper = Keeper::new(sources, &config, &options, &connected.connector, &status);
    if let Some(ruled) = keeper.begin().await {
        queue.adopt(rules(&ruled, &queue_options(&ruled)).queue);
        config = ruled;
    }
    announce(&config, &*queue, &sandbox);
    status.handler(sandbox.digest());
    status.serves(Served {
        key: config.queue.name().to_string(),
        group: config.queue.group().map(str::to_owned),
        consumer: queue.consumer().to_owned(),
    });
    let versions = Arc::new(Versions::new(sandbox, Origin::File));
    let swapping = tokio::select! {
        swapping = Swapping::start(&config, &connected, &versions, &file, &metrics, &health, attempts) => swapping?,
        // Nothing has been read yet here either.
        _ = stops.next() => {
            connected.close().await;
            return Ok(Exit::Ok);
        }
    };
    let (leaving, left) = watch::channel(false);
    let shown = swapping.show(&config, queue.consumer(), &health, left);
    let (control, commands) = mpsc::channel(CONTROLS_MAX);
    attempts.spawn(keeper.run(control.clone()));
    let driver = Driver::new(
        queue,
        &Arc::new(Sandboxed::of(versions).gathering(config.batching)),
        settings(&config),
        Arc::clone(&metrics),
        health,
        attempts,
    )
    .showing(status);
    let exit = drive(driver, control, commands, &mut stops).await;
    leaving.send_replace(true);
    // Where Redis is away, what is shown lapses by itself.
    let _ended = tokio::time::timeout(LEAVING_MAX, shown).await.is_ok();
    if config.process.summary == SummaryFormat::Json {
        output::json(&metrics.summary())?;
    }
    connected.close().await;
    Ok(exit)
}

pub(super) async fn open(
    config: &Config,
    connected: &Connected,
    options: QueueOptions,
    health: &Health,
) -> Result<Arc<dyn Queue>, Failure> {
    let connector = &connected.connector;
    let try_once = async || {
        let warnings = options.check(connector).await?;
        let queue = options.clone().open(connector.clone()).await?;
        Ok::<_, StartError>((queue, warnings))
    };
    let opened = patiently(config.redis.wait, async || {
        let opened = try_once().await;
        match &opened {
            Ok(_) => health.clear(Cause::RedisAway),
            Err(error) => health.impede(Cause::RedisAway, error.to_string()),
        };
        opened
    });
    let (queue, warnings) = opened.await?;
    for warning in warnings {
        warn!("{warning}");
    }
    Ok(queue)
}

/// Run the loop until it ends, or until it is told to end at once.
pub(super) async fn drive(
    driver: Driver,
    control: mpsc::Sender<Control>,
    commands: mpsc::Receiver<Control>,
    stops: &mut Stops,
) -> Exit {
    let running = driver.run(commands);
    tokio::pin!(running);
    let mut stopping = false;
    loop {
        tokio::select! {
            exit = &mut running => return match exit {
                runtime::Exit::Drained => Exit::Ok,
                runtime::Exit::TimedOut { .. } | runtime::Exit::NotEmpty => Exit::TimedOut,
            },
            exit = stops.next() => {
                if stopping {
                    return exit;
                }
                stopping = true;
                let control = control.clone();
                tokio::spawn(async move {
                    // Closed, it is stopping already.
                    if control.send(Control::Drain).await.is_err() {
                        info!("already stopping");
                    }
                });
            }
        }
    }
}

/// What asks a host, or a command that takes long, to stop.
pub(super) struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::io("cannot wait for signals", &e));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Wait for the next one: how to exit if it is one too many.
    pub(super) async fn next(&mut self) -> Exit {
        tokio::select! {
            _ = self.interrupt.recv() => Exit::Interrupted,
            _ = self.terminate.recv() => Exit::Terminated,
        }
    }
}

/// What such a queue means for its handler.
const AT_MOST_ONCE: &str = "at most once: nack-requeue, drop and faults cannot be honoured, their \
                            messages are lost; so is what this host holds if it dies";

/// The rules that hold from now on, once.
fn announce(config: &Config, queue: &dyn Queue, sandbox: &Sandbox) {
    let policy = &config.policy;
    let limits = &config.sandbox.limits;
    let dead_letter = config.dead_letter.as_ref();
    if queue.guarantee() == Guarantee::AtMostOnce {
        info!(
            queue = %config.queue.name(),
            kind = config.queue.kind(),
            consumer = queue.consumer(),
            handler = %sandbox.digest(),
            guarantee = AT_MOST_ONCE,
            concurrency = config.sandbox.concurrency,
            reuse = config.sandbox.reuse,
            timeout = limits.wall.show(),
            cpu = limits.cpu.show(),
            memory = limits.memory,
            drain_timeout = config.process.drain_timeout.show(),
            version = env!("CARGO_PKG_VERSION"),
            "serving"
        );
        return;
    }
    info!(
        queue = %config.queue.name(),
        kind = config.queue.kind(),
        group = config.queue.group(),
        consumer = queue.consumer(),
        handler = %sandbox.digest(),
        guarantee = "at least once",
        max_deliveries = policy.limit.cap,
        on_cap = policy.on_cap.show(),
        on_fault = policy.on_fault.show(),
        dead_letter = dead_letter.map(|d| &*d.key),
        dead_letter_max_len = dead_letter.map(|d| d.max_len.get()),
        concurrency = config.sandbox.concurrency,
        reuse = config.sandbox.reuse,
        timeout = limits.wall.show(),
        cpu = limits.cpu.show(),
        memory = limits.memory,
        min_idle = config.min_idle.show(),
        retention = config.retention.show(),
        drain_timeout = config.process.drain_timeout.show(),
        version = env!("CARGO_PKG_VERSION"),
        "serving"
    );
}

pub(super) fn settings(config: &Config) -> runtime::Settings {
    let defaults = runtime::Settings::new(config.policy.clone());
    runtime::Settings {
        ledger: ledger::Settings {
            concurrency: config.sandbox.concurrency,
            prefetch_max: config.prefetch.get() as usize,
            min_idle: config.min_idle,
            orphan_scan: config.orphan_scan,
            due_scan: config.parked_scan,
            ..defaults.ledger
        },
        gate: gate::Limits {
            payload_max: config.max_payload.as_usize(),
            group: config.queue.group().map(Arc::from),
            ttl: config.ttl,
            codec: config.codec,
            required: config.require_headers.0.clone(),
        },
        drain_timeout: config.process.drain_timeout,
        until_empty: config.process.until_empty.then_some(UntilEmpty {
            timeout: config.process.until_empty_timeout,
        }),
        canary: config.swap.canary.map(|(_, rule)| rule),
        breaker: config.swap.breaker,
        on_break: config.swap.on_break,
    }
}

/// What may change under the running host.
pub(super) fn rules(config: &Config, options: &QueueOptions) -> Rules {
    Rules {
        policy: config.policy.clone(),
        ttl: config.ttl,
        queue: options.rules(),
    }
}

/// The queue, as the configuration has it.
pub(super) fn queue_options(config: &Config) -> QueueOptions {
    let consumer = config.consumer.clone().unwrap_or_else(hostname);
    config.queue_options(&consumer)
}

/// What the machine calls itself.
pub(super) fn hostname() -> String {
    nix::unistd::gethostname()
        .ok()
        .and_then(|name| name.into_string().ok())
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "hostler".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Collected, Input};
    use crate::queue::list::ListOptions;
    use crate::queue::pubsub::PubSubOptions;
    use crate::queue::simple_list::SimpleListOptions;
    use crate::queue::stream::StreamOptions;

    fn config(queue: &[(&'static str, &str)]) -> Config {
        let flags = [("redis", "redis://db"), ("handler", "h.wasm")];
        let flags = flags.iter().chain(queue);
        let input = Input {
            flags: flags
                .map(|(key, text)| (*key, (*text).to_owned()))
                .collect(),
            ..Input::default()
        };
        Collected::new(input).config().unwrap().value
    }

    #[test]
    fn the_documented_defaults_are_those_of_the_loop_and_the_queue() {
        let config = config(&[("stream", "orders"), ("group", "g")]);
        let mut defaults = runtime::Settings::new(config.policy.clone());
        // Which group it serves is no default.
        defaults.gate.group = settings(&config).gate.group;
        assert_eq!(format!("{:?}", settings(&config)), format!("{defaults:?}"));
        let options = StreamOptions {
            consumer: hostname(),
            ..StreamOptions::new("orders", "g")
        };
        let made = queue_options(&config);
        let options = QueueOptions::Stream(options);
        assert_eq!(format!("{made:?}"), format!("{options:?}"));

        let config = self::config(&[("list", "jobs"), ("reliable", "true")]);
        let options = QueueOptions::List(ListOptions {
            consumer: hostname(),
            ..ListOptions::new("jobs")
        });
        let made = queue_options(&config);
        assert_eq!(format!("{made:?}"), format!("{options:?}"));

        let config = self::config(&[("list", "jobs")]);
        let options = QueueOptions::SimpleList(SimpleListOptions {
            consumer: hostname(),
            ..SimpleListOptions::new("jobs")
        });
        let made = queue_options(&config);
        assert_eq!(format!("{made:?}"), format!("{options:?}"));

        let config = self::config(&[("channel", "news")]);
        let options = QueueOptions::PubSub(PubSubOptions {
            consumer: hostname(),
            ..PubSubOptions::new("news")
        });
        let made = queue_options(&config);
        assert_eq!(format!("{made:?}"), format!("{options:?}"));
    }

    #[test]
    fn the_machine_has_a_name() {
        assert!(!hostname().is_empty());
    }
}
