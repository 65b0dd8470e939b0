//! The only room with wasmtime in it: load a component, call it within limits.
//!
//! A [`Sandbox`] is one handler: a component that has passed every check and has an engine, with
//! a pool made for it, of its own. A [`Slot`] runs one call at a time and keeps the instance that
//! the next call may reuse; by default every call gets a fresh one. Whatever a guest does becomes
//! an [`Outcome`](crate::delivery::outcome::Outcome), never an error: [`Sandbox::call`] has none.
//!
//! - `load`: from a file to a handler; refuses with a [`LoadError`]. `format` and `world` say what
//!   a file and a component are.
//! - [`compile`]: the only way to compiled code: from a child process, or from the cache.
//! - `grants`: which imports a handler may have. `imports`: what is linked for them, a file for each.
//! - `engine`, `limits`, `limiter`, `meter`: what it may use; `docs/sandbox.md` has the table.
//! - `call`: one attempt, run by `supervise`. `instance`: what it runs in, and how long that lasts.
//!   `host` is the data of its store, `log` takes its output.
//! - `fault`: what an error of wasmtime means.
//!
//! Invariants: no store outlives a fault; no guest code runs without a deadline on its CPU and
//! wall time; no code is run that this program did not compile.

mod call;
pub mod compile;
mod engine;
pub(crate) mod error;
pub(crate) mod fault;
mod format;
mod grants;
mod host;
mod imports;
mod instance;
mod limiter;
mod limits;
pub(crate) mod load;
mod log;
mod meter;
mod settings;
mod supervise;
mod world;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use call::{BatchReport, Call, Report};
pub use error::LoadError;
pub use grants::{Grants, Import, Need, Values};
pub use instance::Slot;
pub use limits::Limits;
pub use load::Description;
use load::Loaded;
pub use load::read;
pub use log::{Capture, LogLine, LogSink, Stream};
#[doc(hidden)]
pub use settings::Variation;
pub use settings::{Allocation, Cache, Compiler, Settings};
pub use world::World;

/// The wasmtime that runs the guests. A test keeps it equal to the lock file's.
pub const WASMTIME_VERSION: &str = "48.0.8";

/// The package of the WIT that handlers are built against.
pub const WIT_PACKAGE: &str = "hostler:handler@1.0.0";

/// How often a running guest is looked at, at least: the grain of CPU time, and the longest that it
/// keeps others from its core.
pub const TICK: Duration = Duration::from_millis(10);

/// One handler, ready to be called. Clones share it.
#[derive(Clone)]
pub struct Sandbox(Arc<Loaded>);

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("digest", self.digest())
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    /// Load a component from a file. Compiles, which takes seconds for large ones, and makes one
    /// instance: call it on a thread that may block.
    ///
    /// # Errors
    ///
    /// A [`LoadError`] says what was found and what was wanted.
    pub fn load(path: &Path, settings: &Settings) -> Result<Self, LoadError> {
        Self::load_bytes(&read(path, settings.limits.component)?, settings)
    }

    /// As [`Sandbox::load`], of a component in memory.
    ///
    /// # Errors
    ///
    /// As [`Sandbox::load`].
    pub fn load_bytes(bytes: &[u8], settings: &Settings) -> Result<Self, LoadError> {
        load::load(bytes, settings).map(|loaded| Self(Arc::new(loaded)))
    }

    /// The handler's version: `sha256:` and the hexadecimal digest of its file.
    pub fn digest(&self) -> &Arc<str> {
        &self.0.shared.digest
    }

    /// What the component is and needs.
    pub fn describe(&self) -> &Description {
        &self.0.description
    }

    /// A slot to call it in. There are as many in use as [`Settings::concurrency`] says: with
    /// more, calls wait for instances.
    pub fn slot(&self) -> Slot {
        Slot::default()
    }

    /// Run one attempt. Needs a tokio runtime with its time driver.
    ///
    /// Never fails and never panics: what goes wrong is a fault in the report's outcome. Dropping
    /// the future ends the guest and drops its instance. A slot that served another handler before
    /// makes a new instance.
    pub async fn call(&self, slot: &mut Slot, call: Call<'_>) -> Report {
        self.0.call(slot, call).await
    }

    /// Run one attempt each of several messages, in one call of a handler of batches. Of any other
    /// handler, only the first message is run.
    ///
    /// As [`Sandbox::call`], but a fault is one of the call: which message has caused it, nobody
    /// knows. There are as many outcomes as the handler gave, which may be the wrong number.
    pub async fn call_batch(&self, slot: &mut Slot, calls: &[Call<'_>]) -> BatchReport {
        self.0.call_batch(slot, calls).await
    }
}
