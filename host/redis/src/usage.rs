//! The CPU time of a server, the least that a consumer can do, and the removal of temporary keys: for
//! `hostler bench`.

use std::time::Duration;

use redis::cmd;

use crate::bare;
use crate::connection::{Connector, Link};
use crate::error::Error;
use crate::reply;

/// The group of the plain consumer.
const GROUP: &str = "bare";

/// Ask the server for its CPU time since it started: of the process, and of the system on its behalf.
///
/// # Errors
/// Any of [`Error`]; `INFO` may be forbidden.
pub async fn cpu(link: &Link) -> Result<Duration, Error> {
    const COMMAND: &str = "INFO";
    let text = reply::text(COMMAND, link.call(COMMAND, cmd(COMMAND).arg("cpu")).await?)?;
    let seconds = |name: &str| {
        text.lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(found, _)| *found == name)
            .and_then(|(_, value)| value.trim().parse::<f64>().ok())
            .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
            .ok_or_else(|| reply::invalid(COMMAND, format!("no {name}")))
    };
    Ok(seconds("used_cpu_user")? + seconds("used_cpu_sys")?)
}

/// A plain consumer of a stream, ready to begin.
#[derive(Debug)]
pub struct Bare {
    reads: Link,
    acknowledgements: Link,
    key: String,
}

impl Bare {
    /// Make its group, and open its connections.
    ///
    /// # Errors
    /// Any of [`Error`].
    pub async fn open(connector: &Connector, key: &str) -> Result<Self, Error> {
        const COMMAND: &str = "XGROUP CREATE";
        let (reads, acknowledgements) = (
            connector.link("bare").of(key),
            connector.link("bare").of(key),
        );
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(key).arg(GROUP).arg(0);
        reads.call(COMMAND, create.arg("MKSTREAM")).await?;
        acknowledgements.reach().await?;
        Ok(Self {
            reads,
            acknowledgements,
            key: key.to_owned(),
        })
    }

    /// Read and acknowledge this many messages.
    ///
    /// # Errors
    /// Any of [`Error`]; the stream has fewer messages.
    pub async fn consume(&self, messages: u64) -> Result<(), Error> {
        let mut reads = self.reads.plain().await?;
        let mut acknowledgements = self.acknowledgements.plain().await?;
        let place = (&*self.key, GROUP);
        let consumed = bare::consume(&mut reads, &mut acknowledgements, place, messages).await;
        let failed = |error: redis::RedisError| reply::invalid("XREADGROUP", error.to_string());
        consumed.map(drop).map_err(failed)
    }
}

/// Remove keys of any type; the server frees their memory in the background.
///
/// # Errors
/// Any of [`Error`].
pub async fn remove(link: &Link, keys: &[String]) -> Result<(), Error> {
    const COMMAND: &str = "UNLINK";
    link.call(COMMAND, cmd(COMMAND).arg(keys)).await.map(drop)
}
