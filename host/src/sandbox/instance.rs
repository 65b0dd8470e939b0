//! Instances: how one is made, and how long it lasts.
//!
//! An instance is thrown away after a fault, whatever it may serve else. One that answered serves
//! the next message of its slot, unless it has served as many as it may, has grown too large, has
//! waited for too long, or is one of another handler.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::sleep;
use wasmtime::{PoolConcurrencyLimitError, Store, StoreContextMut, UpdateDeadline};

use super::fault::OutOfCpu;
use super::host::{Attempt, Host};
use super::load::Loaded;
use super::meter::Meter;
use super::settings::Reuse;
use super::supervise::drop_caught;
use super::world::Handle;

/// How long to wait for room in the pool before looking again. Only more slots than
/// `Settings::concurrency` make anybody wait.
const POOL_RETRY: Duration = Duration::from_millis(1);

/// How long the calls of a slot may keep a thread from other slots, one call after the other.
const TURN: Duration = Duration::from_millis(1);

/// One executor slot's part of the sandbox: runs one call at a time, and keeps the instance that
/// the next call reuses.
#[derive(Default)]
pub struct Slot {
    live: Option<Live>,
    pub(super) meter: Arc<Meter>,
    /// How long it may have kept its thread from other slots.
    kept: Duration,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot")
            .field("served", &self.live.as_ref().map_or(0, |live| live.served))
            .finish_non_exhaustive()
    }
}

impl Slot {
    /// How long it may wait for its next message until [`Slot::rest`] is due; `None` = it keeps no
    /// instance.
    pub fn patience(&self) -> Option<Duration> {
        self.live.as_ref().map(|live| live.idle)
    }

    /// Nothing has come for so long: let go of the instance, and of its memory.
    pub fn rest(&mut self) {
        if let Some(live) = self.live.take()
            && let Err(payload) = drop_caught(live)
        {
            // No attempt runs: there is nobody to charge.
            tracing::error!(
                detail = super::fault::host_panic(&*payload).detail,
                "the host panicked while it dropped an instance",
            );
        }
    }

    /// Calls that never wait would keep their thread for as long as there are messages.
    pub(super) async fn take_turns(&mut self) {
        if self.kept >= TURN {
            self.kept = Duration::ZERO;
            tokio::task::yield_now().await;
        }
    }

    /// A call has kept the thread for so long, at most.
    pub(super) fn kept(&mut self, duration: Duration) {
        self.kept += duration;
    }

    /// The instance that this call reuses. Out of the slot for the time of the call: if the call's
    /// future is dropped, so is it.
    pub(super) fn reusable(&mut self, loaded: &Loaded, now: Instant) -> Option<Live> {
        let fits = |live: &Live| {
            live.generation == loaded.generation && now.duration_since(live.used) < live.idle
        };
        if self.live.as_ref().is_some_and(fits) {
            return self.live.take();
        }
        self.rest();
        None
    }

    /// What has answered may serve again.
    pub(super) fn keep(&mut self, live: Live) {
        self.live = Some(live);
    }
}

/// An instance, being made or made.
pub(super) struct Live {
    pub(super) store: Store<Host>,
    handle: Option<Handle>,
    /// Messages it has answered.
    served: u32,
    /// Messages it may answer.
    lifetime: u32,
    /// Bytes of linear memory after its first answer.
    memory_first: Option<usize>,
    /// When it last answered.
    used: Instant,
    idle: Duration,
    /// Which handler it is an instance of: a swap must not reuse the old one's.
    generation: u64,
}

impl Live {
    pub(super) fn new(loaded: &Loaded, meter: &Arc<Meter>, attempt: Attempt, now: Instant) -> Self {
        let limits = &loaded.shared.limits;
        let mut store = Store::new(&loaded.engine, Host::new(&loaded.shared, meter, attempt));
        store.limiter(|host| &mut host.limiter);
        store.epoch_deadline_callback(on_tick);
        store.set_hostcall_fuel(limits.transfer);
        store.set_max_component_handles(limits.handles);
        Self {
            store,
            handle: None,
            served: 0,
            lifetime: loaded.reuse.lifetime(),
            memory_first: None,
            used: now,
            idle: loaded.reuse.idle,
            generation: loaded.generation,
        }
    }

    /// Whether there is an instance yet.
    pub(super) fn is_made(&self) -> bool {
        self.handle.is_some()
    }

    /// The handler's function, of an instance that is made now if there is none yet.
    pub(super) async fn handle(&mut self, loaded: &Loaded) -> wasmtime::Result<Handle> {
        if let Some(handle) = self.handle {
            return Ok(handle);
        }
        let instance = loop {
            match loaded.pre.instantiate_async(&mut self.store).await {
                Err(error) if error.is::<PoolConcurrencyLimitError>() => sleep(POOL_RETRY).await,
                made => break made?,
            }
        };
        let handle = loaded.export.function(&mut self.store, &instance)?;
        self.handle = Some(handle);
        Ok(handle)
    }

    /// It has answered so many messages, and has so many bytes of memory: may it serve more?
    pub(super) fn answered(&mut self, messages: usize, memory: usize, reuse: &Reuse) -> bool {
        let messages = u32::try_from(messages).unwrap_or(u32::MAX);
        self.served = self.served.saturating_add(messages);
        self.used = Instant::now();
        // One that is large from its first message on is as large when it is new.
        let first = *self.memory_first.get_or_insert(memory);
        let has_grown = memory > reuse.memory && memory > first;
        self.served < self.lifetime && !has_grown
    }
}

/// A tick found the guest running: end it if it is out of CPU time, else let others run.
#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature of an epoch callback"
)]
fn on_tick(store: StoreContextMut<'_, Host>) -> wasmtime::Result<UpdateDeadline> {
    if store.data().tick() {
        return Err(OutOfCpu.into());
    }
    // tokio's own yield lets the runtime look at timers and sockets before it polls us again.
    Ok(UpdateDeadline::YieldCustom(
        1,
        Box::pin(tokio::task::yield_now()),
    ))
}
