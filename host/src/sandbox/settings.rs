//! The settings of a handler: limits, grants, compiler and reuse of instances.

use std::path::PathBuf;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::limits::Limits;
use super::program::Program;
use crate::delivery::hold::HoldLimits;
use crate::grants::Grants;

/// The memory allocation of instances.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Allocation {
    /// A pool that is mapped once, if the address space has room; else `OnDemand`.
    #[default]
    Auto,
    /// Memory is mapped for every instance: slower, but reserves no address space.
    OnDemand,
}

/// A change to the engine, for benchmarks only.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Variation {
    /// Do not use `PAGEMAP_SCAN`.
    NoPagemapScan,
    /// Return every written page to the kernel.
    NothingResident,
    /// Copy the initial memory instead of mapping it copy-on-write.
    NoCopyOnWrite,
    /// Do not interrupt guests: CPU time has no limit.
    NoEpochs,
}

/// The settings of a handler.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Settings {
    /// The limits.
    pub limits: Limits,
    /// The number of attempts that run at a time, one per [`super::Slot`].
    pub concurrency: usize,
    /// The most messages that an instance serves; 1 = a fresh instance for every message. A random
    /// part of up to a fifth is subtracted for each instance.
    pub reuse: u32,
    /// Bytes of linear memory; an instance that has grown beyond them is dropped. `None` = half of
    /// [`Limits::memory`].
    pub reuse_memory: Option<usize>,
    /// The longest idle time of an instance.
    pub reuse_idle: Duration,
    /// The operator's grants.
    pub grants: Grants,
    /// How the handler may hold messages; `None` = not at all, because the queue is at most once. Then it answers to no
    /// producer, either.
    pub holds: Option<HoldLimits>,
    /// Whether the calls of attempts are noted, for the dead letters of those that fail.
    pub record_calls: bool,
    /// Whether every answer of the host to an attempt is recorded, for the same.
    pub record_answers: bool,
    /// How a program is called.
    pub program: Program,
    /// The memory allocation of instances.
    pub allocation: Allocation,
    /// Whether instances may begin from a snapshot, after their start. Applies to [`Compiler::Child`].
    pub snapshot: bool,
    /// Whether backtraces name lines of source, where the component has them: its modules are not merged.
    pub lines: bool,
    /// The compiler.
    pub compiler: Compiler,
    /// The cache of compiled code.
    pub cache: Option<Cache>,
    /// Compile at a low priority. Applies to [`Compiler::Child`].
    pub background: bool,
    /// For benchmarks. Applies to [`Compiler::InProcess`].
    #[doc(hidden)]
    pub variation: Option<Variation>,
}

impl Settings {
    /// A digest of the settings that decide what a handler sees, beside what it is answered.
    pub(crate) fn digest(&self) -> String {
        let Self {
            program, snapshot, ..
        } = self;
        // A person who steps through an attempt needs more time.
        let limits = Limits {
            wall: Duration::ZERO,
            ..self.limits.clone()
        };
        let keys = self.grants.key_value.as_ref();
        let outlets: Option<Vec<&str>> =
            (self.grants.publish.as_ref()).map(|all| all.names().collect());
        let text = format!("{limits:?} {program:?} {snapshot} {keys:?} {outlets:?}");
        crate::delivery::text::hex(&Sha256::digest(text))
    }
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
            holds: Some(HoldLimits::default()),
            record_calls: true,
            record_answers: false,
            program: Program::default(),
            allocation: Allocation::default(),
            snapshot: true,
            lines: false,
            compiler: Compiler::default(),
            cache: None,
            background: false,
            variation: None,
        }
    }
}

/// The process that compiles.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Compiler {
    /// This process, without limits on time and memory: for tests and trusted components.
    #[default]
    InProcess,
    /// A child process, within [`Limits::compile_time`] and [`Limits::compile_memory`].
    Child {
        /// This program. It is run with [`COMMAND`](crate::compiler::COMMAND).
        program: PathBuf,
    },
}

/// The cache of compiled code.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Cache {
    /// The directory. It is made if it is missing, and must belong to this user only (mode 0700).
    pub dir: PathBuf,
    /// Bytes of all files in the directory; the least recently used entry is removed first.
    pub max_bytes: u64,
}

/// The reuse of instances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reuse {
    /// The most messages that an instance serves.
    pub(crate) messages: u32,
    /// Bytes of linear memory; an instance that has grown beyond them is dropped.
    pub(crate) memory: usize,
    /// The longest idle time of an instance.
    pub(crate) idle: Duration,
}

impl Reuse {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            messages: settings.reuse,
            memory: settings.reuse_memory.unwrap_or(settings.limits.memory / 2),
            idle: settings.reuse_idle,
        }
    }

    /// The messages that the next instance serves: up to a fifth less than the maximum, so that slots
    /// that start together do not keep making new instances at the same time.
    pub(crate) fn lifetime(&self) -> u32 {
        self.messages - fastrand::u32(0..=self.messages / 5)
    }
}
