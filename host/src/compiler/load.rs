//! Loads a handler: checks, compiles and links a component, and makes a trial instance.

use std::io::{self, Read};
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

use hostler_components::{describe, display_name};
use sha2::{Digest, Sha256};
use wasmtime::Store;
use wasmtime::component::types::ComponentItem;
use wasmtime::component::{Component, Instance};

use super::{Tried, compiled, has_entry};
use crate::delivery::effect::Budget;
use crate::delivery::hold::{Held, HoldRoom};
use crate::delivery::text::hex;
use crate::grants::files::rules::Directory;
use crate::grants::imports::{Import, Need, WITHOUT};
use crate::grants::link::linker;
use crate::regular_file;
use crate::sandbox::error::LoadError;
use crate::sandbox::fault::host_panic;
use crate::sandbox::first_instance::{PAGE, make, required};
use crate::sandbox::host::{Host, Shared};
use crate::sandbox::loaded::{Description, Loaded};
use crate::sandbox::log::Rate;
use crate::sandbox::program::{ExitCodes, Meaning, Stdout};
use crate::sandbox::runner::{Runner, Runners};
use crate::sandbox::settings::{Allocation, Reuse, Settings};
use crate::sandbox::world::{self, World};
use crate::sandbox::{Sandbox, engine};

/// Read a component's file, of at most `limit` bytes.
///
/// # Errors
/// The file cannot be read, or is larger than `limit`.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, LoadError> {
    let file = regular_file::open(path)?;
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

impl Sandbox {
    /// Load a component from a file: compile it and make one instance. Blocks, for seconds if the
    /// component is large.
    ///
    /// # Errors
    /// The file cannot be read, or the component fails a check.
    pub fn load(path: &Path, settings: &Settings) -> Result<Self, LoadError> {
        Self::load_bytes(&read(path, settings.limits.component)?, settings)
    }

    /// As [`Sandbox::load`], from bytes in memory.
    ///
    /// # Errors
    /// As [`Sandbox::load`].
    pub fn load_bytes(bytes: &[u8], settings: &Settings) -> Result<Self, LoadError> {
        let size = bytes.len() as u64;
        if size > settings.limits.component {
            return Err(LoadError::FileTooLarge {
                size,
                limit: settings.limits.component,
            });
        }
        hostler_components::check(bytes)?;
        let loaded = build(bytes, settings, settings.allocation)?;
        Ok(Self(Arc::new(loaded)))
    }
}

/// Whether the compiled code of this component is cached, so that no compiler is needed. The entry is not checked.
pub(crate) fn is_cached(bytes: &[u8], settings: &Settings) -> bool {
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    engine::compiler(settings, settings.allocation)
        .is_ok_and(|compiler| has_entry(&compiler, &digest, settings))
}

fn build(bytes: &[u8], settings: &Settings, allocation: Allocation) -> Result<Loaded, LoadError> {
    let unusable = |error: wasmtime::Error| LoadError::Engine(format!("{error:#}"));
    let compiler = engine::compiler(settings, allocation).map_err(unusable)?;
    let digest: [u8; 32] = Sha256::digest(bytes).into();
    let compiled = compiled(&compiler, bytes, &digest, settings, allocation)?;
    let artifact = &compiled.artifact;
    let component = artifact.load(&compiler).map_err(unusable)?;

    let export = world::probe(&compiler, &component)?;
    let imports = imports(&compiler, &component, settings)?;
    if let Some(import) = imports.iter().find(|import| import.needs_keeping())
        && settings.holds.is_none()
    {
        return Err(LoadError::Holds(import.name.clone()));
    }
    if export.world() == World::Batch {
        allow_batches(&imports, settings)?;
    }
    let program = match export.is_program() {
        true => {
            allow_program(settings)?;
            let codes = ExitCodes::of(&compiler, &component);
            Some((settings.program.clone(), codes))
        }
        false => None,
    };
    allow_files(settings)?;
    let required = required(&component, &settings.limits)?;
    let exports = component
        .component_type()
        .exports(&compiler)
        .map(|(name, _)| display_name(name))
        .collect();
    drop(component);

    // The pool is sized for this component, so its engine is made after the checks.
    let built = match &compiled.tried {
        Tried::NoPool(reason) => Err(reason.clone()),
        _ => engine::runners(settings, allocation, &required).map_err(|error| describe(&error)),
    };
    let built = match built {
        Ok(built) => built,
        // Without a pool the handler is slower, but runs.
        Err(reason) if allocation == Allocation::Auto => {
            tracing::warn!(
                reason,
                "no room for an instance pool; memory is mapped for each instance"
            );
            return build(bytes, settings, Allocation::OnDemand);
        }
        Err(detail) => return Err(LoadError::Engine(detail)),
    };
    let too_large = |error| LoadError::InstanceTooLarge(describe(&error));
    if !built.pooling {
        // Only a pool checks the other host memory of an instance.
        let one = engine::pool_of_one(settings, allocation, &required).map_err(unusable)?;
        artifact.load(&one).map_err(too_large)?;
    }
    let exit_codes = program.as_ref().map(|(_, codes)| *codes);
    let shared = Shared {
        rate: Arc::new(Rate::new(&settings.limits)),
        pace: built.pace,
        limits: settings.limits.clone(),
        grants: settings.grants.clone(),
        budget: Budget::default(),
        records_calls: settings.record_calls && settings.grants.has_calls(),
        recordings: settings.record_answers.then(Budget::default),
        settings: settings.digest().into(),
        acts: program.is_some() || imports.iter().any(Import::needs_keeping),
        digest: name(&digest),
        program,
    };
    let runner = |engine: wasmtime::Engine| {
        let component = artifact.load(&engine).map_err(too_large)?;
        let export = world::probe(&engine, &component)
            .inspect_err(|_| debug_assert!(false, "probed a moment ago: {export:?}"))?;
        let pre = linker(&engine, Some(&settings.grants))
            .map_err(unusable)?
            .instantiate_pre(&component)
            .map_err(|error| LoadError::WrongImport(describe(&error)))?;
        Ok(Arc::new(Runner {
            engine,
            pre,
            export,
            shared: Arc::new(shared.clone()),
            instances: AtomicUsize::new(0),
        }))
    };
    let runners = Runners {
        all: built
            .engines
            .into_iter()
            .map(runner)
            .collect::<Result<_, LoadError>>()?,
        room: built.room,
    };
    let loaded = Loaded {
        description: Description {
            interface: export.name.clone(),
            world: export.world(),
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
            start: compiled.start.clone(),
            exit_codes,
        },
        runners,
        shared,
        reuse: Reuse::new(settings),
        generation: generation(),
        room: (settings.holds).map_or(HoldRoom::AtMostOnce, |limits| {
            limits.room(Held::default(), 0)
        }),
    };
    if let Tried::Untried(reason) = &compiled.tried {
        let detail = format!("its trial has ended early: {reason}");
        return Err(LoadError::Engine(detail));
    }
    trial(&loaded)?;
    Ok(loaded)
}

/// The imports of the component, if all are granted.
fn imports(
    engine: &wasmtime::Engine,
    component: &Component,
    settings: &Settings,
) -> Result<Vec<Import>, LoadError> {
    let imports: Vec<_> = component
        .component_type()
        .imports(engine)
        // A type alone does nothing.
        .filter(|(_, item)| !matches!(item.ty, ComponentItem::Type(_)))
        .flat_map(|(name, item)| {
            let without = without(engine, name, &item.ty);
            let names = iter::once(display_name(name)).chain(without);
            names.map(|name| Import::new(&name))
        })
        .collect();
    let refused: Vec<_> = imports
        .iter()
        .filter(|import| !import.granted(&settings.grants))
        .cloned()
        .collect();
    match refused.is_empty() {
        true => Ok(imports),
        false => Err(LoadError::NotGranted(refused)),
    }
}

/// The function of a served interface that this host does not have, if the component imports it.
fn without(engine: &wasmtime::Engine, name: &str, item: &ComponentItem) -> Option<String> {
    let ComponentItem::ComponentInstance(instance) = item else {
        return None;
    };
    let (interface, _) = name.split_once('@')?;
    let (_, function) = WITHOUT.iter().find(|(known, _)| *known == interface)?;
    instance.get_export(engine, function)?;
    Some(format!("{}#{function}", display_name(name)))
}

/// Refuse a handler of batches whose grants belong to single messages.
fn allow_batches(imports: &[Import], settings: &Settings) -> Result<(), LoadError> {
    if let Some(import) = imports
        .iter()
        .find(|import| import.belongs_to_one_message())
    {
        let import = &import.name;
        let detail = format!(
            "imports {import}: a call with several messages has no message that this could belong to; \
             import `batch-effects`, `batch-flow` or `batch-reply`, whose calls name the message, or export `message-handler`"
        );
        return Err(LoadError::Batch(detail));
    }
    let keys = settings.grants.key_value.as_ref();
    if keys.is_some_and(|keys| keys.journal) {
        let detail = "`[grant.key-value]` has `journal = true`, and a journal belongs to one message; leave it out, or handle \
                      single messages";
        return Err(LoadError::Batch(detail.to_owned()));
    }
    let uses_http = imports
        .iter()
        .any(|import| import.need == Need::Grant("http"));
    let http = settings.grants.provided.http.as_ref();
    match http
        .filter(|_| uses_http)
        .and_then(|http| http.refuses_batches())
    {
        Some(detail) => Err(LoadError::Batch(detail)),
        None => Ok(()),
    }
}

/// Refuse settings that a program cannot have.
fn allow_program(settings: &Settings) -> Result<(), LoadError> {
    if settings.reuse > 1 {
        let detail = format!(
            "a program runs once in an instance: `reuse` is {}, set it to 1",
            settings.reuse
        );
        return Err(LoadError::Program(detail));
    }
    let codes = &settings.program.exit_codes;
    let hold = codes.iter().find(|(_, m)| matches!(m, Meaning::Hold(_)));
    if let Some((code, _)) = hold.filter(|_| settings.holds.is_none()) {
        return Err(LoadError::Program(format!(
            "its exit code {code} holds messages (`program.exit_codes`), and this queue takes none back: serve a stream or a \
             list with `reliable = true`"
        )));
    }
    let to = match &settings.program.stdout {
        Stdout::Log => return Ok(()),
        Stdout::Reply if settings.holds.is_none() => {
            return Err(LoadError::Program(
                "its stdout is the reply (`program.stdout`), and this queue keeps none: serve a stream or a list with \
                 `reliable = true`"
                    .to_owned(),
            ));
        }
        Stdout::Reply => return Ok(()),
        Stdout::Publish(to) => to,
    };
    let outlets = settings.grants.publish.as_ref();
    match outlets.is_some_and(|outlets| outlets.names().any(|name| name == to)) {
        true => Ok(()),
        false => Err(LoadError::Program(format!(
            "its stdout goes to `{to}` (`program.stdout`), which is not in `[grant.publish]`: write \
             `{to} = \"stream:key\"` there"
        ))),
    }
}

/// Refuse directories that cannot be read.
fn allow_files(settings: &Settings) -> Result<(), LoadError> {
    for Directory { path, .. } in &settings.grants.files {
        if let Err(error) = std::fs::read_dir(path) {
            let path = path.display();
            let detail =
                format!("the directory {path} of `[[grant.files]]` cannot be read: {error}");
            return Err(LoadError::Engine(detail));
        }
    }
    Ok(())
}

/// Make a trial instance.
fn trial(loaded: &Loaded) -> Result<(), LoadError> {
    let runner = &loaded.runners.all[0];
    let export = &runner.export;
    let look = |store: &mut Store<Host>, instance: &Instance| export.check_type(store, instance);
    let trial = async || make(&runner.engine, &runner.pre, &runner.shared, look).await;
    on_own_thread("trial", trial)
        .map_err(|error| LoadError::Engine(format!("the trial did not run: {error}")))?
        .unwrap_or_else(|payload| Err(LoadError::Start(host_panic(&*payload))))
}

/// Run a future on a separate thread: the caller's thread may belong to an async runtime. The inner
/// error is the payload of a panic.
pub(crate) fn on_own_thread<T: Send>(
    name: &str,
    run: impl AsyncFnOnce() -> T + Send,
) -> io::Result<thread::Result<T>> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(run()))
    };
    thread::scope(|scope| {
        let thread = thread::Builder::new().name(name.to_owned());
        match thread.spawn_scoped(scope, run)?.join() {
            Ok(ran) => ran.map(Ok),
            Err(payload) => Ok(Err(payload)),
        }
    })
}

/// The text of a digest: `sha256:` and 64 hexadecimal digits.
pub(crate) fn name(digest: &[u8; 32]) -> Arc<str> {
    format!("sha256:{}", hex(digest)).into()
}

fn generation() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
