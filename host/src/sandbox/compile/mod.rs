//! From a component to compiled code, within bounds, and at most once.
//!
//! A compiler is a large program that reads what a stranger wrote: it may take for ever, want all
//! memory there is, or crash. So it runs in a child process of the same program ([`child`]), which
//! the kernel and we hold to its limits, and what it made is kept on disk ([`cache`]).

mod artifact;
mod cache;
mod child;

use std::time::{Duration, Instant};

use wasmtime::Engine;

pub(super) use artifact::Artifact;
use cache::Key;
pub use child::serve;

use super::engine;
use super::error::{LoadError, said};
use super::limits::Limits;
use super::settings::{Allocation, Compiler, Settings};

/// The command of the program that compiles what it reads: [`serve`].
pub const COMMAND: &str = "compile-component";

/// Compiled code may have so many times the bytes of its component, and [`CODE_ROOM`].
const CODE_FACTOR: u64 = 16;

/// Bytes of compiled code that any component may have.
const CODE_ROOM: u64 = 64 << 20;

/// Code, and how it was come by.
pub(super) struct Compiled {
    pub(super) artifact: Artifact,
    /// How long that took.
    pub(super) time: Duration,
    /// Whether it came from the cache.
    pub(super) cached: bool,
}

/// The code of a component with this digest: from the cache, or made now.
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
    // A cache that can't be used is told, and never a reason not to start.
    let cache = settings.cache.as_ref().and_then(|cache| {
        cache::Dir::open(cache)
            .inspect_err(|error| {
                let dir = cache.dir.display();
                tracing::warn!(%dir, reason = %error, "compiled code is not kept");
            })
            .ok()
    });
    if let Some(artifact) = cache.as_ref().and_then(|cache| cache.get(&key, code_max)) {
        return Ok(Compiled {
            artifact,
            time: started.elapsed(),
            cached: true,
        });
    }
    let artifact = match &settings.compiler {
        Compiler::InProcess => in_process(engine, bytes)?,
        Compiler::Child { program } => {
            child::compile(program, bytes, settings, allocation, code_max)?
        }
    };
    if artifact.code().len() as u64 > code_max {
        return Err(LoadError::CodeTooLarge { limit: code_max });
    }
    if let Some(cache) = &cache {
        cache.put(&key, artifact.code());
    }
    Ok(Compiled {
        artifact,
        time: started.elapsed(),
        cached: false,
    })
}

/// Whether there is an entry for the code of a component with this digest.
pub(super) fn is_kept(engine: &Engine, digest: &[u8; 32], settings: &Settings) -> bool {
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
    let code = engine.precompile_component(bytes).map_err(invalid)?;
    let all = 0..code.len();
    Ok(Artifact::new(code, all).expect("all of it is a part of it"))
}

fn invalid(error: wasmtime::Error) -> LoadError {
    LoadError::Invalid {
        detail: said(&error),
    }
}

/// The settings that a compiler needs to know: with equal ones, engines are compatible.
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
