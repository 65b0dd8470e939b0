//! The engine: how guests are compiled, where their memory comes from, and what interrupts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, ModuleVersionStrategy,
    PoolingAllocationConfig, ResourcesRequired, Strategy,
};

use super::TICK;
use super::settings::{Allocation, Settings, Variation};

/// Bytes of an attempt's fiber that belong to the host functions the guest calls. A guest that
/// overflows its own stack traps; a host function that overflows the fiber aborts the process.
const HOST_STACK: usize = 3 << 19;

/// Instances beyond the slots: one that is being dropped, and the trial at load.
const SPARE_SLOTS: u32 = 2;

/// Bytes of a memory slot that are wiped and kept instead of given back to the kernel. Only
/// written pages count, where the kernel can tell them (`PAGEMAP_SCAN`, Linux 6.7).
const MEMORY_KEEP_RESIDENT: usize = 32 << 20;

/// The same without `PAGEMAP_SCAN`, where wiping means all of it: more costs more than it saves.
const MEMORY_KEEP_RESIDENT_BLIND: usize = 1 << 20;

/// The same for tables.
const TABLE_KEEP_RESIDENT: usize = 1 << 20;

/// Bytes of wasmtime's own records of one instance: large interpreters need a few.
const INSTANCE_SIZE_MAX: usize = 16 << 20;

/// Bytes of a memory image that are mapped copy-on-write even if mostly zero.
const IMAGE_MAX: u64 = 32 << 20;

/// Frames of a trap's backtrace that are walked.
const BACKTRACE_FRAMES: usize = 32;

/// The address space that an on-demand memory may take, if its limit is smaller: where the pool
/// found no room, four gibibytes for every instance are not there either.
const ON_DEMAND_GUARD: u64 = 64 << 10;

/// How often the epoch advances while guests are found running: each keeps the others of its thread
/// waiting for so long, and a thread may have several. A turn costs some microseconds.
const TURN: Duration = Duration::from_millis(2);

/// An engine, how it allocates, and how fast its epoch advances.
pub(super) struct Built {
    pub(super) engine: Engine,
    pub(super) pooling: bool,
    pub(super) pace: Arc<Pace>,
}

/// Whether guests run for longer than a tick. Most hosts most of the time have none that do: for
/// them a thread that wakes up often would be a waste.
#[derive(Debug, Default)]
pub(super) struct Pace(AtomicBool);

impl Pace {
    /// A tick found a guest running.
    pub(super) fn found_running(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// How long until the next tick.
    fn next(&self) -> Duration {
        if self.0.swap(false, Ordering::Relaxed) {
            TURN
        } else {
            TICK
        }
    }
}

/// What a compiled component depends on, other than its source: compiler, version and settings.
fn base(settings: &Settings, allocation: Allocation) -> wasmtime::Result<Config> {
    let limits = &settings.limits;
    let mut config = Config::new();
    config
        .strategy(Strategy::Cranelift)
        // No component-model async: plain fiber calls are several times cheaper without.
        .concurrency_support(false)
        .epoch_interruption(settings.variation != Some(Variation::NoEpochs))
        .memory_init_cow(settings.variation != Some(Variation::NoCopyOnWrite))
        .max_wasm_stack(limits.stack)
        .async_stack_size(limits.stack.saturating_add(HOST_STACK))
        // One `memory.copy` can't be interrupted: 32-bit memories bound it.
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

/// An engine to compile with: nothing runs on it.
pub(super) fn compiler(settings: &Settings, allocation: Allocation) -> wasmtime::Result<Engine> {
    Engine::new(&base(settings, allocation)?)
}

/// An engine with room for `settings.concurrency` instances that need this.
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

/// An engine to load a component with, and nothing else: with a pool for one instance, for a
/// component that was compiled to run without.
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

/// The largest memory that can be: a 32-bit one has four gibibytes.
fn memory_max(settings: &Settings) -> usize {
    settings.limits.memory.min(1 << 32)
}

fn pool(settings: &Settings, required: &ResourcesRequired) -> PoolingAllocationConfig {
    let slots = u32::try_from(settings.concurrency)
        .unwrap_or(u32::MAX)
        .saturating_add(SPARE_SLOTS);
    let scans = settings.variation != Some(Variation::NoPagemapScan)
        && PoolingAllocationConfig::is_pagemap_scan_available();
    let (memory_kept, table_kept) = match settings.variation {
        Some(Variation::NothingResident) => (0, 0),
        _ if scans => (MEMORY_KEEP_RESIDENT, TABLE_KEEP_RESIDENT),
        _ => (MEMORY_KEEP_RESIDENT_BLIND, TABLE_KEEP_RESIDENT),
    };
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        // Only counted, not mapped: a component has as many core instances as it likes.
        .total_core_instances(u32::MAX)
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

/// One thread that makes the engine's epoch advance every [`TICK`], and every [`TURN`] while guests
/// are found running, for as long as the engine lives.
fn tick(engine: &Engine, pace: &Arc<Pace>) -> wasmtime::Result<()> {
    let engine = engine.weak();
    let pace = Arc::clone(pace);
    thread::Builder::new()
        .name("epoch".to_owned())
        .spawn(move || {
            while let Some(engine) = engine.upgrade() {
                engine.increment_epoch();
                // Not held while sleeping: dropping the last engine must not wait for us.
                drop(engine);
                thread::sleep(pace.next());
            }
        })?;
    Ok(())
}
