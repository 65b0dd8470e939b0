//! The inner loop of writing a handler: builds it, runs it beside a private Redis, reports every attempt, and builds and
//! swaps whenever a source changes.
//!
//! A version is replaced only by one that was built and loaded. If a build fails, that is reported, and the last good
//! version runs on.

mod build_command;
mod builder;
mod sources;
mod tracing_handler;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::config::Config;
use crate::host::settings::{loop_settings, queue_options};
use crate::host::{self, Connected, Ended, StopSignals};
use crate::rollout::versions::{Origin, Versions};
use crate::runtime::Driver;
use crate::sandbox::Sandbox;
use crate::telemetry::health::Health;
use crate::telemetry::metrics::{Metrics, Summary};
use crate::workbench::Error;

use builder::DevBuilder;
pub use tracing_handler::Attempt;
use tracing_handler::TracingHandler;

/// Something to show to the user.
#[derive(Debug)]
pub enum Event<'a> {
    /// A step, in a line.
    Note(&'a str),
    /// The output of a build that failed.
    Output(&'a str),
    /// The component was not loaded.
    Failed(host::Error),
    /// An attempt has ended.
    Attempt(&'a Attempt<'a>),
}

/// Shows events.
pub type Show = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// Build the handler of this configuration, serve its queue, and swap it, until a signal stops the process. `None` = it
/// came before the first message could be handled.
///
/// # Errors
/// Redis cannot be reached, or the queue cannot be served. A handler that is not built or not loaded is reported, and is
/// no error.
pub async fn develop(
    config: &Config,
    attempts: &Handle,
    show: Show,
) -> Result<Option<(Ended, Summary)>, Error> {
    let mut stops = StopSignals::listen()?;
    let mut builder = DevBuilder::new(config, Arc::clone(&show));
    let sandbox = tokio::select! {
        sandbox = builder.next() => sandbox,
        _ = stops.next() => return Ok(None),
    };
    let connected = Connected::new(&config.redis, "dev").await?;
    let ended = Box::pin(serve(
        config, attempts, &connected, &mut stops, builder, sandbox, &show,
    ))
    .await;
    connected.close().await;
    ended
}

async fn serve(
    config: &Config,
    attempts: &Handle,
    connected: &Connected,
    stops: &mut StopSignals,
    mut builder: DevBuilder<'_>,
    sandbox: Sandbox,
    show: &Show,
) -> Result<Option<(Ended, Summary)>, Error> {
    let health = Health::default();
    let options = queue_options(config);
    let Some(queue) = host::open_queue(config, connected, options, &health, stops).await? else {
        return Ok(None);
    };
    let metrics = Arc::new(Metrics::new(config.queue.name(), config.queue.group()));
    metrics.handler(Arc::clone(sandbox.digest()));
    let (kind, name, digest) = (config.queue.kind(), config.queue.name(), sandbox.digest());
    let say = |text: String| show(Event::Note(&text));
    say(format!("serving the {kind} `{name}` with {digest}"));
    // `embedded` is another server in another folder; this URL is right everywhere.
    let url = connected.connector.target().url();
    say(format!(
        "send a message: hostler publish --redis {url} --{kind} {name} --body '...'"
    ));
    let versions = Arc::new(Versions::new(sandbox, Origin::File));
    let driver = Driver::new(
        queue,
        &Arc::new(TracingHandler::new(Arc::clone(&versions), Arc::clone(show))),
        // No batching: each message is printed by itself.
        loop_settings(config),
        Arc::clone(&metrics),
        health,
        attempts,
    );
    // The only control message is the drain.
    let (control, commands) = mpsc::channel(1);
    let ended = tokio::select! {
        ended = host::drive(driver, control, commands, stops) => ended,
        never = builder.follow(&versions) => match never {},
    };
    Ok(Some((ended, metrics.summary())))
}
