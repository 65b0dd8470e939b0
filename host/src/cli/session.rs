//! The first and last steps of every command that asks Redis: read the settings, show their warnings,
//! connect, wait until the server answers, and close.

use std::time::Duration;

use crate::cli::exit::Failure;
use crate::cli::flags::{Flags, Reach};
use crate::cli::{Variables, output};
use crate::config::{Collected, Redis};
use crate::host::{Connected, MayPass, retry};
use crate::redis::connection::{Connector, Link};
use crate::telemetry::logging::{self, LogFilter, LogFormat};

/// A server that has answered once.
pub(super) struct Session {
    /// Opens connections to it.
    pub(super) connector: Connector,
    wait: Duration,
}

impl Session {
    /// A connection for one purpose.
    pub(super) fn link(&self, purpose: &str) -> Link {
        self.connector.link(purpose)
    }

    /// Try until it works, within the configured wait for Redis.
    pub(super) async fn retry<T, E: MayPass + Into<Failure>>(
        &self,
        attempt: impl AsyncFnMut() -> Result<T, E>,
    ) -> Result<T, Failure> {
        retry(self.wait, attempt).await.map_err(Into::into)
    }
}

/// Run a command that needs nothing but Redis.
pub(super) fn ask<T>(
    flags: Flags<Reach>,
    variables: Variables,
    command: &str,
    work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let redis = flags.load(variables, Collected::redis)?;
    ask_at(&redis, command, work)
}

/// Run a command on the server of this configuration.
pub(super) fn ask_at<T>(
    redis: &Redis,
    command: &str,
    work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    start_logging();
    block_on(connected(redis, command, work))
}

/// The same inside of a runtime.
pub(super) async fn connected<T>(
    redis: &Redis,
    command: &str,
    work: impl AsyncFnOnce(&Session) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let connected = Connected::new(redis, command).await?;
    if let Some(directory) = &connected.new_directory {
        output::people(&format!(
            "note: this is a new private Redis, with its data in {}; that of another folder is another one\n",
            directory.display()
        ));
    }
    let session = Session {
        connector: connected.connector.clone(),
        wait: redis.wait,
    };
    let link = session.link("reach");
    let done = match session.retry(async || link.reach().await).await {
        Ok(()) => work(&session).await,
        Err(failure) => Err(failure),
    };
    connected.close().await;
    done
}

/// Log as a command does whose settings do not say how.
pub(super) fn start_logging() {
    logging::start(LogFormat::Auto, &LogFilter::default(), None);
}

/// Run on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    let done = runtime.block_on(work);
    // A thread may still be reading stdin: do not wait for it.
    runtime.shutdown_background();
    done
}
