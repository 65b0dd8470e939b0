//! What a handler may use. `docs/sandbox.md` publishes these with the fault that each produces.

use std::time::Duration;

use super::compile::{Cache, Compiler};
use super::grants::Grants;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The bounds of one handler. `Default` is what the documentation publishes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Limits {
    /// How long one attempt may take, waiting included.
    pub wall: Duration,
    /// How long one attempt may hold a core; checked every [`super::TICK`].
    pub cpu: Duration,
    /// Bytes of linear memory, all memories of an instance together.
    pub memory: usize,
    /// Elements of tables, all tables of an instance together.
    pub table_elements: usize,
    /// Bytes of the guest's call stack.
    pub stack: usize,
    /// Bytes that the guest may hand to the host in one call, its answer included.
    pub transfer: usize,
    /// Bytes of an outcome's text that are kept; the rest is cut off.
    pub outcome_text: usize,
    /// Handles to resources (streams, pollables, ...) that an instance may hold at a time.
    pub handles: usize,
    /// Random bytes that the guest may ask for in one call.
    pub random: u64,
    /// Bytes of stdout and stderr per attempt; the rest is dropped and counted.
    pub log_attempt: usize,
    /// Bytes per line of stdout and stderr; the rest of the line is dropped.
    pub log_line: usize,
    /// Bytes of stdout and stderr per second, all attempts together; the rest is dropped and
    /// counted.
    pub log_rate: usize,
    /// Bytes of the component's file.
    pub component: u64,
    /// How long compiling it may take. Holds for [`Compiler::Child`].
    pub compile_time: Duration,
    /// Bytes of address space that compiling it may take. Holds for [`Compiler::Child`].
    pub compile_memory: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wall: Duration::from_secs(5),
            cpu: Duration::from_secs(2),
            memory: 64 * MIB,
            table_elements: 100_000,
            stack: 512 * KIB,
            transfer: MIB,
            outcome_text: KIB,
            handles: 1_000,
            random: 64 * KIB as u64,
            log_attempt: 64 * KIB,
            log_line: 8 * KIB,
            log_rate: MIB,
            component: 64 * MIB as u64,
            compile_time: Duration::from_secs(60),
            compile_memory: 2048 * MIB as u64,
        }
    }
}

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
