//! The inner loop of writing a handler: builds it, serves its queue as `hostler run` does, reports every attempt, and
//! builds again whenever a source changes.
//!
//! The host swaps what a build has made, and deploys, and obeys pauses and policies. A build that fails is reported, and
//! the last version runs on.

mod build_command;
mod builder;
mod sources;
mod tracing_handler;

use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::config::{Config, Sources};
use crate::host::{self, Begin, Beginning, Ended, Served, StopSignals, serve_with};
use crate::runtime::sandboxed::Sandboxed;
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
    /// The first component was not loaded.
    Failed(host::Error),
    /// The host begins.
    Serving(&'a Beginning<'a>),
    /// An attempt has ended.
    Attempt(&'a Attempt<'a>),
}

/// Shows events.
pub type Show = Arc<dyn Fn(Event<'_>) + Send + Sync>;

/// Build the handler of this configuration, serve its queue, and build it again, until a signal stops the process.
///
/// # Errors
/// Redis cannot be reached, or the queue cannot be served. A handler that is not built or not loaded is reported, and is
/// no error.
pub async fn develop(
    config: Config,
    sources: Sources,
    mut stops: StopSignals,
    attempts: &Handle,
    show: Show,
) -> Result<Served, Error> {
    let mut builder = DevBuilder::new(&config, Arc::clone(&show));
    let handler = tokio::select! {
        handler = builder.first() => handler,
        _ = stops.next() => return Ok(Served { ended: Ended::Done, summary: None }),
    };
    let built = Arc::new(Notify::new());
    let has_build = config.development.build.is_some();
    let begin = Begin {
        handler,
        builds: has_build.then(|| Arc::clone(&built)),
        wrap: |handler: Sandboxed, beginning: &Beginning<'_>| {
            show(Event::Serving(beginning));
            TracingHandler::new(handler, Arc::clone(&show))
        },
    };
    let serving = serve_with(config, sources, stops, attempts, None, begin);
    tokio::select! {
        served = Box::pin(serving) => Ok(served?),
        never = builder.follow(&built) => match never {},
    }
}
