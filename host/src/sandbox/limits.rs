//! The limits of a handler. `docs/sandbox.md` lists them with the faults that they cause.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::delivery::effect::EffectLimits;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// The limits of one handler. The documentation lists the defaults.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Limits {
    /// The wall-clock time of one attempt, waiting included.
    pub wall: Duration,
    /// The CPU time of one attempt; checked every [`super::TICK`].
    pub cpu: Duration,
    /// Bytes of all linear memories of an instance.
    pub memory: usize,
    /// Elements of all tables of an instance.
    pub table_elements: usize,
    /// Bytes of the guest's call stack.
    pub stack: usize,
    /// Bytes that the guest may pass to the host in one call, its answer included.
    pub transfer: usize,
    /// Bytes of an outcome's text; the rest is dropped.
    pub outcome_text: usize,
    /// Resource handles (streams, pollables, ...) that an instance may hold at a time.
    pub handles: usize,
    /// HTTP requests of one attempt; further ones are denied.
    pub requests: usize,
    /// Random bytes that the guest may request in one call.
    pub random: u64,
    /// Bytes of stdout and stderr per attempt; excess is dropped and counted.
    pub log_attempt: usize,
    /// Bytes per line of stdout and stderr; excess is dropped and counted.
    pub log_line: usize,
    /// Bytes per second of the log events of stdout and stderr, of all attempts; excess is dropped and
    /// counted.
    pub log_rate: usize,
    /// Bytes of the end of an attempt's log that are kept for the report about it, if the attempt fails.
    pub log_tail: usize,
    /// Bytes of the component's file.
    pub component: u64,
    /// The time to compile it. Applies to [`Compiler::Child`](super::Compiler::Child).
    pub compile_time: Duration,
    /// Bytes of address space to compile it. Applies to [`Compiler::Child`](super::Compiler::Child).
    pub compile_memory: u64,
    /// What attempts publish.
    #[serde(skip)]
    pub effects: EffectLimits,
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
            requests: 1_000,
            random: 64 * KIB as u64,
            log_attempt: 64 * KIB,
            log_line: 8 * KIB,
            log_rate: MIB,
            log_tail: 4 * KIB,
            component: 64 * MIB as u64,
            compile_time: Duration::from_secs(60),
            compile_memory: 2048 * MIB as u64,
            effects: EffectLimits::default(),
        }
    }
}
