//! Engines, stores and calls, as the host has them (`host/src/sandbox/engine.rs`, `host.rs`, `instance.rs`).

use std::thread;
use std::time::Duration;

use wasmtime::component::{
    Component, ComponentExportIndex, ComponentType, Instance, InstancePre, Lift, Linker, Lower,
    ResourceTable, TypedFunc,
};
use wasmtime::error::Context;
use wasmtime::{
    Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, ResourceLimiter,
    Store, StoreContextMut, UpdateDeadline,
};
use wasmtime::{Result, format_err};
use wasmtime_wasi::p2::pipe::SinkOutputStream;
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::instrument::CHECK;

const MEMORY_MAX: usize = 64 << 20;
const STACK: usize = 512 << 10;
const HOST_STACK: usize = 3 << 19;
const TABLE_ELEMENTS: usize = 100_000;
const SLOTS: u32 = 10;
const TICK: Duration = Duration::from_millis(10);

/// `types.message` of `hostler:handler`.
#[derive(Clone, Copy, ComponentType, Lower)]
#[component(record)]
pub struct Message<'a> {
    /// The key of the message.
    pub id: &'a str,
    /// The queue.
    pub queue: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// The headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The number of the attempt.
    pub attempt: u32,
    /// The most attempts.
    #[component(name = "max-attempts")]
    pub max_attempts: u32,
    /// The time of the message.
    #[component(name = "enqueued-ms")]
    pub enqueued_ms: u64,
}

impl<'a> Message<'a> {
    /// A message with this body.
    pub fn of(body: &'a [u8]) -> Self {
        Self {
            id: "1700000000000-0",
            queue: "orders",
            body,
            headers: &[],
            attempt: 1,
            max_attempts: 5,
            enqueued_ms: 1_700_000_000_000,
        }
    }
}

/// `types.outcome` of `hostler:handler`.
#[derive(Clone, Debug, ComponentType, Lift, PartialEq)]
#[component(variant)]
pub enum Outcome {
    /// Done.
    #[component(name = "ack")]
    Ack,
    /// Again.
    #[component(name = "nack-requeue")]
    NackRequeue(Option<u64>),
    /// Given up.
    #[component(name = "drop")]
    Drop(Option<String>),
}

type Handle = TypedFunc<(&'static Message<'static>,), (Outcome,)>;

/// Counts the memory and the tables of an instance.
#[derive(Clone, Copy, Default)]
struct Limiter {
    memory: usize,
    tables: usize,
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.memory + desired.saturating_sub(current);
        if total > MEMORY_MAX {
            return Ok(false);
        }
        self.memory = total;
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        let total = self.tables + desired.saturating_sub(current);
        if total > TABLE_ELEMENTS {
            return Ok(false);
        }
        self.tables = total;
        Ok(true)
    }
}

/// The data of a store.
pub struct Host {
    limiter: Limiter,
    table: ResourceTable,
    /// Made at the guest's first use.
    wasi: Option<Box<WasiCtx>>,
}

impl WasiView for Host {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let made = || {
            let mut context = WasiCtx::builder();
            context.stdout(SinkOutputStream).stderr(SinkOutputStream);
            Box::new(context.build())
        };
        WasiCtxView {
            ctx: self.wasi.get_or_insert_with(made),
            table: &mut self.table,
        }
    }
}

/// How functions are called.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Calls {
    /// On a fiber, as the host does.
    Fiber,
    /// On the stack of the caller: the guest cannot wait.
    Direct,
}

/// A component that is ready to run, in an engine of its own.
pub struct Handler {
    engine: Engine,
    pre: InstancePre<Host>,
    handle: ComponentExportIndex,
    calls: Calls,
}

impl Handler {
    /// Compile a component.
    ///
    /// # Errors
    /// It is no handler.
    pub fn new(component: &[u8], calls: Calls) -> Result<Self> {
        // The sizes of the pool are those of the component.
        let compiler = Engine::new(&config()?)?;
        let required = Component::new(&compiler, component)?
            .resources_required()
            .context("its resources are unknown")?;
        let scans = PoolingAllocationConfig::is_pagemap_scan_available();
        let mut pool = PoolingAllocationConfig::new();
        pool.total_component_instances(SLOTS)
            .total_core_instances(u32::MAX)
            .max_core_instances_per_component(256)
            .max_component_instance_size(16 << 20)
            .max_core_instance_size(16 << 20)
            .total_memories(SLOTS * required.num_memories)
            .total_tables(SLOTS * required.num_tables)
            .total_stacks(SLOTS)
            .max_tables_per_module(required.num_tables)
            .max_memories_per_module(required.num_memories)
            .max_memory_size(MEMORY_MAX)
            .table_elements(TABLE_ELEMENTS)
            .max_unused_warm_slots(SLOTS)
            .linear_memory_keep_resident(if scans { 32 << 20 } else { 1 << 20 })
            .table_keep_resident(1 << 20)
            .pagemap_scan(if scans { Enabled::Auto } else { Enabled::No });
        let mut config = config()?;
        config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        let engine = Engine::new(&config)?;
        let component = Component::new(&engine, component)?;
        let mut linker = Linker::new(&engine);
        match calls {
            Calls::Fiber => wasmtime_wasi::p2::add_to_linker_async(&mut linker)?,
            Calls::Direct => wasmtime_wasi::p2::add_to_linker_sync(&mut linker)?,
        }
        delivery(&mut linker)?;
        let pre = linker.instantiate_pre(&component)?;
        let ty = component.component_type();
        let name = ty
            .exports(&engine)
            .map(|(name, _)| name.to_owned())
            .find(|name| name.starts_with("hostler:handler/message-handler@"))
            .context("it exports no `message-handler`")?;
        let owner = component.get_export_index(None, &name);
        let handle = component
            .get_export_index(owner.as_ref(), "handle")
            .context("it exports no `handle`")?;
        tick(&engine);
        Ok(Self {
            engine,
            pre,
            handle,
            calls,
        })
    }

    /// How its functions are called.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    /// A new store.
    pub fn store(&self) -> Store<Host> {
        let mut store = Store::new(
            &self.engine,
            Host {
                limiter: Limiter::default(),
                table: ResourceTable::new(),
                wasi: None,
            },
        );
        store.limiter(|host| &mut host.limiter);
        match self.calls {
            Calls::Fiber => store.epoch_deadline_callback(|_| {
                Ok(UpdateDeadline::YieldCustom(
                    1,
                    Box::pin(tokio::task::yield_now()),
                ))
            }),
            Calls::Direct => {
                store.epoch_deadline_callback(|_| Ok(UpdateDeadline::Continue(1)));
            }
        }
        store.set_hostcall_fuel(1 << 20);
        store.set_max_component_handles(1000);
        store.set_epoch_deadline(1);
        store
    }

    /// A new instance.
    ///
    /// # Errors
    /// Its start traps.
    pub async fn live(&self) -> Result<Live> {
        let mut store = self.store();
        let instance = match self.calls {
            Calls::Fiber => self.pre.instantiate_async(&mut store).await?,
            Calls::Direct => self.pre.instantiate(&mut store)?,
        };
        let handle = instance.get_typed_func(&mut store, self.handle)?;
        let tables = store.data().limiter.tables;
        Ok(Live {
            store,
            instance,
            handle,
            calls: self.calls,
            tables,
        })
    }
}

/// A store and its instance.
pub struct Live {
    store: Store<Host>,
    instance: Instance,
    handle: Handle,
    calls: Calls,
    /// Elements of its tables after the start.
    tables: usize,
}

impl Live {
    /// Call the handler.
    ///
    /// # Errors
    /// It traps.
    pub async fn call(&mut self, message: &Message<'_>) -> Result<Outcome> {
        self.store.set_epoch_deadline(1);
        let (outcome,) = match self.calls {
            Calls::Fiber => self.handle.call_async(&mut self.store, (message,)).await?,
            Calls::Direct => self.handle.call(&mut self.store, (message,))?,
        };
        Ok(outcome)
    }

    /// Whether an instrumented component could not be reset: one of its tables has grown.
    pub fn must_be_dropped(&self) -> bool {
        self.store.data().limiter.tables != self.tables
    }

    /// Bytes of all memories.
    pub fn memory(&self) -> usize {
        self.store.data().limiter.memory
    }

    /// The number of differences to the state after the start.
    ///
    /// # Errors
    /// The component is not instrumented.
    pub async fn differences(&mut self) -> Result<u32> {
        self.added(CHECK[0]).await
    }

    /// A number that depends on the memory and the globals.
    ///
    /// # Errors
    /// The component is not instrumented.
    pub async fn digest(&mut self) -> Result<u64> {
        self.added(CHECK[1]).await
    }

    async fn added<T>(&mut self, name: &str) -> Result<T>
    where
        T: Lift + Send + Sync + 'static,
        (T,): wasmtime::component::ComponentNamedList + Lift,
    {
        let function = self
            .instance
            .get_typed_func::<(), (T,)>(&mut self.store, name)?;
        self.store.set_epoch_deadline(1);
        let (value,) = match self.calls {
            Calls::Fiber => function.call_async(&mut self.store, ()).await?,
            Calls::Direct => function.call(&mut self.store, ())?,
        };
        Ok(value)
    }
}

fn config() -> Result<Config> {
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .epoch_interruption(true)
        .memory_init_cow(true)
        .max_wasm_stack(STACK)
        .async_stack_size(STACK + HOST_STACK)
        .wasm_memory64(false)
        .memory_guaranteed_dense_image_size(32 << 20);
    Ok(config)
}

/// The import `hostler:handler/delivery`.
fn delivery(linker: &mut Linker<Host>) -> Result<()> {
    type Texts = (Option<String>, Option<String>);
    let mut delivery = linker.instance("hostler:handler/delivery@1.1.0")?;
    delivery.func_wrap("deadline-ms", |_: StoreContextMut<'_, Host>, ()| {
        Ok((5000_u64,))
    })?;
    delivery.func_wrap("is-cancelled", |_: StoreContextMut<'_, Host>, ()| {
        Ok((false,))
    })?;
    delivery.func_wrap("trace-context", |_: StoreContextMut<'_, Host>, ()| {
        Ok(((None, None) as Texts,))
    })
}

/// Advance the epoch until the engine is dropped.
fn tick(engine: &Engine) {
    let engine = engine.weak();
    thread::spawn(move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            drop(engine);
            thread::sleep(TICK);
        }
    });
}

/// A component from a file: its bytes, or its text.
///
/// # Errors
/// It cannot be read.
pub fn component(path: &str) -> Result<Vec<u8>> {
    wat::parse_file(path).map_err(|error| format_err!("{path}: {error}"))
}
