//! From a file to a handler that can be called; every step can refuse.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use sha2::{Digest, Sha256};
use wasmtime::ResourcesRequired;
use wasmtime::component::{Component, InstancePre};

use super::error::{LoadError, named, said};
use super::fault::host_panic;
use super::grants::Import;
use super::host::{Host, Shared};
use super::imports::linker;
use super::limits::Limits;
use super::log::Rate;
use super::settings::{Allocation, Reuse, Settings};
use super::world::{self, Export, World};
use super::{compile, engine, format};

/// Bytes of a page of linear memory.
const PAGE: u64 = 64 << 10;

/// A handler, ready to be called.
pub(super) struct Loaded {
    pub(super) engine: wasmtime::Engine,
    pub(super) pre: InstancePre<Host>,
    pub(super) export: Export,
    pub(super) shared: Arc<Shared>,
    pub(super) reuse: Reuse,
    /// Unlike any other `Loaded` of this process.
    pub(super) generation: u64,
    pub(super) description: Description,
}

/// What a component is and needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Description {
    /// The interface that the host calls, such as `hostler:handler/message-handler@1.0.0`.
    pub interface: String,
    /// Whether it takes several messages at a time.
    pub world: World,
    /// Everything it exports.
    pub exports: Vec<String>,
    /// Everything it imports, and what each import takes.
    pub imports: Vec<Import>,
    /// Bytes of the file.
    pub size: u64,
    /// How long it took to compile, or to read what was compiled before.
    pub compile: Duration,
    /// Whether it was compiled before.
    pub cached: bool,
    /// Linear memories of one instance.
    pub memories: u32,
    /// Bytes of the largest of them at the start.
    pub memory_initial: u64,
    /// Tables of one instance.
    pub tables: u32,
    /// Elements of the largest of them at the start.
    pub table_initial: u64,
    /// Whether instances come from a pool (else from memory mapped for each).
    pub pooling: bool,
}

/// Read a component's file, of at most `limit` bytes.
///
/// # Errors
/// It cannot be read, or is larger.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    let too_large = |size| LoadError::FileTooLarge { size, limit };
    if size > limit {
        return Err(too_large(size));
    }
    // The file may grow while it is read.
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    let size = bytes.len() as u64;
    if size > limit {
        return Err(too_large(size));
    }
    Ok(bytes)
}

pub(super) fn load(bytes: &[u8], settings: &Settings) -> Result<Loaded, LoadError> {
    let size = bytes.len() as u64;
    if size > settings.limits.component {
        return Err(LoadError::FileTooLarge {
            size,
            limit: settings.limits.component,
        });
    }
    format::check(bytes)?;
    build(bytes, settings, settings.allocation)
}

/// Whether its code is kept.
pub(crate) fn is_kept(bytes: &[u8], settings: &Settings) -> bool {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    engine::compiler(settings, settings.allocation)
        .is_ok_and(|compiler| compile::is_kept(&compiler, &digest, settings))
}

fn build(bytes: &[u8], settings: &Settings, allocation: Allocation) -> Result<Loaded, LoadError> {
    let unusable = |error: wasmtime::Error| LoadError::Engine {
        detail: format!("{error:#}"),
    };
    let compiler = engine::compiler(settings, allocation).map_err(unusable)?;
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let compiled = compile::compiled(&compiler, bytes, &digest, settings, allocation)?;
    let artifact = &compiled.artifact;
    let component = artifact.load(&compiler).map_err(unusable)?;

    let export = world::probe(&compiler, &component)?;
    let imports = imports(&compiler, &component, settings)?;
    let required = required(&component, &settings.limits)?;
    let exports = component
        .component_type()
        .exports(&compiler)
        .map(|(name, _)| named(name))
        .collect();
    drop(component);

    // The pool is made for this component, so its engine comes after a first look at it.
    let built = match engine::runner(settings, allocation, &required) {
        Ok(built) => built,
        // No room for a pool: without one it is slower, but it runs.
        Err(error) if allocation == Allocation::Auto => {
            let reason = said(&error);
            tracing::warn!(reason, "no pool for instances, memory is mapped for each");
            return build(bytes, settings, Allocation::OnDemand);
        }
        Err(error) => return Err(unusable(error)),
    };
    let too_much = |error| LoadError::TooMuch {
        detail: said(&error),
    };
    if !built.pooling {
        // Only a pool looks at what an instance takes beside its memories and tables.
        let one = engine::pool_of_one(settings, allocation, &required).map_err(unusable)?;
        artifact.load(&one).map_err(too_much)?;
    }
    let component = artifact.load(&built.engine).map_err(too_much)?;
    // The export's index belongs to one loaded component.
    let export = world::probe(&built.engine, &component)
        .inspect_err(|_| debug_assert!(false, "probed a moment ago: {export:?}"))?;
    let pre = linker(&built.engine, &settings.grants)
        .map_err(unusable)?
        .instantiate_pre(&component)
        .map_err(|error| LoadError::WrongImport {
            detail: said(&error),
        })?;
    let loaded = Loaded {
        description: Description {
            interface: export.interface.clone(),
            world: export.world,
            exports,
            imports,
            size: bytes.len() as u64,
            compile: compiled.time,
            cached: compiled.cached,
            memories: required.num_memories,
            memory_initial: required.max_initial_memory_size.unwrap_or(0) * PAGE,
            tables: required.num_tables,
            table_initial: required.max_initial_table_size.unwrap_or(0),
            pooling: built.pooling,
        },
        engine: built.engine,
        pre,
        export,
        shared: Arc::new(Shared {
            rate: Arc::new(Rate::new(&settings.limits)),
            pace: built.pace,
            limits: settings.limits.clone(),
            grants: settings.grants.clone(),
            digest: name(&digest),
        }),
        reuse: Reuse::new(settings),
        generation: generation(),
    };
    trial(&loaded)?;
    Ok(loaded)
}

/// What the component imports, if it may.
fn imports(
    engine: &wasmtime::Engine,
    component: &Component,
    settings: &Settings,
) -> Result<Vec<Import>, LoadError> {
    let imports: Vec<_> = component
        .component_type()
        .imports(engine)
        .map(|(name, _)| Import::new(&named(name)))
        .collect();
    let refused: Vec<_> = imports
        .iter()
        .filter(|import| !import.granted(&settings.grants))
        .cloned()
        .collect();
    if refused.is_empty() {
        Ok(imports)
    } else {
        Err(LoadError::NotGranted { imports: refused })
    }
}

/// What an instance needs at its start, if the limits allow it.
fn required(component: &Component, limits: &Limits) -> Result<ResourcesRequired, LoadError> {
    let required = component
        .resources_required()
        .ok_or_else(|| LoadError::Invalid {
            detail: "it imports core modules".to_owned(),
        })?;
    let check = |needs: u64, limit: usize, what, setting| {
        if needs > limit as u64 {
            return Err(LoadError::NeedsMore {
                what,
                needs,
                limit: limit as u64,
                setting,
            });
        }
        Ok(())
    };
    check(
        required
            .max_initial_memory_size
            .unwrap_or(0)
            .saturating_mul(PAGE),
        limits.memory,
        "bytes of linear memory",
        "memory",
    )?;
    check(
        required.max_initial_table_size.unwrap_or(0),
        limits.table_elements,
        "table elements",
        "table_elements",
    )?;
    Ok(required)
}

/// Make an instance on a thread of its own: the caller's may belong to an async runtime.
fn trial(loaded: &Loaded) -> Result<(), LoadError> {
    let unusable = |error: std::io::Error| LoadError::Engine {
        detail: format!("the trial did not run: {error}"),
    };
    let run = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(unusable)?
            .block_on(loaded.trial())
    };
    thread::scope(|scope| {
        thread::Builder::new()
            .name("trial".to_owned())
            .spawn_scoped(scope, run)
            .map_err(unusable)?
            .join()
            .unwrap_or_else(|payload| Err(LoadError::Start(host_panic(&*payload))))
    })
}

/// A digest as people see it.
pub(crate) fn name(digest: &[u8; 32]) -> Arc<str> {
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}").into()
}

fn generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
