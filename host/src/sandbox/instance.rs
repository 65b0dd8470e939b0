//! Makes, reuses and drops instances.
//!
//! An instance is dropped after a fault. Otherwise it serves the next message of its slot, unless it
//! has reached its number of messages, has grown too large, was idle for too long, or belongs to
//! another handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// A slot of the executor: runs one call at a time, and keeps an instance for the next call.
#[derive(Default)]
pub struct Slot {
    live: Option<Live>,
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
        self.live.as_ref().map(|live| live.idle)
    }

    /// Drop the instance and free its memory.
    pub fn on_idle(&mut self) {
        if let Some(live) = self.live.take()
            && let Err(payload) = drop_caught(live)
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
        let fits = |live: &Live| {
            live.generation == loaded.generation && now.duration_since(live.used) < live.idle
        };
        if self.live.as_ref().is_some_and(fits) {
            return self.live.take();
        }
        self.on_idle();
        None
    }

    /// Keep the instance for the next call. Returns the time of the answer.
    pub(super) fn keep(&mut self, mut live: Live) -> Instant {
        live.used = Instant::now();
        self.live.insert(live).used
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

    /// Whether the instance is made.
    pub(super) fn is_made(&self) -> bool {
        self.handle.is_some()
    }

    /// The handler's function. Makes the instance if necessary.
    pub(super) async fn handle(&mut self) -> wasmtime::Result<Handle> {
        if let Some(handle) = self.handle {
            return Ok(handle);
        }
        let instance = loop {
            match self.runner.pre.instantiate_async(&mut self.store).await {
                Err(error) if error.is::<PoolConcurrencyLimitError>() => sleep(POOL_RETRY).await,
                made => break made?,
            }
        };
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
