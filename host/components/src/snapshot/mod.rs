//! The child's snapshot of a component: a component that begins where an instance of the first one is after
//! its start, with the same memories and globals.
//!
//! Only a start that depends on nothing outside is kept, so that a snapshot has no secret and no random seed:
//! [`outside`] has what a start may call. The other parts of an instance, besides memories and globals, are made again
//! in each: [`resume`].

mod compact;
mod outside;
mod resume;

use futures_util::FutureExt;
use serde::{Deserialize, Serialize};
use wasmtime::component::{Component, ComponentNamedList, Instance, Lift, Linker, WasmList};
use wasmtime::{Config, Engine, OptLevel, RegallocAlgorithm, ResourceLimiter, Store, bail};
use wasmtime_wizer::{ComponentInstanceState, Wizer};

use outside::Start;
use resume::Layout;

use crate::error::describe;

/// The fewest instructions of a start that is worth a snapshot. They take some 50 us.
const WORTH: u64 = 100_000;

/// The most instructions of a start.
const INSTRUCTIONS_MAX: u64 = 500_000_000;

/// The instance of an instrumented component that shows its memories and globals.
const ACCESS: &str = "wasmtime:wizer/access";

/// A component after its start.
pub struct Snapshot {
    /// The component.
    pub component: Vec<u8>,
    /// The instructions of the start.
    pub instructions: u64,
}

/// The reason why there is no snapshot.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WithoutSnapshot {
    /// The start is short.
    Short,
    /// The text says what prevents it.
    Refused(String),
}

impl From<wasmparser::BinaryReaderError> for WithoutSnapshot {
    fn from(error: wasmparser::BinaryReaderError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<wasmtime::Error> for WithoutSnapshot {
    fn from(error: wasmtime::Error) -> Self {
        Self::Refused(describe(&error))
    }
}

/// Whether instances of this component run code at their start.
pub fn has_start(component: &[u8]) -> bool {
    Layout::of(component).is_ok_and(|layout| layout.starts)
}

/// Make a snapshot of the component: for engines with these settings, and within the limits of `limiter`. `check` says
/// whether instances of the component may begin from one.
///
/// # Errors
/// There is no snapshot.
pub fn take(
    component: &[u8],
    config: Config,
    limiter: impl ResourceLimiter + Sync + 'static,
    check: impl FnOnce(&Engine, &Component) -> Result<(), String>,
) -> Result<Snapshot, WithoutSnapshot> {
    let layout = Layout::of(component)?;
    layout.refuse_handles()?;
    let mut wizer = Wizer::new();
    // It removes an export of this kind.
    wizer.keep_init_func(true);
    let (context, instrumented) = wizer.instrument_component(component)?;
    let engine = counting_engine(config)?;
    let instrumented = Component::new(&engine, instrumented)?;
    check(&engine, &instrumented).map_err(WithoutSnapshot::Refused)?;

    let mut store = Store::new(&engine, Start::new(Box::new(limiter)));
    store.limiter(|start| &mut *start.limiter);
    // The memories are read twice.
    store.set_hostcall_fuel(usize::MAX);
    store.set_fuel(INSTRUCTIONS_MAX)?;
    // The process has a limit of time.
    store.set_epoch_deadline(u64::from(u32::MAX));
    let mut linker = Linker::new(&engine);
    outside::link(&mut linker, &instrumented, layout.resume.is_some())?;
    let instance = linker
        .instantiate(&mut store, &instrumented)
        .map_err(|error| WithoutSnapshot::Refused(outside::refusal(&error)))?;
    let instructions = INSTRUCTIONS_MAX.saturating_sub(store.get_fuel()?);
    if instructions < WORTH {
        return Err(WithoutSnapshot::Short);
    }
    store.set_fuel(INSTRUCTIONS_MAX)?;
    let mut state = State {
        store,
        instance,
        failed: None,
    };
    let snapshot = wizer.snapshot_component(&context, &mut state);
    let snapshot = snapshot
        .now_or_never()
        .expect("no function of `State` waits")?;
    if let Some(error) = state.failed {
        let reason = format!("its memory cannot be read: {}", describe(&error));
        return Err(WithoutSnapshot::Refused(reason));
    }
    Ok(Snapshot {
        component: resume::append(compact::compact(&snapshot)?, state.store.data().streams())?,
        instructions,
    })
}

/// An engine that compiles fast and counts instructions.
fn counting_engine(mut config: Config) -> wasmtime::Result<Engine> {
    config
        .consume_fuel(true)
        .cranelift_opt_level(OptLevel::None)
        .cranelift_regalloc_algorithm(RegallocAlgorithm::SinglePass);
    Engine::new(&config)
}

/// An instance whose memories and globals are read.
struct State {
    store: Store<Start>,
    instance: Instance,
    /// The first error. A value that is read after it means nothing.
    failed: Option<wasmtime::Error>,
}

impl State {
    fn read<T, R>(&mut self, name: &str, with: impl FnOnce(&Store<Start>, T) -> R) -> Option<R>
    where
        T: Lift + 'static,
        (T,): ComponentNamedList + Lift,
    {
        let Self {
            store, instance, ..
        } = self;
        let mut call = || {
            let access = instance.get_export_index(&mut *store, None, ACCESS);
            let index = access
                .and_then(|access| instance.get_export_index(&mut *store, Some(&access), name));
            let Some(index) = index else {
                bail!("an instrumented component lacks `{name}`");
            };
            let function = instance.get_typed_func::<(), (T,)>(&mut *store, index)?;
            function.call(&mut *store, ())
        };
        match call() {
            Ok((value,)) => Some(with(store, value)),
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        }
    }

    fn value<T>(&mut self, name: &str) -> T
    where
        T: Lift + Default + 'static,
        (T,): ComponentNamedList + Lift,
    {
        self.read(name, |_, value: T| value).unwrap_or_default()
    }
}

impl ComponentInstanceState for State {
    async fn call_func_ret_list_u8(
        &mut self,
        _: &str,
        name: &str,
        contents: impl FnOnce(&[u8]) + Send,
    ) {
        let mut contents = Some(contents);
        self.read(name, |store, bytes: WasmList<u8>| {
            if let Some(contents) = contents.take() {
                contents(bytes.as_le_slice(store));
            }
        });
        // wizer expects a call for each memory.
        if let Some(contents) = contents {
            contents(&[]);
        }
    }

    async fn call_func_ret_s32(&mut self, _: &str, name: &str) -> i32 {
        self.value(name)
    }

    async fn call_func_ret_s64(&mut self, _: &str, name: &str) -> i64 {
        self.value(name)
    }

    async fn call_func_ret_f32(&mut self, _: &str, name: &str) -> u32 {
        self.value::<f32>(name).to_bits()
    }

    async fn call_func_ret_f64(&mut self, _: &str, name: &str) -> u64 {
        self.value::<f64>(name).to_bits()
    }
}
