//! Calls a guest, within limits.
//!
//! A [`Sandbox`] is one handler: a component that has passed every check, with its own engines and
//! instance pools. A [`Slot`] runs one call at a time and keeps an instance for reuse; by default
//! every call gets a fresh instance. A guest error becomes an
//! [`Outcome`](crate::delivery::outcome::Outcome): [`Sandbox::call`] never fails.
//!
//! - `loaded`: a handler that can be called; the room [`compiler`](crate::compiler) makes it. `world`: its exports
//!   (`worlds`: those of other hosts). `first_instance`: the needs of an instance.
//! - `ungranted`: the imports that every handler has. The room [`grants`](crate::grants) has the others.
//! - `runner`: one engine for each thread. `engine`, `limits`, `limiter`, `meter`: the limits; `docs/sandbox.md` has the table.
//! - `program`: programs as handlers: `wasi:cli/run`, and modules with `_start`.
//! - `call`: one attempt, run by `supervise`. `instance`: makes, reuses and drops instances.
//!   `recorded`: its clocks and random numbers, if they are recorded. `host`: the data of a store. `log`: the guest's output.
//! - `fault`: turns an error of wasmtime into a fault.
//!
//! Invariants: a store is dropped after a fault; guest code always runs with a CPU and a wall-clock
//! deadline; only code that this program compiled is run.

mod call;
mod cancelled;
pub(crate) mod engine;
pub(crate) mod error;
pub(crate) mod fault;
pub(crate) mod first_instance;
mod headers;
pub(crate) mod host;
mod instance;
pub(crate) mod limiter;
pub(crate) mod limits;
pub(crate) mod loaded;
pub(crate) mod log;
mod meter;
pub(crate) mod program;
mod recorded;
pub(crate) mod runner;
pub(crate) mod settings;
mod stderr_forms;
mod supervise;
pub(crate) mod ungranted;
pub(crate) mod world;
pub(crate) mod worlds;

use std::sync::Arc;
use std::time::Duration;

pub use call::{BatchReport, Call, Report};
pub use cancelled::Cancelled;
pub use error::LoadError;
pub use fault::BACKTRACE;
pub use host::DESCRIPTORS;
pub use instance::Slot;
pub use limits::Limits;
use loaded::Loaded;
pub use loaded::{Description, Start};
pub use log::{Capture, LogLine, LogSink, Stream};
pub use program::{ExitCodes, Meaning, Program, Stdout};
#[doc(hidden)]
pub use settings::Variation;
pub use settings::{Allocation, Cache, Compiler, Settings};
pub use world::World;

use crate::delivery::hold::HoldRoom;
use crate::delivery::recording::Track;

/// The version of wasmtime. A test compares it with the lock file.
pub const WASMTIME_VERSION: &str = "48.0.8";

/// The WIT package that handlers are built against.
pub const WIT_PACKAGE: &str = "hostler:handler@1.2.0";

/// The longest time between two interruptions of a running guest. CPU time is measured in steps of
/// this length, and other tasks of the thread wait at most this long.
pub const TICK: Duration = Duration::from_millis(10);

/// A loaded handler. Clones share it.
#[derive(Clone)]
pub struct Sandbox(pub(crate) Arc<Loaded>);

impl std::fmt::Debug for Sandbox {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sandbox")
            .field("digest", self.digest())
            .finish_non_exhaustive()
    }
}

impl Sandbox {
    /// The version of the handler: `sha256:` and the hexadecimal digest of its file.
    pub fn digest(&self) -> &Arc<str> {
        &self.0.shared.digest
    }

    /// The properties of the component.
    pub fn describe(&self) -> &Description {
        &self.0.description
    }

    /// How long a message may be held that was not held before.
    pub fn room(&self) -> HoldRoom {
        self.0.room
    }

    /// A slot for calls. If more than [`Settings::concurrency`] slots are in use, calls wait for
    /// instances.
    pub fn slot(&self) -> Slot {
        Slot::default()
    }

    /// Run one attempt. Needs a tokio runtime with its time driver.
    ///
    /// Never fails and never panics: an error is a fault in the outcome. Dropping the future ends
    /// the guest and drops its instance. A slot that served another handler makes a new instance.
    pub async fn call(&self, slot: &mut Slot, call: Call<'_>) -> Report {
        self.0.call(slot, call, None).await
    }

    /// As [`Sandbox::call`]: every answer of the host comes from this track.
    pub async fn play(&self, slot: &mut Slot, call: Call<'_>, track: &Arc<Track>) -> Report {
        self.0.call(slot, call, Some(track)).await
    }

    /// The digest of the settings that decide what the handler sees.
    pub fn settings(&self) -> &str {
        &self.0.shared.settings
    }

    /// Run one attempt of several messages in one call of a batch handler. A handler of single
    /// messages gets only the first message.
    ///
    /// As [`Sandbox::call`], but a fault belongs to the whole call: the message that caused it is
    /// unknown. The handler may return a wrong number of outcomes.
    pub async fn call_batch(&self, slot: &mut Slot, calls: &[Call<'_>]) -> BatchReport {
        self.0.call_batch(slot, calls).await
    }
}
