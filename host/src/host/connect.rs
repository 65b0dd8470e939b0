//! From a configuration to a Redis that answers.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::config::{Durability, Redis, Server, Value};
use crate::delivery::backoff::Backoff;
use crate::embedded::Embedded;
use crate::host::Error;
use crate::queue::startup::StartError;
use crate::redis::Class;
use crate::redis::connection::Connector;
use crate::redis::target::{PasswordSource, Target, TlsFiles};

/// The pauses between tries while the server does not answer.
pub(super) const PAUSES: Backoff = Backoff {
    first: Duration::from_millis(50),
    factor: 2.0,
    max: Duration::from_secs(1),
    jitter: 0.2,
};

/// The server of a configuration.
pub struct Connected {
    /// Opens connections to it.
    pub connector: Connector,
    /// The directory of the embedded server, if none was used there before.
    pub new_directory: Option<PathBuf>,
    embedded: Option<Embedded>,
    /// Listens to Sentinels, if there are any, until this is dropped.
    watch: JoinSet<()>,
}

impl Connected {
    /// Prepare connections, named after the command. Starts the embedded server where the
    /// configuration names it; sends nothing yet.
    pub async fn new(redis: &Redis, command: &str) -> Result<Self, Error> {
        let mut new_directory = None;
        let (target, embedded) = match &redis.server {
            Server::At(target) => ((**target).clone(), None),
            Server::Embedded(directory) => {
                if !directory.exists() {
                    new_directory = std::path::absolute(directory).ok();
                }
                let embedded = Embedded::start(directory).await?;
                let url = embedded.url();
                let target = Target::parse(url, PasswordSource::Url, TlsFiles::default())
                    .map_err(Error::EmbeddedUrl)?;
                (target, Some(embedded))
            }
        };
        Ok(Self {
            connector: Connector::new(target, &format!("hostler-{command}"))
                .durable(redis.durability == Durability::Replica),
            new_directory,
            embedded,
            watch: JoinSet::new(),
        })
    }

    /// Learn of failovers at once, where Sentinels announce them: for commands that run for long.
    pub fn watch(&mut self) {
        let connector = self.connector.clone();
        self.watch.spawn(async move { connector.watch().await });
    }

    /// Leave the embedded server; wait until it has ended, unless other processes use it.
    pub async fn close(self) {
        if let Some(embedded) = self.embedded
            && let Err(error) = embedded.stop().await
        {
            tracing::warn!(%error, "the embedded redis did not stop cleanly");
        }
    }
}

/// An error that may pass by itself.
pub trait MayPass: std::fmt::Display {
    /// Whether another try may succeed.
    fn may_pass(&self) -> bool;
}

impl MayPass for StartError {
    fn may_pass(&self) -> bool {
        Self::may_pass(self)
    }
}

impl MayPass for crate::redis::Error {
    fn may_pass(&self) -> bool {
        matches!(self.class(), Class::Reconnect | Class::Retry)
    }
}

impl MayPass for crate::policies::Error {
    fn may_pass(&self) -> bool {
        matches!(self, Self::Redis(error) if error.may_pass())
    }
}

/// Try until it works, until `wait` is over, or until the error cannot pass.
pub async fn retry<T, E: MayPass>(
    wait: Duration,
    mut attempt: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    let mut tries = 0;
    loop {
        let error = match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let left = wait.saturating_sub(begun.elapsed());
        if !error.may_pass() || left.is_zero() {
            return Err(error);
        }
        if tries == 0 {
            tracing::info!(%error, wait = wait.show(), "waiting for redis");
        }
        tries += 1;
        sleep(PAUSES.delay(tries, fastrand::f64()).min(left)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_longest_wait_ends_as_soon_as_it_works() {
        let mut tries = 0;
        let answered = retry(Duration::MAX, async || {
            tries += 1;
            match tries {
                1 => Err(crate::redis::Error::Connection {
                    target: "db".to_owned(),
                    detail: "refused".to_owned(),
                }),
                _ => Ok(tries),
            }
        });
        assert_eq!(answered.await.unwrap(), 2);
    }
}
