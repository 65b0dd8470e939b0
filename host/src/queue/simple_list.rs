//! Simple lists: a value is taken and forgotten, as `BRPOP` does. At most once.
//!
//! A script takes as many values as the host has room for: about 20 ms of work beyond its free slots, and a
//! number of bytes. Where nothing waits, the host waits for one value (`BLMPOP`). A host that dies loses the
//! values that it took.
//!
//! A value that has not started goes back to the end at which it was taken, in its order, when the host drains, is
//! paused, or becomes slow (`RPUSH`).
//!
//! Crash windows: once Redis has taken a value off the list, it exists only on its way here and in this
//! host. A lost reply (a broken connection, a missed deadline) loses its values. A value that goes back is sent once: if
//! the answer is lost, it is back, or lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tracing::warn;

use super::Contact;
use super::at_most_once::{AtMostOnce, Source, Value};
use super::byte_bounds::{ByteBounds, HANDLED, held_max};
use crate::outgoing::Outlets;
use crate::queue::interruption::Interruption;
use crate::queue::scripts;
use crate::queue::startup::StartError;
use crate::redis::connection::{Connector, Link};
use crate::redis::error::{Class, Error};
use crate::redis::reply;
use crate::wire::list::Framing;

/// Most values that a script takes.
const TAKEN_MAX: usize = 1024;
/// Most values that are taken at once without a script: their size is not known.
const BLIND_MAX: usize = 16;

/// A simple list, and how this host serves it.
#[derive(Clone, Debug)]
pub struct SimpleListOptions {
    /// The list's key.
    pub key: String,
    /// The beginning of this host's name (a host name, usually).
    pub consumer: String,
    /// How values are read.
    pub framing: Framing,
    /// The most bytes of messages that this host holds: [`held_max`].
    pub held_max: usize,
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
            held_max: held_max(HANDLED),
            outlets: Outlets::default(),
        }
    }
}

/// A simple list, as one host serves it.
#[derive(Debug)]
pub struct SimpleList {
    key: Arc<str>,
    /// For everything but taking.
    commands: Arc<Link>,
    /// Taking only: it blocks.
    fetches: Link,
    interruption: Interruption,
    bounds: ByteBounds,
    /// Whether the user may run scripts.
    may_script: AtomicBool,
    /// How many values the next take without a script has at most.
    blind: AtomicUsize,
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
            commands: Arc::new(connector.link("commands").of(&options.key)),
            fetches: connector.link("fetch").of(&options.key),
            interruption: Interruption::default(),
            bounds: ByteBounds::new(options.held_max),
            may_script: AtomicBool::new(true),
            blind: AtomicUsize::new(1),
            stopped: AtomicBool::new(false),
        };
        let opened = async {
            list.probe().await?;
            let (time, clock) = (Arc::default(), Arc::clone(&list.commands));
            let publishing = (&connector, &*options.key, options.outlets);
            let (framing, consumer) = (options.framing, &options.consumer);
            AtMostOnce::open(list, framing, consumer, time, clock, publishing).await
        };
        let opened = opened.await;
        opened.map_err(|error| StartError::from_error(error, &options.key))
    }

    /// Take values that are there, up to a number of bytes.
    async fn take_some(&self, want: usize, bytes: usize) -> Result<Vec<Bytes>, Error> {
        if self.may_script.load(Ordering::Relaxed) {
            let script = &scripts::LIST_POP;
            let mut call = script.on(&[&self.key]);
            call.arg(want.min(TAKEN_MAX)).arg(bytes);
            match self.fetches.run(script, &call).await {
                // The right to it is missing: that does not change by itself.
                Err(error) if error.is_missing_right() => {
                    self.may_script.store(false, Ordering::Relaxed);
                }
                reply => return reply::values(script.name(), reply?),
            }
        }
        let count = self.blind.load(Ordering::Relaxed);
        let values = self.pop(want.min(count), Duration::ZERO).await?;
        let largest = values.iter().map(Bytes::len).max().unwrap_or_default();
        // As many as fit if all are as large; up step by step, down at once.
        let fitting = (bytes / largest.max(1)).clamp(1, BLIND_MAX);
        self.blind.store(fitting.min(2 * count), Ordering::Relaxed);
        Ok(values)
    }

    /// Take values without a look at their size.
    async fn pop(&self, count: usize, wait: Duration) -> Result<Vec<Bytes>, Error> {
        const COMMAND: &str = "BLMPOP";
        let mut cmd = redis::cmd(if wait.is_zero() { "LMPOP" } else { COMMAND });
        if !wait.is_zero() {
            // 0 would mean for ever.
            let seconds = wait.as_secs_f64().max(0.001);
            cmd.arg(format!("{seconds:.3}"));
        }
        cmd.arg(1).arg(&*self.key).arg("RIGHT");
        cmd.arg("COUNT").arg(count);
        let reply = self.fetches.call_waiting(COMMAND, &cmd, wait).await?;
        let mut reply = reply::array(COMMAND, reply)?;
        // Nil: nothing came.
        let Some(values) = reply.pop() else {
            return Ok(Vec::new());
        };
        reply::values(COMMAND, values)
    }

    async fn take_or_wait(&self, want: usize, wait: Duration) -> Result<Vec<Bytes>, Error> {
        let until = Instant::now() + wait;
        let Some(bytes) = self.bounds.for_new(wait, &self.interruption).await else {
            return Ok(Vec::new());
        };
        let sent = Instant::now();
        let values = self.take_some(want, bytes).await.inspect_err(|error| {
            if error.class() == Class::Reconnect {
                self.bounds.failed();
            }
        })?;
        let size = values.iter().map(Bytes::len).sum();
        self.bounds.took(size, sent.elapsed());
        let left = until.saturating_duration_since(Instant::now());
        if !values.is_empty() || left.is_zero() || self.interruption.is_wanted() {
            return Ok(values);
        }
        // Only one: how large others behind it are is unknown.
        self.pop(1, left).await
    }
}

#[async_trait]
impl Source for SimpleList {
    async fn take(&self, want: usize, wait: Duration) -> Result<Vec<Value>, Error> {
        let _fetching = self.interruption.begin();
        if self.stopped.load(Ordering::SeqCst) {
            return Ok(Vec::new());
        }
        let values = self.take_or_wait(want, wait).await?;
        let value = |bytes| Value {
            queue: Arc::clone(&self.key),
            bytes: self.bounds.hold(bytes),
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

    fn takes_back(&self) -> bool {
        true
    }

    async fn give_back(&self, values: &[Bytes]) -> Result<(), Error> {
        const COMMAND: &str = "RPUSH";
        let mut push = redis::cmd(COMMAND);
        push.arg(&*self.key);
        for value in values {
            push.arg(&value[..]);
        }
        let Err(error) = self.commands.call(COMMAND, &push).await else {
            return Ok(());
        };
        let values = values.len();
        match error.class() {
            Class::Reconnect => {
                warn!(%error, values, "no answer: these values are back on the list, or lost");
                Ok(())
            }
            _ => {
                let hint = "grant the user `+rpush`";
                let hint = error.is_missing_right().then_some(hint);
                warn!(%error, values, hint, "values cannot go back to the list: they run here");
                Err(error)
            }
        }
    }

    async fn waiting(&self) -> Result<u64, Error> {
        self.commands.count("LLEN", &self.key).await
    }

    async fn probe(&self) -> Result<(), Error> {
        const COMMAND: &str = "RPOP";
        let mut take_none = redis::cmd(COMMAND);
        take_none.arg(&*self.key).arg(0);
        let write = async { self.commands.call(COMMAND, &take_none).await.map(drop) };
        // Large: it is moved less.
        Box::pin(self.commands.probe(COMMAND, write, async { Ok(()) })).await
    }

    fn contact(&self) -> Contact {
        Contact {
            connections_opened: self.commands.opened() + self.fetches.opened(),
            redirections: self.commands.redirections() + self.fetches.redirections(),
            ..Contact::default()
        }
    }
}
