//! From a configuration to a server that can be asked: for every command that needs Redis.

use std::path::Path;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::cli::exit::{Exit, Failure};
use crate::config::{Redis, Server, Value};
use crate::redis::Class;
use crate::redis::connection::Connector;
use crate::redis::embedded::Embedded;
use crate::redis::startup::StartError;
use crate::redis::target::{PasswordSource, Target, TlsFiles};
use crate::telemetry::logging::{self, LogFilter, LogFormat};

/// Where the embedded server keeps its data.
const EMBEDDED_DIR: &str = ".hostler";
/// The first and the longest pause between two tries while waiting for the server.
const PAUSE_FIRST: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A server that can be asked.
pub(super) struct Connected {
    /// Opens connections to it.
    pub(super) connector: Connector,
    embedded: Option<Embedded>,
}

impl Connected {
    /// Connections of this command. Starts the embedded server if that is meant; asks nothing.
    pub(super) async fn new(redis: &Redis, command: &str) -> Result<Self, Failure> {
        let (target, embedded) = match &redis.server {
            Server::At(target) => ((**target).clone(), None),
            Server::Embedded => {
                let embedded = Embedded::start(Path::new(EMBEDDED_DIR))
                    .await
                    .map_err(|error| Failure {
                        hint: error.hint(),
                        ..Failure::new(Exit::Unavailable, error)
                    })?;
                let url = embedded.url();
                let target = Target::parse(url, PasswordSource::Url, TlsFiles::default())
                    .map_err(|error| Failure::new(Exit::Bug, error))?;
                (target, Some(embedded))
            }
        };
        Ok(Self {
            connector: Connector::new(target, &format!("hostler-{command}")),
            embedded,
        })
    }

    /// Leave the embedded server, and wait until it is gone if nobody else uses it.
    pub(super) async fn close(self) {
        if let Some(embedded) = self.embedded
            && let Err(error) = embedded.stop().await
        {
            tracing::warn!(%error, "the embedded redis did not stop cleanly");
        }
    }
}

/// Why something did not work, and whether trying again may help.
pub(super) trait Passing: std::fmt::Display {
    /// Whether it may pass by itself.
    fn may_pass(&self) -> bool;
    /// How the command ends if it does not.
    fn failure(&self) -> Failure;
}

impl Passing for StartError {
    fn may_pass(&self) -> bool {
        Self::may_pass(self)
    }

    fn failure(&self) -> Failure {
        let exit = match self.may_pass() {
            true => Exit::Unavailable,
            false => Exit::Usage,
        };
        Failure {
            hint: self.hint(),
            ..Failure::new(exit, self)
        }
    }
}

impl Passing for crate::redis::Error {
    fn may_pass(&self) -> bool {
        matches!(self.class(), Class::Reconnect | Class::Retry)
    }

    fn failure(&self) -> Failure {
        refused(self)
    }
}

/// Try until it works, until `wait` is over, or until waiting cannot help.
pub(super) async fn patiently<T, E: Passing>(
    wait: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + wait;
    let mut pause = PAUSE_FIRST;
    let mut told = false;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if !error.may_pass() || left.is_zero() {
            return Err(error.failure());
        }
        if !told {
            tracing::info!(%error, wait = wait.show(), "waiting for redis");
            told = true;
        }
        sleep(pause.mul_f64(0.8 + 0.4 * fastrand::f64()).min(left)).await;
        pause = (pause * 2).min(PAUSE_MAX);
    }
}

/// Run a command that asks Redis something and ends.
pub(super) fn ask<T>(asking: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    logging::start(LogFormat::Auto, &LogFilter::default());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::io("cannot start", &error))?;
    let answered = runtime.block_on(asking);
    // stdin may still be read by a thread that nobody waits for.
    runtime.shutdown_background();
    answered
}

/// Why a command that asks one thing was not answered.
fn refused(error: &crate::redis::Error) -> Failure {
    match error.class() {
        Class::Reconnect | Class::Retry => Failure::new(Exit::Unavailable, error)
            .hint("start Redis, correct the URL, or try again later"),
        Class::Missing => {
            Failure::new(Exit::Usage, error).hint("is the name right? has a host ever run on it?")
        }
        Class::Configuration => Failure::new(Exit::Usage, error),
    }
}
