//! What a handler may use. `docs/sandbox.md` publishes these with the fault that each produces.

use std::time::Duration;

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
    /// How long compiling it may take. Holds for [`Compiler::Child`](super::Compiler::Child).
    pub compile_time: Duration,
    /// Bytes of address space that compiling it may take. Holds for [`Compiler::Child`](super::Compiler::Child).
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
