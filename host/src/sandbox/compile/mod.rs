//! Compiles components, within limits, and caches the code.
//!
//! The compiler reads untrusted input: it may run for ever, use all memory, or crash. So it runs in a
//! limited child process of the same program ([`child`]). A second child makes one instance of the code
//! and measures it ([`trial`]). Code that has passed is cached on disk ([`cache`]).
//!
//! - `job`: what parent and child say to each other. [`child`] is the parent's side, [`serve`] the
//!   child's.
//! - `confine`: takes the child's rights away. `measure`: what a process uses.

mod artifact;
mod cache;
mod child;
mod confine;
mod job;
mod measure;
#[cfg(feature = "fault-points")]
mod probe;
mod serve;
mod trial;

use std::time::{Duration, Instant};

use wasmtime::Engine;

pub(super) use artifact::Artifact;
use cache::Key;
use child::Children;
pub use serve::serve;

use super::engine;
use super::error::{LoadError, describe};
use super::limits::Limits;
use super::program::component_of;
use super::settings::{Allocation, Compiler, Settings};

/// The command of the program that calls [`serve`].
pub const COMMAND: &str = "compile-component";

/// The most bytes of compiled code per byte of the component, in addition to [`CODE_ROOM`].
const CODE_FACTOR: u64 = 16;

/// Bytes of compiled code that every component may have.
const CODE_ROOM: u64 = 64 << 20;

/// Compiled code.
pub(super) struct Compiled {
    pub(super) artifact: Artifact,
    /// The time to compile it or to read it from the cache.
    pub(super) time: Duration,
    /// Whether the code came from the cache.
    pub(super) cached: bool,
    pub(super) tried: Tried,
}

/// Whether a child has made an instance of the code.
pub(super) enum Tried {
    /// An instance takes no more than the bounds, or nobody measures it: [`Compiler::InProcess`].
    Good,
    /// There is no room for an instance pool.
    NoPool(String),
    /// The code cannot be tried, for a reason that the checks of the caller find too.
    Untried(String),
}

/// The code of the component with this digest, from the cache or compiled now.
pub(super) fn compiled(
    engine: &Engine,
    bytes: &[u8],
    digest: &[u8; 32],
    settings: &Settings,
    allocation: Allocation,
) -> Result<Compiled, LoadError> {
    let started = Instant::now();
    let code_max = code_max(bytes);
    let key = Key::new(engine, digest);
    // A cache that cannot be used is only logged.
    let cache = settings.cache.as_ref().and_then(|cache| {
        cache::Dir::open(cache)
            .inspect_err(|error| {
                let dir = cache.dir.display();
                tracing::warn!(%dir, reason = %error, "compiled code is not cached");
            })
            .ok()
    });
    if let Some(artifact) = cache.as_ref().and_then(|cache| cache.get(&key, code_max)) {
        return Ok(Compiled {
            artifact,
            time: started.elapsed(),
            cached: true,
            tried: Tried::Good,
        });
    }
    let children = match &settings.compiler {
        Compiler::InProcess => None,
        Compiler::Child { program } => Some(Children {
            program,
            settings,
            allocation,
        }),
    };
    let artifact = match children {
        None => in_process(engine, bytes)?,
        Some(children) => children.compile(bytes, code_max)?,
    };
    if artifact.code().len() as u64 > code_max {
        return Err(LoadError::CodeTooLarge { limit: code_max });
    }
    let time = started.elapsed();
    let tried = match children {
        None => Tried::Good,
        Some(children) => children.try_out(&artifact)?,
    };
    // What is cached is not tried again.
    if let (Some(cache), Tried::Good) = (&cache, &tried) {
        cache.put(&key, artifact.code());
    }
    Ok(Compiled {
        artifact,
        time,
        cached: false,
        tried,
    })
}

/// Whether the cache has an entry for the component with this digest.
pub(super) fn is_cached(engine: &Engine, digest: &[u8; 32], settings: &Settings) -> bool {
    let cache = settings.cache.as_ref();
    let dir = cache.and_then(|cache| cache::Dir::open(cache).ok());
    dir.is_some_and(|dir| dir.has(&Key::new(engine, digest)))
}

fn code_max(bytes: &[u8]) -> u64 {
    (bytes.len() as u64)
        .saturating_mul(CODE_FACTOR)
        .saturating_add(CODE_ROOM)
}

fn in_process(engine: &Engine, bytes: &[u8]) -> Result<Artifact, LoadError> {
    let component = component_of(bytes).map_err(|detail| LoadError::Invalid { detail })?;
    let code = engine.precompile_component(&component).map_err(invalid)?;
    Ok(Artifact::whole(code))
}

fn invalid(error: wasmtime::Error) -> LoadError {
    LoadError::Invalid {
        detail: describe(&error),
    }
}

/// An engine that only compiles. Its code runs on engines with the same memory, stack and allocation.
fn compiler(memory: usize, stack: usize, allocation: Allocation) -> wasmtime::Result<Engine> {
    let settings = Settings {
        limits: Limits {
            memory,
            stack,
            ..Limits::default()
        },
        ..Settings::default()
    };
    engine::compiler(&settings, allocation)
}
