//! From a file to a handler that can be called: `load` checks it, has it compiled within limits or takes the code
//! from the cache, links it, and makes a trial instance. [`Sandbox::load`](crate::sandbox::Sandbox::load) is here.
//!
//! The compiler reads untrusted input: it may run for ever, use all memory, or crash. So it runs in a
//! limited child process of the same program ([`child`]). A second child makes one instance of the code
//! and measures it ([`trial`]). If instances run code at their start, a child before these two runs it once
//! ([`snapshot`]). Code that has passed is cached on disk ([`cache`]).
//!
//! - `job`: what parent and child say to each other. [`child`] is the parent's side, [`serve`] the
//!   child's.
//! - `confine`: takes the child's rights away. `measure`: what a process uses.

mod artifact;
mod cache;
mod child;
mod confine;
mod job;
mod load;
mod measure;
#[cfg(feature = "fault-points")]
mod probe;
mod serve;
mod trial;

use std::borrow::Cow;
use std::time::{Duration, Instant};

use hostler_components::snapshot::{self, WithoutSnapshot};
use hostler_components::{component_of, describe, program};
use wasmtime::Engine;

use artifact::Artifact;
use cache::Key;
use child::Children;
use job::Job;
pub use load::read;
pub(crate) use load::{is_cached, name, on_own_thread};
pub use serve::serve;

use crate::sandbox::Start;
use crate::sandbox::error::LoadError;
use crate::sandbox::settings::{Allocation, Compiler, Settings};

/// The command of the program that calls [`serve`].
pub const COMMAND: &str = "compile-component";

/// The most bytes of compiled code per byte of the component, in addition to [`CODE_ROOM`].
const CODE_FACTOR: u64 = 16;

/// Bytes of compiled code that every component may have.
const CODE_ROOM: u64 = 64 << 20;

/// Compiled code.
struct Compiled {
    artifact: Artifact,
    /// The time to compile it or to read it from the cache.
    time: Duration,
    /// Whether the code came from the cache.
    cached: bool,
    tried: Tried,
    start: Start,
}

/// Whether a child has made an instance of the code.
enum Tried {
    /// An instance takes no more than the bounds, or it is not measured: [`Compiler::InProcess`].
    Good,
    /// There is no room for an instance pool.
    NoPool(String),
    /// The code cannot be tried, for a reason that the checks of the caller find too.
    Untried(String),
}

/// The code of the component with this digest, from the cache or compiled now.
fn compiled(
    engine: &Engine,
    bytes: &[u8],
    digest: &[u8; 32],
    settings: &Settings,
    allocation: Allocation,
) -> Result<Compiled, LoadError> {
    let started = Instant::now();
    let key = Key::new(engine, digest, settings.snapshot);
    // A cache that cannot be used is only logged.
    let cache = settings.cache.as_ref().and_then(|cache| {
        cache::Dir::open(cache)
            .inspect_err(|error| {
                let dir = cache.dir.display();
                tracing::warn!(%dir, reason = %error, "compiled code is not cached");
            })
            .ok()
    });
    // A snapshot may have all memory that an instance may have.
    let most = code_max(bytes).saturating_add(settings.limits.memory as u64);
    if let Some((artifact, start)) = cache.as_ref().and_then(|cache| cache.get(&key, most)) {
        return Ok(Compiled {
            artifact,
            time: started.elapsed(),
            cached: true,
            tried: Tried::Good,
            start,
        });
    }
    let (made, start) = match &settings.compiler {
        Compiler::InProcess => (
            in_process(engine, bytes, settings.lines)?,
            without_snapshot(bytes, settings),
        ),
        Compiler::Child { program } => {
            let children = Children {
                program,
                settings,
                allocation,
            };
            in_children(children, bytes)?
        }
    };
    // A child would make a snapshot of it.
    let is_child = settings.compiler != Compiler::InProcess;
    let is_final = is_child || start == Start::Short || !settings.snapshot;
    // Cached code is not tried again.
    if let (Some(cache), Tried::Good, true) = (&cache, &made.tried, is_final) {
        cache.put(&key, &start, made.artifact.code());
    }
    Ok(Compiled {
        artifact: made.artifact,
        time: made.compiled.duration_since(started),
        cached: false,
        tried: made.tried,
        start,
    })
}

/// New code.
struct Made {
    artifact: Artifact,
    compiled: Instant,
    tried: Tried,
}

/// Compile in children, from a snapshot if there is one.
fn in_children(children: Children<'_>, bytes: &[u8]) -> Result<(Made, Start), LoadError> {
    let settings = children.settings;
    let mut start = without_snapshot(bytes, settings);
    if settings.snapshot && start != Start::Short {
        start = match children.snapshot(bytes) {
            Ok(snapshot) => match from_snapshot(children, &snapshot.component) {
                Ok(made) => {
                    let instructions = snapshot.instructions;
                    return Ok((made, Start::Snapshot { instructions }));
                }
                Err(error) => whole(format!("its snapshot cannot be used: {error}")),
            },
            Err(WithoutSnapshot::Short) => Start::Short,
            Err(WithoutSnapshot::Refused(reason)) => whole(reason),
        };
    }
    Ok((in_child(children, bytes)?, start))
}

/// Compile the snapshot that a child has made. It is checked like any other component: the code that made
/// it had run.
fn from_snapshot(children: Children<'_>, snapshot: &[u8]) -> Result<Made, LoadError> {
    hostler_components::check(snapshot)?;
    let made = in_child(children, snapshot)?;
    match made.tried {
        Tried::Untried(detail) => Err(LoadError::Invalid(detail)),
        Tried::Good | Tried::NoPool(_) => Ok(made),
    }
}

fn in_child(children: Children<'_>, bytes: &[u8]) -> Result<Made, LoadError> {
    let code_max = code_max(bytes);
    let artifact = children.compile(bytes, code_max)?;
    if artifact.code().len() as u64 > code_max {
        return Err(LoadError::CodeTooLarge(code_max));
    }
    let compiled = Instant::now();
    let tried = children.try_out(&artifact)?;
    Ok(Made {
        artifact,
        compiled,
        tried,
    })
}

/// The start of a component of which no snapshot is made.
fn without_snapshot(bytes: &[u8], settings: &Settings) -> Start {
    match settings.snapshot {
        _ if !snapshot::has_start(bytes) => Start::Short,
        true => whole("only a process of its own makes snapshots".to_owned()),
        false => whole("the setting `snapshot` is off".to_owned()),
    }
}

fn whole(reason: String) -> Start {
    Start::Whole { reason }
}

/// Whether the cache has an entry for the component with this digest.
fn has_entry(engine: &Engine, digest: &[u8; 32], settings: &Settings) -> bool {
    let cache = settings.cache.as_ref();
    let dir = cache.and_then(|cache| cache::Dir::open(cache).ok());
    dir.is_some_and(|dir| dir.has(&Key::new(engine, digest, settings.snapshot)))
}

/// The component that is compiled. Lines of source are about the code of its modules as it is, so these are not merged.
fn compilable(bytes: &[u8], lines: bool) -> Result<Cow<'_, [u8]>, String> {
    match lines {
        true => program::component_of(bytes),
        false => component_of(bytes),
    }
}

fn code_max(bytes: &[u8]) -> u64 {
    (bytes.len() as u64)
        .saturating_mul(CODE_FACTOR)
        .saturating_add(CODE_ROOM)
}

fn in_process(engine: &Engine, bytes: &[u8], lines: bool) -> Result<Made, LoadError> {
    let component = compilable(bytes, lines).map_err(LoadError::Invalid)?;
    let code = engine
        .precompile_component(&component)
        .map_err(|error| LoadError::Invalid(describe(&error)))?;
    let (limit, size) = (code_max(bytes), code.len() as u64);
    if size > limit {
        return Err(LoadError::CodeTooLarge(limit));
    }
    Ok(Made {
        artifact: Artifact::whole(code),
        compiled: Instant::now(),
        tried: Tried::Good,
    })
}

/// What an engine that compiles needs of the settings. Its code runs on engines with the same memory, stack
/// and allocation.
fn settings_for(job: &Job) -> Settings {
    Settings {
        limits: job.limits.clone(),
        lines: job.lines,
        ..Settings::default()
    }
}
