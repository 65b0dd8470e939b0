//! Makes, reuses and drops instances.
//!
//! An instance is dropped after a fault. Otherwise it serves the next message of its slot, unless it
//! has reached its number of messages, has grown too large, was idle for too long, or belongs to
//! another handler. Then it is dropped, too; where the slot is prepared for each call, when it is prepared next.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use tokio::time::sleep;
use wasmtime::{PoolConcurrencyLimitError, Store};

use super::host::{Attempt, Host, store};
use super::loaded::Loaded;
use super::meter::Meter;
use super::runner::Reserved;
use super::settings::Reuse;
use super::supervise::drop_caught;
use super::world::Handle;

/// The time between two tries to get an instance from a full pool. The pool is full only if there
/// are more slots than `Settings::concurrency`.
const POOL_RETRY: Duration = Duration::from_millis(1);

/// The longest time that consecutive calls of a slot may block the other slots of the thread.
const YIELD_AFTER: Duration = Duration::from_millis(1);

/// The instance of a call that took longer than this is dropped with the answer: it may be large.
const DROP_LATER: Duration = Duration::from_millis(1);

/// A slot of the executor: runs one call at a time, and keeps an instance for the next call.
#[derive(Default)]
pub struct Slot {
    live: Option<Live>,
    /// The instance of an earlier call, which waits to be dropped.
    ended: Option<Live>,
    /// [`Slot::prepare`] was called since the last call.
    prepared: bool,
    pub(super) meter: Arc<Meter>,
    /// The time that calls took since the last yield, at most.
    busy: Duration,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("served", &self.live.as_ref().map_or(0, |live| live.served))
            .finish_non_exhaustive()
    }
}

impl Slot {
    /// The idle time after which [`Slot::on_idle`] must be called; `None` = the slot has no instance.
    pub fn idle_timeout(&self) -> Option<Duration> {
        let live = self.live.as_ref().or(self.ended.as_ref());
        live.map(|live| live.idle)
    }

    /// Drop the instances and free their memory.
    pub fn on_idle(&mut self) {
        self.drop_ended();
        self.ended = self.live.take();
        self.drop_ended();
    }

    /// Drop the instance that has ended.
    fn drop_ended(&mut self) {
        if let Some(ended) = self.ended.take()
            && let Err(payload) = drop_caught(ended)
        {
            // No attempt runs, so no message is charged.
            tracing::error!(
                detail = super::fault::host_panic(&*payload).detail,
                "the host panicked while dropping an instance",
            );
        }
    }

    /// Yield to the other slots of the thread: calls that never wait would block them. Returns whether that was
    /// due.
    pub(super) async fn yield_if_due(&mut self) -> bool {
        let is_due = self.busy >= YIELD_AFTER;
        if is_due {
            self.busy = Duration::ZERO;
            tokio::task::yield_now().await;
        }
        is_due
    }

    /// Add the duration of a call.
    pub(super) fn add_busy_time(&mut self, duration: Duration) {
        self.busy += duration;
    }

    /// Take the instance for the next call, if it can be reused. If the future of the call is dropped,
    /// the instance is dropped too.
    pub(super) fn reusable(&mut self, loaded: &Loaded, now: Instant) -> Option<Live> {
        self.drop_ended();
        let fits = |live: &Live| {
            live.generation == loaded.generation && now.duration_since(live.used) < live.idle
        };
        if self.live.as_ref().is_some_and(fits) {
            return self.live.take();
        }
        self.on_idle();
        None
    }

    /// Drop the instance that has ended, and make the one of the next call now, unless there is one, or code of the
    /// component would run: that belongs to an attempt, with its limits and its log. The next call makes what this
    /// could not.
    pub(super) async fn prepare(&mut self, loaded: &Loaded) {
        self.drop_ended();
        self.prepared = true;
        if loaded.starts || self.live.is_some() {
            return;
        }
        let now = Instant::now();
        let mut live = Live::new(loaded, &self.meter, Attempt::trial(now), now);
        let made = AssertUnwindSafe(live.make()).catch_unwind().await;
        match made {
            Ok(Ok(_)) => self.live = Some(live),
            Ok(Err(_)) | Err(_) => drop(drop_caught(live)),
        }
    }

    /// Keep the instance for the next call. Returns the time of the answer.
    pub(super) fn keep(&mut self, mut live: Live) -> Instant {
        live.used = Instant::now();
        self.live.insert(live).used
    }

    /// Drop an instance that has answered a call, and return the time of the answer. If the slot was prepared for this
    /// call, it will be prepared again soon: then that drops the instance, and a short call does not wait for it.
    ///
    /// # Errors
    /// The payload of a panic of the host.
    pub(super) fn end(
        &mut self,
        live: Live,
        started: Instant,
    ) -> (Result<(), Box<dyn Any + Send>>, Instant) {
        if std::mem::take(&mut self.prepared) {
            let ended = Instant::now();
            if ended.saturating_duration_since(started) < DROP_LATER {
                self.ended = Some(live);
                return (Ok(()), ended);
            }
        }
        (drop_caught(live), Instant::now())
    }
}

/// A store and its instance, which is made at the first call.
pub(super) struct Live {
    pub(super) store: Store<Host>,
    handle: Option<Handle>,
    /// Messages that the instance has answered.
    served: u32,
    /// Messages that the instance may answer.
    lifetime: u32,
    /// Bytes of linear memory after the first answer.
    memory_first: Option<usize>,
    /// The time of the last answer.
    used: Instant,
    idle: Duration,
    /// The handler's generation: another handler must not reuse the instance.
    generation: u64,
    /// Given back after the store is dropped.
    runner: Reserved,
}

impl Live {
    pub(super) fn new(loaded: &Loaded, meter: &Arc<Meter>, attempt: Attempt, now: Instant) -> Self {
        let runner = loaded.runners.reserve();
        Self {
            store: store(&runner.engine, &runner.shared, meter, attempt),
            handle: None,
            served: 0,
            lifetime: loaded.reuse.lifetime(),
            memory_first: None,
            used: now,
            idle: loaded.reuse.idle,
            generation: loaded.generation,
            runner,
        }
    }

    /// Whether it has served a message.
    pub(super) fn is_used(&self) -> bool {
        self.served > 0
    }

    /// Whether the instance is made.
    pub(super) fn is_made(&self) -> bool {
        self.handle.is_some()
    }

    /// The handler's function. Makes the instance if necessary.
    pub(super) async fn handle(&mut self) -> wasmtime::Result<Handle> {
        if let Some(handle) = self.handle {
            return Ok(handle);
        }
        loop {
            match self.make().await {
                Err(error) if error.is::<PoolConcurrencyLimitError>() => sleep(POOL_RETRY).await,
                made => return made,
            }
        }
    }

    /// Make the instance.
    async fn make(&mut self) -> wasmtime::Result<Handle> {
        let pre = &self.runner.pre;
        let instance = pre.instantiate_async(&mut self.store).await?;
        let handle = self.runner.export.function(&mut self.store, &instance)?;
        self.handle = Some(handle);
        Ok(handle)
    }

    /// Record that `messages` were answered and that linear memory now has `memory` bytes. Returns
    /// whether the instance may serve more messages.
    pub(super) fn record_answers(&mut self, messages: usize, memory: usize, reuse: &Reuse) -> bool {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        self.served = self.served.saturating_add(messages);
        // A new instance would be as large if this one was large after its first message.
        let first = *self.memory_first.get_or_insert(memory);
        let has_grown = memory > reuse.memory && memory > first;
        self.served < self.lifetime && !has_grown
    }
}
