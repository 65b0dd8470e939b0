//! The wasmtime engine: compiler settings, memory allocation and interruption of guests.

use std::num::NonZero;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;

use hostler_components::CORE_INSTANCES;
use wasmtime::{
    Config, Enabled, Engine, EngineWeak, InstanceAllocationStrategy, ModuleVersionStrategy,
    PoolingAllocationConfig, ResourcesRequired, Strategy, WasmBacktraceDetails,
};

use super::TICK;
use super::settings::{Allocation, Settings, Variation};

/// Bytes of an attempt's stack for host functions. A guest that overflows its own stack traps; a
/// host function that overflows the stack aborts the process.
const HOST_STACK: usize = 3 << 19;

/// Instances in addition to the slots: one that is being dropped, and the trial at load.
const SPARE_SLOTS: u32 = 2;

/// Bytes of a memory slot that are zeroed and kept instead of returned to the kernel. Only pages of
/// the slot's own are zeroed, if the kernel reports them (`PAGEMAP_SCAN`, Linux 6.7). The published wasmtime
/// overlooks some of them: decision 24.
const MEMORY_KEEP_RESIDENT: usize = 32 << 20;

/// The same without `PAGEMAP_SCAN`. All bytes are zeroed, so a larger value costs more than it saves.
const MEMORY_KEEP_RESIDENT_BLIND: usize = 1 << 20;

/// The same for tables.
const TABLE_KEEP_RESIDENT: usize = 1 << 20;

/// Bytes of wasmtime's own data for one instance. Large interpreters need some MiB.
const INSTANCE_SIZE_MAX: usize = 16 << 20;

/// Bytes of a memory image that is mapped copy-on-write even if it is mostly zero.
const IMAGE_MAX: u64 = 32 << 20;

/// The most frames in a trap's backtrace.
const BACKTRACE_FRAMES: usize = 32;

/// Bytes of the guard region of an on-demand memory. The default reserves 4 GiB for every instance,
/// which does not fit if the pool did not fit.
const ON_DEMAND_GUARD: u64 = 64 << 10;

/// The time between two epochs while guests run. A running guest delays the other tasks of its
/// thread for this long. An epoch costs some microseconds.
const BUSY_TICK: Duration = Duration::from_millis(2);

/// The time between two epochs while no guest runs. A guest that a host function held up for longer than
/// [`TICKS_UNTIL_IDLE`] may run for this long until it is interrupted.
const IDLE_TICK: Duration = Duration::from_millis(100);
const TICKS_UNTIL_IDLE: u32 = 100;

/// The most engines of a handler: each has its own tables of the code, and its own pool.
const ENGINES_MAX: usize = 8;

/// Engines that run guests.
pub(crate) struct Built {
    /// At least one.
    pub(crate) engines: Vec<Engine>,
    /// The most instances of each.
    pub(crate) room: usize,
    pub(crate) pooling: bool,
    pub(crate) pace: Arc<Pace>,
}

/// How often the epoch thread wakes up: every [`TICK`], every [`BUSY_TICK`] while guests run for longer than that, and
/// every [`IDLE_TICK`] when no guest ran for [`TICKS_UNTIL_IDLE`] ticks.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    state: AtomicU8,
    thread: OnceLock<Thread>,
}

/// The epoch thread makes long pauses: the next guest wakes it.
const IDLE: u8 = 0;
/// No guest began to run since the last tick.
const QUIET: u8 = 1;
/// A guest began to run since the last tick.
const USED: u8 = 2;
/// The last tick found a guest running.
const RUNNING: u8 = 3;

impl Pace {
    /// A guest begins to run, or runs on.
    pub(crate) fn begin(&self) {
        // Threads that call guests write to the state once in a tick.
        if self.state.load(Ordering::Relaxed) < USED {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self.state.swap(USED, Ordering::AcqRel) == IDLE
            && let Some(thread) = self.thread.get()
        {
            thread.unpark();
        }
    }

    /// A tick found a guest running.
    pub(crate) fn found_running(&self) {
        self.state.store(RUNNING, Ordering::Relaxed);
    }

    /// Wait until the next tick. `quiet` counts the ticks without a guest.
    fn wait(&self, quiet: &mut u32) {
        let found = self.state.swap(QUIET, Ordering::AcqRel);
        *quiet = if found < USED { *quiet + 1 } else { 0 };
        let is_idle = *quiet > TICKS_UNTIL_IDLE
            && self
                .state
                .compare_exchange(QUIET, IDLE, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        if is_idle {
            *quiet = TICKS_UNTIL_IDLE;
            thread::park_timeout(IDLE_TICK);
            if self.state.load(Ordering::Acquire) == IDLE {
                return;
            }
        }
        thread::sleep(if found == RUNNING { BUSY_TICK } else { TICK });
    }
}

/// The engine settings that compiled code depends on.
pub(crate) fn base(settings: &Settings, allocation: Allocation) -> wasmtime::Result<Config> {
    let limits = &settings.limits;
    let details = match settings.lines {
        true => WasmBacktraceDetails::Enable,
        // A variable of the environment has no say.
        false => WasmBacktraceDetails::Disable,
    };
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        // Without component-model async, fiber calls are several times cheaper.
        .concurrency_support(false)
        .epoch_interruption(settings.variation != Some(Variation::NoEpochs))
        .memory_init_cow(settings.variation != Some(Variation::NoCopyOnWrite))
        .max_wasm_stack(limits.stack)
        .async_stack_size(limits.stack.saturating_add(HOST_STACK))
        // A `memory.copy` cannot be interrupted; 32-bit memories bound its duration.
        .wasm_memory64(false)
        .wasm_backtrace_max_frames(NonZero::new(BACKTRACE_FRAMES))
        .wasm_backtrace_details(details)
        .memory_guaranteed_dense_image_size(IMAGE_MAX)
        .module_version(ModuleVersionStrategy::Custom(
            super::WASMTIME_VERSION.to_owned(),
        ))?;
    if allocation == Allocation::OnDemand {
        config
            .memory_reservation(memory_max(settings) as u64)
            .memory_reservation_for_growth(0)
            .memory_guard_size(ON_DEMAND_GUARD);
    }
    Ok(config)
}

/// An engine that only compiles.
pub(crate) fn compiler(settings: &Settings, allocation: Allocation) -> wasmtime::Result<Engine> {
    Engine::new(&base(settings, allocation)?)
}

/// Engines for `settings.concurrency` instances that need `required`: one for each core, or one alone if the
/// address space has no room for more.
pub(crate) fn runners(
    settings: &Settings,
    allocation: Allocation,
    required: &ResourcesRequired,
) -> wasmtime::Result<Built> {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    let most = cores.min(settings.concurrency).clamp(1, ENGINES_MAX);
    let pooling = allocation == Allocation::Auto;
    let pooled = |count: usize| {
        let room = settings.concurrency.div_ceil(count);
        let config = with_pool(settings, allocation, room, required)?;
        let engines = (0..count).map(|_| Engine::new(&config));
        Ok::<_, wasmtime::Error>((engines.collect::<wasmtime::Result<Vec<_>>>()?, room))
    };
    let (engines, room) = match pooling {
        true => pooled(most).or_else(|_| pooled(1))?,
        false => (vec![compiler(settings, allocation)?], usize::MAX),
    };
    let pace = Arc::<Pace>::default();
    tick(&engines, &pace)?;
    Ok(Built {
        engines,
        room,
        pooling,
        pace,
    })
}

/// An engine with a pool for one instance. It only checks a component that runs without a pool.
pub(crate) fn pool_of_one(
    settings: &Settings,
    allocation: Allocation,
    required: &ResourcesRequired,
) -> wasmtime::Result<Engine> {
    Engine::new(&with_pool(settings, allocation, 1, required)?)
}

/// The settings of an engine with a pool for `concurrency` attempts at a time.
fn with_pool(
    settings: &Settings,
    allocation: Allocation,
    concurrency: usize,
    required: &ResourcesRequired,
) -> wasmtime::Result<Config> {
    let mut config = base(settings, allocation)?;
    let pool = pool(settings, concurrency, required);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Ok(config)
}

/// The largest memory in bytes. A 32-bit memory has at most 4 GiB.
fn memory_max(settings: &Settings) -> usize {
    settings.limits.memory.min(1 << 32)
}

/// The instances of a pool for `concurrency` attempts at a time.
pub(crate) fn slots(concurrency: usize) -> u32 {
    u32::try_from(concurrency)
        .unwrap_or(u32::MAX)
        .saturating_add(SPARE_SLOTS)
}

/// A pool for `concurrency` attempts at a time.
fn pool(
    settings: &Settings,
    concurrency: usize,
    required: &ResourcesRequired,
) -> PoolingAllocationConfig {
    let slots = slots(concurrency);
    let scans = settings.variation != Some(Variation::NoPagemapScan)
        && PoolingAllocationConfig::is_pagemap_scan_available();
    let (memory_kept, table_kept) = match settings.variation {
        Some(Variation::NothingResident) => (0, 0),
        _ if scans => (MEMORY_KEEP_RESIDENT, TABLE_KEEP_RESIDENT),
        _ => (MEMORY_KEEP_RESIDENT_BLIND, TABLE_KEEP_RESIDENT),
    };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        // Only counted, not mapped: the number of core instances at a time is not limited here.
        .total_core_instances(u32::MAX)
        .max_core_instances_per_component(CORE_INSTANCES)
        .max_component_instance_size(INSTANCE_SIZE_MAX)
        .max_core_instance_size(INSTANCE_SIZE_MAX)
        .total_memories(slots.saturating_mul(required.num_memories))
        .total_tables(slots.saturating_mul(required.num_tables))
        .total_stacks(slots)
        .max_tables_per_module(required.num_tables)
        .max_memories_per_module(required.num_memories)
        .max_memory_size(memory_max(settings))
        .table_elements(settings.limits.table_elements)
        .max_unused_warm_slots(slots)
        .linear_memory_keep_resident(memory_kept)
        .table_keep_resident(table_kept)
        .pagemap_scan(if scans { Enabled::Auto } else { Enabled::No });
    pool
}

/// Start the thread that advances the epoch of the engines at this pace. The thread ends when the engines are
/// dropped.
fn tick(engines: &[Engine], pace: &Arc<Pace>) -> wasmtime::Result<()> {
    let engines: Vec<_> = engines.iter().map(Engine::weak).collect();
    let paced = Arc::clone(pace);
    let ticking = thread::Builder::new()
        .name("epoch".to_owned())
        .spawn(move || {
            let mut quiet = 0;
            // None is held during the wait, so that the last one can be dropped meanwhile.
            while advance(&engines) {
                paced.wait(&mut quiet);
            }
        })?;
    pace.thread.get_or_init(|| ticking.thread().clone());
    Ok(())
}

/// Advance the epoch of the engines that still exist. Returns whether one exists.
fn advance(engines: &[EngineWeak]) -> bool {
    let engines = engines.iter().filter_map(EngineWeak::upgrade);
    engines.map(|engine| engine.increment_epoch()).count() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_thread_rests_without_guests_and_ticks_again_for_the_next_one() {
        let pace = Pace::default();
        let mut quiet = 0;
        let wait_until_idle = |quiet: &mut u32| {
            for _ in 0..=TICKS_UNTIL_IDLE {
                pace.wait(quiet);
            }
            pace.state.load(Ordering::Relaxed)
        };
        thread::scope(|scope| {
            pace.thread.get_or_init(thread::current);
            assert_eq!(wait_until_idle(&mut quiet), IDLE);
            let guest = scope.spawn(|| pace.begin());
            // The pause of an idle thread ends at the latest now.
            pace.wait(&mut quiet);
            guest.join().unwrap();
            pace.wait(&mut quiet);
            assert_eq!(quiet, 0);
            pace.found_running();
            pace.wait(&mut quiet);
            assert_eq!(pace.state.load(Ordering::Relaxed), QUIET);
        });
    }
}
