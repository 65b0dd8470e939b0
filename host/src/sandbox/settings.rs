//! How a handler is run: its limits, its grants, who compiles it, and how long its instances last.

use std::path::PathBuf;
use std::time::Duration;

use super::grants::Grants;
use super::limits::Limits;

/// How instances get their memory.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Allocation {
    /// From a pool mapped once, if the address space has room for it; else as `OnDemand`.
    #[default]
    Auto,
    /// Mapped for every instance: slower, but needs no address space ahead.
    OnDemand,
}

/// One thing about the engine that is other than always: for benchmarks, which say what it makes.
/// No setting leads here.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Variation {
    /// As on a kernel without `PAGEMAP_SCAN`.
    NoPagemapScan,
    /// Every page that an instance has written goes back to the kernel.
    NothingResident,
    /// An instance's memory is filled by copying, not mapped copy-on-write.
    NoCopyOnWrite,
    /// Nothing interrupts a guest: its CPU time has no limit.
    NoEpochs,
}

/// How a handler is run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The bounds of the handler.
    pub limits: Limits,
    /// How many attempts run at a time: the number of [`super::Slot`]s in use.
    pub concurrency: usize,
    /// How many messages one instance serves at most; 1 = a fresh instance for every message. An
    /// instance serves up to a fifth less, by chance.
    pub reuse: u32,
    /// Bytes of linear memory: an instance that has grown beyond them serves no more; `None` =
    /// half of [`Limits::memory`].
    pub reuse_memory: Option<usize>,
    /// How long an instance waits for its next message.
    pub reuse_idle: Duration,
    /// What the handler may import beyond what every handler may.
    pub grants: Grants,
    /// How instances get their memory.
    pub allocation: Allocation,
    /// Who compiles.
    pub compiler: Compiler,
    /// Where compiled code is kept; `None` = nowhere.
    pub cache: Option<Cache>,
    /// Compile at a low priority, because other things matter more. Holds for
    /// [`Compiler::Child`].
    pub background: bool,
    /// For benchmarks. Holds for [`Compiler::InProcess`].
    #[doc(hidden)]
    pub variation: Option<Variation>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            concurrency: 16,
            reuse: 1,
            reuse_memory: None,
            reuse_idle: Duration::from_secs(60),
            grants: Grants::default(),
            allocation: Allocation::default(),
            compiler: Compiler::default(),
            cache: None,
            background: false,
            variation: None,
        }
    }
}

/// Who compiles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Compiler {
    /// This process, without bounds on time and memory: for tests, and for components that one
    /// has made oneself.
    #[default]
    InProcess,
    /// A child process, within [`Limits::compile_time`] and [`Limits::compile_memory`].
    Child {
        /// The program: this very one. It is called with [`COMMAND`](super::compile::COMMAND).
        program: PathBuf,
    },
}

/// Where compiled code is kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cache {
    /// The directory: made if it is missing, not used unless it is this user's alone (0700).
    pub dir: PathBuf,
    /// Bytes of all files in it; what was not used for longest goes first.
    pub max_bytes: u64,
}

/// How long an instance lasts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reuse {
    /// Messages that it serves at most.
    pub(super) messages: u32,
    /// Bytes of linear memory beyond which it must not have grown.
    pub(super) memory: usize,
    /// How long it waits for its next message.
    pub(super) idle: Duration,
}

impl Reuse {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            messages: settings.reuse,
            memory: settings.reuse_memory.unwrap_or(settings.limits.memory / 2),
            idle: settings.reuse_idle,
        }
    }

    /// How many messages the next instance serves. Up to a fifth less than it may, so that slots
    /// that started together do not all make new instances together, for ever.
    pub(super) fn lifetime(&self) -> u32 {
        self.messages - fastrand::u32(0..=self.messages / 5)
    }
}
