//! Simple lists: a value is taken and forgotten, as `BRPOP` does. At most once.
//!
//! One round trip (`BLMPOP`) takes as many values as the host has room for: about 20 ms of work beyond
//! its free slots. A host that dies loses those.
//!
//! Crash windows: once Redis has taken a value off the list, it exists only on its way here and in this
//! host. A lost reply (a broken connection, a missed deadline) loses its values.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;

use super::at_most_once::{AtMostOnce, Source, Value};
use super::{Contact, Outlets};
use crate::redis::connection::{Connector, Link};
use crate::redis::error::Error;
use crate::redis::interruption::Interruption;
use crate::redis::reply;
use crate::redis::startup::StartError;
use crate::wire::list::Framing;

/// About how many bytes of values are taken at once: where they are large, fewer of them.
const BYTES_MAX: usize = 4 << 20;
/// How many values the first take has at most: how large they are is not known yet.
const FIRST_MAX: usize = 16;

/// A simple list, and how this host serves it.
#[derive(Clone, Debug)]
pub struct SimpleListOptions {
    /// The list's key.
    pub key: String,
    /// The beginning of this host's name (a host name, usually).
    pub consumer: String,
    /// How values are read.
    pub framing: Framing,
    /// Where its handler may publish, by the names that the handler uses.
    pub outlets: Outlets,
}

impl SimpleListOptions {
    /// This list, with defaults.
    pub fn new(key: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            consumer: "hostler".to_owned(),
            framing: Framing::default(),
            outlets: Outlets::default(),
        }
    }
}

/// A simple list, as one host serves it.
#[derive(Debug)]
pub struct SimpleList {
    key: Arc<str>,
    /// For everything but taking.
    commands: Link,
    /// Taking only: it blocks.
    fetches: Link,
    interruption: Interruption,
    /// About how large a value is, as far as it is known.
    value_size: AtomicUsize,
    stopped: AtomicBool,
}

impl SimpleList {
    /// Serve the list.
    ///
    /// # Errors
    /// [`StartError`] if Redis cannot be reached or refuses.
    pub async fn open(
        connector: Connector,
        options: SimpleListOptions,
    ) -> Result<AtMostOnce<Self>, StartError> {
        let list = Self {
            key: options.key.as_str().into(),
            commands: connector.link("commands"),
            fetches: connector.link("fetch"),
            interruption: Interruption::default(),
            value_size: AtomicUsize::new(BYTES_MAX / FIRST_MAX),
            stopped: AtomicBool::new(false),
        };
        let works = list.probe().await;
        works.map_err(|error| StartError::from_error(error, &list.key))?;
        let publishing = (&connector, &*options.key, options.outlets);
        Ok(AtMostOnce::new(
            list,
            options.framing,
            &options.consumer,
            publishing,
        ))
    }

    async fn pop(&self, want: usize, wait: Duration) -> Result<Vec<Bytes>, Error> {
        const COMMAND: &str = "BLMPOP";
        let size = self.value_size.load(Ordering::Relaxed).max(1);
        let mut cmd = redis::cmd(if wait.is_zero() { "LMPOP" } else { COMMAND });
        if !wait.is_zero() {
            // 0 would mean for ever.
            let seconds = wait.as_secs_f64().max(0.001);
            cmd.arg(format!("{seconds:.3}"));
        }
        cmd.arg(1).arg(&*self.key).arg("RIGHT");
        cmd.arg("COUNT").arg(want.min(BYTES_MAX / size).max(1));
        let reply = self.fetches.call_waiting(COMMAND, &cmd, wait).await?;
        let mut reply = reply::array(COMMAND, reply)?;
        // Nil: nothing came.
        let Some(values) = reply.pop() else {
            return Ok(Vec::new());
        };
        let values = reply::values(COMMAND, values)?;
        let largest = values.iter().map(Bytes::len).max().unwrap_or_default();
        // Up at once, down slowly.
        let size = largest.max(size - size / 8);
        self.value_size.store(size, Ordering::Relaxed);
        Ok(values)
    }
}

#[async_trait]
impl Source for SimpleList {
    async fn take(&self, want: usize, wait: Duration) -> Result<Vec<Value>, Error> {
        let _fetching = self.interruption.begin();
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let wait = match self.interruption.is_wanted() {
            true => Duration::ZERO,
            false => wait,
        };
        let values = self.pop(want, wait).await?;
        let value = |bytes| Value {
            queue: Arc::clone(&self.key),
            bytes,
            enqueued_ms: 0,
        };
        Ok(values.into_iter().map(value).collect())
    }

    async fn interrupt(&self) -> Result<(), Error> {
        self.interruption
            .unblock(&self.commands, &self.fetches)
            .await
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    async fn waiting(&self) -> Result<u64, Error> {
        self.commands.count("LLEN", &self.key).await
    }

    async fn probe(&self) -> Result<(), Error> {
        const COMMAND: &str = "RPOP";
        let mut take_none = redis::cmd(COMMAND);
        take_none.arg(&*self.key).arg(0);
        let write = async { self.commands.call(COMMAND, &take_none).await.map(drop) };
        self.commands.probe(COMMAND, write, async { Ok(()) }).await
    }

    fn contact(&self) -> Contact {
        Contact {
            connections_opened: self.commands.opened() + self.fetches.opened(),
            ..Contact::default()
        }
    }
}
