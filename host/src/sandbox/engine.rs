//! The wasmtime engine: compiler settings, memory allocation and interruption of guests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, ModuleVersionStrategy,
    PoolingAllocationConfig, ResourcesRequired, Strategy,
};

use super::TICK;
use super::limiter::CORE_INSTANCES;
use super::settings::{Allocation, Settings, Variation};

/// Bytes of an attempt's stack for host functions. A guest that overflows its own stack traps; a
/// host function that overflows the stack aborts the process.
const HOST_STACK: usize = 3 << 19;

/// Instances in addition to the slots: one that is being dropped, and the trial at load.
const SPARE_SLOTS: u32 = 2;

/// Bytes of a memory slot that are zeroed and kept instead of returned to the kernel. Only written
/// pages are zeroed, if the kernel reports them (`PAGEMAP_SCAN`, Linux 6.7).
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

/// An engine that runs guests.
pub(super) struct Built {
    pub(super) engine: Engine,
    pub(super) pooling: bool,
    pub(super) pace: Arc<Pace>,
}

/// Whether a guest ran for longer than a tick. Usually none does, and then the epoch thread wakes up
/// less often.
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicBool);

impl Pace {
    /// A tick found a guest running.
    pub(super) fn found_running(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// The time until the next tick.
    fn next(&self) -> Duration {
        if self.0.swap(false, Ordering::Relaxed) {
            BUSY_TICK
        } else {
            TICK
        }
    }
}

/// The engine settings that compiled code depends on.
pub(super) fn base(settings: &Settings, allocation: Allocation) -> wasmtime::Result<Config> {
    let limits = &settings.limits;
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
        .wasm_backtrace_max_frames(std::num::NonZero::new(BACKTRACE_FRAMES))
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
pub(super) fn compiler(settings: &Settings, allocation: Allocation) -> wasmtime::Result<Engine> {
    Engine::new(&base(settings, allocation)?)
}

/// An engine for `settings.concurrency` instances that need `required`.
pub(super) fn runner(
    settings: &Settings,
    allocation: Allocation,
    required: &ResourcesRequired,
) -> wasmtime::Result<Built> {
    let mut config = base(settings, allocation)?;
    let pooling = allocation == Allocation::Auto;
    if pooling {
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(
            settings, required,
        )));
    }
    let engine = Engine::new(&config)?;
    let pace = Arc::default();
    tick(&engine, &pace)?;
    Ok(Built {
        engine,
        pooling,
        pace,
    })
}

/// An engine with a pool for one instance. It only checks a component that runs without a pool.
pub(super) fn pool_of_one(
    settings: &Settings,
    allocation: Allocation,
    required: &ResourcesRequired,
) -> wasmtime::Result<Engine> {
    let one = Settings {
        concurrency: 1,
        ..settings.clone()
    };
    let mut config = base(settings, allocation)?;
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool(&one, required)));
    Engine::new(&config)
}

/// The largest memory in bytes. A 32-bit memory has at most 4 GiB.
fn memory_max(settings: &Settings) -> usize {
    settings.limits.memory.min(1 << 32)
}

/// The instances of a pool for so many attempts at a time.
pub(super) fn slots(concurrency: usize) -> u32 {
    u32::try_from(concurrency)
        .unwrap_or(u32::MAX)
        .saturating_add(SPARE_SLOTS)
}

fn pool(settings: &Settings, required: &ResourcesRequired) -> PoolingAllocationConfig {
    let slots = slots(settings.concurrency);
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

/// Start the thread that advances the engine's epoch every [`TICK`], or every [`BUSY_TICK`] while
/// guests run. The thread ends when the engine is dropped.
fn tick(engine: &Engine, pace: &Arc<Pace>) -> wasmtime::Result<()> {
    let engine = engine.weak();
    let pace = Arc::clone(pace);
    thread::Builder::new()
        .name("epoch".to_owned())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                // Not held during the sleep, so that the last engine can be dropped meanwhile.
                drop(engine);
                thread::sleep(pace.next());
            }
        })?;
    Ok(())
}
